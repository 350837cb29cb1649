//! PostgreSQL's limits on the number of columns, keys and arguments. Clients may rely on these limits.
//!
//! This module does not know limits of bytes or of nesting.

use crate::error::{Result, SqlError, SqlState};

/// The maximum number of columns of a result (MaxTupleAttributeNumber).
const TARGETS_MAX: usize = 1664;
/// The maximum number of columns of a table or view (MaxHeapAttributeNumber).
const COLUMNS_MAX: usize = 1600;
/// The maximum number of columns of an index (INDEX_MAX_KEYS).
const KEYS_MAX: usize = 32;
/// The maximum number of arguments of a function (FUNC_MAX_ARGS).
const ARGUMENTS_MAX: usize = 100;

fn check(count: usize, max: usize, state: &'static str, message: impl FnOnce() -> String) -> Result<()> {
    if count <= max { Ok(()) } else { Err(SqlError::new(SqlState(state), message())) }
}

/// Fails with 54011 if a result has too many columns.
pub fn targets(count: usize) -> Result<()> {
    check(count, TARGETS_MAX, "54011", || format!("target lists can have at most {TARGETS_MAX} entries"))
}

/// Fails with 54011 if a table or view has too many columns.
pub fn columns(count: usize) -> Result<()> {
    check(count, COLUMNS_MAX, "54011", || format!("tables can have at most {COLUMNS_MAX} columns"))
}

/// Fails with 54011 if an index has too many columns.
pub fn keys(count: usize) -> Result<()> {
    check(count, KEYS_MAX, "54011", || format!("cannot use more than {KEYS_MAX} columns in an index"))
}

/// Fails with 54023 if a call has too many arguments.
pub fn arguments(count: usize) -> Result<()> {
    check(count, ARGUMENTS_MAX, "54023", || {
        format!("cannot pass more than {ARGUMENTS_MAX} arguments to a function")
    })
}
