//! The memory of the frames (each frame has one page): one anonymous mapping, in huge pages if the kernel
//! provides them.
//!
//! Invariants
//! 1. The mapping lives as long as the arena. Frame `n` begins at byte `n * page_size`.
//! 2. Memory of a frame is not touched before the frame's first use. So an idle pool uses no memory.
//! 3. Bytes of a frame are read or written only under the frame's latch. The callers ensure this.
//!
//! This module does not know which page is in a frame.

use std::ptr::NonNull;

use crate::base::error::{PagerError, Result};

/// The unit of `prefetch`, and the least number of bytes that it fetches.
pub(super) const CACHE_LINE_BYTES: usize = 64;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// For less memory than this, huge pages are not requested.
const HUGE_WORTH_BYTES: usize = 4 << 20;

/// The memory of `frames` frames, initially zero.
pub(crate) struct Arena {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    first: NonNull<u8>,
    page_size: usize,
    frames: usize,
}

// SAFETY: the arena only hands out raw slices; who may touch them is settled by the frames' latches.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(frames: usize, page_size: usize) -> Result<Arena> {
        let bytes = frames * page_size;
        let mapping_bytes = bytes + HUGE_PAGE_BYTES;
        let mapping = map(mapping_bytes)?;
        let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip` < HUGE_PAGE_BYTES, so the result lies within the mapping, and at least `bytes` bytes
        // of the mapping follow it.
        let first = unsafe { mapping.add(skip) };
        advise_huge(first.as_ptr(), bytes);
        Ok(Arena { mapping, mapping_bytes, first, page_size, frames })
    }

    /// Returns the bytes of a frame. They may be used only under the frame's latch.
    #[inline]
    pub(crate) fn frame(&self, no: usize) -> NonNull<[u8]> {
        assert!(no < self.frames);
        // SAFETY: `no` < `frames`, so the frame lies within the mapping.
        NonNull::slice_from_raw_parts(unsafe { self.first.add(no * self.page_size) }, self.page_size)
    }

    /// Begins to fetch the first `bytes` bytes of a frame into the processor's cache.
    #[inline]
    pub(crate) fn prefetch(&self, no: usize, bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.first.as_ptr().wrapping_add(no * self.page_size);
            for at in (0..bytes.min(self.page_size)).step_by(CACHE_LINE_BYTES) {
                // SAFETY: a prefetch reads nothing architecturally and cannot fault.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at).cast()) };
            }
        }
    }
}

/// Requests huge pages for the part of a range that they can cover, if this part is long enough.
fn advise_huge(start: *mut u8, bytes: usize) {
    let skip = start.align_offset(HUGE_PAGE_BYTES);
    let whole = bytes.saturating_sub(skip) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole >= HUGE_WORTH_BYTES {
        // SAFETY: advice about memory of ours (the range lies within it); a refusal only means ordinary
        // pages.
        unsafe { libc::madvise(start.wrapping_add(skip).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

/// Makes `count` values, in huge pages if they take enough memory.
pub(super) fn in_huge_pages<T>(count: usize, make: impl FnMut() -> T) -> Box<[T]> {
    let mut values: Vec<T> = Vec::with_capacity(count);
    advise_huge(values.as_mut_ptr().cast(), count * size_of::<T>());
    values.extend(std::iter::repeat_with(make).take(count));
    values.into_boxed_slice()
}

fn map(bytes: usize) -> Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping aliases nothing.
    let raw = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    let failed = raw == libc::MAP_FAILED;
    NonNull::new(raw.cast()).filter(|_| !failed).ok_or_else(|| PagerError::Incompatible {
        what: format!(
            "the kernel gives no {bytes} bytes for the buffer pool ({}): make the pool smaller",
            std::io::Error::last_os_error()
        ),
    })
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; no frame can be in use any more.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}
