//! The frame table of one partition of the cache: which page is in which frame, and which frame is the next to go.
//!
//! ```text
//!            admit                   written(true)
//!   Free ------------> Writing ---------------------> Clean <--> (pinned by readers)
//!    ^                    | remove, written(false)      | remove, admit of another page (not pinned)
//!    '---- when the write, or the last reader, ends ----'
//! ```
//!
//! Invariants
//! 1. A page is in at most one frame that is found by it. A frame that was removed while it is being written or read is found by nobody,
//!    and free only when that has ended.
//! 2. A frame is in the heap exactly if it is clean and nobody reads it.
//! 3. The heap's key is the last but one access: the victim is the page whose that is longest ago (LRU-2, O'Neil 1993). A page that
//!    was used once since it came counts from when it came.
//!
//! Not known here: files, other partitions, designs.

use rustc_hash::FxHashMap;

use super::heap::Heap;
use crate::ids::{PageId, PageRange};
use crate::lsn::Lsn;

/// A frame, by its number within the partition.
pub(super) type FrameNo = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Writing,
    Clean,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    page: Option<PageId>,
    lsn: Lsn,
    last: u64,
    last_but_one: u64,
    state: State,
    /// It was removed while it was in use.
    is_doomed: bool,
    readers: u16,
}

const UNUSED: Frame = Frame {
    page: None,
    lsn: Lsn::ZERO,
    last: 0,
    last_but_one: 0,
    state: State::Free,
    is_doomed: false,
    readers: 0,
};

/// What became of an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// The page belongs into this frame, which is being written from now on.
    Frame(FrameNo),
    /// Its frame has this version or a newer one.
    Has,
    /// All frames are being read or written.
    Busy,
}

/// Frames of the partition by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) free: u64,
    pub(super) writing: u64,
    pub(super) clean: u64,
}

/// The table.
pub(super) struct Partition {
    frames: Vec<Frame>,
    by_page: FxHashMap<PageId, FrameNo>,
    free: Vec<FrameNo>,
    clean: Heap,
}

impl Partition {
    /// Of so many frames, all free.
    pub(super) fn new(count: u32) -> Partition {
        Partition {
            frames: vec![UNUSED; count as usize],
            by_page: FxHashMap::default(),
            // Low ones first, so that the file fills from its beginning.
            free: (0..count).rev().collect(),
            clean: Heap::new(count),
        }
    }

    /// Whether the page has a frame; that counts as an access.
    pub(super) fn touch(&mut self, id: PageId, now: u64) -> bool {
        let Some(no) = self.by_page.get(&id).copied() else { return false };
        self.access(no, now);
        true
    }

    fn access(&mut self, no: FrameNo, now: u64) {
        let frame = &mut self.frames[no as usize];
        (frame.last_but_one, frame.last) = (frame.last, now);
        if self.clean.remove(no) {
            self.clean.insert(no, self.frames[no as usize].last_but_one);
        }
    }

    /// The frame to read the page from, and the page LSN that it has to have; it stays until [`end_read`](Self::end_read).
    pub(super) fn begin_read(&mut self, id: PageId, now: u64) -> Option<(FrameNo, Lsn)> {
        let no = *self.by_page.get(&id)?;
        let frame = &mut self.frames[no as usize];
        if frame.state != State::Clean || frame.readers == u16::MAX {
            return None;
        }
        frame.readers += 1;
        self.clean.remove(no);
        self.access(no, now);
        Some((no, self.frames[no as usize].lsn))
    }

    /// A read has ended. `is_good`: it found what the table says; else the frame is given up. Whether it was this that gave it up.
    pub(super) fn end_read(&mut self, no: FrameNo, is_good: bool) -> bool {
        let gives_up = !is_good && !self.frames[no as usize].is_doomed;
        if gives_up {
            self.forget(no);
        }
        let frame = &mut self.frames[no as usize];
        assert!(frame.readers > 0, "frame {no} was not being read");
        frame.readers -= 1;
        self.rest(no);
        gives_up
    }

    /// A frame for this version of the page, unless it has one.
    pub(super) fn admit(&mut self, id: PageId, lsn: Lsn, now: u64) -> Admitted {
        if let Some(no) = self.by_page.get(&id).copied() {
            if self.frames[no as usize].lsn >= lsn {
                self.access(no, now);
                return Admitted::Has;
            }
            self.remove(id);
        }
        let Some(no) = self.free.pop().or_else(|| self.evict()) else { return Admitted::Busy };
        self.frames[no as usize] =
            Frame { page: Some(id), lsn, last: now, last_but_one: now, state: State::Writing, ..UNUSED };
        self.by_page.insert(id, no);
        Admitted::Frame(no)
    }

    fn evict(&mut self) -> Option<FrameNo> {
        let no = self.clean.pop()?;
        let page = self.frames[no as usize].page.take();
        page.and_then(|page| self.by_page.remove(&page));
        Some(no)
    }

    /// The write of an admitted page has ended. Whether the page is in its frame now: its write succeeded, and it was not removed.
    pub(super) fn written(&mut self, no: FrameNo, is_good: bool) -> bool {
        if !is_good && !self.frames[no as usize].is_doomed {
            self.forget(no);
        }
        let frame = &mut self.frames[no as usize];
        assert_eq!(frame.state, State::Writing, "frame {no} was not being written");
        frame.state = State::Clean;
        self.rest(no);
        self.frames[no as usize].state == State::Clean
    }

    /// The page's frame is not valid any more. Whether it had one.
    pub(super) fn remove(&mut self, id: PageId) -> bool {
        let Some(no) = self.by_page.get(&id).copied() else { return false };
        self.forget(no);
        self.rest(no);
        true
    }

    /// As `remove`, if what the frame has is older than this.
    pub(super) fn remove_older(&mut self, id: PageId, lsn: Lsn) -> bool {
        let is_older = self.by_page.get(&id).is_some_and(|no| self.frames[*no as usize].lsn < lsn);
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

    /// Nobody finds the frame by its page any more.
    fn forget(&mut self, no: FrameNo) {
        let frame = &mut self.frames[no as usize];
        frame.is_doomed = true;
        let page = frame.page.take();
        page.and_then(|page| self.by_page.remove(&page));
        self.clean.remove(no);
    }

    /// Puts a frame that nobody writes or reads where it belongs.
    fn rest(&mut self, no: FrameNo) {
        let frame = &mut self.frames[no as usize];
        if frame.state != State::Clean || frame.readers > 0 {
            return;
        }
        if frame.is_doomed {
            *frame = UNUSED;
            self.free.push(no);
        } else {
            self.clean.insert(no, frame.last_but_one);
        }
    }

    /// Frames by state; those that were removed and are still in use count as writing.
    pub(super) fn counts(&self) -> Counts {
        let (free, clean) = (self.free.len() as u64, self.by_page.len() as u64);
        let writing =
            self.by_page.values().filter(|no| self.frames[**no as usize].state == State::Writing).count();
        let (all, clean) = (self.frames.len() as u64, clean - writing as u64);
        Counts { free, clean, writing: all - free - clean }
    }

    /// Whether more than a twentieth is free: until then whatever leaves the pool is welcome (Do 2012, section 3.3.1, "aggressive
    /// filling").
    pub(super) fn is_filling(&self) -> bool {
        self.free.len() * 20 > self.frames.len()
    }

    /// Whether every frame is free, or clean and read by nobody.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.frames.iter().all(|frame| frame.readers == 0 && frame.state != State::Writing)
    }

    /// Pages that are whole in a frame.
    pub(super) fn clean_pages(&self) -> Vec<PageId> {
        let is_clean = |no: &FrameNo| self.frames[*no as usize].state == State::Clean;
        self.by_page.iter().filter(|(_, no)| is_clean(no)).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    fn put(table: &mut Partition, no: u32, now: u64) -> FrameNo {
        let Admitted::Frame(frame) = table.admit(page(no), Lsn::new(now), now) else {
            panic!("{no} is refused")
        };
        assert!(table.written(frame, true));
        frame
    }

    #[test]
    fn the_victim_is_the_page_whose_last_but_one_access_is_longest_ago() {
        let mut table = Partition::new(3);
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
        let mut table = Partition::new(2);
        let Admitted::Frame(frame) = table.admit(page(1), Lsn::new(1), 1) else { panic!() };
        assert!(table.begin_read(page(1), 2).is_none(), "it is not there yet");
        assert!(table.remove(page(1)) && !table.remove(page(1)));
        let newer = table.admit(page(1), Lsn::new(2), 2);
        assert!(matches!(newer, Admitted::Frame(other) if other != frame));
        assert!(!table.written(frame, true), "the older one");
        let Admitted::Frame(other) = newer else { panic!() };
        assert!(table.written(other, true));
        let (read, lsn) = table.begin_read(page(1), 3).unwrap();
        assert_eq!((read, lsn), (other, Lsn::new(2)));
        assert!(table.remove(page(1)));
        assert_eq!(table.counts(), Counts { free: 1, writing: 1, clean: 0 });
        assert!(!table.end_read(read, true));
        assert_eq!(table.counts(), Counts { free: 2, writing: 0, clean: 0 });
    }

    #[test]
    fn a_frame_in_use_is_no_victim() {
        let mut table = Partition::new(1);
        let frame = put(&mut table, 1, 1);
        assert_eq!(table.admit(page(1), Lsn::new(1), 2), Admitted::Has);
        table.begin_read(page(1), 2).unwrap();
        table.begin_read(page(1), 3).unwrap();
        assert_eq!(table.admit(page(2), Lsn::new(1), 4), Admitted::Busy);
        assert!(!table.end_read(frame, true) && table.end_read(frame, false), "the second one found damage");
        assert!(matches!(table.admit(page(2), Lsn::new(1), 5), Admitted::Frame(_)));
        assert_eq!(table.admit(page(3), Lsn::new(1), 5), Admitted::Busy);
    }
}
