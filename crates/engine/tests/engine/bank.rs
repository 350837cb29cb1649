//! Many threads transfer money between accounts, with rollbacks, primary key changes and deadlocks. Every
//! snapshot must see the same total.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::database::*;
use varve_engine::{Database, Isolation, Result, ScanIndex, ScanSpec, TableDef, Transaction};

const ACCOUNTS: i32 = 24;
const SUM: i32 = ACCOUNTS * 100;

/// A small generator of its own (xorshift), so that a failing seed can be run again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i32) -> i32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as i32
    }
}

fn transfer(txn: &mut Transaction, def: &TableDef, dice: &mut Dice) -> Result<()> {
    let (from, to, amount) = (dice.roll(ACCOUNTS), dice.roll(ACCOUNTS), dice.roll(10));
    update(txn, def, from, |v| v - amount)?;
    update(txn, def, to, |v| v + amount)?;
    Ok(())
}

/// Deletes an account and inserts it again with the same balance, in one transaction.
fn reinsert(txn: &mut Transaction, def: &TableDef, dice: &mut Dice) -> Result<()> {
    let id = dice.roll(ACCOUNTS);
    txn.start_statement();
    let table = txn.table(def)?;
    let mut v = 0;
    txn.modify(&table, &pk(id), &mut |row| {
        v = int(row.get(1));
        Ok(varve_engine::Change::Delete)
    })?;
    put(txn, def, id, v)
}

/// Moves an account to another key and back.
fn wander(txn: &mut Transaction, def: &TableDef, dice: &mut Dice) -> Result<()> {
    let id = dice.roll(ACCOUNTS);
    rekey(txn, def, id, id + 1000)?;
    let savepoint = txn.savepoint();
    transfer(txn, def, dice)?;
    txn.rollback_to(savepoint)?;
    rekey(txn, def, id + 1000, id)?;
    Ok(())
}

fn work(database: &Arc<Database>, def: &TableDef, seed: u64, count: usize) {
    let mut dice = Dice(seed);
    for _ in 0..count {
        let isolation = if dice.roll(3) == 0 { Isolation::RepeatableRead } else { Isolation::ReadCommitted };
        let mut txn = begin(database, isolation);
        let outcome = match dice.roll(6) {
            0 => reinsert(&mut txn, def, &mut dice),
            1 => wander(&mut txn, def, &mut dice),
            _ => transfer(&mut txn, def, &mut dice),
        };
        match outcome {
            Ok(()) if dice.roll(5) > 0 => txn.commit().unwrap(),
            Ok(()) => txn.rollback().unwrap(),
            Err(error) => {
                assert!(["40001", "40P01"].contains(&error.sqlstate()), "seed {seed}: {error}");
                txn.rollback().unwrap();
            }
        }
    }
}

fn watch(database: &Arc<Database>, def: &TableDef, isolation: Isolation, done: &AtomicBool) {
    let index = ScanSpec { index: ScanIndex::Secondary(def.indexes[0].id), reverse: true, ..ScanSpec::ALL };
    while !done.load(Ordering::SeqCst) {
        let mut txn = begin(database, isolation);
        let mut by_key = rows(&mut txn, def).unwrap();
        assert_eq!(by_key.iter().map(|(_, v)| v).sum::<i32>(), SUM, "{by_key:?}");
        let mut by_index = collect(&mut txn, def, &index).unwrap();
        by_key.sort_unstable();
        by_index.sort_unstable();
        assert_eq!(by_key, by_index);
        txn.commit().unwrap();
    }
}

#[test]
fn every_snapshot_has_the_same_sum() {
    let (directory, database) = fresh();
    let def = create(&database, "t");
    let def = index_on_v(&database, &def, "t_v", false);
    load(&database, &def, (0..ACCOUNTS).map(|i| (i, 100)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|seed| {
                let (database, def) = (&database, &def);
                scope.spawn(move || work(database, def, seed * 7919, 400))
            })
            .collect();
        for isolation in [RC, RR] {
            let (database, def, done) = (&database, &def, &done);
            scope.spawn(move || watch(database, def, isolation, done));
        }
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                database.tick().unwrap();
                thread::yield_now();
            }
        });
        let outcomes: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    is_sound(&database);
    assert_eq!(all(&database, &def).len(), ACCOUNTS as usize);
    let copy = open(&varve_device::MemoryDirectory::from_images(directory.images()));
    is_sound(&copy);
    let def = copy.begin(RC).catalog().table("public", "t").unwrap();
    assert_eq!(all(&copy, &def).iter().map(|(_, v)| v).sum::<i32>(), SUM);
}
