//! The engine `inplace`: tuples that are updated in place in memory, with a write-ahead log and checkpoints
//! in files (InP of Arulraj, Pavlo and Dulloor 2015, section 3.1; decision 0112).
//!
//! The tuples and the nodes of the indexes are chunks of the region that are reserved and never active. They
//! are never written back, and a crash loses them. A start reads the last checkpoint, replays the log after
//! it, and so builds the tuples and the indexes again. So the time of a start grows with the data and the
//! log.
//!
//! | call | what it does to the log |
//! |---|---|
//! | a change | adds a record with the bytes before and after it to a buffer; reserves room in the file |
//! | rollback | takes the records out of the buffer again, newest first, and undoes their changes |
//! | commit | adds a record to the buffer; the commit is pending |
//! | sync | writes the buffer up to the last commit into the file, and calls `fsync`: group commit |
//!
//! Only records of committed transactions are written into the file, so a start has nothing to undo.
//!
//! This module does not know the other engines.

mod checkpoint;
mod heap;
mod node;
mod record;
mod recovery;
mod start_reserve;
mod store;
mod tree;

pub use store::{Inplace, InplaceSettings};
