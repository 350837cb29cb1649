//! The interface of a layout: where and how the pages of a space are stored in its file. `layouts.rs` says
//! which layout a space has.
//!
//! Invariants
//! 1. The caller (`home/mod.rs`) lets only one thread at a time write a page. Reads may come at any time.
//! 2. The layout of a space does not change while the database is open.
//!
//! What it does not know: which pages are in use, frames, what is in a page.

use crate::base::error::Result;
use crate::base::ids::{PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::home::pace::{Pace, PieceBytes};
use crate::level::{Cause, DiscardHold, Need, Step, Want};

/// What became of the room of free pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trimmed {
    /// It went back to the device, and has to be reserved before the pages are used again.
    Hollow,
    /// Nothing has to be reserved for them.
    Whole,
    /// It could not be given back; perhaps it can later.
    NotNow,
}

/// Where and how pages lie. One layout may have several spaces.
pub(crate) trait Layout: Send + Sync {
    /// Reads stored pages, checks them, and makes plain pages in their frames. All reads are submitted
    /// together. For a page that was never written the result is
    /// [`PageDamage::Zero`](crate::base::page::PageDamage::Zero). No page of `wants` may be a hole of the
    /// request.
    fn read(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()>;
    /// Writes pages; all of them are logged, or all are temporary. When this returns, `read` returns the new
    /// version of pages with the need `Held`. Pages with `Stable` survive a crash, and were reported to the
    /// dirty-page table. For a refusal see `level/mod.rs`, invariant 6.
    fn write(&self, images: &[&Image], cause: Cause, need: Need) -> Result<()>;
    /// Makes stable what was written with `Need::Held`.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Writes a page that nothing refers to yet, durably (growth of a space).
    fn write_unlogged(&self, image: &Image) -> Result<()>;
    /// Length of a space, in pages.
    fn pages(&self, space: SpaceId) -> u32;
    /// Changes the length of a space, durably. After a refusal for want of room it is what it was.
    fn resize(&self, space: SpaceId, pages: u32) -> Result<()>;
    /// Allows that the pages of the space up to this number are written. Reserves space for those that were
    /// never written, or refuses. This is called before a space grows.
    fn grant(&self, _space: SpaceId, _pages: u32) -> Result<()> {
        Ok(())
    }
    /// Reduces the number of pages that may be written, until more are granted. Returns whether the layout
    /// uses this; if not, no pages need to be granted.
    fn ungrant(&self, _space: SpaceId, _pages: u32) -> bool {
        false
    }
    /// Shortens the space as [`Layout::resize`] does, not durably yet: a step on the way to that.
    fn shorten(&self, space: SpaceId, pages: u32) -> Result<()> {
        self.resize(space, pages)
    }
    /// In what pieces the space is shortened so that others don't wait long for it; `None` where it takes no
    /// time.
    fn cut_pieces(&self) -> Option<PieceBytes> {
        None
    }
    /// As [`Level::discard`](crate::Level::discard).
    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
        Ok(())
    }
    /// Whether room of free pages goes back now.
    fn trims(&self) -> bool {
        false
    }
    /// Whether the layout itself logs discards that have no log record yet. Then redo applies no older
    /// records to pages that were stored elsewhere.
    fn notes_discards(&self) -> bool {
        false
    }
    /// Whether pages that are free at the start hold room that could go back, as far as that is known.
    fn holds(&self, _ids: PageRange) -> bool {
        false
    }
    /// Whether pages whose room goes back have none until it is reserved.
    fn leaves_holes(&self) -> bool {
        false
    }
    /// Gives the room of free pages back, which were discarded, and which nobody can take meanwhile.
    fn trim(&self, _ids: PageRange, _pace: &Pace<'_>) -> Result<Trimmed> {
        Ok(Trimmed::Whole)
    }
    /// Makes sure that writes of these free pages will find room, after a crash, too.
    fn reserve(&self, _ids: PageRange) -> Result<()> {
        Ok(())
    }
    /// Returns free space of the file that belongs to no page to the device, a piece at a time. Returns
    /// whether there may be more.
    fn trim_file(&self, _pace: &Pace<'_>) -> Result<bool> {
        Ok(false)
    }
    /// As [`Level::discarding`](crate::Level::discarding).
    fn discarding(&self) -> Option<DiscardHold<'_>> {
        None
    }
    /// Takes part in a checkpoint.
    fn checkpoint(&self, step: Step) -> Result<()>;
    /// Oldest log position that recovery of this layout still needs; a block's start.
    fn needs_log_from(&self) -> Option<Lsn> {
        None
    }
    /// Number of the last durable checkpoint of the map; 0 where there is no map.
    fn map_checkpoint(&self) -> u64 {
        0
    }
    /// Brings everything home (clean shutdown).
    fn drain(&self) -> Result<()>;
    /// As [`Level::check`](crate::Level::check).
    fn check(&self, _damages: &mut Vec<String>) -> Result<()> {
        Ok(())
    }
    /// Bytes that the page takes in the file; `None` where that isn't known, 0 if it was never written.
    fn slot_bytes(&self, _id: PageId) -> Option<u64> {
        None
    }
    /// Its name in home's report.
    fn part(&self) -> &'static str;
    /// Counters for home's report.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
