//! Ids of the catalog's objects.

/// Identity of any object: schema, table, index, sequence, constraint, partition, view, role (PostgreSQL's
/// oid).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

impl From<TableId> for ObjectId {
    fn from(id: TableId) -> Self {
        Self(id.0)
    }
}

impl From<IndexId> for ObjectId {
    fn from(id: IndexId) -> Self {
        Self(id.0)
    }
}

impl From<SequenceId> for ObjectId {
    fn from(id: SequenceId) -> Self {
        Self(id.0)
    }
}

/// Identity of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// Identity of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexId(pub u32);

/// Identity of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u32);
