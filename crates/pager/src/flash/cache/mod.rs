//! The level: what it is made of, and how it goes on with another design.
//!
//! Invariants
//! 1. A page on flash is the newest version that is not above this level: a page's older copy goes before home (or a level above)
//!    gets a newer one, whether or not anybody said that it changes.
//! 2. A frame whose page home may lack is dirty, and its page in the ledger: redo makes home whole if flash is lost. It stays until home
//!    has the page, or the page changes above. All other frames may go at any time: what is not as the table says, or cannot be read, is
//!    read from home.
//! 3. Nobody who evicts waits for a write to flash with a lock: pages are queued, and written by threads of the cache (or, without threads,
//!    at once). Who puts pages that are kept back waits a while for room in the queue, since home would take longer, and cleans where too many are dirty (`admission.rs`). But a record that is kept at once is waited for (memory-mapped, `flash/restart/keeping.rs`).
//! 4. Trouble with the device ends the cache, never the database's data (`trouble.rs`).
//! 5. A dirty page is brought home by one thread at a time, and whoever puts or discards a newer version waits for that (`cleaning.rs`).
//!
//! Lock order: frame latches, the replacer's lock > a partition's > the queue's, the heat's, that of what is being cleaned, that of scans. None is held
//! across I/O, but the gate, which those who put share, and the partition's whose memory-mapped records are written.
//!
//! Not known here: frames of the pool, how home stores pages.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard, RwLock};
use varve_device::{planted, reached};

use super::config::{FlashConfig, FlashFill, FlashRestart};
use super::table::{CleanOrder, FrameNo, Partition};
use crate::base::error::Result;
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::refuse::beyond_device;
use crate::flash::cache::counters::{Counters, Kinds};
use crate::flash::cache::trouble::Trouble;
use crate::flash::cache::underway::Underway;
use crate::flash::cache::watched::Watched;
use crate::flash::io::store::{Marks, OpenStore, Seal, Store, Whose};
use crate::flash::io::writes::Writes;
use crate::flash::policy::daily_writes::{Budget, Clock};
use crate::flash::policy::design::FlashDesign;
use crate::flash::policy::scans::Scans;
use crate::flash::policy::temperature::Heat;
use crate::flash::policy::throttle::Throttle;
use crate::flash::restart::mirror::Keeping;
use crate::flash::restart::rounds::Hardening;
use crate::flash::table::shape::{PARTITIONS_MAX, Shape};
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
pub(crate) mod trouble;
pub(crate) mod underway;
pub(crate) mod watched;

use kept_back::KeptBack;
use life::{Life, Phase};

/// What spreads neighbouring pages over the partitions: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A planted fault.
pub(super) const OLDER_STAY: &str = "flash: older copies stay";

/// The level.
pub(crate) struct FlashCache {
    pub(super) store: Store,
    /// As many as there can be; those that the shape doesn't speak of have no frames.
    partitions: Box<[Mutex<Partition>]>,
    pub(super) shape: Shape,
    pub(super) writes: Writes,
    pub(super) throttle: Throttle,
    pub(super) underway: Underway,
    pub(super) watched: Watched,
    pub(super) heat: Heat,
    pub(super) scans: Scans,
    design: AtomicU8,
    /// Held by those who take pages, and alone by who changes the design.
    pub(super) gate: RwLock<()>,
    pub(super) switching: Mutex<()>,
    kept_back: KeptBack,
    pub(super) config: FlashConfig,
    /// Counts accesses: the time of LRU-2.
    pub(super) clock: AtomicU64,
    pub(super) hardening: Hardening,
    pub(super) keeping: Keeping,
    pub(super) life: Life,
    /// Threads write what is queued.
    is_served: AtomicBool,
    pub(super) trouble: Trouble,
    /// Whether threads write what is queued, and clean.
    pub(super) has_threads: bool,
    /// Persistent memory is above: home may be behind, and what it puts it forgets.
    pub(super) is_below_nvm: bool,
    pub(super) below: Arc<dyn Level>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) log: Arc<dyn WriteAhead>,
    pub(super) counters: Counters,
    pub(super) kinds: Kinds,
}

/// A cache, or why there is none.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) cache: Option<Arc<FlashCache>>,
    pub(crate) warning: Option<String>,
}

/// Whose pages a cache has, and where it stands.
pub(crate) struct Place {
    /// Id of the database.
    pub(crate) database: u64,
    pub(crate) page_size: usize,
    pub(crate) has_threads: bool,
    /// Persistent memory is above.
    pub(crate) is_below_nvm: bool,
    pub(crate) below: Arc<dyn Level>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) log: Arc<dyn WriteAhead>,
    /// What tells the days of the budget of writes.
    pub(crate) clock: Clock,
}

/// A partition, locked.
pub(super) struct Table<'c> {
    table: MutexGuard<'c, Partition>,
    cache: &'c FlashCache,
    /// Which it is.
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
    /// Where records are kept at once, they are before anybody else sees the partition.
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
    /// Opens an empty cache; [`begin`](Self::begin) goes on with what is in it. What its device refuses is a warning: the database does without.
    pub(crate) fn open(config: &FlashConfig, place: Place) -> Opened {
        let Place { database, page_size, .. } = place;
        let shape = Shape::of(config.frames(page_size));
        let (order, clean_order) = (config.design.order(), config.clean_order);
        let partition = |no| Mutex::new(Partition::new(shape.frames_of(no), order, clean_order));
        let frames = shape.frames();
        let (how, epoch) = (config.restart as u8, 0);
        let (marks, seal) = (Marks::default(), Seal::default());
        let whose = Whose { database, page_size, frames, how, epoch, marks, seal };
        let throttle = Throttle::new(config.pending_max, place.clock.clone());
        let budget = Budget::new(config.daily_write_bytes, place.clock);
        match Store::open(&*config.directory, whose, budget) {
            Ok(OpenStore { store, whose, earlier, seal }) => {
                let cache = FlashCache {
                    hardening: Hardening::new(whose, (earlier, seal), store.table_blocks()),
                    keeping: Keeping::new(config.restart, store.table_blocks()),
                    life: Life::default(),
                    is_served: AtomicBool::new(false),
                    store,
                    partitions: (0..PARTITIONS_MAX).map(partition).collect(),
                    shape,
                    writes: Writes::new(config.queued_max),
                    throttle,
                    underway: Underway::default(),
                    watched: Watched::default(),
                    heat: Heat::default(),
                    scans: Scans::new(config.scans),
                    design: AtomicU8::new(config.design as u8),
                    gate: RwLock::default(),
                    switching: Mutex::default(),
                    kept_back: KeptBack::new(config.dirty_percent),
                    config: config.clone(),
                    clock: AtomicU64::new(1),
                    trouble: Trouble::default(),
                    has_threads: place.has_threads,
                    is_below_nvm: place.is_below_nvm,
                    below: place.below,
                    ledger: place.ledger,
                    log: place.log,
                    counters: Counters::default(),
                    kinds: Kinds::default(),
                };
                Opened { cache: Some(Arc::new(cache)), warning: None }
            }
            Err(cause) => {
                reached("flash: there is no cache");
                let why = match cause.is_no_space() {
                    true => format!(
                        "{}; starting without the cache. Lower [flash] size, or name a larger device in [flash]",
                        beyond_device("flash.size", config.size_bytes, &*config.directory)
                    ),
                    false => format!("there is no flash cache: {cause}"),
                };
                Opened { cache: None, warning: Some(why) }
            }
        }
    }

    /// The design in force.
    pub(crate) fn design(&self) -> FlashDesign {
        let code = self.design.load(Relaxed);
        FlashDesign::ALL.into_iter().find(|design| *design as u8 == code).unwrap_or(FlashDesign::Off)
    }

    /// Goes on with another design. What is cached stays valid under any of them but `Off`, during which nobody says what changes. Of
    /// designs that keep dirty pages back others take over only when all of them are home; if there is no room at home, nothing changes.
    pub(crate) fn set_design(&self, design: FlashDesign) -> Result<()> {
        let _one_at_a_time = self.switching.lock();
        let drains = (self.design().is_lazy() || self.has_dirty()) && !design.is_lazy();
        if drains {
            self.drain_dirty()?;
        }
        let _nobody_takes = self.gate.write();
        if !self.design().is_on() || !design.is_on() {
            self.forget_all();
        }
        self.design.store(design as u8, Relaxed);
        self.tables().for_each(|mut table| table.reorder(design.order(), self.config.clean_order));
        self.end_draining();
        Ok(())
    }

    /// Brings home what is dirty, and keeps nothing back until [`end_draining`](Self::end_draining), unless that is refused.
    pub(super) fn drain_dirty(&self) -> Result<()> {
        {
            let _nobody_takes = self.gate.write();
            self.kept_back.is_draining.store(true, Relaxed);
        }
        self.clean_all().inspect_err(|_| self.end_draining())
    }

    /// What the design keeps back it keeps back again.
    pub(super) fn end_draining(&self) {
        self.kept_back.is_draining.store(false, Relaxed);
    }

    /// Which dirty frame is cleaned next.
    pub(super) fn clean_order(&self) -> CleanOrder {
        self.config.clean_order
    }

    /// So many of a hundred frames may be dirty from now on.
    pub(crate) fn set_dirty_percent(&self, percent: u8) {
        self.kept_back.percent.store(percent, Relaxed);
        self.underway.ring();
    }

    /// Dirty frames of a hundred, at most.
    pub(crate) fn dirty_percent(&self) -> u8 {
        self.kept_back.percent.load(Relaxed)
    }

    /// Dirty frames of a partition, at most.
    pub(super) fn dirty_most(&self) -> u64 {
        u64::from(self.shape.partition_frames()) * u64::from(self.dirty_percent()) / 100
    }

    /// So many bytes a day are written to the drive from now on; `None`: as many as come.
    pub(crate) fn set_daily_writes(&self, bytes: Option<u64>) {
        self.store.budget.set(bytes);
    }

    /// From now on no more dirty pages stay here, or they do again. Those that are here stay until somebody has them cleaned.
    pub(crate) fn keep_none_back(&self, keeps_none: bool) {
        match keeps_none {
            true => self.kept_back.sharp_checkpoints.fetch_add(1, Relaxed),
            false => self.kept_back.sharp_checkpoints.fetch_sub(1, Relaxed),
        };
    }

    /// Whether dirty pages stay here, and home gets them later. What persistent memory puts it forgets, and the ledger with it.
    pub(super) fn keeps_back(&self) -> bool {
        let is_pausing =
            self.kept_back.is_draining.load(Relaxed) || self.kept_back.sharp_checkpoints.load(Relaxed) > 0;
        let ends_dirty = || self.kept_back.stays_dirty.load(Relaxed) && self.design().may_end_dirty();
        let is_meant = self.design().is_lazy() || ends_dirty();
        is_meant && !self.is_below_nvm && !is_pausing && !self.is_failing()
    }

    /// Whether an empty cache is filled with what it would not take else.
    pub(super) fn fills_aggressively(&self) -> bool {
        self.config.fill == FlashFill::Aggressive
    }

    /// From now on threads write what is queued: after redo, and what else a start does.
    pub(crate) fn threads_begin(&self) {
        self.is_served.store(true, Relaxed);
    }

    /// Whether they do: no more when a shutdown leaves pages here.
    pub(super) fn threads_run(&self) -> bool {
        self.is_served.load(Relaxed) && !self.stays_dirty()
    }

    /// Whether redo is over.
    pub(super) fn is_open(&self) -> bool {
        self.life.is_in(Phase::Open)
    }

    /// Whether records of the frames are kept. Below persistent memory nobody tells redo what is newer than home.
    pub(crate) fn keeps_records(&self) -> bool {
        self.config.restart != FlashRestart::None && !self.is_below_nvm
    }

    /// From now on, for a shutdown, what only flash has stays there, if the next start can go on with it; `may_seal`: without redo, for which
    /// it is worth it under designs that keep nothing back before. Whether it does.
    pub(crate) fn stay_dirty(&self, may_seal: bool) -> bool {
        let is_meant = self.design().is_lazy() || may_seal && self.may_be_sealed();
        let may = is_meant && self.keeps_records() && self.is_on() && self.hardening.is_on();
        self.kept_back.stays_dirty.store(may, Relaxed);
        // Settled here: a checkpoint that ends its pause meanwhile changes nothing of it.
        let stays = may && self.keeps_back();
        self.kept_back.stays_dirty.store(stays, Relaxed);
        stays
    }

    /// The shutdown was refused.
    pub(crate) fn stay_no_more(&self) {
        self.kept_back.stays_dirty.store(false, Relaxed);
    }

    /// Whether it does.
    pub(super) fn stays_dirty(&self) -> bool {
        self.kept_back.stays_dirty.load(Relaxed) && self.keeps_back() && self.is_on()
    }

    /// What becomes of the cache when the database is opened again.
    pub(super) fn restart(&self) -> FlashRestart {
        self.config.restart
    }

    /// All frames.
    pub(super) fn frames(&self) -> u32 {
        self.shape.frames()
    }

    pub(super) fn is_on(&self) -> bool {
        self.design().is_on() && !self.is_lost()
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Where the page's frame is, as long as the shape stays.
    pub(super) fn partition_of(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(SPREAD) >> 32) as usize % self.shape.partitions() as usize
    }

    /// The one that has the page's frame, if it has any. That it is that one doesn't change as long as it is locked.
    pub(super) fn table_of(&self, id: PageId) -> Table<'_> {
        loop {
            let table = self.table(self.partition_of(id));
            // While the shape changes all of them are locked.
            if table.partition == self.partition_of(id) {
                return table;
            }
        }
    }

    /// One by its number.
    pub(super) fn table(&self, partition: usize) -> Table<'_> {
        Table { table: self.partitions[partition].lock(), cache: self, partition }
    }

    /// All of them, one after the other.
    pub(super) fn tables(&self) -> impl Iterator<Item = Table<'_>> {
        (0..self.partitions.len()).map(|partition| self.table(partition))
    }

    /// The frame's number in the file.
    pub(super) fn stored(&self, partition: usize, frame: FrameNo) -> u32 {
        partition as u32 * self.shape.partition_frames() + frame
    }

    pub(super) fn forget_all(&self) {
        self.scans.forget(|_| true);
        let each = self.tables().map(|mut table| table.remove_all(|_| true));
        self.counters.invalidated.fetch_add(each.sum(), Relaxed);
    }

    /// Whether nothing is read, written, cleaned or queued.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.writes.pending() == 0 && self.tables().all(|table| table.is_at_rest())
    }
}

impl Level for FlashCache {
    fn read(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()> {
        if !self.is_on() && !self.has_lost_dirty(runs) {
            return self.below.read(runs, why);
        }
        self.read_runs(runs, why)?;
        self.kinds.count(runs);
        if self.is_on() {
            self.look_at_what_was_read(runs, why);
        }
        Ok(())
    }

    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        if !self.is_on() {
            // An older version may still be here, or on its way: the cache was lost, or switched off, meanwhile.
            batch.iter().for_each(|image| self.give_up_older(image));
            return self.below.put(batch, cause, need);
        }
        let gate = self.gate.read();
        self.put_some(batch, cause, need)?;
        drop(gate);
        if self.has_threads {
            return Ok(());
        }
        if self.hardening.is_turn() {
            self.harden_some();
        }
        self.clean_to_limit()
    }

    fn offer(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image) {
        self.below.offer(id, why, copy);
        let why = self.scans.leaves(id, why);
        if !self.is_on() || !id.space().is_logged() {
            return;
        }
        // Nobody waits under the replacer's lock for another design.
        if let Some(_gate) = self.gate.try_read() {
            self.take_clean(id, why, copy);
        }
    }

    fn changed(&self, id: PageId) {
        let is_kept = planted(OLDER_STAY) || !self.design().is_on() || !id.space().is_logged();
        if !is_kept {
            let mut table = self.table_of(id);
            self.watched.overtake(id);
            let was_valid =
                if self.design().keeps_invalid() { table.invalidate(id) } else { table.remove(id) };
            self.counters.invalidated.fetch_add(u64::from(was_valid), Relaxed);
        }
        self.below.changed(id);
    }

    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        if self.design().is_on() && ids.first.space().is_logged() {
            self.watched.overtake_all(ids);
            self.scans.forget(|id| ids.contains(id));
            let each = self.tables().map(|mut table| table.remove_range(ids));
            self.counters.invalidated.fetch_add(each.sum(), Relaxed);
        }
        self.underway.wait_for(|id| ids.contains(id));
        self.below.discard(ids, after)
    }

    fn checkpoint(&self, step: Step) -> Result<()> {
        let writes = step == Step::Begin && !self.has_threads;
        if writes && (self.hardening.is_turn() || self.is_hardening_awaited()) {
            // Who asks writes himself: to the end of the round, and a whole one.
            self.await_hardening(self.log.durable_block());
            while !self.harden_some() {}
            while self.is_hardening_awaited() && !self.harden_some() {}
        }
        self.below.checkpoint(step)
    }

    fn drain(&self) -> Result<()> {
        match self.stays_dirty() {
            true => self.write_all()?,
            false => self.clean_all()?,
        }
        self.below.drain()
    }

    fn clean(&self, ids: &[PageId]) -> Result<usize> {
        let cleaned = if self.stays_dirty() { Ok(0) } else { self.clean_pages(ids) };
        summed([cleaned, self.below.clean(ids)])
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        let each = self.tables().flat_map(|table| table.pages());
        let pages: Vec<PageId> = each.collect();
        let mut buffers = [self.store.buffer(), self.store.buffer()];
        for id in pages {
            damages.extend(self.compare(id, &mut buffers)?);
        }
        self.below.check(damages)
    }

    fn discarding(&self, space: SpaceId) -> Option<DiscardHold<'_>> {
        self.below.discarding(space)
    }

    fn settle(&self) -> Result<()> {
        self.below.settle()
    }

    fn needs_log_from(&self) -> Option<Lsn> {
        self.below.needs_log_from()
    }

    fn takes_together(&self, one: SpaceId, other: SpaceId) -> bool {
        self.below.takes_together(one, other)
    }

    fn put_pages_max(&self) -> usize {
        self.below.put_pages_max()
    }

    fn report(&self) -> Vec<LevelReport> {
        let mut reports = vec![self.report_of_cache()];
        reports.extend(self.below.report());
        reports
    }
}
