//! Pointers into the allocator's region. They are offsets, so they stay valid after a restart.
//!
//! The paper by Arulraj and others maps a region always at the same address, and uses raw addresses as
//! "non-volatile pointers" (section 2.3). Offsets do not need a fixed address.
//!
//! Invariants
//! 1. A pointer has 8 bytes, so it is stored atomically.
//!
//! This module does not know whether there is a chunk at its target.

use std::fmt;

use varve_device::WORD_BYTES;

use crate::sizes::OWNERS;

/// The place where a chunk begins: an offset in bytes from the beginning of the allocator's region. 0 means
/// no chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pointer(u64);

impl Pointer {
    /// No chunk.
    pub const NONE: Pointer = Pointer(0);

    /// Returns the pointer that was stored as this number.
    pub fn from_u64(offset: u64) -> Pointer {
        Pointer(offset)
    }

    /// Returns the number to store: the chunk's offset in the region, in bytes.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Returns whether the pointer leads to no chunk.
    pub fn is_none(self) -> bool {
        self == Pointer::NONE
    }

    /// Returns the word that is `at_bytes` bytes after the beginning of the chunk. Returns `None` if its
    /// offset is not aligned to 8 bytes, or is too large for a pointer.
    pub fn word(self, at_bytes: u64) -> Option<Word> {
        self.0.checked_add(at_bytes).and_then(Word::at)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pointer {:#x}", self.0)
    }
}

/// An aligned word of 8 bytes in the region, in a chunk or in the table of roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Word(u64);

impl Word {
    /// Returns the word at an offset in bytes, or `None` if the offset is not aligned.
    pub fn at(offset: u64) -> Option<Word> {
        offset.is_multiple_of(WORD_BYTES as u64).then_some(Word(offset))
    }

    /// Returns the offset of the word in the region, in bytes.
    pub fn offset(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the word at byte {:#x}", self.0)
    }
}

/// The number of a chunk's owner, for example of a table. Room is counted for each owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u16);

impl Owner {
    /// Returns the owner of this number, or `None` from 4096 on.
    pub fn new(number: u16) -> Option<Owner> {
        (usize::from(number) < OWNERS).then_some(Owner(number))
    }

    /// Returns the number of the owner.
    pub fn number(self) -> u16 {
        self.0
    }
}
