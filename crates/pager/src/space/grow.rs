//! Makes the files of spaces longer and shorter.
//!
//! Invariants: 2 and 3 of `space/mod.rs`, and
//! 1. A hollow extent is a free extent whose file blocks may not be allocated. Its blocks are reserved before
//!    the file gets longer. If a full device refuses one extent, the next one is still tried, because after a
//!    start some hollow extents may still have their blocks.
//!
//! This module does not know which code allocates pages.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;
use varve_device::reached;

use super::trim::pages_of;
use super::{BACKGROUND_EXTENTS, Cut, Growth, RESERVE_EXTENTS, Space, Spaces};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page::{self, kind};
use crate::base::space_format::{Entry, ExtentNo, Geometry, MARK_OFFSET};
use crate::home::files::growth_step;
use crate::home::layout::Layout;
use crate::home::layouts::LayoutInUse;

/// After a full device has refused several hollow extents together, up to this many are tried one by one.
const SINGLE_TRIES_MAX: usize = 256;

impl Spaces {
    /// Makes the files of a new database durably.
    pub(crate) fn create(&self, database_id: u64) -> Result<()> {
        SpaceId::DURABLE.into_iter().try_for_each(|id| {
            let geometry = self.geometry(id)?;
            self.make(geometry, &geometry.new_header(database_id))
        })
    }

    /// Makes the file of a new tablespace durably. `mark` is the mark of the other headers.
    pub(crate) fn make_tablespace(&self, geometry: Geometry, database_id: u64, mark: u64) -> Result<()> {
        let mut header = geometry.new_header(database_id);
        header[MARK_OFFSET..MARK_OFFSET + 8].copy_from_slice(&mark.to_le_bytes());
        self.make(geometry, &header)
    }

    fn make(&self, geometry: Geometry, header: &[u8]) -> Result<()> {
        let (id, layout) = (geometry.space, self.layout(geometry)?);
        layout.resize(id, geometry.extent_pages)?;
        write_new(&*layout, geometry.header(), header)?;
        write_new(&*layout, geometry.descriptor_of(0), &geometry.new_descriptor(0))?;
        if id == SpaceId::DATA {
            let mut root = vec![0; geometry.page_size];
            page::format(&mut root, PageId::ROOT, kind::ROOT, 0);
            write_new(&*layout, PageId::ROOT, &root)?;
        }
        // The first length stays within one group. The next group needs another descriptor page, which is
        // made when the file grows.
        let extents = (1 + RESERVE_EXTENTS.max(self.growth_extents)).min(geometry.group_extents);
        layout.resize(id, geometry.extent_pages * extents)
    }

    pub(super) fn layout(&self, geometry: Geometry) -> Result<LayoutInUse<'_>> {
        self.layouts.of(geometry.header())
    }

    /// Keeps extents free in the logged spaces. An error of a full device is returned when a mini-transaction
    /// allocates. If `others_try` is set, a page writer repeats a refused growth again and again, so the
    /// caller need not try.
    pub(crate) fn keep_free(&self, extents: u32, others_try: bool) -> Result<()> {
        for space in self.durable() {
            if !space.is_short(extents) {
                continue;
            }
            if others_try && space.is_stuck.load(Relaxed) {
                continue;
            }
            let Some((mut growth, waiting)) = space.lock_growth() else { continue };
            // The waiting mini-transactions begin together afterwards, so one more extent is made for each of
            // them.
            if space.is_short(extents + waiting) && !space.is_closed() {
                match self.grow(space, &mut growth, extents + waiting) {
                    Err(error) if error.is_no_space() => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Makes sure that `pages` pages are free in whole extents. No latch may be held.
    pub(crate) fn reserve(&self, id: SpaceId, pages: u32) -> Result<()> {
        let space = self.space(id)?;
        let missing = || u64::from(pages).saturating_sub(space.map().free_pages());
        if missing() == 0 {
            return Ok(());
        }
        let mut growth = space.open_growth().ok_or(PagerError::NoSuchTablespace { id })?;
        while missing() > 0 {
            let extents = missing().div_ceil(u64::from(space.geometry.extent_pages));
            self.grow(space, &mut growth, extents as u32)?;
        }
        Ok(())
    }

    /// Makes at least `extents` more extents available, and records an error for later callers.
    fn grow(&self, space: &Space, growth: &mut Growth, extents: u32) -> Result<()> {
        if let Some(cut) = growth.cut.take() {
            let mut map = space.map();
            map.restore(cut.off);
        }
        let result = self.more(space, growth, extents);
        space.is_stuck.store(result.is_err(), Relaxed);
        growth.error = match &result {
            Err(PagerError::Device(error)) => Some(error.clone()),
            _ => None,
        };
        result
    }

    /// Makes at least `extents` more extents available: first hollow and released extents, then a longer
    /// file.
    fn more(&self, space: &Space, growth: &mut Growth, extents: u32) -> Result<()> {
        let missing = extents.saturating_sub(self.fill_hollow(space, growth, extents)?);
        if missing == 0 {
            return Ok(());
        }
        let step = self.step(space, missing);
        let released = space.map().released_count();
        if released > 0 {
            at_best(step.min(released), missing.min(released), |count| self.regain(space, count))?;
        }
        match missing.saturating_sub(released) {
            0 => Ok(()),
            missing => at_best(step, missing, |count| self.lengthen(space, count)),
        }
    }

    /// Reserves blocks for hollow extents, up to the usual step of growth. Returns the number of extents that
    /// have blocks now.
    fn fill_hollow(&self, space: &Space, growth: &mut Growth, extents: u32) -> Result<u32> {
        let (wanted, mut filled) = (self.step(space, extents), 0);
        while filled < wanted {
            let Some(run) = space.map().hollow_run(0, wanted - filled) else { return Ok(filled) };
            match self.fill(space, run)? {
                0 => break,
                count => filled += count,
            }
        }
        // Other hollow extents may still have their blocks. After a start this is unknown, so they are tried.
        for _ in 0..SINGLE_TRIES_MAX {
            if filled >= extents {
                break;
            }
            let Some(run) = space.map().hollow_run(growth.asked, 1) else {
                growth.asked = 0;
                break;
            };
            growth.asked = run.end;
            filled += self.fill(space, run)?;
        }
        Ok(filled)
    }

    /// Reserves blocks for neighbouring hollow extents. If the device is full, reserves none.
    fn fill(&self, space: &Space, run: Range<ExtentNo>) -> Result<u32> {
        match self.layout(space.geometry)?.reserve(pages_of(space.geometry, &run)) {
            Ok(()) => {
                reached("space: hollow extents filled");
                let count = run.len() as u32;
                space.map().fill(run);
                Ok(count)
            }
            Err(error) if error.is_no_space() => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of extents by which a file grows if `extents` are needed.
    fn step(&self, space: &Space, extents: u32) -> u32 {
        let geometry = space.geometry;
        let extent_bytes = geometry.page_size as u64 * u64::from(geometry.extent_pages);
        let share = growth_step(space.map().extent_count(), self.growth_extents, extent_bytes);
        share.max(self.growth_extents).max(extents)
    }

    /// Gets space for this many released extents again.
    fn regain(&self, space: &Space, extents: u32) -> Result<()> {
        let geometry = space.geometry;
        let pages = {
            let map = space.map();
            (map.extent_count() - map.released_count() + extents) * geometry.extent_pages
        };
        self.layout(geometry)?.grant(geometry.space, pages)?;
        reached("space: released extents are granted");
        space.map().regain(extents);
        Ok(())
    }

    /// Is called at a checkpoint. Tells the layouts that most free extents need no space until they are
    /// granted again.
    pub(crate) fn release_room(&self) -> Result<()> {
        for space in self.durable() {
            let Some(_growth) = space.open_growth() else { continue };
            let (geometry, mut map) = (space.geometry, space.map());
            let more = map.free_count().saturating_sub(self.growth_extents + BACKGROUND_EXTENTS);
            let extents = map.extent_count() - map.released_count() - more;
            if self.layout(geometry)?.ungrant(geometry.space, extents * geometry.extent_pages) {
                map.release(more);
            }
        }
        Ok(())
    }

    fn lengthen(&self, space: &Space, extents: u32) -> Result<()> {
        let geometry = space.geometry;
        let layout = self.layout(geometry)?;
        let mut extent = space.map().extent_count();
        let target = extent + extents;
        while extent < target {
            let group = geometry.group_of(extent);
            let stop = target.min((group + 1) * geometry.group_extents);
            let mut entries = vec![Entry::default(); (stop - extent) as usize];
            if geometry.space.is_logged() && extent.is_multiple_of(geometry.group_extents) {
                let descriptor = geometry.new_descriptor(group);
                write_new(&*layout, geometry.descriptor_of(group), &descriptor)?;
                entries[0] = geometry.entry(&descriptor, extent)?;
            }
            layout.resize(geometry.space, stop * geometry.extent_pages)?;
            reached("space: file lengthened");
            let mut map = space.map();
            entries.into_iter().for_each(|entry| map.push(entry));
            extent = stop;
        }
        Ok(())
    }

    /// Is called at a checkpoint, before the redo position is taken. Removes free extents at the end of the
    /// space from the map. `end` is the end of the log.
    pub(crate) fn plan_cut(&self, end: impl Fn() -> Lsn) {
        for space in self.durable() {
            let Some(mut growth) = space.open_growth() else { continue };
            if growth.cut.is_some() {
                continue;
            }
            let mut map = space.map();
            let keep = (2 * (self.growth_extents + BACKGROUND_EXTENTS)).max(map.extent_count() / 4);
            // If the layout can drop the content of the pages, this happens first, because a cut must wait
            // for redo.
            let is_whole = self.layout(space.geometry).is_ok_and(|layout| !layout.notes_discards());
            let tail = if is_whole { map.free_tail() } else { map.trimmed_tail() };
            let count = tail.saturating_sub(keep);
            if count > 0 {
                let off = map.truncate(count);
                growth.cut = Some(Cut { off, lsn: end(), is_due: false });
            }
        }
    }
}

impl Space {
    /// Takes the lock for growing the files. Also returns the number of mini-transactions that wait for it.
    /// Returns `None` if the device was full last time and another thread is trying again, because the error
    /// is known.
    fn lock_growth(&self) -> Option<(MutexGuard<'_, Growth>, u32)> {
        if let Some(growth) = self.growth.try_lock() {
            return Some((growth, self.waiting.load(Relaxed)));
        }
        if self.is_stuck.load(Relaxed) {
            return None;
        }
        self.waiting.fetch_add(1, Relaxed);
        let growth = self.growth.lock();
        let waiting = self.waiting.fetch_sub(1, Relaxed) - 1;
        Some((growth, waiting))
    }
}

/// Tries to grow by `step`. If the device has no space for that, tries `asked`.
fn at_best(step: u32, asked: u32, grow: impl Fn(u32) -> Result<()>) -> Result<()> {
    match grow(step) {
        Err(error) if error.is_no_space() && step > asked => grow(asked),
        result => result,
    }
}

/// Writes a page that nothing refers to yet, outside the log.
pub(super) fn write_new(layout: &dyn Layout, id: PageId, bytes: &[u8]) -> Result<()> {
    layout.write_unlogged(&Image::of(id, bytes, Access::Random))
}
