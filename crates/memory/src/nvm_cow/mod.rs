//! The engine `nvm_cow`: a copy-on-write B+tree in persistent memory with pointers to tuples (NVM-CoW of
//! Arulraj, Pavlo and Dulloor 2015, section 4.2; decision 0115).
//!
//! | call | what it stores |
//! |---|---|
//! | insert, replace, patch | a tuple in a new chunk, which is written back; its pointer in a dirty node |
//! | delete | a dirty node without the entry |
//! | rollback | the same dirty nodes, with the entries of before |
//! | commit | nothing, unless the batch has as many transactions as it may have |
//! | sync | ends the batch |
//!
//! The end of a batch
//! 1. Dirty nodes, the dirty directory, and the list of new and old chunks are written back. A fence makes
//!    them and the tuples durable.
//! 2. The new chunks become active. A fence makes that durable.
//! 3. The master record, one word, flips to the dirty directory. A fence makes that durable.
//! 4. The old chunks are freed, with a fence.
//!
//! A crash before step 3 is durable leaves the current directory, and a crash behind it leaves the new one.
//! The list tells the next start which chunks to free.
//!
//! What it does not know: the other engines, except that `cow` has the same tree and the same directories.

mod directory;
mod list;
mod nodes;
mod recovery;
mod space;
mod store;

pub use store::{NvmCow, NvmCowSettings};
