//! The queue of committed transactions whose undo records still exist, in commit order. It also stores the
//! horizon: undo of transactions that committed before this LSN can be purged.
//!
//! This module does not know how undo is removed (`purge.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_pager::{Lsn, PageId};

use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::undo::{Mark, Record};

/// The number of commits after which the purge thread is woken before its period ends.
const KICK_LEN: usize = 256;

/// A committed transaction whose undo still exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) lsn: Lsn,
    pub(crate) header: PageId,
    pub(crate) start: Mark,
    pub(crate) end: Mark,
}

/// The state that purge shares with other modules.
pub(crate) struct PurgeState {
    pub(crate) horizon: AtomicU64,
    /// Snapshots below this LSN have lost undo that they may need.
    pub(crate) forced: AtomicU64,
    pub(crate) queue: Mutex<VecDeque<Finished>>,
    /// Only one thread purges at a time.
    pub(crate) running: Mutex<Record>,
    pub(crate) purged_count: AtomicU64,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) bell: Arc<Bell>,
}

impl PurgeState {
    /// The state after a start. `found` are the transactions whose undo the start has found.
    pub(crate) fn new(found: Vec<Finished>, limit_bytes: Option<u64>) -> Self {
        Self {
            horizon: AtomicU64::new(0),
            forced: AtomicU64::new(0),
            queue: Mutex::new(found.into()),
            running: Mutex::default(),
            purged_count: AtomicU64::new(0),
            limit_bytes,
            bell: Arc::default(),
        }
    }

    /// Transactions that committed at or below this LSN are purged, or may be purged at any moment.
    pub(crate) fn horizon(&self) -> Lsn {
        Lsn::new(self.horizon.load(Ordering::SeqCst))
    }

    /// Returns the error 72000 if the snapshot has lost undo.
    #[inline]
    pub(crate) fn check_snapshot(&self, snapshot: Lsn) -> Result<()> {
        if snapshot.get() < self.forced.load(Ordering::SeqCst) {
            return Err(Error::SnapshotTooOld);
        }
        Ok(())
    }

    /// Called in the append section of a commit, so the queue is in commit order.
    pub(crate) fn push(&self, finished: Finished) {
        self.queue.lock().push_back(finished);
    }

    /// The number of committed transactions that wait for purge.
    pub(crate) fn backlog(&self) -> usize {
        self.queue.lock().len()
    }

    /// Wakes the thread if many transactions are waiting.
    pub(crate) fn kick(&self) {
        if self.queue.lock().len() % KICK_LEN == KICK_LEN - 1 {
            self.bell.ring();
        }
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The first transaction in the queue, if it is at or below the horizon.
    pub(crate) fn next_below(&self, horizon: Lsn) -> Option<Finished> {
        let mut queue = self.queue.lock();
        if queue.front()?.lsn > horizon {
            return None;
        }
        queue.pop_front()
    }
}
