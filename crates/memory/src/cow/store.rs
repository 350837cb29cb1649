//! The changes of transactions, and reads.
//!
//! Invariants
//! 1. Nothing of a page that the current directory leads to is changed.
//! 2. A refused change has taken back the entries that it had made before.
//!
//! What it does not know: the format of nodes and directories, the file.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::cache::PageCache;
use super::directory::Directory;
use super::nodes::FileNodes;
use super::pages::PAGE_BYTES;
use super::recovery::{self, Opened};
use super::row::{self, INLINE_AT, Pieces, Stored, TupleParts, piece_bytes};
use crate::cow_tree::{NodeId, NodeStore, TreeNo, Trees, key_bytes_max};
use crate::files::{CallCounts, FileCosts, Files};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, KEY_BYTES_MAX};

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CowSettings {
    /// What calls on files cost.
    pub files: FileCosts,
    /// A commit ends the batch when the batch has this many transactions.
    pub batch_transactions: usize,
    /// Bytes of the page cache. It is larger while one transaction has changed more nodes than it holds.
    pub cache_bytes: usize,
}

impl Default for CowSettings {
    fn default() -> CowSettings {
        CowSettings { files: FileCosts::default(), batch_transactions: 64, cache_bytes: 16 << 20 }
    }
}

/// The tables of one partition: copy-on-write trees in a file.
pub struct Cow {
    trees: Trees<FileNodes>,
    directory: Directory,
    settings: CowSettings,
    /// Transactions of the batch that have changed something.
    pending: usize,
    /// The tuple that is being made.
    new: Vec<u8>,
    /// The tuple of before.
    old: Vec<u8>,
    value: Vec<u8>,
}

fn index_of(table: TableNo, index: usize) -> TreeNo {
    TreeNo::Index { table, index }
}

fn lacks_entry() -> StoreError {
    StoreError::Damaged { what: "an index, which lacks an entry of a row", at: Pointer::NONE }
}

impl Cow {
    /// Opens the store whose file has this root; makes an empty one if there is none. The file and the page
    /// cache are counted for `owner`. Commits that were not durable are gone. A start reads a bit for each
    /// page.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: CowSettings,
    ) -> StoreResult<Cow> {
        let files = Files::open(Arc::clone(&allocator), name, owner, settings.files)?;
        let Opened { file, directory, map } = recovery::open(files)?;
        let cache = Mutex::new(PageCache::new(owner, settings.cache_bytes / PAGE_BYTES));
        let nodes = FileNodes { space: Space::new(allocator), file, map, cache };
        let roots = directory.current()?;
        let (new, old, value) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Cow { trees: Trees::new(nodes, roots), directory, settings, pending: 0, new, old, value })
    }

    /// Calls on files since the start.
    pub fn file_calls(&self) -> CallCounts {
        self.trees.nodes.file.files.counts()
    }

    fn check(&self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        let most_bytes = key_bytes_max(PAGE_BYTES);
        if let Some(key) = keys.iter().find(|key| key.len() > most_bytes) {
            return Err(StoreError::KeyLength { len_bytes: key.len(), most_bytes });
        }
        tuple::check(self.trees.roots.index_count(table)?, keys, row)
    }

    /// Runs a change of several entries, and takes back what it has done if it is refused.
    fn all_or_nothing(&mut self, change: impl FnOnce(&mut Cow) -> StoreResult<()>) -> StoreResult<()> {
        let before = self.trees.savepoint();
        change(self).or_else(|error| self.trees.rollback_to(before).and(Err(error)))
    }

    /// Copies a tuple into a buffer.
    fn load(&self, table: TableNo, value: &[u8], tuple: &mut Vec<u8>) -> StoreResult<()> {
        tuple.clear();
        match row::decode(value)? {
            Stored::Inline(inline) => tuple.extend_from_slice(inline),
            Stored::InPieces(pieces) => {
                let mut piece = Vec::new();
                for place in 0..pieces.count() {
                    let is_there =
                        self.trees.find(TreeNo::Pieces { table }, &pieces.key(place), &mut piece)?;
                    is_there.then_some(()).ok_or_else(lacks_entry)?;
                    tuple.extend_from_slice(&piece);
                }
            }
        }
        Ok(())
    }

    /// Copies the tuple with a primary key into `old`, and its value into `value`.
    fn load_old(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        let is_there = self.trees.find(index_of(table, 0), key, &mut self.value)?;
        if is_there {
            let mut old = std::mem::take(&mut self.old);
            self.load(table, &self.value, &mut old)?;
            self.old = old;
        }
        Ok(is_there)
    }

    /// Makes the value for the tuple in `new`, with its pieces if it has to be cut.
    fn store_tuple(&mut self, table: TableNo, key: &[u8]) -> StoreResult<()> {
        if row::is_inline(key.len(), &self.new) {
            row::encode_inline(&self.new, &mut self.value);
            return Ok(());
        }
        let tree = TreeNo::Pieces { table };
        let mut number = 0;
        self.trees.scan(tree, &KeyRange::ALL, Direction::Backward, &mut |last, _| {
            number = row::number_of(last) + 1;
            Ok(ControlFlow::Break(()))
        })?;
        let pieces = Pieces { number, tuple_bytes: self.new.len() };
        for (place, piece) in (0..).zip(self.new.chunks(piece_bytes())) {
            self.trees.insert(tree, &pieces.key(place), piece)?;
        }
        row::encode_pieces(pieces, &mut self.value);
        Ok(())
    }

    /// Removes the pieces that a value of the primary index leads to.
    fn remove_pieces(&mut self, table: TableNo, value: &[u8]) -> StoreResult<()> {
        let Stored::InPieces(pieces) = row::decode(value)? else { return Ok(()) };
        for place in 0..pieces.count() {
            let was_there = self.trees.remove(TreeNo::Pieces { table }, &pieces.key(place))?;
            was_there.then_some(()).ok_or_else(lacks_entry)?;
        }
        Ok(())
    }

    /// Puts the tuple in `new` in the place of the one in `old`, whose value is in `value`.
    fn exchange(&mut self, table: TableNo, keys: &[&[u8]], old: &TupleParts) -> StoreResult<()> {
        let Some((primary, secondary)) = keys.split_first() else { return Ok(()) };
        let value = std::mem::take(&mut self.value);
        self.remove_pieces(table, &value)?;
        self.value = value;
        self.store_tuple(table, primary)?;
        self.trees.set(index_of(table, 0), primary, &self.value)?;
        for (index, new) in (1..).zip(secondary) {
            let old_key = old.key(&self.old, index);
            if old_key != *new {
                self.trees.remove(index_of(table, index), old_key)?;
                self.trees.insert(index_of(table, index), new, primary)?;
            }
        }
        Ok(())
    }

    /// Changes bytes of the tuple in `old`, from its byte `at` on; its value is in `value`.
    fn patch_tuple(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()> {
        let before = |from: usize, len: usize| self.old.get(from..from + len).unwrap_or_default();
        let Stored::InPieces(pieces) = row::decode(&self.value)? else {
            let before = before(at, bytes.len());
            return self.trees.patch(index_of(table, 0), key, INLINE_AT + at, bytes, before);
        };
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let within = at % piece_bytes();
            let (now, later) = rest.split_at(rest.len().min(piece_bytes() - within));
            let piece = pieces.key((at / piece_bytes()) as u32);
            self.trees.patch(TreeNo::Pieces { table }, &piece, within, now, before(at, now.len()))?;
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Copies what the primary index has under a key that a secondary index leads to.
    fn find_primary(&self, table: TableNo, key: &[u8], value: &mut Vec<u8>) -> StoreResult<()> {
        let is_there = self.trees.find(index_of(table, 0), key, value)?;
        is_there.then_some(()).ok_or_else(lacks_entry)
    }

    /// Ends the batch: its transactions are durable.
    fn end_batch(&mut self) -> StoreResult<()> {
        let Trees { nodes, roots, .. } = &mut self.trees;
        nodes.write_dirty()?;
        let FileNodes { space, file, map, cache } = nodes;
        map.stage(file, self.directory.dirty())?;
        self.directory.stage(file, roots)?;
        file.fsync()?;
        self.directory.flip(file)?;
        self.pending = 0;
        map.end_batch();
        cache.get_mut().end_batch(space)
    }

    /// The nodes of some trees of the dirty directory.
    fn nodes_of(&self, trees: impl Iterator<Item = TreeNo>) -> StoreResult<Vec<NodeId>> {
        let mut found = Vec::new();
        for tree in trees {
            self.trees.each_node(&self.trees.roots, tree, &mut |node| {
                found.push(node);
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Checks that the pages in use are those of the nodes.
    fn check_pages(&self) -> StoreResult<()> {
        let mut nodes = self.nodes_of(self.trees.roots.trees())?;
        nodes.sort_unstable();
        let nodes = nodes.iter().map(|node| node.0);
        match nodes.eq(self.trees.nodes.map.nodes()) {
            true => Ok(()),
            false => Err(StoreError::Damaged { what: "the bitmap of pages in use", at: Pointer::NONE }),
        }
    }
}

impl Store for Cow {
    fn create_table(&mut self, owner: Owner, indexes: usize) -> StoreResult<TableNo> {
        if self.trees.has_changes() {
            return Err(StoreError::InTransaction);
        }
        let is_taken = self.trees.nodes.space.allocator().used_bytes(owner)? > 0;
        let table = self.trees.roots.add(owner, indexes, is_taken)?;
        self.end_batch()?;
        Ok(table)
    }

    /// One batch: the pages are free behind its flip.
    fn drop_table(&mut self, table: TableNo) -> StoreResult<()> {
        if self.trees.has_changes() {
            return Err(StoreError::InTransaction);
        }
        let owner = self.trees.roots.owner_of(table)?;
        for node in self.nodes_of(self.trees.roots.trees_of(table))? {
            self.trees.nodes.retire(node, owner)?;
        }
        self.trees.roots.remove(table);
        self.end_batch()
    }

    fn tables(&self) -> Vec<StoreTable> {
        self.trees.roots.list()
    }

    fn insert(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
        self.check(table, keys, row)?;
        for (index, key) in keys.iter().enumerate() {
            if self.trees.find(index_of(table, index), key, &mut self.value)? {
                return Err(StoreError::Duplicate { index });
            }
        }
        let Some((primary, secondary)) = keys.split_first() else { return Ok(()) };
        row::encode_tuple(secondary, row, &mut self.new);
        self.all_or_nothing(|store| {
            store.store_tuple(table, primary)?;
            store.trees.insert(index_of(table, 0), primary, &store.value)?;
            let mut secondary = (1..).zip(secondary);
            secondary.try_for_each(|(index, key)| store.trees.insert(index_of(table, index), key, primary))
        })
    }

    fn replace(&mut self, table: TableNo, keys: &[&[u8]], row: &[u8]) -> StoreResult<bool> {
        self.check(table, keys, row)?;
        let Some((primary, secondary)) = keys.split_first() else { return Ok(false) };
        if !self.load_old(table, primary)? {
            return Ok(false);
        }
        let old = TupleParts::of(secondary.len(), &self.old)?;
        for (index, key) in (1..).zip(secondary) {
            let is_new = old.key(&self.old, index) != *key;
            if is_new && self.trees.find(index_of(table, index), key, &mut self.new)? {
                return Err(StoreError::Duplicate { index });
            }
        }
        row::encode_tuple(secondary, row, &mut self.new);
        self.all_or_nothing(|store| store.exchange(table, keys, &old))?;
        Ok(true)
    }

    fn patch(&mut self, table: TableNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<bool> {
        if !self.load_old(table, key)? {
            return Ok(false);
        }
        let parts = TupleParts::of(self.trees.roots.index_count(table)? - 1, &self.old)?;
        let (len_bytes, row_bytes) = (bytes.len(), parts.row(&self.old).len());
        if at.checked_add(len_bytes).is_none_or(|end| end > row_bytes) {
            return Err(StoreError::PatchRange { at, len_bytes, row_bytes });
        }
        self.all_or_nothing(|store| store.patch_tuple(table, key, parts.row_at + at, bytes))?;
        Ok(true)
    }

    fn delete(&mut self, table: TableNo, key: &[u8]) -> StoreResult<bool> {
        if !self.load_old(table, key)? {
            return Ok(false);
        }
        let count = self.trees.roots.index_count(table)?;
        let parts = TupleParts::of(count - 1, &self.old)?;
        self.all_or_nothing(|store| {
            let value = std::mem::take(&mut store.value);
            store.remove_pieces(table, &value)?;
            store.value = value;
            for index in 0..count {
                let key = if index == 0 { key } else { parts.key(&store.old, index) };
                let was_there = store.trees.remove(index_of(table, index), key)?;
                was_there.then_some(()).ok_or_else(lacks_entry)?;
            }
            Ok(())
        })?;
        Ok(true)
    }

    fn get(&self, table: TableNo, index: usize, key: &[u8], row: &mut Vec<u8>) -> StoreResult<bool> {
        if !self.trees.find(index_of(table, index), key, row)? {
            return Ok(false);
        }
        if index > 0 {
            let mut primary = [0; KEY_BYTES_MAX];
            let primary = primary.get_mut(..row.len()).ok_or_else(lacks_entry)?;
            primary.copy_from_slice(row);
            self.find_primary(table, primary, row)?;
        }
        let mut before_tuple = INLINE_AT;
        if let Stored::InPieces(_) = row::decode(row)? {
            let value = row.clone();
            self.load(table, &value, row)?;
            before_tuple = 0;
        }
        let tuple = row.get(before_tuple..).unwrap_or_default();
        let parts = TupleParts::of(self.trees.roots.index_count(table)? - 1, tuple)?;
        row.drain(..before_tuple + parts.row_at);
        Ok(true)
    }

    fn scan(
        &self,
        table: TableNo,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<()> {
        let secondary = self.trees.roots.index_count(table)? - 1;
        let (mut primary, mut tuple) = (Vec::new(), Vec::new());
        let mut on_entry = |key: &[u8], value: &[u8]| -> StoreResult<ControlFlow<()>> {
            let value = match index {
                0 => value,
                _ => {
                    self.find_primary(table, value, &mut primary)?;
                    &primary
                }
            };
            let stored = match row::decode(value)? {
                Stored::Inline(stored) => stored,
                Stored::InPieces(_) => {
                    self.load(table, value, &mut tuple)?;
                    &tuple
                }
            };
            Ok(on_row(key, TupleParts::of(secondary, stored)?.row(stored)))
        };
        self.trees.scan(index_of(table, index), range, direction, &mut on_entry)
    }

    fn savepoint(&self) -> Savepoint {
        self.trees.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        self.trees.rollback_to(savepoint)
    }

    fn commit(&mut self) -> StoreResult<Commit> {
        if self.trees.has_changes() {
            self.trees.commit()?;
            self.pending += 1;
            let is_crowded = self.trees.nodes.cache.get_mut().is_crowded();
            if self.pending >= self.settings.batch_transactions || is_crowded {
                self.end_batch()?;
            }
        }
        Ok(if self.pending > 0 { Commit::Pending } else { Commit::Durable })
    }

    fn rollback(&mut self) -> StoreResult<()> {
        self.trees.rollback()
    }

    fn sync(&mut self) -> StoreResult<()> {
        match self.pending {
            0 => Ok(()),
            _ if self.trees.has_changes() => Err(StoreError::InTransaction),
            _ => self.end_batch(),
        }
    }

    /// The chunks of the file. Checks the pages too, if no batch is open.
    fn chunks(&self) -> StoreResult<Vec<Pointer>> {
        if self.trees.nodes.cache.lock().dirty_count() == 0 {
            self.check_pages()?;
        }
        Ok(self.trees.nodes.file.files.chunks()?)
    }
}
