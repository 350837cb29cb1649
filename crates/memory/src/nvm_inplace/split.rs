//! Growth and shrinking of an index: splits of nodes, and the removal of empty leaves. Each split and each
//! removal is one publication of the allocator. An insert splits full nodes on its way down the tree. So the
//! parent of a node that is split always has a free slot.
//!
//! Invariants
//! 1. After a crash a split is either done or not begun. The same is true after an error, which also gives up
//!    reserved chunks.
//! 2. A withheld slot moves with its entry.
//!
//! This module does not know how entries are found and removed (`index.rs`).

use super::index::{Index, LEVELS_MAX, LeafSlot, SearchKey, Sorted, TOO_MANY_LEVELS};
use super::node::{self, Entry, KeyHead, NODE_BYTES, Node};
use super::removed::RemovedEntries;
use crate::pointer::Pointer;
use crate::publish::{Step, StepList};
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// A node, its entries in the order of their keys, and the position of the first one that moves to the right
/// half.
struct Halves<'n> {
    node: &'n Node,
    sorted: &'n Sorted,
    middle: usize,
}

impl Halves<'_> {
    /// Returns the slots that move to the right half, in order.
    fn moved(&self) -> impl Iterator<Item = usize> {
        self.sorted.as_slice().iter().skip(self.middle).map(|slot| usize::from(*slot))
    }
}

/// The separator that a split puts into the parent, in the entry for the right half.
struct Separator {
    head: KeyHead,
    /// The chunk with the whole separator, if it is long.
    chunk: Pointer,
    /// Whether the chunk is new.
    is_new: bool,
}

/// Chunks that a split has reserved: the right node, a root, a long separator.
#[derive(Default)]
struct Reserved {
    chunks: [Pointer; 3],
    count: usize,
}

impl Reserved {
    fn add(&mut self, space: &Space, index: &Index, len_bytes: u64) -> StoreResult<Pointer> {
        let chunk = space.allocator().allocate(index.owner, len_bytes)?;
        if let Some(free) = self.chunks.get_mut(self.count) {
            *free = chunk;
            self.count += 1;
        }
        Ok(chunk)
    }

    fn give_up(&self, space: &Space) {
        self.chunks.iter().take(self.count).for_each(|chunk| space.give_up_after_error(*chunk));
    }
}

impl Index {
    /// Writes an entry into a free slot of its leaf, but does not make it valid yet. Splits nodes that are
    /// full.
    ///
    /// Errors: the region is full.
    pub(super) fn prepare(
        &self,
        space: &Space,
        key: &SearchKey<'_>,
        tuple: Pointer,
        removed: &mut RemovedEntries,
    ) -> StoreResult<LeafSlot> {
        let mut at = self.root(space);
        // Each round splits one node of the path.
        for _ in 0..=LEVELS_MAX {
            let mut above: Option<Node> = None;
            let mut node = Node::read(space, self.root(space))?;
            for _ in 0..LEVELS_MAX {
                at = node.at;
                let Some(slot) = node.free_slot(removed.withheld(at)) else {
                    self.split(space, above.as_ref(), &node, key, removed)?;
                    break;
                };
                if node.is_leaf() {
                    node.store_entry(space, slot, Entry { head: key.head, pointer: tuple })?;
                    return Ok(LeafSlot { node: at, slot, tuple });
                }
                let next = Node::read(space, node.pointer(self.child(space, &node, key)?))?;
                above = Some(std::mem::replace(&mut node, next));
            }
        }
        Err(StoreError::Damaged { what: TOO_MANY_LEVELS, at })
    }

    /// Splits a full node. `key` will be added next. If it is greater than all keys of the node, the right
    /// half gets only one entry. So inserts in the order of the keys leave full nodes.
    ///
    /// Errors: the region is full.
    fn split(
        &self,
        space: &Space,
        above: Option<&Node>,
        node: &Node,
        key: &SearchKey<'_>,
        removed: &mut RemovedEntries,
    ) -> StoreResult<()> {
        let withheld = removed.withheld(node.at);
        let sorted = self.sorted(space, node, node.slots().and(withheld))?;
        let last = sorted.count().saturating_sub(1);
        let is_at_end = self.compare(space, node, sorted.at(last), key)?.is_lt();
        let middle = if is_at_end { last } else { sorted.count() / 2 };
        let mut reserved = Reserved::default();
        let halves = Halves { node, sorted: &sorted, middle };
        let right = self.split_at(space, above, &halves, &mut reserved);
        let right = right.inspect_err(|_| reserved.give_up(space))?;
        for (to, from) in halves.moved().enumerate().filter(|(_, from)| withheld.has(*from)) {
            removed.release(node.at, from);
            removed.withhold(right, to);
        }
        Ok(())
    }

    /// Publishes a split, and returns the right node.
    fn split_at(
        &self,
        space: &Space,
        above: Option<&Node>,
        halves: &Halves<'_>,
        reserved: &mut Reserved,
    ) -> StoreResult<Pointer> {
        let node = halves.node;
        let separator = self.separator(space, halves, reserved)?;
        let mut right = Node::empty(reserved.add(space, self, NODE_BYTES as u64)?, node.is_leaf());
        let mut bits = node.bits();
        for (to, from) in halves.moved().enumerate() {
            let mut entry = node.entry(from);
            if to == 0 && !node.is_leaf() {
                entry.head = KeyHead::LOWEST;
            }
            right.set(to, entry, node.slots().has(from));
            bits &= !(1 << from);
        }
        right.set_long_separator(separator.chunk);
        right.store(space)?;
        let mut steps = StepList::default();
        steps.add(Step::Activate(right.at));
        steps.add(Step::Store { word: space.word(node.at, node::BITS_AT)?, value: bits });
        let entry = Entry { head: separator.head, pointer: right.at };
        self.add_above(space, above, node.at, entry, reserved, &mut steps)?;
        match separator.is_new {
            true => steps.add(Step::Activate(separator.chunk)),
            false if separator.chunk.is_none() => {}
            // The separator of an inner node moves to the parent, with its chunk.
            false => {
                let child = node.pointer(halves.sorted.at(halves.middle));
                steps.add(Step::Store { word: space.word(child, node::LONG_AT)?, value: 0 });
            }
        }
        space.fence();
        space.allocator().publish(steps.as_slice())?;
        Ok(right.at)
    }

    /// Adds the entry of a right half to the node above, or to a new root.
    fn add_above(
        &self,
        space: &Space,
        above: Option<&Node>,
        left: Pointer,
        entry: Entry,
        reserved: &mut Reserved,
        steps: &mut StepList,
    ) -> StoreResult<()> {
        let free = above.and_then(|above| Some((above, above.free_slot(node::Slots::NONE)?)));
        if let Some((above, slot)) = free {
            above.store_entry(space, slot, entry)?;
            let word = space.word(above.at, node::BITS_AT)?;
            steps.add(Step::Store { word, value: above.bits() | 1 << slot });
            return Ok(());
        }
        let mut root = Node::empty(reserved.add(space, self, NODE_BYTES as u64)?, false);
        root.set(0, Entry { head: KeyHead::LOWEST, pointer: left }, true);
        root.set(1, entry, true);
        root.store(space)?;
        steps.add(Step::Activate(root.at));
        steps.add(Step::Store { word: self.root, value: root.at.to_u64() });
        Ok(())
    }

    fn separator(
        &self,
        space: &Space,
        halves: &Halves<'_>,
        reserved: &mut Reserved,
    ) -> StoreResult<Separator> {
        let Halves { node, sorted, middle } = *halves;
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
        if let Some(head) = KeyHead::between(node.head(sorted.at(middle.saturating_sub(1))), head) {
            return Ok(Separator { head, chunk: Pointer::NONE, is_new: false });
        }
        let key = self.long_key(space, node, right)?;
        let chunk = reserved.add(space, self, 8 + key.len() as u64)?;
        space.store(chunk, 0, &(key.len() as u64).to_le_bytes())?;
        space.store(chunk, 8, &key)?;
        space.write_back(chunk, 8 + key.len() as u64)?;
        Ok(Separator { head, chunk, is_new: true })
    }

    /// Removes the leaf that a key belongs to, if it is empty. Inner nodes that have no child left are
    /// removed, too.
    pub(super) fn remove_if_empty(&self, space: &Space, key: &[u8]) -> StoreResult<()> {
        let key = SearchKey::of(key);
        let mut steps = StepList::default();
        let mut keeper: Option<(Node, usize)> = None;
        let mut node = Node::read(space, self.root(space))?;
        for _ in 0..LEVELS_MAX {
            if node.is_leaf() {
                break;
            }
            let slot = self.child(space, &node, &key)?;
            let next = Node::read(space, node.pointer(slot))?;
            if node.count() > 1 {
                steps = StepList::default();
                keeper = Some((node, slot));
            }
            add_frees(&next, &mut steps);
            node = next;
        }
        let Some((keeper, slot)) = keeper.filter(|_| node.is_leaf() && node.count() == 0) else {
            return Ok(());
        };
        let bits = keeper.bits() & !(1 << slot);
        steps.add(Step::Store { word: space.word(keeper.at, node::BITS_AT)?, value: bits });
        if keeper.head(slot) == KeyHead::LOWEST {
            self.lower_next(space, &keeper, &mut steps)?;
        }
        if steps.is_whole() {
            space.allocator().publish(steps.as_slice())?;
        }
        Ok(())
    }

    /// Adds the steps that make the second entry of an inner node its lowest entry.
    fn lower_next(&self, space: &Space, node: &Node, steps: &mut StepList) -> StoreResult<()> {
        let second = self.sorted(space, node, node.slots())?.at(1);
        let words = node::head_words(space, node.at, second)?;
        words.into_iter().for_each(|word| steps.add(Step::Store { word, value: 0 }));
        let child = Node::read(space, node.pointer(second))?;
        if !child.long_separator().is_none() {
            steps.add(Step::Free(child.long_separator()));
            steps.add(Step::Store { word: space.word(child.at, node::LONG_AT)?, value: 0 });
        }
        Ok(())
    }
}

fn add_frees(node: &Node, steps: &mut StepList) {
    steps.add(Step::Free(node.at));
    if !node.long_separator().is_none() {
        steps.add(Step::Free(node.long_separator()));
    }
}
