//! Definitions of catalog objects, as everything above the engine sees them.
//!
//! Invariants
//! 1. A definition is immutable. A change makes a new definition with the same id.
//! 2. An object id is never used again, not even for an object of another kind.
//!
//! This module does not know SQL names of types, the meaning of default expressions, or how definitions are
//! stored (`codec.rs`).

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use varve_pager::{Compression, SpaceId};

use super::derived::{Derived, KeyPart};
use super::objects::{Check, ForeignKey, Identity, PartitionMethod, Partitions};
use super::{Named, Table};
use crate::entry_columns::EntryColumns;
use crate::ids::TreeAddress;
use crate::key;
use crate::object_ids::{IndexId, ObjectId, SequenceId, TableId};
use crate::partitions::{StoredTable, StoredTables};
use crate::row::RowSchema;
use crate::row_access::ScanIndex;
use crate::types::{ColumnType, Datum};

/// A schema (namespace).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaDef {
    /// Identity.
    pub id: ObjectId,
    /// The database that contains the object.
    pub database: ObjectId,
    /// Name.
    pub name: String,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDef {
    /// Name.
    pub name: String,
    /// Type.
    pub column_type: ColumnType,
    /// Whether the SQL layer refuses NULL.
    pub not_null: bool,
    /// Text of the default expression, kept for the SQL layer.
    pub default: Option<String>,
    /// GENERATED ... AS IDENTITY; its values come from the sequence that the column owns.
    pub identity: Option<Identity>,
}

impl ColumnDef {
    /// Returns a column that may be NULL and has no default.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Self { name: name.into(), column_type, not_null: false, default: None, identity: None }
    }
}

/// The primary key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryKey {
    /// Name of the constraint.
    pub name: String,
    /// Ordinals of its columns, in key order.
    pub columns: Vec<usize>,
}

/// How the rows of a table lie in its leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafLayout {
    /// One row after the other.
    #[default]
    ByRows,
    /// By columns (decision 0404).
    ByColumns,
}

/// How the pages of a table are stored (decision 0550). The compression is that of its rows, its long values
/// and its indexes. The layout is that of its rows alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// The compression; `None` means the server's setting.
    pub compression: Option<Compression>,
    /// The layout of the leaves of its rows. A change of it writes the table again.
    pub layout: LeafLayout,
    /// The tablespace of its rows; `None` means the data space. A change of it writes the table again.
    pub tablespace: Option<SpaceId>,
}

impl StorageOptions {
    /// Returns the space of the table's rows.
    pub fn space(self) -> SpaceId {
        self.tablespace.unwrap_or(SpaceId::DATA)
    }
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDef {
    /// Identity.
    pub id: IndexId,
    /// Name, unique in the table's schema.
    pub name: String,
    /// Ordinals of its columns, in key order. For a derived index: ordinals of all columns that it reads.
    pub columns: Vec<usize>,
    /// Whether the index refuses a second row with the same values. Rows with a NULL among the values do not
    /// count.
    pub unique: bool,
    /// Whether the index was made by a UNIQUE constraint, not by CREATE INDEX.
    pub constraint: bool,
    /// Expressions and condition, if it has any.
    pub derived: Option<Arc<Derived>>,
    pub(crate) place: TreeAddress,
}

impl IndexDef {
    /// Returns whether the index has every row, with a key of column values only.
    pub fn is_plain(&self) -> bool {
        self.derived.is_none()
    }

    /// Returns the tablespace of the index. `None` means the data space.
    pub fn tablespace(&self) -> Option<SpaceId> {
        Some(self.place.space).filter(|space| space.is_tablespace())
    }
}

/// A table.
pub struct TableDef {
    /// Identity; stays the same through TRUNCATE and ADD PRIMARY KEY.
    pub id: TableId,
    /// The database that contains the object.
    pub database: ObjectId,
    /// Name of its schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Columns, in order.
    pub columns: Vec<ColumnDef>,
    /// Primary key. A table without one stores its rows in the order of a hidden row id.
    pub primary_key: Option<PrimaryKey>,
    /// Secondary indexes.
    pub indexes: Vec<Arc<IndexDef>>,
    /// CHECK constraints, in the order they were made.
    pub checks: Vec<Arc<Check>>,
    /// FOREIGN KEY constraints, in the order they were made.
    pub foreign_keys: Vec<Arc<ForeignKey>>,
    /// PARTITION BY
    pub partitions: Option<Partitions>,
    /// Whether the table was created UNLOGGED. Its pages are logged all the same.
    pub is_unlogged: bool,
    /// CHECK and FOREIGN KEY constraints that older rows need not fulfil (NOT VALID).
    pub not_valid: Box<[ObjectId]>,
    /// `WITH (...)`
    pub storage: StorageOptions,
    /// Name of the table engine (`USING`).
    pub engine: String,
    pub(crate) place: TreeAddress,
    /// The other places of a table that is spread over the partitions of a memory-oriented engine.
    pub(crate) spread: Box<[TreeAddress]>,
    pub(crate) row_schema: Arc<RowSchema>,
    /// The table opened with this definition.
    pub(crate) handle: OnceLock<Weak<Table>>,
}

/// A sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceDef {
    /// Identity.
    pub id: SequenceId,
    /// The database that contains the object.
    pub database: ObjectId,
    /// Name of its schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// First value.
    pub start: i64,
    /// Step; not 0.
    pub increment: i64,
    /// Lowest value.
    pub min: i64,
    /// Highest value.
    pub max: i64,
    /// Whether the sequence begins again at the other end instead of failing.
    pub cycle: bool,
    /// The table and the ordinal of the column that the sequence serves (serial). The sequence is dropped
    /// with them.
    pub owned_by: Option<(TableId, usize)>,
    /// The type that its values fit: one of the integers.
    pub data_type: ColumnType,
    /// CACHE. The value is stored, but has no effect, because values always come from memory.
    pub cache: i64,
    /// The row of the system table that has its values.
    pub(crate) state: u32,
}

/// The state of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceState {
    /// The value that was returned last. If none was returned, the value that comes first.
    pub last_value: i64,
    /// The number of values after it that are reserved in the log.
    pub log_count: i64,
    /// Whether `last_value` was returned.
    pub is_called: bool,
}

/// What CREATE TABLE asks for.
#[derive(Clone, Debug)]
pub struct NewTable {
    /// Name of the schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Columns; those of the primary key become NOT NULL.
    pub columns: Vec<ColumnDef>,
    /// Primary key, if any.
    pub primary_key: Option<PrimaryKey>,
    /// Name of the table engine; `None` for `paged`.
    pub engine: Option<String>,
    /// CHECK constraints; the engine assigns their ids.
    pub checks: Vec<Check>,
    /// Ordinals of the partition key of a table PARTITION BY HASH.
    pub partition_by: Option<(PartitionMethod, Vec<usize>)>,
    /// UNLOGGED
    pub is_unlogged: bool,
    /// `WITH (...)`
    pub storage: StorageOptions,
}

impl NewTable {
    /// Returns a table without key, constraints and parts.
    pub fn new(schema: impl Into<String>, name: impl Into<String>, columns: Vec<ColumnDef>) -> Self {
        Self {
            schema: schema.into(),
            name: name.into(),
            columns,
            primary_key: None,
            engine: None,
            checks: Vec::new(),
            partition_by: None,
            is_unlogged: false,
            storage: StorageOptions::default(),
        }
    }
}

/// What CREATE INDEX asks for.
#[derive(Clone, Debug)]
pub struct NewIndex {
    /// The table.
    pub table: TableId,
    /// Name.
    pub name: String,
    /// Ordinals of its columns, in key order.
    pub columns: Vec<usize>,
    /// Whether duplicates are refused.
    pub unique: bool,
    /// Whether the index belongs to a UNIQUE constraint.
    pub constraint: bool,
    /// Its tablespace; `None` means the data space.
    pub tablespace: Option<SpaceId>,
}

/// What CREATE SEQUENCE asks for.
#[derive(Clone, Debug)]
pub struct NewSequence {
    /// Name of the schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// First value.
    pub start: i64,
    /// Step; not 0.
    pub increment: i64,
    /// Lowest value.
    pub min: i64,
    /// Highest value.
    pub max: i64,
    /// Whether the sequence begins again at the other end instead of failing.
    pub cycle: bool,
    /// The table and the ordinal of the column that the sequence serves (serial). The sequence is dropped
    /// with them.
    pub owned_by: Option<(TableId, usize)>,
    /// The type that its values fit: one of the integers.
    pub data_type: ColumnType,
    /// CACHE, which has no effect.
    pub cache: i64,
}

impl NewSequence {
    /// `CREATE SEQUENCE schema.name`: 1, 2, 3, ...
    pub fn ascending(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            schema: schema.into(),
            name: name.into(),
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cycle: false,
            owned_by: None,
            data_type: ColumnType::Int8,
            cache: 1,
        }
    }

    /// Returns the request that would make an existing sequence.
    pub fn of(def: &SequenceDef) -> Self {
        Self {
            schema: def.schema.clone(),
            name: def.name.clone(),
            start: def.start,
            increment: def.increment,
            min: def.min,
            max: def.max,
            cycle: def.cycle,
            owned_by: def.owned_by,
            data_type: def.data_type,
            cache: def.cache,
        }
    }
}

impl Clone for TableDef {
    /// Returns a copy of the definition that can be changed. It is not opened yet.
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            database: self.database,
            schema: self.schema.clone(),
            name: self.name.clone(),
            columns: self.columns.clone(),
            primary_key: self.primary_key.clone(),
            indexes: self.indexes.clone(),
            checks: self.checks.clone(),
            foreign_keys: self.foreign_keys.clone(),
            partitions: self.partitions.clone(),
            is_unlogged: self.is_unlogged,
            not_valid: self.not_valid.clone(),
            storage: self.storage,
            engine: self.engine.clone(),
            place: self.place,
            spread: self.spread.clone(),
            row_schema: Arc::clone(&self.row_schema),
            handle: OnceLock::new(),
        }
    }
}

impl fmt::Debug for TableDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableDef")
            .field("id", &self.id)
            .field("database", &self.database)
            .field("schema", &self.schema)
            .field("name", &self.name)
            .field("columns", &self.columns)
            .field("primary_key", &self.primary_key)
            .field("indexes", &self.indexes)
            .field("checks", &self.checks)
            .field("foreign_keys", &self.foreign_keys)
            .field("partitions", &self.partitions)
            .field("is_unlogged", &self.is_unlogged)
            .field("not_valid", &self.not_valid)
            .field("storage", &self.storage)
            .field("engine", &self.engine)
            .field("place", &self.place)
            .field("spread", &self.spread)
            .finish()
    }
}

impl TableDef {
    /// Returns the layout of the columns in a row.
    pub fn row_schema(&self) -> &Arc<RowSchema> {
        &self.row_schema
    }

    /// Returns the widths of its columns in leaves by columns (`Frame::widths`). The list is empty if its
    /// leaves lie by rows.
    pub(crate) fn leaf_widths(&self) -> Vec<u8> {
        let width = |column: &ColumnDef| column.column_type.fixed_width_bytes().unwrap_or(0) as u8;
        match self.storage.layout {
            LeafLayout::ByRows => Vec::new(),
            LeafLayout::ByColumns => self.columns.iter().map(width).collect(),
        }
    }

    /// Returns whether its rows are in pages. Those of the memory-oriented engines are in persistent memory.
    pub fn is_paged(&self) -> bool {
        StoredTable::of(&self.engine, self.place).is_none()
    }

    /// Returns its tables in the stores of a memory-oriented engine: one table, or one for each partition in
    /// the order of their numbers. The result is empty if the rows of the table are in pages.
    pub(crate) fn stored_tables(&self) -> StoredTables {
        let places = std::iter::once(&self.place).chain(&self.spread);
        places.filter_map(|place| StoredTable::of(&self.engine, *place)).collect()
    }

    /// Sets the tables in the stores that have the rows.
    pub(crate) fn set_stored_tables(&mut self, tables: &[StoredTable]) {
        let mut places = tables.iter().map(|at| at.address(self.id.0));
        self.place = places.next().unwrap_or(self.place);
        self.spread = places.collect();
    }

    /// Returns the ordinal of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// Returns the indexes that have every row, with keys of column values only.
    pub fn plain_indexes(&self) -> impl Iterator<Item = &Arc<IndexDef>> {
        self.indexes.iter().filter(|index| index.is_plain())
    }

    /// Returns the indexes over expressions and those with a condition.
    pub fn derived_indexes(&self) -> impl Iterator<Item = (&Arc<IndexDef>, &Arc<Derived>)> {
        self.indexes.iter().filter_map(|index| Some((index, index.derived.as_ref()?)))
    }

    /// Returns the index with this id.
    pub fn index(&self, id: IndexId) -> Option<&Arc<IndexDef>> {
        self.indexes.iter().find(|i| i.id == id)
    }

    /// Returns whether a scan of this index can read these columns from the index alone.
    pub fn covers(&self, index: ScanIndex, columns: &[usize]) -> bool {
        let ScanIndex::Secondary(id) = index else { return false };
        self.index(id).is_some_and(|index| self.entry_columns(index).wanted(columns).is_some())
    }

    /// Returns the names that the table takes: its own, those of its indexes and of its parts, each with its
    /// schema.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str, Named)> {
        let own = std::iter::once((self.schema.as_str(), self.name.as_str(), Named::Table(self.id)));
        let key = self.primary_key.iter().map(|k| (&*self.schema, &*k.name, Named::PrimaryKey(self.id)));
        let indexes = self.indexes.iter().map(|i| (&*self.schema, &*i.name, Named::Index(self.id, i.id)));
        let parts = self.partitions.iter().flat_map(|p| &p.parts);
        let parts = parts.map(|p| (p.schema.as_str(), p.name.as_str(), Named::Part(self.id, p.id)));
        own.chain(key).chain(indexes).chain(parts)
    }

    /// Returns the objects that belong to the table and may have an owner, grants or comments of their own:
    /// indexes, constraints, partitions.
    pub(crate) fn parts_with_about(&self) -> impl Iterator<Item = ObjectId> {
        let indexes = self.indexes.iter().map(|index| index.id.into());
        let checks = self.checks.iter().map(|check| check.id);
        let keys = self.foreign_keys.iter().map(|key| key.id);
        let parts = self.partitions.iter().flat_map(|p| &p.parts).map(|part| part.id);
        indexes.chain(checks).chain(keys).chain(parts)
    }

    /// Returns the segments of its trees: rows with their long values, and each index.
    pub(crate) fn owners(&self) -> impl Iterator<Item = u32> {
        let is_paged = self.is_paged();
        let indexes = self.indexes.iter().map(|index| index.place.owner);
        std::iter::once(self.place.owner).chain(indexes).filter(move |_| is_paged)
    }

    /// Returns whether one of its constraints has this name.
    pub fn has_constraint(&self, name: &str) -> bool {
        self.checks.iter().any(|c| c.name == name)
            || self.foreign_keys.iter().any(|k| k.name == name)
            || self.primary_key.iter().any(|k| k.name == name)
            || self.indexes.iter().any(|i| i.constraint && i.name == name)
    }

    /// Returns the ordinals of the primary key's columns. The list is empty if the table has no primary key.
    pub fn key_columns(&self) -> &[usize] {
        self.primary_key.as_ref().map_or(&[], |k| &k.columns)
    }

    /// Appends the value of a column to a key or key prefix. `datum` has the column's type. Ordinals after
    /// those of the columns are the expressions of derived indexes, in the order of these.
    pub fn push_key(&self, key: &mut Vec<u8>, ordinal: usize, datum: &Datum<'_>) {
        key::push(key, self.key_type(ordinal), datum);
    }

    /// Returns which columns of a row can be read from the keys of an index's entries.
    pub(crate) fn entry_columns(&self, index: &IndexDef) -> EntryColumns {
        let column = |ordinal: &usize| (self.columns[*ordinal].column_type, Some(*ordinal));
        let part = |key: &KeyPart| match key {
            KeyPart::Column(ordinal) => column(ordinal),
            KeyPart::Expression { column_type, .. } => (*column_type, None),
        };
        let index_parts: Vec<_> = match &index.derived {
            None => index.columns.iter().map(column).collect(),
            Some(derived) => derived.keys.iter().map(part).collect(),
        };
        let primary_parts: Vec<_> = self.key_columns().iter().map(column).collect();
        EntryColumns::of(&index_parts, &primary_parts)
    }

    /// Returns the type of a column. Ordinals after those of the columns are the expressions of derived
    /// indexes.
    pub fn key_type(&self, ordinal: usize) -> ColumnType {
        if let Some(column) = self.columns.get(ordinal) {
            return column.column_type;
        }
        let expressions = self.derived_indexes().flat_map(|(_, derived)| derived.expressions());
        let mut behind = expressions.skip(ordinal - self.columns.len());
        behind.next().map_or(ColumnType::Text, |(_, column_type)| column_type)
    }
}
