//! The copy-on-write B+tree of the engines `cow` and `nvm_cow` (Arulraj, Pavlo and Dulloor 2015, sections 3.2
//! and 4.2; decision 0115).
//!
//! A batch of transactions copies each node before it first changes it, up to the root. So the tree that was
//! current before the batch stays whole. The two trees share all other nodes. Later changes of the batch are
//! made in the copies, which are *dirty*.
//!
//! | file | what it has |
//! |---|---|
//! | `nodes` | what an engine does for the tree: where nodes are, which are dirty |
//! | `node` | the format of a node, and changes within it |
//! | `tree` | the way from the root to a leaf, with copies; entries |
//! | `split` | nodes that are full |
//! | `merge` | nodes with few entries |
//! | `scan` | ranges of keys |
//! | `roots` | the roots of all indexes, and their format in a directory |
//! | `undo` | what undoes the changes of the open transaction |
//! | `trees` | changes of indexes in transactions |
//! | `medium` | what an engine does for the store: rows, batches |
//! | `store` | the store: rows with their indexes, transactions, batches |
//!
//! This module does not know where nodes and rows are, or how a batch becomes durable.

mod medium;
mod merge;
mod node;
mod nodes;
mod roots;
mod scan;
mod split;
mod store;
mod tree;
mod trees;
mod undo;

pub(crate) use medium::CowMedium;
pub(crate) use node::{kept_ranges, value_bytes_max};
pub(crate) use nodes::{NodeId, NodeStore, RowPatch, StoredRow, TreeNo};
pub(crate) use roots::{Directories, Line, Roots};
pub use store::CowStore;
pub(crate) use store::lacks_entry;
pub(crate) use trees::Trees;
