//! The table of discarded pages, with the LSN of each discard. Redo skips the changes of a page that are
//! older than its discard.
//!
//! This module does not know the format of the log record.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::base::ids::{PageId, PageRange};
use crate::base::lsn::Lsn;

/// Ranges of pages with the LSN of their last discard. The ranges don't overlap.
#[derive(Default)]
pub(crate) struct Discards {
    /// For each range, by its first page, the page after its last page, and the LSN.
    ranges: BTreeMap<u64, (u64, Lsn)>,
}

impl Discards {
    /// Adds a discard. It replaces earlier discards of the same pages.
    pub(crate) fn insert(&mut self, range: PageRange, lsn: Lsn) {
        let first = range.first.to_u64();
        let end = first + u64::from(range.count);
        let touched: SmallVec<[(u64, u64, Lsn); 4]> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(_, (old_end, _))| *old_end > first)
            .map(|(old_first, (old_end, old_lsn))| (*old_first, *old_end, *old_lsn))
            .collect();
        for (old_first, old_end, old_lsn) in touched {
            self.ranges.remove(&old_first);
            if old_first < first {
                self.ranges.insert(old_first, (first, old_lsn));
            }
            if old_end > end {
                self.ranges.insert(end, (old_end, old_lsn));
            }
        }
        if first < end {
            self.ranges.insert(first, (end, lsn));
        }
    }

    /// Returns whether the page was discarded after `lsn`.
    pub(crate) fn covers(&self, id: PageId, lsn: Lsn) -> bool {
        let at = id.to_u64();
        let range = self.ranges.range(..=at).next_back();
        range.is_some_and(|(_, (end, discarded))| at < *end && lsn < *discarded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    fn discard(discards: &mut Discards, first: u32, count: u32, lsn: u64) {
        discards.insert(PageRange { first: page(first), count }, Lsn::new(lsn));
    }

    #[test]
    fn a_discard_covers_older_records_only() {
        let mut discards = Discards::default();
        discard(&mut discards, 10, 5, 100);
        assert!(discards.covers(page(10), Lsn::new(99)) && discards.covers(page(14), Lsn::new(1)));
        assert!(
            !discards.covers(page(10), Lsn::new(100)),
            "the group of the note itself may create the page"
        );
        assert!(!discards.covers(page(9), Lsn::new(1)) && !discards.covers(page(15), Lsn::new(1)));
    }

    #[test]
    fn later_discards_win_where_they_overlap() {
        let mut discards = Discards::default();
        discard(&mut discards, 10, 10, 100);
        discard(&mut discards, 30, 10, 110);
        discard(&mut discards, 15, 20, 200);
        let covers = |no, lsn| discards.covers(page(no), Lsn::new(lsn));
        assert!(covers(12, 99) && !covers(12, 150));
        assert!(covers(17, 150) && covers(25, 150) && covers(34, 150));
        assert!(covers(36, 109) && !covers(36, 150) && !covers(40, 1));
    }

    #[test]
    fn a_discard_inside_another_leaves_both_sides() {
        let mut discards = Discards::default();
        discard(&mut discards, 0, 30, 100);
        discard(&mut discards, 10, 5, 200);
        let covers = |no, lsn| discards.covers(page(no), Lsn::new(lsn));
        assert!(covers(9, 50) && !covers(9, 150) && covers(12, 150) && covers(15, 50) && !covers(15, 150));
    }
}
