//! Finds the tablespaces that statements name, and checks that the role may use them.
//!
//! This module does not know where a tablespace is.

use varve_engine::{Catalog, SpaceId, Tablespace, Transaction};

use super::Facts;
use crate::error::{Result, SqlError, SqlState};
use crate::rights::{Holder, denied};
use crate::system::tablespaces::owner_of;

/// Returns the error 42704: there is no tablespace of this name.
pub(crate) fn missing(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("tablespace \"{name}\" does not exist"))
}

/// Returns the tablespace of this name, in which the role may make tables and indexes. `None` means the data
/// space.
pub(super) fn named(
    name: &str,
    txn: &Transaction,
    catalog: &Catalog,
    facts: &Facts,
) -> Result<Option<SpaceId>> {
    match name {
        "pg_default" => return Ok(None),
        "pg_global" => {
            let message = "only shared relations can be placed in pg_global tablespace";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        _ => {}
    }
    Ok(Some(usable(txn.tablespace_named(name), name, catalog, facts)?.id))
}

/// The tablespace `found` with this name, if the role may make tables and indexes in it.
pub(crate) fn usable(
    found: Option<Tablespace>,
    name: &str,
    catalog: &Catalog,
    facts: &Facts,
) -> Result<Tablespace> {
    let found = found.ok_or_else(|| missing(name))?;
    let holder = Holder::of(catalog, facts.who);
    if holder.is_superuser() || holder.is(owner_of(&found)) {
        return Ok(found);
    }
    Err(denied(format!("permission denied for tablespace {name}")))
}

/// Returns the tablespace of a new table or index. It is the tablespace that the statement names, or else
/// that of the setting `default_tablespace`. As in PostgreSQL, the setting has no effect if there is no
/// tablespace of its name.
pub(crate) fn of_new(
    said: Option<&str>,
    txn: &Transaction,
    catalog: &Catalog,
    facts: &Facts,
) -> Result<Option<SpaceId>> {
    if let Some(name) = said {
        return named(name, txn, catalog, facts);
    }
    let default = &*facts.default_tablespace;
    if default.is_empty() || txn.tablespace_named(default).is_none() {
        return Ok(None);
    }
    named(default, txn, catalog, facts)
}
