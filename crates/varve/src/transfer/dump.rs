//! `varve dump`: writes a database as SQL text, which `varve sql` or psql restores.
//!
//! Invariants
//! 1. All queries read one snapshot.
//! 2. The same contents give the same text, so two dumps can be compared.

use std::io::Write;

use super::TransferError;
use super::definitions::{self, Item, Phase};
use super::link::Link;
use super::read::{Scope, literal, read};
use super::schema::{Schema, Table};

/// Which parts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Definitions.
    pub has_schema: bool,
    /// Rows and values of sequences.
    pub has_data: bool,
}

/// The lines at the start of a dump. The reader needs the same settings as the writer.
const HEAD: &str = "\
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';
SET TimeZone = 'UTC';
SET search_path = '';
";

/// Writes a dump. `source` is the name of the database for errors.
pub fn dump(
    link: &mut dyn Link,
    source: &str,
    scope: &Scope,
    parts: Parts,
    out: &mut dyn Write,
) -> Result<(), TransferError> {
    link.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").map_err(|error| error.of(source))?;
    let schema = read(link, scope)?;
    check_names(&schema, source, scope)?;
    write!(out, "-- A dump of a Varve database, by varve {}\n\n{HEAD}", env!("CARGO_PKG_VERSION"))?;
    if parts.has_schema {
        write_items(&before(&schema), out)?;
    }
    if parts.has_data {
        for table in &schema.tables {
            write_rows(link, table, out)?;
        }
        write_sequences(link, &schema, out)?;
    }
    if parts.has_schema {
        write_items(&after(&schema), out)?;
    }
    write!(out, "\n-- End of the dump\n")?;
    out.flush()?;
    link.run("COMMIT").map_err(|error| error.of(source))
}

/// Returns an error if a named schema or table does not exist.
fn check_names(schema: &Schema, source: &str, scope: &Scope) -> Result<(), TransferError> {
    let absent = |what, name: &String| TransferError::Absent {
        source_name: source.to_owned(),
        what,
        name: name.clone(),
    };
    for name in &scope.tables {
        let is_this = |table: &Table| table.name == *name || table.name.ends_with(&format!(".{name}"));
        if !schema.tables.iter().any(is_this) {
            return Err(absent("table", name));
        }
    }
    for name in scope.schemas.iter().filter(|_| scope.tables.is_empty()) {
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        if !schema.schemas.iter().any(|known| known == name || *known == quoted) {
            return Err(absent("schema", name));
        }
    }
    Ok(())
}

fn before(schema: &Schema) -> Vec<Item> {
    let mut items: Vec<Item> =
        schema.schemas.iter().filter_map(|name| definitions::create_schema(name)).collect();
    items.extend(schema.sequences.iter().filter_map(definitions::create_sequence));
    for table in &schema.tables {
        items.push(definitions::declared_table(table, schema));
        items.extend(table.checks.iter().map(|check| definitions::constraint(table, check, Phase::Before)));
    }
    items.extend(schema.sequences.iter().filter_map(|sequence| definitions::own_sequence(sequence, schema)));
    items
}

fn after(schema: &Schema) -> Vec<Item> {
    let mut items: Vec<Item> = schema.tables.iter().flat_map(definitions::keys_of).collect();
    items.extend(schema.tables.iter().flat_map(definitions::foreign_keys_of));
    items.extend(schema.views.iter().map(definitions::create_view));
    items.extend(definitions::comments(schema));
    items
}

fn write_items(items: &[Item], out: &mut dyn Write) -> Result<(), TransferError> {
    for choice in items.iter().filter_map(|item| item.choices.first()) {
        write!(out, "\n{}", choice.sql)?;
    }
    Ok(())
}

fn write_rows(link: &mut dyn Link, table: &Table, out: &mut dyn Write) -> Result<(), TransferError> {
    let columns = table.columns.iter().filter(|column| !column.is_generated);
    let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    if columns.is_empty() {
        return Ok(());
    }
    let columns = columns.join(", ");
    write!(out, "\nCOPY {} ({columns}) FROM stdin;\n", table.name)?;
    // A partitioned table itself has no rows in PostgreSQL, but a query of it reads its partitions.
    let query = format!("COPY (SELECT {columns} FROM {}) TO STDOUT", table.name);
    link.copy_to(&query, out).map_err(|error| error.of(format!("table {}", table.name)))?;
    writeln!(out, "\\.")?;
    Ok(())
}

fn write_sequences(link: &mut dyn Link, schema: &Schema, out: &mut dyn Write) -> Result<(), TransferError> {
    if !schema.sequences.is_empty() {
        writeln!(out)?;
    }
    for sequence in &schema.sequences {
        let set = set_sequence(link, &sequence.name)?;
        write!(out, "{set}")?;
    }
    Ok(())
}

/// Returns the statement that gives a sequence the same next value as in the source.
pub fn set_sequence(link: &mut dyn Link, name: &str) -> Result<String, TransferError> {
    let query = format!("SELECT last_value, is_called FROM {name}");
    let rows = link.rows(&query).map_err(|error| error.of(format!("sequence {name}")))?;
    let cell =
        |number: usize| rows.first().and_then(|row| row.get(number).cloned().flatten()).unwrap_or_default();
    let is_called = if cell(1) == "t" { "true" } else { "false" };
    Ok(format!("SELECT pg_catalog.setval({}, {}, {is_called});\n", literal(name), cell(0)))
}
