//! Two transactions change one row: which one waits, what it sees after the wait, and which one gets 40001.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use crate::database::*;
use varve_engine::{Isolation, LockStrength, Outcome, Result, ScanSpec, TableDef, Transaction};

#[test]
fn read_committed_waits_and_evaluates_again_so_no_update_is_lost() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut txn = begin(&database, RC);
                    assert_eq!(update(&mut txn, &def, 1, |v| v + 1).unwrap(), Outcome::Changed);
                    txn.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(all(&database, &def), [(1, 200)]);
    is_sound(&database);
}

#[test]
fn repeatable_read_refuses_a_row_that_changed_after_its_snapshot() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0), (2, 0), (3, 0)]);
    let mut late = begin(&database, RR);
    assert_eq!(see(&mut late, &def, 1), Some(0));
    let mut first = begin(&database, RC);
    update(&mut first, &def, 1, |_| 5).unwrap();
    delete(&mut first, &def, 2).unwrap();
    first.commit().unwrap();
    assert_eq!(state(update(&mut late, &def, 1, |v| v + 1)), "40001");
    assert_eq!(state(delete(&mut late, &def, 2)), "40001");
    assert_eq!(update(&mut late, &def, 3, |_| 7).unwrap(), Outcome::Changed);
    late.commit().unwrap();
    assert_eq!(all(&database, &def), [(1, 5), (3, 7)]);
}

#[test]
fn repeatable_read_goes_on_if_the_first_updater_rolls_back() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let mut first = begin(&database, RC);
    update(&mut first, &def, 1, |_| 5).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut txn = begin(&database, RR);
            update(&mut txn, &def, 1, |v| v + 1).unwrap();
            txn.commit().unwrap();
        });
        thread::sleep(Duration::from_millis(20));
        first.rollback().unwrap();
        second.join().unwrap();
    });
    assert_eq!(all(&database, &def), [(1, 1)]);
}

#[test]
fn a_lock_for_update_is_waited_for_but_is_no_change() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let mut late = begin(&database, RR);
    let mut locker = begin(&database, RC);
    let table = table(&mut locker, &def);
    let lock =
        &mut |_: varve_engine::RowRef<'_>| Ok(varve_engine::Change::Lock(varve_engine::LockStrength::Update));
    assert_eq!(locker.modify(&table, &pk(1), lock).unwrap(), Outcome::Changed);
    late.set_lock_timeout(Some(Duration::from_millis(10)));
    assert_eq!(state(update(&mut late, &def, 1, |v| v + 1)), "55P03");
    assert_eq!(see(&mut late, &def, 1), Some(0));
    locker.commit().unwrap();
    assert_eq!(update(&mut late, &def, 1, |v| v + 1).unwrap(), Outcome::Changed);
    late.commit().unwrap();
    assert_eq!(all(&database, &def), [(1, 1)]);
    is_sound(&database);
}

/// A transaction moves row 2 to key 9 (and on to 12). Meanwhile, another one waits for row 2 at its old key.
fn wait_for_mover(
    isolation: varve_engine::Isolation,
    act: impl FnOnce(&mut varve_engine::Transaction, &varve_engine::TableDef) -> varve_engine::Result<Outcome>
    + Send,
) -> (varve_engine::Result<Outcome>, Vec<(i32, i32)>) {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    load(&database, &def, [(1, 10), (2, 20)]);
    let mut mover = begin(&database, RC);
    rekey(&mut mover, &def, 2, 9).unwrap();
    rekey(&mut mover, &def, 9, 12).unwrap();
    let outcome = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut txn = begin(&database, isolation);
            let outcome = act(&mut txn, &def);
            txn.commit().unwrap();
            outcome
        });
        until_one_waits(&database, 0);
        mover.commit().unwrap();
        waiter.join().unwrap()
    });
    database.tick().unwrap();
    is_sound(&database);
    (outcome, all(&database, &def))
}

#[test]
fn read_committed_follows_a_row_to_its_new_key() {
    let (outcome, rows) = wait_for_mover(RC, |txn, def| update(txn, def, 2, |v| v + 1));
    assert_eq!((outcome.unwrap(), rows), (Outcome::Changed, vec![(1, 10), (12, 21)]));
    let (outcome, rows) = wait_for_mover(RC, |txn, def| delete(txn, def, 2));
    assert_eq!((outcome.unwrap(), rows), (Outcome::Changed, vec![(1, 10)]));
    let (outcome, rows) = wait_for_mover(RR, |txn, def| update(txn, def, 2, |v| v + 1));
    assert_eq!((state(outcome), rows), ("40001", vec![(1, 10), (12, 20)]));
}

#[test]
fn a_row_that_moved_before_the_statement_is_not_followed() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(2, 20)]);
    let mut mover = begin(&database, RC);
    rekey(&mut mover, &def, 2, 9).unwrap();
    assert_eq!(update(&mut mover, &def, 2, |v| v + 1).unwrap(), Outcome::Missing);
    mover.commit().unwrap();
    let mut txn = begin(&database, RC);
    assert_eq!(update(&mut txn, &def, 2, |v| v + 1).unwrap(), Outcome::Missing);
    txn.commit().unwrap();
    let mut mover = begin(&database, RC);
    rekey(&mut mover, &def, 9, 2).unwrap();
    mover.rollback().unwrap();
    assert_eq!(all(&database, &def), [(9, 20)]);
    is_sound(&database);
}

#[test]
fn no_update_of_a_wide_row_is_lost() {
    use varve_engine::{Change, Datum, RowImage};
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let wide = "w".repeat(20_000);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..60 {
                    let mut txn = begin(&database, RC);
                    let table = table(&mut txn, &def);
                    let more = &mut |row: varve_engine::RowRef<'_>| {
                        let data = [row.get(0), Datum::Int4(int(row.get(1)) + 1), Datum::Text(&wide)];
                        Ok(Change::Replace(RowImage::encode(row.schema(), &data)?))
                    };
                    assert_eq!(txn.modify(&table, &pk(1), more).unwrap(), Outcome::Changed);
                    txn.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(all(&database, &def), [(1, 180)]);
    database.tick().unwrap();
    is_sound(&database);
}

/// `SELECT FROM def WHERE id = id FOR ...`, as a statement of its own. Returns the v that it shows.
fn lock(txn: &mut Transaction, def: &TableDef, id: i32, strength: LockStrength) -> Result<Option<i32>> {
    txn.start_statement();
    let (table, mut v) = (table(txn, def), None);
    txn.lock_row(&table, &pk(id), strength, &mut |row| {
        v = Some(int(row.get(1)));
        Ok(true)
    })?;
    Ok(v)
}

/// Review 9, N2: several transactions wait for one row. When it was released, only the first waiter was
/// woken. So a transaction that only relies on the row (a foreign key) waited for the end of one that updates
/// it.
#[test]
fn who_relies_on_a_row_goes_on_beside_its_next_writer() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    load(&database, &def, [(1, 0)]);
    let mut holder = begin(&database, RC);
    lock(&mut holder, &def, 1, LockStrength::Update).unwrap();
    let mut writer = begin(&database, RC);
    let shown = thread::scope(|scope| {
        let updated = scope.spawn(|| update(&mut writer, &def, 1, |v| v + 1).unwrap());
        until_one_waits(&database, 0);
        let relied = scope.spawn(|| {
            let mut txn = begin(&database, RC);
            txn.set_lock_timeout(Some(Duration::from_secs(5)));
            lock(&mut txn, &def, 1, LockStrength::KeyShare)
        });
        until_one_waits(&database, 1);
        holder.commit().unwrap();
        assert_eq!(updated.join().unwrap(), Outcome::Changed);
        relied.join().unwrap().unwrap()
    });
    // The writer has not ended.
    assert_eq!(shown, Some(0));
    writer.commit().unwrap();
}

/// Review 9, N10: a change that leaves the keys alone is no conflict for a transaction that only relies on
/// the keys, even if the change is newer than the snapshot.
#[test]
fn under_a_snapshot_key_share_asks_for_the_keys_alone() {
    let (_directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", true);
    let plain = create(&database, "plain");
    for def in [&def, &plain] {
        load(&database, def, [(1, 10), (2, 20), (3, 30)]);
    }
    let mut late = begin(&database, RR);
    assert_eq!(see(&mut late, &plain, 1), Some(10));
    let mut first = begin(&database, RC);
    for v in [11, 12] {
        update(&mut first, &plain, 1, |_| v).unwrap();
        update(&mut first, &def, 1, |_| v).unwrap();
    }
    first.commit().unwrap();
    let mut second = begin(&database, RC);
    lock(&mut second, &plain, 1, LockStrength::Update).unwrap();
    delete(&mut second, &plain, 2).unwrap();
    rekey(&mut second, &plain, 3, 4).unwrap();
    second.commit().unwrap();
    assert_eq!(state(lock(&mut late, &plain, 1, LockStrength::Share)), "40001");
    let mut third = begin(&database, RC);
    update(&mut third, &plain, 1, |_| 13).unwrap();
    let key_share = LockStrength::KeyShare;
    assert_eq!(
        lock(&mut late, &plain, 1, key_share).unwrap(),
        Some(10),
        "also beside one that is not committed"
    );
    assert_eq!(state(lock(&mut late, &plain, 2, key_share)), "40001");
    assert_eq!(state(lock(&mut late, &plain, 3, key_share)), "40001");
    assert_eq!(state(lock(&mut late, &def, 1, key_share)), "40001", "v is a unique key there");
    third.set_lock_timeout(Some(Duration::from_millis(5)));
    assert_eq!(state(delete(&mut third, &plain, 1)), "55P03", "the row is relied on");
    late.commit().unwrap();
    delete(&mut third, &plain, 1).unwrap();
    third.commit().unwrap();
}

/// Review 9, N1: samples for the order of joins counted as read, so transactions that had nothing in common
/// failed (40001).
#[test]
fn what_a_sample_reads_is_read_by_nobody() {
    let (_directory, database) = fresh();
    let (read, log) = (create(&database, "t"), create(&database, "log"));
    load(&database, &read, (0..9).map(|id| (id, id)));
    let commits_after = |unnoted: bool| {
        let mut sampler = begin(&database, Isolation::Serializable);
        let table = table(&mut sampler, &read);
        let mut reader = sampler.reader();
        let mut sample = if unnoted { reader.fork_unnoted() } else { reader.fork() };
        sample.scan(&table, &ScanSpec::ALL, &mut |_, _| Ok(ControlFlow::Continue(()))).unwrap();
        drop((sample, reader));
        let mut other = begin(&database, Isolation::Serializable);
        update(&mut other, &read, 5, |v| v + 1).unwrap();
        other.commit().unwrap();
        put(&mut sampler, &log, i32::from(unnoted), 0).unwrap();
        sampler.commit()
    };
    commits_after(true).unwrap();
    assert_eq!(state(commits_after(false)), "40001");
}
