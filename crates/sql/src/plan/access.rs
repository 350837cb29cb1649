//! Access paths to the rows of a table: all rows, one row, ranges of an index.
//!
//! This module does not know how a path is chosen (`access`).

use std::sync::Arc;

use varve_engine::{ScanIndex, TableDef};

use crate::eval::Expr;

/// A range of an index: values for its first columns, then perhaps bounds for the next column.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    /// The values of the first columns.
    pub equal: Vec<Expr>,
    /// The position in `equal` of a value that is an array, if there is one. Then there is one range for each
    /// element of the array.
    pub each: Option<usize>,
    /// Lower bound of the next column, and whether it is included.
    pub lower: Option<(Expr, bool)>,
    /// Upper bound of the next column, and whether it is included.
    pub upper: Option<(Expr, bool)>,
}

/// How a statement finds rows of a table.
#[derive(Debug, Clone)]
pub enum Access {
    /// All rows in primary key order.
    Full,
    /// The row with this primary key: one expression for each key column.
    Point(Box<[Expr]>),
    /// The rows in ranges of an index.
    Ranges {
        /// The index.
        index: ScanIndex,
        /// The ordinals of the index's columns.
        columns: Box<[usize]>,
        /// The ranges. They are not sorted, and may overlap.
        ranges: Box<[KeyRange]>,
    },
}

/// A table and its access path.
#[derive(Debug)]
pub struct TableAccess {
    /// The table.
    pub table: Arc<TableDef>,
    /// The access path.
    pub access: Access,
    /// Whether the index is read from its end.
    pub reverse: bool,
    /// Whether ORDER BY was dropped from the query, because this access gives the rows in its order.
    pub in_order: bool,
    /// The columns that are read, if the index contains all of them. Then the rows themselves are not read.
    pub reads: Option<Box<[usize]>>,
}

impl TableAccess {
    /// Access to all rows of a table.
    pub fn whole(table: Arc<TableDef>) -> TableAccess {
        TableAccess { table, access: Access::Full, reverse: false, in_order: false, reads: None }
    }

    /// Sets the columns that are read. If the index contains all of them, the rows themselves are not read.
    pub fn note_reads(&mut self, columns: &[usize]) {
        if let Access::Ranges { index, .. } = self.access {
            self.reads = self.table.covers(index, columns).then(|| columns.into());
        }
    }
}
