//! The catalog: all objects, as one immutable value. A DDL commit replaces it by a new value.
//!
//! Invariants
//! 1. A `Catalog` never changes. Two different catalogs have different values of `version`.
//! 2. In each schema, the names of tables, partitions, views, indexes and sequences are unique among all of
//!    these.
//! 3. A `Catalog` belongs to one database. It finds and lists only objects of this database, and objects that
//!    all databases share (roles, databases). Undo, purge and checks work across databases, with separate
//!    functions.
//!
//! This module does not know how the catalog is stored (`system_tables.rs`) or which roles may see an object.

pub(crate) mod codec;
#[cfg(test)]
mod codec_tests;
mod databases;
mod defs;
mod derived;
mod objects;
mod records;
pub(crate) mod sequence_range;
mod state;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use codec::Definition;
pub use databases::{DatabaseDef, POSTGRES, POSTGRES_NAME, TEMPLATE0, TEMPLATE1};
pub(crate) use state::CatalogState;

use crate::ids::TxnId;
pub use crate::object_ids::{IndexId, ObjectId, SequenceId, TableId};
use crate::partitions::StoredTables;
use crate::table_counters::TableCounters;
use crate::table_engine::TableStore;
use crate::table_lock::TableLock;
pub use defs::{
    ColumnDef, IndexDef, LeafLayout, NewIndex, NewSequence, NewTable, PrimaryKey, SchemaDef, SequenceDef,
    SequenceState, StorageOptions, TableDef,
};
pub(crate) use derived::Keys;
pub use derived::{DeriveKey, Derived, Deriver, KeyPart};
/// The roles that every database has.
pub mod predefined {
    pub use super::objects::{
        CHECKPOINT, DATABASE_OWNER, MONITOR, READ_ALL_DATA, READ_ALL_SETTINGS, READ_ALL_STATS,
        READ_SERVER_FILES, SIGNAL_BACKEND, STAT_SCAN_TABLES, WRITE_ALL_DATA, WRITE_SERVER_FILES,
    };
}
pub use objects::{
    About, Action, BOOTSTRAP_NAME, BOOTSTRAP_NAME_BEFORE, BOOTSTRAP_ROLE, Bound, Check, Comment, Edge,
    ForeignKey, Grant, Identity, Membership, NewView, Part, PartitionMethod, Partitions, Rights, RoleDef,
    Secret, Use, ViewColumn, ViewDef,
};

/// Name of the schema that exists from the start.
pub const PUBLIC: &str = "public";

/// Everything that a transaction can name. It is cheap to clone.
#[derive(Clone)]
pub struct Catalog {
    version: u64,
    /// The database whose names these are.
    database: ObjectId,
    all: Arc<Contents>,
}

/// The objects of all databases.
#[derive(Clone, Default)]
struct Contents {
    databases: HashMap<ObjectId, Arc<DatabaseDef>>,
    schemas: Vec<Arc<SchemaDef>>,
    tables: HashMap<TableId, Arc<Table>>,
    sequences: HashMap<SequenceId, Arc<SequenceDef>>,
    views: HashMap<ObjectId, Arc<ViewDef>>,
    roles: HashMap<ObjectId, Arc<RoleDef>>,
    /// Owner, grants and comments, by object.
    abouts: HashMap<ObjectId, Arc<About>>,
    /// All names, by database and schema.
    names: HashMap<ObjectId, HashMap<String, HashMap<String, Named>>>,
    /// Tables by the segment of their clustered tree.
    owners: HashMap<u32, TableId>,
    /// Tables with foreign keys, by the table that these refer to.
    referrers: HashMap<TableId, Vec<TableId>>,
    system: Vec<Arc<Table>>,
}

/// An open table. It is passed to the calls for rows of the transaction that opened it.
pub struct Table {
    def: Arc<TableDef>,
    pub(crate) store: Arc<dyn TableStore>,
    pub(crate) lock: Arc<TableLock>,
    retired: AtomicBool,
    /// The transaction that moved the rows to a new tree without their older versions. A snapshot that does
    /// not see this transaction would miss rows.
    pub(crate) rewriter: Option<TxnId>,
    /// The transaction that created the table, if it is known. It is known at each moment that can be read.
    pub(crate) creator: Option<TxnId>,
    /// The partitions that have its rows, if a memory-oriented engine keeps it.
    pub(crate) stored: StoredTables,
    /// Counts the accesses.
    pub(crate) counters: TableCounters,
}

/// How the rows of a table are stored.
pub(crate) struct Kept {
    pub(crate) rewriter: Option<TxnId>,
    pub(crate) creator: Option<TxnId>,
    pub(crate) stored: StoredTables,
    pub(crate) counters: TableCounters,
}

impl Table {
    pub(crate) fn new(
        def: Arc<TableDef>,
        store: Arc<dyn TableStore>,
        lock: Arc<TableLock>,
        kept: Kept,
    ) -> Self {
        let Kept { rewriter, creator, stored, counters } = kept;
        Self { def, store, lock, retired: AtomicBool::new(false), rewriter, creator, stored, counters }
    }

    /// Its definition.
    pub fn def(&self) -> &Arc<TableDef> {
        &self.def
    }

    /// Records that another definition has replaced this one.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("def", &self.def)
            .field("retired", &self.is_retired())
            .finish_non_exhaustive()
    }
}

/// One object made, replaced or (`None`) dropped.
#[derive(Clone)]
pub(crate) enum ObjectChange {
    Database(ObjectId, Option<Arc<DatabaseDef>>),
    Schema(ObjectId, Option<Arc<SchemaDef>>),
    Table(TableId, Option<Arc<Table>>),
    Sequence(SequenceId, Option<Arc<SequenceDef>>),
    View(ObjectId, Option<Arc<ViewDef>>),
    Role(ObjectId, Option<Arc<RoleDef>>),
    /// Owner, grants and comments of an object.
    About(ObjectId, Option<Arc<About>>),
}

/// The object with a name in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A table.
    Table(TableId),
    /// An index of a table.
    Index(TableId, IndexId),
    /// The primary key of a table.
    PrimaryKey(TableId),
    /// A sequence.
    Sequence(SequenceId),
    /// A view.
    View(ObjectId),
    /// A part of a partitioned table.
    Part(TableId, ObjectId),
}

impl Catalog {
    /// Returns a catalog with only the predefined roles, the first databases, and their comments.
    pub(crate) fn predefined() -> Catalog {
        let roles = RoleDef::predefined().map(|role| (role.id, Arc::new(role)));
        let databases = DatabaseDef::predefined().map(|database| (database.id, Arc::new(database)));
        let all = Contents {
            roles: roles.collect(),
            databases: databases.into_iter().collect(),
            abouts: About::predefined().map(|about| (about.object, Arc::new(about))).into_iter().collect(),
            ..Contents::default()
        };
        Catalog { version: 0, database: POSTGRES, all: Arc::new(all) }
    }

    /// Returns a catalog in which nothing has a name.
    pub fn empty() -> Catalog {
        Catalog { version: 0, database: POSTGRES, all: Arc::default() }
    }

    /// Returns the same catalog as seen from another database.
    pub fn of_database(&self, database: ObjectId) -> Catalog {
        Catalog { database, ..self.clone() }
    }

    /// Returns the database whose catalog this is.
    pub fn database(&self) -> ObjectId {
        self.database
    }

    /// Returns all databases, in no order.
    pub fn databases(&self) -> impl Iterator<Item = &Arc<DatabaseDef>> {
        self.all.databases.values()
    }

    /// Returns a database by name.
    pub fn database_named(&self, name: &str) -> Option<&Arc<DatabaseDef>> {
        self.databases().find(|database| database.name == name)
    }

    /// Returns a database by id.
    pub fn database_by_id(&self, id: ObjectId) -> Option<&Arc<DatabaseDef>> {
        self.all.databases.get(&id)
    }

    /// Returns the version of the catalog. It changes with every committed DDL and with every DDL of the own
    /// transaction.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns all schemas of the database.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<SchemaDef>> {
        self.all.schemas.iter().filter(|s| s.database == self.database)
    }

    /// Returns whether a schema exists.
    pub fn has_schema(&self, name: &str) -> bool {
        self.schemas().any(|s| s.name == name)
    }

    /// Returns the object with this name.
    pub fn resolve(&self, schema: &str, name: &str) -> Option<Named> {
        self.all.names.get(&self.database)?.get(schema)?.get(name).copied()
    }

    /// Returns a table by name.
    pub fn table(&self, schema: &str, name: &str) -> Option<Arc<TableDef>> {
        match self.resolve(schema, name)? {
            Named::Table(id) => self.table_by_id(id),
            _ => None,
        }
    }

    /// Returns a table by id.
    pub fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        self.table_ref(id).cloned()
    }

    /// Returns a table of any database ready to be used.
    pub(crate) fn open_table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.all.tables.get(&id)
    }

    /// Returns the open table, of any database, whose clustered tree a segment owns.
    pub(crate) fn table_of_tree(&self, owner: u32) -> Option<&Table> {
        let table = match self.all.owners.get(&owner) {
            Some(id) => self.all.tables.get(id)?,
            None => self.all.system.iter().find(|t| t.def.place.owner == owner)?,
        };
        Some(table)
    }

    /// Returns the table, of any database, to which a segment belongs. If the segment is that of an index,
    /// the name of the index is returned, too.
    pub fn table_of_segment(&self, owner: u32) -> Option<(Arc<TableDef>, Option<String>)> {
        self.all.tables.values().map(|table| table.def()).find_map(|def| {
            if def.place.owner == owner {
                return Some((Arc::clone(def), None));
            }
            let index = def.indexes.iter().find(|index| def.is_paged() && index.place.owner == owner)?;
            Some((Arc::clone(def), Some(index.name.clone())))
        })
    }

    /// Returns the tables of all databases ready to be used.
    pub(crate) fn open_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.all.tables.values()
    }

    /// Returns the system tables, in the order of `store.rs`.
    pub(crate) fn system(&self) -> &[Arc<Table>] {
        &self.all.system
    }

    pub(crate) fn set_system(&mut self, system: Vec<Arc<Table>>) {
        self.contents().system = system;
    }

    /// Returns an index by name, with its table.
    pub fn index(&self, schema: &str, name: &str) -> Option<(Arc<TableDef>, Arc<IndexDef>)> {
        match self.resolve(schema, name)? {
            Named::Index(table, index) => {
                let table = self.table_by_id(table)?;
                let index = table.index(index)?.clone();
                Some((table, index))
            }
            _ => None,
        }
    }

    /// Returns a sequence by name.
    pub fn sequence(&self, schema: &str, name: &str) -> Option<Arc<SequenceDef>> {
        match self.resolve(schema, name)? {
            Named::Sequence(id) => self.sequence_by_id(id),
            _ => None,
        }
    }

    /// Returns a sequence by id.
    pub fn sequence_by_id(&self, id: SequenceId) -> Option<Arc<SequenceDef>> {
        self.sequence_ref(id).cloned()
    }

    /// Returns a table by id, as long as the catalog is held.
    pub fn table_ref(&self, id: TableId) -> Option<&Arc<TableDef>> {
        self.all.tables.get(&id).map(|table| table.def()).filter(|table| table.database == self.database)
    }

    /// Returns a sequence by id, as long as the catalog is held.
    pub fn sequence_ref(&self, id: SequenceId) -> Option<&Arc<SequenceDef>> {
        self.all.sequences.get(&id).filter(|sequence| sequence.database == self.database)
    }

    /// Returns all tables of the database, in no order.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.all_tables().filter(|table| table.database == self.database)
    }

    /// Returns the tables of all databases, in no order.
    pub fn all_tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.all.tables.values().map(|table| table.def())
    }

    /// Returns all sequences of the database, in no order.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<SequenceDef>> {
        self.all.sequences.values().filter(|sequence| sequence.database == self.database)
    }

    /// Returns a view by name.
    pub fn view(&self, schema: &str, name: &str) -> Option<&Arc<ViewDef>> {
        match self.resolve(schema, name)? {
            Named::View(id) => self.view_by_id(id),
            _ => None,
        }
    }

    /// Returns a view by id.
    pub fn view_by_id(&self, id: ObjectId) -> Option<&Arc<ViewDef>> {
        self.all.views.get(&id).filter(|view| view.database == self.database)
    }

    /// Returns all views of the database, in no order.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDef>> {
        self.all.views.values().filter(|view| view.database == self.database)
    }

    /// Returns a part of a partitioned table by name, with the table.
    pub fn part(&self, schema: &str, name: &str) -> Option<(Arc<TableDef>, Part)> {
        match self.resolve(schema, name)? {
            Named::Part(table, part) => {
                let table = self.table_by_id(table)?;
                let part = table.partitions.as_ref()?.parts.iter().find(|p| p.id == part)?.clone();
                Some((table, part))
            }
            _ => None,
        }
    }

    /// Returns the foreign keys that refer to a table, each with the table that has it; in no order.
    pub fn children(&self, parent: TableId) -> impl Iterator<Item = (&Arc<TableDef>, &Arc<ForeignKey>)> {
        let tables =
            self.all.referrers.get(&parent).into_iter().flatten().filter_map(|id| self.table_ref(*id));
        let pairs = tables.flat_map(|t| t.foreign_keys.iter().map(move |key| (t, key)));
        pairs.filter(move |(_, key)| key.parent == parent)
    }

    /// Returns a role by name.
    pub fn role(&self, name: &str) -> Option<&Arc<RoleDef>> {
        // A role that was made before there were predefined roles has priority over a predefined role with
        // the same name.
        self.all.roles.values().filter(|role| role.name == name).min_by_key(|role| role.is_predefined())
    }

    /// Returns a role by id.
    pub fn role_by_id(&self, id: ObjectId) -> Option<&Arc<RoleDef>> {
        self.all.roles.get(&id)
    }

    /// Returns all roles, in no order.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<RoleDef>> {
        self.all.roles.values()
    }

    /// Returns the database that a table, view, sequence or schema is in.
    pub fn database_of(&self, object: ObjectId) -> Option<ObjectId> {
        let table = self.all.tables.get(&TableId(object.0)).map(|table| table.def.database);
        let sequence = || self.all.sequences.get(&SequenceId(object.0)).map(|sequence| sequence.database);
        let view = || self.all.views.get(&object).map(|view| view.database);
        let schema = || self.all.schemas.iter().find(|schema| schema.id == object).map(|s| s.database);
        table.or_else(sequence).or_else(view).or_else(schema)
    }

    /// Returns the owner, grants and comments of an object, if any are stored. Indexes, constraints and
    /// partitions are only in the definition of their table, so the caller must first look there.
    pub fn about(&self, object: impl Into<ObjectId>) -> Option<&Arc<About>> {
        let about = self.all.abouts.get(&object.into())?;
        self.database_of(about.object).is_none_or(|database| database == self.database).then_some(about)
    }

    /// Returns owner, grants and comments of the objects of all databases, in no order.
    pub fn abouts(&self) -> impl Iterator<Item = &Arc<About>> {
        self.all.abouts.values()
    }

    /// Returns the owner of an object.
    pub fn owner(&self, object: impl Into<ObjectId>) -> ObjectId {
        self.about(object).map_or(BOOTSTRAP_ROLE, |about| about.owner)
    }

    pub(crate) fn apply(&mut self, change: ObjectChange) {
        self.contents().apply(change);
    }

    fn contents(&mut self) -> &mut Contents {
        Arc::make_mut(&mut self.all)
    }
}

impl Contents {
    fn apply(&mut self, change: ObjectChange) {
        match change {
            ObjectChange::Database(id, def) => set(&mut self.databases, id, def),
            ObjectChange::Schema(id, def) => {
                self.schemas.retain(|s| s.id != id);
                self.schemas.extend(def);
            }
            ObjectChange::Table(id, table) => self.set_table(id, table),
            ObjectChange::Sequence(id, def) => {
                if let Some(old) = self.sequences.remove(&id) {
                    self.unname(old.database, &old.schema, &old.name);
                }
                if let Some(def) = def {
                    self.name(def.database, &def.schema, &def.name, Named::Sequence(id));
                    self.sequences.insert(id, def);
                }
            }
            ObjectChange::View(id, def) => {
                if let Some(old) = self.views.remove(&id) {
                    self.unname(old.database, &old.schema, &old.name);
                }
                if let Some(def) = def {
                    self.name(def.database, &def.schema, &def.name, Named::View(id));
                    self.views.insert(id, def);
                }
            }
            ObjectChange::Role(id, def) => set(&mut self.roles, id, def),
            ObjectChange::About(object, def) => set(&mut self.abouts, object, def),
        }
    }

    fn set_table(&mut self, id: TableId, table: Option<Arc<Table>>) {
        if let Some(old) = self.tables.remove(&id) {
            self.owners.remove(&old.def.place.owner);
            old.def.names().for_each(|(schema, name, _)| self.unname(old.def.database, schema, name));
            for parent in old.def.foreign_keys.iter().map(|key| key.parent) {
                self.referrers.entry(parent).or_default().retain(|table| *table != id);
            }
        }
        if let Some(table) = table {
            let def = Arc::clone(&table.def);
            self.owners.insert(def.place.owner, id);
            def.names().for_each(|(schema, name, named)| self.name(def.database, schema, name, named));
            for parent in def.foreign_keys.iter().map(|key| key.parent) {
                let tables = self.referrers.entry(parent).or_default();
                if !tables.contains(&id) {
                    tables.push(id);
                }
            }
            self.tables.insert(id, table);
        }
    }

    fn name(&mut self, database: ObjectId, schema: &str, name: &str, named: Named) {
        let schemas = self.names.entry(database).or_default();
        schemas.entry(schema.to_owned()).or_default().insert(name.to_owned(), named);
    }

    fn unname(&mut self, database: ObjectId, schema: &str, name: &str) {
        if let Some(names) = self.names.get_mut(&database).and_then(|schemas| schemas.get_mut(schema)) {
            names.remove(name);
        }
    }
}

fn set<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
