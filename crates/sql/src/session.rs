//! One client's session: statements, transaction state, settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use varve_engine::{Database, Datum};

use crate::error::{Result, SqlError};
use crate::oid::Oid;
use crate::prepared::{Portal, Prepared};
use crate::sink::{Progress, Severity, Sink};

/// A database as SQL sees it: the engine and what sessions share.
pub struct SqlDatabase {
    engine: Arc<Database>,
}

impl SqlDatabase {
    /// Over an open engine.
    pub fn new(engine: Arc<Database>) -> SqlDatabase {
        SqlDatabase { engine }
    }

    /// The engine below.
    pub fn engine(&self) -> &Arc<Database> {
        &self.engine
    }
}

/// What a start-up packet says.
#[derive(Debug, Clone, Default)]
pub struct SessionParams {
    /// Role name.
    pub user: String,
    /// Database name.
    pub database: String,
    /// What `pg_backend_pid()` answers; the cancel key's process id.
    pub process_id: i32,
    /// Other start-up parameters and `-c` options, as `name`, `value`; applied like SET.
    pub settings: Vec<(String, String)>,
}

/// Lets another thread cancel the running statement.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the running statement, if any, to end with 57014.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked and the session has not yet answered.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One client's session. Dropping it rolls back what is open.
pub struct Session {
    shared: Arc<SqlDatabase>,
    cancel: CancelToken,
}

impl Session {
    /// Starts a session. Fails (42704, 22023, 0A000) for a start-up setting that cannot be.
    pub fn new(shared: Arc<SqlDatabase>, params: SessionParams) -> Result<Session> {
        let _ = params;
        Ok(Session { shared, cancel: CancelToken::default() })
    }

    /// Parses and types one statement. `types[i]` is the OID declared for `$i+1`, 0 if none.
    pub fn prepare(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>> {
        let _ = (sql, types, &self.shared);
        Err(SqlError::unsupported("prepare"))
    }

    /// Keeps `prepared` under `name`, replacing nothing: 42P05 if the name (not the empty one) is taken.
    pub fn name_statement(&mut self, name: &str, prepared: Arc<Prepared>) -> Result<()> {
        let _ = (name, prepared);
        Ok(())
    }

    /// The statement of that name (protocol and SQL PREPARE share the names); 26000 if there is none.
    pub fn statement(&self, name: &str) -> Result<Arc<Prepared>> {
        Err(SqlError::new(
            crate::SqlState::INVALID_STATEMENT_NAME,
            format!("prepared statement \"{name}\" does not exist"),
        ))
    }

    /// Forgets a name; no error if there is none (the protocol's Close).
    pub fn close_statement(&mut self, name: &str) {
        let _ = name;
    }

    /// Runs the text of a simple Query: statements split at `;`, in one implicit transaction where none is open.
    /// On an error the transaction state is already the right one; the caller sends ErrorResponse and ReadyForQuery.
    pub fn simple(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<()> {
        let _ = (sql, sink);
        Err(SqlError::unsupported("simple query"))
    }

    /// Runs a bound statement (the extended protocol's Execute). `params` have the types of `param_column_type` (or are
    /// NULL). `max_rows` 0 means all. On an error the session is already in its failed state until `sync`.
    pub fn execute(
        &mut self,
        prepared: &Arc<Prepared>,
        params: &[Datum<'_>],
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn Sink,
    ) -> Result<Progress> {
        let _ = (prepared, params, portal, max_rows, sink);
        Err(SqlError::unsupported("execute"))
    }

    /// The extended protocol's Sync: ends an implicit transaction. An error here is the commit's.
    pub fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// Tells the session that the connection met an error of its own (a bad Bind, say): an open block becomes failed, an
    /// implicit transaction is rolled back at `sync`.
    pub fn fail(&mut self) {}

    /// ReadyForQuery's byte: `I` idle, `T` in a block, `E` in a failed block.
    pub fn transaction_status(&self) -> u8 {
        b'I'
    }

    /// The current value of a setting (as SHOW prints it).
    pub fn setting(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Settings to tell the client by ParameterStatus: all at first, then those changed since the last call.
    pub fn take_reports(&mut self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Warnings from calls that had no sink (`prepare`, `sync`).
    pub fn take_notices(&mut self) -> Vec<(Severity, SqlError)> {
        Vec::new()
    }

    /// A handle by which another thread cancels the running statement.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }
}
