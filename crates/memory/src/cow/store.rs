//! The store of the engine: rows in the leaves of the primary index or in pieces, and the end of a batch.
//!
//! The format of a row value is in `row.rs`.
//!
//! Invariants
//! 1. No page that the current directory leads to is changed.
//! 2. The pieces of a row are entries of a tree. So a rollback restores them in the same way as entries of an
//!    index.
//!
//! This module does not know transactions, or the format of nodes and directories.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::cache::PageCache;
use super::nodes::FileNodes;
use super::pages::PAGE_BYTES;
use super::recovery::{self, Opened};
use super::row::{self, INLINE_AT, Pieces, Stored, TupleParts, piece_bytes};
use super::shrink;
use crate::cow_tree::{
    CowMedium, CowStore, NodeId, NodeStore, Roots, RowPatch, StoredRow, TreeNo, Trees, lacks_entry,
};
use crate::files::{CallCounts, FileCosts, Files};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::{Direction, KeyRange, TableNo};
use crate::store_error::{StoreError, StoreResult};

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CowSettings {
    /// What calls on files cost.
    pub files: FileCosts,
    /// A commit ends the batch when the batch has this many transactions.
    pub batch_transactions: usize,
    /// The size of the page cache, in bytes. The cache grows beyond this size while the open transaction has
    /// changed more nodes than fit in it.
    pub cache_bytes: usize,
}

impl Default for CowSettings {
    fn default() -> CowSettings {
        CowSettings { files: FileCosts::default(), batch_transactions: 64, cache_bytes: 16 << 20 }
    }
}

/// The tables of one partition: copy-on-write trees in a file.
pub type Cow = CowStore<FileNodes>;

impl Cow {
    /// Opens the store whose file has the root `name`, or makes an empty store if there is none. The chunks
    /// of the file and of the page cache belong to `owner`. Transactions whose commit was not durable are
    /// lost. To open a store, one bit for each page of its file is read.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: CowSettings,
    ) -> StoreResult<Cow> {
        let files = Files::open(Arc::clone(&allocator), name, owner, settings.files)?;
        let Opened { file, directory, map } = recovery::open(files)?;
        let cache = Mutex::new(PageCache::new(owner, settings.cache_bytes / PAGE_BYTES));
        let roots = directory.current()?;
        let space = Space::new(allocator);
        let (tuple, next_leaf) = (Vec::new(), None);
        let nodes = FileNodes { space, file, map, cache, directory, tuple, next_leaf };
        CowStore::new(Trees::new(nodes, roots), owner, settings.batch_transactions)
    }

    /// Returns the number of calls on files since the store was opened.
    pub fn file_calls(&self) -> CallCounts {
        self.trees.nodes.file.files.counts()
    }
}

/// Copies the tuple of a row value into a buffer.
fn load(trees: &Trees<FileNodes>, table: TableNo, value: &[u8], tuple: &mut Vec<u8>) -> StoreResult<()> {
    tuple.clear();
    match row::decode(value)? {
        Stored::Inline(inline) => tuple.extend_from_slice(inline),
        Stored::InPieces(pieces) => {
            let mut piece = Vec::new();
            for place in 0..pieces.count() {
                let is_there = trees.find(TreeNo::Pieces { table }, &pieces.key(place), &mut piece)?;
                is_there.then_some(()).ok_or_else(lacks_entry)?;
                tuple.extend_from_slice(&piece);
            }
        }
    }
    Ok(())
}

/// Returns the number of the secondary indexes of a table.
fn secondary_count(trees: &Trees<FileNodes>, table: TableNo) -> StoreResult<usize> {
    Ok(trees.roots.index_count(table)? - 1)
}

/// Adds the pieces of a tuple, and makes the row value that leads to them.
fn add_pieces(
    trees: &mut Trees<FileNodes>,
    table: TableNo,
    tuple: &[u8],
    value: &mut Vec<u8>,
) -> StoreResult<()> {
    let (tree, mut number) = (TreeNo::Pieces { table }, 0);
    trees.scan(tree, &KeyRange::ALL, Direction::Backward, &mut |last, _| {
        number = row::number_of(last) + 1;
        Ok(ControlFlow::Break(()))
    })?;
    let pieces = Pieces { number, tuple_bytes: tuple.len() };
    for (place, piece) in (0..).zip(tuple.chunks(piece_bytes())) {
        trees.insert(tree, &pieces.key(place), piece)?;
    }
    row::encode_pieces(pieces, value);
    Ok(())
}

/// Changes bytes of a tuple. `old` is the whole tuple before the change.
fn patch_tuple(
    trees: &mut Trees<FileNodes>,
    row: StoredRow<'_>,
    patch: RowPatch<'_>,
    old: &[u8],
) -> StoreResult<()> {
    let StoredRow { table, key, value } = row;
    let RowPatch { mut at, bytes } = patch;
    let before = |from: usize, len: usize| old.get(from..from + len).unwrap_or_default();
    let Stored::InPieces(pieces) = row::decode(value)? else {
        let (primary, before) = (TreeNo::Index { table, index: 0 }, before(at, bytes.len()));
        return trees.patch(primary, key, INLINE_AT + at, bytes, before);
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let within = at % piece_bytes();
        let (now, later) = rest.split_at(rest.len().min(piece_bytes() - within));
        let piece = pieces.key((at / piece_bytes()) as u32);
        trees.patch(TreeNo::Pieces { table }, &piece, within, now, before(at, now.len()))?;
        at += now.len();
        rest = later;
    }
    Ok(())
}

/// Returns the nodes that these trees of the dirty directory have.
fn nodes_of(trees: &Trees<FileNodes>, numbers: impl Iterator<Item = TreeNo>) -> StoreResult<Vec<NodeId>> {
    let mut found = Vec::new();
    for tree in numbers {
        trees.each_node(&trees.roots, tree, &mut |node| {
            found.push(node);
            Ok(())
        })?;
    }
    Ok(found)
}

/// Checks that the page map agrees with the trees: the pages that are allocated for nodes are exactly those
/// of the trees' nodes.
fn check_pages(trees: &Trees<FileNodes>) -> StoreResult<()> {
    let mut nodes = nodes_of(trees, trees.roots.trees())?;
    nodes.sort_unstable();
    match nodes.iter().map(|node| node.0).eq(trees.nodes.map.nodes()) {
        true => Ok(()),
        false => Err(StoreError::Damaged { what: "the bitmap of pages in use", at: Pointer::NONE }),
    }
}

impl CowMedium for FileNodes {
    fn space(&self) -> &Space {
        &self.space
    }

    fn end_batch(&mut self, roots: &mut Roots) -> StoreResult<()> {
        self.write_dirty()?;
        let FileNodes { space, file, map, cache, directory, .. } = self;
        map.stage(file, directory.dirty())?;
        directory.stage(file, roots)?;
        file.fsync()?;
        directory.flip(file)?;
        map.end_batch();
        cache.get_mut().end_batch(space)
    }

    fn shrink(trees: &mut Trees<FileNodes>) -> StoreResult<()> {
        shrink::shrink(trees)
    }

    /// Returns whether the batch has many dirty pages. Such a batch should end, because dirty pages keep
    /// their frames until then.
    fn is_crowded(&mut self) -> bool {
        self.cache.get_mut().is_crowded()
    }

    fn is_taken(&self, owner: Owner) -> StoreResult<bool> {
        Ok(self.space.allocator().used_bytes(owner)? > 0)
    }

    /// Does nothing: the file has a line for each table that a store can have.
    fn reserve_lines(&mut self, _tables: usize) -> StoreResult<()> {
        Ok(())
    }

    /// Ends the batch. After its flip the pages of the table are free.
    fn drop_table(trees: &mut Trees<FileNodes>, table: TableNo) -> StoreResult<()> {
        let owner = trees.roots.owner_of(table)?;
        for node in nodes_of(trees, trees.roots.trees_of(table))? {
            trees.nodes.retire(node, owner)?;
        }
        trees.roots.remove(table);
        trees.nodes.end_batch(&mut trees.roots)
    }

    fn new_row(
        trees: &mut Trees<FileNodes>,
        table: TableNo,
        keys: &[&[u8]],
        row: &[u8],
        value: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let Some((primary, secondary)) = keys.split_first() else { return Ok(()) };
        let mut tuple = std::mem::take(&mut trees.nodes.tuple);
        row::encode_tuple(secondary, row, &mut tuple);
        let done = match row::is_inline(primary.len(), &tuple) {
            true => {
                row::encode_inline(&tuple, value);
                Ok(())
            }
            false => add_pieces(trees, table, &tuple, value),
        };
        trees.nodes.tuple = tuple;
        done
    }

    /// Does nothing, because no tree has the row value, and the rollback of the change removes the pieces.
    fn give_up_row(_trees: &mut Trees<FileNodes>, _table: TableNo, _value: &[u8]) -> StoreResult<()> {
        Ok(())
    }

    fn take_out_row(trees: &mut Trees<FileNodes>, row: StoredRow<'_>) -> StoreResult<()> {
        let Stored::InPieces(pieces) = row::decode(row.value)? else { return Ok(()) };
        for place in 0..pieces.count() {
            let was_there = trees.remove(TreeNo::Pieces { table: row.table }, &pieces.key(place))?;
            was_there.then_some(()).ok_or_else(lacks_entry)?;
        }
        Ok(())
    }

    fn patch_row(trees: &mut Trees<FileNodes>, row: StoredRow<'_>, patch: RowPatch<'_>) -> StoreResult<()> {
        let RowPatch { at, bytes } = patch;
        let mut old = std::mem::take(&mut trees.nodes.tuple);
        load(trees, row.table, row.value, &mut old)?;
        let parts = TupleParts::of(secondary_count(trees, row.table)?, &old)?;
        let (len_bytes, row_bytes) = (bytes.len(), parts.row(&old).len());
        if at.checked_add(len_bytes).is_none_or(|end| end > row_bytes) {
            return Err(StoreError::PatchRange { at, len_bytes, row_bytes });
        }
        let done = patch_tuple(trees, row, RowPatch { at: parts.row_at + at, bytes }, &old);
        trees.nodes.tuple = old;
        done
    }

    fn secondary_keys(trees: &Trees<FileNodes>, row: StoredRow<'_>, keys: &mut [Vec<u8>]) -> StoreResult<()> {
        let mut loaded = Vec::new();
        let tuple = match row::decode(row.value)? {
            Stored::Inline(tuple) => tuple,
            Stored::InPieces(_) => {
                load(trees, row.table, row.value, &mut loaded)?;
                &loaded
            }
        };
        let parts = TupleParts::of(keys.len(), tuple)?;
        for (index, key) in (1..).zip(keys) {
            key.clear();
            key.extend_from_slice(parts.key(tuple, index));
        }
        Ok(())
    }

    fn load_row(trees: &Trees<FileNodes>, table: TableNo, row: &mut Vec<u8>) -> StoreResult<()> {
        let mut before_tuple = INLINE_AT;
        if let Stored::InPieces(_) = row::decode(row)? {
            let value = row.clone();
            load(trees, table, &value, row)?;
            before_tuple = 0;
        }
        let tuple = row.get(before_tuple..).unwrap_or_default();
        let parts = TupleParts::of(secondary_count(trees, table)?, tuple)?;
        row.drain(..before_tuple + parts.row_at);
        Ok(())
    }

    fn row_of<'b>(
        trees: &Trees<FileNodes>,
        table: TableNo,
        value: &'b [u8],
        buf: &'b mut Vec<u8>,
    ) -> StoreResult<&'b [u8]> {
        let tuple = match row::decode(value)? {
            Stored::Inline(tuple) => tuple,
            Stored::InPieces(_) => {
                load(trees, table, value, buf)?;
                buf
            }
        };
        Ok(TupleParts::of(secondary_count(trees, table)?, tuple)?.row(tuple))
    }

    /// Returns the chunks of the file. Checks the pages too, if no batch is open.
    fn chunks(trees: &Trees<FileNodes>) -> StoreResult<Vec<Pointer>> {
        if trees.nodes.cache.lock().dirty_count() == 0 {
            check_pages(trees)?;
        }
        Ok(trees.nodes.file.files.chunks()?)
    }
}
