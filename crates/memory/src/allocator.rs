//! Allocates chunks of a region of persistent memory.
//!
//! A chunk is free, reserved or active (Arulraj, Pavlo and Dulloor 2015, section 2.3). The region stores only
//! which chunks are active. So reserving a chunk stores nothing, and after a crash a reserved chunk is free.
//! The table shows how many fences each call needs, and which word makes its change durable.
//!
//! | call | fences | word that makes the change durable |
//! |---|---:|---|
//! | [`Allocator::allocate`] | 0; 1 for a new segment; 1 more if empty slabs are freed for it | none; the segment's descriptor |
//! | [`Allocator::activate`] | 1 | a word of the slab's bitmap, or the run's descriptor |
//! | [`Allocator::activate_unfenced`] | 0 | the same, durable by the caller's next fence |
//! | [`Allocator::activate_all`] | 1 | the same, for each chunk |
//! | [`Allocator::free`] | 1 if it was active, else 0 | the same |
//! | [`Allocator::free_all`] | 1 if one was active, else 0 | the same, for each chunk |
//! | [`Allocator::publish`] | 3 | the seal of a lane |
//! | [`Allocator::set_root`] | 1 | the root's value |
//!
//! The order of stores
//! - A slab's descriptor is durable before one of its chunks is returned. So no bit of a bitmap can be
//!   durable while its segment counts as free.
//! - A cleared bit (or descriptor of a run) is durable before the chunk is allocated again. Otherwise a crash
//!   would make the chunk active again, with new contents.
//! - When a slab is empty, its cleared descriptor is durable before its segment is used for something else.
//!   The cleared bits of its bitmap are durable before that, by the previous rule.
//!
//! Invariants
//! 1. Every segment is in exactly one of four places: the pool, a slab of one heap, a run, or the call that
//!    moves the segment.
//!
//! This module does not know the content of chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

use rustc_hash::FxHashSet;
use varve_device::Region;

use crate::chunks::{ChunkLocation, Claim};
use crate::classes::{CLASSES, Class};
use crate::error::{MemoryError, Result};
use crate::heap::Heap;
use crate::intent::store_back;
use crate::layout::{BITMAP_BYTES, Descriptor};
use crate::pointer::{Owner, Pointer, Word};
use crate::pool::Run;
use crate::sizes::SEGMENT_BYTES;
use crate::slab::{Intent, Slab};
use crate::state::Allocator;

/// An allocation reads at most this many unread bitmaps before it takes a free segment.
const UNREAD_TRIED: usize = 8;

/// An active chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveChunk {
    /// Where the chunk begins.
    pub pointer: Pointer,
    /// The number of bytes of the chunk: the size of its class, or whole segments.
    pub len_bytes: u64,
    /// The owner for which the chunk was allocated.
    pub owner: Owner,
}

impl Allocator {
    /// Returns the region of the allocator. Callers read and write their chunks in it, by offset
    /// ([`Pointer::to_u64`]).
    pub fn region(&self) -> &Arc<dyn Region> {
        &self.region
    }

    /// Reserves a chunk of at least this many bytes. Its contents are arbitrary. A chunk of 64 bytes or more
    /// begins at a cache line, a chunk of 256 bytes or more at a multiple of 256 bytes. After a restart the
    /// chunk is free again, unless it was activated.
    ///
    /// Errors: the region is full. Then everything is as before.
    pub fn allocate(&self, owner: Owner, len_bytes: u64) -> Result<Pointer> {
        match Class::fitting(len_bytes) {
            Some(class) => self.allocate_slot(owner, class),
            None => self.allocate_run(owner, len_bytes),
        }
    }

    fn allocate_slot(&self, owner: Owner, class: Class) -> Result<Pointer> {
        let source = self.source(class);
        let take = |unread_max| self.with_heap(owner, class, |heap| heap.take(&source, unread_max));
        if let Some((segment, slot)) = take(UNREAD_TRIED)? {
            return Ok(self.pointer_to(segment, slot, class));
        }
        let free = self.pool.lock().take(1);
        let found = match free {
            Some(segment) => Some(self.new_slab(owner, class, segment)?),
            None => match take(usize::MAX)? {
                Some(found) => Some(found),
                None => match self.reclaim_and_take(1)? {
                    Some(segment) => Some(self.new_slab(owner, class, segment)?),
                    None => None,
                },
            },
        };
        let full = || self.full(class.size_bytes());
        found.map(|(segment, slot)| self.pointer_to(segment, slot, class)).ok_or_else(full)
    }

    /// Makes a free segment a slab, and reserves a chunk of it.
    fn new_slab(&self, owner: Owner, class: Class, segment: u32) -> Result<(u32, u32)> {
        let descriptor = Descriptor::Slab { class, owner };
        store_back(&*self.region, self.layout.descriptor_at(segment), descriptor.encode(segment));
        self.region.fence();
        self.describe(segment, descriptor);
        let mut slab = Slab::empty(class);
        let slot = slab.take();
        self.with_heap(owner, class, |heap| heap.insert(segment, slab));
        slot.map(|slot| (segment, slot)).ok_or_else(|| self.full(class.size_bytes()))
    }

    fn allocate_run(&self, owner: Owner, len_bytes: u64) -> Result<Pointer> {
        let full = || self.full(len_bytes.checked_next_multiple_of(SEGMENT_BYTES).unwrap_or(len_bytes));
        let segments = u32::try_from(len_bytes.div_ceil(SEGMENT_BYTES)).map_err(|_| full())?;
        let free = self.pool.lock().take(segments);
        let start = match free {
            Some(start) => start,
            None => self.reclaim_and_take(segments)?.ok_or_else(full)?,
        };
        self.describe(start, Descriptor::Run { segments, owner });
        let run = Run { segments, owner, is_active: false, is_claimed: false };
        self.pool.lock().add_run(start, run);
        Ok(Pointer::from_u64(self.layout.segment_at(start)))
    }

    fn full(&self, needed_bytes: u64) -> MemoryError {
        MemoryError::Full { needed_bytes, free_bytes: self.free_bytes() }
    }

    /// Frees the segments of all empty slabs, and takes this many free segments that lie side by side.
    /// Returns `None` if there is no such stretch.
    fn reclaim_and_take(&self, segments: u32) -> Result<Option<u32>> {
        let mut empty = Vec::new();
        for (owner, class) in self.heaps() {
            self.with_heap(owner, class, |heap| heap.read_all(&self.source(class)))?;
        }
        for (owner, class) in self.heaps() {
            empty.extend(self.with_heap(owner, class, Heap::take_empty));
        }
        for segment in &empty {
            self.describe(*segment, Descriptor::Free);
            store_back(&*self.region, self.layout.descriptor_at(*segment), 0);
        }
        if !empty.is_empty() {
            self.region.fence();
        }
        let mut pool = self.pool.lock();
        empty.iter().for_each(|segment| pool.give(*segment, 1));
        Ok(pool.take(segments))
    }

    /// Returns each owner that has slabs, or has had chunks since the start, together with each size class.
    fn heaps(&self) -> impl Iterator<Item = (Owner, Class)> {
        let used = (0..).zip(&self.owners).filter(|(_, heaps)| heaps.get().is_some());
        let owners = used.filter_map(|(number, _)| Owner::new(number));
        owners.flat_map(|owner| (0..CLASSES as u8).filter_map(move |class| Some((owner, Class::new(class)?))))
    }

    /// Makes a reserved chunk active, durably, with one fence. The chunk's contents have to be durable
    /// before.
    ///
    /// If nothing durable links to the chunk yet, a crash after this call leaks the chunk, which stays active
    /// although nothing leads to it. See [`Allocator::publish`].
    ///
    /// Errors: there is no such chunk, or it is active.
    pub fn activate(&self, chunk: Pointer) -> Result<()> {
        self.activate_unfenced(chunk)?;
        self.region.fence();
        Ok(())
    }

    /// Does the same as [`Allocator::activate`], but the change is durable only after the next fence of this
    /// thread. It is meant for callers that issue a fence later anyway, and whose own log names the chunk.
    pub fn activate_unfenced(&self, chunk: Pointer) -> Result<()> {
        let claim = self.claim(chunk, Intent::Activate)?;
        self.store_claims(&[claim]);
        self.finish_claims(&[claim]);
        Ok(())
    }

    /// Makes reserved chunks active, durably, with one fence. A crash may make some of them active and not the
    /// others. Chunks in the order of their pointers need the fewest stores.
    ///
    /// Errors: the same as of [`Allocator::activate`]. Then none of the chunks is activated.
    pub fn activate_all(&self, chunks: &[Pointer]) -> Result<()> {
        let claims = self.claim_all(chunks, Intent::Activate)?;
        self.end(&claims);
        Ok(())
    }

    /// Makes a chunk free, durably, with one fence if it was active. Nothing durable may link to it any more.
    ///
    /// Errors: there is no such chunk, or it is free.
    pub fn free(&self, chunk: Pointer) -> Result<()> {
        self.free_all(&[chunk])
    }

    /// Makes chunks free, durably, with one fence. A crash may free some of them and not the others.
    ///
    /// Chunks in the order of their pointers need the fewest stores.
    ///
    /// Errors: the same as of [`Allocator::free`]. Then none of the chunks is freed.
    pub fn free_all(&self, chunks: &[Pointer]) -> Result<()> {
        if let [chunk] = chunks {
            let claim = self.claim(*chunk, Intent::Free)?;
            self.end(&[claim]);
            return Ok(());
        }
        self.end(&self.claim_all(chunks, Intent::Free)?);
        Ok(())
    }

    /// Makes the changes of claims durable, and ends the claims.
    fn end(&self, claims: &[Claim]) {
        self.store_claims(claims);
        if claims.iter().any(Claim::stores) {
            self.region.fence();
        }
        self.finish_claims(claims);
    }

    /// Returns the length of a chunk in bytes: at least the length that [`Allocator::allocate`] was called
    /// with.
    ///
    /// Errors: no chunk begins there. A free chunk of a slab is no error.
    pub fn len_bytes(&self, chunk: Pointer) -> Result<u64> {
        self.locate(chunk).map(|place| place.len_bytes())
    }

    /// Returns the owner of a chunk that is reserved or active, or `None` if no such chunk begins there.
    /// Recovery of a data structure uses this if its pointers may lead to chunks that were freed.
    pub fn owner_of(&self, chunk: Pointer) -> Result<Option<Owner>> {
        match self.locate(chunk) {
            Ok(ChunkLocation::Slot { segment, slot, class, owner }) => self.with_heap(owner, class, |heap| {
                let slab = heap.slab(&self.source(class), segment)?;
                Ok(slab.filter(|slab| slab.is_taken(slot)).map(|_| owner))
            }),
            Ok(ChunkLocation::Run { owner, .. }) => Ok(Some(owner)),
            Err(MemoryError::Foreign { .. } | MemoryError::NotAllocated { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of bytes of an owner's reserved and active chunks. After a start this reads the
    /// bitmaps of its slabs.
    pub fn used_bytes(&self, owner: Owner) -> Result<u64> {
        let mut used = 0;
        for class in (0..CLASSES as u8).filter_map(Class::new) {
            used += self.with_heap(owner, class, |heap| {
                heap.read_all(&self.source(class))?;
                Ok(heap.taken_count() * class.size_bytes())
            })?;
        }
        let pool = self.pool.lock();
        let runs = pool.runs().filter(|(_, run)| run.owner == owner);
        Ok(used + runs.map(|(_, run)| u64::from(run.segments) * SEGMENT_BYTES).sum::<u64>())
    }

    /// Returns all owners that have segments.
    pub fn owners(&self) -> FxHashSet<Owner> {
        let words = self.directory.iter().zip(0u32..);
        let owner =
            |(word, segment): (&AtomicU64, u32)| match Descriptor::decode(word.load(Acquire), segment)? {
                Descriptor::Slab { owner, .. } | Descriptor::Run { owner, .. } => Some(owner),
                Descriptor::Free => None,
            };
        words.filter_map(owner).collect()
    }

    /// Returns the number of bytes in free segments. Free chunks of slabs are not counted: only the owner of
    /// a slab can allocate them.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.pool.lock().free_segments()) * SEGMENT_BYTES
    }

    /// Returns the number of bytes that an owner can still allocate in chunks of this length: in free
    /// segments, and in free chunks of those of its slabs whose bitmaps were read.
    pub(crate) fn free_bytes_for(&self, owner: Owner, len_bytes: u64) -> u64 {
        let in_slabs = Class::fitting(len_bytes)
            .map_or(0, |class| self.with_heap(owner, class, |heap| heap.free_count()) * class.size_bytes());
        self.free_bytes() + in_slabs
    }

    /// Returns the number of bytes of all segments, free or not.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.layout.segments) * SEGMENT_BYTES
    }

    /// Returns the active chunks, in the order of their pointers. Reads all bitmaps.
    pub fn active_chunks(&self) -> Result<Vec<ActiveChunk>> {
        let mut found = Vec::new();
        for (owner, class) in self.heaps() {
            self.with_heap(owner, class, |heap| {
                heap.read_all(&self.source(class))?;
                for (segment, slab) in heap.slabs() {
                    let chunk = |slot| {
                        let pointer = self.pointer_to(segment, slot, class);
                        ActiveChunk { pointer, len_bytes: class.size_bytes(), owner }
                    };
                    found.extend(slab.active().map(chunk));
                }
                Ok(())
            })?;
        }
        let pool = self.pool.lock();
        found.extend(pool.runs().filter(|(_, run)| run.is_active).map(|(start, run)| ActiveChunk {
            pointer: Pointer::from_u64(self.layout.segment_at(start)),
            len_bytes: u64::from(run.segments) * SEGMENT_BYTES,
            owner: run.owner,
        }));
        found.sort_unstable();
        Ok(found)
    }

    /// Checks that no bit is set in the bitmap of a segment without a slab. Otherwise the segment could
    /// become a slab later, and after a restart such a bit would be an active chunk that nothing leads to.
    /// Reads all bitmaps. The check of a whole database calls this. No other thread may allocate or free
    /// chunks during the check.
    ///
    /// Errors: the first damage that is found.
    pub fn check(&self) -> Result<()> {
        self.active_chunks()?;
        for segment in 0..self.layout.segments {
            if matches!(self.descriptor(segment), Descriptor::Slab { .. }) {
                continue;
            }
            let at = self.layout.bitmap_at(segment);
            let mut bitmap = [0; BITMAP_BYTES as usize];
            self.region.read(at, &mut bitmap);
            if bitmap.iter().any(|byte| *byte != 0) {
                return Err(MemoryError::Damaged { what: "the bitmap of a segment without a slab", at });
            }
        }
        Ok(())
    }

    /// Makes a root with the value 0, durably, with two fences. Returns the word that has the value.
    ///
    /// Errors: the name is empty, too long or taken, or there are too many roots.
    pub fn create_root(&self, name: &str) -> Result<Word> {
        self.roots.create(&*self.region, &self.layout, name)
    }

    /// Returns the word with a root's value.
    ///
    /// Errors: there is no such root.
    pub fn root(&self, name: &str) -> Result<Word> {
        self.roots.find(&self.layout, name)
    }

    /// Returns a root's value.
    ///
    /// Errors: there is no such root.
    pub fn root_value(&self, name: &str) -> Result<u64> {
        self.root(name).map(|word| self.region.load_word(word.offset()))
    }

    /// Stores a root's value, durably, with one fence.
    ///
    /// Errors: there is no such root.
    pub fn set_root(&self, name: &str, value: u64) -> Result<()> {
        let word = self.root(name)?;
        store_back(&*self.region, word.offset(), value);
        self.region.fence();
        Ok(())
    }

    /// Removes a root, durably, with one fence.
    ///
    /// Errors: there is no such root.
    pub fn remove_root(&self, name: &str) -> Result<()> {
        self.roots.remove(&*self.region, &self.layout, name)
    }

    /// Returns the names of the roots, sorted.
    pub fn root_names(&self) -> Vec<Box<str>> {
        self.roots.names()
    }
}
