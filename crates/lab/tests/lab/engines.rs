//! Tests of the experiments on the memory-oriented engines, with a few rows. Each run compares the rows of
//! every engine with what the transactions must have left, so these tests fail if an engine loses a change.

use serde_json::Value;
use varve_lab::stores::{ENGINES, VARIANTS};

use crate::experiment::{of_kind, slice, slice_of};

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row}"))
}

fn rows_of<'r>(rows: &'r [Value], load: &str, engine: &str) -> Vec<&'r Value> {
    let is_asked = |row: &&Value| row["factors"]["load"] == load && row["factors"]["engine"] == engine;
    of_kind(rows, "engine").into_iter().filter(is_asked).collect()
}

#[test]
fn ycsb_runs_on_every_engine() {
    let (rows, text) = slice("ycsb-engines", 2);
    let points = of_kind(&rows, "engine");
    assert_eq!(points.len(), 8 * (ENGINES.len() + VARIANTS.len()), "four mixes, two skews");
    assert!(
        points.iter().any(|row| row["not_judged"].is_string()),
        "a round of milliseconds is no measurement"
    );
    for row in &points {
        assert_eq!((&row["rounds"], &row["factors"]["partitions"]), (&2.into(), &2.into()));
        assert_eq!(row["transactions"], 2 * 4 * 400);
        assert!(number(row, "loads") > 1.0 && row["tps"]["median"].as_f64() > Some(0.0), "{row}");
        let tps = |model: &str| row["modelled_tps"][model]["median"].as_f64().expect("a model");
        assert!(tps("8x") < tps("2x") && tps("2x") < tps("1x") && tps("8x") <= tps("8x parallel"), "{row}");
        assert!(number(row, "peak_bytes") >= number(row, "loaded_bytes"), "{row}");
    }
    for engine in ENGINES {
        let (reads, writes) =
            (rows_of(&rows, "read-only", engine.name), rows_of(&rows, "write-heavy", engine.name));
        for (read, write) in reads.iter().zip(&writes) {
            assert!(number(read, "fences") < 0.1, "a read needs no fence: {read}");
            assert!(number(write, "stores") > number(read, "stores") + 1.0, "{write}");
            assert!(number(write, "stored_bytes") >= 90.0, "nine in ten change 100 bytes: {write}");
        }
    }
    let claims = of_kind(&rows, "claim");
    assert!(claims.iter().any(|claim| claim["says"].as_str().is_some_and(|says| says.contains("stores"))));
    assert!(text.contains("latencies are modelled") && text.contains("the paper has 8"), "{text}");
}

/// The same transactions have the same counts in each run, also in two partitions that each have a thread.
#[test]
fn counts_repeat() {
    let counts = || {
        let (rows, _) = slice_of("ycsb-engines", 1, &["load=balanced", "skew=high"]);
        let rows = of_kind(&rows, "engine").into_iter();
        let figures =
            |row: &Value| ["loads", "stores", "fences", "medium_writes"].map(|name| number(row, name));
        rows.map(figures).collect::<Vec<_>>()
    };
    let (first, second) = (counts(), counts());
    assert_eq!(first.len(), ENGINES.len() + VARIANTS.len());
    assert_eq!(first, second);
}

/// Tables of SQL have a cache of lookups, and the paper's engine has none. Both are shown.
#[test]
fn a_cache_of_lookups_is_a_setting_with_its_own_row() {
    let (rows, _) = slice_of("ycsb-engines", 1, &["load=read-only", "skew=low", "engine=nvm_inplace"]);
    let of = |lookups: &str| {
        let is_asked = |row: &&Value| row["factors"]["lookups"] == lookups;
        of_kind(&rows, "engine").into_iter().find(is_asked).unwrap_or_else(|| panic!("no row {lookups}"))
    };
    let loads = |lookups| number(of(lookups), "loads");
    assert!(loads("cached") < 0.9 * loads("uncached"), "{} and {}", loads("cached"), loads("uncached"));
    assert_ne!(of("cached")["configuration"], of("uncached")["configuration"]);
}

#[test]
fn wear_and_footprint_are_counted_without_times() {
    for (name, cells) in [("nvm-wear", 4), ("nvm-footprint", 1)] {
        let (rows, _) = slice(name, 1);
        let points = of_kind(&rows, "engine");
        assert_eq!(points.len(), cells * ENGINES.len(), "{name}");
        for row in points {
            assert!(row["tps"].is_null() && row["rounds"] == 0, "{row}");
            assert!(number(row, "most_writes") >= 1.0 && number(row, "worn_lines") >= 1.0, "{row}");
        }
        let claims = of_kind(&rows, "claim");
        assert!(claims.iter().all(|claim| claim["verdict"] != "not_judged"), "counts count: {claims:?}");
        assert!(!claims.is_empty(), "{name}");
    }
}

/// Processes are killed by SIGKILL. After each start, the rows are compared with the rows of all earlier
/// commits.
#[test]
fn every_engine_starts_behind_a_kill() {
    let (rows, _) = slice("nvm-recovery", 1);
    let starts = of_kind(&rows, "start");
    assert_eq!(starts.len(), 2 * 4 * ENGINES.len(), "two loads");
    for start in &starts {
        assert!(start["answer_ms"]["median"].as_f64() > Some(0.0), "{start}");
        let wanted = start["factors"]["transactions"].as_u64().expect("a number") as f64;
        let (acknowledged, committed) = (number(start, "acknowledged"), number(start, "committed"));
        assert!(wanted <= acknowledged && acknowledged <= committed, "{start}");
    }
    let claims = of_kind(&rows, "claim");
    assert!(claims.iter().any(|claim| claim["bar"] == 1.0), "a start in less than a second");
    assert!(claims.iter().any(|claim| claim["bar"] == 20.0), "a start in less than 20 ms");
}

/// The conditions of TPC-C are checked after each run, so an engine that loses an order fails here.
#[test]
fn tpcc_runs_on_every_engine() {
    let (rows, _) = slice("tpcc-engines", 1);
    let points = of_kind(&rows, "engine");
    assert_eq!(points.len(), ENGINES.len() + VARIANTS.len());
    for row in &points {
        assert_eq!((&row["factors"]["load"], &row["transactions"]), (&"tpcc".into(), &(2 * 400).into()));
        assert!(number(row, "stores") > 1.0 && number(row, "loads") > 1.0, "{row}");
        assert!(number(row, "peak_bytes") > number(row, "loaded_bytes"), "orders take space: {row}");
    }
    let claims = of_kind(&rows, "claim");
    let says = |what: &str| {
        claims.iter().filter(|claim| claim["says"].as_str().is_some_and(|says| says.contains(what))).count()
    };
    assert_eq!((says("part of stores"), says("bytes at the peak")), (3, 3));
}

#[test]
fn node_sizes_of_nvm_cow_differ_in_what_they_store() {
    let (rows, _) = slice_of("node-size", 1, &["load=write-heavy"]);
    let points = of_kind(&rows, "engine").into_iter();
    let stored: Vec<f64> = points.map(|row| number(row, "stored_bytes")).collect();
    assert_eq!(stored.len(), 6);
    // With few rows, larger nodes have two effects: fewer levels are copied, and each copy is longer.
    assert!(stored.first() != stored.last(), "{stored:?}");
}

#[test]
fn longer_syncs_make_changes_slower_and_reads_not() {
    let (rows, _) = slice("persist-latency", 1);
    let points = of_kind(&rows, "engine");
    let engines = ENGINES.iter().filter(|engine| engine.traditional.is_some()).count();
    assert_eq!(points.len(), 4 * engines);
    for row in points {
        let tps = |model: &str| row["modelled_tps"][model]["median"].as_f64().expect("a model");
        let is_read = row["factors"]["load"] == "read-only";
        // The engine nvm_cow waits once for each batch, so the difference is small if few transactions change
        // rows.
        assert!(tps("10000 ns") < tps("10 ns") || is_read, "{row}");
        assert!(tps("10000 ns") > 0.9 * tps("10 ns") || !is_read, "{row}");
    }
}

/// Undo logs, write-ahead logs and directories take time under updates, and the categories together have all
/// the time.
#[test]
fn the_time_of_every_engine_is_split() {
    let (rows, _) = slice_of("nvm-breakdown", 1, &["load=write-heavy"]);
    let times = of_kind(&rows, "time");
    assert_eq!(times.len(), ENGINES.len());
    for row in times {
        let share = |category: &str| row["share"][category].as_f64().unwrap_or_default();
        let all: f64 = ["storage", "recovery", "index", "other"].into_iter().map(share).sum();
        assert!((all - 1.0).abs() < 1e-6, "{row}");
        assert!(share("index") > 0.0 && share("storage") > 0.0, "{row}");
        // Other engines write their log once for each group, and a few samples can miss this write.
        assert!(share("recovery") > 0.0 || row["factors"]["engine"] != "nvm_inplace", "{row}");
    }
    let claims = of_kind(&rows, "claim");
    assert_eq!(claims.len(), 3 + 3 + 1, "{claims:?}");
}

#[test]
fn two_partitions_are_compared_with_one() {
    let (rows, _) = slice("nvm-partitions", 1);
    let partitions = of_kind(&rows, "partitions");
    assert_eq!(partitions.len(), ENGINES.len());
    for row in partitions {
        assert_eq!(row["counts_repeat"], true, "{row}");
        // On a slow machine, a round of the slow engines may take long enough to be judged.
        let is_fast = row["factors"]["engine"] == "nvm_inplace";
        assert!(
            !is_fast || row["not_judged"].is_string(),
            "a round of milliseconds is no measurement: {row}"
        );
    }
    assert_eq!(of_kind(&rows, "claim").len(), 2 * ENGINES.len());
}

#[test]
fn both_interfaces_are_measured_at_each_size() {
    let (rows, _) = slice("nvm-interfaces", 1);
    let points = of_kind(&rows, "interface");
    assert_eq!(points.len(), 2 * 9);
    let mb_s = |row: &Value, interface: &str| row[interface]["median"].as_f64().expect("a figure");
    for row in &points {
        assert!(mb_s(row, "allocator_mb_s") > mb_s(row, "file_mb_s"), "a file has two calls: {row}");
    }
    assert_eq!(of_kind(&rows, "claim").len(), 3);
}

#[test]
fn operations_are_compared_with_the_cost_model() {
    let (rows, _) = slice("nvm-cost-model", 1);
    let costs = of_kind(&rows, "cost");
    assert_eq!(costs.len(), 3 * ENGINES.len());
    for row in &costs {
        let least = if row["factors"]["operation"] == "delete" { 8.0 } else { 100.0 };
        assert!(number(row, "stored_bytes") >= least, "{row}");
        let parts: f64 =
            row["stored_by_part"].as_object().expect("parts").values().filter_map(Value::as_f64).sum();
        // If no sample has a store, there is no split.
        assert!(parts == 0.0 || (parts - number(row, "stored_bytes")).abs() < 1.0, "{row}");
    }
    let is_asked =
        |row: &&&Value| row["factors"]["engine"] == "nvm_inplace" && row["factors"]["operation"] == "update";
    let update = costs.iter().find(is_asked).expect("an update of nvm_inplace");
    assert!(number(&update["stored_by_part"], "log") > 50.0, "it logs 100 bytes of a column: {update}");
    assert!(number(&update["stored_by_part"], "tuple") > 50.0, "it stores 100 bytes in the tuple: {update}");
    assert!(of_kind(&rows, "claim").iter().all(|claim| claim["bar"] == 1.1));
}
