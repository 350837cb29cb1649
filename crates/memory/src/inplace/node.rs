//! A node of a volatile B+tree, in a chunk of 512 bytes that is reserved and never active.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | bits 0..32 number of entries, bit 32 set in a leaf |
//! | 8 | 24 each | 21 entries, in the order of their keys |
//!
//! An entry is three words: the first 8 bytes of the key (big endian, a shorter key is followed by zeros),
//! the *separator* (a chunk with the key: its length in 2 bytes, then its bytes), and the child. In a leaf
//! the child is the tuple, which has the key, so there is no separator. In an inner node, the separator is 0
//! if the first 8 bytes are enough to distinguish the entry's keys from smaller ones. The first entry of an
//! inner node is for all keys that are smaller than the key of the next entry.
//!
//! Invariants
//! 1. A node is copied and written as a whole. Nodes are not written back, so a crash loses all of them.
//!
//! This module does not know the parent of a node, or splits.

use std::cmp::Ordering;
use std::ops::Range;

use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::StoreResult;
use crate::tuple;

/// The number of bytes of a node: the best size of the paper's figure 15.
pub(super) const NODE_BYTES: usize = 512;
/// The number of entries of a node.
pub(super) const ENTRIES: usize = 21;
const LEAF: u64 = 1 << 32;
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 24;
const PREFIX_BYTES: usize = 8;
/// If the region is full, a separator is put into a longer chunk that is still free. Its length is doubled at
/// most this number of times.
const SEPARATOR_DOUBLINGS_MAX: u32 = 3;

/// A search key, and its first bytes as a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeKey<'k> {
    pub(super) bytes: &'k [u8],
    pub(super) prefix: u64,
}

impl<'k> TreeKey<'k> {
    pub(super) fn of(bytes: &'k [u8]) -> TreeKey<'k> {
        let mut prefix = [0; PREFIX_BYTES];
        prefix.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        TreeKey { bytes, prefix: u64::from_be_bytes(prefix) }
    }
}

/// An entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) prefix: u64,
    pub(super) separator: Pointer,
    pub(super) child: Pointer,
}

/// A copy of a node, in its stored format. Searches read the prefixes directly, without decoding entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    bytes: [u8; NODE_BYTES],
}

/// Returns where an entry begins in its node.
fn entry_at(number: usize) -> usize {
    HEAD_BYTES + number * ENTRY_BYTES
}

impl Node {
    /// Returns a node with these entries, at most [`ENTRIES`].
    pub(super) fn new(is_leaf: bool, entries: &[Entry]) -> Node {
        let mut node = Node { bytes: [0; NODE_BYTES] };
        node.set_head(is_leaf, entries.len().min(ENTRIES));
        (0..).zip(entries).for_each(|(number, entry)| node.set(number, *entry));
        node
    }

    /// Returns a node of the same kind with a range of the entries.
    pub(super) fn part(&self, entries: Range<usize>) -> Node {
        let mut part = Node { bytes: [0; NODE_BYTES] };
        part.set_head(self.is_leaf(), entries.len());
        let from = self.bytes.get(entry_at(entries.start)..entry_at(entries.end)).unwrap_or_default();
        let places = part.bytes.iter_mut().skip(HEAD_BYTES);
        places.zip(from).for_each(|(place, byte)| *place = *byte);
        part
    }

    pub(super) fn read(space: &Space, at: Pointer) -> StoreResult<Node> {
        let mut node = Node { bytes: [0; NODE_BYTES] };
        space.read(at, 0, &mut node.bytes)?;
        Ok(node)
    }

    pub(super) fn write(&self, space: &Space, at: Pointer) -> StoreResult<()> {
        space.store(at, 0, self.bytes.get(..entry_at(self.count())).unwrap_or(&self.bytes))
    }

    fn set_head(&mut self, is_leaf: bool, count: usize) {
        let head = count as u64 | if is_leaf { LEAF } else { 0 };
        self.bytes.iter_mut().zip(head.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }

    pub(super) fn is_leaf(&self) -> bool {
        get_u64(&self.bytes, 0) & LEAF != 0
    }

    pub(super) fn count(&self) -> usize {
        ((get_u64(&self.bytes, 0) & (LEAF - 1)) as usize).min(ENTRIES)
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() == ENTRIES
    }

    fn prefix(&self, number: usize) -> u64 {
        get_u64(&self.bytes, entry_at(number))
    }

    /// Returns the first entry, from the entry `first` on, whose prefix is not smaller than `prefix`.
    pub(super) fn first_from(&self, first: usize, prefix: u64) -> usize {
        let (mut first, mut end) = (first, self.count().max(first));
        while first < end {
            let middle = first.midpoint(end);
            match self.prefix(middle) < prefix {
                true => first = middle + 1,
                false => end = middle,
            }
        }
        first
    }

    /// Returns the entry with this number, or an empty entry if there is none.
    pub(super) fn entry(&self, number: usize) -> Entry {
        if number >= self.count() {
            return Entry::default();
        }
        let word = |at| get_u64(&self.bytes, entry_at(number) + at);
        let [separator, child] = [8, 16].map(|at| Pointer::from_u64(word(at)));
        Entry { prefix: word(0), separator, child }
    }

    /// Puts an entry before the one with this number. The node is not full.
    pub(super) fn insert(&mut self, number: usize, entry: Entry) {
        let count = self.count();
        if number <= count && count < ENTRIES {
            self.bytes.copy_within(entry_at(number)..entry_at(count), entry_at(number + 1));
            self.set_head(self.is_leaf(), count + 1);
            self.set(number, entry);
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        let count = self.count();
        if number < count {
            self.bytes.copy_within(entry_at(number + 1)..entry_at(count), entry_at(number));
            self.set_head(self.is_leaf(), count - 1);
        }
    }

    pub(super) fn set(&mut self, number: usize, entry: Entry) {
        let words = [entry.prefix, entry.separator.to_u64(), entry.child.to_u64()];
        let places = self.bytes.get_mut(entry_at(number)..).unwrap_or_default().as_chunks_mut().0;
        places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
    }
}

/// Reserves a chunk with a key. In a full region, the chunk can be longer than needed, because longer chunks
/// may still be free.
pub(super) fn new_separator(space: &Space, owner: Owner, key: &[u8]) -> StoreResult<Pointer> {
    let allocate = |len_bytes| space.allocator().allocate(owner, len_bytes);
    let len_bytes = 2 + key.len() as u64;
    let chunk = allocate(len_bytes).or_else(|full| {
        let longer =
            (1..=SEPARATOR_DOUBLINGS_MAX).find_map(|doublings| allocate(len_bytes << doublings).ok());
        longer.ok_or(full)
    })?;
    space.store(chunk, 0, &(key.len() as u16).to_le_bytes())?;
    space.store(chunk, 2, key)?;
    Ok(chunk)
}

/// Compares the key of an entry of an index with a search key. An entry without a separator counts as equal
/// to all keys that begin with its 8 bytes.
pub(super) fn compare(
    space: &Space,
    index: usize,
    node: &Node,
    entry: &Entry,
    key: &TreeKey<'_>,
) -> StoreResult<Ordering> {
    match entry.prefix.cmp(&key.prefix) {
        Ordering::Equal if !node.is_leaf() && entry.separator.is_none() => Ok(Ordering::Equal),
        Ordering::Equal if node.is_leaf() => tuple::compare(space, entry.child, index, key.bytes),
        Ordering::Equal => {
            let mut length = [0; 2];
            space.read(entry.separator, 0, &mut length)?;
            let len_bytes = usize::from(u16::from_le_bytes(length));
            tuple::compare_bytes(space, entry.separator, 2, len_bytes, key.bytes)
        }
        unequal => Ok(unequal),
    }
}

const _: () = assert!(HEAD_BYTES + ENTRIES * ENTRY_BYTES <= NODE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            prefix: number,
            separator: Pointer::from_u64(16),
            child: Pointer::from_u64(16 * (number + 1)),
        }
    }

    fn prefixes(node: &Node) -> Vec<u64> {
        (0..node.count()).map(|number| node.entry(number).prefix).collect()
    }

    #[test]
    fn entries_stay_in_their_order() {
        let mut node = Node::new(true, &[]);
        for number in [7, 3, 9, 1, 5] {
            node.insert(node.first_from(0, number), entry(number));
        }
        assert_eq!(prefixes(&node), [1, 3, 5, 7, 9]);
        node.remove(1);
        node.remove(3);
        assert_eq!((prefixes(&node), node.entry(1)), (vec![1, 5, 7], entry(5)));
        assert_eq!(node.entry(3), Entry::default(), "no entry is left behind the last one");
        assert!(node.is_leaf() && !node.is_full());
        assert_eq!(prefixes(&node.part(1..3)), [5, 7]);
    }

    #[test]
    fn a_search_ends_at_the_first_of_equal_prefixes() {
        let mut node = Node::new(false, &[0, 2, 4, 4, 4, 6].map(entry));
        assert_eq!([3, 4, 5, 7].map(|prefix| node.first_from(0, prefix)), [2, 2, 5, 6]);
        assert_eq!(node.first_from(1, 0), 1, "entries before the first one are not looked at");
        while !node.is_full() {
            node.insert(node.count(), entry(6));
        }
        assert_eq!(node.count(), ENTRIES);
        node.insert(0, entry(1));
        assert_eq!(node.entry(0), entry(0), "a full node takes no entry");
        assert_eq!(node.first_from(0, 6), 5);
    }

    #[test]
    fn a_damaged_count_is_at_most_that_of_a_full_node() {
        let node = Node { bytes: [0xFF; NODE_BYTES] };
        assert_eq!((node.count(), node.first_from(0, u64::MAX)), (ENTRIES, 0));
    }
}
