//! A run: sorted entries that never change, each key once, with an index above them.
//!
//! A run that a merge has written is *packed*: its entries are in the order of their keys, and a tree of full
//! nodes leads to them. In the engine `nvm_log` an immutable MemTable is a run, too, without being rewritten.
//!
//! Invariants
//! 1. Runs have an order, newest first. An entry in a newer run is newer than all entries of the same key in
//!    older runs.
//!
//! This module does not know how runs are made durable.

use super::bloom::Filter;
use super::entry::EntryAt;
use super::key::SearchKey;
use super::media::{Location, Media, damaged};
use super::node::{NODE_BYTES_MAX, Node, node_bytes};
use super::skip_list::SkipList;
use crate::store_error::StoreResult;

/// The largest number of levels of an index. An index with more levels is damaged.
pub(crate) const LEVELS_MAX: usize = 24;

/// A packed run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedRun {
    pub(crate) location: Location,
    /// The offset of the root node.
    pub(crate) root: u64,
}

/// The form in which a run is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunForm {
    /// An immutable MemTable.
    MemTable(SkipList),
    Packed(PackedRun),
}

/// A run of a store.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// The level. A MemTable that was not merged yet has level 0. Runs of higher level numbers are older.
    pub(crate) level: u8,
    /// Runs of level 0 are numbered in sequence. A larger number means a newer run.
    pub(crate) sequence: u64,
    /// The id of the run in the engine: the number of its slot or of its file.
    pub(crate) id: u64,
    pub(crate) form: RunForm,
    pub(crate) filter: Filter,
    pub(crate) entry_bytes: u64,
    pub(crate) keys: u64,
    /// The number of keys whose entry is a tombstone.
    pub(crate) tombstones: u64,
}

impl PackedRun {
    /// Returns the entry of a key.
    pub(crate) fn find(&self, media: &Media<'_>, key: &SearchKey<'_>) -> StoreResult<Option<EntryAt>> {
        let mut bytes = [0; NODE_BYTES_MAX];
        let bytes = bytes.get_mut(..node_bytes(self.location)).unwrap_or_default();
        let mut at = self.root;
        for _ in 0..LEVELS_MAX {
            let node = Node::read(media, self.location, at, bytes)?;
            let Some(number) = node.count_before(media, self.location, key, true)?.checked_sub(1) else {
                return Ok(None);
            };
            if node.is_leaf {
                let is_there = node.has(media, self.location, number, key)?;
                let entry = || EntryAt::read(media, self.location, node.entry(number).entry);
                return is_there.then(entry).transpose();
            }
            at = node.entry(number).child;
        }
        Err(damaged("a run with too many levels", self.root))
    }
}

/// Sorts runs, newest first.
pub(crate) fn sort(runs: &mut [Run]) {
    runs.sort_by_key(|run| (run.level, std::cmp::Reverse(run.sequence)));
}
