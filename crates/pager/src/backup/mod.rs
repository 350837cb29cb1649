//! Online backup and restore (decision 0262).
//!
//! ```text
//!   open database --copy--> frames --network, files--> verify --> restore --> another database
//!     pages through the pool, and the log that was written meanwhile
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `frame.rs` | the format of a backup: frames with checksums |
//! | `contents.rs` | what the frames say: start, pages, log, end |
//! | `copy.rs` | makes the frames of an open database |
//! | `verify.rs` | reads a backup and checks all of it |
//! | `page_set.rs` | a set of pages |
//! | `source.rs` | what a restore reads |
//! | `restore.rs` | makes a database of a chain of backups, and of the archived log after it |
//! | `archive/` | copies the log into an archive, and reads it for a restore |
//!
//! Invariants
//! 1. A page is copied from the buffer pool at a moment after the backup began. So the copy has all changes
//!    before the start LSN, and redo of the copied log gives the state at the end LSN.
//! 2. A backup is complete exactly if it has its end frame, and every frame before it.
//!
//! This module does not know files, directories or the network.

pub(crate) mod archive;
pub(crate) mod contents;
pub(crate) mod copy;
pub(crate) mod frame;
mod page_set;
pub(crate) mod restore;
pub(crate) mod source;
pub(crate) mod verify;
