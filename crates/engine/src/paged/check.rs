//! Checks one table: its trees, its rows, and that its indexes match its rows.
//!
//! Invariants
//! 1. A check compares the live index entries with the newest rows by their count and the sum of their
//!    hashes. So it needs no memory for the entries.
//!
//! This module does not know other tables or allocation.

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
        let widths = self.def.leaf_widths();
        self.tree.check_with_widths(&core.pager, checker, &widths, &mut |checker, entry| {
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
        index.tree.check_with_widths(&core.pager, checker, &[], &mut |_, entry| {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use varve_device::MemoryDirectory;
    use varve_pager::PagerConfig;

    use super::PagedStore;
    use crate::catalog::{ColumnDef, LeafLayout, NewTable, TableDef};
    use crate::tree::Checker;
    use crate::types::ColumnType;
    use crate::{Database, Isolation, Options};

    #[test]
    fn leaves_are_compared_with_the_columns_of_the_table() {
        let pager = PagerConfig::new(MemoryDirectory::new());
        let database = Database::open(Options::new(pager)).unwrap();
        let mut txn = database.begin(Isolation::ReadCommitted);
        let columns = vec![ColumnDef::new("a", ColumnType::Int8), ColumnDef::new("b", ColumnType::Text)];
        let mut def = TableDef::clone(&txn.create_table(NewTable::new("public", "t", columns)).unwrap());
        txn.commit().unwrap();
        let damages = |def: &TableDef| {
            let mut checker = Checker::new();
            let store = PagedStore::open(&database.core, &Arc::new(def.clone()));
            store.check(&database.core, &mut checker).unwrap();
            checker.damages().to_vec()
        };
        assert_eq!(damages(&def), [] as [String; 0]);
        def.storage.layout = LeafLayout::ByColumns;
        let found = damages(&def);
        assert!(found.len() == 1 && found[0].contains("those of the table have [8, 0]"), "{found:?}");
    }
}
