//! Sizes and limits that are part of the region's layout.
//!
//! Invariants
//! 1. If one of them changes, the version of the layout must change, too (`layout.rs`).

/// The number of bytes of a segment: it holds chunks of one size class, or is a part of one large chunk.
pub const SEGMENT_BYTES: u64 = 65536;
/// The size of the smallest chunk, in bytes.
pub const CHUNK_BYTES_MIN: u64 = 16;
/// The largest number of roots.
pub const ROOTS: u32 = 256;
/// The size of the longest name of a root, in bytes.
pub const ROOT_NAME_BYTES_MAX: usize = 48;
/// The number of steps of the largest publication.
pub const STEPS_MAX: usize = 15;

/// The number of possible owners.
pub(crate) const OWNERS: usize = 4096;
