//! In which order frames are given to other pages.
//!
//! Not known here: frames, heaps.

use rustc_hash::FxHashMap;

use crate::ids::PageId;

/// Which frame goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The one whose last but one access is longest ago (LRU-2, O'Neil 1993). A page that was used once since it came counts from when
    /// it came.
    OldestButOne,
    /// The one of the coldest extent, if that of the newcomer is hotter (TAC, Canim 2010).
    Coldest,
    /// One after the other (Holloway 2009).
    Ring,
}

/// Binary logarithm of the pages of an extent that have a temperature together (Canim 2010: 32 pages).
pub(super) const EXTENT_SHIFT: u32 = 5;
/// By how much the extent of a page that is read by itself gets hotter.
pub(super) const ONE_READ: u32 = 16;

/// How hot extents are: how many requests to home flash would have saved, or has, in sixteenths. (The paper counts milliseconds; all
/// requests to one home cost about the same, and nothing here depends on a clock.) Extents are never forgotten: 16 bytes for each.
#[derive(Default)]
pub(super) struct Temperatures(FxHashMap<u64, u64>);

impl Temperatures {
    /// A page was missed above, and is read together with others, or by itself: this much.
    pub(super) fn warm(&mut self, id: PageId, by: u32) {
        *self.0.entry(extent(id)).or_default() += u64::from(by);
    }

    /// That of a page's extent.
    pub(super) fn of(&self, id: PageId) -> u64 {
        self.0.get(&extent(id)).copied().unwrap_or_default()
    }
}

/// The extent of a page.
pub(super) fn extent(id: PageId) -> u64 {
    id.to_u64() >> EXTENT_SHIFT
}
