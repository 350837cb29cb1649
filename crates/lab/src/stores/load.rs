//! What a load of a partition is: rows to begin with, transactions, and a check of what they leave.
//!
//! What it does not know: engines, and how times are taken.

use std::fmt::Display;

use varve_bench::{BenchError, Result};
use varve_memory::Store;

/// How a transaction wants to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is to be committed.
    Commit,
    /// It is to be rolled back.
    RollBack,
}

/// The load of one partition. All engines get the same.
pub trait PartitionLoad: Sync {
    /// Makes the tables and fills them. The caller syncs the store behind it.
    fn load(&self, store: &mut dyn Store) -> Result<()>;

    /// Number of transactions.
    fn transactions(&self) -> usize;

    /// A worker that begins with the first transaction.
    fn worker(&self) -> Box<dyn Worker + '_>;

    /// Compares the store with what its load and the first `transactions` must have left.
    ///
    /// Errors: a row is missing, another one than expected, or one too many.
    fn check(&self, store: &dyn Store, transactions: usize) -> Result<()>;
}

/// Runs the transactions of a load, in their order.
pub trait Worker {
    /// Runs the changes and reads of the transaction with this number. The caller ends it.
    fn execute(&mut self, number: usize, store: &mut dyn Store) -> Result<Ending>;
}

/// The error of an engine, as an error of a measurement.
pub fn refused(error: impl Display) -> BenchError {
    BenchError::Io(std::io::Error::other(error.to_string()))
}
