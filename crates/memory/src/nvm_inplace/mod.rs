//! The engine `nvm_inplace`: tuples that are updated in place, and indexes, both in persistent memory (NVM-InP
//! of Arulraj, Pavlo and Dulloor 2015, section 4.1; decision 0112).
//!
//! | change | before the first fence | after it, durable with the next fence |
//! |---|---|---|
//! | insert | the tuple; invalid index entries; the undo entry | the tuple active; its entries valid |
//! | replace | as insert | the tuple active; entries lead to it |
//! | patch | the undo entry with the old bytes | the new bytes |
//! | delete | the undo entry | the entries invalid |
//!
//! A commit has a fence for the stores of the third column, and one for the word that ends the log. Tuples
//! that the transaction removed are freed after the commit. Until that is done, the log is in a phase that
//! tells the next start to free them.
//!
//! This module does not know the other engines.

mod index;
mod lookup_cache;
mod node;
mod recovery;
mod removed;
mod scan;
mod split;
mod store;
mod tables;

pub use store::{NvmInplace, NvmInplaceSettings};
