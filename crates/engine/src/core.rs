//! The core: data that all parts of an open database share.
//!
//! Invariants
//! 1. Latches are taken in this order: stripes of `rows` and `unique`, tree latches, undo latches, allocation
//!    latches, the append section of the log, the status table.
//! 2. A transaction id is used only if it is below the durably reserved limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use varve_device::{Directory, planted};
use varve_memory::TablesRegion;
use varve_pager::{Lsn, Pager, SpaceId};

use crate::catalog::Deriver;
use crate::catalog::{CatalogState, Kept, ObjectChange, Table, TableDef, TableId};
use crate::context::Loser;
use crate::error::Result;
use crate::ids::{Owner, TxnId};
use crate::leaf_facts::LeafFacts;
use crate::partitions::Partitions;
use crate::purge_queue::PurgeState;
use crate::registry::Registry;
use crate::root::Root;
use crate::serial::Recent;
use crate::share::Shares;
use crate::status::{Status, StatusTable};
use crate::table_counters::AllCounters;
use crate::table_engine::{CoreRef, TableEngine};
use crate::undo::SegmentPool;
use crate::waits::Waits;

/// Transaction ids reserved by one change of the root page.
const ID_BLOCK: u64 = 1 << 14;
const STRIPES: usize = 256;

/// An array of mutexes. A hash chooses one.
pub(crate) struct Stripes(Box<[Mutex<()>]>);

impl Stripes {
    pub(crate) fn new() -> Self {
        Self((0..STRIPES).map(|_| Mutex::new(())).collect())
    }

    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.0[hash as usize % STRIPES].lock()
    }
}

/// Returns the FNV-1a hash of a tree and a key. It chooses a stripe, and identifies what a waiting
/// transaction wants.
pub(crate) fn hash_key(tree: u32, key: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::from(tree);
    let hash = key.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 32)) & (u64::MAX >> 1)
}

/// Counters.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
}

/// The parts of an open database.
pub(crate) struct Core {
    pub(crate) pager: Pager,
    pub(crate) root: Root,
    pub(crate) status: StatusTable,
    pub(crate) registry: Registry,
    pub(crate) waits: Waits,
    pub(crate) shares: Shares,
    pub(crate) recent: Recent,
    pub(crate) segments: SegmentPool,
    pub(crate) purge: PurgeState,
    pub(crate) catalog: CatalogState,
    /// Stripes by row: a rollback step and purge of one row exclude each other.
    pub(crate) rows: Stripes,
    /// Stripes by unique key: checking and inserting a key are one atomic step.
    pub(crate) unique: Stripes,
    pub(crate) counters: Counters,
    /// What scans have found out about leaves by columns.
    pub(crate) leaf_facts: LeafFacts,
    /// The accesses to each table.
    pub(crate) accesses: AllCounters,
    /// Transaction ids below this are durably reserved.
    pub(crate) id_limit: AtomicU64,
    pub(crate) engines: Vec<Box<dyn TableEngine>>,
    /// The partitions of the memory-oriented engines.
    pub(crate) partitions: Partitions,
    /// Transactions to be undone in the background.
    pub(crate) losers: Mutex<Vec<Loser>>,
    /// Device of sort runs.
    pub(crate) temporary: Arc<dyn Directory>,
    /// Understands indexes over expressions.
    pub(crate) derive: Option<Deriver>,
    /// The region with the tables of the memory-oriented engines. It is set when the catalog is known, if
    /// there is a region.
    pub(crate) memory: OnceLock<TablesRegion>,
}

/// How a version looks from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Visible.
    Seen,
    /// Written by a transaction that the snapshot does not see.
    Unseen,
    /// The copy is out of date: read the row again.
    Stale,
}

/// What a reader sees: everything committed up to `snapshot`, and its own changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) snapshot: Lsn,
    pub(crate) me: TxnId,
    /// The floor before the first row was read.
    pub(crate) floor: TxnId,
}

/// Whether a transaction may write a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAccess {
    /// The newest version is this transaction's.
    Mine,
    /// Committed at this LSN, or before everything.
    Free(Lsn),
    /// Another transaction has to end first.
    Busy(Owner),
}

impl Core {
    /// Returns a new view. The caller has registered the snapshot.
    #[inline]
    pub(crate) fn view(&self, snapshot: Lsn, me: TxnId) -> View {
        View { snapshot, me, floor: self.status.floor() }
    }

    /// Returns whether a view sees what `txn` wrote.
    #[inline]
    pub(crate) fn sight(&self, view: &View, txn: TxnId) -> Sight {
        if txn < view.floor || (txn == view.me && view.me != TxnId::NONE) {
            return Sight::Seen;
        }
        match self.status.get(txn) {
            Status::Old => Sight::Seen,
            Status::Committed(lsn, _) if lsn <= view.snapshot => Sight::Seen,
            Status::Committed(..) | Status::Active(_) => Sight::Unseen,
            Status::Aborted | Status::Forgotten => Sight::Stale,
        }
    }

    /// Returns whether `me` may write a row whose newest version is by `txn`. The caller has the row's latch.
    pub(crate) fn hold(&self, txn: TxnId, me: TxnId) -> WriteAccess {
        if txn == me && me != TxnId::NONE {
            return WriteAccess::Mine;
        }
        if txn < self.status.floor() {
            return WriteAccess::Free(Lsn::ZERO);
        }
        match self.status.get(txn) {
            Status::Active(owner) => WriteAccess::Busy(owner),
            // A row is unlocked only when the commit is durable.
            Status::Committed(lsn, owner) if lsn > self.pager.durable_lsn() => WriteAccess::Busy(owner),
            Status::Committed(lsn, _) => WriteAccess::Free(lsn),
            Status::Old | Status::Aborted | Status::Forgotten => WriteAccess::Free(Lsn::ZERO),
        }
    }

    /// Gives a new transaction id to `owner`.
    pub(crate) fn assign_id(&self, owner: Owner) -> Result<TxnId> {
        loop {
            let limit = self.id_limit.load(Ordering::Acquire);
            if let Some(id) = self.status.assign(owner, TxnId::new(limit)) {
                return Ok(id);
            }
            self.reserve_ids(limit)?;
        }
    }

    #[cold]
    fn reserve_ids(&self, seen: u64) -> Result<()> {
        let next = seen + ID_BLOCK;
        let _one = self.root.lock();
        if self.id_limit.load(Ordering::Acquire) == seen {
            if !planted("transactions: ids are not reserved") {
                self.root.set_next_txn(&self.pager, next)?;
            }
            self.id_limit.store(next, Ordering::Release);
        }
        Ok(())
    }

    /// Forgets a tree whose segment is about to be dropped.
    pub(crate) fn forget_tree(&self, owner: u32) {
        self.catalog.trees.forget(owner);
        self.pager.forget_compression(SpaceId::DATA, owner);
    }

    /// Tells the pager how the tables are stored that a transaction has changed. The transaction has
    /// committed and still locks these tables. Only their last definitions count: trees of earlier ones may
    /// be purged already.
    pub(crate) fn tell_storage<'c>(&self, changes: impl Iterator<Item = &'c ObjectChange>) {
        let mut last: HashMap<TableId, &TableDef> = HashMap::new();
        for change in changes {
            match change {
                ObjectChange::Table(id, Some(table)) => drop(last.insert(*id, table.def())),
                ObjectChange::Table(id, None) => drop(last.remove(id)),
                _ => {}
            }
        }
        let told =
            |def: &TableDef| def.owners().map(|owner| (owner, def.storage.compression)).collect::<Vec<_>>();
        let owners: Vec<_> = last.values().flat_map(|def| told(def)).collect();
        self.pager.set_compression(SpaceId::DATA, &owners);
    }

    /// Opens a definition.
    pub(crate) fn open_table(&self, def: TableDef) -> Arc<Table> {
        let def = Arc::new(def);
        let store = self.engine(&def.engine).open(&CoreRef(self), &def);
        let trees = &self.catalog.trees;
        let (rewriter, creator) = (trees.rewriter(def.place.owner), trees.creator(def.place.owner));
        let stored = def.stored_tables();
        let lock = self.catalog.lock_of(def.id);
        let counters = self.accesses.of(def.id, def.indexes.iter().map(|index| index.id));
        let kept = Kept { rewriter, creator, stored, counters };
        let table = Arc::new(Table::new(Arc::clone(&def), store, lock, kept));
        if def.handle.set(Arc::downgrade(&table)).is_err() {
            panic!("a table definition is opened twice");
        }
        table
    }

    /// Returns a table engine by name. Definitions name only engines that exist.
    fn engine(&self, name: &str) -> &dyn TableEngine {
        let engine = self.engines.iter().find(|engine| engine.name() == name);
        engine.map_or(&*self.engines[0], |engine| &**engine)
    }
}
