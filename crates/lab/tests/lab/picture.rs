//! Tests that `varve-lab trace` draws the requests that the view `varve_io_trace` of a server shows.

use std::path::Path;
use std::process::{Command, Output};

use varve::Value;
use varve::{Embedded, Row};

fn draw(csv: &Path, out: &Path, more: &[&str]) -> Output {
    let lab = Command::new(env!("CARGO_BIN_EXE_varve-lab"))
        .arg("trace")
        .args([csv, Path::new("--out"), out])
        .args(more)
        .output();
    lab.unwrap()
}

/// Returns the view as CSV. Its texts need no quotes.
fn csv_of(rows: &[Row]) -> String {
    let value = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Float8(number) => number.to_string(),
        Value::Int8(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let names: Vec<_> = rows[0].columns().iter().map(|column| column.name.to_string()).collect();
    let lines = rows.iter().map(|row| row.values().iter().map(value).collect::<Vec<_>>().join(","));
    [names.join(",")].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_trace_of_a_database_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let database = Embedded::open(folder.path().join("data")).unwrap();
    let mut session = database.session().unwrap();
    session.run("create table t (a int primary key, b text)").unwrap();
    let counted = "select * from varve_io_trace";
    assert_eq!(session.query(counted).unwrap().len(), 0, "the trace is off by default");
    database.engine().set_io_trace(10);
    for a in 0..20 {
        session.run(&format!("insert into t values ({a}, repeat('x', 1000))")).unwrap();
    }
    let rows = session.query(counted).unwrap();
    assert_eq!(rows.len(), 10, "the trace has a limit");
    let dropped = session.query("select value from varve_stats where name = 'io_trace_dropped'").unwrap();
    assert!(dropped[0].integer("value").unwrap() > 0);
    let (csv, svg) = (folder.path().join("trace.csv"), folder.path().join("trace.svg"));
    std::fs::write(&csv, csv_of(&rows)).unwrap();
    let output = draw(&csv, &svg, &["--space", "log"]);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&svg).unwrap();
    assert!(text.contains("log on ") && text.contains("log, write"), "{text}");
    for (more, expected) in [
        (["--space", "nowhere"], "there is no space \"nowhere\""),
        (["--space", "flash"], "the trace has no reads and no writes to draw"),
    ] {
        let output = draw(&csv, &svg, &more);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && told.contains(expected), "{told}");
    }
    database.engine().set_io_trace(0);
    assert_eq!(session.query(counted).unwrap().len(), 0);
    drop(session);
    database.close().unwrap();
}
