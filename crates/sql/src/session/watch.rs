//! What a program that watches the server asks: the sessions, the statements, and the accesses to tables.
//!
//! Invariants
//! 1. The caller is the server itself, so no rights are checked.
//!
//! This module does not know how the answers are shown.

use varve_engine::{Isolation, ObjectId, TableAccesses};

use super::SqlDatabase;
use crate::eval::func::clock_us;
use crate::statement_stats::{StatementSums, StatementTotals};

/// A session, as pg_stat_activity shows it.
#[derive(Debug, Clone)]
pub struct SessionState {
    /// The number of the session.
    pub process_id: i32,
    /// The role that logged in.
    pub user: String,
    /// The name of the database.
    pub database: String,
    /// The setting `application_name`.
    pub application_name: String,
    /// The address of the client.
    pub client: Option<String>,
    /// PostgreSQL's word for the state.
    pub state: &'static str,
    /// The statement that runs or ran last.
    pub query: String,
    /// The time of the running statement.
    pub query_seconds: Option<f64>,
    /// The time of the open transaction.
    pub transaction_seconds: Option<f64>,
    /// The sessions that it waits for.
    pub blocked_by: Vec<u32>,
}

/// A statement, as pg_stat_statements shows it.
#[derive(Debug, Clone)]
pub struct StatementState {
    /// The number that is made of the text.
    pub query_id: i64,
    /// The text without literals.
    pub text: String,
    /// The name of the role, or its number if it was dropped.
    pub user: String,
    /// The name of the database, or its number if it was dropped.
    pub database: String,
    /// The sums of all runs.
    pub totals: StatementTotals,
}

/// A table and the accesses to it.
#[derive(Debug, Clone)]
pub struct TableState {
    /// The name of the database.
    pub database: String,
    /// The name of the schema.
    pub schema: String,
    /// The name.
    pub name: String,
    /// The accesses.
    pub accesses: TableAccesses,
    /// The scans of secondary indexes.
    pub index_scans: u64,
}

impl SqlDatabase {
    /// Returns all sessions, in the order in which they started.
    pub fn session_states(&self) -> Vec<SessionState> {
        let catalog = self.engine().begin(Isolation::ReadCommitted).catalog();
        let now_us = clock_us();
        let seconds = |since: i64| (now_us - since).max(0) as f64 / 1e6;
        let state = |session: &crate::activity::Activity| {
            let now = session.now();
            let is_running = now.state == crate::activity::State::Active;
            let database = catalog.database_by_id(session.database);
            let blocked_by = if is_running {
                self.engine().blockers(session.process_id.cast_unsigned())
            } else {
                Vec::new()
            };
            SessionState {
                process_id: session.process_id,
                user: session.user.clone(),
                database: database.map_or_else(String::new, |database| database.name.clone()),
                application_name: now.application_name,
                client: session.peer.map(|peer| peer.to_string()),
                state: now.state.word(),
                query: now.query,
                query_seconds: now.query_start_us.filter(|_| is_running).map(seconds),
                transaction_seconds: now.transaction_start_us.map(seconds),
                blocked_by,
            }
        };
        self.watched().sessions().iter().map(|session| state(session)).collect()
    }

    /// Returns the sums of all statements since the start, or `None` if statements are not counted.
    pub fn statement_sums(&self) -> Option<StatementSums> {
        let statements = self.statements();
        statements.is_on().then(|| statements.sums())
    }

    /// Returns the statistics of statements, or `None` if they are off.
    pub fn statement_states(&self) -> Option<Vec<StatementState>> {
        let statements = self.statements();
        if !statements.is_on() {
            return None;
        }
        let catalog = self.engine().begin(Isolation::ReadCommitted).catalog();
        let user =
            |id: ObjectId| catalog.role_by_id(id).map_or_else(|| id.0.to_string(), |role| role.name.clone());
        let database = |id: ObjectId| {
            catalog.database_by_id(id).map_or_else(|| id.0.to_string(), |database| database.name.clone())
        };
        let entries = statements.entries();
        let state = |entry: &std::sync::Arc<crate::statement_stats::StatementEntry>| StatementState {
            query_id: entry.key.query_id,
            text: entry.text.to_string(),
            user: user(entry.key.user),
            database: database(entry.key.database),
            totals: entry.totals(),
        };
        Some(entries.iter().map(state).collect())
    }

    /// Returns the tables of all databases, with the accesses to them.
    pub fn table_states(&self) -> Vec<TableState> {
        let catalog = self.engine().begin(Isolation::ReadCommitted).catalog();
        let mut states = Vec::new();
        for database in catalog.databases() {
            let catalog = self.engine().begin_in(database.id, Isolation::ReadCommitted).catalog();
            let state = |table: &varve_engine::TableDef| TableState {
                database: database.name.clone(),
                schema: table.schema.clone(),
                name: table.name.clone(),
                accesses: self.engine().table_accesses(table.id),
                index_scans: table.indexes.iter().map(|i| self.engine().index_accesses(i.id).key_scans).sum(),
            };
            states.extend(catalog.tables().map(|table| state(table)));
        }
        states
    }
}
