//! Functions of the session, and functions of sequences.
//!
//! Invariants
//! 1. `version()` begins with `PostgreSQL 15`, because clients choose their behaviour by it. After that it
//!    names Varve.
//!
//! This module does not know settings (`SHOW` has them).

use std::time::{Duration, Instant};

use varve_engine::{Datum, Value};

use super::{Builtin, catalog, float, int, strict, text, volatile};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Sequences, reg};
use crate::exec::Beside;
use crate::moment;
use crate::rights::Holder;
use crate::ty::Reg;
use crate::ty::Ty::{self, Array, Bool, Float8, Int4, Int8, Name, Text, Void};

/// The result of `version()`.
pub const VERSION: &str = concat!("PostgreSQL 15.0 (Varve ", env!("CARGO_PKG_VERSION"), ")");

pub(super) const TABLE: &[Builtin] = &[
    strict("version", &[], Text, |_, _| Ok(Datum::Text(VERSION))),
    strict("current_database", &[], Name, |_, cx| Ok(cx.text(cx.env.database))),
    strict("pg_client_encoding", &[], Name, |_, cx| Ok(Datum::Text(cx.env.encoding.name()))),
    strict("current_catalog", &[], Name, |_, cx| Ok(cx.text(cx.env.database))),
    catalog("current_schema", &[], Name, |_, cx| {
        let first = cx.env.world()?.path.named().first();
        Ok(first.map_or(Datum::Null, |schema| cx.text(schema)))
    }),
    catalog("current_schemas", &[Bool], Array(&Ty::Name), |a, cx| {
        let path = &cx.env.world()?.path;
        let all = matches!(a[0], Datum::Bool(true));
        let mut names = crate::array::of(crate::oid::NAME);
        for schema in if all { path.searched() } else { path.named() } {
            names.push(Datum::Text(schema));
        }
        Ok(cx.keep_value(Value::Array(names)))
    }),
    strict("current_user", &[], Name, |_, cx| Ok(cx.text(cx.env.user))),
    strict("session_user", &[], Name, |_, cx| Ok(cx.text(cx.env.session_user))),
    strict("user", &[], Name, |_, cx| Ok(cx.text(cx.env.user))),
    strict("current_role", &[], Name, |_, cx| Ok(cx.text(cx.env.user))),
    strict("pg_backend_pid", &[], Int4, |_, cx| Ok(Datum::Int4(cx.env.process_id))),
    Builtin {
        world: true,
        ..volatile("pg_current_wal_lsn", &[], Text, |_, cx| {
            Ok(shown_lsn(cx.env.world()?.engine.durable_lsn().get(), cx))
        })
    },
    Builtin {
        world: true,
        ..volatile("pg_current_wal_flush_lsn", &[], Text, |_, cx| {
            Ok(shown_lsn(cx.env.world()?.engine.durable_lsn().get(), cx))
        })
    },
    Builtin {
        world: true,
        ..volatile("pg_current_wal_insert_lsn", &[], Text, |_, cx| {
            Ok(shown_lsn(cx.env.world()?.engine.pager().log().end().get(), cx))
        })
    },
    strict("pg_is_in_recovery", &[], Bool, |_, _| Ok(Datum::Bool(false))),
    Builtin { world: true, ..volatile("pg_reload_conf", &[], Bool, |_, cx| reload(cx)) },
    volatile("pg_sleep", &[Float8], Void, |a, cx| sleep(float(a, 0), cx)),
    volatile("nextval", &[Text], Int8, |a, cx| cx.env.sequences.next(text(a, 0)).map(Datum::Int8)),
    NEXT_OF_CLASS,
    volatile("currval", &[Text], Int8, |a, cx| told(cx, |s| s.current(text(a, 0)))),
    volatile("lastval", &[], Int8, |_, cx| told(cx, |s| s.last())),
    volatile("setval", &[Text, Int8], Int8, |a, cx| {
        cx.env.sequences.set(text(a, 0), int(a, 1), true).map(Datum::Int8)
    }),
    volatile("setval", &[Text, Int8, Bool], Int8, |a, cx| {
        let called = matches!(a[2], Datum::Bool(true));
        cx.env.sequences.set(text(a, 0), int(a, 1), called).map(Datum::Int8)
    }),
];

/// Returns a position in the redo log, as text, because Varve has no type `pg_lsn`.
fn shown_lsn<'a>(lsn: u64, cx: &Cx<'a>) -> Datum<'a> {
    cx.text(&moment::shown_lsn(lsn))
}

/// Calls currval or lastval. They also work while the statement reads rows.
fn told<'a>(cx: &Cx<'a>, ask: impl FnOnce(&dyn Sequences) -> Result<i64>) -> Result<Datum<'a>> {
    match cx.env.world {
        Some(world) => ask(&Beside(world)),
        None => ask(cx.env.sequences),
    }
    .map(Datum::Int8)
}

/// Computes pg_reload_conf. There is nothing to reload: ALTER SYSTEM changes settings at once, and varve.toml
/// is read only at a start.
fn reload<'a>(cx: &Cx<'a>) -> Result<Datum<'a>> {
    let world = cx.env.world()?;
    if !Holder::of(&world.catalog, world.who).is_superuser() {
        let message = "permission denied for function pg_reload_conf";
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    world.warn(
        "nothing was read again: varve.toml is read when the server starts, and ALTER SYSTEM needs no reload"
            .to_owned(),
    );
    Ok(Datum::Bool(true))
}

/// nextval of a sequence by OID.
const NEXT_OF_CLASS: Builtin = Builtin {
    world: true,
    ..volatile("nextval", &[Ty::Reg(Reg::Class)], Int8, |a, cx| {
        let Datum::Text(name) = reg::shown(Reg::Class, a[0], cx)? else { return Ok(Datum::Null) };
        cx.env.sequences.next(name).map(Datum::Int8)
    })
};

/// Sleeps in short steps, so that a cancel is seen soon.
fn sleep<'a>(seconds: f64, cx: &Cx<'a>) -> Result<Datum<'a>> {
    // The transaction began before the sleep, also for a `now()` behind it.
    _ = cx.env.now_us();
    // As in PostgreSQL, NaN counts as 0. It is checked here, because `clamp` keeps NaN.
    let seconds = if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, 1e9) };
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    loop {
        cx.env.check_cancel()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Datum::Text(""));
        }
        std::thread::sleep(left.min(Duration::from_millis(10)));
    }
}
