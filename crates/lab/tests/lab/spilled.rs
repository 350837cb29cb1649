//! Tests that the experiments on joins and sorts run to their ends on small inputs. Modelled times of I/O are
//! sums over requests, so they do not depend on the load of the machine. No test looks at a time of the
//! processor.

use serde_json::Value;

use crate::experiment::{of_kind, slice_of};

fn text<'r>(row: &'r Value, factor: &str) -> &'r str {
    row["factors"][factor].as_str().unwrap_or_default()
}

fn number(row: &Value, path: &str) -> f64 {
    row.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Returns the row of a join on a drive.
fn join<'r>(rows: &'r [Value], name: &str, drive: &str) -> &'r Value {
    let is_it = |row: &&&Value| text(row, "join") == name && text(row, "drive") == drive;
    let all = of_kind(rows, "join");
    all.iter().find(is_it).unwrap_or_else(|| panic!("no {name} on {drive}"))
}

fn claims<'r>(rows: &'r [Value], says: &str) -> Vec<&'r Value> {
    let says_it = |claim: &&Value| claim["says"].as_str().is_some_and(|text| text.starts_with(says));
    of_kind(rows, "claim").into_iter().filter(says_it).collect()
}

const JOINS: [&str; 4] = ["block nested loops", "sort-merge", "Grace hash", "hybrid hash"];

#[test]
fn join_buffer_compares_four_joins_on_two_drives() {
    let (rows, shown) = slice_of("join-buffer", 1, &["megabytes=300"]);
    assert_eq!(of_kind(&rows, "join").len(), 8, "{shown}");
    for drive in ["disk", "flash"] {
        let io = JOINS.map(|name| {
            let row = join(&rows, name, drive);
            let (io, first) = (number(row, "/io_s/median"), number(row, "/first_io_s"));
            assert!((first + number(row, "/second_io_s") - io).abs() < 1e-6 * io, "{row}");
            assert!(number(row, "/total_s/median") >= io && io > 0.0, "{row}");
            io
        });
        assert_eq!(number(join(&rows, JOINS[0], drive), "/second_io_s"), 0.0, "it has one phase");
        assert!(io[3] < io[2], "hybrid hash keeps rows in memory: {drive} {io:?}");
        let chosen = JOINS.iter().filter(|name| join(&rows, name, drive)["is_chosen"] == true).count();
        assert_eq!(chosen, 1, "{shown}");
    }
    let speed_ups = claims(&rows, "I/O time, disk / flash");
    let published: Vec<f64> = speed_ups.iter().map(|claim| number(claim, "/published")).collect();
    assert_eq!(published, [3.04, 2.06, 1.62, 1.51], "table 2.3");
    assert!(speed_ups.iter().all(|claim| number(claim, "/ours") > 1.0), "{speed_ups:?}");
    assert_eq!(claims(&rows, "I/O time of the").len(), 6, "table 2.4");
    assert_eq!(claims(&rows, "speed-up of I/O by flash").len(), 1, "{shown}");
    assert_eq!(claims(&rows, "total time: best of the other joins").len(), 2, "{shown}");
    assert_eq!(claims(&rows, "total time: chosen join").len(), 2, "{shown}");
    let total = claims(&rows, "total time, disk / flash");
    assert!(total.iter().all(|claim| claim["verdict"] == "not_judged"), "{total:?}");
    assert!(shown.contains("not about real devices"), "{shown}");
}

/// If the join of table 2.5 is not measured, there is no row about a processor like the publication's.
#[test]
fn the_processor_of_the_source_needs_its_join() {
    let only = ["megabytes=500", "join=block nested loops,join=hybrid hash"];
    let only: Vec<&str> = only.iter().flat_map(|one| one.split(',')).collect();
    let (rows, shown) = slice_of("join-buffer", 1, &only);
    assert_eq!(claims(&rows, "total time with a processor like the source's, disk").len(), 2, "{shown}");
    assert!(shown.contains("times slower"), "{shown}");
    let (rows, shown) = slice_of("join-buffer", 1, &["megabytes=500", "join=hybrid hash"]);
    assert!(claims(&rows, "total time with a processor").is_empty(), "{shown}");
}

#[test]
fn join_page_size_and_io() {
    let (rows, shown) = slice_of("join-page-size", 1, &["join=Grace hash"]);
    assert_eq!(of_kind(&rows, "join").len(), 10, "{shown}");
    assert_eq!(claims(&rows, "I/O time, slowest page size / fastest").len(), 2, "{shown}");
    let only = ["join=Grace hash", "join=sort-merge", "page KiB=2"];
    let (rows, shown) = slice_of("join-page-io", 1, &only);
    assert_eq!(of_kind(&rows, "join").len(), 8, "{shown}");
    assert_eq!(claims(&rows, "I/O time of sort-merge").len() + claims(&rows, "I/O time of Grace").len(), 2);
    let gain = claims(&rows, "I/O time, page-sized / blocked");
    assert!(gain.len() == 1 && gain.iter().all(|claim| number(claim, "/ours") > 1.0), "{gain:?}");
}

#[test]
fn sort_cluster_has_both_halves_of_its_figure() {
    let only = ["cluster KiB=2", "cluster KiB=64", "buffer MiB=2", "buffer MiB=5"];
    let (rows, shown) = slice_of("sort-cluster", 1, &only);
    let sorts = of_kind(&rows, "sort");
    assert_eq!(sorts.len(), 6, "{shown}");
    let of = |drive: &str, cluster: u64, buffer: u64| {
        let is_it = |row: &&&Value| {
            text(row, "drive") == drive
                && row["factors"]["cluster KiB"] == cluster
                && row["factors"]["buffer MiB"] == buffer
        };
        *sorts.iter().find(is_it).unwrap_or_else(|| panic!("{drive} {cluster} {buffer}: {shown}"))
    };
    assert_eq!(of("disk", 2, 2)["runs"], of("flash", 2, 2)["runs"], "runs do not depend on the drive");
    assert!(number(of("disk", 2, 2), "/runs") > number(of("flash", 2, 5), "/runs"), "{shown}");
    let merge_s = |drive, cluster| number(of(drive, cluster, 2), "/merge_io_s");
    assert!(merge_s("disk", 2) > merge_s("disk", 64), "a disk reads large clusters faster: {shown}");
    assert!(merge_s("disk", 2) > merge_s("flash", 2), "{shown}");
}

#[test]
fn patterns_are_sequential_writes_and_random_reads() {
    for (name, kind) in [("sort-pattern", "sort-pattern"), ("hash-pattern", "hash-pattern")] {
        let (rows, shown) = slice_of(name, 1, &[]);
        let drives = of_kind(&rows, kind);
        assert_eq!(
            drives.iter().map(|row| text(row, "drive")).collect::<Vec<_>>(),
            ["disk", "flash"],
            "{shown}"
        );
        for row in drives {
            for way in ["read", "write"] {
                let count = row["trace"][way].as_array().map_or(0, Vec::len);
                assert!(count > 10, "{way}: {shown}");
            }
            assert_eq!(number(row, "/order/dropped"), 0.0, "{row}");
            assert!(number(row, "/order/sequential_writes_share") > 0.9, "{shown}");
            assert!(number(row, "/order/sequential_reads_share") < 0.2, "{shown}");
        }
        assert_eq!(claims(&rows, "part of the").len(), 4, "{shown}");
    }
}
