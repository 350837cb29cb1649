//! Changes of a table's form: a new table in the store, into which the rows are copied.
//!
//! Invariants
//! 1. The old table stays as it is. The transaction gives it up, and its commit drops it.
//!
//! This module does not know the catalog.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use varve_memory::{Direction, KeyRange};

use super::MemoryStore;
use super::keys::push_row_id;
use crate::catalog::{NewTable, TableDef};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::partitions::StoredTable;
use crate::reshape::Reshape;
use crate::row_access::{OnRow, ScanSpec};

/// The approximate size of the pieces in which rows are copied, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Stored rows (each with its row id, if it has one) that will be copied, and the key of the last one.
#[derive(Default)]
struct Piece {
    rows: Vec<Vec<u8>>,
    last: Vec<u8>,
    bytes: usize,
}

/// Fails with 0A000 if CREATE TABLE asks for something that these engines do not have.
pub(crate) fn refuse_kinds(new: &NewTable, engine: &str) -> Result<()> {
    match new.storage.compression {
        Some(_) => {
            Err(Error::Unsupported { what: format!("WITH (compression) for a table of engine {engine}") })
        }
        None => Ok(()),
    }
}

impl MemoryStore {
    /// Makes a table for `def` in the same partition and copies the rows. `columns` says where each column
    /// comes from, if the columns change. The new table becomes the table of `def`.
    pub(crate) fn rebuild(
        &self,
        cx: &mut Context,
        def: &mut TableDef,
        mut columns: Option<Reshape<'_, '_>>,
    ) -> Result<()> {
        cx.replace_stored_tables(def)?;
        let core = Arc::clone(&cx.core);
        let target = MemoryStore::open(&core, &Arc::new(def.clone()));
        for at in self.tables() {
            let mut piece = Piece::default();
            while self.next_piece(cx, at, &mut piece)? {
                for stored in piece.rows.drain(..) {
                    target.copy(cx, self, &stored, columns.as_mut())?;
                }
            }
        }
        Ok(())
    }

    /// Reads the rows of a store after the last one of the piece. Returns false if there are none.
    fn next_piece(&self, cx: &Context, at: StoredTable, piece: &mut Piece) -> Result<bool> {
        cx.check_cancel()?;
        let last = std::mem::take(&mut piece.last);
        let from = if last.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*last) };
        let range = KeyRange { from, to: Bound::Unbounded };
        piece.bytes = 0;
        cx.core.partitions.read(at.partition)?.scan(
            at.table,
            0,
            &range,
            Direction::Forward,
            &mut |key, stored| {
                piece.bytes += stored.len();
                piece.rows.push(stored.to_vec());
                if piece.bytes < PIECE_BYTES {
                    return ControlFlow::Continue(());
                }
                piece.last.extend_from_slice(key);
                ControlFlow::Break(())
            },
        )?;
        let is_last = piece.last.is_empty();
        if is_last {
            // No key is larger than this one, so the next call finds nothing.
            piece.last.push(u8::MAX);
        }
        Ok(!piece.rows.is_empty())
    }

    /// Inserts a row of the old table.
    fn copy(
        &self,
        cx: &mut Context,
        source: &MemoryStore,
        stored: &[u8],
        columns: Option<&mut Reshape<'_, '_>>,
    ) -> Result<()> {
        let (row, id) = source.split(stored)?;
        let mut bytes = match columns {
            Some(columns) => columns.apply(row, &self.schema)?.into_bytes(),
            None => row.as_bytes().to_vec(),
        };
        match (&self.def.primary_key, id.is_empty()) {
            (Some(_), _) => {}
            (None, false) => bytes.extend_from_slice(id),
            (None, true) => {
                let at = self.table_of_row(self.row(&bytes)?);
                push_row_id(&mut bytes, self.new_row_id(&cx.core, at)?);
            }
        }
        let at = self.table_of_row(self.split(&bytes)?.0);
        cx.begin_store_write(&self.def, at)?;
        self.insert_at(cx, at, &bytes)
    }

    /// Fails with 23502 if a row has NULL in the column.
    pub(crate) fn refuse_nulls(&self, cx: &mut Context, column: usize) -> Result<()> {
        let name = self.def.columns.get(column).map_or("", |column| &column.name).to_owned();
        let on_row: &mut OnRow<'_> = &mut |_, row| match row.get(column).is_null() {
            true => Err(Error::NullInKey { table: self.def.name.clone(), column: name.clone() }),
            false => Ok(ControlFlow::Continue(())),
        };
        self.read_range(cx, &ScanSpec::ALL, on_row)
    }
}
