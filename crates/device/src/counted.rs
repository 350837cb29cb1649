//! A region of persistent memory that counts its loads, stores, cache-line write-backs and fences.
//!
//! Invariants
//! 1. Counts are exact. A call counts once, even if it touches several cache lines.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::region::{self, RegionTally};

/// The counters behind a [`RegionTally`].
#[derive(Default)]
pub(crate) struct Counts {
    loads: Traffic,
    stores: Traffic,
    written_back_lines: AtomicU64,
    fences: AtomicU64,
}

/// Calls in one direction.
#[derive(Default)]
struct Traffic {
    calls: AtomicU64,
    lines: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    fn add(&self, offset: u64, len_bytes: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.lines.fetch_add(line_count(offset, len_bytes as u64), Relaxed);
        self.bytes.fetch_add(len_bytes as u64, Relaxed);
    }
}

/// Lines that a range touches; none if it is empty.
fn line_count(offset: u64, len_bytes: u64) -> u64 {
    let lines = region::lines(offset, len_bytes);
    if len_bytes == 0 { 0 } else { lines.end - lines.start }
}

impl Counts {
    pub(crate) fn load(&self, offset: u64, len_bytes: usize) {
        self.loads.add(offset, len_bytes);
    }

    pub(crate) fn store(&self, offset: u64, len_bytes: usize) {
        self.stores.add(offset, len_bytes);
    }

    pub(crate) fn write_back(&self, offset: u64, len_bytes: u64) {
        self.written_back_lines.fetch_add(line_count(offset, len_bytes), Relaxed);
    }

    pub(crate) fn fence(&self) {
        self.fences.fetch_add(1, Relaxed);
    }

    pub(crate) fn tally(&self) -> RegionTally {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        RegionTally {
            loads_count: read(&self.loads.calls),
            loaded_lines: read(&self.loads.lines),
            loaded_bytes: read(&self.loads.bytes),
            stores_count: read(&self.stores.calls),
            stored_lines: read(&self.stores.lines),
            stored_bytes: read(&self.stores.bytes),
            written_back_lines: read(&self.written_back_lines),
            fences_count: read(&self.fences),
        }
    }
}
