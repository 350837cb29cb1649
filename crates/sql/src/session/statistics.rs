//! What the database says about itself: `SHOW varve.io`, `SHOW varve.stats`.
//!
//! Invariants
//! 1. Counters start at zero when the database is opened; reading them waits for nobody.
//!
//! Does not know: who counts.

use varve_engine::{Database, DatabaseStats, Datum};

use crate::error::Result;
use crate::oid;
use crate::sink::{Column, Sink};

const IO: &str = "varve.io";
const STATS: &str = "varve.stats";

/// Columns of the result, if `name` is one of these.
pub(super) fn columns(name: &str) -> Option<Vec<Column>> {
    let column = |name: &str, type_oid| Column { name: name.into(), type_oid, typmod: -1 };
    let text = |name| column(name, oid::TEXT);
    let count = |name| column(name, oid::INT8);
    match name {
        IO => Some(vec![
            text("space"),
            text("purpose"),
            count("reads"),
            count("read_bytes"),
            count("writes"),
            count("written_bytes"),
        ]),
        STATS => Some(vec![text("name"), count("value")]),
        _ => None,
    }
}

/// Rows of the result, for a name that has `columns`.
pub(super) fn rows(name: &str, database: &Database, sink: &mut dyn Sink) -> Result<()> {
    let number = |value: u64| Datum::Int8(i64::try_from(value).unwrap_or(i64::MAX));
    if name == IO {
        for row in database.io() {
            let [reads, read_bytes, writes, written_bytes] =
                [row.read_count, row.read_bytes, row.write_count, row.written_bytes].map(number);
            sink.row(&[
                Datum::Text(row.space),
                Datum::Text(row.purpose),
                reads,
                read_bytes,
                writes,
                written_bytes,
            ])?;
        }
        return Ok(());
    }
    counters(&database.stats())
        .into_iter()
        .try_for_each(|(name, value)| sink.row(&[Datum::Text(name), number(value)]))
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
