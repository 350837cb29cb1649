//! Pages on their way to flash: a short queue, so that nobody waits for the drive.
//!
//! Invariants
//! 1. Not more pages than the limit are queued or being written; what finds no room is not taken (Do 2012, section 3.3.2, throttle).
//! 2. Every page that was queued is handed out once.
//!
//! Not known here: frames, what is done with the pages.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::level::Image;

/// A page and where it belongs.
pub(super) struct Write {
    pub(super) partition: usize,
    pub(super) frame: u32,
    pub(super) image: Image,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Write>,
    /// Places that were promised, and pages that are being written.
    outside: usize,
}

/// The queue.
pub(super) struct Writes {
    limit: usize,
    queue: Mutex<Queue>,
    bell: Condvar,
}

impl Writes {
    pub(super) fn new(limit: usize) -> Writes {
        Writes { limit, queue: Mutex::default(), bell: Condvar::new() }
    }

    /// Promises a place in the queue; it has to be used, or given back.
    pub(super) fn promise(&self) -> bool {
        let mut queue = self.queue.lock();
        let has_room = queue.waiting.len() + queue.outside < self.limit;
        queue.outside += usize::from(has_room);
        has_room
    }

    /// Gives so many places back: they were promised and not used, or their pages are written.
    pub(super) fn give_back(&self, places: usize) {
        self.queue.lock().outside -= places;
    }

    /// Queues a page, on a place that was promised.
    pub(super) fn push(&self, write: Write) {
        let mut queue = self.queue.lock();
        queue.outside -= 1;
        queue.waiting.push_back(write);
        drop(queue);
        self.bell.notify_one();
    }

    /// Up to `most` pages to write now, oldest first; their places are to be given back afterwards. Waits as long as this if there is
    /// none.
    pub(super) fn take(&self, most: usize, longest: Duration) -> Vec<Write> {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() && !longest.is_zero() {
            self.bell.wait_for(&mut queue, longest);
        }
        let count = queue.waiting.len().min(most);
        queue.outside += count;
        queue.waiting.drain(..count).collect()
    }

    /// Pages queued or being written.
    pub(super) fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.waiting.len() + queue.outside
    }
}
