//! Merges runs into one run. All entries of a key become one entry.
//!
//! A merge works in bounded steps, in the thread of its partition. Between two steps, transactions run. The
//! runs that are merged do not change, so the positions of the cursors stay valid.
//!
//! Invariants
//! 1. Tombstones are left out only if no run is older than the merged ones. Otherwise the tombstones still
//!    have to hide entries of older runs.
//!
//! This module does not know which runs to merge (`levels.rs`), or how the result becomes a valid run of the
//! store.

use super::entry::{EntryBuffer, Kind};
use super::key::{SearchKey, TableId};
use super::media::{MediaMut, damaged};
use super::run::Run;
use super::view::{MergingCursors, RowBuffers};
use super::writer::{Output, RunWriter, WrittenRun};
use crate::store::Direction;
use crate::store_error::StoreResult;

/// A merge under way.
pub(crate) struct Merge {
    cursors: MergingCursors,
    writer: RunWriter,
    is_lowest: bool,
    buffers: RowBuffers,
    row: Vec<u8>,
    extra: Vec<u8>,
    merged: EntryBuffer,
}

impl Merge {
    /// Begins a merge of runs, which are sorted, newest first. `is_lowest` says that no run is older than
    /// these runs.
    pub(crate) fn begin(
        media: &MediaMut<'_>,
        runs: &[&Run],
        output: Output,
        is_lowest: bool,
    ) -> StoreResult<Merge> {
        let keys = runs.iter().map(|run| run.keys).sum();
        Ok(Merge {
            cursors: MergingCursors::at_begin(&media.media(), runs.iter().copied())?,
            writer: RunWriter::new(output, keys),
            is_lowest,
            buffers: RowBuffers::default(),
            row: Vec::new(),
            extra: Vec::new(),
            merged: EntryBuffer::default(),
        })
    }

    /// Merges at least this many bytes of entries. Returns whether the end is reached. `is_kept` says which
    /// tables exist. Entries of other tables are left out.
    ///
    /// Errors: the region is full. Then the merge has to be given up.
    pub(crate) fn step(
        &mut self,
        media: &mut MediaMut<'_>,
        is_kept: impl Fn(TableId) -> bool,
        mut bytes: u64,
    ) -> StoreResult<bool> {
        loop {
            if !self.cursors.next(&media.media(), Direction::Forward, &mut self.buffers)? {
                return Ok(true);
            }
            let read = self.buffers.entries.iter().map(|entry| entry.head.entry_bytes() as u64).sum::<u64>();
            if self.buffers.entries.first().is_some_and(|entry| is_kept(entry.head.table)) {
                self.merge_key(media)?;
            }
            bytes = bytes.saturating_sub(read);
            if bytes == 0 {
                return Ok(false);
            }
        }
    }

    /// Writes the one entry that the entries of a key become.
    fn merge_key(&mut self, media: &mut MediaMut<'_>) -> StoreResult<()> {
        let (Some(newest), Some(oldest)) = (self.buffers.entries.first(), self.buffers.entries.last()) else {
            return Ok(());
        };
        let (newest, oldest) = (*newest, *oldest);
        let key = SearchKey::whole(&self.cursors.key);
        self.merged.clear();
        match (newest.head.kind, oldest.head.kind) {
            (Kind::Tombstone, _) if self.is_lowest => {}
            (Kind::Tombstone, _) => self.merged.add_tombstone(&key),
            (Kind::Reference, _) => {
                newest.value(&media.media(), &mut self.extra)?;
                self.merged.add_reference(&key, &self.extra);
            }
            (_, Kind::Row) => {
                self.buffers.row(&media.media(), &mut self.row)?;
                oldest.secondary(&media.media(), &mut self.extra)?;
                self.merged.add_encoded_row(&key, &self.extra, &self.row);
            }
            (Kind::Patch, Kind::Patch) => {
                self.row.clear();
                for patch in self.buffers.entries.iter().rev() {
                    patch.value(&media.media(), &mut self.extra)?;
                    self.row.extend_from_slice(&self.extra);
                }
                self.merged.add_pieces(&key, &newest.head, &self.row);
            }
            _ => return Err(damaged("the entries of a row", oldest.at)),
        }
        self.merged.iter().try_for_each(|entry| self.writer.add(media, entry))
    }

    /// Writes the end of the run. Returns `None` if the run has no entries, because all of them were left
    /// out.
    pub(crate) fn finish(self, media: &mut MediaMut<'_>) -> StoreResult<Option<WrittenRun>> {
        self.writer.finish(media)
    }
}
