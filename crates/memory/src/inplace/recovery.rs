//! A start: the checkpoint, then the committed transactions of the log.
//!
//! Invariants
//! 1. Records of a transaction are applied only when its commit was read.
//!
//! What it does not know: the format of records and checkpoints.

use super::checkpoint;
use super::heap::Heap;
use super::record::Record;
use crate::files::Files;
use crate::pointer::{Owner, Pointer};
use crate::store::TABLES_MAX;
use crate::store_error::{StoreError, StoreResult};
use crate::wal::Wal;

/// Fills an empty heap with what the files have; the log to go on with.
pub(super) fn recover(heap: &mut Heap, mut files: Files) -> StoreResult<Wal> {
    let found = checkpoint::read(&mut files)?;
    let mut rest = &found.records[..];
    while !rest.is_empty() {
        let decoded = Record::decode(rest).ok_or(damaged("a record of a checkpoint"))?;
        apply(heap, &decoded.record)?;
        rest = decoded.rest;
    }
    let log = Wal::open(files, found.log)?;
    replay(heap, &log.read()?)?;
    Ok(log)
}

fn damaged(what: &'static str) -> StoreError {
    StoreError::Damaged { what, at: Pointer::NONE }
}

fn replay(heap: &mut Heap, bytes: &[u8]) -> StoreResult<()> {
    let (mut rest, mut transaction) = (bytes, Vec::new());
    while !rest.is_empty() {
        let decoded = Record::decode(rest).ok_or(damaged("a record of the log"))?;
        rest = decoded.rest;
        match decoded.record {
            Record::Commit => {
                for record in transaction.drain(..) {
                    apply(heap, &record)?;
                }
                heap.remove_emptied()?;
            }
            record => transaction.push(record),
        }
    }
    Ok(())
}

/// Repeats a change. Every one succeeded before, so an answer that differs is damage.
fn apply(heap: &mut Heap, record: &Record<'_>) -> StoreResult<()> {
    let missing = || damaged("the log, which changes a row that is not there");
    match record {
        Record::CreateTable { table, owner, indexes } => {
            let owner = Owner::new(*owner).ok_or(damaged("the owner of a table"))?;
            let is_free = heap.table(*table).is_err() && usize::from(table.0) < TABLES_MAX;
            heap.next_table(owner, *indexes)?;
            match is_free {
                true => heap.add_table(*table, owner, *indexes),
                false => Err(damaged("the log, which makes a table twice")),
            }
        }
        Record::Insert { table, keys, row } => {
            heap.check(*table, keys, row)?;
            heap.insert(*table, keys, row).map(drop)
        }
        Record::Replace { table, keys, row, .. } => {
            heap.check(*table, keys, row)?;
            let key = keys.first().copied().unwrap_or_default();
            let old = heap.find(*table, key)?.ok_or_else(missing)?;
            heap.replace(*table, keys, row, old)?;
            heap.free(old)
        }
        Record::Patch { table, key, at, after, .. } => {
            let tuple = heap.find(*table, key)?.ok_or_else(missing)?;
            heap.patch(tuple, *at, after)
        }
        Record::Delete { table, key, .. } => {
            let tuple = heap.find(*table, key)?.ok_or_else(missing)?;
            heap.remove(*table, tuple)?;
            heap.free(tuple)
        }
        Record::DropTable { table } => heap.drop_table(*table),
        Record::Commit => Ok(()),
    }
}
