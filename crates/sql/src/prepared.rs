//! A statement that has been parsed and typed, and the portal that runs it.
//!
//! Invariants
//! 1. Parameter types and result columns never change after `prepare`; the plan inside is made again when the catalog
//!    has changed, and if that would change the columns the statement fails with 0A000 as in PostgreSQL.
//! 2. A `Prepared` is shared between sessions; what belongs to one execution is in the `Portal`.
//!
//! Does not know: names of statements (`session`), transactions.

use varve_engine::{ColumnType, Value};

use crate::oid::{self, Oid};
use crate::sink::Column;

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) param_oids: Box<[Oid]>,
    pub(crate) columns: Option<Box<[Column]>>,
}

impl Prepared {
    /// Parameter types for ParameterDescription, `$1` first.
    pub fn param_types(&self) -> &[Oid] {
        &self.param_oids
    }

    /// The column type to decode parameter `index` (from 0) as; text for anything without its own type.
    pub fn param_column_type(&self, index: usize) -> ColumnType {
        self.param_oids.get(index).and_then(|o| oid::column_type(*o)).unwrap_or(ColumnType::Text)
    }

    /// Result columns, or `None` (NoData) if the statement returns no rows.
    pub fn columns(&self) -> Option<&[Column]> {
        self.columns.as_deref()
    }
}

/// The state of one portal between Execute messages. A new one starts at the beginning.
#[derive(Debug, Default)]
pub struct Portal {
    pub(crate) pending: Option<PendingRows>,
}

/// Rows of a suspended portal: all computed at its first Execute, handed out in slices.
#[derive(Debug)]
pub(crate) struct PendingRows {
    pub(crate) rows: std::vec::IntoIter<Box<[Value]>>,
}
