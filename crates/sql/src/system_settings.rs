//! The interface for settings of the whole process, which ALTER SYSTEM changes. The program that opens the
//! database implements it.
//!
//! Invariants
//! 1. A change is durable when `alter` returns. A value that the next start would refuse is refused.
//!
//! This module does not know files or what a setting is for.

use std::sync::Arc;

use crate::error::{Result, SqlError, SqlState};

/// The settings of the process. The program implements this trait.
pub trait SystemSettings: Send + Sync {
    /// Returns all settings.
    fn all(&self) -> Vec<SystemSetting>;

    /// Returns the setting with this name, in upper or lower case. Each connection reads some settings.
    fn one(&self, name: &str) -> Option<SystemSetting> {
        self.all().into_iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// Checks a value, stores it, and applies it if that is possible while the database is open. Without a
    /// value, the setting gets the value that it has without ALTER SYSTEM.
    fn alter(&self, name: &str, value: Option<&str>) -> Result<()>;

    /// Undoes all changes of ALTER SYSTEM.
    fn reset_all(&self) -> Result<()>;
}

/// The settings of the program that runs the database, if it has any.
#[derive(Clone, Default)]
pub struct ProcessSettings(Option<Arc<dyn SystemSettings>>);

impl ProcessSettings {
    /// Returns the settings of this program.
    pub fn of(program: Arc<dyn SystemSettings>) -> ProcessSettings {
        ProcessSettings(Some(program))
    }

    /// Returns the program, if it has settings.
    pub fn program(&self) -> Option<&Arc<dyn SystemSettings>> {
        self.0.as_ref()
    }

    /// Returns all settings.
    pub fn all(&self) -> Vec<SystemSetting> {
        self.0.as_ref().map(|program| program.all()).unwrap_or_default()
    }

    /// Returns the setting with a name, in upper or lower case. Some also have PostgreSQL's names.
    pub fn find(&self, name: &str) -> Option<SystemSetting> {
        let name = match name.to_ascii_lowercase().as_str() {
            "default_table_access_method" => "nvm_default_access_method",
            "log_checkpoints" => "server_log_checkpoints",
            "log_connections" => "server_log_connections",
            "log_disconnections" => "server_log_disconnections",
            "log_lock_waits" => "server_log_lock_waits",
            "log_min_duration_statement" => "server_log_min_duration_statement",
            "log_temp_files" => "server_log_temp_files",
            _ => name,
        };
        self.0.as_ref()?.one(name)
    }
}

/// One setting of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemSetting {
    /// Its name.
    pub name: &'static str,
    /// The value in force.
    pub value: String,
    /// The value after the next start.
    pub after_restart: String,
    /// The default value.
    pub default: String,
    /// A description.
    pub description: &'static str,
    /// Whether a change waits for the next start.
    pub needs_restart: bool,
    /// The source of the value, as in pg_settings: `default`, `configuration file` or `command line`.
    pub source: &'static str,
    /// The type, as in pg_settings: `bool`, `integer`, `string` or `enum`.
    pub kind: &'static str,
    /// The unit of a number.
    pub unit: Option<&'static str>,
    /// The least and the greatest value of a number.
    pub bounds: Option<(u64, u64)>,
    /// The words that it can have.
    pub choices: Vec<&'static str>,
    /// The value that the command line overrides, if it is different.
    pub hidden: Option<String>,
    /// A warning about the next value, if there is one.
    pub warning: Option<String>,
}

impl SystemSetting {
    /// Returns whether the next start changes the setting.
    pub fn is_pending(&self) -> bool {
        self.value != self.after_restart
    }
}

/// Returns the error 55P02 for SET of a setting of the process.
pub fn not_of_a_session(setting: &SystemSetting) -> SqlError {
    let (name, hint) = (setting.name, "ALTER SYSTEM SET changes it.");
    let message = match setting.needs_restart {
        true => format!("parameter \"{name}\" cannot be changed without restarting the server"),
        false => format!("parameter \"{name}\" cannot be changed now"),
    };
    SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message).with_hint(hint)
}
