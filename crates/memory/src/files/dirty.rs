//! The cache lines of a file that were stored, but not written back yet.
//!
//! Invariants
//! 1. Every line that was stored since the last `fsync` is in one of the ranges.
//!
//! This module does not know which block a line is in.

use std::ops::Range;

use varve_device::LINE_BYTES;

/// Ranges are merged when there are this many. After a merge, they are merged again when their number has
/// doubled.
const RANGES_MIN: usize = 256;

/// Ranges of offsets in the region.
pub(super) struct DirtyLines {
    ranges: Vec<Range<u64>>,
    merged_at: usize,
}

impl DirtyLines {
    pub(super) fn new() -> DirtyLines {
        DirtyLines { ranges: Vec::new(), merged_at: RANGES_MIN }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds the lines of bytes that were stored.
    pub(super) fn add(&mut self, offset: u64, len_bytes: u64) {
        let end = (offset + len_bytes).next_multiple_of(LINE_BYTES);
        let start = offset - offset % LINE_BYTES;
        match self.ranges.last_mut() {
            // The usual case: bytes are appended after the bytes of the previous call.
            Some(last) if (last.start..=last.end).contains(&start) => last.end = last.end.max(end),
            _ => self.ranges.push(start..end),
        }
        if self.ranges.len() >= self.merged_at {
            self.merge();
            self.merged_at = RANGES_MIN.max(2 * self.ranges.len());
        }
    }

    fn merge(&mut self) {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, before| {
            let overlaps = next.start <= before.end;
            if overlaps {
                before.end = before.end.max(next.end);
            }
            overlaps
        });
    }

    /// Takes all ranges out. They are sorted, and no line is in two of them.
    pub(super) fn take(&mut self) -> Vec<Range<u64>> {
        self.merge();
        std::mem::take(&mut self.ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stored: &[(u64, u64)], expected: &[(u64, u64)]) {
        let mut lines = DirtyLines::new();
        stored.iter().for_each(|(start, end)| lines.add(*start, end - start));
        let found: Vec<(u64, u64)> = lines.take().iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(found, expected);
        assert!(lines.is_empty());
    }

    #[test]
    fn each_line_is_there_once() {
        check(&[(10, 20), (20, 30), (60, 70)], &[(0, 128)]);
        check(&[(640, 641), (0, 64), (64, 65), (641, 700)], &[(0, 128), (640, 704)]);
        check(&[(0, 640), (64, 65), (0, 1)], &[(0, 640)]);
    }

    #[test]
    fn many_stores_to_few_lines_take_little_room() {
        let mut lines = DirtyLines::new();
        (0..10_000).for_each(|number| lines.add(number * 7 % 13 * 1024, 64));
        assert!(lines.ranges.len() <= RANGES_MIN, "{} ranges", lines.ranges.len());
        assert_eq!(lines.take().len(), 13);
    }
}
