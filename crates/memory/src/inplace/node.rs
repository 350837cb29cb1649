//! A node of a volatile B+tree, in a chunk of 512 bytes that is reserved and never active.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | bits 0..32 number of entries, bit 32 set in a leaf |
//! | 8 | 24 each | 21 entries, in the order of their keys |
//!
//! An entry is three words: the first 8 bytes of the key (big endian, with zeros behind a shorter key), the
//! *separator* (a chunk with the key: its length in 2 bytes, then its bytes), and the child. In a leaf the
//! child is the tuple, which has the key, so there is no separator. An inner node has none either where the
//! first 8 bytes tell an entry's keys from smaller ones: it is 0. The first entry of an inner node is for all
//! keys that are smaller than the next entry's.
//!
//! Invariants
//! 1. A node is read and written as a whole. Nothing is written back: a crash forgets all nodes.
//!
//! What it does not know: its parent, splits.

use std::cmp::Ordering;

use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::StoreResult;
use crate::tuple;

/// Bytes of a node: the best size of the paper's figure 15.
pub(super) const NODE_BYTES: usize = 512;
/// Entries of a node.
pub(super) const ENTRIES: usize = 21;
const LEAF: u64 = 1 << 32;
const ENTRY_BYTES: usize = 24;
const PREFIX_BYTES: usize = 8;
/// How often the length of a separator's chunk is doubled in search of a free one.
const SEPARATOR_DOUBLINGS_MAX: u32 = 3;

/// A key that is looked for, and its first bytes as a word.
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

/// A copy of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) is_leaf: bool,
    count: usize,
    entries: [Entry; ENTRIES],
}

impl Node {
    pub(super) fn new(is_leaf: bool, entries: &[Entry]) -> Node {
        let mut node = Node { is_leaf, count: entries.len().min(ENTRIES), entries: Default::default() };
        node.entries.iter_mut().zip(entries).for_each(|(place, entry)| *place = *entry);
        node
    }

    pub(super) fn read(space: &Space, at: Pointer) -> StoreResult<Node> {
        let mut bytes = [0; NODE_BYTES];
        space.read(at, 0, &mut bytes)?;
        let head = get_u64(&bytes, 0);
        let mut node = Node::new(head & LEAF != 0, &[]);
        node.count = ((head & (LEAF - 1)) as usize).min(ENTRIES);
        for (number, entry) in node.entries.iter_mut().enumerate().take(node.count) {
            let from = 8 + number * ENTRY_BYTES;
            *entry = Entry {
                prefix: get_u64(&bytes, from),
                separator: Pointer::from_u64(get_u64(&bytes, from + 8)),
                child: Pointer::from_u64(get_u64(&bytes, from + 16)),
            };
        }
        Ok(node)
    }

    pub(super) fn write(&self, space: &Space, at: Pointer) -> StoreResult<()> {
        let mut bytes = [0; NODE_BYTES];
        let head = self.count as u64 | if self.is_leaf { LEAF } else { 0 };
        let entries = self.entries().iter();
        let words = entries.flat_map(|entry| [entry.prefix, entry.separator.to_u64(), entry.child.to_u64()]);
        let places = bytes.chunks_exact_mut(8);
        places
            .zip(std::iter::once(head).chain(words))
            .for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        space.store(at, 0, bytes.get(..8 + self.count * ENTRY_BYTES).unwrap_or(&bytes))
    }

    pub(super) fn entries(&self) -> &[Entry] {
        self.entries.get(..self.count).unwrap_or(&self.entries)
    }

    pub(super) fn entry(&self, number: usize) -> Entry {
        self.entries().get(number).copied().unwrap_or_default()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == ENTRIES
    }

    /// Puts an entry before the one with this number. The node is not full.
    pub(super) fn insert(&mut self, number: usize, entry: Entry) {
        if let Some(moved) = self.entries.get_mut(number..=self.count) {
            moved.rotate_right(1);
            self.count += 1;
            self.set(number, entry);
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(moved) = self.entries.get_mut(number..self.count) {
            moved.rotate_left(1);
            self.count -= 1;
        }
    }

    pub(super) fn set(&mut self, number: usize, entry: Entry) {
        if let Some(place) = self.entries.get_mut(number) {
            *place = entry;
        }
    }
}

/// Reserves a chunk with a key. In a full region, the chunk can be longer than it has to be.
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

/// Compares the key of an entry of an index with another one. An entry without a separator counts as equal to
/// all keys that begin with its 8 bytes.
pub(super) fn compare(
    space: &Space,
    index: usize,
    node: &Node,
    entry: &Entry,
    key: &TreeKey<'_>,
) -> StoreResult<Ordering> {
    match entry.prefix.cmp(&key.prefix) {
        Ordering::Equal if !node.is_leaf && entry.separator.is_none() => Ok(Ordering::Equal),
        Ordering::Equal if node.is_leaf => tuple::compare(space, entry.child, index, key.bytes),
        Ordering::Equal => {
            let mut length = [0; 2];
            space.read(entry.separator, 0, &mut length)?;
            let len_bytes = usize::from(u16::from_le_bytes(length));
            tuple::compare_bytes(space, entry.separator, 2, len_bytes, key.bytes)
        }
        unequal => Ok(unequal),
    }
}
