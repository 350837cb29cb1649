//! PostgreSQL's hash of partition keys. It decides to which partition of a table with PARTITION BY HASH a row
//! belongs.
//!
//! Source: `hash_bytes_extended` and `hash_combine64` of PostgreSQL (Bob Jenkins, lookup3, 2006), with the
//! seed of `partbounds.c`. So a row is in the same partition as in PostgreSQL.
//!
//! This module does not know tables.

use crate::types::{ColumnType, Datum};

/// PostgreSQL's HASH_PARTITION_SEED.
const SEED: u64 = 0x7A5B_2236_7996_DCFD;
const GOLDEN: u32 = 0x9e37_79b9;
const INITIAL: u32 = 3_923_095;

/// Returns whether values of the type can be hashed.
pub const fn is_hashable(t: ColumnType) -> bool {
    matches!(
        t,
        ColumnType::Bool
            | ColumnType::Int2
            | ColumnType::Int4
            | ColumnType::Int8
            | ColumnType::Char(_)
            | ColumnType::Varchar(_)
            | ColumnType::Text
            | ColumnType::Bytea
            | ColumnType::Date
            | ColumnType::Timestamp
            | ColumnType::TimestampTz
    )
}

/// Returns the hash of a partition key.
pub fn key_hash<'a>(key: impl Iterator<Item = Datum<'a>>) -> u64 {
    key.filter(|value| !value.is_null()).fold(0, |hash, value| combined(hash, hash_of(value)))
}

/// Combines the hash of the first columns of a key with that of the next column, which is not NULL.
pub(crate) fn combined(hash: u64, next: u64) -> u64 {
    let next = next.wrapping_add(0x49a0_f4dd_15e5_a8e3);
    hash ^ next.wrapping_add(hash << 54).wrapping_add(hash >> 7)
}

/// Returns the hash of a value that is not NULL.
pub(crate) fn hash_of(value: Datum<'_>) -> u64 {
    match value {
        Datum::Bool(b) => hash_word(u32::from(b)),
        Datum::Int2(n) => hash_word(i32::from(n) as u32),
        Datum::Int4(n) | Datum::Date(n) => hash_word(n as u32),
        Datum::Int8(n) | Datum::Timestamp(n) | Datum::TimestampTz(n) => {
            let high = (n >> 32) as u32;
            hash_word(n as u32 ^ if n >= 0 { high } else { !high })
        }
        Datum::Text(text) => hash_bytes(text.as_bytes()),
        Datum::Bytea(bytes) => hash_bytes(bytes),
        _ => 0,
    }
}

/// Returns the state of lookup3 after the seed and the length.
fn begun(len: u32) -> [u32; 3] {
    let start = GOLDEN.wrapping_add(len).wrapping_add(INITIAL);
    mixed([start.wrapping_add((SEED >> 32) as u32), start.wrapping_add(SEED as u32), start])
}

fn hash_word(word: u32) -> u64 {
    let [a, b, c] = begun(size_of::<u32>() as u32);
    finished([a.wrapping_add(word), b, c])
}

/// Returns the hash of a text or bytea.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut state = begun(bytes.len() as u32);
    let (whole, rest) = bytes.as_chunks::<12>();
    for chunk in whole {
        state = mixed(added(state, chunk));
    }
    let mut last = [0; 12];
    // The lowest byte of the third word belongs to the length.
    for (at, byte) in rest.iter().enumerate() {
        last[if at < 8 { at } else { at + 1 }] = *byte;
    }
    finished(added(state, &last))
}

fn added(state: [u32; 3], chunk: &[u8; 12]) -> [u32; 3] {
    let (words, _) = chunk.as_chunks::<4>();
    let word = |n: usize| words.get(n).map_or(0, |w| u32::from_le_bytes(*w));
    [state[0].wrapping_add(word(0)), state[1].wrapping_add(word(1)), state[2].wrapping_add(word(2))]
}

fn mixed([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for (first, second) in [(4, 6), (8, 16), (19, 4)] {
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        // The next round works on (c, a, b).
        (a, b, c) = (c, a, b);
    }
    [a, b, c]
}

fn finished([mut a, mut b, mut c]: [u32; 3]) -> u64 {
    for rotation in [[14, 11, 25], [16, 4, 14]] {
        c = (c ^ b).wrapping_sub(b.rotate_left(rotation[0]));
        a = (a ^ c).wrapping_sub(c.rotate_left(rotation[1]));
        b = (b ^ a).wrapping_sub(a.rotate_left(rotation[2]));
    }
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (u64::from(b) << 32) | u64::from(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the results of PostgreSQL 15 for `hashint4extended(7, seed)` and similar calls.
    #[test]
    fn hashes_are_those_of_postgresql() {
        let hash = |value| hash_of(value) as i64;
        assert_eq!(hash(Datum::Int4(7)), 1_708_571_371_176_205_364);
        assert_eq!(hash(Datum::Int8(-5)), 5_466_844_944_386_338_076);
        assert_eq!(hash(Datum::Text("hello partition world")), -3_084_811_729_819_849_717);
        assert_eq!(hash(Datum::Text("")), -5_700_645_584_453_517_373);
        assert_eq!(hash(Datum::Text("abcdefghij")), -8_306_284_229_451_770_207);
    }
}
