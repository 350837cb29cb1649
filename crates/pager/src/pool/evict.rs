//! Page replacement. It decides which pages are evicted, and makes their frames free.
//!
//! Invariants
//! 1. A page is evicted only if it is clean, and its frame is latched exclusively. An evicting thread tries
//!    to get the latch, and never waits for it.
//! 2. Frames are freed in batches of up to [`BATCH`], by page writers ahead of need, and by any thread that
//!    finds no free frame.
//! 3. A scan reuses its own frames. Pages that a scan read, and that no other access has used since, are
//!    evicted before all other pages.
//!
//! This module does not know how pages are written.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use super::frame::{Frame, HEAT_COLD, HEAT_HOT};
use super::guard::{Guard, PageX};
use super::{Pool, Replacement};
use crate::base::error::{PagerError, Result};
use crate::base::image::Image;

/// The largest number of frames that are freed together.
pub(super) const BATCH: usize = 64;
/// The largest number of frames that the clock examines for one batch.
const LOOKED_AT_MAX: usize = 4 * BATCH;
/// The number of pages of scans that stay in the pool although other threads need frames.
const COLD_KEEP: usize = 2 * BATCH;
/// After this many attempts to get a frame, a thread returns an error. That takes about ten seconds.
const TRIES: usize = 2000;
/// After this many attempts that failed because a device is full, a thread returns the error.
const REFUSED_TRIES: usize = 16;
/// After this many attempts a thread returns the error if the log has stopped. Dirty
/// pages cannot be written then, but other threads may release clean frames.
const STOPPED_TRIES: usize = 16;

/// The result of one search for victims.
#[derive(Default)]
pub(super) struct Victims {
    /// The number of free frames that the search made or found.
    pub(super) freed: usize,
    /// The dirty frames that would be evicted if they were clean.
    pub(super) dirty: Vec<u32>,
}

/// State of the replacement policy.
pub(super) struct Replacer {
    how: Replacement,
    hand: usize,
    /// Frames loaded by scans, oldest first.
    cold: VecDeque<u32>,
}

impl Replacer {
    pub(super) fn new(how: Replacement) -> Replacer {
        Replacer { how, hand: 0, cold: VecDeque::new() }
    }

    fn next(&mut self, used: usize) -> usize {
        let no = self.hand % used;
        self.hand = no + 1;
        no
    }

    /// Returns the oldest frame with a page that a scan read and no other access has used since.
    fn pop_cold(&mut self, frames: &[Frame]) -> Option<usize> {
        while self.cold.len() > COLD_KEEP.min(frames.len() / 8) {
            let no = self.cold.pop_front()? as usize;
            frames[no].queued.store(false, Relaxed);
            if frames[no].heat() == HEAT_COLD {
                return Some(no);
            }
        }
        None
    }

    /// Returns the frames to try, in order: pages of scans if there are any, otherwise up to a batch of clean
    /// frames, and the dirty frames that were met on the way.
    fn candidates(&mut self, frames: &[Frame], used: usize) -> Vec<usize> {
        let batch = BATCH.min(frames.len() / 8);
        let mut found: Vec<usize> = (0..batch).map_while(|_| self.pop_cold(frames)).collect();
        match self.how {
            _ if !found.is_empty() => {}
            Replacement::Clock => self.sweep(frames, used, batch, &mut found),
            Replacement::Lru2 => self.sample(frames, used, batch, &mut found),
        }
        found
    }

    /// Chooses victims by clock (second chance): a page that was used since the hand last passed it stays for
    /// another round.
    fn sweep(&mut self, frames: &[Frame], used: usize, batch: usize, found: &mut Vec<usize>) {
        let mut clean = 0;
        for _ in 0..2 * used {
            if clean >= batch || found.len() >= LOOKED_AT_MAX {
                return;
            }
            let no = self.next(used);
            match frames[no].heat() {
                HEAT_HOT => frames[no].cool(),
                _ if frames[no].looks_evictable() => {
                    clean += usize::from(!frames[no].is_dirty());
                    found.push(no);
                }
                _ => {}
            }
        }
    }

    /// Chooses victims by LRU-2: the pages whose last but one access is longest ago. It does not sort all
    /// frames. It takes the next frames in the order of the clock hand as a sample, and chooses a batch from
    /// it.
    fn sample(&mut self, frames: &[Frame], used: usize, batch: usize, found: &mut Vec<usize>) {
        let mut sample: Vec<usize> = (0..(4 * batch).min(used))
            .map(|_| self.next(used))
            .filter(|no| frames[*no].looks_evictable())
            .collect();
        sample.sort_by_cached_key(|no| frames[*no].age());
        found.extend(sample.into_iter().take(batch));
    }
}

impl Pool {
    /// Returns a frame that is not in the table and belongs to the caller. If the log has stopped, no page is
    /// written any more, but clean pages are still evicted, so that reading continues. The same is true on a
    /// full device.
    pub(super) fn take_frame(&self) -> Result<usize> {
        let mut refused_count = 0;
        for attempt in 0..TRIES {
            if let Some(no) = self.pop_free() {
                return Ok(no);
            }
            let victims = self.free_batch();
            if !victims.dirty.is_empty() {
                self.writers.ring();
            }
            if victims.freed > 0 {
                continue;
            }
            let wrote = match self.log.check() {
                Ok(()) => self.write_one_inline(&victims.dirty),
                Err(error) if attempt >= STOPPED_TRIES => return Err(error),
                Err(_) => Ok(false),
            };
            match wrote {
                Ok(true) => continue,
                Err(error) if !error.is_no_space() || refused_count >= REFUSED_TRIES => return Err(error),
                Err(_) => refused_count += if self.is_tight() { REFUSED_TRIES / 2 } else { 1 },
                Ok(false) => {}
            }
            if attempt > 10 {
                self.pause();
            }
        }
        Err(PagerError::PoolExhausted { frames: self.frames.len() })
    }

    /// Ensures that a frame is free before a mini-transaction latches a page. So the mini-transaction rarely
    /// has to write a page while it holds latches.
    #[inline]
    pub(crate) fn keep_free(&self) -> Result<()> {
        if self.free.count() == 0 {
            let no = self.take_frame()?;
            self.free.push(no);
        }
        Ok(())
    }

    /// Does the same as `take_frame`, but never writes a page. The result is `None` if no frame is free and
    /// no clean page can be evicted.
    pub(super) fn take_clean_frame(&self) -> Option<usize> {
        self.pop_free().or_else(|| {
            self.free_batch();
            self.free.pop()
        })
    }

    fn pop_free(&self) -> Option<usize> {
        let no = self.free.pop()?;
        if self.free.count() < self.low_water() {
            self.writers.ring();
        }
        Some(no)
    }

    /// Frees up to a batch of clean frames, unless another thread has just freed some.
    pub(super) fn free_batch(&self) -> Victims {
        let mut replacer = self.replacer.lock();
        let mut victims = Victims::default();
        let ready = self.free.count();
        if ready > 0 {
            victims.freed = ready;
            return victims;
        }
        self.evict_from(&mut replacer, &mut victims);
        victims
    }

    /// Frees up to a batch of clean frames, even if other frames are free already.
    pub(super) fn free_more(&self) -> Victims {
        let mut victims = Victims::default();
        self.evict_from(&mut self.replacer.lock(), &mut victims);
        victims
    }

    fn evict_from(&self, replacer: &mut Replacer, victims: &mut Victims) {
        let used = self.free.used_once();
        if used == 0 {
            return;
        }
        self.tick.fetch_add(1, Relaxed);
        let mut freed: Vec<u32> = Vec::with_capacity(BATCH);
        for no in replacer.candidates(&self.frames, used) {
            if self.frames[no].is_dirty() {
                victims.dirty.push(no as u32);
            } else if self.evict(no) {
                freed.push(no as u32);
            }
        }
        self.counters.evictions.fetch_add(freed.len() as u64, Relaxed);
        victims.freed += freed.len();
        self.free.push_all(&freed);
    }

    /// Evicts the page from frame `no` if the page is clean and no thread holds it. On success the frame
    /// belongs to the caller.
    pub(super) fn evict(&self, no: usize) -> bool {
        let Some(page): Option<PageX<'_>> = Guard::try_lock(self, no) else { return false };
        let frame = page.frame();
        let Some(id) = frame.page() else { return false };
        if !frame.is_evictable() {
            return false;
        }
        let access = frame.access();
        self.level.offer(id, access, &mut || Image::of(id, &page, access));
        self.detach(frame);
        true
    }

    /// Appends a frame with a page that a scan read to the queue `cold`, from which victims are taken first.
    pub(super) fn queue_cold(&self, no: usize) {
        let mut replacer = self.replacer.lock();
        if !self.frames[no].queued.swap(true, Relaxed) {
            replacer.cold.push_back(no as u32);
        }
    }

    /// Returns the number of free frames at which page writers stop.
    pub(crate) fn high_water(&self) -> usize {
        2 * self.low_water()
    }

    /// Returns the number of free frames below which page writers start.
    pub(super) fn low_water(&self) -> usize {
        (self.frames.len() / 32).min(4 * BATCH)
    }
}
