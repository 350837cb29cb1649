//! PostgreSQL's statistics views (pg_stat_..., pg_statio_...), for programs that monitor a server.
//!
//! Invariants
//! 1. A counter that Varve lacks is NULL if PostgreSQL's column may be NULL, otherwise 0.
//!
//! This module does not know the code that counts. `statistics.rs` shows the counters under Varve's own
//! names.

use varve_engine::{DatabaseStats, POSTGRES, Value};

use super::others::databases;
use super::relations::{Relation, What, relations};
use super::{Fill, Rows, SystemContext, oid, text};

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_stat_database" => pg_stat_database,
        "pg_stat_database_conflicts" => pg_stat_database_conflicts,
        "pg_stat_bgwriter" => pg_stat_bgwriter,
        "pg_stat_archiver" => pg_stat_archiver,
        "pg_stat_wal" => pg_stat_wal,
        "pg_stat_ssl" | "pg_stat_gssapi" => sessions_without_details,
        "pg_statio_all_tables" | "pg_statio_user_tables" => tables,
        "pg_stat_xact_all_tables" | "pg_stat_xact_user_tables" => tables,
        "pg_stat_all_indexes" | "pg_stat_user_indexes" => indexes,
        "pg_statio_all_indexes" | "pg_statio_user_indexes" => indexes,
        "pg_statio_all_sequences" | "pg_statio_user_sequences" => sequences,
        _ => return None,
    })
}

fn count(value: u64) -> Value {
    Value::Int8(i64::try_from(value).unwrap_or(i64::MAX))
}

fn start(world: &SystemContext) -> Value {
    Value::TimestampTz(world.watched.start_us())
}

/// Shows the counters of databases. Pages, commits and deadlocks are counted for all databases together, and
/// shown with the first one.
fn pg_stat_database(world: &SystemContext, rows: &mut Rows<'_>) {
    let sessions = world.watched.sessions();
    for database in databases(world) {
        let own = sessions.iter().filter(|session| session.database == database.id).count();
        rows.add([
            ("datid", oid(database.id.0)),
            ("datname", text(&database.name)),
            ("numbackends", Value::Int4(i32::try_from(own).unwrap_or(i32::MAX))),
            ("stats_reset", start(world)),
        ]);
        counted_by_statements(rows);
        let stats = match database.id {
            POSTGRES => world.engine.stats(),
            _ => DatabaseStats::default(),
        };
        rows.set([
            ("xact_commit", count(stats.commits)),
            ("xact_rollback", count(stats.rollbacks)),
            ("blks_read", count(stats.pager.misses)),
            ("blks_hit", count(stats.pager.fixes.saturating_sub(stats.pager.misses))),
            ("deadlocks", count(stats.deadlocks)),
        ]);
    }
}

/// Sets the counters that Varve lacks to zero.
fn counted_by_statements(rows: &mut Rows<'_>) {
    for zero in [
        "tup_returned",
        "tup_fetched",
        "tup_inserted",
        "tup_updated",
        "tup_deleted",
        "conflicts",
        "temp_files",
        "temp_bytes",
        "sessions",
        "sessions_abandoned",
        "sessions_fatal",
        "sessions_killed",
    ] {
        rows.set([(zero, Value::Int8(0))]);
    }
    for zero in ["blk_read_time", "blk_write_time", "session_time", "active_time", "idle_in_transaction_time"]
    {
        rows.set([(zero, Value::Float8(0.0))]);
    }
}

fn pg_stat_database_conflicts(world: &SystemContext, rows: &mut Rows<'_>) {
    for database in databases(world) {
        rows.add([("datid", oid(database.id.0)), ("datname", text(&database.name))]);
        for zero in ["confl_tablespace", "confl_lock", "confl_snapshot", "confl_bufferpin", "confl_deadlock"]
        {
            rows.set([(zero, Value::Int8(0))]);
        }
    }
}

fn pg_stat_bgwriter(world: &SystemContext, rows: &mut Rows<'_>) {
    let pager = world.engine.stats().pager;
    rows.add([
        ("checkpoints_timed", count(pager.checkpoints)),
        ("checkpoints_req", Value::Int8(0)),
        ("checkpoint_write_time", Value::Float8(0.0)),
        ("checkpoint_sync_time", Value::Float8(0.0)),
        ("buffers_checkpoint", count(pager.checkpoint_writes)),
        ("buffers_clean", count(pager.evict_writes)),
        ("maxwritten_clean", Value::Int8(0)),
        ("buffers_backend", count(pager.inline_writes)),
        ("buffers_backend_fsync", Value::Int8(0)),
        ("buffers_alloc", count(pager.misses)),
        ("stats_reset", start(world)),
    ]);
}

fn pg_stat_archiver(world: &SystemContext, rows: &mut Rows<'_>) {
    rows.add([
        ("archived_count", Value::Int8(0)),
        ("failed_count", Value::Int8(0)),
        ("stats_reset", start(world)),
    ]);
}

/// Shows the writes to the log, from the counters of writes by purpose.
fn pg_stat_wal(world: &SystemContext, rows: &mut Rows<'_>) {
    let of_log = |row: &varve_engine::IoRow| row.space == "log";
    let io = world.engine.io();
    let (writes, bytes) = io
        .iter()
        .filter(|row| of_log(row))
        .fold((0, 0), |(writes, bytes), row| (writes + row.write_count, bytes + row.written_bytes));
    rows.add([
        ("wal_records", Value::Int8(0)),
        ("wal_fpi", Value::Int8(0)),
        (
            "wal_bytes",
            Value::Numeric(varve_engine::Numeric::from_i64(i64::try_from(bytes).unwrap_or(i64::MAX))),
        ),
        ("wal_buffers_full", Value::Int8(0)),
        ("wal_write", count(writes)),
        ("wal_sync", count(writes)),
        ("wal_write_time", Value::Float8(0.0)),
        ("wal_sync_time", Value::Float8(0.0)),
        ("stats_reset", start(world)),
    ]);
}

/// Lists sessions with their process ids only. Details about encryption are not shown.
fn sessions_without_details(world: &SystemContext, rows: &mut Rows<'_>) {
    for session in world.watched.sessions() {
        rows.add([("pid", Value::Int4(session.process_id))]);
    }
}

fn tables(world: &SystemContext, rows: &mut Rows<'_>) {
    for table in world.catalog.tables() {
        rows.add([
            ("relid", oid(table.id.0)),
            ("schemaname", text(&table.schema)),
            ("relname", text(&table.name)),
        ]);
    }
}

fn indexes(world: &SystemContext, rows: &mut Rows<'_>) {
    for r in relations(&world.catalog) {
        let What::Index(index) = &r.what else { continue };
        let table = index.table;
        rows.add([
            ("relid", oid(table.id.0)),
            ("indexrelid", oid(r.oid)),
            ("schemaname", text(r.schema)),
            ("relname", text(&table.name)),
            ("indexrelname", text(r.name)),
        ]);
    }
}

fn sequences(world: &SystemContext, rows: &mut Rows<'_>) {
    let is_sequence = |r: &Relation<'_>| matches!(r.what, What::Sequence(_));
    for r in relations(&world.catalog).into_iter().filter(is_sequence) {
        rows.add([("relid", oid(r.oid)), ("schemaname", text(r.schema)), ("relname", text(r.name))]);
    }
}
