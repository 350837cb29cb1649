//! The trait of a workload: how it loads its data, and how it runs its transactions.

use crate::database::{Connection, Statement};
use crate::random::Random;
use crate::{BenchError, Result};

/// One kind of transaction in a workload. Its latencies are measured separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionKind {
    /// The name of the kind in reports.
    pub name: &'static str,
    /// The publication's name for transactions of this kind per minute, such as tpmC, if it has one.
    pub rate: Option<&'static str>,
}

/// A condition that the data of a workload must meet when no transaction runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The name of the condition in the publication.
    pub name: &'static str,
    /// A description of the condition.
    pub says: &'static str,
    /// A query that counts the violations.
    pub violations: String,
}

/// A workload, published or our own, that can run on any target.
pub trait Workload: Send + Sync {
    /// Returns the workload's name, as in the publication.
    fn name(&self) -> String;

    /// Returns the workload's parameters, for the configuration hash.
    fn settings(&self) -> serde_json::Value;

    /// Returns the differences from the publication, one sentence each. A report prints them with every
    /// figure.
    fn deviations(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the statements of the workload. [`Workload::transaction`] runs them by their index in this
    /// list.
    fn statements(&self) -> Vec<Statement>;

    /// Makes and fills the tables. If the tables exist, they are dropped first.
    fn load(&self, connection: &mut dyn Connection) -> Result<()>;

    /// Returns the kinds of transactions. The list is empty if all transactions are of one kind.
    fn kinds(&self) -> &'static [TransactionKind] {
        &[]
    }

    /// Draws the kind of the next transaction, as an index into [`Workload::kinds`].
    fn next_kind(&self, _random: &mut Random) -> usize {
        0
    }

    /// Runs one transaction. After an error the driver runs [`Workload::rollback`]. If the error is
    /// retryable, the driver then runs the same transaction again with the same `random`.
    fn transaction(&self, kind: usize, connection: &mut dyn Connection, random: &mut Random) -> Result<()>;

    /// Returns whether the driver runs a transaction again after this error.
    fn is_retryable(&self, error: &BenchError) -> bool {
        error.is_retryable()
    }

    /// Ends a transaction after an error. A workload whose transactions are single statements has nothing to
    /// end.
    fn rollback(&self, connection: &mut dyn Connection) -> Result<()> {
        connection.simple("ROLLBACK")
    }

    /// Checks conditions of the data after a run, such as equal sums. By default a workload checks nothing.
    fn verify(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }

    /// Conditions that are checked only on request, because they read all the data. Each condition is a
    /// general query.
    fn conditions(&self) -> Vec<Condition> {
        Vec::new()
    }
}

/// Rows of each INSERT statement of a load.
pub const LOAD_BATCH_ROWS: u64 = 500;

/// Loads the rows `0..count`. `row` writes each row as `(value, ...)`.
pub fn load_rows(
    connection: &mut dyn Connection,
    into: &str,
    count: u64,
    mut row: impl FnMut(u64, &mut String),
) -> Result<()> {
    for first in (0..count).step_by(LOAD_BATCH_ROWS as usize) {
        let mut sql = format!("INSERT INTO {into} VALUES ");
        for number in first..count.min(first + LOAD_BATCH_ROWS) {
            if number > first {
                sql.push(',');
            }
            row(number, &mut sql);
        }
        connection.simple(&sql)?;
    }
    Ok(())
}
