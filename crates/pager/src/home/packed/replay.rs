//! Applies the log records since the last checkpoint of a page map to this map. The map says where each page
//! of a packed space is stored.
//!
//! Invariants
//! 1. Only groups of records that end after the checkpoint's LSN are applied, because the checkpoint has all
//!    earlier ones.
//! 2. A discard removes its pages from the map. A record of a written page is ignored if an earlier discard
//!    in the log is newer than the page's image. This order occurs because settling may log a page after the
//!    record of its discard, and before the discard itself.
//! 3. A record of a moved page is applied only if the map has a place for the page at that point, for the
//!    same reason.
//! 4. Replay writes nothing. Replaying again gives the same map.
//!
//! This module does not know map pages or extents.

use std::collections::BTreeSet;

use varve_device::{planted, reached};

use super::format::map_page_of;
use super::note::{self, NOTE_MAP, Said};
use super::page_map::PageMap;
use super::unit_run::UnitRun;
use crate::base::error::Result;
use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::Lsn;
use crate::log::notes::discarded::Discards;
use crate::log::notes::discards::{self, NOTE_DISCARD};
use crate::log::{Observe, Record};

/// A map to which log records are applied.
pub(crate) struct Replay {
    space: SpaceId,
    /// End of the log at the checkpoint.
    after: Lsn,
    map: PageMap,
    discards: Discards,
    /// Map pages that differ from the checkpoint.
    dirty: BTreeSet<u32>,
}

impl Replay {
    /// Begins a replay. `map` is the map of the checkpoint, and `after` is the end of the log at that moment.
    pub(crate) fn new(space: SpaceId, map: PageMap, after: Lsn) -> Replay {
        Replay { space, after, map, discards: Discards::default(), dirty: BTreeSet::new() }
    }

    /// Returns the place of the page, as far as the log was read.
    pub(super) fn place(&self, no: PageNo) -> Option<UnitRun> {
        self.map.load(no)
    }

    /// Returns the map, and the map pages that differ from the checkpoint.
    pub(crate) fn finish(self) -> (PageMap, BTreeSet<u32>) {
        (self.map, self.dirty)
    }

    /// Applies a note record in the group that ends at `lsn`.
    pub(crate) fn said(&mut self, lsn: Lsn, said: &Said) {
        if lsn <= self.after {
            return;
        }
        let id = PageId::new(self.space, said.no);
        let is_void = match said.is_moved {
            true => self.map.load(said.no).is_none() && !planted("packed: a move of a discarded page counts"),
            false => {
                self.discards.covers(id, said.lsn)
                    && !planted("packed: recovery takes notes of discarded pages")
            }
        };
        if is_void {
            reached("recovery: map note older than a discard");
            return;
        }
        reached("recovery: map note applied");
        self.set(said.no, Some(said.place));
    }

    /// Applies a discard record in the group that ends at `lsn`.
    pub(crate) fn discarded(&mut self, lsn: Lsn, range: PageRange) {
        if lsn <= self.after || range.first.space() != self.space {
            return;
        }
        self.discards.insert(range, lsn);
        range.pages().for_each(|id| self.set(id.no(), None));
    }

    fn set(&mut self, no: PageNo, place: Option<UnitRun>) {
        if self.map.swap(no, place) != place {
            self.dirty.insert(map_page_of(no));
        }
    }
}

impl Observe for Replay {
    fn observe(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<()> {
        match *record {
            Record::Note { kind: NOTE_MAP, payload } => {
                // Analysis has refused the record already if it is not valid.
                let pages = note::decode(payload).unwrap_or_default();
                let mine = self.space;
                for (_, said) in pages.iter().filter(|(space, _)| *space == mine) {
                    self.said(lsn, said);
                }
            }
            Record::Note { kind: NOTE_DISCARD, payload } => {
                let ranges = discards::decode(payload).unwrap_or_default();
                ranges.into_iter().for_each(|range| self.discarded(lsn, range));
            }
            _ => {}
        }
        Ok(())
    }
}
