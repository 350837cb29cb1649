//! The format of files in the region.
//!
//! All numbers are words, little endian. The root of the files points to the *directory*, a chunk of 16384
//! bytes:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VNVMFIL1"; its last character is the version |
//! | 8 | 56 | zeros |
//! | 64 | 64 each | 255 entries |
//!
//! An entry is one cache line, with the fields of a root of the allocator (`layout.rs`):
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | pointer to the first map of the file; 0 = the entry is free |
//! | 8 | 8 | seal over the name; 0 = there is no file of this name |
//! | 16 | 48 | name in UTF-8, then zeros |
//!
//! An entry with a pointer and without a seal is a removed file, whose chunks have to be freed.
//!
//! A *map* is a chunk of 4096 bytes that lists the blocks of a file:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | first map: length of the file in bytes |
//! | 8 | 8 | pointer to the next map; 0 = none |
//! | 16 | 48 | zeros |
//! | 64 | 8 each | 504 pointers to blocks; 0 after the last block |
//!
//! A *block* is a chunk of 16384 bytes of the file. Blocks after the end of the file are kept for later
//! writes.
//!
//! This module does not know the order in which these words are stored.

use varve_device::LINE_BYTES;

use crate::layout::ROOT_BYTES;

/// The size of a block, in bytes.
pub(super) const BLOCK_BYTES: u64 = 16_384;
/// The size of the directory, in bytes.
pub(super) const DIRECTORY_BYTES: usize = 16_384;
/// The size of an entry, in bytes.
pub(super) const ENTRY_BYTES: usize = ROOT_BYTES;
/// The largest number of files.
pub(super) const ENTRIES: usize = DIRECTORY_BYTES / ENTRY_BYTES - 1;
/// The magic of the directory as a word.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"VNVMFIL1");
/// The size of a map, in bytes.
pub(super) const MAP_BYTES: usize = 4096;
/// The number of blocks that a map lists.
pub(super) const MAP_BLOCKS: usize = (MAP_BYTES - LINE_BYTES as usize) / 8;
/// The offset of the length of the file in its first map.
pub(super) const LENGTH_AT: u64 = 0;
/// The offset of the pointer to the next map in a map.
pub(super) const NEXT_AT: u64 = 8;

/// Returns where an entry begins in the directory.
pub(super) fn entry_at(entry: usize) -> u64 {
    ((entry + 1) * ENTRY_BYTES) as u64
}

/// Returns the offset of the pointer to a block in the map that lists the block.
pub(super) fn block_at(number_in_map: usize) -> u64 {
    LINE_BYTES + 8 * number_in_map as u64
}

const _: () = assert!(ENTRIES == 255 && MAP_BLOCKS == 504);
