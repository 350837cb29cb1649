//! The data of a running allocator.
//!
//! Invariants
//! 1. All data outside of the region can be computed from the region. A start computes it again (`open.rs`).
//!
//! This module does not know the calls that use it (`allocator.rs`, `publish.rs`).

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use varve_device::Region;

use crate::classes::CLASSES;
use crate::heap::Heap;
use crate::layout::Layout;
use crate::pointer::Owner;
use crate::pool::Pool;
use crate::roots::Roots;

/// The heaps of an owner, by class.
pub(crate) type Heaps = [Mutex<Heap>; CLASSES];

/// An allocator on a region of persistent memory. All calls can be made by several threads at a time.
pub struct Allocator {
    /// A number that no other allocator of the process has. It is not 0.
    pub(crate) number: u64,
    pub(crate) region: Arc<dyn Region>,
    pub(crate) layout: Layout,
    /// A copy in DRAM of the descriptors of all segments. It also has runs that are only reserved.
    pub(crate) directory: Box<[AtomicU64]>,
    pub(crate) owners: Box<[OnceLock<Box<Heaps>>]>,
    pub(crate) pool: Mutex<Pool>,
    /// A lock for each lane. The publication that uses the lane holds it.
    pub(crate) lanes: Box<[Mutex<()>]>,
    /// The number of threads to which the allocator has given a lane.
    pub(crate) threads: AtomicUsize,
    pub(crate) roots: Roots,
}

fn new_heaps() -> Box<Heaps> {
    Box::new(std::array::from_fn(|_| Mutex::default()))
}

/// Returns the number of a new allocator.
pub(crate) fn next_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Relaxed)
}

impl Allocator {
    /// Returns the heaps of an owner.
    pub(crate) fn heaps_of(&self, owner: Owner) -> &Heaps {
        static NONE: OnceLock<Box<Heaps>> = OnceLock::new();
        let heaps = self.owners.get(usize::from(owner.number())).unwrap_or(&NONE);
        heaps.get_or_init(new_heaps)
    }
}
