//! A heap: the slabs of one owner and one size class.
//!
//! After a start the bitmaps of all slabs are unread. They are read when an allocation, a free, or a count of
//! the used space needs them. So the time of a start does not depend on the number of allocated chunks.
//!
//! Invariants
//! 1. A slab is either unread or in `slabs`. If a slab in `slabs` has a free chunk, it is also in `roomy`,
//!    once.
//!
//! This module does not know other owners and classes, or free segments.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use varve_device::Region;

use crate::classes::Class;
use crate::error::{MemoryError, Result};
use crate::layout::{BITMAP_BYTES, Layout};
use crate::slab::Slab;

/// The source from which the bitmaps of a heap are read.
pub(crate) struct Source<'a> {
    /// The region.
    pub(crate) region: &'a dyn Region,
    /// The layout of the region.
    pub(crate) layout: &'a Layout,
    /// The class of the heap.
    pub(crate) class: Class,
}

/// The slabs of an owner and a class.
#[derive(Default)]
pub(crate) struct Heap {
    slabs: FxHashMap<u32, Slab>,
    /// Slabs with free chunks. Allocations take chunks of the first one.
    roomy: VecDeque<u32>,
    unread: BTreeSet<u32>,
}

impl Source<'_> {
    fn read(&self, segment: u32) -> Result<Slab> {
        let at = self.layout.bitmap_at(segment);
        let mut bitmap = [0; BITMAP_BYTES as usize];
        let used = bitmap.get_mut(..self.class.words() * 8).unwrap_or_default();
        self.region.read(at, used);
        let damaged = MemoryError::Damaged { what: "a bitmap, which has bits of no chunk", at };
        Slab::from_bitmap(self.class, &bitmap).ok_or(damaged)
    }
}

impl Heap {
    /// Adds a slab that a start has found. Its bitmap is unread.
    pub(crate) fn add_unread(&mut self, segment: u32) {
        self.unread.insert(segment);
    }

    /// Adds a slab.
    pub(crate) fn insert(&mut self, segment: u32, slab: Slab) {
        if !slab.is_full() {
            self.roomy.push_back(segment);
        }
        self.slabs.insert(segment, slab);
    }

    /// Reserves a chunk, and returns its segment and its slot. Reads up to `unread_max` bitmaps of slabs to
    /// find a free chunk.
    pub(crate) fn take(&mut self, source: &Source<'_>, unread_max: usize) -> Result<Option<(u32, u32)>> {
        for _ in 0..unread_max {
            if let Some(found) = self.take_known() {
                return Ok(Some(found));
            }
            let Some(segment) = self.unread.first().copied() else { break };
            self.read(source, segment)?;
        }
        Ok(self.take_known())
    }

    fn take_known(&mut self) -> Option<(u32, u32)> {
        let segment = *self.roomy.front()?;
        let slab = self.slabs.get_mut(&segment)?;
        let slot = slab.take()?;
        if slab.is_full() {
            self.roomy.pop_front();
        }
        Some((segment, slot))
    }

    fn read(&mut self, source: &Source<'_>, segment: u32) -> Result<()> {
        let slab = source.read(segment)?;
        self.unread.remove(&segment);
        self.insert(segment, slab);
        Ok(())
    }

    /// Returns the slab in a segment, or `None` if it does not belong to this heap.
    pub(crate) fn slab(&mut self, source: &Source<'_>, segment: u32) -> Result<Option<&mut Slab>> {
        if self.unread.contains(&segment) {
            self.read(source, segment)?;
        }
        Ok(self.slabs.get_mut(&segment))
    }

    /// Makes a claimed chunk free.
    pub(crate) fn release(&mut self, segment: u32, slot: u32) {
        if let Some(slab) = self.slabs.get_mut(&segment) {
            if slab.is_full() {
                self.roomy.push_back(segment);
            }
            slab.release(slot);
        }
    }

    /// Reads all slabs.
    pub(crate) fn read_all(&mut self, source: &Source<'_>) -> Result<()> {
        while let Some(segment) = self.unread.first().copied() {
            self.read(source, segment)?;
        }
        Ok(())
    }

    /// Takes the slabs without reserved or active chunks out of the heap, and returns their segments. Unread
    /// slabs stay.
    pub(crate) fn take_empty(&mut self) -> Vec<u32> {
        let empty = |(segment, slab): (&u32, &Slab)| (slab.taken_count() == 0).then_some(*segment);
        let empty: Vec<u32> = self.slabs.iter().filter_map(empty).collect();
        if !empty.is_empty() {
            empty.iter().for_each(|segment| drop(self.slabs.remove(segment)));
            self.roomy.retain(|segment| self.slabs.contains_key(segment));
        }
        empty
    }

    /// Makes all chunks of the heap free in DRAM. The caller clears their bits in the region.
    pub(crate) fn clear(&mut self) {
        for (segment, slab) in &mut self.slabs {
            if slab.is_full() {
                self.roomy.push_back(*segment);
            }
            slab.clear();
        }
    }

    /// Returns the number of reserved and active chunks of the slabs that have been read.
    pub(crate) fn taken_count(&self) -> u64 {
        self.slabs.values().map(|slab| u64::from(slab.taken_count())).sum()
    }

    /// Returns the number of free chunks of the slabs that have been read.
    pub(crate) fn free_count(&self) -> u64 {
        self.slabs.values().map(|slab| u64::from(slab.free_count())).sum()
    }

    /// Returns the slabs that have been read, with their segments.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = (u32, &Slab)> {
        self.slabs.iter().map(|(segment, slab)| (*segment, slab))
    }
}
