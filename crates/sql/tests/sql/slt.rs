//! Runs the `.slt` files in this folder, each on a new database in memory. `support/slt.rs` describes their
//! format.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::support::{database, session, slt, with_pages};

#[test]
fn all_files_hold() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let failures = slt::run_directory(&directory, false, &database, &session);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Statements do not depend on the page size, so a file of them must give the same results with each size.
/// The other tests use 8 KiB.
#[test]
fn a_file_holds_at_every_page_size() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dml.slt");
    for page_size in [4096, 16384, 32768, 65536] {
        let failures = slt::run_file(&path, &with_pages(page_size), false, &session);
        assert!(failures.is_empty(), "pages of {page_size} bytes: {failures:#?}");
    }
}
