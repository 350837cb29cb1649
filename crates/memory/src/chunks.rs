//! Finds the chunk of a pointer, and changes a chunk's state.
//!
//! Every change has three parts. The first is a claim, which can be refused. The second is the store of one
//! word, which a fence of the caller makes durable. After the fence, the third part releases what has become
//! free.
//!
//! Invariants
//! 1. A thread holds at most one lock of a heap or the pool at a time, and none while it waits for a fence.
//!
//! This module does not know in which order words become durable (`allocator.rs`, `publish.rs`).

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::classes::Class;
use crate::error::{MemoryError, Result};
use crate::heap::{Heap, Source};
use crate::intent::{Change, store_back};
use crate::layout::Descriptor;
use crate::pointer::{Owner, Pointer, Word};
use crate::sizes::SEGMENT_BYTES;
use crate::slab::{Intent, Refused, Slab};
use crate::state::Allocator;

/// The location of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChunkLocation {
    /// A slot of a slab.
    Slot { segment: u32, slot: u32, class: Class, owner: Owner },
    /// A run of whole segments.
    Run { segment: u32, segments: u32, owner: Owner },
}

/// A chunk that one call is changing. All other calls are refused this chunk until the claim ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    place: ChunkLocation,
    intent: Intent,
    /// Whether a word in the region has to be stored.
    stores: bool,
}

impl Claim {
    /// Returns whether the claim stores a word, which has to be fenced.
    pub(crate) fn stores(&self) -> bool {
        self.stores
    }

    /// Returns the chunk's slot in its slab, or `None` for a run.
    fn slot(&self) -> Option<u32> {
        match self.place {
            ChunkLocation::Slot { slot, .. } => Some(slot),
            ChunkLocation::Run { .. } => None,
        }
    }

    /// Returns whether both chunks are in one slab.
    fn has_slab_of(&self, other: &Claim) -> bool {
        match (self.place, other.place) {
            (ChunkLocation::Slot { segment, .. }, ChunkLocation::Slot { segment: other, .. }) => {
                segment == other
            }
            _ => false,
        }
    }
}

fn refused(refused: Refused, pointer: Pointer) -> MemoryError {
    match refused {
        Refused::Free => MemoryError::NotAllocated { pointer },
        Refused::Active => MemoryError::AlreadyActive { pointer },
        Refused::Claimed => MemoryError::InChange { pointer },
    }
}

impl Allocator {
    /// Returns the present use of a segment, from the directory in DRAM. A run that is only reserved counts
    /// as a run, too.
    pub(crate) fn descriptor(&self, segment: u32) -> Descriptor {
        let word = self.directory.get(segment as usize).map_or(0, |word| word.load(Acquire));
        Descriptor::decode(word, segment).unwrap_or(Descriptor::Free)
    }

    /// Stores the use of a segment in the directory in DRAM.
    pub(crate) fn describe(&self, segment: u32, descriptor: Descriptor) {
        if let Some(word) = self.directory.get(segment as usize) {
            word.store(descriptor.encode(segment), Release);
        }
    }

    /// Returns the place that a pointer points to, if a chunk can begin there.
    pub(crate) fn locate(&self, pointer: Pointer) -> Result<ChunkLocation> {
        let foreign = |why| MemoryError::Foreign { pointer, why };
        if pointer.is_none() {
            return Err(foreign("it points to nothing"));
        }
        let outside = || foreign("it points beside the segments");
        let (segment, within) = self.layout.segment_of(pointer.to_u64()).ok_or_else(outside)?;
        match self.descriptor(segment) {
            Descriptor::Free => Err(MemoryError::NotAllocated { pointer }),
            Descriptor::Slab { class, owner } => {
                let slot = (within / class.size_bytes()) as u32;
                let begins = within.is_multiple_of(class.size_bytes()) && slot < class.slots();
                let place = ChunkLocation::Slot { segment, slot, class, owner };
                begins.then_some(place).ok_or_else(|| foreign("no chunk begins there"))
            }
            Descriptor::Run { segments, owner } if within == 0 => {
                Ok(ChunkLocation::Run { segment, segments, owner })
            }
            Descriptor::Run { .. } => Err(foreign("it points into a chunk")),
        }
    }

    /// Returns the pointer to a chunk of a slab.
    pub(crate) fn pointer_to(&self, segment: u32, slot: u32, class: Class) -> Pointer {
        Pointer::from_u64(self.layout.segment_at(segment) + u64::from(slot) * class.size_bytes())
    }

    /// Returns the source from which heaps of this class read their bitmaps.
    pub(crate) fn source(&self, class: Class) -> Source<'_> {
        Source { region: &*self.region, layout: &self.layout, class }
    }

    /// Locks the heap of an owner and a class, and calls `work` with it.
    pub(crate) fn with_heap<T>(&self, owner: Owner, class: Class, work: impl FnOnce(&mut Heap) -> T) -> T {
        let heaps = self.heaps_of(owner);
        match heaps.get(usize::from(class.number())) {
            Some(heap) => work(&mut heap.lock()),
            None => work(&mut Heap::default()),
        }
    }

    /// Claims the chunk that a pointer points to.
    pub(crate) fn claim(&self, pointer: Pointer, intent: Intent) -> Result<Claim> {
        let place = self.locate(pointer)?;
        let was_active = match place {
            ChunkLocation::Slot { segment, slot, class, owner } => self.with_heap(owner, class, |heap| {
                let slab = heap.slab(&self.source(class), segment)?;
                let claimed = slab.map_or(Err(Refused::Free), |slab| slab.claim(slot, intent));
                claimed.map_err(|why| refused(why, pointer))
            })?,
            ChunkLocation::Run { segment, .. } => {
                self.pool.lock().claim(segment, intent).map_err(|why| refused(why, pointer))?
            }
        };
        Ok(Claim { place, intent, stores: was_active || intent == Intent::Activate })
    }

    /// Claims chunks. Errors: one of the chunks is refused. Then none is claimed.
    pub(crate) fn claim_all(&self, pointers: &[Pointer], intent: Intent) -> Result<Vec<Claim>> {
        let mut claims = Vec::with_capacity(pointers.len());
        for pointer in pointers {
            match self.claim(*pointer, intent) {
                Ok(claim) => {
                    self.prefetch_bitmap(&claim);
                    claims.push(claim);
                }
                Err(error) => {
                    self.unclaim_all(&claims);
                    return Err(error);
                }
            }
        }
        Ok(claims)
    }

    /// Prefetches the line of the bitmap that will be stored after all chunks are claimed.
    fn prefetch_bitmap(&self, claim: &Claim) {
        if let (ChunkLocation::Slot { segment, slot, .. }, true) = (claim.place, claim.stores) {
            let word_at = self.layout.bitmap_at(segment) + u64::from(slot / u64::BITS) * 8;
            self.region.prefetch(word_at, 8);
        }
    }

    /// Ends claims, and does not change the state of the chunks.
    pub(crate) fn unclaim_all(&self, claims: &[Claim]) {
        for group in claims.chunk_by(Claim::has_slab_of) {
            let Some(Claim { place, .. }) = group.first() else { continue };
            match *place {
                ChunkLocation::Slot { segment, class, owner, .. } => self.with_heap(owner, class, |heap| {
                    if let Ok(Some(slab)) = heap.slab(&self.source(class), segment) {
                        group.iter().filter_map(Claim::slot).for_each(|slot| slab.unclaim(slot));
                    }
                }),
                ChunkLocation::Run { segment, .. } => self.pool.lock().unclaim(segment),
            }
        }
    }

    /// Returns the change that a claim will make to a word of the region. Returns `None` if no word changes,
    /// because the chunk was only reserved and becomes free.
    pub(crate) fn change_of(&self, claim: &Claim) -> Option<Change> {
        let is_activation = claim.intent == Intent::Activate;
        let change = match claim.place {
            ChunkLocation::Slot { segment, slot, .. } => {
                let at = self.layout.bitmap_at(segment) + u64::from(slot / u64::BITS) * 8;
                let bits = 1 << (slot % u64::BITS);
                if is_activation { Change::Set { at, bits } } else { Change::Clear { at, bits } }
            }
            ChunkLocation::Run { segment, .. } => {
                let value = claim.place.descriptor(is_activation).encode(segment);
                Change::Store { at: self.layout.descriptor_at(segment), value }
            }
        };
        claim.stores.then_some(change)
    }

    /// Stores the changed words, and begins to write them back. Other threads may change the same words, so
    /// each store happens under the lock of the heap or the pool. Neighbouring claims of one slab take the
    /// lock once, and store each word of the bitmap once.
    pub(crate) fn store_claims(&self, claims: &[Claim]) {
        for group in claims.chunk_by(Claim::has_slab_of) {
            let Some(Claim { place, .. }) = group.first() else { continue };
            match *place {
                ChunkLocation::Slot { segment, class, owner, .. } => self.with_heap(owner, class, |heap| {
                    if let Ok(Some(slab)) = heap.slab(&self.source(class), segment) {
                        self.store_bits(segment, slab, group);
                    }
                }),
                ChunkLocation::Run { .. } => group.iter().for_each(|claim| self.store_run(claim)),
            }
        }
    }

    fn store_bits(&self, segment: u32, slab: &mut Slab, claims: &[Claim]) {
        let mut words = claims.iter().filter(|claim| claim.stores).filter_map(|claim| match claim.place {
            ChunkLocation::Slot { slot, .. } => Some(slab.set_active(slot, claim.intent == Intent::Activate)),
            ChunkLocation::Run { .. } => None,
        });
        let store = |(word, value): (usize, u64)| {
            store_back(&*self.region, self.layout.bitmap_at(segment) + word as u64 * 8, value);
        };
        let Some(mut last) = words.next() else { return };
        for next in words {
            if next.0 != last.0 {
                store(last);
            }
            last = next;
        }
        store(last);
    }

    fn store_run(&self, claim: &Claim) {
        let (ChunkLocation::Run { segment, .. }, true) = (claim.place, claim.stores) else { return };
        let is_active = claim.intent == Intent::Activate;
        let value = claim.place.descriptor(is_active).encode(segment);
        let mut pool = self.pool.lock();
        pool.set_active(segment, is_active);
        store_back(&*self.region, self.layout.descriptor_at(segment), value);
    }

    /// Ends claims when the stored words are durable.
    pub(crate) fn finish_claims(&self, claims: &[Claim]) {
        for group in claims.chunk_by(Claim::has_slab_of) {
            let Some(Claim { place, intent, .. }) = group.first() else { continue };
            match *place {
                _ if *intent == Intent::Activate => self.unclaim_all(group),
                ChunkLocation::Slot { segment, class, owner, .. } => self.with_heap(owner, class, |heap| {
                    group.iter().filter_map(Claim::slot).for_each(|slot| heap.release(segment, slot));
                }),
                ChunkLocation::Run { segment, .. } => {
                    // No other call can take the segment before `release` puts it into the pool.
                    self.describe(segment, Descriptor::Free);
                    self.pool.lock().release(segment);
                }
            }
        }
    }

    /// Checks that a word is a root's value, or in an allocated chunk.
    pub(crate) fn check_word(&self, word: Word) -> Result<()> {
        let is_known = match self.layout.root_of_value(word.offset()) {
            Some(root) => self.roots.has(root),
            None => self.is_in_chunk(word)?,
        };
        is_known.then_some(()).ok_or(MemoryError::ForeignWord { word })
    }

    fn is_in_chunk(&self, word: Word) -> Result<bool> {
        let Some((segment, within)) = self.layout.segment_of(word.offset()) else { return Ok(false) };
        match self.descriptor(segment) {
            Descriptor::Slab { class, owner } => {
                let slot = (within / class.size_bytes()) as u32;
                self.with_heap(owner, class, |heap| {
                    let slab = heap.slab(&self.source(class), segment)?;
                    Ok(slab.is_some_and(|slab| slot < class.slots() && slab.is_taken(slot)))
                })
            }
            _ => Ok(self.pool.lock().run_around(segment).is_some()),
        }
    }
}

impl ChunkLocation {
    /// Returns the descriptor that the first segment of a run gets when the run becomes active or free.
    fn descriptor(self, is_active: bool) -> Descriptor {
        match self {
            ChunkLocation::Run { segments, owner, .. } if is_active => Descriptor::Run { segments, owner },
            ChunkLocation::Slot { class, owner, .. } if is_active => Descriptor::Slab { class, owner },
            _ => Descriptor::Free,
        }
    }

    /// Returns the number of bytes of the chunk.
    pub(crate) fn len_bytes(self) -> u64 {
        match self {
            ChunkLocation::Slot { class, .. } => class.size_bytes(),
            ChunkLocation::Run { segments, .. } => u64::from(segments) * SEGMENT_BYTES,
        }
    }
}
