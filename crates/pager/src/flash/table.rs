//! The frame table of one partition of the cache: which page is in which frame, and which frame is the next to go, or to be cleaned.
//!
//! ```text
//!            admit                   written(true)            end_clean(true)
//!   Free ------------> Writing ---------------------> Dirty ------------------> Clean
//!    ^                    |            (of a page that home has: Clean)           |
//!    |                    | remove, written(false)                                | remove, admit of another page
//!    '---- when the write, the last read and the cleaning end ---------------------'
//! ```
//!
//! Invariants
//! 1. A page is in at most one frame that is found by it. A frame that was removed while it is being written, read or cleaned is found
//!    by nobody, and free only when that has ended.
//! 2. A frame is in the clean heap exactly if it is written, not dirty and nobody uses it: only such a one is a victim. It is in the
//!    dirty heap exactly if it is written, dirty and not being cleaned.
//! 3. A frame is dirty as long as home may lack its page.
//! 4. An invalid frame (of designs that keep them) is found by its page only to be written again.
//! 5. A frame of before the start is unverified until its page was read from it; a dirty one only as long as redo runs.
//!
//! Not known here: files, other partitions, designs.

use rustc_hash::FxHashMap;

use super::heap::Heap;
use crate::ids::{PageId, PageRange};
use crate::lsn::Lsn;

/// A frame, by its number within the partition.
pub(super) type FrameNo = u32;

/// Which clean frame is the next victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// That of the page whose last but one access is longest ago (LRU-2, O'Neil 1993). A page that was used once since it came counts
    /// from when it came.
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

#[derive(Debug, Clone, Copy)]
struct Frame {
    page: Option<PageId>,
    lsn: Lsn,
    /// Oldest change that home may lack.
    since: Lsn,
    last: u64,
    last_but_one: u64,
    admitted: u64,
    heat: u64,
    readers: u16,
    is_free: bool,
    is_written: bool,
    is_dirty: bool,
    is_cleaning: bool,
    is_invalid: bool,
    /// It was removed while it was in use.
    is_doomed: bool,
    /// It is as an earlier start left it, and nobody has looked since whether its page is in it.
    is_unverified: bool,
    /// Home had no room for its page.
    is_passed_over: bool,
}

const UNUSED: Frame = Frame {
    page: None,
    lsn: Lsn::ZERO,
    since: Lsn::ZERO,
    last: 0,
    last_but_one: 0,
    admitted: 0,
    heat: 0,
    readers: 0,
    is_free: true,
    is_written: false,
    is_dirty: false,
    is_cleaning: false,
    is_invalid: false,
    is_doomed: false,
    is_unverified: false,
    is_passed_over: false,
};

impl Frame {
    fn is_idle(&self) -> bool {
        self.is_written && !self.is_cleaning && self.readers == 0
    }
}

/// A version of a page that is to get a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) id: PageId,
    pub(super) lsn: Lsn,
    /// `Some`: home lacks it, since this change.
    pub(super) lacks: Option<Lsn>,
    pub(super) now: u64,
    /// It comes only in place of a colder page; `None`: whatever is the next victim.
    pub(super) heat: Option<u64>,
}

/// What became of an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// The page belongs into this frame, which is being written from now on.
    Frame(FrameNo),
    /// Its frame has this version or a newer one, and is dirty or not.
    Has { is_dirty: bool },
    /// All frames are dirty, or being read, written or cleaned.
    Busy,
    /// No frame has a colder page.
    Colder,
}

/// Where a page is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// In this frame, which stays until [`Partition::end_read`].
    Frame(Reading),
    /// It is on its way to this frame, and home lacks it.
    OnItsWay(FrameNo),
}

/// What a read found in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saw {
    /// The page, as the table says.
    Page,
    /// Something else.
    Other,
    /// Nothing: it was not read.
    Nothing,
}

/// A frame that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) frame: FrameNo,
    /// What its page has to have.
    pub(super) lsn: Lsn,
    pub(super) is_dirty: bool,
    /// Whether its page may not be in it: then redo has what home lacks.
    pub(super) is_unverified: bool,
}

/// What is to be known of a frame after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) page: PageId,
    pub(super) lsn: Lsn,
    pub(super) last: u64,
    pub(super) last_but_one: u64,
    pub(super) admitted: u64,
}

impl Kept {
    /// Whether both are the same version of the same page.
    fn is_same(one: Option<Kept>, other: Option<Kept>) -> bool {
        one.map(|kept| (kept.page, kept.lsn)) == other.map(|kept| (kept.page, kept.lsn))
    }
}

/// A frame that is being cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cleaning {
    pub(super) frame: FrameNo,
    pub(super) lsn: Lsn,
    /// Whether its page is in the frame; else it is on its way there.
    pub(super) is_written: bool,
}

/// Frames of the partition by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) free: u64,
    /// Being written, and removed ones that are still in use.
    pub(super) writing: u64,
    pub(super) clean: u64,
    pub(super) dirty: u64,
    pub(super) invalid: u64,
}

impl Counts {
    fn of(&mut self, frame: &Frame) -> &mut u64 {
        match frame {
            Frame { is_free: true, .. } => &mut self.free,
            Frame { is_doomed: true, .. } => &mut self.writing,
            Frame { is_dirty: true, .. } => &mut self.dirty,
            Frame { is_written: false, .. } => &mut self.writing,
            Frame { is_invalid: true, .. } => &mut self.invalid,
            _ => &mut self.clean,
        }
    }

    /// Both together.
    pub(super) fn plus(self, other: Counts) -> Counts {
        Counts {
            free: self.free + other.free,
            writing: self.writing + other.writing,
            clean: self.clean + other.clean,
            dirty: self.dirty + other.dirty,
            invalid: self.invalid + other.invalid,
        }
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
    pub(super) fn begin_read(&mut self, id: PageId, now: u64) -> Option<Found> {
        let (no, frame) = self.found(id).filter(|(_, frame)| !frame.is_invalid)?;
        let Frame { lsn, is_dirty, is_written, readers, is_unverified, .. } = *frame;
        if !is_written {
            return is_dirty.then_some(Found::OnItsWay(no));
        }
        if readers == u16::MAX && !is_dirty {
            return None;
        }
        self.update(no, |frame| {
            frame.readers += 1;
            (frame.last_but_one, frame.last) = (frame.last, now);
        });
        Some(Found::Frame(Reading { frame: no, lsn, is_dirty, is_unverified }))
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

    /// Heat of the next victim. Pages get hotter in their places; the heap hears of it when they come to its top.
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

    /// The write of an admitted page has ended. Whether the page is in its frame now: its write succeeded, and it was not removed.
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
        let Frame { lsn, last, last_but_one, admitted, .. } = *frame;
        let page = frame.page.filter(|_| frame.is_written && !frame.is_invalid && !frame.is_doomed)?;
        Some(Kept { page, lsn, last, last_but_one, admitted })
    }

    /// A free frame has a page since before the start; `lacks`: home may lack it, since this change. Of two frames of a page that with
    /// the newer version stays. Whether it is this one. The table can be used after [`found_all`](Self::found_all).
    pub(super) fn find(&mut self, no: FrameNo, kept: Kept, lacks: Option<Lsn>) -> bool {
        let Kept { page, lsn, last, last_but_one, admitted } = kept;
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
                is_unverified: true,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    fn table(frames: u32) -> Partition {
        Partition::new(frames, Order::Lru2, CleanOrder::LastUse)
    }

    fn admit(table: &mut Partition, no: u32, lsn: u64, now: u64) -> Admitted {
        let new = Arrival { id: page(no), lsn: Lsn::new(lsn), lacks: None, now, heat: None };
        table.admit(new, |_| 0)
    }

    fn keep(table: &mut Partition, no: u32, lsn: u64, since: u64) -> FrameNo {
        let lacks = Some(Lsn::new(since));
        let new = Arrival { id: page(no), lsn: Lsn::new(lsn), lacks, now: lsn, heat: None };
        let Admitted::Frame(frame) = table.admit(new, |_| 0) else { panic!("{no} is refused") };
        frame
    }

    fn put(table: &mut Partition, no: u32, now: u64) -> FrameNo {
        let Admitted::Frame(frame) = admit(table, no, now, now) else { panic!("{no} is refused") };
        assert!(table.written(frame, true));
        frame
    }

    fn read(table: &mut Partition, no: u32, now: u64) -> Option<Reading> {
        match table.begin_read(page(no), now)? {
            Found::Frame(reading) => Some(reading),
            Found::OnItsWay(_) => None,
        }
    }

    #[test]
    fn the_victim_is_the_page_whose_last_but_one_access_is_longest_ago() {
        let mut table = table(3);
        for no in 1..=3 {
            put(&mut table, no, u64::from(no));
        }
        assert!(table.touch(page(1), 4) && table.touch(page(1), 5));
        put(&mut table, 4, 6);
        assert!(!table.touch(page(2), 7), "used once, and came before 3");
        assert!(table.touch(page(1), 7) && table.touch(page(3), 7));
    }

    #[test]
    fn a_page_that_changes_while_it_is_written_or_read_is_not_found_again() {
        let mut table = table(2);
        let Admitted::Frame(frame) = admit(&mut table, 1, 1, 1) else { panic!() };
        assert!(table.begin_read(page(1), 2).is_none(), "it is not there yet");
        assert!(table.remove(page(1)) && !table.remove(page(1)));
        let newer = admit(&mut table, 1, 2, 2);
        assert!(matches!(newer, Admitted::Frame(other) if other != frame));
        assert!(table.is_unwanted(frame) && !table.written(frame, true), "the older one");
        let Admitted::Frame(other) = newer else { panic!() };
        assert!(table.written(other, true));
        let reading = read(&mut table, 1, 3).unwrap();
        assert_eq!((reading.frame, reading.lsn), (other, Lsn::new(2)));
        assert!(table.remove(page(1)));
        assert_eq!(table.counts(), Counts { free: 1, writing: 1, ..Counts::default() });
        assert!(!table.end_read(other, Saw::Page));
        assert_eq!(table.counts(), Counts { free: 2, ..Counts::default() });
    }

    #[test]
    fn a_frame_in_use_is_no_victim() {
        let mut table = table(1);
        let frame = put(&mut table, 1, 1);
        assert_eq!(admit(&mut table, 1, 1, 2), Admitted::Has { is_dirty: false });
        read(&mut table, 1, 2).unwrap();
        read(&mut table, 1, 3).unwrap();
        assert_eq!(admit(&mut table, 2, 1, 4), Admitted::Busy);
        assert!(
            !table.end_read(frame, Saw::Page) && table.end_read(frame, Saw::Other),
            "the second one found damage"
        );
        assert!(matches!(admit(&mut table, 2, 1, 5), Admitted::Frame(_)));
        assert_eq!(admit(&mut table, 3, 1, 5), Admitted::Busy);
    }

    #[test]
    fn a_dirty_frame_is_no_victim_until_it_is_cleaned() {
        let mut table = table(2);
        let frame = keep(&mut table, 1, 5, 3);
        assert_eq!(table.begin_read(page(1), 6), Some(Found::OnItsWay(frame)), "home lacks it");
        assert!(table.written(frame, true) && table.is_dirty(page(1)));
        put(&mut table, 2, 7);
        put(&mut table, 3, 8);
        assert!(!table.touch(page(2), 9) && table.touch(page(1), 9), "2 made room");
        let cleaning = table.begin_clean(page(1)).unwrap();
        assert_eq!(cleaning, Cleaning { frame, lsn: Lsn::new(5), is_written: true });
        assert!(table.begin_clean(page(1)).is_none(), "one at a time");
        assert_eq!(table.take(page(1)), None, "it stays while it is cleaned");
        table.end_clean(frame, true);
        assert_eq!((table.dirty_count(), table.counts().clean), (0, 2));
        put(&mut table, 4, 10);
        put(&mut table, 5, 11);
        assert!(!table.touch(page(1), 12));
    }

    #[test]
    fn a_page_that_changes_while_it_is_cleaned_gives_its_frame_up_afterwards() {
        let mut table = table(1);
        let frame = keep(&mut table, 1, 5, 3);
        table.written(frame, true);
        table.begin_clean(page(1)).unwrap();
        assert!(table.remove(page(1)) && !table.lacks(frame, page(1)));
        assert_eq!(admit(&mut table, 1, 9, 9), Admitted::Busy);
        table.end_clean(frame, true);
        assert_eq!(table.counts(), Counts { free: 1, ..Counts::default() });
        assert!(table.is_at_rest());
    }

    #[test]
    fn dirty_frames_are_cleaned_by_last_use_or_by_recovery_lsn() {
        for (order, first) in [(CleanOrder::LastUse, 1), (CleanOrder::RecoveryLsn, 2)] {
            let mut table = Partition::new(3, Order::Lru2, order);
            for (no, lsn, since) in [(1, 10, 9), (2, 11, 4)] {
                let frame = keep(&mut table, no, lsn, since);
                assert!(table.written(frame, true));
            }
            assert_eq!(table.next_to_clean(), Some(page(first)), "{order:?}");
            let cleaning = table.begin_clean(page(first)).unwrap();
            table.end_clean(cleaning.frame, false);
            table.pass_over(cleaning.frame);
            let other = 3 - first;
            assert_eq!(table.next_to_clean(), Some(page(other)), "{order:?}: home had no room for {first}");
            let cleaning = table.begin_clean(page(other)).unwrap();
            table.end_clean(cleaning.frame, true);
            assert_eq!(table.next_to_clean(), Some(page(first)), "{order:?}: it is all that is left");
        }
    }

    #[test]
    fn an_invalid_frame_stays_its_page_s_and_is_written_again() {
        let mut table = table(2);
        let frame = put(&mut table, 1, 1);
        assert!(table.invalidate(page(1)) && !table.invalidate(page(1)));
        assert!(table.begin_read(page(1), 2).is_none() && !table.touch(page(1), 2));
        assert_eq!((table.has_invalid(page(1)), table.counts().invalid), (true, 1));
        assert_eq!(admit(&mut table, 1, 5, 5), Admitted::Frame(frame));
        assert!(table.written(frame, true));
        assert_eq!(read(&mut table, 1, 6).map(|reading| reading.lsn), Some(Lsn::new(5)));
    }

    #[test]
    fn only_hotter_pages_push_others_out() {
        let mut table = Partition::new(2, Order::Heat, CleanOrder::LastUse);
        let heats = |id: PageId| u64::from(id.no().0) * 10;
        let arrive = |table: &mut Partition, no: u32, heat| {
            let new = Arrival { id: page(no), lsn: Lsn::new(1), lacks: None, now: 1, heat: Some(heat) };
            let admitted = table.admit(new, heats);
            if let Admitted::Frame(frame) = admitted {
                table.written(frame, true);
            }
            admitted
        };
        arrive(&mut table, 7, 1);
        arrive(&mut table, 3, 30);
        assert_eq!(arrive(&mut table, 1, 30), Admitted::Colder, "7 has become hotter, 3 has not");
        assert!(matches!(arrive(&mut table, 5, 31), Admitted::Frame(_)));
        assert!(table.touch(page(7), 2) && !table.touch(page(3), 2));
    }

    #[test]
    fn a_ring_gives_up_what_it_was_given_first() {
        let mut table = Partition::new(3, Order::Fifo, CleanOrder::LastUse);
        (1..=3).for_each(|no| {
            put(&mut table, no, u64::from(no));
        });
        (4..9).for_each(|now| assert!(table.touch(page(1), now)));
        put(&mut table, 4, 9);
        assert!(!table.touch(page(1), 10));
    }
}
