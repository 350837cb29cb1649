//! The states of the chunks of one slab, in the memory of the running program.
//!
//! The edges of this diagram are functions of this file. Only `set_active` changes a bit that is also stored
//! in the region.
//!
//! ```text
//!           take                 claim, set_active(true), unclaim
//!   free ---------> reserved -------------------------------------> active
//!    ^                 |                                               |
//!    |  claim, release |                                               |
//!    +-----------------+                                               |
//!    |                     claim, set_active(false), release           |
//!    +-----------------------------------------------------------------+
//! ```
//!
//! Invariants
//! 1. A chunk that is active or claimed is also taken.
//! 2. A chunk whose bit is being cleared stays taken until the cleared bit is durable. So no thread writes
//!    into a chunk that a crash would make active again.
//! 3. Only the call that has claimed a chunk changes its state. Other calls that name the chunk are refused.
//!
//! This module does not know where the slab is, locks, or fences.

use crate::classes::Class;
use crate::layout::get_u64;

/// The state of a slab's chunks.
pub(crate) struct Slab {
    slots: u32,
    free: u32,
    /// The chunk at which the next search for a free chunk begins. It moves on with each allocation, so that
    /// all chunks wear evenly.
    next: u32,
    /// The states of 64 chunks each.
    words: Box<[StateWord]>,
}

/// A bit for each of 64 chunks in each field. The three fields are together, so that a change of a chunk's
/// state touches only one cache line.
#[derive(Debug, Clone, Copy, Default)]
struct StateWord {
    /// The chunk is not free.
    taken: u64,
    /// The bits as they are stored in the region.
    active: u64,
    /// A call is changing the state of the chunk.
    claimed: u64,
}

/// The reason why a chunk cannot be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The chunk is free.
    Free,
    /// The chunk is active already.
    Active,
    /// Another call is changing the chunk.
    Claimed,
}

/// The change for which a chunk is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The chunk becomes active.
    Activate,
    /// The chunk becomes free.
    Free,
}

fn word_of(slot: u32) -> usize {
    (slot / u64::BITS) as usize
}

fn bit_of(slot: u32) -> u64 {
    1 << (slot % u64::BITS)
}

impl Slab {
    /// Returns a slab whose chunks are free.
    pub(crate) fn empty(class: Class) -> Slab {
        Slab::with_active(class, std::iter::repeat_n(0, class.words()))
    }

    /// Returns the slab with this bitmap, or `None` if a bit is set that belongs to no chunk.
    pub(crate) fn from_bitmap(class: Class, bitmap: &[u8]) -> Option<Slab> {
        let slab = Slab::with_active(class, (0..class.words()).map(|word| get_u64(bitmap, word * 8)));
        let beyond = (class.slots()..class.words() as u32 * u64::BITS).any(|slot| slab.is_taken(slot));
        (!beyond).then_some(slab)
    }

    fn with_active(class: Class, active: impl Iterator<Item = u64>) -> Slab {
        let words: Box<[StateWord]> =
            active.map(|active| StateWord { taken: active, active, claimed: 0 }).collect();
        let slots = class.slots();
        let taken: u32 = words.iter().map(|word| word.taken.count_ones()).sum();
        Slab { slots, free: slots.saturating_sub(taken), next: 0, words }
    }

    /// Returns the states of the 64 chunks in whose word this chunk is.
    fn state(&self, slot: u32) -> StateWord {
        self.words.get(word_of(slot)).copied().unwrap_or_default()
    }

    fn change(&mut self, slot: u32, change: impl FnOnce(&mut StateWord, u64)) {
        if let Some(word) = self.words.get_mut(word_of(slot)) {
            change(word, bit_of(slot));
        }
    }

    /// Chunks that are not free.
    pub(crate) fn taken_count(&self) -> u32 {
        self.slots - self.free
    }

    /// Returns the number of free chunks.
    pub(crate) fn free_count(&self) -> u32 {
        self.free
    }

    /// Returns whether no chunk is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Returns whether a chunk is not free.
    pub(crate) fn is_taken(&self, slot: u32) -> bool {
        self.state(slot).taken & bit_of(slot) != 0
    }

    /// Returns the active chunks.
    pub(crate) fn active(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0..).step_by(u64::BITS as usize).zip(&self.words);
        words.flat_map(|(first, word)| {
            (0..u64::BITS).filter(move |bit| word.active >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    /// Returns the numbers of those words of the bitmap in which a bit is set.
    pub(crate) fn words_with_active(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.words).filter(|(_, word)| word.active != 0).map(|(number, _)| number)
    }

    /// Reserves the next free chunk after the chunk that was reserved last.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let slot = self.free_from(self.next).or_else(|| self.free_from(0))?;
        self.change(slot, |word, bit| word.taken |= bit);
        self.free -= 1;
        self.next = slot + 1;
        Some(slot)
    }

    fn free_from(&self, from: u32) -> Option<u32> {
        let first = (from / u64::BITS) as usize;
        let words = self.words.iter().enumerate().skip(first);
        let free = words.map(|(word, states)| {
            let before = if word == first { (1_u64 << (from % u64::BITS)) - 1 } else { 0 };
            (word, !states.taken & !before)
        });
        let (word, free) = free.into_iter().find(|(_, free)| *free != 0)?;
        let slot = word as u32 * u64::BITS + free.trailing_zeros();
        (slot < self.slots).then_some(slot)
    }

    /// Claims a chunk for a change, and returns whether it is active.
    pub(crate) fn claim(&mut self, slot: u32, intent: Intent) -> Result<bool, Refused> {
        let (states, bit) = (self.state(slot), bit_of(slot));
        let is_active = states.active & bit != 0;
        if states.taken & bit == 0 {
            return Err(Refused::Free);
        }
        if states.claimed & bit != 0 {
            return Err(Refused::Claimed);
        }
        if is_active && intent == Intent::Activate {
            return Err(Refused::Active);
        }
        self.change(slot, |word, bit| word.claimed |= bit);
        Ok(is_active)
    }

    /// Ends a claim, and does not change the state of the chunk.
    pub(crate) fn unclaim(&mut self, slot: u32) {
        self.change(slot, |word, bit| word.claimed &= !bit);
    }

    /// Sets or clears the bit of a claimed chunk. Returns the number of the word of the bitmap that has to be
    /// stored, and its value.
    pub(crate) fn set_active(&mut self, slot: u32, is_active: bool) -> (usize, u64) {
        self.change(slot, |word, bit| match is_active {
            true => word.active |= bit,
            false => word.active &= !bit,
        });
        (word_of(slot), self.state(slot).active)
    }

    /// Makes all chunks free.
    pub(crate) fn clear(&mut self) {
        self.words.fill(StateWord::default());
        self.free = self.slots;
    }

    /// Makes a claimed chunk free. Its bit is already cleared.
    pub(crate) fn release(&mut self, slot: u32) {
        self.change(slot, |word, bit| {
            word.claimed &= !bit;
            word.taken &= !bit;
        });
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab(len_bytes: u64) -> Slab {
        let Some(class) = Class::fitting(len_bytes) else { panic!("it has a class") };
        Slab::empty(class)
    }

    #[test]
    fn chunks_are_taken_in_turn_and_each_once() {
        for len_bytes in [16, 48, 512, 768, 4096, 32768] {
            let mut slab = slab(len_bytes);
            let all: Vec<u32> = std::iter::from_fn(|| slab.take()).collect();
            assert_eq!(all, (0..slab.slots).collect::<Vec<_>>());
            assert!(slab.is_full());
            assert_eq!(slab.claim(1, Intent::Free), Ok(false));
            slab.release(1);
            assert_eq!((slab.take(), slab.take()), (Some(1), None));
        }
    }

    #[test]
    fn the_search_rotates() {
        let mut slab = slab(4096);
        assert_eq!(slab.take(), Some(0));
        assert_eq!(slab.claim(0, Intent::Free), Ok(false));
        slab.release(0);
        assert_eq!(slab.take(), Some(1), "not the one that was just freed");
    }

    #[test]
    fn a_bit_of_no_chunk_is_damage() {
        let Some(class) = Class::fitting(4096) else { panic!("it has a class") };
        assert!(Slab::from_bitmap(class, &0xFFFF_u64.to_le_bytes()).is_some_and(|slab| slab.is_full()));
        assert!(Slab::from_bitmap(class, &0x1_0000_u64.to_le_bytes()).is_none());
    }
}
