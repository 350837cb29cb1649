//! The current catalog, and data that outlives its versions: open trees, table locks, row id counters,
//! sequences.
//!
//! Invariants
//! 1. All users of a tree share the tree's structure mutex.
//! 2. Catalogs are published one at a time. Each is made from the previous catalog and the changes of one
//!    transaction.
//!
//! This module does not know how definitions are stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use varve_pager::{PageId, PageNo};

use super::defs::SequenceDef;
use super::{Catalog, ObjectChange, ObjectId, POSTGRES};
use crate::catalog::sequence_range::SequenceRange;
use crate::ids::{TreeAddress, TxnId};
use crate::object_ids::TableId;
use crate::table_lock::TableLock;
use crate::tree::{Tree, TreeKind};

/// Trees that are open, by the segment that owns them.
#[derive(Default)]
pub(crate) struct Trees {
    open: Mutex<HashMap<u32, Tree>>,
    row_ids: Mutex<HashMap<u32, Arc<AtomicU64>>>,
    /// For each clustered tree that has replaced another one without its older versions: the transaction that
    /// made it.
    rewriters: Mutex<HashMap<u32, TxnId>>,
    /// For each clustered tree of a table that was created since the database was opened: the transaction
    /// that created the table.
    creators: Mutex<HashMap<u32, TxnId>>,
}

impl Trees {
    pub(crate) fn clustered(&self, place: TreeAddress) -> Tree {
        self.open(place, TreeKind::Clustered)
    }

    pub(crate) fn secondary(&self, place: TreeAddress) -> Tree {
        self.open(place, TreeKind::Secondary)
    }

    fn open(&self, place: TreeAddress, kind: TreeKind) -> Tree {
        let root = PageId::new(place.space, PageNo(place.root));
        self.open.lock().entry(place.owner).or_insert_with(|| Tree::open(root, place.owner, kind)).clone()
    }

    /// Returns the next row id of a clustered tree, or 0 if it was not looked up yet.
    pub(crate) fn row_ids(&self, place: TreeAddress) -> Arc<AtomicU64> {
        Arc::clone(self.row_ids.lock().entry(place.owner).or_default())
    }

    /// Records that `txn` has made the clustered tree of this segment, which replaces another tree.
    pub(crate) fn note_rewriter(&self, owner: u32, txn: TxnId) {
        self.rewriters.lock().insert(owner, txn);
    }

    /// Returns the transaction that made this tree, if the tree has replaced another one.
    pub(crate) fn rewriter(&self, owner: u32) -> Option<TxnId> {
        self.rewriters.lock().get(&owner).copied()
    }

    /// Records that `txn` has created a table with the clustered tree of this segment.
    pub(crate) fn note_creator(&self, owner: u32, txn: TxnId) {
        self.creators.lock().insert(owner, txn);
    }

    /// Returns the transaction that created the table with this tree, if it is known.
    pub(crate) fn creator(&self, owner: u32) -> Option<TxnId> {
        self.creators.lock().get(&owner).copied()
    }

    /// Forgets a segment that is about to be dropped.
    pub(crate) fn forget(&self, owner: u32) {
        self.creators.lock().remove(&owner);
        self.rewriters.lock().remove(&owner);
        self.open.lock().remove(&owner);
        self.row_ids.lock().remove(&owner);
    }
}

/// The committed catalog, as seen from each database.
struct Current {
    postgres: Arc<Catalog>,
    others: HashMap<ObjectId, Arc<Catalog>>,
}

impl Current {
    fn new(catalog: Catalog) -> Self {
        let others = catalog.databases().map(|database| database.id).filter(|id| *id != POSTGRES);
        let others = others.map(|id| (id, Arc::new(catalog.of_database(id)))).collect();
        Self { postgres: Arc::new(catalog.of_database(POSTGRES)), others }
    }
}

/// The current catalog, and data that outlives its versions.
pub(crate) struct CatalogState {
    current: RwLock<Current>,
    /// The version of `current`. Each statement compares it with the version that it knows. Reading it needs
    /// no latch, and `current` has one latch for all threads.
    version: AtomicU64,
    publishing: Mutex<()>,
    next_version: AtomicU64,
    pub(crate) trees: Trees,
    locks: Mutex<HashMap<TableId, Arc<TableLock>>>,
    /// The reserved values, by the row of the system table for the sequence.
    sequences: Mutex<HashMap<u32, Arc<Mutex<SequenceRange>>>>,
}

impl CatalogState {
    pub(crate) fn new() -> Self {
        Self {
            current: RwLock::new(Current::new(Catalog::predefined())),
            version: AtomicU64::new(0),
            publishing: Mutex::default(),
            next_version: AtomicU64::new(1),
            trees: Trees::default(),
            locks: Mutex::default(),
            sequences: Mutex::default(),
        }
    }

    /// Returns the committed catalog, as seen from `postgres`.
    pub(crate) fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.read().postgres)
    }

    /// Returns the committed catalog, as seen from a database. If the database does not exist, the catalog
    /// has no names.
    pub(crate) fn current_of(&self, database: ObjectId) -> Arc<Catalog> {
        let current = self.current.read();
        if database == POSTGRES {
            return Arc::clone(&current.postgres);
        }
        let found = current.others.get(&database).cloned();
        found.unwrap_or_else(|| Arc::new(current.postgres.of_database(database)))
    }

    /// Makes the catalog that was loaded at the start the committed one.
    pub(crate) fn install(&self, catalog: Catalog) {
        // The catalog and its version change under one latch. So a thread that sees one of them changed also
        // sees the other one changed.
        let mut current = self.current.write();
        self.version.store(catalog.version(), Ordering::Release);
        *current = Current::new(catalog);
    }

    /// Returns the version of the committed catalog.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the lock of a view, schema or role. The ids of all objects come from one sequence, so they are
    /// distinct.
    pub(crate) fn lock_of_object(&self, object: ObjectId) -> Arc<TableLock> {
        self.lock_of(TableId(object.0))
    }

    /// Returns the lock of a table.
    pub(crate) fn lock_of(&self, table: TableId) -> Arc<TableLock> {
        let mut locks = self.locks.lock();
        Arc::clone(locks.entry(table).or_insert_with(|| Arc::new(TableLock::new(table.0))))
    }

    /// Returns the reserved values of a sequence.
    pub(crate) fn range_of(&self, sequence: &SequenceDef) -> Arc<Mutex<SequenceRange>> {
        Arc::clone(self.sequences.lock().entry(sequence.state).or_default())
    }

    /// Takes the reserved values of all sequences out of this object. Returns them with the ids of the
    /// sequences' rows in the system table.
    pub(crate) fn take_ranges(&self) -> impl Iterator<Item = (u32, Arc<Mutex<SequenceRange>>)> + use<> {
        let ranges: Vec<_> = self.sequences.lock().drain().collect();
        ranges.into_iter()
    }

    /// Returns a copy of `base` with the changes, which has a version of its own.
    pub(crate) fn derive(&self, base: &Catalog, changes: impl IntoIterator<Item = ObjectChange>) -> Catalog {
        let mut catalog = base.clone();
        changes.into_iter().for_each(|change| catalog.apply(change));
        catalog.version = self.next_version.fetch_add(1, Ordering::Relaxed);
        catalog
    }

    /// Publishes the changes of a transaction that has committed. Its tables are still locked.
    pub(crate) fn publish(&self, changes: Vec<ObjectChange>) {
        let _one = self.publishing.lock();
        let base = self.current();
        for change in &changes {
            if let ObjectChange::Table(id, _) = change
                && let Some(old) = base.open_table(*id)
            {
                old.retire();
            }
        }
        self.install(self.derive(&base, changes));
    }
}
