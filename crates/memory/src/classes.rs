//! Size classes of chunks. A chunk of up to half a segment has the size of its class.
//!
//! Invariants
//! 1. Sizes of 64 bytes and more are multiples of a cache line. Sizes of 256 bytes and more are multiples of
//!    a block of the medium. Segments are aligned to 4096 bytes. So a chunk begins at a multiple of a cache
//!    line or a block if its size is such a multiple.
//! 2. From 256 bytes on, a class is at most twice as large as the next smaller class.
//!
//! This module does not know where chunks are.

use crate::sizes::SEGMENT_BYTES;

/// The bytes of a chunk of each class. The larger sizes are chosen so that little of a segment is left over.
const SIZES: [u32; CLASSES] = [
    16, 32, 48, 64, 128, 192, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5376,
    6400, 8192, 10752, 13056, 16384, 21760, 32768,
];
/// The number of classes.
pub(crate) const CLASSES: usize = 26;

/// A size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// Returns the smallest class whose chunks hold this many bytes, or `None` if no class is large enough.
    pub(crate) fn fitting(len_bytes: u64) -> Option<Class> {
        let number = SIZES.partition_point(|size| u64::from(*size) < len_bytes);
        Class::new(number as u8)
    }

    /// Returns the class of this number.
    pub(crate) fn new(number: u8) -> Option<Class> {
        (usize::from(number) < CLASSES).then_some(Class(number))
    }

    /// Returns the number of the class.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Returns the number of bytes of a chunk.
    pub(crate) fn size_bytes(self) -> u64 {
        SIZES.get(usize::from(self.0)).copied().map_or(SEGMENT_BYTES, u64::from)
    }

    /// Chunks in a segment.
    pub(crate) fn slots(self) -> u32 {
        (SEGMENT_BYTES / self.size_bytes()) as u32
    }

    /// Returns the number of words in the bitmap of a slab.
    pub(crate) fn words(self) -> usize {
        self.slots().div_ceil(u64::BITS) as usize
    }

    /// Returns all classes.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES as u8).map(Class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for len_bytes in 0..=32768_u64 {
            let Some(class) = Class::fitting(len_bytes) else { panic!("{len_bytes} bytes have no class") };
            assert!(class.size_bytes() >= len_bytes);
            let below = class.number().checked_sub(1).and_then(Class::new);
            assert!(below.is_none_or(|below| below.size_bytes() < len_bytes), "{len_bytes}");
        }
        assert_eq!(Class::fitting(32769), None);
    }

    #[test]
    fn sizes_keep_chunks_aligned_and_waste_little_of_a_segment() {
        for class in Class::all() {
            let size = class.size_bytes();
            assert!(size < 64 || size.is_multiple_of(64), "{size}");
            assert!(size < 256 || size.is_multiple_of(256), "{size}");
            let waste = SEGMENT_BYTES - u64::from(class.slots()) * size;
            assert!(waste * 20 < SEGMENT_BYTES, "{size}: {waste} bytes of a segment are wasted");
        }
    }
}
