//! The page cache. Its frames are chunks of the region that are reserved and never active. So a crash frees
//! them.
//!
//! Invariants
//! 1. A dirty page has a frame until the end of the batch. The file does not have its new content yet.
//! 2. A page that is not dirty may lose its frame at any call that needs a frame for another page.
//!
//! This module does not know the file.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::pages::PAGE_BYTES;
use crate::error::MemoryError;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::StoreResult;

/// A frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    chunk: Pointer,
    page: Option<u64>,
    is_dirty: bool,
    /// Whether the page was used since the hand of the clock passed the frame.
    was_used: bool,
}

/// The frames of a store.
pub(super) struct PageCache {
    owner: Owner,
    frames: Vec<Frame>,
    by_page: FxHashMap<u64, usize>,
    /// The largest number of frames, unless more pages than that are dirty.
    most: usize,
    /// The hand of the clock: the frame that was examined last.
    hand: usize,
    /// The dirty pages. The end of a batch visits only these, because a cache can have many clean frames.
    dirty: BTreeSet<u64>,
}

impl PageCache {
    pub(super) fn new(owner: Owner, most: usize) -> PageCache {
        let (frames, by_page) = (Vec::new(), FxHashMap::default());
        PageCache { owner, frames, by_page, most, hand: 0, dirty: BTreeSet::new() }
    }

    /// Returns the owner of the frames, and of the file's blocks.
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the frame of a page, if it has one.
    pub(super) fn find(&mut self, page: u64) -> Option<Pointer> {
        let frame = self.frames.get_mut(*self.by_page.get(&page)?)?;
        frame.was_used = true;
        Some(frame.chunk)
    }

    pub(super) fn is_dirty(&self, page: u64) -> bool {
        let frame = self.by_page.get(&page).and_then(|frame| self.frames.get(*frame));
        frame.is_some_and(|frame| frame.is_dirty)
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// Returns whether dirty pages take more than half of the frames that the cache may have.
    pub(super) fn is_crowded(&self) -> bool {
        2 * self.dirty.len() > self.most
    }

    /// Returns the dirty pages and their frames, in the order of the pages in the file.
    pub(super) fn dirty(&self) -> Vec<DirtyPage> {
        let frame_of = |page: &u64| self.frames.get(*self.by_page.get(page)?);
        let dirty = self.dirty.iter();
        dirty
            .filter_map(|page| frame_of(page).map(|frame| DirtyPage { page: *page, chunk: frame.chunk }))
            .collect()
    }

    /// Gives a frame to a page that is read and has none. Returns `None` if all frames are dirty, and no
    /// frame can be added, because the cache has its largest number of frames or the region is full.
    pub(super) fn add(&mut self, space: &Space, page: u64) -> StoreResult<Option<Pointer>> {
        let free = if self.frames.len() < self.most { self.new_frame(space)? } else { None };
        match free.or_else(|| self.evict()) {
            Some(frame) => Ok(self.give_to(frame, page, false)),
            None => Ok(None),
        }
    }

    /// Gives a frame to a page that becomes dirty. Returns `None` if all frames are dirty, and the region is
    /// full.
    pub(super) fn add_dirty(&mut self, space: &Space, page: u64) -> StoreResult<Option<Pointer>> {
        if let Some(frame) = self.by_page.get(&page).copied() {
            return Ok(self.give_to(frame, page, true));
        }
        let new = if self.frames.len() < self.most { self.new_frame(space)? } else { None };
        let free = match new.or_else(|| self.evict()) {
            None => self.new_frame(space)?,
            free => free,
        };
        Ok(free.and_then(|frame| self.give_to(frame, page, true)))
    }

    /// Adds a frame. Returns `None` if the region is full.
    fn new_frame(&mut self, space: &Space) -> StoreResult<Option<usize>> {
        match space.allocator().allocate(self.owner, PAGE_BYTES as u64) {
            Ok(chunk) => {
                self.frames.push(Frame { chunk, page: None, is_dirty: false, was_used: false });
                Ok(Some(self.frames.len() - 1))
            }
            Err(MemoryError::Full { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Evicts a clean page that was not used lately (clock), and returns its frame. Returns `None` if all
    /// frames are dirty.
    fn evict(&mut self) -> Option<usize> {
        for _ in 0..2 * self.frames.len() {
            self.hand = if self.hand + 1 < self.frames.len() { self.hand + 1 } else { 0 };
            let frame = self.frames.get_mut(self.hand)?;
            if !frame.is_dirty && !std::mem::take(&mut frame.was_used) {
                if let Some(page) = frame.page.take() {
                    self.by_page.remove(&page);
                }
                return Some(self.hand);
            }
        }
        None
    }

    fn give_to(&mut self, number: usize, page: u64, is_dirty: bool) -> Option<Pointer> {
        let frame = self.frames.get_mut(number)?;
        if is_dirty {
            self.dirty.insert(page);
        }
        *frame = Frame { page: Some(page), is_dirty, was_used: true, ..*frame };
        self.by_page.insert(page, number);
        Some(frame.chunk)
    }

    /// Takes the frame away from a dirty page that is not needed any more.
    pub(super) fn forget(&mut self, page: u64) {
        if let Some(number) = self.by_page.remove(&page)
            && let Some(frame) = self.frames.get_mut(number)
        {
            self.dirty.remove(&page);
            *frame = Frame { page: None, is_dirty: false, was_used: false, ..*frame };
        }
    }

    /// Marks all frames as clean, because the file has all pages now. Gives up the frames beyond the largest
    /// number.
    pub(super) fn end_batch(&mut self, space: &Space) -> StoreResult<()> {
        for page in std::mem::take(&mut self.dirty) {
            if let Some(frame) = self.by_page.get(&page).and_then(|number| self.frames.get_mut(*number)) {
                frame.is_dirty = false;
            }
        }
        self.shrink(space, self.most)
    }

    /// Gives up clean frames until at most `most` frames are left, or only dirty ones.
    pub(super) fn shrink(&mut self, space: &Space, most: usize) -> StoreResult<()> {
        let mut number = self.frames.len();
        while self.frames.len() > most
            && let Some(next) = number.checked_sub(1)
        {
            number = next;
            let Some(frame) = self.frames.get(number).copied().filter(|frame| !frame.is_dirty) else {
                continue;
            };
            if let Some(page) = frame.page {
                self.by_page.remove(&page);
            }
            self.frames.swap_remove(number);
            if let Some(page) = self.frames.get(number).and_then(|moved| moved.page) {
                self.by_page.insert(page, number);
            }
            space.give_up(frame.chunk)?;
        }
        Ok(())
    }
}

/// A dirty page and its frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirtyPage {
    pub(super) page: u64,
    pub(super) chunk: Pointer,
}
