//! The rule for trimming free extents, which returns their blocks to the device. An extent is trimmed only
//! when neither a transaction nor redo after a crash can touch its pages.
//!
//! ```text
//! freed -> used --checkpoint records the log's end-> noted --redo starts after it-> due --trimmer-> trimmed
//!            ^                                                                        |
//!            +-------------------------------- not now -------------------------------+
//! ```
//!
//! Invariants
//! 1. Every extent in these sets is free. An extent is removed from them before it gets an owner or is cut
//!    off. When it becomes free again, it starts as used.
//! 2. A checkpoint moves an extent to noted, and records the log's end. Every log record that touches the
//!    extent's pages is before that end. So a redo that starts after it applies nothing to the pages.
//! 3. One batch of extents is noted at a time. Extents that become free meanwhile wait for a later
//!    checkpoint.
//! 4. New extents are not in these sets. Extents that were free at the start are in them only if the layout
//!    reports that it still stores something for their pages.
//!
//! This module does not know owners, pages or files.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::base::lsn::Lsn;
use crate::base::space_format::ExtentNo;

/// The free extents that had pages since they were trimmed.
#[derive(Default)]
pub(crate) struct Freed {
    used: BTreeSet<ExtentNo>,
    noted: BTreeSet<ExtentNo>,
    noted_at: Lsn,
    due: BTreeSet<ExtentNo>,
}

impl Freed {
    /// Adds an extent that has become free.
    pub(crate) fn freed(&mut self, extent: ExtentNo) {
        self.used.insert(extent);
    }

    /// Removes an extent that gets an owner.
    pub(crate) fn taken(&mut self, extent: ExtentNo) {
        let _one_of_them =
            self.used.remove(&extent) || self.noted.remove(&extent) || self.due.remove(&extent);
    }

    /// Returns whether the extent may have space to return to the device.
    pub(crate) fn has(&self, extent: ExtentNo) -> bool {
        [&self.used, &self.noted, &self.due].into_iter().any(|extents| extents.contains(&extent))
    }

    /// Removes the extents from `first` on, because the file is cut there. Returns the removed extents whose
    /// space should have been given back.
    pub(crate) fn cut(&mut self, first: ExtentNo) -> BTreeSet<ExtentNo> {
        let mut cut = self.used.split_off(&first);
        cut.append(&mut self.noted.split_off(&first));
        cut.append(&mut self.due.split_off(&first));
        cut
    }

    /// Adds the extents of a cut that was cancelled. They start as used.
    pub(crate) fn restore(&mut self, mut cut: BTreeSet<ExtentNo>) {
        self.used.append(&mut cut);
    }

    /// Notes extents at a checkpoint, before its position is taken. `end` is the end of the log.
    pub(crate) fn note(&mut self, end: impl FnOnce() -> Lsn) {
        if self.noted.is_empty() && !self.used.is_empty() {
            self.noted = std::mem::take(&mut self.used);
            self.noted_at = end();
        }
    }

    /// Returns the LSN after which redo must start, so that the noted extents are due.
    pub(crate) fn awaits(&self) -> Option<Lsn> {
        (!self.noted.is_empty()).then_some(self.noted_at)
    }

    /// Returns whether a checkpoint would help to give back space sooner. `unstable` is the oldest change
    /// that is not stable, if there is one.
    pub(crate) fn would_go_on(&self, unstable: Option<Lsn>) -> bool {
        match self.awaits() {
            Some(noted) => unstable.is_none_or(|unstable| noted <= unstable),
            None => !self.used.is_empty(),
        }
    }

    /// Is called when redo durably starts at `redo_start`. Noted extents may become due.
    pub(crate) fn pass(&mut self, redo_start: Lsn) {
        if self.awaits().is_some_and(|noted| noted <= redo_start) {
            self.due.append(&mut self.noted);
        }
    }

    /// Returns whether an extent is due.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes up to `most` neighbouring extents that are due, from the end of the file.
    pub(crate) fn take_due(&mut self, most: u32) -> Option<Range<ExtentNo>> {
        let end = self.due.last()? + 1;
        let mut first = end;
        while first > end.saturating_sub(most) && self.due.remove(&(first - 1)) {
            first -= 1;
        }
        Some(first..end).filter(|run| !run.is_empty())
    }

    /// Returns extents that could not be trimmed. They start as used again.
    pub(crate) fn not_now(&mut self, run: Range<ExtentNo>) {
        self.used.extend(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(extents: &[ExtentNo]) -> Freed {
        let mut freed = Freed::default();
        extents.iter().for_each(|extent| freed.freed(*extent));
        freed
    }

    /// Takes all due extents: the first and the last extent of each run.
    fn due(freed: &mut Freed) -> Vec<(ExtentNo, ExtentNo)> {
        std::iter::from_fn(|| freed.take_due(2)).map(|run| (run.start, run.end - 1)).collect()
    }

    #[test]
    fn an_extent_is_due_when_redo_starts_behind_its_freeing() {
        let mut freed = freed(&[3, 4, 5, 9]);
        freed.pass(Lsn::new(1000));
        assert_eq!(due(&mut freed), [], "no checkpoint has noted them");
        freed.note(|| Lsn::new(500));
        freed.pass(Lsn::new(499));
        assert_eq!((due(&mut freed), freed.awaits()), (vec![], Some(Lsn::new(500))));
        assert!(freed.would_go_on(None) && !freed.would_go_on(Some(Lsn::new(499))));
        freed.freed(7);
        freed.note(|| Lsn::new(600));
        assert_eq!(freed.awaits(), Some(Lsn::new(500)), "one batch at a time");
        freed.pass(Lsn::new(500));
        assert_eq!(due(&mut freed), [(9, 9), (4, 5), (3, 3)]);
        assert!(freed.would_go_on(Some(Lsn::new(1))), "7 is not noted yet");
        freed.note(|| Lsn::new(600));
        freed.pass(Lsn::new(600));
        assert_eq!((due(&mut freed), freed.awaits()), (vec![(7, 7)], None));
        assert!(!freed.would_go_on(None));
    }

    #[test]
    fn an_extent_that_is_used_again_begins_again() {
        for steps in 0..3 {
            let mut freed = freed(&[3, 4]);
            if steps > 0 {
                freed.note(|| Lsn::new(10));
            }
            if steps > 1 {
                freed.pass(Lsn::new(10));
            }
            freed.taken(3);
            freed.freed(3);
            freed.note(|| Lsn::new(20));
            freed.pass(Lsn::new(10));
            assert_eq!(due(&mut freed).contains(&(4, 4)), steps > 0, "{steps}");
            freed.note(|| Lsn::new(20));
            freed.pass(Lsn::new(20));
            assert!(due(&mut freed).iter().any(|run| run.0 == 3), "{steps}");
        }
    }

    #[test]
    fn what_is_cut_off_is_not_due_and_what_was_not_begins_again() {
        let mut freed = freed(&[3, 8]);
        freed.note(|| Lsn::new(10));
        freed.freed(9);
        let cut = freed.cut(8);
        freed.pass(Lsn::new(10));
        assert_eq!(due(&mut freed), [(3, 3)]);
        freed.restore(cut);
        freed.not_now(3..4);
        freed.note(|| Lsn::new(20));
        freed.pass(Lsn::new(20));
        assert_eq!(due(&mut freed), [(8, 9), (3, 3)]);
    }
}
