//! The trait of a workload: how it loads its data, and how it runs its transactions.

use crate::database::{Connection, Statement};
use crate::random::Random;
use crate::{BenchError, Result};

/// One kind of transaction of a mix, with latencies of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionKind {
    /// Its name in reports.
    pub name: &'static str,
    /// The unit in which the publication gives its transactions a minute, if it does.
    pub rate: Option<&'static str>,
}

/// A condition that the data of a workload must meet at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its name in the publication.
    pub name: &'static str,
    /// A description of the condition.
    pub says: &'static str,
    /// A query that counts the violations.
    pub violations: String,
}

/// A load, published or our own, that can run against any target.
pub trait Workload: Send + Sync {
    /// Its name, as in the publication.
    fn name(&self) -> String;

    /// Its parameters, for the configuration hash.
    fn settings(&self) -> serde_json::Value;

    /// The differences from the publication, a sentence each. They are printed with every figure.
    fn deviations(&self) -> Vec<String> {
        Vec::new()
    }

    /// The statements that [`Workload::transaction`] runs by their number in this list.
    fn statements(&self) -> Vec<Statement>;

    /// Makes and fills the tables; drops them first if they exist.
    fn load(&self, connection: &mut dyn Connection) -> Result<()>;

    /// The kinds of its transactions; empty if they are all of one.
    fn kinds(&self) -> &'static [TransactionKind] {
        &[]
    }

    /// The index in [`Workload::kinds`] of the next transaction.
    fn next_kind(&self, _random: &mut Random) -> usize {
        0
    }

    /// One transaction. After an error the driver runs [`Workload::rollback`], and then, if the error is
    /// retryable, the same transaction with the same `random`.
    fn transaction(&self, kind: usize, connection: &mut dyn Connection, random: &mut Random) -> Result<()>;

    /// Whether a transaction that met this error is run again.
    fn is_retryable(&self, error: &BenchError) -> bool {
        error.is_retryable()
    }

    /// Ends a transaction that met an error; nothing to do for single statements.
    fn rollback(&self, connection: &mut dyn Connection) -> Result<()> {
        connection.simple("ROLLBACK")
    }

    /// Checks conditions of the data after a run, such as equal sums. By default there are none.
    fn verify(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
    }

    /// Conditions that are checked on request, because they read everything. Each is a general query.
    fn conditions(&self) -> Vec<Condition> {
        Vec::new()
    }
}

/// Sends `INSERT INTO table VALUES row, row, ...` in batches of this many rows.
pub const LOAD_BATCH_ROWS: u64 = 500;

/// Loads rows `0..count`, each written by `row` as `(value, ...)`.
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
