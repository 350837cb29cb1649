//! The load of a partition: initial rows, transactions, and a check of the rows that they leave.
//!
//! This module does not know engines or how times are taken.

use std::fmt::Display;

use varve_bench::{BenchError, Result};
use varve_memory::Store;

/// The way in which a transaction is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The caller commits the transaction.
    Commit,
    /// The caller rolls the transaction back.
    RollBack,
}

/// The load of one partition. All engines get the same load.
pub trait PartitionLoad: Sync {
    /// Makes the tables and fills them. The caller syncs the store afterwards.
    fn load(&self, store: &mut dyn Store) -> Result<()>;

    /// Returns the number of transactions.
    fn transactions(&self) -> usize;

    /// Makes a worker, which can run the transactions.
    fn worker(&self) -> Box<dyn Worker + '_>;

    /// Compares the store with the rows that the load and the first `transactions` transactions must leave.
    ///
    /// Errors: a row is missing, a row differs from the expected one, or there is a row too many.
    fn check(&self, store: &dyn Store, transactions: usize) -> Result<()>;
}

/// Runs the transactions of a load, in their order.
pub trait Worker {
    /// Runs the reads and changes of the transaction with this number. The caller commits it or rolls it
    /// back.
    fn execute(&mut self, number: usize, store: &mut dyn Store) -> Result<Ending>;
}

/// Returns the error of an engine, as an error of a measurement.
pub fn refused(error: impl Display) -> BenchError {
    BenchError::Io(std::io::Error::other(error.to_string()))
}
