//! `.slt` files on general queries: those beside this file, and all of `varve-sql` with the runner forced, so that both paths give
//! the same rows, types and errors to the same statements.

use std::path::Path;

use super::shared::slt::run_directory;
use super::support::{database, forced, session};

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
