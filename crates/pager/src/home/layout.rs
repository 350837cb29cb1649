//! The interface of a layout: where and how the pages of a space are stored in its file. `layouts.rs` says
//! which layout a space has.
//!
//! Invariants
//! 1. The caller (`home/mod.rs`) lets only one thread at a time write a page. Reads may come at any time.
//! 2. The layout of a space does not change while the database is open.
//!
//! This module does not know frames, which pages are in use, or what is in a page.

use crate::base::error::Result;
use crate::base::ids::{PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::home::pace::{Pace, PieceBytes};
use crate::level::{Cause, DiscardHold, Need, Step, Want};

/// The result of returning the space of free pages to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trimmed {
    /// The space was returned. It must be reserved before the pages are used again.
    Hollow,
    /// The pages can be used again without a reservation.
    Whole,
    /// The space could not be returned now. Perhaps a later try succeeds.
    NotNow,
}

/// A layout: where and how pages are stored. One layout may have several spaces.
pub(crate) trait Layout: Send + Sync {
    /// Reads stored pages, checks them, and makes plain pages in their frames. All reads are submitted
    /// together. For a page that was never written the result is
    /// [`PageDamage::Zero`](crate::base::page::PageDamage::Zero). No page of `wants` may be a hole of the
    /// request.
    fn read(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()>;
    /// Writes pages. All of them are logged, or all are temporary. When this returns, `read` returns the new
    /// version of pages with the need `Held`. Pages with `Stable` survive a crash, and were reported to the
    /// dirty-page table. For a refusal see `level/mod.rs`, invariant 6.
    fn write(&self, images: &[&Image], cause: Cause, need: Need) -> Result<()>;
    /// Makes stable what was written with `Need::Held`.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Writes a page that nothing refers to yet, durably (growth of a space).
    fn write_unlogged(&self, image: &Image) -> Result<()>;
    /// Returns the length of a space, in pages.
    fn pages(&self, space: SpaceId) -> u32;
    /// Changes the length of a space durably. If the device has no space, the length stays as it was.
    fn resize(&self, space: SpaceId, pages: u32) -> Result<()>;
    /// Allows writes of the pages of the space up to this number. Reserves disk space for pages that were
    /// never written, or refuses.
    fn grant(&self, _space: SpaceId, _pages: u32) -> Result<()> {
        Ok(())
    }
    /// Reduces the number of pages that may be written, until more are granted. Returns whether the layout
    /// uses this. If not, no pages need to be granted.
    fn ungrant(&self, _space: SpaceId, _pages: u32) -> bool {
        false
    }
    /// Shortens the space as [`Layout::resize`] does, but not durably. This is one of several steps before
    /// the last, durable one.
    fn shorten(&self, space: SpaceId, pages: u32) -> Result<()> {
        self.resize(space, pages)
    }
    /// Returns the length of the pieces in which the space is shortened, so that other I/O does not wait
    /// long. `None` means that shortening takes no time.
    fn cut_pieces(&self) -> Option<PieceBytes> {
        None
    }
    /// See [`Level::discard`](crate::Level::discard).
    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
        Ok(())
    }
    /// Returns whether the space of free pages is returned to the device now.
    fn trims(&self) -> bool {
        false
    }
    /// Returns whether the layout itself logs discards that have no log record yet. Then redo applies no
    /// older records to pages that were stored elsewhere.
    fn notes_discards(&self) -> bool {
        false
    }
    /// Is called at a start for free pages. Returns whether they may occupy space that can be returned to the
    /// device.
    fn holds(&self, _ids: PageRange) -> bool {
        false
    }
    /// Returns whether pages whose space was returned need a reservation before they are written.
    fn leaves_holes(&self) -> bool {
        false
    }
    /// Returns the space of free pages to the device. The pages were discarded, and no thread can allocate
    /// them meanwhile.
    fn trim(&self, _ids: PageRange, _pace: &Pace<'_>) -> Result<Trimmed> {
        Ok(Trimmed::Whole)
    }
    /// Reserves space for these free pages, so that their writes find space, even after a crash.
    fn reserve(&self, _ids: PageRange) -> Result<()> {
        Ok(())
    }
    /// Returns free space of the file that belongs to no page to the device, a piece at a time. Returns
    /// whether there may be more.
    fn trim_file(&self, _pace: &Pace<'_>) -> Result<bool> {
        Ok(false)
    }
    /// See [`Level::discarding`](crate::Level::discarding).
    fn discarding(&self) -> Option<DiscardHold<'_>> {
        None
    }
    /// Takes part in a checkpoint.
    fn checkpoint(&self, step: Step) -> Result<()>;
    /// Returns the oldest log position that recovery of this layout still needs: the start of a block.
    fn needs_log_from(&self) -> Option<Lsn> {
        None
    }
    /// Returns the number of the last durable checkpoint of the map, or 0 where there is no map.
    fn map_checkpoint(&self) -> u64 {
        0
    }
    /// Makes everything durable in the data files (clean shutdown).
    fn drain(&self) -> Result<()>;
    /// See [`Level::check`](crate::Level::check).
    fn check(&self, _damages: &mut Vec<String>) -> Result<()> {
        Ok(())
    }
    /// Returns the number of bytes that the page takes in the file. The number is 0 if the page was never
    /// written, and `None` if the layout does not know it.
    fn slot_bytes(&self, _id: PageId) -> Option<u64> {
        None
    }
    /// Returns the name of the layout in the report of the data files.
    fn part(&self) -> &'static str;
    /// Returns the counters for the report of the data files.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
