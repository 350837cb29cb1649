//! Rollback segments: the before-images of changes, for rollback and for readers of older versions.
//!
//! A segment is a header page and a chain of undo pages. Pages are appended at the tail and freed at the
//! head, in 1 MiB extents that the segment owns. A segment serves one active transaction at a time; more
//! segments are made for more concurrent transactions. One directory page lists all header pages.
//!
//! Invariants
//! 1. An undo record and the change that it undoes are in one mini-transaction, and so are a rollback's step and the pop
//!    of its record.
//! 2. The records of a segment are in the commit order of its transactions; behind them those of the active one.
//! 3. A roll pointer is followed only to a record that names the same transaction, tree and key; everything else is stale.
//!
//! Does not know: rows, visibility, when to purge.

mod directory;
pub(crate) mod page;
mod record;
mod segment;

pub(crate) use directory::{RestoredSegment, SegmentPool};
pub(crate) use record::{Before, Kind, Record, RecordRef};
pub(crate) use segment::{Prepared, Segment, not_undo};

use varve_pager::PageId;

/// A position in a segment's undo: everything before it is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) page: PageId,
    pub(crate) slot: u32,
}
