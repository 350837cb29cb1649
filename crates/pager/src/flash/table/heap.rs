//! A binary heap of slots of the flash cache. The heap knows the position of each slot, so any slot can be
//! removed.
//!
//! Invariants
//! 1. `places[slot]` is the index of the slot in `slots`, or [`NOWHERE`].
//! 2. No slot has a lower key than its parent.
//!
//! This module does not know what the keys mean.

const NOWHERE: u32 = u32::MAX;

/// The heap; the smallest key is on top.
pub(in crate::flash) struct Heap {
    slots: Vec<(u64, u32)>,
    places: Vec<u32>,
}

impl Heap {
    /// Returns an empty heap for slots with numbers below `count`.
    pub(in crate::flash) fn new(count: u32) -> Heap {
        Heap { slots: Vec::new(), places: vec![NOWHERE; count as usize] }
    }

    /// Adds a slot.
    ///
    /// # Panics
    /// Panics if the slot is in the heap already.
    pub(in crate::flash) fn insert(&mut self, slot: u32, key: u64) {
        assert_eq!(self.places[slot as usize], NOWHERE, "slot {slot} is in the heap");
        self.slots.push((key, slot));
        self.places[slot as usize] = self.slots.len() as u32 - 1;
        self.rise(self.slots.len() - 1);
    }

    /// Returns the slot with the smallest key.
    pub(in crate::flash) fn top(&self) -> Option<u32> {
        self.slots.first().map(|(_, slot)| *slot)
    }

    /// Removes and returns the slot with the smallest key.
    pub(in crate::flash) fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.first()?.1;
        self.remove(slot);
        Some(slot)
    }

    /// Removes a slot. Returns whether it was in the heap.
    pub(in crate::flash) fn remove(&mut self, slot: u32) -> bool {
        let at = std::mem::replace(&mut self.places[slot as usize], NOWHERE);
        if at == NOWHERE {
            return false;
        }
        let at = at as usize;
        self.slots.swap_remove(at);
        if at < self.slots.len() {
            self.places[self.slots[at].1 as usize] = at as u32;
            self.sink(at);
            self.rise(at);
        }
        true
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.slots[parent].0 <= self.slots[at].0 {
                return;
            }
            self.swap(at, parent);
            at = parent;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = (2 * at + 1..2 * at + 3).filter(|child| *child < self.slots.len());
            let Some(least) = children.min_by_key(|child| self.slots[*child].0) else { return };
            if self.slots[at].0 <= self.slots[least].0 {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.slots.swap(a, b);
        self.places[self.slots[a].1 as usize] = a as u32;
        self.places[self.slots[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_out_by_key_and_any_can_be_taken_out() {
        let mut heap = Heap::new(100);
        // 37 and 100 have no common factor, so each key occurs once, and they are not sorted.
        (0..100_u32).for_each(|slot| heap.insert(slot, u64::from(slot) * 37 % 100));
        let gone = [0, 50, 99, 3, 64];
        assert!(gone.iter().all(|slot| heap.remove(*slot)) && !heap.remove(50));
        let out: Vec<u64> =
            std::iter::from_fn(|| heap.pop()).map(|slot| u64::from(slot) * 37 % 100).collect();
        assert_eq!(out.len(), 95);
        assert!(out.is_sorted());
        assert_eq!(heap.pop(), None);
        heap.insert(50, 1);
        assert_eq!(heap.pop(), Some(50));
    }
}
