//! Rollback segments store the data before each change, for rollback and for readers of older versions.
//!
//! A rollback segment is a header page and a chain of undo pages. Pages are appended at the tail and freed at
//! the head, in 1 MiB extents that the segment owns. A segment serves one active transaction at a time, so
//! concurrent transactions need several segments. One directory page lists all header pages.
//!
//! Invariants
//! 1. An undo record and the change that it undoes are in one mini-transaction. A step of a rollback and the
//!    removal of its record are in one mini-transaction, too.
//! 2. A segment has the records of its committed transactions in commit order. The records of the active
//!    transaction come last.
//! 3. A roll pointer leads to an undo record. The record is used only if it names the same transaction, tree
//!    and key. Otherwise the roll pointer is out of date.
//!
//! This module does not know rows, visibility, or when to purge.

mod directory;
pub(crate) mod page;
mod record;
mod segment;

pub(crate) use directory::{RestoredSegment, SegmentPool};
pub(crate) use record::{Before, Kind, Record, RecordRef};
pub(crate) use segment::{Prepared, Segment, not_undo};

use varve_pager::PageId;

/// A position in a segment's undo. All records before it are older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) page: PageId,
    pub(crate) slot: u32,
}
