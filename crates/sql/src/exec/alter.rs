//! Executes ALTER TABLE.
//!
//! Invariants
//! 1. Each action sees the table as the earlier actions have left it.
//! 2. Rows are checked after the table is locked and changed. If a row violates a new rule, the statement is
//!    rolled back.
//!
//! This module does not know the syntax of the actions (`bind::alter`).

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ast;
use crate::names::object_name;
use bumpalo::Bump;
use varve_engine::{
    Change, Check, ColumnSource, Datum, Error as EngineError, Named, NewIndex, ObjectId, Outcome, PrimaryKey,
    RowImage, ScanSpec, StorageOptions, TableDef, Transaction, Value,
};

use super::drop::{Dependent, defaults_of_owned, drop_dependents};
use super::notice::{Notices, Result, duplicate_in_build, notice, tell_of_compression};
use super::reference;
use super::sequence::InTransaction;
use super::sequence_ddl::SequenceDdl;
use super::tablespace;
use super::{Facts, Failure};
use crate::ast::{AlterTable, ColumnAction, TableAction};
use crate::bind::alter::{Alteration, NewColumn, Renaming};
use crate::bind::{Binder, limits, only};
use crate::error::{SqlError, SqlState};
use crate::eval::{Cx, Expr, Input, NoSequences};
use crate::sequence_memory::SequenceMemory;
use crate::system;

/// Runs ALTER TABLE.
pub(super) fn alter_table(
    a: &AlterTable,
    source: &str,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<&'static str> {
    let mut actions: Vec<&TableAction> = a.actions.iter().collect();
    actions.sort_by_key(|action| pass(action));
    // Neighbouring actions of one kind that rewrite the table are applied in one rewrite.
    for together in actions.chunk_by(|a, b| pass(a).is_rewrite() && pass(a) == pass(b)) {
        let catalog = txn.catalog();
        let mut b = Binder::of_kept(&catalog, source)?;
        let table = match b.existing_table(&a.name) {
            Err(e) if a.if_exists && e.sqlstate == SqlState::UNDEFINED_TABLE => {
                notice(notices, "00000", format!("{}, skipping", e.message));
                break;
            }
            Err(e) if e.sqlstate == SqlState::UNDEFINED_TABLE => return Err(not_of_users(&a.name, e).into()),
            found => found?,
        };
        let mut alterations = Vec::with_capacity(together.len());
        let mut grown = TableDef::clone(&table);
        for action in together {
            let alteration = b.alter_table(&grown, action)?;
            if a.only {
                only::alters(&table, action)?;
            }
            if let Alteration::AddColumn(new) = &alteration {
                grown.columns.push(new.column.clone());
                limits::columns(grown.columns.len())?;
            }
            alterations.push(alteration);
        }
        Alter { txn, facts, notices }.apply_all(table, alterations)?;
    }
    Ok("ALTER TABLE")
}

/// The order in which actions are applied. As in PostgreSQL, drops come first, then type changes, then
/// additions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    Drop,
    Type,
    AddColumn,
    Column,
    Constraint,
    Other,
}

impl Pass {
    fn is_rewrite(self) -> bool {
        matches!(self, Pass::Type | Pass::AddColumn)
    }
}

fn pass(action: &TableAction) -> Pass {
    use ColumnAction::{
        AddIdentity, DropDefault, DropIdentity, DropNotNull, SetDefault, SetIdentity, SetNotNull, SetType,
    };
    match action {
        TableAction::DropColumn { .. } | TableAction::DropConstraint { .. } => Pass::Drop,
        TableAction::AddColumn { .. } => Pass::AddColumn,
        TableAction::AddConstraint(_) => Pass::Constraint,
        TableAction::AlterColumn { action, .. } => match action {
            DropDefault | DropNotNull | DropIdentity { .. } => Pass::Drop,
            SetType { .. } => Pass::Type,
            SetDefault(_) | SetNotNull | AddIdentity(..) => Pass::Column,
            SetIdentity(..) => Pass::Other,
        },
        _ => Pass::Other,
    }
}

/// Runs ALTER INDEX ... RENAME TO. `name` is an index or a primary key.
pub(super) fn rename_index(
    (schema, name): (&str, &str),
    to: &str,
    if_exists: bool,
    txn: &mut Transaction,
    notices: &mut Notices,
) -> Result<&'static str> {
    let catalog = txn.catalog();
    let table = match catalog.resolve(schema, name) {
        Some(Named::Index(table, _) | Named::PrimaryKey(table)) => table,
        Some(_) => {
            let message = format!("\"{name}\" is not an index");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
        }
        None => {
            let message = format!("relation \"{name}\" does not exist");
            if if_exists {
                notice(notices, "00000", format!("{message}, skipping"));
                return Ok("ALTER INDEX");
            }
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into());
        }
    };
    if catalog.resolve(schema, to).is_some() {
        let message = format!("relation \"{to}\" already exists");
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
    }
    txn.rename_index_of(table, name, to)?;
    Ok("ALTER INDEX")
}

/// Runs ALTER INDEX ... SET TABLESPACE.
pub(super) fn move_index(
    (schema, name): (&str, &str),
    tablespace: &str,
    if_exists: bool,
    txn: &mut Transaction,
    facts: &Facts,
    notices: &mut Notices,
) -> Result<&'static str> {
    let catalog = txn.catalog();
    let (table, index) = match catalog.resolve(schema, name) {
        Some(Named::Index(table, index)) => (table, index),
        Some(Named::PrimaryKey(_)) => {
            let refused = SqlError::unsupported("ALTER INDEX ... SET TABLESPACE of a primary key");
            return Err(refused.with_hint("A primary key is where the rows are: move the table.").into());
        }
        Some(_) => {
            let message = format!("\"{name}\" is not an index");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
        }
        None => {
            let message = format!("relation \"{name}\" does not exist");
            if if_exists {
                notice(notices, "00000", format!("{message}, skipping"));
                return Ok("ALTER INDEX");
            }
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into());
        }
    };
    let to = tablespace::named(tablespace, txn, &catalog, facts)?;
    let now = catalog.table_by_id(table).and_then(|def| def.index(index).map(|index| index.tablespace()));
    if now != Some(to) {
        txn.set_index_tablespace(table, index, to)?;
    }
    Ok("ALTER INDEX")
}

/// Returns the error 42501 if the name means a system table. Otherwise returns `missing`, the error that
/// there is no such table.
fn not_of_users(name: &ast::ObjectName, missing: SqlError) -> SqlError {
    let Ok((schema, table)) = object_name(name) else { return missing };
    let schema = if name.0.len() == 1 { "pg_catalog" } else { &schema };
    match system::table(schema, &table) {
        None => missing,
        Some(_) => SqlError::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied: \"{table}\" is a system catalog"),
        ),
    }
}

pub(super) struct Alter<'x> {
    pub(super) txn: &'x mut Transaction,
    pub(super) facts: &'x Facts,
    pub(super) notices: &'x mut Notices,
}

impl Alter<'_> {
    /// Applies actions that were bound together for the current definition of the table.
    fn apply_all(&mut self, table: Arc<TableDef>, alterations: Vec<Alteration>) -> Result<()> {
        let (mut types, mut columns) = (Vec::new(), Vec::new());
        for alteration in alterations {
            match alteration {
                Alteration::Type(change) => types.push(*change),
                Alteration::AddColumn(new) => columns.push(*new),
                other => self.apply(Arc::clone(&table), other)?,
            }
        }
        if !types.is_empty() {
            self.change_types(&table, types)?;
        }
        if columns.is_empty() { Ok(()) } else { self.add_columns(&table, columns) }
    }

    pub(super) fn tell(&mut self, message: String) {
        notice(self.notices, "00000", message);
    }

    pub(super) fn apply(&mut self, table: Arc<TableDef>, alteration: Alteration) -> Result<()> {
        match alteration {
            Alteration::PrimaryKey(key) => self.add_primary_key(&table, key),
            Alteration::Unique(name, columns) => self.add_unique(&table, name, columns),
            Alteration::Check(_) | Alteration::Foreign(_) => {
                let (def, added) = self.add_constraint(&table, alteration)?;
                self.check_rows(&def, added)
            }
            Alteration::NotValid(constraint) => {
                let (def, added) = self.add_constraint(&table, *constraint)?;
                self.txn.set_valid(def.id, added, false)?;
                Ok(())
            }
            Alteration::Validate(constraint) if table.not_valid.contains(&constraint) => {
                let def = self.txn.set_valid(table.id, constraint, true)?;
                self.check_rows(&def, constraint)
            }
            Alteration::Validate(_) => Ok(()),
            Alteration::Column(ordinal, default, not_null) => {
                if not_null && !table.columns[ordinal].not_null {
                    self.check_no_nulls(&table, ordinal)?;
                }
                self.txn.alter_column(table.id, ordinal, default, not_null)?;
                Ok(())
            }
            Alteration::Type(change) => self.change_types(&table, vec![*change]),
            Alteration::AddColumn(new) => self.add_columns(&table, vec![*new]),
            Alteration::AddIdentity(ordinal, kind, options) => {
                self.add_identity(&table, ordinal, kind, &options)
            }
            Alteration::SetIdentity(ordinal, kind, options) => {
                self.set_identity(&table, ordinal, kind, &options)
            }
            Alteration::DropIdentity(ordinal, if_exists) => self.drop_identity(&table, ordinal, if_exists),
            Alteration::DropColumns(columns, cascade) => self.drop_columns(table, &columns, cascade),
            Alteration::RenameColumn(Renaming { ordinal, name, checks, derived }) => {
                self.refuse_views(&table, Some(ordinal), "RENAME COLUMN")?;
                self.txn.rename_column(table.id, ordinal, &name, checks, derived)?;
                Ok(())
            }
            Alteration::Rename(name) => {
                self.refuse_views(&table, None, "RENAME")?;
                self.txn.rename_table(table.id, &name)?;
                Ok(())
            }
            Alteration::SetSchema(schema) => self.set_schema(&table, &schema),
            Alteration::RenameConstraint(from, to) => self.rename_constraint(&table, &from, &to),
            Alteration::Storage(storage) => {
                if storage != table.storage {
                    tell_of_compression(self.txn, storage, self.notices);
                    self.txn.set_storage(table.id, storage)?;
                }
                Ok(())
            }
            Alteration::SetTablespace(name) => self.set_tablespace(&table, &name),
            Alteration::DropConstraint(name, cascade) => self.drop_constraint(&table, &name, cascade),
            Alteration::Nothing(message) => {
                notice(self.notices, "00000", message);
                Ok(())
            }
        }
    }

    fn set_tablespace(&mut self, table: &TableDef, name: &str) -> Result<()> {
        let catalog = self.txn.catalog();
        let tablespace = tablespace::named(name, self.txn, &catalog, self.facts)?;
        if tablespace != table.storage.tablespace {
            self.txn.set_storage(table.id, StorageOptions { tablespace, ..table.storage })?;
        }
        Ok(())
    }

    fn add_unique(&mut self, table: &Arc<TableDef>, name: String, columns: Vec<usize>) -> Result<()> {
        let catalog = self.txn.catalog();
        let tablespace = match table.is_paged() {
            true => tablespace::of_new(None, self.txn, &catalog, self.facts)?,
            false => None,
        };
        let (unique, constraint) = (true, true);
        let new = NewIndex { table: table.id, name: name.clone(), columns, unique, constraint, tablespace };
        self.txn.create_index(new).map_err(|e| duplicate_in_build(e, &name, table))?;
        Ok(())
    }

    fn rename_constraint(&mut self, table: &TableDef, from: &str, to: &str) -> Result<()> {
        let renamed = self.txn.rename_constraint(table.id, from, to);
        renamed.map(|_| ()).map_err(|e| match e {
            EngineError::Duplicate { kind: varve_engine::ObjectKind::Constraint, name } => {
                let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
                SqlError::new(SqlState::DUPLICATE_OBJECT, message).into()
            }
            e => e.into(),
        })
    }

    fn add_primary_key(&mut self, table: &TableDef, key: PrimaryKey) -> Result<()> {
        for column in &key.columns {
            self.check_no_nulls(table, *column)?;
        }
        let name = key.name.clone();
        self.txn.add_primary_key(table.id, key).map_err(|e| duplicate_in_build(e, &name, table))?;
        Ok(())
    }

    /// Fails with 23502 if a row has NULL in the column.
    fn check_no_nulls(&mut self, table: &TableDef, column: usize) -> Result<()> {
        if table.columns[column].not_null {
            return Ok(());
        }
        let opened = self.txn.table(table)?;
        let mut found = false;
        self.txn.newest_reader().scan(&opened, &ScanSpec::ALL, &mut |_, row| {
            found = row.get(column).is_null();
            Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if found { Err(contains_nulls(table, column).into()) } else { Ok(()) }
    }

    /// Adds a CHECK or FOREIGN KEY constraint, which new rows must fulfil from now on.
    fn add_constraint(
        &mut self,
        table: &Arc<TableDef>,
        constraint: Alteration,
    ) -> Result<(Arc<TableDef>, ObjectId)> {
        let (name, def) = match constraint {
            Alteration::Check(check) => (check.name.clone(), self.txn.add_check(table.id, check)?),
            Alteration::Foreign(key) => {
                let catalog = self.txn.catalog();
                let key = Binder::new(&catalog, "", &[])?.foreign_key(table, &key)?;
                (key.name.clone(), self.txn.add_foreign_key(table.id, key)?)
            }
            _ => return Err(SqlError::internal("a constraint that rows fulfil one by one").into()),
        };
        let check = def.checks.iter().find(|c| c.name == name).map(|c| c.id);
        let key = || def.foreign_keys.iter().find(|k| k.name == name).map(|k| k.id);
        match check.or_else(key) {
            Some(id) => Ok((def, id)),
            None => Err(SqlError::internal("a constraint that was not added").into()),
        }
    }

    /// Checks that all rows fulfil a constraint. The table is locked, so no other transaction can add rows
    /// meanwhile.
    pub(super) fn check_rows(&mut self, def: &Arc<TableDef>, constraint: ObjectId) -> Result<()> {
        if let Some(key) = def.foreign_keys.iter().find(|k| k.id == constraint) {
            return reference::check_rows(def, key, self.txn, self.facts);
        }
        match def.checks.iter().find(|c| c.id == constraint) {
            Some(check) => self.check_condition(def, check),
            None => Ok(()),
        }
    }

    fn check_condition(&mut self, table: &Arc<TableDef>, check: &Check) -> Result<()> {
        let (def, name) = (table, &check.name);
        let catalog = self.txn.catalog();
        // Only the new condition is checked. A row need not fulfil an older condition any more, because a
        // condition may depend on the current time.
        let mut rules = Binder::new(&catalog, "", &[])?.rules(def)?;
        rules.checks = rules.checks.into_vec().into_iter().filter(|(n, _)| **n == **name).collect();
        let opened = self.txn.table(def)?;
        let (mut failure, mut arena, mut is_broken) = (Failure::default(), Bump::new(), false);
        let env = self.facts.env(&NoSequences);
        let facts = self.facts;
        let scanned = self.txn.newest_reader().scan(&opened, &ScanSpec::ALL, &mut |_, row| {
            let cx = Cx { params: &[], arena: &arena, env: &env };
            let looked = facts.check_cancel().and_then(|()| rules.broken(&Input::Row(row), &cx));
            is_broken = failure.catch(looked.map(|broken| broken == Some(&**name)), true);
            arena.reset();
            Ok(if is_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        failure.resolve(scanned)?;
        if !is_broken {
            return Ok(());
        }
        let message =
            format!("check constraint \"{name}\" of relation \"{}\" is violated by some row", table.name);
        let error = SqlError::new(SqlState::CHECK_VIOLATION, message);
        Err(error.of_table(&table.schema, &table.name).of_constraint(name).into())
    }

    fn add_columns(&mut self, table: &TableDef, new: Vec<NewColumn>) -> Result<()> {
        let kept =
            |(at, column): (usize, &varve_engine::ColumnDef)| (column.clone(), ColumnSource::Column(at));
        let mut columns: Vec<_> = table.columns.iter().enumerate().map(kept).collect();
        for NewColumn { column, default, sequence, .. } in &new {
            let each_row = sequence.is_some() || default.is_volatile();
            let value = if each_row { Value::Null } else { self.value_of(default)? };
            let column = varve_engine::ColumnDef { not_null: false, ..column.clone() };
            columns.push((column, ColumnSource::Value(value)));
        }
        let def = self.txn.rewrite_columns(table.id, columns)?;
        let mut constraints = Vec::new();
        for (ordinal, new) in (table.columns.len()..).zip(new) {
            constraints.extend(self.finish_column(&def, ordinal, new)?);
        }
        for constraint in constraints {
            let catalog = self.txn.catalog();
            let stale = || EngineError::StaleDefinition { table: def.name.clone() };
            let table = catalog.table_by_id(def.id).ok_or_else(stale)?;
            self.apply(table, constraint)?;
        }
        Ok(())
    }

    /// Completes a column that was just added: creates its sequence, gives each row its value, and sets NOT
    /// NULL. Returns the constraints of the column, which are not added yet.
    fn finish_column(&mut self, def: &TableDef, ordinal: usize, new: NewColumn) -> Result<Vec<Alteration>> {
        let each_row = new.sequence.is_some() || new.default.is_volatile();
        if let Some(mut sequence) = new.sequence {
            sequence.owned_by = Some((def.id, ordinal));
            self.txn.create_sequence(sequence)?;
        }
        if each_row {
            self.fill(def, ordinal)?;
        }
        if new.column.not_null {
            self.check_no_nulls(def, ordinal)?;
            self.txn.alter_column(def.id, ordinal, new.column.default, true)?;
        }
        Ok(new.constraints)
    }

    fn value_of(&self, e: &Expr) -> Result<Value> {
        let arena = Bump::new();
        let env = self.facts.env(&NoSequences);
        let cx = Cx { params: &[], arena: &arena, env: &env };
        Ok(e.eval(&Input::None, &cx)?.to_value())
    }

    /// Evaluates the default of a new column once for each row.
    fn fill(&mut self, table: &TableDef, column: usize) -> Result<()> {
        let mut catalog = Some(self.txn.catalog());
        let default = match &catalog {
            Some(catalog) => Binder::new(catalog, "", &[])?.bound_default(&table.columns[column])?,
            None => Expr::NULL,
        };
        let opened = self.txn.table(table)?;
        let mut keys = Vec::new();
        self.txn.scan(&opened, &ScanSpec::ALL, &mut |key, _| {
            keys.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        let (memory, mut arena) = (SequenceMemory::default(), Bump::new());
        for key in keys {
            self.facts.check_cancel()?;
            let value = {
                let sequences = InTransaction::new(self.txn, &mut catalog, &memory, self.facts);
                let env = self.facts.env(&sequences);
                let cx = Cx { params: &[], arena: &arena, env: &env };
                default.eval(&Input::None, &cx)?.to_value()
            };
            arena.reset();
            let changed = self.txn.modify(&opened, &key, &mut |row| {
                let mut values: Vec<Datum<'_>> = (0..table.columns.len()).map(|c| row.get(c)).collect();
                values[column] = value.as_datum();
                Ok(Change::Replace(RowImage::encode(row.schema(), &values)?))
            })?;
            assert_eq!(changed, Outcome::Changed, "a row of a locked table is there");
        }
        Ok(())
    }

    fn drop_columns(&mut self, table: Arc<TableDef>, columns: &[usize], cascade: bool) -> Result<()> {
        let gone = |of: &[usize]| of.iter().any(|c| columns.contains(c));
        let first = columns.first().copied().unwrap_or_default();
        let of = format!("column {} of table {}", table.columns[first].name, table.name);
        let catalog = self.txn.catalog();
        let views = catalog.views().filter(|view| {
            view.uses.iter().any(|used| used.object == table.id.into() && gone(&used.columns))
        });
        let children = catalog.children(table.id).filter(|(_, key)| gone(&key.parent_columns));
        let children = children.filter(|(t, k)| t.id != table.id || !gone(&k.columns));
        let mut direct: Vec<Dependent> = children.map(|(t, k)| Dependent::key(t, k, &of)).collect();
        direct.extend(views.map(|view| Dependent::view(view, &of)));
        let defaults = defaults_of_owned(&catalog, table.id, |c| columns.contains(&c));
        direct.extend(defaults.into_iter().map(|(_, d)| d));
        drop_dependents(&catalog, &of, direct, cascade, self.txn, self.notices)?;
        for check in table.checks.iter().filter(|c| gone(&c.columns)) {
            self.txn.drop_constraint(table.id, check.id)?;
        }
        for key in table.foreign_keys.iter().filter(|k| gone(&k.columns)) {
            self.txn.drop_constraint(table.id, key.id)?;
        }
        for index in table.indexes.iter().filter(|i| gone(&i.columns)) {
            self.txn.drop_index(table.id, index.id)?;
        }
        if gone(table.key_columns()) {
            self.txn.drop_primary_key(table.id)?;
        }
        let kept = (0..table.columns.len()).filter(|c| !columns.contains(c));
        let kept = kept.map(|c| (table.columns[c].clone(), ColumnSource::Column(c)));
        // Columns of a dropped primary key stay NOT NULL.
        self.txn.rewrite_columns(table.id, kept.collect())?;
        Ok(())
    }

    /// Runs SET SCHEMA. The indexes of the table and the sequences that its columns own move with it.
    fn set_schema(&mut self, table: &TableDef, schema: &str) -> Result<()> {
        let catalog = self.txn.catalog();
        if !catalog.has_schema(schema) {
            return Err(crate::names::no_schema(schema).into());
        }
        if table.schema == schema {
            return Ok(());
        }
        self.refuse_views(table, None, "SET SCHEMA")?;
        if catalog.resolve(schema, &table.name).is_some() {
            let message = format!("relation \"{}\" already exists in schema \"{schema}\"", table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
        }
        self.txn.move_table(table.id, schema)?;
        let catalog = self.txn.catalog();
        let owned = catalog.sequences().filter(|s| s.owned_by.is_some_and(|(of, _)| of == table.id));
        for sequence in owned {
            // A default may use several sequences, and each move of a sequence changes the text of the
            // default. So each move needs the catalog that the move before has left.
            let catalog = self.txn.catalog();
            let ddl = &mut SequenceDdl { txn: self.txn, facts: self.facts, notices: self.notices };
            ddl.move_to(&catalog, sequence, schema, &sequence.name)?;
        }
        Ok(())
    }

    fn drop_constraint(&mut self, table: &TableDef, name: &str, cascade: bool) -> Result<()> {
        let check = table.checks.iter().find(|c| c.name == name).map(|c| c.id);
        let key = table.foreign_keys.iter().find(|k| k.name == name).map(|k| k.id);
        if let Some(constraint) = check.or(key) {
            self.txn.drop_constraint(table.id, constraint)?;
            return Ok(());
        }
        let index = table.indexes.iter().find(|i| i.constraint && i.name == name).cloned();
        let columns = index.as_ref().map_or(table.key_columns(), |i| &i.columns).to_vec();
        let catalog = self.txn.catalog();
        let same = |of: &[usize]| of.len() == columns.len() && of.iter().all(|c| columns.contains(c));
        let children = catalog.children(table.id).filter(|(_, key)| same(&key.parent_columns));
        let of = format!("constraint {name} on table {}", table.name);
        let on = format!("index {name}");
        let direct = children.map(|(t, k)| Dependent::key(t, k, &on)).collect();
        drop_dependents(&catalog, &of, direct, cascade, self.txn, self.notices)?;
        match index {
            Some(index) => self.txn.drop_index(table.id, index.id)?,
            None => drop(self.txn.drop_primary_key(table.id)?),
        }
        Ok(())
    }

    /// Fails if a view uses the table (or the column). The stored text of a view names the table and its
    /// columns, so it would be wrong after the change.
    fn refuse_views(&mut self, table: &TableDef, column: Option<usize>, action: &str) -> Result<()> {
        let catalog = self.txn.catalog();
        let used = catalog.views().find(|view| {
            let names = |c: usize| move |used: &varve_engine::Use| used.columns.contains(&c);
            let mut uses = view.uses.iter().filter(|used| used.object == table.id.into());
            uses.any(|used| column.is_none_or(|c| names(c)(used)))
        });
        let Some(view) = used else { return Ok(()) };
        let what = if column.is_some() { "column" } else { "table" };
        Err(SqlError::unsupported(format!("{action} of a {what} that view \"{}\" uses", view.name))
            .with_hint("Drop the view, rename, and create it again.")
            .into())
    }
}

/// Returns the error 23502: existing rows have NULL in the column.
pub(super) fn contains_nulls(table: &TableDef, column: usize) -> SqlError {
    let message = format!(
        "column \"{}\" of relation \"{}\" contains null values",
        table.columns[column].name, table.name
    );
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
    error.of_table(&table.schema, &table.name).of_column(&table.columns[column].name)
}
