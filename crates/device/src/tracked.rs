//! A region of persistent memory for tests. The region records which stores would not survive a crash. So a
//! test can check that a step has made all its stores durable.
//!
//! Invariants
//! 1. A store is durable if a thread has written its cache line back after the store, and has executed a
//!    fence since.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use crate::error::Result;
use crate::region::{self, Region, RegionFacts, RegionTally};

/// A region, with a list of the lines that are stored but not durable yet.
pub struct Tracked {
    inner: Arc<dyn Region>,
    lines: Mutex<HashMap<u64, Line>>,
}

/// A line that is not durable yet.
#[derive(Default)]
struct Line {
    /// The number of stores so far.
    stored: u64,
    /// For each thread that has written the line back and has executed no fence since: the number of stores
    /// at the time of the write-back.
    written_back: HashMap<ThreadId, u64>,
}

impl Tracked {
    /// Wraps a region and tracks the stores through the wrapper.
    pub fn wrap(inner: Arc<dyn Region>) -> Arc<Tracked> {
        Arc::new(Tracked { inner, lines: Mutex::default() })
    }

    /// Returns the number of lines whose stores a power failure could lose now.
    pub fn unpersisted(&self) -> usize {
        self.lines.lock().len()
    }

    fn stored(&self, offset: u64, len_bytes: usize) {
        if len_bytes > 0 {
            let mut lines = self.lines.lock();
            region::lines(offset, len_bytes as u64).for_each(|no| lines.entry(no).or_default().stored += 1);
        }
    }
}

impl Region for Tracked {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.inner.read(offset, buf);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        self.stored(offset, bytes.len());
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.inner.write_back(offset, len_bytes);
        let mut lines = self.lines.lock();
        for no in region::lines(offset, len_bytes) {
            if let Some(line) = lines.get_mut(&no) {
                line.written_back.insert(thread::current().id(), line.stored);
            }
        }
    }

    fn fence(&self) {
        self.inner.fence();
        let this = thread::current().id();
        self.lines.lock().retain(|_, line| line.written_back.remove(&this) != Some(line.stored));
    }

    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.inner.store_word(offset, value);
        self.stored(offset, region::WORD_BYTES);
    }

    fn load_word(&self, offset: u64) -> u64 {
        self.inner.load_word(offset)
    }
}
