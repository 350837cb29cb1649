//! The NVM page buffer: a level in persistent memory between the buffer pool and the data files (Kang 2016,
//! chapter 3).
//!
//! A page that leaves the pool is copied into a free slot, and is stable from then on. It never overwrites
//! its older version. Later the page is written to the data files in a batch (`flush.rs`). Until its slot is
//! needed, the page is read from the slot.
//!
//! Invariants
//! 1. Only one thread stores to a slot: the thread that took it from the free slots, or that holds its page.
//! 2. A published image is never stored to. A slot is free only after a fence has made its state word 0
//!    durable.
//! 3. A version enters the book (the table of versions) only after every older version of its page was freed
//!    durably. So no old version comes back after the newer one is gone.
//! 4. `put` returns only after a fence has made the state words durable. Only then are the pages reported to
//!    the dirty-page table: either the whole batch, or nothing.
//! 5. A version leaves its slot only in three cases. (a) The data files have exactly this image, durably. (b)
//!    A newer version exists. (c) The page was discarded, and the log is durable up to the discard.
//!
//! A put waits for the drive only if every slot has a page that the data files lack. Then the put itself
//! writes some of these pages to the data files. A counter records this.
//!
//! The steps of a put are:
//! 1. Take slots. Only this step can be refused.
//! 2. Hold the older versions of the pages.
//! 3. Fill the slots; *fence*.
//! 4. Publish the slots; *fence*.
//! 5. Free the slots of the older versions; *fence*.
//! 6. Report to the dirty-page table, and enter the versions into the book.
//!
//! A crash between the last two fences leaves two versions. The one with the larger sequence is newer.
//!
//! Lock order: frame latches, then the book. The book's lock is not held during I/O or fences.
//!
//! This module does not know frames, or how the data files protect and store pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex, MutexGuard};
use varve_device::{planted, reached};

use super::area::{PageArea, Slot, SlotHeader};
use super::book::{Book, OlderVersion, Version};
use super::marks::Marks;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page::PageDamage;
use crate::base::times::{Times, Timing};
use crate::level::ledger::Ledger;
use crate::level::{Cause, DiscardHold, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::log::WriteAhead;
use crate::nvm::SlotCounts;

/// The most pages of a put, if there are enough slots.
const TOGETHER_MAX: usize = 64;
/// The largest number of slots that are freed with one fence while no thread waits for them.
const RETIRE_MAX: usize = 1024;

/// The NVM page buffer as a level.
pub(crate) struct NvmBuffer {
    pub(super) area: PageArea,
    pub(super) book: Mutex<Book>,
    /// Signalled when the book has changed in a way that a thread may wait for.
    pub(super) changed: Condvar,
    /// Rung when threads should begin to flush.
    pub(super) bell: Condvar,
    pub(super) marks: Marks,
    pub(super) home: Arc<dyn Level>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) log: Arc<dyn WriteAhead>,
    pub(super) times: Arc<Times>,
    pub(super) counters: NvmCounters,
}

#[derive(Default)]
pub(super) struct NvmCounters {
    pub(super) puts: AtomicU64,
    pub(super) inline_puts: AtomicU64,
    /// The number of versions that were replaced by newer ones before the data files got them.
    pub(super) reclaimed: AtomicU64,
    pub(super) read_hits: AtomicU64,
    /// The number of clean versions whose slot was damaged. The image in the data files was used, and the
    /// slot was freed.
    pub(super) replaced: AtomicU64,
    pub(super) home_pages: AtomicU64,
    pub(super) home_batches: AtomicU64,
    /// The number of times that a put had to wait until other threads had freed slots. The second counter has
    /// only puts of threads that needed a frame.
    pub(super) slot_waits: AtomicU64,
    pub(super) inline_slot_waits: AtomicU64,
    /// The number of batches that a put wrote to the data files because it found no slot. The second counter
    /// has only puts of threads that needed a frame.
    pub(super) put_flushes: AtomicU64,
    pub(super) inline_flushes: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// One page of a put in progress.
struct Putting<'i> {
    image: &'i Image,
    header: SlotHeader,
    slot: u32,
    older: Option<u32>,
}

impl NvmBuffer {
    /// Returns the number of slots in each state. Slots that are being filled or freed are not included.
    pub(crate) fn slot_counts(&self) -> SlotCounts {
        let [free, dirty, clean, doomed] = self.book.lock().counts().map(|count| count as u64);
        SlotCounts { total: u64::from(self.area.slots()), free, dirty, clean, doomed }
    }

    fn put_logged(&self, images: &[&Image], cause: Cause) -> Result<()> {
        let durable = self.log.durable_lsn();
        for image in images {
            let unchecked = planted("pages: written before their log");
            assert!(unchecked || image.lsn() <= durable, "page {} goes out before its log", image.id());
        }
        let slots = self.take_slots(images.len(), cause)?;
        let putting = self.begin(images, slots);
        for one in &putting {
            self.area.begin_fill(one.slot, &one.header, one.image.bytes());
        }
        if !planted("nvm: no fence before a slot is published") {
            self.area.fence();
        }
        if planted("nvm: the ledger hears before the second fence") {
            images.iter().for_each(|image| self.ledger.stable(image.id(), image.lsn()));
        }
        if planted("nvm: the older version is retired first") {
            self.retire_older(&putting);
        }
        putting.iter().for_each(|one| self.area.begin_publish(one.slot, &one.header));
        if !planted("nvm: put returns before the state is fenced") {
            self.area.fence();
        }
        reached("nvm: slot published");
        self.retire_older(&putting);
        images.iter().for_each(|image| self.ledger.stable(image.id(), image.lsn()));
        self.end(&putting, cause);
        Ok(())
    }

    /// Assigns sequence numbers to the pages of a put, and holds the older versions of these pages.
    fn begin<'i>(&self, images: &[&'i Image], slots: Vec<u32>) -> Vec<Putting<'i>> {
        let mut book = self.book.lock();
        let sequences = book.take_sequences(images.len())..;
        let mut putting = Vec::with_capacity(images.len());
        for ((image, slot), sequence) in images.iter().copied().zip(slots).zip(sequences) {
            let older = loop {
                match book.hold(image.id()) {
                    OlderVersion::None => break None,
                    OlderVersion::Older(slot) => break Some(slot),
                    // The thread that frees or checks the version does not wait for any put, so this wait
                    // ends.
                    OlderVersion::Wait => self.wait(&mut book),
                }
            };
            putting.push(Putting { image, header: SlotHeader::of(image, sequence), slot, older });
        }
        putting
    }

    fn retire_older(&self, putting: &[Putting<'_>]) {
        let older: Vec<u32> = putting.iter().filter_map(|one| one.older).collect();
        older.iter().for_each(|slot| self.area.begin_retire(*slot));
        if !older.is_empty() && !planted("nvm: a freed slot is not fenced") {
            reached("nvm: version superseded");
            self.area.fence();
        }
    }

    fn end(&self, putting: &[Putting<'_>], cause: Cause) {
        let mut book = self.book.lock();
        let dirty_before = book.counts()[1];
        for Putting { header, slot, .. } in putting {
            let SlotHeader { id, lsn, sequence, .. } = *header;
            book.replace(Version { id, slot: *slot, sequence, lsn });
        }
        let dirty = book.counts()[1];
        let reclaimed = (dirty_before + putting.len()).saturating_sub(dirty);
        drop(book);
        self.changed.notify_all();
        if dirty > self.marks.high() {
            self.bell.notify_all();
        }
        self.counters.reclaimed.fetch_add(reclaimed as u64, Relaxed);
        self.counters.puts.fetch_add(putting.len() as u64, Relaxed);
        if cause == Cause::EvictInline {
            self.counters.inline_puts.fetch_add(putting.len() as u64, Relaxed);
        }
    }

    /// Makes the slots of versions free, which the book has marked as leaving.
    pub(super) fn retire(&self, leaving: &[Version]) {
        if leaving.is_empty() {
            return;
        }
        leaving.iter().for_each(|version| self.area.begin_retire(version.slot));
        if !planted("nvm: a freed slot is not fenced") {
            self.area.fence();
        }
        self.book.lock().left(leaving);
        self.changed.notify_all();
    }

    fn retire_due(&self) {
        let durable = self.log.durable_lsn();
        loop {
            let due = self.book.lock().leave_due(durable, RETIRE_MAX);
            if due.is_empty() {
                return;
            }
            reached("nvm: doomed slot retired");
            self.retire(&due);
        }
    }

    /// Waits until none of these discarded pages has a slot. A put that needed slots may have begun to free
    /// some of them, or a check may be reading one.
    fn await_gone(&self, ids: PageRange, durable: Lsn) {
        let mut book = self.book.lock();
        while !book.among(ids).is_empty() {
            let due = book.leave_due(durable, RETIRE_MAX);
            if due.is_empty() {
                self.wait(&mut book);
            } else {
                drop(book);
                self.retire(&due);
                book = self.book.lock();
            }
        }
    }

    /// Waits for a change of the book.
    pub(super) fn wait(&self, book: &mut MutexGuard<'_, Book>) {
        book.waiting += 1;
        self.changed.wait(book);
        book.waiting -= 1;
    }

    /// Reads the page from its slot into the frame. Returns false if it has no slot.
    fn read_slot(&self, id: PageId, want: &mut Want<'_>) -> Result<bool> {
        let Want::Page { frame, got } = want else { return Ok(false) };
        if !id.space().is_logged() {
            return Ok(false);
        }
        let Some((version, is_clean)) = self.book.lock().begin_read(id) else { return Ok(false) };
        let loaded = self.load(&version, frame);
        let is_awaited = self.book.lock().end_read(id);
        if is_awaited {
            self.changed.notify_all();
        }
        match loaded {
            Err(damage) if is_clean => {
                self.read_instead(&version, frame, got).map_err(|_| damage)?;
                self.retire_replaced(&version);
                return Ok(true);
            }
            loaded => loaded?,
        }
        *got = Some(Got { from: Tier::Nvm, lsn: version.lsn, taken: false });
        self.counters.read_hits.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// Copies a version to `page`, and checks that it is the image that was put. The caller has pinned the
    /// version.
    pub(super) fn load(&self, version: &Version, page: &mut [u8]) -> Result<()> {
        let header = match self.area.header(version.slot) {
            Slot::Published(header) => header,
            // A slot that has a version is never free, so this is damage.
            Slot::Free => return Err(self.area.damaged(version.slot, "it is free")),
            Slot::Damaged(why) => return Err(self.area.damaged(version.slot, why)),
        };
        self.area.load(version.slot, page);
        if planted("nvm: slot images are not verified") {
            return Ok(());
        }
        self.area.verify(version.slot, &header, page)?;
        let durable = self.log.durable_lsn();
        if (header.id, header.lsn, header.sequence) != (version.id, version.lsn, version.sequence) {
            return Err(self.area.damaged(version.slot, "it holds another version"));
        }
        if version.lsn > durable {
            let damage = PageDamage::BeyondLog { lsn: version.lsn, durable };
            return Err(PagerError::DamagedPage { id: version.id, damage });
        }
        Ok(())
    }

    /// Reads the page from the data files, because the slot is damaged. The data files should have the same
    /// image.
    fn read_instead(&self, version: &Version, frame: &mut [u8], got: &mut Option<Got>) -> Result<()> {
        let mut want = [Want::Page { frame, got: None }];
        self.home.read(&mut [Run { first: version.id, want: &mut want }], Access::Random)?;
        let [Want::Page { got: found, .. }] = want else { return Ok(()) };
        *got = found;
        if found.is_none_or(|found| found.lsn != version.lsn) {
            return Err(self.area.damaged(version.slot, "home has another version"));
        }
        reached("nvm: damaged clean slot");
        Ok(())
    }

    /// Frees a damaged slot whose page the data files have. Only this process knows that they have it. The
    /// next start would take the slot for the only copy of the page, and refuse to open the database.
    fn retire_replaced(&self, version: &Version) {
        let leaving = self.book.lock().leave_if_clean(version);
        self.counters.replaced.fetch_add(leaving.len() as u64, Relaxed);
        self.retire(&leaving);
    }
}

impl Level for NvmBuffer {
    fn read(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()> {
        let mut misses: Vec<Run<'_, '_>> = Vec::new();
        for run in runs.iter_mut() {
            let mut hits = Vec::with_capacity(run.want.len());
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                hits.push(self.read_slot(run.first.plus(at), want)?);
            }
            let (mut first, mut rest) = (run.first, &mut *run.want);
            for stretch in hits.chunk_by(|a, b| a == b) {
                let (want, behind) = rest.split_at_mut(stretch.len());
                if !stretch[0] && want.iter().any(|want| matches!(want, Want::Page { .. })) {
                    misses.push(Run { first, want });
                }
                (first, rest) = (first.plus(stretch.len() as u32), behind);
            }
        }
        if misses.is_empty() { Ok(()) } else { self.home.read(&mut misses, why) }
    }

    /// Puts images of the temporary space to the data files. Of the other images, either all get slots, or
    /// none.
    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()> {
        let is_logged = |image: &Image| image.id().space().is_logged();
        for part in batch.chunk_by(|a, b| is_logged(a) == is_logged(b)) {
            if !is_logged(&part[0]) {
                self.home.put(part, cause, need)?;
            }
        }
        let logged: Vec<&Image> = batch.iter().filter(|image| is_logged(image)).collect();
        if logged.is_empty() {
            return Ok(());
        }
        self.times.of(Timing::NvmPut, || self.put_logged(&logged, cause))
    }

    fn offer(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image) {
        self.home.offer(id, why, copy);
    }

    fn changed(&self, id: PageId) {
        self.home.changed(id);
    }

    /// Waits until none of the pages is being written to the data files. If the discard is durable in the
    /// log, also waits until none has a slot, because the end of the file may be cut off next.
    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        if ids.first.space().is_logged() {
            let at_once = planted("nvm: a dropped page's slot goes at once");
            let after = if at_once { Lsn::ZERO } else { after };
            let mut book = self.book.lock();
            while book.doom(ids, after) {
                self.wait(&mut book);
            }
            drop(book);
            let durable = self.log.durable_lsn();
            if after <= durable {
                self.retire_due();
                self.await_gone(ids, durable);
            }
        }
        self.home.discard(ids, after)
    }

    fn discarding(&self, space: SpaceId) -> Option<DiscardHold<'_>> {
        self.home.discarding(space)
    }

    fn settle(&self) -> Result<()> {
        self.home.settle()
    }

    fn needs_log_from(&self) -> Option<Lsn> {
        self.home.needs_log_from()
    }

    /// Frees slots that are due before the redo position is stored, because the region must not change after
    /// a clean shutdown is recorded.
    fn checkpoint(&self, step: Step) -> Result<()> {
        if step == Step::BeforeEnd {
            self.retire_due();
        }
        self.home.checkpoint(step)
    }

    /// Does nothing, because the slots survive a shutdown, so the pages in them stay there.
    fn drain(&self) -> Result<()> {
        self.home.drain()
    }

    fn check(&self, damages: &mut Vec<String>) -> Result<()> {
        self.check_slots(damages)?;
        self.home.check(damages)
    }

    fn put_pages_max(&self) -> usize {
        (self.area.slots() as usize / 4).clamp(1, TOGETHER_MAX)
    }

    fn report(&self) -> Vec<LevelReport> {
        let [free, dirty, clean, doomed] = self.book.lock().counts().map(|count| count as u64);
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = vec![
            ("slots", u64::from(self.area.slots())),
            ("free", free),
            ("dirty", dirty),
            ("clean", clean),
            ("doomed", doomed),
            ("puts", of(&self.counters.puts)),
            ("inline_puts", of(&self.counters.inline_puts)),
            ("reclaimed", of(&self.counters.reclaimed)),
            ("read_hits", of(&self.counters.read_hits)),
            ("replaced", of(&self.counters.replaced)),
            ("home_pages", of(&self.counters.home_pages)),
            ("home_batches", of(&self.counters.home_batches)),
            ("slot_waits", of(&self.counters.slot_waits)),
            ("inline_slot_waits", of(&self.counters.inline_slot_waits)),
            ("put_flushes", of(&self.counters.put_flushes)),
            ("inline_flushes", of(&self.counters.inline_flushes)),
            ("refused", of(&self.counters.refused)),
        ];
        let mut reports = vec![LevelReport { name: "nvm", part: None, counters }];
        reports.extend(self.home.report());
        reports
    }
}
