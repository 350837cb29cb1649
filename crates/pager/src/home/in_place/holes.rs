//! Punches holes after compressed pages. A compressed page does not need all file blocks of its address
//! range, and hole punching returns the rest to the device (Lindstrom 2017, figure 2).
//!
//! In this layout each page has an address range of one page size in its file. The device writes sectors, but
//! a hole consists of whole blocks of the file system. So a block that the stored page uses in part stays
//! allocated.
//!
//! A hole is not punched at every write, because punching delays other I/O of the file, and each hole is one
//! more extent for the file system. For each page a hint in memory says how many blocks of its range may be
//! allocated. A hole is punched only if the stored page needs fewer blocks than its hint says.
//!
//! Invariants
//! 1. A hint says only how many blocks of a page's range may be allocated. A hole never reaches into the
//!    bytes of a stored page, even if the hint is wrong. Reads do not use hints.
//! 2. The blocks of a range beyond the hint's number are not allocated, if the device punched as it reported.
//!    A page write updates the hint. Any other code that allocates blocks of the range removes the hint. A
//!    start has no hints, so the first write of each compressed page punches its hole again.
//! 3. A hole is punched after the page is durable, and while its write still counts as in flight. So no other
//!    write uses the range meanwhile. After a crash the page is whole, with or without the hole.
//! 4. A page that was always stored at its full size has no hint. Looking for its hint takes no lock and
//!    allocates no memory.
//!
//! This module does not know why a stored page has its length, or which pages are free.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use varve_device::{planted, reached};

use crate::base::chunks::Chunks;
use crate::base::ids::{PageId, PageRange, SpaceId};
use crate::home::compression::stored_page::Stored;
use crate::home::files::{SpaceFile, SpaceFiles};
use crate::home::punch::Punches;
use crate::home::trim::TrimSetting;

/// The hint of an address range about which nothing is known. All its blocks may be allocated.
const UNKNOWN: u8 = 0;

/// The hints of all pages.
pub(crate) struct Holes {
    spaces: Vec<Places>,
    trim: Arc<TrimSetting>,
}

/// The hints of one space. A *place* is the address range of one page.
struct Places {
    space: SpaceId,
    /// Length of a block of the file system. If no hole fits into a place, this is the length of a place.
    block_bytes: u64,
    /// The number of blocks of a place.
    blocks: u8,
    /// The hints, by page number.
    hints: Chunks<AtomicU8>,
}

impl Places {
    fn new(file: &SpaceFile, page_size: usize) -> Places {
        let hole_bytes = file.hole_bytes() as usize;
        let fits = hole_bytes > 0 && page_size.is_multiple_of(hole_bytes);
        let fitting = u8::try_from(page_size / hole_bytes.max(1)).ok().filter(|_| fits);
        let blocks = fitting.unwrap_or(1);
        Places {
            space: file.space(),
            block_bytes: (page_size / usize::from(blocks)) as u64,
            blocks,
            hints: Chunks::new(),
        }
    }

    /// Returns the number of blocks of a place that `bytes` bytes need.
    fn blocks_of(&self, bytes: usize) -> u8 {
        u8::try_from((bytes as u64).div_ceil(self.block_bytes)).map_or(self.blocks, |n| n.min(self.blocks))
    }

    /// Returns the number of blocks of the page's place that may be allocated.
    fn has(&self, id: PageId) -> u8 {
        match self.hints.get(id.no().0).map_or(UNKNOWN, |hint| hint.load(Relaxed)) {
            UNKNOWN => self.blocks,
            hint => hint,
        }
    }

    fn note(&self, id: PageId, blocks: u8) {
        self.hints.make(id.no().0).store(blocks, Relaxed);
    }
}

impl Holes {
    /// Begins without hints.
    pub(crate) fn new(files: &SpaceFiles, page_size: usize, trim: Arc<TrimSetting>) -> Holes {
        let logged = files.each().filter(|file| file.space().is_logged());
        let spaces = logged.map(|file| Places::new(file, page_size)).collect();
        Holes { spaces, trim }
    }

    fn of(&self, space: SpaceId) -> Option<&Places> {
        self.spaces.iter().find(|places| places.space == space)
    }

    /// Punches holes after these stored pages. The pages are durable, and their writes still count as in
    /// flight.
    pub(crate) fn punch_behind(&self, punches: &Punches, files: &SpaceFiles, pages: &[Stored<'_>]) {
        for page in pages {
            let space = page.id().space();
            if let (Some(places), Some(file)) = (self.of(space), files.space(space)) {
                self.punch_behind_one(punches, places, file, page);
            }
        }
    }

    fn punch_behind_one(&self, punches: &Punches, places: &Places, file: &SpaceFile, page: &Stored<'_>) {
        let id = page.id();
        let (needs, had) = (places.blocks_of(page.bytes().len()), places.has(id));
        if needs > had {
            places.note(id, needs);
        }
        if needs >= had || self.trim.is_off() || !punches.can() {
            return;
        }
        let Ok(place) = file.offset(id) else { return };
        let first = needs - u8::from(planted("trim: one block too many"));
        let [from, to] = [first, had].map(|blocks| u64::from(blocks) * places.block_bytes);
        if punches.punch(file.file(), place + from, to - from) {
            reached("trim: hole");
            places.note(id, needs);
        }
    }

    /// Removes the hints of pages whose write failed, because the write may have allocated any of their
    /// blocks.
    pub(crate) fn forget_written(&self, pages: &[Stored<'_>]) {
        pages.iter().for_each(|page| self.forget_one(page.id()));
    }

    /// Removes the hints of pages whose places are cut off, or get blocks in another way than by a page
    /// write.
    pub(crate) fn forget(&self, pages: PageRange) {
        pages.pages().for_each(|id| self.forget_one(id));
    }

    fn forget_one(&self, id: PageId) {
        let hint = self.of(id.space()).and_then(|places| places.hints.get(id.no().0));
        if let Some(hint) = hint {
            hint.store(UNKNOWN, Relaxed);
        }
    }
}
