//! Runs `.slt` files as general queries: the files in this folder, and all files of `varve-sql`. For the
//! latter DataFusion is forced. So both executors must return the same rows, types and errors for the same
//! statements.

use std::path::Path;

use super::shared::slt::run_directory;
use super::support::{database, database_with, forced, forced_with, session};
use varve_query::QueryOptions;

#[test]
fn files_of_general_queries_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/query");
    let failures = run_directory(&directory, false, &database, &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn both_paths_give_the_same() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/tests");
    let failures = run_directory(&directory, true, &forced, &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Runs the files with plans that can be run again. Their constants are computed when they run.
#[test]
fn plans_that_are_kept_give_the_same() {
    let keeping = || forced_with(&QueryOptions { custom_plans: 0, ..QueryOptions::default() });
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/tests");
    let failures = run_directory(&directory, true, &keeping, &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let keeping = || database_with(&QueryOptions { custom_plans: 0, ..QueryOptions::default() });
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/query");
    let failures = run_directory(&directory, false, &keeping, &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
