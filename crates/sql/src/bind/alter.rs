//! Binds the actions of ALTER TABLE.
//!
//! This module does not know how an action is executed (`exec::alter`).

use varve_engine::{
    Check, ColumnDef, Derived, Identity, KeyPart, NewSequence, ObjectId, PrimaryKey, StorageOptions, TableDef,
};

use super::ddl::{TableParts, kept_default, keys_of, two_primary_keys};
use super::foreign::NewForeignKey;
use super::part::{check_unique_key, partition_by};
use super::retype::TypeChange;
use super::{Binder, Scope, storage};
use crate::ast::{ColumnAction, ColumnDefinition, Constraint, SequenceOptions, TableAction};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;

/// One action of ALTER TABLE.
pub enum Alteration {
    /// ADD PRIMARY KEY
    PrimaryKey(PrimaryKey),
    /// ADD UNIQUE
    Unique(String, Vec<usize>),
    /// ADD CHECK
    Check(Check),
    /// ADD FOREIGN KEY. It is bound when the table has the columns.
    Foreign(Box<NewForeignKey>),
    /// ADD CHECK or FOREIGN KEY ... NOT VALID
    NotValid(Box<Alteration>),
    /// VALIDATE CONSTRAINT
    Validate(ObjectId),
    /// SET / DROP DEFAULT, SET / DROP NOT NULL: the column, its new default, and whether NULL is refused.
    Column(usize, Option<String>, bool),
    /// ALTER COLUMN ... TYPE
    Type(Box<TypeChange>),
    /// ADD COLUMN
    AddColumn(Box<NewColumn>),
    /// ALTER COLUMN ... ADD GENERATED ... AS IDENTITY
    AddIdentity(usize, Identity, Box<SequenceOptions>),
    /// ALTER COLUMN ... SET GENERATED, SET options of the sequence, RESTART
    SetIdentity(usize, Option<Identity>, Box<SequenceOptions>),
    /// ALTER COLUMN ... DROP IDENTITY: column, IF EXISTS
    DropIdentity(usize, bool),
    /// DROP COLUMN: columns, CASCADE
    DropColumns(Vec<usize>, bool),
    /// RENAME COLUMN
    RenameColumn(Renaming),
    /// RENAME TO
    Rename(String),
    /// RENAME CONSTRAINT
    RenameConstraint(String, String),
    /// SET SCHEMA
    SetSchema(String),
    /// SET (...) and RESET (...)
    Storage(StorageOptions),
    /// SET TABLESPACE
    SetTablespace(String),
    /// DROP CONSTRAINT: name, CASCADE
    DropConstraint(String, bool),
    /// Nothing is done, because of IF [NOT] EXISTS. The client gets this notice.
    Nothing(String),
}

/// The bound form of RENAME COLUMN.
pub struct Renaming {
    /// The column.
    pub ordinal: usize,
    /// Its new name.
    pub name: String,
    /// The new texts of the CHECK constraints.
    pub checks: Vec<String>,
    /// The new definitions of the indexes over expressions.
    pub derived: Vec<Derived>,
}

/// The bound form of ADD COLUMN.
pub struct NewColumn {
    /// The column.
    pub column: ColumnDef,
    /// The value in existing rows.
    pub default: Expr,
    /// The sequence of a serial or identity column.
    pub sequence: Option<NewSequence>,
    /// Constraints in its definition, which are added after it.
    pub constraints: Vec<Alteration>,
}

impl Binder<'_> {
    /// Binds one action of ALTER TABLE.
    pub fn alter_table(&mut self, table: &TableDef, action: &TableAction) -> Result<Alteration> {
        match action {
            TableAction::AddConstraint(constraint) => self.add_constraint(table, constraint),
            TableAction::ValidateConstraint(name) => validate(table, &fold(name)),
            TableAction::AlterColumn { name, action } => self.alter_column(table, &fold(name), action),
            TableAction::AddColumn { column, if_not_exists } => {
                self.add_column(table, column, *if_not_exists)
            }
            TableAction::DropColumn { name, if_exists, cascade } => {
                drop_column(table, &fold(name), *if_exists, *cascade)
            }
            TableAction::RenameColumn { from, to } => self.rename_column(table, &fold(from), fold(to)),
            TableAction::Rename(to) => self.rename_table(table, fold(to)),
            TableAction::RenameConstraint { from, to } => {
                let old = fold(from);
                if !table.has_constraint(&old) {
                    let message = format!("constraint \"{old}\" for table \"{}\" does not exist", table.name);
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
                Ok(Alteration::RenameConstraint(old, fold(to)))
            }
            TableAction::DropConstraint { name, if_exists, cascade } => {
                drop_constraint(table, fold(name), *if_exists, *cascade)
            }
            TableAction::SetSchema(schema) => Ok(Alteration::SetSchema(fold(schema))),
            TableAction::SetOptions(options) => {
                Ok(Alteration::Storage(storage::changed(table.storage, options)?))
            }
            TableAction::SetTablespace(name) => Ok(Alteration::SetTablespace(name.clone())),
            TableAction::ResetOptions(options) => {
                Ok(Alteration::Storage(storage::reset(table.storage, options)?))
            }
        }
    }

    fn add_constraint(&mut self, table: &TableDef, constraint: &Constraint) -> Result<Alteration> {
        let mut parts = parts_of(table);
        self.constraint(constraint, None, &mut parts)?;
        let added = self.constraints(table, parts)?.pop();
        let added = added.ok_or_else(|| SqlError::unsupported("this constraint"))?;
        if constraint.not_valid { not_valid_yet(added) } else { Ok(added) }
    }

    /// Returns the constraints of `parts` as additions to a table.
    fn constraints(&mut self, table: &TableDef, parts: TableParts) -> Result<Vec<Alteration>> {
        let mut added = Vec::new();
        for (kind, key) in keys_of(&parts) {
            check_unique_key(kind, &table.name, partition_by(table), &parts.columns, key)?;
        }
        if let Some((given, columns)) = parts.primary_key {
            if table.primary_key.is_some() {
                return Err(two_primary_keys(&table.name));
            }
            let made = || self.key_name(&table.schema, &table.name, &parts.columns, &[], "pkey", &[]);
            let name = given.unwrap_or_else(made);
            added.push(Alteration::PrimaryKey(PrimaryKey { name, columns }));
        }
        let mut taken: Vec<String> = table.indexes.iter().map(|x| x.name.clone()).collect();
        taken.extend(table.checks.iter().map(|c| c.name.clone()));
        taken.extend(table.foreign_keys.iter().map(|k| k.name.clone()));
        for (given, columns) in parts.uniques {
            let made = || self.key_name(&table.schema, &table.name, &parts.columns, &columns, "key", &taken);
            let name = given.unwrap_or_else(made);
            taken.push(name.clone());
            added.push(Alteration::Unique(name, columns));
        }
        let checks = self.checks(parts.checks, &table.schema, &table.name, &parts.columns, &mut taken)?;
        added.extend(checks.into_iter().map(Alteration::Check));
        added.extend(parts.foreign_keys.into_iter().map(|k| Alteration::Foreign(Box::new(k))));
        Ok(added)
    }

    fn alter_column(&mut self, table: &TableDef, name: &str, action: &ColumnAction) -> Result<Alteration> {
        let ordinal = ordinal_of(table, name)?;
        let column = &table.columns[ordinal];
        let (default, not_null) = match action {
            ColumnAction::SetNotNull => (column.default.clone(), true),
            ColumnAction::DropNotNull if table.key_columns().contains(&ordinal) => {
                let message = format!("column \"{name}\" is in a primary key");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            ColumnAction::SetDefault(_) | ColumnAction::DropDefault | ColumnAction::DropNotNull
                if column.identity.is_some() =>
            {
                let message =
                    format!("column \"{name}\" of relation \"{}\" is an identity column", table.name);
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            ColumnAction::DropNotNull => (column.default.clone(), false),
            ColumnAction::SetDefault(default) => {
                self.check_default(default, column)?;
                (Some(kept_default(default)?), column.not_null)
            }
            ColumnAction::DropDefault => (None, column.not_null),
            ColumnAction::SetType { data_type, using } => {
                let change = self.type_change(table, ordinal, data_type, using.as_deref())?;
                return Ok(Alteration::Type(Box::new(change)));
            }
            ColumnAction::AddIdentity(kind, options) => {
                return Ok(Alteration::AddIdentity(ordinal, *kind, options.clone()));
            }
            ColumnAction::SetIdentity(kind, options) => {
                return Ok(Alteration::SetIdentity(ordinal, *kind, options.clone()));
            }
            ColumnAction::DropIdentity { if_exists } => {
                return Ok(Alteration::DropIdentity(ordinal, *if_exists));
            }
        };
        Ok(Alteration::Column(ordinal, default, not_null))
    }

    fn add_column(
        &mut self,
        table: &TableDef,
        c: &ColumnDefinition,
        if_not_exists: bool,
    ) -> Result<Alteration> {
        let name = fold(&c.name);
        if table.column(&name).is_some() {
            let message = format!("column \"{name}\" of relation \"{}\" already exists", table.name);
            return match if_not_exists {
                true => Ok(Alteration::Nothing(format!("{message}, skipping"))),
                false => Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message)),
            };
        }
        let mut parts = parts_of(table);
        self.column_definition(c, &mut parts)?;
        let serial = std::mem::take(&mut parts.serial);
        let sequences = self.sequences(&table.schema, &table.name, &serial, &mut parts.columns)?;
        let ordinal = table.columns.len();
        let column = parts.columns[ordinal].clone();
        let default = match sequences.is_empty() {
            true => self.bound_default(&column)?,
            false => Expr::NULL,
        };
        let constraints = self.constraints(table, parts)?;
        let sequence = sequences.into_iter().next().map(|(_, sequence)| sequence);
        Ok(Alteration::AddColumn(Box::new(NewColumn { column, default, sequence, constraints })))
    }

    /// Returns a column's default as an expression of the column's type. Without a default it is NULL.
    pub fn bound_default(&mut self, column: &ColumnDef) -> Result<Expr> {
        let Some(text) = &column.default else { return Ok(Expr::NULL) };
        let parsed = crate::parse::expression(text)?;
        let mut inner = Binder::of_kept(self.catalog, text)?;
        let mut scope = Scope { no_aggregates: Some("DEFAULT"), ..Scope::default() };
        let bound = inner.expression(&parsed, &mut scope)?;
        let bound = inner.assign(bound, &column.name, column.column_type)?;
        self.reads_world |= inner.reads_world;
        Ok(bound)
    }

    fn rename_column(&mut self, table: &TableDef, from: &str, to: String) -> Result<Alteration> {
        let no_column =
            || SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{from}\" does not exist"));
        let ordinal = table.column(from).ok_or_else(no_column)?;
        if table.column(&to).is_some() {
            let message = format!("column \"{to}\" of relation \"{}\" already exists", table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let mut checks = Vec::with_capacity(table.checks.len());
        for check in &table.checks {
            checks.push(match check.columns.contains(&ordinal) {
                true => self.renamed_condition(&check.text, table, from, &to)?,
                false => check.text.clone(),
            });
        }
        let mut derived = Vec::new();
        for (_, index) in table.derived_indexes() {
            derived.push(self.renamed_index(index, table, from, &to)?);
        }
        Ok(Alteration::RenameColumn(Renaming { ordinal, name: to, checks, derived }))
    }

    fn renamed_index(&mut self, index: &Derived, table: &TableDef, from: &str, to: &str) -> Result<Derived> {
        let mut renamed = index.clone();
        for key in &mut renamed.keys {
            if let KeyPart::Expression { text, .. } = key {
                *text = self.renamed_text(text, table, from, to)?;
            }
        }
        if let Some(text) = &mut renamed.predicate {
            *text = self.renamed_text(text, table, from, to)?;
        }
        Ok(renamed)
    }

    fn rename_table(&mut self, table: &TableDef, new: String) -> Result<Alteration> {
        if self.catalog.resolve(&table.schema, &new).is_some() {
            let message = format!("relation \"{new}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
        }
        Ok(Alteration::Rename(new))
    }
}

/// Returns a table's columns, to which constraints and columns can be added.
fn parts_of(table: &TableDef) -> TableParts {
    TableParts { table: table.name.clone(), columns: table.columns.clone(), ..TableParts::default() }
}

fn ordinal_of(table: &TableDef, name: &str) -> Result<usize> {
    table.column(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

fn drop_column(table: &TableDef, name: &str, if_exists: bool, cascade: bool) -> Result<Alteration> {
    let columns = match ordinal_of(table, name) {
        Ok(ordinal) => vec![ordinal],
        Err(e) if if_exists => return Ok(Alteration::Nothing(format!("{}, skipping", e.message))),
        Err(e) => return Err(e),
    };
    if let Some(partitions) = &table.partitions
        && let Some(key) = columns.iter().find(|c| partitions.columns.contains(c))
    {
        let message = format!(
            "cannot drop column \"{}\" because it is part of the partition key of relation \"{}\"",
            table.columns[*key].name, table.name
        );
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    if columns.len() == table.columns.len() {
        return Err(SqlError::unsupported("a table without columns"));
    }
    Ok(Alteration::DropColumns(columns, cascade))
}

/// Returns the constraint without a check of existing rows.
fn not_valid_yet(added: Alteration) -> Result<Alteration> {
    let kind = match &added {
        Alteration::PrimaryKey(_) => "PRIMARY KEY",
        Alteration::Unique(..) => "UNIQUE",
        _ => return Ok(Alteration::NotValid(Box::new(added))),
    };
    let message = format!("{kind} constraints cannot be marked NOT VALID");
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
}

fn validate(table: &TableDef, name: &str) -> Result<Alteration> {
    let check = table.checks.iter().find(|c| c.name == name).map(|c| c.id);
    let key = || table.foreign_keys.iter().find(|k| k.name == name).map(|k| k.id);
    if let Some(constraint) = check.or_else(key) {
        return Ok(Alteration::Validate(constraint));
    }
    let (state, what) = match table.has_constraint(name) {
        true => (SqlState::WRONG_OBJECT_TYPE, "is not a foreign key or check constraint"),
        false => (SqlState::UNDEFINED_OBJECT, "does not exist"),
    };
    Err(SqlError::new(state, format!("constraint \"{name}\" of relation \"{}\" {what}", table.name)))
}

fn drop_constraint(table: &TableDef, name: String, if_exists: bool, cascade: bool) -> Result<Alteration> {
    if table.has_constraint(&name) {
        return Ok(Alteration::DropConstraint(name, cascade));
    }
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
    match if_exists {
        true => Ok(Alteration::Nothing(format!("{message}, skipping"))),
        false => Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message)),
    }
}
