//! Reads the contents of a recovered database into a model. After a crash, the workload continues from this
//! model.
//!
//! Invariants
//! 1. The model has the same digest as the recovered contents, because the search compares digests.
//!
//! Transactions that the crash ended are not in the model.

use std::sync::Arc;

use varve_engine::{Database, Isolation, TableDef};

use super::{NUMBERED, SCHEMA, SESSIONS, catalog, family, text};
use crate::model::{Model, TableModel, hash_row};

/// Reads all contents.
pub(super) fn read(db: &Arc<Database>) -> Result<Model, String> {
    let mut txn = db.begin(Isolation::ReadCommitted);
    txn.start_statement();
    let facts = catalog::facts(&txn.catalog()).into_iter().collect();
    let mut model = Model { facts, ..Model::default() };
    let tables: Vec<Arc<TableDef>> = txn.catalog().tables().cloned().collect();
    for def in tables.iter().filter(|def| def.schema == SCHEMA) {
        let mut table = TableModel::default();
        for (id, row) in family::rows(&mut txn, def)? {
            let hash = hash_row(&def.name, id, row.group, row.balance, &row.body);
            table.rows.insert(id, (row, hash));
        }
        table.indexes.extend(def.indexes.iter().map(|index| index.name.clone()));
        model.tables.insert(def.name.clone(), table);
    }
    txn.commit().map_err(text)?;
    Ok(model)
}

/// Returns the last number of a key that each session has made.
pub(super) fn last_keys(model: &Model) -> [u64; SESSIONS] {
    let mut last = [0; SESSIONS];
    let tables = model.tables.iter().filter(|(name, _)| *name != NUMBERED);
    for id in tables.flat_map(|(_, table)| table.rows.keys()) {
        let (slot, number) = (*id as usize % SESSIONS, *id as u64 / SESSIONS as u64);
        last[slot] = number.max(last[slot]);
    }
    last
}
