//! The cache's device: its file, the queue of writes, and the number of requests in progress.
//!
//! This module does not know which pages are in the slots.

use std::sync::Arc;

use varve_device::Directory;

use super::store::Store;
use super::writes::Writes;
use crate::flash::policy::throttle::Throttle;

/// The device of the cache.
pub(in crate::flash) struct Drive {
    /// The directory of the file.
    pub(in crate::flash) directory: Arc<dyn Directory>,
    /// The file.
    pub(in crate::flash) store: Store,
    /// The queue of pages that wait for their write to the file.
    pub(in crate::flash) writes: Writes,
    /// Counts and limits the requests in progress at the device.
    pub(in crate::flash) throttle: Throttle,
}
