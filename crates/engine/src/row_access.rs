//! Types for reading and changing rows: isolation levels, scans, changes and their outcomes.
//!
//! This module knows nothing about transactions and trees.

use std::ops::{Bound, ControlFlow};

use crate::error::Result;
use crate::object_ids::IndexId;
use crate::row::{RowImage, RowRef};
use crate::share::LockStrength;

/// Isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed when the first one began; the first updater of a row wins.
    RepeatableRead,
    /// As `RepeatableRead`, and a transaction that writes commits only if nothing that it has read was
    /// written since.
    Serializable,
}

impl Isolation {
    /// Whether all statements see the same snapshot.
    #[inline]
    pub const fn keeps_snapshot(self) -> bool {
        !matches!(self, Isolation::ReadCommitted)
    }
}

/// Which tree a scan follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanIndex {
    /// The order of the primary key (or of the hidden row id).
    Primary,
    /// The order of a secondary index, then of the primary key.
    Secondary(IndexId),
}

/// What to scan. Bounds are key prefixes as built by `TableDef::push_key`: they are compared byte by byte
/// with full keys, so an inclusive upper bound of a prefix is `Excluded(prefix + key::prefix_end)`.
#[derive(Clone, Copy, Debug)]
pub struct ScanSpec<'a> {
    /// The tree.
    pub index: ScanIndex,
    /// Lower bound.
    pub lower: Bound<&'a [u8]>,
    /// Upper bound.
    pub upper: Bound<&'a [u8]>,
    /// From the upper bound down.
    pub reverse: bool,
    /// The caller expects to stop after about this many rows.
    pub limit_hint: Option<usize>,
    /// The only columns that the caller reads; others may be NULL in the rows that it gets. A secondary index
    /// that has all of these is read without the rows, wherever its entries say by themselves that these are
    /// visible.
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

/// What the closure of `Transaction::modify` wants done with the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing; the row is not locked.
    Skip,
    /// The row is replaced; its key may change.
    Replace(RowImage),
    /// The row is deleted.
    Delete,
    /// The row is locked.
    Lock(LockStrength),
}

/// What `Transaction::modify` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such row (any more).
    Missing,
    /// The closure chose `Skip`.
    Skipped,
    /// The change was made.
    Changed,
}

/// Receives the rows of a scan: the row's key (what `get` and `modify` take) and the row. Must not call the
/// database.
pub type OnRow<'f> = dyn FnMut(&[u8], RowRef<'_>) -> Result<ControlFlow<()>> + 'f;
