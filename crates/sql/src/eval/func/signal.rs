//! `pg_cancel_backend` and `pg_terminate_backend`, which end statements or sessions of other clients.
//!
//! Invariants
//! 1. A session can be ended by members of the role that logged in to it, and by members of
//!    `pg_signal_backend`. Only a superuser can end the session of a superuser. The same rule holds for
//!    cancelling a statement.
//! 2. For a number that no session has, the functions give a warning and return false, as in PostgreSQL.
//!
//! This module does not know how a session is interrupted (`crate::activity`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_engine::{Datum, predefined};

use super::{Builtin, int, volatile};
use crate::activity::Activity;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::rights::{Holder, denied};
use crate::system::SystemContext;
use crate::ty::Ty::{self, Bool, Int4, Int8};

/// The period after which `pg_terminate_backend` checks again whether the session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) const TABLE: &[Builtin] = &[
    asks("pg_cancel_backend", &[Int4], cancel),
    asks("pg_terminate_backend", &[Int4], |a, cx| terminate(a, 0, cx)),
    asks("pg_terminate_backend", &[Int4, Int8], |a, cx| terminate(a, int(a, 1), cx)),
];

const fn asks(name: &'static str, arguments: &'static [Ty], run: super::Run) -> Builtin {
    Builtin { world: true, ..volatile(name, arguments, Bool, run) }
}

fn cancel<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let refusals = [
        "must be a superuser to cancel superuser query",
        "must be a member of the role whose query is being canceled or member of pg_signal_backend",
    ];
    let Some(session) = session(a, cx.env.world()?, refusals)? else { return Ok(Datum::Bool(false)) };
    session.cancel();
    cx.env.check_cancel()?;
    Ok(Datum::Bool(true))
}

fn terminate<'a>(a: &[Datum<'a>], timeout_ms: i64, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Ok(timeout_ms) = u64::try_from(timeout_ms) else {
        let message = "\"timeout\" must not be negative";
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    };
    let refusals = [
        "must be a superuser to terminate superuser process",
        "must be a member of the role whose process is being terminated or member of pg_signal_backend",
    ];
    let world = cx.env.world()?;
    let Some(session) = session(a, world, refusals)? else { return Ok(Datum::Bool(false)) };
    if !session.end() {
        world.warn(format!(
            "PID {} is a session inside of the server's process, without a connection",
            int(a, 0)
        ));
        return Ok(Datum::Bool(false));
    }
    cx.env.check_cancel()?;
    if timeout_ms == 0 {
        return Ok(Datum::Bool(true));
    }
    let is_gone = await_end(&session, Duration::from_millis(timeout_ms), world, cx)?;
    if !is_gone {
        let number = session.process_id;
        world.warn(format!("backend with PID {number} did not terminate within {timeout_ms} milliseconds"));
    }
    Ok(Datum::Bool(is_gone))
}

/// Returns whether the session has ended within the time.
fn await_end(session: &Arc<Activity>, timeout: Duration, world: &SystemContext, cx: &Cx<'_>) -> Result<bool> {
    let began = Instant::now();
    loop {
        if !world.watched.sessions().iter().any(|other| Arc::ptr_eq(other, session)) {
            return Ok(true);
        }
        cx.env.check_cancel()?;
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Finds the session with this number. Fails with 42501 if the role may not end it or its statement.
fn session(a: &[Datum<'_>], world: &SystemContext, refusals: [&str; 2]) -> Result<Option<Arc<Activity>>> {
    let number = int(a, 0);
    let mut sessions = world.watched.sessions().into_iter();
    let Some(session) = sessions.find(|session| i64::from(session.process_id) == number) else {
        world.warn(format!("PID {number} is not a PostgreSQL backend process"));
        return Ok(None);
    };
    let holder = Holder::of(&world.catalog, world.who);
    let role = world.catalog.role(&session.user);
    match role {
        _ if holder.is_superuser() => Ok(Some(session)),
        Some(role) if role.is_superuser => Err(denied(refusals[0])),
        Some(role) if holder.is(role.id) || holder.is(predefined::SIGNAL_BACKEND) => Ok(Some(session)),
        Some(_) => Err(denied(refusals[1])),
        None => Err(denied(refusals[0])),
    }
}
