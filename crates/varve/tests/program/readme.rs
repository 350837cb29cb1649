//! Runs the example of the README: first its SQL statements, then its Rust program. Both are read from the
//! README.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use varve::Embedded;

const README: &str = include_str!("../../../../README.md");

/// Returns the first fenced block of a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// Returns the string that follows `before` in a block.
fn quoted<'a>(block: &'a str, before: &str) -> &'a str {
    let (_, rest) = block.split_once(before).unwrap_or_else(|| panic!("README lost {before}"));
    rest.split('"').nth(1).unwrap()
}

#[test]
fn the_ten_lines_hold() {
    let directory = tempfile::tempdir().unwrap();
    let db = Embedded::open(directory.path()).unwrap();
    let mut session = db.session().unwrap();
    let people = session.query(block("sql")).unwrap();
    let names: Vec<_> = people.iter().map(|row| row.text("name").unwrap()).collect();
    assert_eq!(names, ["Ada", "Grace Hopper"]);
    drop(session);
    db.close().unwrap();

    let rust = block("rust");
    let db = Embedded::open(directory.path()).unwrap();
    let mut session = db.session().unwrap();
    session.execute(quoted(rust, "session.execute("), &[&"Edith"]).unwrap();
    assert!(rust.contains("&[&\"Edith\"]"), "the parameter of the README is another one");
    // A clean shutdown leaves no gap in a sequence, so the new row has the number 3.
    let row = session.query_one(quoted(rust, "session.query_one("), &[&3]).unwrap();
    assert!(rust.contains("&[&3]"), "the parameter of the README is another one");
    assert_eq!(row.get::<String>(quoted(rust, "row.get::<String>(")).unwrap(), "Edith");
    drop(session);
    db.close().unwrap();
}
