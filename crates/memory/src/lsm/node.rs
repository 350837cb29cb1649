//! A node of the index of a run.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | number of entries |
//! | 4 | 4 | 0 = a leaf, 1 = an inner node |
//! | 8 | 24 | zeros |
//! | 32 | 32 each | entries in the order of their keys |
//!
//! An entry has the head of its key (16 bytes), the offset of the run's entry with this key (8 bytes), and in
//! an inner node the offset of the child that begins with this key (8 bytes).
//!
//! Nodes have 512 bytes in the region, the best size of the paper's figure 15, and 4096 bytes in a file, where
//! each read is a system call.
//!
//! This module does not know other nodes.

use std::cmp::Ordering;

use super::entry::EntryAt;
use super::key::{KeyHead, SearchKey};
use super::media::{Location, Media, damaged};
use crate::layout::get_u64;
use crate::store_error::StoreResult;

/// The size of the largest node, in bytes.
pub(crate) const NODE_BYTES_MAX: usize = 4096;
const REGION_NODE_BYTES: usize = 512;
const ENTRIES_AT: usize = 32;
const ENTRY_BYTES: usize = 32;

/// Returns the number of bytes of a node.
pub(crate) fn node_bytes(location: Location) -> usize {
    match location {
        Location::Region => REGION_NODE_BYTES,
        Location::File(_) => NODE_BYTES_MAX,
    }
}

/// An entry of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeEntry {
    pub(crate) head: KeyHead,
    /// The entry of the run that has the key.
    pub(crate) entry: u64,
    pub(crate) child: u64,
}

/// A node that is being filled.
pub(crate) struct NodeBuffer {
    bytes: Vec<u8>,
    len_bytes: usize,
}

impl NodeBuffer {
    pub(crate) fn new(len_bytes: usize, is_leaf: bool) -> NodeBuffer {
        let mut bytes = vec![0; ENTRIES_AT];
        if let Some(kind) = bytes.get_mut(4) {
            *kind = u8::from(!is_leaf);
        }
        NodeBuffer { bytes, len_bytes }
    }

    pub(crate) fn count(&self) -> usize {
        (self.bytes.len() - ENTRIES_AT) / ENTRY_BYTES
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + ENTRY_BYTES > self.len_bytes
    }

    /// Returns the first entry of the node.
    pub(crate) fn first(&self) -> Option<NodeEntry> {
        (self.count() > 0).then(|| entry_in(&self.bytes, 0))
    }

    pub(crate) fn push(&mut self, entry: &NodeEntry) {
        self.bytes.extend_from_slice(&entry.head.encode());
        self.bytes.extend_from_slice(&entry.entry.to_le_bytes());
        self.bytes.extend_from_slice(&entry.child.to_le_bytes());
    }

    /// Returns the bytes to store, and makes the buffer empty.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let (count, kind) = (self.count() as u32, self.bytes.get(4).copied().unwrap_or_default());
        let empty = NodeBuffer::new(self.len_bytes, kind == 0);
        let mut bytes = std::mem::replace(&mut self.bytes, empty.bytes);
        if let Some(place) = bytes.first_chunk_mut() {
            *place = count.to_le_bytes();
        }
        bytes.resize(self.len_bytes, 0);
        bytes
    }
}

fn entry_in(bytes: &[u8], number: usize) -> NodeEntry {
    let from = ENTRIES_AT + number * ENTRY_BYTES;
    let head = bytes.get(from..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    NodeEntry {
        head: KeyHead::decode(head),
        entry: get_u64(bytes, from + KeyHead::BYTES),
        child: get_u64(bytes, from + KeyHead::BYTES + 8),
    }
}

/// A node that was read, with its bytes in a buffer of the caller.
pub(crate) struct Node<'b> {
    bytes: &'b [u8],
    pub(crate) count: usize,
    pub(crate) is_leaf: bool,
}

impl<'b> Node<'b> {
    /// Reads a node. `bytes` is as long as a node.
    pub(crate) fn read(
        media: &Media<'_>,
        location: Location,
        at: u64,
        bytes: &'b mut [u8],
    ) -> StoreResult<Node<'b>> {
        media.read(location, at, bytes)?;
        Node::of(bytes).ok_or(damaged("a node of a run", at))
    }

    /// Returns the node in these bytes, or `None` if they cannot be a node.
    pub(crate) fn of(bytes: &'b [u8]) -> Option<Node<'b>> {
        let word = get_u64(bytes, 0);
        let (count, kind) = (word as u32 as usize, word >> 32);
        let is_possible = kind <= 1 && (1..=(bytes.len() - ENTRIES_AT) / ENTRY_BYTES).contains(&count);
        is_possible.then_some(Node { bytes, count, is_leaf: kind == 0 })
    }

    pub(crate) fn entry(&self, number: usize) -> NodeEntry {
        entry_in(self.bytes, number)
    }

    /// Compares the key of an entry with another key.
    fn compare(
        &self,
        media: &Media<'_>,
        location: Location,
        number: usize,
        key: &SearchKey<'_>,
    ) -> StoreResult<Ordering> {
        let entry = self.entry(number);
        match entry.head.cmp(&key.head) {
            Ordering::Equal if !key.head.is_whole() => {
                let mut whole = Vec::new();
                EntryAt::read(media, location, entry.entry)?.whole_key(media, &mut whole)?;
                Ok(SearchKey::whole(&whole).key.cmp(key.key))
            }
            order => Ok(order),
        }
    }

    /// Returns the number of entries whose keys are smaller than a key, or equal to it if `with_equal`.
    pub(crate) fn count_before(
        &self,
        media: &Media<'_>,
        location: Location,
        key: &SearchKey<'_>,
        with_equal: bool,
    ) -> StoreResult<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let is_before = match self.compare(media, location, middle, key)? {
                Ordering::Less => true,
                Ordering::Equal => with_equal,
                Ordering::Greater => false,
            };
            if is_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns whether an entry has a key.
    pub(crate) fn has(
        &self,
        media: &Media<'_>,
        location: Location,
        number: usize,
        key: &SearchKey<'_>,
    ) -> StoreResult<bool> {
        Ok(number < self.count && self.compare(media, location, number, key)?.is_eq())
    }
}
