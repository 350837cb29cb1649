//! The errors of the protocol: those that are sent to a client, and those that end the server.
//!
//! This module does not know how an error is encoded (`out.rs`).

use std::borrow::Cow;
use std::net::SocketAddr;

use varve_sql::{SqlError, SqlState, Subject};

/// The effect of an error on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed. The connection continues.
    Error,
    /// The connection ends after this message.
    Fatal,
}

impl Severity {
    /// Returns the word in the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// An error as the client sees it. It is boxed, so that results with it stay small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError(Box<ErrorFields>);

/// The parts of an error, as in `ErrorResponse`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorFields {
    /// Whether the connection continues.
    pub severity: Severity,
    /// The SQLSTATE, five characters.
    pub sqlstate: &'static str,
    /// One sentence that describes the error.
    pub message: Cow<'static, str>,
    /// Further facts about the error.
    pub detail: Option<String>,
    /// A hint about what the user can do.
    pub hint: Option<String>,
    /// Position in the statement, in characters, from 1.
    pub position: Option<u32>,
    /// The place where it happened, for example the line of a COPY.
    pub context: Option<String>,
    /// The table, column or constraint that the error names.
    pub subject: Option<Box<Subject>>,
}

impl std::ops::Deref for WireError {
    type Target = ErrorFields;

    fn deref(&self) -> &ErrorFields {
        &self.0
    }
}

impl WireError {
    /// Returns an error after which the connection continues.
    pub fn error(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Error, sqlstate, message.into())
    }

    /// Returns an error that ends the connection.
    pub fn fatal(sqlstate: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Severity::Fatal, sqlstate, message.into())
    }

    fn new(severity: Severity, sqlstate: &'static str, message: Cow<'static, str>) -> Self {
        let (detail, hint, position, context, subject) = (None, None, None, None, None);
        Self(Box::new(ErrorFields { severity, sqlstate, message, detail, hint, position, context, subject }))
    }

    /// Adds a detail.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the context, unless the error has one.
    pub fn within(mut self, context: impl FnOnce() -> String) -> Self {
        self.0.context.get_or_insert_with(context);
        self
    }

    /// Returns the same error with severity FATAL.
    pub fn into_fatal(mut self) -> Self {
        self.0.severity = Severity::Fatal;
        self
    }

    /// Returns the error for a message whose body is not valid.
    pub fn protocol(message: impl Into<Cow<'static, str>>) -> Self {
        Self::error("08P01", message)
    }
}

impl From<SqlError> for WireError {
    fn from(error: SqlError) -> Self {
        Self(Box::new(ErrorFields {
            severity: Severity::Error,
            sqlstate: error.sqlstate.as_str(),
            message: String::from(error.message).into(),
            detail: error.detail.map(String::from),
            hint: error.hint.map(String::from),
            position: error.position,
            context: error.context.map(String::from),
            subject: error.subject,
        }))
    }
}

/// Errors of the encoders need this conversion, because they pass through a session.
impl From<WireError> for SqlError {
    fn from(error: WireError) -> Self {
        let fields = *error.0;
        let mut sql = SqlError::new(SqlState(fields.sqlstate), fields.message);
        sql.detail = fields.detail.map(String::into_boxed_str);
        sql.hint = fields.hint.map(String::into_boxed_str);
        sql
    }
}

/// The reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use.
    #[error(
        "Port {} of {} is in use by another process. Stop it, or choose another address with \
         --listen {}:PORT.",
        address.port(), address.ip(), address.ip()
    )]
    AddressInUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// The address can be reached from other machines, but clients need no password.
    #[error(
        "Varve doesn't listen on {address}: other machines can reach that address, and every user name \
         would be let in without a password. Give the roles passwords and set authentication = \"scram-sha-256\" \
         in section [server] of varve.toml, or listen on a loopback address (127.0.0.1:{port} or [::1]:{port}) \
         and reach it through an SSH tunnel, for example `ssh -L {port}:127.0.0.1:{port} HOST`.",
        port = address.port()
    )]
    NotLoopback {
        /// The requested address.
        address: SocketAddr,
    },
    /// A certificate or its key can't be used.
    #[error("TLS can't use {}: {problem}. See tls_certificate and tls_key in section [server] of varve.toml.", path.display())]
    Tls {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Listening failed for another reason.
    #[error("Cannot listen on {address}: {error}.")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The system refused a thread or a descriptor.
    #[error("Cannot start the server: {what}: {error}.")]
    System {
        /// What was requested from the system.
        what: &'static str,
        /// The error.
        error: std::io::Error,
    },
}
