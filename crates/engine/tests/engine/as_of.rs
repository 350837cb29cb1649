//! Transactions that read an earlier moment see each transaction that had committed by then, and nothing else,
//! while others change rows and purge runs. A moment that is gone is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::database::*;
use varve_engine::{Database, PastMoment, TableDef, Transaction};

fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64
}

fn lsn(database: &Database) -> PastMoment {
    PastMoment::Lsn(database.durable_lsn().get())
}

/// Begins a transaction that reads this moment, or returns the SQLSTATE of its refusal.
fn at(database: &Arc<Database>, moment: PastMoment) -> Result<Transaction, &'static str> {
    let mut txn = database.begin(RC);
    txn.read_as_of(moment).map_err(|e| e.sqlstate())?;
    txn.start_statement();
    Ok(txn)
}

fn state_at(database: &Arc<Database>, def: &TableDef, moment: PastMoment) -> Vec<(i32, i32)> {
    rows(&mut at(database, moment).unwrap(), def).unwrap()
}

fn retaining() -> (Arc<varve_device::MemoryDirectory>, Arc<Database>, Arc<TableDef>) {
    let (directory, database) = fresh();
    database.set_undo_retention(Duration::from_secs(3600));
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    (directory, database, def)
}

/// Makes changes from a fixed seed: inserts, updates, deletes, new keys, and rollbacks.
fn change(database: &Arc<Database>, def: &TableDef, model: &mut BTreeMap<i32, i32>, step: u64) {
    let random = step.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let (id, v) = ((random % 40) as i32, step as i32);
    let mut txn = begin(database, RC);
    let mut changed = model.clone();
    match (model.contains_key(&id), random >> 32 & 7) {
        (false, _) => {
            put(&mut txn, def, id, v).unwrap();
            changed.insert(id, v);
        }
        (true, 0) => {
            delete(&mut txn, def, id).unwrap();
            changed.remove(&id);
        }
        (true, 1) if !model.contains_key(&(id + 100)) => {
            rekey(&mut txn, def, id, id + 100).unwrap();
            let old = changed.remove(&id).unwrap();
            changed.insert(id + 100, old);
        }
        (true, _) => {
            update(&mut txn, def, id, |_| v).unwrap();
            changed.insert(id, v);
        }
    }
    match random >> 40 & 7 {
        0 => txn.rollback().unwrap(),
        _ => {
            txn.commit().unwrap();
            *model = changed;
        }
    }
}

#[test]
fn each_moment_is_seen_as_it_was() {
    let (_directory, database, def) = retaining();
    let mut model = BTreeMap::new();
    let mut moments = Vec::new();
    for step in 0..600 {
        change(&database, &def, &mut model, step);
        let state: Vec<(i32, i32)> = model.iter().map(|(id, v)| (*id, *v)).collect();
        let time = PastMoment::TimeUs(now_us());
        // The clock must have passed the moment before the next commit.
        thread::sleep(Duration::from_micros(2));
        moments.push((time, lsn(&database), state));
        if step % 50 == 0 {
            database.tick().unwrap();
        }
    }
    database.tick().unwrap();
    assert!(database.stats().purge_backlog > 300, "undo is retained");
    for (time, lsn, state) in moments.iter().rev().chain(&moments) {
        assert_eq!(state_at(&database, &def, *time), *state, "{time:?}");
        assert_eq!(state_at(&database, &def, *lsn), *state, "{lsn:?}");
        let (_, v) = *state.first().unwrap_or(&(0, -1));
        let found = by_v(&mut at(&database, *lsn).unwrap(), &def, v);
        assert_eq!(found, state.iter().filter(|row| row.1 == v).copied().collect::<Vec<_>>(), "{lsn:?}");
    }
    is_sound(&database);
}

#[test]
fn a_moment_that_is_gone_is_refused() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 1)]);
    assert_eq!(at(&database, PastMoment::TimeUs(now_us())).err(), Some("72000"), "no time is noted");
    let present = lsn(&database);
    assert_eq!(state_at(&database, &def, present), [(1, 1)]);
    database.set_undo_retention(Duration::from_secs(3600));
    let (began, began_lsn) = (PastMoment::TimeUs(now_us()), lsn(&database));
    update(&mut begin(&database, RC), &def, 1, |_| 9).unwrap();
    let mut txn = begin(&database, RC);
    update(&mut txn, &def, 1, |_| 2).unwrap();
    thread::sleep(Duration::from_micros(2));
    txn.commit().unwrap();
    database.tick().unwrap();
    assert_eq!(state_at(&database, &def, began), [(1, 1)]);
    for moment in [PastMoment::TimeUs(now_us() + 1_000_000), PastMoment::Lsn(u64::MAX)] {
        assert_eq!(at(&database, moment).err(), Some("22023"));
    }
    let mut reader = at(&database, began_lsn).unwrap();
    database.set_undo_retention(Duration::ZERO);
    database.tick().unwrap();
    assert_eq!(rows(&mut reader, &def).unwrap(), [(1, 1)], "a reader keeps what it reads");
    assert_eq!(state_at(&database, &def, began_lsn), [(1, 1)], "and what it keeps can be read");
    drop(reader);
    database.tick().unwrap();
    assert_eq!(database.stats().purge_backlog, 0);
    assert_eq!(at(&database, began_lsn).err(), Some("72000"));
    assert_eq!(at(&database, began).err(), Some("72000"));
    database.set_undo_retention(Duration::from_secs(3600));
    assert_eq!(at(&database, began).err(), Some("72000"), "what was not retained does not come back");
    let before = lsn(&database);
    database.shutdown().unwrap();
    drop(database);
    let database = open(&directory);
    assert_eq!(at(&database, began_lsn).err(), Some("72000"), "older than this start");
    assert_eq!(at(&database, before).err(), Some("72000"));
    is_sound(&database);
}

#[test]
fn the_past_cannot_be_changed() {
    let (_directory, database, def) = retaining();
    load(&database, &def, [(1, 1)]);
    let mut txn = at(&database, lsn(&database)).unwrap();
    assert_eq!(state(update(&mut txn, &def, 1, |_| 2)), "25006");
    assert_eq!(state(put(&mut txn, &def, 2, 2)), "25006");
    assert_eq!(state(create_in(&mut txn, "u", true)), "25006");
    txn.rollback().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(txn.read_as_of(lsn(&database)).unwrap_err().sqlstate(), "25001");
}

#[test]
fn a_table_that_was_rewritten_since_is_refused() {
    let (_directory, database, def) = retaining();
    load(&database, &def, [(1, 1)]);
    let moment = lsn(&database);
    let mut txn = begin(&database, RC);
    txn.truncate(def.id).unwrap();
    txn.commit().unwrap();
    let mut txn = at(&database, moment).unwrap();
    let def = txn.catalog().table_by_id(def.id).unwrap().clone();
    assert_eq!(state(rows(&mut txn, &def)), "72000");
}

/// The rollback space has a limit. Undo is purged at this limit even if the retention time is not over.
#[test]
fn a_full_rollback_space_ends_retention() {
    let directory = varve_device::MemoryDirectory::new();
    let mut options = options(&directory);
    options.rollback_limit_bytes = Some(200 << 10);
    let database = Database::open(options).unwrap();
    database.set_undo_retention(Duration::from_secs(3600));
    let def = create(&database, "t");
    load(&database, &def, (0..100).map(|i| (i, i)));
    let (early, mut reader) = (lsn(&database), at(&database, lsn(&database)).unwrap());
    for round in 0..200 {
        let mut txn = begin(&database, RC);
        (0..100).for_each(|id| {
            update(&mut txn, &def, id, |v| v + round).unwrap();
        });
        txn.commit().unwrap();
        database.tick().unwrap();
    }
    assert_eq!(state(rows(&mut reader, &def)), "72000");
    assert_eq!(at(&database, early).err(), Some("72000"));
    assert_eq!(state_at(&database, &def, lsn(&database)).len(), 100);
    assert!(database.stats().pager.rollback_pages < 100);
}

/// Money moves between accounts while purge runs with hardly any retention. Each moment that can be read has
/// the same sum.
#[test]
fn readers_of_the_past_race_purge() {
    let (_directory, database, def) = retaining();
    load(&database, &def, (0..10).map(|id| (id, 100)));
    // Moments are read below only after this pause, so the rows exist at each of them.
    thread::sleep(Duration::from_millis(10));
    database.set_undo_retention(Duration::from_millis(2));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..4000 {
                let mut txn = begin(&database, RC);
                update(&mut txn, &def, step % 10, |v| v - 1).unwrap();
                update(&mut txn, &def, (step * 7 + 3) % 10, |v| v + 1).unwrap();
                txn.commit().unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                database.tick().unwrap();
            }
        });
        let mut seen = 0;
        while !done.load(Ordering::SeqCst) {
            for back_us in [0, 500, 2000, 8000] {
                match at(&database, PastMoment::TimeUs(now_us() - back_us)) {
                    Ok(mut txn) => {
                        let sum: i32 = rows(&mut txn, &def).unwrap().iter().map(|(_, v)| v).sum();
                        assert_eq!(sum, 1000);
                        seen += 1;
                    }
                    Err(sqlstate) => assert_eq!(sqlstate, "72000"),
                }
            }
        }
        assert!(seen > 0);
    });
    is_sound(&database);
}
