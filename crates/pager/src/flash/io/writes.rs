//! The queue of pages that wait for their write to flash. A thread that evicts a page puts the page into the
//! queue, and does not wait for the drive.
//!
//! Invariants
//! 1. The number of pages in the queue, plus those that are being written, is at most the limit. If the queue
//!    is full, it does not take the page.
//! 2. `take` returns every queued page once.
//! 3. The data files lack the version of a dirty page. So a dirty page can be read from the queue from its
//!    `push` until the caller reports the write with `done`.
//!
//! This module does not know slots, or what is done with the pages.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::base::image::Image;

/// A page that waits for its write, and its slot.
#[derive(Clone)]
pub(in crate::flash) struct Write {
    pub(in crate::flash) partition: usize,
    pub(in crate::flash) slot: u32,
    pub(in crate::flash) image: Image,
    /// Whether the data files lack this version of the page.
    pub(in crate::flash) is_dirty: bool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Write>,
    /// Dirty pages, by partition and slot: the data files lack their versions.
    only_here: FxHashMap<(usize, u32), Image>,
    /// The number of promised places, plus the number of pages that are being written.
    outside: usize,
}

impl Queue {
    fn has_room(&self, pages: usize, limit: usize) -> bool {
        self.waiting.len() + self.outside + pages.min(limit) <= limit
    }
}

/// The queue.
pub(in crate::flash) struct Writes {
    limit: usize,
    queue: Mutex<Queue>,
    bell: Condvar,
    /// Signalled when places in the queue become free.
    room: Condvar,
}

impl Writes {
    pub(in crate::flash) fn new(limit: usize) -> Writes {
        Writes { limit, queue: Mutex::default(), bell: Condvar::new(), room: Condvar::new() }
    }

    /// Reserves a place in the queue, if there is one. The caller must use it, or release it with
    /// `give_back`.
    pub(in crate::flash) fn promise(&self) -> bool {
        let mut queue = self.queue.lock();
        let has_room = queue.waiting.len() + queue.outside < self.limit;
        queue.outside += usize::from(has_room);
        has_room
    }

    /// Releases places: they were reserved and not used, or their pages are written.
    pub(in crate::flash) fn give_back(&self, places: usize) {
        self.queue.lock().outside -= places;
        self.room.notify_all();
    }

    /// Returns whether the queue has space for `pages` pages. If `pages` exceeds the limit of the queue,
    /// returns whether the queue is empty.
    pub(in crate::flash) fn has_room(&self, pages: usize) -> bool {
        self.queue.lock().has_room(pages, self.limit)
    }

    /// Waits until the queue has space for `pages` pages, or for as many as it can hold, but at most
    /// `longest`. Another thread may use the space first.
    pub(in crate::flash) fn wait_for_room(&self, pages: usize, longest: Duration) {
        let mut queue = self.queue.lock();
        let is_full = |queue: &mut Queue| !queue.has_room(pages, self.limit);
        let _has_room = self.room.wait_while_for(&mut queue, is_full, longest);
    }

    /// Queues a page. It takes the place that was promised for it, or the place that it had while it was
    /// being written.
    pub(in crate::flash) fn push(&self, write: Write) {
        let mut queue = self.queue.lock();
        queue.outside -= 1;
        if write.is_dirty {
            queue.only_here.insert((write.partition, write.slot), write.image.clone());
        }
        queue.waiting.push_back(write);
        drop(queue);
        self.bell.notify_one();
    }

    /// Returns up to `most` pages to write now, oldest first. The caller releases their places afterwards. If
    /// there are no pages, this waits at most `longest`.
    pub(in crate::flash) fn take(&self, most: usize, longest: Duration) -> Vec<Write> {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() && !longest.is_zero() {
            self.bell.wait_for(&mut queue, longest);
        }
        let count = queue.waiting.len().min(most);
        queue.outside += count;
        queue.waiting.drain(..count).collect()
    }

    /// Returns the page that is being written to this slot, if the data files lack its version.
    pub(in crate::flash) fn only_here(&self, partition: usize, slot: u32) -> Option<Image> {
        self.queue.lock().only_here.get(&(partition, slot)).cloned()
    }

    /// Ends a write: the page is in its slot, or the slot no longer belongs to the page.
    pub(in crate::flash) fn done(&self, write: &Write) {
        if write.is_dirty {
            self.queue.lock().only_here.remove(&(write.partition, write.slot));
        }
    }

    /// Returns the number of pages that are queued or being written, plus promised places.
    pub(in crate::flash) fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.waiting.len() + queue.outside
    }
}
