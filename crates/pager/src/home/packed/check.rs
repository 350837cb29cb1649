//! A consistency check of a packed space. Every place must be inside the file, and no two places may overlap.
//! Every slot must have the page that the map says. The bytes that count as live in each extent must be the
//! bytes that pages use.
//!
//! Invariants
//! 1. The check changes nothing. Each finding is a text that names the page and its place.
//! 2. Page writers may run during the check. The check registers as a reader of each slot that it reads, and
//!    compares sums only when no write is in flight.
//!
//! This module does not know what is in a page.

use varve_device::AlignedBuf;

use super::PackedSpace;
use super::extents::Extents;
use super::unit_run::{UNIT_BYTES, UnitRun};
use crate::base::error::Result;
use crate::base::ids::PageNo;
use crate::home::compression::stored_page;

/// The check ends after this many damages.
const NAMED_MAX: usize = 100;

impl PackedSpace {
    /// Appends the damages that it finds.
    pub(super) fn check_slots(&self, damages: &mut Vec<String>) -> Result<()> {
        self.check_extents(damages);
        let mut frame = AlignedBuf::new(self.shape.page_size as usize);
        for (no, _) in self.map.each() {
            if damages.len() >= NAMED_MAX {
                break;
            }
            // `None` means that the page was discarded meanwhile.
            let Some(slot) = self.hold(no) else { continue };
            damages.extend(self.check_slot(no, slot.place, &mut frame)?);
        }
        Ok(())
    }

    /// Returns the damage of the page in a slot that the caller holds, if there is any.
    fn check_slot(&self, no: PageNo, place: UnitRun, frame: &mut [u8]) -> Result<Option<String>> {
        let window = self.window(place);
        let mut bytes = AlignedBuf::new(window.len_bytes);
        self.file.read_at(window.offset, &mut bytes, self.purpose)?;
        let decoded =
            stored_page::decode(&bytes[window.skip..window.skip + place.len_bytes()], self.id(no), frame);
        Ok(decoded.err().map(|damage| {
            let (id, at, file) = (self.id(no), place.offset_bytes(), self.file.location());
            format!("page {id} is damaged in its slot at byte {at} of {file}: {damage}")
        }))
    }

    fn check_extents(&self, damages: &mut Vec<String>) {
        let book = self.book.lock();
        let live_units = book.extents().live_units();
        let counted =
            Extents::recovered(self.shape.extent_bytes as usize, book.extents().count(), self.map.each());
        match counted {
            Err(bad) => damages.push(format!("{}: {bad}", self.file.location())),
            Ok(counted) if !book.is_under_way() && counted.live_units() != live_units => {
                damages.push(format!(
                    "{}: its pages need {} bytes, and {} bytes are in use",
                    self.file.location(),
                    counted.live_units() * UNIT_BYTES as u64,
                    live_units * UNIT_BYTES as u64
                ));
            }
            Ok(_) => {}
        }
    }
}
