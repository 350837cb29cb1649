//! The states of the chunks of one slab, in the memory of the running program.
//!
//! The edges of this diagram are functions of this file. Only `set_active` changes the bit that the region
//! has for the chunk.
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
//! 2. A chunk whose bit is being cleared stays taken until the cleared bit is durable. So nobody writes into
//!    a chunk that a crash would make active again.
//! 3. Only the call that has claimed a chunk changes its state. Other calls that name the chunk are refused.
//!
//! What it does not know: where the slab is, locks, fences.

use crate::classes::Class;
use crate::layout::get_u64;

/// The state of a slab's chunks.
pub(crate) struct Slab {
    slots: u32,
    free: u32,
    /// Where the search for a free chunk begins: it rotates, so that chunks wear evenly.
    next: u32,
    /// Not free.
    taken: Box<[u64]>,
    /// The bits as they are stored in the region.
    active: Box<[u64]>,
    /// In the middle of a change.
    claimed: Box<[u64]>,
}

/// Why a chunk cannot be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is free.
    Free,
    /// It is active already.
    Active,
    /// Another call is changing it.
    Claimed,
}

/// What a chunk is claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It becomes active.
    Activate,
    /// It becomes free.
    Free,
}

fn word_and_bit(slot: u32) -> (usize, u64) {
    ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS))
}

fn has(words: &[u64], slot: u32) -> bool {
    let (word, bit) = word_and_bit(slot);
    words.get(word).is_some_and(|found| found & bit != 0)
}

fn put(words: &mut [u64], slot: u32, is_set: bool) {
    let (word, bit) = word_and_bit(slot);
    if let Some(found) = words.get_mut(word) {
        *found = if is_set { *found | bit } else { *found & !bit };
    }
}

impl Slab {
    /// A slab whose chunks are free.
    pub(crate) fn empty(class: Class) -> Slab {
        Slab::with_words(class, vec![0; class.words()].into())
    }

    /// The slab with this bitmap; `None` if the bitmap has a bit of no chunk.
    pub(crate) fn from_bitmap(class: Class, bitmap: &[u8]) -> Option<Slab> {
        let words: Box<[u64]> = (0..class.words()).map(|word| get_u64(bitmap, word * 8)).collect();
        let beyond = (class.slots()..class.words() as u32 * u64::BITS).any(|slot| has(&words, slot));
        (!beyond).then(|| Slab::with_words(class, words))
    }

    fn with_words(class: Class, words: Box<[u64]>) -> Slab {
        let slots = class.slots();
        let taken: u32 = words.iter().map(|word| word.count_ones()).sum();
        let claimed = vec![0; words.len()].into();
        Slab { slots, free: slots - taken, next: 0, taken: words.clone(), active: words, claimed }
    }

    /// Chunks that are not free.
    pub(crate) fn taken_count(&self) -> u32 {
        self.slots - self.free
    }

    /// Whether no chunk is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Whether a chunk is not free.
    pub(crate) fn is_taken(&self, slot: u32) -> bool {
        has(&self.taken, slot)
    }

    /// Active chunks.
    pub(crate) fn active(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0..).step_by(u64::BITS as usize).zip(&self.active);
        words.flat_map(|(first, word)| {
            (0..u64::BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    /// The numbers of the words of the bitmap that have a bit.
    pub(crate) fn words_with_active(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.active).filter(|(_, word)| **word != 0).map(|(number, _)| number)
    }

    /// Reserves the next free chunk behind the one that was reserved last.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let slot = self.free_from(self.next).or_else(|| self.free_from(0))?;
        put(&mut self.taken, slot, true);
        self.free -= 1;
        self.next = slot + 1;
        Some(slot)
    }

    fn free_from(&self, from: u32) -> Option<u32> {
        let first = (from / u64::BITS) as usize;
        let words = self.taken.iter().enumerate().skip(first);
        let free = words.map(|(word, taken)| {
            let before = if word == first { (1_u64 << (from % u64::BITS)) - 1 } else { 0 };
            (word, !taken & !before)
        });
        let (word, free) = free.into_iter().find(|(_, free)| *free != 0)?;
        let slot = word as u32 * u64::BITS + free.trailing_zeros();
        (slot < self.slots).then_some(slot)
    }

    /// Claims a chunk for a change; whether it is active.
    pub(crate) fn claim(&mut self, slot: u32, intent: Intent) -> Result<bool, Refused> {
        let is_active = has(&self.active, slot);
        if !has(&self.taken, slot) {
            return Err(Refused::Free);
        }
        if has(&self.claimed, slot) {
            return Err(Refused::Claimed);
        }
        if is_active && intent == Intent::Activate {
            return Err(Refused::Active);
        }
        put(&mut self.claimed, slot, true);
        Ok(is_active)
    }

    /// Ends a claim: the chunk stays as it is.
    pub(crate) fn unclaim(&mut self, slot: u32) {
        put(&mut self.claimed, slot, false);
    }

    /// Sets the bit of a claimed chunk, and says which word of the bitmap has to be stored, and its value.
    pub(crate) fn set_active(&mut self, slot: u32, is_active: bool) -> (usize, u64) {
        put(&mut self.active, slot, is_active);
        let (word, _) = word_and_bit(slot);
        (word, self.active.get(word).copied().unwrap_or_default())
    }

    /// Makes all chunks free.
    pub(crate) fn clear(&mut self) {
        for words in [&mut self.taken, &mut self.active, &mut self.claimed] {
            words.fill(0);
        }
        self.free = self.slots;
    }

    /// Makes a claimed chunk free, whose bit is clear.
    pub(crate) fn release(&mut self, slot: u32) {
        put(&mut self.claimed, slot, false);
        put(&mut self.taken, slot, false);
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
