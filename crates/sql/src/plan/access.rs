//! Access paths to the rows of a table: all rows, one row, ranges of an index.
//!
//! This module does not know how a path is chosen (`access`).

use std::sync::Arc;

use varve_engine::{ScanIndex, TableDef};

use crate::eval::Expr;

/// Some values of an index key from its first column on, then perhaps bounds for the next one.
#[derive(Debug, Clone, Default)]
pub struct KeyRange {
    /// Values that the first columns equal.
    pub equal: Vec<Expr>,
    /// The one of them that is an array, of which each element is meant: as many ranges as it has elements.
    pub each: Option<usize>,
    /// Lower bound of the next column, and whether it is included.
    pub lower: Option<(Expr, bool)>,
    /// Upper bound of the next column, and whether it is included.
    pub upper: Option<(Expr, bool)>,
}

/// How rows are found.
#[derive(Debug, Clone)]
pub enum Access {
    /// All rows in primary key order.
    Full,
    /// The row with this primary key: one expression for each key column.
    Point(Box<[Expr]>),
    /// The rows in ranges of an index.
    Ranges {
        /// Which tree.
        index: ScanIndex,
        /// Ordinals of its columns.
        columns: Box<[usize]>,
        /// The ranges, in no order; they may overlap.
        ranges: Box<[KeyRange]>,
    },
}

/// A table and the way into it.
#[derive(Debug)]
pub struct TableAccess {
    /// The table.
    pub table: Arc<TableDef>,
    /// The way.
    pub access: Access,
    /// From the end of the index.
    pub reverse: bool,
    /// The only columns of its rows that are read, if the index has them all.
    pub reads: Option<Box<[usize]>>,
}

impl TableAccess {
    /// All rows.
    pub fn whole(table: Arc<TableDef>) -> TableAccess {
        TableAccess { table, access: Access::Full, reverse: false, reads: None }
    }

    /// Notes the columns that are read of its rows: the index may be enough for them.
    pub fn note_reads(&mut self, columns: &[usize]) {
        if let Access::Ranges { index, .. } = self.access {
            self.reads = self.table.covers(index, columns).then(|| columns.into());
        }
    }
}
