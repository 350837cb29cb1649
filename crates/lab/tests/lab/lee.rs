//! Tests that the experiments of Lee run to their ends without emulation, on small tables. No time is judged
//! then.

use serde_json::Value;

use crate::experiment::{of_kind, slice};

fn drives(rows: &[&Value]) -> Vec<String> {
    rows.iter().map(|row| row["factors"]["drive"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The number of pages that `rollback-read` reads does not depend on time.
fn is_count(claim: &Value) -> bool {
    claim["says"].as_str().is_some_and(|says| says.starts_with("pages of rollback segments"))
}

fn no_time_is_judged(rows: &[Value]) {
    let of_times = of_kind(rows, "claim").into_iter().filter(|claim| !is_count(claim));
    let verdicts: Vec<&Value> = of_times.map(|claim| &claim["verdict"]).collect();
    assert!(!verdicts.is_empty());
    assert!(
        verdicts.iter().all(|verdict| **verdict == "not_judged" || **verdict == "not_in_text"),
        "{verdicts:?}"
    );
}

#[test]
fn log_experiments_count_forces() {
    for name in ["log-device", "tpcb-log"] {
        let (rows, text) = slice(name, 1);
        let points = of_kind(&rows, "log");
        assert_eq!(drives(&points), ["disk", "flash"], "{text}");
        for point in points {
            assert!(point["tps"]["median"].as_f64() > Some(0.0), "{point}");
            assert!(point["forces_a_transaction"].as_f64() > Some(0.0), "{point}");
            assert!(point["force_sectors"].as_f64() >= Some(1.0), "{point}");
        }
        no_time_is_judged(&rows);
        assert!(text.contains("emulated: lee-log-disk"), "{text}");
    }
}

#[test]
fn rollback_read_needs_old_versions() {
    let (rows, text) = slice("rollback-read", 1);
    let scans = of_kind(&rows, "rollback-read");
    assert_eq!(drives(&scans), ["disk", "flash"], "{text}");
    assert!(scans.iter().all(|scan| scan["table_pages"].as_u64() > Some(30)), "{text}");
    no_time_is_judged(&rows);
    let counts: Vec<&Value> = of_kind(&rows, "claim").into_iter().filter(|claim| is_count(claim)).collect();
    assert!(counts.len() == 1 && counts.iter().all(|claim| claim["verdict"] != "not_judged"), "{counts:?}");
}

#[test]
fn rollback_pattern_has_a_trace() {
    let (rows, text) = slice("rollback-pattern", 1);
    let writes = of_kind(&rows, "rollback-write");
    assert_eq!(drives(&writes), ["disk", "flash"], "{text}");
    assert!(
        writes.iter().all(|row| row["trace"]["write"].is_array() && row["order"]["writes"].is_u64()),
        "{text}"
    );
    no_time_is_judged(&rows);
}
