//! The engine `nvm_inplace`: tuples that are updated in place, and indexes, both in persistent memory (NVM-InP
//! of Arulraj, Pavlo and Dulloor 2015, section 4.1; decision 0112).
//!
//! | change | before the first fence | behind it, durable with the next fence |
//! |---|---|---|
//! | insert | the tuple; an entry of each index that is not valid yet; the undo entry | the tuple active; its entries valid |
//! | replace | as insert | the tuple active; entries lead to it |
//! | patch | the undo entry with the bytes before | the bytes |
//! | delete | the undo entry | the entries not valid |
//!
//! A commit has a fence for what is behind the first fence, and one for the word that ends the log. Tuples that
//! the transaction removed are freed behind it; a phase of the log says so until that is done.
//!
//! What it does not know: the other engines.

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
