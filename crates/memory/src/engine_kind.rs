//! Names of the table engines. Root names and owner numbers that identify the stores of a region.
//!
//! Invariants
//! 1. Each store of a region has a root name and an owner number of its own. Owners from
//!    [`TABLE_OWNER_MIN`] on are for tables.
//!
//! This module does not know which table is in which store.

use std::sync::Arc;

use crate::cow::{Cow, CowSettings};
use crate::inplace::{Inplace, InplaceSettings};
use crate::log::{LogSettings, LogStructured};
use crate::nvm_cow::{NvmCow, NvmCowSettings};
use crate::nvm_inplace::{NvmInplace, NvmInplaceSettings};
use crate::nvm_log::{NvmLogSettings, NvmLogStructured};
use crate::pointer::Owner;
use crate::state::Allocator;
use crate::store::Store;
use crate::store_error::{StoreError, StoreResult};

/// The largest number of partitions of a region. Each partition has a store for each engine.
pub const PARTITIONS_MAX: u16 = 32;
/// Owners from here on are for tables.
pub const TABLE_OWNER_MIN: u16 = 256;

/// A table engine of Arulraj, Pavlo and Dulloor (2015, sections 3 and 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineKind {
    /// InP: updates in place, with a log and checkpoints in files.
    Inplace,
    /// NVM-InP: updates in place in persistent memory.
    NvmInplace,
    /// CoW: a copy-on-write tree in a file, with a page cache.
    Cow,
    /// NVM-CoW: a copy-on-write tree of pointers to tuples in persistent memory.
    NvmCow,
    /// Log: an LSM tree with a log and runs in files.
    Log,
    /// NVM-Log: an LSM tree of MemTables in persistent memory.
    NvmLog,
}

/// `inplace` makes a checkpoint when its log is longer than this.
const CHECKPOINT_LOG_BYTES_MAX: u64 = 64 << 20;
/// In a small region `inplace` makes a checkpoint earlier: when its log is longer than one part in this
/// number of the region. So the log does not fill the region.
const CHECKPOINT_LOG_SHARE: u64 = 16;

impl EngineKind {
    /// All engines.
    pub const ALL: [EngineKind; 6] = [
        EngineKind::Inplace,
        EngineKind::NvmInplace,
        EngineKind::Cow,
        EngineKind::NvmCow,
        EngineKind::Log,
        EngineKind::NvmLog,
    ];

    /// Returns the name of the engine after `USING` in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::Inplace => "inplace",
            EngineKind::NvmInplace => "nvm_inplace",
            EngineKind::Cow => "cow",
            EngineKind::NvmCow => "nvm_cow",
            EngineKind::Log => "log",
            EngineKind::NvmLog => "nvm_log",
        }
    }

    /// Returns the engine with a name.
    pub fn from_name(name: &str) -> Option<EngineKind> {
        EngineKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the number of the engine. It is part of owner numbers in existing regions, so it never
    /// changes.
    pub const fn number(self) -> u16 {
        match self {
            EngineKind::Inplace => 0,
            EngineKind::NvmInplace => 1,
            EngineKind::Cow => 2,
            EngineKind::NvmCow => 3,
            EngineKind::Log => 4,
            EngineKind::NvmLog => 5,
        }
    }

    /// Returns the name of the root of the engine's store for a partition.
    fn root_name(self, partition: u16) -> String {
        format!("{} {partition}", self.name())
    }

    /// Returns whether a region has the engine's store for a partition. [`EngineKind::open`] makes a missing
    /// store.
    pub fn has_store(self, allocator: &Allocator, partition: u16) -> bool {
        allocator.root(&self.root_name(partition)).is_ok()
    }

    /// Returns the owner of those chunks of the engine's store that do not belong to a single table, or
    /// `None` if there is no such partition.
    pub fn store_owner(self, partition: u16) -> Option<Owner> {
        Owner::new(1 + self.number() * PARTITIONS_MAX + partition).filter(|_| partition < PARTITIONS_MAX)
    }

    /// Opens the store of a partition. If there is none, makes an empty one.
    ///
    /// Errors: the partition is not below [`PARTITIONS_MAX`], or the region is full or damaged.
    pub fn open(self, allocator: &Arc<Allocator>, partition: u16) -> StoreResult<Box<dyn Store>> {
        let owner =
            self.store_owner(partition).ok_or(StoreError::NoPartition { partition, most: PARTITIONS_MAX })?;
        let checkpoint_log_bytes =
            CHECKPOINT_LOG_BYTES_MAX.min(allocator.capacity_bytes() / CHECKPOINT_LOG_SHARE);
        let (allocator, root) = (Arc::clone(allocator), self.root_name(partition));
        Ok(match self {
            EngineKind::NvmInplace => {
                Box::new(NvmInplace::open_with(allocator, &root, owner, NvmInplaceSettings::WITH_CACHE)?)
            }
            EngineKind::Cow => Box::new(Cow::open(allocator, &root, owner, CowSettings::default())?),
            EngineKind::NvmCow => Box::new(NvmCow::open(allocator, &root, owner, NvmCowSettings::default())?),
            EngineKind::Log => {
                Box::new(LogStructured::open(allocator, &root, owner, LogSettings::default())?)
            }
            EngineKind::NvmLog => {
                Box::new(NvmLogStructured::open(allocator, &root, owner, NvmLogSettings::default())?)
            }
            EngineKind::Inplace => {
                let settings = InplaceSettings { checkpoint_log_bytes, ..InplaceSettings::default() };
                Box::new(Inplace::open(allocator, &root, owner, settings)?)
            }
        })
    }
}

// The owners of the stores of all six engines are below the owners of tables.
const _: () = assert!(6 * PARTITIONS_MAX < TABLE_OWNER_MIN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_of_the_paper_has_its_name() {
        for name in ["inplace", "cow", "log", "nvm_inplace", "nvm_cow", "nvm_log"] {
            assert_eq!(EngineKind::from_name(name).map(EngineKind::name), Some(name));
        }
    }
}
