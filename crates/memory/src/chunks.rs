//! Finds the chunk of a pointer, and changes a chunk's state.
//!
//! Every change has three parts. The first is a claim, which can be refused. The second is the store of one
//! word, which a fence of the caller makes durable. After the fence, the third part releases what has become
//! free.
//!
//! Invariants
//! 1. A thread holds at most one lock of a heap or the pool at a time, and none while it waits for a fence.
//!
//! What it does not know: in which order words become durable (`allocator.rs`, `publish.rs`).

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::classes::Class;
use crate::error::{MemoryError, Result};
use crate::heap::{Heap, Source};
use crate::intent::{Change, store_back};
use crate::layout::Descriptor;
use crate::pointer::{Owner, Pointer, Word};
use crate::sizes::SEGMENT_BYTES;
use crate::slab::{Intent, Refused};
use crate::state::Allocator;

/// The location of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChunkLocation {
    /// In a slab.
    Slot { segment: u32, slot: u32, class: Class, owner: Owner },
    /// A run of segments.
    Run { segment: u32, segments: u32, owner: Owner },
}

/// A chunk that this call changes, and nobody else meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    place: ChunkLocation,
    intent: Intent,
    /// Whether a word in the region has to be stored.
    stores: bool,
}

impl Claim {
    /// Whether the claim stores a word, which has to be fenced.
    pub(crate) fn stores(&self) -> bool {
        self.stores
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
    /// What a segment is, as far as chunks can be in it: also a run that is only reserved.
    pub(crate) fn descriptor(&self, segment: u32) -> Descriptor {
        let word = self.directory.get(segment as usize).map_or(0, |word| word.load(Acquire));
        Descriptor::decode(word, segment).unwrap_or(Descriptor::Free)
    }

    /// Notes what a segment is.
    pub(crate) fn describe(&self, segment: u32, descriptor: Descriptor) {
        if let Some(word) = self.directory.get(segment as usize) {
            word.store(descriptor.encode(segment), Release);
        }
    }

    /// The place that a pointer points to, if a chunk can begin there.
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

    /// The pointer to a chunk of a slab.
    pub(crate) fn pointer_to(&self, segment: u32, slot: u32, class: Class) -> Pointer {
        Pointer::from_u64(self.layout.segment_at(segment) + u64::from(slot) * class.size_bytes())
    }

    /// What a heap reads bitmaps from.
    pub(crate) fn source(&self, class: Class) -> Source<'_> {
        Source { region: &*self.region, layout: &self.layout, class }
    }

    /// Works on the heap of an owner and a class.
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

    /// Gives a claim up: the chunk is as it was.
    pub(crate) fn unclaim(&self, claim: &Claim) {
        match claim.place {
            ChunkLocation::Slot { segment, slot, class, owner } => self.with_heap(owner, class, |heap| {
                if let Ok(Some(slab)) = heap.slab(&self.source(class), segment) {
                    slab.unclaim(slot);
                }
            }),
            ChunkLocation::Run { segment, .. } => self.pool.lock().unclaim(segment),
        }
    }

    /// The change of a word that a claim is going to make; `None` if the region doesn't know the chunk.
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

    /// Stores the word that makes the change, and begins to write it back. Others change the same word, so
    /// that happens under the lock.
    pub(crate) fn store_claim(&self, claim: &Claim) {
        let is_active = claim.intent == Intent::Activate;
        match claim.place {
            _ if !claim.stores => {}
            ChunkLocation::Slot { segment, slot, class, owner } => self.with_heap(owner, class, |heap| {
                if let Ok(Some(slab)) = heap.slab(&self.source(class), segment) {
                    let (word, value) = slab.set_active(slot, is_active);
                    store_back(&*self.region, self.layout.bitmap_at(segment) + word as u64 * 8, value);
                }
            }),
            ChunkLocation::Run { segment, .. } => {
                let value = claim.place.descriptor(is_active).encode(segment);
                let mut pool = self.pool.lock();
                pool.set_active(segment, is_active);
                store_back(&*self.region, self.layout.descriptor_at(segment), value);
            }
        }
    }

    /// Ends a claim when the stored word is durable.
    pub(crate) fn finish_claim(&self, claim: &Claim) {
        match claim.place {
            _ if claim.intent == Intent::Activate => self.unclaim(claim),
            ChunkLocation::Slot { segment, slot, class, owner } => {
                self.with_heap(owner, class, |heap| heap.release(segment, slot));
            }
            ChunkLocation::Run { segment, .. } => {
                // Nobody else takes the segment before it is in the pool again.
                self.describe(segment, Descriptor::Free);
                self.pool.lock().release(segment);
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
    /// The descriptor of the first segment of a run when the chunk is active, or free.
    fn descriptor(self, is_active: bool) -> Descriptor {
        match self {
            ChunkLocation::Run { segments, owner, .. } if is_active => Descriptor::Run { segments, owner },
            ChunkLocation::Slot { class, owner, .. } if is_active => Descriptor::Slab { class, owner },
            _ => Descriptor::Free,
        }
    }

    /// Bytes of the chunk.
    pub(crate) fn len_bytes(self) -> u64 {
        match self {
            ChunkLocation::Slot { class, .. } => class.size_bytes(),
            ChunkLocation::Run { segments, .. } => u64::from(segments) * SEGMENT_BYTES,
        }
    }
}
