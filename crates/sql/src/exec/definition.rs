//! CREATE, DROP, ALTER and TRUNCATE.
//!
//! Invariants
//! 1. A statement changes the catalog through the transaction only, so it is undone with it.
//! 2. IF [NOT] EXISTS turns the error into a notice.
//! 3. A table that was dropped or replaced while the statement waited for it is not reported by what it was: `Failed::Stale`.
//!
//! Does not know: which statements may come in which transaction (`session`).

use std::sync::Arc;

use sqlparser::ast::{self, ObjectType, Statement};
use varve_engine::{Catalog, Error as EngineError, NewIndex, StorageOptions, TableDef, Transaction};

use super::Facts;
use super::drop::{self, Drop};
use super::sequence_ddl::SequenceDdl;
use crate::bind::index::IndexSpec;
use crate::bind::sequence::{options_of, owned_by_name, sequence_type};
use crate::bind::{Binder, fold, object_name, undefined_table};
use crate::error::{SqlError, SqlState};
use crate::sink::{CommandTag, Severity};

/// Why a statement has defined nothing.
pub enum Failed {
    /// What a name stood for is gone: take back what was done, look the names up again, and repeat.
    Stale,
    /// An error for the client.
    Error(SqlError),
}

pub(super) type Result<T, E = Failed> = std::result::Result<T, E>;

impl From<SqlError> for Failed {
    fn from(e: SqlError) -> Self {
        Failed::Error(e)
    }
}

impl From<EngineError> for Failed {
    fn from(e: EngineError) -> Self {
        match e {
            EngineError::StaleDefinition { .. } => Failed::Stale,
            e => Failed::Error(e.into()),
        }
    }
}

/// Receives notices.
pub type Notices = Vec<(Severity, SqlError)>;

/// Runs a statement that defines something; `None` if it is of another kind.
pub fn run(
    statement: &Statement,
    source: &str,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<Option<CommandTag>> {
    let catalog = txn.catalog();
    let mut b = Binder::new(&catalog, source, &[])?.along(&facts.path);
    let tag = match statement {
        Statement::CreateTable(t) => create_table(&mut b, t, txn, facts, notices)?,
        Statement::CreateIndex(i) => create_index(&mut b, i, txn, notices)?,
        Statement::AlterTable(a) => super::alter::alter_table(a, source, txn, facts, notices)?,
        Statement::AlterIndex { name, operation: ast::AlterIndexOperation::RenameIndex { index_name } } => {
            let (schema, last) = object_name(name)?;
            let (_, to) = object_name(index_name)?;
            super::alter::rename_index((&schema, &last), &to, false, txn, notices)?
        }
        Statement::Comment { object_type, object_name, comment, if_exists: false } => {
            super::comment::comment(&catalog, object_type, object_name, comment.as_deref(), txn)?
        }
        Statement::Truncate(t) => truncate(&mut b, t, txn, notices)?,
        Statement::CreateSequence {
            temporary: false,
            if_not_exists,
            name,
            data_type,
            sequence_options,
            owned_by,
        } => {
            let mut options = options_of(sequence_options)?;
            options.data_type = data_type.as_ref().map(sequence_type).transpose()?;
            options.owned_by = owned_by.as_ref().map(owned_by_name).transpose()?;
            let name = object_name(name)?;
            SequenceDdl { txn, facts, notices }.create(name, &options, *if_not_exists)?
        }
        Statement::CreateSequence { .. } => return Err(refused("CREATE SEQUENCE")),
        Statement::CreateSchema {
            schema_name: ast::SchemaName::Simple(name),
            or_replace: false,
            if_not_exists,
            with: None,
            options: None,
            default_collate_spec: None,
            clone: None,
        } => create_schema(&catalog, name, *if_not_exists, txn, notices)?,
        Statement::CreateSchema { .. } => return Err(refused("CREATE SCHEMA")),
        Statement::CreateView(v) => super::view::create_view(&mut b, v, txn)?,
        Statement::Drop {
            object_type,
            if_exists,
            names,
            cascade,
            restrict: _,
            purge: false,
            temporary: false,
            table: None,
        } => {
            let d = Drop { kind: *object_type, if_exists: *if_exists, names, cascade: *cascade };
            match object_type {
                ObjectType::Schema => drop::drop_schema(&catalog, &d, txn, notices)?,
                _ => drop::drop_objects(&catalog, &d, txn, notices)?,
            }
        }
        Statement::Drop { .. } => return Err(refused("DROP")),
        _ => return Ok(None),
    };
    Ok(Some(CommandTag::Plain(tag)))
}

/// 0A000 for options of a statement that Varve lacks.
fn refused(statement: &str) -> Failed {
    SqlError::unsupported(format!("this form of {statement}")).into()
}

pub(super) fn notice(notices: &mut Notices, state: &'static str, message: String) {
    notices.push((Severity::Notice, SqlError::new(SqlState(state), message)));
}

/// A compression that can save nothing here is taken, with a notice.
pub(crate) fn tell_of_compression(txn: &Transaction, storage: StorageOptions, notices: &mut Notices) {
    if storage.compression.is_some_and(|how| !how.is_none())
        && let Some(why) = txn.database().pager().saves_nothing()
    {
        notice(notices, "00000", why);
    }
}

fn create_table(
    b: &mut Binder<'_>,
    t: &ast::CreateTable,
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
    let table = txn.create_table(spec.table)?;
    for (ordinal, mut sequence) in spec.sequences {
        sequence.owned_by = Some((table.id, ordinal));
        txn.create_sequence(sequence)?;
    }
    for (name, columns) in spec.uniques {
        txn.create_index(NewIndex { table: table.id, name, columns, unique: true, constraint: true })?;
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
    i: &ast::CreateIndex,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let IndexSpec { new, derived, if_not_exists } = b.create_index(i)?;
    let (schema, _) = object_name(&i.table_name)?;
    if b.catalog.resolve(&schema, &new.name).is_some() {
        let message = format!("relation \"{}\" already exists", new.name);
        if if_not_exists {
            notice(notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
            return Ok("CREATE INDEX");
        }
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    let (name, table) = (new.name.clone(), b.existing_table(&i.table_name)?);
    let made = match derived {
        None => txn.create_index(new),
        Some(derived) => txn.create_derived_index(new, derived),
    };
    made.map_err(|e| duplicate_in_build(e, &name, &table))?;
    Ok("CREATE INDEX")
}

/// PostgreSQL's words for a duplicate met while an index is built.
pub(super) fn duplicate_in_build(e: EngineError, name: &str, table: &TableDef) -> Failed {
    let out = match Failed::from(e) {
        Failed::Error(e) if e.sqlstate == SqlState::UNIQUE_VIOLATION => e,
        other => return other,
    };
    let detail = out.detail.as_deref().map(|d| d.replace(" already exists.", " is duplicated."));
    let message = format!("could not create unique index \"{name}\"").into();
    let error = SqlError { message, detail: detail.map(Into::into), ..out };
    error.of_table(&table.schema, &table.name).into()
}

/// Tables that refer to those that are emptied: refused, or (with CASCADE) emptied too.
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
    t: &ast::Truncate,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    if t.partitions.is_some() || t.on_cluster.is_some() || t.if_exists {
        return Err(SqlError::unsupported("this form of TRUNCATE").into());
    }
    let mut tables: Vec<Arc<TableDef>> = Vec::new();
    for target in &t.table_names {
        let table = b.existing_table(&target.name)?;
        if !tables.iter().any(|x| x.id == table.id) {
            tables.push(table);
        }
    }
    add_children(b.catalog, &mut tables, matches!(t.cascade, Some(ast::CascadeOption::Cascade)), notices)?;
    for table in &tables {
        txn.truncate(table.id)?;
        if matches!(t.identity, Some(ast::TruncateIdentityOption::Restart)) {
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
    name: &ast::ObjectName,
    if_not_exists: bool,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let name = name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
    if name.starts_with("pg_") {
        let message = format!("unacceptable schema name \"{name}\"");
        return Err(SqlError::new(SqlState("42939"), message)
            .with_detail("The prefix \"pg_\" is reserved for system schemas.")
            .into());
    }
    if catalog.has_schema(&name) && if_not_exists {
        notice(notices, "42P06", format!("schema \"{name}\" already exists, skipping"));
        return Ok("CREATE SCHEMA");
    }
    txn.create_schema(&name)?;
    Ok("CREATE SCHEMA")
}

impl Binder<'_> {
    /// A table that a command names.
    pub(super) fn existing_table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>, SqlError> {
        let (schema, last) = object_name(name)?;
        match self.catalog.table(&schema, &last) {
            Some(table) => Ok(table),
            None if self.catalog.part(&schema, &last).is_some() => {
                Err(SqlError::unsupported("this of a partition by its own name")
                    .with_hint("Name the partitioned table."))
            }
            None if self.catalog.resolve(&schema, &last).is_some() => {
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{last}\" is not a table")))
            }
            None => Err(undefined_table(name)),
        }
    }
}
