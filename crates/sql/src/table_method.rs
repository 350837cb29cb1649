//! Table access methods. USING or `default_table_access_method` says which table engine stores a new table.
//!
//! Invariants
//! 1. Errors have PostgreSQL's codes and texts. The methods of PostgreSQL's indexes are known, so they are
//!    refused with an error of their own.
//!
//! This module does not know whether the database has a region for the memory-oriented engines.

use varve_engine::EngineKind;

use crate::error::{Result, SqlError, SqlState};

/// The setting that names the method of tables without USING.
pub const SETTING: &str = "default_table_access_method";
/// The name in the catalog of the engine that stores rows in pages.
pub const PAGED: &str = "paged";
/// The length limit of names in PostgreSQL, in bytes.
const NAME_BYTES_MAX: usize = 63;
const INDEX_METHODS: [&str; 6] = ["btree", "hash", "gist", "gin", "spgist", "brin"];

/// A table access method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableMethod {
    /// `heap` (or `paged`): rows in pages.
    #[default]
    Paged,
    /// A memory-oriented engine.
    Memory(EngineKind),
}

impl TableMethod {
    /// Returns the method with this name, in which upper and lower case matter, or `None` if there is none.
    ///
    /// The error is 55000 for a method of indexes.
    pub fn named(name: &str) -> Result<Option<TableMethod>> {
        if INDEX_METHODS.contains(&name) {
            let message = format!("access method \"{name}\" is not of type TABLE");
            return Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message));
        }
        Ok(match name {
            "heap" | PAGED => Some(TableMethod::Paged),
            _ => EngineKind::from_name(name).map(TableMethod::Memory),
        })
    }

    /// Returns the method of a new table. `written` is the name after USING.
    ///
    /// The error is 42704 for an unknown method, and 55000 for a method of indexes.
    pub fn of_new_table(written: Option<&str>, default: TableMethod) -> Result<TableMethod> {
        let Some(name) = written else { return Ok(default) };
        let unknown = || format!("access method \"{name}\" does not exist");
        TableMethod::named(name)?.ok_or_else(|| SqlError::new(SqlState::UNDEFINED_OBJECT, unknown()))
    }

    /// Returns the name of its engine in the catalog, or `None` for the engine that stores rows in pages.
    pub fn engine(self) -> Option<String> {
        match self {
            TableMethod::Paged => None,
            TableMethod::Memory(kind) => Some(kind.name().to_owned()),
        }
    }
}

/// Returns the fault of a value of the setting, with PostgreSQL's text. The error is 55000 for a method of
/// indexes.
pub fn fault_of_setting(value: &str) -> Result<Option<String>> {
    Ok(match value.len() {
        0 => Some(format!("{SETTING} cannot be empty.")),
        1..=NAME_BYTES_MAX => {
            let method = TableMethod::named(value)?;
            method.is_none().then(|| format!("Table access method \"{value}\" does not exist."))
        }
        _ => Some(format!("{SETTING} is too long (maximum {NAME_BYTES_MAX} characters).")),
    })
}
