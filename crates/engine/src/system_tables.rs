//! The system tables that store all definitions. They are paged tables like any other, and the same
//! transactions change them.
//!
//! | table | columns | key |
//! |---|---|---|
//! | objects | id int4, definition bytea (`catalog/codec.rs`) | id |
//! | names | schema text, name text, id int4 | schema, name |
//! | sequences | id int4, value int8, ended bool | id |
//!
//! The table `names` also lists objects without a schema. In place of a schema, such an entry has a text that
//! no statement can write as a schema name:
//!
//! | entry for | schema |
//! |---|---|
//! | a schema | empty; in a database other than `postgres` see [`listed`] |
//! | a role | [`ROLE_NAMES`] |
//! | a database | [`DATABASE_NAMES`] |
//! | the owner, grants and comment of an object | [`ABOUT_NAMES`]; the name is the object's number |
//!
//! Row 0 of `sequences` is the counter of object ids.
//!
//! Invariants
//! 1. A name is reserved by a row of `names`. So if two transactions create the same name, the second waits
//!    for the first.
//! 2. The catalog in memory has the same content as these tables.
//!
//! This module does not know what the definitions mean.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use varve_device::planted;

use crate::catalog::codec::{self, Definition};
use crate::catalog::sequence_range::StoredSequence;
use crate::catalog::{
    About, Catalog, ColumnDef, ObjectChange, ObjectId, POSTGRES, PUBLIC, PrimaryKey, RoleDef, SchemaDef,
    StorageOptions, Table, TableDef, TableId,
};
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, ObjectKind, Result};
use crate::ids::TreeAddress;
use crate::key;
use crate::paged::{ChangedInPlace, PagedStore};
use crate::row::{RowImage, RowRef, RowSchema};
use crate::row_access::{Change, Isolation, Outcome, ScanSpec};
use crate::types::{ColumnType, Datum};

const OBJECTS: usize = 0;
const NAMES: usize = 1;
const SEQUENCES: usize = 2;
/// Number of system tables.
pub(crate) const SYSTEM_LEN: usize = 3;
/// The sequence of object ids.
pub(crate) const OBJECT_IDS: u32 = 0;
/// First id of an object that is not built in.
const FIRST_OBJECT: i64 = 16_384;
/// Stands for a schema in the entries of roles.
pub(crate) const ROLE_NAMES: &str = "\0role";
/// Stands for a schema in the entries of databases.
pub(crate) const DATABASE_NAMES: &str = "\0database";
/// Stands for a schema in the entries for owner, grants and comment of objects.
pub(crate) const ABOUT_NAMES: &str = "\0about";
/// The schema `public`.
const PUBLIC_ID: u32 = 2_200;
/// The comment of the schema `public`.
pub(crate) const PUBLIC_COMMENT: &str = "standard public schema";
/// Owner, grants and comment of the schema `public`, as in PostgreSQL.
const ABOUT_PUBLIC_ID: u32 = 2_201;

fn column(name: &str, column_type: ColumnType) -> ColumnDef {
    ColumnDef { not_null: true, ..ColumnDef::new(name, column_type) }
}

fn system_def(which: usize, place: TreeAddress) -> TableDef {
    let (name, columns, key_columns) = match which {
        OBJECTS => (
            "objects",
            vec![column("id", ColumnType::Int4), column("definition", ColumnType::Bytea)],
            vec![0],
        ),
        NAMES => {
            let columns =
                [("schema", ColumnType::Text), ("name", ColumnType::Text), ("id", ColumnType::Int4)];
            ("names", columns.map(|(name, t)| column(name, t)).to_vec(), vec![0, 1])
        }
        _ => {
            let columns =
                [("id", ColumnType::Int4), ("value", ColumnType::Int8), ("ended", ColumnType::Bool)];
            ("sequences", columns.map(|(name, t)| column(name, t)).to_vec(), vec![0])
        }
    };
    let types: Vec<_> = columns.iter().map(|c| c.column_type).collect();
    TableDef {
        id: TableId(which as u32 + 1),
        database: POSTGRES,
        schema: "varve".into(),
        name: name.into(),
        columns,
        primary_key: Some(PrimaryKey { name: format!("{name}_pkey"), columns: key_columns }),
        indexes: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        partitions: None,
        is_unlogged: false,
        not_valid: Box::default(),
        storage: StorageOptions::default(),
        engine: "paged".into(),
        place,
        spread: Box::default(),
        row_schema: Arc::new(RowSchema::new(&types)),
        handle: OnceLock::new(),
    }
}

/// Returns a catalog with only the system tables.
pub(crate) fn bare(core: &Core, places: &[TreeAddress]) -> Catalog {
    let open = |(which, place): (usize, &TreeAddress)| core.open_table(system_def(which, *place));
    let mut catalog = Catalog::predefined();
    catalog.set_system(places.iter().enumerate().map(open).collect());
    catalog
}

fn store(tables: &[Arc<Table>], which: usize) -> &PagedStore {
    match PagedStore::of(&tables[which]) {
        Some(store) => store,
        None => unreachable!("system tables are paged"),
    }
}

/// Runs a step on the newest committed rows, at any isolation level of the transaction.
fn on_newest<T>(
    cx: &mut Context,
    which: usize,
    step: impl FnOnce(&mut Context, &PagedStore) -> Result<T>,
) -> Result<T> {
    let catalog = cx.core.catalog.current();
    let isolation = std::mem::replace(&mut cx.isolation, Isolation::ReadCommitted);
    let serial = cx.serial.take();
    let outcome = step(cx, store(catalog.system(), which));
    cx.isolation = isolation;
    cx.serial = serial;
    outcome
}

fn id_key(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    key::push(&mut out, ColumnType::Int4, &Datum::Int4(id as i32));
    out
}

fn name_key(schema: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    key::push_all(&mut out, &[ColumnType::Text; 2], &[Datum::Text(schema), Datum::Text(name)]);
    out
}

/// Stores a new definition.
pub(crate) fn add_object(cx: &mut Context, id: u32, definition: &Definition) -> Result<()> {
    let bytes = codec::encode(definition);
    on_newest(cx, OBJECTS, |cx, objects| {
        objects.insert_row(cx, &[Datum::Int4(id as i32), Datum::Bytea(&bytes)])
    })
}

/// Replaces a definition.
pub(crate) fn set_object(cx: &mut Context, id: u32, definition: &Definition) -> Result<()> {
    let bytes = codec::encode(definition);
    change(cx, OBJECTS, &id_key(id), |row| {
        let data = [Datum::Int4(id as i32), Datum::Bytea(&bytes)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    })
}

/// Replaces a definition that no lock protects. The error is `StaleDefinition` if another transaction has
/// changed or dropped it in the meantime.
pub(crate) fn exchange_object(cx: &mut Context, id: u32, old: &Definition, new: &Definition) -> Result<()> {
    let (old, bytes) = (codec::encode(old), codec::encode(new));
    let mut decide = |row: RowRef<'_>| {
        if !matches!(row.get(1), Datum::Bytea(now) if now == old) {
            return Ok(Change::Skip);
        }
        let data = [Datum::Int4(id as i32), Datum::Bytea(&bytes)];
        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
    };
    match on_newest(cx, OBJECTS, |cx, store| store.modify_row(cx, &id_key(id), &mut decide))? {
        Outcome::Changed => Ok(()),
        Outcome::Missing | Outcome::Skipped => Err(Error::StaleDefinition { table: format!("object {id}") }),
    }
}

/// Returns whether a definition is stored.
pub(crate) fn has_object(cx: &mut Context, id: u32) -> Result<bool> {
    let seen =
        on_newest(cx, OBJECTS, |cx, objects| objects.modify_row(cx, &id_key(id), &mut |_| Ok(Change::Skip)))?;
    Ok(matches!(seen, Outcome::Skipped | Outcome::Changed))
}

/// Removes a definition.
pub(crate) fn remove_object(cx: &mut Context, id: u32) -> Result<()> {
    change(cx, OBJECTS, &id_key(id), |_| Ok(Change::Delete))
}

/// Returns the text for a schema in the table of names. In the database `postgres` it is the schema's name,
/// as it was before there were several databases. In another database it is the database's number and the
/// schema's name, each after a NUL, which no name has. Objects that all databases share have the same text in
/// all databases.
fn listed<'s>(cx: &Context, schema: &'s str) -> Cow<'s, str> {
    match cx.database {
        POSTGRES => schema.into(),
        _ if [ROLE_NAMES, DATABASE_NAMES, ABOUT_NAMES].contains(&schema) => schema.into(),
        ObjectId(database) => format!("\0{database}\0{schema}").into(),
    }
}

/// Reserves a name. Waits for a transaction that has reserved or released it and not ended.
pub(crate) fn add_name(cx: &mut Context, kind: ObjectKind, schema: &str, name: &str, id: u32) -> Result<()> {
    if planted("catalog: an object without its name") && schema == PUBLIC {
        return Ok(());
    }
    let schema = listed(cx, schema);
    let row = [Datum::Text(&schema), Datum::Text(name), Datum::Int4(id as i32)];
    on_newest(cx, NAMES, |cx, names| names.insert_row(cx, &row)).map_err(|error| match error {
        Error::UniqueViolation { .. } => Error::Duplicate { kind, name: name.to_owned() },
        other => other,
    })
}

/// Releases a name.
pub(crate) fn remove_name(cx: &mut Context, schema: &str, name: &str) -> Result<()> {
    let key = name_key(&listed(cx, schema), name);
    change(cx, NAMES, &key, |_| Ok(Change::Delete))
}

/// Releases the name of an object that no lock protects. The error is `StaleDefinition` if another
/// transaction has dropped the object in the meantime, and perhaps given its name to another object.
pub(crate) fn remove_name_of(cx: &mut Context, schema: &str, name: &str, id: u32) -> Result<()> {
    let is_its = |row: RowRef<'_>| matches!(row.get(2), Datum::Int4(of) if of == id as i32);
    let mut decide = |row: RowRef<'_>| Ok(if is_its(row) { Change::Delete } else { Change::Skip });
    let key = name_key(&listed(cx, schema), name);
    match on_newest(cx, NAMES, |cx, store| store.modify_row(cx, &key, &mut decide))? {
        Outcome::Changed => Ok(()),
        Outcome::Missing | Outcome::Skipped => Err(Error::StaleDefinition { table: name.to_owned() }),
    }
}

fn change(
    cx: &mut Context,
    which: usize,
    key: &[u8],
    mut decide: impl FnMut(RowRef<'_>) -> Result<Change>,
) -> Result<()> {
    match on_newest(cx, which, |cx, store| store.modify_row(cx, key, &mut decide))? {
        Outcome::Changed => Ok(()),
        Outcome::Missing | Outcome::Skipped => Err(Error::corrupt("a row of the system tables is missing")),
    }
}

/// Adds the row of a sequence.
pub(crate) fn add_sequence(cx: &mut Context, id: u32, sequence: StoredSequence) -> Result<()> {
    let row = [Datum::Int4(id as i32), Datum::Int8(sequence.next), Datum::Bool(sequence.is_ended)];
    on_newest(cx, SEQUENCES, |cx, sequences| sequences.insert_row(cx, &row))
}

/// Removes the values of a sequence.
pub(crate) fn remove_sequence(cx: &mut Context, id: u32) -> Result<()> {
    change(cx, SEQUENCES, &id_key(id), |_| Ok(Change::Delete))
}

/// Returns the row of a sequence.
pub(crate) fn stored_sequence(core: &Core, id: u32) -> Result<Option<StoredSequence>> {
    let catalog = core.catalog.current();
    store(catalog.system(), SEQUENCES).peek(core, &id_key(id), |row| match (row.get(1), row.get(2)) {
        (Datum::Int8(next), Datum::Bool(is_ended)) => StoredSequence { next, is_ended },
        _ => StoredSequence { next: 0, is_ended: true },
    })
}

/// Changes the row of a sequence immediately for all transactions, and outside of any transaction. `edit`
/// gets the row, and returns its result and the new row.
pub(crate) fn advance_sequence<T>(
    core: &Core,
    id: u32,
    edit: impl FnOnce(StoredSequence) -> Result<(T, StoredSequence)>,
) -> Result<Option<ChangedInPlace<T>>> {
    let catalog = core.catalog.current();
    let sequences = store(catalog.system(), SEQUENCES);
    sequences.change_in_place(core, &id_key(id), |row| {
        let (Datum::Int8(next), Datum::Bool(is_ended)) = (row.get(1), row.get(2)) else {
            return Err(Error::corrupt("a row of the system table sequences has NULLs"));
        };
        let (result, new) = edit(StoredSequence { next, is_ended })?;
        let data = [Datum::Int4(id as i32), Datum::Int8(new.next), Datum::Bool(new.is_ended)];
        Ok((result, RowImage::encode(row.schema(), &data)?))
    })
}

/// Reads all committed definitions.
pub(crate) fn load(cx: &mut Context, mut catalog: Catalog) -> Result<Catalog> {
    let core = Arc::clone(&cx.core);
    let mut found = Vec::new();
    store(catalog.system(), OBJECTS).read_range(cx, &ScanSpec::ALL, &mut |_, row| {
        let Datum::Bytea(bytes) = row.get(1) else {
            return Err(Error::corrupt("an object without definition"));
        };
        found.push(codec::decode(bytes).ok_or_else(|| Error::corrupt("a definition cannot be read"))?);
        Ok(ControlFlow::Continue(()))
    })?;
    for definition in found {
        catalog.apply(opened(&core, definition));
    }
    Ok(catalog)
}

/// Returns the change of the catalog that adds a definition.
pub(crate) fn opened(core: &Core, definition: Definition) -> ObjectChange {
    match definition {
        Definition::Schema(def) => ObjectChange::Schema(def.id, Some(Arc::new(def))),
        Definition::Table(def) => ObjectChange::Table(def.id, Some(core.open_table(*def))),
        Definition::Sequence(def) => ObjectChange::Sequence(def.id, Some(Arc::new(def))),
        Definition::View(def) => ObjectChange::View(def.id, Some(Arc::new(def))),
        Definition::Database(def) => ObjectChange::Database(def.id, Some(Arc::new(def))),
        Definition::Role(def) => ObjectChange::Role(def.id, Some(Arc::new(def))),
        Definition::About(def) => ObjectChange::About(def.object, Some(Arc::new(def))),
    }
}

/// Inserts the first rows of a new database.
pub(crate) fn fill(cx: &mut Context) -> Result<()> {
    add_sequence(cx, OBJECT_IDS, StoredSequence { next: FIRST_OBJECT, is_ended: false })?;
    let public = SchemaDef { id: ObjectId(PUBLIC_ID), database: POSTGRES, name: PUBLIC.into() };
    add_name(cx, ObjectKind::Schema, "", PUBLIC, PUBLIC_ID)?;
    add_object(cx, PUBLIC_ID, &Definition::Schema(public))?;
    let mut about = About::new(ObjectId(ABOUT_PUBLIC_ID), ObjectId(PUBLIC_ID));
    about.set_comment(None, Some(PUBLIC_COMMENT.to_owned()));
    add_name(cx, ObjectKind::Constraint, ABOUT_NAMES, &PUBLIC_ID.to_string(), ABOUT_PUBLIC_ID)?;
    add_object(cx, ABOUT_PUBLIC_ID, &Definition::About(about))?;
    let role = RoleDef::bootstrap();
    add_name(cx, ObjectKind::Role, ROLE_NAMES, &role.name, role.id.0)?;
    add_object(cx, role.id.0, &Definition::Role(role))
}
