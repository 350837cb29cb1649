//! Checkpoints of a packed space's page map, and discards of pages whose content is not needed any more.
//!
//! ```text
//!    close the gate, lock settling --> copy the map that a crash would find, at log end E --> open the gate
//!      --> flush the log to E --> write map pages to their unused places --> write the head {number, E}
//! ```
//!
//! Invariants
//! 1. The copy has exactly what the log up to E says. While the gate is closed, no thread is between
//!    appending a log record and changing the book.
//! 2. The log is durable up to E before a head names the copy. So a crash can't undo a discard that is in the
//!    copy.
//! 3. A crash before the head is written finds the previous checkpoint.
//!
//! This module does not know when the log is cut (`needs_log_from` gives the LSN from which the log is
//! needed).

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{planted, reached};

use super::PackedSpace;
use super::map_file::Checkpoint;
use crate::base::error::Result;
use crate::base::ids::PageRange;
use crate::base::lsn::Lsn;
use crate::log::notes::discards::{self, NOTE_DISCARD};
use crate::log::{GROUP_SLACK_BYTES, record};

/// A checkpoint of the map is due when the log since the last one exceeds one part in this number of the log.
const LOG_SHARE: u64 = 8;
/// A checkpoint is also due when this many map pages are dirty.
pub(super) const DIRTY_MAX: usize = 4096;

impl PackedSpace {
    /// Takes a checkpoint of the map if the log since the last one is long. If a full device refuses it, the
    /// log is kept longer.
    pub(super) fn checkpoint_map_if_due(&self) -> Result<()> {
        let since = self.log.end().since(self.map_file.head().after);
        let dirty_count = self.book.lock().dirty().len();
        if since <= self.log.cleaning_bytes() / LOG_SHARE && dirty_count < DIRTY_MAX {
            return Ok(());
        }
        self.checkpoint_map()
    }

    /// Takes a checkpoint of the map.
    pub(super) fn checkpoint_map(&self) -> Result<()> {
        let gate = self.gate.close();
        let _settling = self.settling.lock();
        self.log.check()?;
        let log_from = self.log.block_start();
        let copy = self.copy(log_from);
        drop(gate);
        if !planted("packed: the map checkpoint forgets the log's flush") {
            self.log.flush(copy.after)?;
        }
        self.map_file.checkpoint(&copy).inspect_err(|_| {
            self.book.lock().give_back_dirty(copy.pages.iter().map(|page| page.number).collect());
        })?;
        self.log_from.advance(log_from);
        self.counters.map_checkpoints.fetch_add(1, Relaxed);
        reached("packed: map checkpoint");
        Ok(())
    }

    fn copy(&self, log_from: Lsn) -> Checkpoint {
        let before = self.map_file.head().map_pages;
        let mut book = self.book.lock();
        let after = self.log.end();
        let (pages, map_pages) = book.copy(self.map_file.next_checkpoint(), before);
        Checkpoint { pages, map_pages, log_from, after }
    }

    /// Removes discarded pages. Their content is not needed any more once the log is durable up to `after`.
    ///
    /// If the space is cut, `after` is zero, and no log record says so. Then a crash before the shorter
    /// length is durable would find these pages where other pages are by then. So the discard is logged here.
    /// If the log has no space for the record, the pages keep their slots.
    pub(super) fn forget(&self, ids: PageRange, after: Lsn) {
        if after == Lsn::ZERO && !self.names_any(ids) {
            return;
        }
        let first = ids.first.no().0;
        let mut book = self.book.lock();
        let is_noted = after > Lsn::ZERO || planted("packed: a cut gives its slots back without a note");
        let after = match is_noted {
            true => Some(after),
            false => self.note_discard(ids),
        };
        after.into_iter().for_each(|after| book.discard(first..first + ids.count, after));
    }

    /// Returns whether any of the pages has a place.
    pub(super) fn names_any(&self, ids: PageRange) -> bool {
        ids.pages().any(|id| self.map.load(id.no()).is_some())
    }

    /// Makes the log records of all discards durable. Without them, a crash after the file was shortened
    /// would find pages beyond its end.
    pub(super) fn flush_discards(&self) -> Result<()> {
        let last = self.book.lock().last_grave();
        if let Some(after) = last.filter(|_| !planted("packed: a shorter length is durable before its notes"))
        {
            self.log.flush(after)?;
        }
        Ok(())
    }

    fn note_discard(&self, ids: PageRange) -> Option<Lsn> {
        let mut records = Vec::new();
        record::put_note(&mut records, NOTE_DISCARD, &discards::encode(&[ids]));
        let has_room =
            self.log.check().is_ok() && self.log.has_segment_for(records.len() + GROUP_SLACK_BYTES);
        has_room.then(|| self.log.append_note(&records).end)
    }
}
