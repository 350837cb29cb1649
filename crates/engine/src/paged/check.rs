//! Checks one table: its trees, its rows, and that its indexes match its rows.
//!
//! Invariants
//! 1. A check compares the live index entries with the newest rows by their count and the sum of their
//!    hashes. So it needs no memory for the entries.
//!
//! This module knows nothing about other tables and allocation.

use super::{PagedIndex, PagedStore};
use crate::core::{Core, hash_key};
use crate::error::Result;
use crate::node::EntryRef;
use crate::overflow;
use crate::row::RowRef;
use crate::tree::Checker;

/// A multiset of index entries.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, entry: &[u8]) {
        self.count += 1;
        self.hash = self.hash.wrapping_add(hash_key(0, entry).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

impl PagedStore {
    /// Checks the table, and returns the number of its rows.
    pub(crate) fn check(&self, core: &Core, checker: &mut Checker) -> Result<u64> {
        let mut expected = vec![Sum::default(); self.indexes.len()];
        let (mut rows, mut spare) = (0, Vec::new());
        self.tree.check(&core.pager, checker, &mut |checker, entry| {
            let is_live = !entry.is_deleted();
            rows += u64::from(is_live);
            let payload = entry.payload(&mut spare);
            if overflow::is_pointer(payload) {
                overflow::check(&core.pager, &self.tree, payload, checker);
            }
            if let Err(what) = self.check_row(core, entry, &mut expected) {
                checker.damage(format!("table {}: a row: {what}", self.def.name));
            }
        })?;
        for (index, expected) in self.indexes.iter().zip(expected) {
            self.check_index(core, checker, index, expected)?;
        }
        Ok(rows)
    }

    fn check_row(&self, core: &Core, entry: EntryRef<'_>, expected: &mut [Sum]) -> Result<()> {
        if entry.is_deleted() {
            return Ok(());
        }
        let (mut spare, mut whole, mut key) = (Vec::new(), Vec::new(), Vec::new());
        let payload = entry.payload(&mut spare);
        let row = RowRef::checked(&self.schema, self.whole_row(core, payload, &mut whole)?)?;
        let own_key = entry.key();
        if self.primary_key_of(row, &mut key)? && key != own_key {
            return Err(crate::error::Error::corrupt("it is not where its primary key belongs"));
        }
        for (index, expected) in self.indexes.iter().zip(expected) {
            if index.entry_key(&self.def, row, &own_key, &mut key)?.is_some() {
                expected.add(&key);
            }
        }
        Ok(())
    }

    fn check_index(
        &self,
        core: &Core,
        checker: &mut Checker,
        index: &PagedIndex,
        expected: Sum,
    ) -> Result<()> {
        let mut live = Sum::default();
        index.tree.check(&core.pager, checker, &mut |_, entry| {
            if !entry.is_deleted() {
                live.add(&entry.key());
            }
        })?;
        if live != expected {
            checker.damage(format!(
                "index {} has {} live entries, the rows of table {} make {}{}",
                index.def.name,
                live.count,
                self.def.name,
                expected.count,
                if live.count == expected.count { " others" } else { "" }
            ));
        }
        Ok(())
    }
}
