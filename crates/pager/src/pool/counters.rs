//! Counters of the buffer pool and its page writers.
//!
//! Invariants
//! 1. Reading the counters takes no lock that an access to a page waits for.
//!
//! This module does not know how the counters are shown.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::times::Times;

/// The counters from which [`PagerStats`](crate::PagerStats) is made.
#[derive(Default)]
pub(crate) struct Counters {
    /// Fixes of pages that have left the pool by now.
    pub(crate) fixes: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) prefetched: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) evict_writes: AtomicU64,
    pub(crate) inline_writes: AtomicU64,
    pub(crate) checkpoint_writes: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) times: Arc<Times>,
}
