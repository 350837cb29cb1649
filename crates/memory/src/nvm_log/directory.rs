//! The directory of a store: its tables, its undo log, and its arenas.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VNVMLSM1"; its last character is the version |
//! | 8 | 8 | pointer to the first block of the undo log |
//! | 16 | 8 | id of the next table |
//! | 24 | 40 | zeros |
//! | 64 | 8 each | 1023 tables (`lsm/tables.rs`) |
//! | 8248 | 8 | 0 |
//! | 8256 | 16 each | 508 slots of arenas: pointer to the first page, and state |
//!
//! A state is a word: bits 0..8 kind, 8..16 level, 16..64 sequence.
//!
//! ```text
//!   begin of a merge                    end of the merge that made it
//!   ───────────────> 4 abandoned ────────────────────────────> 3 packed run ──┐ end of a merge
//!                        ^                                                    │ of it
//!                        └────────────────────────────────────────────────────┤
//!   rotation                 next rotation                                    │
//!   ────────> 1 mutable MemTable ────────> 2 immutable MemTable ──────────────┘
//! ```
//!
//! Abandoned arenas are freed step by step. So after a crash during a merge, a start has nothing else to do
//! for the merge.
//!
//! Invariants
//! 1. Exactly one slot is a mutable MemTable. All changes of states that belong together are one publication.
//! 2. The number of a table is the position of its word.
//!
//! This module does not know what is in the arenas.

use crate::error::MemoryError;
use crate::layout::get_u64;
use crate::lsm::arena;
use crate::lsm::tables::Tables;
use crate::pointer::{Owner, Pointer, Word};
use crate::publish::Step;
use crate::space::Space;
use crate::store::{TABLES_MAX, TableNo};
use crate::store_error::{StoreError, StoreResult};
use crate::undo_log;

const DIRECTORY_BYTES: usize = 16_384;
const MAGIC: u64 = u64::from_le_bytes(*b"VNVMLSM1");
const LOG_AT: u64 = 8;
const NEXT_ID_AT: u64 = 16;
const TABLES_AT: usize = 64;
const SLOTS_AT: usize = 8256;
const SLOT_BYTES: usize = 16;
const SLOTS: usize = (DIRECTORY_BYTES - SLOTS_AT) / SLOT_BYTES;

/// The kind of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArenaKind {
    Mutable = 1,
    Immutable = 2,
    Packed = 3,
    Abandoned = 4,
}

/// The state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaState {
    pub(super) kind: ArenaKind,
    pub(super) level: u8,
    pub(super) sequence: u64,
}

impl ArenaState {
    pub(super) const ABANDONED: ArenaState = ArenaState { kind: ArenaKind::Abandoned, level: 0, sequence: 0 };

    pub(super) fn mutable(sequence: u64) -> ArenaState {
        ArenaState { kind: ArenaKind::Mutable, level: 0, sequence }
    }

    fn encode(self) -> u64 {
        self.kind as u64 | u64::from(self.level) << 8 | self.sequence << 16
    }

    fn decode(word: u64) -> Option<ArenaState> {
        let kinds = [ArenaKind::Mutable, ArenaKind::Immutable, ArenaKind::Packed, ArenaKind::Abandoned];
        let kind = kinds.into_iter().find(|kind| *kind as u64 == word & 0xFF)?;
        Some(ArenaState { kind, level: (word >> 8) as u8, sequence: word >> 16 })
    }
}

/// An arena of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaSlot {
    pub(super) page: Pointer,
    pub(super) state: ArenaState,
}

/// The directory.
pub(super) struct Directory {
    at: Pointer,
    pub(super) tables: Tables,
    slots: [Option<ArenaSlot>; SLOTS],
}

/// Finds the directory of the store with this name. Makes an empty store if there is none.
pub(super) fn find_or_create(space: &Space, name: &str, owner: Owner) -> StoreResult<Pointer> {
    let root = match space.allocator().root(name) {
        Err(MemoryError::NoRoot { .. }) => space.allocator().create_root(name)?,
        found => found?,
    };
    let found = Pointer::from_u64(space.load(root));
    if !found.is_none() {
        return Ok(found);
    }
    let directory = space.allocator().allocate(owner, DIRECTORY_BYTES as u64)?;
    let block = undo_log::new_block(space, owner).inspect_err(|_| drop(space.give_up(directory)))?;
    let page = arena::new_page(space, owner).inspect_err(|_| {
        drop(space.give_up(directory));
        drop(space.give_up(block));
    })?;
    let mut bytes = [0; DIRECTORY_BYTES];
    let state = ArenaState::mutable(1).encode();
    let fields = [(0, MAGIC), (LOG_AT as usize, block.to_u64())];
    let slot = [(SLOTS_AT, page.to_u64()), (SLOTS_AT + 8, state)];
    for (at, value) in fields.into_iter().chain(slot) {
        let place = bytes.get_mut(at..at + 8).unwrap_or_default();
        place.copy_from_slice(&value.to_le_bytes());
    }
    space.store_back(directory, 0, &bytes)?;
    space.fence();
    let link = Step::Store { word: root, value: directory.to_u64() };
    let steps = [Step::Activate(directory), Step::Activate(block), Step::Activate(page), link];
    space.allocator().publish(&steps)?;
    Ok(directory)
}

/// Returns the first block of a store's undo log.
pub(super) fn log_of(space: &Space, directory: Pointer) -> StoreResult<Pointer> {
    space.word(directory, LOG_AT).map(|word| Pointer::from_u64(space.load(word)))
}

impl Directory {
    /// Reads the directory.
    pub(super) fn read(space: &Space, at: Pointer) -> StoreResult<Directory> {
        let damaged = |what| StoreError::Damaged { what, at };
        let mut bytes = [0; DIRECTORY_BYTES];
        space.read(at, 0, &mut bytes)?;
        if get_u64(&bytes, 0) != MAGIC {
            return Err(damaged("the magic of a store of the engine nvm_log"));
        }
        let words = (0..TABLES_MAX).map(|number| get_u64(&bytes, TABLES_AT + 8 * number));
        let tables = Tables::decode(words, get_u64(&bytes, NEXT_ID_AT as usize) as u32);
        let tables = tables.ok_or(damaged("a table of a store"))?;
        let mut directory = Directory { at, tables, slots: [None; SLOTS] };
        for (number, slot) in directory.slots.iter_mut().enumerate() {
            let page = Pointer::from_u64(get_u64(&bytes, SLOTS_AT + number * SLOT_BYTES));
            let state = ArenaState::decode(get_u64(&bytes, SLOTS_AT + number * SLOT_BYTES + 8));
            if !page.is_none() {
                *slot = Some(ArenaSlot { page, state: state.ok_or(damaged("the state of an arena"))? });
            }
        }
        Ok(directory)
    }

    /// Returns the directory's chunk.
    pub(super) fn chunk(&self) -> Pointer {
        self.at
    }

    fn table_word(&self, space: &Space, number: usize) -> StoreResult<Word> {
        space.word(self.at, (TABLES_AT + 8 * number) as u64)
    }

    /// Makes a table, durably: two fences.
    pub(super) fn create_table(
        &mut self,
        space: &Space,
        owner: Owner,
        indexes: usize,
    ) -> StoreResult<TableNo> {
        let new = self.tables.next(space, owner, indexes)?;
        // The next id is stored before the table gets its id. So a crash between the two stores cannot lead
        // to a second table with this id.
        space.store_word(space.word(self.at, NEXT_ID_AT)?, u64::from(new.table.id.0) + 1);
        space.fence();
        space.store_word(self.table_word(space, new.number)?, new.table.encode());
        space.fence();
        Ok(self.tables.add(&new))
    }

    /// Removes a table, durably, with one fence. The entries of the table stay until merges leave them out.
    pub(super) fn drop_table(&mut self, space: &Space, table: TableNo) -> StoreResult<()> {
        space.store_word(self.table_word(space, usize::from(table.0))?, 0);
        space.fence();
        self.tables.remove(table);
        Ok(())
    }

    /// Returns the arenas, with the numbers of their slots.
    pub(super) fn arenas(&self) -> impl Iterator<Item = NumberedSlot> {
        let used = self.slots.iter().enumerate();
        used.filter_map(|(number, slot)| slot.map(|slot| NumberedSlot { number, slot }))
    }

    /// Returns the arena of a slot.
    pub(super) fn arena(&self, number: usize) -> StoreResult<ArenaSlot> {
        let free = StoreError::Damaged { what: "the slot of an arena", at: self.at };
        self.slots.get(number).copied().flatten().ok_or(free)
    }

    /// Returns a free slot.
    pub(super) fn free_slot(&self) -> StoreResult<usize> {
        let full = MemoryError::Full { needed_bytes: SLOT_BYTES as u64, free_bytes: 0 };
        self.slots.iter().position(Option::is_none).ok_or(full.into())
    }

    /// Returns the steps that put an arena into a free slot.
    pub(super) fn fill(&self, space: &Space, number: usize, slot: ArenaSlot) -> StoreResult<[Step; 3]> {
        let page = space.word(self.at, (SLOTS_AT + number * SLOT_BYTES) as u64)?;
        Ok([
            Step::Activate(slot.page),
            Step::Store { word: page, value: slot.page.to_u64() },
            self.change(space, number, slot.state)?,
        ])
    }

    /// Returns the step that changes the state of an arena.
    pub(super) fn change(&self, space: &Space, number: usize, state: ArenaState) -> StoreResult<Step> {
        let word = space.word(self.at, (SLOTS_AT + number * SLOT_BYTES + 8) as u64)?;
        Ok(Step::Store { word, value: state.encode() })
    }

    /// Updates a slot in DRAM after a publication has filled, changed or freed it.
    pub(super) fn note(&mut self, number: usize, slot: Option<ArenaSlot>) {
        if let Some(place) = self.slots.get_mut(number) {
            *place = slot;
        }
    }

    /// Updates the state of an arena in DRAM after a publication has changed it.
    pub(super) fn note_state(&mut self, number: usize, state: ArenaState) {
        if let Some(Some(slot)) = self.slots.get_mut(number) {
            slot.state = state;
        }
    }

    /// Frees an abandoned arena of which only the first page is left, durably.
    pub(super) fn free(&mut self, space: &Space, number: usize) -> StoreResult<()> {
        let page = self.arena(number)?.page;
        let word = space.word(self.at, (SLOTS_AT + number * SLOT_BYTES) as u64)?;
        space.allocator().publish(&[Step::Free(page), Step::Store { word, value: 0 }])?;
        self.note(number, None);
        Ok(())
    }
}

/// A slot and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedSlot {
    pub(super) number: usize,
    pub(super) slot: ArenaSlot,
}
