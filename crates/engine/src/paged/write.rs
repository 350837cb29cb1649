//! Changes rows: insert, replace, delete, lock.
//!
//! Invariants
//! 1. The row's change and its undo record are one mini-transaction. Index entries are changed after it.
//! 2. A call that fails undoes its changes.
//! 3. If another transaction has locked a row, the caller waits without a latch and then reads the row again.
//!
//! The closure `decide` has conditions and expressions. Uniqueness of other keys than the primary key is in
//! `index.rs`.

use std::sync::Arc;

use varve_device::reached;
use varve_pager::{Lsn, Mtr};

use super::lock::Beneath;
use super::moved::{Arrival, inherited, may_have_left};
use super::{PagedStore, undo};
use crate::context::Context;
use crate::core::{Core, Sight, WriteAccess, hash_key};
use crate::error::{Error, Result};
use crate::ids::{Owner, TxnId};
use crate::node::{EntryRef, FLAG_DELETED, Stamp};
use crate::overflow;
use crate::row::{RowImage, RowRef, encode_into, is_same};
use crate::row_access::{Change, Isolation, Outcome};
use crate::share::LockStrength;
use crate::tree::{Position, Put};
use crate::types::Datum;
use crate::undo::{Before, Kind, RecordRef};
use crate::versions::{FLAG_KEY, FLAG_LOCK, FLAG_MOVED, Version};
use crate::visible_version::step_back_kept;

/// The result of one attempt under the leaf's latch.
enum Attempt<T> {
    Done(T),
    /// Another transaction holds the row.
    Wait(Owner),
    /// The leaf has no space for the payload.
    NeedRoom(usize),
    /// The undo page is full.
    NeedUndo,
    /// The newest change may be only a lock, or another row may be stored at this key. So the caller must
    /// read the versions below.
    LookBelow(Version),
    /// Another transaction is changing a row that is only to be relied on, or has changed it since the
    /// snapshot. The caller has to look at older versions.
    LookBeneath(Option<Owner>, Version),
    /// The new row belongs in an overflow chain. The caller locks the old row, and writes the chain first.
    NeedChain(RowImage),
}

/// The decision for one version of a row.
struct Decided {
    stamp: Stamp,
    change: Change,
}

/// The state of `modify` between attempts.
#[derive(Default)]
struct Progress {
    /// The strength of the lock, if the row is only locked.
    lock: Option<LockStrength>,
    beneath: Option<Beneath>,
    decided: Option<Decided>,
    /// Stamp of a version whose older versions were read. It does not prevent the change under this snapshot.
    harmless: Option<Stamp>,
    /// The row's new payload in the leaf, if it is an overflow pointer.
    pointer: Option<Vec<u8>>,
    /// The version with which the row arrived at this key, if the statement has followed the row to this key.
    since: Option<Arrival>,
    /// The key to which the row moved after this statement's snapshot.
    moved_to: Option<(Vec<u8>, Arrival)>,
}

/// The result of `modify` in the clustered tree.
enum ClusteredEnd {
    /// The change is made there. The indexes must still be changed.
    Applied(Applied),
    /// Nothing is changed, and no work is left.
    Unchanged(Outcome),
}

/// A change that was made in the clustered tree.
pub(super) struct Applied {
    pub(super) change: Change,
    /// Whether the new row has another primary key. Then the old row is deleted.
    pub(super) moves: bool,
    /// Whether the index columns of the new row are those of the old one.
    pub(super) is_plain: bool,
    /// The whole old row; empty if no index needs it.
    pub(super) old_row: Vec<u8>,
}

impl PagedStore {
    pub(crate) fn insert_row(&self, cx: &mut Context, row: &[Datum<'_>]) -> Result<()> {
        let mut payload = std::mem::take(&mut cx.buffers.row);
        let encoded = encode_into(&self.schema, row, &mut payload);
        let outcome = encoded.map_err(Error::from).and_then(|()| {
            let mut key = std::mem::take(&mut cx.buffers.key);
            let outcome =
                self.keyed(cx, row, &mut key).and_then(|()| self.insert_encoded(cx, &key, &payload));
            cx.buffers.key = key;
            outcome
        });
        cx.buffers.row = payload;
        outcome
    }

    fn keyed(&self, cx: &Context, row: &[Datum<'_>], key: &mut Vec<u8>) -> Result<()> {
        if self.primary_key(row, key)? { Ok(()) } else { self.new_row_id(&cx.core, key) }
    }

    /// Inserts an encoded row and its index entries. After an error nothing is inserted.
    fn insert_encoded(&self, cx: &mut Context, key: &[u8], payload: &[u8]) -> Result<()> {
        self.begin_write(cx)?;
        let mark = cx.record_count;
        let outcome = self.insert_parts(cx, key, payload);
        self.take_back(cx, mark, outcome)?;
        cx.has_taken();
        Ok(())
    }

    /// Undoes the changes since `mark` if `outcome` is an error. Returns `outcome`.
    pub(super) fn take_back<T>(&self, cx: &mut Context, mark: u64, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => Ok(value),
            Err(error) => {
                let was_changed = cx.record_count > mark;
                let undone = undo::roll_back(cx, mark, &|owner| (owner == self.tree.owner()).then_some(self));
                cx.note_undone(undone);
                if was_changed {
                    cx.release();
                } else {
                    cx.pass_on();
                }
                Err(error)
            }
        }
    }

    pub(super) fn insert_parts(&self, cx: &mut Context, key: &[u8], payload: &[u8]) -> Result<()> {
        match overflow::must_spill(cx.pager(), key.len(), payload.len()) {
            true => {
                let pointer = self.spill(cx, payload)?;
                self.insert_clustered(cx, key, &pointer, payload)?;
            }
            false => self.insert_clustered(cx, key, payload, payload)?,
        }
        self.add_entries(cx, key, payload)?;
        self.note_row(cx, key, payload);
        Ok(())
    }

    /// Records a row that is inserted or deleted, under SERIALIZABLE. It is recorded for the tree and for
    /// every index, because readers record the ranges that they read there.
    fn note_row(&self, cx: &Context, key: &[u8], row: &[u8]) {
        if cx.serial.is_none() {
            return;
        }
        cx.note_write(self.tree.owner(), key);
        let mut entry = Vec::new();
        for index in &self.indexes {
            // The entry was just made.
            if matches!(index.entry_key(&self.def, self.row(row), key, &mut entry), Ok(Some(_))) {
                cx.note_write(index.tree.owner(), &entry);
            }
        }
    }

    /// Records the row that a change has removed, and the new row with the same key.
    fn note_change(&self, cx: &Context, key: &[u8], applied: &Applied) {
        match &applied.change {
            Change::Skip | Change::Lock(_) => {}
            Change::Delete => self.note_row(cx, key, &applied.old_row),
            Change::Replace(_) if applied.moves => self.note_row(cx, key, &applied.old_row),
            Change::Replace(image) => {
                self.note_row(cx, key, &applied.old_row);
                self.note_row(cx, key, image.as_bytes());
            }
        }
    }

    fn insert_clustered(&self, cx: &mut Context, key: &[u8], payload: &[u8], row: &[u8]) -> Result<()> {
        loop {
            let core = Arc::clone(&cx.core);
            let mut mtr = core.pager.begin()?;
            let attempt = self.try_insert(cx, &core, &mut mtr, key, payload, row)?;
            if matches!(attempt, Attempt::Done(())) {
                mtr.commit();
                return Ok(());
            }
            drop(mtr);
            self.get_past(cx, key, attempt)?;
        }
    }

    fn try_insert<'p>(
        &self,
        cx: &mut Context,
        core: &'p Core,
        mtr: &mut Mtr<'p>,
        key: &[u8],
        payload: &[u8],
        row: &[u8],
    ) -> Result<Attempt<()>> {
        let mut at = self.tree.locate_x(&core.pager, mtr, key)?;
        let mut before = None;
        if at.found {
            let entry = self.tree.entry(mtr, &at);
            let hold = core.hold(TxnId::new(entry.txn()), cx.id);
            if let WriteAccess::Busy(owner) = hold {
                return Ok(Attempt::Wait(owner));
            }
            if !entry.is_deleted() {
                if cx.serial.is_some() {
                    let (mut spare, mut whole) = (Vec::new(), Vec::new());
                    let there = self.row(self.whole_row(core, entry.payload(&mut spare), &mut whole)?);
                    if self.is_unforeseen(cx, hold, key, there) {
                        return Err(Error::ReadWriteConflict);
                    }
                }
                let name = self.def.primary_key.as_ref().map_or("", |k| &k.name);
                return Err(self.duplicate(name, self.def.key_columns(), self.row(row)));
            }
            before = Some(entry.stamp());
        }
        let kind = if before.is_some() { Kind::Update } else { Kind::Insert };
        let flags = before.map_or(0, |stamp| inherited(core, stamp));
        let before = Before { stamp: before.unwrap_or_default(), payload: &[] };
        let id = cx.id;
        cx.encode_record(&RecordRef { kind, txn: id, tree: self.tree.owner(), chain: None, key, before });
        self.put_logged(cx, mtr, &mut at, key, payload, flags)
    }

    /// Writes the new version of the encoded record's row and appends the record, if there is enough space
    /// for both.
    fn put_logged(
        &self,
        cx: &mut Context,
        mtr: &mut Mtr<'_>,
        at: &mut Position,
        key: &[u8],
        payload: &[u8],
        flags: u8,
    ) -> Result<Attempt<()>> {
        if !self.tree.has_room(mtr, at, key, payload.len()) {
            return Ok(Attempt::NeedRoom(payload.len()));
        }
        let Some(prepared) = cx.prepare_record(mtr)? else { return Ok(Attempt::NeedUndo) };
        let put = self.tree.put(mtr, at, key, cx.next_stamp(flags), payload);
        assert_eq!(put, Put::Done, "a leaf with room refused a row");
        cx.append_record(mtr, prepared);
        Ok(Attempt::Done(()))
    }

    /// Does what the attempt needs. The caller holds no latch.
    fn get_past<T>(&self, cx: &mut Context, key: &[u8], attempt: Attempt<T>) -> Result<()> {
        match attempt {
            Attempt::Wait(owner) => cx.wait_for(owner, self.tree.owner(), key),
            Attempt::NeedRoom(bytes) => Ok(self.tree.make_room(&cx.core.pager, key, bytes)?),
            Attempt::NeedUndo => cx.extend_undo(),
            Attempt::Done(_) | Attempt::LookBelow(_) | Attempt::LookBeneath(..) | Attempt::NeedChain(_) => {
                Ok(())
            }
        }
    }

    pub(crate) fn modify_row(
        &self,
        cx: &mut Context,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        self.modify_or_lock(cx, key, None, decide)
    }

    /// Does the same as `modify_row`. `lock` is the strength that `decide` will request, if it requests a
    /// lock.
    pub(super) fn modify_or_lock(
        &self,
        cx: &mut Context,
        key: &[u8],
        lock: Option<LockStrength>,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        // A share is not written to a page.
        let is_shared = lock.is_some_and(LockStrength::is_shared);
        if !is_shared {
            self.begin_write(cx)?;
        }
        cx.snapshot();
        if let Some(serial) = &cx.serial {
            serial.read_point(self.tree.owner(), key);
        }
        let mark = cx.record_count;
        let outcome = self.modify_parts(cx, key, lock, decide);
        let outcome = self.take_back(cx, mark, outcome)?;
        match outcome {
            Outcome::Changed if !is_shared => cx.has_taken(),
            Outcome::Changed | Outcome::Missing | Outcome::Skipped => cx.pass_on(),
        }
        Ok(outcome)
    }

    fn modify_parts(
        &self,
        cx: &mut Context,
        key: &[u8],
        lock: Option<LockStrength>,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        let mut key = key.to_vec();
        let mut since = None;
        loop {
            let mut progress = Progress { lock, since, ..Progress::default() };
            let done = self.modify_clustered(cx, &key, decide, &mut progress)?;
            match (done, progress.moved_to) {
                (ClusteredEnd::Applied(applied), _) => {
                    if cx.serial.is_some() {
                        self.note_change(cx, &key, &applied);
                    }
                    self.follow_up(cx, &key, applied)?;
                    return Ok(Outcome::Changed);
                }
                (ClusteredEnd::Unchanged(Outcome::Missing), Some((new_key, arrival))) => {
                    (key, since) = (new_key, Some(arrival));
                }
                (ClusteredEnd::Unchanged(outcome), _) => return Ok(outcome),
            }
        }
    }

    /// Makes the change in the clustered tree.
    fn modify_clustered(
        &self,
        cx: &mut Context,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
        progress: &mut Progress,
    ) -> Result<ClusteredEnd> {
        let core = Arc::clone(&cx.core);
        loop {
            let mut mtr = core.pager.begin()?;
            let attempt = self.try_modify(cx, &core, &mut mtr, key, decide, progress)?;
            if let Attempt::Done(done) = attempt {
                mtr.commit();
                return Ok(done);
            }
            drop(mtr);
            match attempt {
                Attempt::LookBelow(version) if cx.isolation == Isolation::ReadCommitted => {
                    progress.harmless = Some(version.stamp);
                    progress.moved_to = self.trace(cx, key, version, progress.since)?;
                    if progress.moved_to.is_some() {
                        return Ok(ClusteredEnd::Unchanged(Outcome::Missing));
                    }
                }
                Attempt::LookBelow(version) => progress.harmless = Some(self.look_below(cx, key, version)?),
                Attempt::LookBeneath(owner, version) => {
                    progress.beneath = self.beneath(cx, key, &version, true)?;
                    if let Some(owner) = owner.filter(|_| progress.beneath.is_none()) {
                        cx.wait_to_rely(owner, self.tree.owner(), key)?;
                    }
                }
                Attempt::NeedChain(image) => self.chain_first(cx, key, image, progress)?,
                other => self.get_past(cx, key, other)?,
            }
        }
    }

    fn try_modify<'p>(
        &self,
        cx: &mut Context,
        core: &'p Core,
        mtr: &mut Mtr<'p>,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
        progress: &mut Progress,
    ) -> Result<Attempt<ClusteredEnd>> {
        let mut at = self.tree.locate_x(&core.pager, mtr, key)?;
        if !at.found {
            return Ok(Attempt::Done(ClusteredEnd::Unchanged(Outcome::Missing)));
        }
        let entry = self.tree.entry(mtr, &at);
        let stamp = entry.stamp();
        let hold = core.hold(TxnId::new(stamp.txn), cx.id);
        // The floor ignores snapshots that purge has given up, so the snapshot is checked after the floor was
        // read.
        core.purge.check_snapshot(cx.snapshot())?;
        match hold {
            WriteAccess::Busy(owner) if progress.lock == Some(LockStrength::KeyShare) => {
                return self.share_beneath(cx, key, entry, Some(owner), progress, decide);
            }
            WriteAccess::Busy(owner) => return Ok(Attempt::Wait(owner)),
            WriteAccess::Free(lsn)
                if progress.lock == Some(LockStrength::KeyShare) && is_too_new(cx, lsn) =>
            {
                return self.share_beneath(cx, key, entry, None, progress, decide);
            }
            WriteAccess::Free(lsn) if is_too_new(cx, lsn) && progress.harmless != Some(stamp) => {
                return newer_than_snapshot(entry);
            }
            WriteAccess::Mine | WriteAccess::Free(_) => {}
        }
        // The statement's scan does not see the row at its new key, so it is followed there.
        if progress.harmless != Some(stamp) && may_have_left(cx, hold, stamp) {
            return Ok(look_below(stamp));
        }
        if entry.is_deleted() {
            return Ok(Attempt::Done(ClusteredEnd::Unchanged(Outcome::Missing)));
        }
        let (mut spare, mut whole) = (Vec::new(), Vec::new());
        let old_row = self.whole_row(core, entry.payload(&mut spare), &mut whole)?;
        let change = match progress.decided.take() {
            Some(decided) if decided.stamp == stamp => decided.change,
            _ => decide(self.row(old_row))?,
        };
        let (moves, is_plain) = match &change {
            Change::Replace(image) if self.moves(old_row, image)? => (true, false),
            Change::Replace(image) => (false, self.is_plain(old_row, image)),
            _ => (false, false),
        };
        let strength = self.strength_of(old_row, &change, moves, is_plain);
        let hash = || hash_key(self.tree.owner(), key);
        if let Some(sharer) = core.shares.in_the_way(strength, cx.owner, hash) {
            reached("shares: waited for");
            return Ok(Attempt::Wait(sharer));
        }
        // The old row is needed later only for indexes.
        let is_unneeded = (is_plain && cx.serial.is_none()) || self.indexes.is_empty();
        let old_row = if is_unneeded { Vec::new() } else { old_row.to_vec() };
        let applied = Applied { change, moves, is_plain, old_row };
        self.carry_out(cx, mtr, &mut at, key, stamp, applied, progress)
    }

    /// Relies on the version beneath a change that keeps the row's keys. The change is not committed, or the
    /// snapshot does not see it.
    fn share_beneath(
        &self,
        cx: &mut Context,
        key: &[u8],
        entry: EntryRef<'_>,
        owner: Option<Owner>,
        progress: &mut Progress,
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Attempt<ClusteredEnd>> {
        let known = progress.beneath.as_ref().filter(|known| known.above == entry.stamp());
        let Some(known) = known else {
            let mut version = Version::default();
            version.set(entry.stamp(), entry.payload(&mut Vec::new()));
            return Ok(Attempt::LookBeneath(owner, version));
        };
        let change = decide(self.row(&known.row))?;
        if change == Change::Skip {
            return Ok(Attempt::Done(ClusteredEnd::Unchanged(Outcome::Skipped)));
        }
        self.note_share(cx, key, LockStrength::KeyShare);
        let applied = Applied { change, moves: false, is_plain: true, old_row: Vec::new() };
        Ok(Attempt::Done(ClusteredEnd::Applied(applied)))
    }

    /// Looks below a change that is newer than the snapshot and only a lock. Returns the stamp of the lock if
    /// the change below it is visible, and an error if it is not.
    fn look_below(&self, cx: &mut Context, key: &[u8], mut version: Version) -> Result<Stamp> {
        let lock = version.stamp;
        while version.stamp.flags & FLAG_LOCK != 0 {
            if !step_back_kept(&mut version, &cx.core, self.tree.owner(), key)? {
                // A lock that is newer than the snapshot is purged only if the rollback limit is exceeded.
                return cx.view().map(|_| Stamp::default());
            }
        }
        let view = cx.view()?;
        match cx.core.sight(&view, TxnId::new(version.stamp.txn)) {
            Sight::Seen => Ok(lock),
            Sight::Unseen => Err(Error::SerializationFailure),
            Sight::Stale => Ok(Stamp::default()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of modify, cut out of it")]
    fn carry_out(
        &self,
        cx: &mut Context,
        mtr: &mut Mtr<'_>,
        at: &mut Position,
        key: &[u8],
        stamp: Stamp,
        applied: Applied,
        progress: &mut Progress,
    ) -> Result<Attempt<ClusteredEnd>> {
        let attempt = match &applied.change {
            Change::Skip => return Ok(Attempt::Done(ClusteredEnd::Unchanged(Outcome::Skipped))),
            Change::Lock(strength) if strength.is_shared() => {
                self.note_share(cx, key, *strength);
                Attempt::Done(())
            }
            Change::Lock(LockStrength::Update) if stamp.txn == cx.id.get() && keeps_all_out(stamp) => {
                Attempt::Done(())
            }
            Change::Lock(LockStrength::Update) => {
                self.restamp(cx, mtr, at, key, Kind::Lock, FLAG_LOCK | FLAG_KEY)?
            }
            Change::Lock(_) if stamp.txn == cx.id.get() => Attempt::Done(()),
            Change::Lock(_) => self.restamp(cx, mtr, at, key, Kind::Lock, FLAG_LOCK)?,
            Change::Delete => self.restamp(cx, mtr, at, key, Kind::Delete, FLAG_DELETED)?,
            Change::Replace(_) if applied.moves => {
                self.restamp(cx, mtr, at, key, Kind::Delete, FLAG_DELETED | FLAG_MOVED)?
            }
            Change::Replace(image) => {
                let kind = if applied.is_plain { Kind::UpdatePlain } else { Kind::Update };
                self.replace(cx, mtr, at, key, kind, image, progress)?
            }
        };
        match attempt {
            Attempt::Done(()) => Ok(Attempt::Done(ClusteredEnd::Applied(applied))),
            Attempt::NeedChain(image) => Ok(Attempt::NeedChain(image)),
            Attempt::NeedRoom(bytes) => {
                progress.decided = Some(Decided { stamp, change: applied.change });
                Ok(Attempt::NeedRoom(bytes))
            }
            Attempt::NeedUndo => {
                progress.decided = Some(Decided { stamp, change: applied.change });
                Ok(Attempt::NeedUndo)
            }
            Attempt::Wait(_) | Attempt::LookBelow(_) | Attempt::LookBeneath(..) => {
                unreachable!("the row is free")
            }
        }
    }

    /// Changes only the stamp: a delete mark or a lock.
    fn restamp(
        &self,
        cx: &mut Context,
        mtr: &mut Mtr<'_>,
        at: &Position,
        key: &[u8],
        kind: Kind,
        flags: u8,
    ) -> Result<Attempt<()>> {
        let (entry, mut spare) = (self.tree.entry(mtr, at), Vec::new());
        let stamp = entry.stamp();
        let payload = if kind == Kind::Lock { &[] } else { entry.payload(&mut spare) };
        let chain = self.chain_of(payload);
        let before = Before { stamp, payload };
        let id = cx.id;
        cx.encode_record(&RecordRef { kind, txn: id, tree: self.tree.owner(), chain, key, before });
        let Some(prepared) = cx.prepare_record(mtr)? else { return Ok(Attempt::NeedUndo) };
        let next = cx.next_stamp(flags | inherited(&cx.core, stamp));
        self.tree.stamp(mtr, at, next);
        cx.append_record(mtr, prepared);
        Ok(Attempt::Done(()))
    }

    #[expect(clippy::too_many_arguments, reason = "one step of modify, cut out of it")]
    fn replace(
        &self,
        cx: &mut Context,
        mtr: &mut Mtr<'_>,
        at: &mut Position,
        key: &[u8],
        kind: Kind,
        image: &RowImage,
        progress: &mut Progress,
    ) -> Result<Attempt<()>> {
        let is_wide = overflow::must_spill(cx.pager(), key.len(), image.as_bytes().len());
        let payload = match &progress.pointer {
            Some(pointer) if is_wide => pointer,
            None if is_wide => return Ok(Attempt::NeedChain(image.clone())),
            _ => image.as_bytes(),
        };
        let (old, mut spare) = (self.tree.entry(mtr, at), Vec::new());
        let (stamp, old_payload) = (old.stamp(), old.payload(&mut spare));
        let before = Before { stamp, payload: old_payload };
        let (id, chain) = (cx.id, self.chain_of(old_payload));
        cx.encode_record(&RecordRef { kind, txn: id, tree: self.tree.owner(), chain, key, before });
        let flags = inherited(&cx.core, stamp);
        self.put_logged(cx, mtr, at, key, payload, flags)
    }

    /// Returns whether a new row has another primary key.
    fn moves(&self, old_row: &[u8], image: &RowImage) -> Result<bool> {
        let (old, new) = (self.row(old_row), self.row(image.as_bytes()));
        let mut moves = false;
        for ordinal in self.def.key_columns() {
            let datum = new.get(*ordinal);
            self.refuse_null(*ordinal, &datum)?;
            moves |= old.get(*ordinal).order(&datum).is_ne();
        }
        Ok(moves)
    }

    /// Returns whether no index must be changed for the new row.
    fn is_plain(&self, old_row: &[u8], image: &RowImage) -> bool {
        let (old, new) = (self.row(old_row), self.row(image.as_bytes()));
        self.indexes.iter().all(|index| {
            // An expression may have different results for equal values, for example 1.0 and 1.00.
            let same = |a: Datum<'_>, b: Datum<'_>| match index.def.is_plain() {
                true => a.order(&b).is_eq(),
                false => is_same(&a, &b),
            };
            index.def.columns.iter().all(|column| same(old.get(*column), new.get(*column)))
        })
    }

    /// Locks the row, and lets `decide` decide again. While this transaction has the row, the decision stays
    /// valid. Then writes the chain.
    fn chain_first(
        &self,
        cx: &mut Context,
        key: &[u8],
        image: RowImage,
        progress: &mut Progress,
    ) -> Result<()> {
        let core = Arc::clone(&cx.core);
        let mut stamp = Stamp::default();
        self.tree.get(&core.pager, key, |entry| stamp = entry.stamp())?;
        if stamp.txn != cx.id.get() {
            let lock = &mut |_: RowRef<'_>| Ok(Change::Lock(LockStrength::NoKeyUpdate));
            let mut locking = Progress { since: progress.since, ..Progress::default() };
            return self.modify_clustered(cx, key, lock, &mut locking).map(|_| ());
        }
        progress.pointer = Some(self.spill(cx, image.as_bytes())?);
        progress.decided = Some(Decided { stamp, change: Change::Replace(image) });
        Ok(())
    }
}

/// Returns the error of REPEATABLE READ for a version that is newer than the snapshot. If the version may be
/// only a lock, returns `LookBelow` instead.
fn newer_than_snapshot<T>(entry: EntryRef<'_>) -> Result<Attempt<T>> {
    if entry.flags() & FLAG_LOCK == 0 {
        return Err(Error::SerializationFailure);
    }
    Ok(look_below(entry.stamp()))
}

fn look_below<T>(stamp: Stamp) -> Attempt<T> {
    let mut version = Version::default();
    version.set(stamp, &[]);
    Attempt::LookBelow(version)
}

/// Returns whether transactions that rely on the row must wait because of this stamp.
fn keeps_all_out(stamp: Stamp) -> bool {
    stamp.flags & (FLAG_KEY | FLAG_DELETED) != 0
}

/// Returns whether a change that was committed at `lsn` is too new for a transaction of REPEATABLE READ to
/// change the row.
pub(super) fn is_too_new(cx: &mut Context, lsn: Lsn) -> bool {
    cx.isolation.keeps_snapshot() && lsn > cx.snapshot()
}
