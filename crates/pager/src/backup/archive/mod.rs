//! The log archive, and what a restore reads from it (decision 0263).
//!
//! ```text
//!   log --archiver.rs--> pieces of a timeline, in an ArchiveStore --timeline.rs--> groups up to a moment
//!    \__ a pin keeps the log that is not archived __/                  (moment.rs)     \--> restore.rs
//! ```
//!
//! A *timeline* is a sequence of log blocks without a gap. A *piece* is a part of a timeline: whole blocks in
//! one file of the store. The pieces of a timeline are named by their first LSN.
//!
//! | file | what is in it |
//! |---|---|
//! | `store.rs` | where pieces are stored |
//! | `piece.rs` | the format of a piece |
//! | `archiver.rs` | copies the log into pieces |
//! | `merge.rs` | makes one piece of many small ones |
//! | `passed.rs` | the blocks that a reader has passed |
//! | `timeline.rs` | reads the pieces of a timeline |
//! | `later.rs` | the archived log after a backup, up to a moment |
//! | `moment.rs` | finds the position in the log that belongs to a moment |
//!
//! Invariants
//! 1. Only durable blocks are archived. A piece is durable before the log that it has may be cut.
//! 2. A timeline is continued only if the open log has its last block, byte for byte. Otherwise a new
//!    timeline begins. So blocks of two histories of one database are never in one timeline.
//! 3. A gap is never closed: what comes after a gap is another timeline.
//! 4. A failing store never stops the database.
//!
//! This module does not know files, directories or the network.

pub(crate) mod archiver;
pub(crate) mod later;
mod merge;
pub(crate) mod moment;
mod passed;
pub(crate) mod piece;
pub(crate) mod store;
#[cfg(test)]
mod support;
pub(crate) mod timeline;
