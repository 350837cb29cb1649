//! A part of a region of persistent memory, whose reads and stores are counted.
//!
//! Invariants
//! 1. Bytes outside the part cannot be read or written through it.
//! 2. Every read and store is counted for the part's space and purpose. Write-backs and fences are counted
//!    only for the whole region.

use std::ops::Range;
use std::sync::Arc;

use crate::accounting::Accounting;
use crate::error::Result;
use crate::purpose::{Io, Purpose, Space};
use crate::region::{self, LINE_BYTES, Region, RegionFacts, RegionTally, WORD_BYTES};

/// A part of a region that is used as a region. Its tally is the tally of the whole region.
pub struct RegionPart {
    region: Arc<dyn Region>,
    start: u64,
    len_bytes: u64,
    space: Space,
    why: Purpose,
    account: Arc<Accounting>,
}

impl RegionPart {
    /// Returns the part with the bytes `range` of a region. The range begins at a whole line. Reads and
    /// stores are counted for `space` and `why`.
    pub fn new(
        region: Arc<dyn Region>,
        range: Range<u64>,
        space: Space,
        why: Purpose,
        account: Arc<Accounting>,
    ) -> Arc<RegionPart> {
        assert!(range.start.is_multiple_of(LINE_BYTES), "a part at {} shares a line", range.start);
        assert!(range.start <= range.end && range.end <= region.len_bytes(), "a part beyond the region");
        let len_bytes = range.end - range.start;
        Arc::new(RegionPart { region, start: range.start, len_bytes, space, why, account })
    }

    /// Returns the offset in the region of a range of the part.
    fn at(&self, offset: u64, len_bytes: u64) -> u64 {
        region::assert_within(self.len_bytes, offset, len_bytes);
        self.start + offset
    }

    fn io(&self, offset: u64, bytes: usize) -> Io {
        Io { space: self.space, why: self.why, file: 0, offset, bytes: bytes as u64 }
    }
}

impl Region for RegionPart {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        let started = self.account.start();
        self.region.read(self.at(offset, buf.len() as u64), buf);
        self.account.count_read(self.io(offset, buf.len()), started);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let started = self.account.start();
        self.region.store(self.at(offset, bytes.len() as u64), bytes);
        self.account.count_write(self.io(offset, bytes.len()), false, started);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.region.write_back(self.at(offset, len_bytes), len_bytes);
    }

    fn fence(&self) {
        self.region.fence();
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        if offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes) {
            self.region.prefetch(self.start + offset, len_bytes);
        }
    }

    fn facts(&self) -> RegionFacts {
        self.region.facts()
    }

    fn tally(&self) -> RegionTally {
        self.region.tally()
    }

    fn settle(&self) -> Result<()> {
        self.region.settle()
    }

    fn store_back(&self, offset: u64, bytes: &[u8]) {
        let started = self.account.start();
        self.region.store_back(self.at(offset, bytes.len() as u64), bytes);
        self.account.count_write(self.io(offset, bytes.len()), false, started);
    }

    fn store_word(&self, offset: u64, value: u64) {
        let started = self.account.start();
        self.region.store_word(self.at(offset, WORD_BYTES as u64), value);
        self.account.count_write(self.io(offset, WORD_BYTES), false, started);
    }

    fn load_word(&self, offset: u64) -> u64 {
        let started = self.account.start();
        let value = self.region.load_word(self.at(offset, WORD_BYTES as u64));
        self.account.count_read(self.io(offset, WORD_BYTES), started);
        value
    }
}
