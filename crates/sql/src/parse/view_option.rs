//! Converts the options of a view.
//!
//! This module does not know what an option changes (`bind::view`).

use crate::error::{Result, SqlError, SqlState};

/// Reads the value of a view's option. The only option is `security_invoker`.
pub fn security_invoker(name: &str, value: Option<&str>) -> Result<bool> {
    match name {
        "security_invoker" => {}
        "security_barrier" | "check_option" => {
            return Err(SqlError::unsupported(format!("the option {name} of a view")));
        }
        other => {
            let message = format!("unrecognized parameter \"{other}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    }
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "on" | "yes" | "1" | "t" | "y") => Ok(true),
        Some("false" | "off" | "no" | "0" | "f" | "n") => Ok(false),
        Some(_) => {
            let given = value.unwrap_or_default();
            let message = format!("invalid value for boolean option \"{name}\": {given}");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}
