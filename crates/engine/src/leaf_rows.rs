//! Rows of one leaf that a scan passes to its closure by columns, without putting each row together.
//!
//! Invariants
//! 1. The rows of a `LeafRows` are in the order of the scan. All of them are versions that the snapshot sees.
//! 2. Rows are named by their numbers in the leaf. Numbers need not be in the order of keys.
//!
//! This module does not know which rows are visible.

use std::ops::{AddAssign, ControlFlow};

use crate::error::Result;
use crate::node::{Columns, Minipage, NodeRef};
use crate::row::{self, RowRef, RowSchema};
use crate::types::{ColumnType, Datum};

/// The rows that a scan of leaves passes to its closure in one call.
pub enum Shown<'r> {
    /// A row with its key. It does not lie by columns, or it is an older version.
    Row(&'r [u8], RowRef<'r>),
    /// At least one row of a leaf.
    Leaf(&'r LeafRows<'r>),
}

/// Receives the rows of a scan of leaves. `Break(n)` ends the scan after the first n of the passed rows, and
/// n is at least 1. The closure must not call the database.
pub type OnShown<'f> = dyn FnMut(Shown<'_>) -> Result<ControlFlow<usize>> + 'f;

/// How a scan has read the leaves of a table. Leaves without visible rows are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// The number of leaves whose visible rows were all passed by columns.
    pub by_columns: u64,
    /// The number of leaves with rows that were passed by columns, and other rows.
    pub mixed: u64,
    /// The number of leaves without rows that were passed by columns.
    pub by_rows: u64,
    /// The number of leaves that were passed by, because the bounds of conditions rule out their rows.
    pub skipped: u64,
    /// The number of rows that were passed one by one, each as a whole.
    pub whole_rows: u64,
}

impl AddAssign for LeafCounts {
    fn add_assign(&mut self, other: Self) {
        self.by_columns += other.by_columns;
        self.mixed += other.mixed;
        self.by_rows += other.by_rows;
        self.skipped += other.skipped;
        self.whole_rows += other.whole_rows;
    }
}

/// Rows of one leaf by columns.
pub struct LeafRows<'a> {
    pub(crate) schema: &'a RowSchema,
    pub(crate) leaf: NodeRef<'a>,
    pub(crate) columns: Columns<'a>,
    /// The slots of the rows' entries.
    pub(crate) slots: &'a [u16],
    /// The numbers of the rows in the columns.
    pub(crate) numbers: &'a [u16],
}

impl<'a> LeafRows<'a> {
    /// Returns the numbers of the rows in the leaf, in the order of the scan.
    pub const fn numbers(&self) -> &'a [u16] {
        self.numbers
    }

    /// Returns the number of columns of the table.
    pub fn column_count(&self) -> usize {
        self.schema.len()
    }

    /// Returns the values of a column.
    pub fn column(&self, column: usize) -> LeafColumn<'a> {
        LeafColumn { column_type: self.schema.column(column), minipage: self.columns.minipage(column) }
    }

    /// Makes `key` the key of the row at this position of `numbers`.
    pub fn copy_key(&self, position: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.leaf.prefix());
        key.extend_from_slice(self.leaf.suffix(usize::from(self.slots[position])));
    }

    /// Puts the row with this number together in `spare`, and returns it.
    pub fn row<'s>(&self, number: u16, spare: &'s mut Vec<u8>) -> RowRef<'s>
    where
        'a: 's,
    {
        spare.clear();
        self.columns.append_row(usize::from(number), spare);
        RowRef::new(self.schema, spare)
    }
}

/// One column of the rows of a leaf.
#[derive(Clone, Copy)]
pub struct LeafColumn<'a> {
    column_type: ColumnType,
    minipage: Minipage<'a>,
}

impl<'a> LeafColumn<'a> {
    /// Returns the values and NULLs as bytes.
    pub const fn minipage(&self) -> &Minipage<'a> {
        &self.minipage
    }

    /// Returns the value of the row with this number.
    #[inline]
    pub fn get(&self, number: u16) -> Datum<'a> {
        let number = usize::from(number);
        let bytes = self.minipage.bytes(number);
        if self.minipage.is_null(number) {
            Datum::Null
        } else if self.minipage.is_variable() {
            row::variable(self.column_type, bytes)
        } else {
            row::fixed(self.column_type, bytes)
        }
    }
}
