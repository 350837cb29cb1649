//! How the columns of a table are named and typed in a plan of DataFusion.

use varve_engine::Table;
use varve_sql::general::{Ty, Typed};

/// The name of a table's column.
pub fn column_name(ordinal: usize) -> String {
    format!("c{ordinal}")
}

/// The ordinal behind a name.
pub fn column_ordinal(name: &str) -> Option<usize> {
    name.strip_prefix('c')?.parse().ok()
}

/// Types of a table's columns.
pub fn column_types(table: &Table) -> Vec<Ty> {
    table.def().columns.iter().map(|c| Typed::of_column(c.column_type).ty).collect()
}
