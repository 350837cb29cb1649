//! Runs CREATE EXTENSION. Varve's extensions are built in, so the command only checks the name.
//!
//! This module does not know which extensions exist (`system::extensions`).

use super::Session;
use crate::error::{Result, SqlError, SqlState};
use crate::sink::Severity;
use crate::system::extensions;

impl Session {
    /// Runs CREATE EXTENSION. Every built-in extension exists already, so the function fails with 42710, or
    /// adds a notice with IF NOT EXISTS. Any other extension is the error 0A000.
    pub(super) fn create_extension(&mut self, name: &str, if_not_exists: bool) -> Result<&'static str> {
        if !extensions::ALL.iter().any(|extension| extension.name == name) {
            let message = format!("extension \"{name}\" is not available");
            let hint = "pg_available_extensions lists those that Varve has; gen_random_uuid() needs none.";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint(hint));
        }
        let message = format!("extension \"{name}\" already exists");
        if !if_not_exists {
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        let notice = SqlError::new(SqlState::DUPLICATE_OBJECT, format!("{message}, skipping"));
        self.notices.push((Severity::Notice, notice));
        Ok("CREATE EXTENSION")
    }
}
