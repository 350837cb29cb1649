//! The tables of a store, and the pages that list them.
//!
//! A page is a chunk of 4096 bytes. The store's root points to the first page:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VNVMINP1"; its last character is the version |
//! | 8 | 8 | pointer to the first block of the undo log; zero in later pages |
//! | 16 | 8 | pointer to the next page; zero in the last one |
//! | 24 | 40 | zeros |
//! | 64 | 64 each | 63 tables |
//!
//! A table is a word (bits 0..16 owner, bits 16..24 number of indexes, bit 24 set, bit 25 set while it is
//! dropped) and 7 pointers to roots. The word is zero if there is no table.
//!
//! Invariants
//! 1. The number of a table is its position in the pages. It never changes.
//! 2. An owner has chunks of one table only.
//!
//! This module does not know transactions.

use super::index::{self, Index};
use super::lookup_cache::LookupCache;
use super::node::NODE_BYTES;
use crate::error::MemoryError;
use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer, Word};
use crate::publish::Step;
use crate::space::Space;
use crate::store::{StoreTable, TABLES_MAX, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::INDEXES_MAX;
use crate::undo_log;

const PAGE_BYTES: usize = 4096;
const TABLE_BYTES: usize = 64;
const PAGE_TABLES: usize = PAGE_BYTES / TABLE_BYTES - 1;
const PAGES_MAX: usize = TABLES_MAX.div_ceil(PAGE_TABLES);
const MAGIC: u64 = u64::from_le_bytes(*b"VNVMINP1");
const LOG_AT: u64 = 8;
const NEXT_AT: u64 = 16;
const USED: u64 = 1 << 24;
const DROPPED: u64 = 1 << 25;

/// A table: its indexes, the primary one first.
pub(super) struct Table {
    pub(super) owner: Owner,
    pub(super) indexes: Vec<Index>,
}

/// The tables of a store.
pub(super) struct Tables {
    pages: Vec<Pointer>,
    /// The tables by their numbers; `None` if no table has the number.
    tables: Vec<Option<Table>>,
    /// The owner of the pages.
    owner: Owner,
    /// The largest number of bytes for the cache of lookups of an index.
    lookup_cache_bytes_max: u64,
}

/// Finds the first page of the store with this name. Makes an empty store if there is none.
pub(super) fn find_or_create(space: &Space, name: &str, owner: Owner) -> StoreResult<Pointer> {
    let root = match space.allocator().root(name) {
        Err(MemoryError::NoRoot { .. }) => space.allocator().create_root(name)?,
        found => found?,
    };
    let found = Pointer::from_u64(space.load(root));
    if !found.is_none() {
        return Ok(found);
    }
    // Two stores must not have the same owner. Otherwise recovery of one store could free chunks of the other
    // one.
    if space.allocator().used_bytes(owner)? > 0 {
        return Err(StoreError::OwnerTaken { owner: owner.number() });
    }
    let page = new_page(space, owner)?;
    let block = undo_log::new_block(space, owner).inspect_err(|_| space.give_up_after_error(page))?;
    space.store(page, LOG_AT, &block.to_u64().to_le_bytes())?;
    space.write_back(page, PAGE_BYTES as u64)?;
    space.fence();
    let link = Step::Store { word: root, value: page.to_u64() };
    space.allocator().publish(&[Step::Activate(page), Step::Activate(block), link])?;
    Ok(page)
}

/// Makes a reserved page without tables. A later fence of the caller makes it durable.
fn new_page(space: &Space, owner: Owner) -> StoreResult<Pointer> {
    let page = space.allocator().allocate(owner, PAGE_BYTES as u64)?;
    space.store(page, 0, &[0; PAGE_BYTES])?;
    space.store(page, 0, &MAGIC.to_le_bytes())?;
    space.write_back(page, PAGE_BYTES as u64)?;
    Ok(page)
}

/// Returns the first block of a store's undo log.
pub(super) fn log_of(space: &Space, first_page: Pointer) -> StoreResult<Pointer> {
    space.word(first_page, LOG_AT).map(|word| Pointer::from_u64(space.load(word)))
}

impl Tables {
    /// Reads the pages, and ends drops that a crash has interrupted.
    pub(super) fn read(
        space: &Space,
        first_page: Pointer,
        owner: Owner,
        lookup_cache_bytes_max: u64,
    ) -> StoreResult<Tables> {
        let mut tables = Tables { pages: Vec::new(), tables: Vec::new(), owner, lookup_cache_bytes_max };
        let mut next = first_page;
        while !next.is_none() {
            if tables.pages.len() == PAGES_MAX {
                return Err(StoreError::Damaged { what: "the list of pages of a store's tables", at: next });
            }
            let mut page = [0; PAGE_BYTES];
            space.read(next, 0, &mut page)?;
            if get_u64(&page, 0) != MAGIC {
                let what = "the magic of a store of the engine nvm_inplace";
                return Err(StoreError::Damaged { what, at: next });
            }
            tables.pages.push(next);
            for slot in 0..PAGE_TABLES {
                let table = tables.decode(space, get_u64(&page, (slot + 1) * TABLE_BYTES))?;
                tables.tables.push(table);
            }
            next = Pointer::from_u64(get_u64(&page, NEXT_AT as usize));
        }
        Ok(tables)
    }

    /// Decodes the word of the next table, whose number is the number of tables so far.
    fn decode(&self, space: &Space, word: u64) -> StoreResult<Option<Table>> {
        if word & USED == 0 {
            return Ok(None);
        }
        let number = self.tables.len();
        let count = (word >> 16 & 0xFF) as usize;
        let at = self.pages.last().copied().unwrap_or_default();
        let damaged = StoreError::Damaged { what: "a table of a store", at };
        let owner = Owner::new(word as u16).filter(|_| (1..=INDEXES_MAX).contains(&count)).ok_or(damaged)?;
        if word & DROPPED != 0 {
            self.end_drop(space, number, owner)?;
            return Ok(None);
        }
        self.table_with(space, number, owner, count).map(Some)
    }

    fn table_with(&self, space: &Space, number: usize, owner: Owner, count: usize) -> StoreResult<Table> {
        let index = |index| {
            let cache = LookupCache::new(self.lookup_cache_bytes_max);
            Ok(Index { root: self.word(space, number, index + 1)?, number: index, owner, cache })
        };
        Ok(Table { owner, indexes: (0..count).map(index).collect::<StoreResult<Vec<Index>>>()? })
    }

    /// Returns a word of a table in its page.
    fn word(&self, space: &Space, number: usize, word: usize) -> StoreResult<Word> {
        let no_table = StoreError::NoIndex { table: number as u16, index: 0 };
        let page = self.pages.get(number / PAGE_TABLES).copied().ok_or(no_table)?;
        space.word(page, ((number % PAGE_TABLES + 1) * TABLE_BYTES + 8 * word) as u64)
    }

    /// Makes a table, durably.
    pub(super) fn create(&mut self, space: &Space, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        let number = self.tables.iter().position(Option::is_none).unwrap_or(self.tables.len());
        if number >= TABLES_MAX || !(1..=INDEXES_MAX).contains(&indexes) {
            return Err(StoreError::TooMany { tables: TABLES_MAX, indexes: INDEXES_MAX });
        }
        if space.allocator().used_bytes(owner)? > 0 {
            return Err(StoreError::OwnerTaken { owner: owner.number() });
        }
        if number == self.tables.len() {
            self.add_page(space)?;
        }
        let mut roots = Vec::with_capacity(indexes);
        let made = (0..indexes).try_for_each(|_| {
            roots.push(index::new_root(space, owner)?);
            Ok(())
        });
        if let Err(error) = made.and_then(|()| self.publish(space, number, owner, &roots)) {
            roots.iter().for_each(|root| space.give_up_after_error(*root));
            return Err(error);
        }
        let table = self.table_with(space, number, owner, indexes)?;
        if let Some(free) = self.tables.get_mut(number) {
            *free = Some(table);
        }
        Ok(TableNo(number as u16))
    }

    /// Adds an empty page, durably.
    fn add_page(&mut self, space: &Space) -> StoreResult<()> {
        let last = self.pages.last().copied().unwrap_or_default();
        let word = space.word(last, NEXT_AT)?;
        let page = new_page(space, self.owner)?;
        space.fence();
        let link = Step::Store { word, value: page.to_u64() };
        let linked = space.allocator().publish(&[Step::Activate(page), link]);
        linked.inspect_err(|_| space.give_up_after_error(page))?;
        self.pages.push(page);
        self.tables.extend((0..PAGE_TABLES).map(|_| None));
        Ok(())
    }

    fn publish(&self, space: &Space, number: usize, owner: Owner, roots: &[Pointer]) -> StoreResult<()> {
        let mut steps: Vec<Step> = roots.iter().map(|root| Step::Activate(*root)).collect();
        for (word, root) in (1..).zip(roots) {
            steps.push(Step::Store { word: self.word(space, number, word)?, value: root.to_u64() });
        }
        let value = USED | (roots.len() as u64) << 16 | u64::from(owner.number());
        steps.push(Step::Store { word: self.word(space, number, 0)?, value });
        space.fence();
        Ok(space.allocator().publish(&steps)?)
    }

    /// Removes a table, durably: three fences, and two of the allocator.
    pub(super) fn drop_table(&mut self, space: &Space, table: TableNo) -> StoreResult<()> {
        let owner = self.table(table)?.owner;
        let number = usize::from(table.0);
        let word = self.word(space, number, 0)?;
        space.store_word(word, space.load(word) | DROPPED);
        space.fence();
        if let Some(table) = self.tables.get_mut(number) {
            *table = None;
        }
        self.end_drop(space, number, owner)
    }

    /// Frees all chunks of a dropped table, and then its number.
    fn end_drop(&self, space: &Space, number: usize, owner: Owner) -> StoreResult<()> {
        space.allocator().free_owner(owner)?;
        space.store_word(self.word(space, number, 0)?, 0);
        space.fence();
        Ok(())
    }

    /// Returns the tables in the order of their numbers.
    pub(super) fn list(&self) -> Vec<StoreTable> {
        let tables = (0..).zip(&self.tables).filter_map(|(number, table)| Some((number, table.as_ref()?)));
        let listed = tables.map(|(number, table)| StoreTable {
            number: TableNo(number),
            owner: table.owner,
            indexes: table.indexes.len(),
        });
        listed.collect()
    }

    /// Adds all chunks of the pages and the tables.
    pub(super) fn add_chunks(&self, space: &Space, chunks: &mut Vec<Pointer>) -> StoreResult<()> {
        chunks.extend_from_slice(&self.pages);
        let mut indexes = self.tables.iter().flatten().flat_map(|table| &table.indexes);
        indexes.try_for_each(|index| index.add_chunks(space, chunks))
    }

    /// Returns a table.
    #[inline]
    pub(super) fn table(&self, table: TableNo) -> StoreResult<&Table> {
        let no_table = || StoreError::NoIndex { table: table.0, index: 0 };
        self.tables.get(usize::from(table.0)).and_then(Option::as_ref).ok_or_else(no_table)
    }

    /// Makes the cache of lookups of an index larger, if the cache wants to grow.
    pub(super) fn grow_cache(&mut self, table: TableNo, index: usize) {
        let table = self.tables.get_mut(usize::from(table.0)).and_then(Option::as_mut);
        let index = table.and_then(|table| table.indexes.get_mut(index));
        if let Some(index) = index.filter(|index| index.cache.wants_growth()) {
            index.cache.grow();
        }
    }

    /// Returns an index of a table.
    #[inline]
    pub(super) fn index(&self, table: TableNo, index: usize) -> StoreResult<&Index> {
        let no_index = || StoreError::NoIndex { table: table.0, index };
        self.table(table)?.indexes.get(index).ok_or_else(no_index)
    }
}

// A publication activates every root, stores every pointer, and the word of the table.
const _: () = assert!(2 * INDEXES_MAX < crate::sizes::STEPS_MAX + 1 && NODE_BYTES == 512);
