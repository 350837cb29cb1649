//! The list of free frames: frames that hold no page.
//!
//! Invariants
//! 1. A frame is in the list at most once. The thread that takes a frame from the list owns it.
//! 2. Frames that were never used are taken last, in the order of their numbers. So memory is touched in
//!    order, and only if it is needed.
//!
//! This module does not know how frames become free.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

/// The free list.
pub(crate) struct FreeList {
    frames: usize,
    unused: AtomicUsize,
    returned: Mutex<Vec<u32>>,
    returned_count: AtomicUsize,
}

impl FreeList {
    pub(crate) fn new(frames: usize) -> FreeList {
        FreeList {
            frames,
            unused: AtomicUsize::new(0),
            returned: Mutex::new(Vec::new()),
            returned_count: AtomicUsize::new(0),
        }
    }

    pub(crate) fn pop(&self) -> Option<usize> {
        self.pop_returned().or_else(|| self.pop_unused())
    }

    fn pop_returned(&self) -> Option<usize> {
        if self.returned_count.load(Relaxed) == 0 {
            return None;
        }
        let mut list = self.returned.lock();
        let no = list.pop();
        self.returned_count.store(list.len(), Relaxed);
        no.map(|no| no as usize)
    }

    fn pop_unused(&self) -> Option<usize> {
        let step = |next: usize| (next < self.frames).then_some(next + 1);
        self.unused.fetch_update(Relaxed, Relaxed, step).ok()
    }

    pub(crate) fn push(&self, no: usize) {
        self.push_all(&[no as u32]);
    }

    pub(crate) fn push_all(&self, numbers: &[u32]) {
        let mut list = self.returned.lock();
        list.extend_from_slice(numbers);
        self.returned_count.store(list.len(), Relaxed);
    }

    /// Returns the number of free frames at this moment.
    pub(crate) fn count(&self) -> usize {
        self.returned_count.load(Relaxed) + self.frames - self.used_once()
    }

    /// Returns the number of frames that were ever used. They are the frames with lower numbers.
    pub(crate) fn used_once(&self) -> usize {
        self.unused.load(Relaxed)
    }
}
