//! A transaction, the only way to read or change data.
//!
//! Invariants
//! 1. A transaction gets an id at its first write. A transaction that only reads logs nothing.
//! 2. A call that fails has changed nothing.
//! 3. Dropping a transaction rolls it back.
//! 4. The calls of a transaction come from one thread, or `hand_over` is between those of two threads.
//!
//! This module does not know SQL, implicit transactions or sessions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use varve_device::{planted, planted_panic};
use varve_pager::{Pager, PagerError};

use crate::background::BackgroundThreads;
use crate::catalog::sequence_range::{LastValue, SequenceRange};
use crate::catalog::{
    Catalog, IndexId, ObjectChange, ObjectId, SequenceDef, SequenceId, SequenceState, Table, TableDef,
    TableId,
};
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, ObjectKind, Result};
use crate::modes::LockMode;
use crate::paged::{PagedStore, undo_newest};
use crate::partitions::StoreMarks;
use crate::row::RowRef;
use crate::row_access::{Change, Isolation, OnRow, Outcome, ScanIndex, ScanSpec, WhenHeld};
use crate::sequence::{self, SequenceDrawer};
use crate::types::Datum;
use crate::waits::WaitNotice;

/// A point in a transaction to which the transaction can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavepointId(u64);

/// The part of a table that a caller will use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Any row, also by readers.
    Whole,
    /// Rows that calls of the transaction name.
    Rows,
}

/// The state of a transaction at a savepoint.
struct Mark {
    point: UndoPoint,
    shares: usize,
    /// The number of table locks, and in `queued` that of locks with a queue.
    locked: usize,
    queued: usize,
}

/// The point to which changes are undone.
#[derive(Clone)]
pub(crate) struct UndoPoint {
    records: u64,
    /// The points in partitions of memory-oriented engines.
    stores: StoreMarks,
}

/// A transaction.
pub struct Transaction {
    /// Keeps the background threads running while this transaction exists.
    _threads: Arc<BackgroundThreads>,
    pub(crate) cx: Context,
    /// The locked tables.
    pub(crate) locked: SmallVec<[(TableId, LockMode); 8]>,
    statement: u64,
    has_begun: bool,
    savepoints: Vec<Mark>,
    /// The DDL of this transaction. Each change has the number of undo records after it.
    pub(crate) changes: Vec<(u64, ObjectChange)>,
    /// The tables, views, sequences and schemas that this transaction has made. Each has the number of undo
    /// records after it.
    made: Vec<(u64, ObjectId)>,
    /// The committed catalog, and the same with `changes`.
    own: Option<(Arc<Catalog>, Arc<Catalog>)>,
    /// The version of the committed catalog to which the running statement is bound.
    pub(crate) bound: Option<u64>,
    /// A reference that the readers of the running statement share, if there were any.
    pub(crate) readers: Option<Arc<()>>,
    is_over: bool,
}

impl Transaction {
    /// Begins a transaction that uses the names of the database `of`.
    pub(crate) fn new(mut cx: Context, threads: Arc<BackgroundThreads>, of: ObjectId) -> Self {
        cx.set_isolation(cx.isolation);
        cx.database = of;
        Self {
            _threads: threads,
            cx,
            locked: SmallVec::new(),
            statement: 0,
            has_begun: false,
            savepoints: Vec::new(),
            changes: Vec::new(),
            made: Vec::new(),
            own: None,
            bound: None,
            readers: None,
            is_over: false,
        }
    }

    /// Returns the pager.
    pub fn pager(&self) -> &Pager {
        self.cx.pager()
    }

    /// Returns the database whose names the transaction uses.
    pub fn database_id(&self) -> ObjectId {
        self.cx.database
    }

    /// Returns the isolation level.
    pub fn isolation(&self) -> Isolation {
        self.cx.isolation
    }

    /// Returns whether a statement was begun. LOCK TABLE and savepoints do not count as statements.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Changes the isolation level. This is allowed only before the first statement.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.cx.set_isolation(isolation);
    }

    /// Sets the flag that ends waits of this transaction with 57014 soon after it is set.
    pub fn set_cancel(&mut self, cancel: Option<Arc<AtomicBool>>) {
        self.cx.cancel = cancel;
    }

    /// Sets the function that is called when a wait for a lock takes long.
    pub fn set_wait_notice(&mut self, notice: Option<Arc<WaitNotice>>) {
        self.cx.wait_notice = notice;
    }

    /// Overrides the lock time-out. `None` means no limit.
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.cx.timeout = timeout;
    }

    /// Sets what the running statement does, from now on, if it opens a table for locks of rows
    /// (`LockMode::RowShare`) and another transaction has locked a partition of the table. A new statement
    /// waits again.
    pub fn set_when_held(&mut self, when_held: WhenHeld) {
        self.cx.when_held = when_held;
    }

    /// Waits until the stores of this thread to persistent memory are durable. The session calls it before
    /// another thread continues the transaction, because a fence there does not wait for these stores.
    #[inline]
    pub fn hand_over(&self) {
        if self.cx.stores.is_some() {
            self.cx.hand_over_stores();
        }
    }

    /// Begins a statement: takes a snapshot (under READ COMMITTED a new one each time), and marks the point
    /// for `rollback_statement`.
    #[inline]
    pub fn start_statement(&mut self) {
        self.assert_no_readers();
        self.cx.when_held = WhenHeld::Wait;
        self.cx.passed_by.clear();
        self.cx.take_snapshot();
        self.statement = self.cx.record_count;
        if self.cx.stores.is_some() {
            self.cx.mark_statement();
        }
        self.has_begun = true;
        self.bound = None;
    }

    /// Ends a statement. Under READ COMMITTED, an idle session then does not delay purge. The call is
    /// optional.
    pub fn end_statement(&mut self) {
        self.assert_no_readers();
        self.cx.drop_snapshot();
    }

    /// Checks that no reader exists, because a reader that outlives its statement may need versions that
    /// purge removes.
    fn assert_no_readers(&self) {
        let is_alone = self.readers.as_ref().is_none_or(|readers| Arc::strong_count(readers) == 1);
        assert!(is_alone || std::thread::panicking(), "a reader has outlived its statement");
    }

    /// Undoes everything since `start_statement`.
    pub fn rollback_statement(&mut self) -> Result<()> {
        let stores = self.cx.stores.as_ref().map(|work| work.statement.clone()).unwrap_or_default();
        self.undo_to(&UndoPoint { records: self.statement, stores })
    }

    /// Makes a savepoint.
    pub fn savepoint(&mut self) -> SavepointId {
        self.savepoints.push(Mark {
            point: self.undo_point(),
            shares: self.cx.shared.len(),
            locked: self.locked.len(),
            queued: self.cx.locks_held(),
        });
        SavepointId(self.savepoints.len() as u64 - 1)
    }

    /// Undoes everything since the savepoint. The savepoint stays, and later ones are removed. Locks that
    /// were taken since are released. Under SERIALIZABLE, the locks of reads stay.
    pub fn rollback_to(&mut self, savepoint: SavepointId) -> Result<()> {
        self.start_over(savepoint)?;
        let mark = &self.savepoints[savepoint.0 as usize];
        let is_held = self.locked.len() > mark.locked || self.cx.locks_held() > mark.queued;
        if is_held || self.cx.shared.len() > mark.shares {
            self.cx.give_back_shares(mark.shares);
            // Reads that ROLLBACK TO undoes still count as reads. A transaction that empties or drops a table
            // does not record the table's old rows. So the readers of the table exclude such a transaction
            // until they end.
            let keeps_weak = self.cx.isolation == Isolation::Serializable;
            let kept = if keeps_weak { self.locked.len() } else { mark.locked };
            self.cx.give_back_tables(self.locked.drain(kept..), mark.queued, keeps_weak);
            self.cx.release();
        }
        Ok(())
    }

    /// Does the same as `rollback_to`, but keeps the locks, for a statement that is repeated.
    pub fn start_over(&mut self, savepoint: SavepointId) -> Result<()> {
        self.assert_no_readers();
        let at = self.savepoint_at(savepoint)?;
        self.savepoints.truncate(at + 1);
        let point = self.savepoints[at].point.clone();
        self.undo_to(&point)
    }

    /// Removes a savepoint and later ones.
    pub fn release(&mut self, savepoint: SavepointId) -> Result<()> {
        let at = self.savepoint_at(savepoint)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    fn savepoint_at(&self, savepoint: SavepointId) -> Result<usize> {
        let at = savepoint.0 as usize;
        if at < self.savepoints.len() { Ok(at) } else { Err(Error::NoSuchSavepoint) }
    }

    /// Undoes the newest changes back to the point, including DDL. If that fails, the transaction can only be
    /// rolled back.
    pub(crate) fn undo_to(&mut self, point: &UndoPoint) -> Result<()> {
        let mark = point.records;
        let was_changed = self.cx.record_count > mark;
        let outcome = match self.cx.stores.is_some() {
            true => self.cx.undo_stores(&point.stores, mark).and_then(|()| self.undo_down_to(mark)),
            false => self.undo_down_to(mark),
        };
        self.cx.note_undone(outcome.clone());
        if was_changed {
            // Transactions that wait for a row that is free again need not wait for the end.
            self.cx.release();
        } else {
            self.cx.pass_on();
        }
        outcome
    }

    /// Returns the present point.
    pub(crate) fn undo_point(&self) -> UndoPoint {
        let stores = if self.cx.stores.is_some() { self.cx.store_marks() } else { StoreMarks::default() };
        UndoPoint { records: self.cx.record_count, stores }
    }

    fn undo_down_to(&mut self, mark: u64) -> Result<()> {
        while self.cx.record_count > mark {
            self.forget_changes(self.cx.record_count);
            let catalog = self.catalog();
            if !undo_newest(&mut self.cx, &|owner| PagedStore::of_tree(&catalog, owner))? {
                break;
            }
        }
        self.forget_changes(mark);
        Ok(())
    }

    fn forget_changes(&mut self, mark: u64) {
        let before = self.changes.len();
        self.changes.retain(|(at, _)| *at <= mark);
        self.made.retain(|(at, _)| *at <= mark);
        if self.changes.len() != before {
            self.own = None;
        }
        if let Some(work) = &mut self.cx.stores {
            work.forget_definitions(mark);
        }
    }

    /// Commits. When this returns `Ok`, the changes are durable and visible. The commit of a transaction that
    /// only reads writes nothing.
    pub fn commit(mut self) -> Result<()> {
        let outcome = match (self.cx.take_broken(), &self.cx.stores) {
            (Some(error), _) => self.undo_all().and(Err(error)),
            (None, None) => self.commit_pages(),
            (None, Some(_)) => self.commit_with_stores(),
        };
        self.finish();
        outcome
    }

    fn commit_pages(&mut self) -> Result<()> {
        match self.cx.record_count {
            0 => self.cx.end_identity().and_then(|()| self.cx.flush_noted()),
            _ => self.commit_changes(),
        }
    }

    /// The stores commit before the definitions of their tables do (`in_memory/transaction.rs`).
    #[cold]
    fn commit_with_stores(&mut self) -> Result<()> {
        let checked = self.cx.check_page_reads();
        // A row must not be durable before the reservation of a sequence value in it.
        let flushed = checked.and_then(|()| self.cx.flush_noted());
        if let Err(error) = flushed.and_then(|()| self.cx.commit_stores()) {
            return self.undo_all().and(Err(error));
        }
        self.commit_pages()?;
        self.cx.end_stores(true);
        Ok(())
    }

    fn commit_changes(&mut self) -> Result<()> {
        let core = Arc::clone(&self.cx.core);
        // From here on, other transactions may see the changes, so a panic in between must stop the database.
        let _watch = core.pager.stop_on_panic();
        let lsn = match self.cx.commit_checked() {
            Ok(lsn) => lsn,
            Err(error) => {
                self.undo_all()?;
                return Err(error);
            }
        };
        if !planted("commit: definitions are not waited for") || self.changes.is_empty() {
            core.pager.flush_log(lsn)?;
        }
        if !self.changes.is_empty() {
            let changes = std::mem::take(&mut self.changes);
            core.tell_storage(changes.iter().map(|(_, change)| change));
            core.catalog.publish(changes.into_iter().map(|(_, change)| change).collect());
        }
        core.counters.commits.fetch_add(1, Ordering::Relaxed);
        core.purge.kick();
        Ok(())
    }

    /// Rolls back. If a device is full, the rest is undone in the background when there is space. Until then
    /// the rows stay locked, and so do the tables whose definitions the transaction has changed, and DDL
    /// waits. The changes are never visible.
    pub fn rollback(mut self) -> Result<()> {
        let outcome = self.undo_all();
        self.finish();
        match outcome {
            Err(Error::Pager(PagerError::NoFreePage { .. })) => Ok(()),
            Err(Error::Pager(error)) if error.is_no_space() => Ok(()),
            outcome => outcome,
        }
    }

    fn undo_all(&mut self) -> Result<()> {
        planted_panic("panic at undo");
        if self.cx.record_count > 0 {
            self.cx.core.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
        }
        let start = UndoPoint { records: 0, stores: StoreMarks::default() };
        self.undo_to(&start).and_then(|()| self.cx.end_identity())
    }

    /// Ends the transaction. If the rollback failed, the transaction keeps its locks, and the background
    /// thread tries again.
    fn finish(&mut self) {
        self.assert_no_readers();
        if !std::mem::replace(&mut self.is_over, true) {
            self.cx.end_stores(false);
            match self.cx.take_unfinished() {
                Some(loser) => self.cx.core.losers.lock().push(loser),
                None => self.cx.leave(),
            }
        }
    }

    /// Returns whether the transaction has written anything.
    pub fn has_written(&self) -> bool {
        self.cx.record_count > 0 || self.cx.stores.as_ref().is_some_and(|work| !work.open.is_empty())
    }

    /// Returns the catalog as this transaction sees it: the newest committed catalog with the transaction's
    /// own DDL.
    pub fn catalog(&mut self) -> Arc<Catalog> {
        let current = self.cx.core.catalog.current_of(self.cx.database);
        if self.changes.is_empty() {
            return current;
        }
        if let Some((base, own)) = &self.own
            && Arc::ptr_eq(base, &current)
        {
            return Arc::clone(own);
        }
        let changes = self.changes.iter().map(|(_, change)| change.clone());
        let own = Arc::new(self.cx.core.catalog.derive(&current, changes));
        self.own = Some((current, Arc::clone(&own)));
        own
    }

    /// Returns the version of `catalog`, without building that catalog.
    #[inline]
    pub fn catalog_version(&mut self) -> u64 {
        if self.changes.is_empty() { self.cx.core.catalog.version() } else { self.catalog().version() }
    }

    /// Returns the tables, views, sequences and schemas that this transaction has made and not undone, in
    /// that order.
    pub fn made(&self) -> impl ExactSizeIterator<Item = ObjectId> + '_ {
        self.made.iter().map(|(_, id)| *id)
    }

    /// Returns whether the rows of the table are in a tree that this transaction has made since its last
    /// savepoint, because it has created, truncated or rewritten the table.
    pub fn has_new_tree(&self, table: &TableDef) -> bool {
        let mark = self.savepoints.last().map_or(0, |mark| mark.point.records);
        let before = self.changes.iter().rev().find_map(|(at, change)| match change {
            ObjectChange::Table(id, before) if *id == table.id && *at <= mark => Some(before.clone()),
            _ => None,
        });
        let before = before.map(|before| before.map(|before| before.def().place)).unwrap_or_else(|| {
            let committed = self.cx.core.catalog.current_of(self.cx.database);
            committed.table_by_id(table.id).map(|committed| committed.place)
        });
        before != Some(table.place)
    }

    /// Records a new object.
    pub(crate) fn note_made(&mut self, change: ObjectChange) {
        let id = match &change {
            ObjectChange::Schema(id, _) | ObjectChange::View(id, _) => Some(*id),
            ObjectChange::Table(id, _) => Some(ObjectId::from(*id)),
            ObjectChange::Sequence(id, _) => Some(ObjectId::from(*id)),
            ObjectChange::Database(..) | ObjectChange::Role(..) | ObjectChange::About(..) => None,
        };
        self.made.extend(id.map(|id| (self.cx.record_count, id)));
        self.note_change(change);
    }

    /// Records a change of the catalog.
    pub(crate) fn note_change(&mut self, change: ObjectChange) {
        self.changes.push((self.cx.record_count, change));
        self.own = None;
    }

    /// Opens a table for reading and writing, with a lock until the transaction ends, so DDL waits. The error
    /// is `StaleDefinition` if the definition is no longer the current one. It is 40001 under REPEATABLE READ
    /// if the table was rewritten (TRUNCATE, ADD PRIMARY KEY) after the snapshot.
    #[inline]
    pub fn table(&mut self, def: &TableDef) -> Result<Arc<Table>> {
        self.table_for(def, LockMode::RowExclusive)
    }

    /// Does the same as `table`, but with one of the first three modes: for reading rows, locking them, or
    /// changing them.
    #[inline]
    pub fn table_for(&mut self, def: &TableDef, mode: LockMode) -> Result<Arc<Table>> {
        self.open_table(def, mode, Extent::Whole)
    }

    /// Does the same as `table_for`, with one difference. If a table is spread over partitions, each
    /// partition is locked only when a call of this transaction first reads or changes a row there. The
    /// caller makes no reader of the table.
    #[inline]
    pub fn table_by_rows(&mut self, def: &TableDef, mode: LockMode) -> Result<Arc<Table>> {
        self.open_table(def, mode, Extent::Rows)
    }

    #[inline]
    fn open_table(&mut self, def: &TableDef, mode: LockMode, extent: Extent) -> Result<Arc<Table>> {
        let table = def.handle.get().and_then(Weak::upgrade).ok_or_else(|| stale(def))?;
        if !self.has_locked(def.id, mode) {
            if table.lock.lock_weak(mode, self.cx.waiting())? {
                // The statement has not read the table yet, so it sees the changes of the transaction that it
                // waited for.
                self.cx.renew_snapshot();
            }
            if !table.stored.is_empty() {
                self.cx.refuse_past_of(def)?;
            }
            self.locked.push((def.id, mode));
        }
        if !table.stored.is_empty() {
            self.reach_stored(&table, mode, extent)?;
        }
        if table.is_retired() || (!self.changes.is_empty() && !self.is_own(&table)) {
            return Err(stale(def));
        }
        if let Some(creator) = table.creator {
            self.cx.refuse_before(creator, def)?;
        }
        match table.rewriter {
            Some(rewriter) => self.cx.renew_unless_seen(rewriter).map(|()| table),
            None => Ok(table),
        }
    }

    /// Locks the partitions that have rows of a table.
    fn reach_stored(&mut self, table: &Table, mode: LockMode, extent: Extent) -> Result<()> {
        // If a table is in several partitions, they may be locked later, or were locked before.
        let tables = match extent {
            Extent::Rows if table.stored.len() > 1 => &[][..],
            _ => &table.stored,
        };
        tables.iter().try_for_each(|at| match mode {
            LockMode::RowShare => self.cx.reach_partition(at.partition),
            _ => self.cx.lock_partition(at.partition),
        })
    }

    #[inline]
    pub(crate) fn has_locked(&self, table: TableId, mode: LockMode) -> bool {
        self.locked.iter().any(|(id, has)| *id == table && *has >= mode)
    }

    /// Returns whether this is the table in the transaction's own catalog.
    fn is_own(&mut self, table: &Arc<Table>) -> bool {
        let catalog = self.catalog();
        catalog.open_table(table.def().id).is_some_and(|own| Arc::ptr_eq(own, table))
    }

    /// Passes the visible row with this primary key to `found`. Returns false if there is none.
    #[inline]
    pub fn get(&mut self, table: &Table, key: &[u8], found: &mut dyn FnMut(RowRef<'_>)) -> Result<bool> {
        table.counters.get(ScanIndex::Primary, || table.store.get(&mut self.cx, key, found))
    }

    /// Finds the visible row that has exactly this key in the unique index `index`. The key has all columns,
    /// and none is NULL. The closure gets the primary key and the row.
    pub fn get_by_unique(
        &mut self,
        table: &Table,
        index: IndexId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool> {
        let by = ScanIndex::Secondary(index);
        table.counters.get(by, || table.store.get_by_unique(&mut self.cx, index, key, found))
    }

    /// Passes the visible rows within bounds to the closure, in order, until the closure breaks.
    pub fn scan(&mut self, table: &Table, spec: &ScanSpec<'_>, on_row: &mut OnRow<'_>) -> Result<()> {
        let continues = self.cx.continues(spec);
        table.counters.scan(spec, continues, on_row, |on_row| table.store.scan(&mut self.cx, spec, on_row))
    }

    /// Returns the position in `index` of the row at which the closure ended the last scan. A scan continues
    /// after this row if its lower bound excludes the position.
    pub fn place(&self, index: ScanIndex) -> &[u8] {
        self.cx.place(index)
    }

    /// Inserts a row, which has a datum of the right type for every column.
    pub fn insert(&mut self, table: &Table, row: &[Datum<'_>]) -> Result<()> {
        table.counters.insert(|| table.store.insert(&mut self.cx, row))
    }

    /// Changes, deletes or locks the newest version of a row. Under READ COMMITTED, the closure sees the
    /// newest committed (or own) version, and is called again after a wait. Under REPEATABLE READ, the error
    /// is 40001 if that version is newer than the snapshot. The closure is called under the row's latch, and
    /// must not call the database.
    pub fn modify(
        &mut self,
        table: &Table,
        key: &[u8],
        decide: &mut dyn FnMut(RowRef<'_>) -> Result<Change>,
    ) -> Result<Outcome> {
        table.counters.modify(decide, |decide| table.store.modify(&mut self.cx, key, decide))
    }

    /// Begins a statement that deletes many rows of a table and inserts none in it. Marks of index entries
    /// are collected and set together, at the latest in `end_deletes`. Until then, this transaction must not
    /// use the table for anything else.
    pub fn begin_deletes(&mut self, table: &Table) {
        table.store.begin_deletes(&mut self.cx);
    }

    /// Deletes the first of the rows with these keys, between `begin_deletes` and `end_deletes`, as `modify`
    /// would. It deletes those that are on one page and need no waiting, perhaps none. The caller passes the
    /// next row to `modify`, and may then begin another run. The closure says whether a row is deleted.
    /// `None` means that `modify` must decide about the row.
    pub fn delete_run(
        &mut self,
        table: &Table,
        keys: &mut dyn Iterator<Item = &[u8]>,
        decide: &mut crate::table_engine::Decide<'_>,
    ) -> Result<crate::table_engine::Run> {
        let run = table.store.delete_run(&mut self.cx, keys, decide)?;
        table.counters.deleted(run.deleted);
        Ok(run)
    }

    /// Ends the statement. The caller calls it even if the statement failed.
    pub fn end_deletes(&mut self, table: &Table) -> Result<()> {
        table.store.end_deletes(&mut self.cx)
    }

    /// Takes the next value of a sequence. No value is returned twice, and a rollback does not return it.
    pub fn next_value(&mut self, sequence: SequenceId) -> Result<i64> {
        self.with_sequence(sequence, sequence::next_value)
    }

    /// Calls `step` with the values of a sequence. Waits for a transaction that has replaced them.
    fn with_sequence<T>(
        &mut self,
        sequence: SequenceId,
        mut step: impl FnMut(&mut SequenceRange, &Core, &SequenceDef) -> Result<T>,
    ) -> Result<T> {
        let mut def = self.sequence(sequence)?;
        loop {
            let range = self.cx.core.catalog.range_of(&def);
            let mut range = range.lock();
            let outcome = step(&mut range, &self.cx.core, &def);
            let Err(Error::Undefined { .. }) = outcome else {
                self.cx.wait_at_commit(range.reserved_at());
                return outcome;
            };
            drop(range);
            self.hold(sequence.into())?;
            let now = self.sequence(sequence)?;
            if now.state == def.state {
                return outcome;
            }
            def = now;
        }
    }

    /// Does what `setval(sequence, value, called)` does: the next value is `value`, or the one after it if
    /// `called` is set. A rollback does not undo it.
    pub fn set_value(&mut self, sequence: SequenceId, value: i64, called: bool) -> Result<()> {
        self.with_sequence(sequence, |range, core, def| {
            sequence::set_value(range, core, def, LastValue { value, is_called: called })
        })
    }

    /// Makes the commit wait until the values that were taken are durable.
    pub fn note_drawn(&mut self, drawer: &SequenceDrawer) {
        self.cx.wait_at_commit(drawer.durable_by());
    }

    /// Returns the state of a sequence.
    pub fn sequence_state(&mut self, sequence: SequenceId) -> Result<SequenceState> {
        let def = self.sequence(sequence)?;
        let range = self.cx.core.catalog.range_of(&def);
        let range = range.lock();
        sequence::state(&range, &self.cx.core, &def)
    }

    fn sequence(&mut self, id: SequenceId) -> Result<Arc<SequenceDef>> {
        let missing = || Error::Undefined { kind: ObjectKind::Sequence, name: format!("with id {}", id.0) };
        self.catalog().sequence_by_id(id).ok_or_else(missing)
    }
}

fn stale(def: &TableDef) -> Error {
    Error::StaleDefinition { table: def.name.clone() }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_over {
            // After a panic during a rollback or a commit, another attempt would panic again, and two panics
            // end the process. So the changes are undone in the background.
            if std::thread::panicking() {
                return self.finish();
            }
            // If this fails, the rows stay locked until a full device has space again. If the log has
            // stopped, they stay locked until the next start.
            let _ = self.undo_all();
            self.finish();
        }
    }
}
