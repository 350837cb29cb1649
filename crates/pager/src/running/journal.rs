//! The newest checkpoints, for the server's log and for statistics.
//!
//! Invariants
//! 1. At most `REPORTS_MAX` reports are kept. A reader that is slower loses the oldest ones.
//!
//! This module does not know how a checkpoint is taken.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;

/// The most reports that are kept.
const REPORTS_MAX: usize = 256;

/// The reason of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointCause {
    /// It was time for the next one.
    Time,
    /// The log was full.
    Log,
    /// A statement or a program asked for it.
    Request,
    /// The end of a start.
    Start,
    /// The end of the server.
    Shutdown {
        /// Whether the next start needs no recovery.
        is_clean: bool,
    },
}

impl CheckpointCause {
    /// Returns PostgreSQL's word.
    pub fn name(self) -> &'static str {
        match self {
            CheckpointCause::Time => "time",
            CheckpointCause::Log => "wal",
            CheckpointCause::Request => "request",
            CheckpointCause::Start => "end-of-recovery",
            CheckpointCause::Shutdown { .. } => "shutdown",
        }
    }
}

/// A checkpoint that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Its reason.
    pub cause: CheckpointCause,
    /// The pages that were written for checkpoints since the previous one.
    pub pages: u64,
    /// The bytes of the log since the previous one.
    pub log_bytes: u64,
    /// The bytes of the log that the next start would read.
    pub distance_bytes: u64,
    /// The time that it took, without the pages that were written before it.
    pub took: Duration,
}

/// The newest reports, and counters of all.
#[derive(Default)]
pub(crate) struct CheckpointJournal {
    reports: Mutex<VecDeque<CheckpointReport>>,
    /// The pages of all checkpoints until the last one.
    pages: AtomicU64,
    requested: AtomicU64,
    micros: AtomicU64,
}

impl CheckpointJournal {
    /// Adds a checkpoint. `pages` is the number of pages that were written for all checkpoints so far.
    pub(crate) fn add(&self, mut report: CheckpointReport, pages: u64) {
        report.pages = pages.saturating_sub(self.pages.swap(pages, Relaxed));
        if !matches!(report.cause, CheckpointCause::Time) {
            self.requested.fetch_add(1, Relaxed);
        }
        self.micros.fetch_add(report.took.as_micros() as u64, Relaxed);
        let mut reports = self.reports.lock();
        if reports.len() == REPORTS_MAX {
            reports.pop_front();
        }
        reports.push_back(report);
    }

    /// Takes the reports since the last call, oldest first.
    pub(crate) fn take(&self) -> Vec<CheckpointReport> {
        self.reports.lock().drain(..).collect()
    }

    /// Returns the number of checkpoints with another cause than time, and the microseconds of all.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.requested.load(Relaxed), self.micros.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_reports_leave_and_pages_are_those_since_the_last_one() {
        let journal = CheckpointJournal::default();
        let report = CheckpointReport {
            cause: CheckpointCause::Time,
            pages: 0,
            log_bytes: 1,
            distance_bytes: 2,
            took: Duration::from_micros(3),
        };
        (1..=REPORTS_MAX as u64 + 1).for_each(|n| journal.add(report, 10 * n));
        journal.add(CheckpointReport { cause: CheckpointCause::Log, ..report }, 10 * REPORTS_MAX as u64 + 15);
        let taken = journal.take();
        assert_eq!(taken.len(), REPORTS_MAX);
        assert_eq!((taken[0].pages, taken[REPORTS_MAX - 1].pages), (10, 5));
        assert_eq!(journal.totals(), (1, 3 * (REPORTS_MAX as u64 + 2)));
        assert!(journal.take().is_empty());
    }
}
