//! Deletes adjacent rows together: the rows of one leaf in one mini-transaction, with one descent and one
//! latch of the undo page.
//!
//! Invariants
//! 1. A row is deleted here only if `modify` would delete it without waiting. No other transaction holds the
//!    row, and the version in the leaf is the visible one. Any other row ends the run, and the caller passes
//!    this row to `modify`.
//! 2. The rows of a run are on one leaf, and their undo records on one undo page. The undo page is latched
//!    before the first change. A run ends at the end of the undo page or of the leaf.
//! 3. A run that fails undoes its changes.
//!
//! This module does not know conditions (the `decide` closure) or which rows come next.

use std::sync::Arc;

use varve_device::reached;
use varve_pager::Mtr;

use super::PagedStore;
use super::moved::{inherited, may_have_left};
use super::write::is_too_new;
use crate::context::Context;
use crate::core::{Core, WriteAccess, hash_key};
use crate::error::Result;
use crate::ids::TxnId;
use crate::node::FLAG_DELETED;
use crate::overflow;
use crate::share::LockStrength;
use crate::table_engine::{Decide, Run};
use crate::tree::Position;
use crate::undo::{Before, Kind, Prepared, RecordRef};

/// The result for one row.
enum Step {
    Deleted,
    Skipped,
    /// The row needs `modify`.
    End,
}

impl PagedStore {
    /// Deletes the first of the rows with these keys.
    pub(super) fn delete_rows(
        &self,
        cx: &mut Context,
        keys: &mut dyn Iterator<Item = &[u8]>,
        decide: &mut Decide<'_>,
    ) -> Result<Run> {
        // Under SERIALIZABLE each row is recorded separately.
        if cx.serial.is_some() || (!self.indexes.is_empty() && !self.gathers(cx)) {
            return Ok(Run::default());
        }
        let Some(first) = keys.next() else { return Ok(Run::default()) };
        self.begin_write(cx)?;
        cx.snapshot();
        let core = Arc::clone(&cx.core);
        let mark = cx.record_count;
        let mut mtr = core.pager.begin()?;
        let outcome = self.delete_in_leaf(cx, &core, &mut mtr, first, keys, decide);
        if outcome.as_ref().is_ok_and(|run| run.deleted > 1) {
            reached("delete: rows of one leaf together");
        }
        // The commit is necessary even after an error, because a rollback uses the logged undo records.
        mtr.commit();
        let outcome = outcome.and_then(|run| self.bound_marks(cx).map(|()| run));
        self.take_back(cx, mark, outcome)
    }

    fn delete_in_leaf<'p>(
        &self,
        cx: &mut Context,
        core: &'p Core,
        mtr: &mut Mtr<'p>,
        first: &[u8],
        keys: &mut dyn Iterator<Item = &[u8]>,
        decide: &mut Decide<'_>,
    ) -> Result<Run> {
        let (mut key, mut prepared, mut run) = (first, None, Run::default());
        let mut at = self.tree.locate_x(&core.pager, mtr, key)?;
        loop {
            match self.delete_at(cx, mtr, &at, key, &mut prepared, decide)? {
                Step::Deleted => run.deleted += 1,
                Step::Skipped => {}
                Step::End => return Ok(run),
            }
            run.passed += 1;
            let Some(next) = keys.next() else { return Ok(run) };
            key = next;
            at = self.tree.find_beside(mtr, &at, key);
        }
    }

    fn delete_at(
        &self,
        cx: &mut Context,
        mtr: &mut Mtr<'_>,
        at: &Position,
        key: &[u8],
        prepared: &mut Option<Prepared>,
        decide: &mut Decide<'_>,
    ) -> Result<Step> {
        if !at.found || !self.is_deletable(cx, mtr, at, key)? {
            return Ok(Step::End);
        }
        let (entry, mut spare) = (self.tree.entry(mtr, at), Vec::new());
        let (stamp, payload) = (entry.stamp(), entry.payload(&mut spare));
        match decide(self.row(payload)) {
            Some(true) => {}
            Some(false) => return Ok(Step::Skipped),
            None => return Ok(Step::End),
        }
        let before = Before { stamp, payload };
        let (kind, txn, tree) = (Kind::Delete, cx.id, self.tree.owner());
        cx.encode_record(&RecordRef { kind, txn, tree, chain: None, key, before });
        *prepared = match *prepared {
            Some(prepared) => cx.prepare_more(prepared),
            None => cx.prepare_record(mtr)?,
        };
        let Some(room) = *prepared else { return Ok(Step::End) };
        self.gather_of(cx, key, self.tree.entry(mtr, at).payload(&mut spare))?;
        let next = cx.next_stamp(FLAG_DELETED | inherited(&cx.core, stamp));
        self.tree.stamp(mtr, at, next);
        cx.append_record(mtr, room);
        Ok(Step::Deleted)
    }

    /// Returns whether this transaction can delete the row now, in the version that is in the leaf.
    fn is_deletable(&self, cx: &mut Context, mtr: &Mtr<'_>, at: &Position, key: &[u8]) -> Result<bool> {
        let (entry, mut spare) = (self.tree.entry(mtr, at), Vec::new());
        let (stamp, payload) = (entry.stamp(), entry.payload(&mut spare));
        let hold = cx.core.hold(TxnId::new(stamp.txn), cx.id);
        // The floor ignores snapshots that purge has given up, so the snapshot is checked after the floor was
        // read.
        let snapshot = cx.snapshot();
        cx.core.purge.check_snapshot(snapshot)?;
        let is_free = match hold {
            WriteAccess::Mine => true,
            WriteAccess::Free(lsn) => !is_too_new(cx, lsn),
            WriteAccess::Busy(_) => false,
        };
        if !is_free || may_have_left(cx, hold, stamp) || entry.is_deleted() || overflow::is_pointer(payload) {
            return Ok(false);
        }
        let hash = || hash_key(self.tree.owner(), key);
        Ok(cx.core.shares.in_the_way(LockStrength::Update, cx.owner, hash).is_none())
    }

    /// Collects the entries of a row whose undo record is written next.
    fn gather_of(&self, cx: &mut Context, key: &[u8], row: &[u8]) -> Result<()> {
        let mut entry = std::mem::take(&mut cx.buffers.entry);
        let record_count = cx.record_count + 1;
        let outcome = self.indexes.iter().enumerate().try_for_each(|(n, index)| {
            if index.entry_key(&self.def, self.row(row), key, &mut entry)?.is_some() {
                let is_noted = self.gather(cx, n, &entry, record_count);
                assert!(is_noted, "a run of deletes gathers marks");
            }
            Ok(())
        });
        cx.buffers.entry = entry;
        if let (Err(_), Some(marks)) = (&outcome, &mut cx.marks) {
            marks.undone_to(record_count - 1);
        }
        outcome
    }
}
