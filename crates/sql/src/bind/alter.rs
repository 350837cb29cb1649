//! ALTER TABLE: what each of its actions asks for.
//!
//! Does not know: how it is done (`exec::alter`).

use sqlparser::ast::{self, AlterColumnOperation, AlterTableOperation, DropBehavior, RenameTableNameKind};
use varve_engine::{
    Check, ColumnDef, Derived, Identity, KeyPart, NewSequence, ObjectId, PrimaryKey, StorageOptions, TableDef,
};

use super::ddl::{Parts, keys_of, printed_default, table_constraint, two_primary_keys};
use super::part::{check_unique_key, partition_by};
use super::retype::TypeChange;
use super::sequence::{SequenceOptions, options_of};
use super::{Binder, Scope, fold, object_name, storage};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;

/// One action of ALTER TABLE.
pub enum Alteration {
    /// ADD PRIMARY KEY
    PrimaryKey(PrimaryKey),
    /// ADD UNIQUE
    Unique(String, Vec<usize>),
    /// ADD CHECK
    Check(Check),
    /// ADD FOREIGN KEY, to be bound when the table has the columns.
    Foreign(Box<ast::ForeignKeyConstraint>),
    /// ADD CHECK or FOREIGN KEY ... NOT VALID
    NotValid(Box<Alteration>),
    /// VALIDATE CONSTRAINT
    Validate(ObjectId),
    /// SET / DROP DEFAULT, SET / DROP NOT NULL: column, its default and whether NULL is refused, afterwards.
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
    /// DROP CONSTRAINT: name, CASCADE
    DropConstraint(String, bool),
    /// IF [NOT] EXISTS found that there is nothing to do: what to tell the client.
    Nothing(String),
}

/// RENAME COLUMN, understood.
pub struct Renaming {
    /// The column.
    pub ordinal: usize,
    /// Its new name.
    pub name: String,
    /// The texts of the CHECK constraints with it.
    pub checks: Vec<String>,
    /// The indexes over expressions with it.
    pub derived: Vec<Derived>,
}

/// ADD COLUMN, understood.
pub struct NewColumn {
    /// The column.
    pub column: ColumnDef,
    /// The value of rows that are there.
    pub default: Expr,
    /// The sequence of a serial or identity column.
    pub sequence: Option<NewSequence>,
    /// Constraints that are written behind it, to be added after it.
    pub constraints: Vec<Alteration>,
}

impl Binder<'_> {
    /// One action of ALTER TABLE.
    pub fn alter_table(&mut self, table: &TableDef, operation: &AlterTableOperation) -> Result<Alteration> {
        match operation {
            AlterTableOperation::AddConstraint { constraint, not_valid } => {
                let mut parts = parts_of(table);
                table_constraint(constraint, &table.name, &mut parts)?;
                let mut added = self.constraints(table, parts)?;
                let added = added.pop().ok_or_else(|| SqlError::unsupported("this constraint"))?;
                if *not_valid { not_valid_yet(added) } else { Ok(added) }
            }
            AlterTableOperation::ValidateConstraint { name } => validate(table, &fold(name)),
            AlterTableOperation::AlterColumn { column_name, op } => {
                self.alter_column(table, &fold(column_name), op)
            }
            AlterTableOperation::AddColumn {
                column_keyword: _,
                if_not_exists,
                column_def,
                column_position: None,
            } => self.add_column(table, column_def, *if_not_exists),
            AlterTableOperation::DropColumn {
                has_column_keyword: _,
                column_names,
                if_exists,
                drop_behavior,
            } => drop_columns(table, column_names, *if_exists, *drop_behavior),
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(table, &fold(old_column_name), fold(new_column_name))
            }
            AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(name) } => {
                self.rename_table(table, name)
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                let old = fold(old_name);
                if !table.has_constraint(&old) {
                    let message = format!("constraint \"{old}\" for table \"{}\" does not exist", table.name);
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
                Ok(Alteration::RenameConstraint(old, fold(new_name)))
            }
            AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
                drop_constraint(table, fold(name), *if_exists, is_cascade(*drop_behavior))
            }
            AlterTableOperation::SetOptionsParens { options } => {
                Ok(Alteration::Storage(storage::changed(table.storage, options)?))
            }
            other => {
                let shown = other.to_string();
                let verb: Vec<&str> = shown.split_whitespace().take(2).collect();
                Err(SqlError::unsupported(format!("ALTER TABLE ... {}", verb.join(" "))))
            }
        }
    }

    /// The constraints of `parts` as additions to a table.
    fn constraints(&mut self, table: &TableDef, parts: Parts) -> Result<Vec<Alteration>> {
        let mut added = Vec::new();
        for (kind, key) in keys_of(&parts) {
            check_unique_key(kind, &table.name, partition_by(table), &parts.columns, key)?;
        }
        if let Some((given, columns)) = parts.primary_key {
            if table.primary_key.is_some() {
                return Err(two_primary_keys(&table.name));
            }
            let made = || self.key_name(&table.schema, &table.name, &parts.columns, (&[], "pkey"), &[]);
            let name = given.unwrap_or_else(made);
            added.push(Alteration::PrimaryKey(PrimaryKey { name, columns }));
        }
        let mut taken: Vec<String> = table.indexes.iter().map(|x| x.name.clone()).collect();
        taken.extend(table.checks.iter().map(|c| c.name.clone()));
        taken.extend(table.foreign_keys.iter().map(|k| k.name.clone()));
        for (given, columns) in parts.uniques {
            let key = (&*columns, "key");
            let made = || self.key_name(&table.schema, &table.name, &parts.columns, key, &taken);
            let name = given.unwrap_or_else(made);
            taken.push(name.clone());
            added.push(Alteration::Unique(name, columns));
        }
        let checks = self.checks(parts.checks, (&table.schema, &table.name), &parts.columns, &mut taken)?;
        added.extend(checks.into_iter().map(Alteration::Check));
        added.extend(parts.foreign_keys.into_iter().map(|k| Alteration::Foreign(Box::new(k))));
        Ok(added)
    }

    fn alter_column(
        &mut self,
        table: &TableDef,
        name: &str,
        op: &AlterColumnOperation,
    ) -> Result<Alteration> {
        let ordinal = ordinal_of(table, name)?;
        if let AlterColumnOperation::SetDataType { data_type, using, had_set: _ } = op {
            let change = self.type_change(table, ordinal, data_type, using.as_ref())?;
            return Ok(Alteration::Type(Box::new(change)));
        }
        if let AlterColumnOperation::AddGenerated { generated_as, sequence_options } = op {
            let kind = match generated_as {
                Some(ast::GeneratedAs::Always) => Identity::Always,
                _ => Identity::ByDefault,
            };
            let options = options_of(sequence_options.as_deref().unwrap_or_default())?;
            return Ok(Alteration::AddIdentity(ordinal, kind, Box::new(options)));
        }
        let column = &table.columns[ordinal];
        let (default, not_null) = match op {
            AlterColumnOperation::SetNotNull => (column.default.clone(), true),
            AlterColumnOperation::DropNotNull if table.key_columns().contains(&ordinal) => {
                let message = format!("column \"{name}\" is in a primary key");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            AlterColumnOperation::SetDefault { .. }
            | AlterColumnOperation::DropDefault
            | AlterColumnOperation::DropNotNull
                if column.identity.is_some() =>
            {
                let message =
                    format!("column \"{name}\" of relation \"{}\" is an identity column", table.name);
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            AlterColumnOperation::DropNotNull => (column.default.clone(), false),
            AlterColumnOperation::SetDefault { value } => {
                self.check_default(value, column)?;
                (Some(printed_default(value)?), column.not_null)
            }
            AlterColumnOperation::DropDefault => (None, column.not_null),
            other => return Err(SqlError::unsupported(format!("ALTER COLUMN ... {other}"))),
        };
        Ok(Alteration::Column(ordinal, default, not_null))
    }

    fn add_column(
        &mut self,
        table: &TableDef,
        c: &ast::ColumnDef,
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

    /// A column's default as an expression of its type; NULL without one.
    pub fn bound_default(&mut self, column: &ColumnDef) -> Result<Expr> {
        let Some(text) = &column.default else { return Ok(Expr::NULL) };
        let parsed = crate::parse::expression(text)?;
        let mut inner = Binder::new(self.catalog, text, &[])?;
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

    fn rename_table(&mut self, table: &TableDef, name: &ast::ObjectName) -> Result<Alteration> {
        if name.0.len() != 1 {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \".\""));
        }
        let (_, new) = object_name(name)?;
        if self.catalog.resolve(&table.schema, &new).is_some() {
            let message = format!("relation \"{new}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
        }
        Ok(Alteration::Rename(new))
    }
}

/// A table's columns, for constraints and columns to be added to.
fn parts_of(table: &TableDef) -> Parts {
    Parts { table: table.name.clone(), columns: table.columns.clone(), ..Parts::default() }
}

fn ordinal_of(table: &TableDef, name: &str) -> Result<usize> {
    table.column(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

fn is_cascade(behavior: Option<DropBehavior>) -> bool {
    matches!(behavior, Some(DropBehavior::Cascade))
}

fn drop_columns(
    table: &TableDef,
    names: &[ast::Ident],
    if_exists: bool,
    behavior: Option<DropBehavior>,
) -> Result<Alteration> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names.iter().map(fold) {
        match ordinal_of(table, &name) {
            Ok(ordinal) => columns.push(ordinal),
            Err(e) if if_exists => return Ok(Alteration::Nothing(format!("{}, skipping", e.message))),
            Err(e) => return Err(e),
        }
    }
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
    Ok(Alteration::DropColumns(columns, is_cascade(behavior)))
}

/// The constraint without a look at the rows that are there.
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
