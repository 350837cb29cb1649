//! The level: what it is made of, and how it goes on with another design.
//!
//! Invariants
//! 1. A page on flash is the newest version that is not above this level: a page's older copy goes before home (or a level above)
//!    gets a newer one, whether or not anybody said that it changes.
//! 2. A frame whose page home may lack is dirty, and its page in the ledger: redo makes home whole if flash is lost. It stays until home
//!    has the page, or the page changes above. All other frames may go at any time: what is not as the table says, or cannot be read, is
//!    read from home.
//! 3. Nobody waits for a write to flash: pages are queued under the locks of who evicts them, and written by threads of the cache (or,
//!    without threads, at once).
//! 4. After several errors in a row nothing more is taken, and when dirty frames are brought home the cache is lost until the next start;
//!    at once if a dirty frame can't be read. If home lacks something then, the pager stops, and no such page is read from home.
//! 5. A dirty page is brought home by one thread at a time, and whoever puts or discards a newer version waits for that (`cleaning.rs`).
//!
//! Lock order: frame latches, the replacer's lock > a partition's > the queue's, the heat's, that of what is being cleaned. None is held
//! across I/O, but the gate, which those who put share.
//!
//! Not known here: frames of the pool, how home stores pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard, RwLock};
use varve_device::{planted, reached};

use super::cleaning::Underway;
use super::design::FlashDesign;
use super::heat::Heat;
use super::report::Counters;
use super::store::Store;
use super::table::{FrameNo, Partition};
use super::writes::Writes;
use crate::config::FlashConfig;
use crate::error::{PagerError, Result};
use crate::ids::{Access, PageId, PageRange, SpaceId};
use crate::ledger::Ledger;
use crate::level::{Cause, DiscardHold, Image, Level, LevelReport, Need, Run, Step};
use crate::lsn::Lsn;
use crate::pool::{WriteAhead, summed};

/// Most partitions of the frame table (Do 2012, section 3.3.4).
const PARTITIONS_MAX: u32 = 16;
/// Fewest frames of one.
const PARTITION_FRAMES_MIN: u32 = 64;
/// So many errors in a row end the cache.
const ERRORS_MAX: u32 = 8;
/// What spreads neighbouring pages over the partitions: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A planted fault.
pub(super) const OLDER_STAY: &str = "flash: older copies stay";

/// The level.
pub(crate) struct FlashCache {
    pub(super) store: Store,
    pub(super) partitions: Box<[Mutex<Partition>]>,
    /// Frames of each of them.
    pub(super) partition_frames: u32,
    pub(super) writes: Writes,
    pub(super) underway: Underway,
    pub(super) heat: Heat,
    design: AtomicU8,
    /// Held by those who take pages, and alone by who changes the design.
    pub(super) gate: RwLock<()>,
    switching: Mutex<()>,
    /// Nothing dirty is kept back: the design is about to change.
    is_draining: AtomicBool,
    /// Dirty frames of a hundred, at most.
    dirty_percent: AtomicU8,
    config: FlashConfig,
    /// Counts accesses: the time of LRU-2.
    clock: AtomicU64,
    errors_in_a_row: AtomicU32,
    pub(super) is_lost: AtomicBool,
    /// Why the device is of no use any more: nothing is taken, and what home lacks is brought home, after which the cache is lost.
    failing: Mutex<Option<PagerError>>,
    is_failing: AtomicBool,
    /// Whether threads write what is queued, and clean.
    pub(super) has_threads: bool,
    /// Persistent memory is above: home may be behind, and what it puts it forgets.
    pub(super) is_below_nvm: bool,
    pub(super) below: Arc<dyn Level>,
    pub(super) ledger: Arc<Ledger>,
    log: Arc<dyn WriteAhead>,
    pub(super) counters: Counters,
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
}

pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl FlashCache {
    /// Opens an empty cache. What its device refuses is a warning: the database does without.
    pub(crate) fn open(config: &FlashConfig, place: Place) -> Opened {
        let Place { database, page_size, .. } = place;
        let frames = config.frames(page_size);
        let partitions = (frames / PARTITION_FRAMES_MIN).clamp(1, PARTITIONS_MAX);
        let partition_frames = frames / partitions;
        let (order, clean_order) = (config.design.order(), config.clean_order);
        let partition = || Mutex::new(Partition::new(partition_frames, order, clean_order));
        match Store::open(&*config.directory, database, page_size, partition_frames * partitions) {
            Ok(store) => {
                let cache = FlashCache {
                    store,
                    partitions: (0..partitions).map(|_| partition()).collect(),
                    partition_frames,
                    writes: Writes::new(config.pending_max),
                    underway: Underway::default(),
                    heat: Heat::default(),
                    design: AtomicU8::new(config.design as u8),
                    gate: RwLock::default(),
                    switching: Mutex::default(),
                    is_draining: AtomicBool::new(false),
                    dirty_percent: AtomicU8::new(config.dirty_percent),
                    config: config.clone(),
                    clock: AtomicU64::new(1),
                    errors_in_a_row: AtomicU32::new(0),
                    is_lost: AtomicBool::new(false),
                    failing: Mutex::default(),
                    is_failing: AtomicBool::new(false),
                    has_threads: place.has_threads,
                    is_below_nvm: place.is_below_nvm,
                    below: place.below,
                    ledger: place.ledger,
                    log: place.log,
                    counters: Counters::default(),
                };
                Opened { cache: Some(Arc::new(cache)), warning: None }
            }
            Err(cause) => {
                reached("flash: there is no cache");
                Opened { cache: None, warning: Some(format!("there is no flash cache: {cause}")) }
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
        let drains = self.design().is_lazy() && !design.is_lazy();
        if drains {
            {
                let _nobody_takes = self.gate.write();
                self.is_draining.store(true, Relaxed);
            }
            let drained = self.clean_all();
            if drained.is_err() {
                self.is_draining.store(false, Relaxed);
                return drained;
            }
        }
        let _nobody_takes = self.gate.write();
        if !self.design().is_on() || !design.is_on() {
            self.forget_all();
        }
        self.design.store(design as u8, Relaxed);
        let each = self.partitions.iter();
        each.for_each(|table| table.lock().reorder(design.order(), self.config.clean_order));
        self.is_draining.store(false, Relaxed);
        Ok(())
    }

    /// So many of a hundred frames may be dirty from now on.
    pub(crate) fn set_dirty_percent(&self, percent: u8) {
        self.dirty_percent.store(percent, Relaxed);
    }

    /// Dirty frames of a hundred, at most.
    pub(crate) fn dirty_percent(&self) -> u8 {
        self.dirty_percent.load(Relaxed)
    }

    /// Whether dirty pages stay here, and home gets them later. What persistent memory puts it forgets, and the ledger with it.
    pub(super) fn keeps_back(&self) -> bool {
        self.design().is_lazy() && !self.is_below_nvm && !self.is_draining.load(Relaxed) && !self.is_failing()
    }

    pub(super) fn is_on(&self) -> bool {
        self.design().is_on() && !self.is_lost.load(Relaxed)
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    pub(super) fn partition_of(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(SPREAD) >> 32) as usize % self.partitions.len()
    }

    pub(super) fn table(&self, partition: usize) -> MutexGuard<'_, Partition> {
        self.partitions[partition].lock()
    }

    /// The frame's number in the file.
    pub(super) fn stored(&self, partition: usize, frame: FrameNo) -> u32 {
        partition as u32 * self.partition_frames + frame
    }

    fn forget_all(&self) {
        let each = self.partitions.iter().map(|table| table.lock().remove_all(|_| true));
        self.counters.invalidated.fetch_add(each.sum(), Relaxed);
    }

    pub(super) fn note_error(&self, cause: &PagerError) {
        add(&self.counters.errors);
        if self.errors_in_a_row.fetch_add(1, Relaxed) + 1 < ERRORS_MAX {
            return;
        }
        if !self.has_dirty() {
            return self.lose(cause);
        }
        // Whoever cleans brings home what can still be read.
        reached("flash: dirty pages leave a failing device");
        self.failing.lock().get_or_insert_with(|| cause.clone());
        self.is_failing.store(true, Relaxed);
    }

    fn has_dirty(&self) -> bool {
        self.partitions.iter().any(|table| table.lock().dirty_count() > 0)
    }

    /// Whether the device is to be left.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    /// Brings home what the failing device still has; then it is lost. Gives the pages brought home.
    #[cold]
    pub(super) fn leave(&self) -> Result<usize> {
        let each = self.partitions.iter().flat_map(|table| table.lock().dirty_pages());
        let mut pages: Vec<PageId> = each.collect();
        pages.sort_unstable();
        let cleaned = self.clean_pages(&pages)?;
        let cause = self.failing.lock().clone();
        if let Some(cause) = cause.filter(|_| !self.has_dirty()) {
            self.lose(&cause);
        }
        Ok(cleaned)
    }

    pub(super) fn note_success(&self) {
        if self.errors_in_a_row.load(Relaxed) > 0 {
            self.errors_in_a_row.store(0, Relaxed);
        }
    }

    /// The device is of no use. What home lacks only redo brings back.
    #[cold]
    pub(super) fn lose(&self, cause: &PagerError) {
        if self.is_lost.swap(true, Relaxed) {
            return;
        }
        reached("flash: the cache is lost");
        let each = self.partitions.iter().map(|table| table.lock().remove_clean());
        self.counters.invalidated.fetch_add(each.sum(), Relaxed);
        if self.has_dirty() {
            reached("flash: dirty pages are lost");
            self.log.stop(&self.stranded(cause));
        }
    }

    /// Why nothing goes on, once dirty pages are lost.
    #[cold]
    fn stranded(&self, cause: &dyn std::fmt::Display) -> PagerError {
        let cause = format!(
            "the flash cache on {} is lost with changed pages: {cause}",
            self.config.directory.location()
        );
        PagerError::Stopped { cause: cause.into() }
    }

    /// Refuses what neither flash, which is lost, nor home can give.
    pub(super) fn refuse_stranded(&self, runs: &[Run<'_, '_>]) -> Result<()> {
        if !self.is_lost.load(Relaxed) {
            return Ok(());
        }
        let ids = runs.iter().flat_map(|run| (0..run.want.len() as u32).map(|at| run.first.plus(at)));
        let is_dirty = |id: &PageId| self.table(self.partition_of(*id)).is_dirty(*id);
        match ids.into_iter().find(is_dirty) {
            Some(id) => Err(self.stranded(&format_args!("page {id} was on it"))),
            None => Ok(()),
        }
    }

    /// Whether nothing is read, written, cleaned or queued.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.writes.pending() == 0 && self.partitions.iter().all(|table| table.lock().is_at_rest())
    }
}

impl Level for FlashCache {
    fn read(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()> {
        if !self.is_on() {
            self.refuse_stranded(runs)?;
            return self.below.read(runs, why);
        }
        self.read_runs(runs, why)?;
        self.look_at_what_was_read(runs, why);
        Ok(())
    }

    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        if !self.is_on() {
            // An older version may still be on its way: the cache was lost, or switched off, meanwhile.
            batch.iter().for_each(|image| self.underway.wait_for(|id| id == image.id()));
            return self.below.put(batch, cause, need);
        }
        let gate = self.gate.read();
        self.put_some(batch, cause, need)?;
        drop(gate);
        if self.has_threads { Ok(()) } else { self.clean_to_limit() }
    }

    fn offer(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image) {
        self.below.offer(id, why, copy);
        if !self.is_on() || !id.space().is_logged() {
            return;
        }
        // Nobody waits under the replacer's lock for another design.
        if let Some(_gate) = self.gate.try_read() {
            self.take_clean(id, why, copy);
        }
    }

    fn changed(&self, id: PageId) {
        let is_kept = planted(OLDER_STAY) || !self.is_on() || !id.space().is_logged();
        if !is_kept {
            let mut table = self.table(self.partition_of(id));
            let was_valid =
                if self.design().keeps_invalid() { table.invalidate(id) } else { table.remove(id) };
            self.counters.invalidated.fetch_add(u64::from(was_valid), Relaxed);
        }
        self.below.changed(id);
    }

    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        if self.is_on() && ids.first.space().is_logged() {
            let each = self.partitions.iter().map(|table| table.lock().remove_range(ids));
            self.counters.invalidated.fetch_add(each.sum(), Relaxed);
        }
        self.underway.wait_for(|id| ids.contains(id));
        self.below.discard(ids, after)
    }

    fn checkpoint(&self, step: Step) -> Result<()> {
        self.below.checkpoint(step)
    }

    fn drain(&self) -> Result<()> {
        self.clean_all()?;
        self.below.drain()
    }

    fn clean(&self, ids: &[PageId]) -> Result<usize> {
        summed([self.clean_pages(ids), self.below.clean(ids)])
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        let each = self.partitions.iter().flat_map(|table| table.lock().pages());
        let pages: Vec<(PageId, bool)> = each.collect();
        let mut buffers = [self.store.buffer(), self.store.buffer()];
        for (id, is_dirty) in pages {
            damages.extend(self.compare(id, is_dirty, &mut buffers)?);
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
