//! Takes changes back: for a rollback, for a savepoint, and at a start.
//!
//! ```text
//!            commit, tuples to free            all freed
//!   open ────────────────────────> committed ───────────> open (next number)
//!     │  set_phase                              end            ^
//!     │  undo all entries, newest first                        │ end
//!     └──────────────────────────> undone ─────────────────────┘
//!        set_phase                     new tuples freed
//! ```
//!
//! Invariants
//! 1. Entries are undone newest first.
//! 2. Undoing an entry a second time changes nothing. Undoing an entry whose change never began changes
//!    nothing either. So recovery can be repeated after a crash.
//! 3. To undo a change, no room in the region is needed: a removed entry still has its slot (`removed.rs`).
//!
//! This module does not know how changes are made (`store.rs`).

use super::index::SearchKey;
use super::removed::RemovedEntries;
use super::tables::Tables;
use crate::pointer::Pointer;
use crate::publish::Step;
use crate::space::{OwnedChunk, Space};
use crate::store::TableNo;
use crate::store_error::StoreResult;
use crate::tuple::{self, TupleHead};
use crate::undo_log::{Kind, Phase, UndoEntry, UndoLog};

/// The parts of a store that are needed to undo changes.
pub(super) struct Undo<'s> {
    pub(super) space: &'s Space,
    pub(super) tables: &'s Tables,
    pub(super) log: &'s mut UndoLog,
    /// The withheld slots; `None` at a start.
    pub(super) removed: Option<&'s mut RemovedEntries>,
}

/// The tuples in the log entries that have to be freed at the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Garbage {
    /// The tuples that the transaction made.
    New,
    /// The tuples that the transaction removed.
    Old,
}

impl Undo<'_> {
    /// Finishes at a start what the phase of the log requires.
    pub(super) fn recover(&mut self) -> StoreResult<()> {
        match self.log.phase() {
            Phase::Open if self.log.len() == 0 => Ok(()),
            Phase::Open => self.roll_back(),
            Phase::Committed => self.free(Garbage::Old),
            Phase::Undone => self.free(Garbage::New),
        }
    }

    /// Undoes all entries, and ends the transaction.
    pub(super) fn roll_back(&mut self) -> StoreResult<()> {
        for number in (0..self.log.len()).rev() {
            self.undo(number)?;
        }
        self.space.fence();
        match self.has(Garbage::New) {
            true => {
                self.log.set_phase(self.space, Phase::Undone)?;
                self.free(Garbage::New)
            }
            false => self.log.end(self.space),
        }
    }

    /// Ends a committed transaction, durably. Its changes are durable already.
    pub(super) fn finish_commit(&mut self) -> StoreResult<()> {
        match self.has(Garbage::Old) {
            true => {
                self.log.set_phase(self.space, Phase::Committed)?;
                self.free(Garbage::Old)
            }
            false => self.log.end(self.space),
        }
    }

    /// Undoes the entries after the first `kept` ones, newest first. Each entry is removed from the log
    /// before the next one is undone, because the transaction stays open and may add entries.
    pub(super) fn roll_back_to(&mut self, kept: usize) -> StoreResult<()> {
        while self.log.len() > kept {
            let number = self.log.len() - 1;
            self.undo(number)?;
            self.space.fence();
            let Some(word) = self.log.last_word(self.space)? else { break };
            let entry = self.log.entry(number);
            match entry.and_then(|entry| garbage_of(&entry, Garbage::New)) {
                Some(tuple) => {
                    let end = Step::Store { word, value: 0 };
                    self.space.allocator().publish(&[Step::Free(tuple), end])?;
                }
                None => {
                    self.space.store_word(word, 0);
                    self.space.fence();
                }
            }
            self.log.forget_last();
        }
        Ok(())
    }

    fn has(&self, garbage: Garbage) -> bool {
        self.log.entries().any(|entry| garbage_of(entry, garbage).is_some())
    }

    fn free(&mut self, garbage: Garbage) -> StoreResult<()> {
        self.free_garbage(garbage)?;
        self.log.end(self.space)
    }

    fn free_garbage(&self, garbage: Garbage) -> StoreResult<()> {
        let owned = |entry: &UndoEntry| {
            let Some(pointer) = garbage_of(entry, garbage) else { return Ok(None) };
            let owner = self.tables.table(TableNo(entry.table))?.owner;
            Ok(Some(OwnedChunk { pointer, owner }))
        };
        let mut chunks = self.log.entries().map(owned).filter_map(StoreResult::transpose);
        let (Some(first), second) = (chunks.next().transpose()?, chunks.next()) else { return Ok(()) };
        if second.is_none() {
            return self.space.free_allocated(&[first]);
        }
        let all = std::iter::once(Ok(first)).chain(second).chain(chunks);
        self.space.free_allocated(&all.collect::<StoreResult<Vec<OwnedChunk>>>()?)
    }

    fn undo(&mut self, number: usize) -> StoreResult<()> {
        let Some(entry) = self.log.entry(number) else { return Ok(()) };
        match entry.kind {
            Kind::Insert if self.is_whole(&entry) => self.exchange_all(&entry, entry.tuple, Pointer::NONE),
            Kind::Replace if self.is_whole(&entry) => self.exchange_all(&entry, entry.tuple, entry.old),
            // If the tuple is not whole, the crash came when the entry was durable but not the tuple. Then
            // the change had not begun.
            Kind::Insert | Kind::Replace => Ok(()),
            Kind::Delete => self.exchange_all(&entry, Pointer::NONE, entry.tuple),
            Kind::Patch => {
                let before = self.log.before(self.space, number)?;
                self.space.store_back(entry.tuple, 0, before)
            }
        }
    }

    fn is_whole(&self, entry: &UndoEntry) -> bool {
        let mut bytes = Vec::new();
        tuple::head_checksum(self.space, entry.tuple, &mut bytes) == Some(entry.checksum)
    }

    /// Changes all indexes, so that they lead to the tuple `back` and not to `gone`. Either of the two may be
    /// `NONE`.
    fn exchange_all(&mut self, entry: &UndoEntry, gone: Pointer, back: Pointer) -> StoreResult<()> {
        let tables = self.tables;
        let table = tables.table(TableNo(entry.table))?;
        let (mut gone_key, mut back_key) = (Vec::new(), Vec::new());
        for index in &table.indexes {
            let mut had = None;
            if !gone.is_none() {
                TupleHead::read(self.space, gone)?.key(self.space, gone, index.number, &mut gone_key)?;
                index.forget(&gone_key, gone);
                had = index.find_tuple(self.space, &SearchKey::of(&gone_key), gone)?;
            }
            if !back.is_none() {
                TupleHead::read(self.space, back)?.key(self.space, back, index.number, &mut back_key)?;
            }
            match had {
                Some(slot) if !back.is_none() && gone_key == back_key => {
                    index.exchange(self.space, &slot, back)?;
                    continue;
                }
                Some(slot) => drop(index.set_valid(self.space, &slot, false)?),
                None => {}
            }
            if !back.is_none() {
                let key = SearchKey::of(&back_key);
                index.put_back(self.space, &key, back, self.removed.as_deref_mut())?;
            }
        }
        Ok(())
    }
}

fn garbage_of(entry: &UndoEntry, garbage: Garbage) -> Option<Pointer> {
    match (entry.kind, garbage) {
        (Kind::Insert | Kind::Replace, Garbage::New) | (Kind::Delete, Garbage::Old) => Some(entry.tuple),
        (Kind::Replace, Garbage::Old) => Some(entry.old),
        _ => None,
    }
}
