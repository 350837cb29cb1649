//! The level: what is taken, what is read from where.
//!
//! Invariants
//! 1. A page on flash is the newest version that is not above this level: a page's older copy goes before home (or a level above)
//!    gets a newer one, whether or not anybody said that it changes.
//! 2. With the designs that are here home has whatever flash has, or persistent memory above does: so no frame is ever needed, and what
//!    is not as the table says, or cannot be read, is read from home.
//! 3. Nobody waits for a write to flash: pages are queued under the locks of who evicts them, and written by threads of the cache (or,
//!    without threads, at once).
//! 4. After several errors in a row the cache is lost until the next start, and nothing else is.
//!
//! Lock order: frame latches, the replacer's lock > a partition's > the queue's. None is held across I/O.
//!
//! Not known here: frames of the pool, how home stores pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use varve_device::{AlignedBuf, planted, reached};

use super::design::FlashDesign;
use super::store::Store;
use super::table::{Admitted, Counts, FrameNo, Partition};
use super::writes::{Write, Writes};
use crate::config::FlashConfig;
use crate::error::{PagerError, Result};
use crate::ids::{Access, PageId, PageRange, SpaceId};
use crate::level::{Cause, DiscardHold, Got, Image, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::lsn::Lsn;
use crate::page;

/// Most partitions of the frame table (Do 2012, section 3.3.4).
const PARTITIONS_MAX: u32 = 16;
/// Fewest frames of one.
const PARTITION_FRAMES_MIN: u32 = 64;
/// Pages written together.
const TOGETHER_MAX: usize = 32;
/// So many errors in a row end the cache.
const ERRORS_MAX: u32 = 8;
/// What spreads neighbouring pages over the partitions: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A planted fault.
const OLDER_STAY: &str = "flash: older copies stay";

/// The level.
pub(crate) struct FlashCache {
    store: Store,
    partitions: Box<[Mutex<Partition>]>,
    /// Frames of each of them.
    partition_frames: u32,
    writes: Writes,
    design: AtomicU8,
    /// Counts accesses: the time of LRU-2.
    clock: AtomicU64,
    errors_in_a_row: AtomicU32,
    is_lost: AtomicBool,
    /// Whether threads write what is queued.
    has_threads: bool,
    /// Persistent memory is above: home may be behind.
    is_below_nvm: bool,
    below: Arc<dyn Level>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    trimmed: AtomicU64,
    admitted_clean: AtomicU64,
    admitted_dirty: AtomicU64,
    sequential: AtomicU64,
    throttled: AtomicU64,
    busy: AtomicU64,
    invalidated: AtomicU64,
    damaged: AtomicU64,
    errors: AtomicU64,
    written: AtomicU64,
    write_batches: AtomicU64,
}

/// A cache, or why there is none.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) cache: Option<Arc<FlashCache>>,
    pub(crate) warning: Option<String>,
}

/// A frame that is being read.
#[derive(Clone, Copy)]
struct Pin {
    id: PageId,
    partition: usize,
    frame: FrameNo,
    lsn: Lsn,
}

/// A frame that waits for its page to be home.
struct Promised {
    /// In the batch.
    at: usize,
    partition: usize,
    frame: FrameNo,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl FlashCache {
    /// Opens an empty cache over `below`. What its device refuses is a warning: the database does without.
    pub(crate) fn open(
        config: &FlashConfig,
        (database, page_size): (u64, usize),
        has_threads: bool,
        is_below_nvm: bool,
        below: Arc<dyn Level>,
    ) -> Opened {
        let frames = config.frames(page_size);
        let partitions = (frames / PARTITION_FRAMES_MIN).clamp(1, PARTITIONS_MAX);
        let partition_frames = frames / partitions;
        let store = Store::open(&*config.directory, database, page_size, partition_frames * partitions);
        let open = |store| FlashCache {
            store,
            partitions: (0..partitions).map(|_| Mutex::new(Partition::new(partition_frames))).collect(),
            partition_frames,
            writes: Writes::new(config.pending_max),
            design: AtomicU8::new(config.design as u8),
            clock: AtomicU64::new(1),
            errors_in_a_row: AtomicU32::new(0),
            is_lost: AtomicBool::new(false),
            has_threads,
            is_below_nvm,
            below,
            counters: Counters::default(),
        };
        match store {
            Ok(store) => Opened { cache: Some(Arc::new(open(store))), warning: None },
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

    /// Goes on with another design. What is cached stays valid under any of them but `Off`, during which nobody says what changes.
    pub(crate) fn set_design(&self, design: FlashDesign) {
        if !self.design().is_on() {
            // A page may have been taken while the cache was being switched off.
            self.forget_all();
        }
        self.design.store(design as u8, Relaxed);
        if !design.is_on() {
            self.forget_all();
        }
    }

    fn is_on(&self) -> bool {
        self.design().is_on() && !self.is_lost.load(Relaxed)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    fn partition_of(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(SPREAD) >> 32) as usize % self.partitions.len()
    }

    fn table(&self, partition: usize) -> MutexGuard<'_, Partition> {
        self.partitions[partition].lock()
    }

    /// The frame's number in the file.
    fn stored(&self, partition: usize, frame: FrameNo) -> u32 {
        partition as u32 * self.partition_frames + frame
    }

    fn forget_all(&self) {
        let each = self.partitions.iter().map(|table| table.lock().remove_all(|_| true));
        self.counters.invalidated.fetch_add(each.sum(), Relaxed);
    }

    fn note_error(&self) {
        add(&self.counters.errors);
        if self.errors_in_a_row.fetch_add(1, Relaxed) + 1 >= ERRORS_MAX && !self.is_lost.swap(true, Relaxed) {
            reached("flash: the cache is lost");
            self.forget_all();
        }
    }

    fn note_success(&self) {
        if self.errors_in_a_row.load(Relaxed) > 0 {
            self.errors_in_a_row.store(0, Relaxed);
        }
    }

    fn begin_read(&self, id: PageId) -> Option<Pin> {
        if !id.space().is_logged() {
            return None;
        }
        let partition = self.partition_of(id);
        let found = self.table(partition).begin_read(id, self.tick());
        found.map(|(frame, lsn)| Pin { id, partition, frame, lsn })
    }

    fn end_read(&self, pin: Pin, is_good: bool) {
        if self.table(pin.partition).end_read(pin.frame, is_good) {
            reached("flash: a frame is not what it should be");
            add(&self.counters.damaged);
        }
    }

    /// Ends a read that filled `want`. Whether it has what the table promised.
    fn accept(&self, pin: Pin, want: &mut Want<'_>) -> bool {
        let Want::Page { frame, got } = want else { return false };
        let is_good = page::verify(frame, pin.id).is_ok() && page::page_lsn(frame) == pin.lsn;
        self.end_read(pin, is_good);
        if is_good {
            add(&self.counters.hits);
            *got = Some(Got { from: Tier::Flash, lsn: pin.lsn, taken: false });
        }
        is_good
    }

    /// Reads one page from its frame. Whether there was one, and it was good.
    fn read_one(&self, id: PageId, want: &mut Want<'_>) -> bool {
        let Some(pin) = self.begin_read(id) else { return false };
        let Want::Page { frame, .. } = want else { return false };
        match self.store.read_one(self.stored(pin.partition, pin.frame), frame) {
            Ok(()) => {
                self.note_success();
                self.accept(pin, want)
            }
            Err(_) => {
                self.note_error();
                self.end_read(pin, true);
                false
            }
        }
    }

    /// Reads pages from their frames, together; gives those that have to be read elsewhere.
    fn read_frames<'r, 'a>(
        &self,
        mut cached: Vec<(Pin, &'r mut Want<'a>)>,
    ) -> Vec<(PageId, &'r mut Want<'a>)> {
        let frames = cached.iter_mut().filter_map(|(pin, want)| match want {
            Want::Page { frame, .. } => Some((self.stored(pin.partition, pin.frame), &mut **frame)),
            Want::Hole => None,
        });
        let is_read = self.store.read(frames).is_ok();
        if is_read {
            self.note_success()
        } else {
            self.note_error()
        }
        let mut failed = Vec::new();
        for (pin, want) in cached {
            if !is_read {
                self.end_read(pin, true);
            }
            if !is_read || !self.accept(pin, want) {
                failed.push((pin.id, want));
            }
        }
        failed
    }

    /// Splits a run: the pages at both ends that are cached are read from flash, all from the first to the last that is not in one
    /// request from home, those between that are cached, too (Do 2012, section 3.3.3: "trimming").
    fn split<'r, 'a>(
        &self,
        first: PageId,
        want: &'r mut [Want<'a>],
        cached: &mut Vec<(Pin, &'r mut Want<'a>)>,
    ) -> Option<Run<'r, 'a>> {
        let is_wanted = |want: &Want<'_>| matches!(want, Want::Page { .. });
        let mut pins: Vec<Option<Pin>> = (0_u32..)
            .zip(want.iter())
            .map(|(at, want)| if is_wanted(want) { self.begin_read(first.plus(at)) } else { None })
            .collect();
        let is_miss = |at: &usize| is_wanted(&want[*at]) && pins[*at].is_none();
        let begin = (0..want.len()).find(is_miss).unwrap_or(want.len());
        let end = (0..want.len()).rev().find(is_miss).map_or(begin, |last| last + 1);
        for pin in pins[begin..end].iter_mut().filter_map(Option::take) {
            self.end_read(pin, true);
            add(&self.counters.trimmed);
        }
        let misses = (begin..end).filter(|at| is_wanted(&want[*at])).count();
        self.counters.misses.fetch_add(misses as u64, Relaxed);
        let (ahead, rest) = want.split_at_mut(begin);
        let (middle, behind) = rest.split_at_mut(end - begin);
        let edges = ahead.iter_mut().zip(&pins).chain(behind.iter_mut().zip(&pins[end..]));
        cached.extend(edges.filter_map(|(want, pin)| pin.map(|pin| (pin, want))));
        (begin < end).then(|| Run { first: first.plus(begin as u32), want: middle })
    }

    /// Takes frames for changed pages that go home now, as far as the design and the queue want them.
    fn promise(&self, batch: &[Image]) -> Vec<Promised> {
        let design = self.design();
        let mut promised = Vec::new();
        for (at, image) in batch.iter().enumerate().filter(|(_, image)| image.id().space().is_logged()) {
            let partition = self.partition_of(image.id());
            let mut table = self.table(partition);
            if !planted(OLDER_STAY) && table.remove_older(image.id(), image.lsn()) {
                add(&self.counters.invalidated);
            }
            if !design.takes_dirty(image.access(), table.is_filling()) {
                continue;
            }
            if !self.writes.promise() {
                add(&self.counters.throttled);
                continue;
            }
            match table.admit(image.id(), image.lsn(), self.tick()) {
                Admitted::Frame(frame) => promised.push(Promised { at, partition, frame }),
                admitted => self.take_no(admitted),
            }
        }
        promised
    }

    fn take_no(&self, admitted: Admitted) {
        self.writes.give_back(1);
        if admitted == Admitted::Busy {
            add(&self.counters.busy);
        }
    }

    fn cancel(&self, promised: &[Promised]) {
        for Promised { partition, frame, .. } in promised {
            self.table(*partition).written(*frame, false);
        }
        self.writes.give_back(promised.len());
    }

    fn push(&self, write: Write) {
        self.writes.push(write);
        if !self.has_threads {
            self.write_some(Duration::ZERO);
        }
    }

    /// Writes some of what is queued, and waits as long as this for something. Whether there was any.
    pub(crate) fn write_some(&self, longest: Duration) -> bool {
        let writes = self.writes.take(TOGETHER_MAX, longest);
        if writes.is_empty() {
            return false;
        }
        let frames = writes.iter().map(|one| (self.stored(one.partition, one.frame), one.image.bytes()));
        let is_written = !self.is_lost.load(Relaxed) && self.store.write(frames).is_ok();
        add(&self.counters.write_batches);
        if is_written {
            self.note_success();
            self.counters.written.fetch_add(writes.len() as u64, Relaxed);
        } else {
            self.note_error();
        }
        for one in &writes {
            self.table(one.partition).written(one.frame, is_written);
        }
        self.writes.give_back(writes.len());
        true
    }

    /// Whether nothing is read, written or queued.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.writes.pending() == 0 && self.partitions.iter().all(|table| table.lock().is_at_rest())
    }

    fn counts(&self) -> Counts {
        let each = self.partitions.iter().map(|table| table.lock().counts());
        each.fold(Counts::default(), |sum, one| Counts {
            free: sum.free + one.free,
            writing: sum.writing + one.writing,
            clean: sum.clean + one.clean,
        })
    }

    /// Compares a cached page with home.
    fn compare(&self, id: PageId, [flash, home]: &mut [AlignedBuf; 2]) -> Result<Option<String>> {
        let mut cached = [Want::Page { frame: flash, got: None }];
        if !self.read_one(id, &mut cached[0]) {
            return Ok(None);
        }
        let mut at_home = [Want::Page { frame: home, got: None }];
        match self.below.read(&mut [Run { first: id, want: &mut at_home }], Access::Sequential) {
            // It never was there, or a crash tore it on its way: a slot has it, else whoever reads the page finds the damage.
            Err(PagerError::DamagedPage { .. }) if self.is_below_nvm => return Ok(None),
            Err(damage @ PagerError::DamagedPage { .. }) => return Ok(Some(damage.to_string())),
            read => read?,
        }
        let (on_flash, there) = (page::page_lsn(flash), page::page_lsn(home));
        let is_ahead = on_flash > there && self.is_below_nvm;
        let is_right = is_ahead || (on_flash == there && flash[..] == home[..]);
        Ok((!is_right).then(|| format!("page {id} on flash is of LSN {on_flash}, and at home of {there}")))
    }
}

impl Level for FlashCache {
    fn read(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()> {
        if !self.is_on() {
            return self.below.read(runs, why);
        }
        if let [Run { first, want: [want @ Want::Page { .. }] }] = runs {
            if self.read_one(*first, want) {
                return Ok(());
            }
            add(&self.counters.misses);
            return self.below.read(&mut [Run { first: *first, want: std::slice::from_mut(want) }], why);
        }
        let mut cached = Vec::new();
        let mut misses: Vec<Run<'_, '_>> = Vec::new();
        for run in runs.iter_mut() {
            misses.extend(self.split(run.first, &mut *run.want, &mut cached));
        }
        if !cached.is_empty() {
            let failed = self.read_frames(cached);
            misses.extend(
                failed.into_iter().map(|(first, want)| Run { first, want: std::slice::from_mut(want) }),
            );
        }
        if misses.is_empty() { Ok(()) } else { self.below.read(&mut misses, why) }
    }

    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        if !self.is_on() {
            return self.below.put(batch, cause, need);
        }
        let promised = self.promise(batch);
        if let Err(refused) = self.below.put(batch, cause, need) {
            self.cancel(&promised);
            return Err(refused);
        }
        for Promised { at, partition, frame } in promised {
            add(&self.counters.admitted_dirty);
            self.push(Write { partition, frame, image: batch[at].clone() });
        }
        Ok(())
    }

    fn offer(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image) {
        self.below.offer(id, why, copy);
        if !self.is_on() || !id.space().is_logged() {
            return;
        }
        let (partition, now) = (self.partition_of(id), self.tick());
        let mut table = self.table(partition);
        if table.touch(id, now) {
            return;
        }
        if !self.design().takes_clean(why, table.is_filling()) {
            return add(&self.counters.sequential);
        }
        drop(table);
        if !self.writes.promise() {
            return add(&self.counters.throttled);
        }
        let image = copy();
        let admitted = self.table(partition).admit(id, image.lsn(), now);
        match admitted {
            Admitted::Frame(frame) => {
                add(&self.counters.admitted_clean);
                self.push(Write { partition, frame, image });
            }
            admitted => self.take_no(admitted),
        }
    }

    fn changed(&self, id: PageId) {
        let is_kept = planted(OLDER_STAY) || !self.is_on() || !id.space().is_logged();
        if !is_kept && self.table(self.partition_of(id)).remove(id) {
            add(&self.counters.invalidated);
        }
        self.below.changed(id);
    }

    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        if self.is_on() && ids.first.space().is_logged() {
            let each = self.partitions.iter().map(|table| table.lock().remove_range(ids));
            self.counters.invalidated.fetch_add(each.sum(), Relaxed);
        }
        self.below.discard(ids, after)
    }

    fn checkpoint(&self, step: Step) -> Result<()> {
        self.below.checkpoint(step)
    }

    fn drain(&self) -> Result<()> {
        self.below.drain()
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        let pages: Vec<PageId> =
            self.partitions.iter().flat_map(|table| table.lock().clean_pages()).collect();
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
        let (counts, of) = (self.counts(), |counter: &AtomicU64| counter.load(Relaxed));
        let counters = &self.counters;
        let told = vec![
            ("frames", u64::from(self.partition_frames) * self.partitions.len() as u64),
            ("free", counts.free),
            ("writing", counts.writing),
            ("clean", counts.clean),
            ("is_lost", u64::from(self.is_lost.load(Relaxed))),
            ("read_hits", of(&counters.hits)),
            ("read_misses", of(&counters.misses)),
            ("trimmed_reads", of(&counters.trimmed)),
            ("admitted_clean", of(&counters.admitted_clean)),
            ("admitted_dirty", of(&counters.admitted_dirty)),
            ("refused_sequential", of(&counters.sequential)),
            ("refused_throttled", of(&counters.throttled)),
            ("refused_busy", of(&counters.busy)),
            ("invalidated", of(&counters.invalidated)),
            ("damaged", of(&counters.damaged)),
            ("errors", of(&counters.errors)),
            ("written_pages", of(&counters.written)),
            ("write_batches", of(&counters.write_batches)),
            ("pending", self.writes.pending() as u64),
        ];
        let mut reports = vec![LevelReport { name: "flash", part: None, counters: told }];
        reports.extend(self.below.report());
        reports
    }
}
