//! The trimmer returns the disk space of free extents to the device.
//!
//! ```text
//!    checkpoint: note_freed --> (redo starts after it) pass_freed
//!                pass_cuts -----> (redo starts after the cut that was planned) cut_files
//!    trimmer:    take_out --> pool and levels drop the pages --> the layout frees their space --> put_back
//! ```
//!
//! The two layouts free space in different ways. The in-place layout punches a hole, and the extents are
//! *hollow* then: their blocks must be reserved before they are used again (`grow.rs`). The packed layout
//! removes the pages from its page map, and later punches its own extents.
//!
//! Invariants
//! 1. `freed.rs` ensures two things. No frame of the pages is dirty. Redo applies nothing to the pages, or
//!    finds that they were discarded.
//! 2. While an extent is trimmed, no thread can take it. The trimmer leaves enough other extents for
//!    mini-transactions.
//! 3. If an extent can't be trimmed, it is as before, and is tried again after later checkpoints.
//! 4. A file is cut a piece at a time, so that no thread waits long for it.
//!
//! This module does not know when its functions are called, or how fast they may work.

use varve_device::{planted, reached};

use super::{BACKGROUND_EXTENTS, Space, Spaces};
use crate::base::error::Result;
use crate::base::ids::{PageId, PageNo, PageRange};
use crate::base::lsn::{LSN_MAX, Lsn};
use crate::base::space_format::Geometry;
use crate::home::layout::{Layout, Trimmed};
use crate::home::layouts::LayoutInUse;
use crate::home::pace::Pace;
use crate::pool::Pool;

/// The length of the pieces that are trimmed, in bytes. A piece is at least one extent.
const PIECE_BYTES: usize = 1 << 20;

impl Spaces {
    /// The spaces whose free extents are returned to the device, with their layouts.
    fn trimmed(&self) -> impl Iterator<Item = (&Space, LayoutInUse<'_>)> {
        let with_layout = self.durable().filter_map(|space| Some((space, self.layout(space.geometry).ok()?)));
        with_layout.filter(|(_, layout)| layout.trims())
    }

    /// Is called at a checkpoint, before its position is taken. Notes extents that have become free. `end` is
    /// the end of the log.
    pub(crate) fn note_freed(&self, end: impl Fn() -> Lsn) {
        self.trimmed().for_each(|(space, _)| space.map().freed().note(&end));
    }

    /// Is called after a checkpoint. Releases the extents for trimming that were noted before the start of
    /// redo. If the layout logs discards, a weaker condition is enough: all changes before `unstable` are
    /// stable. Redo may then meet records of the pages, and finds that the pages were discarded.
    pub(crate) fn pass_freed(&self, redo_start: Lsn, unstable: Option<Lsn>) {
        let all = planted("trim: freed extents before redo has passed them");
        for (space, layout) in self.trimmed() {
            let upto =
                if layout.notes_discards() { unstable.unwrap_or(Lsn::new(LSN_MAX)) } else { redo_start };
            space.map().freed().pass(if all { Lsn::new(LSN_MAX) } else { upto });
        }
    }

    /// Returns whether extents or planned cuts wait only for a checkpoint. All changes before `unstable` are
    /// stable, and the levels need the log from `needed` on.
    pub(crate) fn wait_for_checkpoint(
        &self,
        unstable: Option<Lsn>,
        needed: impl Fn() -> Option<Lsn>,
    ) -> bool {
        let is_passed = |lsn| unstable.into_iter().chain(needed()).all(|from| lsn <= from);
        // A thread that holds this lock is growing the file, which cancels the cut.
        let has_cut = |space: &Space| {
            let growth = space.growth.try_lock();
            growth.is_some_and(|growth| {
                growth.cut.as_ref().is_some_and(|cut| !cut.is_due && is_passed(cut.lsn))
            })
        };
        self.each().any(has_cut) || self.trimmed().any(|(space, _)| space.map().freed().would_go_on(unstable))
    }

    /// Returns whether trimming the extents that are due would leave holes, whose blocks must be reserved
    /// before they are used again.
    pub(crate) fn would_leave_holes(&self) -> bool {
        self.trimmed().any(|(space, layout)| layout.leaves_holes() && space.map().freed().has_due())
    }

    /// Returns whether a planned cut, or an extent that has become free, waits until redo starts after a
    /// position that is above `from` and at most `to`.
    pub(crate) fn wait_between(&self, from: Lsn, to: Lsn) -> bool {
        let is_between = |lsn: Lsn| from < lsn && lsn <= to;
        let is_cut_so = |space: &Space| {
            space.growth.lock().cut.as_ref().is_some_and(|cut| !cut.is_due && is_between(cut.lsn))
        };
        let is_freed_so = |space: &Space| space.map().freed().awaits().is_some_and(is_between);
        self.each().any(is_cut_so) || self.trimmed().any(|(space, _)| is_freed_so(space))
    }

    /// Trims one piece of the extents that are due. Returns whether there was one.
    pub(crate) fn trim_some(&self, pool: &Pool, pace: &Pace<'_>) -> Result<bool> {
        for (space, layout) in self.trimmed() {
            if self.trim_piece(space, &*layout, pool, pace)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn trim_piece(&self, space: &Space, layout: &dyn Layout, pool: &Pool, pace: &Pace<'_>) -> Result<bool> {
        let geometry = space.geometry;
        let most = (PIECE_BYTES / geometry.page_size) as u32 / geometry.extent_pages;
        let keep = BACKGROUND_EXTENTS + self.growth_extents;
        let Some(run) = space.map().take_out(most.max(1), keep) else { return Ok(false) };
        let pages = pages_of(geometry, &run);
        let trimmed = pool.discard(pages, Lsn::ZERO).and_then(|()| layout.trim(pages, pace));
        let how = match &trimmed {
            Ok(how) => *how,
            Err(_) => Trimmed::NotNow,
        };
        space.map().put_back(run, how);
        if how != Trimmed::NotNow {
            reached("trim: extent");
        }
        match trimmed {
            Err(error) if error.is_no_space() => Ok(false),
            Err(error) => Err(error),
            Ok(how) => Ok(how != Trimmed::NotNow),
        }
    }

    /// Is called after a checkpoint. Releases the planned cuts whose log records are all before `redo_start`,
    /// the start of redo or of what a backup has not copied. If the layout logs discards, no cut is released
    /// at a clean shutdown (`is_clean`). The reason is that nothing is logged then, because a log that moves
    /// begins there.
    pub(crate) fn pass_cuts(&self, redo_start: Lsn, is_clean: bool) -> Result<()> {
        for space in self.each() {
            let Some(mut growth) = space.open_growth() else { continue };
            if let Some(cut) = growth.cut.as_mut().filter(|cut| cut.lsn <= redo_start)
                && !(is_clean && self.layout(space.geometry)?.notes_discards())
            {
                cut.is_due = true;
            }
        }
        Ok(())
    }

    /// Makes the files shorter whose cuts were released, a piece at a time. The reason is that the file
    /// system must find the blocks of a file during a cut, if the file is full of holes. This delays other
    /// I/O of the file system, for seconds with a gigabyte.
    pub(crate) fn cut_files(&self, pool: &Pool, pace: &Pace<'_>) -> Result<()> {
        for space in self.durable() {
            let Ok(layout) = self.layout(space.geometry) else { continue };
            let pieces = layout.cut_pieces();
            let piece = || match &pieces {
                Some(bytes) => pace.short_piece(bytes, |most| self.cut_piece(space, pool, Some(most))),
                None => self.cut_piece(space, pool, None),
            };
            while !pace.is_over() && piece()? {}
        }
        Ok(())
    }

    /// Cuts off at most `most_bytes` bytes, and at least one extent. Returns whether there is more to cut. A
    /// thread that grows the file meanwhile uses the remaining extents again, and so ends the cut. After a
    /// crash the file may have any of these lengths. The extents within it are free.
    fn cut_piece(&self, space: &Space, pool: &Pool, most_bytes: Option<u64>) -> Result<bool> {
        let geometry = space.geometry;
        let Some(mut growth) = space.open_growth() else { return Ok(false) };
        let Some(cut) = growth.cut.as_mut().filter(|cut| cut.is_due) else { return Ok(false) };
        let layout = self.layout(geometry)?;
        let (extent_pages, kept) = (geometry.extent_pages, space.map().extent_count());
        let (end, now) = (kept * extent_pages, self.file_pages(geometry));
        let most = most_bytes.map_or(u32::MAX, |bytes| (bytes / geometry.page_size as u64) as u32);
        let to = now.saturating_sub(most.max(extent_pages)).next_multiple_of(extent_pages).max(end);
        let count = now.saturating_sub(to);
        pool.discard(PageRange { first: PageId::new(geometry.space, PageNo(to)), count }, Lsn::ZERO)?;
        let is_last = to == end;
        let done =
            if is_last { layout.resize(geometry.space, to) } else { layout.shorten(geometry.space, to) };
        match done {
            // Some file systems need space even to shorten a file. Nothing has changed, and the cut is tried
            // again after the next checkpoint.
            Err(error) if error.is_no_space() => return Ok(false),
            done => done?,
        }
        cut.off.shorten(kept, to / extent_pages);
        if is_last {
            growth.cut = None;
            reached("space: file cut");
        }
        Ok(!is_last)
    }

    /// Gives a part of the free space within packed files back to the device. Returns whether there may be
    /// more.
    pub(crate) fn trim_files(&self, pace: &Pace<'_>) -> Result<bool> {
        let mut has_more = false;
        for layout in self.layouts.each() {
            has_more |= layout.trim_file(pace)?;
        }
        Ok(has_more)
    }
}

/// Returns the pages of neighbouring extents.
pub(super) fn pages_of(geometry: Geometry, run: &std::ops::Range<u32>) -> PageRange {
    PageRange { first: geometry.page_of(run.start, 0), count: run.len() as u32 * geometry.extent_pages }
}
