//! The page map in memory: for each page of a packed space, the place of its newest stored version in the
//! file.
//!
//! Invariants
//! 1. Reading the map takes no lock. Writing happens under the lock of the space's book (`book.rs`).
//! 2. A reader registers at the extent, and then reads the page's map entry a second time. A thread that
//!    frees an extent removes its slots from the map, and then looks for registered readers. Loads and swaps
//!    are sequentially consistent, so one of the two threads sees the other (Dekker's algorithm).
//!
//! This module does not know which version of a page is found after a crash (`book.rs`).

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::unit_run::UnitRun;
use crate::base::chunks::Chunks;
use crate::base::ids::PageNo;

/// Places by page number.
pub(crate) struct PageMap {
    places: Chunks<AtomicU64>,
}

fn known(raw: u64) -> Option<UnitRun> {
    UnitRun::of_stored(raw).flatten()
}

impl PageMap {
    pub(crate) fn new() -> PageMap {
        PageMap { places: Chunks::new() }
    }

    /// Returns the place of a page. `None` means that it was never written.
    pub(crate) fn load(&self, no: PageNo) -> Option<UnitRun> {
        known(self.places.get(no.0)?.load(SeqCst))
    }

    /// Sets the place of a page, and returns the place before.
    pub(crate) fn swap(&self, no: PageNo, place: Option<UnitRun>) -> Option<UnitRun> {
        match (place, self.places.get(no.0)) {
            (None, None) => None,
            (_, Some(cell)) => known(cell.swap(UnitRun::to_stored(place), SeqCst)),
            (Some(_), None) => known(self.places.make(no.0).swap(UnitRun::to_stored(place), SeqCst)),
        }
    }

    /// Returns all pages that have a place, in the order of their numbers.
    pub(crate) fn each(&self) -> impl Iterator<Item = (PageNo, UnitRun)> {
        let cells = self.places.each().map(|(no, cell)| (PageNo(no), known(cell.load(SeqCst))));
        cells.filter_map(|(no, place)| Some((no, place?)))
    }

    /// Returns the memory of the map, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.places.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_counts() {
        let map = PageMap::new();
        let place = |address| UnitRun::new(address, 3);
        assert_eq!(map.load(PageNo(9)), None);
        assert_eq!(map.swap(PageNo(9), None), None);
        assert_eq!(map.bytes(), 0, "forgetting makes nothing");
        assert_eq!(map.swap(PageNo(9), place(16)), None);
        assert_eq!(map.swap(PageNo(9), place(40)), place(16));
        assert_eq!(map.swap(PageNo(70_000), place(20)), None);
        let all: Vec<_> = map.each().map(|(no, place)| (no.0, place.address())).collect();
        assert_eq!(all, [(9, 40), (70_000, 20)]);
        assert_eq!(map.swap(PageNo(9), None), place(40));
        assert_eq!(map.load(PageNo(9)), None);
    }
}
