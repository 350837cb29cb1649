//! Makes names for constraints, indexes and sequences that have no name in the statement.
//!
//! This module does not know which names are in use.

use std::borrow::Cow;

use varve_engine::ColumnDef;

use crate::names::NAME_BYTES_MAX;

/// Returns the name `table_column_label`, shortened as PostgreSQL does.
pub fn made_name(table: &str, column: &str, label: &str) -> String {
    let column_len = if column.is_empty() { 0 } else { column.len() + 1 };
    let room = NAME_BYTES_MAX - label.len() - 1;
    let table = &table[..table.floor_char_boundary(room.saturating_sub(column_len).max(room / 2))];
    let left = room - table.len();
    let column = &column[..column.floor_char_boundary(left.saturating_sub(1))];
    if column.is_empty() { format!("{table}_{label}") } else { format!("{table}_{column}_{label}") }
}

/// Returns a name for a constraint that is not a relation.
pub fn unique_name(
    table: &str,
    columns: &[ColumnDef],
    key: &[usize],
    label: &str,
    taken: &[String],
) -> String {
    free_among(table, columns, key, label, &|name| !taken.iter().any(|t| t == name))
}

/// Returns the name made of a table, the columns of a key and a label. If it is in use, the first free number
/// is appended.
pub fn free_among(
    table: &str,
    columns: &[ColumnDef],
    key: &[usize],
    label: &str,
    is_free: &dyn Fn(&str) -> bool,
) -> String {
    let joined: Vec<&str> = key.iter().map(|c| columns[*c].name.as_str()).collect();
    let base = made_name(table, &joined.join("_"), label);
    let numbered = |n: u32| if n == 0 { base.clone() } else { format!("{base}{n}") };
    (0..).map(numbered).find(|n| is_free(n)).unwrap_or(base.clone())
}

/// Appends numbers to names that come more than once.
pub fn numbered<'n>(names: impl Iterator<Item = Cow<'n, str>>) -> Vec<Cow<'n, str>> {
    let mut out: Vec<Cow<'n, str>> = Vec::new();
    for base in names {
        let mut name = base.clone();
        let mut number = 0;
        while out.contains(&name) {
            number += 1;
            name = format!("{base}{number}").into();
        }
        out.push(name);
    }
    out
}
