//! A workload: what it loads and what one of its transactions does.

use crate::Result;
use crate::random::Random;
use crate::target::{Connection, Statement};

/// A published or self-made load, independent of what it runs against.
pub trait Workload: Send + Sync {
    /// Its name, as in the publication.
    fn name(&self) -> String;

    /// Its parameters, for the configuration hash.
    fn settings(&self) -> serde_json::Value;

    /// The statements that [`Workload::transaction`] runs by their place in this list.
    fn statements(&self) -> Vec<Statement>;

    /// Makes and fills the tables; drops them first if they exist.
    fn load(&self, connection: &mut dyn Connection) -> Result<()>;

    /// One transaction. After an error the driver runs [`Workload::rollback`].
    fn transaction(&self, connection: &mut dyn Connection, random: &mut Random) -> Result<()>;

    /// Ends a transaction that met an error; nothing to do for single statements.
    fn rollback(&self, connection: &mut dyn Connection) -> Result<()> {
        connection.simple("ROLLBACK")
    }

    /// What must hold for the data after a run, such as equal sums; nothing by default.
    fn verify(&self, _connection: &mut dyn Connection) -> Result<()> {
        Ok(())
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
