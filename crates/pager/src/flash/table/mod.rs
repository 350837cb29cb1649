//! The slot table of one partition of the flash cache. It says which page is in which slot (`Frame` in the
//! code), which slot is evicted next, and which slot is cleaned next.
//!
//! ```text
//!            admit                   written(true)            end_clean(true)
//!   Free ------------> Writing ---------------------> Dirty ------------------> Clean
//!    ^                    |        (if the data files have the page: Clean)       |
//!    |                    | remove, written(false)                                | remove, admit of another page
//!    '---- when the write, the last read and the cleaning end ---------------------'
//! ```
//!
//! Invariants
//! 1. The table finds a page in at most one slot. If a slot is removed while it is being written, read or
//!    cleaned, no lookup finds it, and it becomes free only when that work has ended.
//! 2. A slot is in the clean heap exactly if it is written, not dirty, and in use by no thread. Only such
//!    slots are evicted. A slot is in the dirty heap exactly if it is written, dirty, and not being cleaned.
//! 3. A slot is dirty as long as the data files may lack its page.
//! 4. Some designs keep invalid slots, whose page has changed. Such a slot is found by its page only to be
//!    written again.
//! 5. A slot that an earlier start filled is unverified until its page was read from it. A dirty slot is
//!    unverified only while redo runs. If a seal says that the data files lack a page, its slot is never
//!    unverified.
//!
//! Not known here: files, other partitions, designs.

use rustc_hash::FxHashMap;

use crate::base::ids::{PageId, PageRange};
use crate::base::lsn::Lsn;
use crate::flash::table::heap::Heap;

mod frame;
pub(crate) mod frames;
pub(crate) mod heap;
pub(crate) mod shape;
#[cfg(test)]
mod tests;

pub(super) use frame::{Admitted, Arrival, Cleaning, Counts, FrameNo, Kept, ReadFrom, Reading, Saw};
use frame::{Frame, UNUSED};

/// Which clean frame is the next victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Evicts the page whose last but one access is longest ago (LRU-2, O'Neil 1993). For a page that was
    /// used once since it was admitted, the time of admission counts.
    Lru2,
    /// That which was filled longest ago: the frames are a ring.
    Fifo,
    /// That of the coldest page, by what `heat` says.
    Heat,
}

/// Which dirty frame is cleaned next (Do 2012: chapter 3 and chapter 4 differ).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanOrder {
    /// That of the page whose last but one access is longest ago.
    LastUse,
    /// That of the page whose oldest change is the oldest, so that the log can be cut.
    RecoveryLsn,
}

impl CleanOrder {
    /// All of them.
    pub const ALL: [CleanOrder; 2] = [CleanOrder::LastUse, CleanOrder::RecoveryLsn];

    /// Its name in the configuration file.
    pub fn name(self) -> &'static str {
        match self {
            CleanOrder::LastUse => "last-use",
            CleanOrder::RecoveryLsn => "recovery-lsn",
        }
    }

    /// The one of this name.
    pub fn of(name: &str) -> Option<CleanOrder> {
        CleanOrder::ALL.into_iter().find(|order| order.name() == name)
    }
}

/// The table.
pub(super) struct Partition {
    frames: Vec<Frame>,
    by_page: FxHashMap<PageId, FrameNo>,
    free: Vec<FrameNo>,
    clean: Heap,
    dirty: Heap,
    counts: Counts,
    order: Order,
    clean_order: CleanOrder,
    /// Frames of which a restart is to know something else than before, if somebody wants to hear of that.
    touched: Option<Vec<FrameNo>>,
}

impl Partition {
    /// Of so many frames, all free.
    pub(super) fn new(count: u32, order: Order, clean_order: CleanOrder) -> Partition {
        Partition {
            frames: vec![UNUSED; count as usize],
            by_page: FxHashMap::default(),
            // Low ones first, so that the file fills from its beginning.
            free: (0..count).rev().collect(),
            clean: Heap::new(count),
            dirty: Heap::new(count),
            counts: Counts { free: u64::from(count), ..Counts::default() },
            order,
            clean_order,
            touched: None,
        }
    }

    /// From now on [`take_touched`](Self::take_touched) tells of frames.
    pub(super) fn tell_touched(&mut self) {
        self.touched = Some(Vec::new());
    }

    /// Frames of which a restart is to know something else than when this was asked last; some may be told twice.
    pub(super) fn take_touched(&mut self) -> Vec<FrameNo> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Goes on with other victims.
    pub(super) fn reorder(&mut self, order: Order, clean_order: CleanOrder) {
        (self.order, self.clean_order) = (order, clean_order);
        (0..self.frames.len() as u32).for_each(|no| self.place(no));
    }

    /// Changes a frame, and puts it where it belongs then.
    fn update(&mut self, no: FrameNo, change: impl FnOnce(&mut Frame)) {
        let before = self.touched.is_some().then(|| self.kept(no));
        let frame = &mut self.frames[no as usize];
        *self.counts.of(frame) -= 1;
        change(frame);
        let frame = &mut self.frames[no as usize];
        if frame.is_doomed && frame.is_idle() {
            *frame = UNUSED;
            self.free.push(no);
        }
        let frame = self.frames[no as usize];
        *self.counts.of(&frame) += 1;
        self.place(no);
        if before.is_some_and(|before| !Kept::is_same(before, self.kept(no))) {
            self.touch_record(no);
        }
    }

    fn touch_record(&mut self, no: FrameNo) {
        if let Some(touched) = &mut self.touched {
            touched.push(no);
        }
    }

    fn place(&mut self, no: FrameNo) {
        self.clean.remove(no);
        self.dirty.remove(no);
        let frame = &self.frames[no as usize];
        match frame {
            Frame { is_free: true, .. } | Frame { is_doomed: true, .. } => {}
            Frame { is_dirty: true, .. } => {
                let key = match self.clean_order {
                    _ if frame.is_passed_over => u64::MAX,
                    _ if self.order == Order::Fifo => frame.admitted,
                    CleanOrder::LastUse => frame.last_but_one,
                    CleanOrder::RecoveryLsn => frame.since.get(),
                };
                if frame.is_written && !frame.is_cleaning {
                    self.dirty.insert(no, key);
                }
            }
            _ => {
                let key = match self.order {
                    Order::Lru2 => frame.last_but_one,
                    Order::Fifo => frame.admitted,
                    Order::Heat => frame.heat,
                };
                if frame.is_idle() {
                    self.clean.insert(no, key);
                }
            }
        }
    }

    fn found(&self, id: PageId) -> Option<(FrameNo, &Frame)> {
        self.by_page.get(&id).map(|no| (*no, &self.frames[*no as usize]))
    }

    /// Whether the page has a valid frame; that counts as an access.
    pub(super) fn touch(&mut self, id: PageId, now: u64) -> bool {
        let Some((no, Frame { is_invalid: false, .. })) = self.found(id) else { return false };
        self.update(no, |frame| (frame.last_but_one, frame.last) = (frame.last, now));
        true
    }

    /// Where to read the page; that counts as an access. `None`: at home, or above.
    pub(super) fn begin_read(&mut self, id: PageId, now: u64) -> Option<ReadFrom> {
        let (no, frame) = self.found(id).filter(|(_, frame)| !frame.is_invalid)?;
        let Frame { lsn, is_dirty, is_written, readers, is_unverified, .. } = *frame;
        if !is_written {
            return is_dirty.then_some(ReadFrom::OnItsWay(no));
        }
        if readers == u16::MAX && !is_dirty {
            return None;
        }
        self.update(no, |frame| {
            frame.readers += 1;
            (frame.last_but_one, frame.last) = (frame.last, now);
        });
        Some(ReadFrom::Frame(Reading { frame: no, lsn, is_dirty, is_unverified }))
    }

    /// A read has ended. Whether what it found made the frame be given up.
    pub(super) fn end_read(&mut self, no: FrameNo, saw: Saw) -> bool {
        let frame = &self.frames[no as usize];
        // Redo has what home lacks of a page that nobody has seen on flash since the start.
        let can_go = !frame.is_dirty || frame.is_unverified;
        let gives_up = saw == Saw::Other && !frame.is_doomed && can_go;
        if gives_up {
            self.forget(no);
        }
        assert!(self.frames[no as usize].readers > 0, "frame {no} was not being read");
        self.update(no, |frame| {
            frame.readers -= 1;
            frame.is_unverified &= saw != Saw::Page;
        });
        gives_up
    }

    /// A frame for this version of the page, unless it has one.
    pub(super) fn admit(&mut self, new: Arrival, heat_of: impl Fn(PageId) -> u64) -> Admitted {
        let found = self.found(new.id).map(|(no, frame)| (no, *frame));
        if let Some((no, frame)) = found {
            // What is kept back has to be there.
            let is_sure = !frame.is_unverified || new.lacks.is_none();
            if !frame.is_invalid && frame.lsn >= new.lsn && is_sure {
                self.touch(new.id, new.now);
                return Admitted::Has { is_dirty: frame.is_dirty };
            }
            if frame.is_invalid && frame.is_idle() {
                return Admitted::Frame(self.fill(no, new));
            }
            self.remove(new.id);
        }
        let no = match self.free.pop() {
            Some(no) => no,
            None => {
                let coldest = self.coldest(heat_of);
                if coldest.is_some_and(|coldest| new.heat.is_some_and(|heat| heat <= coldest)) {
                    return Admitted::Colder;
                }
                let Some(no) = self.clean.pop() else { return Admitted::Busy };
                self.touch_record(no);
                let page = self.frames[no as usize].page.take();
                page.and_then(|page| self.by_page.remove(&page));
                no
            }
        };
        self.by_page.insert(new.id, no);
        Admitted::Frame(self.fill(no, new))
    }

    fn fill(&mut self, no: FrameNo, new: Arrival) -> FrameNo {
        self.update(no, |frame| {
            *frame = Frame {
                page: Some(new.id),
                lsn: new.lsn,
                since: new.lacks.unwrap_or(Lsn::ZERO),
                last: new.now,
                last_but_one: new.now,
                admitted: new.now,
                heat: new.heat.unwrap_or_default(),
                is_dirty: new.lacks.is_some(),
                is_free: false,
                ..UNUSED
            };
        });
        no
    }

    /// The temperature of the next slot to evict. Temperatures of pages rise while they are in the heap; the
    /// heap is updated when such a page reaches its top.
    fn coldest(&mut self, heat_of: impl Fn(PageId) -> u64) -> Option<u64> {
        if self.order != Order::Heat {
            return None;
        }
        loop {
            let no = self.clean.top()?;
            let frame = &mut self.frames[no as usize];
            let heat = frame.page.map_or(0, &heat_of);
            if heat <= frame.heat {
                return Some(frame.heat);
            }
            frame.heat = heat;
            self.place(no);
        }
    }

    /// Whether the page has a dirty frame.
    pub(super) fn is_dirty(&self, id: PageId) -> bool {
        self.found(id).is_some_and(|(_, frame)| frame.is_dirty)
    }

    /// Whether this is the page's frame, and home may lack what it is to have.
    pub(super) fn lacks(&self, no: FrameNo, id: PageId) -> bool {
        self.found(id).is_some_and(|(found, frame)| found == no && frame.is_dirty)
    }

    /// Whether the page has a frame, whatever is in it.
    pub(super) fn has(&self, id: PageId) -> bool {
        self.by_page.contains_key(&id)
    }

    /// Whether the page has an invalid frame, which may be written again.
    pub(super) fn has_invalid(&self, id: PageId) -> bool {
        self.found(id).is_some_and(|(_, frame)| frame.is_invalid)
    }

    /// Whether the frame was removed, or is invalid, before it was written.
    pub(super) fn is_unwanted(&self, no: FrameNo) -> bool {
        let frame = &self.frames[no as usize];
        frame.is_doomed || frame.is_invalid
    }

    /// Ends the write of an admitted page. Returns whether the page is in its slot now: the write succeeded,
    /// and the page was not removed.
    pub(super) fn written(&mut self, no: FrameNo, is_good: bool) -> bool {
        if !is_good && !self.frames[no as usize].is_doomed {
            self.forget(no);
        }
        let Frame { is_free, is_written, is_doomed, is_invalid, .. } = self.frames[no as usize];
        assert!(!is_free && !is_written, "frame {no} was not being written");
        self.update(no, |frame| frame.is_written = true);
        !is_doomed && !is_invalid
    }

    /// The dirty frame that is to be cleaned next: its page.
    pub(super) fn next_to_clean(&self) -> Option<PageId> {
        self.dirty.top().and_then(|no| self.frames[no as usize].page)
    }

    /// Begins to clean the page's frame, if it is dirty and nobody does.
    pub(super) fn begin_clean(&mut self, id: PageId) -> Option<Cleaning> {
        let (no, frame) = self.found(id).filter(|(_, frame)| frame.is_dirty && !frame.is_cleaning)?;
        let Frame { lsn, is_written, .. } = *frame;
        self.update(no, |frame| frame.is_cleaning = true);
        Some(Cleaning { frame: no, lsn, is_written })
    }

    /// The cleaning has ended; `is_home`: home has what the frame has.
    pub(super) fn end_clean(&mut self, no: FrameNo, is_home: bool) {
        assert!(self.frames[no as usize].is_cleaning, "frame {no} was not being cleaned");
        self.update(no, |frame| {
            frame.is_cleaning = false;
            frame.is_dirty &= !is_home;
        });
    }

    /// Home had no room for what the frame has: all others are cleaned before it.
    pub(super) fn pass_over(&mut self, no: FrameNo) {
        if self.frames[no as usize].is_dirty {
            self.update(no, |frame| frame.is_passed_over = true);
        }
    }

    /// The page's frame is not valid any more. Whether it had one.
    pub(super) fn remove(&mut self, id: PageId) -> bool {
        let Some((no, frame)) = self.found(id) else { return false };
        let was_valid = !frame.is_invalid;
        self.forget(no);
        was_valid
    }

    /// As `remove`, of a page that goes up for good; not while it is being cleaned. Whether home may lack it.
    pub(super) fn take(&mut self, id: PageId) -> Option<bool> {
        let (no, frame) = self.found(id).filter(|(_, frame)| !frame.is_cleaning && !frame.is_invalid)?;
        let is_dirty = frame.is_dirty;
        self.forget(no);
        Some(is_dirty)
    }

    /// As `remove`, but the frame stays the page's (Canim 2010). Whether it was valid.
    pub(super) fn invalidate(&mut self, id: PageId) -> bool {
        let Some((no, frame)) = self.found(id) else { return false };
        assert!(!frame.is_dirty, "{id} is dirty on flash, and its frame would be invalid");
        let was_valid = !frame.is_invalid;
        self.update(no, |frame| frame.is_invalid = true);
        was_valid
    }

    /// As `remove`, if what the frame has is older than this.
    pub(super) fn remove_older(&mut self, id: PageId, lsn: Lsn) -> bool {
        let is_older = self.found(id).is_some_and(|(_, frame)| frame.lsn < lsn && !frame.is_invalid);
        is_older && self.remove(id)
    }

    /// As `remove`, of a range of pages. How many.
    pub(super) fn remove_range(&mut self, ids: PageRange) -> u64 {
        if ids.count as usize > self.by_page.len() {
            return self.remove_all(|id| ids.contains(id));
        }
        (0..ids.count).filter(|at| self.remove(ids.first.plus(*at))).count() as u64
    }

    /// As `remove`, of all pages that `is_meant`. How many.
    pub(super) fn remove_all(&mut self, is_meant: impl Fn(PageId) -> bool) -> u64 {
        let meant: Vec<PageId> = self.by_page.keys().copied().filter(|id| is_meant(*id)).collect();
        meant.iter().filter(|id| self.remove(**id)).count() as u64
    }

    /// As `remove`, of all pages that home has.
    pub(super) fn remove_clean(&mut self) -> u64 {
        self.remove_clean_if(|_| true)
    }

    /// As `remove_clean`, of those that are meant.
    pub(super) fn remove_clean_if(&mut self, is_meant: impl Fn(PageId) -> bool) -> u64 {
        let is_clean = |no: &FrameNo| !self.frames[*no as usize].is_dirty;
        let pages = self.by_page.iter().filter(|(id, no)| is_clean(no) && is_meant(**id));
        let clean: Vec<PageId> = pages.map(|(id, _)| *id).collect();
        clean.iter().filter(|id| self.remove(**id)).count() as u64
    }

    /// What a restart is to know of the frame; `None`: there is no page in it that could be read.
    pub(super) fn kept(&self, no: FrameNo) -> Option<Kept> {
        let frame = &self.frames[no as usize];
        let Frame { lsn, last, last_but_one, admitted, is_dirty, .. } = *frame;
        let page = frame.page.filter(|_| frame.is_written && !frame.is_invalid && !frame.is_doomed)?;
        Some(Kept { page, lsn, last, last_but_one, admitted, is_dirty })
    }

    /// Enters a page that an earlier start left in a free slot. `lacks` is the first change that the data
    /// files may lack; `is_sure` means that they lack it. If two slots have the page, the slot with the newer
    /// version stays. Returns whether it is this slot. The table can be used after
    /// [`found_all`](Self::found_all).
    pub(super) fn find(&mut self, no: FrameNo, kept: Kept, lacks: Option<Lsn>, is_sure: bool) -> bool {
        let Kept { page, lsn, last, last_but_one, admitted, .. } = kept;
        if let Some((other, frame)) = self.found(page) {
            if frame.lsn >= lsn {
                return false;
            }
            self.by_page.remove(&page);
            self.update(other, |frame| *frame = UNUSED);
        }
        self.by_page.insert(page, no);
        self.update(no, |frame| {
            *frame = Frame {
                page: Some(page),
                lsn,
                since: lacks.unwrap_or(Lsn::ZERO),
                last,
                last_but_one,
                admitted,
                is_dirty: lacks.is_some(),
                is_free: false,
                is_written: true,
                is_unverified: lacks.is_none() || !is_sure,
                ..UNUSED
            };
        });
        true
    }

    /// All frames that are to be found are.
    pub(super) fn found_all(&mut self) {
        self.free =
            (0..self.frames.len() as u32).rev().filter(|no| self.frames[*no as usize].is_free).collect();
    }

    /// As `remove`, of all pages that home may lack and that nobody has seen on flash since the start. How many.
    pub(super) fn remove_unverified_dirty(&mut self) -> u64 {
        let is_meant = |no: &FrameNo| {
            let frame = &self.frames[*no as usize];
            frame.is_dirty && frame.is_unverified
        };
        let meant: Vec<PageId> =
            self.by_page.iter().filter(|(_, no)| is_meant(no)).map(|(id, _)| *id).collect();
        meant.iter().filter(|id| self.remove(**id)).count() as u64
    }

    /// Nobody finds the frame by its page any more.
    fn forget(&mut self, no: FrameNo) {
        let page = self.frames[no as usize].page;
        page.and_then(|page| self.by_page.remove(&page));
        self.update(no, |frame| {
            frame.is_doomed = true;
            frame.page = None;
        });
    }

    /// Frames by state.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// All frames.
    pub(super) fn frame_count(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Whether all of them are free.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.free == self.frames.len() as u64
    }

    /// Becomes another one; all frames are free.
    pub(super) fn renew(&mut self, other: Partition) {
        assert!(self.is_empty(), "a partition with pages in its frames gets another shape");
        *self = other;
    }

    /// Frames that home may lack.
    pub(super) fn dirty_count(&self) -> u64 {
        self.counts.dirty
    }

    /// Whether more than a twentieth is free: until then whatever leaves the pool is welcome (Do 2012, section 3.3.1, "aggressive
    /// filling").
    pub(super) fn is_filling(&self) -> bool {
        self.free.len() * 20 > self.frames.len()
    }

    /// Whether nobody reads, writes or cleans a frame.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.frames.iter().all(|frame| frame.is_free || frame.is_idle())
    }

    /// Pages that are whole in a valid frame.
    pub(super) fn pages(&self) -> Vec<PageId> {
        let is_whole = |id: &PageId| self.version(*id).is_some();
        self.by_page.keys().copied().filter(is_whole).collect()
    }

    /// Which version of the page is whole in a valid frame, and whether home may lack it.
    pub(super) fn version(&self, id: PageId) -> Option<(Lsn, bool)> {
        let (_, frame) = self.found(id).filter(|(_, frame)| frame.is_written && !frame.is_invalid)?;
        Some((frame.lsn, frame.is_dirty))
    }

    /// Pages that home may lack.
    pub(super) fn dirty_pages(&self) -> Vec<PageId> {
        let is_dirty = |no: &FrameNo| self.frames[*no as usize].is_dirty;
        self.by_page.iter().filter(|(_, no)| is_dirty(no)).map(|(id, _)| *id).collect()
    }
}
