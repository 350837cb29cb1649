//! YCSB as Arulraj, Pavlo and Dulloor (2015, section 5.1) run it: transactions that read a tuple or change
//! one column of it, in four mixes, with a hotspot in each partition.
//!
//! | mix | reads | updates |
//! |---|---:|---:|
//! | read-only | 100 % | 0 % |
//! | read-heavy | 90 % | 10 % |
//! | balanced | 50 % | 50 % |
//! | write-heavy | 10 % | 90 % |
//!
//! | skew | transactions | tuples |
//! |---|---:|---:|
//! | low | 50 % | the first 20 % |
//! | high | 90 % | the first 10 % |
//!
//! The other transactions are on the other tuples. A tuple has a key of 8 bytes and ten columns of 100 bytes.
//!
//! Invariants
//! 1. The same seed gives the same transactions on every machine, and to every engine.
//! 2. The texts of columns are drawn before a run. So a run does not measure random numbers.
//!
//! This module does not know engines.

use std::collections::HashMap;
use std::ops::ControlFlow;

use varve_bench::random::Random;
use varve_bench::{BenchError, Result};
use varve_memory::{Direction, KeyRange, Store, TableNo};

use super::load::{Ending, PartitionLoad, Worker, refused};
use super::partition::table_owner;

/// The number of columns of a tuple, without its key.
pub const COLUMNS: u64 = 10;
/// Bytes of a column.
pub const COLUMN_BYTES: usize = 100;
const KEY_BYTES: usize = 8;
/// Bytes of a tuple.
pub const TUPLE_BYTES: usize = KEY_BYTES + COLUMNS as usize * COLUMN_BYTES;
/// The number of random letters from which the values of columns are cut.
const TEXT_BYTES: usize = 1 << 20;
/// The number of tuples that one transaction of the load inserts.
const LOADED_TOGETHER: u64 = 100;
const TABLE: TableNo = TableNo::new(0);

/// A mix of reads and updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// The name of the mix.
    pub name: &'static str,
    /// The percentage of transactions that read. The others update.
    pub reads_percent: u64,
}

/// The four mixes of the paper.
pub const MIXES: [Mix; 4] = [
    Mix { name: "read-only", reads_percent: 100 },
    Mix { name: "read-heavy", reads_percent: 90 },
    Mix { name: "balanced", reads_percent: 50 },
    Mix { name: "write-heavy", reads_percent: 10 },
];

/// How transactions concentrate on a part of the tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    /// The name of the skew.
    pub name: &'static str,
    /// The percentage of transactions that use hot tuples.
    pub hot_transactions_percent: u64,
    /// The percentage of tuples that are hot.
    pub hot_tuples_percent: u64,
}

/// The two skews of the paper.
pub const SKEWS: [Skew; 2] = [
    Skew { name: "low", hot_transactions_percent: 50, hot_tuples_percent: 20 },
    Skew { name: "high", hot_transactions_percent: 90, hot_tuples_percent: 10 },
];

/// What a transaction does to its tuple.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// The transaction reads the whole tuple.
    Nothing,
    /// The transaction stores a text in a column. The text begins at this place of the random letters.
    Column { number: u8, text_at: u32 },
}

/// A transaction: the key of its tuple, and what it does to the tuple.
#[derive(Debug, Clone, Copy)]
struct Operation {
    key: u64,
    change: Change,
}

/// The load of one partition.
pub struct Ycsb {
    tuples: u64,
    texts: Vec<u8>,
    operations: Vec<Operation>,
}

impl Ycsb {
    /// Draws transactions on this number of tuples.
    pub fn new(mix: Mix, skew: Skew, tuples: u64, transactions: usize, seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let texts = (0..TEXT_BYTES).map(|_| b'a' + random.below(26) as u8).collect();
        let hot = (tuples * skew.hot_tuples_percent / 100).clamp(1, tuples);
        let mut operation = || {
            let is_hot = random.below(100) < skew.hot_transactions_percent || hot == tuples;
            let key = if is_hot { random.below(hot) } else { hot + random.below(tuples - hot) };
            let change = match random.below(100) < mix.reads_percent {
                true => Change::Nothing,
                false => {
                    Change::Column { number: random.below(COLUMNS) as u8, text_at: text_at(&mut random) }
                }
            };
            Operation { key, change }
        };
        let operations = (0..transactions).map(|_| operation()).collect();
        Self { tuples, texts, operations }
    }

    fn text(&self, at: u32) -> &[u8] {
        let from = at as usize;
        self.texts.get(from..from + COLUMN_BYTES).unwrap_or_default()
    }

    /// Writes the tuple with this key, as the load inserts it.
    fn tuple(&self, key: u64, row: &mut Vec<u8>) {
        row.clear();
        row.extend_from_slice(&key.to_be_bytes());
        let mut random = Random::seeded(key);
        for _ in 0..COLUMNS {
            row.extend_from_slice(self.text(text_at(&mut random)));
        }
    }

    /// Returns the number of transactions that a store has. It has at least `least` of them. Transactions
    /// commit in their order. So the last transaction whose change is stored shows the number.
    /// [`PartitionLoad::check`] must confirm it.
    ///
    /// Errors: the store refuses; a tuple is missing.
    pub fn committed(&self, store: &dyn Store, least: usize) -> Result<usize> {
        let mut tuple = Vec::with_capacity(TUPLE_BYTES);
        for (number, operation) in self.operations.iter().enumerate().skip(least).rev() {
            let Change::Column { number: column, text_at } = operation.change else { continue };
            read(store, operation.key, &mut tuple)?;
            let stored = tuple.get(column_at(column)..).and_then(|rest| rest.get(..COLUMN_BYTES));
            if stored == Some(self.text(text_at)) {
                return Ok(number + 1);
            }
        }
        Ok(least)
    }

    /// Returns the places of the texts that the first `transactions` transactions left, by key and column.
    fn changed(&self, transactions: usize) -> HashMap<(u64, u8), u32> {
        let mut changed = HashMap::new();
        for operation in self.operations.iter().take(transactions) {
            if let Change::Column { number, text_at } = operation.change {
                changed.insert((operation.key, number), text_at);
            }
        }
        changed
    }
}

/// Copies the tuple with this key.
///
/// Errors: the store refuses; there is no such tuple.
pub fn read(store: &dyn Store, key: u64, tuple: &mut Vec<u8>) -> Result<()> {
    match store.get(TABLE, 0, &key.to_be_bytes(), tuple).map_err(refused)? && tuple.len() == TUPLE_BYTES {
        true => Ok(()),
        false => Err(BenchError::Wrong(format!("there is no whole tuple {key}"))),
    }
}

/// Draws the place at which a text begins.
fn text_at(random: &mut Random) -> u32 {
    random.below((TEXT_BYTES - COLUMN_BYTES) as u64) as u32
}

/// Returns the offset of a column in a tuple.
fn column_at(number: u8) -> usize {
    KEY_BYTES + usize::from(number) * COLUMN_BYTES
}

impl PartitionLoad for Ycsb {
    fn load(&self, store: &mut dyn Store) -> Result<()> {
        store.create_table(table_owner(0)?, 1).map_err(refused)?;
        let mut row = Vec::with_capacity(TUPLE_BYTES);
        for key in 0..self.tuples {
            self.tuple(key, &mut row);
            store.insert(TABLE, &[&key.to_be_bytes()], &row).map_err(refused)?;
            if key % LOADED_TOGETHER == LOADED_TOGETHER - 1 {
                store.commit().map_err(refused)?;
                store.sync().map_err(refused)?;
            }
        }
        store.commit().map_err(refused).map(drop)
    }

    fn transactions(&self) -> usize {
        self.operations.len()
    }

    fn worker(&self) -> Box<dyn Worker + '_> {
        Box::new(YcsbWorker { load: self, row: Vec::with_capacity(TUPLE_BYTES) })
    }

    fn check(&self, store: &dyn Store, transactions: usize) -> Result<()> {
        let changed = self.changed(transactions);
        let (mut expected, mut next, mut wrong) = (Vec::with_capacity(TUPLE_BYTES), 0, None);
        let mut on_row = |_: &[u8], row: &[u8]| {
            self.tuple(next, &mut expected);
            for number in 0..COLUMNS as u8 {
                let column =
                    expected.get_mut(column_at(number)..).and_then(|rest| rest.get_mut(..COLUMN_BYTES));
                if let (Some(column), Some(text_at)) = (column, changed.get(&(next, number))) {
                    column.copy_from_slice(self.text(*text_at));
                }
            }
            if row != expected {
                wrong = Some(next);
                return ControlFlow::Break(());
            }
            next += 1;
            ControlFlow::Continue(())
        };
        store.scan(TABLE, 0, &KeyRange::ALL, Direction::Forward, &mut on_row).map_err(refused)?;
        match wrong {
            Some(key) => Err(BenchError::Wrong(format!("tuple {key} is not what its updates left"))),
            None if next != self.tuples => {
                Err(BenchError::Wrong(format!("{next} tuples of {}", self.tuples)))
            }
            None => Ok(()),
        }
    }
}

/// A worker that runs the transactions of a partition.
struct YcsbWorker<'l> {
    load: &'l Ycsb,
    row: Vec<u8>,
}

impl Worker for YcsbWorker<'_> {
    fn execute(&mut self, number: usize, store: &mut dyn Store) -> Result<Ending> {
        let Some(Operation { key, change }) = self.load.operations.get(number).copied() else {
            return Err(BenchError::Arguments(format!("there is no transaction {number}")));
        };
        let is_there = match change {
            Change::Nothing => {
                let is_there = store.get(TABLE, 0, &key.to_be_bytes(), &mut self.row).map_err(refused)?;
                is_there && self.row.len() == TUPLE_BYTES
            }
            Change::Column { number, text_at } => {
                let text = self.load.text(text_at);
                store.patch(TABLE, &key.to_be_bytes(), column_at(number), text).map_err(refused)?
            }
        };
        match is_there {
            true => Ok(Ending::Commit),
            false => Err(BenchError::Wrong(format!("there is no whole tuple {key}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program of the paper's authors had another skew than the paper states. Here the skew is the
    /// paper's.
    #[test]
    fn the_hotspot_gets_the_part_that_the_paper_says() {
        for skew in SKEWS {
            let load = Ycsb::new(MIXES[2], skew, 1000, 100_000, 1);
            let hot = 1000 * skew.hot_tuples_percent / 100;
            let on_hot = load.operations.iter().filter(|operation| operation.key < hot).count() as u64;
            assert!(on_hot.abs_diff(1000 * skew.hot_transactions_percent) < 1000, "{skew:?}: {on_hot}");
            let largest = load.operations.iter().map(|operation| operation.key).max();
            assert_eq!(largest, Some(999));
        }
    }

    #[test]
    fn mixes_have_their_updates_and_a_seed_its_transactions() {
        for mix in MIXES {
            let of = |seed| Ycsb::new(mix, SKEWS[0], 1000, 10_000, seed);
            let load = of(7);
            let updates = load.changed(10_000);
            let drawn =
                load.operations.iter().filter(|one| matches!(one.change, Change::Column { .. })).count();
            assert!((drawn as u64).abs_diff(100 * (100 - mix.reads_percent)) < 200, "{mix:?}: {drawn}");
            assert_eq!(updates, of(7).changed(10_000));
            assert!(drawn == 0 || updates != of(8).changed(10_000));
        }
    }
}
