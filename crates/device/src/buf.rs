//! Buffers that direct I/O accepts.
//!
//! Invariants
//! 1. The memory starts at a multiple of [`AlignedBuf::ALIGN_BYTES`] and is zeroed when it is allocated.
//! 2. The length never changes.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A zeroed, 4096-aligned, fixed-length byte buffer.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: AlignedBuf owns its memory exclusively; it has no interior mutability or thread affinity.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only hands out `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// The alignment of every buffer. It is enough for direct I/O on usual block devices.
    pub const ALIGN_BYTES: usize = 4096;

    /// Returns a zeroed buffer of `len_bytes` bytes (may be 0).
    pub fn new(len_bytes: usize) -> AlignedBuf {
        let layout = Self::layout(len_bytes);
        // SAFETY: the layout has a non-zero size (see `layout`).
        let raw = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuf { start, len_bytes }
    }

    /// Returns a buffer holding a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let len_bytes = bytes.len();
        let layout = Self::layout(len_bytes);
        // SAFETY: the layout has a non-zero size (see `layout`).
        let raw = unsafe { alloc(layout) };
        let start = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: `start` has room for `len_bytes` bytes. This call initialises them, and they overlap
        // nothing.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), len_bytes) };
        AlignedBuf { start, len_bytes }
    }

    fn layout(len_bytes: usize) -> Layout {
        Layout::from_size_align(len_bytes.max(1), Self::ALIGN_BYTES)
            .expect("a buffer length fits the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len_bytes)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len_bytes` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes) }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        AlignedBuf::copy_of(self)
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_zeroed_and_copied() {
        for len in [0, 1, 512, 8192, 100_000] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|byte| *byte == 0));
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN_BYTES, 0);
            buf.fill(7);
            assert_eq!(&*buf.clone(), &*buf);
        }
    }
}
