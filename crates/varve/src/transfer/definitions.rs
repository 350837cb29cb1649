//! The statements that make objects again.
//!
//! Invariants
//! 1. The statements of `Phase::Before` come before the rows, those of `Phase::After` follow them. So rows are
//!    loaded without secondary indexes, and without foreign keys, which may form circles.

use std::fmt::Write;

use super::read::literal;
use super::schema::{Column, Constraint, Schema, Sequence, Table, View};
use super::types::{ColumnType, column_type, default_for};

/// When a statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the rows.
    Before,
    /// After the rows.
    After,
}

/// An object, and the ways to make it, best first.
#[derive(Debug, Clone)]
pub struct Item {
    /// The object, such as `table public.item`.
    pub what: String,
    /// When it is made.
    pub phase: Phase,
    /// The ways to make it.
    pub choices: Vec<Choice>,
}

/// One way to make an object.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The statements, with semicolons.
    pub sql: String,
    /// What differs from the source, for the report.
    pub change: Option<String>,
    /// The form of a table.
    pub shape: Shape,
}

/// Which parts of a table's definition are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The primary key.
    pub has_key: bool,
    /// The partitions.
    pub is_partitioned: bool,
    /// Generated columns as such. Otherwise they are ordinary columns with the values of now.
    pub is_generated: bool,
    /// Defaults in the same statement.
    pub has_defaults: bool,
    /// UNLOGGED.
    pub is_unlogged: bool,
}

impl Shape {
    /// Everything.
    pub const WHOLE: Shape = Shape {
        has_key: true,
        is_partitioned: true,
        is_generated: true,
        has_defaults: true,
        is_unlogged: true,
    };
}

/// A column with the type that it gets.
pub struct TypedColumn<'c> {
    /// The column of the source.
    pub column: &'c Column,
    /// Its type in the target.
    pub made: ColumnType,
    /// The labels of its enum.
    pub labels: Vec<String>,
}

impl Item {
    fn new(what: String, phase: Phase, sql: String) -> Item {
        Item { what, phase, choices: vec![Choice { sql, change: None, shape: Shape::WHOLE }] }
    }

    fn or(mut self, sql: String, change: &str) -> Item {
        self.choices.push(Choice { sql, change: Some(change.to_owned()), shape: Shape::WHOLE });
        self
    }
}

/// Returns the statement that makes a schema. `public` is there already.
pub fn create_schema(name: &str) -> Option<Item> {
    let what = format!("schema {name}");
    (name != "public")
        .then(|| Item::new(what, Phase::Before, format!("CREATE SCHEMA IF NOT EXISTS {name};\n")))
}

/// Returns the statement that makes a sequence. Sequences of identity columns are made with their tables.
pub fn create_sequence(sequence: &Sequence) -> Option<Item> {
    if sequence.owner.as_ref().is_some_and(|owner| owner.is_identity) {
        return None;
    }
    let Sequence { name, number_type, options, .. } = sequence;
    let sql = format!("CREATE SEQUENCE {name} AS {number_type} {options};\n");
    Some(Item::new(format!("sequence {name}"), Phase::Before, sql))
}

/// Returns the statement that binds a sequence to its column.
pub fn own_sequence(sequence: &Sequence, schema: &Schema) -> Option<Item> {
    let owner = sequence.owner.as_ref().filter(|owner| !owner.is_identity)?;
    let table = schema.tables.iter().find(|table| table.oid == owner.table)?;
    let column = table.columns.iter().find(|column| column.number == owner.column)?;
    let sql = format!("ALTER SEQUENCE {} OWNED BY {}.{};\n", sequence.name, table.name, column.name);
    Some(Item::new(format!("owner of sequence {}", sequence.name), Phase::Before, sql))
}

/// Returns the types of a table's columns. `flat` has the columns with arrays of several dimensions, `labels`
/// returns the labels of an enum.
pub fn typed<'c>(
    table: &'c Table,
    flat: &dyn Fn(&Column) -> bool,
    labels: &dyn Fn(&Column) -> Vec<String>,
) -> Vec<TypedColumn<'c>> {
    let columns = table.columns.iter();
    let typed = columns.map(|column| TypedColumn {
        column,
        made: column_type(column, flat(column)),
        labels: labels(column),
    });
    typed.collect()
}

/// Returns a table as its source declares it.
pub fn declared_table(table: &Table, schema: &Schema) -> Item {
    let same = |column: &Column| ColumnType {
        name: column.declared.clone(),
        select: column.name.clone(),
        change: None,
    };
    let columns = table.columns.iter();
    let columns: Vec<TypedColumn<'_>> =
        columns.map(|column| TypedColumn { column, made: same(column), labels: Vec::new() }).collect();
    let sql = create_table(table, &columns, schema, Shape::WHOLE);
    Item::new(format!("table {}", table.name), Phase::Before, sql)
}

/// Returns the statement that makes a table with its partitions.
fn create_table(table: &Table, columns: &[TypedColumn<'_>], schema: &Schema, shape: Shape) -> String {
    let mut parts: Vec<String> =
        columns.iter().map(|column| column_definition(column, table, schema, shape)).collect();
    if let Some(Constraint { name, definition }) = table.primary_key.as_ref().filter(|_| shape.has_key) {
        parts.push(format!("CONSTRAINT {name} {definition}"));
    }
    let unlogged = if table.is_unlogged && shape.is_unlogged { "UNLOGGED " } else { "" };
    let mut sql = format!("CREATE {unlogged}TABLE {} (\n    {}\n)", table.name, parts.join(",\n    "));
    let key = table.partition_key.as_ref().filter(|_| shape.is_partitioned);
    if let Some(key) = key {
        let _ = write!(sql, " PARTITION BY {key}");
    }
    if let Some(method) = &table.method {
        let _ = write!(sql, " USING {method}");
    }
    if !table.options.is_empty() {
        let _ = write!(sql, " WITH ({})", table.options.join(", "));
    }
    if let Some(tablespace) = &table.tablespace {
        let _ = write!(sql, " TABLESPACE {tablespace}");
    }
    sql += ";\n";
    for partition in table.partitions.iter().filter(|_| key.is_some()) {
        let below = partition.key.as_ref().map(|key| format!(" PARTITION BY {key}")).unwrap_or_default();
        let _ = writeln!(
            sql,
            "CREATE TABLE {} PARTITION OF {} {}{below};",
            partition.name, table.name, partition.bound
        );
    }
    sql
}

fn column_definition(typed: &TypedColumn<'_>, table: &Table, schema: &Schema, shape: Shape) -> String {
    let column = typed.column;
    let mut text = format!("{} {}", column.name, typed.made.name);
    match (&column.default, column.is_generated) {
        (Some(expression), true) if shape.is_generated => {
            let _ = write!(text, " GENERATED ALWAYS AS ({expression}) STORED");
        }
        (Some(default), false) if shape.has_defaults => {
            let _ = write!(text, " DEFAULT {default}");
        }
        _ => {}
    }
    if column.is_not_null {
        text += " NOT NULL";
    }
    if let (Some(kind), Some(sequence)) = (column.identity, table.identity(column, schema)) {
        let kind = if kind == 'a' { "ALWAYS" } else { "BY DEFAULT" };
        let _ = write!(
            text,
            " GENERATED {kind} AS IDENTITY (SEQUENCE NAME {} {})",
            sequence.name, sequence.options
        );
    }
    text
}

/// Returns a table as an item, with simpler forms after the whole one.
pub fn table_item(table: &Table, columns: &[TypedColumn<'_>], schema: &Schema) -> Item {
    let mut choices = Vec::new();
    let options = |has: bool| if has { &[true, false][..] } else { &[true][..] };
    let has_generated = table.columns.iter().any(|column| column.is_generated);
    for is_unlogged in options(table.is_unlogged) {
        for is_generated in options(has_generated) {
            for is_partitioned in options(table.partition_key.is_some()) {
                for has_key in options(table.primary_key.is_some()) {
                    let [is_unlogged, is_generated, is_partitioned, has_key] =
                        [*is_unlogged, *is_generated, *is_partitioned, *has_key];
                    let shape =
                        Shape { has_key, is_partitioned, is_generated, has_defaults: false, is_unlogged };
                    let sql = create_table(table, columns, schema, shape);
                    choices.push(Choice { sql, change: changes_of(table, shape), shape });
                }
            }
        }
    }
    Item { what: format!("table {}", table.name), phase: Phase::Before, choices }
}

fn changes_of(table: &Table, shape: Shape) -> Option<String> {
    let mut changes = Vec::new();
    if !shape.is_unlogged {
        changes.push("UNLOGGED is left out: changes are logged".to_owned());
    }
    if !shape.is_generated {
        let names =
            table.columns.iter().filter(|column| column.is_generated).map(|column| column.name.as_str());
        let names: Vec<&str> = names.collect();
        changes.push(format!(
            "generated columns become ordinary ones with the values of now: {}",
            names.join(", ")
        ));
    }
    if let Some(key) = table.partition_key.as_ref().filter(|_| !shape.is_partitioned) {
        changes.push(format!(
            "PARTITION BY {key} is left out: one table has the rows of all {} partitions",
            table.partitions.len()
        ));
    }
    if !shape.has_key {
        changes.push("its primary key is left out".to_owned());
    }
    (!changes.is_empty()).then(|| changes.join("; "))
}

/// Returns the items of a table's defaults and CHECK constraints, and the CHECKs of its enums.
pub fn rules_of(table: &Table, columns: &[TypedColumn<'_>]) -> Vec<Item> {
    let mut items = Vec::new();
    for typed in columns {
        let column = typed.column;
        if let (Some(default), false) = (&column.default, column.is_generated) {
            let default = if typed.made.change.is_some() { default_for(default) } else { default };
            let what = format!("default of column {}.{}", table.name, column.name);
            let sql =
                format!("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {default};\n", table.name, column.name);
            items.push(Item::new(what, Phase::Before, sql));
        }
        if !typed.labels.is_empty() {
            let labels: Vec<String> = typed.labels.iter().map(|label| literal(label)).collect();
            let what = format!("labels of column {}.{}", table.name, column.name);
            let condition = format!("{} IN ({})", column.name, labels.join(", "));
            items.push(Item::new(
                what,
                Phase::Before,
                format!("ALTER TABLE {} ADD CHECK ({condition});\n", table.name),
            ));
        }
    }
    items.extend(table.checks.iter().map(|check| constraint(table, check, Phase::Before)));
    items
}

/// Returns the item of a constraint. Forms without NOT VALID and DEFERRABLE follow the whole one.
pub fn constraint(table: &Table, constraint: &Constraint, phase: Phase) -> Item {
    let Constraint { name, definition } = constraint;
    let add = |definition: &str| format!("ALTER TABLE {} ADD CONSTRAINT {name} {definition};\n", table.name);
    let mut item = Item::new(format!("constraint {name} of {}", table.name), phase, add(definition));
    for (words, change) in [
        (" NOT VALID", "NOT VALID is left out: all rows are checked"),
        (" DEFERRABLE INITIALLY DEFERRED", "DEFERRABLE is left out: it is checked at once"),
        (" DEFERRABLE", "DEFERRABLE is left out: it is checked at once"),
    ] {
        if let Some(less) = definition.strip_suffix(words) {
            item = item.or(add(less), change);
        }
    }
    item
}

/// Returns the items of a table's unique constraints, indexes and foreign keys.
pub fn keys_of(table: &Table) -> Vec<Item> {
    let mut items: Vec<Item> =
        table.unique.iter().map(|unique| constraint(table, unique, Phase::After)).collect();
    items.extend(table.indexes.iter().map(|index| {
        Item::new(format!("index {}", index.name), Phase::After, format!("{};\n", index.definition))
    }));
    items
}

/// Returns the items of a table's foreign keys. They follow the keys of all tables.
pub fn foreign_keys_of(table: &Table) -> Vec<Item> {
    table.foreign_keys.iter().map(|key| constraint(table, key, Phase::After)).collect()
}

/// Returns the statement that makes a view.
pub fn create_view(view: &View) -> Item {
    let options =
        if view.options.is_empty() { String::new() } else { format!(" WITH ({})", view.options.join(", ")) };
    let sql =
        format!("CREATE VIEW {} ({}){options} AS\n{};\n", view.name, view.columns.join(", "), view.query);
    Item::new(format!("view {}", view.name), Phase::After, sql)
}

/// Returns the statements that add comments.
pub fn comments(schema: &Schema) -> Vec<Item> {
    let items = schema.comments.iter().map(|comment| {
        let sql = format!("COMMENT ON {} IS {};\n", comment.on, comment.literal);
        Item::new(format!("comment on {}", comment.on), Phase::After, sql)
    });
    items.collect()
}
