//! Tests that a small part of each experiment runs to its end, on small files and without emulation. The
//! result rows say that they are not valid measurements, and no verdict is given.

use std::path::Path;

use clap::Parser;
use serde_json::Value;
use varve_lab::experiment::{Device, ExperimentArgs, Lab, Scale, perform, run};

fn lab_in<'o>(folder: &Path, scale: Scale, device: Device, out: &'o mut Vec<u8>) -> Lab<'o> {
    let place = || Some(folder.to_owned());
    Lab::new(scale, device, (place(), place()), out).expect("a lab")
}

/// Runs an experiment. Returns its output: rows, and the other lines.
pub fn slice(name: &str, rounds: usize) -> (Vec<Value>, String) {
    slice_of(name, rounds, &[])
}

/// Runs an experiment, but measures only points with these values. Returns its output.
pub fn slice_of(name: &str, rounds: usize, only: &[&str]) -> (Vec<Value>, String) {
    let device = Device::named("none", None).expect("the device that is there");
    let scale = Scale { rounds, ..Scale::TINY };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut out = Vec::new();
    let mut lab = lab_in(folder.path(), scale, device, &mut out);
    lab.choose_clients(&[2]).expect("two sessions");
    lab.set_program(Path::new(env!("CARGO_BIN_EXE_varve-lab")));
    let only: Vec<String> = only.iter().map(|one| (*one).to_owned()).collect();
    lab.choose_points(&only).expect("factors and values");
    perform(&mut lab, name).unwrap_or_else(|error| panic!("{name}: {error}"));
    lab.end().expect("everything is written");
    let text = String::from_utf8(out).expect("UTF-8");
    let (rows, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    (rows.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect(), rest.join("\n"))
}

pub fn of_kind<'r>(rows: &'r [Value], kind: &str) -> Vec<&'r Value> {
    rows.iter().filter(|row| row["row"] == kind).collect()
}

#[test]
fn doublewrite_cost() {
    let (rows, text) = slice("doublewrite-cost", 2);
    let points = of_kind(&rows, "point");
    let variants: Vec<&str> =
        points.iter().filter_map(|point| point["factors"]["variant"].as_str()).collect();
    assert_eq!(variants, ["original", "none-paced", "doublewrite", "none"]);
    for point in &points {
        assert_eq!((&point["rounds"], &point["factors"]["clients"]), (&2.into(), &2.into()));
        assert!(
            point["tps"]["median"].as_f64() > Some(0.0) && point["latency_mean_us"].as_f64() > Some(0.0),
            "{point}"
        );
        assert!(point["written_bytes"]["log"].as_f64() > Some(0.0), "{point}");
        assert_eq!(point["emulation"], Value::Null);
        let share = |what: &str| point["time_share"][what].as_f64();
        assert!(share("log_wait") > Some(0.0) && share("log_wait") < Some(1.5), "{point}");
    }
    let hashes: std::collections::BTreeSet<_> =
        points.iter().map(|point| point["configuration"].to_string()).collect();
    assert_eq!(hashes.len(), 4, "each variant is a configuration of its own");
    let claims = of_kind(&rows, "claim");
    assert_eq!(claims.len(), 2);
    // Kang has no figure for two sessions.
    assert!(claims.iter().all(|claim| claim["verdict"] == "not_in_text" && claim["published"].is_null()));
    assert!(text.contains("log_wait"), "{text}");
    assert!(claims.iter().all(|claim| claim["rounds"] == 2) && text.contains("2 rounds"), "{text}");
    assert!(text.contains("not about real devices") && text.contains("times the pool"), "{text}");
}

/// A point is judged only if it has a published value, and if the emulation of the device was fast enough.
#[test]
fn the_emulation_decides_what_counts() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut out = Vec::new();
    let device = Device::named("sata-ssd-2014", Some(100.0)).expect("a shipped profile");
    let scale = Scale { rounds: 1, ..Scale::TINY };
    let mut lab = lab_in(folder.path(), scale, device, &mut out);
    lab.choose_clients(&[8]).expect("eight sessions");
    perform(&mut lab, "doublewrite-cost").expect("an experiment");
    lab.end().expect("everything is written");
    let text = String::from_utf8(out).expect("UTF-8");
    let rows: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for point in of_kind(&rows, "point") {
        let emulation = &point["emulation"];
        assert_eq!((&emulation["profile"], &emulation["flush_us"]), (&"sata-ssd-2014".into(), &100.0.into()));
        let dilation = emulation["dilation"].as_f64().expect("a number");
        assert!(emulation["counts"] == true || dilation == 8.0, "{point}");
    }
    for claim in of_kind(&rows, "claim") {
        let is_compared = |point: &Value| {
            let variant = point["factors"]["variant"].as_str().expect("a name");
            let says = claim["says"].as_str().expect("a text");
            point["factors"]["clients"] == claim["factors"]["clients"]
                && says.split(" / ").any(|name| name == variant)
        };
        let points = of_kind(&rows, "point");
        let compared: Vec<_> = points.iter().filter(|point| is_compared(point)).collect();
        assert_eq!(compared.len(), 2, "{claim}");
        let counts = compared.iter().all(|point| point["emulation"]["counts"] == true);
        let tps = |point: &&&Value| point["tps"]["median"].as_f64().expect("a figure");
        let slower = compared.iter().min_by(|a, b| tps(a).total_cmp(&tps(b))).expect("two");
        let limits = slower["emulation"]["device_limits"] == true;
        assert_eq!(claim["published"], 1.14);
        assert_eq!(claim["verdict"] != "not_judged", counts && limits, "{claim}");
    }
}

fn variants(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["factors"]["variant"].as_str()).collect()
}

fn figure(row: &Value, group: &str, name: &str) -> f64 {
    row[group][name].as_f64().unwrap_or(0.0)
}

/// Kang's variants write to the drive and to persistent memory what their names say.
fn writes_as_named(points: &[&Value]) {
    let of = |name: &str| {
        let found = points.iter().find(|point| point["factors"]["variant"] == name);
        found.unwrap_or_else(|| panic!("{name} was measured"))
    };
    let drive = |name: &str, purpose: &str| figure(of(name), "written_bytes", purpose);
    let nvm = |name: &str, purpose: &str| figure(of(name), "nvm_bytes", purpose);
    for name in ["original", "doublewrite", "nvm-dwb"] {
        assert!(drive(name, "log") > 0.0 && nvm(name, "log") == 0.0, "{name}");
    }
    for name in ["nvm-dwb-log", "nvm-dwb-log-opt"] {
        assert!(drive(name, "log") == 0.0 && nvm(name, "log") > 0.0, "{name}");
    }
    for name in ["packed", "nvm-dwb", "nvm-dwb-log", "nvm-dwb-log-opt"] {
        assert_eq!(drive(name, "doublewrite"), 0.0, "{name}");
    }
}

#[test]
fn throughput_of_the_four_protections() {
    for (name, published) in
        [("nvm-throughput-sysbench", "not_in_text"), ("nvm-throughput-tpcc", "not_in_text")]
    {
        let (rows, text) = slice(name, 1);
        let points = of_kind(&rows, "point");
        let all = [
            "original",
            "original-scaled",
            "doublewrite",
            "packed",
            "nvm-dwb",
            "nvm-dwb-log",
            "nvm-dwb-log-opt",
        ];
        assert_eq!(variants(&rows), all);
        writes_as_named(&points);
        let claims = of_kind(&rows, "claim");
        let says = |claim: &&&Value, what: &str| claim["says"].as_str().is_some_and(|says| says == what);
        let first = claims.iter().find(|claim| says(claim, "nvm-dwb-log-opt / original")).expect("a claim");
        assert_eq!(first["verdict"], published, "Kang has no figure for two sessions");
        let bars: Vec<_> = claims.iter().filter_map(|claim| claim["bar"].as_f64()).collect();
        assert_eq!(bars, [4.0, 2.4, 3.7, 3.7, 2.8]);
        let is_judged = |claim: &&&Value| claim["bar"].is_number() && claim["verdict"] != "not_judged";
        assert!(!claims.iter().any(|claim| is_judged(&claim)), "nothing was emulated");
        assert!(text.contains("missed") || text.contains("not judged"), "{text}");
    }
}

#[test]
fn latency_and_where_time_goes() {
    let (rows, text) = slice("nvm-latency", 1);
    assert_eq!(variants(&rows), ["original", "doublewrite", "nvm-dwb-log-opt"]);
    let shares: Vec<f64> = of_kind(&rows, "claim")
        .iter()
        .filter(|claim| claim["says"].as_str().is_some_and(|says| says.starts_with("part of the time")))
        .filter_map(|claim| claim["published"].as_f64())
        .collect();
    assert_eq!(shares, [0.087, 0.00018, 0.395, 0.394, 0.1294, 0.0065]);
    assert!(text.contains("log_wait") && text.contains("p99 ms"), "{text}");
}

#[test]
fn area_size() {
    let (rows, _) = slice("nvm-area-size", 1);
    let points = of_kind(&rows, "point");
    let areas: Vec<u64> = points.iter().filter_map(|point| point["factors"]["area MiB"].as_u64()).collect();
    assert_eq!(areas, [2, 4, 8, 15], "to an eighth of thirty pools");
    let published: Vec<_> =
        of_kind(&rows, "claim").iter().filter_map(|claim| claim["published"].as_f64()).collect();
    assert_eq!(published, [1.564], "an area as large as the pool");
}

#[test]
fn flush_sweep() {
    let (rows, _) = slice("nvm-flush-sweep", 1);
    let points = of_kind(&rows, "point");
    let flushes: Vec<f64> = points.iter().filter_map(|row| row["factors"]["flush us"].as_f64()).collect();
    assert_eq!(flushes.len(), 15);
    assert!(flushes.contains(&0.0) && flushes.contains(&3500.0));
}

#[test]
fn page_size() {
    let (rows, _) = slice("compression-page-size", 1);
    let points = of_kind(&rows, "point");
    let sizes: Vec<u64> = points.iter().filter_map(|row| row["factors"]["page KiB"].as_u64()).collect();
    assert_eq!(sizes, [4, 4, 8, 8, 16, 16, 32, 32, 64, 64]);
    assert!(points.iter().all(|row| row["database_bytes"].as_u64() > Some(0)));
    let bars = of_kind(&rows, "claim").iter().filter(|claim| claim["bar"] == 1.0).count();
    assert_eq!(bars, 2, "beyond 16 KiB lz4 has to be faster than nothing");
}

#[test]
fn compression_of_mixes() {
    let (rows, _) = slice("compression-throughput", 1);
    let points = of_kind(&rows, "point");
    let with = |mix: &str| {
        let of_mix = points.iter().filter(|point| point["factors"]["mix"] == mix);
        of_mix.filter_map(|point| point["factors"]["compression"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(with("linkbench"), ["none", "lz4", "lzo", "zlib", "none", "lz4"]);
    assert_eq!(with("tpcc"), ["none", "lz4", "lzo", "zlib", "none", "lz4"]);
    let bars: Vec<f64> = of_kind(&rows, "claim").iter().filter_map(|claim| claim["bar"].as_f64()).collect();
    assert_eq!(bars, [0.95, 1.0, 0.95, 1.0], "lz4 in place, and packed");
    let published: Vec<_> =
        of_kind(&rows, "claim").iter().filter_map(|claim| claim["published"].as_f64()).collect();
    assert_eq!(published, [0.94, 0.97]);
    let (rows, _) = slice("compression-threads", 1);
    assert_eq!(of_kind(&rows, "point").len(), 3);
}

#[test]
fn parts_of_compression() {
    let (rows, _) = slice_of("compression-parts", 1, &["mix=linkbench", "workers=1", "workers=4"]);
    let points = of_kind(&rows, "point");
    assert_eq!(points.len(), 32, "no real device is said to write pages whole");
    let in_nvm = points.iter().filter(|point| point["factors"]["protection"] == "nvm");
    assert!(in_nvm.map(|point| figure(point, "written_bytes", "log")).all(|bytes| bytes == 0.0));
    let copied = |protection: &str| {
        let of_it = points.iter().filter(|point| point["factors"]["protection"] == protection);
        of_it.map(|point| figure(point, "written_bytes", "doublewrite")).sum::<f64>()
    };
    assert_eq!(copied("none"), 0.0);
    let claims = of_kind(&rows, "claim");
    let of_trim = claims.iter().filter(|claim| claim["says"] == "trim on / off");
    let published: Vec<f64> = of_trim.filter_map(|claim| claim["published"].as_f64()).collect();
    assert_eq!((claims.len(), published), (31 + 12, vec![1.07, 1.07]), "the paper's is in place");
    let (rows, _) = slice_of("compression-parts", 1, &["mix=tpcc", "workers=1", "protection=full-page-log"]);
    let trims: Vec<_> =
        of_kind(&rows, "point").iter().map(|point| point["factors"]["trim"].clone()).collect();
    assert_eq!(trims, ["off", "off", "on"]);
    let (rows, _) = slice_of("compression-trim", 1, &["trim us=1000.0", "protection=doublewrite"]);
    let points = of_kind(&rows, "point");
    let trims: Vec<&str> = points.iter().filter_map(|point| point["factors"]["trim"].as_str()).collect();
    assert_eq!(trims, ["off", "on"]);
}

#[test]
fn latency_and_bytes_of_compression() {
    let (rows, text) = slice("compression-latency", 1);
    let points = of_kind(&rows, "point");
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|point| point["kinds"]["getlinklist"]["p99_us"].as_f64() > Some(0.0)));
    assert!(text.contains("getlinklist"), "{text}");
    let (rows, text) = slice("compression-write-amount", 1);
    let claims = of_kind(&rows, "claim");
    // The paper compresses pages under atomic writes, and a drive that is not emulated does not promise
    // atomic writes.
    assert_eq!(claims.len(), 1);
    assert!(claims[0]["published"].is_null(), "{claims:?}");
    for point in of_kind(&rows, "point") {
        let tenths: Vec<f64> =
            point["written_over_time"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        assert!(tenths.len() == 10 && tenths.iter().any(|bytes| *bytes > 0.0), "{point}");
    }
    assert!(text.contains("tenths of a round"), "{text}");
}

#[test]
fn loads_by_codec() {
    for name in ["compression-load", "compression-space"] {
        let (rows, text) = slice(name, 1);
        let loads = of_kind(&rows, "load");
        assert_eq!(loads.len(), 8 + 3, "in place, and packed");
        let share = |codec: &str| {
            let of_it = loads.iter().find(|load| load["compression"] == codec);
            of_it.and_then(|load| load["stored_share"].as_f64()).expect("a share")
        };
        assert_eq!(share("none"), 1.0);
        assert!(share("lz4") < 1.0 && share("zlib") < 1.0, "{loads:?}");
        assert!(loads.iter().all(|load| load["allocated_bytes"].as_u64() > Some(0)));
        assert!(text.contains("lzma"), "{text}");
    }
}

/// Pages in place are written twice, and packed pages once and shorter. Rows say that flash is modelled. An
/// interval that is too short gets no verdict.
#[test]
fn wear_of_flash() {
    let ways = ["doublewrite", "packed lz4"];
    let only = ["variant=doublewrite", "variant=packed lz4", "values=0.5", "theta=0.99"];
    let (rows, text) = slice_of("packed-wear", 1, &only);
    let wear = of_kind(&rows, "wear");
    assert_eq!(variants(&rows), ways);
    for row in &wear {
        let of = |name: &str| row[name].as_f64().unwrap_or(0.0);
        assert_eq!(row["flash"], "modelled");
        assert!(of("transactions") > 0.0 && of("pages_written") > 0.0, "{row}");
        assert!(of("flash_bytes") >= of("host_bytes") * 0.9 && of("host_bytes") > 0.0, "{row}");
        assert!(of("log_apart_bytes") > 0.0 && of("overwritten_before") >= 0.2, "{row}");
    }
    // Pages are counted before their writes. So at the ends of a short interval some pages have no counted
    // write.
    let of_a_page = |at: usize| wear[at]["host_bytes_of_a_page"].as_f64().expect("a figure");
    assert!(of_a_page(0) > 1.9 * 8192.0 && of_a_page(1) < 8192.0, "{} {}", of_a_page(0), of_a_page(1));
    assert!(
        wear[0]["packed_amplification"].is_null() && wear[1]["packed_amplification"].as_f64() >= Some(1.0)
    );
    let share = wear[1]["stored_share"].as_f64().expect("a share");
    assert!((0.3..0.7).contains(&share), "{share}");
    let claims = of_kind(&rows, "claim");
    let bars: Vec<f64> = claims.iter().filter_map(|claim| claim["bar"].as_f64()).collect();
    assert_eq!(bars, [2.0, 6.0]);
    let verdicts: Vec<&str> = claims.iter().filter_map(|claim| claim["verdict"].as_str()).collect();
    // The small database leaves most of the drive empty. There is no bar for ratios that include the whole
    // log.
    assert_eq!(verdicts, ["not_judged", "not_judged", "no_bar", "no_bar"]);
    assert!(text.contains("modelled") && text.contains("plain and in place"), "{text}");
}

/// Rows have separate counts for each drive, each design has the same warm-up, and the baseline sends no
/// request to flash.
#[test]
fn designs_of_the_flash_cache() {
    let only = ["workload=tpcc", "size=200", "design=off", "design=dual-write", "design=lazy-cleaning"];
    let (rows, text) = slice_of("flash-speedup", 1, &only);
    let points = of_kind(&rows, "point");
    let designs: Vec<&str> = points.iter().filter_map(|point| point["factors"]["design"].as_str()).collect();
    assert_eq!(designs, ["off", "dual-write", "lazy-cleaning"]);
    for point in &points {
        let drive = |name: &str, what: &str| point["drives"][name][what].as_f64().expect("a figure");
        let is_off = point["factors"]["design"] == "off";
        assert!(drive("home", "pages_read") > 0.0 && drive("log", "pages_written") > 0.0, "{point}");
        assert_eq!(drive("flash", "pages_read") > 0.0, !is_off, "{point}");
        assert!(point["warmth"]["transactions"].as_u64() > Some(0), "{point}");
        assert_eq!(point["cache"].is_null(), is_off);
    }
    let claims = of_kind(&rows, "claim");
    let published: Vec<f64> = claims.iter().filter_map(|claim| claim["published"].as_f64()).collect();
    assert!(published.len() == 3 && published[1..] == [8.0, 1.0], "designs, and their order: {published:?}");
    assert!(
        claims
            .iter()
            .all(|claim| ["not_judged", "not_in_text"].contains(&claim["verdict"].as_str().unwrap_or("")))
    );
    assert!(text.contains("hdd-8") && text.contains("of bound"), "{text}");
}

/// Scans with look-ups change no data, and a cache may be on the machine's own disk.
#[test]
fn other_loads_and_drives_of_the_flash_cache() {
    let two = ["design=off", "design=dual-write"];
    for (name, workload, size) in [("flash-speedup", "tpch-like", 45), ("flash-real", "tpcc", 200)] {
        let (workload, size) = (format!("workload={workload}"), format!("size={size}"));
        let (rows, _) = slice_of(name, 1, &[&workload, &size, two[0], two[1]]);
        let points = of_kind(&rows, "point");
        assert_eq!(points.len(), 2, "{name}");
        for point in points {
            let is_off = point["factors"]["design"] == "off";
            assert_eq!(point["drives"]["flash"]["pages_read"].as_f64() > Some(0.0), !is_off, "{point}");
            if name == "flash-speedup" {
                let kinds = point["kinds"].as_object().expect("kinds");
                assert_eq!(kinds.len(), 3, "{point}");
            }
        }
    }
}

/// The throttle refuses pages. The published value is the value for the thesis' own limit.
#[test]
fn throttle_of_the_flash_cache() {
    let (rows, _) =
        slice_of("flash-throttle", 1, &["design=off", "design=dual-write", "queued=0", "queued=800"]);
    let points = of_kind(&rows, "point");
    let queued: Vec<_> = points.iter().map(|point| point["factors"]["queued"].as_u64()).collect();
    assert_eq!(queued, [Some(0), Some(800)]);
    let claims = of_kind(&rows, "claim");
    let over_off = claims.iter().find(|claim| claim["says"] == "dual-write / off").expect("a claim");
    assert_eq!((&over_off["factors"]["queued"], &over_off["published"]), (&800.into(), &Value::Null));
}

/// A database is shut down, or dropped without a shutdown. In both cases it starts again, answers a query and
/// runs the load.
#[test]
fn from_peak_to_peak() {
    let (rows, text) =
        slice_of("flash-restart", 2, &["design=lazy-cleaning", "scheme=none", "scheme=lazy-verification"]);
    let restarts = of_kind(&rows, "restart");
    assert_eq!(restarts.len(), 8, "without and with the cache, two loads");
    for row in restarts {
        let of = |name: &str| row[name].as_f64().expect("a figure");
        let (stop, scheme) = (&row["factors"]["stop"], &row["factors"]["scheme"]);
        assert_eq!(row["shutdown_seconds"] == 0.0, stop == "crash", "{row}");
        assert!(of("peak_tps") > 0.0 && of("recovery_seconds") > 0.0, "{row}");
        assert!(of("first_query_seconds") > of("recovery_seconds") && of("log_read_bytes") > 0.0, "{row}");
        assert!(row["tps"].as_array().is_some_and(|tps| !tps.is_empty()), "{row}");
        assert!(scheme != "none" || of("restored_pages") == 0.0, "{row}");
        let rounds = row["rounds"].as_array().expect("all rounds");
        let slowest =
            rounds.iter().filter_map(|round| round["peak_to_peak_seconds"].as_f64()).fold(0.0, f64::max);
        assert_eq!((rounds.len(), of("peak_to_peak_seconds")), (2, slowest), "the slower one of two: {row}");
        assert!(
            scheme == "none" || stop == "crash" || of("restored_pages") > 0.0,
            "all records are written at a shutdown: {row}"
        );
    }
    let claims = of_kind(&rows, "claim");
    let bars: Vec<f64> = claims.iter().filter_map(|claim| claim["bar"].as_f64()).collect();
    assert_eq!((claims.len(), bars), (12, vec![2.5; 4]), "published, bar and throughput of each");
    let verdicts: Vec<&str> = claims.iter().filter_map(|claim| claim["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["not_judged", "not_judged", "not_in_text"].repeat(4), "nothing was emulated");
    assert!(
        text.contains("hdd-18") && text.contains("24 : 140 : 200") && text.contains("lambda 20 %"),
        "{text}"
    );
    assert!(
        text.contains("peak to peak s")
            && text.contains("thesis: 1.4 to 1.5")
            && text.contains("thesis: 1.3 to 1.8"),
        "{text}"
    );
}

/// Values that the thesis measured for other schemes are shown beside ours, and are no bar.
#[test]
fn other_schemes_from_peak_to_peak() {
    let only = [
        "workload=tpcc",
        "design=dual-write",
        "stop=shutdown",
        "scheme=none",
        "scheme=memory-mapped",
        "scheme=log-based",
    ];
    let (rows, _) = slice_of("flash-restart", 1, &only);
    let schemes: Vec<&str> =
        of_kind(&rows, "restart").iter().filter_map(|row| row["factors"]["scheme"].as_str()).collect();
    assert_eq!(schemes, ["none", "memory-mapped", "log-based"]);
    let claims = of_kind(&rows, "claim");
    assert!(
        claims.iter().all(|claim| claim["verdict"] == "not_judged" && claim["bar"].is_null()),
        "{claims:?}"
    );
    let published: Vec<_> = claims.iter().map(|claim| claim["published"].as_f64()).collect();
    assert_eq!(published, [Some(3.5), Some(0.62), Some(3.5), Some(0.93)]);
}

/// Tests the first query after starts with a small cache and with a large cache.
#[test]
fn first_query_after_a_start() {
    let only = ["design=lazy-cleaning", "design=dual-write", "log budget=12", "log budget=6"];
    let (rows, text) = slice_of("flash-first-query", 1, &only);
    let all = of_kind(&rows, "first query");
    let place = |row: &Value| {
        let of = |name: &str| row["factors"][name].to_string();
        [of("design"), of("log budget"), of("cache"), of("stop")].join(" ").replace('"', "")
    };
    let places: Vec<String> = all.iter().map(|row| place(row)).collect();
    let expected = [
        "dual-write 12 35 shutdown",
        "dual-write 12 35 crash",
        "dual-write 12 140 shutdown",
        "dual-write 12 140 crash",
        "lazy-cleaning 6 35 shutdown",
        "lazy-cleaning 6 35 crash",
        "lazy-cleaning 6 140 shutdown",
        "lazy-cleaning 6 140 crash",
    ];
    assert_eq!(places, expected);
    for row in all {
        let median = |name: &str| row[name]["median"].as_f64().expect("a figure");
        assert!(median("first_query_seconds") > median("recovery_seconds"), "{row}");
        let is_crash = row["factors"]["stop"] == "crash";
        assert!(is_crash || row["restored_pages"].as_f64() > Some(0.0), "{row}");
    }
    let claims = of_kind(&rows, "claim");
    assert!(claims.iter().all(|claim| claim["bar"] == 1.2 && claim["verdict"] == "not_judged"), "{claims:?}");
    assert_eq!(claims.len(), 4, "each design and end, by size");
    assert!(text.contains("first query s"), "{text}");
}

/// Tests pairs of rounds on two open databases: a ratio with its interval, and the share of slot records in
/// the flash traffic.
#[test]
fn what_it_costs_to_keep_a_flash_cache() {
    let only = ["design=dual-write", "scheme=none", "scheme=lazy-verification", "scheme=memory-mapped"];
    let (rows, text) = slice_of("flash-hardening", 2, &only);
    let pairs = of_kind(&rows, "hardening");
    let schemes: Vec<&str> = pairs.iter().filter_map(|row| row["factors"]["scheme"].as_str()).collect();
    assert_eq!(schemes, ["memory-mapped", "lazy-verification"]);
    for row in &pairs {
        let count = |name: &str| row[name].as_array().map(Vec::len);
        assert_eq!((count("none_tps"), count("tps"), count("warmth")), (Some(2), Some(2), Some(2)), "{row}");
        let (mean, low) = (row["ratio"]["mean"].as_f64(), row["ratio"]["ends"][0].as_f64());
        assert!(mean > Some(0.0) && low < mean && row["ratio"]["pairs"] == 2, "{row}");
        assert!(row["log_bytes"][0].as_f64() > Some(0.0), "{row}");
    }
    let share = |at: usize| pairs[at]["meta_requests_share"].as_f64().expect("a share");
    assert!(share(0) > 0.1, "each page is followed by its record: {}", share(0));
    let claims = of_kind(&rows, "claim");
    let bars: Vec<f64> = claims.iter().filter_map(|claim| claim["bar"].as_f64()).collect();
    assert_eq!((claims.len(), bars), (8, vec![0.98, 0.01, 0.01]));
    assert!(
        claims
            .iter()
            .all(|claim| ["no_bar", "not_judged"].contains(&claim["verdict"].as_str().unwrap_or("")))
    );
    assert!(text.contains("meta bytes %") && text.contains("2 rounds"), "{text}");
}

/// Tests lazy cleaning by its limit, a cache that fills, and a scan that reads its whole table while a hot
/// set is read.
#[test]
fn a_flash_cache_over_time() {
    let (rows, _) = slice_of("flash-dirty-limit", 1, &["lambda=10", "lambda=90"]);
    let points = of_kind(&rows, "point");
    let limits: Vec<(u64, &str)> = points
        .iter()
        .filter_map(|point| Some((point["factors"]["lambda"].as_u64()?, point["factors"]["redo"].as_str()?)))
        .collect();
    assert_eq!(limits, [(10, "6 caches"), (90, "6 caches"), (10, "1 pool"), (90, "1 pool")]);
    let published: Vec<_> = of_kind(&rows, "claim").iter().map(|claim| claim["published"].as_f64()).collect();
    assert_eq!(published, [Some(3.5), Some(1.0), None], "a ratio and the order; none for a short redo");
    let (rows, text) = slice_of("flash-ramp-up", 1, &["design=off", "design=lazy-cleaning"]);
    let fillings = of_kind(&rows, "filling");
    let fills: Vec<_> = fillings.iter().map(|row| row["factors"]["fill"].as_str()).collect();
    assert_eq!(fills, [None, Some("aggressive"), Some("plain")]);
    for row in fillings {
        let all = |name: &str| row[name].as_array().map(Vec::len);
        assert_eq!((all("tps"), all("hit_rate")), (Some(30), Some(30)), "{row}");
    }
    assert!(text.contains("to peak s"), "{text}");
    let published = of_kind(&rows, "claim").iter().any(|claim| claim["published"].is_number());
    assert!(!published, "the text has a figure for dual-write alone");
    let (rows, _) = slice_of("flash-scan", 1, &["design=lazy-cleaning", "design=inclusive"]);
    let scans = of_kind(&rows, "scan");
    let told: Vec<_> = scans
        .iter()
        .map(|row| (row["factors"]["design"].as_str(), row["factors"]["lambda"].as_u64()))
        .collect();
    let (lazy, inclusive) = (Some("lazy-cleaning"), Some("inclusive"));
    assert_eq!(told, [(lazy, Some(50)), (inclusive, Some(50)), (lazy, Some(1))]);
    for row in scans {
        // The database has 420 units of 48 KiB, and seven rows fit into a page.
        assert_eq!(row["scanned_rows"], 420 * (48 << 10) / (8192 / 7), "{row}");
        assert!(
            row["hit_rate_after"].as_f64() > Some(0.0) && row["warmth"]["is_steady"].is_boolean(),
            "{row}"
        );
    }
    let bars: Vec<_> = of_kind(&rows, "claim").iter().map(|claim| claim["bar"].as_f64()).collect();
    assert_eq!(bars, [Some(0.03), Some(0.03), None, None, Some(0.03), Some(0.03)]);
}

/// Tests the bytes that each drive reads and writes over time, and checkpoints that write pages to the data
/// files.
#[test]
fn traffic_and_checkpoints_of_a_flash_cache() {
    let (rows, text) =
        slice_of("flash-traffic", 1, &["workload=tpce-like", "design=off", "design=dual-write"]);
    let fillings = of_kind(&rows, "filling");
    assert_eq!(fillings.len(), 2);
    for row in &fillings {
        let drives = row["mib_per_second"].as_object().expect("drives");
        let is_off = row["factors"]["design"] == "off";
        assert_eq!(drives.contains_key("flash"), !is_off, "{row}");
        let read: Vec<f64> =
            drives["home"]["read"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        assert!(read.len() == 30 && read.iter().any(|mib| *mib > 0.0), "{row}");
        assert!(drives.contains_key("log"), "{row}");
    }
    let published: Vec<f64> =
        of_kind(&rows, "claim").iter().filter_map(|claim| claim["published"].as_f64()).collect();
    assert_eq!(published, [6.5, 46.0, 9.7]);
    assert!(text.contains("MiB a second") && text.contains("last quarter"), "{text}");
    let (rows, text) = slice_of("flash-checkpoint", 1, &["design=lazy-cleaning"]);
    let intervals: Vec<_> =
        of_kind(&rows, "filling").iter().map(|row| row["factors"]["checkpoint"].clone()).collect();
    assert_eq!(intervals, ["short", "long"]);
    assert!(text.contains("sharp ones every"), "{text}");
}

/// A small table is dropped, on the file system of the directory. The bar is for a larger table.
#[test]
fn a_table_is_dropped_in_both_layouts() {
    let (rows, text) = slice_of("drop-table", 1, &["file system=here", "aged=false"]);
    let drops = of_kind(&rows, "drop");
    let layouts: Vec<&str> = drops.iter().filter_map(|row| row["factors"]["layout"].as_str()).collect();
    assert_eq!(layouts, ["in place", "packed"]);
    for row in drops {
        let of = |name: &str| row[name].as_f64().unwrap_or(0.0);
        assert!(
            of("statement_seconds") > 0.0 && of("pages_free_seconds") >= of("statement_seconds"),
            "{row}"
        );
        assert!(row["before"]["count"].as_u64() > Some(0) && row["meanwhile"]["p99_us"].is_u64(), "{row}");
        assert!(of("allocated_bytes") > 0.0, "{row}");
    }
    let claims = of_kind(&rows, "claim");
    assert!(claims.len() == 2 && claims.iter().all(|claim| claim["verdict"] == "not_judged"), "{claims:?}");
    assert!(text.contains("pages free s"), "{text}");
}

/// Holes are punched on the file system of the directory. The text of the paper has nothing about it.
#[test]
fn holes_are_punched_behind_pages() {
    let (rows, text) = slice_of("filesystem-trim", 2, &["file system=here"]);
    let made = of_kind(&rows, "file-system");
    assert!(made.len() == 1 && made[0]["factors"]["file system"] == "here" && made[0]["made"].is_string());
    let holes = of_kind(&rows, "hole");
    let durable: Vec<_> = holes.iter().filter_map(|row| row["factors"]["durable pages"].as_bool()).collect();
    assert_eq!(durable, [false, true]);
    for row in holes {
        let median = |name: &str| row[name]["median"].as_f64().unwrap_or(0.0);
        assert!(median("median_us") > 0.0 && median("p99_us") >= median("median_us"), "{row}");
        assert_eq!((&row["holes"], &row["rounds"]), (&20.into(), &2.into()));
        assert!(row["freed_share"].as_f64() > Some(0.9), "{row}");
    }
    assert!(of_kind(&rows, "claim").is_empty(), "{rows:?}");
    assert!(
        text.contains("the file system of the directory is measured") && text.contains("NVMFS"),
        "{text}"
    );
}

/// The writes of a file system that others use, too, are not counted.
#[test]
fn a_log_is_appended_to_in_three_kinds_of_files() {
    let (rows, text) = slice_of("filesystem-log", 1, &["file system=here"]);
    let appends = of_kind(&rows, "append");
    let files: Vec<_> = appends.iter().filter_map(|row| row["factors"]["file"].as_str()).collect();
    assert_eq!(files, ["growing", "reserved", "recycled"]);
    for row in appends {
        assert!(row["mean_us"]["median"].as_f64() > Some(0.0) && row["amplification"].is_null(), "{row}");
    }
    assert!(of_kind(&rows, "claim").is_empty() && text.contains("not counted"), "{text}");
}

#[test]
fn compressed_pages_run_tpcc_on_a_file_system() {
    let (rows, text) = slice_of("filesystem-tpcc", 2, &["file system=here"]);
    let points = of_kind(&rows, "point");
    let pages: Vec<_> = points.iter().filter_map(|row| row["factors"]["pages"].as_str()).collect();
    assert_eq!(pages, ["in place with trims", "in place without trims", "packed"]);
    for point in &points {
        assert!(point["tps"]["median"].as_f64() > Some(0.0), "{point}");
        assert_eq!((&point["factors"]["file system"], &point["emulation"]), (&"here".into(), &Value::Null));
    }
    let claims = of_kind(&rows, "claim");
    let bars: Vec<_> = claims.iter().filter(|claim| claim["bar"] == 1.0).collect();
    assert!(claims.len() == 2 && bars.len() == 1, "{claims:?}");
    assert!(["met", "missed", "not_judged"].iter().any(|verdict| bars[0]["verdict"] == *verdict), "{bars:?}");
    assert!(text.contains("Order of throughput, in place with trims: here"), "{text}");
}

/// Points that the user has not asked for are not measured. A factor that no point has is an error.
#[test]
fn points_are_chosen_by_their_factors() {
    let (rows, _) = slice_of("doublewrite-cost", 1, &["variant=none", "variant=original"]);
    assert_eq!(variants(&rows), ["original", "none"]);
    let mut out = Vec::new();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let device = Device::named("none", None).expect("the device that is there");
    let mut lab = lab_in(folder.path(), Scale::TINY, device, &mut out);
    assert!(lab.choose_points(&["variant".to_owned()]).is_err(), "no value");
    lab.choose_points(&["colour=red".to_owned()]).expect("a factor and a value");
    let refused = lab.end().expect_err("no point has a colour").to_string();
    assert!(refused.contains("colour"), "{refused}");
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: ExperimentArgs,
}

fn command(words: &[&str]) -> varve_bench::Result<String> {
    let args = Program::parse_from([&["varve"], words].concat()).args;
    let mut out = Vec::new();
    run(&args, &mut out)?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn experiments_are_listed_and_others_refused() {
    let list = command(&["list"]).expect("a list");
    assert!(list.contains("doublewrite-cost") && list.contains("Kang 2016"), "{list}");
    let refused = command(&["perpetual-motion"]).expect_err("no such experiment").to_string();
    assert!(refused.contains("perpetual-motion") && refused.contains("doublewrite-cost"), "{refused}");
    let refused = command(&["list", "--profile", "floppy"]);
    assert!(refused.is_ok(), "a list needs no device");
    assert!(command(&["doublewrite-cost", "--profile", "floppy"]).is_err());
    assert!(command(&["doublewrite-cost", "--clients", "0"]).is_err());
}
