//! Temperatures of extents. Temperature-aware caching takes the pages of the hottest extents (Canim 2010; Do
//! 2012, section 3.2.3).
//!
//! Each read of a page raises the temperature of the page's extent. The increase is the time that a cached
//! copy saves, or would have saved. The unit is the cost of a sequential read from the data files, because
//! the speed of a drive is not known in advance. A random read costs 20 units, because a disk has to seek.
//!
//! Not known here: which pages are cached.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::base::ids::{Access, PageId};

/// Pages of an extent, for which one temperature is kept.
const EXTENT_PAGES: u64 = 32;
/// The cost of a random read from the data files, in sequential reads: a disk's seek and half a turn,
/// compared with the transfer of a page.
const RANDOM_COST: u64 = 20;

/// The temperatures, by number of the extent.
#[derive(Default)]
pub(in crate::flash) struct Heat(Mutex<FxHashMap<u64, u64>>);

impl Heat {
    /// Raises the temperature of the page's extent, because the page is read.
    pub(in crate::flash) fn note(&self, id: PageId, why: Access) {
        let cost = if why == Access::Random { RANDOM_COST } else { 1 };
        *self.0.lock().entry(id.to_u64() / EXTENT_PAGES).or_default() += cost;
    }

    /// The temperature of the page's extent.
    pub(in crate::flash) fn of(&self, id: PageId) -> u64 {
        self.0.lock().get(&(id.to_u64() / EXTENT_PAGES)).copied().unwrap_or_default()
    }
}
