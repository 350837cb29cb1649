//! `smart-scan` runs to its end on a small table. The test looks at counts and claims, not at times.

use serde_json::Value;

use crate::experiment::{of_kind, slice_of};

fn row<'r>(rows: &'r [Value], layout: &str, query: &str, drive: &str) -> &'r Value {
    let is_it = |row: &&&Value| {
        let factors = &row["factors"];
        factors["layout"] == layout && factors["query"] == query && factors["drive"] == drive
    };
    let all = of_kind(rows, "smart-scan");
    all.iter().find(is_it).unwrap_or_else(|| panic!("no {layout} {query} {drive}"))
}

fn number(row: &Value, path: &str) -> f64 {
    row.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn says(claims: &[&Value], text: &str) -> usize {
    claims.iter().filter(|claim| claim["says"].as_str().is_some_and(|says| says.starts_with(text))).count()
}

#[test]
fn smart_scan_compares_layouts_and_drives() {
    let (rows, shown) = slice_of("smart-scan", 1, &["percent=1"]);
    assert_eq!(of_kind(&rows, "smart-scan").len(), 16, "{shown}");
    for layout in ["row", "pax"] {
        for query in ["rows", "average"] {
            let [disk, flash, smart, auto] =
                ["disk", "flash", "smart", "auto"].map(|drive| row(&rows, layout, query, drive));
            assert!(number(smart, "/device_leaves") > 30.0, "{smart}");
            assert_eq!(number(smart, "/deferred_leaves"), 0.0, "all leaves are in the file: {smart}");
            assert_eq!(number(flash, "/device_leaves") + number(disk, "/device_leaves"), 0.0, "{flash}");
            // The host reads all leaves, and the device sends the result.
            let leaf_bytes = 8192.0 * number(smart, "/device_leaves");
            assert!(number(flash, "/host_bytes") >= leaf_bytes, "{flash}");
            assert!(number(smart, "/host_bytes") < leaf_bytes / 2.0, "{smart}");
            for one in [disk, flash, smart, auto] {
                let (seconds, joules) = (number(one, "/seconds/median"), number(one, "/modelled_joules"));
                assert!(seconds > 0.0 && joules > 235.0 * seconds && joules < 300.0 * seconds, "{one}");
            }
        }
    }
    let claims = of_kind(&rows, "claim");
    assert_eq!(says(&claims, "time, flash / planner's choice"), 4, "{shown}");
    assert_eq!(says(&claims, "time, flash / smart"), 4, "{shown}");
    assert_eq!(says(&claims, "time, flash row / smart pax (published: above 2)"), 1, "{shown}");
    assert!(shown.contains("not about real devices") && shown.contains("modelled"), "{shown}");
}

/// The claims about 0.1 % and 100 % have their published values and bars.
#[test]
fn smart_scan_judges_what_the_text_states() {
    let only = ["percent=0.1", "percent=100", "drive=flash", "drive=smart"];
    let (rows, shown) = slice_of("smart-scan", 1, &only);
    let claims = of_kind(&rows, "claim");
    assert_eq!(of_kind(&rows, "smart-scan").len(), 10, "{shown}");
    let expected = |text: &str, field: &str, value: f64| {
        let mut has_it = claims.iter().filter(|claim| claim["says"] == text);
        assert!(has_it.any(|claim| (number(claim, field) - value).abs() < 0.01), "{text}: {shown}");
    };
    expected("time, flash row / smart pax", "/published", 2.1);
    expected("time, flash row / smart pax", "/published", 0.7);
    expected("time, flash row / smart row", "/published", 1.33);
    expected("time, flash / smart", "/bar", 2.1);
    expected("time, flash / smart, as many rows a page as published", "/published", 2.1);
    expected("time, flash / smart: not above the bound of the bandwidths", "/bar", 2.84);
    expected("time in the device, row / pax", "/published", 1.58);
    expected("time in the device, row / pax", "/bar", 1.5);
    expected("modelled energy, flash row / smart pax", "/published", 2.4);
}
