//! The engine `nvm_cow`: a copy-on-write B+tree in persistent memory with pointers to tuples (NVM-CoW of
//! Arulraj, Pavlo and Dulloor 2015, section 4.2; decision 0115).
//!
//! | call | what it stores |
//! |---|---|
//! | insert, replace | a tuple in a new chunk; its pointer in a dirty node |
//! | patch | as insert; but a tuple that the batch has made is changed in place |
//! | delete | a dirty node without the entry |
//! | rollback | the same dirty nodes and tuples: they get their old entries and bytes back |
//! | commit | nothing; it ends the batch if that has reached its limit of transactions |
//! | sync | ends the batch |
//!
//! Until the end of the batch, dirty nodes and new tuples are images in DRAM (`images.rs`). Their chunks are
//! reserved, so the end of the batch needs no room. It first stores the images into their chunks.
//!
//! The end of a batch
//! 1. Dirty nodes, the dirty directory, and the list of new and old chunks are written back. A fence makes
//!    them and the tuples durable.
//! 2. The new chunks become active. A fence makes that durable.
//! 3. The master record, one word, flips to the dirty directory. A fence makes that durable.
//! 4. The old chunks are freed, with a fence.
//!
//! A crash before step 3 is durable leaves the current directory, and a crash after it leaves the new one.
//! The next start finds the chunks to free in the list.
//!
//! This module does not know the other engines. `cow` has the same tree and the same directories.

mod directory;
mod images;
mod list;
mod nodes;
mod recovery;
mod space;
mod store;

pub use store::{NvmCow, NvmCowSettings};
