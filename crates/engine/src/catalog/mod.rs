//! The catalog: what exists, as one immutable value that is replaced when DDL commits.
//!
//! Invariants
//! 1. A `Catalog` never changes; `version` differs between any two that differ.
//! 2. Names of tables, parts, views, indexes and sequences share one namespace for each schema.
//!
//! Does not know: how it is stored (`store.rs`), who may see what.

pub(crate) mod codec;
#[cfg(test)]
mod codec_tests;
mod defs;
mod objects;
mod records;
mod state;
pub(crate) mod store;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use codec::Definition;
pub(crate) use defs::TreePlace;
pub(crate) use state::CatalogState;

use crate::ids::TxnId;
use crate::paged::PagedStore;
use crate::table_engine::TableStore;
use crate::table_lock::TableLock;
pub use defs::{
    ColumnDef, IndexDef, IndexId, NewIndex, NewSequence, NewTable, ObjectId, PrimaryKey, SchemaDef,
    SequenceDef, SequenceId, SequenceState, StorageOptions, TableDef, TableId,
};
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

/// Everything that a transaction can name.
#[derive(Clone, Default)]
pub struct Catalog {
    version: u64,
    schemas: Vec<Arc<SchemaDef>>,
    tables: HashMap<TableId, Arc<Table>>,
    sequences: HashMap<SequenceId, Arc<SequenceDef>>,
    views: HashMap<ObjectId, Arc<ViewDef>>,
    roles: HashMap<ObjectId, Arc<RoleDef>>,
    /// By the object that it is about.
    abouts: HashMap<ObjectId, Arc<About>>,
    names: HashMap<String, HashMap<String, Named>>,
    /// Tables by the segment of their clustered tree.
    owners: HashMap<u32, TableId>,
    /// Tables with foreign keys, by the table that these refer to.
    referrers: HashMap<TableId, Vec<TableId>>,
    system: Vec<Arc<Table>>,
}

/// An open table: hand it to the row calls of the transaction that opened it.
pub struct Table {
    def: Arc<TableDef>,
    pub(crate) store: Arc<dyn TableStore>,
    pub(crate) lock: Arc<TableLock>,
    retired: AtomicBool,
    /// Who put the rows into a new tree without their older versions: a snapshot that doesn't see this transaction would
    /// miss rows.
    pub(crate) rewriter: Option<TxnId>,
}

impl Table {
    pub(crate) fn new(
        def: Arc<TableDef>,
        store: Arc<dyn TableStore>,
        lock: Arc<TableLock>,
        rewriter: Option<TxnId>,
    ) -> Self {
        Self { def, store, lock, retired: AtomicBool::new(false), rewriter }
    }

    /// Its definition.
    pub fn def(&self) -> &Arc<TableDef> {
        &self.def
    }

    /// Another definition has taken the place of this one.
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
    Schema(ObjectId, Option<Arc<SchemaDef>>),
    Table(TableId, Option<Arc<Table>>),
    Sequence(SequenceId, Option<Arc<SequenceDef>>),
    View(ObjectId, Option<Arc<ViewDef>>),
    Role(ObjectId, Option<Arc<RoleDef>>),
    /// What is kept about this object.
    About(ObjectId, Option<Arc<About>>),
}

/// What a name of a schema stands for.
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
    /// Nothing but the roles that every database has.
    pub(crate) fn with_predefined_roles() -> Catalog {
        let roles = RoleDef::predefined().map(|role| (role.id, Arc::new(role)));
        Catalog { roles: roles.collect(), ..Catalog::default() }
    }

    /// Changes with every committed DDL and with every DDL of the own transaction.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All schemas.
    pub fn schemas(&self) -> &[Arc<SchemaDef>] {
        &self.schemas
    }

    /// Whether a schema exists.
    pub fn has_schema(&self, name: &str) -> bool {
        self.schemas.iter().any(|s| s.name == name)
    }

    /// What a name stands for.
    pub fn resolve(&self, schema: &str, name: &str) -> Option<Named> {
        self.names.get(schema)?.get(name).copied()
    }

    /// A table by name.
    pub fn table(&self, schema: &str, name: &str) -> Option<Arc<TableDef>> {
        match self.resolve(schema, name)? {
            Named::Table(id) => self.table_by_id(id),
            _ => None,
        }
    }

    /// A table by id.
    pub fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        self.tables.get(&id).map(|table| Arc::clone(table.def()))
    }

    /// A table ready to be used.
    pub(crate) fn open_table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(&id)
    }

    /// The open paged table whose clustered tree a segment owns.
    pub(crate) fn store_of(&self, owner: u32) -> Option<&PagedStore> {
        let table = match self.owners.get(&owner) {
            Some(id) => self.tables.get(id)?,
            None => self.system.iter().find(|t| t.def.place.owner == owner)?,
        };
        table.store.as_paged()
    }

    /// The table that a segment belongs to, and the name of the index if it has that.
    pub fn table_of_segment(&self, owner: u32) -> Option<(Arc<TableDef>, Option<String>)> {
        self.tables.values().map(|table| table.def()).find_map(|def| {
            if def.place.owner == owner {
                return Some((Arc::clone(def), None));
            }
            let index = def.indexes.iter().find(|index| index.place.owner == owner)?;
            Some((Arc::clone(def), Some(index.name.clone())))
        })
    }

    /// All tables ready to be used.
    pub(crate) fn open_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The system tables, in the order of `store.rs`.
    pub(crate) fn system(&self) -> &[Arc<Table>] {
        &self.system
    }

    pub(crate) fn set_system(&mut self, system: Vec<Arc<Table>>) {
        self.system = system;
    }

    /// An index by name, with its table.
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

    /// A sequence by name.
    pub fn sequence(&self, schema: &str, name: &str) -> Option<Arc<SequenceDef>> {
        match self.resolve(schema, name)? {
            Named::Sequence(id) => self.sequence_by_id(id),
            _ => None,
        }
    }

    /// A sequence by id.
    pub fn sequence_by_id(&self, id: SequenceId) -> Option<Arc<SequenceDef>> {
        self.sequences.get(&id).cloned()
    }

    /// A table by id, as long as the catalog is held.
    pub fn table_ref(&self, id: TableId) -> Option<&Arc<TableDef>> {
        self.tables.get(&id).map(|table| table.def())
    }

    /// A sequence by id, as long as the catalog is held.
    pub fn sequence_ref(&self, id: SequenceId) -> Option<&Arc<SequenceDef>> {
        self.sequences.get(&id)
    }

    /// All tables, in no order.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.tables.values().map(|table| table.def())
    }

    /// All sequences, in no order.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<SequenceDef>> {
        self.sequences.values()
    }

    /// A view by name.
    pub fn view(&self, schema: &str, name: &str) -> Option<&Arc<ViewDef>> {
        match self.resolve(schema, name)? {
            Named::View(id) => self.views.get(&id),
            _ => None,
        }
    }

    /// A view by id.
    pub fn view_by_id(&self, id: ObjectId) -> Option<&Arc<ViewDef>> {
        self.views.get(&id)
    }

    /// All views, in no order.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDef>> {
        self.views.values()
    }

    /// A part of a partitioned table by name, with the table.
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

    /// The foreign keys that refer to a table, each with the table that has it; in no order.
    pub fn children(&self, parent: TableId) -> impl Iterator<Item = (&Arc<TableDef>, &Arc<ForeignKey>)> {
        let tables = self.referrers.get(&parent).into_iter().flatten().filter_map(|id| self.table_ref(*id));
        let pairs = tables.flat_map(|t| t.foreign_keys.iter().map(move |key| (t, key)));
        pairs.filter(move |(_, key)| key.parent == parent)
    }

    /// A role by name.
    pub fn role(&self, name: &str) -> Option<&Arc<RoleDef>> {
        // One that was made when there were no predefined ones comes before the predefined one of its name.
        self.roles.values().filter(|role| role.name == name).min_by_key(|role| role.is_predefined())
    }

    /// A role by id.
    pub fn role_by_id(&self, id: ObjectId) -> Option<&Arc<RoleDef>> {
        self.roles.get(&id)
    }

    /// All roles, in no order.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<RoleDef>> {
        self.roles.values()
    }

    /// What is kept about an object beside its definition, if anything.
    pub fn about(&self, object: impl Into<ObjectId>) -> Option<&Arc<About>> {
        self.abouts.get(&object.into())
    }

    /// What is kept about objects, in no order.
    pub fn abouts(&self) -> impl Iterator<Item = &Arc<About>> {
        self.abouts.values()
    }

    /// Whose an object is.
    pub fn owner(&self, object: impl Into<ObjectId>) -> ObjectId {
        self.about(object).map_or(BOOTSTRAP_ROLE, |about| about.owner)
    }

    pub(crate) fn apply(&mut self, change: ObjectChange) {
        match change {
            ObjectChange::Schema(id, def) => {
                self.schemas.retain(|s| s.id != id);
                self.schemas.extend(def);
            }
            ObjectChange::Table(id, table) => self.set_table(id, table),
            ObjectChange::Sequence(id, def) => {
                if let Some(old) = self.sequences.remove(&id) {
                    self.unname(&old.schema, &old.name);
                }
                if let Some(def) = def {
                    self.name(&def.schema, &def.name, Named::Sequence(id));
                    self.sequences.insert(id, def);
                }
            }
            ObjectChange::View(id, def) => {
                if let Some(old) = self.views.remove(&id) {
                    self.unname(&old.schema, &old.name);
                }
                if let Some(def) = def {
                    self.name(&def.schema, &def.name, Named::View(id));
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
            old.def.names().for_each(|(schema, name, _)| self.unname(schema, name));
            for parent in old.def.foreign_keys.iter().map(|key| key.parent) {
                self.referrers.entry(parent).or_default().retain(|table| *table != id);
            }
        }
        if let Some(table) = table {
            let def = Arc::clone(&table.def);
            self.owners.insert(def.place.owner, id);
            def.names().for_each(|(schema, name, named)| self.name(schema, name, named));
            for parent in def.foreign_keys.iter().map(|key| key.parent) {
                let tables = self.referrers.entry(parent).or_default();
                if !tables.contains(&id) {
                    tables.push(id);
                }
            }
            self.tables.insert(id, table);
        }
    }

    fn name(&mut self, schema: &str, name: &str, named: Named) {
        self.names.entry(schema.to_owned()).or_default().insert(name.to_owned(), named);
    }

    fn unname(&mut self, schema: &str, name: &str) {
        if let Some(names) = self.names.get_mut(schema) {
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
