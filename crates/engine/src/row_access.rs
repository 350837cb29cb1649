//! Types for reading and changing rows: isolation levels, scans, changes and their outcomes.
//!
//! This module does not know transactions or trees.

use std::ops::{Bound, ControlFlow};

use crate::error::Result;
use crate::object_ids::IndexId;
use crate::row::{RowImage, RowRef};
use crate::share::LockStrength;

/// What a statement that locks rows does if it needs a partition that another transaction uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenHeld {
    /// It waits.
    #[default]
    Wait,
    /// It fails with 55P03.
    Fail,
    /// It sees no row of the partition.
    Skip,
}

/// Isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed before it began.
    ReadCommitted,
    /// All statements see what was committed before the first one began. If two transactions change a row,
    /// the second one fails.
    RepeatableRead,
    /// The same as `RepeatableRead`. In addition, a transaction that writes can commit only if no other
    /// transaction has written what it has read.
    Serializable,
}

impl Isolation {
    /// Returns whether all statements see the same snapshot.
    #[inline]
    pub const fn keeps_snapshot(self) -> bool {
        !matches!(self, Isolation::ReadCommitted)
    }
}

/// The tree that a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanIndex {
    /// The order of the primary key (or of the hidden row id).
    Primary,
    /// The order of a secondary index, then of the primary key.
    Secondary(IndexId),
}

/// The range of a scan. Bounds are key prefixes that `TableDef::push_key` builds. They are compared byte by
/// byte with full keys, so an inclusive upper bound of a prefix is `Excluded(prefix + key::prefix_end)`.
#[derive(Clone, Copy, Debug)]
pub struct ScanSpec<'a> {
    /// The tree.
    pub index: ScanIndex,
    /// Lower bound.
    pub lower: Bound<&'a [u8]>,
    /// Upper bound.
    pub upper: Bound<&'a [u8]>,
    /// Whether the scan goes down from the upper bound.
    pub reverse: bool,
    /// The approximate number of rows after which the caller expects to stop.
    pub limit_hint: Option<usize>,
    /// The columns that the caller reads. Other columns may be NULL in the rows that it gets. If a secondary
    /// index has all of these columns, entries whose versions are certainly visible are used without reading
    /// their rows.
    pub columns: Option<&'a [usize]>,
}

impl ScanSpec<'_> {
    /// All rows in primary key order.
    pub const ALL: ScanSpec<'static> = ScanSpec {
        index: ScanIndex::Primary,
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
        reverse: false,
        limit_hint: None,
        columns: None,
    };
}

/// The decision of the closure of `Transaction::modify` about the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing is done, and the row is not locked.
    Skip,
    /// The row is replaced. Its key may change.
    Replace(RowImage),
    /// The row is deleted.
    Delete,
    /// The row is locked.
    Lock(LockStrength),
}

/// The result of `Transaction::modify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such row (any more).
    Missing,
    /// The closure chose `Skip`.
    Skipped,
    /// The change was made.
    Changed,
}

/// Receives the rows of a scan: the row's key, for `get` and `modify`, and the row. It must not call the
/// database.
pub type OnRow<'f> = dyn FnMut(&[u8], RowRef<'_>) -> Result<ControlFlow<()>> + 'f;
