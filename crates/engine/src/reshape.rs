//! Makes the columns of each new row from the old row when a table is rewritten.
//!
//! This module does not know tables or what a computed column means.

use crate::error::Result;
use crate::row::RowRef;
use crate::types::Value;

/// Where a column of a rewritten table comes from.
#[derive(Clone, Debug)]
pub enum ColumnSource {
    /// The column of this ordinal, before.
    Column(usize),
    /// The column of this ordinal, before, with a value that the caller computes from the old row.
    Computed(usize),
    /// The same value in every row.
    Value(Value),
}

impl ColumnSource {
    /// Ordinal of the column that it was before the rewrite.
    pub(crate) fn before(&self) -> Option<usize> {
        match self {
            Self::Column(ordinal) | Self::Computed(ordinal) => Some(*ordinal),
            Self::Value(_) => None,
        }
    }
}

/// Computes the new value of a column, by its old ordinal, from the old row.
pub type Compute<'c> = dyn FnMut(usize, RowRef<'_>) -> Result<Value> + 'c;

/// What a rewrite makes of the columns of each row.
pub(crate) struct Reshape<'r, 'c> {
    /// One for each new column.
    pub sources: &'r [ColumnSource],
    /// For the computed ones.
    pub compute: &'r mut Compute<'c>,
}
