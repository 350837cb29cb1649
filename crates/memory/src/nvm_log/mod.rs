//! The engine `nvm_log` (NVM-Log of Arulraj, Pavlo and Dulloor 2015, section 4.3): an LSM tree whose MemTables
//! are in persistent memory.
//!
//! A full MemTable becomes immutable and stays where it is. Merges make larger ones of immutable MemTables. An
//! undo log with pointers takes back what the open transaction has changed. A start replays nothing and builds
//! nothing, so its time does not depend on the data.
//!
//! | step of a change | fence |
//! |---|---|
//! | entries are stored into the MemTable's arena, and undo entries into the log | 1, behind both |
//! | the entries are linked | with the next change, or with the commit |
//! | commit: the end of the arena's used part; then the end of the log | 2 |
//!
//! The engine `log` is its twin; `lsm` has what they share.

mod compaction;
mod directory;
mod recovery;
mod store;

pub use store::{NvmLogSettings, NvmLogStructured};
