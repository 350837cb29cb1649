//! Limits for rules that are younger than the code. For each such rule, a table says how many violations a
//! crate may still have.

use crate::SourceFile;
use std::collections::BTreeMap;

/// The number of faults of one kind that a crate may have.
#[derive(Debug)]
pub struct Bound {
    /// The crate's folder below `crates`.
    pub folder: &'static str,
    /// The most faults that the crate may have. Lower this number when the crate has fewer, and never raise
    /// it.
    pub max: usize,
}

/// Returns the faults in the library sources of each crate, by its folder.
pub fn by_crate(
    files: &[SourceFile],
    check_file: fn(&SourceFile) -> Vec<String>,
) -> BTreeMap<&str, Vec<String>> {
    let mut faults: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let inside = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        let Some((folder, _)) = inside else { continue };
        faults.entry(folder).or_default().extend(check_file(file));
    }
    faults
}

/// Returns the faults of each crate that has more faults than its row says, and their number. A crate without
/// a row may have none.
pub fn over(bounds: &[Bound], what: &str, by_crate: BTreeMap<&str, Vec<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, faults) in by_crate {
        let max = bounds.iter().find(|bound| bound.folder == folder).map_or(0, |bound| bound.max);
        let count = faults.len();
        if count > max {
            found.extend(faults);
            found.push(format!("crates/{folder}: {count} {what}, over {max}"));
        }
    }
    found
}
