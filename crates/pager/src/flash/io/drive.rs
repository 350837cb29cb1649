//! The cache's device: its file, the queue of writes, and how many requests are in progress.
//!
//! What it does not know: which pages are in the slots.

use std::sync::Arc;

use varve_device::Directory;

use super::store::Store;
use super::writes::Writes;
use crate::flash::policy::throttle::Throttle;

/// The device of the cache.
pub(in crate::flash) struct Drive {
    /// Where the file is.
    pub(in crate::flash) directory: Arc<dyn Directory>,
    /// The file.
    pub(in crate::flash) store: Store,
    /// Pages on their way to the file.
    pub(in crate::flash) writes: Writes,
    /// Requests under way at the device.
    pub(in crate::flash) throttle: Throttle,
}
