//! Executes CREATE, DROP, ALTER and TRUNCATE.
//!
//! Invariants
//! 1. A statement changes the catalog only through the transaction, so a rollback undoes the change.
//! 2. IF [NOT] EXISTS turns the error into a notice.
//!
//! This module does not know which statements a transaction allows (`session`).

use std::sync::Arc;

use crate::ast;
use crate::names::{object_name, undefined_table, unsupported_of_part};
use varve_engine::{Catalog, Error as EngineError, NewIndex, NewTable, TableDef, Transaction};

use super::Facts;
use super::drop;
use super::notice::{Notices, Result, duplicate_in_build, notice, tell_of_compression};
use super::sequence_ddl::SequenceDdl;
use super::tablespace;
use crate::ast::{CreateIndex, CreateSchema, CreateTable, Definition, DropKind, Truncate};
use crate::bind::index::IndexSpec;
use crate::bind::{Binder, only};
use crate::error::{SqlError, SqlState};
use crate::sink::CommandTag;
use crate::table_method::TableMethod;

/// Runs a statement that defines something.
pub fn run(
    statement: &Definition,
    source: &str,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<CommandTag> {
    let catalog = txn.catalog();
    let mut b = Binder::of_kept(&catalog, source)?.along(&facts.path);
    Ok(CommandTag::Plain(match statement {
        Definition::CreateTable(t) => create_table(&mut b, t, txn, facts, notices)?,
        Definition::CreateTableAs(_) => {
            return Err(SqlError::internal("a table of a query as a definition alone").into());
        }
        Definition::CreateIndex(i) => create_index(&mut b, i, txn, facts, notices)?,
        Definition::CreateView(v) => super::view::create_view(&mut b, v, txn)?,
        Definition::CreateSequence(s) => {
            let name = object_name(&s.name)?;
            SequenceDdl { txn, facts, notices }.create(name, &s.options, s.if_not_exists)?
        }
        Definition::CreateSchema(s) => create_schema(&catalog, s, txn, notices)?,
        Definition::AlterTable(a) => super::alter::alter_table(a, source, txn, facts, notices)?,
        Definition::AlterSequence(s) => {
            let name = object_name(&s.name)?;
            SequenceDdl { txn, facts, notices }.alter(name, s.if_exists, &s.action)?
        }
        Definition::RenameIndex(r) => {
            let (schema, name) = object_name(&r.name)?;
            super::alter::rename_index((&schema, &name), &r.to, r.if_exists, txn, notices)?
        }
        Definition::MoveIndex(m) => {
            let (schema, name) = object_name(&m.name)?;
            let index = (&*schema, &*name);
            super::alter::move_index(index, &m.tablespace, m.if_exists, txn, facts, notices)?
        }
        Definition::Comment(c) => super::comment::comment(&catalog, c, txn, notices)?,
        Definition::Truncate(t) => truncate(&mut b, t, txn, notices)?,
        Definition::Drop(d) if d.kind == DropKind::Schema => drop::drop_schema(&catalog, d, txn, notices)?,
        Definition::Drop(d) => drop::drop_objects(&catalog, d, txn, notices)?,
    }))
}

fn create_table(
    b: &mut Binder<'_>,
    t: &CreateTable,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<&'static str> {
    if let Some(of) = &t.partition_of {
        return super::part::create_part(b, t, of, txn, facts, notices);
    }
    let spec = b.create_table(t)?;
    if b.catalog.resolve(&spec.table.schema, &spec.table.name).is_some() {
        let message = format!("relation \"{}\" already exists", spec.table.name);
        if spec.if_not_exists {
            notice(notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
            return Ok("CREATE TABLE");
        }
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    tell_of_compression(txn, spec.table.storage, notices);
    let method = TableMethod::of_new_table(t.method.as_deref(), facts.table_method)?;
    let (engine, catalog) = (method.engine(), txn.catalog());
    let mut storage = spec.table.storage;
    // The setting `default_tablespace` does not concern the memory-oriented engines.
    if engine.is_none() || t.tablespace.is_some() {
        storage.tablespace = tablespace::of_new(t.tablespace.as_deref(), txn, &catalog, facts)?;
    }
    let of_keys = if engine.is_none() { tablespace::of_new(None, txn, &catalog, facts)? } else { None };
    let table = txn.create_table(NewTable { engine, storage, ..spec.table })?;
    for (ordinal, mut sequence) in spec.sequences {
        sequence.owned_by = Some((table.id, ordinal));
        txn.create_sequence(sequence)?;
    }
    for (name, columns) in spec.uniques {
        let (table, tablespace) = (table.id, of_keys);
        txn.create_index(NewIndex { table, name, columns, unique: true, constraint: true, tablespace })?;
    }
    for key in &spec.foreign_keys {
        let catalog = txn.catalog();
        let stale = || EngineError::StaleDefinition { table: table.name.clone() };
        let table = catalog.table_by_id(table.id).ok_or_else(stale)?;
        let key = Binder::new(&catalog, "", &[])?.foreign_key(&table, key)?;
        txn.add_foreign_key(table.id, key)?;
    }
    Ok("CREATE TABLE")
}

fn create_index(
    b: &mut Binder<'_>,
    i: &CreateIndex,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<&'static str> {
    let IndexSpec { mut new, derived, if_not_exists } = b.create_index(i)?;
    let (schema, _) = object_name(&i.table)?;
    if b.catalog.resolve(&schema, &new.name).is_some() {
        let message = format!("relation \"{}\" already exists", new.name);
        if if_not_exists {
            notice(notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
            return Ok("CREATE INDEX");
        }
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    let (name, table) = (new.name.clone(), b.existing_table(&i.table)?);
    if table.is_paged() || i.tablespace.is_some() {
        let catalog = txn.catalog();
        new.tablespace = tablespace::of_new(i.tablespace.as_deref(), txn, &catalog, facts)?;
    }
    let made = match derived {
        None => txn.create_index(new),
        Some(derived) => txn.create_derived_index(new, derived),
    };
    made.map_err(|e| duplicate_in_build(e, &name, &table))?;
    Ok("CREATE INDEX")
}

/// Finds tables whose foreign keys refer to tables that TRUNCATE empties. With CASCADE these tables are
/// emptied, too. Otherwise such a table is an error.
fn add_children(
    catalog: &Catalog,
    tables: &mut Vec<Arc<TableDef>>,
    cascade: bool,
    notices: &mut Notices,
) -> Result<()> {
    let mut at = 0;
    while let Some(table) = tables.get(at).cloned() {
        let mut children: Vec<_> = catalog.children(table.id).map(|(child, _)| Arc::clone(child)).collect();
        children.sort_by_key(|child| child.id);
        for child in children {
            if tables.iter().any(|t| t.id == child.id) {
                continue;
            }
            if !cascade {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(format!("Table \"{}\" references \"{}\".", child.name, table.name))
                    .with_hint(format!(
                        "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                        child.name
                    ))
                    .into());
            }
            notice(notices, "00000", format!("truncate cascades to table \"{}\"", child.name));
            tables.push(child);
        }
        at += 1;
    }
    Ok(())
}

fn truncate(
    b: &mut Binder<'_>,
    t: &Truncate,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let mut tables: Vec<Arc<TableDef>> = Vec::new();
    for (name, is_only) in t.tables.iter().zip(&t.only) {
        let table = b.existing_table(name)?;
        if *is_only {
            only::truncates(&table)?;
        }
        if !tables.iter().any(|x| x.id == table.id) {
            tables.push(table);
        }
    }
    add_children(b.catalog, &mut tables, t.cascade, notices)?;
    for table in &tables {
        txn.truncate(table.id)?;
        if t.restart_identity {
            let owned =
                |s: &&Arc<varve_engine::SequenceDef>| s.owned_by.is_some_and(|(id, _)| id == table.id);
            let sequences: Vec<_> = b.catalog.sequences().filter(owned).cloned().collect();
            for sequence in sequences {
                txn.restart_sequence(sequence.id)?;
            }
        }
    }
    Ok("TRUNCATE TABLE")
}

fn create_schema(
    catalog: &Catalog,
    s: &CreateSchema,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let name = &s.name;
    if name.starts_with("pg_") {
        let message = format!("unacceptable schema name \"{name}\"");
        return Err(SqlError::new(SqlState("42939"), message)
            .with_detail("The prefix \"pg_\" is reserved for system schemas.")
            .into());
    }
    if catalog.has_schema(name) && s.if_not_exists {
        notice(notices, "42P06", format!("schema \"{name}\" already exists, skipping"));
        return Ok("CREATE SCHEMA");
    }
    txn.create_schema(name)?;
    Ok("CREATE SCHEMA")
}

impl Binder<'_> {
    /// Finds a table that a statement names.
    pub(super) fn existing_table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>, SqlError> {
        let (schema, last) = object_name(name)?;
        match self.catalog.table(&schema, &last) {
            Some(table) => Ok(table),
            None if self.catalog.part(&schema, &last).is_some() => Err(unsupported_of_part(&last)),
            None if self.catalog.resolve(&schema, &last).is_some() => {
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{last}\" is not a table")))
            }
            None => Err(undefined_table(name)),
        }
    }
}
