//! A row as a value of the primary index.
//!
//! The *tuple* of a row has the lengths of its keys in the secondary indexes (2 bytes each), the keys, and
//! the row. The value of the primary index begins with a byte that says where the tuple is:
//!
//! | first byte | bytes after it |
//! |---:|---|
//! | 0 | the tuple |
//! | 1 | the tuple is in pieces: its number in the tree `Pieces` (8 bytes), its length (4 bytes) |
//!
//! A piece is an entry of the tree `Pieces` of the table. Its key has the number of the tuple (8 bytes) and
//! the position among the pieces of the tuple (4 bytes), both big endian. All pieces of a tuple but the last
//! one have the same length: two of them fill a node.
//!
//! This module does not know trees.

use std::ops::Range;

use super::pages::PAGE_BYTES;
use crate::cow_tree::value_bytes_max;
use crate::layout::get_u64;
use crate::pointer::Pointer;
use crate::store_error::{StoreError, StoreResult};
use crate::tuple::INDEXES_MAX;

const INLINE: u8 = 0;
const IN_PIECES: u8 = 1;
/// The number of bytes of a value before an inlined tuple.
pub(super) const INLINE_AT: usize = 1;
const PIECE_KEY_BYTES: usize = 12;

/// Returns the number of bytes of each piece of a tuple but the last one.
pub(super) fn piece_bytes() -> usize {
    value_bytes_max(PAGE_BYTES, PIECE_KEY_BYTES)
}

/// Returns whether a tuple fits into the primary index, under a key of this length.
pub(super) fn is_inline(key_bytes: usize, tuple: &[u8]) -> bool {
    INLINE_AT + tuple.len() <= value_bytes_max(PAGE_BYTES, key_bytes)
}

/// The pieces of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) number: u64,
    pub(super) tuple_bytes: usize,
}

impl Pieces {
    pub(super) fn count(&self) -> u32 {
        self.tuple_bytes.div_ceil(piece_bytes()) as u32
    }

    /// Returns the key of a piece.
    pub(super) fn key(&self, place: u32) -> [u8; PIECE_KEY_BYTES] {
        let mut key = [0; PIECE_KEY_BYTES];
        let (number, behind) = key.split_at_mut(8);
        number.copy_from_slice(&self.number.to_be_bytes());
        behind.copy_from_slice(&place.to_be_bytes());
        key
    }
}

/// Returns the number of the tuple to which an entry of the tree `Pieces` belongs.
pub(super) fn number_of(piece_key: &[u8]) -> u64 {
    piece_key.first_chunk().map_or(0, |number| u64::from_be_bytes(*number))
}

/// Where a tuple is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stored<'v> {
    /// The tuple is in the value.
    Inline(&'v [u8]),
    /// The tuple is in entries of the tree `Pieces`.
    InPieces(Pieces),
}

/// Decodes a value of the primary index. Errors: the value is damaged.
pub(super) fn decode(value: &[u8]) -> StoreResult<Stored<'_>> {
    match value.split_first() {
        Some((&INLINE, tuple)) => Ok(Stored::Inline(tuple)),
        Some((&IN_PIECES, rest)) if rest.len() == 12 => {
            let tuple_bytes = rest.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
            Ok(Stored::InPieces(Pieces { number: get_u64(rest, 0), tuple_bytes }))
        }
        _ => Err(damaged()),
    }
}

/// Encodes the value for an inlined tuple.
pub(super) fn encode_inline(tuple: &[u8], value: &mut Vec<u8>) {
    value.clear();
    value.push(INLINE);
    value.extend_from_slice(tuple);
}

/// Encodes the value for a tuple in pieces.
pub(super) fn encode_pieces(pieces: Pieces, value: &mut Vec<u8>) {
    value.clear();
    value.push(IN_PIECES);
    value.extend_from_slice(&pieces.number.to_le_bytes());
    value.extend_from_slice(&(pieces.tuple_bytes as u32).to_le_bytes());
}

/// Writes a tuple into a buffer. `secondary` are the keys of the secondary indexes.
pub(super) fn encode_tuple(secondary: &[&[u8]], row: &[u8], tuple: &mut Vec<u8>) {
    tuple.clear();
    secondary.iter().for_each(|key| tuple.extend_from_slice(&(key.len() as u16).to_le_bytes()));
    secondary.iter().for_each(|key| tuple.extend_from_slice(key));
    tuple.extend_from_slice(row);
}

fn damaged() -> StoreError {
    StoreError::Damaged { what: "a row in a primary index", at: Pointer::NONE }
}

/// The positions of the keys and of the row in a tuple.
#[derive(Debug, Clone, Default)]
pub(super) struct TupleParts {
    keys: [Range<usize>; INDEXES_MAX],
    /// Where the row begins.
    pub(super) row_at: usize,
}

impl TupleParts {
    /// Reads the lengths of the keys in a tuple, for a table with this number of secondary indexes. Errors:
    /// the lengths are longer than the tuple.
    pub(super) fn of(secondary: usize, tuple: &[u8]) -> StoreResult<TupleParts> {
        let mut parts = TupleParts { row_at: 2 * secondary, ..TupleParts::default() };
        for (number, key) in parts.keys.iter_mut().enumerate().take(secondary) {
            let length = tuple.get(2 * number..).and_then(|rest| rest.first_chunk()).ok_or_else(damaged)?;
            let end = parts.row_at + usize::from(u16::from_le_bytes(*length));
            *key = parts.row_at..end;
            parts.row_at = end;
        }
        if parts.row_at > tuple.len() { Err(damaged()) } else { Ok(parts) }
    }

    /// Returns the key of a secondary index. Index 1 is the first secondary index.
    pub(super) fn key<'t>(&self, tuple: &'t [u8], index: usize) -> &'t [u8] {
        let range = index.checked_sub(1).and_then(|number| self.keys.get(number));
        range.and_then(|range| tuple.get(range.clone())).unwrap_or_default()
    }

    /// Returns the row.
    pub(super) fn row<'t>(&self, tuple: &'t [u8]) -> &'t [u8] {
        tuple.get(self.row_at..).unwrap_or_default()
    }
}
