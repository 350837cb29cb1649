//! The engine `nvm_log` (NVM-Log of Arulraj, Pavlo and Dulloor 2015, section 4.3): an LSM tree whose MemTables
//! are in persistent memory.
//!
//! A full MemTable becomes immutable and stays where it is. Merges write immutable MemTables into larger
//! runs. An undo log with pointers takes back the changes of the open transaction. A start replays nothing
//! and builds nothing, so its time does not depend on the data.
//!
//! | step of a change | fence |
//! |---|---|
//! | entries are stored into the MemTable's arena, and undo entries into the log | 1, after both |
//! | the entries are linked | with the next change, or with the commit |
//! | commit: the end of the arena's used part; then the end of the log | 2 |
//!
//! The engine `log` has the same LSM tree, with a write-ahead log and runs in files. The folder `lsm` has the
//! code that both engines share.

mod compaction;
mod directory;
mod recovery;
mod store;

pub use store::{NvmLogSettings, NvmLogStructured};
