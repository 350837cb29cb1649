//! Temperatures of extents. Temperature-aware caching takes the pages of the hottest extents (Canim 2010; Do
//! 2012, section 3.2.3).
//!
//! Each read of a page raises the temperature of the page's extent. The increase is the time that a cached
//! copy saves, or would have saved, in nanoseconds. The throttle measures the drives for it
//! (`Throttle::saved_ns`), because the speed of a drive is not known in advance.
//!
//! This module does not know which pages are cached.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::base::ids::PageId;

/// The number of pages of an extent. Each extent has one temperature.
const EXTENT_PAGES: u64 = 32;

/// The temperatures, by number of the extent.
#[derive(Default)]
pub(in crate::flash) struct Heat(Mutex<FxHashMap<u64, u64>>);

impl Heat {
    /// Raises the temperature of the page's extent, because a cached copy saves this time when the page is
    /// read.
    pub(in crate::flash) fn note(&self, id: PageId, saved_ns: u64) {
        let mut temperatures = self.0.lock();
        let temperature = temperatures.entry(id.to_u64() / EXTENT_PAGES).or_default();
        *temperature = temperature.saturating_add(saved_ns);
    }

    /// Returns the temperature of the page's extent.
    pub(in crate::flash) fn of(&self, id: PageId) -> u64 {
        self.0.lock().get(&(id.to_u64() / EXTENT_PAGES)).copied().unwrap_or_default()
    }
}
