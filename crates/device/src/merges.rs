//! A model of the time that a flash drive of 2008 needs to merge blocks. Such a drive maps whole blocks of
//! its flash, not single pages. A few blocks are open: the drive is writing a new copy of them to another
//! place, page after page.
//!
//! A write that begins at or after the last written page of an open block takes no extra time. Any other
//! write opens its block. If too many blocks are open then, the drive closes the one that was written least
//! recently. The drive also closes a block when one of its pages is written a second time. To close a block,
//! the drive copies the pages that the host did not write, and erases the old block. This is a merge (Lee
//! 2008, sections 2.2 and 5.1).
//!
//! Invariants
//! 1. At most [`Merges::open_blocks`] blocks are open between two writes.
//! 2. A block that the host wrote completely is closed without a merge. The sustained write rate of the data
//!    sheet includes its erasure.
//! 3. The model uses no clock and no random numbers: the same writes take the same times.
//!
//! This module does not know which pages were ever written. A drive of 2008 gets no trims, so each page of a
//! used drive is valid. It also does not count the bytes that are written to flash (`ftl.rs` does).

use serde::Deserialize;

/// How a drive merges blocks: the section `[merges]` of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merges {
    /// The number of bytes of a block, the unit that the drive maps.
    pub block_bytes: u64,
    /// The size of a flash page, in bytes. The last page of an open block may be written again, because the
    /// drive has it in memory.
    pub page_bytes: u64,
    /// The number of blocks that can be open at once.
    pub open_blocks: usize,
    /// The time to erase a block, in microseconds.
    pub erase_us: f64,
    /// The rate of copies inside the drive, in bytes a second.
    pub copy_bytes_per_s: f64,
}

impl Merges {
    /// Returns what is wrong with the values, or `None` if they are possible.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let is_sound = self.page_bytes >= 512
            && self.block_bytes.is_multiple_of(self.page_bytes)
            && self.block_bytes > self.page_bytes
            && (1..=OPEN_BLOCKS_MAX).contains(&self.open_blocks)
            && (0.0..=TIME_US_MAX).contains(&self.erase_us)
            && (1e3..=1e12).contains(&self.copy_bytes_per_s);
        (!is_sound).then_some(
            "merges: block_bytes is a multiple of page_bytes (at least 512), open_blocks 1 to 1024, erase_us 0 to 1e9, \
             copy_bytes_per_s 1e3 to 1e12",
        )
    }

    /// Returns the time of a merge that copies `bytes`, in nanoseconds.
    fn time_ns(&self, bytes: u64) -> u64 {
        (self.erase_us * 1e3 + bytes as f64 * 1e9 / self.copy_bytes_per_s) as u64
    }
}

/// The largest number of open blocks in a profile. A larger number must be a mistake, and would be slow,
/// because open blocks are searched one by one.
const OPEN_BLOCKS_MAX: usize = 1024;
/// The longest time to erase a block in a profile. A longer time must be a mistake.
const TIME_US_MAX: f64 = 1e9;

/// The merges of a drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// The number of merges.
    pub merges: u64,
    /// The number of bytes that the merges copied.
    pub copied_bytes: u64,
    /// The time of all merges in nanoseconds, without dilation.
    pub took_ns: u64,
}

/// A block of which the drive is writing a new copy.
struct OpenBlock {
    file: u32,
    number: u64,
    /// The end of the highest write into the block.
    end: u64,
    /// The number of bytes that the host wrote.
    host_bytes: u64,
}

/// The open blocks of a drive.
pub(crate) struct OpenBlocks {
    of: Merges,
    /// The open blocks. The block that was written least recently comes first.
    open: Vec<OpenBlock>,
    counts: MergeCounts,
}

impl OpenBlocks {
    /// Returns the open blocks of a drive without any.
    pub(crate) fn new(of: Merges) -> OpenBlocks {
        let open = Vec::with_capacity(of.open_blocks + 1);
        OpenBlocks { of, open, counts: MergeCounts::default() }
    }

    pub(crate) fn counts(&self) -> MergeCounts {
        self.counts
    }

    /// The host writes a range of a file. Returns the time of the merges, in nanoseconds.
    pub(crate) fn write(&mut self, file: u32, offset: u64, bytes: u64) -> u64 {
        let (mut at, end, mut merges_ns) = (offset, offset + bytes, 0);
        while at < end {
            let number = at / self.of.block_bytes;
            let until = end.min((number + 1) * self.of.block_bytes);
            merges_ns += self.write_in(OpenBlock { file, number, end: until, host_bytes: until - at }, at);
            at = until;
        }
        merges_ns
    }

    /// Handles a write inside one block, which begins at `at`. `part` is the state of the block if this were
    /// its only write. Returns the time of the merges.
    fn write_in(&mut self, part: OpenBlock, at: u64) -> u64 {
        let is_same = |block: &OpenBlock| (block.file, block.number) == (part.file, part.number);
        let known = self.open.iter().position(is_same).map(|index| self.open.remove(index));
        let (block, mut merges_ns) = match known {
            Some(block) if at >= self.last_page(block.end) => (self.continued(block, &part, at), 0),
            Some(rewritten) => (part, self.close(&rewritten)),
            None => (part, 0),
        };
        // A completely written block stays open, because its last page may be written again.
        self.open.push(block);
        if self.open.len() > self.of.open_blocks {
            let oldest = self.open.remove(0);
            merges_ns += self.close(&oldest);
        }
        merges_ns
    }

    /// Returns the beginning of the page that has the last byte before `end`.
    fn last_page(&self, end: u64) -> u64 {
        (end - 1) / self.of.page_bytes * self.of.page_bytes
    }

    /// Returns the state of a block after one more write that continues it.
    fn continued(&self, block: OpenBlock, part: &OpenBlock, at: u64) -> OpenBlock {
        let end = block.end.max(part.end);
        let new_bytes = end - at.max(block.end);
        OpenBlock { end, host_bytes: block.host_bytes + new_bytes, ..block }
    }

    /// Closes a block; returns the time of the merge.
    fn close(&mut self, block: &OpenBlock) -> u64 {
        let copied_bytes = self.of.block_bytes.saturating_sub(block.host_bytes);
        if copied_bytes == 0 {
            return 0;
        }
        let took_ns = self.of.time_ns(copied_bytes);
        self.counts.merges += 1;
        self.counts.copied_bytes += copied_bytes;
        self.counts.took_ns += took_ns;
        took_ns
    }
}

#[cfg(test)]
mod tests;
