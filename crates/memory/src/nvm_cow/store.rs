//! The store of the engine: rows as tuples in chunks of their own, and the end of a batch.
//!
//! A row value is the pointer to a tuple.
//!
//! Invariants
//! 1. A tuple and the node with its pointer are written back and durable at the end of the batch.
//! 2. A change of a row makes a new tuple. The old one is freed when the transaction and the directories do not
//!    need it (`NodeStore::forget_value`).
//!
//! This module does not know transactions, or the format of nodes and directories.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::directory::Directory;
use super::nodes::{NvmNodes, tuple_of};
use super::recovery;
use super::space::BatchChunks;
use crate::cow_tree::{CowMedium, CowStore, NodeId, Roots, RowPatch, StoredRow, TreeNo, Trees};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::state::Allocator;
use crate::store::TableNo;
use crate::store_error::{StoreError, StoreResult};
use crate::tuple;

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmCowSettings {
    /// A commit ends the batch when the batch has this many transactions.
    pub batch_transactions: usize,
    /// The number of bytes of a node, from 512 to 16384. The setting is used only when a store is created,
    /// because a store keeps its size of nodes.
    pub node_bytes: usize,
}

impl Default for NvmCowSettings {
    fn default() -> NvmCowSettings {
        NvmCowSettings { batch_transactions: 64, node_bytes: 4096 }
    }
}

/// The tables of one partition: copy-on-write trees in persistent memory.
pub type NvmCow = CowStore<NvmNodes>;

impl NvmCow {
    /// Opens the store with this name, or makes an empty store if there is none. The chunks of its directory
    /// and its list belong to `owner`. Transactions whose commit was not durable are lost. The time depends
    /// on the length of the last batch.
    pub fn open(
        allocator: Arc<Allocator>,
        name: &str,
        owner: Owner,
        settings: NvmCowSettings,
    ) -> StoreResult<NvmCow> {
        let space = Space::new(allocator);
        let directory = Directory::open(&space, name, owner, settings.node_bytes)?;
        let chunks = BatchChunks::new(recovery::recover(&space, &directory, owner)?);
        let roots = directory.current()?;
        let nodes = NvmNodes { space, chunks, directory, head: Vec::new(), tuple: Vec::new() };
        let mut trees = Trees::new(nodes, roots);
        end_drops(&mut trees)?;
        CowStore::new(trees, owner, settings.batch_transactions)
    }
}

/// Frees all chunks of dropped tables, and then the numbers of these tables. The list of the last batch has
/// none of these chunks.
fn end_drops(trees: &mut Trees<NvmNodes>) -> StoreResult<()> {
    let dropped = trees.roots.dropped();
    for table in &dropped {
        trees.nodes.space.allocator().free_owner(table.owner)?;
        trees.roots.remove(table.number);
    }
    if dropped.is_empty() { Ok(()) } else { trees.nodes.end_batch(&mut trees.roots) }
}

/// Changes the entry of a row in the primary index, so that it leads to another tuple.
fn exchange_tuple(trees: &mut Trees<NvmNodes>, stored: StoredRow<'_>, tuple: Pointer) -> StoreResult<()> {
    let StoredRow { table, key, .. } = stored;
    let value = tuple.to_u64().to_le_bytes();
    let set = trees.set(TreeNo::Index { table, index: 0 }, key, &value);
    set.map(drop).or_else(|error| NvmNodes::give_up_row(trees, table, &value).and(Err(error)))
}

impl CowMedium for NvmNodes {
    fn space(&self) -> &Space {
        &self.space
    }

    fn end_batch(&mut self, roots: &mut Roots) -> StoreResult<()> {
        self.chunks.list_chunks();
        self.write_back()?;
        let NvmNodes { space, chunks, directory, .. } = self;
        chunks.stage(space, directory.batch() + 1)?;
        directory.stage(space, roots)?;
        space.fence();
        chunks.activate(space)?;
        directory.flip(space)?;
        chunks.end(space)
    }

    /// Does nothing: the chunks of nodes and rows were freed with the batch.
    fn shrink(_trees: &mut Trees<Self>) -> StoreResult<()> {
        Ok(())
    }

    fn is_crowded(&mut self) -> bool {
        false
    }

    fn is_taken(&self, owner: Owner) -> StoreResult<bool> {
        Ok(self.space.allocator().used_bytes(owner)? > 0)
    }

    fn reserve_lines(&mut self, tables: usize) -> StoreResult<()> {
        self.directory.reserve(&self.space, tables)
    }

    fn drop_table(trees: &mut Trees<NvmNodes>, table: TableNo) -> StoreResult<()> {
        // The list of this batch must not name chunks that are freed with the table.
        trees.nodes.end_batch(&mut trees.roots)?;
        trees.roots.mark_dropped(table)?;
        trees.nodes.end_batch(&mut trees.roots)?;
        end_drops(trees)
    }

    fn new_row(
        trees: &mut Trees<NvmNodes>,
        table: TableNo,
        keys: &[&[u8]],
        row: &[u8],
        value: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let owner = trees.roots.owner_of(table)?;
        let NvmNodes { space, chunks, head, .. } = &mut trees.nodes;
        tuple::encode_head(keys, row.len(), head);
        let tuple = chunks.new_tuple(space, owner, head, row)?;
        value.clear();
        value.extend_from_slice(&tuple.to_u64().to_le_bytes());
        Ok(())
    }

    fn give_up_row(trees: &mut Trees<NvmNodes>, table: TableNo, value: &[u8]) -> StoreResult<()> {
        let owner = trees.roots.owner_of(table)?;
        let NvmNodes { space, chunks, .. } = &mut trees.nodes;
        chunks.retire(space, tuple_of(value)?, owner)
    }

    /// Does nothing: the tuple stays until the end of the transaction.
    fn take_out_row(_trees: &mut Trees<NvmNodes>, _row: StoredRow<'_>) -> StoreResult<()> {
        Ok(())
    }

    /// Changes bytes of a row. If the batch has made the tuple, it is changed in place, because no durable
    /// root leads to it.
    fn patch_row(trees: &mut Trees<NvmNodes>, stored: StoredRow<'_>, patch: RowPatch<'_>) -> StoreResult<()> {
        let RowPatch { at, bytes } = patch;
        let (old, owner) = (tuple_of(stored.value)?, trees.roots.owner_of(stored.table)?);
        let head = trees.nodes.head(old)?;
        let (len_bytes, row_bytes) = (bytes.len(), head.row_bytes);
        let is_within = at.checked_add(len_bytes).is_some_and(|end| end <= row_bytes);
        let from = head.head_bytes.saturating_add(at);
        if !is_within {
            return Err(StoreError::PatchRange { at, len_bytes, row_bytes });
        }
        let is_new = trees.nodes.chunks.is_new(old);
        let range = if is_new { from..from + len_bytes } else { 0..head.tuple_bytes() };
        let mut tuple = std::mem::take(&mut trees.nodes.tuple);
        let done = trees.nodes.read_tuple(old, range, &mut tuple).and_then(|()| match is_new {
            true => {
                let primary = TreeNo::Index { table: stored.table, index: 0 };
                trees.change_row(primary, stored, RowPatch { at: from, bytes }, &tuple)
            }
            false => {
                tuple.iter_mut().skip(from).zip(bytes).for_each(|(place, byte)| *place = *byte);
                let NvmNodes { space, chunks, .. } = &mut trees.nodes;
                let new = chunks.new_tuple(space, owner, &tuple, &[])?;
                exchange_tuple(trees, stored, new)
            }
        });
        trees.nodes.tuple = tuple;
        done
    }

    fn secondary_keys(trees: &Trees<NvmNodes>, row: StoredRow<'_>, keys: &mut [Vec<u8>]) -> StoreResult<()> {
        let tuple = tuple_of(row.value)?;
        let head = trees.nodes.head(tuple)?;
        (1..).zip(keys).try_for_each(|(index, key)| trees.nodes.read_tuple(tuple, head.key_range(index), key))
    }

    fn load_row(trees: &Trees<NvmNodes>, _table: TableNo, row: &mut Vec<u8>) -> StoreResult<()> {
        let tuple = tuple_of(row)?;
        trees.nodes.read_row(tuple, row)
    }

    fn row_of<'b>(
        trees: &Trees<NvmNodes>,
        _table: TableNo,
        value: &'b [u8],
        buf: &'b mut Vec<u8>,
    ) -> StoreResult<&'b [u8]> {
        trees.nodes.read_row(tuple_of(value)?, buf)?;
        Ok(buf)
    }

    fn chunks(trees: &Trees<NvmNodes>) -> StoreResult<Vec<Pointer>> {
        let NvmNodes { directory, chunks: batch, .. } = &trees.nodes;
        let mut chunks = directory.chunks().to_vec();
        chunks.extend_from_slice(batch.list_blocks());
        let roots = directory.current()?;
        for tree in roots.trees() {
            trees.each_node(&roots, tree, &mut |node: NodeId| {
                chunks.push(node.pointer());
                Ok(())
            })?;
        }
        for tree in roots.trees().filter(|tree| matches!(tree, TreeNo::Index { index: 0, .. })) {
            trees.each_entry(&roots, tree, &mut |_, value| {
                chunks.push(tuple_of(value)?);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(chunks)
    }
}
