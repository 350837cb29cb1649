//! Transactions that read the database as it was at an earlier moment (Lee 2008, section 5: time travel from
//! the rollback segments).
//!
//! Invariants
//! 1. Such a transaction sees each transaction that had committed by its moment, and nothing else. Its
//!    snapshot holds purge back, like any other snapshot.
//! 2. It changes nothing.
//!
//! This module does not know how a moment is written, or which undo purge keeps (`purge_queue.rs`).

use std::time::Duration;

use varve_pager::Lsn;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::transaction::Transaction;

/// A moment of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastMoment {
    /// Microseconds since 1970, UTC.
    TimeUs(i64),
    /// The moment at which everything up to this LSN had been logged.
    Lsn(u64),
}

impl Database {
    /// Keeps the undo of each transaction for `time` after its commit, so that later transactions can read
    /// the moments since then. With zero, no undo is kept for them. A database opens with zero.
    ///
    /// Each retained transaction also needs memory, for an entry in the queue of purge and for its state.
    pub fn set_undo_retention(&self, time: Duration) {
        self.core.purge.retain_for(time);
    }

    /// Returns the LSN up to which every commit is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.core.pager.durable_lsn()
    }
}

impl Transaction {
    /// Makes all statements of this transaction read a moment of the past. The transaction must not have run
    /// a statement yet.
    ///
    /// # Errors
    ///
    /// The error is `MomentAhead` (22023) for a moment in the future. It is `MomentTooOld` (72000) if the row
    /// versions of that moment are not kept any more, or if the database was opened later. After the first
    /// statement it is `HasBegun` (25001).
    pub fn read_as_of(&mut self, moment: PastMoment) -> Result<()> {
        if self.has_begun() || self.cx.record_count > 0 {
            return Err(Error::HasBegun);
        }
        let pager = &self.cx.core.pager;
        let durable = pager.durable_lsn();
        let snapshot = match moment {
            PastMoment::Lsn(lsn) if Lsn::new(lsn) > durable => return Err(Error::MomentAhead),
            PastMoment::Lsn(lsn) => Lsn::new(lsn),
            PastMoment::TimeUs(us) => self.cx.core.purge.snapshot_at(us)?,
        };
        // A commit gets its time shortly before its record is in the log.
        while pager.log().end() < snapshot && pager.is_sound() {
            std::thread::yield_now();
        }
        // A commit that is not durable yet may be lost, so nobody sees it before.
        pager.flush_log(snapshot.min(pager.log().end()))?;
        self.cx.take_past_snapshot(snapshot)
    }
}
