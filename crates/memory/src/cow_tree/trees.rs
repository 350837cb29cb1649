//! Changes of the trees of a store in transactions.
//!
//! Invariants
//! 1. A change that is refused is not in the undo list, and no reader sees it.
//! 2. A rollback needs no new room: the nodes are dirty, and the leaf of a removed entry still has room for
//!    it (`tree.rs`).
//! 3. A leaf with few entries is merged or freed at the end of the transaction that has taken entries out.
//!
//! This module does not know rows, or how a batch becomes durable.

use std::ops::{Bound, ControlFlow};

use super::merge::MergeBuffers;
use super::node::NewEntry;
use super::nodes::{NodeId, NodeStore, RowPatch, StoredRow, TreeNo};
use super::roots::Roots;
use super::scan::{OnEntry, TreeScan};
use super::tree::{LeafOfKey, Removed};
use super::undo::{Change, Kind, SparseLeaves, UndoList};
use crate::change_numbers::ChangeNumbers;
use crate::pointer::{Owner, Pointer};
use crate::store::{Direction, KeyRange, Savepoint};
use crate::store_error::{StoreError, StoreResult};

/// The trees of a store, as the open transaction sees them.
pub(crate) struct Trees<N> {
    pub(crate) nodes: N,
    pub(crate) roots: Roots,
    undo: UndoList,
    sparse: SparseLeaves,
    numbers: ChangeNumbers,
    /// The value before a change.
    before: Vec<u8>,
    /// A buffer for the bytes of a node.
    buf: Vec<u8>,
    merge_buffers: MergeBuffers,
    /// Whether the end of a batch has failed, or a merge of nodes after the end of a transaction. Then no
    /// further batch may become durable.
    is_broken: bool,
}

/// Returns the error that a tree lacks an entry that the open transaction has changed.
fn lacks_change() -> StoreError {
    StoreError::Damaged { what: "a tree, which lacks a change of a transaction", at: Pointer::NONE }
}

impl<N: NodeStore> Trees<N> {
    pub(crate) fn new(nodes: N, roots: Roots) -> Trees<N> {
        let (undo, sparse, numbers) = (UndoList::default(), SparseLeaves::default(), ChangeNumbers::new());
        let (before, buf, merge_buffers) = (Vec::new(), Vec::new(), MergeBuffers::default());
        Trees { nodes, roots, undo, sparse, numbers, before, buf, merge_buffers, is_broken: false }
    }

    /// Refuses to make the dirty directory durable, if a commit that was reported as failed has changed it.
    pub(super) fn check_whole(&self) -> StoreResult<()> {
        if self.is_broken { Err(StoreError::Stopped) } else { Ok(()) }
    }

    /// Runs the end of a batch. If it fails, no further batch may become durable.
    pub(super) fn or_broken(
        &mut self,
        run: impl FnOnce(&mut Trees<N>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let done = run(self);
        self.is_broken |= done.is_err();
        done
    }

    /// Copies the value of a key. Returns `false` if the tree does not have the key.
    pub(crate) fn find(&self, tree: TreeNo, key: &[u8], value: &mut Vec<u8>) -> StoreResult<bool> {
        self.roots.tree(tree)?.find(&self.nodes, key, value)
    }

    /// Calls `on_entry` with the entries of a range.
    pub(crate) fn scan(
        &self,
        tree: TreeNo,
        range: &KeyRange<'_>,
        direction: Direction,
        on_entry: &mut OnEntry<'_>,
    ) -> StoreResult<()> {
        let tree = self.roots.tree(tree)?;
        let (nodes, key, value) = (&self.nodes, Vec::new(), Vec::new());
        TreeScan { nodes, range, direction, key, value }.run(&tree, on_entry)
    }

    /// Adds an entry whose key the tree does not have.
    ///
    /// Errors: the region is full.
    pub(crate) fn insert(&mut self, tree: TreeNo, key: &[u8], value: &[u8]) -> StoreResult<()> {
        self.do_insert(tree, key, value)?;
        self.note(Change { tree, kind: Kind::Insert, key, before: &[] });
        Ok(())
    }

    fn do_insert(&mut self, no: TreeNo, key: &[u8], value: &[u8]) -> StoreResult<()> {
        let mut tree = self.roots.tree(no)?;
        let done = tree.insert(&mut self.nodes, NewEntry { key, value }, &mut self.buf);
        self.roots.set_root(no, tree.root);
        done
    }

    /// Removes an entry. Returns `false` if the tree does not have the key.
    ///
    /// Errors: the region is full.
    pub(crate) fn remove(&mut self, tree: TreeNo, key: &[u8]) -> StoreResult<bool> {
        let mut before = std::mem::take(&mut self.before);
        let was_there = self.do_remove(tree, key, &mut before);
        if was_there == Ok(true) {
            self.note(Change { tree, kind: Kind::Remove, key, before: &before });
        }
        self.before = before;
        was_there
    }

    fn do_remove(&mut self, no: TreeNo, key: &[u8], before: &mut Vec<u8>) -> StoreResult<bool> {
        let mut tree = self.roots.tree(no)?;
        let done = tree.remove(&mut self.nodes, key, before, &mut self.buf);
        self.roots.set_root(no, tree.root);
        let removed = done?;
        if removed == Removed::LeavesSparse {
            self.sparse.push(no, key);
        }
        Ok(removed != Removed::Nothing)
    }

    /// Gives a key another value. Returns `false` if the tree does not have the key.
    ///
    /// Errors: the region is full.
    pub(crate) fn set(&mut self, tree: TreeNo, key: &[u8], value: &[u8]) -> StoreResult<bool> {
        let mut before = std::mem::take(&mut self.before);
        let was_there = self.do_set(tree, key, value, &mut before);
        if was_there == Ok(true) {
            self.note(Change { tree, kind: Kind::Set, key, before: &before });
        }
        self.before = before;
        was_there
    }

    fn do_set(&mut self, no: TreeNo, key: &[u8], value: &[u8], before: &mut Vec<u8>) -> StoreResult<bool> {
        let mut tree = self.roots.tree(no)?;
        let done = tree.set(&mut self.nodes, NewEntry { key, value }, before, &mut self.buf);
        self.roots.set_root(no, tree.root);
        done
    }

    /// Changes bytes of the row that a row value leads to, in place, because only this batch has this row.
    /// `before` are the bytes before the change.
    pub(crate) fn change_row(
        &mut self,
        tree: TreeNo,
        row: StoredRow<'_>,
        patch: RowPatch<'_>,
        before: &[u8],
    ) -> StoreResult<()> {
        let RowPatch { at, bytes } = patch;
        self.nodes.change_row(row.value, at, bytes)?;
        self.note(Change { tree, kind: Kind::Row { at }, key: row.key, before });
        Ok(())
    }

    /// Changes bytes of the value of a key that the tree has. `before` are the bytes before the change.
    ///
    /// Errors: the region is full.
    pub(crate) fn patch(
        &mut self,
        tree: TreeNo,
        key: &[u8],
        at: usize,
        bytes: &[u8],
        before: &[u8],
    ) -> StoreResult<()> {
        self.do_patch(tree, key, at, bytes)?;
        self.note(Change { tree, kind: Kind::Patch { at }, key, before });
        Ok(())
    }

    fn do_patch(&mut self, no: TreeNo, key: &[u8], at: usize, bytes: &[u8]) -> StoreResult<()> {
        let mut tree = self.roots.tree(no)?;
        let done = tree.patch(&mut self.nodes, key, at, bytes, &mut self.buf);
        self.roots.set_root(no, tree.root);
        done
    }

    fn note(&mut self, change: Change<'_>) {
        self.undo.push(change);
        self.numbers.push();
    }

    /// Returns whether the open transaction has changed something.
    pub(crate) fn has_changes(&self) -> bool {
        self.undo.len() > 0
    }

    /// Returns a savepoint at the present state of the transaction.
    pub(crate) fn savepoint(&self) -> Savepoint {
        self.numbers.savepoint()
    }

    /// Takes back what was changed since a savepoint.
    ///
    /// Errors: the savepoint is of another transaction, or a rollback went past it.
    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) -> StoreResult<()> {
        self.numbers.check(savepoint)?;
        self.undo_behind(savepoint.changes)
    }

    fn undo_behind(&mut self, kept: usize) -> StoreResult<()> {
        let mut list = std::mem::take(&mut self.undo);
        let undone = (kept..list.len())
            .rev()
            .try_for_each(|number| list.get(number).map_or(Ok(()), |change| self.undo_one(&change)));
        list.truncate(kept);
        self.undo = list;
        self.numbers.truncate(kept);
        undone
    }

    fn undo_one(&mut self, change: &Change<'_>) -> StoreResult<()> {
        let mut present = std::mem::take(&mut self.before);
        let undone = self.undo_with(change, &mut present);
        self.before = present;
        undone
    }

    /// Undoes a change. `present` gets the value that the key has had until now.
    fn undo_with(&mut self, change: &Change<'_>, present: &mut Vec<u8>) -> StoreResult<()> {
        let Change { tree, kind, key, before } = *change;
        let was_there = match kind {
            Kind::Insert => self.do_remove(tree, key, present)?,
            Kind::Set => self.do_set(tree, key, before, present)?,
            Kind::Remove => return self.do_insert(tree, key, before),
            Kind::Patch { at } => return self.do_patch(tree, key, at, before),
            Kind::Row { at } => {
                let is_there = self.find(tree, key, present)?;
                is_there.then_some(()).ok_or_else(lacks_change)?;
                return self.nodes.change_row(present, at, before);
            }
        };
        was_there.then_some(()).ok_or_else(lacks_change)?;
        let owner = self.owner(tree)?;
        self.nodes.forget_value(tree, owner, present)
    }

    fn owner(&self, tree: TreeNo) -> StoreResult<Owner> {
        self.roots.tree(tree).map(|tree| tree.owner)
    }

    /// Ends the transaction. Its changes stay in the dirty directory.
    pub(crate) fn commit(&mut self) -> StoreResult<()> {
        let list = std::mem::take(&mut self.undo);
        for change in (0..list.len()).filter_map(|number| list.get(number)) {
            if matches!(change.kind, Kind::Remove | Kind::Set) {
                let owner = self.owner(change.tree)?;
                self.nodes.forget_value(change.tree, owner, change.before)?;
            }
        }
        self.undo = list;
        self.end()
    }

    /// Ends the transaction, and takes its changes back.
    pub(crate) fn rollback(&mut self) -> StoreResult<()> {
        self.undo_behind(0)?;
        self.end()
    }

    fn end(&mut self) -> StoreResult<()> {
        self.undo.truncate(0);
        self.numbers.begin();
        let mut key = std::mem::take(&mut self.before);
        while let Some(no) = self.sparse.pop(&mut key) {
            let mut tree = self.roots.tree(no)?;
            let done = tree.merge_sparse(&mut self.nodes, &key, &mut self.buf, &mut self.merge_buffers);
            self.roots.set_root(no, tree.root);
            self.is_broken |= done.is_err();
            done?;
        }
        self.before = key;
        Ok(())
    }

    /// Copies the nodes on the path to the leaf of a key, if `is_moved` accepts one of them. Then sets `key`
    /// to the first key of the next leaf. Returns `false` if there is no next leaf. No transaction is open.
    ///
    /// Errors: the region is full. Then a part of the path is copied.
    pub(crate) fn move_path(
        &mut self,
        no: TreeNo,
        key: &mut Vec<u8>,
        is_moved: impl Fn(NodeId) -> bool,
    ) -> StoreResult<bool> {
        let mut tree = self.roots.tree(no)?;
        let Some(found) = tree.path(&self.nodes, key)? else { return Ok(false) };
        if found.path.nodes().chain([found.leaf.id]).any(is_moved) {
            let done = tree.dirty_path(&mut self.nodes, key, &mut self.buf).map(drop);
            self.roots.set_root(no, tree.root);
            done?;
        }
        let Some(LeafOfKey { leaf, .. }) = tree.path(&self.nodes, key)? else { return Ok(false) };
        if let Some(last) = leaf.count.checked_sub(1) {
            leaf.key(&self.nodes, &leaf.entry(&self.nodes, last)?, key)?;
        }
        let (last, mut has_next) = (std::mem::take(key), false);
        let range = KeyRange { from: Bound::Excluded(&last), to: Bound::Unbounded };
        self.scan(no, &range, Direction::Forward, &mut |next, _| {
            (*key, has_next) = (next.to_vec(), true);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(has_next)
    }

    /// Calls `on_node` with each node of a tree. `roots` is the directory with the root of the tree.
    pub(crate) fn each_node(
        &self,
        roots: &Roots,
        tree: TreeNo,
        on_node: &mut dyn FnMut(NodeId) -> StoreResult<()>,
    ) -> StoreResult<()> {
        roots.tree(tree)?.each_node(&self.nodes, on_node)
    }

    /// Calls `on_entry` with each entry of a tree. `roots` is the directory with the root of the tree.
    pub(crate) fn each_entry(
        &self,
        roots: &Roots,
        tree: TreeNo,
        on_entry: &mut OnEntry<'_>,
    ) -> StoreResult<()> {
        let (nodes, key, value) = (&self.nodes, Vec::new(), Vec::new());
        let direction = Direction::Forward;
        TreeScan { nodes, range: &KeyRange::ALL, direction, key, value }.run(&roots.tree(tree)?, on_entry)
    }
}
