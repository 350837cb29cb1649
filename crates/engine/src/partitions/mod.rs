//! The partitions of the memory-oriented table engines: their stores in a region of persistent memory
//! (decisions 0112 and 0117).
//!
//! Invariants
//! 1. A store that the region has is opened at the start. Other stores are made with their first table. A
//!    store that cannot be opened is left as it is: each use of its tables fails, and no table is made there.
//! 2. A call that changes a store is made by the transaction that has locked the partition
//!    ([`PartitionId::tag`]). The latch of a store only protects its memory.
//! 3. Every table of the region has an owner of its own.
//!
//! This module does not know definitions of tables or transactions.

mod space;
mod work;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use parking_lot::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use smallvec::SmallVec;
use varve_memory::{
    Allocator, EngineKind, Owner, Store, StoreError, StoreTable, TABLE_OWNER_MIN, TableNo, TablesRegion,
};

use crate::error::{Error, Result};
use crate::ids::TreeAddress;
use crate::lock_queue::Tag;

pub use space::PartitionSpace;
pub(crate) use work::{DurableWrite, PartitionWork, Seal, StoreMarks};

/// A partition of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionId {
    pub(crate) kind: EngineKind,
    pub(crate) number: u16,
}

/// A table of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoredTable {
    pub(crate) partition: PartitionId,
    pub(crate) table: TableNo,
}

/// The tables of stores that have the rows of one SQL table.
pub(crate) type StoredTables = SmallVec<[StoredTable; 1]>;

/// The store of a partition.
#[derive(Default)]
enum Slot {
    /// The partition has had no table yet.
    #[default]
    Empty,
    Open(Box<dyn Store>),
    /// The store could not be opened, for this reason.
    Unusable(StoreError),
}

/// All partitions. There are none before [`Partitions::open`].
#[derive(Default)]
pub(crate) struct Partitions {
    opened: OnceLock<Opened>,
    /// Tables are made one at a time, so that no two get the same owner.
    making: Mutex<()>,
}

struct Opened {
    allocator: Arc<Allocator>,
    /// The path of the file, for messages.
    place: String,
    /// A slot for each partition of each engine.
    slots: Box<[RwLock<Slot>]>,
    /// The number of partitions of each engine.
    count: u16,
}

impl PartitionId {
    /// Returns the lock that a transaction takes before it uses the partition.
    pub(crate) const fn tag(self) -> Tag {
        Tag::Partition(self.kind, self.number)
    }
}

impl StoredTable {
    /// Returns the table at the address in a definition, or `None` for another engine.
    pub(crate) fn of(engine: &str, place: TreeAddress) -> Option<StoredTable> {
        let kind = EngineKind::from_name(engine)?;
        let [number, table] = [(place.root >> 16) as u16, place.root as u16];
        Some(StoredTable { partition: PartitionId { kind, number }, table: TableNo::new(table) })
    }

    /// Returns the address that the definition of the table with this id stores.
    pub(crate) fn address(self, table_id: u32) -> TreeAddress {
        let root = u32::from(self.partition.number) << 16 | u32::from(self.table.number());
        // No segment of a page file has a number with this bit.
        TreeAddress::in_data(root, table_id | 1 << 31)
    }
}

impl Opened {
    fn slot(&self, partition: PartitionId) -> Option<&RwLock<Slot>> {
        let engine = EngineKind::ALL.iter().position(|kind| *kind == partition.kind)?;
        let is_there = partition.number < self.count;
        let at = engine * usize::from(self.count) + usize::from(partition.number);
        self.slots.get(at).filter(|_| is_there)
    }

    fn open_stores(&self) {
        for kind in EngineKind::ALL {
            for number in (0..self.count).filter(|number| kind.has_store(&self.allocator, *number)) {
                if let Some(slot) = self.slot(PartitionId { kind, number }) {
                    *slot.write() =
                        kind.open(&self.allocator, number).map_or_else(Slot::Unusable, Slot::Open);
                }
            }
        }
    }

    /// Returns the error that each use of a partition gets if its store could not be opened.
    fn unusable(&self, partition: PartitionId) -> Option<Error> {
        let Slot::Unusable(why) = &*self.slot(partition)?.read_recursive() else { return None };
        let (engine, number) = (partition.kind.name(), partition.number);
        let (place, why) = (self.place.clone(), why.clone());
        Some(Error::StoreUnusable { engine, partition: number, place, why })
    }
}

impl Partitions {
    /// Opens the stores of a region at the start, and drops the tables that the catalog does not name.
    ///
    /// Fails if a table that the catalog names is missing in a store that can be opened.
    pub(crate) fn open(&self, region: &TablesRegion, named: &HashSet<StoredTable>) -> Result<()> {
        let (allocator, place) = (Arc::clone(region.allocator()), region.location().to_owned());
        let count = region.partitions();
        let slots = (0..EngineKind::ALL.len() * usize::from(count)).map(|_| RwLock::default()).collect();
        let opened = Opened { allocator, place, slots, count };
        opened.open_stores();
        let is_first = self.opened.set(opened).is_ok();
        assert!(is_first, "the stores are opened twice");
        let stored: HashSet<StoredTable> = self.tables().map(|(at, _)| at).collect();
        let absent = named.difference(&stored);
        let missing = absent.filter(|at| self.unusable(at.partition).is_none()).count();
        if missing > 0 {
            return Err(Error::RegionLost { place: region.location().to_owned(), tables: missing });
        }
        stored.difference(named).try_for_each(|orphan| self.drop_table(*orphan))
    }

    /// Returns the tables of all stores.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (StoredTable, StoreTable)> + '_ {
        self.partitions().flat_map(|partition| {
            let tables = self.read(partition).map_or_else(|_| Vec::new(), |store| store.tables());
            tables.into_iter().map(move |found| (StoredTable { partition, table: found.number }, found))
        })
    }

    /// Returns all partitions of all engines.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let count = self.opened.get().map_or(0, |opened| opened.count);
        let numbers = move |kind| (0..count).map(move |number| PartitionId { kind, number });
        EngineKind::ALL.into_iter().flat_map(numbers)
    }

    fn slot(&self, partition: PartitionId) -> Result<&RwLock<Slot>> {
        self.opened.get().and_then(|opened| opened.slot(partition)).ok_or_else(|| no_store(partition))
    }

    /// Returns the error that each use of a partition gets if its store could not be opened.
    fn unusable(&self, partition: PartitionId) -> Option<Error> {
        self.opened.get()?.unusable(partition)
    }

    /// Returns the errors of all partitions whose stores could not be opened.
    pub(crate) fn all_unusable(&self) -> impl Iterator<Item = Error> + '_ {
        self.partitions().filter_map(|partition| self.unusable(partition))
    }

    /// Returns the error that says why a partition has no open store.
    #[cold]
    fn not_open(&self, partition: PartitionId) -> Error {
        self.unusable(partition).unwrap_or_else(|| no_store(partition))
    }

    /// Returns the store of a partition, for reading.
    pub(crate) fn read(&self, partition: PartitionId) -> Result<MappedRwLockReadGuard<'_, Box<dyn Store>>> {
        // The lock is recursive, because the callback of a scan may read rows of another table in the
        // partition.
        let store = self.slot(partition)?.read_recursive();
        let open = RwLockReadGuard::try_map(store, |slot| match slot {
            Slot::Open(store) => Some(store),
            _ => None,
        });
        open.map_err(|slot| {
            drop(slot);
            self.not_open(partition)
        })
    }

    /// Returns the store of a partition, for changes.
    pub(crate) fn write(&self, partition: PartitionId) -> Result<MappedRwLockWriteGuard<'_, Box<dyn Store>>> {
        let store = self.slot(partition)?.write();
        let open = RwLockWriteGuard::try_map(store, |slot| match slot {
            Slot::Open(store) => Some(store),
            _ => None,
        });
        open.map_err(|slot| {
            drop(slot);
            self.not_open(partition)
        })
    }

    /// Returns the partitions of an engine.
    pub(crate) fn of_engine(&self, kind: EngineKind) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions().filter(move |partition| partition.kind == kind)
    }

    /// Returns the partition of an engine with the fewest tables. Fails with 55000 if there is no region.
    pub(crate) fn choose(&self, kind: EngineKind) -> Result<PartitionId> {
        let own = self.of_engine(kind).filter(|partition| self.unusable(*partition).is_none());
        let tables = |partition: &PartitionId| self.read(*partition).map_or(0, |store| store.tables().len());
        own.min_by_key(tables).ok_or_else(|| {
            let unusable = self.of_engine(kind).find_map(|partition| self.unusable(partition));
            unusable.unwrap_or(Error::NoRegion { engine: kind.name() })
        })
    }

    /// Makes a table in a partition that the caller has locked and that has no open transaction.
    pub(crate) fn create_table(&self, partition: PartitionId, indexes: usize) -> Result<StoredTable> {
        let _one = self.making.lock();
        let owner = self.free_owner()?;
        self.open_slot(partition)?;
        let table = self.write(partition)?.create_table(owner, indexes)?;
        Ok(StoredTable { partition, table })
    }

    fn open_slot(&self, partition: PartitionId) -> Result<()> {
        let mut slot = self.slot(partition)?.write();
        if let (Slot::Empty, Some(opened)) = (&*slot, self.opened.get()) {
            *slot = Slot::Open(partition.kind.open(&opened.allocator, partition.number)?);
        }
        Ok(())
    }

    fn free_owner(&self) -> Result<Owner> {
        let mut used: HashSet<u16> = self.tables().map(|(_, table)| table.owner.number()).collect();
        // These include the owners of tables in stores that cannot be opened.
        used.extend(self.allocator().iter().flat_map(|allocator| allocator.owners()).map(Owner::number));
        let free = (TABLE_OWNER_MIN..).find(|number| !used.contains(number)).and_then(Owner::new);
        free.ok_or_else(|| Error::Unsupported { what: "another table in persistent memory".into() })
    }

    /// Drops a table. The caller has locked its partition.
    pub(crate) fn drop_table(&self, at: StoredTable) -> Result<()> {
        Ok(self.write(at.partition)?.drop_table(at.table)?)
    }

    /// Returns the allocator, if there is a region.
    pub(crate) fn allocator(&self) -> Option<&Arc<Allocator>> {
        self.opened.get().map(|opened| &opened.allocator)
    }
}

fn no_store(partition: PartitionId) -> Error {
    Error::NoRegion { engine: partition.kind.name() }
}
