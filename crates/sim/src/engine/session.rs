//! A session of the workload: its open transaction, what the transaction has done, and which rows it should
//! see.
//!
//! Invariants
//! 1. `effects` lists the transaction's changes in order, without the changes that were rolled back.
//! 2. Under REPEATABLE READ a session sees the rows that were committed at its first statement, and its own
//!    changes.
//!
//! This module does not know which other transactions have committed. The worker passes the committed state.

use std::ops::ControlFlow;
use std::sync::Arc;

use varve_engine::{
    ColumnDef, ColumnType, Datum, LeafLayout, NewTable, PrimaryKey, RowRef, ScanIndex, ScanSpec,
    StorageOptions, Table, TableDef, Transaction,
};

use super::{SCHEMA, text};
use crate::model::{Effect, Model, Row, hash_row};
use crate::search::WRONG;

/// A transaction in progress.
pub(super) struct Session {
    pub(super) txn: Transaction,
    pub(super) effects: Vec<Effect>,
    snapshot: Option<Model>,
}

impl Session {
    pub(super) fn new(txn: Transaction) -> Session {
        Session { txn, effects: Vec::new(), snapshot: None }
    }

    /// Begins a statement.
    pub(super) fn start(&mut self, committed: &Model) {
        self.txn.start_statement();
        if self.txn.isolation().keeps_snapshot() && self.snapshot.is_none() {
            self.snapshot = Some(committed.clone());
        }
    }

    /// Returns the row that this session should see.
    pub(super) fn expected<'a>(&'a self, committed: &'a Model, table: &str, id: i64) -> Option<&'a Row> {
        let own = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Put(name, key, row) if name == table && *key == id => Some(Some(row)),
            Effect::Remove(name, key) if name == table && *key == id => Some(None),
            _ => None,
        });
        let seen = self.snapshot.as_ref().unwrap_or(committed);
        own.unwrap_or_else(|| seen.tables.get(table)?.rows.get(&id).map(|(row, _)| row))
    }

    /// Returns the XOR of the hashes of the rows that this session should see in a table.
    pub(super) fn expected_sum(&self, committed: &Model, table: &str) -> u64 {
        let seen = self.snapshot.as_ref().unwrap_or(committed);
        let mut rows = seen.tables.get(table).map(|table| table.rows.clone()).unwrap_or_default();
        for effect in &self.effects {
            match effect {
                Effect::Put(name, id, row) if name == table => {
                    let hash = hash_row(table, *id, row.group, row.balance, &row.body);
                    rows.insert(*id, (row.clone(), hash));
                }
                Effect::Remove(name, id) if name == table => _ = rows.remove(id),
                _ => {}
            }
        }
        rows.values().fold(0, |sum, (_, hash)| sum ^ hash)
    }

    pub(super) fn table(&mut self, name: &str) -> Result<Arc<Table>, String> {
        let missing = || format!("{WRONG}: table {name} is not in the catalog");
        let def = self.txn.catalog().table(SCHEMA, name).ok_or_else(missing)?;
        self.txn.table(&def).map_err(text)
    }
}

/// Returns the key of a row.
pub(super) fn key(def: &TableDef, id: i64) -> Vec<u8> {
    let mut key = Vec::new();
    def.push_key(&mut key, 0, &Datum::Int8(id));
    key
}

/// The number of columns of a new test table.
pub(super) const COLUMNS: usize = 4;

/// Returns the columns of a row.
pub(super) fn data(id: i64, row: &Row) -> [Datum<'_>; COLUMNS] {
    [Datum::Int8(id), Datum::Int4(row.group), Datum::Int8(row.balance), Datum::Text(&row.body)]
}

/// Returns the columns of a row, for a table that may have more columns.
pub(super) fn data_of<'a>(def: &TableDef, id: i64, row: &'a Row) -> Vec<Datum<'a>> {
    let more = def.columns.len().saturating_sub(COLUMNS);
    data(id, row).into_iter().chain(std::iter::repeat_n(Datum::Null, more)).collect()
}

/// Returns the id and the row in a stored row, or an error.
pub(super) fn stored(row: RowRef<'_>) -> Result<(i64, Row), String> {
    match (row.get(0), row.get(1), row.get(2), row.get(3)) {
        (Datum::Int8(id), Datum::Int4(group), Datum::Int8(balance), Datum::Text(body)) => {
            Ok((id, Row { group, balance, body: body.into() }))
        }
        other => Err(format!("{WRONG}: a row has the columns {other:?}")),
    }
}

/// Returns the primary key of a test table.
pub(super) fn primary_key(table: &str) -> PrimaryKey {
    PrimaryKey { name: format!("{table}_pkey"), columns: vec![0] }
}

/// Returns a test table. The name decides whether the leaves of the table are stored by columns.
pub(super) fn new_table(name: &str, primary_key: Option<PrimaryKey>) -> NewTable {
    let column = |name, column_type| ColumnDef { not_null: true, ..ColumnDef::new(name, column_type) };
    let columns = vec![
        column("id", ColumnType::Int8),
        column("grp", ColumnType::Int4),
        column("balance", ColumnType::Int8),
        column("body", ColumnType::Text),
    ];
    let is_by_columns = name.bytes().fold(0, |sum, byte| sum ^ byte.count_ones()) % 2 == 1;
    let layout = if is_by_columns { LeafLayout::ByColumns } else { LeafLayout::ByRows };
    let storage = StorageOptions { layout, ..StorageOptions::default() };
    NewTable { primary_key, storage, ..NewTable::new(SCHEMA, name, columns) }
}

/// Scans a table. Returns the XOR of the hashes of all rows, and the largest id.
pub(super) fn scan(txn: &mut Transaction, table: &Table, index: ScanIndex) -> Result<(u64, i64), String> {
    let name = &table.def().name;
    let (mut sum, mut largest, mut wrong) = (0, i64::MIN, None);
    let spec = ScanSpec { index, reverse: index != ScanIndex::Primary, ..ScanSpec::ALL };
    let mut on_row = |_: &[u8], row: RowRef<'_>| {
        match stored(row) {
            Ok((id, row)) => {
                sum ^= hash_row(name, id, row.group, row.balance, &row.body);
                largest = largest.max(id);
            }
            Err(what) => wrong = Some(what),
        }
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, &spec, &mut on_row).map_err(text)?;
    wrong.map_or(Ok((sum, largest)), Err)
}
