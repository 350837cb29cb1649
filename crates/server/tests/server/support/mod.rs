//! Test helpers: a session without a database, and a client that sends raw bytes.
//!
//! The session accepts these statements. `rows N` returns N rows of an integer and a text. `echo` returns its
//! parameters as one row. `sleep` runs until it is cancelled. `copy` is a COPY FROM STDIN of two columns.
//! `moment` returns a time, and `zone` makes the session show times in another time zone. `SELECT ...`
//! returns one row of 120 characters and is counted. `begin`, `commit`, `rollback`, `fail`, `panic`, `notice`
//! and the empty statement do what their name says.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(dead_code, reason = "each test uses its part")]

pub mod client;
pub mod fuzz;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use varve_engine::{ColumnType, Datum, Value};
use varve_server::session::{Backend, PortalState, Session, Statement};
use varve_server::{Listener, Options, Server};
use varve_sql::oid::{self, Oid};
use varve_sql::scram::Verifier;
use varve_sql::{
    CancelToken, Column, CommandTag, CopyShape, Ender, Progress, SessionParams, Severity, Sink, SqlError,
    SqlState,
};

/// A fuzzer may ask for any number of rows.
const ROWS_MAX: u64 = 200_000;

/// The number of SELECTs that have run.
pub static SELECTS: AtomicU64 = AtomicU64::new(0);

/// The functions that end sessions, by the name that the session's start-up packet gives in `ender`.
pub static ENDERS: Mutex<BTreeMap<String, Ender>> = Mutex::new(BTreeMap::new());

type Result<T> = std::result::Result<T, SqlError>;

/// Starts a server with the sessions of this file. It accepts at most five of them.
pub fn server() -> Server {
    server_with(Options::new(5))
}

/// Does the same with other options.
pub fn server_with(options: Options) -> Server {
    let listener = Listener::open_for(([127, 0, 0, 1], 0).into(), &options).unwrap();
    Server::start_with(listener, options, Arc::new(Mock)).unwrap()
}

pub struct Mock;

impl Backend for Mock {
    type Session = MockSession;

    fn open(self: &Arc<Self>, params: SessionParams) -> Result<MockSession> {
        if params.database == "nowhere" {
            return Err(SqlError::new(SqlState("3D000"), "database \"nowhere\" does not exist"));
        }
        let reports = vec![("server_version", "15.0 (mock)".to_owned()), ("application_name", String::new())];
        Ok(MockSession {
            names: HashMap::new(),
            status: b'I',
            reports,
            cancel: CancelToken::default(),
            settings: params.settings,
        })
    }

    /// The password of each user except `nobody` is `secret`.
    fn verifier(&self, user: &str) -> Verifier {
        match user {
            "nobody" => Verifier::of_nobody(user, b"secret"),
            _ => Verifier::new("secret", b"salt".to_vec(), 4096),
        }
    }
}

pub struct MockSession {
    names: HashMap<String, Arc<MockStatement>>,
    status: u8,
    reports: Vec<(&'static str, String)>,
    cancel: CancelToken,
    settings: Vec<(String, String)>,
}

pub struct MockStatement {
    verb: String,
    row_count: u64,
    oids: Vec<Oid>,
    columns: Option<Vec<Column>>,
}

impl Statement for MockStatement {
    fn parameter_oids(&self) -> &[Oid] {
        &self.oids
    }

    fn parameter_type(&self, index: usize) -> ColumnType {
        oid::column_type(self.oids[index]).unwrap_or(ColumnType::Text)
    }

    fn columns(&self) -> Option<&[Column]> {
        self.columns.as_deref()
    }
}

#[derive(Default)]
pub struct MockPortal {
    sent: u64,
}

impl PortalState for MockPortal {
    fn is_open(&self) -> bool {
        true
    }
}

fn column(name: &str, type_oid: Oid) -> Column {
    Column { name: name.into(), type_oid, typmod: -1, origin: None }
}

impl MockSession {
    fn run(&mut self, verb: &str, sink: &mut dyn Sink) -> Result<CommandTag> {
        if self.status == b'E' && !["commit", "rollback"].contains(&verb) {
            return Err(SqlError::new(SqlState::IN_FAILED_TRANSACTION, "current transaction is aborted"));
        }
        match verb {
            "" => Ok(CommandTag::Empty),
            "begin" => {
                self.status = b'T';
                Ok(CommandTag::Plain("BEGIN"))
            }
            "commit" | "rollback" => {
                self.status = b'I';
                Ok(CommandTag::Plain("COMMIT"))
            }
            "fail" => Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").at(Some(3))),
            "panic" => panic!("as asked"),
            "notice" => {
                sink.notice(Severity::Warning, &SqlError::new(SqlState::WARNING, "careful"));
                self.reports.push(("application_name", "new".to_owned()));
                Ok(CommandTag::Plain("NOTICE"))
            }
            "zone" => {
                sink.forms(&varve_sql::TimeForms::of_zone(varve_sql::Zone::Fixed(7200)));
                Ok(CommandTag::Plain("SET"))
            }
            "sleep" => self.sleep(),
            "copy" => copy(sink),
            other => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{other}\"")))
            }
        }
    }

    fn sleep(&mut self) -> Result<CommandTag> {
        while !self.cancel.is_cancelled() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.cancel = CancelToken::default();
        Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"))
    }
}

fn copy(sink: &mut dyn Sink) -> Result<CommandTag> {
    let mut lines = 0;
    sink.copy_in(CopyShape { column_count: 2, is_binary: false }, &mut |piece| {
        if piece == b"bad\n" {
            return Err(SqlError::new(SqlState::BAD_COPY, "bad line"));
        }
        lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(())
    })?;
    Ok(CommandTag::Copy(lines))
}

fn send_rows(from: u64, to: u64, sink: &mut dyn Sink) -> Result<()> {
    for number in from..to {
        let text = format!("row {number}");
        sink.row(&[Datum::Int4(number as i32), Datum::Text(&text)])?;
    }
    Ok(())
}

impl Session for MockSession {
    type Statement = MockStatement;
    type Portal = MockPortal;

    fn prepare(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<MockStatement>> {
        let (verb, count) = sql.split_once(' ').unwrap_or((sql, ""));
        if verb == "nonsense" {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"nonsense\""));
        }
        let named = types.iter().map(|oid| column("value", *oid));
        let columns = match verb {
            "rows" => Some(vec![column("number", oid::INT4), column("text", oid::TEXT)]),
            "echo" => Some(named.collect()),
            "SELECT" => Some(vec![column("c", oid::BPCHAR)]),
            _ => None,
        };
        let row_count = count.parse().unwrap_or(0).min(ROWS_MAX);
        Ok(Arc::new(MockStatement { verb: verb.to_owned(), row_count, oids: types.to_vec(), columns }))
    }

    fn name_statement(&mut self, name: &str, statement: Arc<MockStatement>) -> Result<()> {
        if !name.is_empty() && self.names.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED, message));
        }
        self.names.insert(name.to_owned(), statement);
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<Arc<MockStatement>> {
        self.names.get(name).cloned().ok_or_else(|| {
            let message = format!("prepared statement \"{name}\" does not exist");
            SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
        })
    }

    fn close_statement(&mut self, name: &str) {
        self.names.remove(name);
    }

    fn open_portal(&mut self, _: &str, _: &MockStatement) -> MockPortal {
        MockPortal::default()
    }

    fn simple(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<()> {
        for verb in sql.split(';').map(str::trim) {
            if let Some(count) = verb.strip_prefix("rows ") {
                let count = count.parse().unwrap_or(0).min(ROWS_MAX);
                sink.columns(&[column("number", oid::INT4), column("text", oid::TEXT)])?;
                send_rows(0, count, sink)?;
                sink.complete(&CommandTag::Select(count))?;
                continue;
            }
            if verb == "moment" {
                sink.columns(&[column("moment", oid::TIMESTAMPTZ)])?;
                sink.row(&[Datum::TimestampTz(0)])?;
                sink.complete(&CommandTag::Select(1))?;
                continue;
            }
            match self.run(verb, sink)? {
                CommandTag::Empty => sink.empty()?,
                tag => sink.complete(&tag)?,
            }
        }
        Ok(())
    }

    fn execute(
        &mut self,
        statement: &Arc<MockStatement>,
        params: &[Datum<'_>],
        portal: &mut MockPortal,
        row_limit: usize,
        sink: &mut dyn Sink,
    ) -> Result<Progress> {
        match statement.verb.as_str() {
            "echo" => {
                sink.row(params)?;
                Ok(Progress::Complete(CommandTag::Select(1)))
            }
            "SELECT" => {
                SELECTS.fetch_add(1, Ordering::Relaxed);
                sink.row(&[Datum::Text(&"0123456789".repeat(12))])?;
                Ok(Progress::Complete(CommandTag::Select(1)))
            }
            "rows" => {
                let limit = if row_limit == 0 { u64::MAX } else { row_limit as u64 };
                let end = statement.row_count.min(portal.sent.saturating_add(limit));
                send_rows(portal.sent, end, sink)?;
                let count = end - portal.sent;
                portal.sent = end;
                let all = end == statement.row_count && count < limit;
                Ok(if all { Progress::Complete(CommandTag::Select(count)) } else { Progress::Suspended })
            }
            verb => self.run(verb, sink).map(Progress::Complete),
        }
    }

    fn cursor_columns(&self, _: &str) -> Option<(&[Column], bool)> {
        None
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn fail(&mut self) {
        if self.status == b'T' {
            self.status = b'E';
        }
    }

    fn transaction_status(&self) -> u8 {
        self.status
    }

    /// Returns the limit that the start-up packet sets in milliseconds.
    fn silence_limit(&self) -> Option<(Duration, bool)> {
        let in_block = self.status != b'I';
        let name = if in_block { "idle_in_transaction_session_timeout" } else { "idle_session_timeout" };
        let (_, millis) = self.settings.iter().find(|(n, _)| n == name)?;
        Some((Duration::from_millis(millis.parse().unwrap()), in_block))
    }

    fn take_reports(&mut self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.reports)
    }

    fn take_notices(&mut self) -> Vec<(Severity, SqlError)> {
        Vec::new()
    }

    fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    fn set_ender(&self, ender: Ender) {
        if let Some((_, name)) = self.settings.iter().find(|(setting, _)| setting == "ender") {
            ENDERS.lock().unwrap().insert(name.clone(), ender);
        }
    }

    fn forms(&self) -> &varve_sql::TimeForms {
        &varve_sql::time::PLAIN
    }

    fn reading(&self) -> varve_sql::Reading<'_> {
        varve_sql::Reading::plain()
    }
}

/// The owned form of what a test binds.
pub fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}
