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
    /// nextval
    fn next(&self, name: &str) -> Result<i64>;
    /// currval
    fn current(&self, name: &str) -> Result<i64>;
    /// lastval
    fn last(&self) -> Result<i64>;
    /// setval
    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64>;
    /// A function of advisory locks; whether it had what it asked for.
    fn lock(&self, call: &AdvisoryCall, world: &SystemContext) -> Result<bool> {
        world.lock(call)
    }
}

/// For places where rows are being read and the transaction is busy.
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

/// 57014 once the flag is set. It costs one load, so loops over what may be long call it for each step.
#[inline]
pub fn unless_cancelled(cancel: &AtomicBool) -> Result<()> {
    if cancel.load(Ordering::Relaxed) {
        let message = "canceling statement due to user request";
        return Err(SqlError::new(SqlState::QUERY_CANCELED, message));
    }
    Ok(())
}

/// Facts about the session and the moment.
pub struct Env<'a> {
    /// Start of the transaction, once it has been asked for.
    pub now_us: &'a Cell<Option<i64>>,
    /// The session's time zone and styles of dates and intervals.
    pub forms: &'a TimeForms,
    /// The encoding that the client speaks.
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
    /// Set when the statement is to end with 57014.
    pub cancel: &'a AtomicBool,
    /// What catalog functions ask; only for statements that were bound with one.
    pub world: Option<&'a SystemContext>,
    /// Sequence functions.
    pub sequences: &'a dyn Sequences,
    /// Lists that were hashed for this execution.
    pub lists: Lists,
}

impl<'a> Env<'a> {
    /// What catalog functions ask.
    pub fn world(&self) -> Result<&'a SystemContext> {
        self.world.ok_or_else(|| SqlError::internal("a statement that reads the catalog runs without it"))
    }

    /// 57014 if the statement was cancelled.
    pub fn check_cancel(&self) -> Result<()> {
        unless_cancelled(self.cancel)
    }

    /// The session's time zone.
    pub fn zone(&self) -> &'a Zone {
        &self.forms.zone
    }

    /// How texts of times are read.
    pub fn reading(&self) -> Reading<'a> {
        Reading::new(self.forms, self.now_us)
    }

    /// Start of the transaction, microseconds since 2000-01-01 UTC.
    pub fn now_us(&self) -> i64 {
        self.reading().now_us()
    }

    /// The next number of xorshift64*.
    pub fn next_random(&self) -> u64 {
        let mut x = self.random.get().max(1);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
