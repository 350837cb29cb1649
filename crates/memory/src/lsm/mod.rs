//! The common code of the engines `log` and `nvm_log`: an LSM tree (O'Neil and others 1996) with a MemTable,
//! runs, Bloom filters and merges.
//!
//! ```text
//!   changes ──> entries ──> MemTable ──full──> run of level 0 ──merge──> run of level 1 ──merge──> ...
//!   view:  reads the MemTable and all runs, the newest entry first
//! ```
//!
//! The engines differ in how a MemTable survives a crash, and in where runs are: in files, or in the region.
//!
//! This module does not know logs, recovery, or how a set of runs becomes durable.

pub(crate) mod arena;
pub(crate) mod block_cache;
pub(crate) mod bloom;
pub(crate) mod changes;
pub(crate) mod compaction;
pub(crate) mod cursor;
pub(crate) mod entry;
pub(crate) mod key;
pub(crate) mod levels;
pub(crate) mod media;
pub(crate) mod medium;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod merge_room;
pub(crate) mod node;
pub(crate) mod run;
pub(crate) mod skip_list;
pub(crate) mod store;
pub(crate) mod tables;
pub(crate) mod view;
pub(crate) mod writer;
