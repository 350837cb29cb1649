//! Functions for advisory locks, and `pg_blocking_pids`, which returns the sessions that block another
//! session.

use varve_engine::{AdvisoryKey, Datum};

use super::{Builtin, Run, catalog, int, volatile};
use crate::advisory::{AdvisoryAction, AdvisoryCall};
use crate::error::Result;
use crate::eval::Cx;
use crate::ty::Ty::{self, Array, Bool, Int4, Int8, Void};

pub(super) const TABLE: &[Builtin] = &[
    takes("pg_advisory_lock", &[Int8], |a, cx| lock(one(a, cx)?, false, true, cx)),
    takes("pg_advisory_lock", &[Int4, Int4], |a, cx| lock(two(a, cx)?, false, true, cx)),
    takes("pg_advisory_lock_shared", &[Int8], |a, cx| lock(one(a, cx)?, true, true, cx)),
    takes("pg_advisory_lock_shared", &[Int4, Int4], |a, cx| lock(two(a, cx)?, true, true, cx)),
    takes("pg_advisory_xact_lock", &[Int8], |a, cx| lock(one(a, cx)?, false, false, cx)),
    takes("pg_advisory_xact_lock", &[Int4, Int4], |a, cx| lock(two(a, cx)?, false, false, cx)),
    takes("pg_advisory_xact_lock_shared", &[Int8], |a, cx| lock(one(a, cx)?, true, false, cx)),
    takes("pg_advisory_xact_lock_shared", &[Int4, Int4], |a, cx| lock(two(a, cx)?, true, false, cx)),
    tells("pg_try_advisory_lock", &[Int8], |a, cx| attempt(one(a, cx)?, false, true, cx)),
    tells("pg_try_advisory_lock", &[Int4, Int4], |a, cx| attempt(two(a, cx)?, false, true, cx)),
    tells("pg_try_advisory_lock_shared", &[Int8], |a, cx| attempt(one(a, cx)?, true, true, cx)),
    tells("pg_try_advisory_lock_shared", &[Int4, Int4], |a, cx| attempt(two(a, cx)?, true, true, cx)),
    tells("pg_try_advisory_xact_lock", &[Int8], |a, cx| attempt(one(a, cx)?, false, false, cx)),
    tells("pg_try_advisory_xact_lock", &[Int4, Int4], |a, cx| attempt(two(a, cx)?, false, false, cx)),
    tells("pg_try_advisory_xact_lock_shared", &[Int8], |a, cx| attempt(one(a, cx)?, true, false, cx)),
    tells("pg_try_advisory_xact_lock_shared", &[Int4, Int4], |a, cx| attempt(two(a, cx)?, true, false, cx)),
    tells("pg_advisory_unlock", &[Int8], |a, cx| unlock(one(a, cx)?, false, cx)),
    tells("pg_advisory_unlock", &[Int4, Int4], |a, cx| unlock(two(a, cx)?, false, cx)),
    tells("pg_advisory_unlock_shared", &[Int8], |a, cx| unlock(one(a, cx)?, true, cx)),
    tells("pg_advisory_unlock_shared", &[Int4, Int4], |a, cx| unlock(two(a, cx)?, true, cx)),
    takes("pg_advisory_unlock_all", &[], |_, cx| {
        call(one(&[Datum::Int8(0)], cx)?, false, true, AdvisoryAction::UnlockAll, cx).map(|_| VOID)
    }),
    catalog("pg_blocking_pids", &[Int4], Array(&Ty::Int4), |a, cx| {
        let pid = int(a, 0) as u32;
        let mut pids = crate::array::of(crate::oid::INT4);
        let blockers = cx.env.world()?.engine.blockers(pid);
        blockers.into_iter().for_each(|pid| pids.push(Datum::Int4(pid.cast_signed())));
        Ok(cx.keep_value(varve_engine::Value::Array(pids)))
    }),
];

/// The result of a function of type void.
const VOID: Datum<'static> = Datum::Text("");

const fn takes(name: &'static str, arguments: &'static [crate::ty::Ty], run: Run) -> Builtin {
    Builtin { world: true, ..volatile(name, arguments, Void, run) }
}

const fn tells(name: &'static str, arguments: &'static [crate::ty::Ty], run: Run) -> Builtin {
    Builtin { world: true, ..volatile(name, arguments, Bool, run) }
}

/// Returns the session's database. Each database has its own advisory locks.
fn database(cx: &Cx<'_>) -> Result<u32> {
    Ok(cx.env.world()?.catalog.database().0)
}

/// Returns the key for one argument of 64 bits.
fn one(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<AdvisoryKey> {
    let (key, database) = (int(a, 0).cast_unsigned(), database(cx)?);
    Ok(AdvisoryKey { database, class: (key >> 32) as u32, object: key as u32, is_pair: false })
}

/// Returns the key for two arguments of 32 bits.
fn two(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<AdvisoryKey> {
    let database = database(cx)?;
    Ok(AdvisoryKey { database, class: int(a, 0) as u32, object: int(a, 1) as u32, is_pair: true })
}

fn lock<'a>(key: AdvisoryKey, is_shared: bool, of_session: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    call(key, is_shared, of_session, AdvisoryAction::Lock, cx).map(|_| VOID)
}

fn attempt<'a>(key: AdvisoryKey, is_shared: bool, of_session: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    call(key, is_shared, of_session, AdvisoryAction::Try, cx).map(Datum::Bool)
}

fn unlock<'a>(key: AdvisoryKey, is_shared: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    call(key, is_shared, true, AdvisoryAction::Unlock, cx).map(Datum::Bool)
}

fn call(
    key: AdvisoryKey,
    is_shared: bool,
    of_session: bool,
    action: AdvisoryAction,
    cx: &Cx<'_>,
) -> Result<bool> {
    cx.env.sequences.lock(&AdvisoryCall { key, is_shared, of_session, action }, cx.env.world()?)
}
