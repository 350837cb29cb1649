//! A tuple: one chunk with a row and its keys in all indexes.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | length of the row in bytes |
//! | 4 | 2 | length of the head in bytes: everything before the row |
//! | 6 | 2 | number of keys |
//! | 8 | 2 each | lengths of the keys |
//! | then | | the keys, one after the other |
//! | head's length | | the row |
//!
//! Invariants
//! 1. The head of a tuple never changes. So an index can compare with the key in a tuple as long as the tuple
//!    exists.
//!
//! This module does not know indexes or the log.

use std::cmp::Ordering;
use std::ops::Range;

use crate::pointer::Pointer;
use crate::sizes::CHUNK_BYTES_MIN;
use crate::space::Space;
use crate::store_error::{StoreError, StoreResult};

/// The largest number of indexes of a table.
pub(crate) const INDEXES_MAX: usize = 7;
/// The size of the longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 4096;
/// The size of the longest row, in bytes.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 30;

const FIXED_BYTES: usize = 8 + 2 * INDEXES_MAX;
/// The number of bytes of a head that are read first. Every chunk has at least this many bytes.
const FIRST_BYTES: usize = CHUNK_BYTES_MIN as usize;
/// Keys are compared in the region in pieces of this many bytes.
const PIECE_BYTES: usize = 64;

/// The fixed part of a head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TupleHead {
    pub(crate) row_bytes: usize,
    pub(crate) head_bytes: usize,
    keys: usize,
    lengths: [u16; INDEXES_MAX],
}

/// Where a key is in its tuple.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySpan {
    from: usize,
    len_bytes: usize,
}

/// Writes the head of a tuple into a buffer.
pub(crate) fn encode_head(keys: &[&[u8]], row_bytes: usize, head: &mut Vec<u8>) {
    let head_bytes = 8 + keys.iter().map(|key| 2 + key.len()).sum::<usize>();
    head.clear();
    head.extend_from_slice(&(row_bytes as u32).to_le_bytes());
    head.extend_from_slice(&(head_bytes as u16).to_le_bytes());
    head.extend_from_slice(&(keys.len() as u16).to_le_bytes());
    keys.iter().for_each(|key| head.extend_from_slice(&(key.len() as u16).to_le_bytes()));
    keys.iter().for_each(|key| head.extend_from_slice(key));
}

/// Checks the keys and the row of a table with this number of indexes.
pub(crate) fn check(indexes: usize, keys: &[&[u8]], row: &[u8]) -> StoreResult<()> {
    if keys.len() != indexes {
        return Err(StoreError::KeyCount { found: keys.len(), expected: indexes });
    }
    if let Some(key) = keys.iter().find(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
        return Err(StoreError::KeyLength { len_bytes: key.len(), most_bytes: KEY_BYTES_MAX });
    }
    match row.len() > ROW_BYTES_MAX {
        true => Err(StoreError::RowLength { len_bytes: row.len(), most_bytes: ROW_BYTES_MAX }),
        false => Ok(()),
    }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    let pair = bytes.get(at..).and_then(|rest| rest.first_chunk());
    pair.map_or(0, |pair| u16::from_le_bytes(*pair))
}

impl TupleHead {
    /// Reads the fixed part of a tuple's head.
    ///
    /// Errors: the lengths in the head are impossible.
    pub(crate) fn read(space: &Space, tuple: Pointer) -> StoreResult<TupleHead> {
        let mut bytes = [0; FIXED_BYTES];
        let (first, rest) = bytes.split_at_mut(FIRST_BYTES);
        space.read(tuple, 0, first)?;
        if 8 + 2 * usize::from(number(first, 6)) > FIRST_BYTES {
            space.read(tuple, FIRST_BYTES as u64, rest)?;
        }
        TupleHead::decode(&bytes, tuple)
    }

    /// Decodes the fixed part of a head from the first bytes of a tuple. `tuple` is used only to name the
    /// tuple in an error.
    ///
    /// Errors: the lengths in the head are impossible.
    pub(crate) fn decode(bytes: &[u8], tuple: Pointer) -> StoreResult<TupleHead> {
        let row_bytes = bytes.first_chunk().map_or(0, |first| u32::from_le_bytes(*first)) as usize;
        let (head_bytes, keys) = (usize::from(number(bytes, 4)), usize::from(number(bytes, 6)));
        let mut lengths = [0; INDEXES_MAX];
        (0..keys).zip(&mut lengths).for_each(|(no, length)| *length = number(bytes, 8 + 2 * no));
        let sum = 8 + 2 * keys + lengths.iter().map(|length| usize::from(*length)).sum::<usize>();
        let head = TupleHead { row_bytes, head_bytes, keys, lengths };
        let is_possible = keys <= INDEXES_MAX && sum == head_bytes && row_bytes <= ROW_BYTES_MAX;
        is_possible.then_some(head).ok_or(StoreError::Damaged { what: "the head of a tuple", at: tuple })
    }

    fn span(&self, index: usize) -> KeySpan {
        let before = self.lengths.iter().take(index).map(|length| usize::from(*length)).sum::<usize>();
        let len_bytes = self.lengths.get(index).map_or(0, |length| usize::from(*length));
        KeySpan { from: 8 + 2 * self.keys + before, len_bytes }
    }

    /// Compares the tuple's key in an index with another key.
    pub(crate) fn compare(
        &self,
        space: &Space,
        tuple: Pointer,
        index: usize,
        key: &[u8],
    ) -> StoreResult<Ordering> {
        let span = self.span(index);
        compare_bytes(space, tuple, span.from as u64, span.len_bytes, key)
    }

    /// Returns the bytes of the key of an index in the tuple.
    pub(crate) fn key_range(&self, index: usize) -> Range<usize> {
        let KeySpan { from, len_bytes } = self.span(index);
        from..from + len_bytes
    }

    /// Returns the number of bytes of the tuple.
    pub(crate) fn tuple_bytes(&self) -> usize {
        self.head_bytes + self.row_bytes
    }

    /// Copies the key of an index into a buffer.
    pub(crate) fn key(
        &self,
        space: &Space,
        tuple: Pointer,
        index: usize,
        key: &mut Vec<u8>,
    ) -> StoreResult<()> {
        let span = self.span(index);
        key.resize(span.len_bytes, 0);
        space.read(tuple, span.from as u64, key)
    }

    /// Copies the row into a buffer.
    pub(crate) fn row(&self, space: &Space, tuple: Pointer, row: &mut Vec<u8>) -> StoreResult<()> {
        row.resize(self.row_bytes, 0);
        space.read(tuple, self.head_bytes as u64, row)
    }
}

/// Returns the checksum of a tuple's head in the region, or `None` if the bytes cannot be a head.
pub(crate) fn head_checksum(space: &Space, tuple: Pointer, bytes: &mut Vec<u8>) -> Option<u32> {
    let head = TupleHead::read(space, tuple).ok()?;
    bytes.resize(head.head_bytes, 0);
    space.read(tuple, 0, bytes).ok()?;
    Some(crc32c::crc32c(bytes))
}

/// Compares the key that a tuple has in an index with another key.
pub(crate) fn compare(space: &Space, tuple: Pointer, index: usize, key: &[u8]) -> StoreResult<Ordering> {
    TupleHead::read(space, tuple)?.compare(space, tuple, index, key)
}

/// Compares bytes in the region with a key.
pub(crate) fn compare_bytes(
    space: &Space,
    at: Pointer,
    from: u64,
    len_bytes: usize,
    key: &[u8],
) -> StoreResult<Ordering> {
    let mut piece = [0; PIECE_BYTES];
    let common = len_bytes.min(key.len());
    let mut done = 0;
    for part in key.chunks(PIECE_BYTES) {
        let count = part.len().min(common - done);
        let (Some(stored), Some(part)) = (piece.get_mut(..count), part.get(..count)) else { break };
        if count == 0 {
            break;
        }
        space.read(at, from + done as u64, stored)?;
        match (*stored).cmp(part) {
            Ordering::Equal => done += count,
            unequal => return Ok(unequal),
        }
    }
    Ok(len_bytes.cmp(&key.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_device::{Directory, MemoryDirectory};

    use super::*;
    use crate::pointer::Owner;
    use crate::state::Allocator;

    #[test]
    fn the_shortest_head_is_read_in_the_last_chunk_of_a_region() {
        let (Some(owner), directory) = (Owner::new(3), MemoryDirectory::new()) else { panic!("an owner") };
        // The region has tables of 32 KiB and then three segments. The last segment ends with the region.
        let region = directory.map("region", 32_768 + 3 * 65_536).unwrap_or_else(|error| panic!("{error}"));
        let allocator = Allocator::format(region.clone(), 1).unwrap_or_else(|error| panic!("{error}"));
        let space = Space::new(Arc::new(allocator));
        let chunks = std::iter::from_fn(|| space.allocator().allocate(owner, CHUNK_BYTES_MIN).ok());
        let Some(last) = chunks.max() else { panic!("the region is empty") };
        assert_eq!(last.to_u64() + CHUNK_BYTES_MIN, region.len_bytes());
        let mut head = Vec::new();
        encode_head(&[b"key"], 3, &mut head);
        assert!(space.store(last, 0, &head).is_ok());
        assert_eq!(TupleHead::read(&space, last).map(|head| head.row_bytes), Ok(3));
    }
}
