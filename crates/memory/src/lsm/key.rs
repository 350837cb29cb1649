//! Keys of the LSM tree: a table, an index of it, and a key of this index.
//!
//! One tree has the entries of all tables and indexes of a store. So all entries of a change are in one
//! MemTable, for any number of indexes. Keys are compared by table, then index, then bytes.
//!
//! Invariants
//! 1. Heads have the same order as their keys, unless both keys are longer than 11 bytes and have equal first
//!    11 bytes.
//!
//! This module does not know entries.

use std::hash::Hasher;

use twox_hash::XxHash64;

/// The number of bytes of the prefix of a key: table and index.
pub(crate) const PREFIX_BYTES: usize = 4;
/// The size of the index key in a head, in bytes.
const HEAD_KEY_BYTES: usize = 11;

/// The id of a table: 24 bits. No two tables of a store ever have the same id (`tables.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableId(pub(crate) u32);

/// Returns the prefix of a key: table and index as bytes that sort in the order of keys.
pub(crate) fn prefix(table: TableId, index: u8) -> [u8; PREFIX_BYTES] {
    let [_, high, middle, low] = table.0.to_be_bytes();
    [high, middle, low, index]
}

/// The beginning of a key, as one number: table, index, 11 bytes of the key, and its length up to 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHead(u128);

impl KeyHead {
    /// The size of a head, in bytes.
    pub(crate) const BYTES: usize = 16;

    #[inline]
    fn of(prefix: [u8; PREFIX_BYTES], key: &[u8]) -> KeyHead {
        let mut bytes = [0; KeyHead::BYTES];
        let len_bytes = key.len().min(HEAD_KEY_BYTES);
        bytes.iter_mut().zip(prefix.iter().chain(key).take(PREFIX_BYTES + len_bytes)).for_each(
            |(place, byte)| {
                *place = *byte;
            },
        );
        bytes[KeyHead::BYTES - 1] = key.len().min(HEAD_KEY_BYTES + 1) as u8;
        KeyHead(u128::from_be_bytes(bytes))
    }

    /// Returns the head that was stored as these bytes.
    pub(crate) fn decode(bytes: [u8; KeyHead::BYTES]) -> KeyHead {
        KeyHead(u128::from_be_bytes(bytes))
    }

    /// Returns the bytes to store.
    pub(crate) fn encode(self) -> [u8; KeyHead::BYTES] {
        self.0.to_be_bytes()
    }

    /// Returns whether the head contains the whole key.
    pub(crate) fn is_whole(self) -> bool {
        (self.0 & 0xFF) as usize <= HEAD_KEY_BYTES
    }
}

/// A search key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchKey<'k> {
    pub(crate) prefix: [u8; PREFIX_BYTES],
    pub(crate) key: &'k [u8],
    pub(crate) head: KeyHead,
}

impl<'k> SearchKey<'k> {
    /// Returns the search key for a key of an index.
    #[inline]
    pub(crate) fn of(table: TableId, index: usize, key: &'k [u8]) -> SearchKey<'k> {
        SearchKey::with_prefix(prefix(table, index as u8), key)
    }

    #[inline]
    fn with_prefix(prefix: [u8; PREFIX_BYTES], key: &'k [u8]) -> SearchKey<'k> {
        SearchKey { prefix, key, head: KeyHead::of(prefix, key) }
    }

    /// Returns the search key for a key that includes its prefix, as cursors have it.
    pub(crate) fn whole(bytes: &'k [u8]) -> SearchKey<'k> {
        match bytes.split_first_chunk() {
            Some((prefix, key)) => SearchKey::with_prefix(*prefix, key),
            None => SearchKey::with_prefix([0; PREFIX_BYTES], bytes),
        }
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> TableId {
        let [high, middle, low, _] = self.prefix;
        TableId(u32::from_be_bytes([0, high, middle, low]))
    }

    /// Returns a hash for the Bloom filters and for heights in skip lists. It is the same after every start.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = XxHash64::with_seed(0);
        hasher.write(&self.prefix);
        hasher.write(self.key);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_sort_as_keys_do_unless_both_are_long() {
        let long = [7; 20];
        let keys: [&[u8]; 8] = [b"", b"a", b"a\0", b"aa", &long[..10], &long[..11], &long[..12], b"\0"];
        for (left_table, right_table) in [(1, 1), (1, 2), (65_536, 255)] {
            for left in keys {
                for right in keys {
                    let heads = [(left_table, left), (right_table, right)]
                        .map(|(table, key)| SearchKey::of(TableId(table), 3, key).head);
                    let order = (left_table, left).cmp(&(right_table, right));
                    assert_eq!(heads[0].cmp(&heads[1]), order, "{left:?} {right:?}");
                }
            }
        }
        let [left, right] = [&long[..12], &long[..]].map(|key| SearchKey::of(TableId(1), 0, key).head);
        assert!(left == right && !left.is_whole());
    }
}
