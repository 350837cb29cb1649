//! One message as a line of text or JSON.
//!
//! Invariants
//! 1. In text, further lines of a message are indented. In JSON, a message is one line. So no text of a client
//!    looks like another message.
//!
//! This module does not know where lines are written.

use std::fmt::{Debug, Write};

use serde::Serialize;
use tracing::field::{Field, Visit};

/// The parts of a message. The names in JSON are those of PostgreSQL's jsonlog.
#[derive(Debug, Default, Serialize)]
pub struct Line {
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "dbname")]
    database: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pid: i64,
    #[serde(rename = "error_severity")]
    severity: String,
    #[serde(skip_serializing_if = "Option::is_none", rename = "state_code")]
    code: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statement: Option<String>,
}

/// Returns whether a message is of the server itself, and not of a connection.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(pid: &i64) -> bool {
    *pid == 0
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = value.to_owned();
        match field.name() {
            "severity" => self.severity = value,
            "message" => self.message = value,
            "user" => self.user = Some(value),
            "database" => self.database = Some(value),
            "code" => self.code = Some(value),
            "detail" => self.detail = Some(value),
            "hint" => self.hint = Some(value),
            "statement" => self.statement = Some(value),
            _ => {}
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "pid" {
            self.pid = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl Line {
    /// Returns a line with this time, and nothing else.
    pub fn at(timestamp: &str) -> Line {
        Line { timestamp: timestamp.to_owned(), ..Line::default() }
    }

    /// Returns the line as text.
    pub fn text(&self) -> String {
        let Line { timestamp, pid, severity, .. } = self;
        let session = match (&self.user, &self.database) {
            // A name with a line end could look like another message.
            (Some(user), Some(database)) => format!(" {user}@{database}").replace(['\n', '\r'], " "),
            _ => String::new(),
        };
        let mut text = self.code.as_ref().map_or(String::new(), |code| format!("{code}: "));
        text += &self.message;
        let more = [("DETAIL", &self.detail), ("HINT", &self.hint), ("STATEMENT", &self.statement)];
        for (name, more) in more {
            if let Some(more) = more {
                // Writing to a string does not fail.
                let _ = write!(text, "\n{name}:  {more}");
            }
        }
        format!("varve: {timestamp} [{pid}]{session} {severity}:  {}\n", text.replace('\n', "\n\t"))
    }

    /// Returns the line as a JSON object.
    pub fn json(&self) -> String {
        // A struct of texts and numbers can be written as JSON.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line {
            timestamp: "2026-01-01 00:00:00+00".into(),
            pid: 7,
            user: Some("ada".into()),
            database: Some("postgres".into()),
            severity: "ERROR".into(),
            code: Some("22012".into()),
            message: "statement: select 1\nvarve: FATAL".into(),
            statement: Some("select \"1\"".into()),
            ..Line::default()
        }
    }

    #[test]
    fn a_message_is_one_line_and_its_text_cannot_look_like_another() {
        assert_eq!(
            line().text(),
            "varve: 2026-01-01 00:00:00+00 [7] ada@postgres ERROR:  22012: statement: select 1\n\t\
             varve: FATAL\n\tSTATEMENT:  select \"1\"\n"
        );
        let own = Line { pid: 0, user: None, code: None, message: "m".into(), statement: None, ..line() };
        assert_eq!(own.text(), "varve: 2026-01-01 00:00:00+00 [0] ERROR:  m\n");
    }

    #[test]
    fn json_has_the_keys_of_postgresql_and_is_one_line() {
        let json = line().json();
        assert_eq!(json.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (key, value) in [("error_severity", "ERROR"), ("state_code", "22012"), ("dbname", "postgres")] {
            assert_eq!(read[key], value);
        }
        assert_eq!(
            (&read["pid"], &read["message"]),
            (&7.into(), &"statement: select 1\nvarve: FATAL".into())
        );
        assert!(read.get("detail").is_none());
    }
}
