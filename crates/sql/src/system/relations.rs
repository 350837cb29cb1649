//! Collects the relations of a database: tables, partitions, indexes, sequences, views and system tables.
//!
//! Invariants
//! 1. Relations come in the order of their OIDs.
//! 2. A partition has the columns of its table. It has no indexes of its own, because the table's indexes
//!    contain its rows.
//!
//! This module does not know constraints, text of definitions or system tables about relations
//! (`relation_tables`).

use std::borrow::Cow;
use std::sync::Arc;

use varve_engine::{
    BOOTSTRAP_ROLE, Catalog, ColumnType, Derived, IndexDef, KeyPart, ObjectId, Part, SequenceDef, SequenceId,
    TableDef, TableId, ViewDef,
};

use super::{SystemTable, ids, tables};
use crate::made_name::numbered;
use crate::output_name::name_of_key;
use crate::ty::{Ty, Typed};

/// A relation.
pub struct Relation<'c> {
    /// Its OID.
    pub oid: u32,
    /// Name of its schema.
    pub schema: &'c str,
    /// Its name.
    pub name: &'c str,
    /// Its kind, with its definition.
    pub what: What<'c>,
}

/// Kinds of relations.
#[derive(Clone, Copy)]
pub enum What<'c> {
    /// A table.
    Table(&'c Arc<TableDef>),
    /// A partition of a table.
    Part(&'c Arc<TableDef>, &'c Part),
    /// An index.
    Index(IndexOf<'c>),
    /// A sequence.
    Sequence(&'c Arc<SequenceDef>),
    /// A view.
    View(&'c Arc<ViewDef>),
    /// A system table.
    System(&'static SystemTable),
}

/// An index, or the index of a primary key.
#[derive(Clone, Copy)]
pub struct IndexOf<'c> {
    /// Its table.
    pub table: &'c Arc<TableDef>,
    /// The ordinals of its columns. For an index with expressions, these are the ordinals of all columns that
    /// it reads.
    pub columns: &'c [usize],
    /// Its expressions and condition, if it has any.
    pub derived: Option<&'c Derived>,
    /// Whether the index is unique.
    pub unique: bool,
    /// Whether it is the index of the primary key.
    pub primary: bool,
    /// Whether the index implements a constraint.
    pub constraint: bool,
}

/// One part of an index's key.
#[derive(Clone, Copy)]
pub enum IndexKey<'c> {
    /// The column with this ordinal.
    Column(usize),
    /// An expression: its text and its type.
    Expression(&'c str, ColumnType),
}

impl<'c> IndexOf<'c> {
    /// Returns the parts of the index's key.
    pub fn keys(self) -> impl Iterator<Item = IndexKey<'c>> {
        let columns = if self.derived.is_some() { &[] } else { self.columns };
        let derived = self.derived.into_iter().flat_map(|derived| &derived.keys).map(|key| match key {
            KeyPart::Column(ordinal) => IndexKey::Column(*ordinal),
            KeyPart::Expression { text, column_type } => IndexKey::Expression(text, *column_type),
        });
        columns.iter().map(|ordinal| IndexKey::Column(*ordinal)).chain(derived)
    }

    /// Returns the type of a part of the index's key.
    pub fn key_type(self, key: IndexKey<'_>) -> ColumnType {
        match key {
            IndexKey::Column(ordinal) => {
                self.table.columns.get(ordinal).map_or(ColumnType::Text, |column| column.column_type)
            }
            IndexKey::Expression(_, column_type) => column_type,
        }
    }

    /// Returns the columns of the index. As in PostgreSQL, a number is added to a name that occurs again.
    fn attributes(self) -> Vec<Attribute<'c>> {
        let names = self.keys().map(|key| match key {
            IndexKey::Column(ordinal) => {
                Cow::from(self.table.columns.get(ordinal).map_or("", |column| column.name.as_str()))
            }
            IndexKey::Expression(text, _) => name_of_key(text).into(),
        });
        let attribute = |(name, key): (Cow<'c, str>, IndexKey<'c>)| {
            plain(name, Typed::of_column(self.key_type(key)), false)
        };
        numbered(names).into_iter().zip(self.keys()).map(attribute).collect()
    }
}

/// One column of a relation.
pub struct Attribute<'c> {
    /// Name.
    pub name: Cow<'c, str>,
    /// Type and modifier.
    pub t: Typed,
    /// NOT NULL
    pub not_null: bool,
    /// Text of the default.
    pub default: Option<&'c str>,
    /// `attidentity`
    pub identity: Option<varve_engine::Identity>,
}

impl<'c> Relation<'c> {
    /// Returns the kind of the relation in `relkind`.
    pub fn kind(&self) -> char {
        match self.what {
            What::Table(t) if t.partitions.is_some() => 'p',
            What::Index(i) if i.table.partitions.is_some() => 'I',
            What::Table(_) | What::Part(..) => 'r',
            What::Index(_) => 'i',
            What::Sequence(_) => 'S',
            What::View(_) => 'v',
            What::System(t) => {
                if t.is_view {
                    'v'
                } else {
                    'r'
                }
            }
        }
    }

    /// Returns the owner. Indexes and partitions have the owner of their table.
    pub fn owner(&self, catalog: &Catalog) -> u32 {
        let owner = match self.what {
            What::Table(t) | What::Part(t, _) | What::Index(IndexOf { table: t, .. }) => catalog.owner(t.id),
            What::Sequence(s) => catalog.owner(s.id),
            What::View(v) => catalog.owner(v.id),
            What::System(_) => BOOTSTRAP_ROLE,
        };
        owner.0
    }

    /// Its columns.
    pub fn attributes(&self) -> Vec<Attribute<'c>> {
        match self.what {
            What::Table(t) | What::Part(t, _) => t.columns.iter().map(of_table).collect(),
            What::Index(i) => i.attributes(),
            What::Sequence(_) => [("last_value", Ty::Int8), ("log_cnt", Ty::Int8), ("is_called", Ty::Bool)]
                .into_iter()
                .map(|(name, ty)| plain(name, Typed::plain(ty), true))
                .collect(),
            What::View(v) => {
                let typed = |c: &varve_engine::ViewColumn| Typed {
                    ty: Ty::of_oid(c.type_id).unwrap_or(Ty::Text),
                    typmod: c.modifier,
                };
                v.columns.iter().map(|c| plain(c.name.as_str(), typed(c), false)).collect()
            }
            What::System(t) => t
                .columns
                .iter()
                .map(|(name, ty, not_null)| plain(*name, Typed::plain(*ty), *not_null))
                .collect(),
        }
    }
}

fn plain<'c>(name: impl Into<Cow<'c, str>>, t: Typed, not_null: bool) -> Attribute<'c> {
    Attribute { name: name.into(), t, not_null, default: None, identity: None }
}

fn of_table(column: &varve_engine::ColumnDef) -> Attribute<'_> {
    Attribute {
        name: column.name.as_str().into(),
        t: Typed::of_column(column.column_type),
        not_null: column.not_null,
        default: column.default.as_deref().filter(|_| column.identity.is_none()),
        identity: column.identity,
    }
}

/// Returns all relations.
pub fn relations(catalog: &Catalog) -> Vec<Relation<'_>> {
    let mut out: Vec<Relation<'_>> = Vec::new();
    catalog.tables().for_each(|table| push_table(table, &mut out));
    out.extend(catalog.sequences().map(|s| Relation {
        oid: s.id.0,
        schema: &s.schema,
        name: &s.name,
        what: What::Sequence(s),
    }));
    out.extend(catalog.views().map(|v| Relation {
        oid: v.id.0,
        schema: &v.schema,
        name: &v.name,
        what: What::View(v),
    }));
    out.extend(tables().iter().filter(|t| !t.is_function).map(|t| Relation {
        oid: t.oid,
        schema: t.schema,
        name: t.name,
        what: What::System(t),
    }));
    out.sort_by_key(|r| r.oid);
    out
}

fn push_table<'c>(table: &'c Arc<TableDef>, out: &mut Vec<Relation<'c>>) {
    let schema = table.schema.as_str();
    out.push(Relation { oid: table.id.0, schema, name: &table.name, what: What::Table(table) });
    if let Some(key) = &table.primary_key {
        let (columns, derived) = (&*key.columns, None);
        let what = IndexOf { table, columns, derived, unique: true, primary: true, constraint: true };
        let oid = ids::key_index(table.id);
        out.push(Relation { oid, schema, name: &key.name, what: What::Index(what) });
    }
    for index in &table.indexes {
        let IndexDef { id, name, columns, unique, constraint, derived, .. } = &**index;
        let (unique, constraint, derived) = (*unique, *constraint, derived.as_deref());
        let what = IndexOf { table, columns, derived, unique, primary: false, constraint };
        out.push(Relation { oid: id.0, schema, name, what: What::Index(what) });
    }
    for part in table.partitions.iter().flat_map(|p| &p.parts) {
        let what = What::Part(table, part);
        out.push(Relation { oid: part.id.0, schema: &part.schema, name: &part.name, what });
    }
}

/// Finds the relation with this OID. Catalog functions call this for each row, so it must be fast. Objects
/// with an id in the catalog are found by this id. For other indexes and partitions, all tables are searched.
pub fn relation(catalog: &Catalog, oid: u32) -> Option<Relation<'_>> {
    if let Some(table) = catalog.table_ref(TableId(oid)) {
        return Some(Relation { oid, schema: &table.schema, name: &table.name, what: What::Table(table) });
    }
    if let Some(s) = catalog.sequence_ref(SequenceId(oid)) {
        return Some(Relation { oid, schema: &s.schema, name: &s.name, what: What::Sequence(s) });
    }
    if let Some(v) = catalog.view_by_id(ObjectId(oid)) {
        return Some(Relation { oid, schema: &v.schema, name: &v.name, what: What::View(v) });
    }
    if let Some(t) = tables().iter().find(|t| t.oid == oid) {
        return Some(Relation { oid, schema: t.schema, name: t.name, what: What::System(t) });
    }
    let has = |table: &&Arc<TableDef>| {
        table.indexes.iter().any(|i| i.id.0 == oid)
            || table.partitions.iter().flat_map(|p| &p.parts).any(|part| part.id.0 == oid)
    };
    let table = match ids::table_of_key_index(oid) {
        Some(table) => catalog.table_ref(table)?,
        None => catalog.tables().find(has)?,
    };
    let mut of_table = Vec::new();
    push_table(table, &mut of_table);
    of_table.into_iter().find(|r| r.oid == oid)
}

/// Returns the OID of a schema.
pub fn namespace(catalog: &Catalog, schema: &str) -> u32 {
    match schema {
        "pg_catalog" => ids::PG_CATALOG,
        "information_schema" => ids::INFORMATION_SCHEMA,
        "public" => ids::PUBLIC,
        other => catalog.schemas().find(|s| s.name == other).map_or(0, |s| s.id.0),
    }
}

/// Returns the OIDs of a table's parts, in their order.
pub fn parts_of(catalog: &Catalog, table: u32) -> Vec<u32> {
    let is_part = |r: &Relation<'_>| matches!(r.what, What::Part(of, _) if of.id.0 == table);
    relations(catalog).into_iter().filter(is_part).map(|r| r.oid).collect()
}

/// Returns the type of a sequence's values.
pub fn sequence_type(sequence: &SequenceDef) -> Ty {
    Typed::of_column(sequence.data_type).ty
}

/// Returns the id of a relation in the catalog, if it has one.
pub fn object_of(r: &Relation<'_>) -> Option<ObjectId> {
    match r.what {
        What::Table(t) => Some(t.id.into()),
        What::Sequence(s) => Some(s.id.into()),
        What::View(v) => Some(v.id),
        What::Part(_, part) => Some(part.id),
        What::Index(_) | What::System(_) => Some(ObjectId(r.oid)),
    }
}
