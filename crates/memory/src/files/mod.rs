//! Files in persistent memory, with the calls of a file system ([`Files`]).
//!
//! The engines `inplace`, `cow` and `log` of Arulraj, Pavlo and Dulloor (2015) keep logs, checkpoints and
//! sorted runs in files. The paper uses the file system PMFS, whose files are in persistent memory too
//! (section 2.2). This folder takes the place of PMFS. Its files are on the same allocator as all other data,
//! and each call takes the time of a system call, which is a parameter (decision 0112).
//!
//! | call | durable | fences |
//! |---|---|---|
//! | create, rename | when it returns | 3 and more |
//! | remove, truncate | when it returns | 1, and 3 for each 7 blocks that are freed |
//! | write, append | after the next `fsync` of the file | 3 for each 7 new blocks |
//! | reserve | when it returns | 3 for each 7 new blocks |
//! | `fsync` | | 1 for the bytes, and 1 for the length if it has changed |
//!
//! Until the `fsync`, a crash may lose each cache line of a write. The length of a file in the region grows
//! only in an `fsync`, after the bytes are durable. So a crash leaves an appended range as a whole or not at
//! all, and never bytes of a chunk's earlier owner.
//!
//! This module does not know the content of files.

mod calls;
mod directory;
mod dirty;
mod error;
mod file;
mod format;
mod map;
mod open_files;
mod space;

pub use calls::{CallCounts, FileCosts};
pub use error::{FileError, FileResult};
pub use open_files::{FileHandle, Files};
