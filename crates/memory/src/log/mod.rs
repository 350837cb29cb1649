//! The engine `log` (Log of Arulraj, Pavlo and Dulloor 2015, section 3.3): an LSM tree with a volatile
//! MemTable, a write-ahead log for the MemTable, and runs in files.
//!
//! The MemTable is in the region, too, because the hierarchy of the paper has nothing but persistent memory.
//! The files are in the region, too (decision 0113).
//!
//! | step of a change | fence |
//! |---|---|
//! | entries are stored into the MemTable and linked; records are put into the log's buffer | none |
//! | commit: a record in the buffer | none |
//! | sync: the buffer is written into the log file | 2, for all commits before it |
//!
//! The engine `nvm_log` has the same LSM tree, and keeps all of it in persistent memory. The folder `lsm` has
//! the code that both engines share.

mod compaction;
mod manifest;
mod record;
mod recovery;
mod store;

pub use store::{LogSettings, LogStructured};
