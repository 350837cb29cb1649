//! A node of an index: 512 bytes.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | bits 0..20: which entries are valid; bit 32: it is a leaf |
//! | 8 | 8 | pointer to the chunk with the node's separator in the parent, if that is longer than 15 bytes |
//! | 16 | 16 | zeros |
//! | 32 | 24 each | 20 entries: 16 bytes of the key, and a pointer to a tuple or a node |
//!
//! The 16 bytes of a key are its first 15 bytes (a shorter key is followed by zeros), and a byte with its
//! length (16 for any longer key). Read as one number, they have the same order as the keys, unless both keys
//! are longer than 15 bytes. A long separator is in a chunk of its own: its length (8 bytes), and its bytes.
//!
//! Invariants
//! 1. The entries are in no order. An entry that is not valid may hold anything.
//! 2. An entry is durable before its bit is set.
//! 3. The smallest separator of an inner node has the head 0, which is smaller than the head of every key.
//!
//! This module does not know other nodes.

use crate::layout::get_u64;
use crate::pointer::{Pointer, Word};
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// The size of a node, in bytes.
pub(super) const NODE_BYTES: usize = 512;
/// The number of entries of a node.
pub(super) const ENTRIES: usize = 20;
/// The offset of the word with the valid entries.
pub(super) const BITS_AT: u64 = 0;
/// The offset of the pointer to the long separator.
pub(super) const LONG_AT: u64 = 8;

const ENTRIES_AT: usize = 32;
const ENTRY_BYTES: usize = 24;
const HEAD_BYTES: usize = 15;
const LEAF: u64 = 1 << 32;
const ALL: u64 = (1 << ENTRIES) - 1;

/// The beginning of a key, and its length if it is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyHead(u128);

impl KeyHead {
    /// A head that is smaller than the head of every key.
    pub(super) const LOWEST: KeyHead = KeyHead(0);

    #[inline]
    pub(super) fn of(key: &[u8]) -> KeyHead {
        let mut bytes = [0; 16];
        let len = key.len().min(HEAD_BYTES);
        if let (Some(to), Some(from)) = (bytes.get_mut(..len), key.get(..len)) {
            to.copy_from_slice(from);
        }
        bytes[HEAD_BYTES] = key.len().min(HEAD_BYTES + 1) as u8;
        KeyHead(u128::from_be_bytes(bytes))
    }

    /// Returns whether the head contains the whole key.
    #[inline]
    pub(super) fn is_whole(self) -> bool {
        (self.0 & 0xFF) as usize <= HEAD_BYTES
    }

    /// Returns a short separator between two neighbouring keys, which is not greater than `right`. Returns
    /// `None` if the first 15 bytes of the keys are equal.
    pub(super) fn between(left: KeyHead, right: KeyHead) -> Option<KeyHead> {
        if right.is_whole() {
            return Some(right);
        }
        (left.0 >> 8 != right.0 >> 8).then_some(KeyHead((right.0 & !0xFF) | HEAD_BYTES as u128))
    }
}

/// An entry: the beginning of a key, and the pointer to a tuple or a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) head: KeyHead,
    pub(super) pointer: Pointer,
}

impl Entry {
    fn encode(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let (head, pointer) = bytes.split_at_mut(16);
        head.copy_from_slice(&self.head.0.to_be_bytes());
        pointer.copy_from_slice(&self.pointer.to_u64().to_le_bytes());
        bytes
    }
}

/// A copy of a node.
pub(super) struct Node {
    pub(super) at: Pointer,
    bytes: [u8; NODE_BYTES],
}

/// A set of entries of a node, by their numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots(u64);

impl Slots {
    pub(super) const NONE: Slots = Slots(0);
    pub(super) const ALL: Slots = Slots(ALL);

    /// Returns the entries whose bits are set.
    pub(super) fn of(bits: u64) -> Slots {
        Slots(bits & ALL)
    }

    /// Returns the entries that are in at least one of two sets.
    pub(super) fn and(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }

    /// Returns the entries that are not in another set.
    pub(super) fn without(self, other: Slots) -> Slots {
        Slots(self.0 & !other.0)
    }

    pub(super) fn has(self, slot: usize) -> bool {
        self.0 >> slot & 1 == 1
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (slot < ENTRIES).then_some(slot)
    }
}

impl Node {
    /// Reads a node.
    pub(super) fn read(space: &Space, at: Pointer) -> StoreResult<Node> {
        let mut node = Node { at, bytes: [0; NODE_BYTES] };
        node.load(space, at)?;
        Ok(node)
    }

    /// Replaces this copy by a copy of another node.
    #[inline]
    pub(super) fn load(&mut self, space: &Space, at: Pointer) -> StoreResult<()> {
        self.at = at;
        space.read(at, 0, &mut self.bytes)?;
        match self.bits() & !(ALL | LEAF) {
            0 => Ok(()),
            _ => Err(StoreError::Damaged { what: "a node of an index", at }),
        }
    }

    /// Returns a copy of an empty node, which is not stored in the region yet.
    pub(super) fn empty(at: Pointer, is_leaf: bool) -> Node {
        let mut node = Node { at, bytes: [0; NODE_BYTES] };
        node.set_word(BITS_AT, if is_leaf { LEAF } else { 0 });
        node
    }

    fn set_word(&mut self, at: u64, value: u64) {
        if let Some(word) = self.bytes.get_mut(at as usize..at as usize + 8) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Returns the word that says which entries are valid.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        get_u64(&self.bytes, BITS_AT as usize)
    }

    #[inline]
    pub(super) fn is_leaf(&self) -> bool {
        self.bits() & LEAF != 0
    }

    /// Returns the chunk with the node's long separator.
    pub(super) fn long_separator(&self) -> Pointer {
        Pointer::from_u64(get_u64(&self.bytes, LONG_AT as usize))
    }

    pub(super) fn set_long_separator(&mut self, chunk: Pointer) {
        self.set_word(LONG_AT, chunk.to_u64());
    }

    #[inline]
    pub(super) fn slots(&self) -> Slots {
        Slots(self.bits() & ALL)
    }

    pub(super) fn count(&self) -> usize {
        (self.bits() & ALL).count_ones() as usize
    }

    /// Returns a slot that is free and not withheld.
    pub(super) fn free_slot(&self, withheld: Slots) -> Option<usize> {
        Slots::ALL.without(self.slots()).without(withheld).next()
    }

    #[inline]
    pub(super) fn head(&self, slot: usize) -> KeyHead {
        let bytes = self.bytes.get(ENTRIES_AT + slot * ENTRY_BYTES..).and_then(|rest| rest.first_chunk());
        KeyHead(bytes.map_or(0, |bytes| u128::from_be_bytes(*bytes)))
    }

    /// Returns the entry with the highest head that is not greater than `head`. If several entries have this
    /// head, it is any of them. The loop has no branch that depends on keys, because a processor could not
    /// predict it.
    #[inline]
    pub(super) fn highest_up_to(&self, head: KeyHead) -> Option<usize> {
        let (mut highest, mut found) = (KeyHead::LOWEST, ENTRIES);
        for slot in self.slots() {
            let other = self.head(slot);
            let is_higher = (other <= head) & (other >= highest);
            highest = if is_higher { other } else { highest };
            found = if is_higher { slot } else { found };
        }
        (found < ENTRIES).then_some(found)
    }

    #[inline]
    pub(super) fn pointer(&self, slot: usize) -> Pointer {
        Pointer::from_u64(get_u64(&self.bytes, pointer_at(slot) as usize))
    }

    pub(super) fn entry(&self, slot: usize) -> Entry {
        Entry { head: self.head(slot), pointer: self.pointer(slot) }
    }

    /// Puts an entry into the copy.
    pub(super) fn set(&mut self, slot: usize, entry: Entry, is_valid: bool) {
        let from = ENTRIES_AT + slot * ENTRY_BYTES;
        if let Some(bytes) = self.bytes.get_mut(from..from + ENTRY_BYTES) {
            bytes.copy_from_slice(&entry.encode());
            self.set_word(BITS_AT, self.bits() | u64::from(is_valid) << slot);
        }
    }

    /// Stores the whole node, and begins to write it back.
    pub(super) fn store(&self, space: &Space) -> StoreResult<()> {
        space.store_back(self.at, 0, &self.bytes)
    }

    /// Stores an entry that is not valid yet, and begins to write it back.
    pub(super) fn store_entry(&self, space: &Space, slot: usize, entry: Entry) -> StoreResult<()> {
        space.store_back(self.at, (ENTRIES_AT + slot * ENTRY_BYTES) as u64, &entry.encode())
    }
}

/// Returns the offset of the pointer of an entry in its node.
pub(super) fn pointer_at(slot: usize) -> u64 {
    (ENTRIES_AT + slot * ENTRY_BYTES + 16) as u64
}

/// Returns the two words that have the beginning of the key in an entry.
pub(super) fn head_words(space: &Space, node: Pointer, slot: usize) -> StoreResult<[Word; 2]> {
    let at = (ENTRIES_AT + slot * ENTRY_BYTES) as u64;
    Ok([space.word(node, at)?, space.word(node, at + 8)?])
}

/// Returns the word of an entry's pointer.
pub(super) fn pointer_word(space: &Space, node: Pointer, slot: usize) -> StoreResult<Word> {
    space.word(node, pointer_at(slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_sort_as_keys_do_unless_both_are_long() {
        let long = [7; 20];
        let mut longer = [7; 20];
        longer[19] = 8;
        let keys: [&[u8]; 9] =
            [b"a", b"a\0", b"a\0\0", b"aa", b"b", &long[..14], &long[..15], &long[..16], b"\0"];
        for left in keys {
            for right in keys {
                assert_eq!(KeyHead::of(left).cmp(&KeyHead::of(right)), left.cmp(right), "{left:?} {right:?}");
            }
            assert!(KeyHead::LOWEST < KeyHead::of(left));
        }
        assert_eq!(KeyHead::of(&long), KeyHead::of(&longer));
        assert!(!KeyHead::of(&long).is_whole());
    }

    #[test]
    fn a_short_separator_is_above_the_left_and_at_most_the_right() {
        let long = |last| [last; 20];
        let (left, right) = (KeyHead::of(&long(3)), KeyHead::of(&long(4)));
        let Some(separator) = KeyHead::between(left, right) else { panic!("they differ") };
        assert!(left < separator && separator <= right && separator.is_whole());
        let (short, long) = (KeyHead::of(&long(3)[..15]), KeyHead::of(&long(3)));
        assert_eq!(KeyHead::between(short, long), None, "a prefix of 15 bytes is no separator of its own");
    }
}
