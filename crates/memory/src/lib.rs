//! The crate varve-memory has data structures that are stored in a region of persistent memory.
//!
//! The crate has the allocator ([`Allocator`]) of Arulraj, Pavlo and Dulloor ("Let's Talk About Storage &
//! Recovery Methods for Non-Volatile Memory Database Systems", SIGMOD 2015, section 2.3). Table engines for
//! persistent memory are built on it. They have one interface ([`Store`]). There are six engines so far:
//! [`NvmInplace`], [`Inplace`], [`Cow`], [`NvmCow`], [`LogStructured`] and [`NvmLogStructured`]. Files in the
//! region ([`Files`]) are built on it, too.
//!
//! Invariants
//! 1. A change is durable when its operation returns. Only operations whose name says so are an exception
//!    ([`Allocator::activate_unfenced`]).
//! 2. A crash at any instruction leaves every chunk free or active. No chunk is lost, and no two overlap.
//! 3. No pointer that a caller passes makes this crate panic.
//!
//! This crate does not know types and definitions of tables, SQL or pages.

mod allocator;
mod change_numbers;
mod chunks;
mod classes;
mod cow;
mod cow_tree;
mod delete_reserve;
mod engine_kind;
mod error;
mod files;
mod free_owner;
mod heap;
mod inplace;
mod intent;
mod layout;
mod log;
mod lsm;
mod nvm_cow;
mod nvm_inplace;
mod nvm_log;
mod open;
mod pointer;
mod pool;
mod publish;
mod roots;
mod sizes;
mod slab;
mod space;
mod state;
mod store;
mod store_error;
mod tables_file;
mod tuple;
mod undo_log;
mod wal;

pub use allocator::ActiveChunk;
pub use cow::{Cow, CowSettings};
pub use engine_kind::{EngineKind, PARTITIONS_MAX, TABLE_OWNER_MIN};
pub use error::{MemoryError, Result};
pub use files::{CallCounts, FileCosts, FileError, FileHandle, FileResult, Files};
pub use inplace::{Inplace, InplaceSettings};
pub use log::{LogSettings, LogStructured};
pub use lsm::levels::LsmSettings;
pub use nvm_cow::{NvmCow, NvmCowSettings};
pub use nvm_inplace::{NvmInplace, NvmInplaceSettings};
pub use nvm_log::{NvmLogSettings, NvmLogStructured};
pub use pointer::{Owner, Pointer, Word};
pub use publish::Step;
pub use sizes::{CHUNK_BYTES_MIN, ROOT_NAME_BYTES_MAX, ROOTS, SEGMENT_BYTES, STEPS_MAX};
pub use state::Allocator;
pub use store::{Commit, Direction, KeyRange, OnRow, Savepoint, Store, StoreTable, TableNo};
pub use store_error::{StoreError, StoreResult};
pub use tables_file::{
    MemoryTables, TABLES_FILE, TablesFileError, TablesFileResult, TablesFound, TablesNeed, TablesRegion,
    look_into_tables,
};
