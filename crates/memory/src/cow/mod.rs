//! The engine `cow`: a copy-on-write B+tree in a file, with a page cache (CoW of Arulraj, Pavlo and Dulloor
//! 2015, section 3.2; decision 0115).
//!
//! | call | what it changes |
//! |---|---|
//! | insert, replace, patch, delete | dirty nodes, which are in frames of the page cache only |
//! | rollback | the same dirty nodes: they get their old entries back |
//! | commit | nothing; it ends the batch if that has reached its limit of transactions or dirty nodes |
//! | sync | ends the batch |
//!
//! The end of a batch (group commit)
//! 1. Dirty nodes are written into their pages, and the dirty directory and its bitmap into theirs. An
//!    `fsync` makes them durable.
//! 2. The master record, one word, flips to the dirty directory. An `fsync` makes that durable.
//! 3. Pages that only the old directory needs can be used again.
//!
//! There is no log. A start reads the master record, a directory and its bitmap, and has nothing to undo.
//!
//! This module does not know the other engines. `nvm_cow` has the same tree and the same directories.

mod cache;
mod directory;
mod nodes;
mod pages;
mod recovery;
mod row;
mod shrink;
mod space;
mod store;

pub use store::{Cow, CowSettings};
