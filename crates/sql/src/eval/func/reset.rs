//! Functions that reset statistics: `pg_stat_reset` and its relatives.
//!
//! Invariants
//! 1. Only superusers may call them, as in PostgreSQL.
//!
//! This module does not know the code that counts.

use varve_engine::Datum;

use super::{Builtin, int, text, volatile};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::rights::Holder;
use crate::system::SystemContext;
use crate::ty::Ty::{self, Int8, Oid, Text, Void};

pub(super) const TABLE: &[Builtin] = &[
    resets("pg_stat_reset", &[], |_, cx| reset_database(cx)),
    resets("pg_stat_reset_shared", &[Text], |a, cx| reset_shared(text(a, 0), cx)),
    resets("pg_stat_statements_reset", &[], reset_statements),
    resets("pg_stat_statements_reset", &[Oid], reset_statements),
    resets("pg_stat_statements_reset", &[Oid, Oid], reset_statements),
    resets("pg_stat_statements_reset", &[Oid, Oid, Int8], reset_statements),
];

const fn resets(name: &'static str, arguments: &'static [Ty], run: super::Run) -> Builtin {
    Builtin { world: true, ..volatile(name, arguments, Void, run) }
}

/// Returns the state of the system. Fails with 42501 if the role is no superuser.
fn allowed<'a>(name: &str, cx: &Cx<'a>) -> Result<&'a SystemContext> {
    let world = cx.env.world()?;
    if !Holder::of(&world.catalog, world.who).is_superuser() {
        let message = format!("permission denied for function {name}");
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    Ok(world)
}

fn reset_database<'a>(cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = allowed("pg_stat_reset", cx)?;
    world.engine.reset_accesses();
    world.watched.reset_database(world.engine.stats());
    Ok(Datum::Text(""))
}

fn reset_shared<'a>(what: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = allowed("pg_stat_reset_shared", cx)?;
    match what {
        "bgwriter" => world.watched.reset_writer(world.engine.stats().pager),
        "wal" => world.watched.reset_log(world.engine.pager().log().stats()),
        // The views of these have no counters.
        "archiver" | "recovery_prefetch" => {}
        "io" => world.engine.reset_io_latencies(),
        unknown => {
            let message = format!("unrecognized reset target: \"{unknown}\"");
            let hint =
                "Target must be \"archiver\", \"bgwriter\", \"io\", \"recovery_prefetch\", or \"wal\".";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint));
        }
    }
    Ok(Datum::Text(""))
}

fn reset_statements<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = allowed("pg_stat_statements_reset", cx)?;
    let id = |n| if a.len() > n { u32::try_from(int(a, n)).unwrap_or(u32::MAX) } else { 0 };
    let query_id = if a.len() > 2 { int(a, 2) } else { 0 };
    crate::system::reset_statements(world, id(0), id(1), query_id);
    Ok(Datum::Text(""))
}
