//! Accounts memory that DataFusion does not count: values that an aggregate collects within one batch, and
//! the column that an expression computes for one batch.
//!
//! DataFusion asks an aggregate for its size only after each batch. A batch has up to 8192 rows, so large
//! values could use far more memory than the limit before the first question.
//!
//! After DataFusion has asked, it counts these values itself. Then the account gives its memory back
//! (`Account::pass_on`).
//!
//! Invariants
//! 1. `within` sets the memory pool of the query for this thread. Each thread of a query does so. When the
//!    guard is dropped, the previous pool of the thread is restored.
//! 2. Memory is reserved in steps of `STEP_BYTES`. An account below this size reserves nothing.
//! 3. A dropped account returns its memory.
//!
//! This module does not know which values are counted, or which errors a client sees.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use varve_engine::Datum;
use varve_sql::Result;
use varve_sql::general::{SqlError, SqlState};

use crate::error::{COLLECTING, out_of_memory};

/// The longest value that a query builds, in bytes (PostgreSQL's `MaxAllocSize`).
pub const VALUE_BYTES_MAX: usize = (1 << 30) - 1;

const STEP_BYTES: usize = 1 << 20;

thread_local! {
    static POOL: RefCell<Option<Arc<dyn MemoryPool>>> = const { RefCell::new(None) };
}

/// While this guard lives, the memory pool of a query is set for this thread.
pub struct Within(Option<Arc<dyn MemoryPool>>);

/// Sets the memory pool for this thread. Accounts on this thread use the pool until the returned guard is
/// dropped.
pub fn within(pool: Arc<dyn MemoryPool>) -> Within {
    Within(POOL.replace(Some(pool)))
}

impl Drop for Within {
    fn drop(&mut self) {
        POOL.set(self.0.take());
    }
}

/// The memory of one set of values, in bytes.
#[derive(Default)]
pub struct Account {
    bytes: usize,
    /// The part of `bytes` that DataFusion has counted.
    passed_on: usize,
    reservation: Option<MemoryReservation>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

impl Account {
    /// Counts bytes. The error is 53200 if the pool has too little memory.
    #[inline]
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        let is_known = self.own() < self.reserved().saturating_add(STEP_BYTES);
        if is_known { Ok(()) } else { self.reserve() }
    }

    /// Returns all bytes that are counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back the memory that is reserved here. DataFusion has asked for `bytes`, and has reserved them.
    pub fn pass_on(&mut self) {
        self.passed_on = self.bytes;
        self.reservation = None;
    }

    /// Returns the bytes that only this account counts.
    fn own(&self) -> usize {
        self.bytes.saturating_sub(self.passed_on)
    }

    fn reserved(&self) -> usize {
        self.reservation.as_ref().map_or(0, MemoryReservation::size)
    }

    #[cold]
    fn reserve(&mut self) -> Result<()> {
        if self.reservation.is_none() {
            let pool = POOL.with_borrow(Clone::clone);
            self.reservation = pool.map(|pool| MemoryConsumer::new("values").register(&pool));
        }
        match &self.reservation {
            Some(reservation) => reservation.try_resize(self.own()).map_err(|_| out_of_memory(COLLECTING)),
            None => Ok(()),
        }
    }
}

/// Returns the bytes of a value that are stored outside the `Datum` itself.
pub fn datum_bytes(value: &Datum<'_>) -> usize {
    match value {
        Datum::Text(t) => t.len(),
        Datum::Bytea(b) => b.len(),
        Datum::Array(a) => a.as_bytes().len(),
        Datum::Numeric(n) => n.as_bytes().len(),
        _ => 0,
    }
}

/// Checks that a text or bytea of `bytes` bytes may grow by `more` bytes. Returns the error 54000 if it may
/// not (PostgreSQL's `enlargeStringInfo`).
pub fn check_text(bytes: usize, more: usize) -> Result<()> {
    if more < VALUE_BYTES_MAX.saturating_sub(bytes) {
        return Ok(());
    }
    let detail = format!("Cannot enlarge string buffer containing {bytes} bytes by {more} more bytes.");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT, "out of memory").with_detail(detail))
}

/// Checks the size of an array in bytes. Returns the error 54000 if it is too large.
pub fn check_array(bytes: usize) -> Result<()> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("array size exceeds the maximum allowed ({VALUE_BYTES_MAX})");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    #[test]
    fn an_account_reserves_in_steps_and_returns_its_memory() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(3 * STEP_BYTES));
        let guard = within(pool.clone());
        let mut account = Account::default();
        account.grow(STEP_BYTES - 1).unwrap();
        assert_eq!((pool.reserved(), account.bytes()), (0, STEP_BYTES - 1));
        account.grow(2 * STEP_BYTES).unwrap();
        assert_eq!((pool.reserved(), account.bytes()), (3 * STEP_BYTES - 1, 3 * STEP_BYTES - 1));
        account.pass_on();
        assert_eq!((pool.reserved(), account.bytes()), (0, 3 * STEP_BYTES - 1), "DataFusion counts them now");
        account.grow(2 * STEP_BYTES).unwrap();
        assert_eq!(pool.reserved(), 2 * STEP_BYTES);
        assert!(account.grow(2 * STEP_BYTES).is_err());
        drop(account);
        assert_eq!(pool.reserved(), 0);
        drop(guard);
        Account::default().grow(1 << 40).unwrap();
    }

    #[test]
    fn a_value_ends_before_a_gigabyte() {
        assert!(check_text(VALUE_BYTES_MAX - 10, 9).is_ok());
        let error = check_text(VALUE_BYTES_MAX - 10, 10).unwrap_err();
        assert_eq!((error.sqlstate.0, &*error.message), ("54000", "out of memory"));
        assert!(check_array(VALUE_BYTES_MAX).is_ok());
        assert!(check_array(VALUE_BYTES_MAX + 1).is_err());
    }
}
