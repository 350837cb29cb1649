//! Varve's own system tables: counters of the database, and the places where durable data is stored. SHOW
//! shows them, too.
//!
//! Invariants
//! 1. Counters start at zero when the database is opened. Reading them never waits.
//!
//! This module does not know the code that counts.

use std::time::Duration;

use varve_engine::{Archiver, DatabaseStats, PagerStats, RestartEstimate, Value};

use super::{Fill, Rows, SystemContext, SystemTable, oid, table, text};
use crate::time::UNIX_SHIFT_US;

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "varve_archive" => archive,
        "varve_compression" => compression,
        "varve_devices" => devices,
        "varve_durability" => durability,
        "varve_io" => io,
        "varve_io_trace" => io_trace,
        "varve_levels" => levels,
        "varve_nvm" => nvm,
        "varve_stats" => stats,
        _ => return None,
    })
}

/// Returns the table that SHOW with this name shows.
pub fn shown_by(name: &str) -> Option<&'static SystemTable> {
    let name = match name {
        "durability" => "varve_durability",
        "varve.archive" => "varve_archive",
        "varve.compression" => "varve_compression",
        "varve.devices" => "varve_devices",
        "varve.io" => "varve_io",
        "varve.io_trace" => "varve_io_trace",
        "varve.levels" => "varve_levels",
        "varve.nvm" => "varve_nvm",
        "varve.stats" => "varve_stats",
        _ => return None,
    };
    table("pg_catalog", name)
}

fn count(value: u64) -> Value {
    Value::Int8(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Shows the state of the log archive. Without an archive there is no row.
fn archive(world: &SystemContext, rows: &mut Rows<'_>) {
    let Some(status) = world.engine.archiver().map(Archiver::status) else { return };
    let moment = |us: u64| Value::TimestampTz(i64::try_from(us).unwrap_or(i64::MAX) - UNIX_SHIFT_US);
    rows.add([
        ("place", text(&status.location)),
        ("timeline", status.timeline.map_or(Value::Null, |name| text(name.to_string()))),
        ("archived_lsn", text(status.archived.to_string())),
        ("archived_until", status.archived_us.map_or(Value::Null, moment)),
        ("lag_bytes", count(status.lag_bytes)),
        ("lag_seconds", count(status.lag_seconds)),
        ("pieces", count(status.pieces_count)),
        ("failures", count(status.failures_count)),
        ("gaps", count(status.gaps_count)),
        ("last_error", status.error.map_or(Value::Null, text)),
    ]);
}

/// Lists tables with their indexes. Shows their storage options, the space of their pages uncompressed and in
/// the data files, and the bytes written for them.
fn compression(world: &SystemContext, rows: &mut Rows<'_>) {
    let engine = &world.engine;
    let (Ok(sizes), Ok(savings)) = (engine.sizes(), engine.savings()) else { return };
    let mut tables: Vec<_> = world.catalog.tables().collect();
    tables.sort_by_key(|table| table.id);
    for table in tables {
        let (how, written) = (savings.compression(table), savings.written(table));
        let saved = written.plain_bytes.saturating_sub(written.stored_bytes) * 100;
        let saved = saved.checked_div(written.plain_bytes);
        rows.add([
            ("relid", oid(table.id.0)),
            ("schemaname", text(&table.schema)),
            ("relname", text(&table.name)),
            ("algorithm", text(how.algorithm.name())),
            ("level", Value::Int4(i32::from(how.level))),
            ("plain_bytes", count(sizes.whole_table_bytes(table))),
            ("home_bytes", savings.home_bytes(table).map_or(Value::Null, count)),
            ("pages_written", count(written.pages)),
            ("written_plain_bytes", count(written.plain_bytes)),
            ("written_bytes", count(written.stored_bytes)),
            ("saved_percent", saved.map_or(Value::Null, |percent| Value::Int4(percent as i32))),
        ]);
    }
}

fn durability(world: &SystemContext, rows: &mut Rows<'_>) {
    for row in world.engine.pager().durability() {
        rows.add([
            ("part", text(row.part)),
            ("place", text(row.place)),
            ("medium", text(row.medium)),
            ("survives", text(row.survives)),
        ]);
    }
}

fn io(world: &SystemContext, rows: &mut Rows<'_>) {
    for row in world.engine.io() {
        rows.add([
            ("space", text(row.space)),
            ("purpose", text(row.purpose)),
            ("reads", count(row.read_count)),
            ("read_bytes", count(row.read_bytes)),
            ("writes", count(row.write_count)),
            ("written_bytes", count(row.written_bytes)),
        ]);
    }
}

/// Lists the devices. Latencies are NULL if no operation of their kind was timed.
fn devices(world: &SystemContext, rows: &mut Rows<'_>) {
    const LATENCIES: [[&str; 2]; 4] = [
        ["read_p50_us", "read_p99_us"],
        ["write_p50_us", "write_p99_us"],
        ["durable_write_p50_us", "durable_write_p99_us"],
        ["flush_p50_us", "flush_p99_us"],
    ];
    for device in world.engine.devices() {
        rows.add([
            ("device", text(&device.location)),
            ("reads", count(device.read.operations)),
            ("read_bytes", count(device.read.bytes)),
            ("writes", count(device.written.operations)),
            ("written_bytes", count(device.written.bytes)),
            ("flushes", count(device.flush_count)),
            ("queue", Value::Float8(device.queue)),
            ("free_bytes", device.free_bytes.map_or(Value::Null, count)),
            ("rated_write_bytes", device.rated_bytes.map_or(Value::Null, count)),
            ("rated_years", device.rated_years.map_or(Value::Null, Value::Float8)),
        ]);
        for (names, kind) in LATENCIES.into_iter().zip(device.latencies).filter(|(_, kind)| kind.count > 0) {
            let micros = [kind.latency_ns_p50, kind.latency_ns_p99].map(|ns| Value::Float8(ns as f64 / 1e3));
            rows.set(names.into_iter().zip(micros));
        }
    }
}

/// Lists the trace of single requests to the devices, which the setting `trace_entries` switches on.
fn io_trace(world: &SystemContext, rows: &mut Rows<'_>) {
    for device in world.engine.io_traces() {
        for entry in &device.entries {
            rows.add([
                ("device", text(&device.location)),
                ("start_us", Value::Float8(entry.start_ns as f64 / 1e3)),
                ("duration_us", Value::Float8(entry.took_ns as f64 / 1e3)),
                ("operation", text(entry.what.name())),
                ("space", text(entry.space.name())),
                ("purpose", text(entry.why.name())),
                ("file", count(u64::from(entry.file))),
                ("offset_bytes", count(entry.offset)),
                ("length_bytes", count(entry.len_bytes)),
            ]);
        }
    }
}

/// Shows the buffer pool, and the levels below it.
fn levels(world: &SystemContext, rows: &mut Rows<'_>) {
    for (name, value) in pool_counters(&world.engine.stats().pager, world.engine.pager().config().page_size) {
        rows.add([("level", text("pool")), ("counter", text(name)), ("value", count(value))]);
    }
    for level in world.engine.pager().stats().levels {
        for (name, value) in level.counters {
            rows.add([
                ("level", text(level.name)),
                ("part", level.part.map_or(Value::Null, text)),
                ("counter", text(name)),
                ("value", count(value)),
            ]);
        }
    }
    tables_level(world, rows);
}

/// Returns the counters of the buffer pool.
pub fn pool_counters(pager: &PagerStats, page_bytes: usize) -> [(&'static str, u64); 11] {
    let bytes = |frames: u64| frames * page_bytes as u64;
    [
        ("capacity_bytes", bytes(pager.frames)),
        ("used_bytes", bytes(pager.frames.saturating_sub(pager.free_frames))),
        ("frames", pager.frames),
        ("free_frames", pager.free_frames),
        ("dirty_frames", pager.dirty_frames),
        ("read_hits", pager.fixes.saturating_sub(pager.misses)),
        ("read_misses", pager.misses),
        ("prefetched", pager.prefetched),
        ("evictions", pager.evictions),
        ("checkpoint_writes", pager.checkpoint_writes),
        ("evict_writes", pager.evict_writes + pager.inline_writes),
    ]
}

/// Shows the file of tables in persistent memory: the bytes of the whole file, and of each partition that has
/// had a table.
fn tables_level(world: &SystemContext, rows: &mut Rows<'_>) {
    let Some(region) = world.engine.tables_region() else { return };
    let mut add = |part: Option<&str>, name: &'static str, value: u64| {
        rows.add([
            ("level", text("tables")),
            ("part", part.map_or(Value::Null, text)),
            ("counter", text(name)),
            ("value", count(value)),
        ]);
    };
    let (capacity, free) = (region.allocator().capacity_bytes(), region.allocator().free_bytes());
    add(None, "capacity_bytes", capacity);
    add(None, "used_bytes", capacity.saturating_sub(free));
    add(None, "free_bytes", free);
    for space in world.engine.partition_space().unwrap_or_default() {
        let part = format!("{} {}", space.engine, space.partition);
        add(Some(&part), "tables", space.tables);
        add(Some(&part), "used_bytes", space.used_bytes);
    }
}

fn nvm(world: &SystemContext, rows: &mut Rows<'_>) {
    pages_and_log(world, rows);
    tables_file(world, rows);
}

/// Shows the file with tables, tables.varve.
fn tables_file(world: &SystemContext, rows: &mut Rows<'_>) {
    let Some(tables) = world.engine.tables_region() else { return };
    let region = tables.allocator().region();
    let (facts, tally) = (region.facts(), region.tally());
    let (cell, lines) = (facts.cell, tally.written_back_lines);
    rows.add([
        ("place", text(tables.location())),
        ("medium", text(facts.medium.name())),
        ("write_back", text(facts.write_back.name())),
        ("emulates", facts.emulates.map_or(Value::Null, Value::Text)),
        ("size_bytes", count(region.len_bytes())),
        ("log_bytes", count(0)),
        ("loads", count(tally.loads_count)),
        ("loaded_bytes", count(tally.loaded_bytes)),
        ("stores", count(tally.stores_count)),
        ("stored_bytes", count(tally.stored_bytes)),
        ("written_back_lines", count(lines)),
        ("fences", count(tally.fences_count)),
        ("cell_endurance_writes", cell.map_or(Value::Null, |cell| count(cell.endurance_writes))),
        ("modelled_write_joules", cell.map_or(Value::Null, |cell| Value::Float8(cell.write_joules(lines)))),
    ]);
}

/// Shows the file with pages and log, nvm.varve.
fn pages_and_log(world: &SystemContext, rows: &mut Rows<'_>) {
    let Some(nvm) = world.engine.pager().nvm() else { return };
    let (cell, lines) = (nvm.facts.cell, nvm.tally.written_back_lines);
    let slots = |held: Option<u64>| held.map_or(Value::Null, count);
    rows.add([
        ("place", text(nvm.place)),
        ("medium", text(nvm.facts.medium.name())),
        ("write_back", text(nvm.facts.write_back.name())),
        ("emulates", nvm.facts.emulates.map_or(Value::Null, Value::Text)),
        ("size_bytes", count(nvm.size_bytes)),
        ("log_bytes", count(nvm.log_bytes)),
        ("slots", slots(nvm.slots.map(|slots| slots.total))),
        ("free_slots", slots(nvm.slots.map(|slots| slots.free))),
        ("dirty_slots", slots(nvm.slots.map(|slots| slots.dirty))),
        ("clean_slots", slots(nvm.slots.map(|slots| slots.clean))),
        ("doomed_slots", slots(nvm.slots.map(|slots| slots.doomed))),
        ("loads", count(nvm.tally.loads_count)),
        ("loaded_bytes", count(nvm.tally.loaded_bytes)),
        ("stores", count(nvm.tally.stores_count)),
        ("stored_bytes", count(nvm.tally.stored_bytes)),
        ("written_back_lines", count(lines)),
        ("fences", count(nvm.tally.fences_count)),
        ("cell_endurance_writes", cell.map_or(Value::Null, |cell| count(cell.endurance_writes))),
        ("modelled_write_joules", cell.map_or(Value::Null, |cell| Value::Float8(cell.write_joules(lines)))),
    ]);
}

fn stats(world: &SystemContext, rows: &mut Rows<'_>) {
    let dropped = world.engine.io_trace_dropped_count();
    rows.add([("name", text("io_trace_dropped")), ("value", count(dropped))]);
    let restart = world.engine.pager().restart_estimate().map(|estimate| restart(&estimate));
    for (name, value) in counters(&world.engine.stats()).into_iter().chain(restart.into_iter().flatten()) {
        rows.add([("name", text(name)), ("value", count(value))]);
    }
}

/// Returns what a start after a crash would have to do now.
fn restart(estimate: &RestartEstimate) -> [(&'static str, u64); 4] {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    [
        ("restart_log_bytes", estimate.log_bytes),
        ("restart_pages", estimate.pages),
        ("restart_estimated_ms", millis(estimate.time)),
        ("restart_target_ms", millis(estimate.target)),
    ]
}

fn counters(stats: &DatabaseStats) -> [(&'static str, u64); 20] {
    let pager = &stats.pager;
    [
        ("commits", stats.commits),
        ("rollbacks", stats.rollbacks),
        ("lock_waits", stats.lock_waits),
        ("deadlocks", stats.deadlocks),
        ("purged_records", stats.purged_records),
        ("purge_backlog", stats.purge_backlog),
        ("losers", stats.losers),
        ("pool_frames", pager.frames),
        ("pool_free_frames", pager.free_frames),
        ("pool_dirty_frames", pager.dirty_frames),
        ("page_fixes", pager.fixes),
        ("page_misses", pager.misses),
        ("pages_prefetched", pager.prefetched),
        ("page_evictions", pager.evictions),
        ("evict_writes", pager.evict_writes),
        ("inline_writes", pager.inline_writes),
        ("checkpoint_writes", pager.checkpoint_writes),
        ("checkpoints", pager.checkpoints),
        ("data_pages", pager.data_pages),
        ("rollback_pages", pager.rollback_pages),
    ]
}
