//! Definitions of tables and indexes.
//!
//! Invariants
//! 1. A constraint that Varve cannot keep (CHECK, FOREIGN KEY, EXCLUDE) is refused, never dropped silently.
//! 2. Names of keys and sequences that the client leaves out are PostgreSQL's.
//!
//! Does not know: how objects are made (`exec::definition`).

use sqlparser::ast::{
    self, AlterTableOperation, ColumnOption, CreateTableOptions, Expr as Ast, GeneratedAs, IndexColumn,
    SqlOption, TableConstraint,
};
use varve_engine::{ColumnDef, NewIndex, NewSequence, NewTable, PrimaryKey, TableDef};

use super::scope::Scope;
use super::{Binder, clauses_ddl, fold, object_name};
use crate::error::{Result, SqlError, SqlState};
use crate::ty;

/// Longest name, as in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;

/// CREATE TABLE, understood.
pub struct TableSpec {
    /// The table.
    pub table: NewTable,
    /// Sequences of serial columns, by ordinal.
    pub sequences: Vec<(usize, NewSequence)>,
    /// UNIQUE constraints: name and columns.
    pub uniques: Vec<(String, Vec<usize>)>,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
}

/// What ALTER TABLE does, one action each.
pub enum Alteration {
    /// ADD PRIMARY KEY
    PrimaryKey(PrimaryKey),
    /// ADD UNIQUE
    Unique(String, Vec<usize>),
    /// SET / DROP DEFAULT, SET / DROP NOT NULL: column, its default and whether NULL is refused, afterwards.
    Column(usize, Option<String>, bool),
}

/// Columns and constraints while they are collected.
#[derive(Default)]
struct Parts {
    columns: Vec<ColumnDef>,
    primary_key: Option<(Option<String>, Vec<usize>)>,
    uniques: Vec<(Option<String>, Vec<usize>)>,
    serial: Vec<usize>,
}

impl Binder<'_> {
    /// CREATE TABLE
    pub fn create_table(&mut self, t: &ast::CreateTable) -> Result<TableSpec> {
        clauses_ddl::check_create_table(t)?;
        check_options(&t.table_options)?;
        let (schema, name) = object_name(&t.name)?;
        if !self.catalog.has_schema(&schema) {
            return Err(no_schema(&schema).at(self.at(&t.name)));
        }
        let mut parts = Parts::default();
        for column in &t.columns {
            self.column_definition(column, &mut parts).map_err(|e| match e.sqlstate {
                SqlState::INVALID_TABLE_DEFINITION => two_primary_keys(&name),
                _ => e,
            })?;
        }
        for constraint in &t.constraints {
            table_constraint(constraint, &name, &mut parts)?;
        }
        let primary_key = parts.primary_key.map(|(given, columns)| PrimaryKey {
            name: given.unwrap_or_else(|| made_name(&name, "", "pkey")),
            columns,
        });
        for column in primary_key.iter().flat_map(|k| &k.columns) {
            parts.columns[*column].not_null = true;
        }
        let mut taken: Vec<String> = primary_key.iter().map(|k| k.name.clone()).collect();
        let mut uniques = Vec::new();
        for (given, columns) in parts.uniques {
            let made = given.unwrap_or_else(|| unique_name(&name, &parts.columns, &columns, "key", &taken));
            taken.push(made.clone());
            uniques.push((made, columns));
        }
        let mut sequences = Vec::new();
        for ordinal in parts.serial {
            let column = &mut parts.columns[ordinal];
            let sequence = self.free_name(&schema, &made_name(&name, &column.name, "seq"));
            column.default = Some(format!("nextval('{}'::regclass)", sequence_text(&schema, &sequence)));
            let mut new = NewSequence::ascending(schema.clone(), sequence);
            new.max = serial_max(column);
            sequences.push((ordinal, new));
        }
        let table = NewTable { primary_key, ..NewTable::new(schema, name, parts.columns) };
        Ok(TableSpec { table, sequences, uniques, if_not_exists: t.if_not_exists })
    }

    fn free_name(&self, schema: &str, wanted: &str) -> String {
        let numbered = |n: u32| if n == 0 { wanted.to_owned() } else { format!("{wanted}{n}") };
        (0..)
            .map(numbered)
            .find(|n| self.catalog.resolve(schema, n).is_none())
            .unwrap_or_else(|| wanted.to_owned())
    }

    fn column_definition(&mut self, c: &ast::ColumnDef, parts: &mut Parts) -> Result<()> {
        let name = fold(&c.name);
        if parts.columns.iter().any(|p| p.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).at(self.span_at(c.name.span)));
        }
        let ordinal = parts.columns.len();
        let column_type = match serial_type(&c.data_type) {
            Some(t) => {
                parts.serial.push(ordinal);
                t
            }
            None => {
                let at = self.span_at(c.name.span);
                ty::of_ast(&c.data_type).and_then(ty::Typed::storage).map_err(|e| e.at(at))?
            }
        };
        let not_null = parts.serial.contains(&ordinal);
        parts.columns.push(ColumnDef { not_null, ..ColumnDef::new(name, column_type) });
        for option in &c.options {
            self.column_option(option, ordinal, parts)?;
        }
        Ok(())
    }

    fn column_option(&mut self, o: &ast::ColumnOptionDef, ordinal: usize, parts: &mut Parts) -> Result<()> {
        let name = o.name.as_ref().map(fold);
        match &o.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => parts.columns[ordinal].not_null = true,
            ColumnOption::Default(e) => {
                self.check_default(e, &parts.columns[ordinal])?;
                parts.columns[ordinal].default = Some(printed_default(e)?);
            }
            ColumnOption::PrimaryKey(k) => {
                clauses_ddl::check_primary_key(k)?;
                set_primary_key(parts, name, vec![ordinal])?;
            }
            ColumnOption::Unique(u) => {
                clauses_ddl::check_unique(u)?;
                parts.uniques.push((name, vec![ordinal]));
            }
            ColumnOption::Generated {
                generated_as: GeneratedAs::ByDefault,
                generation_expr: None,
                sequence_options,
                ..
            } if sequence_options.as_ref().is_none_or(Vec::is_empty) => {
                parts.serial.push(ordinal);
                parts.columns[ordinal].not_null = true;
            }
            ColumnOption::ForeignKey(_) => return Err(no_foreign_key()),
            ColumnOption::Check(_) => return Err(no_check()),
            other => return Err(SqlError::unsupported(format!("the column option {other}"))),
        }
        Ok(())
    }

    /// A default must be an expression of no columns that can be stored in the column.
    fn check_default(&mut self, e: &Ast, column: &ColumnDef) -> Result<()> {
        let mut scope = Scope { no_aggregates: Some("DEFAULT expressions"), ..Scope::default() };
        let bound = self.expression(e, &mut scope).map_err(|e| match e.sqlstate {
            SqlState::UNDEFINED_COLUMN => {
                let message = "cannot use column reference in DEFAULT expression";
                SqlError { sqlstate: SqlState::FEATURE_NOT_SUPPORTED, message: message.into(), ..e }
            }
            _ => e,
        })?;
        self.assign(bound, &column.name, column.column_type).map_err(|e| {
            let message = e.message.replace(" but expression is", " but default expression is");
            SqlError { message: message.into(), ..e }
        })?;
        Ok(())
    }

    /// CREATE INDEX: the table, the index, IF NOT EXISTS.
    pub fn create_index(&mut self, i: &ast::CreateIndex) -> Result<(NewIndex, bool)> {
        clauses_ddl::check_create_index(i)?;
        let table = self.table(&i.table_name)?;
        let columns = self.index_columns(&table, &i.columns)?;
        let name = match &i.name {
            Some(name) => object_name(name)?.1,
            None => {
                let taken: Vec<String> = table.indexes.iter().map(|x| x.name.clone()).collect();
                unique_name(&table.name, &table.columns, &columns, "idx", &taken)
            }
        };
        let new = NewIndex { table: table.id, name, columns, unique: i.unique, constraint: false };
        Ok((new, i.if_not_exists))
    }

    fn index_columns(&mut self, table: &TableDef, columns: &[IndexColumn]) -> Result<Vec<usize>> {
        let ordinal = |c: &IndexColumn| {
            let Ast::Identifier(ident) = &c.column.expr else {
                return Err(SqlError::unsupported("an index on an expression"));
            };
            check_operator_class(c)?;
            table.column(&fold(ident)).ok_or_else(|| {
                let message = format!("column \"{}\" does not exist", fold(ident));
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            })
        };
        columns.iter().map(ordinal).collect()
    }

    /// ALTER TABLE
    pub fn alter_table(&mut self, table: &TableDef, operation: &AlterTableOperation) -> Result<Alteration> {
        match operation {
            AlterTableOperation::AddConstraint { constraint, .. } => {
                let mut parts = Parts { columns: table.columns.clone(), ..Parts::default() };
                table_constraint(constraint, &table.name, &mut parts)?;
                if let Some((given, columns)) = parts.primary_key {
                    if table.primary_key.is_some() {
                        return Err(two_primary_keys(&table.name));
                    }
                    let name = given.unwrap_or_else(|| made_name(&table.name, "", "pkey"));
                    return Ok(Alteration::PrimaryKey(PrimaryKey { name, columns }));
                }
                let taken: Vec<String> = table.indexes.iter().map(|x| x.name.clone()).collect();
                let Some((given, columns)) = parts.uniques.pop() else {
                    return Err(SqlError::unsupported("this constraint"));
                };
                let made = given
                    .unwrap_or_else(|| unique_name(&table.name, &table.columns, &columns, "key", &taken));
                Ok(Alteration::Unique(made, columns))
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                self.alter_column(table, &fold(column_name), op)
            }
            other => {
                let shown = other.to_string();
                let verb: Vec<&str> = shown.split_whitespace().take(2).collect();
                Err(SqlError::unsupported(format!("ALTER TABLE ... {}", verb.join(" "))))
            }
        }
    }

    fn alter_column(
        &mut self,
        table: &TableDef,
        name: &str,
        op: &ast::AlterColumnOperation,
    ) -> Result<Alteration> {
        let ordinal = table.column(name).ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
        let column = &table.columns[ordinal];
        let (default, not_null) = match op {
            ast::AlterColumnOperation::SetNotNull => (column.default.clone(), true),
            ast::AlterColumnOperation::DropNotNull if table.key_columns().contains(&ordinal) => {
                let message = format!("column \"{name}\" is in a primary key");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            ast::AlterColumnOperation::DropNotNull => (column.default.clone(), false),
            ast::AlterColumnOperation::SetDefault { value } => {
                self.check_default(value, column)?;
                (Some(printed_default(value)?), column.not_null)
            }
            ast::AlterColumnOperation::DropDefault => (None, column.not_null),
            other => return Err(SqlError::unsupported(format!("ALTER COLUMN ... {other}"))),
        };
        Ok(Alteration::Column(ordinal, default, not_null))
    }
}

/// A default as the text that is kept of it; refused if that text would be read as something else.
fn printed_default(e: &Ast) -> Result<String> {
    let text = e.to_string();
    match crate::parse::expression(&text) {
        Ok(again) if again == *e => Ok(text),
        _ => Err(SqlError::unsupported(format!("the default {text}"))
            .with_hint("Varve cannot keep this expression as text; write it in another way.")),
    }
}

fn serial_type(t: &ast::DataType) -> Option<varve_engine::ColumnType> {
    let ast::DataType::Custom(name, arguments) = t else { return None };
    if !arguments.is_empty() {
        return None;
    }
    Some(match name.to_string().to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => varve_engine::ColumnType::Int2,
        "serial" | "serial4" => varve_engine::ColumnType::Int4,
        "bigserial" | "serial8" => varve_engine::ColumnType::Int8,
        _ => return None,
    })
}

fn serial_max(column: &ColumnDef) -> i64 {
    match column.column_type {
        varve_engine::ColumnType::Int2 => i64::from(i16::MAX),
        varve_engine::ColumnType::Int4 => i64::from(i32::MAX),
        _ => i64::MAX,
    }
}

/// A sequence's name as it stands in `nextval('...')`.
fn sequence_text(schema: &str, name: &str) -> String {
    let plain = |n: &str| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let quoted = |n: &str| if plain(n) { n.to_owned() } else { format!("\"{}\"", n.replace('"', "\"\"")) };
    let name = if schema == "public" { quoted(name) } else { format!("{}.{}", quoted(schema), quoted(name)) };
    name.replace('\'', "''")
}

/// `table_column_label`, shortened as PostgreSQL does.
fn made_name(table: &str, column: &str, label: &str) -> String {
    let column_len = if column.is_empty() { 0 } else { column.len() + 1 };
    let room = NAME_BYTES_MAX - label.len() - 1;
    let table = &table[..table.floor_char_boundary(room.saturating_sub(column_len).max(room / 2))];
    let left = room - table.len();
    let column = &column[..column.floor_char_boundary(left.saturating_sub(1))];
    if column.is_empty() { format!("{table}_{label}") } else { format!("{table}_{column}_{label}") }
}

fn unique_name(table: &str, columns: &[ColumnDef], key: &[usize], label: &str, taken: &[String]) -> String {
    let joined: Vec<&str> = key.iter().map(|c| columns[*c].name.as_str()).collect();
    let base = made_name(table, &joined.join("_"), label);
    let numbered = |n: u32| if n == 0 { base.clone() } else { format!("{base}{n}") };
    (0..).map(numbered).find(|n| !taken.contains(n)).unwrap_or(base.clone())
}

fn set_primary_key(parts: &mut Parts, name: Option<String>, columns: Vec<usize>) -> Result<()> {
    if parts.primary_key.is_some() {
        return Err(SqlError::new(
            SqlState::INVALID_TABLE_DEFINITION,
            "multiple primary keys are not allowed",
        ));
    }
    parts.primary_key = Some((name, columns));
    Ok(())
}

fn two_primary_keys(table: &str) -> SqlError {
    let message = format!("multiple primary keys for table \"{table}\" are not allowed");
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

fn table_constraint(c: &TableConstraint, table: &str, parts: &mut Parts) -> Result<()> {
    match c {
        TableConstraint::PrimaryKey(k) => {
            clauses_ddl::check_primary_key(k)?;
            let columns = constraint_columns(&k.columns, parts)?;
            set_primary_key(parts, k.name.as_ref().map(fold), columns).map_err(|_| two_primary_keys(table))
        }
        TableConstraint::Unique(u) => {
            clauses_ddl::check_unique(u)?;
            let columns = constraint_columns(&u.columns, parts)?;
            parts.uniques.push((u.name.as_ref().map(fold), columns));
            Ok(())
        }
        TableConstraint::ForeignKey(_) => Err(no_foreign_key()),
        TableConstraint::Check(_) => Err(no_check()),
        other => Err(SqlError::unsupported(format!("the constraint {other}"))),
    }
}

fn constraint_columns(columns: &[IndexColumn], parts: &Parts) -> Result<Vec<usize>> {
    let mut out = Vec::with_capacity(columns.len());
    for column in columns {
        let Ast::Identifier(ident) = &column.column.expr else {
            return Err(SqlError::unsupported("a key on an expression"));
        };
        let name = fold(ident);
        let ordinal = parts.columns.iter().position(|c| c.name == name).ok_or_else(|| {
            let message = format!("column \"{name}\" named in key does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
        if out.contains(&ordinal) {
            let message = format!("column \"{name}\" appears twice in key constraint");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        out.push(ordinal);
    }
    Ok(out)
}

fn check_operator_class(c: &IndexColumn) -> Result<()> {
    let Some(class) = &c.operator_class else { return Ok(()) };
    // Text is in the order of its bytes, which is what the pattern classes ask for.
    match class.to_string().to_ascii_lowercase().as_str() {
        "text_pattern_ops"
        | "varchar_pattern_ops"
        | "bpchar_pattern_ops"
        | "text_ops"
        | "varchar_ops"
        | "int4_ops"
        | "int8_ops" => Ok(()),
        other => Err(SqlError::unsupported(format!("operator class {other}"))),
    }
}

fn no_foreign_key() -> SqlError {
    SqlError::unsupported("FOREIGN KEY")
        .with_hint("Varve does not check references yet; leave the constraint out.")
}

fn no_check() -> SqlError {
    SqlError::unsupported("CHECK")
        .with_hint("Varve does not check conditions on rows yet; leave the constraint out.")
}

/// 3F000
pub fn no_schema(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{name}\" does not exist"))
}

/// `fillfactor` and autovacuum settings mean nothing here; anything else is refused.
fn check_options(options: &CreateTableOptions) -> Result<()> {
    let list = match options {
        CreateTableOptions::None => return Ok(()),
        CreateTableOptions::With(list) => list,
        _ => return Err(SqlError::unsupported("these options of CREATE TABLE")),
    };
    for option in list {
        let SqlOption::KeyValue { key, .. } = option else {
            return Err(SqlError::unsupported("this option of CREATE TABLE"));
        };
        let name = fold(key);
        if name != "fillfactor" && !name.starts_with("autovacuum_") && !name.starts_with("toast") {
            let message = format!("unrecognized parameter \"{name}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    }
    Ok(())
}
