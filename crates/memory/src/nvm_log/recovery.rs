//! Takes changes back: for a rollback, for a savepoint, and at a start.
//!
//! Invariants
//! 1. Entries of the log are undone newest first.
//! 2. Undoing an entry a second time changes nothing. Undoing an entry whose change never began changes
//!    nothing either. So recovery can be repeated after a crash.
//! 3. To undo a change, no room in the region is needed.
//!
//! This module does not know how changes are made (`store.rs`).

use crate::lsm::memtable::{self, MemTable};
use crate::space::Space;
use crate::store_error::StoreResult;
use crate::undo_log::{Kind, UndoLog};

/// The parts of a store that are needed to undo changes.
pub(super) struct Undo<'s> {
    pub(super) space: &'s Space,
    pub(super) memtable: &'s MemTable,
    pub(super) log: &'s mut UndoLog,
}

impl Undo<'_> {
    /// Undoes all entries, and ends the transaction.
    pub(super) fn roll_back(&mut self) -> StoreResult<()> {
        if self.log.len() == 0 {
            return Ok(());
        }
        for number in (0..self.log.len()).rev() {
            self.undo(number)?;
        }
        self.space.fence();
        self.log.end(self.space)
    }

    /// Undoes the newest entry and removes it from the log, because the transaction stays open.
    pub(super) fn undo_last(&mut self) -> StoreResult<()> {
        let Some(number) = self.log.len().checked_sub(1) else { return Ok(()) };
        self.undo(number)?;
        self.space.fence();
        if let Some(word) = self.log.last_word(self.space)? {
            self.space.store_word(word, 0);
            self.space.fence();
        }
        self.log.forget_last();
        Ok(())
    }

    fn undo(&mut self, number: usize) -> StoreResult<()> {
        let Some(entry) = self.log.entry(number) else { return Ok(()) };
        match entry.kind {
            // If the checksum differs, the crash came when the undo entry was durable but not the node. Then
            // the node was not linked yet.
            Kind::Insert if memtable::checksum_at(self.space, entry.tuple) != Some(entry.checksum) => Ok(()),
            Kind::Insert => self.memtable.unlink(self.space, entry.tuple),
            Kind::Replace => self.memtable.set_newest(self.space, entry.tuple, entry.old),
            Kind::Patch => {
                let before = self.log.before(self.space, number)?;
                self.memtable.restore(self.space, entry.tuple, before)
            }
            Kind::Delete => Ok(()),
        }
    }
}
