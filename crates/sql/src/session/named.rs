//! Prepared statements by name, those of PREPARE and those of the protocol.
//!
//! Invariants
//! 1. SQL and the protocol share the names. The empty name belongs to the protocol and is not listed.
//!
//! This module does not know how a statement is prepared or run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use super::Session;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::func::clock_us;
use crate::prepared::Prepared;
use crate::system::{HeldObjects, ShownStatement, ShownStatements};

/// The named statements of a session. They are in an `Arc`, so a statement that reads them
/// (`pg_prepared_statements`) keeps their state from its start.
pub(super) type Statements = Arc<NamedStatements>;

/// The statements by their names.
#[derive(Clone, Default)]
pub(super) struct NamedStatements(FxHashMap<String, Arc<NamedStatement>>);

impl ShownStatements for NamedStatements {
    fn each(&self, show: &mut dyn FnMut(ShownStatement<'_>)) {
        for (name, named) in self.0.iter().filter(|(name, _)| !name.is_empty()) {
            show(ShownStatement {
                name,
                statement: named.message.as_deref().unwrap_or(named.prepared.sql()),
                at_us: named.at_us,
                parameter_types: named.prepared.param_types(),
                from_sql: named.message.is_some(),
                uses: named.uses(),
            });
        }
    }
}

/// A statement with a name.
#[derive(Debug)]
pub(super) struct NamedStatement {
    prepared: Arc<Prepared>,
    /// The client's message with PREPARE. `None` if a Parse message has prepared the statement.
    message: Option<Box<str>>,
    /// The time of its preparation, in microseconds since 2000-01-01 UTC.
    at_us: i64,
    /// The number of times that the statement was bound.
    uses: AtomicU64,
}

impl NamedStatement {
    /// Returns the number of times that the statement was bound.
    fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }
}

impl Session {
    /// Stores `prepared` under `name`. Fails with 42P05 if the name is taken, except for the empty name.
    pub fn name_statement(&mut self, name: &str, prepared: Arc<Prepared>) -> Result<()> {
        self.keep_statement(name, prepared, None)
    }

    /// Does the same as `name_statement`. `message` is the client's message with PREPARE.
    pub(super) fn keep_statement(
        &mut self,
        name: &str,
        prepared: Arc<Prepared>,
        message: Option<Box<str>>,
    ) -> Result<()> {
        if !name.is_empty() && self.statements.0.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_PREPARED, message));
        }
        // The unnamed statement is not listed, so its time is not needed.
        let at_us = if name.is_empty() { 0 } else { clock_us() };
        let named = NamedStatement { prepared, message, at_us, uses: AtomicU64::new(0) };
        Arc::make_mut(&mut self.statements).0.insert(name.to_owned(), Arc::new(named));
        Ok(())
    }

    fn named(&self, name: &str) -> Result<&NamedStatement> {
        self.statements.0.get(name).map(|named| &**named).ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
        })
    }

    /// Finds the statement of this name (SQL and the protocol share the names). Fails with 26000 if there is
    /// none.
    pub fn statement(&self, name: &str) -> Result<Arc<Prepared>> {
        Ok(Arc::clone(&self.named(name)?.prepared))
    }

    /// Does the same as `statement` for Bind and EXECUTE. Counts the use for `pg_prepared_statements`.
    pub fn statement_to_run(&self, name: &str) -> Result<Arc<Prepared>> {
        let named = self.named(name)?;
        named.uses.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(&named.prepared))
    }

    /// Removes a statement (the protocol's Close). It is no error if there is none.
    pub fn close_statement(&mut self, name: &str) {
        if self.statements.0.contains_key(name) {
            Arc::make_mut(&mut self.statements).0.remove(name);
        }
    }

    /// Returns the statements, cursors and portals that the session has now.
    pub(super) fn held(&self) -> HeldObjects {
        let cursors = self.shown_cursors().chain(self.portals.shown()).collect();
        HeldObjects { statements: Arc::clone(&self.statements) as Arc<dyn ShownStatements>, cursors }
    }
}
