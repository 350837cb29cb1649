//! CREATE, DROP, ALTER and TRUNCATE.
//!
//! Invariants
//! 1. A statement changes the catalog through the transaction only, so it is undone with it.
//! 2. IF [NOT] EXISTS turns the error into a notice.
//! 3. A table that was dropped or replaced while the statement waited for it is not reported by what it was: `Failed::Stale`.
//!
//! Does not know: which statements may come in which transaction (`session`).

use std::sync::Arc;

use sqlparser::ast::{self, ObjectType, SequenceOptions, Statement};
use varve_engine::{Catalog, Error as EngineError, NewIndex, NewSequence, TableDef, Transaction};

use crate::bind::ddl::{Alteration, no_schema};
use crate::bind::{Binder, clauses_ddl, fold, object_name, undefined_table};
use crate::error::{SqlError, SqlState};
use crate::sink::{CommandTag, Severity};

/// Why a statement has defined nothing.
pub enum Failed {
    /// What a name stood for is gone: take back what was done, look the names up again, and repeat.
    Stale,
    /// An error for the client.
    Error(SqlError),
}

type Result<T, E = Failed> = std::result::Result<T, E>;

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
    notices: &mut Notices,
) -> Result<Option<CommandTag>> {
    let catalog = txn.catalog();
    let mut b = Binder::new(&catalog, source, &[])?;
    let tag = match statement {
        Statement::CreateTable(t) => create_table(&mut b, t, txn, notices)?,
        Statement::CreateIndex(i) => create_index(&mut b, i, txn, notices)?,
        Statement::AlterTable(a) => alter_table(&mut b, a, txn, notices)?,
        Statement::Truncate(t) => truncate(&mut b, t, txn)?,
        Statement::CreateSequence {
            temporary: false,
            if_not_exists,
            name,
            data_type: None,
            sequence_options,
            owned_by: None,
        } => create_sequence(&catalog, name, sequence_options, *if_not_exists, txn, notices)?,
        Statement::CreateSequence { .. } => {
            return Err(SqlError::unsupported("this form of CREATE SEQUENCE").into());
        }
        Statement::CreateSchema {
            schema_name: ast::SchemaName::Simple(name),
            or_replace: false,
            if_not_exists,
            with: None,
            options: None,
            default_collate_spec: None,
            clone: None,
        } => create_schema(&catalog, name, *if_not_exists, txn, notices)?,
        Statement::CreateSchema { .. } => {
            return Err(SqlError::unsupported("this form of CREATE SCHEMA").into());
        }
        Statement::Drop {
            object_type,
            if_exists,
            names,
            cascade,
            restrict: _,
            purge: false,
            temporary: false,
            table: None,
        } => drop_objects(&catalog, *object_type, *if_exists, names, *cascade, txn, notices)?,
        Statement::Drop { .. } => return Err(SqlError::unsupported("this form of DROP").into()),
        _ => return Ok(None),
    };
    Ok(Some(CommandTag::Plain(tag)))
}

fn notice(notices: &mut Notices, state: &'static str, message: String) {
    notices.push((Severity::Notice, SqlError::new(SqlState(state), message)));
}

fn create_table(
    b: &mut Binder<'_>,
    t: &ast::CreateTable,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let spec = b.create_table(t)?;
    if b.catalog.resolve(&spec.table.schema, &spec.table.name).is_some() {
        let message = format!("relation \"{}\" already exists", spec.table.name);
        if spec.if_not_exists {
            notice(notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
            return Ok("CREATE TABLE");
        }
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    let table = txn.create_table(spec.table)?;
    for (ordinal, mut sequence) in spec.sequences {
        sequence.owned_by = Some((table.id, ordinal));
        txn.create_sequence(sequence)?;
    }
    for (name, columns) in spec.uniques {
        txn.create_index(NewIndex { table: table.id, name, columns, unique: true, constraint: true })?;
    }
    Ok("CREATE TABLE")
}

fn create_index(
    b: &mut Binder<'_>,
    i: &ast::CreateIndex,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let (new, if_not_exists) = b.create_index(i)?;
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
    txn.create_index(new).map_err(|e| duplicate_in_build(e, &name, &table))?;
    Ok("CREATE INDEX")
}

/// PostgreSQL's words for a duplicate met while an index is built.
fn duplicate_in_build(e: EngineError, name: &str, table: &TableDef) -> Failed {
    let out = match Failed::from(e) {
        Failed::Error(e) if e.sqlstate == SqlState::UNIQUE_VIOLATION => e,
        other => return other,
    };
    let detail = out.detail.as_deref().map(|d| d.replace(" already exists.", " is duplicated."));
    let message = format!("could not create unique index \"{name}\"").into();
    let error = SqlError { message, detail: detail.map(Into::into), ..out };
    error.of_table(&table.schema, &table.name).into()
}

fn alter_table(
    b: &mut Binder<'_>,
    a: &ast::AlterTable,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    clauses_ddl::check_alter_table(a)?;
    let table = match b.existing_table(&a.name) {
        Err(e) if a.if_exists && e.sqlstate == SqlState::UNDEFINED_TABLE => {
            notice(notices, "00000", format!("{}, skipping", e.message));
            return Ok("ALTER TABLE");
        }
        found => found?,
    };
    for operation in &a.operations {
        match b.alter_table(&table, operation)? {
            Alteration::PrimaryKey(key) => {
                for column in &key.columns {
                    check_no_nulls(&table, *column, txn)?;
                }
                let name = key.name.clone();
                txn.add_primary_key(table.id, key).map_err(|e| duplicate_in_build(e, &name, &table))?;
            }
            Alteration::Unique(name, columns) => {
                let new =
                    NewIndex { table: table.id, name: name.clone(), columns, unique: true, constraint: true };
                txn.create_index(new).map_err(|e| duplicate_in_build(e, &name, &table))?;
            }
            Alteration::Column(ordinal, default, not_null) => {
                if not_null && !table.columns[ordinal].not_null {
                    check_no_nulls(&table, ordinal, txn)?;
                }
                txn.alter_column(table.id, ordinal, default, not_null)?;
            }
        }
    }
    Ok("ALTER TABLE")
}

/// 23502 if a row has NULL in the column.
fn check_no_nulls(table: &TableDef, column: usize, txn: &mut Transaction) -> Result<()> {
    if table.columns[column].not_null {
        return Ok(());
    }
    let opened = txn.table(table)?;
    let mut found = false;
    txn.scan(&opened, &varve_engine::ScanSpec::ALL, &mut |_, row| {
        found = row.get(column).is_null();
        Ok(if found { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) })
    })?;
    if !found {
        return Ok(());
    }
    let message = format!(
        "column \"{}\" of relation \"{}\" contains null values",
        table.columns[column].name, table.name
    );
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
    Err(error.of_table(&table.schema, &table.name).of_column(&table.columns[column].name).into())
}

fn truncate(b: &mut Binder<'_>, t: &ast::Truncate, txn: &mut Transaction) -> Result<&'static str> {
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
    for table in &tables {
        txn.truncate(table.id)?;
        if matches!(t.identity, Some(ast::TruncateIdentityOption::Restart)) {
            let owned =
                |s: &&Arc<varve_engine::SequenceDef>| s.owned_by.is_some_and(|(id, _)| id == table.id);
            let sequences: Vec<_> = b.catalog.sequences().filter(owned).cloned().collect();
            for sequence in sequences {
                txn.set_value(sequence.id, sequence.start, false)?;
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
    if catalog.has_schema(&name) && if_not_exists {
        notice(notices, "42P06", format!("schema \"{name}\" already exists, skipping"));
        return Ok("CREATE SCHEMA");
    }
    txn.create_schema(&name)?;
    Ok("CREATE SCHEMA")
}

fn create_sequence(
    catalog: &Catalog,
    name: &ast::ObjectName,
    options: &[SequenceOptions],
    if_not_exists: bool,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let (schema, name) = object_name(name)?;
    if catalog.resolve(&schema, &name).is_some() {
        let message = format!("relation \"{name}\" already exists");
        if if_not_exists {
            notice(notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
            return Ok("CREATE SEQUENCE");
        }
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    if !catalog.has_schema(&schema) {
        return Err(no_schema(&schema).into());
    }
    txn.create_sequence(sequence_of(schema, name, options)?)?;
    Ok("CREATE SEQUENCE")
}

fn sequence_of(schema: String, name: String, options: &[SequenceOptions]) -> Result<NewSequence, SqlError> {
    let mut new = NewSequence::ascending(schema, name);
    let (mut start, mut min, mut max) = (None, None, None);
    for option in options {
        match option {
            SequenceOptions::IncrementBy(e, _) => new.increment = integer(e)?,
            SequenceOptions::StartWith(e, _) => start = Some(integer(e)?),
            SequenceOptions::MinValue(e) => min = e.as_ref().map(integer).transpose()?,
            SequenceOptions::MaxValue(e) => max = e.as_ref().map(integer).transpose()?,
            SequenceOptions::Cycle(no) => new.cycle = !no,
            SequenceOptions::Cache(_) => {}
        }
    }
    if new.increment == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "INCREMENT must not be zero"));
    }
    let up = new.increment > 0;
    new.min = min.unwrap_or(if up { 1 } else { i64::MIN });
    new.max = max.unwrap_or(if up { i64::MAX } else { -1 });
    new.start = start.unwrap_or(if up { new.min } else { new.max });
    if new.min >= new.max {
        let message = format!("MINVALUE ({}) must be less than MAXVALUE ({})", new.min, new.max);
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if new.start < new.min || new.start > new.max {
        let message = format!("START value ({}) is outside MINVALUE and MAXVALUE", new.start);
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(new)
}

fn integer(e: &ast::Expr) -> Result<i64, SqlError> {
    e.to_string()
        .replace(' ', "")
        .parse()
        .map_err(|_| SqlError::new(SqlState::SYNTAX_ERROR, format!("an integer was expected, not {e}")))
}

fn drop_objects(
    catalog: &Catalog,
    kind: ObjectType,
    if_exists: bool,
    names: &[ast::ObjectName],
    cascade: bool,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    for name in names {
        let dropped = match kind {
            ObjectType::Table => drop_table(catalog, name, txn)?,
            ObjectType::Index => drop_index(catalog, name, txn)?,
            ObjectType::Sequence => drop_sequence(catalog, name, cascade, txn)?,
            ObjectType::Schema => drop_schema(catalog, name, txn)?,
            other => return Err(SqlError::unsupported(format!("DROP {other}")).into()),
        };
        if dropped {
            continue;
        }
        let error = missing(kind, name)?;
        if !if_exists {
            return Err(error.into());
        }
        notice(notices, "00000", format!("{}, skipping", error.message));
    }
    Ok(match kind {
        ObjectType::Table => "DROP TABLE",
        ObjectType::Index => "DROP INDEX",
        ObjectType::Sequence => "DROP SEQUENCE",
        _ => "DROP SCHEMA",
    })
}

fn missing(kind: ObjectType, name: &ast::ObjectName) -> Result<SqlError, SqlError> {
    let (_, last) = object_name(name)?;
    let (state, word) = match kind {
        ObjectType::Table => (SqlState::UNDEFINED_TABLE, "table"),
        ObjectType::Index => (SqlState::UNDEFINED_OBJECT, "index"),
        ObjectType::Sequence => (SqlState::UNDEFINED_TABLE, "sequence"),
        _ => (SqlState::INVALID_SCHEMA, "schema"),
    };
    Ok(SqlError::new(state, format!("{word} \"{last}\" does not exist")))
}

fn drop_table(catalog: &Catalog, name: &ast::ObjectName, txn: &mut Transaction) -> Result<bool> {
    let (schema, last) = object_name(name)?;
    match catalog.table(&schema, &last) {
        Some(table) => txn.drop_table(table.id)?,
        None if catalog.resolve(&schema, &last).is_some() => {
            let message = format!("\"{last}\" is not a table");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
        }
        None => return Ok(false),
    }
    Ok(true)
}

fn drop_index(catalog: &Catalog, name: &ast::ObjectName, txn: &mut Transaction) -> Result<bool> {
    let (schema, last) = object_name(name)?;
    let Some((table, index)) = catalog.index(&schema, &last) else {
        return match catalog.resolve(&schema, &last) {
            Some(_) => {
                let message = format!("\"{last}\" is not an index");
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into())
            }
            None => Ok(false),
        };
    };
    if index.constraint {
        let message =
            format!("cannot drop index {last} because constraint {last} on table {} requires it", table.name);
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).into());
    }
    txn.drop_index(table.id, index.id)?;
    Ok(true)
}

fn drop_sequence(
    catalog: &Catalog,
    name: &ast::ObjectName,
    cascade: bool,
    txn: &mut Transaction,
) -> Result<bool> {
    let (schema, last) = object_name(name)?;
    let Some(sequence) = catalog.sequence(&schema, &last) else { return Ok(false) };
    if let Some((table, _)) = sequence.owned_by {
        let owner = catalog.table_by_id(table).map_or_else(String::new, |t| t.name.clone());
        if cascade {
            return Err(
                SqlError::unsupported("DROP SEQUENCE ... CASCADE of a serial column's sequence").into()
            );
        }
        let message = format!("cannot drop sequence {last} because other objects depend on it");
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
            .with_detail(format!("default value of a column of table {owner} depends on sequence {last}"))
            .into());
    }
    txn.drop_sequence(sequence.id)?;
    Ok(true)
}

fn drop_schema(catalog: &Catalog, name: &ast::ObjectName, txn: &mut Transaction) -> Result<bool> {
    let name = name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
    if !catalog.has_schema(&name) {
        return Ok(false);
    }
    let used = catalog.tables().any(|t| t.schema == name) || catalog.sequences().any(|s| s.schema == name);
    if used {
        let message = format!("cannot drop schema {name} because other objects depend on it");
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).into());
    }
    txn.drop_schema(&name)?;
    Ok(true)
}

impl Binder<'_> {
    /// A table that a command names.
    fn existing_table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>, SqlError> {
        let (schema, last) = object_name(name)?;
        match self.catalog.table(&schema, &last) {
            Some(table) => Ok(table),
            None if self.catalog.resolve(&schema, &last).is_some() => {
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{last}\" is not a table")))
            }
            None => Err(undefined_table(name)),
        }
    }
}
