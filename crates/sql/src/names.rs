//! Names of objects as a statement or a string writes them: their length limit, their schema and their last
//! part.
//!
//! This module does not know the search path (`path`) or which objects exist.

use crate::ast;
use crate::error::{Result, SqlError, SqlState};

/// Returns a name from the parser, in lower case unless it was quoted.
pub fn fold(ident: &ast::Ident) -> String {
    ident.value.clone()
}

/// The length limit of names, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Returns a name, shortened to PostgreSQL's limit.
pub fn clipped(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

/// Returns schema (public if none is given) and name of an object.
pub fn object_name(name: &ast::ObjectName) -> Result<(String, String)> {
    match name.0.as_slice() {
        [table] => Ok(("public".to_owned(), fold(table))),
        [schema, table] | [_, schema, table] => Ok((fold(schema), fold(table))),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("improper qualified name: {name}"))),
    }
}

/// Returns the error 0A000 for a statement that names a partition and needs the whole table.
pub fn unsupported_of_part(part: &str) -> SqlError {
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("this statement is not supported for the partition \"{part}\" alone"),
    )
    .with_hint("Name the partitioned table instead.")
}

/// Returns the error 42P01, with the name as the client wrote it.
pub fn undefined_table(name: &ast::ObjectName) -> SqlError {
    let parts = name.0.iter().map(fold);
    // If no schema of the path has the name, its schema is empty.
    let shown: Vec<String> = parts.filter(|p| !p.is_empty()).collect();
    let error =
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", shown.join(".")));
    match shown.as_slice() {
        // The session checks with the name of the table whether the role may know that the table exists
        // (`Session::of_missing_relation`).
        [.., schema, table] => error.of_table(schema, table),
        _ => error,
    }
}

/// Reads a name in a string: schema (public if there is none) and name, in lower case unless quoted.
pub fn split_name(text: &str) -> (String, String) {
    let mut parts: Vec<String> = Vec::new();
    let mut part = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            c if quoted => part.push(c),
            c => part.push(c.to_ascii_lowercase()),
        }
    }
    match parts.pop() {
        Some(schema) => (clipped(schema), clipped(part)),
        None => ("public".to_owned(), clipped(part)),
    }
}

/// Returns the error for an object that cannot be made, because its schema does not exist (3F000) or is a
/// system schema (42501).
pub fn cannot_create(schema: &str, name: &str) -> SqlError {
    if !matches!(schema, "pg_catalog" | "information_schema") {
        return no_schema(schema);
    }
    let message = format!("permission denied to create \"{schema}.{name}\"");
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
        .with_detail("System catalog modifications are currently disallowed.")
}

/// Returns the error 3F000.
pub fn no_schema(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SCHEMA, format!("schema \"{name}\" does not exist"))
}
