//! Reading pages of a packed space. The page map says where the page is stored, and one read gets it.
//!
//! Invariants
//! 1. A reader registers at the extent, and then reads the page's map entry a second time. A thread that
//!    reuses an extent first removes its slots from the map, and then looks for registered readers. So one of
//!    the two threads sees the other, and a slot is never overwritten while it is read.
//!
//! This module does not know which thread moves pages, or why.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use varve_device::{AlignedBuf, ReadOp};

use super::PackedSpace;
use super::extents::ExtentNo;
use super::unit_run::UnitRun;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageNo};
use crate::base::page::PageDamage;
use crate::home::compression::stored_page;
use crate::level::Want;

/// A slot that is not overwritten until this is dropped.
pub(super) struct PinnedSlot<'s> {
    pub(super) place: UnitRun,
    readers: &'s AtomicU32,
}

impl Drop for PinnedSlot<'_> {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, SeqCst);
    }
}

/// A *window* is the part of a file that is read for a slot: the sectors that contain the slot.
pub(super) struct Window {
    pub(super) offset: u64,
    /// Bytes before the slot.
    pub(super) skip: usize,
    pub(super) len_bytes: usize,
}

impl Window {
    /// Returns the part of the file that is read for a place.
    pub(super) fn of(place: UnitRun, sector_bytes: usize) -> Window {
        let sector = sector_bytes as u64;
        let offset = place.offset_bytes() / sector * sector;
        let skip = (place.offset_bytes() - offset) as usize;
        Window { offset, skip, len_bytes: (skip + place.len_bytes()).next_multiple_of(sector_bytes) }
    }
}

impl PackedSpace {
    /// Returns whether a thread reads a slot of the extent, or is about to check whether it may.
    pub(super) fn is_read(&self, extent: ExtentNo) -> bool {
        self.readers.get(extent.0).is_some_and(|readers| readers.load(SeqCst) > 0)
    }

    fn find(&self, id: PageId) -> Result<PinnedSlot<'_>> {
        self.require_page(id)?;
        self.hold(id.no()).ok_or(PagerError::DamagedPage { id, damage: PageDamage::Zero })
    }

    /// Pins the slot that the map has for a page. `None` means that the map has none.
    pub(super) fn hold(&self, no: PageNo) -> Option<PinnedSlot<'_>> {
        let extent_units = self.shape.extent_bytes / super::unit_run::UNIT_BYTES as u64;
        loop {
            let place = self.map.load(no)?;
            let readers = self.readers.make((place.address() / extent_units) as u32);
            readers.fetch_add(1, SeqCst);
            let found = PinnedSlot { place, readers };
            if self.map.load(no) == Some(place) {
                return Some(found);
            }
        }
    }

    /// Returns the part of the file that is read for a place.
    pub(super) fn window(&self, place: UnitRun) -> Window {
        Window::of(place, self.sector_bytes())
    }

    /// Reads pages. All reads are submitted together.
    pub(super) fn read_wants(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        let found: Vec<PinnedSlot<'_>> = wants.iter().map(|(id, _)| self.find(*id)).collect::<Result<_>>()?;
        let mut aside: Vec<(Window, Option<AlignedBuf>)> = Vec::with_capacity(wants.len());
        for (found, (_, want)) in found.iter().zip(wants.iter()) {
            let window = self.window(found.place);
            let fits = matches!(want, Want::Page { frame, .. } if frame.len() == window.len_bytes);
            // A plain page is read directly into its frame.
            let buf = (!fits || window.skip > 0).then(|| AlignedBuf::new(window.len_bytes));
            aside.push((window, buf));
        }
        let mut ops = Vec::with_capacity(wants.len());
        for ((window, aside), (_, want)) in aside.iter_mut().zip(wants.iter_mut()) {
            let Want::Page { frame, .. } = want else { continue };
            let buf = aside.as_deref_mut().unwrap_or(frame);
            ops.push(ReadOp { offset: window.offset, buf, why: self.purpose });
        }
        match &mut ops[..] {
            [one] => self.file.read_at(one.offset, one.buf, one.why)?,
            many => self.file.read_batch(many)?,
        }
        drop(ops);
        for ((found, (window, aside)), (id, want)) in found.iter().zip(&aside).zip(wants.iter_mut()) {
            let Want::Page { frame, .. } = want else { continue };
            let decoded = match aside {
                Some(bytes) => stored_page::decode(
                    &bytes[window.skip..window.skip + found.place.len_bytes()],
                    *id,
                    frame,
                ),
                None => stored_page::decode_in(frame, *id),
            };
            let form = decoded.map_err(|damage| PagerError::DamagedPage { id: *id, damage })?;
            self.forms.read(frame, form);
        }
        Ok(())
    }
}
