//! varve-engine: rows, keys, B+trees, versions, locks, the catalog and the embedded `Database`.
//!
//! Invariants
//! 1. Every change of a page goes through a mini-transaction of the pager.
//! 2. To a tree, a key is a byte string. Code above the tree knows what the bytes mean.
//!
//! This crate does not know SQL text or sockets.

mod advisory;
mod array;
mod as_of;
mod background;
mod backup;
mod bell;
pub mod catalog;
mod check;
mod context;
mod core;
mod database;
mod ddl;
mod ddl_columns;
mod ddl_databases;
mod ddl_objects;
mod ddl_sequences;
mod deadlock;
mod entry_columns;
mod error;
mod fixed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod home_leaves;
mod ids;
mod in_memory;
mod interval;
mod io;
pub mod key;
mod leaf_facts;
mod leaf_rows;
mod lock_queue;
mod locks;
mod marks;
mod modes;
pub mod node;
pub mod numeric;
mod object_ids;
mod options;
pub mod overflow;
mod paged;
mod partition_hash;
mod partitions;
mod procedure;
mod purge;
mod purge_queue;
mod quota;
mod ranges;
mod reader;
mod recovery;
pub mod redo;
mod registry;
mod reshape;
mod root;
pub mod row;
mod row_access;
mod row_locks;
mod sequence;
mod serial;
pub(crate) mod share;
mod sizes;
mod sort;
mod spool;
mod status;
mod system_tables;
pub mod table_counters;
mod table_engine;
mod table_lock;
mod tables_region;
mod tablespaces;
mod transaction;
pub mod tree;
pub mod types;
mod undo;
mod versions;
mod visible_version;
mod waits;

pub use advisory::{Locker, SessionLocks};
pub use array::{Array, ArrayRef, Elements};
pub use as_of::PastMoment;
pub use backup::{Backup, restore};
pub use catalog::predefined;
pub use catalog::{
    About, Action, BOOTSTRAP_NAME, BOOTSTRAP_NAME_BEFORE, BOOTSTRAP_ROLE, Bound, Catalog, Check, ColumnDef,
    Comment, DatabaseDef, DeriveKey, Derived, Deriver, Edge, ForeignKey, Grant, Identity, IndexDef, IndexId,
    KeyPart, LeafLayout, Membership, Named, NewIndex, NewSequence, NewTable, NewView, ObjectId, POSTGRES,
    POSTGRES_NAME, Part, PartitionMethod, Partitions, PrimaryKey, Rights, RoleDef, SchemaDef, Secret,
    SequenceDef, SequenceId, SequenceState, StorageOptions, TEMPLATE0, TEMPLATE1, Table, TableDef, TableId,
    Use, ViewColumn, ViewDef,
};
pub use check::CheckReport;
pub use database::{Database, DatabaseStats};
pub use error::{Error, KeyPartValue, ObjectKind, Result};
pub use home_leaves::{HomeFacts, HomeLeaves, fences_hash};
pub use interval::{DAY_US, Interval};
pub use io::{DeviceRow, DeviceTrace, IoRow};
pub use leaf_facts::{LeafBounds, LeafNumber};
pub use leaf_rows::{LeafColumn, LeafCounts, LeafRows, OnShown, Shown};
pub use lock_queue::AdvisoryKey;
pub use locks::{LockInfo, LockOwner, Locked};
pub use modes::LockMode;
pub use numeric::{Numeric, NumericError, NumericRef, Special, lifted};
pub use options::Options;
pub use partition_hash::{is_hashable, key_hash};
pub use partitions::PartitionSpace;
pub use procedure::Partition;
pub use quota::TemporaryQuota;
pub use reader::Reader;
pub use reshape::{ColumnSource, Compute};
pub use row::{RowError, RowImage, RowRef, RowSchema};
pub use row_access::{Change, Isolation, OnRow, Outcome, ScanIndex, ScanSpec, WhenHeld};
pub use sequence::SequenceDrawer;
pub use share::LockStrength;
pub use sizes::{Savings, Sizes};
pub use spool::Spool;
pub use table_counters::TableAccesses;
pub use table_engine::Run;
pub use transaction::{SavepointId, Transaction};
pub use tree::Estimate;
pub use types::{ColumnType, Datum, Moment, Value};
pub use varve_device::{PlantedFault, plant_panic, planted_panic};
pub use varve_memory::{EngineKind, MemoryTables, TablesRegion};
pub use varve_pager::{
    Algorithm, Archiver, BackupBase, BackupOptions, BackupProgress, BackupStart, Compression, LevelReport,
    LogStats, Lsn, NewTablespace, PageCounting, PageCounts, PageId, PageMeter, PagerStats, ProtectionKind,
    RestartEstimate, SpaceId, StoredPages, Tablespace,
};
pub use waits::{LongWait, WaitNotice};
