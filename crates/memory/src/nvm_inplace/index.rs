//! An index: a B+tree in persistent memory, from keys to tuples.
//!
//! A change of an entry is a store of one word, and the undo log can take it back. A split or the removal of
//! an empty leaf is a publication of the allocator, and is never taken back (`split.rs`).
//!
//! Invariants
//! 1. An entry has only the beginning of its key. The whole key is in the tuple that the entry leads to, or
//!    in the node's chunk for long separators.
//! 2. A removed entry keeps its slot until its transaction ends (`removed.rs`). So no room is needed to put
//!    the entry back. No node is removed before the end.
//! 3. Any walk through a tree ends, even if a damaged pointer leads back to a node above.
//!
//! This module does not know the log or other indexes.

use std::cmp::Ordering;

use super::lookup_cache::{KeyHash, LookupCache};
use super::node::{self, ENTRIES, KeyHead, NODE_BYTES, Node, Slots};
use super::removed::RemovedEntries;
use crate::pointer::{Owner, Pointer, Word};
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::{self, TupleHead};

/// The largest number of levels of a tree. A tree with more levels is damaged.
pub(super) const LEVELS_MAX: usize = 24;

pub(super) const TOO_MANY_LEVELS: &str = "a tree of too many levels";
/// The error of a walk that has met more nodes than the region has room for.
pub(super) const CYCLE: &str = "an index whose nodes lead in a circle";
const LACKS_ENTRY: &str = "an index, which lacks the entry of a tuple";

/// An index of a table.
pub(super) struct Index {
    /// The word with the pointer to the root.
    pub(super) root: Word,
    /// The number of the index in its table.
    pub(super) number: usize,
    pub(super) owner: Owner,
    /// Tuples that lookups have found.
    pub(super) cache: LookupCache,
}

/// A tuple, and its head.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTuple {
    pub(super) at: Pointer,
    pub(super) head: TupleHead,
}

/// The bytes of a tuple that the caller will read, counted from its beginning. They are only a hint for
/// prefetching.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedBytes {
    pub(super) from: usize,
    pub(super) len: usize,
}

impl WantedBytes {
    /// The largest number of bytes that are prefetched. If a read is longer, the processor detects the
    /// sequence and prefetches by itself.
    const MAX: usize = 1024;
    /// The size of a usual head, in bytes.
    const HEAD: usize = 32;

    #[inline]
    fn prefetch(self, space: &Space, tuple: Pointer) {
        if self.from > 0 {
            space.prefetch(tuple, 0, Self::HEAD as u64);
        }
        space.prefetch(tuple, self.from as u64, (self.len.min(Self::MAX) + Self::HEAD) as u64);
    }
}

/// An entry of a leaf, or a free slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafSlot {
    pub(super) node: Pointer,
    pub(super) slot: usize,
    /// The tuple that the entry leads to.
    pub(super) tuple: Pointer,
}

/// A key, and its beginning.
#[derive(Clone, Copy)]
pub(super) struct SearchKey<'k> {
    pub(super) bytes: &'k [u8],
    pub(super) head: KeyHead,
}

impl<'k> SearchKey<'k> {
    pub(super) fn of(bytes: &'k [u8]) -> SearchKey<'k> {
        SearchKey { bytes, head: KeyHead::of(bytes) }
    }
}

/// The numbers of a node's entries, sorted by key.
pub(super) struct Sorted {
    slots: [u8; ENTRIES],
    count: usize,
}

impl Sorted {
    pub(super) fn as_slice(&self) -> &[u8] {
        self.slots.get(..self.count).unwrap_or_default()
    }

    pub(super) fn at(&self, place: usize) -> usize {
        self.slots.get(place).map_or(0, |slot| usize::from(*slot))
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Makes an empty root in a reserved chunk. A later fence of the caller makes its bytes durable.
pub(super) fn new_root(space: &Space, owner: Owner) -> StoreResult<Pointer> {
    let root = space.allocator().allocate(owner, NODE_BYTES as u64)?;
    Node::empty(root, true).store(space)?;
    Ok(root)
}

impl Index {
    pub(super) fn root(&self, space: &Space) -> Pointer {
        Pointer::from_u64(space.load(self.root))
    }

    /// Compares the key of an entry with another key.
    #[inline]
    pub(super) fn compare(
        &self,
        space: &Space,
        node: &Node,
        slot: usize,
        key: &SearchKey<'_>,
    ) -> StoreResult<Ordering> {
        let head = node.head(slot);
        match head.cmp(&key.head) {
            Ordering::Equal if !head.is_whole() => self.compare_long(space, node, slot, key.bytes),
            order => Ok(order),
        }
    }

    fn compare_long(&self, space: &Space, node: &Node, slot: usize, key: &[u8]) -> StoreResult<Ordering> {
        let to = node.pointer(slot);
        if node.is_leaf() {
            return tuple::compare(space, to, self.number, key);
        }
        let chunk = Pointer::from_u64(space.load(space.word(to, node::LONG_AT)?));
        let len_bytes = space.load(space.word(chunk, 0)?) as usize;
        tuple::compare_bytes(space, chunk, 8, len_bytes, key)
    }

    /// Returns the entry of an inner node whose subtree has the key.
    #[inline]
    pub(super) fn child(&self, space: &Space, node: &Node, key: &SearchKey<'_>) -> StoreResult<usize> {
        let no_child = || StoreError::Damaged { what: "an inner node without a lowest entry", at: node.at };
        let highest = node.highest_up_to(key.head).ok_or_else(no_child)?;
        match node.head(highest).is_whole() {
            true => Ok(highest),
            false => self.child_by_long_keys(space, node, key)?.ok_or_else(no_child),
        }
    }

    /// Returns the highest entry of an inner node whose key is not greater than `key`. Compares whole keys,
    /// because the heads are not enough to decide.
    fn child_by_long_keys(
        &self,
        space: &Space,
        node: &Node,
        key: &SearchKey<'_>,
    ) -> StoreResult<Option<usize>> {
        let mut highest: Option<usize> = None;
        for slot in node.slots() {
            let is_higher = match highest {
                Some(other) => self.order(space, node, slot, other)?.is_gt(),
                None => true,
            };
            if is_higher && self.compare(space, node, slot, key)?.is_le() {
                highest = Some(slot);
            }
        }
        Ok(highest)
    }

    /// Compares two entries of a node.
    fn order(&self, space: &Space, node: &Node, left: usize, right: usize) -> StoreResult<Ordering> {
        match node.head(left).cmp(&node.head(right)) {
            Ordering::Equal if !node.head(left).is_whole() => {
                let key = self.long_key(space, node, right)?;
                self.compare_long(space, node, left, &key)
            }
            order => Ok(order),
        }
    }

    /// Returns the whole key of an entry that is long.
    pub(super) fn long_key(&self, space: &Space, node: &Node, slot: usize) -> StoreResult<Vec<u8>> {
        let (to, mut key) = (node.pointer(slot), Vec::new());
        if node.is_leaf() {
            TupleHead::read(space, to)?.key(space, to, self.number, &mut key)?;
            return Ok(key);
        }
        let chunk = Pointer::from_u64(space.load(space.word(to, node::LONG_AT)?));
        let len_bytes = space.load(space.word(chunk, 0)?) as usize;
        if len_bytes > tuple::KEY_BYTES_MAX {
            return Err(StoreError::Damaged { what: "a long separator", at: chunk });
        }
        key.resize(len_bytes, 0);
        space.read(chunk, 8, &mut key)?;
        Ok(key)
    }

    /// Entries of a node in the order of their keys.
    pub(super) fn sorted(&self, space: &Space, node: &Node, slots: Slots) -> StoreResult<Sorted> {
        let mut sorted = Sorted { slots: [0; ENTRIES], count: 0 };
        for slot in slots {
            let mut to = sorted.count;
            while to > 0 && self.order(space, node, slot, sorted.at(to - 1))?.is_lt() {
                to -= 1;
            }
            sorted.slots.copy_within(to..sorted.count, to + 1);
            sorted.slots[to] = slot as u8;
            sorted.count += 1;
        }
        Ok(sorted)
    }

    /// Returns the leaf that has a key, or would have it.
    #[inline]
    fn leaf(&self, space: &Space, key: &SearchKey<'_>) -> StoreResult<Node> {
        let mut node = Node::read(space, self.root(space))?;
        for _ in 0..LEVELS_MAX {
            if node.is_leaf() {
                return Ok(node);
            }
            let slot = self.child(space, &node, key)?;
            node.load(space, node.pointer(slot))?;
        }
        Err(StoreError::Damaged { what: TOO_MANY_LEVELS, at: node.at })
    }

    /// Returns the entry of a key.
    pub(super) fn find(&self, space: &Space, key: &SearchKey<'_>) -> StoreResult<Option<LeafSlot>> {
        let leaf = self.leaf(space, key)?;
        for slot in leaf.slots() {
            if leaf.head(slot) == key.head && self.compare(space, &leaf, slot, key)?.is_eq() {
                return Ok(Some(LeafSlot { node: leaf.at, slot, tuple: leaf.pointer(slot) }));
            }
        }
        Ok(None)
    }

    /// Returns the tuple of a key. The cache of lookups is searched first.
    pub(super) fn lookup(
        &self,
        space: &Space,
        key: &[u8],
        wanted: WantedBytes,
    ) -> StoreResult<Option<ReadTuple>> {
        if !self.cache.is_on() {
            return self.lookup_in_tree(space, key, wanted);
        }
        let hash = KeyHash::of(key);
        for at in self.cache.tuples(hash) {
            wanted.prefetch(space, at);
            let head = TupleHead::read(space, at)?;
            if head.compare(space, at, self.number, key)?.is_eq() {
                return Ok(Some(ReadTuple { at, head }));
            }
        }
        let found = self.lookup_in_tree(space, key, wanted)?;
        if let Some(tuple) = found {
            self.cache.note(hash, tuple.at);
        }
        Ok(found)
    }

    fn lookup_in_tree(
        &self,
        space: &Space,
        key: &[u8],
        wanted: WantedBytes,
    ) -> StoreResult<Option<ReadTuple>> {
        let Some(slot) = self.find(space, &SearchKey::of(key))? else { return Ok(None) };
        wanted.prefetch(space, slot.tuple);
        let head = TupleHead::read(space, slot.tuple)?;
        Ok(Some(ReadTuple { at: slot.tuple, head }))
    }

    /// Puts the tuple of a key, whose entry is valid now, into the cache of lookups.
    pub(super) fn note(&self, key: &[u8], tuple: Pointer) {
        if self.cache.is_on() {
            self.cache.note(KeyHash::of(key), tuple);
        }
    }

    /// Removes the tuple of a key from the cache of lookups, because the entry does not lead to the tuple any
    /// more.
    pub(super) fn forget(&self, key: &[u8], tuple: Pointer) {
        if self.cache.is_on() {
            self.cache.forget(KeyHash::of(key), tuple);
        }
    }

    /// Returns the entry that leads to a tuple with this key.
    pub(super) fn find_tuple(
        &self,
        space: &Space,
        key: &SearchKey<'_>,
        tuple: Pointer,
    ) -> StoreResult<Option<LeafSlot>> {
        let leaf = self.leaf(space, key)?;
        let slot = leaf.slots().find(|slot| leaf.pointer(*slot) == tuple);
        Ok(slot.map(|slot| LeafSlot { node: leaf.at, slot, tuple }))
    }

    /// Makes the entry of a tuple invalid, and withholds its slot from inserts. The caller's next fence makes
    /// this durable. Returns whether the leaf has no valid entry left.
    ///
    /// Errors: the index has no such entry, so it is damaged.
    pub(super) fn remove(
        &self,
        space: &Space,
        key: &[u8],
        tuple: Pointer,
        removed: &mut RemovedEntries,
    ) -> StoreResult<bool> {
        self.forget(key, tuple);
        let slot = self.find_tuple(space, &SearchKey::of(key), tuple)?;
        let slot = slot.ok_or(StoreError::Damaged { what: LACKS_ENTRY, at: tuple })?;
        removed.withhold(slot.node, slot.slot);
        Ok(self.set_valid(space, &slot, false)? == 0)
    }

    /// Makes a removed entry valid again. The caller's next fence makes this durable. `removed` is `None` at
    /// a start.
    ///
    /// If the entry is not found, nothing is done: an interrupted start has already undone older changes of
    /// the same slot.
    pub(super) fn put_back(
        &self,
        space: &Space,
        key: &SearchKey<'_>,
        tuple: Pointer,
        removed: Option<&mut RemovedEntries>,
    ) -> StoreResult<()> {
        let leaf = self.leaf(space, key)?;
        if leaf.slots().any(|slot| leaf.pointer(slot) == tuple) {
            return Ok(());
        }
        let candidates = match &removed {
            Some(removed) => removed.withheld(leaf.at),
            None => Slots::ALL.without(leaf.slots()),
        };
        let is_entry = |slot: &usize| leaf.pointer(*slot) == tuple && leaf.head(*slot) == key.head;
        if let Some(slot) = candidates.into_iter().find(is_entry) {
            self.set_valid(space, &LeafSlot { node: leaf.at, slot, tuple }, true)?;
            if let Some(removed) = removed {
                removed.release(leaf.at, slot);
            }
        }
        Ok(())
    }

    /// Makes an entry valid or invalid. The caller's next fence makes this durable. Returns the number of
    /// valid entries that the leaf has then.
    pub(super) fn set_valid(&self, space: &Space, entry: &LeafSlot, is_valid: bool) -> StoreResult<u32> {
        let word = space.word(entry.node, node::BITS_AT)?;
        let bit = 1 << entry.slot;
        let before = space.load(word);
        let bits = if is_valid { before | bit } else { before & !bit };
        space.store_word(word, bits);
        Ok((bits & ((1 << ENTRIES) - 1)).count_ones())
    }

    /// Changes an entry, so that it leads to another tuple with the same key. The caller's next fence makes
    /// this durable.
    pub(super) fn exchange(&self, space: &Space, entry: &LeafSlot, tuple: Pointer) -> StoreResult<()> {
        space.store_word(node::pointer_word(space, entry.node, entry.slot)?, tuple.to_u64());
        Ok(())
    }

    /// Changes the entry of a key, so that it leads to `new` instead of `old`.
    ///
    /// Errors: the index has no such entry, so it is damaged.
    pub(super) fn exchange_tuple(
        &self,
        space: &Space,
        key: &[u8],
        old: Pointer,
        new: Pointer,
    ) -> StoreResult<()> {
        self.forget(key, old);
        let slot = self.find_tuple(space, &SearchKey::of(key), old)?;
        self.exchange(space, &slot.ok_or(StoreError::Damaged { what: LACKS_ENTRY, at: old })?, new)
    }

    /// Adds the chunks of the index: its nodes and long separators, and the tuples if this is the primary
    /// index.
    pub(super) fn add_chunks(&self, space: &Space, chunks: &mut Vec<Pointer>) -> StoreResult<()> {
        let mut nodes = vec![self.root(space)];
        let mut nodes_left = space.chunks_max(NODE_BYTES as u64);
        while let Some(at) = nodes.pop() {
            nodes_left = nodes_left.checked_sub(1).ok_or(StoreError::Damaged { what: CYCLE, at })?;
            let node = Node::read(space, at)?;
            chunks.push(at);
            chunks.extend(Some(node.long_separator()).filter(|chunk| !chunk.is_none()));
            let pointers = node.slots().map(|slot| node.pointer(slot));
            match node.is_leaf() {
                false => nodes.extend(pointers),
                true if self.number == 0 => chunks.extend(pointers),
                true => {}
            }
        }
        Ok(())
    }
}
