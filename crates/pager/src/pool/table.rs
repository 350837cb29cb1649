//! The hash table of the pool: from page id to frame number. Frames of one bucket form a chain. Each group of
//! buckets, called a stripe, has one latch.
//!
//! Invariants
//! 1. A chain changes only under the latch of its stripe.
//! 2. [`Table::find`] takes no latch. If a chain changes meanwhile, it may miss a page, or return a frame
//!    that has another page by now. So the caller latches the frame and checks the page. If the check fails,
//!    the caller calls [`Table::find_latched`].
//! 3. While a thread holds a stripe latch, it waits for nothing.
//!
//! This module does not know frame latches or states.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use parking_lot::{Mutex, MutexGuard};

use super::arena;
use super::frame::Frame;
use crate::base::ids::PageId;

const STRIPES_MAX: usize = 256;
/// The longest walk of a look-up without a latch. A longer walk has got into other chains.
const WALK_MAX: usize = 32;

#[repr(align(64))]
struct Stripe(Mutex<()>);

/// The hash table.
pub(crate) struct Table {
    heads: Box<[AtomicU32]>,
    stripes: Box<[Stripe]>,
    shift: u32,
}

impl Table {
    pub(crate) fn new(frames: usize) -> Table {
        let buckets = frames.next_power_of_two().max(2);
        let stripes = buckets.min(STRIPES_MAX);
        Table {
            heads: arena::in_huge_pages(buckets, || AtomicU32::new(0)),
            stripes: (0..stripes).map(|_| Stripe(Mutex::new(()))).collect(),
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    #[inline]
    fn bucket(&self, id: PageId) -> usize {
        (id.to_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    fn stripe(&self, bucket: usize) -> MutexGuard<'_, ()> {
        self.stripes[bucket & (self.stripes.len() - 1)].0.lock()
    }

    /// Returns the frame that probably has the page. `first` is called with the first frame of the chain
    /// before the frame is read.
    #[inline]
    pub(crate) fn find(&self, frames: &[Frame], id: PageId, first: impl FnOnce(usize)) -> Option<usize> {
        if let Some(no) = (self.heads[self.bucket(id)].load(Relaxed) as usize).checked_sub(1) {
            first(no);
        }
        self.walk(frames, id, WALK_MAX)
    }

    /// Returns the frame that has the page at this moment.
    pub(crate) fn find_latched(&self, frames: &[Frame], id: PageId) -> Option<usize> {
        let _stripe = self.stripe(self.bucket(id));
        self.walk(frames, id, frames.len())
    }

    #[inline]
    fn walk(&self, frames: &[Frame], id: PageId, steps: usize) -> Option<usize> {
        let mut link = self.heads[self.bucket(id)].load(Acquire);
        for _ in 0..steps {
            let no = (link as usize).checked_sub(1)?;
            let frame = frames.get(no)?;
            if frame.holds(id) {
                return Some(no);
            }
            link = frame.next.load(Acquire);
        }
        None
    }

    /// Enters frame `no`, which already has the id of the page. Returns false if another frame has the page.
    pub(crate) fn insert(&self, frames: &[Frame], id: PageId, no: usize) -> bool {
        let bucket = self.bucket(id);
        let _stripe = self.stripe(bucket);
        if self.walk(frames, id, frames.len()).is_some() {
            return false;
        }
        frames[no].next.store(self.heads[bucket].load(Relaxed), Release);
        self.heads[bucket].store(no as u32 + 1, Release);
        true
    }

    /// Removes frame `no`, which was entered for page `id`.
    pub(crate) fn remove(&self, frames: &[Frame], id: PageId, no: usize) {
        let bucket = self.bucket(id);
        let _stripe = self.stripe(bucket);
        let target = no as u32 + 1;
        let mut link = &self.heads[bucket];
        loop {
            let next = link.load(Relaxed);
            assert!(next != 0, "page {id} is not in the table");
            if next == target {
                link.store(frames[no].next.load(Relaxed), Release);
                return;
            }
            link = &frames[next as usize - 1].next;
        }
    }
}
