//! Row locks that change no data, and the changes and locks that conflict with them.
//!
//! An exclusive row lock is a stamp in the row: the id of the transaction. A shared lock is recorded in
//! `share.rs`. FOR KEY SHARE locks only the row's key. It ignores an uncommitted change that keeps the key,
//! and uses the committed version.
//!
//! Invariants
//! 1. Older versions of a row are read without a latch. The result is valid only while the row has the same
//!    stamp (the id of the transaction that changed it last).
//!
//! This module does not know conditions or the waits of transactions for each other.

use std::sync::Arc;

use super::{PagedIndex, PagedStore};
use crate::context::Context;
use crate::core::{Core, Sight, View, WriteAccess, hash_key};
use crate::error::{Error, Result};
use crate::ids::{Owner, TxnId};
use crate::node::{EntryRef, Stamp};
use crate::overflow;
use crate::row::RowRef;
use crate::row_access::{Change, Outcome};
use crate::share::LockStrength;
use crate::versions::{FLAG_KEY, FLAG_MOVED, FLAG_VACATED, Step, Version};
use crate::visible_version::Retry;

/// The committed version below an uncommitted version, or below one that is newer than the snapshot. A
/// transaction that relies on the row need not wait for the writer of that version.
pub(super) struct Beneath {
    /// The stamp of the newest version.
    pub(super) above: Stamp,
    pub(super) txn: TxnId,
    pub(super) row: Vec<u8>,
}

/// The result of a search below the newest version of a row.
enum Under {
    Row(Beneath),
    /// The writer has made a change for which a transaction that relies on the row must wait.
    Held,
    /// Another transaction has made such a change after the snapshot, and has committed.
    Changed,
    /// The version is out of date.
    Stale,
}

/// The result of one attempt to share a row.
enum ShareAttempt {
    Shared,
    Missing,
    Wait(Owner),
    /// Another transaction is changing the row.
    Busy(Owner, Version),
    /// The row is in an overflow chain.
    Elsewhere(Version),
}

impl PagedStore {
    pub(crate) fn lock_row(
        &self,
        cx: &mut Context,
        key: &[u8],
        strength: LockStrength,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<bool>,
    ) -> Result<Outcome> {
        let lock =
            &mut |row: RowRef<'_>| Ok(if decide(row)? { Change::Lock(strength) } else { Change::Skip });
        self.modify_or_lock(cx, key, Some(strength), lock)
    }

    /// Records a share. The caller holds the leaf's latch.
    pub(super) fn note_share(&self, cx: &mut Context, key: &[u8], strength: LockStrength) {
        let share = (hash_key(self.tree.owner(), key), strength);
        if cx.core.shares.add(share, cx.owner) {
            cx.shared.push(share);
        }
    }

    /// Returns the strength of the lock that a change of a row needs.
    pub(super) fn strength_of(
        &self,
        old_row: &[u8],
        change: &Change,
        moves: bool,
        is_plain: bool,
    ) -> LockStrength {
        match change {
            Change::Skip => LockStrength::KeyShare,
            Change::Lock(strength) => *strength,
            Change::Delete => LockStrength::Update,
            Change::Replace(_) if moves => LockStrength::Update,
            Change::Replace(image) if !is_plain && !self.same_keys(old_row, image.as_bytes()) => {
                LockStrength::Update
            }
            Change::Replace(_) => LockStrength::NoKeyUpdate,
        }
    }

    /// Returns whether two versions of a row have the same values in all unique indexes.
    fn same_keys(&self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (self.row(a), self.row(b));
        let unique = self.indexes.iter().filter(|index| may_be_referred_to(index));
        unique.flat_map(|index| &index.def.columns).all(|c| a.get(*c).order(&b.get(*c)).is_eq())
    }

    /// Goes from `version`, which its writer has not committed, down to a committed version. With
    /// `in_snapshot` it goes down to the version that the snapshot sees. Returns `None` if a statement that
    /// relies on the row has to wait for the writer. The error is 40001 if the version of the snapshot can no
    /// longer be relied on.
    pub(super) fn beneath(
        &self,
        cx: &mut Context,
        key: &[u8],
        version: &Version,
        in_snapshot: bool,
    ) -> Result<Option<Beneath>> {
        let seen_by = if in_snapshot && cx.isolation.keeps_snapshot() { Some(cx.view()?) } else { None };
        let core = &*cx.core;
        let mut newest = version.clone();
        let mut retry = Retry::default();
        loop {
            let stamp = newest.stamp;
            let view = View { snapshot: core.purge.horizon(), me: TxnId::NONE, floor: core.status.floor() };
            match self.try_beneath(cx, seen_by.as_ref(), key, newest.clone()) {
                Ok(Under::Row(found)) => return Ok(Some(found)),
                Ok(Under::Held) => return Ok(None),
                Ok(Under::Changed) => return Err(Error::SerializationFailure),
                Ok(Under::Stale) => retry.again(core, &view, stamp, None)?,
                Err(error) => retry.again(core, &view, stamp, Some(error))?,
            }
            if !self.copy_newest(core, key, &mut newest)? {
                return Ok(None);
            }
        }
    }

    fn try_beneath(
        &self,
        cx: &Context,
        seen_by: Option<&View>,
        key: &[u8],
        mut version: Version,
    ) -> Result<Under> {
        let (core, above) = (&*cx.core, version.stamp);
        let compares = self.indexes.iter().any(may_be_referred_to);
        let is_free = |txn| matches!(core.hold(TxnId::new(txn), cx.id), WriteAccess::Free(_));
        let mut is_committed = is_free(above.txn);
        let (mut row, mut older, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        if compares && !version.is_deleted() {
            row.extend_from_slice(self.whole_row(core, &version.payload, &mut spare)?);
        }
        loop {
            cx.check_cancel()?;
            let is_over = is_committed && seen_by.is_some();
            let in_the_way = if is_over { Under::Changed } else { Under::Held };
            let flags = version.stamp.flags;
            let is_taken = !is_committed && flags & FLAG_KEY != 0;
            if version.is_deleted() || is_taken || flags & (FLAG_MOVED | FLAG_VACATED) != 0 {
                return Ok(in_the_way);
            }
            let writer = version.stamp.txn;
            match version.step_back(&core.pager, self.tree.owner(), key)? {
                Step::Older => {}
                Step::Nothing => return Ok(in_the_way),
                Step::Stale => return Ok(Under::Stale),
            }
            let is_next = version.stamp.txn != writer;
            if is_next && (version.is_deleted() || !is_free(version.stamp.txn)) {
                return Ok(in_the_way);
            }
            if version.is_deleted() {
                continue;
            }
            if compares || is_next {
                older.clear();
                older.extend_from_slice(self.whole_row(core, &version.payload, &mut spare)?);
            }
            if compares && !self.same_keys(&row, &older) {
                return Ok(in_the_way);
            }
            std::mem::swap(&mut row, &mut older);
            let txn = TxnId::new(version.stamp.txn);
            if is_next && seen_by.is_none_or(|view| core.sight(view, txn) == Sight::Seen) {
                return Ok(Under::Row(Beneath { above, txn, row }));
            }
            is_committed |= is_next;
        }
    }

    /// Does the work of `Transaction::share_row`.
    pub(crate) fn rely_on(
        &self,
        cx: &mut Context,
        key: &[u8],
        is_it: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> Result<bool> {
        let core = Arc::clone(&cx.core);
        let mut known: Option<Beneath> = None;
        loop {
            let looked = self.tree.get(&core.pager, key, |entry| self.look(cx, key, entry, &known, is_it))?;
            match looked.unwrap_or(ShareAttempt::Missing) {
                ShareAttempt::Wait(owner) => cx.wait_to_rely(owner, self.tree.owner(), key)?,
                ShareAttempt::Busy(owner, version) => match self.beneath(cx, key, &version, false)? {
                    Some(beneath) => known = Some(beneath),
                    None => cx.wait_to_rely(owner, self.tree.owner(), key)?,
                },
                ShareAttempt::Elsewhere(version) => {
                    let mut row = Vec::new();
                    // An error is returned only if the row still has the version whose chain was read.
                    match self.whole_row(&core, &version.payload, &mut row) {
                        Ok(_) => known = Some(Beneath { above: version.stamp, txn: TxnId::NONE, row }),
                        Err(error) => self.unless_changed(&core, key, version.stamp, error)?,
                    }
                }
                found => {
                    // Other transactions that wait for the same transaction may share the row, too.
                    cx.pass_on();
                    return Ok(matches!(found, ShareAttempt::Shared));
                }
            }
        }
    }

    fn unless_changed(&self, core: &Core, key: &[u8], stamp: Stamp, error: Error) -> Result<()> {
        let mut newest = Version::default();
        let is_there = self.copy_newest(core, key, &mut newest)?;
        if is_there && newest.stamp == stamp { Err(error) } else { Ok(()) }
    }

    /// Makes one attempt under the leaf's latch.
    fn look(
        &self,
        cx: &mut Context,
        key: &[u8],
        entry: EntryRef<'_>,
        known: &Option<Beneath>,
        is_it: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> ShareAttempt {
        let hold = cx.core.hold(TxnId::new(entry.stamp().txn), cx.id);
        let known = known.as_ref().filter(|known| known.above == entry.stamp());
        let mut spare = Vec::new();
        let payload = entry.payload(&mut spare);
        let copied = || {
            let mut version = Version::default();
            version.set(entry.stamp(), payload);
            version
        };
        let is_pointer = !entry.is_deleted() && overflow::is_pointer(payload);
        let row = match (hold, known) {
            (WriteAccess::Busy(owner), _) if entry.is_deleted() => return ShareAttempt::Wait(owner),
            (WriteAccess::Busy(_), Some(known)) if known.txn != TxnId::NONE => &*known.row,
            (WriteAccess::Busy(owner), _) => return ShareAttempt::Busy(owner, copied()),
            _ if entry.is_deleted() => return ShareAttempt::Missing,
            (_, Some(known)) if known.txn == TxnId::NONE => &*known.row,
            _ if is_pointer => return ShareAttempt::Elsewhere(copied()),
            _ => payload,
        };
        if !is_it(self.row(row)) {
            return ShareAttempt::Missing;
        }
        self.note_share(cx, key, LockStrength::KeyShare);
        ShareAttempt::Shared
    }
}

/// Returns whether foreign keys may refer to an index. A transaction that relies on a row relies on its
/// values in these indexes.
fn may_be_referred_to(index: &PagedIndex) -> bool {
    index.def.unique && index.def.is_plain()
}
