//! YCSB as Arulraj, Pavlo and Dulloor (2015, section 5.1) run it, with low skew: half of the transactions are
//! on the first fifth of the rows. A transaction reads a whole row, or changes one of its ten columns.
//!
//! Invariants
//! 1. The same numbers of rows and transactions give the same transactions, for every database on every
//!    machine. They are those of the experiments of `varve-lab` with the same seed.
//!
//! This module does not know databases.

use std::collections::HashMap;
use std::fmt;

/// Bytes of a key.
pub const KEY_BYTES: usize = 8;
/// Bytes of a column.
pub const COLUMN_BYTES: usize = 100;
const COLUMNS: usize = 10;
/// Bytes of a row, with its key.
pub const ROW_BYTES: usize = KEY_BYTES + COLUMNS * COLUMN_BYTES;
/// Letters from which columns are cut.
const TEXT_BYTES: usize = 1 << 20;
const HOT_TRANSACTIONS_PERCENT: u64 = 50;
const HOT_ROWS_PERCENT: u64 = 20;
const SEED: u64 = 1;

/// A mixture of reads and updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mix {
    /// Percentage of transactions that read; the others update.
    pub reads_percent: u64,
}

impl fmt::Display for Mix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.reads_percent, 100 - self.reads_percent)
    }
}

/// The four mixtures of the paper.
pub const MIXES: [Mix; 4] = [
    Mix { reads_percent: 100 },
    Mix { reads_percent: 90 },
    Mix { reads_percent: 50 },
    Mix { reads_percent: 10 },
];

/// SplitMix64 (Steele, Lea, Flood 2014), as in the crate `bench` of the workspace.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns the offset at which a text begins.
    fn text_at(&mut self) -> u32 {
        self.below((TEXT_BYTES - COLUMN_BYTES) as u64) as u32
    }
}

/// A column, and the offset of the text that is stored in it.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    column: u8,
    text_at: u32,
}

/// A transaction: it reads the row with a key, or changes it.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The key.
    pub key: u64,
    /// The change of the row, or `None` for a read.
    pub change: Option<Change>,
}

/// Rows, and the transactions of one mix.
pub struct Workload {
    /// The mix.
    pub mix: Mix,
    rows: u64,
    texts: Vec<u8>,
    operations: Vec<Operation>,
}

impl Workload {
    /// Draws transactions over this number of rows.
    pub fn new(mix: Mix, rows: u64, transactions: usize) -> Workload {
        let mut random = Random(SEED);
        let texts = (0..TEXT_BYTES).map(|_| b'a' + random.below(26) as u8).collect();
        let hot = (rows * HOT_ROWS_PERCENT / 100).clamp(1, rows);
        let mut operation = || {
            let is_hot = random.below(100) < HOT_TRANSACTIONS_PERCENT || hot == rows;
            let key = if is_hot { random.below(hot) } else { hot + random.below(rows - hot) };
            let is_read = random.below(100) < mix.reads_percent;
            let mut change =
                || Change { column: random.below(COLUMNS as u64) as u8, text_at: random.text_at() };
            Operation { key, change: (!is_read).then(&mut change) }
        };
        let operations = (0..transactions).map(|_| operation()).collect();
        Workload { mix, rows, texts, operations }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of transactions.
    pub fn transactions(&self) -> usize {
        self.operations.len()
    }

    /// Returns the transactions.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    fn text(&self, at: u32) -> &[u8] {
        let from = at as usize;
        &self.texts[from..from + COLUMN_BYTES]
    }

    /// Writes the row with a key into `row`, as it is loaded.
    pub fn row(&self, key: u64, row: &mut Vec<u8>) {
        row.clear();
        row.extend_from_slice(&key.to_be_bytes());
        let mut random = Random(key);
        for _ in 0..COLUMNS {
            row.extend_from_slice(self.text(random.text_at()));
        }
    }

    /// Returns the offset of a change in its row, and the bytes that the change stores.
    pub fn patch(&self, change: Change) -> (usize, &[u8]) {
        (KEY_BYTES + usize::from(change.column) * COLUMN_BYTES, self.text(change.text_at))
    }

    /// Makes a change in a row.
    pub fn apply(&self, change: Change, row: &mut [u8]) {
        let (at, text) = self.patch(change);
        row[at..at + text.len()].copy_from_slice(text);
    }
}

/// The last changes of columns, by key and column.
pub struct Left(HashMap<(u64, u8), Change>);

/// Returns the last changes of several mixes that run one after the other.
pub fn left_by(loads: &[Workload]) -> Left {
    let operations = loads.iter().flat_map(|load| load.operations());
    let changed = |operation: &Operation| {
        let change = operation.change?;
        Some(((operation.key, change.column), change))
    };
    Left(operations.filter_map(changed).collect())
}

impl Left {
    /// Applies the last changes to a loaded row.
    pub fn apply(&self, load: &Workload, key: u64, row: &mut [u8]) {
        for column in 0..COLUMNS as u8 {
            if let Some(change) = self.0.get(&(key, column)) {
                load.apply(*change, row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_and_the_hotspot_have_their_shares() {
        for mix in MIXES {
            let load = Workload::new(mix, 1000, 100_000);
            let reads = load.operations().iter().filter(|one| one.change.is_none()).count() as u64;
            assert!(reads.abs_diff(1000 * mix.reads_percent) < 1000, "{mix}: {reads} reads");
            // Half of the transactions are hot, and no other one is on a hot row.
            let hot = load.operations().iter().filter(|one| one.key < 200).count() as u64;
            assert!(hot.abs_diff(50_000) < 1000, "{mix}: {hot} on hot rows");
        }
    }

    #[test]
    fn the_last_change_of_a_column_is_left() {
        let load = Workload::new(MIXES[3], 10, 1000);
        let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
        load.row(3, &mut one_by_one);
        load.row(3, &mut at_once);
        let changes = load.operations().iter().filter(|one| one.key == 3).filter_map(|one| one.change);
        changes.for_each(|change| load.apply(change, &mut one_by_one));
        let before = at_once.clone();
        left_by(std::slice::from_ref(&load)).apply(&load, 3, &mut at_once);
        assert_eq!(at_once, one_by_one);
        assert_ne!(at_once, before);
    }
}
