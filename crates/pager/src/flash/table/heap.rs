//! A binary heap of slots of the flash cache. The heap knows the position of each slot, so any slot can be
//! removed.
//!
//! Invariants
//! 1. `places[frame]` is the index of the slot in `frames`, or [`NOWHERE`].
//! 2. No slot has a lower key than its parent.
//!
//! Not known here: what the keys mean.

const NOWHERE: u32 = u32::MAX;

/// The heap; the smallest key is on top.
pub(in crate::flash) struct Heap {
    frames: Vec<(u64, u32)>,
    places: Vec<u32>,
}

impl Heap {
    /// Of frames below `count`; none is in it.
    pub(in crate::flash) fn new(count: u32) -> Heap {
        Heap { frames: Vec::new(), places: vec![NOWHERE; count as usize] }
    }

    /// Adds a frame.
    ///
    /// # Panics
    /// If it is there.
    pub(in crate::flash) fn insert(&mut self, frame: u32, key: u64) {
        assert_eq!(self.places[frame as usize], NOWHERE, "frame {frame} is in the heap");
        self.frames.push((key, frame));
        self.places[frame as usize] = self.frames.len() as u32 - 1;
        self.rise(self.frames.len() - 1);
    }

    /// The frame with the smallest key.
    pub(in crate::flash) fn top(&self) -> Option<u32> {
        self.frames.first().map(|(_, frame)| *frame)
    }

    /// Takes the frame with the smallest key.
    pub(in crate::flash) fn pop(&mut self) -> Option<u32> {
        let frame = self.frames.first()?.1;
        self.remove(frame);
        Some(frame)
    }

    /// Takes this one out. Whether it was there.
    pub(in crate::flash) fn remove(&mut self, frame: u32) -> bool {
        let at = std::mem::replace(&mut self.places[frame as usize], NOWHERE);
        if at == NOWHERE {
            return false;
        }
        let at = at as usize;
        self.frames.swap_remove(at);
        if at < self.frames.len() {
            self.places[self.frames[at].1 as usize] = at as u32;
            self.sink(at);
            self.rise(at);
        }
        true
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.frames[parent].0 <= self.frames[at].0 {
                return;
            }
            self.swap(at, parent);
            at = parent;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = (2 * at + 1..2 * at + 3).filter(|child| *child < self.frames.len());
            let Some(least) = children.min_by_key(|child| self.frames[*child].0) else { return };
            if self.frames[at].0 <= self.frames[least].0 {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.frames.swap(a, b);
        self.places[self.frames[a].1 as usize] = a as u32;
        self.places[self.frames[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_by_key_and_any_can_be_taken_out() {
        let mut heap = Heap::new(100);
        // 37 and 100 have no common factor: all keys once, in no order.
        (0..100_u32).for_each(|frame| heap.insert(frame, u64::from(frame) * 37 % 100));
        let gone = [0, 50, 99, 3, 64];
        assert!(gone.iter().all(|frame| heap.remove(*frame)) && !heap.remove(50));
        let out: Vec<u64> =
            std::iter::from_fn(|| heap.pop()).map(|frame| u64::from(frame) * 37 % 100).collect();
        assert_eq!(out.len(), 95);
        assert!(out.is_sorted());
        assert_eq!(heap.pop(), None);
        heap.insert(50, 1);
        assert_eq!(heap.pop(), Some(50));
    }
}
