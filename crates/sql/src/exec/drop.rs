//! Executes DROP, for the named objects and for objects that depend on them.
//!
//! Invariants
//! 1. Without CASCADE only named objects are dropped. If other objects depend on them, error 2BP01 names
//!    these.
//! 2. Objects that one statement names may depend on each other.
//!
//! This module does not know how an object is removed (the engine).

use std::sync::Arc;

use crate::ast;
use crate::names::object_name;
use crate::nextval::draws_from;
use varve_engine::{
    Catalog, Error as EngineError, ForeignKey, IndexId, Named, ObjectId, SequenceDef, SequenceId, TableDef,
    TableId, Transaction, ViewDef,
};

use super::notice::{Notices, Result, notice};
use crate::ast::{Drop, DropKind};
use crate::bind::foreign::same_columns;
use crate::error::{SqlError, SqlState};
use crate::sink::Severity;
use crate::system::names::quoted;

/// Something that a statement drops.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gone {
    Table(TableId),
    View(ObjectId),
    Sequence(SequenceId),
    Index(TableId, IndexId),
    /// A foreign key of this table.
    Key(TableId, ObjectId),
    /// The default of a column of this table.
    Default(TableId, usize),
    /// A partition of this table, with its rows.
    Part(TableId, ObjectId),
}

/// Something that is dropped without being named, and the object that it depends on.
pub(super) struct Dependent {
    gone: Gone,
    what: String,
    on: String,
}

/// Runs DROP.
pub(super) fn drop_objects(
    catalog: &Catalog,
    d: &Drop,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let mut named = Vec::new();
    for name in &d.names {
        match find(d.kind, catalog, name)? {
            // The statement has the same name twice.
            Some(gone) if named.contains(&gone) => {}
            Some(gone) => named.push(gone),
            None if d.if_exists => {
                notice(notices, "00000", format!("{}, skipping", missing(d.kind, name)?.message));
            }
            None => return Err(missing(d.kind, name)?.into()),
        }
    }
    let of = if d.names.len() == 1 { described(catalog, d.kind, &named) } else { None };
    drop_all(catalog, of.as_deref(), named, d.cascade, txn, notices)?;
    Ok(d.kind.tag())
}

/// Finds the object that a name means.
fn find(kind: DropKind, catalog: &Catalog, name: &ast::ObjectName) -> Result<Option<Gone>> {
    let (schema, last) = object_name(name)?;
    let found = match kind {
        DropKind::Table => match catalog.part(&schema, &last) {
            Some((table, part)) => Some(Gone::Part(table.id, part.id)),
            None => catalog.table(&schema, &last).map(|t| Gone::Table(t.id)),
        },
        DropKind::View => catalog.view(&schema, &last).map(|v| Gone::View(v.id)),
        DropKind::Sequence => match catalog.sequence(&schema, &last) {
            Some(sequence) => {
                refuse_identity(catalog, &sequence)?;
                Some(Gone::Sequence(sequence.id))
            }
            None => None,
        },
        DropKind::Index => return index(catalog, &schema, &last),
        DropKind::Schema => return Err(SqlError::internal("a schema among relations").into()),
    };
    if found.is_none() && catalog.resolve(&schema, &last).is_some() {
        let (article, word) = match kind {
            DropKind::Sequence => ("a", "sequence"),
            DropKind::View => ("a", "view"),
            _ => ("a", "table"),
        };
        let message = format!("\"{last}\" is not {article} {word}");
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
    }
    Ok(found)
}

/// Runs DROP SCHEMA.
pub(super) fn drop_schema(
    catalog: &Catalog,
    d: &Drop,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let mut schemas: Vec<String> = Vec::new();
    for name in &d.names {
        let last = name.last().to_owned();
        if !catalog.has_schema(&last) {
            let message = format!("schema \"{last}\" does not exist");
            match d.if_exists {
                true => notice(notices, "00000", format!("{message}, skipping")),
                false => return Err(SqlError::new(SqlState::INVALID_SCHEMA, message).into()),
            }
        } else if !schemas.contains(&last) {
            schemas.push(last);
        }
    }
    // This waits for transactions that create something in these schemas.
    schemas.iter().try_for_each(|schema| txn.lock_schema(schema))?;
    let mut found = FoundDependents { catalog, seen: Vec::new(), dependents: Vec::new() };
    schemas.iter().for_each(|schema| found.add_all(inside(catalog, schema)));
    let dependents = found.told();
    let of = (d.names.len() == 1).then(|| schemas.first().map(|schema| format!("schema {schema}"))).flatten();
    settle(of.as_deref(), &dependents, d.cascade, notices)?;
    remove(catalog, dependents.into_iter().map(|d| d.gone).collect(), txn)?;
    schemas.iter().try_for_each(|schema| txn.drop_schema(schema))?;
    Ok("DROP SCHEMA")
}

/// Returns the objects in a schema.
fn inside(catalog: &Catalog, schema: &str) -> Vec<(ObjectId, Dependent)> {
    let on = format!("schema {schema}");
    let mut found: Vec<(ObjectId, Dependent)> = Vec::new();
    let mut add = |id: ObjectId, gone: Gone, kind: &str, name: &str| {
        let what = format!("{kind} {}", shown(schema, name));
        found.push((id, Dependent { gone, what, on: on.clone() }));
    };
    for t in catalog.tables().filter(|t| t.schema == schema) {
        add(t.id.into(), Gone::Table(t.id), "table", &t.name);
    }
    for v in catalog.views().filter(|v| v.schema == schema) {
        add(v.id, Gone::View(v.id), "view", &v.name);
    }
    for s in catalog.sequences().filter(|s| s.schema == schema && s.owned_by.is_none()) {
        add(s.id.into(), Gone::Sequence(s.id), "sequence", &s.name);
    }
    found
}

/// Drops these objects and, with CASCADE, everything that depends on them. If the statement names one object
/// only, `of` is its description for messages.
fn drop_all(
    catalog: &Catalog,
    of: Option<&str>,
    named: Vec<Gone>,
    cascade: bool,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<()> {
    let dependents = dependents_of(catalog, &named);
    settle(of, &dependents, cascade, notices)?;
    let mut gone: Vec<Gone> = dependents.into_iter().map(|d| d.gone).collect();
    gone.extend(named);
    remove(catalog, gone, txn)
}

impl Dependent {
    pub(super) fn view(view: &ViewDef, on: &str) -> Dependent {
        let what = format!("view {}", shown(&view.schema, &view.name));
        Dependent { gone: Gone::View(view.id), what, on: on.to_owned() }
    }

    pub(super) fn key(child: &TableDef, key: &ForeignKey, on: &str) -> Dependent {
        let what = format!("constraint {} on table {}", key.name, shown(&child.schema, &child.name));
        Dependent { gone: Gone::Key(child.id, key.id), what, on: on.to_owned() }
    }
}

/// Drops everything that depends on something smaller than an object, such as a column or a constraint. Fails
/// without CASCADE.
pub(super) fn drop_dependents(
    catalog: &Catalog,
    of: &str,
    direct: Vec<Dependent>,
    cascade: bool,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<()> {
    let mut found = FoundDependents { catalog, seen: Vec::new(), dependents: Vec::new() };
    found.add_all(direct.into_iter().map(|d| (d.gone.id(), d)).collect());
    let dependents = found.told();
    settle(Some(of), &dependents, cascade, notices)?;
    remove(catalog, dependents.into_iter().map(|d| d.gone).collect(), txn)
}

/// Collects the dependent objects in the order of PostgreSQL's messages: each object after the one that it
/// depends on, older objects first, and the dependents of the object that was named last before those of the
/// others.
struct FoundDependents<'c> {
    catalog: &'c Catalog,
    seen: Vec<Gone>,
    /// The dependent objects, in the reverse of this order.
    dependents: Vec<Dependent>,
}

impl FoundDependents<'_> {
    fn add_all(&mut self, mut direct: Vec<(ObjectId, Dependent)>) {
        direct.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        for (_, dependent) in direct {
            if !self.seen.contains(&dependent.gone) {
                self.seen.push(dependent.gone.clone());
                self.add_all(direct_of(self.catalog, &dependent.gone));
                self.dependents.push(dependent);
            }
        }
    }

    fn told(mut self) -> Vec<Dependent> {
        // A part of a table that is dropped itself, such as a default, is not mentioned.
        let seen = &self.seen;
        let goes_anyway = |gone: &Gone| match gone {
            Gone::Key(table, _) | Gone::Default(table, _) => seen.contains(&Gone::Table(*table)),
            _ => false,
        };
        self.dependents.retain(|d| !goes_anyway(&d.gone));
        self.dependents.reverse();
        self.dependents
    }
}

/// Returns everything that depends on the named objects, directly or indirectly.
fn dependents_of(catalog: &Catalog, named: &[Gone]) -> Vec<Dependent> {
    let mut found = FoundDependents { catalog, seen: named.to_vec(), dependents: Vec::new() };
    named.iter().for_each(|gone| found.add_all(direct_of(catalog, gone)));
    found.told()
}

/// Returns the objects that depend directly on one object. The ids decide the order in messages.
fn direct_of(catalog: &Catalog, gone: &Gone) -> Vec<(ObjectId, Dependent)> {
    let (object, on) = match gone {
        Gone::Table(id) => match catalog.table_by_id(*id) {
            Some(t) => (ObjectId::from(*id), format!("table {}", shown(&t.schema, &t.name))),
            None => return Vec::new(),
        },
        Gone::View(id) => match catalog.view_by_id(*id) {
            Some(v) => (*id, format!("view {}", shown(&v.schema, &v.name))),
            None => return Vec::new(),
        },
        Gone::Sequence(id) => {
            return catalog.sequence_by_id(*id).map_or_else(Vec::new, |s| defaults_of(catalog, &s));
        }
        Gone::Index(..) | Gone::Key(..) | Gone::Default(..) | Gone::Part(..) => return Vec::new(),
    };
    let mut out = Vec::new();
    if let Gone::Table(id) = gone {
        for (child, key) in catalog.children(*id).filter(|(child, _)| child.id != *id) {
            out.push((key.id, Dependent::key(child, key, &on)));
        }
        out.extend(defaults_of_owned(catalog, *id, |_| true));
    }
    for view in catalog.views().filter(|v| v.uses.iter().any(|used| used.object == object)) {
        out.push((view.id, Dependent::view(view, &on)));
    }
    out
}

/// Handles dependent objects, if there are any. Without CASCADE it fails with 2BP01, and with CASCADE it adds
/// a notice.
fn settle(of: Option<&str>, dependents: &[Dependent], cascade: bool, notices: &mut Notices) -> Result<()> {
    let Some(first) = dependents.first() else { return Ok(()) };
    if !cascade {
        let message = match of {
            Some(of) => format!("cannot drop {of} because other objects depend on it"),
            None => "cannot drop desired object(s) because other objects depend on them".to_owned(),
        };
        let lines: Vec<String> =
            dependents.iter().map(|d| format!("{} depends on {}", d.what, d.on)).collect();
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
            .with_detail(lines.join("\n"))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
            .into());
    }
    if dependents.len() == 1 {
        notice(notices, "00000", format!("drop cascades to {}", first.what));
        return Ok(());
    }
    let lines: Vec<String> = dependents.iter().map(|d| format!("drop cascades to {}", d.what)).collect();
    let message = format!("drop cascades to {} other objects", dependents.len());
    let told = SqlError::new(SqlState("00000"), message).with_detail(lines.join("\n"));
    notices.push((Severity::Notice, told));
    Ok(())
}

/// Drops objects. An object that uses other objects is dropped before these.
fn remove(catalog: &Catalog, gone: Vec<Gone>, txn: &mut Transaction) -> Result<()> {
    for one in &gone {
        match one {
            Gone::Key(child, key) => drop(txn.drop_constraint(*child, *key)?),
            Gone::View(view) => txn.drop_view(*view)?,
            Gone::Index(table, index) => txn.drop_index(*table, *index)?,
            Gone::Default(table, column) if !gone.contains(&Gone::Table(*table)) => {
                let stale = || EngineError::StaleDefinition { table: format!("table {}", table.0) };
                let def = txn.catalog().table_by_id(*table).ok_or_else(stale)?;
                txn.alter_column(*table, *column, None, def.columns[*column].not_null)?;
            }
            Gone::Part(table, part) if !gone.contains(&Gone::Table(*table)) => {
                super::part::drop_part(*table, *part, txn)?
            }
            Gone::Table(_) | Gone::Sequence(_) | Gone::Default(..) | Gone::Part(..) => {}
        }
    }
    let tables: Vec<TableId> = gone.iter().filter_map(Gone::table).collect();
    // Tables that are dropped together may have foreign keys to each other. These keys are dropped first.
    for table in &tables {
        let children: Vec<_> = catalog.children(*table).map(|(child, key)| (child.id, key.id)).collect();
        for (child, key) in children {
            if child != *table && tables.contains(&child) && has_key(txn, child, key) {
                txn.drop_constraint(child, key)?;
            }
        }
    }
    tables.into_iter().try_for_each(|table| txn.drop_table(table))?;
    for one in gone {
        if let Gone::Sequence(sequence) = one {
            txn.drop_sequence(sequence)?;
        }
    }
    Ok(())
}

fn has_key(txn: &mut Transaction, table: TableId, key: ObjectId) -> bool {
    let def = txn.catalog().table_by_id(table);
    def.is_some_and(|t: Arc<TableDef>| t.foreign_keys.iter().any(|k| k.id == key))
}

impl Gone {
    fn id(&self) -> ObjectId {
        match self {
            Gone::Table(id) | Gone::Default(id, _) => (*id).into(),
            Gone::Sequence(id) => (*id).into(),
            Gone::Index(_, id) => (*id).into(),
            Gone::View(id) | Gone::Key(_, id) | Gone::Part(_, id) => *id,
        }
    }

    fn table(&self) -> Option<TableId> {
        match self {
            Gone::Table(id) => Some(*id),
            _ => None,
        }
    }
}

fn described(catalog: &Catalog, kind: DropKind, named: &[Gone]) -> Option<String> {
    let name = match named.first()? {
        Gone::Table(id) => catalog.table_by_id(*id).map(|t| shown(&t.schema, &t.name))?,
        Gone::View(id) => catalog.view_by_id(*id).map(|v| shown(&v.schema, &v.name))?,
        Gone::Sequence(id) => catalog.sequence_by_id(*id).map(|s| shown(&s.schema, &s.name))?,
        Gone::Index(..) | Gone::Key(..) | Gone::Default(..) | Gone::Part(..) => return None,
    };
    Some(format!("{} {name}", kind.name()))
}

/// Returns a name as messages show it: with its schema, unless the search path finds the name in this schema.
pub(super) fn shown(schema: &str, name: &str) -> String {
    if schema == varve_engine::catalog::PUBLIC { name.to_owned() } else { format!("{schema}.{name}") }
}

fn missing(kind: DropKind, name: &ast::ObjectName) -> Result<SqlError, SqlError> {
    let (_, last) = object_name(name)?;
    let (state, word) = match kind {
        DropKind::Table => (SqlState::UNDEFINED_TABLE, "table"),
        DropKind::View => (SqlState::UNDEFINED_TABLE, "view"),
        DropKind::Index => (SqlState::UNDEFINED_OBJECT, "index"),
        _ => (SqlState::UNDEFINED_TABLE, "sequence"),
    };
    Ok(SqlError::new(state, format!("{word} \"{last}\" does not exist")))
}

fn index(catalog: &Catalog, schema: &str, last: &str) -> Result<Option<Gone>> {
    let Some((table, index)) = catalog.index(schema, last) else {
        return match catalog.resolve(schema, last) {
            Some(Named::PrimaryKey(table)) => {
                let table = catalog.table_by_id(table);
                Err(needed_index(last, table.as_deref().map_or("", |table| &table.name)).into())
            }
            Some(_) => {
                let message = format!("\"{last}\" is not an index");
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into())
            }
            None => Ok(None),
        };
    };
    if index.constraint {
        return Err(needed_index(last, &table.name).into());
    }
    let needs = |key: &ForeignKey| {
        same_columns(&key.parent_columns, &index.columns)
            && !same_columns(&index.columns, table.key_columns())
    };
    if let Some((child, key)) = catalog.children(table.id).find(|(_, key)| index.unique && needs(key)) {
        let message = format!("cannot drop index {last} because other objects depend on it");
        let what = format!("constraint {} on table {}", key.name, shown(&child.schema, &child.name));
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
            .with_detail(format!("{what} depends on index {last}"))
            .with_hint("Drop the constraint first.")
            .into());
    }
    Ok(Some(Gone::Index(table.id, index.id)))
}

/// Returns the error 2BP01: the index belongs to a constraint of the same name.
fn needed_index(name: &str, table: &str) -> SqlError {
    let (name, table) = (quoted(name), quoted(table));
    let message = format!("cannot drop index {name} because constraint {name} on table {table} requires it");
    SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
        .with_hint(format!("You can drop constraint {name} on table {table} instead."))
}

/// Fails if the sequence belongs to an identity column, because the column needs it.
fn refuse_identity(catalog: &Catalog, sequence: &SequenceDef) -> Result<()> {
    let Some((table, ordinal)) = sequence.owned_by else { return Ok(()) };
    let Some(table) = catalog.table_by_id(table).filter(|t| t.columns[ordinal].identity.is_some()) else {
        return Ok(());
    };
    let column =
        format!("column {} of table {}", table.columns[ordinal].name, shown(&table.schema, &table.name));
    let name = shown(&sequence.schema, &sequence.name);
    let message = format!("cannot drop sequence {name} because {column} requires it");
    let error = SqlError::new(SqlState::DEPENDENT_OBJECTS, message);
    Err(error.with_hint(format!("You can drop {column} instead.")).into())
}

/// Returns the defaults that use sequences which these columns of a table own. The defaults of these columns
/// themselves are left out.
pub(super) fn defaults_of_owned(
    catalog: &Catalog,
    table: TableId,
    is_gone: impl Fn(usize) -> bool,
) -> Vec<(ObjectId, Dependent)> {
    let owned = catalog.sequences().filter(|s| s.owned_by.is_some_and(|(t, c)| t == table && is_gone(c)));
    let mut found: Vec<_> = owned.flat_map(|s| defaults_of(catalog, s)).collect();
    found.retain(|(_, d)| !matches!(d.gone, Gone::Default(t, c) if t == table && is_gone(c)));
    found
}

/// Returns the defaults that use a sequence.
fn defaults_of(catalog: &Catalog, sequence: &SequenceDef) -> Vec<(ObjectId, Dependent)> {
    let on = format!("sequence {}", shown(&sequence.schema, &sequence.name));
    let mut found = Vec::new();
    for table in catalog.tables() {
        for (ordinal, column) in table.columns.iter().enumerate().filter(|(_, c)| c.identity.is_none()) {
            if column.default.as_deref().is_some_and(|text| draws_from(text, sequence)) {
                let of = shown(&table.schema, &table.name);
                let what = format!("default value for column {} of table {of}", column.name);
                let gone = Gone::Default(table.id, ordinal);
                found.push((table.id.into(), Dependent { gone, what, on: on.clone() }));
            }
        }
    }
    found
}
