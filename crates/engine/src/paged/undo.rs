//! Rollback: undoes one undo record after the other, newest first.
//!
//! Invariants
//! 1. A step of the rollback restores the row and removes the undo record in one mini-transaction. Before
//!    that, it changes the index entries. If a crash comes between the two, the next start changes the
//!    entries once more.
//! 2. A rollback step and a purge of the same row exclude each other. So an entry is removed exactly once.
//! 3. If the tree of a record no longer exists, the record is only removed, because the segment of the tree
//!    is dropped as a whole.

use std::sync::Arc;

use varve_device::{planted, reached};
use varve_pager::{PageId, SpaceId};

use super::{PagedIndex, PagedStore};
use crate::context::Context;
use crate::core::{Core, Sight, View, hash_key};
use crate::error::{Error, Result};
use crate::ids::{RollPointer, TxnId};
use crate::node::FLAG_DELETED;
use crate::overflow;
use crate::tree::{Put, Tree, TreeKind};
use crate::undo::{Kind, Record, RecordRef, Segment};
use crate::versions::Version;
use crate::visible_version::step_back_kept;

/// Finds the open table whose clustered tree a segment owns.
pub(crate) type Resolve<'r, 't> = dyn Fn(u32) -> Option<&'t PagedStore> + 'r;

/// Undoes the newest records until `mark` records are left.
pub(crate) fn roll_back<'t>(cx: &mut Context, mark: u64, resolve: &Resolve<'_, 't>) -> Result<()> {
    while cx.record_count > mark {
        if !undo_newest(cx, resolve)? {
            break;
        }
    }
    Ok(())
}

/// Undoes the newest record. Returns false if there is none.
pub(crate) fn undo_newest<'t>(cx: &mut Context, resolve: &Resolve<'_, 't>) -> Result<bool> {
    let Some(pointer) = cx.read_top()? else { return Ok(false) };
    let core = Arc::clone(&cx.core);
    let bytes = std::mem::take(&mut cx.record);
    let Some(segment) = &mut cx.segment else { return Ok(false) };
    let outcome = undo_record(&core, segment, &bytes, pointer, resolve);
    cx.record = bytes;
    outcome?;
    cx.record_count = cx.record_count.saturating_sub(1);
    if let Some(marks) = &mut cx.marks {
        marks.undone_to(cx.record_count);
    }
    Ok(true)
}

fn undo_record<'t>(
    core: &Core,
    segment: &mut Segment,
    bytes: &Record,
    pointer: RollPointer,
    resolve: &Resolve<'_, 't>,
) -> Result<()> {
    let record = bytes.decode().ok_or_else(|| Error::corrupt(format!("no undo record at {pointer:?}")))?;
    match record.kind {
        Kind::NewSegment => {
            reached("rollback: new table or index");
            core.forget_tree(record.tree);
            if !planted("rollback: a new table's pages stay") {
                core.pager.drop_segment(SpaceId::DATA, record.tree)?;
            }
            pop(core, segment)
        }
        Kind::Chain => {
            reached("rollback: overflow chain");
            if !planted("rollback: overflow chains stay") {
                free_chain(core, segment, &record)?;
            }
            pop(core, segment)
        }
        Kind::DropSegment => pop(core, segment),
        _ => match resolve(record.tree) {
            Some(store) => store.undo_row(core, segment, &record),
            None => pop(core, segment),
        },
    }
}

fn pop(core: &Core, segment: &mut Segment) -> Result<()> {
    let mut mtr = core.pager.begin()?;
    let prepared = segment.prepare_pop(&mut mtr)?;
    segment.pop(&mut mtr, prepared);
    mtr.commit();
    Ok(())
}

/// Frees a chain from its front. The record always names the first page that is left.
fn free_chain(core: &Core, segment: &mut Segment, record: &RecordRef<'_>) -> Result<()> {
    let Some(first) = record.chain else { return Ok(()) };
    let mut first = PageId::new(core.pager.space_of_owner(record.tree), first);
    let tree = Tree::open(first, record.tree, TreeKind::Clustered);
    loop {
        let mut mtr = core.pager.begin()?;
        let next: Option<PageId> = overflow::free_first(&mut mtr, &tree, first)?;
        let prepared = segment.prepare_pop(&mut mtr)?;
        segment.patch_chain(&mut mtr, prepared, next);
        mtr.commit();
        match next {
            Some(next) => first = next,
            None => return Ok(()),
        }
    }
}

impl PagedStore {
    fn undo_row(&self, core: &Core, segment: &mut Segment, record: &RecordRef<'_>) -> Result<()> {
        reached("rollback: row");
        let _stripe = core.rows.lock(hash_key(self.tree.owner(), record.key));
        if !matches!(record.kind, Kind::Lock | Kind::UpdatePlain) {
            self.undo_entries(core, record)?;
        }
        self.put_back(core, segment, record)
    }

    fn undo_entries(&self, core: &Core, record: &RecordRef<'_>) -> Result<()> {
        if self.indexes.is_empty() {
            return Ok(());
        }
        let mut newest = Version::default();
        if !self.copy_newest(core, record.key, &mut newest)? {
            return Err(Error::corrupt(format!("a row that transaction {} changed is gone", record.txn)));
        }
        let mut spare = (Vec::new(), Vec::new());
        let mut before = Version::default();
        before.set(record.before.stamp, record.before.payload);
        let new_row = match newest.is_deleted() {
            true => None,
            false => Some(self.whole_row(core, &newest.payload, &mut spare.0)?),
        };
        let has_before = record.kind != Kind::Insert && !before.is_deleted();
        let old_row = match has_before {
            true => Some(self.whole_row(core, &before.payload, &mut spare.1)?),
            false => None,
        };
        self.indexes
            .iter()
            .try_for_each(|index| self.undo_entry(core, index, record, &before, new_row, old_row))
    }

    fn undo_entry(
        &self,
        core: &Core,
        index: &PagedIndex,
        record: &RecordRef<'_>,
        before: &Version,
        new_row: Option<&[u8]>,
        old_row: Option<&[u8]>,
    ) -> Result<()> {
        let entry_of = |row: &[u8]| -> Result<Option<Vec<u8>>> {
            let mut entry = Vec::new();
            let shape = index.entry_key(&self.def, self.row(row), record.key, &mut entry)?;
            Ok(shape.map(|_| entry))
        };
        let entry_of = |row: Option<&[u8]>| row.map_or(Ok(None), entry_of);
        let (new, old) = (entry_of(new_row)?, entry_of(old_row)?);
        if let Some(old) = &old {
            index.set_entry(core, old, record.txn, true)?;
        }
        let Some(new) = new.filter(|new| old.as_ref() != Some(new)) else { return Ok(()) };
        let is_wanted =
            record.kind != Kind::Insert && self.older_has(core, index, record.key, before, &new)?;
        match is_wanted {
            true => index.mark_entry(core, &new, record.txn),
            false => index.remove_entry(core, &new, |_| Ok(true)),
        }
    }

    /// Returns whether the version `from` or an older one that a snapshot may still see has this index entry.
    fn older_has(
        &self,
        core: &Core,
        index: &PagedIndex,
        key: &[u8],
        from: &Version,
        entry: &[u8],
    ) -> Result<bool> {
        let view = View { snapshot: core.purge.horizon(), me: TxnId::NONE, floor: core.status.floor() };
        let mut version = from.clone();
        loop {
            if self.version_has(core, index, key, &version, entry)? {
                return Ok(true);
            }
            if core.sight(&view, TxnId::new(version.stamp.txn)) == Sight::Seen {
                return Ok(false);
            }
            if !step_back_kept(&mut version, core, self.tree.owner(), key)? {
                return Ok(false);
            }
        }
    }

    /// Returns whether a version is not deleted and has this index entry.
    pub(super) fn version_has(
        &self,
        core: &Core,
        index: &PagedIndex,
        key: &[u8],
        version: &Version,
        entry: &[u8],
    ) -> Result<bool> {
        if version.is_deleted() || version.is_cut {
            return Ok(false);
        }
        let (mut spare, mut other) = (Vec::new(), Vec::new());
        let row = self.whole_row(core, &version.payload, &mut spare)?;
        index.entry_key(&self.def, self.row(row), key, &mut other)?;
        Ok(other == entry)
    }

    /// Returns whether the version before the change is a delete that is purged, or whose purge will not find
    /// the row.
    fn is_purged_delete(&self, core: &Core, record: &RecordRef<'_>) -> bool {
        let stamp = record.before.stamp;
        let view = View { snapshot: core.purge.horizon(), me: TxnId::NONE, floor: core.status.floor() };
        let is_delete = record.kind == Kind::Update && stamp.flags & FLAG_DELETED != 0;
        is_delete && core.sight(&view, TxnId::new(stamp.txn)) == Sight::Seen
    }

    /// Restores the clustered entry, and removes the record.
    fn put_back(&self, core: &Core, segment: &mut Segment, record: &RecordRef<'_>) -> Result<()> {
        let (key, mut spare) = (record.key, Vec::new());
        loop {
            let mut mtr = core.pager.begin()?;
            let mut at = self.tree.locate_x(&core.pager, &mut mtr, key)?;
            let is_there = at.found && self.tree.entry(&mtr, &at).txn() == record.txn.get();
            if !is_there {
                return Err(Error::corrupt(format!(
                    "a row that transaction {} changed is not its",
                    record.txn
                )));
            }
            let before = record.before;
            // A deleted entry lost its payload if a row was inserted in its place and this insert was undone.
            let is_replaced = matches!(record.kind, Kind::Update | Kind::UpdatePlain)
                || record.kind == Kind::Delete
                    && self.tree.entry(&mtr, &at).payload(&mut spare) != before.payload;
            if is_replaced && !self.tree.has_room(&mtr, &at, key, before.payload.len()) {
                drop(mtr);
                self.tree.make_room(&core.pager, key, before.payload.len())?;
                continue;
            }
            let prepared = segment.prepare_pop(&mut mtr)?;
            let is_gone = record.kind == Kind::Insert || self.is_purged_delete(core, record);
            match record.kind {
                _ if is_gone => self.tree.remove(&mut mtr, &mut at),
                _ if is_replaced => {
                    let put = self.tree.put(&mut mtr, &mut at, key, before.stamp, before.payload);
                    assert_eq!(put, Put::Done, "a leaf with room refused a row");
                }
                _ => self.tree.stamp(&mut mtr, &at, before.stamp),
            }
            let apart = planted("rollback: row and record in two steps");
            if !apart {
                segment.pop(&mut mtr, prepared);
            }
            let is_underfull = is_gone && self.tree.is_underfull(&mtr, &at);
            mtr.commit();
            if apart {
                core.pager.flush_log(core.pager.log().end())?;
                pop(core, segment)?;
            }
            if is_underfull {
                self.tree.tidy(&core.pager, key)?;
            }
            return Ok(());
        }
    }
}
