//! PostgreSQL's statistics views (pg_stat_..., pg_statio_...), for programs that monitor a server.
//!
//! Invariants
//! 1. A counter that Varve lacks is NULL if PostgreSQL's column may be NULL, otherwise 0.
//! 2. Pages of tables and indexes are counted only while statements are counted (`statements_max`).
//!
//! This module does not know the code that counts. `statistics.rs` shows the counters under Varve's own
//! names.

use varve_engine::{LogStats, Numeric, POSTGRES, PagerStats, TableAccesses, Value};

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
        "pg_statio_all_tables" | "pg_statio_user_tables" => table_pages,
        "pg_stat_xact_all_tables" | "pg_stat_xact_user_tables" => tables,
        "pg_stat_all_indexes" | "pg_stat_user_indexes" => index_scans,
        "pg_statio_all_indexes" | "pg_statio_user_indexes" => index_pages,
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
        ]);
        counted_by_statements(rows);
        let (base, reset_us) = world.watched.database_base();
        let sessions = count(world.watched.entered(database.id));
        rows.set([("stats_reset", Value::TimestampTz(reset_us)), ("sessions", sessions)]);
        if database.id != POSTGRES {
            continue;
        }
        let stats = world.engine.stats();
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let (misses, fixes) =
            (since(stats.pager.misses, base.pager.misses), since(stats.pager.fixes, base.pager.fixes));
        rows.set([
            ("xact_commit", count(since(stats.commits, base.commits))),
            ("xact_rollback", count(since(stats.rollbacks, base.rollbacks))),
            ("blks_read", count(misses)),
            ("blks_hit", count(fixes.saturating_sub(misses))),
            ("deadlocks", count(since(stats.deadlocks, base.deadlocks))),
        ]);
        of_tables(world, rows);
    }
}

/// Sets the sums over the tables that the reader's database has.
fn of_tables(world: &SystemContext, rows: &mut Rows<'_>) {
    let mut sum = TableAccesses::default();
    for table in world.catalog.tables() {
        let own = world.engine.table_accesses(table.id);
        let (scans, rows) = world.index_accesses(&table.indexes);
        sum.rows_read += own.rows_read + own.key_rows + rows;
        sum.key_rows += own.key_rows + rows;
        sum.key_scans += own.key_scans + scans;
        sum.inserted += own.inserted;
        sum.updated += own.updated;
        sum.deleted += own.deleted;
    }
    rows.set([
        ("tup_returned", count(sum.rows_read)),
        ("tup_fetched", count(sum.key_rows)),
        ("tup_inserted", count(sum.inserted)),
        ("tup_updated", count(sum.updated)),
        ("tup_deleted", count(sum.deleted)),
    ]);
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
    let (pager, (base, reset_us)) = (world.engine.stats().pager, world.watched.writer_base());
    let since = |of: fn(&PagerStats) -> u64| of(&pager).saturating_sub(of(&base));
    let requested = since(|stats| stats.requested_checkpoints);
    rows.add([
        ("checkpoints_timed", count(since(|stats| stats.checkpoints).saturating_sub(requested))),
        ("checkpoints_req", count(requested)),
        ("checkpoint_write_time", Value::Float8(0.0)),
        ("checkpoint_sync_time", Value::Float8(since(|stats| stats.checkpoint_micros) as f64 / 1000.0)),
        ("buffers_checkpoint", count(since(|stats| stats.checkpoint_writes))),
        ("buffers_clean", count(since(|stats| stats.evict_writes))),
        ("maxwritten_clean", Value::Int8(0)),
        ("buffers_backend", count(since(|stats| stats.inline_writes))),
        ("buffers_backend_fsync", Value::Int8(0)),
        ("buffers_alloc", count(since(|stats| stats.misses + stats.prefetched))),
        ("stats_reset", Value::TimestampTz(reset_us)),
    ]);
}

fn pg_stat_archiver(world: &SystemContext, rows: &mut Rows<'_>) {
    rows.add([
        ("archived_count", Value::Int8(0)),
        ("failed_count", Value::Int8(0)),
        ("stats_reset", start(world)),
    ]);
}

/// Shows the counters of the redo log. A record of PostgreSQL is a group of Varve: the changes of one
/// mini-transaction.
fn pg_stat_wal(world: &SystemContext, rows: &mut Rows<'_>) {
    let (log, (base, reset_us)) = (world.engine.pager().log().stats(), world.watched.log_base());
    let since = |of: fn(&LogStats) -> u64| of(&log).saturating_sub(of(&base));
    let bytes = i64::try_from(since(|log| log.group_bytes)).unwrap_or(i64::MAX);
    let flushes = since(|log| log.flushes_count);
    rows.add([
        ("wal_records", count(since(|log| log.groups_count))),
        ("wal_fpi", Value::Int8(0)),
        ("wal_bytes", Value::Numeric(Numeric::from_i64(bytes))),
        ("wal_buffers_full", Value::Int8(0)),
        ("wal_write", count(flushes)),
        ("wal_sync", count(flushes)),
        ("wal_write_time", Value::Float8(0.0)),
        ("wal_sync_time", Value::Float8(0.0)),
        ("stats_reset", Value::TimestampTz(reset_us)),
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

/// Shows the pages of tables. The pages of a table include those of its primary key. An access by a secondary
/// index counts all its pages for the index.
fn table_pages(world: &SystemContext, rows: &mut Rows<'_>) {
    for table in world.catalog.tables() {
        let own = world.engine.table_accesses(table.id);
        let indexes = table.indexes.iter().map(|index| world.engine.index_accesses(index.id));
        let (read, hit) =
            indexes.fold((0, 0), |(read, hit), index| (read + index.pages_read, hit + index.pages_hit));
        rows.add([
            ("relid", oid(table.id.0)),
            ("schemaname", text(&table.schema)),
            ("relname", text(&table.name)),
            ("heap_blks_read", count(own.pages_read)),
            ("heap_blks_hit", count(own.pages_hit)),
        ]);
        if !table.indexes.is_empty() {
            rows.set([("idx_blks_read", count(read)), ("idx_blks_hit", count(hit))]);
        }
    }
}

/// Calls `show` with the accesses to each index, after its names were added as a row. A primary key has the
/// accesses by the key of its table.
fn each_index(world: &SystemContext, rows: &mut Rows<'_>, show: fn(&TableAccesses, bool, &mut Rows<'_>)) {
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
        let secondary = table.indexes.iter().find(|own| own.id.0 == r.oid);
        let accesses = match secondary {
            Some(own) => world.engine.index_accesses(own.id),
            None => world.engine.table_accesses(table.id),
        };
        show(&accesses, secondary.is_none(), rows);
    }
}

fn index_scans(world: &SystemContext, rows: &mut Rows<'_>) {
    each_index(world, rows, |accesses, _, rows| {
        rows.set([
            ("idx_scan", count(accesses.key_scans)),
            ("idx_tup_read", count(accesses.key_rows)),
            ("idx_tup_fetch", count(accesses.key_rows)),
        ]);
    });
}

/// The pages of a primary key are those of its table, so they are not shown a second time.
fn index_pages(world: &SystemContext, rows: &mut Rows<'_>) {
    each_index(world, rows, |accesses, is_primary, rows| {
        let (read, hit) = if is_primary { (0, 0) } else { (accesses.pages_read, accesses.pages_hit) };
        rows.set([("idx_blks_read", count(read)), ("idx_blks_hit", count(hit))]);
    });
}

fn sequences(world: &SystemContext, rows: &mut Rows<'_>) {
    let is_sequence = |r: &Relation<'_>| matches!(r.what, What::Sequence(_));
    for r in relations(&world.catalog).into_iter().filter(is_sequence) {
        rows.add([("relid", oid(r.oid)), ("schemaname", text(r.schema)), ("relname", text(r.name))]);
    }
}
