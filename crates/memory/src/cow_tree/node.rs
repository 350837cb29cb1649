//! A node of the tree.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 2 | number of entries |
//! | 2 | 2 | 1 = leaf, 0 = inner node |
//! | 4 | 2 | where the lowest entry begins |
//! | 6 | 2 | bytes of removed entries above it |
//! | 8 | 2 each | where each entry begins, in the order of their keys |
//! | then | | free |
//! | to the end | | entries: length of the key (2), length of the value (2), key, value |
//!
//! A new entry is stored below the others, so that few bytes are moved. In a leaf the value belongs to the
//! index. In an inner node it is the number of a child (8 bytes), whose keys are not smaller than the entry's
//! key. The first entry of an inner node is for all smaller keys, too, because its own key is ignored.
//!
//! Invariants
//! 1. An entry takes at most half of the room of a node. So a node with one entry has room for another one.
//! 2. An inner node has at least one entry.
//!
//! This module does not know the parent of a node, or what values mean.

use std::cmp::Ordering;

use super::nodes::{NodeId, NodeStore};
use crate::store_error::{StoreError, StoreResult};

const HEAD_BYTES: usize = 8;
const SLOT_BYTES: usize = 2;
const LENGTHS_BYTES: usize = 4;
/// The number of bytes of an entry in addition to its key and value.
const ENTRY_BYTES: usize = SLOT_BYTES + LENGTHS_BYTES;
/// Keys are compared in pieces of this many bytes.
const PIECE_BYTES: usize = 64;

/// Returns the number of bytes of the longest value under a key, in nodes of this many bytes.
pub(crate) fn value_bytes_max(node_bytes: usize, key_bytes: usize) -> usize {
    ((node_bytes - HEAD_BYTES) / 2).saturating_sub(ENTRY_BYTES + key_bytes)
}

/// Returns the number of bytes of the longest key, in nodes of this many bytes. An entry of a secondary index
/// has two keys.
pub(crate) fn key_bytes_max(node_bytes: usize) -> usize {
    value_bytes_max(node_bytes, 0) / 2
}

/// Returns the room that an entry takes.
pub(super) fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    ENTRY_BYTES + key_bytes + value_bytes
}

/// The head of a node, and the place of its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<P> {
    pub(super) id: NodeId,
    place: P,
    pub(super) count: usize,
    pub(super) is_leaf: bool,
    lowest: usize,
    removed: usize,
    node_bytes: usize,
}

/// The place of an entry in its node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    at: usize,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

impl Entry {
    fn key_at(&self) -> usize {
        self.at + LENGTHS_BYTES
    }

    fn value_at(&self) -> usize {
        self.key_at() + self.key_bytes
    }
}

/// The place where the search for a key ends in a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// The first entry whose key is not smaller than the search key.
    pub(super) entry: usize,
    /// Whether the entry at this position has the search key.
    pub(super) is_there: bool,
}

fn number(bytes: &[u8], at: usize) -> usize {
    let pair = bytes.get(at..).and_then(|rest| rest.first_chunk());
    pair.map_or(0, |pair| usize::from(u16::from_le_bytes(*pair)))
}

fn pair(number: usize) -> [u8; 2] {
    (number as u16).to_le_bytes()
}

/// Makes a buffer `len` bytes long, and returns its bytes.
pub(super) fn sized(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    buf.resize(len, 0);
    buf
}

impl<P: Copy> Node<P> {
    /// Reads the head of a node. Errors: the head is damaged.
    pub(super) fn read<N: NodeStore<Place = P>>(nodes: &N, id: NodeId) -> StoreResult<Node<P>> {
        let place = nodes.locate(id)?;
        let mut head = [0; HEAD_BYTES];
        nodes.read(place, 0, &mut head)?;
        let (count, kind, node_bytes) = (number(&head, 0), number(&head, 2), nodes.node_bytes());
        let (lowest, removed) = (number(&head, 4), number(&head, 6));
        let slots_end = HEAD_BYTES + SLOT_BYTES * count;
        let is_possible = kind < 2 && slots_end <= lowest && lowest + removed <= node_bytes;
        let node = Node { id, place, count, is_leaf: kind == 1, lowest, removed, node_bytes };
        is_possible
            .then_some(node)
            .ok_or_else(|| StoreError::Damaged { what: "the head of a node", at: id.pointer() })
    }

    /// Copies the head, slots and entries of this node into a dirty node.
    pub(super) fn copy_into<N: NodeStore<Place = P>>(
        &self,
        nodes: &mut N,
        into: NodeId,
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        nodes.copy(self.place, into, self.kept(), buf)
    }

    /// Makes a dirty node empty.
    pub(super) fn clear<N: NodeStore<Place = P>>(
        nodes: &mut N,
        id: NodeId,
        is_leaf: bool,
    ) -> StoreResult<Node<P>> {
        let (place, node_bytes) = (nodes.locate(id)?, nodes.node_bytes());
        let node = Node { id, place, count: 0, is_leaf, lowest: node_bytes, removed: 0, node_bytes };
        node.write_head(nodes)?;
        Ok(node)
    }

    fn damaged(&self, what: &'static str) -> StoreError {
        StoreError::Damaged { what, at: self.id.pointer() }
    }

    fn write_head<N: NodeStore<Place = P>>(&self, nodes: &mut N) -> StoreResult<()> {
        let fields = [self.count, usize::from(self.is_leaf), self.lowest, self.removed].map(pair);
        nodes.write(self.place, 0, fields.as_flattened())
    }

    fn slots_end(&self) -> usize {
        HEAD_BYTES + SLOT_BYTES * self.count
    }

    /// Returns the number of bytes for new entries, including the bytes of removed entries.
    pub(super) fn room(&self) -> usize {
        self.lowest - self.slots_end() + self.removed
    }

    /// Returns the number of bytes that the entries take, with their slots.
    pub(super) fn used(&self) -> usize {
        self.node_bytes - HEAD_BYTES - self.room()
    }

    /// Returns whether less than a third of the node is used.
    pub(super) fn is_sparse(&self) -> bool {
        3 * self.used() < self.node_bytes - HEAD_BYTES
    }

    /// Returns whether the entries of both nodes, and `more` bytes, leave a quarter of one node free.
    pub(super) fn can_take(&self, other: &Node<P>, more: usize) -> bool {
        4 * (self.used() + other.used() + more) <= 3 * (self.node_bytes - HEAD_BYTES)
    }

    /// Returns the two ranges of bytes that a node has to keep: the head with the slots, and the entries.
    pub(super) fn kept(&self) -> [std::ops::Range<usize>; 2] {
        [0..self.slots_end(), self.lowest..self.node_bytes]
    }

    fn slot<N: NodeStore<Place = P>>(&self, nodes: &N, entry: usize) -> StoreResult<usize> {
        if entry >= self.count {
            return Err(self.damaged("a node, which has fewer entries than it should"));
        }
        let at = usize::from(nodes.read_pair(self.place, HEAD_BYTES + SLOT_BYTES * entry)?);
        let is_possible = (self.lowest..=self.node_bytes - LENGTHS_BYTES).contains(&at);
        is_possible.then_some(at).ok_or_else(|| self.damaged("a slot of a node"))
    }

    /// Returns an entry.
    pub(super) fn entry<N: NodeStore<Place = P>>(&self, nodes: &N, entry: usize) -> StoreResult<Entry> {
        let at = self.slot(nodes, entry)?;
        let mut lengths = [0; LENGTHS_BYTES];
        nodes.read(self.place, at, &mut lengths)?;
        let entry = Entry { at, key_bytes: number(&lengths, 0), value_bytes: number(&lengths, 2) };
        let is_possible = entry.value_at() + entry.value_bytes <= self.node_bytes;
        is_possible.then_some(entry).ok_or_else(|| self.damaged("an entry of a node"))
    }

    /// Copies the key of an entry.
    pub(super) fn key<N: NodeStore<Place = P>>(
        &self,
        nodes: &N,
        entry: &Entry,
        key: &mut Vec<u8>,
    ) -> StoreResult<()> {
        nodes.read(self.place, entry.key_at(), sized(key, entry.key_bytes))
    }

    /// Copies the value of an entry.
    pub(super) fn value<N: NodeStore<Place = P>>(
        &self,
        nodes: &N,
        entry: &Entry,
        value: &mut Vec<u8>,
    ) -> StoreResult<()> {
        nodes.read(self.place, entry.value_at(), sized(value, entry.value_bytes))
    }

    /// Returns the child of an entry of an inner node.
    pub(super) fn child<N: NodeStore<Place = P>>(&self, nodes: &N, entry: usize) -> StoreResult<NodeId> {
        let entry = self.entry(nodes, entry)?;
        let mut child = [0; 8];
        if entry.value_bytes != child.len() {
            return Err(self.damaged("a child of a node"));
        }
        nodes.read(self.place, entry.value_at(), &mut child)?;
        Ok(NodeId(u64::from_le_bytes(child)))
    }

    /// Compares the key of an entry with another one.
    fn compare<N: NodeStore<Place = P>>(&self, nodes: &N, entry: usize, key: &[u8]) -> StoreResult<Ordering> {
        let at = self.slot(nodes, entry)?;
        let mut piece = [0; PIECE_BYTES];
        // A longer stored key is greater if all bytes of `key` are equal. So its further bytes are not read.
        let len = PIECE_BYTES.min(LENGTHS_BYTES + key.len()).min(self.node_bytes - at);
        let piece = piece.get_mut(..len).unwrap_or_default();
        nodes.read(self.place, at, piece)?;
        let key_bytes = number(piece, 0);
        let stored = piece.get(LENGTHS_BYTES..).unwrap_or_default();
        // Most keys differ in their first eight bytes, which are compared as a number.
        if let (Some(stored), Some(first)) = (stored.first_chunk(), key.first_chunk())
            && key_bytes >= stored.len()
            && stored != first
        {
            return Ok(u64::from_be_bytes(*stored).cmp(&u64::from_be_bytes(*first)));
        }
        let common = key_bytes.min(key.len());
        let first = common.min(stored.len());
        match stored.get(..first).unwrap_or_default().cmp(key.get(..first).unwrap_or_default()) {
            Ordering::Equal if first < common => self.compare_rest(nodes, at, first, key),
            Ordering::Equal => Ok(key_bytes.cmp(&key.len())),
            unequal => Ok(unequal),
        }
    }

    /// Compares the key of an entry that begins at `at` with another one, from their byte `done` on.
    fn compare_rest<N: NodeStore<Place = P>>(
        &self,
        nodes: &N,
        at: usize,
        done: usize,
        key: &[u8],
    ) -> StoreResult<Ordering> {
        let mut lengths = [0; LENGTHS_BYTES];
        nodes.read(self.place, at, &mut lengths)?;
        let key_bytes = number(&lengths, 0);
        let (mut done, common) = (done, key_bytes.min(key.len()));
        let mut piece = [0; PIECE_BYTES];
        while done < common {
            let count = PIECE_BYTES.min(common - done);
            let stored = piece.get_mut(..count).unwrap_or_default();
            nodes.read(self.place, at + LENGTHS_BYTES + done, stored)?;
            match (*stored).cmp(key.get(done..done + count).unwrap_or_default()) {
                Ordering::Equal => done += count,
                unequal => return Ok(unequal),
            }
        }
        Ok(key_bytes.cmp(&key.len()))
    }

    /// Looks for a key.
    pub(super) fn search<N: NodeStore<Place = P>>(&self, nodes: &N, key: &[u8]) -> StoreResult<Position> {
        let (mut first, mut end) = (0, self.count);
        while first < end {
            let middle = first.midpoint(end);
            match self.compare(nodes, middle, key)? {
                Ordering::Less => first = middle + 1,
                Ordering::Equal => return Ok(Position { entry: middle, is_there: true }),
                Ordering::Greater => end = middle,
            }
        }
        Ok(Position { entry: first, is_there: false })
    }

    /// Returns the entry of an inner node whose child is the one for a key.
    pub(super) fn child_of<N: NodeStore<Place = P>>(&self, nodes: &N, key: &[u8]) -> StoreResult<usize> {
        let (mut first, mut end) = (1, self.count);
        while first < end {
            let middle = first.midpoint(end);
            match self.compare(nodes, middle, key)? {
                Ordering::Greater => end = middle,
                Ordering::Less | Ordering::Equal => first = middle + 1,
            }
        }
        Ok(first - 1)
    }

    /// Adds an entry before the one with this number. The node has room for it.
    pub(super) fn insert<N: NodeStore<Place = P>>(
        &mut self,
        nodes: &mut N,
        number: usize,
        entry: NewEntry<'_>,
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let stored = LENGTHS_BYTES + entry.key.len() + entry.value.len();
        if self.lowest - self.slots_end() < stored + SLOT_BYTES {
            self.compact(nodes, buf)?;
        }
        let free = self.lowest - self.slots_end();
        if free < stored + SLOT_BYTES || number > self.count {
            return Err(self.damaged("a node, which lacks the room that its head says"));
        }
        self.lowest -= stored;
        let lengths = [pair(entry.key.len()), pair(entry.value.len())];
        nodes.write(self.place, self.lowest, lengths.as_flattened())?;
        nodes.write(self.place, self.lowest + LENGTHS_BYTES, entry.key)?;
        nodes.write(self.place, self.lowest + LENGTHS_BYTES + entry.key.len(), entry.value)?;
        let slot_at = HEAD_BYTES + SLOT_BYTES * number;
        let moved = sized(buf, self.slots_end() - slot_at + SLOT_BYTES);
        let (slot, behind) = moved.split_at_mut(SLOT_BYTES);
        nodes.read(self.place, slot_at, behind)?;
        slot.copy_from_slice(&pair(self.lowest));
        nodes.write(self.place, slot_at, moved)?;
        self.count += 1;
        self.write_head(nodes)
    }

    /// Removes an entry.
    pub(super) fn remove<N: NodeStore<Place = P>>(
        &mut self,
        nodes: &mut N,
        number: usize,
        buf: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let entry = self.entry(nodes, number)?;
        let slot_at = HEAD_BYTES + SLOT_BYTES * number;
        let behind = sized(buf, self.slots_end() - slot_at - SLOT_BYTES);
        nodes.read(self.place, slot_at + SLOT_BYTES, behind)?;
        nodes.write(self.place, slot_at, behind)?;
        let stored = LENGTHS_BYTES + entry.key_bytes + entry.value_bytes;
        self.count -= 1;
        match entry.at == self.lowest {
            true => self.lowest += stored,
            false => self.removed += stored,
        }
        if self.count == 0 {
            (self.lowest, self.removed) = (self.node_bytes, 0);
        }
        self.write_head(nodes)
    }

    /// Changes bytes of the value of an entry.
    pub(super) fn patch<N: NodeStore<Place = P>>(
        &self,
        nodes: &mut N,
        entry: &Entry,
        at: usize,
        bytes: &[u8],
    ) -> StoreResult<()> {
        match at.checked_add(bytes.len()).is_some_and(|end| end <= entry.value_bytes) {
            true => nodes.write(self.place, entry.value_at() + at, bytes),
            false => Err(self.damaged("a value, which is shorter than it should be")),
        }
    }

    /// Moves the entries to the end of the node, so that all room is in one piece.
    fn compact<N: NodeStore<Place = P>>(&mut self, nodes: &mut N, buf: &mut Vec<u8>) -> StoreResult<()> {
        let copy = NodeCopy::read(nodes, self, buf)?;
        *self = copy.write(nodes, self.id, 0..copy.node.count)?;
        Ok(())
    }
}

/// Returns the ranges of bytes that a node has to keep.
pub(crate) fn kept_ranges<N: NodeStore>(nodes: &N, id: NodeId) -> StoreResult<[std::ops::Range<usize>; 2]> {
    Node::read(nodes, id).map(|node| node.kept())
}

/// An entry that is added.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewEntry<'e> {
    pub(super) key: &'e [u8],
    pub(super) value: &'e [u8],
}

/// The bytes of a node in a buffer, for changes of the whole node.
pub(super) struct NodeCopy<'b, P> {
    pub(super) node: Node<P>,
    bytes: &'b [u8],
}

impl<'b, P: Copy> NodeCopy<'b, P> {
    pub(super) fn read<N: NodeStore<Place = P>>(
        nodes: &N,
        node: &Node<P>,
        buf: &'b mut Vec<u8>,
    ) -> StoreResult<NodeCopy<'b, P>> {
        let bytes = sized(buf, node.node_bytes);
        for range in node.kept() {
            let part = bytes.get_mut(range.clone()).unwrap_or_default();
            nodes.read(node.place, range.start, part)?;
        }
        Ok(NodeCopy { node: *node, bytes })
    }

    /// Returns the bytes of an entry, with its lengths, or `None` if they are damaged.
    fn stored(&self, number_of: usize) -> Option<&[u8]> {
        let at = number(self.bytes, HEAD_BYTES + SLOT_BYTES * number_of);
        let rest = self.bytes.get(at..).filter(|_| number_of < self.node.count && at >= self.node.lowest)?;
        rest.get(..LENGTHS_BYTES + number(rest, 0) + number(rest, 2))
    }

    /// Returns the key of an entry.
    pub(super) fn key(&self, entry: usize) -> StoreResult<&[u8]> {
        let stored = self.stored(entry);
        let key = stored.and_then(|stored| stored.get(LENGTHS_BYTES..LENGTHS_BYTES + number(stored, 0)));
        key.ok_or_else(|| self.node.damaged("an entry of a node"))
    }

    /// Returns the value of an entry.
    pub(super) fn value(&self, entry: usize) -> StoreResult<&[u8]> {
        let stored = self.stored(entry);
        let value = stored.and_then(|stored| stored.get(LENGTHS_BYTES + number(stored, 0)..));
        value.ok_or_else(|| self.node.damaged("an entry of a node"))
    }

    /// Returns how many entries, from the first one on, have together about half of the used bytes.
    pub(super) fn middle(&self) -> usize {
        let half = self.node.used() / 2;
        let mut before = 0;
        for entry in 0..self.node.count {
            let bytes = self.stored(entry).map_or(0, |stored| stored.len() + SLOT_BYTES);
            if before + bytes > half {
                let with_it = before + bytes - half < half - before;
                return (entry + usize::from(with_it)).clamp(1, self.node.count.max(2) - 1);
            }
            before += bytes;
        }
        self.node.count / 2
    }

    /// Writes a range of the entries into a dirty node, in place of all entries that it had.
    pub(super) fn write<N: NodeStore<Place = P>>(
        &self,
        nodes: &mut N,
        into: NodeId,
        entries: std::ops::Range<usize>,
    ) -> StoreResult<Node<P>> {
        let mut node = Node { id: into, place: nodes.locate(into)?, removed: 0, ..self.node };
        (node.count, node.lowest) = (entries.len(), node.node_bytes);
        for (number, entry) in entries.enumerate() {
            let stored = self.stored(entry).ok_or_else(|| self.node.damaged("an entry of a node"))?;
            let below = node.lowest.checked_sub(stored.len()).filter(|lowest| *lowest >= node.slots_end());
            node.lowest = below.ok_or_else(|| self.node.damaged("the entries of a node"))?;
            nodes.write(node.place, node.lowest, stored)?;
            nodes.write(node.place, HEAD_BYTES + SLOT_BYTES * number, &pair(node.lowest))?;
        }
        node.write_head(nodes)?;
        Ok(node)
    }
}
