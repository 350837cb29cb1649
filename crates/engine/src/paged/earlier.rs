//! A cache of old row versions that an index scan has found, kept until the scan ends.
//!
//! For a scan with an old snapshot, an index may have an entry for each version of a row. Without this cache,
//! the scan would follow the row's chain of versions again for each entry. The work would grow with the
//! square of the number of versions.
//!
//! Invariants
//! 1. A cache serves one scan, and so one snapshot. The version of a row that this snapshot sees does not
//!    change.
//! 2. The cache holds only rows whose newest version the snapshot does not see. In a scan without such rows
//!    the cache stays empty and costs nothing.
//! 3. A full cache keeps its rows and takes no more. The scan is correct without it.
//!
//! This module does not know versions or trees.

use std::collections::HashMap;

/// The most rows in the cache.
const ROWS_MAX: usize = 1 << 17;

/// Rows by clustered key, each with the index entry of the version that the view sees.
#[derive(Default)]
pub(super) struct Earlier {
    rows: HashMap<Box<[u8]>, Option<Box<[u8]>>>,
}

impl Earlier {
    /// Returns whether the cache knows that `entry` is not the entry of the row's visible version.
    pub(super) fn rules_out(&self, key: &[u8], entry: &[u8]) -> bool {
        !self.rows.is_empty() && self.rows.get(key).is_some_and(|visible| visible.as_deref() != Some(entry))
    }

    /// Stores the entry of the visible version; `None` if the view sees no row.
    pub(super) fn note(&mut self, key: &[u8], visible: Option<&[u8]>) {
        if self.rows.len() < ROWS_MAX && !self.rows.contains_key(key) {
            self.rows.insert(key.into(), visible.map(Into::into));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_visible_entry_is_left() {
        let mut earlier = Earlier::default();
        assert!(!earlier.rules_out(b"1", b"a1"));
        earlier.note(b"1", Some(b"a1"));
        earlier.note(b"2", None);
        assert!(!earlier.rules_out(b"1", b"a1"));
        assert!(earlier.rules_out(b"1", b"b1"));
        assert!(earlier.rules_out(b"2", b"a2"));
        assert!(!earlier.rules_out(b"3", b"a3"));
    }
}
