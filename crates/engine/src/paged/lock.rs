//! Locks on rows that change nothing, and what stands in their way.
//!
//! A lock that one transaction has alone is a stamp; one that several may have is noted in `share.rs`. Who only relies on a row's
//! keys passes by an uncommitted change that leaves them alone, down to the version that is committed.
//!
//! Invariants
//! 1. Versions are followed with no latch held; what was found counts only while the row has the stamp that it was found under.
//!
//! Does not know: conditions; who waits for whom.

use std::sync::Arc;

use super::PagedStore;
use crate::context::Context;
use crate::core::{Core, Hold, View, hash_key};
use crate::error::Result;
use crate::ids::{Owner, TxnId};
use crate::node::{EntryRef, Stamp};
use crate::overflow;
use crate::row::RowRef;
use crate::share::LockStrength;
use crate::transaction::{Change, Outcome};
use crate::versions::{FLAG_KEY, FLAG_MOVED, FLAG_VACATED, Retry, Step, Version};

/// The committed version beneath an uncommitted one that nobody who relies on the row has to wait for.
pub(super) struct Beneath {
    /// Of the uncommitted one.
    pub(super) above: Stamp,
    pub(super) txn: TxnId,
    pub(super) row: Vec<u8>,
}

/// What was found in the place of a row that is to be relied on.
enum Found {
    Shared,
    Missing,
    Wait(Owner),
    /// Somebody is changing it.
    Busy(Owner, Version),
    /// Its row is in an overflow chain.
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

    /// Notes a share; called under the leaf's latch.
    pub(super) fn note_share(&self, cx: &mut Context, key: &[u8], strength: LockStrength) {
        let share = (hash_key(self.tree.owner(), key), strength);
        if cx.core.shares.add(share, cx.owner) {
            cx.shared.push(share);
        }
    }

    /// How strong a lock a change of a row needs.
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

    /// Whether two versions of a row have the same values in all unique indexes.
    fn same_keys(&self, a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (self.row(a), self.row(b));
        let unique = self.indexes.iter().filter(|index| index.def.unique);
        unique.flat_map(|index| &index.def.columns).all(|c| a.get(*c).order(&b.get(*c)).is_eq())
    }

    /// Goes from `version`, which its writer has not committed, down to what is committed. `None` if who relies on the row has to
    /// wait for the writer.
    pub(super) fn beneath(&self, cx: &Context, key: &[u8], version: &Version) -> Result<Option<Beneath>> {
        let core = &*cx.core;
        let mut newest = version.clone();
        let mut retry = Retry::default();
        loop {
            let stamp = newest.stamp;
            let view = View { snapshot: core.purge.horizon(), me: TxnId::NONE, floor: core.status.floor() };
            match self.try_beneath(core, cx.id, key, newest.clone()) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => retry.again(core, &view, stamp, None)?,
                Err(error) => retry.again(core, &view, stamp, Some(error))?,
            }
            if !self.copy_newest(core, key, &mut newest)? {
                return Ok(None);
            }
        }
    }

    /// As `beneath`; the outer `None` if the version is out of date.
    fn try_beneath(
        &self,
        core: &Core,
        me: TxnId,
        key: &[u8],
        mut version: Version,
    ) -> Result<Option<Option<Beneath>>> {
        let above = version.stamp;
        let has_keys = self.indexes.iter().any(|index| index.def.unique);
        let (mut rows, mut row) = (Vec::new(), Vec::new());
        loop {
            let is_taken = version.is_deleted() || version.stamp.flags & FLAG_KEY != 0;
            if is_taken || version.stamp.flags & (FLAG_MOVED | FLAG_VACATED) != 0 {
                return Ok(Some(None));
            }
            if has_keys {
                rows.push(self.whole_row(core, &version.payload, &mut row)?.to_vec());
            }
            match version.step_back(core, self.tree.owner(), key)? {
                Step::Older => {}
                Step::Nothing => return Ok(Some(None)),
                Step::Stale => return Ok(None),
            }
            let txn = TxnId::new(version.stamp.txn);
            if version.stamp.txn == above.txn {
                continue;
            }
            if !matches!(core.hold(txn, me), Hold::Free(_)) || version.is_deleted() {
                return Ok(Some(None));
            }
            let row = self.whole_row(core, &version.payload, &mut row)?.to_vec();
            let is_same = rows.iter().all(|other| self.same_keys(other, &row));
            return Ok(Some(is_same.then_some(Beneath { above, txn, row })));
        }
    }

    /// `Transaction::share_row`.
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
            match looked.unwrap_or(Found::Missing) {
                Found::Wait(owner) => cx.wait_for(owner, self.tree.owner(), key)?,
                Found::Busy(owner, version) => match self.beneath(cx, key, &version)? {
                    Some(beneath) => known = Some(beneath),
                    None => cx.wait_for(owner, self.tree.owner(), key)?,
                },
                Found::Elsewhere(version) => {
                    let mut row = Vec::new();
                    // An error counts only if the row is still the one whose chain was read.
                    match self.whole_row(&core, &version.payload, &mut row) {
                        Ok(_) => known = Some(Beneath { above: version.stamp, txn: TxnId::NONE, row }),
                        Err(error) => self.unless_changed(&core, key, version.stamp, error)?,
                    }
                }
                found => {
                    // Others who wait for the same end may share too.
                    cx.pass_on();
                    return Ok(matches!(found, Found::Shared));
                }
            }
        }
    }

    fn unless_changed(
        &self,
        core: &Core,
        key: &[u8],
        stamp: Stamp,
        error: crate::error::Error,
    ) -> Result<()> {
        let mut newest = Version::default();
        let is_there = self.copy_newest(core, key, &mut newest)?;
        if is_there && newest.stamp == stamp { Err(error) } else { Ok(()) }
    }

    /// One look under the leaf's latch.
    fn look(
        &self,
        cx: &mut Context,
        key: &[u8],
        entry: EntryRef<'_>,
        known: &Option<Beneath>,
        is_it: &mut dyn FnMut(RowRef<'_>) -> bool,
    ) -> Found {
        let hold = cx.core.hold(TxnId::new(entry.stamp().txn), cx.id);
        let known = known.as_ref().filter(|known| known.above == entry.stamp());
        let copied = || {
            let mut version = Version::default();
            version.set(entry.stamp(), entry.payload());
            version
        };
        let is_stub = !entry.is_deleted() && overflow::is_stub(entry.payload());
        let row = match (hold, known) {
            (Hold::Busy(owner), _) if entry.is_deleted() => return Found::Wait(owner),
            (Hold::Busy(_), Some(known)) if known.txn != TxnId::NONE => &*known.row,
            (Hold::Busy(owner), _) => return Found::Busy(owner, copied()),
            _ if entry.is_deleted() => return Found::Missing,
            (_, Some(known)) if known.txn == TxnId::NONE => &*known.row,
            _ if is_stub => return Found::Elsewhere(copied()),
            _ => entry.payload(),
        };
        if !is_it(self.row(row)) {
            return Found::Missing;
        }
        self.note_share(cx, key, LockStrength::KeyShare);
        Found::Shared
    }
}
