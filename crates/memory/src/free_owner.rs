//! Frees all chunks of an owner.
//!
//! The order of stores is the same as for a single free (`allocator.rs`): first the bits of all bitmaps, then
//! the descriptors of slabs and runs. A fence follows each of the two steps.
//!
//! Invariants
//! 1. A crash leaves some of the chunks free and the others active. Freeing the owner again frees the rest.
//!
//! This module does not know whether pointers to the chunks are left.

use crate::classes::{CLASSES, Class};
use crate::error::Result;
use crate::heap::Heap;
use crate::intent::store_back;
use crate::layout::Descriptor;
use crate::pointer::Owner;
use crate::state::Allocator;

impl Allocator {
    /// Makes all reserved and active chunks of an owner free, durably, with two fences. The time depends on
    /// the segments that the owner has, not on its chunks. No other thread may use chunks of this owner
    /// meanwhile, and nothing durable may link to them.
    ///
    /// Errors: a bitmap is damaged. Then nothing is freed.
    pub fn free_owner(&self, owner: Owner) -> Result<()> {
        let classes = || (0..CLASSES as u8).filter_map(Class::new);
        for class in classes() {
            self.with_heap(owner, class, |heap| heap.read_all(&self.source(class)))?;
        }
        let mut slabs = Vec::new();
        for class in classes() {
            self.with_heap(owner, class, |heap| self.clear_heap(heap));
            slabs.extend(self.with_heap(owner, class, Heap::take_empty));
        }
        self.region.fence();
        let runs = self.pool.lock().runs_of(owner);
        for segment in slabs.iter().chain(&runs) {
            self.describe(*segment, Descriptor::Free);
            store_back(&*self.region, self.layout.descriptor_at(*segment), 0);
        }
        self.region.fence();
        let mut pool = self.pool.lock();
        slabs.iter().for_each(|segment| pool.give(*segment, 1));
        runs.iter().for_each(|segment| pool.release(*segment));
        Ok(())
    }

    /// Makes the segments of an owner's empty slabs free, durably, with one fence. Reads the bitmaps of its
    /// slabs.
    pub(crate) fn free_empty_slabs(&self, owner: Owner) -> Result<()> {
        let mut slabs = Vec::new();
        for class in (0..CLASSES as u8).filter_map(Class::new) {
            self.with_heap(owner, class, |heap| heap.read_all(&self.source(class)))?;
            slabs.extend(self.with_heap(owner, class, Heap::take_empty));
        }
        for segment in &slabs {
            self.describe(*segment, Descriptor::Free);
            store_back(&*self.region, self.layout.descriptor_at(*segment), 0);
        }
        self.region.fence();
        let mut pool = self.pool.lock();
        slabs.iter().for_each(|segment| pool.give(*segment, 1));
        Ok(())
    }

    /// Clears the bits of a heap's slabs, in memory and in the region.
    fn clear_heap(&self, heap: &mut Heap) {
        for (segment, slab) in heap.slabs() {
            let words = slab.words_with_active();
            words.for_each(|word| store_back(&*self.region, self.layout.bitmap_at(segment) + word * 8, 0));
        }
        heap.clear();
    }
}
