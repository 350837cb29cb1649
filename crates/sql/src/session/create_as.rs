//! Runs CREATE TABLE AS and SELECT INTO, which make a table from the rows of a query.
//!
//! Invariants
//! 1. The query ends before the table is created, so it cannot read the new table.
//! 2. Before the query runs, the session checks the right to create the table. Otherwise a query could have
//!    effects that a rollback does not undo, such as those of `nextval`, although the statement is not
//!    allowed.
//!
//! This module does not know how rows are stored meanwhile (`crate::kept`) or how they are written (INSERT
//! does it).

use std::sync::Arc;

use varve_engine::{ColumnDef, Datum, NewTable};

use super::Session;
use super::authorize::{authorize_definition, own_what_is_new};
use super::run::Ran;
use crate::ast::{CreateTableAs, Definition, Ident, Statement};
use crate::bind::{limits, storage};
use crate::error::{Result, SqlError, SqlState};
use crate::exec::tablespace;
use crate::kept::KeptRows;
use crate::names::{cannot_create, fold, object_name};
use crate::sink::{Column, CommandTag, Severity};
use crate::system::names::quoted;
use crate::table_method::TableMethod;
use crate::ty::{Ty, Typed};

impl Session {
    /// Runs CREATE TABLE AS.
    pub(super) fn create_as(
        &mut self,
        sql: &str,
        definition: &Definition,
        t: &CreateTableAs,
    ) -> Result<CommandTag> {
        let (schema, name) = object_name(&t.name)?;
        self.begin_engine();
        if self.read_only {
            return Err(SqlError::read_only("CREATE TABLE AS"));
        }
        let storage = storage::of_new_table(&t.options)?;
        if self.still_free(t, (&schema, &name))?.is_none() {
            return Ok(CommandTag::Plain("CREATE TABLE AS"));
        }
        let method = TableMethod::of_new_table(t.method.as_deref(), self.facts.table_method)?;
        let (columns, mut rows) = self.rows_of_query(sql, definition, t)?;
        limits::columns(columns.len())?;
        let types: Vec<_> = columns.iter().map(|c| Typed::of_column(c.column_type).ty.oid()).collect();
        let is_unlogged = t.unlogged;
        let new = NewTable {
            is_unlogged,
            storage,
            engine: method.engine(),
            ..NewTable::new(&*schema, &*name, columns)
        };
        self.make_table(definition, t, new)?;
        if !t.with_data {
            return Ok(CommandTag::Plain("CREATE TABLE AS"));
        }
        let places: Vec<String> = (1..=types.len()).map(|n| format!("${n}")).collect();
        let insert =
            format!("INSERT INTO {}.{} VALUES ({})", quoted(&schema), quoted(&name), places.join(", "));
        let mut prepared = self.prepare_any(&insert, &types)?;
        let mut nothing = self.kept_rows();
        for n in 0..rows.len() {
            self.facts.check_cancel()?;
            let row = rows.row(n)?.ok_or_else(|| SqlError::internal("a kept row that is gone"))?;
            // With a search path other than `public`, each change of the catalog by another session makes the
            // plan out of date.
            while let Ran::Stale = self.run(&prepared, &row, 1, false, &mut nothing)? {
                self.facts.check_cancel()?;
                prepared = self.prepare_again(&insert, &types)?;
            }
        }
        Ok(CommandTag::Select(rows.len()))
    }

    /// Returns `None` and sends a notice if a table of this name exists and the statement says IF NOT EXISTS.
    fn still_free(&mut self, t: &CreateTableAs, (schema, name): (&str, &str)) -> Result<Option<()>> {
        let catalog = self.current_catalog();
        if !catalog.has_schema(schema) {
            return Err(cannot_create(schema, name));
        }
        if catalog.resolve(schema, name).is_none() {
            return Ok(Some(()));
        }
        let message = format!("relation \"{name}\" already exists");
        if !t.if_not_exists {
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
        }
        let notice = SqlError::new(SqlState::DUPLICATE_TABLE, format!("{message}, skipping"));
        self.notices.push((Severity::Notice, notice));
        Ok(None)
    }

    /// Checks that the role may create the table. Then returns the columns of the new table, and the rows of
    /// the query unless WITH NO DATA is given.
    fn rows_of_query(
        &mut self,
        sql: &str,
        definition: &Definition,
        t: &CreateTableAs,
    ) -> Result<(Vec<ColumnDef>, KeptRows)> {
        let query = Statement::Query((*t.query).clone());
        loop {
            let catalog = self.current_catalog();
            let prepared = self.bound(sql, &[], &query, &catalog)?;
            if !prepared.param_types.is_empty() {
                return Err(SqlError::unsupported("a parameter in CREATE TABLE AS"));
            }
            let columns = table_columns(prepared.columns().unwrap_or_default(), &t.columns)?;
            let who = self.facts.who;
            authorize_definition(definition, self.begin_engine(), who)?;
            let mut rows = self.kept_rows();
            if !t.with_data {
                return Ok((columns, rows));
            }
            if let Ran::Done(_) = self.run(&Arc::new(prepared), &[] as &[Datum<'_>], 1, false, &mut rows)? {
                return Ok((columns, rows));
            }
            self.catalog = None;
        }
    }

    fn make_table(&mut self, definition: &Definition, t: &CreateTableAs, mut new: NewTable) -> Result<()> {
        let who = self.facts.who;
        self.begin_engine();
        let Some(txn) = self.txn.as_mut() else { return Err(SqlError::internal("no transaction")) };
        if new.engine.is_none() || t.tablespace.is_some() {
            let catalog = txn.catalog();
            let said = t.tablespace.as_deref();
            new.storage.tablespace = tablespace::of_new(said, txn, &catalog, &self.facts)?;
        }
        txn.start_statement();
        let before = txn.made().len();
        txn.bind_definitions();
        authorize_definition(definition, txn, who)?;
        txn.create_table(new)?;
        own_what_is_new(before, txn, who)?;
        self.catalog = None;
        if !std::mem::replace(&mut self.defines, true) {
            self.plans.clear();
        }
        Ok(())
    }
}

/// Returns the columns of the new table. The first ones have the names that the statement writes.
fn table_columns(columns: &[Column], written: &[Ident]) -> Result<Vec<ColumnDef>> {
    if written.len() > columns.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "too many column names were specified"));
    }
    let mut names = written.iter().map(fold);
    let mut made: Vec<ColumnDef> = Vec::with_capacity(columns.len());
    for column in columns {
        let name = names.next().unwrap_or_else(|| column.name.to_string());
        if made.iter().any(|c| *c.name == *name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let ty = Ty::of_oid(column.type_oid).unwrap_or(Ty::Text);
        made.push(ColumnDef::new(&*name, Typed { ty, typmod: column.typmod }.storage()?));
    }
    if made.is_empty() {
        return Err(SqlError::unsupported("a table without columns"));
    }
    Ok(made)
}
