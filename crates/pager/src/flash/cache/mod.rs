//! The flash cache as a level: its parts, and changes of its design. The design is the policy that says which
//! pages the cache takes. A *slot* is the space for one page on flash.
//!
//! | part | what it holds |
//! |---|---|
//! | `slots` | the slot table and the clock of accesses |
//! | `drive` | the file, the queue of writes, the requests in progress |
//! | `policy` | the design in force, and the statistics of pages that it uses |
//! | `kept_back` | whether dirty pages may stay on flash now, and how many |
//! | `transit` | pages that are being cleaned, or read together with a neighbour |
//! | `records` | records of the slots for the next start |
//! | `life`, `trouble` | the state of the cache, and the errors of its device |
//! | `around` | the level below, the dirty-page table, the log |
//! | `counters` | counters |
//!
//! Invariants
//! 1. A page on flash is the newest version below the pool and persistent memory. Its slot is freed before a
//!    newer version is written to the data files or to a level above, even if no caller reported the change.
//! 2. A slot is dirty if the data files may lack its page. Then the dirty-page table has the page, so redo
//!    makes the data files whole if flash is lost. The slot stays until the data files have the page, or the
//!    page changes in the pool. Any other slot may be freed at any time. If such a slot can't be read, or has
//!    another page than the table says, the page is read from the data files.
//! 3. A thread that evicts a page never waits for a write to flash while it holds a lock. Pages are queued,
//!    and threads of the cache write them. Without such threads the caller writes them at once. There are two
//!    exceptions. If changed pages are to stay on flash only, their put waits a while for space in the queue,
//!    because writing them to the data files would take longer. The put also cleans if too many slots are
//!    dirty (`admission.rs`). A record of memory-mapped restart is written before the thread continues
//!    (`flash/restart/keeping.rs`).
//! 4. An error of the device ends the cache, and never loses the database's data (`trouble.rs`).
//! 5. One thread at a time cleans a page. A thread that puts or discards a newer version waits for it
//!    (`cleaning.rs`).
//!
//! Locks are taken in this order: frame latches and the lock of the pool's replacement, a partition, the
//! queue, the temperatures, the set of pages being cleaned, scans. No lock is held during I/O, with two
//! exceptions: the gate, which threads that put pages share, and a partition whose memory-mapped records are
//! written.
//!
//! This module does not know frames of the pool, or how the data files store pages.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::MutexGuard;
use varve_device::{planted, reached};

use super::config::{FlashConfig, FlashRestart};
use super::table::Partition;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::refuse::beyond_device;
use crate::flash::cache::counters::Counters;
use crate::flash::cache::transit::Transit;
use crate::flash::cache::trouble::Trouble;
use crate::flash::io::drive::Drive;
use crate::flash::io::store::{Marks, OpenStore, Seal, Store, Whose};
use crate::flash::io::writes::Writes;
use crate::flash::policy::chosen::Policy;
use crate::flash::policy::daily_writes::{Budget, Clock};
use crate::flash::policy::design::FlashDesign;
use crate::flash::policy::throttle::Throttle;
use crate::flash::restart::mirror::Keeping;
use crate::flash::restart::records::Records;
use crate::flash::restart::rounds::Hardening;
use crate::flash::table::shape::Shape;
use crate::flash::table::slots::Slots;
use crate::level::ledger::Ledger;
use crate::level::{Cause, DiscardHold, Level, LevelReport, Need, Run, Step, summed};
use crate::log::WriteAhead;

pub(crate) mod admission;
pub(crate) mod cleaning;
pub(crate) mod counters;
pub(crate) mod filling;
mod kept_back;
pub(crate) mod life;
pub(crate) mod reading;
pub(crate) mod report;
pub(crate) mod resizing;
pub(crate) mod transit;
pub(crate) mod trouble;
pub(crate) mod underway;
pub(crate) mod watched;

use kept_back::KeptBack;
use life::{Event, Life, State};

/// The name of a planted fault: slots with older versions of changed pages are not freed.
pub(super) const OLDER_STAY: &str = "flash: older copies stay";

/// The flash cache as a level. The table in the header of this file describes the parts.
pub(crate) struct FlashCache {
    pub(super) slots: Slots,
    pub(super) drive: Drive,
    pub(super) policy: Policy,
    kept_back: KeptBack,
    pub(super) transit: Transit,
    pub(super) records: Records,
    pub(super) life: Life,
    pub(super) trouble: Trouble,
    pub(super) around: Surroundings,
    pub(super) counters: Counters,
}

/// The opened cache, or a warning which says why there is none.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) cache: Option<Arc<FlashCache>>,
    pub(crate) warning: Option<String>,
}

/// The parts of the pager that the cache works with.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// Whether the pager has threads that write queued pages and clean slots.
    pub(crate) has_threads: bool,
    /// Whether persistent memory is above the cache. If so, the data files may have older versions, and the
    /// dirty-page table no longer has the pages that persistent memory puts.
    pub(crate) is_below_nvm: bool,
    /// The level below: the data files.
    pub(crate) below: Arc<dyn Level>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) log: Arc<dyn WriteAhead>,
}

/// The database to which a cache belongs.
pub(crate) struct Owner {
    /// Id of the database.
    pub(crate) database: u64,
    pub(crate) page_size: usize,
    /// The clock for the daily limit of writes.
    pub(crate) clock: Clock,
}

/// A partition, locked.
pub(super) struct Table<'c> {
    table: MutexGuard<'c, Partition>,
    cache: &'c FlashCache,
    /// The number of the partition.
    pub(super) partition: usize,
}

impl Deref for Table<'_> {
    type Target = Partition;

    fn deref(&self) -> &Partition {
        &self.table
    }
}

impl DerefMut for Table<'_> {
    fn deref_mut(&mut self) -> &mut Partition {
        &mut self.table
    }
}

impl Drop for Table<'_> {
    /// Under memory-mapped and log-based restart, writes the records of changed slots before the lock of the
    /// partition is released. So no other thread sees a slot that is newer than its record.
    fn drop(&mut self) {
        let touched = self.table.take_touched();
        if !touched.is_empty() {
            self.cache.keep_records(self.partition, &self.table, &touched);
        }
    }
}

pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl FlashCache {
    /// Opens an empty cache. [`begin`](Self::begin) adds the pages of an earlier start. An error of its
    /// device is only a warning, and the database works without the cache.
    pub(crate) fn open(config: &FlashConfig, owner: Owner, around: Surroundings) -> Opened {
        let Owner { database, page_size, clock } = owner;
        let shape = Shape::of(config.slots(page_size));
        let (marks, seal) = (Marks::default(), Seal::default());
        let how = config.settings.restart as u8;
        let whose = Whose { database, page_size, slots: shape.slots(), how, epoch: 0, marks, seal };
        let throttle = Throttle::new(config.pending_max, clock.clone());
        let budget = Budget::new(config.settings.daily_write_bytes, clock);
        match Store::open(&*config.directory, whose, budget) {
            Ok(OpenStore { store, whose, earlier, seal }) => {
                let records = Records {
                    scheme: config.settings.restart,
                    hardening: Hardening::new(whose, earlier, seal, store.table_blocks()),
                    keeping: Keeping::new(config.settings.restart, store.table_blocks()),
                };
                let (directory, writes) = (config.directory.clone(), Writes::new(config.queued_max));
                let cache = FlashCache {
                    slots: Slots::new(shape, config.settings.design.order(), config.settings.clean_order),
                    drive: Drive { directory, store, writes, throttle },
                    policy: Policy::new(&config.settings),
                    kept_back: KeptBack::new(config.settings.dirty_percent),
                    transit: Transit::default(),
                    records,
                    life: Life::default(),
                    trouble: Trouble::default(),
                    around,
                    counters: Counters::default(),
                };
                Opened { cache: Some(Arc::new(cache)), warning: None }
            }
            Err(cause) => {
                reached("flash: there is no cache");
                Opened { cache: None, warning: Some(without_cache(config, &cause)) }
            }
        }
    }

    /// Returns the design in force.
    pub(crate) fn design(&self) -> FlashDesign {
        self.policy.design()
    }

    /// Changes the design. Cached pages stay valid under every design except `Off`, under which changes of
    /// pages are not reported to the cache. If the old design keeps dirty pages on flash and the new one does
    /// not, all dirty pages are first written to the data files. If these are full, the design stays.
    pub(crate) fn set_design(&self, design: FlashDesign) -> Result<()> {
        let _one_at_a_time = self.policy.switching.lock();
        let drains = (self.policy.design().is_lazy() || self.has_dirty()) && !design.is_lazy();
        if drains {
            self.drain_dirty()?;
        }
        let _nobody_takes = self.policy.gate.write();
        if !self.policy.design().is_on() || !design.is_on() {
            self.forget_all();
        }
        self.policy.set_design(design);
        self.tables().for_each(|mut table| table.reorder(design.order(), self.policy.clean_order));
        self.end_draining();
        Ok(())
    }

    /// Writes all dirty pages to the data files. Until [`end_draining`](Self::end_draining), no changed page
    /// is kept on flash only. If the write is refused, changed pages may still be kept there.
    pub(super) fn drain_dirty(&self) -> Result<()> {
        {
            let _nobody_takes = self.policy.gate.write();
            self.kept_back.set_draining(true);
        }
        self.clean_all().inspect_err(|_| self.end_draining())
    }

    /// Ends [`drain_dirty`](Self::drain_dirty). From now on, the design may again keep changed pages on flash
    /// only.
    pub(super) fn end_draining(&self) {
        self.kept_back.set_draining(false);
    }

    /// Sets the limit of dirty slots, in percent of all slots.
    pub(crate) fn set_dirty_percent(&self, percent: u8) {
        self.kept_back.set_percent(percent);
        self.transit.cleaning.ring();
    }

    /// Returns the largest percentage of slots that may be dirty.
    pub(crate) fn dirty_percent(&self) -> u8 {
        self.kept_back.percent()
    }

    /// Returns the largest number of dirty slots of a partition.
    pub(super) fn dirty_most(&self) -> u64 {
        u64::from(self.slots.shape.partition_slots()) * u64::from(self.dirty_percent()) / 100
    }

    /// Sets how many bytes a day may be written to the drive. `None` means no limit.
    pub(crate) fn set_daily_writes(&self, bytes: Option<u64>) {
        self.drive.store.budget.set(bytes);
    }

    /// Begins (`keeps_none`) or ends a time in which no new dirty pages are kept on flash only.
    pub(crate) fn keep_none_back(&self, keeps_none: bool) {
        self.kept_back.count_sharp_checkpoint(keeps_none);
    }

    /// Returns whether dirty pages stay on flash, and are written to the data files later. Below persistent
    /// memory they do not, because persistent memory and the dirty-page table forget a page after its put.
    pub(super) fn keeps_back(&self) -> bool {
        let is_leaving = self.life.state() == State::Leaving;
        let design = self.policy.design();
        let is_meant = design.is_lazy() || is_leaving && design.may_end_dirty();
        is_meant && !self.around.is_below_nvm && !self.kept_back.is_pausing() && !self.is_failing()
    }

    /// From now on threads write queued pages. This begins after redo and the other steps of a start.
    pub(crate) fn threads_begin(&self) {
        self.life.on(Event::ThreadsBegin);
    }

    /// Returns whether threads write queued pages. When a shutdown leaves pages in the cache, they don't.
    pub(super) fn threads_run(&self) -> bool {
        match self.life.state() {
            State::Serving => true,
            State::Leaving => self.around.has_threads && !self.stays_dirty(),
            State::Failing | State::Lost => self.around.has_threads,
            State::Opened | State::Restoring | State::Open | State::FailingInRedo | State::LostInRedo => {
                false
            }
        }
    }

    /// Returns whether records of the slots are kept. They are not kept below persistent memory, because redo
    /// does not learn there which pages are newer than in the data files.
    pub(crate) fn keeps_records(&self) -> bool {
        self.records.scheme != FlashRestart::None && !self.around.is_below_nvm
    }

    /// Is called by a shutdown. From now on, changed pages that only flash has stay there, if the next start
    /// can use them. `may_seal` means that the next start then needs no redo. This makes it worthwhile also
    /// for designs that did not keep changed pages before. Returns whether the pages stay.
    pub(crate) fn stay_dirty(&self, may_seal: bool) -> bool {
        let is_meant = self.policy.design().is_lazy() || may_seal && self.may_be_sealed();
        let may = is_meant && self.keeps_records() && self.is_on() && self.records.hardening.is_on();
        if may {
            self.life.on(Event::LeavePages);
        }
        // The decision is made only once, here, even if a checkpoint ends meanwhile that had forbidden to
        // keep pages.
        let stays = may && self.keeps_back();
        if !stays {
            self.stay_no_more();
        }
        stays
    }

    /// Ends [`stay_dirty`](Self::stay_dirty), because the shutdown was refused, or can't leave pages on
    /// flash.
    pub(crate) fn stay_no_more(&self) {
        self.life.on(Event::KeepRunning { has_threads: self.around.has_threads });
    }

    /// Returns whether a shutdown is leaving changed pages on flash now.
    pub(super) fn stays_dirty(&self) -> bool {
        self.life.state() == State::Leaving && self.keeps_back() && self.is_on()
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> u32 {
        self.slots.shape.slots()
    }

    pub(super) fn is_on(&self) -> bool {
        self.policy.design().is_on() && !self.is_lost()
    }

    /// Locks the partition of the page. The partition of the page does not change while it is locked.
    pub(super) fn table_of(&self, id: PageId) -> Table<'_> {
        loop {
            let table = self.table(self.slots.partition_of(id));
            // The number of partitions changes only while all of them are locked. If it has changed while
            // this thread waited for the lock, the page may belong to another partition now.
            if table.partition == self.slots.partition_of(id) {
                return table;
            }
        }
    }

    /// Locks the partition with this number.
    pub(super) fn table(&self, partition: usize) -> Table<'_> {
        Table { table: self.slots.lock(partition), cache: self, partition }
    }

    /// Locks all partitions, one after the other.
    pub(super) fn tables(&self) -> impl Iterator<Item = Table<'_>> {
        (0..self.slots.partitions()).map(|partition| self.table(partition))
    }

    pub(super) fn forget_all(&self) {
        self.policy.scans.forget(|_| true);
        let each = self.tables().map(|mut table| table.remove_all(|_| true));
        self.counters.invalidated.fetch_add(each.sum(), Relaxed);
    }

    /// Returns whether nothing is read, written, cleaned or queued.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.drive.writes.pending() == 0 && self.tables().all(|table| table.is_at_rest())
    }
}

/// Returns the warning of a start that does not use the cache.
fn without_cache(config: &FlashConfig, cause: &PagerError) -> String {
    match cause.is_no_space() {
        true => format!(
            "{}; starting without the cache. Lower [flash] size, or name a larger device in [flash]",
            beyond_device("flash.size", config.settings.size_bytes, &*config.directory)
        ),
        false => format!("there is no flash cache: {cause}"),
    }
}

impl Level for FlashCache {
    fn read(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()> {
        if !self.is_on() && !self.has_lost_dirty(runs) {
            return self.around.below.read(runs, why);
        }
        self.read_runs(runs, why)?;
        self.counters.kinds.count(runs);
        if self.is_on() {
            self.look_at_what_was_read(runs, why);
        }
        Ok(())
    }

    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        if !self.is_on() {
            // The cache may have been lost, or switched off, a moment ago. Then an older version of a page
            // may still be in a slot, or on its way to the data files.
            batch.iter().for_each(|image| self.give_up_older(image));
            return self.around.below.put(batch, cause, need);
        }
        let gate = self.policy.gate.read();
        self.put_some(batch, cause, need)?;
        drop(gate);
        if self.around.has_threads {
            return Ok(());
        }
        if self.records.hardening.is_turn() {
            self.harden_some();
        }
        self.clean_to_limit()
    }

    fn offer(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image) {
        self.around.below.offer(id, why, copy);
        let why = self.policy.scans.leaves(id, why);
        if !self.is_on() || !id.space().is_logged() {
            return;
        }
        // The caller holds the lock of the pool's replacement, so it does not wait while another thread
        // changes the design.
        if let Some(_gate) = self.policy.gate.try_read() {
            self.take_clean(id, why, copy);
        }
    }

    fn changed(&self, id: PageId) {
        let is_kept = planted(OLDER_STAY) || !self.policy.design().is_on() || !id.space().is_logged();
        if !is_kept {
            let mut table = self.table_of(id);
            self.transit.read_along.overtake(id);
            let was_valid =
                if self.policy.design().keeps_invalid() { table.invalidate(id) } else { table.remove(id) };
            self.counters.invalidated.fetch_add(u64::from(was_valid), Relaxed);
        }
        self.around.below.changed(id);
    }

    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        if self.policy.design().is_on() && ids.first.space().is_logged() {
            self.transit.read_along.overtake_all(ids);
            self.policy.scans.forget(|id| ids.contains(id));
            let each = self.tables().map(|mut table| table.remove_range(ids));
            self.counters.invalidated.fetch_add(each.sum(), Relaxed);
        }
        self.transit.cleaning.wait_for(|id| ids.contains(id));
        self.around.below.discard(ids, after)
    }

    fn checkpoint(&self, step: Step) -> Result<()> {
        let writes = step == Step::Begin && !self.around.has_threads;
        if writes && (self.records.hardening.is_turn() || self.is_hardening_awaited()) {
            // There is no thread for the records, so the caller writes them: to the end of this round, and a
            // whole round after it.
            self.await_hardening(self.around.log.durable_block());
            while !self.harden_some() {}
            while self.is_hardening_awaited() && !self.harden_some() {}
        }
        self.around.below.checkpoint(step)
    }

    fn drain(&self) -> Result<()> {
        match self.stays_dirty() {
            true => self.write_all()?,
            false => self.clean_all()?,
        }
        self.around.below.drain()
    }

    fn clean(&self, ids: &[PageId]) -> Result<usize> {
        let cleaned = if self.stays_dirty() { Ok(0) } else { self.clean_pages(ids) };
        summed([cleaned, self.around.below.clean(ids)])
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        let each = self.tables().flat_map(|table| table.pages());
        let pages: Vec<PageId> = each.collect();
        let mut buffers = [self.drive.store.buffer(), self.drive.store.buffer()];
        for id in pages {
            damages.extend(self.compare(id, &mut buffers)?);
        }
        self.around.below.check(damages)
    }

    fn discarding(&self, space: SpaceId) -> Option<DiscardHold<'_>> {
        self.around.below.discarding(space)
    }

    fn settle(&self) -> Result<()> {
        self.around.below.settle()
    }

    fn needs_log_from(&self) -> Option<Lsn> {
        self.around.below.needs_log_from()
    }

    fn takes_together(&self, one: SpaceId, other: SpaceId) -> bool {
        self.around.below.takes_together(one, other)
    }

    fn put_pages_max(&self) -> usize {
        self.around.below.put_pages_max()
    }

    fn report(&self) -> Vec<LevelReport> {
        let mut reports = vec![self.report_of_cache()];
        reports.extend(self.around.below.report());
        reports
    }
}
