//! Reads rows: by key, by range, by index.
//!
//! Invariants
//! 1. A row that the store returns is checked before a column of it is read.

use std::ops::ControlFlow;
use std::sync::Arc;

use varve_memory::{Direction, KeyRange};

use super::keys::row_id;
use super::merge::Wanted;
use super::{MemoryStore, merge};
use crate::catalog::IndexId;
use crate::context::Context;
use crate::core::Core;
use crate::error::Result;
use crate::partitions::{StoredTable, StoredTables};
use crate::row::RowRef;
use crate::row_access::{OnRow, ScanIndex, ScanSpec};

/// The number of rows between two checks of a scan whether the statement was cancelled.
const CANCEL_ROWS: u32 = 256;

impl MemoryStore {
    /// Checks the stored bytes of a row, and returns the row.
    pub(super) fn row<'r>(&'r self, bytes: &'r [u8]) -> Result<RowRef<'r>> {
        Ok(RowRef::checked(&self.schema, bytes)?)
    }

    pub(super) fn read_row(
        &self,
        cx: &mut Context,
        key: &[u8],
        found: &mut dyn FnMut(RowRef<'_>),
    ) -> Result<bool> {
        let Some(at) = self.table_of_key(0, key, key.len()) else { return Ok(false) };
        if !self.reach(cx, at)? {
            return Ok(false);
        }
        let Context { core, buffers, .. } = cx;
        let is_there = core.partitions.read(at.partition)?.get(at.table, 0, key, &mut buffers.row)?;
        if is_there {
            found(self.split(&buffers.row)?.0);
        }
        Ok(is_there)
    }

    pub(super) fn read_unique(
        &self,
        cx: &mut Context,
        index: IndexId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8], RowRef<'_>),
    ) -> Result<bool> {
        let number = self.index_number(index)?;
        let Some(at) = self.table_of_key(number, key, key.len()) else { return Ok(false) };
        if !self.reach(cx, at)? {
            return Ok(false);
        }
        let Context { core, buffers, .. } = cx;
        if !core.partitions.read(at.partition)?.get(at.table, number, key, &mut buffers.row)? {
            return Ok(false);
        }
        let (row, id) = self.split(&buffers.row)?;
        buffers.key.clear();
        self.push_primary_key(row, id, &mut buffers.key)?;
        found(&buffers.key, row);
        Ok(true)
    }

    pub(super) fn read_range(
        &self,
        cx: &mut Context,
        spec: &ScanSpec<'_>,
        on_row: &mut OnRow<'_>,
    ) -> Result<()> {
        let number = match spec.index {
            ScanIndex::Primary => 0,
            ScanIndex::Secondary(id) => self.index_number(id)?,
        };
        let direction = if spec.reverse { Direction::Backward } else { Direction::Forward };
        let range = KeyRange { from: spec.lower, to: spec.upper };
        let wanted = Wanted { index: number, range, direction };
        let tables = self.reach_range(cx, &wanted)?;
        let core = Arc::clone(&cx.core);
        let (mut failed, mut until_check) = (None, 0);
        let (mut primary, mut last) = (std::mem::take(&mut cx.buffers.key), Vec::new());
        let scanned = scan_stores(&core, &tables, &wanted, &mut |key, stored| {
            if until_check == 0 {
                failed = cx.check_cancel().err();
                until_check = CANCEL_ROWS;
            }
            until_check -= 1;
            let outcome = match failed.take() {
                Some(error) => Err(error),
                None if number == 0 => self.split(stored).and_then(|(row, _)| on_row(key, row)),
                None => self.show(stored, &mut primary, on_row),
            };
            let flow = outcome.unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            });
            if flow.is_break() {
                last.extend_from_slice(key);
            }
            flow
        });
        match number {
            0 => cx.buffers.key = last,
            _ => (cx.buffers.key, cx.buffers.entry) = (primary, last),
        }
        scanned?;
        failed.map_or(Ok(()), Err)
    }

    /// Locks the partitions of a range. Returns the tables that can have its rows.
    fn reach_range(&self, cx: &mut Context, wanted: &Wanted<'_>) -> Result<StoredTables> {
        let only = self.table_of_range(wanted.index, wanted.range.from, wanted.range.to);
        let others = if only.is_none() { self.table_count() } else { 0 };
        let mut reached = StoredTables::new();
        for at in only.into_iter().chain(self.tables().take(others as usize)) {
            if self.reach(cx, at)? {
                reached.push(at);
            }
        }
        Ok(reached)
    }

    /// Passes on a row that was found through a secondary index.
    fn show(&self, stored: &[u8], primary: &mut Vec<u8>, on_row: &mut OnRow<'_>) -> Result<ControlFlow<()>> {
        let (row, id) = self.split(stored)?;
        primary.clear();
        self.push_primary_key(row, id, primary)?;
        on_row(primary, row)
    }

    /// Returns the largest row id in any store, or 0. The partitions need not be locked for this, because no
    /// row gets an id before the largest one is known.
    pub(super) fn last_row_id(&self, core: &Core) -> Result<u64> {
        let mut last = 0;
        for at in self.tables() {
            let store = core.partitions.read(at.partition)?;
            store.scan(at.table, 0, &KeyRange::ALL, Direction::Backward, &mut |key, _| {
                last = last.max(row_id(key).unwrap_or(0));
                ControlFlow::Break(())
            })?;
        }
        Ok(last)
    }
}

/// Reads a range in one or several stores.
fn scan_stores(
    core: &Core,
    tables: &[StoredTable],
    wanted: &Wanted<'_>,
    on_row: &mut varve_memory::OnRow<'_>,
) -> Result<()> {
    let [at] = tables else { return merge::scan(core, tables.iter().copied(), wanted, on_row) };
    let store = core.partitions.read(at.partition)?;
    Ok(store.scan(at.table, wanted.index, &wanted.range, wanted.direction, on_row)?)
}
