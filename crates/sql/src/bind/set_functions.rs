//! The table of set-returning functions: their names, and the columns of their rows.
//!
//! This module does not know where a call may occur (`sets`, `from`).

use crate::ty::{Reg, Ty};

/// The kind of rows that a set-returning function returns.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowsOf {
    /// generate_series
    Series,
    /// generate_subscripts, a series.
    Subscripts,
    /// unnest: the elements of arrays.
    Elements,
    /// regexp_matches
    Matches,
    /// The elements of the array that this function returns.
    Array(&'static str),
    /// Rows of one or several columns. Each column has the elements of one array. Only a function with one
    /// column can be called in an expression.
    Columns(&'static [ArrayColumn]),
}

/// A column whose values are the elements of an array.
#[derive(Debug)]
pub(super) struct ArrayColumn {
    pub(super) name: &'static str,
    /// The function that returns the array.
    pub(super) by: &'static str,
    /// The type of the column, if it differs from the type of the array's elements.
    pub(super) ty: Option<Ty>,
}

const fn column(name: &'static str, by: &'static str, ty: Option<Ty>) -> ArrayColumn {
    ArrayColumn { name, by, ty }
}

const CLASS: Option<Ty> = Some(Ty::Reg(Reg::Class));

const FUNCTIONS: [(&str, RowsOf); 15] = [
    (
        "_pg_expandarray",
        RowsOf::Columns(&[column("x", "_pg_expandarray.x", None), column("n", "_pg_expandarray.n", None)]),
    ),
    ("generate_series", RowsOf::Series),
    ("generate_subscripts", RowsOf::Subscripts),
    ("json_array_elements", RowsOf::Columns(&[column("value", "json_array_elements.value", None)])),
    ("json_array_elements_text", RowsOf::Columns(&[column("value", "json_array_elements_text.value", None)])),
    (
        "json_each",
        RowsOf::Columns(&[column("key", "json_each.key", None), column("value", "json_each.value", None)]),
    ),
    (
        "json_each_text",
        RowsOf::Columns(&[
            column("key", "json_each_text.key", None),
            column("value", "json_each_text.value", None),
        ]),
    ),
    (
        "json_object_keys",
        RowsOf::Columns(&[column("json_object_keys", "json_object_keys.json_object_keys", None)]),
    ),
    (
        "pg_options_to_table",
        RowsOf::Columns(&[
            column("option_name", "pg_options_to_table.option_name", None),
            column("option_value", "pg_options_to_table.option_value", None),
        ]),
    ),
    ("pg_partition_ancestors", RowsOf::Columns(&[column("relid", "pg_partition_ancestors.relid", CLASS)])),
    (
        "pg_partition_tree",
        RowsOf::Columns(&[
            column("relid", "pg_partition_tree.relid", CLASS),
            column("parentrelid", "pg_partition_tree.parentrelid", CLASS),
            column("isleaf", "pg_partition_tree.isleaf", None),
            column("level", "pg_partition_tree.level", None),
        ]),
    ),
    ("regexp_matches", RowsOf::Matches),
    ("regexp_split_to_table", RowsOf::Array("regexp_split_to_array")),
    ("string_to_table", RowsOf::Array("string_to_array")),
    ("unnest", RowsOf::Elements),
];

/// Returns the type of the rows that the set-returning function of this name returns. Returns `None` if the
/// function returns one value, or does not exist.
pub(super) fn rows_of(name: &str) -> Option<RowsOf> {
    FUNCTIONS.iter().find(|(n, _)| *n == name).map(|(_, rows)| *rows)
}

/// Does the same as `rows_of` for a call that must return one value for each row. So it returns `None` for
/// functions with several columns.
pub(super) fn values_of(name: &str) -> Option<RowsOf> {
    rows_of(name).filter(|rows| !matches!(rows, RowsOf::Columns(columns) if columns.len() > 1))
}
