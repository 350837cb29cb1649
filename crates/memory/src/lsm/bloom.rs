//! Bloom filters (Bloom 1970). A filter says whether a run may have a key.
//!
//! The format is the same as in Parquet's split block Bloom filters: blocks of 32 bytes, and 8 bits of one
//! block for each key. So a probe reads at most one cache line, directly where the filter is stored.
//!
//! Invariants
//! 1. A key that was added is always found. A key that was not added is found in about 1 percent of the
//!    cases.
//!
//! This module does not know keys. It gets their hashes.

use super::media::Media;
use crate::pointer::Pointer;
use crate::store_error::StoreResult;

/// The size of a block, in bytes.
const BLOCK_BYTES: usize = 32;
/// The number of bits for each key.
const BITS_PER_KEY: usize = 12;
/// Odd numbers that spread a hash over the words of a block (from the specification of Parquet).
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The bits of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    /// The filter is in the region, where probes read it.
    Region { at: Pointer, len_bytes: u64 },
    /// The filter is in a file from an offset on. Probes read a copy in memory.
    File { at: u64, bits: Box<[u8]> },
}

/// Returns the number of bytes of a filter for a number of keys.
pub(crate) fn filter_bytes(keys: u64) -> usize {
    (keys as usize * BITS_PER_KEY).div_ceil(8 * BLOCK_BYTES).max(1) * BLOCK_BYTES
}

fn block_at(hash: u64, len_bytes: usize) -> usize {
    let blocks = (len_bytes / BLOCK_BYTES) as u64;
    (((hash >> 32) * blocks) >> 32) as usize * BLOCK_BYTES
}

fn bit(hash: u64, salt: u32) -> u32 {
    1 << ((hash as u32).wrapping_mul(salt) >> 27)
}

/// Adds a key.
pub(crate) fn add(filter: &mut [u8], hash: u64) {
    let at = block_at(hash, filter.len());
    let block = filter.get_mut(at..at + BLOCK_BYTES).unwrap_or_default();
    let (words, _) = block.as_chunks_mut::<4>();
    for (word, salt) in words.iter_mut().zip(SALTS) {
        *word = (u32::from_le_bytes(*word) | bit(hash, salt)).to_le_bytes();
    }
}

fn block_has(block: &[u8], hash: u64) -> bool {
    let (words, _) = block.as_chunks::<4>();
    words.iter().zip(SALTS).all(|(word, salt)| u32::from_le_bytes(*word) & bit(hash, salt) != 0)
}

impl Filter {
    /// Returns whether the run may have a key with this hash.
    #[inline]
    pub(crate) fn may_have(&self, media: &Media<'_>, hash: u64) -> StoreResult<bool> {
        match self {
            Filter::Region { at, len_bytes } => {
                let mut block = [0; BLOCK_BYTES];
                media.space.read(*at, block_at(hash, *len_bytes as usize) as u64, &mut block)?;
                Ok(block_has(&block, hash))
            }
            Filter::File { bits, .. } => {
                let at = block_at(hash, bits.len());
                Ok(block_has(bits.get(at..at + BLOCK_BYTES).unwrap_or_default(), hash))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::key::{SearchKey, TableId};

    #[test]
    fn keys_are_found_and_few_others() {
        let hash = |number: u64| SearchKey::of(TableId(0), 0, &number.to_be_bytes()).hash();
        let keys = 10_000;
        let mut bits = vec![0; filter_bytes(keys)];
        (0..keys).for_each(|number| add(&mut bits, hash(number)));
        let has =
            |number| block_has(&bits[block_at(hash(number), bits.len())..][..BLOCK_BYTES], hash(number));
        assert!((0..keys).all(has));
        let wrong = (keys..2 * keys).filter(|number| has(*number)).count();
        assert!(wrong < 150, "{wrong} of {keys}");
    }
}
