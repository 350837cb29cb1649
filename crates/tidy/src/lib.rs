//! Checks the rules of this repository that no compiler checks. Each check is a function over the tracked
//! files.
//!
//! 1. A crate uses only crates below it. [`layering`] has the table of allowed dependencies.
//! 2. A module uses only modules below it. [`layers`] checks the order that each crate declares.
//! 3. Files and functions are short enough to be remembered by a reader. [`size`] has the limits.
//! 4. Unsafe code is only in the files that [`safety`] names.
//! 5. Published files have no traces of the machine on which they were written. [`wording`] checks this.
//! 6. ARCHITECTURE.md names only files that exist. [`map`] checks this.
//! 7. A tuple does not replace several arguments. [`signatures`] checks this.
//! 8. The name of a type says what the type holds. [`names`] checks this.
//!
//! Every check takes [`SourceFile`]s and returns sentences, so that a test can pass wrong files to it.

pub mod bounds;
pub mod circles;
pub mod imports;
pub mod layering;
pub mod layers;
pub mod map;
pub mod names;
pub mod notes;
pub mod safety;
pub mod signatures;
pub mod size;
pub mod wording;

use std::path::{Path, PathBuf};
use std::process::Command;

/// One tracked text file: its path from the root of the repository, with `/`, and its content.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path relative to the root of the repository.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// Makes a file for a test.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Returns whether rustc compiles this file as part of the workspace.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Returns the root of the repository. This crate's location in the repository leads to it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads every file that git tracks or would track, except binary ones.
///
/// # Panics
/// The function panics if git cannot list the files. Otherwise a check without files would pass.
pub fn tracked_files() -> Vec<SourceFile> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files of the repository");
    assert!(listing.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr));
    let names = String::from_utf8(listing.stdout).expect("file names are UTF-8");
    names.split('\0').filter(|name| !name.is_empty()).filter_map(read).collect()
}

fn read(name: &str) -> Option<SourceFile> {
    let text = std::fs::read_to_string(root().join(name)).ok()?;
    Some(SourceFile { path: name.to_owned(), text })
}
