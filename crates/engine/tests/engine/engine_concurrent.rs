//! Concurrent transactions, with purge in the background. The total of all accounts stays the same, unique
//! values stay unique, deadlocks end, and every snapshot is consistent.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::common::Random;
use crate::database::{
    RC, RR, begin, by_v, create, delete, index_on_v, is_sound, load, options, put, rows, update,
};
use varve_device::MemoryDirectory;
use varve_engine::{Database, Error, Isolation, Result, TableDef};

const ACCOUNTS: i32 = 60;
const START: i32 = 1000;
const WRITERS: u64 = 4;

fn with_threads() -> Arc<Database> {
    let mut options = options(&MemoryDirectory::new());
    options.background = true;
    options.pager.background = true;
    Database::open(options).unwrap()
}

/// Moves money between two accounts. Some transfers are rolled back.
fn transfer(
    database: &Arc<Database>,
    def: &TableDef,
    isolation: Isolation,
    random: &mut Random,
) -> Result<()> {
    let (from, to) = (random.below(ACCOUNTS as usize) as i32, random.below(ACCOUNTS as usize) as i32);
    let mut txn = begin(database, isolation);
    update(&mut txn, def, from, |v| v - 7)?;
    let savepoint = txn.savepoint();
    update(&mut txn, def, to, |v| v + 7)?;
    match random.below(10) {
        0 => txn.rollback(),
        1 => {
            txn.rollback_to(savepoint)?;
            update(&mut txn, def, from, |v| v + 7)?;
            txn.commit()
        }
        _ => txn.commit(),
    }
}

fn may_be_repeated(error: &Error) -> bool {
    matches!(error.sqlstate(), "40001" | "40P01")
}

fn transfers(database: &Arc<Database>, def: &TableDef, seed: u64, count: usize, refused: &AtomicU32) {
    let mut random = Random::new(seed);
    let isolation = if seed.is_multiple_of(2) { RC } else { RR };
    for _ in 0..count {
        match transfer(database, def, isolation, &mut random) {
            Ok(()) => {}
            Err(error) => {
                assert!(may_be_repeated(&error), "{error}");
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn sum(found: &[(i32, i32)]) -> i32 {
    assert_eq!(found.len(), ACCOUNTS as usize);
    found.iter().map(|(_, v)| v).sum()
}

fn audit(database: &Arc<Database>, def: &TableDef, done: &AtomicBool) -> usize {
    let mut count = 0;
    while !done.load(Ordering::Relaxed) {
        let mut reader = begin(database, RR);
        let first = rows(&mut reader, def).unwrap();
        assert_eq!(sum(&first), ACCOUNTS * START);
        assert_eq!(sum(&rows(&mut begin(database, RC), def).unwrap()), ACCOUNTS * START, "one statement");
        let (_, v) = first[count % first.len()];
        let indexed = by_v(&mut reader, def, v);
        let scanned: Vec<_> = first.iter().filter(|row| row.1 == v).copied().collect();
        assert_eq!(indexed, scanned, "the index and the table under one snapshot");
        assert_eq!(rows(&mut reader, def).unwrap(), first, "the snapshot did not move");
        count += 1;
    }
    count
}

#[test]
fn transfers_keep_the_sum() {
    let database = with_threads();
    let def = create(&database, "accounts");
    let def = index_on_v(&database, &def, "accounts_v", false);
    load(&database, &def, (0..ACCOUNTS).map(|id| (id, START)));
    let (done, refused) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let auditor = scope.spawn(|| audit(&database, &def, &done));
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                let (database, def, refused) = (&database, &def, &refused);
                scope.spawn(move || transfers(database, def, seed, 1500, refused))
            })
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(auditor.join().unwrap() > 0);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    assert_eq!(sum(&rows(&mut begin(&database, RC), &def).unwrap()), ACCOUNTS * START);
    is_sound(&database);
    assert!(database.stats().purged_records > 0, "purge kept up");
}

/// Many threads insert the same few unique values. At any time, each value has at most one row.
fn grab(database: &Arc<Database>, def: &TableDef, seed: u64, wins: &AtomicU32) {
    let mut random = Random::new(seed);
    for n in 0..600 {
        let (id, v) = ((seed * 10_000 + n) as i32, random.below(12) as i32);
        let mut txn = begin(database, RC);
        match put(&mut txn, def, id, v) {
            Err(error) => assert_eq!(error.sqlstate(), "23505"),
            Ok(()) => {
                assert_eq!(by_v(&mut txn, def, v), [(id, v)]);
                txn.commit().unwrap();
                wins.fetch_add(1, Ordering::Relaxed);
                let mut txn = begin(database, RC);
                delete(&mut txn, def, id).unwrap();
                if random.below(8) == 0 { txn.rollback().unwrap() } else { txn.commit().unwrap() }
            }
        }
    }
}

#[test]
fn unique_values_stay_unique() {
    let database = with_threads();
    let def = create(&database, "seats");
    let def = index_on_v(&database, &def, "seats_v", true);
    let wins = AtomicU32::new(0);
    thread::scope(|scope| {
        for seed in 1..=WRITERS {
            let (database, def, wins) = (&database, &def, &wins);
            scope.spawn(move || grab(database, def, seed, wins));
        }
    });
    let left = rows(&mut begin(&database, RC), &def).unwrap();
    let mut values: Vec<_> = left.iter().map(|row| row.1).collect();
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), left.len(), "a value is there twice: {left:?}");
    assert!(wins.load(Ordering::Relaxed) > 0);
    is_sound(&database);
}
