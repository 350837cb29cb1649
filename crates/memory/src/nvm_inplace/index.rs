//! An index: a B+tree in persistent memory, from keys to tuples.
//!
//! Changes of an entry are stores of one word, which the undo log takes back. Splits and the removal of an
//! empty leaf are publications of the allocator, which are never taken back. Full nodes are split on the way
//! down, so a split needs one node above it.
//!
//! Invariants
//! 1. A key that an entry begins is in the tuple that the entry leads to, or in the node's chunk for long
//!    separators.
//! 2. A leaf from which the open transaction has removed an entry has room to get it back: entries that were
//!    added behind that are taken out first, and no node is removed before the commit.
//! 3. A node's slot whose bit is cleared is not filled again before a fence.
//!
//! What it does not know: the log, other indexes.

use std::cmp::Ordering;

use super::node::{self, ENTRIES, Entry, KeyHead, NODE_BYTES, Node};
use crate::pointer::{Owner, Pointer, Word};
use crate::publish::Step;
use crate::sizes::STEPS_MAX;
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};
use crate::tuple;

/// The most levels of a tree. More are damage.
const LEVELS_MAX: usize = 24;

/// An index of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    /// The word with the pointer to the root.
    pub(super) root: Word,
    /// Its number in the table.
    pub(super) number: usize,
    pub(super) owner: Owner,
}

/// An entry of a leaf, or a free slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafSlot {
    node: Pointer,
    slot: usize,
    tuple: Pointer,
}

impl LeafSlot {
    /// The tuple that the entry leads to.
    pub(super) fn tuple(&self) -> Pointer {
        self.tuple
    }
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

    fn at(&self, place: usize) -> usize {
        self.slots.get(place).map_or(0, |slot| usize::from(*slot))
    }
}

/// The separator that a split puts above the right half.
struct Separator {
    head: KeyHead,
    /// A chunk that holds it, if it is long.
    chunk: Pointer,
    /// Whether the chunk is new.
    is_new: bool,
}

/// Makes an empty root in a reserved chunk; a caller's fence makes it durable.
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

    /// The entry of an inner node whose subtree has the key.
    #[inline]
    fn child(&self, space: &Space, node: &Node, key: &SearchKey<'_>) -> StoreResult<usize> {
        let mut best: Option<(usize, KeyHead)> = None;
        for slot in node.slots() {
            let head = node.head(slot);
            if head > key.head || best.is_some_and(|(_, highest)| head < highest) {
                continue;
            }
            if head == key.head && self.compare(space, node, slot, key)? == Ordering::Greater {
                continue;
            }
            match best {
                Some((other, highest))
                    if highest == head && self.order(space, node, slot, other)?.is_lt() => {}
                _ => best = Some((slot, head)),
            }
        }
        let no_child = StoreError::Damaged { what: "an inner node without a lowest entry", at: node.at };
        best.map(|(slot, _)| slot).ok_or(no_child)
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

    /// The whole key of an entry that is long.
    fn long_key(&self, space: &Space, node: &Node, slot: usize) -> StoreResult<Vec<u8>> {
        let (to, mut key) = (node.pointer(slot), Vec::new());
        if node.is_leaf() {
            tuple::TupleHead::read(space, to)?.key(space, to, self.number, &mut key)?;
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

    /// The entries of a node in the order of their keys.
    pub(super) fn sorted(&self, space: &Space, node: &Node) -> StoreResult<Sorted> {
        let mut sorted = Sorted { slots: [0; ENTRIES], count: 0 };
        for slot in node.slots() {
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

    /// The leaf whose keys are around a key.
    #[inline]
    fn leaf(&self, space: &Space, key: &SearchKey<'_>) -> StoreResult<Node> {
        let mut node = Node::read(space, self.root(space))?;
        for _ in 0..LEVELS_MAX {
            if node.is_leaf() {
                return Ok(node);
            }
            let slot = self.child(space, &node, key)?;
            node = Node::read(space, node.pointer(slot))?;
        }
        Err(StoreError::Damaged { what: "a tree of too many levels", at: node.at })
    }

    /// The entry of a key.
    pub(super) fn find(&self, space: &Space, key: &SearchKey<'_>) -> StoreResult<Option<LeafSlot>> {
        let leaf = self.leaf(space, key)?;
        for slot in leaf.slots() {
            if leaf.head(slot) == key.head && self.compare(space, &leaf, slot, key)?.is_eq() {
                return Ok(Some(LeafSlot { node: leaf.at, slot, tuple: leaf.pointer(slot) }));
            }
        }
        Ok(None)
    }

    /// The entry that leads to a tuple with this key.
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

    /// Writes an entry into a free slot, and does not make it valid yet. Splits nodes that are full.
    ///
    /// Errors: the region is full.
    pub(super) fn prepare(
        &self,
        space: &Space,
        key: &SearchKey<'_>,
        tuple: Pointer,
    ) -> StoreResult<LeafSlot> {
        'down: loop {
            let mut above: Option<Node> = None;
            let mut node = Node::read(space, self.root(space))?;
            for _ in 0..LEVELS_MAX {
                let Some(slot) = node.free_slot() else {
                    self.split(space, above.as_ref(), &node, key)?;
                    continue 'down;
                };
                if node.is_leaf() {
                    node.store_entry(space, slot, Entry { head: key.head, pointer: tuple })?;
                    return Ok(LeafSlot { node: node.at, slot, tuple });
                }
                let next = Node::read(space, node.pointer(self.child(space, &node, key)?))?;
                above = Some(std::mem::replace(&mut node, next));
            }
            return Err(StoreError::Damaged { what: "a tree of too many levels", at: node.at });
        }
    }

    /// Makes an entry valid or not valid; durable with the caller's next fence. Gives the number of entries
    /// that the leaf has then.
    pub(super) fn set_valid(&self, space: &Space, entry: &LeafSlot, is_valid: bool) -> StoreResult<u32> {
        let word = space.word(entry.node, node::BITS_AT)?;
        let bit = 1 << entry.slot;
        let before = space.load(word);
        let bits = if is_valid { before | bit } else { before & !bit };
        space.store_word(word, bits);
        Ok((bits & ((1 << ENTRIES) - 1)).count_ones())
    }

    /// Lets an entry lead to another tuple with the same key; durable with the caller's next fence.
    pub(super) fn exchange(&self, space: &Space, entry: &LeafSlot, tuple: Pointer) -> StoreResult<()> {
        space.store_word(node::pointer_word(space, entry.node, entry.slot)?, tuple.to_u64());
        Ok(())
    }

    /// Splits a full node. `key` is about to be added: at the end of the tree the right half gets one entry,
    /// so that keys that come in order leave full nodes behind.
    fn split(
        &self,
        space: &Space,
        above: Option<&Node>,
        node: &Node,
        key: &SearchKey<'_>,
    ) -> StoreResult<()> {
        let sorted = self.sorted(space, node)?;
        let last = sorted.count - 1;
        let is_at_end = self.compare(space, node, sorted.at(last), key)?.is_lt();
        let middle = if is_at_end { last } else { sorted.count / 2 };
        let mut reserved = Vec::with_capacity(3);
        let published = self.split_at(space, above, node, &sorted, middle, &mut reserved);
        if published.is_err() {
            for chunk in reserved {
                space.give_up(chunk)?;
            }
        }
        published
    }

    fn split_at(
        &self,
        space: &Space,
        above: Option<&Node>,
        node: &Node,
        sorted: &Sorted,
        middle: usize,
        reserved: &mut Vec<Pointer>,
    ) -> StoreResult<()> {
        let separator = self.separator(space, node, sorted, middle, reserved)?;
        let right = self.reserve_node(space, reserved)?;
        let mut right = Node::empty(right, node.is_leaf());
        let moved = sorted.as_slice().get(middle..).unwrap_or_default();
        let mut bits = node.bits();
        for (to, from) in moved.iter().map(|slot| usize::from(*slot)).enumerate() {
            let mut entry = node.entry(from);
            if to == 0 && !node.is_leaf() {
                entry.head = KeyHead::LOWEST;
            }
            right.set(to, entry);
            bits &= !(1 << from);
        }
        right.set_long_separator(separator.chunk);
        right.store(space)?;
        let entry = Entry { head: separator.head, pointer: right.at };
        let mut steps = [Step::Activate(right.at); 5];
        let mut count = 1;
        let mut add = |step| {
            steps[count] = step;
            count += 1;
        };
        add(Step::Store { word: space.word(node.at, node::BITS_AT)?, value: bits });
        match above.map(|above| (above, above.free_slot())) {
            Some((above, Some(slot))) => {
                above.store_entry(space, slot, entry)?;
                let word = space.word(above.at, node::BITS_AT)?;
                add(Step::Store { word, value: above.bits() | 1 << slot });
            }
            _ => {
                let mut root = Node::empty(self.reserve_node(space, reserved)?, false);
                root.set(0, Entry { head: KeyHead::LOWEST, pointer: node.at });
                root.set(1, entry);
                root.store(space)?;
                add(Step::Activate(root.at));
                add(Step::Store { word: self.root, value: root.at.to_u64() });
            }
        }
        match separator.is_new {
            true => add(Step::Activate(separator.chunk)),
            false if separator.chunk.is_none() => {}
            // The separator moves up with its chunk.
            false => {
                let child = node.pointer(sorted.at(middle));
                add(Step::Store { word: space.word(child, node::LONG_AT)?, value: 0 });
            }
        }
        space.fence();
        Ok(space.allocator().publish(steps.get(..count).unwrap_or_default())?)
    }

    fn reserve_node(&self, space: &Space, reserved: &mut Vec<Pointer>) -> StoreResult<Pointer> {
        let chunk = space.allocator().allocate(self.owner, NODE_BYTES as u64)?;
        reserved.push(chunk);
        Ok(chunk)
    }

    fn separator(
        &self,
        space: &Space,
        node: &Node,
        sorted: &Sorted,
        middle: usize,
        reserved: &mut Vec<Pointer>,
    ) -> StoreResult<Separator> {
        let right = sorted.at(middle);
        let head = node.head(right);
        if !node.is_leaf() {
            let child = node.pointer(right);
            let chunk = match head.is_whole() {
                true => Pointer::NONE,
                false => Pointer::from_u64(space.load(space.word(child, node::LONG_AT)?)),
            };
            return Ok(Separator { head, chunk, is_new: false });
        }
        if let Some(head) = KeyHead::between(node.head(sorted.at(middle - 1)), head) {
            return Ok(Separator { head, chunk: Pointer::NONE, is_new: false });
        }
        let key = self.long_key(space, node, right)?;
        let chunk = space.allocator().allocate(self.owner, 8 + key.len() as u64)?;
        reserved.push(chunk);
        space.store(chunk, 0, &(key.len() as u64).to_le_bytes())?;
        space.store(chunk, 8, &key)?;
        space.write_back(chunk, 8 + key.len() as u64)?;
        Ok(Separator { head, chunk, is_new: true })
    }

    /// Adds the chunks of its nodes and long separators, and of the tuples if it is the primary index.
    pub(super) fn add_chunks(
        &self,
        space: &Space,
        at: Pointer,
        chunks: &mut Vec<Pointer>,
    ) -> StoreResult<()> {
        let node = Node::read(space, at)?;
        chunks.push(at);
        chunks.extend(Some(node.long_separator()).filter(|chunk| !chunk.is_none()));
        for pointer in node.slots().map(|slot| node.pointer(slot)) {
            match node.is_leaf() {
                false => self.add_chunks(space, pointer, chunks)?,
                true if self.number == 0 => chunks.push(pointer),
                true => {}
            }
        }
        Ok(())
    }

    /// Removes the leaf that a key is in, if it is empty, with the inner nodes that would be empty then.
    pub(super) fn remove_if_empty(&self, space: &Space, key: &[u8]) -> StoreResult<()> {
        let key = SearchKey::of(key);
        let mut steps: Vec<Step> = Vec::with_capacity(STEPS_MAX);
        let mut keeper: Option<(Node, usize)> = None;
        let mut node = Node::read(space, self.root(space))?;
        for _ in 0..LEVELS_MAX {
            if node.is_leaf() {
                break;
            }
            let slot = self.child(space, &node, &key)?;
            let next = Node::read(space, node.pointer(slot))?;
            if node.count() > 1 {
                steps.clear();
                keeper = Some((node, slot));
            }
            add_frees(&next, &mut steps);
            node = next;
        }
        let Some((keeper, slot)) = keeper.filter(|_| node.is_leaf() && node.count() == 0) else {
            return Ok(());
        };
        let bits = keeper.bits() & !(1 << slot);
        steps.push(Step::Store { word: space.word(keeper.at, node::BITS_AT)?, value: bits });
        if keeper.head(slot) == KeyHead::LOWEST {
            self.lower_next(space, &keeper, &mut steps)?;
        }
        if steps.len() <= STEPS_MAX {
            space.allocator().publish(&steps)?;
        }
        Ok(())
    }

    /// The steps that make the second entry of an inner node its lowest one.
    fn lower_next(&self, space: &Space, node: &Node, steps: &mut Vec<Step>) -> StoreResult<()> {
        let second = self.sorted(space, node)?.at(1);
        let words = node::head_words(space, node.at, second)?;
        steps.extend(words.map(|word| Step::Store { word, value: 0 }));
        let child = Node::read(space, node.pointer(second))?;
        if !child.long_separator().is_none() {
            steps.push(Step::Free(child.long_separator()));
            steps.push(Step::Store { word: space.word(child.at, node::LONG_AT)?, value: 0 });
        }
        Ok(())
    }
}

fn add_frees(node: &Node, steps: &mut Vec<Step>) {
    steps.push(Step::Free(node.at));
    if !node.long_separator().is_none() {
        steps.push(Step::Free(node.long_separator()));
    }
}
