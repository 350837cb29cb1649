//! The setting `[log] capacity` is lowered and raised between starts. So a start finds more log files than
//! the setting allows, as many, or fewer. Each time the database starts, takes changes, stops, and has no
//! damage.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

use varve::Embedded;
use varve::config::Settings;

const MIB: u64 = 1 << 20;
/// The log may have one more segment than its capacity, because one is made in advance. A segment has 1 MiB.
const SEGMENTS_OVER: usize = 1;

fn settings(capacity_mib: u64) -> Settings {
    let mut settings = Settings::default();
    settings.pool.size_bytes = Some(16 * MIB);
    settings.log.segment_bytes = MIB;
    settings.log.capacity_bytes = capacity_mib * MIB;
    settings
}

fn log_files(directory: &Path) -> usize {
    let names =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("log.")).count()
}

/// Makes changes that fill some segments. Returns the number of rows.
fn load(database: &Embedded, round: usize) {
    let mut session = database.session().unwrap();
    let rows = 6000;
    let insert = format!(
        "insert into t select g, repeat(md5(g::text), 30) from generate_series({}, {}) g",
        round * rows,
        (round + 1) * rows - 1
    );
    session.run(&insert).unwrap();
    let found = session.query("select count(*) from t").unwrap();
    assert_eq!(found[0].integer("count"), Some(((round + 1) * rows) as i64));
}

fn is_sound(directory: &Path, capacity_mib: u64) {
    let file = directory.join("varve.toml");
    std::fs::write(
        file,
        format!("[log]\nsegment = '1MiB'\ncapacity = '{capacity_mib}MiB'\n[pool]\nsize = '16MiB'\n"),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_varve")).arg("check").arg(directory).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && text.contains("no damage found"), "{text}");
}

#[test]
fn capacities_come_and_go() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let made = Embedded::open_with(directory, &settings(16)).unwrap();
    made.session().unwrap().run("create table t (id int primary key, v text)").unwrap();
    made.close().unwrap();
    let mut counts = Vec::new();
    // The capacity is lowered below the size of the log, raised, and set to the same value again. Each
    // happens after a clean stop and after a crash.
    for (round, capacity_mib) in [16, 16, 4, 4, 24, 24, 6, 16, 5, 5, 5, 24].into_iter().enumerate() {
        let before = log_files(directory);
        let database = Embedded::open_with(directory, &settings(capacity_mib)).unwrap();
        load(&database, round);
        let is_clean = round % 3 != 1;
        if is_clean {
            database.close().unwrap();
        } else {
            drop(database);
        }
        counts.push((capacity_mib, before, log_files(directory)));
        is_sound(directory, capacity_mib);
        let after = log_files(directory);
        assert!(after <= capacity_mib as usize + SEGMENTS_OVER, "{counts:?}, then {after}");
    }
    println!("capacity in segments, files at the start, files at the stop: {counts:?}");
    let is =
        |how: fn(usize, usize) -> bool| counts.iter().any(|(most, before, _)| how(*before, *most as usize));
    let lies = [
        is(|files, most| files > most + 1),
        is(|files, most| files <= most + 1 && files >= most),
        is(|files, most| files < most),
    ];
    assert_eq!(lies, [true; 3], "above, at and below the capacity: {counts:?}");
}
