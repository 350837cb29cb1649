//! Indexes over expressions and partial indexes: their definitions, and how their keys are computed.
//!
//! The engine stores the expressions as text, which only the layer above understands. That layer gives the
//! engine a [`Deriver`] when it opens the database. The engine itself needs the keys of rows for rollback and
//! purge.
//!
//! Invariants
//! 1. A key depends on the row alone, because the layer above refuses expressions with other inputs. So
//!    rollback and purge can compute the key of an old version again to remove its index entry.
//! 2. The code that computes keys of an index is prepared at its first use, and kept as long as the table is
//!    open.
//!
//! This module does not know SQL.

use std::sync::{Arc, OnceLock};

use super::defs::{IndexDef, TableDef};
use crate::error::{Error, Result};
use crate::row::RowRef;
use crate::types::{ColumnType, Value};

/// One part of the key of a derived index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The column of this ordinal.
    Column(usize),
    /// The value of an expression.
    Expression {
        /// Its text, as the layer above reads it.
        text: String,
        /// The type of its values.
        column_type: ColumnType,
    },
}

/// The expressions and the condition of a derived index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// The parts of its key, in order.
    pub keys: Vec<KeyPart>,
    /// Text of the condition that rows in the index fulfil.
    pub predicate: Option<String>,
}

impl Derived {
    /// Returns texts and types of the parts that are expressions, in order.
    pub fn expressions(&self) -> impl Iterator<Item = (&str, ColumnType)> {
        self.keys.iter().filter_map(|key| match key {
            KeyPart::Expression { text, column_type } => Some((text.as_str(), *column_type)),
            KeyPart::Column(_) => None,
        })
    }

    /// Returns the type of a part of the key.
    pub(crate) fn key_type(&self, part: usize, table: &TableDef) -> ColumnType {
        match &self.keys[part] {
            KeyPart::Column(ordinal) => table.columns[*ordinal].column_type,
            KeyPart::Expression { column_type, .. } => *column_type,
        }
    }

    /// Returns the name of a part of the key, for errors.
    pub(crate) fn key_name<'d>(&'d self, part: usize, table: &'d TableDef) -> &'d str {
        match &self.keys[part] {
            KeyPart::Column(ordinal) => &table.columns[*ordinal].name,
            KeyPart::Expression { text, .. } => text,
        }
    }
}

/// Computes the keys of one derived index.
pub trait DeriveKey: Send + Sync {
    /// Returns a value for each part of the key, or `None` if the index leaves the row out.
    fn derive(&self, row: RowRef<'_>) -> Result<Option<Vec<Value>>>;
}

/// Understands the texts of a derived index.
pub type Deriver = Arc<dyn Fn(&TableDef, &IndexDef) -> Result<Arc<dyn DeriveKey>> + Send + Sync>;

/// The keys of an open derived index.
pub(crate) struct Keys {
    deriver: Option<Deriver>,
    made: OnceLock<Arc<dyn DeriveKey>>,
}

impl Keys {
    pub(crate) fn new(deriver: Option<Deriver>) -> Self {
        Self { deriver, made: OnceLock::new() }
    }

    pub(crate) fn of(
        &self,
        table: &TableDef,
        index: &IndexDef,
        row: RowRef<'_>,
    ) -> Result<Option<Vec<Value>>> {
        if let Some(keys) = self.made.get() {
            return keys.derive(row);
        }
        // A failure is not stored, because the next attempt may succeed, for example if memory was short.
        let keys = match &self.deriver {
            Some(deriver) => deriver(table, index)?,
            None => {
                let what = "an index over expressions in a database without SQL".into();
                return Err(Error::Unsupported { what });
            }
        };
        self.made.get_or_init(|| keys).derive(row)
    }
}
