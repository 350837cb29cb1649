//! Makes the columns of each new row from the old row when a table is rewritten.
//!
//! This module does not know tables or what a computed column means.

use crate::error::Result;
use crate::row::{RowImage, RowRef, RowSchema};
use crate::types::{Datum, Value};

/// Where a column of a rewritten table comes from.
#[derive(Clone, Debug)]
pub enum ColumnSource {
    /// The old column with this ordinal.
    Column(usize),
    /// The old column with this ordinal, with a value that the caller computes from the old row.
    Computed(usize),
    /// The same value in every row.
    Value(Value),
}

impl ColumnSource {
    /// Returns the ordinal of the old column.
    pub(crate) fn before(&self) -> Option<usize> {
        match self {
            Self::Column(ordinal) | Self::Computed(ordinal) => Some(*ordinal),
            Self::Value(_) => None,
        }
    }
}

/// Computes the new value of a column, by its old ordinal, from the old row.
pub type Compute<'c> = dyn FnMut(usize, RowRef<'_>) -> Result<Value> + 'c;

/// The way in which a rewrite makes the columns of each row.
pub(crate) struct Reshape<'r, 'c> {
    /// The source of each new column.
    pub sources: &'r [ColumnSource],
    /// Computes the values of [`ColumnSource::Computed`].
    pub compute: &'r mut Compute<'c>,
}

impl Reshape<'_, '_> {
    /// Returns the new row.
    pub(crate) fn apply(&mut self, row: RowRef<'_>, schema: &RowSchema) -> Result<RowImage> {
        let sources = self.sources;
        let mut computed = Vec::new();
        for source in sources {
            if let ColumnSource::Computed(ordinal) = source {
                computed.push((self.compute)(*ordinal, row)?);
            }
        }
        let mut computed = computed.iter();
        let mut data = Vec::with_capacity(sources.len());
        for source in sources {
            data.push(match source {
                ColumnSource::Column(ordinal) => row.get(*ordinal),
                ColumnSource::Computed(_) => computed.next().map_or(Datum::Null, Value::as_datum),
                ColumnSource::Value(value) => value.as_datum(),
            });
        }
        Ok(RowImage::encode(schema, &data)?)
    }
}
