//! Stored procedures: closures that run as transactions in one partition, one after the other.
//!
//! Source: Arulraj, Pavlo and Dulloor (2015, section 3): each transaction is a stored procedure, and a
//! partition runs its transactions serially.
//!
//! Invariants
//! 1. The partition is locked from before the procedure begins until its commit is durable. Transactions of
//!    SQL take the same lock, and wait in the same queue in the order of arrival.
//! 2. A procedure that returns an error, or panics, has changed nothing.
//!
//! This module does not know SQL or definitions of procedures. Procedures are closures of the embedding
//! program.

use std::sync::Arc;

use varve_memory::EngineKind;

use crate::catalog::TableDef;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::in_memory::{spread_by, without_padding};
use crate::partition_hash::key_hash;
use crate::partitions::PartitionId;
use crate::row_access::Isolation;
use crate::transaction::Transaction;
use crate::types::Datum;

/// A partition of a memory-oriented engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition(PartitionId);

impl Partition {
    /// Returns the engine of the partition.
    pub const fn engine(self) -> EngineKind {
        self.0.kind
    }

    /// Returns the number of the partition, from 0 to the number of partitions - 1.
    pub const fn number(self) -> u16 {
        self.0.number
    }
}

impl Database {
    /// Returns the partition that has the rows of a table with these values of its partition key, in the
    /// order of PARTITION BY HASH and of the columns' types. A table without PARTITION BY HASH is in one
    /// partition, and `key` is not used.
    ///
    /// The error is 0A000 if the rows of the table are in pages. It is 42P16 if the key has another number of
    /// columns.
    pub fn partition_of(&self, table: &TableDef, key: &[Datum<'_>]) -> Result<Partition> {
        let stored = table.stored_tables();
        let Some(first) = stored.first() else {
            return Err(Error::Unsupported { what: format!("a partition of table {}", table.name) });
        };
        let Some(columns) = spread_by(table) else { return Ok(Partition(first.partition)) };
        if columns.len() != key.len() {
            let (name, wanted) = (&table.name, columns.len());
            let what = format!("the partition key of table {name} has {wanted} columns, not {}", key.len());
            return Err(Error::InvalidDefinition { what });
        }
        let hashed =
            columns.iter().zip(key).map(|(column, value)| without_padding(table.key_type(*column), *value));
        let number = key_hash(hashed) % stored.len() as u64;
        Ok(Partition(stored.get(number as usize).unwrap_or(first).partition))
    }

    /// Runs a stored procedure in a partition, and commits it durably. It waits until the partition is free.
    /// Rows of tables in other partitions and in pages can be read, but changes there are refused (0A000). A
    /// procedure opens its tables with [`Transaction::table_by_rows`].
    ///
    /// The errors are those of the procedure, which is then rolled back, those of the lock (time-out,
    /// deadlock), and those of the commit.
    pub fn run_procedure<T>(
        self: &Arc<Self>,
        partition: Partition,
        procedure: impl FnOnce(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut transaction = self.begin(Isolation::ReadCommitted);
        transaction.cx.lock_partition(partition.0)?;
        transaction.start_statement();
        match procedure(&mut transaction) {
            Ok(outcome) => transaction.commit().map(|()| outcome),
            Err(error) => transaction.rollback().and(Err(error)),
        }
    }
}
