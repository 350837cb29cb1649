//! Random transactions, compared with a model: commits, rollbacks, savepoints, failed statements, restarts.

use std::collections::BTreeMap;

use varve_engine::{Error, Outcome, ScanIndex};

use super::*;

/// Rows by their keys.
type Model = BTreeMap<i32, i32>;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: i32) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % limit as u64) as i32
    }
}

/// Runs one random statement, and checks its result against the model.
fn step(txn: &mut Transaction, def: &TableDef, model: &mut Model, random: &mut Random) {
    txn.start_statement();
    let (id, v) = (random.below(40), random.below(1000));
    let is_taken = |model: &Model, v: i32, but: i32| model.iter().any(|(id, has)| *has == v && *id != but);
    match random.below(5) {
        0 | 1 => {
            let is_refused = model.contains_key(&id) || is_taken(model, v, -1);
            match put(txn, def, id, v) {
                Ok(()) => assert!(!is_refused && model.insert(id, v).is_none()),
                Err(Error::UniqueViolation { .. }) => assert!(is_refused),
                Err(other) => panic!("{other}"),
            }
        }
        2 => {
            let is_refused = model.contains_key(&id) && is_taken(model, v, id);
            match update(txn, def, id, |_| v) {
                Ok(outcome) => {
                    assert_eq!(outcome == Outcome::Changed, model.contains_key(&id));
                    model.entry(id).and_modify(|has| *has = v);
                }
                Err(Error::UniqueViolation { .. }) => assert!(is_refused),
                Err(other) => panic!("{other}"),
            }
        }
        3 => {
            let to = random.below(40);
            match rekey(txn, def, id, to) {
                Ok(outcome) => {
                    assert_eq!(outcome == Outcome::Changed, model.contains_key(&id));
                    if let Some(v) = model.remove(&id) {
                        assert_eq!(model.insert(to, v), None);
                    }
                }
                Err(Error::UniqueViolation { .. }) => assert!(model.contains_key(&to) && id != to),
                Err(other) => panic!("{other}"),
            }
        }
        _ => {
            let outcome = delete(txn, def, id).unwrap();
            assert_eq!(outcome == Outcome::Changed, model.remove(&id).is_some());
        }
    }
}

fn compare(txn: &mut Transaction, def: &TableDef, model: &Model) {
    txn.start_statement();
    let by_key: Vec<_> = rows_by(txn, def, ScanIndex::Primary);
    assert_eq!(by_key, model.iter().map(|(id, v)| (*id, *v)).collect::<Vec<_>>());
    let mut by_v = rows_by(txn, def, ScanIndex::Secondary(def.indexes[0].id));
    assert!(by_v.is_sorted_by_key(|(_, v)| *v));
    by_v.sort_unstable();
    assert_eq!(by_v, by_key);
}

fn rows_by(txn: &mut Transaction, def: &TableDef, index: ScanIndex) -> Vec<(i32, i32)> {
    use std::ops::ControlFlow;
    use varve_engine::ScanSpec;
    let table = table(txn, def);
    let mut rows = Vec::new();
    txn.scan(&table, &ScanSpec { index, ..ScanSpec::ALL }, &mut |_, row| {
        rows.push((int(row.get(0)), int(row.get(1))));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    rows
}

fn live(engine: &str, seed: u64) {
    let (directory, mut database) = empty(1);
    let def = make(&database, "t", engine);
    let mut def = index_on_v(&database, &def, "t_v", true);
    let (mut model, mut random) = (Model::new(), Random(seed));
    for _ in 0..60 {
        let mut txn = begin(&database, RC);
        let mut now = model.clone();
        for _ in 0..random.below(8) {
            step(&mut txn, &def, &mut now, &mut random);
        }
        if random.below(3) == 0 {
            let (savepoint, before) = (txn.savepoint(), now.clone());
            for _ in 0..random.below(6) {
                step(&mut txn, &def, &mut now, &mut random);
            }
            txn.rollback_to(savepoint).unwrap();
            now = before;
        }
        if random.below(3) == 0 {
            let before = now.clone();
            step(&mut txn, &def, &mut now, &mut random);
            txn.rollback_statement().unwrap();
            now = before;
        }
        compare(&mut txn, &def, &now);
        match random.below(4) {
            0 => txn.rollback().unwrap(),
            _ => {
                txn.commit().unwrap();
                model = now;
            }
        }
        if random.below(12) == 0 {
            drop(database);
            database = open_in(&directory, 1).unwrap();
            def = find(&database, "t");
        }
    }
    is_sound(&database);
}

#[test]
fn random_transactions_do_what_the_model_does() {
    for engine in ENGINES {
        (1..=6).for_each(|seed| live(engine, seed));
    }
}
