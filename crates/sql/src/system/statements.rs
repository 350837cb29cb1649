//! The statistics of statements: pg_stat_statements with the columns of its version 1.10 (PostgreSQL 15), and
//! the pages of statements by level.
//!
//! Invariants
//! 1. Only members of `pg_read_all_stats`, and members of the role that ran a statement, see its text.
//! 2. Times of planning are zero, because plans are cached.
//!
//! This module does not know the code that measures.

use varve_engine::{ObjectId, PageCounts, Value, predefined};

use super::{Fill, Rows, SystemContext, oid, text};
use crate::rights::Holder;

/// The bytes of a block in PostgreSQL, in which it counts temporary files.
const BLOCK_BYTES: u64 = 8192;

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_stat_statements" => pg_stat_statements,
        "pg_stat_statements_info" => pg_stat_statements_info,
        "varve_statement_pages" => statement_pages,
        _ => return None,
    })
}

fn count(value: u64) -> Value {
    Value::Int8(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Returns whether the reader may see the statements of a role.
fn may_see(world: &SystemContext, user: ObjectId) -> bool {
    let holder = Holder::of(&world.catalog, world.who);
    holder.is(predefined::READ_ALL_STATS) || holder.is(user)
}

fn pg_stat_statements(world: &SystemContext, rows: &mut Rows<'_>) {
    for entry in world.statements.entries() {
        let (key, totals) = (entry.key, entry.totals());
        let PageCounts { hits, .. } = totals.pages;
        rows.add([
            ("userid", oid(key.user.0)),
            ("dbid", oid(key.database.0)),
            ("toplevel", Value::Bool(true)),
            ("calls", count(totals.calls)),
            ("total_exec_time", Value::Float8(totals.total_ms)),
            ("min_exec_time", Value::Float8(totals.min_ms)),
            ("max_exec_time", Value::Float8(totals.max_ms)),
            ("mean_exec_time", Value::Float8(totals.mean_ms)),
            ("stddev_exec_time", Value::Float8(totals.deviation_ms())),
            ("rows", count(totals.rows)),
            ("shared_blks_hit", count(hits)),
            ("shared_blks_read", count(totals.pages.read_count())),
            ("temp_blks_written", count(totals.temporary_bytes.div_ceil(BLOCK_BYTES))),
        ]);
        match may_see(world, key.user) {
            true => rows.set([("queryid", Value::Int8(key.query_id)), ("query", text(&*entry.text))]),
            false => rows.set([("query", text("<insufficient privilege>"))]),
        }
        zeros(rows);
    }
}

/// Sets the counters that Varve lacks to zero.
fn zeros(rows: &mut Rows<'_>) {
    for name in [
        "plans",
        "shared_blks_dirtied",
        "shared_blks_written",
        "local_blks_hit",
        "local_blks_read",
        "local_blks_dirtied",
        "local_blks_written",
        "temp_blks_read",
        "wal_records",
        "wal_fpi",
        "jit_functions",
        "jit_inlining_count",
        "jit_optimization_count",
        "jit_emission_count",
    ] {
        rows.set([(name, Value::Int8(0))]);
    }
    for name in [
        "total_plan_time",
        "min_plan_time",
        "max_plan_time",
        "mean_plan_time",
        "stddev_plan_time",
        "blk_read_time",
        "blk_write_time",
        "temp_blk_read_time",
        "temp_blk_write_time",
        "jit_generation_time",
        "jit_inlining_time",
        "jit_optimization_time",
        "jit_emission_time",
    ] {
        rows.set([(name, Value::Float8(0.0))]);
    }
    rows.set([("wal_bytes", Value::Numeric(varve_engine::Numeric::from_i64(0)))]);
}

fn pg_stat_statements_info(world: &SystemContext, rows: &mut Rows<'_>) {
    let info = world.statements.info();
    let reset = info.reset_us.unwrap_or(world.watched.start_us());
    rows.add([("dealloc", count(info.removals)), ("stats_reset", Value::TimestampTz(reset))]);
}

/// Shows from which level of the memory hierarchy the pages of statements came.
fn statement_pages(world: &SystemContext, rows: &mut Rows<'_>) {
    for entry in world.statements.entries().iter().filter(|entry| may_see(world, entry.key.user)) {
        let totals = entry.totals();
        for (level, pages) in totals.pages.by_level().filter(|(_, pages)| *pages > 0) {
            rows.add([
                ("userid", oid(entry.key.user.0)),
                ("dbid", oid(entry.key.database.0)),
                ("queryid", Value::Int8(entry.key.query_id)),
                ("level", text(level)),
                ("pages", count(pages)),
            ]);
        }
    }
}

/// Removes the entries of a role, of a database and of a statement. 0 means any.
pub fn reset(world: &SystemContext, user: u32, database: u32, query_id: i64) {
    let is_all = (user, database, query_id) == (0, 0, 0);
    let is_meant = |key: &crate::statement_stats::StatementKey| {
        (user == 0 || key.user == ObjectId(user))
            && (database == 0 || key.database == ObjectId(database))
            && (query_id == 0 || key.query_id == query_id)
    };
    world.statements.reset(is_meant, is_all.then(crate::eval::func::clock_us));
}
