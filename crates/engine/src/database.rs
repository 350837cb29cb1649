//! An open database.
//!
//! Invariants
//! 1. Background threads have a reference to the core, not to the `Database`. So they end when the last
//!    handle and the last transaction are dropped.
//!
//! This module does not know SQL, sockets or configuration files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use varve_memory::TablesRegion;
use varve_pager::{Archiver, PageId, Pager, PagerConfig, PagerStats};

use crate::background::{ARCHIVE_ENDS_MAX, BackgroundThreads};
use crate::catalog::{IndexId, ObjectId, POSTGRES, SequenceDef, SequenceState, TableDef, TableId};
use crate::check::{self, CheckReport};
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::io::{Accounts, DeviceRow, DeviceTrace, IoRow};
use crate::options::Options;
use crate::paged::PAGED;
use crate::partitions::PartitionSpace;
use crate::quota::TemporaryQuota;
use crate::redo::EngineRedo;
use crate::row_access::Isolation;
use crate::sequence::{self, SequenceDrawer};
use crate::sizes::{Savings, Sizes};
use crate::spool::Spool;
use crate::table_counters::TableAccesses;
use crate::transaction::Transaction;
use crate::{purge, recovery, tables_region};

/// An open database.
pub struct Database {
    pub(crate) core: Arc<Core>,
    accounts: Accounts,
    lock_timeout: Option<Duration>,
    threads: Arc<BackgroundThreads>,
    /// Archives the log, if there is an archive.
    archiver: Option<Arc<Archiver>>,
}

/// Counters of an open database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseStats {
    /// Transactions with writes that were committed since the start.
    pub commits: u64,
    /// Transactions with writes that were rolled back.
    pub rollbacks: u64,
    /// Times a transaction waited for a lock.
    pub lock_waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Undo records purged.
    pub purged_records: u64,
    /// Committed transactions whose undo still waits for purge.
    pub purge_backlog: u64,
    /// Transactions that are still being undone after a crash.
    pub losers: u64,
    /// The pager's counters.
    pub pager: PagerStats,
}

impl Database {
    /// Creates, opens or recovers a database.
    pub fn open(options: Options) -> Result<Arc<Database>> {
        let temporary = Arc::clone(&options.pager.temporary);
        let accounts = Accounts::of(&options.pager);
        let memory = options.memory.as_ref();
        tables_region::prepare(memory, &options.pager)?;
        let (limit_bytes, derive) = (options.rollback_limit_bytes, &options.derive);
        let pager = PagerConfig { archives: options.archive.is_some(), ..options.pager };
        let core = Pager::open_and(pager, Arc::new(EngineRedo), |pager| {
            let core = recovery::open(pager, temporary.clone(), limit_bytes, derive.clone())?;
            tables_region::open(&core, memory)?;
            Ok::<_, Error>(core)
        })?;
        let threads = Arc::new(BackgroundThreads::new(Arc::clone(core.purge.bell())));
        accounts.add(&core.pager.tablespace_directories());
        let archiver = options.archive.map(|archive| Archiver::begin(&core.pager, archive)).transpose()?;
        let (lock_timeout, archiver) = (options.lock_timeout, archiver.map(Arc::new));
        let database = Database { core, accounts, lock_timeout, threads, archiver };
        if options.background {
            database.start_threads()?;
        } else {
            recovery::undo_losers(&database.core)?;
        }
        Ok(Arc::new(database))
    }

    fn start_threads(&self) -> Result<()> {
        let core = Arc::clone(&self.core);
        self.threads.spawn("varve-purge", move || purge::run(&core))?;
        let (core, bell) = (Arc::clone(&self.core), Arc::clone(self.threads.recovery_bell()));
        self.threads.spawn("varve-rollback", move || recovery::run(&core, &bell))?;
        let Some(archiver) = self.archiver.clone() else { return Ok(()) };
        let bell = Arc::clone(self.threads.archive_bell());
        self.threads.spawn_archive(move || {
            while bell.wait(archiver.pause()) {
                archiver.archive_if_due();
            }
        })
    }

    /// Returns the archiver of the log, if the log is archived.
    pub fn archiver(&self) -> Option<&Archiver> {
        self.archiver.as_deref()
    }

    /// Counts the I/O of new tablespaces, too.
    pub(crate) fn count_tablespaces(&self) {
        self.accounts.add(&self.core.pager.tablespace_directories());
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns the state of a sequence.
    pub fn sequence_state(&self, sequence: &SequenceDef) -> Result<SequenceState> {
        let range = self.core.catalog.range_of(sequence);
        let range = range.lock();
        sequence::state(&range, &self.core, sequence)
    }

    /// Returns an object that takes values of sequences while a transaction is in use.
    pub fn sequence_drawer(&self) -> SequenceDrawer {
        SequenceDrawer::new(Arc::clone(&self.core))
    }

    /// Begins a transaction that uses the names of `postgres`.
    #[inline]
    pub fn begin(self: &Arc<Self>, isolation: Isolation) -> Transaction {
        self.begin_in(POSTGRES, isolation)
    }

    /// Begins a transaction that uses the names of this database.
    #[inline]
    pub fn begin_in(self: &Arc<Self>, database: ObjectId, isolation: Isolation) -> Transaction {
        let cx = Context::new(Arc::clone(&self.core), isolation, self.lock_timeout);
        Transaction::new(cx, Arc::clone(&self.threads), database)
    }

    /// Returns an empty list of rows, which is written to a temporary file if it becomes large. `quota`
    /// limits the file.
    pub fn spool(&self, quota: Arc<TemporaryQuota>) -> Spool {
        Spool::new(&self.core.temporary, quota)
    }

    /// Does the background work (rollback of losers, purge) in the caller's thread.
    pub fn tick(&self) -> Result<()> {
        recovery::undo_losers(&self.core)?;
        purge::purge(&self.core)
    }

    /// Checks every page, tree, row and index, and that every allocated page is reachable. No other thread
    /// may use the database meanwhile.
    pub fn check(&self) -> Result<CheckReport> {
        check::check(&self.core)
    }

    /// Makes all dirty pages stable, and stores a checkpoint.
    pub fn checkpoint_all(&self) -> Result<()> {
        Ok(self.core.pager.checkpoint_all()?)
    }

    /// Stores a checkpoint of the pager.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.core.pager.checkpoint()?)
    }

    /// Returns the table to which a page belongs. If the page is in an index, the name of the index is
    /// returned, too. No page is read.
    pub fn table_of_page(&self, page: PageId) -> Option<(Arc<TableDef>, Option<String>)> {
        self.core.catalog.current().table_of_segment(self.core.pager.owner_of(page)?)
    }

    /// Returns the region with the tables of the memory-oriented engines, if there is one.
    pub fn tables_region(&self) -> Option<&TablesRegion> {
        self.core.memory.get()
    }

    /// Returns the space that each partition of the memory-oriented engines takes in the region. The first
    /// call after a start may read bitmaps.
    pub fn partition_space(&self) -> Result<Vec<PartitionSpace>> {
        self.core.partitions.space()
    }

    /// Checks that the next start would accept a region for tables with this number of bytes and partitions.
    /// `None` means that the next start has no region.
    ///
    /// Fails if there are tables and the region has another form.
    pub fn check_next_tables(&self, next: Option<(u64, u16)>) -> Result<()> {
        tables_region::check_next(&self.core, next)
    }

    /// Returns warnings for the user at a start, for example if durability depends on the settings of a
    /// device.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.core.pager.warnings();
        warnings.extend(self.tables_region().and_then(TablesRegion::warning));
        if self.archiver.is_some() {
            let catalog = self.core.catalog.current();
            let outside = catalog.all_tables().filter(|def| def.engine != PAGED);
            warnings.extend(outside.map(|def| {
                format!(
                    "the log is archived, but it does not have the rows of table \"{}\", which engine {} stores: a restore \
                     does not have them, and backups are refused",
                    def.name, def.engine
                )
            }));
        }
        let unusable = self.core.partitions.all_unusable();
        warnings.extend(unusable.map(|error| format!("{error}. {}", error.hint().unwrap_or_default())));
        warnings
    }

    /// Returns the pager, for tools and tests.
    pub fn pager(&self) -> &Pager {
        &self.core.pager
    }

    /// Returns how many bytes were read from and written to the devices since the database was opened, by
    /// space and purpose.
    pub fn io(&self) -> Vec<IoRow> {
        self.accounts.rows(|id| self.tablespace(id).map(|one| one.name))
    }

    /// Records single requests to the devices from now on, at most `entries_max` for each device. Another
    /// number than before begins a new trace, and 0 ends it.
    pub fn set_io_trace(&self, entries_max: usize) {
        self.accounts.set_trace(entries_max);
    }

    /// Returns the recorded requests of each device.
    pub fn io_traces(&self) -> Vec<DeviceTrace> {
        self.accounts.traces()
    }

    /// Returns the traffic of each device.
    pub fn devices(&self) -> Vec<DeviceRow> {
        self.accounts.devices()
    }

    /// Begins or ends the recording of the devices' latencies.
    pub fn set_io_latencies(&self, is_on: bool) {
        self.accounts.set_timed(is_on);
    }

    /// Forgets the latencies that were recorded.
    pub fn reset_io_latencies(&self) {
        self.accounts.clear_latencies();
    }

    /// Sets the bytes that devices may write in their life, by the location of the device.
    pub fn set_rated_bytes(&self, rated_bytes: Vec<(String, u64)>) {
        self.accounts.set_rated(rated_bytes);
    }

    /// Returns the number of requests that did not fit in the traces.
    pub fn io_trace_dropped_count(&self) -> u64 {
        self.accounts.trace_dropped_count()
    }

    /// Returns the sizes of the database and of its trees.
    pub fn sizes(&self) -> Result<Sizes> {
        Sizes::read(&self.core.pager)
    }

    /// Returns how tables are stored, and how much space compression saves.
    pub fn savings(&self) -> Result<Savings> {
        Savings::read(&self.core.pager)
    }

    /// Returns the accesses to a table since the database was opened, or since `reset_accesses`.
    pub fn table_accesses(&self, table: TableId) -> TableAccesses {
        self.core.accesses.table(table)
    }

    /// Returns the accesses to a secondary index.
    pub fn index_accesses(&self, index: IndexId) -> TableAccesses {
        self.core.accesses.index(index)
    }

    /// Sets the counters of all tables and indexes to zero.
    pub fn reset_accesses(&self) {
        self.core.accesses.clear();
    }

    /// Returns the counters of the database.
    pub fn stats(&self) -> DatabaseStats {
        let core = &self.core;
        DatabaseStats {
            commits: core.counters.commits.load(Ordering::Relaxed),
            rollbacks: core.counters.rollbacks.load(Ordering::Relaxed),
            lock_waits: core.waits.wait_count.load(Ordering::Relaxed),
            deadlocks: core.waits.deadlock_count.load(Ordering::Relaxed),
            purged_records: core.purge.purged_count.load(Ordering::Relaxed),
            purge_backlog: core.purge.backlog() as u64,
            losers: core.losers.lock().len() as u64,
            pager: core.pager.stats(),
        }
    }

    /// Archives the rest of the log. A store that hangs does not stop a shutdown: after `limit` the log that
    /// is not archived stays where it is. A failure is in the messages of the archiver.
    fn archive_rest(&self, limit: Instant) {
        let Some(archiver) = self.archiver.clone().filter(|archiver| !archiver.has_given_up()) else {
            return;
        };
        let of_thread = Arc::clone(&archiver);
        let is_done = self.threads.archive_ends_until(limit)
            && self.threads.spawn_archive(move || drop(of_thread.archive())).is_ok()
            && self.threads.archive_ends_until(limit);
        if !is_done {
            archiver.give_up("it does not answer, so the server stops without it; the log is kept");
        }
    }

    /// Shuts down: stops the threads, writes all pages, and records a clean shutdown. All transactions must
    /// have ended. If a device is full, nothing is lost, and the function can be called again. Then a
    /// sequence may have a gap, if there is no space to store its unused values.
    pub fn shutdown(&self) -> Result<()> {
        self.threads.stop();
        let given_back = sequence::give_back_all(&self.core);
        if let Some(region) = self.tables_region() {
            region.settle()?;
        }
        let limit = Instant::now() + ARCHIVE_ENDS_MAX;
        self.archive_rest(limit);
        self.core.pager.shutdown()?;
        self.archive_rest(limit);
        match given_back {
            Err(Error::Pager(error)) if error.is_no_space() => Ok(()),
            given_back => given_back,
        }
    }
}
