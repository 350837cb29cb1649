//! The tables of a store with an LSM tree.
//!
//! A table has a number, which another table may get later, and an *id*, which no other table ever gets.
//! Entries contain the id. So one word is enough to drop a table, and later merges leave out the entries of
//! the dropped table.
//!
//! An engine stores a word for each number: bits 0..12 owner, 12..16 number of indexes, 16..40 id, 40 set. The
//! word is 0 where there is no table.
//!
//! Invariants
//! 1. Ids grow.
//!
//! This module does not know where the words are.

use super::key::TableId;
use crate::pointer::Owner;
use crate::space::Space;
use crate::store::{StoreTable, TABLES_MAX, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::INDEXES_MAX;

const USED: u64 = 1 << 40;
/// The number of possible ids.
const IDS: u32 = 1 << 24;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LsmTable {
    pub(crate) id: TableId,
    pub(crate) owner: Owner,
    pub(crate) indexes: usize,
}

impl LsmTable {
    /// Returns the word to store.
    pub(crate) fn encode(&self) -> u64 {
        USED | u64::from(self.owner.number()) | (self.indexes as u64) << 12 | u64::from(self.id.0) << 16
    }

    fn decode(word: u64) -> Option<LsmTable> {
        let owner = Owner::new((word & 0xFFF) as u16)?;
        let indexes = (word >> 12 & 0xF) as usize;
        let id = TableId((word >> 16) as u32 & (IDS - 1));
        (1..=INDEXES_MAX).contains(&indexes).then_some(LsmTable { id, owner, indexes })
    }
}

/// The tables of a store.
#[derive(Default)]
pub(crate) struct Tables {
    /// The tables by their numbers; `None` if no table has the number.
    tables: Vec<Option<LsmTable>>,
    /// The ids, sorted.
    ids: Vec<TableId>,
    /// The id of the next table.
    next: u32,
}

impl Tables {
    /// Decodes the words of tables, which are in the order of their numbers. Returns `None` if a word is
    /// damaged.
    pub(crate) fn decode(words: impl Iterator<Item = u64>, next: u32) -> Option<Tables> {
        let mut tables = Tables { next, ..Tables::default() };
        for word in words {
            let table = if word & USED == 0 { None } else { Some(LsmTable::decode(word)?) };
            tables.tables.push(table);
            tables.ids.extend(table.map(|table| table.id));
        }
        tables.ids.sort_unstable();
        Some(tables)
    }

    /// Returns the words of the tables in the order of their numbers.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.tables.iter().map(|table| table.map_or(0, |table| table.encode()))
    }

    /// Returns the id of the next table.
    pub(crate) fn next_id(&self) -> u32 {
        self.next
    }

    /// Returns a table.
    #[inline]
    pub(crate) fn table(&self, table: TableNo) -> StoreResult<LsmTable> {
        let no_table = StoreError::NoIndex { table: table.0, index: 0 };
        self.tables.get(usize::from(table.0)).copied().flatten().ok_or(no_table)
    }

    /// Returns a table that has an index.
    #[inline]
    pub(crate) fn with_index(&self, table: TableNo, index: usize) -> StoreResult<LsmTable> {
        let no_index = StoreError::NoIndex { table: table.0, index };
        self.table(table).ok().filter(|found| index < found.indexes).ok_or(no_index)
    }

    /// Returns whether a table has this id.
    pub(crate) fn has(&self, id: TableId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// Returns the number and the id of a new table.
    ///
    /// Errors: there are too many tables or indexes, or the owner is taken.
    pub(crate) fn next(&self, space: &Space, owner: Owner, indexes: usize) -> StoreResult<NewTable> {
        let number = self.tables.iter().position(Option::is_none).unwrap_or(self.tables.len());
        if number >= TABLES_MAX || self.next >= IDS || !(1..=INDEXES_MAX).contains(&indexes) {
            return Err(StoreError::TooMany { tables: TABLES_MAX, indexes: INDEXES_MAX });
        }
        let is_taken = self.tables.iter().flatten().any(|table| table.owner == owner);
        if is_taken || space.allocator().used_bytes(owner)? > 0 {
            return Err(StoreError::OwnerTaken { owner: owner.number() });
        }
        Ok(NewTable { number, table: LsmTable { id: TableId(self.next), owner, indexes } })
    }

    /// Adds a new table.
    pub(crate) fn add(&mut self, new: &NewTable) -> TableNo {
        if new.number >= self.tables.len() {
            self.tables.resize(new.number + 1, None);
        }
        if let Some(place) = self.tables.get_mut(new.number) {
            *place = Some(new.table);
        }
        self.ids.push(new.table.id);
        self.next = new.table.id.0 + 1;
        TableNo(new.number as u16)
    }

    /// Removes a table that is dropped.
    pub(crate) fn remove(&mut self, table: TableNo) {
        let removed = self.tables.get_mut(usize::from(table.0)).and_then(Option::take);
        self.ids.retain(|id| removed.is_none_or(|table| table.id != *id));
    }

    /// Takes the removal of a table back.
    pub(crate) fn put_back(&mut self, table: TableNo, removed: LsmTable) {
        if let Some(place) = self.tables.get_mut(usize::from(table.0)) {
            *place = Some(removed);
        }
        self.ids.push(removed.id);
        self.ids.sort_unstable();
    }

    /// Returns the tables in the order of their numbers.
    pub(crate) fn list(&self) -> Vec<StoreTable> {
        let tables = (0..).zip(&self.tables).filter_map(|(number, table)| Some((number, (*table)?)));
        let listed = tables.map(|(number, LsmTable { owner, indexes, .. })| StoreTable {
            number: TableNo(number),
            owner,
            indexes,
        });
        listed.collect()
    }
}

/// A table that will be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewTable {
    pub(crate) number: usize,
    pub(crate) table: LsmTable,
}
