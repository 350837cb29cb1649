//! The history of a workload: its commits, and when each commit began and was acknowledged.
//!
//! Invariants
//! 1. Commit n is the n-th in commit order. State 0 is the state before the first commit.
//! 2. The beginning of a commit is recorded before the first byte of the commit can be durable. The
//!    acknowledgement is recorded after the database has acknowledged the commit.
//! 3. The history stores only the digest of each state. Equal states have equal digests.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::RecordLog;

/// The commits that a state after a crash may have: at least `acknowledged`, at most `begun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The number of acknowledged commits.
    pub acknowledged: usize,
    /// The number of begun commits.
    pub begun: usize,
}

/// The commit order of a workload.
pub struct History {
    log: Arc<RecordLog>,
    digests: Mutex<Vec<u64>>,
}

const ACKNOWLEDGED: u64 = 1;
/// The mark of a recovery that has returned.
pub(crate) const OPENED: u64 = u64::MAX;
/// The mark before which there are no crashes.
pub(crate) const FROM_HERE: u64 = u64::MAX - 1;
/// The mark of a database that was shut down and continues later.
pub(crate) const AT_REST: u64 = u64::MAX - 2;

impl History {
    /// Returns a history with the digest 0 for its first state. Events are recorded in `log`.
    pub fn new(log: Arc<RecordLog>) -> History {
        History { log, digests: Mutex::new(vec![0]) }
    }

    /// Sets the digest of the state before the first commit.
    pub fn resume(&self, digest: u64) {
        if let Some(first) = self.digests.lock().first_mut() {
            *first = digest;
        }
    }

    /// Records that the recovery after a crash has returned.
    pub fn opened(&self) {
        self.log.mark(OPENED);
    }

    /// Records that crashes are tried only from here on, because the state before need not survive a crash.
    pub fn crash_from_here(&self) {
        self.log.mark(FROM_HERE);
    }

    /// Records that the database was shut down, and is not open.
    pub fn rests(&self) {
        self.log.mark(AT_REST);
    }

    /// Records that the next commit begins, and that it leads to a state with this digest. Returns its
    /// number.
    pub fn begin(&self, digest: u64) -> usize {
        let mut digests = self.digests.lock();
        digests.push(digest);
        let number = digests.len() - 1;
        self.log.mark((number as u64) << 1);
        number
    }

    /// Records that all commits up to this one were acknowledged.
    pub fn acknowledge(&self, number: usize) {
        self.log.mark((number as u64) << 1 | ACKNOWLEDGED);
    }

    /// Records that the last begun commit failed, so its state is that of the commit before.
    pub fn retract(&self) {
        let mut digests = self.digests.lock();
        if let Some(before) = digests.len().checked_sub(2) {
            let state = digests[before];
            if let Some(last) = digests.last_mut() {
                *last = state;
            }
        }
    }

    /// Returns the digests of the states, beginning with the empty one.
    pub fn digests(&self) -> Vec<u64> {
        self.digests.lock().clone()
    }

    /// Returns the commits according to a recording's marks up to a cut.
    pub fn span(marks: &[u64]) -> Span {
        let last = |acknowledged: u64| {
            let of_commits = marks.iter().filter(|mark| **mark < AT_REST);
            let of_kind = of_commits.filter(|mark| **mark & ACKNOWLEDGED == acknowledged);
            of_kind.map(|mark| (mark >> 1) as usize).max().unwrap_or(0)
        };
        Span { acknowledged: last(ACKNOWLEDGED), begun: last(0) }
    }
}
