//! The queue of committed transactions whose undo records still exist, in commit order. The queue also stores
//! the horizon, an LSN. The undo of transactions that committed before it can be purged.
//!
//! Invariants
//! 1. While undo is retained for some time, each transaction in the queue that committed since has the time of
//!    its commit, and the times do not decrease along the queue.
//!
//! This module does not know how undo is removed (`purge.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    /// The time of its commit, in microseconds since 1970, UTC. While undo is not retained, it is the time of
    /// an older commit, or 0.
    pub(crate) time_us: i64,
}

/// The transactions in commit order.
pub(crate) struct Queue {
    of: VecDeque<Finished>,
    /// The time of the newest commit, and of the newest commit whose undo was taken out to be purged. Both are
    /// 0 if there is none with a time.
    newest_us: i64,
    taken_us: i64,
    /// The newest commit whose undo was taken out to be purged. Before the first one, it is the end of the
    /// log when the database was opened.
    taken: Lsn,
    /// The time since which commits have times, or `None` if they have none.
    timed_since_us: Option<i64>,
}

/// Microseconds since 1970, UTC.
fn clock_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Queue {
    fn new(found: Vec<Finished>, opened: Lsn) -> Self {
        Self { of: found.into(), newest_us: 0, taken_us: 0, taken: opened, timed_since_us: None }
    }

    /// Returns the newest of the first `count` commits in the queue. If there is none, returns the newest
    /// commit that was taken out.
    fn newest_of(&self, count: usize) -> Lsn {
        let last = count.checked_sub(1).and_then(|last| self.of.get(last));
        last.map_or(self.taken, |last| last.lsn.max(self.taken))
    }
}

/// The state that purge shares with other modules.
pub(crate) struct PurgeState {
    pub(crate) horizon: AtomicU64,
    /// Snapshots below this LSN have lost undo that they may need.
    pub(crate) forced: AtomicU64,
    queue: Mutex<Queue>,
    /// The time for which the undo of a transaction is kept after its commit, in microseconds.
    retention_us: AtomicI64,
    /// Only one thread purges at a time.
    pub(crate) running: Mutex<Record>,
    pub(crate) purged_count: AtomicU64,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) bell: Arc<Bell>,
}

impl PurgeState {
    /// Returns the state after a start. `found` has the transactions whose undo the start has found, and the
    /// log ended at `opened`.
    pub(crate) fn new(found: Vec<Finished>, opened: Lsn, limit_bytes: Option<u64>) -> Self {
        Self {
            horizon: AtomicU64::new(0),
            forced: AtomicU64::new(0),
            queue: Mutex::new(Queue::new(found, opened)),
            retention_us: AtomicI64::new(0),
            running: Mutex::default(),
            purged_count: AtomicU64::new(0),
            limit_bytes,
            bell: Arc::default(),
        }
    }

    /// Returns the horizon. Transactions that committed at or below this LSN are purged, or may be purged at
    /// any moment.
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

    /// Adds a transaction to the queue. The caller is in the append section of the commit, so the queue is in
    /// commit order.
    pub(crate) fn push(&self, finished: Finished) {
        let mut queue = self.queue.lock();
        let time_us = match queue.timed_since_us {
            // A clock that was set back must not make times decrease.
            Some(_) => clock_us().max(queue.newest_us),
            None => queue.newest_us,
        };
        queue.newest_us = time_us.max(queue.newest_us);
        queue.of.push_back(Finished { time_us, ..finished });
    }

    /// Puts a transaction back whose undo could not be purged.
    pub(crate) fn put_back(&self, finished: Finished) {
        self.queue.lock().of.push_front(finished);
    }

    /// Returns the number of committed transactions that wait for purge.
    pub(crate) fn backlog(&self) -> usize {
        self.queue.lock().of.len()
    }

    /// Wakes the thread if many transactions are waiting.
    pub(crate) fn kick(&self) {
        if self.queue.lock().of.len() % KICK_LEN == KICK_LEN - 1 {
            self.bell.ring();
        }
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Returns the commit LSN of the oldest transaction in the queue.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        Some(self.queue.lock().of.front()?.lsn)
    }

    /// Returns the first transaction in the queue, if it is at or below the horizon.
    pub(crate) fn next_below(&self, horizon: Lsn) -> Option<Finished> {
        let mut queue = self.queue.lock();
        if queue.of.front()?.lsn > horizon {
            return None;
        }
        let finished = queue.of.pop_front()?;
        queue.taken_us = queue.taken_us.max(finished.time_us);
        queue.taken = queue.taken.max(finished.lsn);
        Some(finished)
    }

    /// Returns the LSN of the newest commit up to `upto`, which is durable. A snapshot there sees the same as
    /// a snapshot at `upto`.
    pub(crate) fn newest_commit(&self, upto: Lsn) -> Lsn {
        let queue = self.queue.lock();
        queue.newest_of(queue.of.partition_point(|finished| finished.lsn <= upto))
    }

    /// Keeps the undo of each transaction for `time` after its commit. With zero, nothing is kept for later
    /// readers.
    pub(crate) fn retain_for(&self, time: Duration) {
        let mut queue = self.queue.lock();
        let us = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.retention_us.store(us, Ordering::SeqCst);
        queue.timed_since_us = match us {
            0 => None,
            _ => queue.timed_since_us.or(Some(clock_us())),
        };
    }

    /// Returns the LSN up to which undo has been kept long enough. It is `durable` if no undo is kept for
    /// later readers.
    pub(crate) fn retained_from(&self, durable: Lsn) -> Lsn {
        match self.retention_us.load(Ordering::SeqCst) {
            0 => durable,
            us => {
                let (queue, kept_since_us) = (self.queue.lock(), clock_us().saturating_sub(us));
                let count = queue.of.partition_point(|finished| finished.time_us < kept_since_us);
                queue.newest_of(count).min(durable)
            }
        }
    }

    /// Returns the snapshot of a moment, which is given in microseconds since 1970, UTC. The snapshot sees
    /// all commits up to this moment, and no later ones.
    pub(crate) fn snapshot_at(&self, us: i64) -> Result<Lsn> {
        let queue = self.queue.lock();
        if us > clock_us().max(queue.newest_us) {
            return Err(Error::MomentAhead);
        }
        match queue.timed_since_us {
            Some(since_us) if us >= since_us && us >= queue.taken_us => {
                Ok(queue.newest_of(queue.of.partition_point(|finished| finished.time_us <= us)))
            }
            _ => Err(Error::MomentTooOld { retained: self.retention_us.load(Ordering::SeqCst) != 0 }),
        }
    }
}
