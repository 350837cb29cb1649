//! Aggressive filling (Do 2012, sections 3.3.1 and 3.3.2). While the cache has free slots, a page that must
//! be read from the data files is read together with its neighbours. The neighbours are written to flash
//! only. The pool does not get them.
//!
//! ```text
//!   begin_along ------> read from data files ------> take_along
//!     each neighbour is watched, if the data          neighbours that were not put,
//!     files have its newest version, and no           changed or dropped since then
//!     newer one is on its way there                   are admitted
//! ```
//!
//! Invariants
//! 1. An admitted page is the newest version below the pool. When the read begins, the data files have all
//!    changes that the dirty-page table knows, and no older version of the page is being written there. A
//!    thread that puts a newer version reports it under the lock of the page's partition. The page is
//!    admitted under the same lock.
//! 2. At most one thread at a time reads a neighbour. A page that has a slot is not read as a neighbour.
//! 3. No page is evicted from flash for a neighbour.
//! 4. Neighbours are in the extent of the requested page. The extent is in use while the page's slot in the
//!    pool is latched. So the extent is not returned to the device meanwhile.
//!
//! If persistent memory is above the cache, neighbours are not read, because the dirty-page table does not
//! know the pages that persistent memory writes.
//!
//! This module does not know frames of the pool, or how the data files read pages together.

use varve_device::{AlignedBuf, reached};

use crate::base::error::PagerError;
use crate::base::ids::{Access, PageId, PageNo};
use crate::base::image::Image;
use crate::flash::cache::{FlashCache, add};
use crate::flash::io::writes::Write;
use crate::flash::table::{Admitted, Arrival, Partition};
use crate::level::{Run, Want};

/// The number of pages that are read together, beginning at a multiple of this number. Extents of all page
/// sizes have a multiple of it.
const TOGETHER: u32 = 8;

/// A neighbour that is read together with a page, and the buffer for it.
struct Along {
    id: PageId,
    bytes: AlignedBuf,
}

impl FlashCache {
    /// Returns whether the cache takes every clean page that leaves the pool, because it still has free
    /// slots.
    pub(in crate::flash) fn is_filling(&self, table: &Partition) -> bool {
        self.policy.fills_aggressively() && table.is_filling()
    }

    /// Reads a page from the data files together with neighbours, which are admitted. Returns false if
    /// nothing was read.
    pub(in crate::flash) fn read_widened(&self, id: PageId, want: &mut Want<'_>, why: Access) -> bool {
        let first = PageId::new(id.space(), PageNo(id.no().0 / TOGETHER * TOGETHER));
        if !self.may_widen(id, why) || self.transit.read_along.unreadable.lock().contains(&first) {
            return false;
        }
        let mut along = self.begin_along(id, first);
        if along.is_empty() {
            return false;
        }
        let read = self.read_along(id, first, want, &mut along, why);
        match &read {
            Ok(()) => {
                reached("flash: neighbours are read along");
                add(&self.counters.widened);
            }
            Err(cause) => {
                reached("flash: a read that can't be widened");
                add(&self.counters.widened_refused);
                if matches!(cause, PagerError::DamagedPage { .. } | PagerError::NoSuchPage { .. }) {
                    self.transit.read_along.note_unreadable(first);
                }
            }
        }
        // The thread holds the latch of a frame, so it does not wait while another thread changes the design.
        let gate = self.policy.gate.try_read();
        let may_take = read.is_ok() && gate.is_some() && self.is_on() && !self.is_failing();
        for one in along {
            match may_take {
                true => self.take_along(one),
                false => self.transit.read_along.forget(one.id),
            }
        }
        read.is_ok()
    }

    /// Returns whether neighbours may be read with this page. Read-ahead also asks for single pages, but
    /// their extent may not be in use.
    fn may_widen(&self, id: PageId, why: Access) -> bool {
        let is_possible = why == Access::Random && id.space().is_logged() && !self.around.is_below_nvm;
        is_possible
            && self.policy.design().widens()
            && self.policy.fills_aggressively()
            && self.life.is_open()
            && self.is_on()
            && !self.is_failing()
            && self.drive.store.budget.allows()
            && self.table_of(id).is_filling()
    }

    /// Returns the neighbours that can be read with the page. They enter the set of watched pages.
    fn begin_along(&self, id: PageId, first: PageId) -> Vec<Along> {
        let others = (0..TOGETHER).map(|at| first.plus(at)).filter(|other| *other != id);
        let begun = others.filter(|other| {
            let table = self.table_of(*other);
            if table.has(*other) || !self.transit.read_along.begin(*other) {
                return false;
            }
            // The checks come in this order, so that a later put of the page marks it as overtaken.
            let is_newest_at_home = !self.around.ledger.has(*other) && !self.transit.cleaning.has(*other);
            if !is_newest_at_home {
                self.transit.read_along.forget(*other);
            }
            is_newest_at_home
        });
        begun.map(|id| Along { id, bytes: self.drive.store.buffer() }).collect()
    }

    fn read_along(
        &self,
        id: PageId,
        first: PageId,
        want: &mut Want<'_>,
        along: &mut [Along],
        why: Access,
    ) -> Result<(), PagerError> {
        let Want::Page { frame, got } = want else { return Ok(()) };
        let mut wants: Vec<Want<'_>> = (0..TOGETHER).map(|_| Want::Hole).collect();
        for Along { id, bytes } in along {
            wants[(id.no().0 % TOGETHER) as usize] = Want::Page { frame: bytes, got: None };
        }
        let at = (id.no().0 % TOGETHER) as usize;
        wants[at] = Want::Page { frame, got: None };
        self.around.below.read(&mut [Run { first, want: &mut wants }], why)?;
        if let Want::Page { got: found, .. } = &wants[at] {
            *got = *found;
        }
        Ok(())
    }

    /// Admits a neighbour, unless a newer version has appeared since its read began. The caller is inside the
    /// gate.
    fn take_along(&self, Along { id, bytes }: Along) {
        let image = match Image::of_sealed(id, bytes, Access::Random) {
            Ok(image) if self.policy.design().widens() && self.promise() => image,
            _ => return self.transit.read_along.forget(id),
        };
        let new = Arrival { id, lsn: image.lsn(), lacks: None, now: self.slots.tick(), heat: None };
        let mut table = self.table_of(id);
        let partition = table.partition;
        let is_welcome = self.transit.read_along.end(id)
            && table.is_filling()
            && !table.has(id)
            && !self.around.ledger.has(id);
        let admitted = is_welcome.then(|| table.admit(new, |_| 0));
        drop(table);
        match admitted {
            Some(Admitted::Slot(slot)) => {
                add(&self.counters.widened_pages);
                self.push(Write { partition, slot, image, is_dirty: false });
            }
            _ => self.drive.writes.give_back(1),
        }
    }
}
