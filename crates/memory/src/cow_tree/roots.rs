//! The roots of all trees of a store, and their format in a directory.
//!
//! A directory has a line of 64 bytes for each of 1023 tables. The line of a number without a table has zeros
//! only.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | bits 0..16 owner, 16..24 number of indexes, 24 set, 25 set if it is dropped, 26..64 *pieces* |
//! | 8 | 8 each | 7 roots of indexes |
//!
//! *Pieces* is the root of the tree with the pieces of long rows (`cow`). A root is the number of a node, or
//! 0 if the tree is empty.
//!
//! Invariants
//! 1. The dirty directory lacks the changes of the open batch and of the batch before. So the end of a batch
//!    writes the lines that either of them has changed.
//!
//! This module does not know where directories are.

use varve_device::LINE_BYTES;

use super::nodes::{NodeId, TreeNo};
use super::tree::Tree;
use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer};
use crate::store::{StoreTable, TABLES_MAX, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::INDEXES_MAX;

/// A table in a directory.
pub(crate) type Line = [u8; LINE_BYTES as usize];

const USED: u64 = 1 << 24;
const DROPPED: u64 = 1 << 25;
const PIECES_BITS: u32 = 26;

/// A table.
#[derive(Debug, Clone, Copy)]
struct TableRoots {
    owner: Owner,
    count: usize,
    is_dropped: bool,
    pieces: NodeId,
    roots: [NodeId; INDEXES_MAX],
}

impl TableRoots {
    fn encode(&self) -> Line {
        let dropped = if self.is_dropped { DROPPED } else { 0 };
        let counts = (self.count as u64) << 16 | u64::from(self.owner.number());
        let word = USED | dropped | counts | self.pieces.0 << PIECES_BITS;
        let words = [word].into_iter().chain(self.roots.iter().map(|root| root.0));
        let mut line = [0; LINE_BYTES as usize];
        line.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        line
    }

    fn decode(line: &Line) -> StoreResult<Option<TableRoots>> {
        let word = get_u64(line, 0);
        if word & USED == 0 {
            return Ok(None);
        }
        let count = (word >> 16 & 0xFF) as usize;
        let damaged = StoreError::Damaged { what: "a table of a store", at: Pointer::NONE };
        let owner = Owner::new(word as u16).filter(|_| (1..=INDEXES_MAX).contains(&count));
        Ok(Some(TableRoots {
            owner: owner.ok_or(damaged)?,
            count,
            is_dropped: word & DROPPED != 0,
            pieces: NodeId(word >> PIECES_BITS),
            roots: std::array::from_fn(|index| NodeId(get_u64(line, 8 * (index + 1)))),
        }))
    }
}

/// The roots of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots {
    /// The tables, by their numbers.
    tables: Vec<Option<TableRoots>>,
    /// Numbers of the tables that the batch has changed.
    changed: Vec<usize>,
}

impl Roots {
    fn decode(lines: &[Line]) -> StoreResult<Roots> {
        let tables = lines.iter().map(TableRoots::decode).collect::<StoreResult<Vec<_>>>()?;
        Ok(Roots { tables, changed: Vec::new() })
    }

    fn note(&mut self, number: usize) {
        if self.changed.last() != Some(&number) {
            self.changed.push(number);
        }
    }

    fn put(&mut self, number: usize, table: Option<TableRoots>) {
        if number >= self.tables.len() {
            self.tables.resize(number + 1, None);
        }
        if let Some(place) = self.tables.get_mut(number) {
            *place = table;
        }
        self.note(number);
    }

    fn line(&self, number: usize) -> Line {
        let table = self.tables.get(number).copied().flatten();
        table.map_or([0; LINE_BYTES as usize], |table| table.encode())
    }

    /// Adds a table with empty indexes. `is_taken` says whether its owner has chunks.
    ///
    /// Errors: there are too many tables or indexes, or the owner is taken.
    pub(crate) fn add(&mut self, owner: Owner, count: usize, is_taken: bool) -> StoreResult<TableNo> {
        let number = self.tables.iter().position(Option::is_none).unwrap_or(self.tables.len());
        if number >= TABLES_MAX || !(1..=INDEXES_MAX).contains(&count) {
            return Err(StoreError::TooMany { tables: TABLES_MAX, indexes: INDEXES_MAX });
        }
        if is_taken || self.tables.iter().flatten().any(|table| table.owner == owner) {
            return Err(StoreError::OwnerTaken { owner: owner.number() });
        }
        let (pieces, roots) = (NodeId::NONE, [NodeId::NONE; INDEXES_MAX]);
        self.put(number, Some(TableRoots { owner, count, is_dropped: false, pieces, roots }));
        Ok(TableNo(number as u16))
    }

    /// Marks a table as dropped, and removes its trees. The table's chunks still have to be freed.
    pub(crate) fn mark_dropped(&mut self, table: TableNo) -> StoreResult<()> {
        let mut found = *self.table(table)?;
        (found.is_dropped, found.pieces, found.roots) = (true, NodeId::NONE, [NodeId::NONE; INDEXES_MAX]);
        self.put(usize::from(table.0), Some(found));
        Ok(())
    }

    /// Returns the tables that are marked as dropped.
    pub(crate) fn dropped(&self) -> Vec<StoreTable> {
        self.listed(true).collect()
    }

    /// Forgets a table.
    pub(crate) fn remove(&mut self, table: TableNo) {
        self.put(usize::from(table.0), None);
    }

    fn listed(&self, is_dropped: bool) -> impl Iterator<Item = StoreTable> {
        let tables = (0..).zip(&self.tables).filter_map(|(number, table)| Some((number, table.as_ref()?)));
        tables.filter(move |(_, table)| table.is_dropped == is_dropped).map(|(number, table)| StoreTable {
            number: TableNo(number),
            owner: table.owner,
            indexes: table.count,
        })
    }

    /// Returns the tables, by number.
    pub(crate) fn list(&self) -> Vec<StoreTable> {
        self.listed(false).collect()
    }

    fn table(&self, table: TableNo) -> StoreResult<&TableRoots> {
        let no_table = StoreError::NoIndex { table: table.0, index: 0 };
        let found = self.tables.get(usize::from(table.0)).and_then(Option::as_ref);
        found.filter(|found| !found.is_dropped).ok_or(no_table)
    }

    /// Returns the number of indexes of a table.
    pub(crate) fn index_count(&self, table: TableNo) -> StoreResult<usize> {
        self.table(table).map(|table| table.count)
    }

    /// Returns the owner of a table's nodes and tuples.
    pub(crate) fn owner_of(&self, table: TableNo) -> StoreResult<Owner> {
        self.table(table).map(|table| table.owner)
    }

    /// Returns the root and the owner of a tree.
    pub(super) fn tree(&self, tree: TreeNo) -> StoreResult<Tree> {
        match tree {
            TreeNo::Pieces { table } => {
                self.table(table).map(|found| Tree { root: found.pieces, owner: found.owner })
            }
            TreeNo::Index { table, index } => {
                let found = self.table(table)?;
                let no_index = StoreError::NoIndex { table: table.0, index };
                let root = found.roots.get(index).filter(|_| index < found.count).ok_or(no_index)?;
                Ok(Tree { root: *root, owner: found.owner })
            }
        }
    }

    /// Sets the root of a tree.
    pub(super) fn set_root(&mut self, tree: TreeNo, root: NodeId) {
        let (TreeNo::Pieces { table } | TreeNo::Index { table, .. }) = tree;
        let number = usize::from(table.0);
        let found = self.tables.get_mut(number).and_then(Option::as_mut);
        let place = found.and_then(|found| match tree {
            TreeNo::Pieces { .. } => Some(&mut found.pieces),
            TreeNo::Index { index, .. } => found.roots.get_mut(index),
        });
        if let Some(place) = place.filter(|place| **place != root) {
            *place = root;
            self.note(number);
        }
    }

    /// Returns the trees of a table.
    pub(crate) fn trees_of(&self, table: TableNo) -> impl Iterator<Item = TreeNo> + use<> {
        let count = self.index_count(table).unwrap_or_default();
        (0..count).map(move |index| TreeNo::Index { table, index }).chain([TreeNo::Pieces { table }])
    }

    /// Returns all trees.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeNo> {
        self.listed(false).flat_map(|table| self.trees_of(table.number))
    }
}

/// A copy in DRAM of the lines of both directories.
pub(crate) struct Directories {
    current: Vec<Line>,
    dirty: Vec<Line>,
    /// Numbers of the lines in which the two directories differ.
    changed_before: Vec<usize>,
}

impl Directories {
    /// Takes the lines of both directories, as a start has read them.
    pub(crate) fn new(current: Vec<Line>, dirty: Vec<Line>) -> Directories {
        let differs = |number: &usize| current.get(*number) != dirty.get(*number);
        let changed_before = (0..current.len().max(dirty.len())).filter(differs).collect();
        Directories { current, dirty, changed_before }
    }

    /// Returns the roots of the current directory.
    pub(crate) fn current(&self) -> StoreResult<Roots> {
        Roots::decode(&self.current)
    }

    /// Calls `write` with the lines that have to be written, and their numbers, so that the dirty directory
    /// has these roots.
    pub(crate) fn stage(
        &mut self,
        roots: &mut Roots,
        mut write: impl FnMut(usize, &Line) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let mut numbers = std::mem::replace(&mut self.changed_before, std::mem::take(&mut roots.changed));
        numbers.extend_from_slice(&self.changed_before);
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let line = roots.line(number);
            if number >= self.dirty.len() {
                self.dirty.resize(number + 1, [0; LINE_BYTES as usize]);
            }
            if let Some(stored) = self.dirty.get_mut(number).filter(|stored| **stored != line) {
                *stored = line;
                write(number, &line)?;
            }
        }
        Ok(())
    }

    /// Exchanges the two directories. From now on, the dirty one is the current one.
    pub(crate) fn flip(&mut self) {
        std::mem::swap(&mut self.current, &mut self.dirty);
    }
}

const _: () = assert!(8 * (1 + INDEXES_MAX) == LINE_BYTES as usize);
