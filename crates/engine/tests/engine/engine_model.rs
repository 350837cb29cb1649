//! Compares several transactions, which run in turn in both isolation levels, with a model. The comparison
//! covers visible rows, refused changes and their reasons, savepoints, rollbacks, purge, large rows and
//! restarts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::common::Random;
use crate::database::{RC, RR, by_v, create, create_by_columns, fresh, index_on_v, is_sound, open, pk};
use varve_device::MemoryDirectory;
use varve_engine::{
    Change, Database, Datum, Isolation, Outcome, Result, RowImage, RowRef, SavepointId, ScanSpec, Shown,
    TableDef, Transaction,
};

const IDS: usize = 120;
const VALUES: usize = 40;

type Rows = BTreeMap<i32, i32>;

/// What a transaction has changed. `None` is a deleted row.
type Own = BTreeMap<i32, Option<i32>>;

struct Session {
    txn: Transaction,
    isolation: Isolation,
    own: Own,
    /// The rows that the transaction has locked or changed, until it ends. A rollback to a savepoint unlocks
    /// some of them.
    touched: Own,
    savepoints: Vec<(SavepointId, Own, Own)>,
    /// Under REPEATABLE READ: the rows at the first statement, and the number of commits until then.
    base: Option<(Rows, u64)>,
}

#[derive(Default)]
struct Model {
    rows: Rows,
    commits: u64,
    changed_at: HashMap<i32, u64>,
}

struct Run {
    directory: Arc<MemoryDirectory>,
    database: Arc<Database>,
    def: Arc<TableDef>,
    model: Model,
    sessions: Vec<Session>,
    random: Random,
    seen: [u64; 4],
}

/// Returns the text of a row. One in twenty texts needs an overflow chain.
fn note(id: i32, v: i32) -> String {
    let unit = format!("{id}/{v} ");
    unit.repeat(if v % 20 == 0 { 3000 } else { (id % 7) as usize })
}

fn check_row(row: RowRef<'_>) -> (i32, i32) {
    let (Datum::Int4(id), Datum::Int4(v), Datum::Text(text)) = (row.get(0), row.get(1), row.get(2)) else {
        panic!("a row of other types");
    };
    assert_eq!(text, note(id, v), "the text of row {id}");
    (id, v)
}

impl Session {
    fn visible(&mut self, model: &Model) -> Rows {
        let mut rows = match self.isolation {
            Isolation::ReadCommitted => model.rows.clone(),
            Isolation::RepeatableRead | Isolation::Serializable => {
                self.base.get_or_insert_with(|| (model.rows.clone(), model.commits)).0.clone()
            }
        };
        for (id, v) in &self.own {
            match v {
                Some(v) => rows.insert(*id, *v),
                None => rows.remove(id),
            };
        }
        rows
    }
}

impl Run {
    /// Odd seeds have a table with leaves by columns.
    fn new(seed: u64) -> Self {
        let (directory, database) = fresh();
        let def =
            if seed.is_multiple_of(2) { create(&database, "t") } else { create_by_columns(&database, "t") };
        let def = index_on_v(&database, &def, "t_v", false);
        let (model, random) = (Model::default(), Random::new(seed));
        Self { directory, database, def, model, sessions: vec![], random, seen: [0; 4] }
    }

    fn step(&mut self) {
        if self.sessions.len() < 4 && self.random.below(4) == 0 {
            self.begin();
        }
        if self.random.below(20) == 0 {
            self.database.tick().unwrap();
        }
        if self.sessions.is_empty() {
            return;
        }
        let which = self.random.below(self.sessions.len());
        match self.random.below(24) {
            0 => self.commit(which),
            1 => self.rollback(which),
            2..=3 => self.savepoint(which),
            4 => self.rollback_to(which),
            5..=9 => self.read(which),
            10..=12 => self.read_all(which),
            13..=17 => self.insert(which),
            _ => self.modify(which),
        }
    }

    fn begin(&mut self) {
        let isolation = if self.random.below(2) == 0 { RC } else { RR };
        let mut txn = self.database.begin(isolation);
        txn.set_lock_timeout(Some(Duration::ZERO));
        let (own, touched) = (Own::new(), Own::new());
        self.sessions.push(Session { txn, isolation, own, touched, savepoints: vec![], base: None });
    }

    fn commit(&mut self, which: usize) {
        let session = self.sessions.swap_remove(which);
        session.txn.commit().unwrap();
        self.model.commits += 1;
        for (id, v) in session.own {
            self.model.changed_at.insert(id, self.model.commits);
            match v {
                Some(v) => self.model.rows.insert(id, v),
                None => self.model.rows.remove(&id),
            };
        }
    }

    fn rollback(&mut self, which: usize) {
        self.sessions.swap_remove(which).txn.rollback().unwrap();
    }

    fn savepoint(&mut self, which: usize) {
        let session = &mut self.sessions[which];
        let id = session.txn.savepoint();
        session.savepoints.push((id, session.own.clone(), session.touched.clone()));
    }

    fn rollback_to(&mut self, which: usize) {
        let session = &mut self.sessions[which];
        if session.savepoints.is_empty() {
            return;
        }
        let at = self.random.below(session.savepoints.len());
        session.savepoints.truncate(at + 1);
        let (id, own, touched) = session.savepoints[at].clone();
        session.txn.rollback_to(id).unwrap();
        (session.own, session.touched) = (own, touched);
    }

    fn read(&mut self, which: usize) {
        let session = &mut self.sessions[which];
        let id = self.random.below(IDS) as i32;
        session.txn.start_statement();
        let expected = session.visible(&self.model).get(&id).copied();
        let table = session.txn.table(&self.def).unwrap();
        let mut found = None;
        session.txn.get(&table, &pk(id), &mut |row| found = Some(check_row(row).1)).unwrap();
        assert_eq!(found, expected, "row {id}");
    }

    fn read_all(&mut self, which: usize) {
        let session = &mut self.sessions[which];
        session.txn.start_statement();
        let expected = session.visible(&self.model);
        let reverse = self.random.below(2) == 0;
        let table = session.txn.table(&self.def).unwrap();
        let mut found = Vec::new();
        session
            .txn
            .scan(&table, &ScanSpec { reverse, ..ScanSpec::ALL }, &mut |_, row| {
                found.push(check_row(row));
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .unwrap();
        let mut by_leaves = Vec::new();
        let scanned = session.txn.reader().scan_leaves(
            &table,
            &ScanSpec { reverse, ..ScanSpec::ALL },
            &[],
            &mut |shown| {
                match shown {
                    Shown::Row(_, row) => by_leaves.push(check_row(row)),
                    Shown::Leaf(rows) => {
                        let mut spare = Vec::new();
                        by_leaves.extend(rows.numbers().iter().map(|n| check_row(rows.row(*n, &mut spare))));
                    }
                }
                Ok(std::ops::ControlFlow::Continue(()))
            },
        );
        scanned.unwrap();
        assert_eq!(by_leaves, found);
        if reverse {
            found.reverse();
        }
        assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>());
        let v = self.random.below(VALUES) as i32;
        let mut wanted: Vec<_> = expected.into_iter().filter(|row| row.1 == v).collect();
        wanted.sort_unstable();
        assert_eq!(by_v(&mut session.txn, &self.def, v), wanted, "value {v} through the index");
    }

    fn insert(&mut self, which: usize) {
        let (id, v) = (self.random.below(IDS) as i32, self.random.below(VALUES) as i32);
        let session = &mut self.sessions[which];
        session.txn.start_statement();
        session.visible(&self.model);
        let table = session.txn.table(&self.def).unwrap();
        let text = note(id, v);
        let outcome = session.txn.insert(&table, &[Datum::Int4(id), Datum::Int4(v), Datum::Text(&text)]);
        match outcome {
            Ok(()) => {
                assert!(!self.newest(which).contains_key(&id), "row {id} was there already");
                assert!(!self.is_held(which, id));
                self.note_change(which, id, Some(v));
            }
            Err(error) => self.refused(which, id, error.sqlstate()),
        }
    }

    fn modify(&mut self, which: usize) {
        let (id, v) = (self.random.below(IDS) as i32, self.random.below(VALUES) as i32);
        let what = self.random.below(4);
        let session = &mut self.sessions[which];
        session.txn.start_statement();
        session.visible(&self.model);
        let table = session.txn.table(&self.def).unwrap();
        let mut before = None;
        let outcome: Result<Outcome> = session.txn.modify(&table, &pk(id), &mut |row| {
            before = Some(check_row(row).1);
            Ok(match what {
                0 => Change::Delete,
                1 => Change::Lock(varve_engine::LockStrength::Update),
                _ => {
                    let text = note(id, v);
                    let data = [Datum::Int4(id), Datum::Int4(v), Datum::Text(&text)];
                    Change::Replace(RowImage::encode(row.schema(), &data)?)
                }
            })
        });
        let newest = self.newest(which).get(&id).copied();
        match outcome {
            Ok(Outcome::Missing) => assert_eq!(newest, None, "row {id}"),
            Ok(_) => {
                assert_eq!(before, newest, "row {id} as modify saw it");
                assert!(!self.is_held(which, id));
                match what {
                    0 => self.note_change(which, id, None),
                    1 => _ = self.sessions[which].touched.entry(id).or_default(),
                    _ => self.note_change(which, id, Some(v)),
                }
            }
            Err(error) => self.refused(which, id, error.sqlstate()),
        }
    }

    fn note_change(&mut self, which: usize, id: i32, v: Option<i32>) {
        let session = &mut self.sessions[which];
        session.own.insert(id, v);
        session.touched.insert(id, v);
        self.seen[0] += 1;
    }

    /// Returns the rows as a writer sees them: committed, or changed by itself.
    fn newest(&self, which: usize) -> Rows {
        let mut rows = self.model.rows.clone();
        for (id, v) in &self.sessions[which].own {
            match v {
                Some(v) => rows.insert(*id, *v),
                None => rows.remove(id),
            };
        }
        rows
    }

    fn is_held(&self, which: usize, id: i32) -> bool {
        let others = self.sessions.iter().enumerate().filter(|(at, _)| *at != which);
        others.into_iter().any(|(_, session)| session.touched.contains_key(&id))
    }

    fn refused(&mut self, which: usize, id: i32, state: &str) {
        match state {
            "23505" => {
                assert!(self.newest(which).contains_key(&id), "row {id} is not there");
                self.seen[1] += 1;
            }
            "55P03" => {
                assert!(self.is_held(which, id), "nobody holds row {id}");
                self.seen[2] += 1;
            }
            "40001" => {
                let since = self.sessions[which].base.as_ref().map(|base| base.1);
                let changed = self.model.changed_at.get(&id).copied();
                assert!(changed > since && since.is_some(), "row {id} was not changed since the snapshot");
                self.seen[3] += 1;
                self.rollback(which);
            }
            other => panic!("row {id}: {other}"),
        }
    }

    fn settle(&mut self) {
        while !self.sessions.is_empty() {
            if self.random.below(2) == 0 { self.commit(0) } else { self.rollback(0) }
        }
        is_sound(&self.database);
    }

    fn reopen(&mut self) {
        self.database.shutdown().unwrap();
        self.database = open(&self.directory);
        let mut txn = self.database.begin(RC);
        self.def = txn.catalog().table("public", "t").unwrap();
    }
}

fn run(seed: u64, rounds: usize, steps: usize) {
    let mut run = Run::new(seed);
    for _ in 0..rounds {
        (0..steps).for_each(|_| run.step());
        run.settle();
        run.reopen();
        run.begin();
        run.read_all(0);
    }
    assert!(run.seen.iter().all(|count| *count > 0), "not everything happened: {:?}", run.seen);
}

#[test]
fn transactions_see_and_change_what_the_model_says() {
    (0..4).for_each(|seed| run(seed, 2, 1500));
}
