//! The catalog: what exists, as one immutable value that is replaced when DDL commits.
//!
//! Invariants
//! 1. A `Catalog` never changes; `version` differs between any two that differ.
//! 2. Names of tables, indexes and sequences share one namespace for each schema.
//!
//! Does not know: how it is stored (`store.rs`), who may see what.

mod defs;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use defs::TreePlace;
pub use defs::{
    ColumnDef, IndexDef, IndexId, NewIndex, NewSequence, NewTable, ObjectId, PrimaryKey, SchemaDef,
    SequenceDef, SequenceId, TableDef, TableId,
};

/// Name of the schema that exists from the start.
pub const PUBLIC: &str = "public";

/// Everything that a transaction can name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    version: u64,
    schemas: Vec<Arc<SchemaDef>>,
    tables: HashMap<TableId, Arc<TableDef>>,
    sequences: HashMap<SequenceId, Arc<SequenceDef>>,
    names: HashMap<String, HashMap<String, Named>>,
}

/// What a name of a schema stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A table.
    Table(TableId),
    /// An index of a table.
    Index(TableId, IndexId),
    /// A sequence.
    Sequence(SequenceId),
}

impl Catalog {
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
        self.tables.get(&id).cloned()
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

    /// All tables, in no order.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.tables.values()
    }

    /// All sequences, in no order.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<SequenceDef>> {
        self.sequences.values()
    }
}
