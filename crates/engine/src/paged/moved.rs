//! Finds the new key of a row whose primary key another transaction has changed. A READ COMMITTED statement
//! that found the row at its old key needs this.
//!
//! A transaction that changes a row's primary key leaves a delete mark with FLAG_MOVED at the old key, and
//! writes an undo record for the mark. The transaction's next undo record about a row belongs to the row at
//! its new key. If another row is later stored at the old key, it has FLAG_VACATED, which says that it may be
//! a different row. This happens, for example, when two rows exchange their keys.
//!
//! Invariants
//! 1. A move is followed only if it was committed after the statement's snapshot. The snapshot keeps the undo
//!    that is needed.
//! 2. If the row at the old key was deleted and not moved, the statement uses the row that is now at this
//!    key.
//! 3. No latch is held.
//!
//! This module does not know conditions or the waits of transactions for each other.

use std::sync::Arc;

use varve_pager::Access;

use super::PagedStore;
use crate::context::Context;
use crate::core::{Core, Sight, View, WriteAccess};
use crate::error::Result;
use crate::ids::{RollPointer, TxnId};
use crate::node::Stamp;
use crate::row_access::Isolation;
use crate::undo::RecordRef;
use crate::undo::page::UndoPage;
use crate::versions::{FLAG_MOVED, FLAG_VACATED, Version};
use crate::visible_version::{missing_record, step_back_kept};

/// The version with which a row arrived at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    txn: u64,
    roll: u64,
}

impl Arrival {
    fn is(self, stamp: Stamp) -> bool {
        (stamp.txn, stamp.roll) == (self.txn, self.roll)
    }
}

/// Returns whether the row that a statement searches may have moved away from the key whose newest version
/// has this stamp.
pub(super) fn may_have_left(cx: &mut Context, hold: WriteAccess, stamp: Stamp) -> bool {
    let is_flagged = stamp.flags & (FLAG_MOVED | FLAG_VACATED) != 0;
    is_flagged
        && cx.isolation == Isolation::ReadCommitted
        && match hold {
            WriteAccess::Free(lsn) => lsn > cx.snapshot(),
            WriteAccess::Mine => stamp.flags & FLAG_VACATED != 0,
            WriteAccess::Busy(_) => false,
        }
}

/// Returns FLAG_VACATED if a new version above the one with `stamp` needs this flag, else 0. The flag is not
/// needed if every snapshot sees the version below.
pub(super) fn inherited(core: &Core, stamp: Stamp) -> u8 {
    let is_flagged = stamp.flags & (FLAG_MOVED | FLAG_VACATED) != 0;
    if is_flagged && TxnId::new(stamp.txn) >= core.status.floor() { FLAG_VACATED } else { 0 }
}

impl PagedStore {
    /// Finds the new key of the row that the statement searches at `key`. This is the row that the
    /// statement's snapshot sees there, or the row that arrived with `since`. `version` is the newest
    /// version, which is committed or the statement's own. `None` means that the row is still there, or
    /// deleted.
    pub(super) fn trace(
        &self,
        cx: &mut Context,
        key: &[u8],
        mut version: Version,
        since: Option<Arrival>,
    ) -> Result<Option<(Vec<u8>, Arrival)>> {
        let core = Arc::clone(&cx.core);
        let view = View { me: TxnId::NONE, ..cx.view()? };
        let mut oldest_mark = None;
        while !since.is_some_and(|arrival| arrival.is(version.stamp)) {
            // The transaction's own versions above a version that the snapshot does not see are all of this
            // statement.
            let is_own = version.stamp.txn == cx.id.get();
            // A status that was forgotten in the meantime is below the floor, so the transaction was visible.
            // Nothing here can be rolled back.
            if !is_own && core.sight(&view, TxnId::new(version.stamp.txn)) != Sight::Unseen {
                if version.is_deleted() {
                    return Ok(None);
                }
                break;
            }
            if version.is_deleted() {
                oldest_mark = Some(version.stamp);
            }
            if !step_back_kept(&mut version, &core, self.tree.owner(), key)? {
                return cx.view().map(|_| None);
            }
        }
        match oldest_mark {
            Some(mark) if mark.flags & FLAG_MOVED != 0 && mark.txn != cx.id.get() => {
                self.arrival(cx, &core, key, mark).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn arrival(&self, cx: &mut Context, core: &Core, key: &[u8], mark: Stamp) -> Result<(Vec<u8>, Arrival)> {
        let found = self.read_arrival(core, key, mark);
        if !matches!(found, Ok(Some(_))) {
            // If the rollback limit is exceeded, purge may have removed the undo.
            cx.view()?;
        }
        found?.ok_or_else(|| missing_record(mark))
    }

    /// Reads undo records, from the record of a mark up to the record of the row's arrival.
    fn read_arrival(&self, core: &Core, key: &[u8], mark: Stamp) -> Result<Option<(Vec<u8>, Arrival)>> {
        let (pointer, txn) = (RollPointer::from_raw(mark.roll), TxnId::new(mark.txn));
        let (mut at, mut slot) = (pointer.page(), pointer.slot());
        let mut is_behind_mark = false;
        loop {
            let page = core.pager.fix_s(at, Access::Random)?;
            let Some(undo) = UndoPage::new(&page) else { return Ok(None) };
            let Some(bytes) = undo.record(u32::from(slot)) else {
                let Some(next) = undo.next() else { return Ok(None) };
                (at, slot) = (next, 0);
                continue;
            };
            let record = RecordRef::decode(bytes).filter(|r| r.txn == txn && pointer.fits(txn));
            let Some(record) = record else { return Ok(None) };
            if !is_behind_mark {
                if !record.kind.is_row() || record.tree != self.tree.owner() || record.key != key {
                    return Ok(None);
                }
                is_behind_mark = true;
            } else if record.kind.is_row() {
                let roll = RollPointer::new(at.no(), slot, txn).raw();
                return Ok(Some((record.key.to_vec(), Arrival { txn: mark.txn, roll })));
            }
            slot += 1;
        }
    }
}
