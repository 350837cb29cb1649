//! Checks that a JSON value is well formed. The value is stored exactly as it was written.
//!
//! This module does not know the content of a value or functions that make JSON (`eval::func::json`).

use crate::error::{Result, SqlError, SqlState};

/// Returns the text if it is valid JSON (RFC 8259). Nesting needs no stack.
pub fn checked(text: &str) -> Result<&str> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(text),
        Err(e) if e.is_eof() => Err(invalid().with_detail("The input string ended unexpectedly.")),
        Err(e) => Err(invalid().with_detail(format!("Reading stopped with: {e}."))),
    }
}

fn invalid() -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_passes() {
        let nested = r#"{"a": [1, -2.5e+3, true, null, "x\u00e9\n"], "b": {"c": []}}"#;
        for sound in ["{}", " [ ] ", nested, "0", "\"\"", "[[[]]]"] {
            assert!(checked(sound).is_ok(), "{sound}");
        }
        for broken in ["", "{", "[1,]", "{a: 1}", "01", "tru", "1 2", "'a'", "{\"a\" 1}", "\"\t\""] {
            assert!(checked(broken).is_err(), "{broken}");
        }
        let deep = 100_000;
        assert!(checked(&format!("{}{}", "[".repeat(deep), "]".repeat(deep))).is_ok());
        assert!(checked(&"[".repeat(deep)).is_err());
    }
}
