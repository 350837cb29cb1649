//! Settling makes many written pages of a packed space stable at once. After a page was written to a new
//! slot, it is *held* until the log has a durable record that names this slot. Before that, a crash would
//! find the page in its earlier slot.
//!
//! ```text
//!    take the held pages --> flush the slots --> append the log records --> flush the log
//!      --> the earlier slots die, the dirty-page table removes the pages
//! ```
//!
//! Invariants
//! 1. Both slots of a page are whole until the log records are durable. A crash before this moment finds the
//!    earlier slots, and a crash after it finds the new slots.
//! 2. If the device has no space for the log records, the pages stay held, and settling is tried again later.
//!    The `put` that wrote the pages still succeeds (`level/mod.rs`, invariant 6).
//!
//! This module does not know why pages are settled.

use std::sync::atomic::Ordering::Relaxed;

use varve_device::{DeviceError, ErrorKind, Operation, planted, reached};

use super::PackedSpace;
use super::note::{self, NOTE_MAP, NOTE_PAGES_MAX, Said};
use crate::base::error::Result;
use crate::base::lsn::Lsn;
use crate::log::{GROUP_SLACK_BYTES, record};

impl PackedSpace {
    /// Makes all held pages stable.
    pub(super) fn settle_all(&self) -> Result<()> {
        let _turn = self.settling.lock();
        self.settle_turn()
    }

    /// Settles if many pages are held and no other thread settles. A lack of space is no error, because the
    /// pages stay held.
    pub(super) fn settle_if_many(&self) -> Result<()> {
        if self.book.lock().pending_count() < self.config.held_pages_max {
            return Ok(());
        }
        let Some(_turn) = self.settling.try_lock() else { return Ok(()) };
        match self.settle_turn() {
            Err(error) if error.is_no_space() => Ok(()),
            settled => settled,
        }
    }

    /// Runs one settle. The caller holds `settling`.
    fn settle_turn(&self) -> Result<()> {
        self.log.check()?;
        {
            let mut book = self.book.lock();
            if book.pending_count() == 0 {
                return Ok(());
            }
            book.begin_settle();
        }
        if !planted("packed: noted before flushed") {
            self.file.flush().inspect_err(|_| self.book.lock().unsettle())?;
        }
        if let Some(upto) = self.append_notes()?
            && !planted("packed: the note is not flushed before pages are stable")
        {
            // A failure stops the log, and so the database. The pages stay as they are.
            self.log.flush(upto)?;
        }
        let stable = {
            let mut book = self.book.lock();
            book.bury(self.log.durable());
            book.settled()
        };
        stable.into_iter().for_each(|(no, lsn)| self.ledger.stable(self.id(no), lsn));
        self.counters.settles.fetch_add(1, Relaxed);
        reached("packed: settled");
        Ok(())
    }

    /// Appends log records with the new places. Returns the end of the last record, if there is one.
    fn append_notes(&self) -> Result<Option<Lsn>> {
        loop {
            let book = self.book.lock();
            let said = book.to_note();
            let groups: Vec<Vec<u8>> = said.chunks(NOTE_PAGES_MAX).map(|said| self.group(said)).collect();
            let lens: Vec<usize> = groups.iter().map(|group| group.len() + GROUP_SLACK_BYTES).collect();
            if lens.is_empty() || self.log.has_segments_for(&lens) {
                self.counters.noted_pages.fetch_add(said.len() as u64, Relaxed);
                return Ok(groups.iter().map(|group| self.log.append_note(group).end).last());
            }
            drop(book);
            // Other threads append meanwhile, so this may have to be repeated.
            if !self.log.make_segments_for(&lens).inspect_err(|_| self.book.lock().unsettle())? {
                self.book.lock().unsettle();
                return Err(DeviceError::new("log", Operation::Write, ErrorKind::NoSpace).into());
            }
        }
    }

    fn group(&self, said: &[Said]) -> Vec<u8> {
        let mut records = Vec::new();
        record::put_note(&mut records, NOTE_MAP, &note::encode(self.shape.space, said));
        records
    }
}
