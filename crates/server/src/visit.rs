//! Writes a connection's events to the server's log: that it was received, that it was authorized, and that
//! it has ended.
//!
//! Invariants
//! 1. The end of a connection is logged only if its user was authorized, and if disconnections were logged at
//!    that moment.

use std::time::Instant;

use varve_sql::log;

use crate::registry::Registration;
use crate::startup::StartUp;

/// One connection.
pub struct Visit {
    process_id: i32,
    /// The address of the client.
    host: String,
    began: Instant,
    /// The user of the connection, if its end will be logged.
    visitor: Option<Visitor>,
}

/// The user of a connection.
pub struct Visitor {
    user: String,
    database: String,
    /// The application name, and whether the connection uses TLS.
    more: String,
}

impl Visitor {
    /// Returns the visitor that the client's start-up message describes.
    pub fn of(start: &StartUp, is_encrypted: bool) -> Visitor {
        let name = start.settings.iter().find(|(name, _)| name == "application_name");
        let mut more = name.map_or(String::new(), |(_, name)| format!(" application_name={name}"));
        more += if is_encrypted { " SSL enabled" } else { "" };
        Visitor { user: start.user.clone(), database: start.database.clone(), more }
    }
}

impl Visit {
    /// Logs the start of a connection.
    pub fn new(registration: &Registration) -> Visit {
        let peer = registration.peer();
        let host = peer.map_or("[local]".to_owned(), |peer| format!("{} port={}", peer.ip(), peer.port()));
        let visit =
            Visit { process_id: registration.key().process, host, began: Instant::now(), visitor: None };
        if log::logs_connections() {
            visit.write(&format!("connection received: host={}", visit.host));
        }
        visit
    }

    /// Logs that a client was authenticated.
    pub fn authenticated(&self, user: &str, has_proved: bool) {
        if has_proved && log::logs_connections() {
            self.write(&format!("connection authenticated: identity=\"{user}\" method=scram-sha-256"));
        }
    }

    /// Logs the start of a session.
    pub fn authorized(&mut self, visitor: Visitor) {
        if log::logs_connections() {
            let Visitor { user, database, more } = &visitor;
            self.write(&format!("connection authorized: user={user} database={database}{more}"));
        }
        self.visitor = log::logs_disconnections().then_some(visitor);
    }

    /// Logs the end of a session.
    pub fn end(&self) {
        let Some(Visitor { user, database, .. }) = &self.visitor else { return };
        let took = self.began.elapsed();
        let (seconds, millis) = (took.as_secs(), took.subsec_millis());
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        self.write(&format!(
            "disconnection: session time: {hours}:{minutes:02}:{seconds:02}.{millis:03} user={user} \
             database={database} host={}",
            self.host
        ));
    }

    fn write(&self, text: &str) {
        let who = self.visitor.as_ref().map(|visitor| (visitor.user.as_str(), visitor.database.as_str()));
        log::write(log::Source { process_id: self.process_id, session: who }, log::Severity::Log, text);
    }
}
