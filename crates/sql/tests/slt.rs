//! Runs the `.slt` files beside this file, each on a fresh database in memory; their format is told in `support/slt.rs`.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use support::{database, session, slt};

#[test]
fn all_files_hold() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let failures = slt::run_directory(&directory, false, &database, &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
