//! The engine's state of one transaction: identity, snapshot, undo position, lock timeout.
//!
//! Invariants
//! 1. A transaction takes its identity and its rollback segment before its first mini-transaction that
//!    writes, never inside one.
//! 2. `record_count` is the number of undo records that the transaction has in its rollback segment. A
//!    savepoint is an earlier value of this number.
//!
//! This module does not know SQL or which tables exist.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use varve_device::planted;
use varve_pager::{Lsn, Mtr, PageId, Pager};

use crate::catalog::{ObjectId, POSTGRES, TableDef, TableId};
use crate::core::{Core, Sight, View, hash_key};
use crate::error::{Error, Result};
use crate::ids::{Owner, RollPointer, TxnId};
use crate::lock_queue::Tag;
use crate::marks::Marks;
use crate::modes::LockMode;
use crate::node::Stamp;
use crate::partitions::{PartitionId, PartitionWork};
use crate::purge_queue::Finished;
use crate::row_access::{Isolation, ScanIndex, ScanSpec, WhenHeld};
use crate::serial::Serial;
use crate::share::Share;
use crate::table_lock::Waiting;
use crate::tree::Scan;
use crate::undo::{Kind, Prepared, Record, RecordRef, Segment};
use crate::versions::Version;
use crate::waits::{HeldRow, Patience, WaitNotice};

/// A bit that distinguishes transactions that want a KEY SHARE lock of a row from those that want to change
/// the row.
const KEY_SHARE_WISH: u64 = 1 << 62;

/// State of a running transaction, handed to the table engines.
pub struct Context {
    pub(crate) core: Arc<Core>,
    /// The database whose names the transaction uses.
    pub(crate) database: ObjectId,
    pub(crate) owner: Owner,
    pub(crate) isolation: Isolation,
    /// The reads and writes of the transaction, under SERIALIZABLE.
    pub(crate) serial: Option<Arc<Serial>>,
    /// Trees that this transaction has made.
    pub(crate) new_trees: Vec<u32>,
    pub(crate) id: TxnId,
    snapshot: Option<Lsn>,
    pub(crate) segment: Option<Segment>,
    pub(crate) record_count: u64,
    pub(crate) record: Record,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<Arc<AtomicBool>>,
    /// Reports long waits for locks.
    pub(crate) wait_notice: Option<Arc<WaitNotice>>,
    /// Rows that this transaction shares (`share.rs`).
    pub(crate) shared: Vec<Share>,
    has_waited: bool,
    /// The lock that the transaction last waited for. `None` if the transaction has got it or given it up.
    awaited: Option<Awaited>,
    /// The number of releases when the transaction last began to check a row that it may have to wait for.
    looked: u64,
    /// Set if the rollback of a call or a statement failed, so that a part of its changes remains.
    broken: Option<Error>,
    /// The LSN up to which the log must be durable at the commit because of changes outside of transactions.
    durable_by: Lsn,
    pub(crate) buffers: Buffers,
    /// Marks of index entries that are gathered (`paged/marks.rs`).
    pub(crate) marks: Option<Marks>,
    /// Whether the transaction of this reader gathered marks when the reader was made.
    is_beside_marks: bool,
    /// Whether this is a reader for another transaction, which has the locks.
    pub(crate) is_reader: bool,
    /// Whether the transaction reads a snapshot of the past. Then it changes nothing.
    pub(crate) is_past: bool,
    /// The work in partitions of memory-oriented engines, if there is any.
    pub(crate) stores: Option<Box<PartitionWork>>,
    /// What the statement does if it needs a partition that another transaction has locked.
    pub(crate) when_held: WhenHeld,
    /// Partitions that the statement has skipped, because other transactions had locked them.
    pub(crate) passed_by: SmallVec<[PartitionId; 2]>,
}

/// The lock that a transaction waits for. The transaction may have to wait several times until it has the
/// lock.
#[derive(Clone, Copy)]
struct Awaited {
    want: u64,
    deadline: Option<Instant>,
    /// The position in the queue of waiters.
    ticket: u64,
}

/// A loser: no thread runs the transaction any more, and its changes are not undone yet.
pub(crate) struct Loser {
    pub(crate) owner: Owner,
    pub(crate) id: TxnId,
    pub(crate) segment: Segment,
}

/// Scratch memory that lives as long as the transaction.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) key: Vec<u8>,
    pub(crate) entry: Vec<u8>,
    pub(crate) row: Vec<u8>,
    /// The keys of a row in all indexes.
    pub(crate) keys: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) scan: Option<Box<Scan>>,
}

impl Context {
    pub(crate) fn new(core: Arc<Core>, isolation: Isolation, timeout: Option<Duration>) -> Self {
        let owner = core.registry.claim();
        Self {
            core,
            database: POSTGRES,
            owner,
            isolation,
            serial: None,
            new_trees: Vec::new(),
            id: TxnId::NONE,
            snapshot: None,
            segment: None,
            record_count: 0,
            record: Record::default(),
            timeout,
            cancel: None,
            wait_notice: None,
            shared: Vec::new(),
            has_waited: false,
            awaited: None,
            looked: 0,
            broken: None,
            durable_by: Lsn::ZERO,
            buffers: Buffers::default(),
            marks: None,
            is_beside_marks: false,
            is_reader: false,
            is_past: false,
            stores: None,
            when_held: WhenHeld::Wait,
            passed_by: SmallVec::new(),
        }
    }

    /// Returns the context of a loser, which must be undone.
    pub(crate) fn of_loser(core: Arc<Core>, loser: Loser) -> Self {
        Self {
            core,
            database: POSTGRES,
            owner: loser.owner,
            isolation: Isolation::ReadCommitted,
            serial: None,
            new_trees: Vec::new(),
            id: loser.id,
            snapshot: None,
            segment: Some(loser.segment),
            record_count: u64::MAX,
            record: Record::default(),
            timeout: None,
            cancel: None,
            wait_notice: None,
            shared: Vec::new(),
            has_waited: false,
            awaited: None,
            looked: 0,
            broken: None,
            durable_by: Lsn::ZERO,
            buffers: Buffers::default(),
            marks: None,
            is_beside_marks: false,
            is_reader: false,
            is_past: false,
            stores: None,
            when_held: WhenHeld::Wait,
            passed_by: SmallVec::new(),
        }
    }

    pub(crate) fn set_isolation(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        self.serial = (isolation == Isolation::Serializable).then(Arc::default);
    }

    /// Returns the context of a reader for this transaction. The reader sees the same snapshot, which stays
    /// registered here, and the transaction's own changes. Its reads count as reads of this transaction.
    pub(crate) fn for_reader(&mut self) -> Self {
        let snapshot = self.snapshot();
        let mut reader = Self::new(Arc::clone(&self.core), self.isolation, self.timeout);
        reader.is_reader = true;
        reader.is_past = self.is_past;
        reader.serial.clone_from(&self.serial);
        reader.snapshot = Some(snapshot);
        reader.id = self.id;
        reader.is_beside_marks = self.has_late_marks();
        reader.cancel.clone_from(&self.cancel);
        reader.passed_by.clone_from(&self.passed_by);
        reader
    }

    /// Returns the context of a reader that sees everything committed now, and this transaction's own
    /// changes.
    pub(crate) fn for_newest(&mut self) -> Self {
        let mut reader = Self::new(Arc::clone(&self.core), Isolation::ReadCommitted, self.timeout);
        reader.is_reader = true;
        reader.id = self.id;
        reader.is_beside_marks = self.has_late_marks();
        reader.cancel.clone_from(&self.cancel);
        reader.take_snapshot();
        reader
    }

    /// Returns whether index entries may lack the marks of this transaction's own deletes.
    pub(crate) fn has_late_marks(&self) -> bool {
        self.marks.is_some() || self.is_beside_marks
    }

    /// Returns the key in `index` at which the closure of the last scan ended the scan.
    pub(crate) fn place(&self, index: ScanIndex) -> &[u8] {
        match index {
            ScanIndex::Primary => &self.buffers.key,
            ScanIndex::Secondary(_) => &self.buffers.entry,
        }
    }

    /// Returns whether a scan continues after the row at which the last scan of the index ended.
    pub(crate) fn continues(&self, spec: &ScanSpec<'_>) -> bool {
        matches!(spec.lower, std::ops::Bound::Excluded(key) if key == self.place(spec.index))
    }

    /// Takes the rest of a transaction whose rollback or commit failed, so that it is undone later. `None`
    /// means that it has ended.
    pub(crate) fn take_unfinished(&mut self) -> Option<Loser> {
        let segment = self.segment.take()?;
        // Its rows will never be committed, so the rows that they refer to need no protection.
        self.give_back_shares(0);
        self.core.registry.drop_snapshot(self.owner);
        self.core.registry.place(self.owner.slot).mark_loser();
        self.core.waits.disown(&self.core.registry, self.owner);
        Some(Loser { owner: self.owner, id: self.id, segment })
    }

    /// Releases all shares of rows except the first `keep`. The caller wakes the waiting transactions.
    pub(crate) fn give_back_shares(&mut self, keep: usize) {
        for share in self.shared.drain(keep.min(self.shared.len())..) {
            self.core.shares.remove(share, self.owner);
        }
    }

    /// Releases the locks on these tables, and every queued lock after the first `keep`. If `keeps_weak` is
    /// set, locks in the modes of reading and changing rows stay. The caller wakes the waiting transactions.
    pub(crate) fn give_back_tables(
        &mut self,
        used: impl Iterator<Item = (TableId, LockMode)>,
        keep: usize,
        keeps_weak: bool,
    ) {
        let core = &self.core;
        let place = core.registry.place(self.owner.slot);
        used.for_each(|(table, mode)| place.forget_table(table.0, mode.bit()));
        let is_kept = |tag, mode: LockMode| match tag {
            Tag::Object(_) => keeps_weak && mode.is_weak(),
            Tag::Partition(..) => true,
            Tag::Advisory(_) => false,
        };
        core.waits.unlock_all(&core.registry, self.owner, keep, is_kept);
    }

    /// Returns the number of locks with a queue that the transaction has.
    pub(crate) fn locks_held(&self) -> usize {
        self.core.waits.held_by(&self.core.registry, self.owner)
    }

    pub(crate) fn pager(&self) -> &Pager {
        &self.core.pager
    }

    /// Takes the statement's snapshot: always under READ COMMITTED, once under REPEATABLE READ.
    #[inline]
    pub(crate) fn take_snapshot(&mut self) -> Lsn {
        match self.snapshot {
            Some(snapshot) if self.isolation.keeps_snapshot() => snapshot,
            _ => {
                let core = &self.core;
                let snapshot = core.registry.take_snapshot(self.owner, || core.pager.durable_lsn());
                *self.snapshot.insert(snapshot)
            }
        }
    }

    /// Takes a snapshot of the past, which all statements of the transaction read. It must be durable.
    pub(crate) fn take_past_snapshot(&mut self, snapshot: Lsn) -> Result<()> {
        self.set_isolation(Isolation::RepeatableRead);
        if !self.core.registry.take_past_snapshot(self.owner, snapshot) {
            return Err(Error::MomentTooOld { retained: true });
        }
        self.snapshot = Some(snapshot);
        self.is_past = true;
        self.core.purge.check_snapshot(snapshot)
    }

    /// Gives the statement's snapshot back (READ COMMITTED).
    pub(crate) fn drop_snapshot(&mut self) {
        if self.isolation == Isolation::ReadCommitted && self.snapshot.take().is_some() {
            self.core.registry.drop_snapshot(self.owner);
        }
    }

    /// Makes sure that the snapshot sees the changes of `txn`, which has committed. A statement of READ
    /// COMMITTED that has not read the table yet gets a newer snapshot.
    pub(crate) fn renew_unless_seen(&mut self, txn: TxnId) -> Result<()> {
        let Some(snapshot) = self.snapshot else { return Ok(()) };
        if self.core.sight(&self.core.view(snapshot, self.id), txn) == Sight::Seen {
            return Ok(());
        }
        if self.is_past {
            return Err(Error::RewrittenSince);
        }
        if self.isolation.keeps_snapshot() {
            return Err(Error::SerializationFailure);
        }
        self.renew_snapshot();
        Ok(())
    }

    /// Refuses to read a table at a moment before `creator` created it. Other transactions read no rows in
    /// such a table, as in PostgreSQL.
    #[inline]
    pub(crate) fn refuse_before(&self, creator: TxnId, def: &TableDef) -> Result<()> {
        match self.snapshot {
            Some(snapshot) if self.is_past => {
                match self.core.sight(&self.core.view(snapshot, self.id), creator) {
                    Sight::Seen => Ok(()),
                    _ => Err(Error::CreatedSince { table: def.name.to_string() }),
                }
            }
            _ => Ok(()),
        }
    }

    /// Takes a new snapshot, if there is one. A statement of READ COMMITTED continues with it after a wait.
    pub(crate) fn renew_snapshot(&mut self) {
        if self.snapshot.is_some() {
            self.take_snapshot();
        }
    }

    /// Returns the snapshot, if there is one.
    pub(crate) fn snapshot_taken(&self) -> Option<Lsn> {
        self.snapshot
    }

    /// Returns the present snapshot. It is taken now if there is none.
    #[inline]
    pub(crate) fn snapshot(&mut self) -> Lsn {
        match self.snapshot {
            Some(snapshot) => snapshot,
            None => self.take_snapshot(),
        }
    }

    /// Returns what this transaction sees, with the present floor. Fails if the snapshot is too old.
    #[inline]
    pub(crate) fn view(&mut self) -> Result<View> {
        let snapshot = self.snapshot();
        // The order of these two calls matters. A snapshot is refused before the floor can pass it, so a
        // floor that was read first fits a snapshot that is not refused.
        let view = self.core.view(snapshot, self.id);
        self.core.purge.check_snapshot(snapshot)?;
        Ok(view)
    }

    /// Makes sure that the transaction has an identity and a rollback segment. The caller holds no latch.
    pub(crate) fn begin_write(&mut self) -> Result<TxnId> {
        if self.id == TxnId::NONE {
            if self.is_past {
                return Err(Error::PastIsReadOnly);
            }
            self.refuse_mixing()?;
            self.id = self.core.assign_id(self.owner)?;
            self.core.registry.place(self.owner.slot).set_identity(self.id.get());
        }
        if self.segment.is_none() {
            self.segment = Some(self.core.segments.take(&self.core.pager)?);
        }
        Ok(self.id)
    }

    /// Returns an error (0A000) if the transaction has changed a table that is committed without pages.
    fn refuse_mixing(&self) -> Result<()> {
        match self.stores.as_ref().and_then(|work| work.durable.as_ref()) {
            Some(durable) => {
                Err(Error::MixedStores { written: durable.table.clone(), refused: String::new() })
            }
            None => Ok(()),
        }
    }

    /// Returns the error 0A000 if this transaction reads the past and the table has no old versions of its
    /// rows.
    pub(crate) fn refuse_past_of(&self, table: &TableDef) -> Result<()> {
        if !self.is_past {
            return Ok(());
        }
        let (name, engine) = (&table.name, &table.engine);
        Err(Error::Unsupported {
            what: format!("AS OF on table {name}: {engine} keeps no old versions of rows"),
        })
    }

    /// Ends the identity and frees the segment, when all changes are undone.
    pub(crate) fn end_identity(&mut self) -> Result<()> {
        let core = Arc::clone(&self.core);
        // The segment stays with the transaction until nothing can fail any more: a failure is tried again
        // with it.
        if let Some(segment) = self.segment.as_mut().filter(|segment| segment.start().is_some()) {
            let mut mtr = core.pager.begin_end()?;
            let header = segment.prepare_end(&mut mtr)?;
            segment.end(&mut mtr, header);
            mtr.commit();
        }
        core.segments.put_back_from(&mut self.segment);
        if self.id != TxnId::NONE {
            core.status.set_aborted(self.id);
        }
        Ok(())
    }

    fn segment_mut(&mut self) -> &mut Segment {
        match &mut self.segment {
            Some(segment) => segment,
            None => panic!("a change before begin_write"),
        }
    }

    /// Encodes the undo record of the next change.
    pub(crate) fn encode_record(&mut self, record: &RecordRef<'_>) {
        self.record.encode(record);
    }

    /// Latches the pages that `append_record` needs. `None` means that the undo page is full. Then the caller
    /// drops the mini-transaction, calls `extend_undo`, and begins again.
    pub(crate) fn prepare_record(&mut self, mtr: &mut Mtr<'_>) -> Result<Option<Prepared>> {
        let bytes = self.record.bytes().len();
        self.segment_mut().prepare(mtr, bytes)
    }

    /// Does the same as `prepare_record` for one more record of the mini-transaction.
    pub(crate) fn prepare_more(&mut self, prepared: Prepared) -> Option<Prepared> {
        let bytes = self.record.bytes().len();
        self.segment_mut().prepare_more(prepared, bytes)
    }

    /// Adds an undo page. The caller holds no latch.
    pub(crate) fn extend_undo(&mut self) -> Result<()> {
        let core = Arc::clone(&self.core);
        self.segment_mut().extend(&core.pager)
    }

    /// Returns the stamp of the change whose record comes next.
    pub(crate) fn next_stamp(&mut self, flags: u8) -> Stamp {
        let id = self.id;
        Stamp { txn: id.get(), roll: self.segment_mut().next_pointer(id).raw(), flags }
    }

    /// Appends the encoded record in the mini-transaction of its change.
    pub(crate) fn append_record(&mut self, mtr: &mut Mtr<'_>, prepared: Prepared) {
        let id = self.id;
        if planted("undo: every 20th record is lost") && self.record_count % 20 == 19 {
            return;
        }
        let record = std::mem::take(&mut self.record);
        self.segment_mut().append(mtr, prepared, id, &record);
        self.record = record;
        self.record_count += 1;
    }

    /// Appends a record that belongs to no row. `first` makes the changes of the same mini-transaction, and
    /// returns the page that the record names.
    pub(crate) fn append_plain(
        &mut self,
        kind: Kind,
        segment: u32,
        first: impl Fn(&mut Mtr<'_>) -> Result<Option<PageId>>,
    ) -> Result<Option<PageId>> {
        let id = self.begin_write()?;
        let core = Arc::clone(&self.core);
        self.encode_record(&RecordRef::plain(kind, id, segment, None));
        loop {
            let mut mtr = core.pager.begin()?;
            let Some(prepared) = self.prepare_record(&mut mtr)? else {
                drop(mtr);
                self.extend_undo()?;
                continue;
            };
            let page = first(&mut mtr)?;
            self.encode_record(&RecordRef::plain(kind, id, segment, page.map(PageId::no)));
            self.append_record(&mut mtr, prepared);
            mtr.commit();
            return Ok(page);
        }
    }

    fn patience(&self) -> Patience<'_> {
        let log = Some(self.core.pager.log());
        let (cancel, notice) = (self.cancel.as_deref(), self.wait_notice.as_deref());
        Patience { timeout: self.timeout, deadline: None, cancel, log, notice }
    }

    /// Waits for another transaction because of a key of a tree. The caller checks the row again afterwards.
    pub(crate) fn wait_for(&mut self, on: Owner, tree: u32, key: &[u8]) -> Result<()> {
        self.wait_wanting(on, hash_key(tree, key))
    }

    /// Does the same as `wait_for` for a KEY SHARE lock of the row. Such a lock is compatible with the KEY
    /// SHARE locks that other transactions wait for.
    pub(crate) fn wait_to_rely(&mut self, on: Owner, tree: u32, key: &[u8]) -> Result<()> {
        self.wait_wanting(on, hash_key(tree, key) ^ KEY_SHARE_WISH)
    }

    /// Waits, unless a lock was released since the last check began. The released lock may be the wanted one.
    fn wait_wanting(&mut self, on: Owner, want: u64) -> Result<()> {
        self.has_waited = true;
        let begun = self.awaited.filter(|awaited| awaited.want == want);
        let ticket = begun.map_or_else(|| self.core.waits.ticket(), |begun| begun.ticket);
        let deadline = begun.and_then(|begun| begun.deadline);
        let until = Patience { deadline, ..self.patience() }.begun().deadline;
        self.awaited = Some(Awaited { want, deadline: until, ticket });
        let outcome = self.wait_until(deadline, on, want, ticket);
        if outcome.is_err() {
            self.awaited = None;
        }
        outcome
    }

    fn wait_until(&mut self, deadline: Option<Instant>, by: Owner, want: u64, ticket: u64) -> Result<()> {
        let core = Arc::clone(&self.core);
        let released = std::mem::replace(&mut self.looked, core.waits.releases());
        let patience = Patience { deadline, ..self.patience() };
        if released != self.looked {
            return patience.check();
        }
        let held = HeldRow { by, released, want, ticket };
        let outcome = core.waits.wait(&core.registry, self.owner, held, patience);
        self.looked = core.waits.releases();
        if outcome.is_ok() && !core.registry.is_running(by) {
            // If the log has stopped, the commit of the other transaction may never become durable, so this
            // one must not continue.
            core.pager.log().check().map_err(varve_pager::PagerError::from)?;
        }
        outcome
    }

    /// Wakes the transactions that wait for this one, after a change was undone.
    pub(crate) fn release(&mut self) {
        self.has_taken();
        self.core.waits.release(&self.core.registry, self.owner);
    }

    /// Wakes the next waiters after an operation that waited for a lock and did not take it.
    pub(crate) fn pass_on(&mut self) {
        self.awaited = None;
        if std::mem::take(&mut self.has_waited) {
            self.core.waits.wake(&self.core.registry, self.owner);
        }
    }

    /// Records that the operation got the lock that it waited for.
    pub(crate) fn has_taken(&mut self) {
        (self.has_waited, self.awaited) = (false, None);
    }

    /// Records the outcome of an attempt to undo a part of the transaction. If the attempt failed, the
    /// transaction cannot be committed any more.
    pub(crate) fn note_undone(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.broken.get_or_insert(error);
        }
    }

    /// Takes and returns the error because of which the transaction cannot be committed.
    pub(crate) fn take_broken(&mut self) -> Option<Error> {
        self.broken.take()
    }

    /// Records that the commit is acknowledged only when the log is durable up to `lsn`.
    pub(crate) fn wait_at_commit(&mut self, lsn: Lsn) {
        self.durable_by = self.durable_by.max(lsn);
    }

    /// Makes the log durable up to the LSN of `wait_at_commit`.
    pub(crate) fn flush_noted(&self) -> Result<()> {
        if self.durable_by > self.core.pager.durable_lsn() {
            self.core.pager.flush_log(self.durable_by)?;
        }
        Ok(())
    }

    /// Returns the parts of this context that table locks need.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        Waiting {
            registry: &self.core.registry,
            waits: &self.core.waits,
            me: self.owner,
            patience: self.patience(),
        }
    }

    /// Returns the error `Cancelled` if the statement should stop.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        let cancelled = self.cancel.as_ref().is_some_and(|c| c.load(std::sync::atomic::Ordering::Relaxed));
        if cancelled { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Reads the newest record of this transaction that is not undone yet into `record`.
    pub(crate) fn read_top(&mut self) -> Result<Option<RollPointer>> {
        let core = Arc::clone(&self.core);
        let Some(segment) = &mut self.segment else { return Ok(None) };
        segment.read_top(&core.pager, &mut self.record)
    }

    /// Notes that a row with this key was written, under SERIALIZABLE.
    pub(crate) fn note_write(&self, tree: u32, key: &[u8]) {
        if let Some(serial) = &self.serial {
            serial.wrote(tree, key);
        }
    }

    /// Logs the commit record. Under SERIALIZABLE, returns an error if another transaction has changed what
    /// this one read.
    pub(crate) fn commit_checked(&mut self) -> Result<Lsn> {
        let serial = self.serial.clone();
        if serial.is_none() && self.new_trees.is_empty() {
            return self.log_commit();
        }
        let (core, trees) = (Arc::clone(&self.core), std::mem::take(&mut self.new_trees));
        let snapshot = self.snapshot.unwrap_or(Lsn::ZERO);
        let oldest = || core.registry.oldest(core.pager.durable_lsn());
        core.recent.commit(serial.as_ref().map(|s| (&**s, snapshot)), &trees, oldest, || self.log_commit())
    }

    /// Makes the check of SERIALIZABLE for a transaction that has used partitions. Fails if another
    /// transaction has changed what this one read in pages.
    #[cold]
    pub(crate) fn check_page_reads(&self) -> Result<()> {
        match &self.serial {
            Some(serial) => self.core.recent.check(serial, self.snapshot.unwrap_or(Lsn::ZERO)),
            None => Ok(()),
        }
    }

    /// Logs the commit record; inside the log's append section the transaction becomes committed.
    pub(crate) fn log_commit(&mut self) -> Result<Lsn> {
        let core = Arc::clone(&self.core);
        let mut mtr = core.pager.begin_end()?;
        let id = self.id;
        let segment = self.segment_mut();
        let header = segment.prepare_end(&mut mtr)?;
        let (place, start, end) = (segment.header(), segment.start(), segment.top());
        if !planted("commit: its mark is not logged") {
            segment.end(&mut mtr, header);
        }
        mtr.note_commit();
        let lsn = mtr.commit_with(|lsn| {
            core.status.set_committed(id, lsn);
            if let Some(start) = start {
                core.purge.push(Finished { lsn, header: place, start, end, time_us: 0 });
            }
        });
        core.segments.put_back_from(&mut self.segment);
        Ok(lsn)
    }

    /// Ends the transaction for all others: releases its locks and its snapshot, and wakes waiting
    /// transactions.
    pub(crate) fn leave(&mut self) {
        self.give_back_shares(0);
        let core = &self.core;
        core.waits.unlock_all(&core.registry, self.owner, 0, |_, _| false);
        core.registry.end(self.owner);
        core.waits.wake(&core.registry, self.owner);
        core.registry.vacate(self.owner);
    }
}
