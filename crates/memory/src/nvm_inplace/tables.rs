//! The tables of a store, and the chunk that says where they are.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VNVMINP1"; its last character is the version |
//! | 8 | 8 | pointer to the first block of the undo log |
//! | 16 | 48 | zeros |
//! | 64 | 64 each | 63 tables; the first free one and those behind it are zero |
//!
//! A table is a word (bits 0..16 owner, bits 16..24 number of indexes, bit 24 set) and 7 pointers to roots.
//!
//! Invariants
//! 1. Tables are counted without gaps.
//!
//! What it does not know: transactions.

use super::index::{self, Index};
use super::node::NODE_BYTES;
use crate::error::MemoryError;
use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer};
use crate::publish::Step;
use crate::space::Space;
use crate::store::TableNo;
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::INDEXES_MAX;
use crate::undo_log;

/// Tables that a store can have.
const TABLES_MAX: usize = 63;
const DIRECTORY_BYTES: usize = 4096;
const TABLE_BYTES: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"VNVMINP1");
const LOG_AT: u64 = 8;
const USED: u64 = 1 << 24;

/// A table: its indexes, the primary one first.
pub(super) struct Table {
    pub(super) owner: Owner,
    pub(super) indexes: Vec<Index>,
}

/// The tables of a store.
pub(super) struct Tables {
    at: Pointer,
    tables: Vec<Table>,
}

/// Finds the directory of the store with this name; makes an empty store if there is none.
pub(super) fn find_or_create(space: &Space, name: &str, owner: Owner) -> StoreResult<Pointer> {
    let root = match space.allocator().root(name) {
        Err(MemoryError::NoRoot { .. }) => space.allocator().create_root(name)?,
        found => found?,
    };
    let found = Pointer::from_u64(space.load(root));
    if !found.is_none() {
        return Ok(found);
    }
    let directory = space.allocator().allocate(owner, DIRECTORY_BYTES as u64)?;
    let block = undo_log::new_block(space, owner).inspect_err(|_| drop(space.give_up(directory)))?;
    space.store(directory, 0, &[0; DIRECTORY_BYTES])?;
    space.store(directory, 0, &MAGIC.to_le_bytes())?;
    space.store(directory, LOG_AT, &block.to_u64().to_le_bytes())?;
    space.write_back(directory, DIRECTORY_BYTES as u64)?;
    space.fence();
    let link = Step::Store { word: root, value: directory.to_u64() };
    space.allocator().publish(&[Step::Activate(directory), Step::Activate(block), link])?;
    Ok(directory)
}

/// The first block of a store's undo log.
pub(super) fn log_of(space: &Space, directory: Pointer) -> StoreResult<Pointer> {
    space.word(directory, LOG_AT).map(|word| Pointer::from_u64(space.load(word)))
}

impl Tables {
    /// Reads the directory.
    pub(super) fn read(space: &Space, at: Pointer) -> StoreResult<Tables> {
        let mut bytes = [0; DIRECTORY_BYTES];
        space.read(at, 0, &mut bytes)?;
        if get_u64(&bytes, 0) != MAGIC {
            return Err(StoreError::Damaged { what: "the magic of a store of the engine nvm_inplace", at });
        }
        let mut tables = Tables { at, tables: Vec::new() };
        for number in 0..TABLES_MAX {
            let word = get_u64(&bytes, (number + 1) * TABLE_BYTES);
            if word & USED == 0 {
                break;
            }
            let count = (word >> 16 & 0xFF) as usize;
            let damaged = StoreError::Damaged { what: "a table of a store", at };
            let owner =
                Owner::new(word as u16).filter(|_| (1..=INDEXES_MAX).contains(&count)).ok_or(damaged)?;
            tables.add(space, owner, count)?;
        }
        Ok(tables)
    }

    fn add(&mut self, space: &Space, owner: Owner, count: usize) -> StoreResult<()> {
        let from = (self.tables.len() + 1) * TABLE_BYTES;
        let index = |number| {
            let root = space.word(self.at, (from + 8 * (number + 1)) as u64)?;
            Ok(Index { root, number, owner })
        };
        let indexes = (0..count).map(index).collect::<StoreResult<Vec<Index>>>()?;
        self.tables.push(Table { owner, indexes });
        Ok(())
    }

    /// Makes a table, durably.
    pub(super) fn create(&mut self, space: &Space, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        let number = self.tables.len();
        if number == TABLES_MAX || !(1..=INDEXES_MAX).contains(&indexes) {
            return Err(StoreError::TooMany { tables: TABLES_MAX, indexes: INDEXES_MAX });
        }
        let mut roots = Vec::with_capacity(indexes);
        let made = (0..indexes).try_for_each(|_| {
            roots.push(index::new_root(space, owner)?);
            Ok(())
        });
        if let Err(error) = made.and_then(|()| self.publish(space, owner, &roots)) {
            for root in roots {
                space.give_up(root)?;
            }
            return Err(error);
        }
        self.add(space, owner, indexes)?;
        Ok(TableNo(number as u16))
    }

    fn publish(&self, space: &Space, owner: Owner, roots: &[Pointer]) -> StoreResult<()> {
        let from = ((self.tables.len() + 1) * TABLE_BYTES) as u64;
        let mut steps: Vec<Step> = roots.iter().map(|root| Step::Activate(*root)).collect();
        for (number, root) in (1..).zip(roots) {
            steps.push(Step::Store { word: space.word(self.at, from + 8 * number)?, value: root.to_u64() });
        }
        let value = USED | (roots.len() as u64) << 16 | u64::from(owner.number());
        steps.push(Step::Store { word: space.word(self.at, from)?, value });
        space.fence();
        Ok(space.allocator().publish(&steps)?)
    }

    /// Adds all chunks of the directory and the tables.
    pub(super) fn add_chunks(&self, space: &Space, chunks: &mut Vec<Pointer>) -> StoreResult<()> {
        chunks.push(self.at);
        let mut indexes = self.tables.iter().flat_map(|table| &table.indexes);
        indexes.try_for_each(|index| index.add_chunks(space, index.root(space), chunks))
    }

    /// A table.
    #[inline]
    pub(super) fn table(&self, table: TableNo) -> StoreResult<&Table> {
        let no_table = StoreError::NoIndex { table: table.0, index: 0 };
        self.tables.get(usize::from(table.0)).ok_or(no_table)
    }

    /// An index of a table.
    #[inline]
    pub(super) fn index(&self, table: TableNo, index: usize) -> StoreResult<&Index> {
        let no_index = StoreError::NoIndex { table: table.0, index };
        self.table(table)?.indexes.get(index).ok_or(no_index)
    }
}

// A publication activates every root, stores every pointer, and the word of the table.
const _: () = assert!(2 * INDEXES_MAX < crate::sizes::STEPS_MAX + 1 && NODE_BYTES == 512);
