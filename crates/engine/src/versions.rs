//! A version of a row, and the step from it to the previous version, along its roll pointer.
//!
//! Invariants
//! 1. No latch is held while an undo page is fixed. An undo page is released before the next one is fixed.
//! 2. An undo record is used only if it names the version's transaction, the tree and the key. Otherwise the
//!    copy of the row is out of date, and the row is read again. A transaction id is used only once, so an
//!    overwritten record is always recognized.
//! 3. An undo page that can't be read is an error, never the end of the versions.
//!
//! This module does not know trees or which version a snapshot sees (`visible_version.rs`).

use varve_pager::{Access, Pager};

use crate::error::Result;
use crate::ids::{RollPointer, TxnId};
use crate::node::{FLAG_DELETED, Stamp};
use crate::overflow;
use crate::undo::page::UndoPage;
use crate::undo::{Kind, RecordRef};

/// Flag of an entry that its newest transaction has only locked.
pub(crate) const FLAG_LOCK: u8 = 0x02;

/// Flag of an entry with a delete mark whose row moved to another key.
pub(crate) const FLAG_MOVED: u8 = 0x04;

/// Flag of an entry with an older version that has FLAG_MOVED, and whose move a snapshot may still need.
pub(crate) const FLAG_VACATED: u8 = 0x08;

/// Flag of an entry that its newest transaction has locked FOR UPDATE. Then a transaction that only relies on
/// the row's keys has to wait, too.
pub(crate) const FLAG_KEY: u8 = 0x10;

/// A version of a row, from a leaf entry or an undo record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) stamp: Stamp,
    pub(crate) payload: Vec<u8>,
    /// Whether the payload is an overflow pointer and purge has begun to free its chain. No snapshot sees
    /// this version, and its row cannot be read.
    pub(crate) is_cut: bool,
}

/// The result of a step along the roll pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The version was replaced by the one before.
    Older,
    /// There is no older version.
    Nothing,
    /// The pointer does not lead to the right record, so the version is out of date.
    Stale,
}

impl Version {
    pub(crate) const fn is_deleted(&self) -> bool {
        self.stamp.flags & FLAG_DELETED != 0
    }

    pub(crate) fn set(&mut self, stamp: Stamp, payload: &[u8]) {
        self.stamp = stamp;
        self.is_cut = false;
        self.payload.clear();
        self.payload.extend_from_slice(payload);
    }

    /// Replaces this version by the one before it. A stale pointer may lead to a page that is free and can't
    /// be read. So a caller that gets an error reads the row again before it reports the error.
    pub(crate) fn step_back(&mut self, pager: &Pager, tree: u32, key: &[u8]) -> Result<Step> {
        let pointer = RollPointer::from_raw(self.stamp.roll);
        let txn = TxnId::new(self.stamp.txn);
        if pointer.is_none() {
            return Ok(Step::Nothing);
        }
        let page = pager.fix_s(pointer.page(), Access::Random)?;
        let bytes = UndoPage::new(&page).and_then(|p| p.record(u32::from(pointer.slot())));
        match bytes.and_then(RecordRef::decode).filter(|r| answers(r, pointer, txn, tree, key)) {
            None => Ok(Step::Stale),
            Some(record) if record.kind == Kind::Insert => Ok(Step::Nothing),
            Some(record) => {
                self.take(&record);
                Ok(Step::Older)
            }
        }
    }

    fn take(&mut self, record: &RecordRef<'_>) {
        self.stamp = record.before.stamp;
        if record.kind != Kind::Lock {
            self.payload.clear();
            self.payload.extend_from_slice(record.before.payload);
            self.is_cut = overflow::is_pointer(&self.payload)
                && record.chain.is_none_or(|first| !overflow::begins_at(&self.payload, first));
        }
    }
}

fn answers(record: &RecordRef<'_>, pointer: RollPointer, txn: TxnId, tree: u32, key: &[u8]) -> bool {
    record.kind.is_row() && record.txn == txn && pointer.fits(txn) && record.tree == tree && record.key == key
}
