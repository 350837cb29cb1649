//! Names and types of a table's columns in DataFusion's plans.

use varve_engine::Table;
use varve_sql::general::{Ty, Typed};

/// Returns the name of a table's column.
pub fn column_name(ordinal: usize) -> String {
    format!("c{ordinal}")
}

/// Returns the ordinal of the column with this name.
pub fn column_ordinal(name: &str) -> Option<usize> {
    name.strip_prefix('c')?.parse().ok()
}

/// Returns the types of a table's columns.
pub fn column_types(table: &Table) -> Vec<Ty> {
    table.def().columns.iter().map(|c| Typed::of_column(c.column_type).ty).collect()
}
