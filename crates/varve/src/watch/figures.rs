//! The figures of one moment. They come from counters that exist for SQL, too.
//!
//! Invariants
//! 1. Reading the figures takes no lock that a statement holds while it waits.
//!
//! This module does not know in which form figures are sent.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use varve_device::{LatencySummary, Timed};
use varve_engine::{Archiver, Database, DeviceRow};
use varve_sql::{
    SessionState, SqlDatabase, StatementState, StatementSums, TableState, log, without_literals,
};

use super::levels::{LevelFigures, levels};

/// The most statements and tables that the page gets.
const ROWS_MAX: usize = 20;

/// All figures.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The version of the program.
    pub version: &'static str,
    /// The time since the endpoint was opened, at the end of the start.
    pub uptime_seconds: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The levels, topmost first.
    pub levels: Vec<LevelFigures>,
    /// The devices.
    pub devices: Vec<DeviceFigures>,
    /// The traffic of each kind of file, by purpose.
    pub spaces: Vec<SpaceFigures>,
    /// The redo log and checkpoints.
    pub log: LogFigures,
    /// The log archive, if there is one.
    pub archive: Option<ArchiveFigures>,
    /// Transactions and locks.
    pub transactions: TransactionFigures,
    /// The sessions.
    pub sessions: Vec<SessionFigures>,
    /// The sums of all statements, if they are counted.
    pub statement_totals: Option<StatementTotals>,
    /// The statements that took the most time, if statements are counted and lists are wanted.
    pub statements: Option<Vec<StatementFigures>>,
    /// The tables that were used most, if lists are wanted.
    pub tables: Vec<TableFigures>,
    /// The messages that could not be written.
    pub lost_messages: u64,
}

/// One device.
#[derive(Debug, Serialize)]
pub struct DeviceFigures {
    /// Its directory.
    pub device: String,
    /// Reads and their bytes.
    pub reads: [u64; 2],
    /// Writes and their bytes.
    pub writes: [u64; 2],
    /// Flushes.
    pub flushes: u64,
    /// The bytes that were written, by purpose.
    pub written_by_purpose: Vec<(&'static str, u64)>,
    /// The latencies of each kind of operation that was timed.
    pub latencies: Vec<LatencyFigures>,
    /// The average number of operations at the same time.
    pub queue: f64,
    /// Free bytes.
    pub free_bytes: Option<u64>,
    /// The bytes that the drive may write in its life.
    pub rated_bytes: Option<u64>,
    /// The years in which it reaches them at the average rate.
    pub rated_years: Option<f64>,
}

/// The latencies of one kind of operation, in seconds.
#[derive(Debug, Serialize)]
pub struct LatencyFigures {
    /// The kind.
    pub operation: &'static str,
    /// The number of operations of the quantiles.
    pub count: u64,
    /// The number of all operations since the start.
    pub total_count: u64,
    /// The sum of all their latencies.
    pub sum: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// The traffic of one kind of file for one purpose.
#[derive(Debug, Serialize)]
pub struct SpaceFigures {
    /// The kind of file.
    pub space: String,
    /// The purpose.
    pub purpose: &'static str,
    /// Reads and their bytes.
    pub reads: [u64; 2],
    /// Writes and their bytes.
    pub writes: [u64; 2],
}

/// The redo log and checkpoints.
#[derive(Debug, Serialize)]
pub struct LogFigures {
    /// The bytes of changes.
    pub appended_bytes: u64,
    /// The mini-transactions.
    pub groups: u64,
    /// The durable writes.
    pub flushes: u64,
    /// Their bytes.
    pub flushed_bytes: u64,
    /// The threads that waited for the flush of another one.
    pub followers: u64,
    /// The bytes that the next start would read.
    pub used_bytes: u64,
    /// The checkpoints because of time.
    pub checkpoints_timed: u64,
    /// The other checkpoints.
    pub checkpoints_requested: u64,
    /// The time of all checkpoints.
    pub checkpoint_seconds: f64,
    /// The time that a start would take after a crash now, if there is a `recovery_target`.
    pub restart_seconds: Option<f64>,
}

/// The log archive.
#[derive(Debug, Serialize)]
pub struct ArchiveFigures {
    /// The bytes of the redo log that are not archived.
    pub lag_bytes: u64,
    /// The time for which commits have not been archived.
    pub lag_seconds: u64,
    /// Whether the last attempt failed.
    pub is_failing: bool,
    /// The pieces that were stored.
    pub pieces: u64,
    /// The attempts that failed.
    pub failures: u64,
    /// Parts of the log that were cut before they were archived.
    pub gaps: u64,
}

/// Transactions and locks.
#[derive(Debug, Serialize)]
pub struct TransactionFigures {
    /// Transactions with changes that were committed.
    pub commits: u64,
    /// Transactions with changes that were rolled back.
    pub rollbacks: u64,
    /// The waits for locks.
    pub lock_waits: u64,
    /// The deadlocks.
    pub deadlocks: u64,
    /// The locks that are held.
    pub locks_held: u64,
    /// The locks for which transactions wait at this moment.
    pub locks_awaited: u64,
    /// Undo records that were purged.
    pub purged_records: u64,
    /// Committed transactions that wait for purge.
    pub purge_backlog: u64,
}

/// One session.
#[derive(Debug, Serialize)]
pub struct SessionFigures {
    pub pid: i32,
    pub user: String,
    pub database: String,
    pub application: String,
    pub client: Option<String>,
    pub state: &'static str,
    pub query: String,
    pub query_seconds: Option<f64>,
    pub transaction_seconds: Option<f64>,
    pub blocked_by: Vec<u32>,
}

/// The sums of all statements since the start.
#[derive(Debug, Serialize)]
pub struct StatementTotals {
    /// The number of runs.
    pub calls: u64,
    /// The sum of times.
    pub seconds: f64,
    /// The rows that were returned or changed.
    pub rows: u64,
}

/// One statement. Times are in milliseconds.
#[derive(Debug, Serialize)]
pub struct StatementFigures {
    pub query: String,
    pub user: String,
    pub database: String,
    pub calls: u64,
    pub total_ms: f64,
    pub mean_ms: f64,
    pub max_ms: f64,
    pub rows: u64,
    pub pages: Vec<(&'static str, u64)>,
}

/// One table.
#[derive(Debug, Serialize)]
pub struct TableFigures {
    pub table: String,
    pub scans: u64,
    pub key_scans: u64,
    pub index_scans: u64,
    pub rows_read: u64,
    pub inserted: u64,
    pub updated: u64,
    pub deleted: u64,
    pub pages_hit: u64,
    pub pages_read: u64,
}

/// What the figures are read from.
pub struct Watched {
    /// The engine.
    pub engine: Arc<Database>,
    /// The SQL database.
    pub sql: Arc<SqlDatabase>,
    /// When the endpoint was opened.
    pub opened: Instant,
}

impl Watched {
    /// Returns the figures of this moment, with the lists of statements and tables.
    pub fn figures(&self) -> Figures {
        let statements = self.sql.statement_states().map(slowest);
        Figures { statements, tables: most_used(self.sql.table_states()), ..self.counters() }
    }

    /// Returns the figures of this moment, without lists of statements and tables.
    pub fn counters(&self) -> Figures {
        let stats = self.engine.stats();
        let locks = self.engine.locks();
        let awaited = locks.iter().filter(|lock| !lock.is_granted).count() as u64;
        Figures {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.opened.elapsed().as_secs_f64(),
            page_bytes: self.engine.pager().config().page_size as u64,
            levels: levels(&stats.pager),
            devices: self.engine.devices().into_iter().map(device).collect(),
            spaces: self.engine.io().into_iter().map(space).collect(),
            log: self.log(),
            archive: self.engine.archiver().map(archive),
            transactions: TransactionFigures {
                commits: stats.commits,
                rollbacks: stats.rollbacks,
                lock_waits: stats.lock_waits,
                deadlocks: stats.deadlocks,
                locks_held: locks.len() as u64 - awaited,
                locks_awaited: awaited,
                purged_records: stats.purged_records,
                purge_backlog: stats.purge_backlog,
            },
            sessions: self.sql.session_states().into_iter().map(session).collect(),
            statement_totals: self.sql.statement_sums().map(totals),
            statements: None,
            tables: Vec::new(),
            lost_messages: log::lost_count(),
        }
    }

    fn log(&self) -> LogFigures {
        let (pager, log) = (self.engine.pager().stats(), self.engine.pager().log().stats());
        LogFigures {
            appended_bytes: log.group_bytes,
            groups: log.groups_count,
            flushes: log.flushes_count,
            flushed_bytes: log.flushed_bytes,
            followers: log.followers_count,
            used_bytes: log.used_bytes,
            checkpoints_timed: pager.checkpoints.saturating_sub(pager.requested_checkpoints),
            checkpoints_requested: pager.requested_checkpoints,
            checkpoint_seconds: pager.checkpoint_micros as f64 / 1e6,
            restart_seconds: self.engine.pager().restart_estimate().map(|restart| restart.time.as_secs_f64()),
        }
    }
}

fn archive(archiver: &Archiver) -> ArchiveFigures {
    let status = archiver.status();
    ArchiveFigures {
        lag_bytes: status.lag_bytes,
        lag_seconds: status.lag_seconds,
        is_failing: status.error.is_some(),
        pieces: status.pieces_count,
        failures: status.failures_count,
        gaps: status.gaps_count,
    }
}

fn device(row: DeviceRow) -> DeviceFigures {
    let timed = Timed::ALL.into_iter().zip(row.latencies).filter(|(_, summary)| summary.total_count > 0);
    DeviceFigures {
        device: row.location,
        reads: [row.read.operations, row.read.bytes],
        writes: [row.written.operations, row.written.bytes],
        flushes: row.flush_count,
        written_by_purpose: row.written_by_purpose,
        latencies: timed.map(|(kind, summary)| latency(kind, summary)).collect(),
        queue: row.queue,
        free_bytes: row.free_bytes,
        rated_bytes: row.rated_bytes,
        rated_years: row.rated_years,
    }
}

fn latency(kind: Timed, summary: LatencySummary) -> LatencyFigures {
    let seconds = |ns: u64| ns as f64 / 1e9;
    LatencyFigures {
        operation: kind.name(),
        count: summary.count,
        total_count: summary.total_count,
        sum: seconds(summary.total_ns),
        p50: seconds(summary.latency_ns_p50),
        p99: seconds(summary.latency_ns_p99),
        max: seconds(summary.latency_ns_max),
    }
}

fn space(row: varve_engine::IoRow) -> SpaceFigures {
    SpaceFigures {
        space: row.space,
        purpose: row.purpose,
        reads: [row.read_count, row.read_bytes],
        writes: [row.write_count, row.written_bytes],
    }
}

fn session(state: SessionState) -> SessionFigures {
    SessionFigures {
        pid: state.process_id,
        user: state.user,
        database: state.database,
        application: state.application_name,
        client: state.client,
        state: state.state,
        // A literal may be a password.
        query: without_literals(&state.query),
        query_seconds: state.query_seconds,
        transaction_seconds: state.transaction_seconds,
        blocked_by: state.blocked_by,
    }
}

fn totals(sums: StatementSums) -> StatementTotals {
    StatementTotals { calls: sums.calls, seconds: sums.total_ms / 1e3, rows: sums.rows }
}

/// Returns the statements that took the most time together.
fn slowest(mut statements: Vec<StatementState>) -> Vec<StatementFigures> {
    statements.sort_by(|a, b| b.totals.total_ms.total_cmp(&a.totals.total_ms));
    let figures = |state: StatementState| StatementFigures {
        query: state.text,
        user: state.user,
        database: state.database,
        calls: state.totals.calls,
        total_ms: state.totals.total_ms,
        mean_ms: state.totals.mean_ms,
        max_ms: state.totals.max_ms,
        rows: state.totals.rows,
        pages: state.totals.pages.by_level().filter(|(_, pages)| *pages > 0).collect(),
    };
    statements.into_iter().take(ROWS_MAX).map(figures).collect()
}

/// Returns the tables with the most accesses.
fn most_used(tables: Vec<TableState>) -> Vec<TableFigures> {
    let figures = |state: TableState| TableFigures {
        table: format!("{}.{}.{}", state.database, state.schema, state.name),
        scans: state.accesses.scans,
        key_scans: state.accesses.key_scans,
        index_scans: state.index_scans,
        rows_read: state.accesses.rows_read + state.accesses.key_rows,
        inserted: state.accesses.inserted,
        updated: state.accesses.updated,
        deleted: state.accesses.deleted,
        pages_hit: state.accesses.pages_hit,
        pages_read: state.accesses.pages_read,
    };
    let mut tables: Vec<TableFigures> = tables.into_iter().map(figures).collect();
    let uses = |table: &TableFigures| {
        table.rows_read + table.inserted + table.updated + table.deleted + table.scans + table.key_scans
    };
    tables.retain(|table| uses(table) > 0);
    tables.sort_by_key(|table| std::cmp::Reverse(uses(table)));
    tables.truncate(ROWS_MAX);
    tables
}
