//! The undo log of a store. Its entries say how to undo the changes of the open transaction.
//!
//! The log is a list of blocks of 8192 bytes. Every transaction fills the log from its beginning. A block
//! consists of 128 lines. The first line is the block's header:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | first block: bits 2..64 number of the transaction, bits 0..2 phase |
//! | 8 | 8 | pointer to the next block; 0 = none |
//!
//! Each other line begins with a word: bits 8..64 number of the transaction, bits 0..8 the kind of the line:
//! the first line of an entry of kind 1 to 4, a further line of an entry (5), or a jump to the next block
//! (6). After the word come 56 bytes of an entry. A line of an earlier transaction has another number, so it
//! ends the log. Bytes of a user can never look like a line, because each line begins with such a word. An
//! entry:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | crc32c of all later bytes of the entry, the kind, and the transaction's number |
//! | 4 | 2 | length of the entry in bytes |
//! | 6 | 6 | insert, replace: the new tuple; delete: the tuple; patch: position of the bytes in the region |
//! | 12 | | patch: the old bytes |
//! | 12 | 4 | insert, replace: crc32c of the new tuple's head |
//! | 16 | 8 | replace: the old tuple; else 0 |
//! | 24 | 4 | insert, replace, delete: the table |
//!
//! A patch needs no table, so an entry with 100 bytes has two lines.
//!
//! Phases: 0 = the transaction is open, or there is none; 1 = it is committed, and the tuples that it removed
//! have to be freed; 2 = it is undone, and the tuples that it made have to be freed.
//!
//! Invariants
//! 1. An entry is durable before the change that it undoes begins.
//! 2. Entries become durable one after the other, so at most the last one is not whole.
//! 3. The number of the transaction grows, and each number is used only once.
//! 4. A read of a log ends, even if the pointers of damaged blocks lead in a circle.
//!
//! This module does not know how an entry is undone (`recovery.rs`).

use crate::change_numbers::ChangeNumbers;
use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer, Word};
use crate::publish::Step;
use crate::space::Space;
use crate::store::Savepoint;
use crate::store_error::{StoreError, StoreResult};

/// The size of a block, in bytes.
const BLOCK_BYTES: usize = 8192;
const LINE_BYTES: usize = 64;
const LINES: usize = BLOCK_BYTES / LINE_BYTES;
const NEXT_AT: u64 = 8;
const PAYLOAD_BYTES: usize = LINE_BYTES - 8;
/// The number of bytes of an entry before the old bytes of a patch.
const PATCH_AT: usize = 12;
/// The number of bytes of an entry that is not a patch.
const OTHER_BYTES: usize = 28;
const POINTER_BITS: u32 = 16;
const FURTHER: u64 = 5;
const JUMP: u64 = 6;
/// The largest number of old bytes in one entry. A longer patch has several entries.
pub(crate) const PATCH_BYTES_MAX: usize = 1024;

/// The kind of the change that an entry undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Insert = 1,
    Replace = 2,
    Delete = 3,
    Patch = 4,
}

impl Kind {
    fn of(number: u64) -> Option<Kind> {
        [Kind::Insert, Kind::Replace, Kind::Delete, Kind::Patch]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }
}

/// An entry without the bytes of a patch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UndoEntry {
    pub(crate) kind: Kind,
    /// The table. The log does not store it for a patch.
    pub(crate) table: u16,
    pub(crate) tuple: Pointer,
    /// The tuple that was replaced.
    pub(crate) old: Pointer,
    /// The checksum of the new tuple's head.
    pub(crate) checksum: u32,
}

/// The phase of the log. It says what has to be done with the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open = 0,
    Committed = 1,
    Undone = 2,
}

/// A line of the log.
#[derive(Debug, Clone, Copy)]
struct LineNo {
    block: usize,
    line: usize,
}

/// An entry of the open transaction, and its place in the log.
#[derive(Debug, Clone, Copy)]
struct Kept {
    at: LineNo,
    entry: UndoEntry,
}

/// The undo log.
pub(crate) struct UndoLog {
    owner: Owner,
    blocks: Vec<Pointer>,
    transaction: u64,
    phase: Phase,
    entries: Vec<Kept>,
    numbers: ChangeNumbers,
    end: LineNo,
    /// A buffer for the bytes of an entry.
    bytes: Vec<u8>,
}

const BEGIN: LineNo = LineNo { block: 0, line: 1 };

/// Reserves a block and fills it with zeros. A later fence of the caller makes them durable.
pub(crate) fn new_block(space: &Space, owner: Owner) -> StoreResult<Pointer> {
    let block = space.allocator().allocate(owner, BLOCK_BYTES as u64)?;
    space.store_back(block, 0, &[0; BLOCK_BYTES])?;
    Ok(block)
}

impl UndoLog {
    /// Reads a log that begins with this block.
    pub(crate) fn read(space: &Space, owner: Owner, first: Pointer) -> StoreResult<UndoLog> {
        let state = space.load(space.word(first, 0)?);
        let phase = match state & 3 {
            1 => Phase::Committed,
            2 => Phase::Undone,
            _ => Phase::Open,
        };
        let mut log = UndoLog {
            owner,
            blocks: vec![first],
            transaction: state >> 2,
            phase,
            entries: Vec::new(),
            numbers: ChangeNumbers::new(),
            end: BEGIN,
            bytes: Vec::new(),
        };
        let mut last = first;
        loop {
            last = Pointer::from_u64(space.load(space.word(last, NEXT_AT)?));
            if last.is_none() {
                break;
            }
            if log.blocks.len() as u64 >= space.chunks_max(BLOCK_BYTES as u64) {
                return Err(StoreError::Damaged {
                    what: "an undo log whose blocks lead in a circle",
                    at: last,
                });
            }
            log.blocks.push(last);
        }
        log.read_entries(space)?;
        Ok(log)
    }

    fn read_entries(&mut self, space: &Space) -> StoreResult<()> {
        loop {
            let is_jump = self.end.line == LINES
                || self.line_word(space, self.end)?.is_some_and(|word| word == self.transaction << 8 | JUMP);
            if is_jump {
                self.end = LineNo { block: self.end.block + 1, line: 1 };
            }
            let at = self.end;
            let Some(entry) = self.read_entry(space, at)? else { return Ok(()) };
            self.keep(at, entry);
            self.end.line += self.bytes.len().div_ceil(PAYLOAD_BYTES);
        }
    }

    fn line_word(&self, space: &Space, at: LineNo) -> StoreResult<Option<u64>> {
        let Some(block) = self.blocks.get(at.block) else { return Ok(None) };
        space.word(*block, (at.line * LINE_BYTES) as u64).map(|word| Some(space.load(word)))
    }

    /// Reads an entry, and copies its bytes into the buffer. Returns `None` if there is no whole entry at
    /// this place.
    fn read_entry(&mut self, space: &Space, at: LineNo) -> StoreResult<Option<UndoEntry>> {
        let Some(block) = self.blocks.get(at.block).copied() else { return Ok(None) };
        self.bytes.clear();
        let (mut kind, mut lines) = (None, 1);
        for line in at.line..LINES {
            let mut bytes = [0; LINE_BYTES];
            space.read(block, (line * LINE_BYTES) as u64, &mut bytes)?;
            let word = get_u64(&bytes, 0);
            if word >> 8 != self.transaction {
                return Ok(None);
            }
            match Kind::of(word & 0xFF) {
                Some(first) if kind.is_none() => kind = Some(first),
                None if kind.is_some() && word & 0xFF == FURTHER => {}
                _ => return Ok(None),
            }
            self.bytes.extend_from_slice(bytes.get(8..).unwrap_or_default());
            let len_bytes = usize::from(get_u64(&self.bytes, 4) as u16);
            if !(PATCH_AT..=PATCH_AT + PATCH_BYTES_MAX).contains(&len_bytes) {
                return Ok(None);
            }
            if lines * PAYLOAD_BYTES >= len_bytes {
                self.bytes.truncate(len_bytes);
                return Ok(kind.and_then(|kind| self.decode(kind)));
            }
            lines += 1;
        }
        Ok(None)
    }

    fn decode(&self, kind: Kind) -> Option<UndoEntry> {
        let bytes = &self.bytes;
        let (mut checksum, mut old, mut table) = (0, Pointer::NONE, 0);
        if kind != Kind::Patch {
            checksum = get_u64(bytes, PATCH_AT) as u32;
            old = Pointer::from_u64(get_u64(bytes, 16));
            // The table is the last 4 bytes of the entry. So the word is read from 4 bytes earlier, and does
            // not reach beyond the entry.
            table = (get_u64(bytes, 20) >> 32) as u16;
        }
        let tuple = Pointer::from_u64(get_u64(bytes, 4) >> POINTER_BITS);
        let is_long_enough = kind == Kind::Patch || bytes.len() == OTHER_BYTES;
        let is_whole = is_long_enough && self.checksum(kind) == get_u64(bytes, 0) as u32;
        is_whole.then_some(UndoEntry { kind, table, tuple, old, checksum })
    }

    fn checksum(&self, kind: Kind) -> u32 {
        let seal = (self.transaction << 8 | kind as u64).to_le_bytes();
        crc32c::crc32c_append(crc32c::crc32c(&seal), self.bytes.get(4..).unwrap_or_default())
    }

    /// Appends an entry. The caller's next fence makes it durable. `before` are the old bytes of a patch.
    ///
    /// Errors: there is no room for another block.
    pub(crate) fn append(&mut self, space: &Space, entry: UndoEntry, before: &[u8]) -> StoreResult<()> {
        let is_patch = entry.kind == Kind::Patch;
        let len_bytes = if is_patch { PATCH_AT + before.len() } else { OTHER_BYTES };
        let lines = len_bytes.div_ceil(PAYLOAD_BYTES);
        if self.end.line + lines > LINES {
            self.next_block(space)?;
        }
        self.bytes.clear();
        let head = entry.tuple.to_u64() << POINTER_BITS | len_bytes as u64;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&head.to_le_bytes());
        if is_patch {
            self.bytes.extend_from_slice(before);
        } else {
            self.bytes.extend_from_slice(&entry.checksum.to_le_bytes());
            self.bytes.extend_from_slice(&entry.old.to_u64().to_le_bytes());
            self.bytes.extend_from_slice(&u32::from(entry.table).to_le_bytes());
        }
        let checksum = self.checksum(entry.kind).to_le_bytes();
        if let Some(place) = self.bytes.first_chunk_mut() {
            *place = checksum;
        }
        let at = self.end;
        let block = self.blocks.get(at.block).copied().unwrap_or_default();
        for (no, part) in self.bytes.chunks(PAYLOAD_BYTES).enumerate() {
            let what = if no == 0 { entry.kind as u64 } else { FURTHER };
            let mut line = [0; LINE_BYTES];
            let (word, payload) = line.split_at_mut(8);
            word.copy_from_slice(&(self.transaction << 8 | what).to_le_bytes());
            payload.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            space.store_back(block, ((at.line + no) * LINE_BYTES) as u64, &line)?;
        }
        self.end.line += lines;
        self.keep(at, entry);
        Ok(())
    }

    fn keep(&mut self, at: LineNo, entry: UndoEntry) {
        self.numbers.push();
        self.entries.push(Kept { at, entry });
    }

    /// Continues the log in the next block, and adds a block if there is no next one.
    fn next_block(&mut self, space: &Space) -> StoreResult<()> {
        let last = self.blocks.get(self.end.block).copied().unwrap_or_default();
        if self.end.block + 1 == self.blocks.len() {
            let block = new_block(space, self.owner)?;
            space.fence();
            let link = Step::Store { word: space.word(last, NEXT_AT)?, value: block.to_u64() };
            let linked = space.allocator().publish(&[Step::Activate(block), link]);
            linked.inspect_err(|_| space.give_up_after_error(block))?;
            self.blocks.push(block);
        }
        if self.end.line < LINES {
            let word = space.word(last, (self.end.line * LINE_BYTES) as u64)?;
            space.store_word(word, self.transaction << 8 | JUMP);
        }
        self.end = LineNo { block: self.end.block + 1, line: 1 };
        Ok(())
    }

    /// Returns the blocks of the log.
    pub(crate) fn blocks(&self) -> &[Pointer] {
        &self.blocks
    }

    /// Returns a savepoint at the present state of the transaction.
    pub(crate) fn savepoint(&self) -> Savepoint {
        self.numbers.savepoint()
    }

    /// Refuses a savepoint of another transaction, and a savepoint that a rollback went past.
    pub(crate) fn check_savepoint(&self, savepoint: Savepoint) -> StoreResult<()> {
        self.numbers.check(savepoint)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries, oldest first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &UndoEntry> {
        self.entries.iter().map(|kept| &kept.entry)
    }

    /// Returns the entry with this number. The oldest entry has the number 0.
    pub(crate) fn entry(&self, number: usize) -> Option<UndoEntry> {
        self.entries.get(number).map(|kept| kept.entry)
    }

    /// Returns the old bytes in an entry of the kind patch.
    pub(crate) fn before(&mut self, space: &Space, number: usize) -> StoreResult<&[u8]> {
        if let Some(at) = self.entries.get(number).map(|kept| kept.at) {
            self.read_entry(space, at)?;
        }
        Ok(self.bytes.get(PATCH_AT..).unwrap_or_default())
    }

    /// Returns the first word of the last entry. If 0 is stored there, the log ends before this entry.
    pub(crate) fn last_word(&self, space: &Space) -> StoreResult<Option<Word>> {
        let Some(Kept { at, .. }) = self.entries.last() else { return Ok(None) };
        let block = self.blocks.get(at.block).copied().unwrap_or_default();
        space.word(block, (at.line * LINE_BYTES) as u64).map(Some)
    }

    /// Forgets the last entry. The caller has stored 0 in its first word in the region.
    pub(crate) fn forget_last(&mut self) {
        if let Some(kept) = self.entries.pop() {
            self.numbers.truncate(self.entries.len());
            self.end = kept.at;
        }
    }

    /// Changes the phase, durably.
    pub(crate) fn set_phase(&mut self, space: &Space, phase: Phase) -> StoreResult<()> {
        self.store_state(space, self.transaction, phase)?;
        self.phase = phase;
        Ok(())
    }

    /// Ends the transaction, durably. Its entries are not valid any more.
    pub(crate) fn end(&mut self, space: &Space) -> StoreResult<()> {
        self.store_state(space, self.transaction + 1, Phase::Open)?;
        self.transaction += 1;
        self.phase = Phase::Open;
        self.entries.clear();
        self.end = BEGIN;
        self.begin();
        Ok(())
    }

    /// Begins a transaction in DRAM. From now on, savepoints of earlier transactions are refused.
    pub(crate) fn begin(&mut self) {
        self.numbers.begin();
    }

    /// Stores the header of the first block as a whole line, so that the processor does not have to load the
    /// line first.
    fn store_state(&self, space: &Space, transaction: u64, phase: Phase) -> StoreResult<()> {
        let first = self.blocks.first().copied().unwrap_or_default();
        let second = self.blocks.get(1).copied().unwrap_or_default();
        let mut line = [0; LINE_BYTES];
        let words = [transaction << 2 | phase as u64, second.to_u64()];
        line.chunks_exact_mut(8)
            .zip(words)
            .for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        space.store_back(first, 0, &line)?;
        space.fence();
        Ok(())
    }
}
