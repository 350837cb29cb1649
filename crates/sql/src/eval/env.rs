//! The environment of an expression: clock, session, sequences, random numbers.
//!
//! Invariants
//! 1. `now_us` is constant within a transaction. Outside of a transaction block, its first use reads the
//!    clock.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Lists;
use crate::advisory::AdvisoryCall;
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::system::SystemContext;
use crate::time::{Reading, TimeForms, Zone};

/// Functions of the running transaction that have effects: those of sequences and of advisory locks.
pub trait Sequences {
    /// Runs `nextval`.
    fn next(&self, name: &str) -> Result<i64>;
    /// Runs `currval`.
    fn current(&self, name: &str) -> Result<i64>;
    /// Runs `lastval`.
    fn last(&self) -> Result<i64>;
    /// Runs `setval`.
    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64>;
    /// Calls a function of advisory locks. Returns whether it got the lock.
    fn lock(&self, call: &AdvisoryCall, world: &SystemContext) -> Result<bool> {
        world.lock(call)
    }
}

/// The functions for places where the transaction is reading rows. It cannot take values from sequences
/// there.
pub struct NoSequences;

fn not_here() -> SqlError {
    SqlError::unsupported("a sequence function in this place")
        .with_hint("Call it in the select list of a query.")
}

impl Sequences for NoSequences {
    fn next(&self, _: &str) -> Result<i64> {
        Err(not_here())
    }

    fn current(&self, _: &str) -> Result<i64> {
        Err(not_here())
    }

    fn last(&self) -> Result<i64> {
        Err(not_here())
    }

    fn set(&self, _: &str, _: i64, _: bool) -> Result<i64> {
        Err(not_here())
    }
}

/// Fails with 57014 if the flag is set. The check costs one load, so loops that may be long call it in each
/// iteration.
#[inline]
pub fn unless_cancelled(cancel: &AtomicBool) -> Result<()> {
    if cancel.load(Ordering::Relaxed) {
        let message = "canceling statement due to user request";
        return Err(SqlError::new(SqlState::QUERY_CANCELED, message));
    }
    Ok(())
}

/// Facts about the session, and the current time.
pub struct Env<'a> {
    /// The start of the transaction, after its first use.
    pub now_us: &'a Cell<Option<i64>>,
    /// The session's time zone and styles of dates and intervals.
    pub forms: &'a TimeForms,
    /// The client's encoding.
    pub encoding: Encoding,
    /// `current_user`
    pub user: &'a str,
    /// `session_user`
    pub session_user: &'a str,
    /// `current_database()`
    pub database: &'a str,
    /// `pg_backend_pid()`
    pub process_id: i32,
    /// State of `random()`.
    pub random: &'a Cell<u64>,
    /// The flag that is set when the statement must end with 57014.
    pub cancel: &'a AtomicBool,
    /// The state that catalog functions read. It is set only for statements that read the catalog.
    pub world: Option<&'a SystemContext>,
    /// Sequence functions.
    pub sequences: &'a dyn Sequences,
    /// The lists that were hashed in this execution.
    pub lists: Lists,
}

impl<'a> Env<'a> {
    /// Returns the state that catalog functions read.
    pub fn world(&self) -> Result<&'a SystemContext> {
        self.world.ok_or_else(|| SqlError::internal("a statement that reads the catalog runs without it"))
    }

    /// Fails with 57014 if the statement was cancelled.
    pub fn check_cancel(&self) -> Result<()> {
        unless_cancelled(self.cancel)
    }

    /// Returns the session's time zone.
    pub fn zone(&self) -> &'a Zone {
        &self.forms.zone
    }

    /// Returns the settings for reading texts of times.
    pub fn reading(&self) -> Reading<'a> {
        Reading::new(self.forms, self.now_us)
    }

    /// Returns the start of the transaction, in microseconds since 2000-01-01 UTC.
    pub fn now_us(&self) -> i64 {
        self.reading().now_us()
    }

    /// Returns the next number of xorshift64*.
    pub fn next_random(&self) -> u64 {
        let mut x = self.random.get().max(1);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
