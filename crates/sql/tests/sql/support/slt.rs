//! Reads and runs `.slt` files.
//!
//! Format
//!
//! | line | meaning |
//! |---|---|
//! | `# text` | comment |
//! | `@name` | what follows runs in the session of this name (made when first named) |
//! | `> sql` | a simple query; `. sql` continues it on the next line |
//! | `$ a \| b` | runs the query through the extended protocol with these text parameters (`NULL` is null) |
//! | `< text` | COPY data line for the query |
//! | `= TAG` | the tag it ends with |
//! | `! STATE text` | it fails with this SQLSTATE; text, if any, is the message |
//! | `~ text` | a notice or warning |
//! | `? text` | the context of the error |
//! | `& text` | the detail of the error |
//! | anything else | a row, columns joined by `\|`, NULL as `NULL` |
//!
//! Rows must be exactly those listed. A query without any expectation must only succeed.

#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests; each test file uses a part")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use varve_sql::{Session, SqlDatabase};

use super::Recorder;

#[derive(Default)]
struct Case {
    line: usize,
    session: String,
    sql: String,
    params: Option<Vec<Option<String>>>,
    copy: Vec<u8>,
    expected: Vec<String>,
}

fn cases(text: &str) -> Vec<Case> {
    let mut out: Vec<Case> = Vec::new();
    let mut session = "main".to_owned();
    for (n, line) in text.lines().enumerate() {
        let (head, rest) = line.split_at(line.floor_char_boundary(2));
        match (head, out.last_mut()) {
            ("", _) => {}
            (h, _) if h.starts_with('#') => {}
            (h, _) if h.starts_with('@') => session = line[1..].trim().to_owned(),
            ("> ", _) => {
                out.push(Case {
                    line: n + 1,
                    session: session.clone(),
                    sql: rest.to_owned(),
                    ..Case::default()
                });
            }
            (". ", Some(case)) => case.sql = format!("{}\n{rest}", case.sql),
            ("$ ", Some(case)) => {
                let value = |v: &str| (v.trim() != "NULL").then(|| v.trim().to_owned());
                case.params = Some(rest.split('|').map(value).collect());
            }
            ("< ", Some(case)) => {
                case.copy.extend_from_slice(rest.replace("<TAB>", "\t").as_bytes());
                case.copy.push(b'\n');
            }
            (_, Some(case)) => case.expected.push(line.to_owned()),
            (_, None) => panic!("line {}: expectation without a query", n + 1),
        }
    }
    out
}

fn matches(expected: &[String], actual: &[String]) -> bool {
    let same =
        |e: &String, a: &String| e == a || (e.starts_with("! ") && e.len() == 7 && a.starts_with(e.as_str()));
    let wanted = |lines: &[String], kind: &dyn Fn(&str) -> bool| {
        lines.iter().filter(|l| kind(l)).cloned().collect::<Vec<_>>()
    };
    let is_row = |l: &str| !["= ", "! ", "~ ", "? ", "& "].iter().any(|p| l.starts_with(p));
    // Rows and errors are always checked. Tags and notices are checked only if they are written in the file.
    let (er, ar) = (wanted(expected, &is_row), wanted(actual, &is_row));
    let (ee, ae) = (wanted(expected, &|l| l.starts_with("! ")), wanted(actual, &|l| l.starts_with("! ")));
    let noted = expected
        .iter()
        .filter(|l| ["= ", "~ ", "? ", "& "].iter().any(|p| l.starts_with(p)))
        .all(|l| actual.contains(l));
    let rows_fit = er == ar || (er == ["*"] && !ar.is_empty());
    rows_fit && ee.len() == ae.len() && ee.iter().zip(&ae).all(|(e, a)| same(e, a)) && noted
}

/// Returns whether a record is about a statement that only one path does not run.
fn is_of_one_path(case: &Case) -> bool {
    case.expected.iter().any(|l| l.starts_with("! 0A000"))
}

/// Returns whether a record shows a plan. Each path has another plan.
fn shows_a_plan(case: &Case) -> bool {
    case.sql.trim_start().to_lowercase().starts_with("explain")
}

/// Runs one file. Returns the failures. On the `other` path, records that are only about this crate's
/// executor are left out.
pub fn run_file(
    path: &Path,
    db: &Arc<SqlDatabase>,
    other: bool,
    session: &dyn Fn(&Arc<SqlDatabase>) -> Session,
) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut sessions = BTreeMap::new();
    let mut failures = Vec::new();
    for case in cases(&text).iter().filter(|case| !(other && is_of_one_path(case))) {
        if std::env::var("SLT_SHOW").is_ok() {
            eprintln!("{}: {}", case.line, case.sql);
        }
        let session = sessions.entry(case.session.clone()).or_insert_with(|| session(db));
        let mut recorder = Recorder { copy: case.copy.clone(), ..Recorder::default() };
        match &case.params {
            None => recorder.simple(session, &case.sql),
            Some(params) => recorder.extended(session, &case.sql, params),
        }
        let is_free = other && shows_a_plan(case);
        if !is_free && !matches(&case.expected, &recorder.lines) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            failures.push(format!(
                "{name}:{}: {}\n  expected {:?}\n  got      {:?}",
                case.line, case.sql, case.expected, recorder.lines
            ));
        }
    }
    drop(sessions);
    failures
}

/// Runs all files of a directory, each on a database of its own. Returns the failures.
pub fn run_directory(
    directory: &Path,
    other: bool,
    database: &dyn Fn() -> Arc<SqlDatabase>,
    session: &dyn Fn(&Arc<SqlDatabase>) -> Session,
) -> Vec<String> {
    let only = std::env::var("SLT").ok();
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let wanted = |path: &Path| only.as_ref().is_none_or(|o| path.to_string_lossy().contains(o.as_str()));
    paths.retain(|p| p.extension().is_some_and(|e| e == "slt") && wanted(p));
    paths.iter().flat_map(|path| run_file(path, &database(), other, session)).collect()
}
