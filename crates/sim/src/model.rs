//! A model of the contents that the database must have. The workload on the engine maintains it.
//!
//! Invariants
//! 1. The digest is the XOR of one hash for each table, index and row, so it does not depend on their order.
//!
//! Open transactions are not in the model. Each one keeps a list of its changes ([`Effect`]) until it
//! commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::rng::Rng;

/// A row of a test table, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Column `grp`, the column of the secondary indexes.
    pub group: i32,
    /// Column `balance`.
    pub balance: i64,
    /// Column `body`, of any length.
    pub body: Arc<str>,
}

/// A table of the workload.
#[derive(Debug, Clone, Default)]
pub struct TableModel {
    /// Rows by key, each with its hash.
    pub rows: BTreeMap<i64, (Row, u64)>,
    /// Names of secondary indexes.
    pub indexes: BTreeSet<String>,
}

/// All committed tables.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Tables by name.
    pub tables: BTreeMap<String, TableModel>,
    /// Other facts in the catalog, by name. The name of a fact about a table begins with the name of the
    /// table and `/`.
    pub facts: BTreeMap<String, String>,
}

/// One change made by a transaction.
#[derive(Debug, Clone)]
pub enum Effect {
    /// The row exists with this content.
    Put(String, i64, Row),
    /// The row does not exist.
    Remove(String, i64),
    /// A table was made.
    CreateTable(String),
    /// A table was dropped.
    DropTable(String),
    /// A table was emptied.
    Truncate(String),
    /// An index of a table was made.
    CreateIndex(String, String),
    /// An index of a table was dropped.
    DropIndex(String, String),
    /// A fact in the catalog; `None` means that it does not exist.
    Fact(String, Option<String>),
}

/// Returns the hash of bytes (FNV-1a, then mixed).
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Rng::new(bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, step)).draw()
}

/// Returns the hash of a row of a table.
pub fn hash_row(table: &str, id: i64, group: i32, balance: i64, body: &str) -> u64 {
    let numbers = [id as u64, group as u64, balance as u64];
    numbers.iter().fold(hash_bytes(hash_bytes(1, table.as_bytes()), body.as_bytes()), |hash, number| {
        Rng::new(hash ^ number.rotate_left(17)).draw()
    })
}

/// Returns the hash for the existence of a table or an index.
pub fn hash_name(kind: &str, name: &str) -> u64 {
    hash_bytes(hash_bytes(2, kind.as_bytes()), name.as_bytes())
}

/// Returns a random text of this length.
pub fn body(rng: &mut Rng, len: usize) -> Arc<str> {
    let word = format!("{:016x}", rng.draw());
    word.chars().cycle().take(len).collect::<String>().into()
}

impl Model {
    /// Applies one change of a committed transaction.
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::CreateTable(table) => drop(self.tables.insert(table.clone(), TableModel::default())),
            Effect::DropTable(table) => {
                self.tables.remove(table);
                let own = format!("{table}/");
                self.facts.retain(|thing, _| !thing.starts_with(&own));
            }
            Effect::Fact(thing, Some(so)) => drop(self.facts.insert(thing.clone(), so.clone())),
            Effect::Fact(thing, None) => drop(self.facts.remove(thing)),
            Effect::Put(table, id, row) => {
                let hash = hash_row(table, *id, row.group, row.balance, &row.body);
                self.change(table, |table| drop(table.rows.insert(*id, (row.clone(), hash))));
            }
            Effect::Remove(table, id) => self.change(table, |table| drop(table.rows.remove(id))),
            Effect::Truncate(table) => self.change(table, |table| table.rows.clear()),
            Effect::CreateIndex(table, index) => {
                self.change(table, |table| _ = table.indexes.insert(index.clone()));
            }
            Effect::DropIndex(table, index) => {
                self.change(table, |table| _ = table.indexes.remove(index));
            }
        }
    }

    fn change(&mut self, table: &str, change: impl FnOnce(&mut TableModel)) {
        if let Some(table) = self.tables.get_mut(table) {
            change(table);
        }
    }

    /// Returns the digest of the whole model.
    pub fn digest(&self) -> u64 {
        let of_table = |(name, table): (&String, &TableModel)| {
            let rows = table.rows.values().map(|(_, hash)| *hash);
            let indexes = table.indexes.iter().map(|index| hash_name("index", index));
            rows.chain(indexes).fold(hash_name("table", name), |sum, one| sum ^ one)
        };
        let facts = self.facts.iter().map(|(thing, so)| hash_name(thing, so));
        self.tables.iter().map(of_table).chain(facts).fold(0, |sum, one| sum ^ one)
    }
}
