//! The start of a store: after the manifest is read, the committed transactions of the log are replayed.
//!
//! Invariants
//! 1. Entries of a transaction are added only when its commit was read.
//!
//! This module does not know the formats of manifest and entries.

use super::record;
use crate::lsm::memtable::MemTable;
use crate::pointer::Pointer;
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// Adds the entries of all committed transactions of a log to a MemTable.
///
/// Errors: a record is damaged, or the region is full.
pub(super) fn replay(space: &Space, memtable: &mut MemTable, bytes: &[u8]) -> StoreResult<()> {
    let damaged = StoreError::Damaged { what: "a record of the log", at: Pointer::NONE };
    let (mut rest, mut transaction) = (bytes, Vec::new());
    while !rest.is_empty() {
        let decoded = record::decode(rest).ok_or_else(|| damaged.clone())?;
        rest = decoded.rest;
        if !decoded.body.is_empty() {
            transaction.push(decoded.body);
            continue;
        }
        for entry in transaction.drain(..) {
            memtable.reserve(space, std::iter::once(entry))?;
            let planned = memtable.plan(space, entry)?;
            memtable.apply(space, &planned, entry)?;
        }
    }
    Ok(())
}
