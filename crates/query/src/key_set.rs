//! Sets of integer keys that take little memory. A set may claim keys that were not added, but it never denies
//! a key that was added.
//!
//! Keys in a narrow range are bits of a bitmap, which is exact. Other keys are bits of a Bloom filter
//! (Bloom 1970) whose bits for one key are in one machine word.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type};

/// The number of keys that are listed before they become bits.
const LISTED_MAX: usize = 1 << 16;
/// The number of keys beyond which there is no set, because its filter would let too many other keys pass.
const KEYS_MAX: usize = 1 << 20;
/// The most bits of a bitmap or filter (1 MiB).
const BITS_MAX: u64 = 1 << 23;
/// The bits of a Bloom filter for each key. The filter has the next power of two.
const BITS_OF_KEY: usize = 16;

/// A set of keys.
#[derive(Debug)]
pub struct KeySet {
    least: i64,
    greatest: i64,
    words: Words,
}

#[derive(Debug)]
enum Words {
    /// There are no keys.
    None,
    /// The bit at `key - least` tells whether the key is in the set.
    Bitmap(Box<[u64]>),
    /// The bits of a Bloom filter, in a power of two of words.
    Bloom(Box<[u64]>),
}

impl KeySet {
    /// Returns whether no key was added.
    pub const fn is_empty(&self) -> bool {
        matches!(self.words, Words::None)
    }

    /// Returns false if the key was not added.
    #[inline]
    pub fn has(&self, key: i64) -> bool {
        if key < self.least || key > self.greatest {
            return false;
        }
        match &self.words {
            Words::None => false,
            Words::Bitmap(words) => {
                let at = key.wrapping_sub(self.least) as u64;
                words[(at / 64) as usize] & (1 << (at % 64)) != 0
            }
            Words::Bloom(words) => {
                let (at, bits) = bloom_bits(key, words.len());
                words[at] & bits == bits
            }
        }
    }
}

/// Returns the word of a key in a Bloom filter of this many words, and its bits in the word.
#[inline]
fn bloom_bits(key: i64, words: usize) -> (usize, u64) {
    // The finalizer of SplitMix64 (Steele et al. 2014).
    let mut hash = key as u64;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^= hash >> 31;
    let bit = |shift: u32| 1u64 << ((hash >> shift) & 63);
    ((hash >> 32) as usize & (words - 1), bit(0) | bit(6) | bit(12))
}

/// Makes a set.
pub struct KeySetBuilder {
    /// The keys, until there are too many of them.
    listed: Vec<i64>,
    /// The Bloom filter of all keys after that.
    bloom: Option<Box<[u64]>>,
    count: usize,
    least: i64,
    greatest: i64,
}

impl Default for KeySetBuilder {
    fn default() -> Self {
        KeySetBuilder { listed: Vec::new(), bloom: None, count: 0, least: i64::MAX, greatest: i64::MIN }
    }
}

impl KeySetBuilder {
    /// Returns whether arrays of this type have keys for a set.
    pub const fn takes(ty: &DataType) -> bool {
        matches!(ty, DataType::Int16 | DataType::Int32 | DataType::Int64)
    }

    /// Adds the keys of an array of integers that are not NULL.
    pub fn add_all(&mut self, array: &ArrayRef) {
        match array.data_type() {
            DataType::Int16 => self.add_array::<Int16Type>(array),
            DataType::Int32 => self.add_array::<Int32Type>(array),
            DataType::Int64 => self.add_array::<Int64Type>(array),
            // A set without these keys would be wrong.
            _ => self.count = KEYS_MAX + 1,
        }
    }

    fn add_array<T: ArrowPrimitiveType<Native: Into<i64>>>(&mut self, array: &ArrayRef) {
        let array = array.as_primitive::<T>();
        if array.null_count() == 0 {
            array.values().iter().for_each(|key| self.add((*key).into()));
        } else {
            array.iter().flatten().for_each(|key| self.add(key.into()));
        }
    }

    fn add(&mut self, key: i64) {
        self.least = self.least.min(key);
        self.greatest = self.greatest.max(key);
        self.count += 1;
        if let Some(words) = &mut self.bloom {
            let (at, bits) = bloom_bits(key, words.len());
            words[at] |= bits;
            return;
        }
        self.listed.push(key);
        if self.listed.len() > LISTED_MAX {
            self.bloom = Some(bloom(&self.listed, (BITS_MAX / 64) as usize));
            self.listed = Vec::new();
        }
    }

    /// Returns the set. Returns `None` if there are too many keys.
    pub fn finish(self) -> Option<KeySet> {
        let KeySetBuilder { listed, bloom: made, count, least, greatest } = self;
        let span = greatest.wrapping_sub(least) as u64;
        let words = match made {
            _ if count == 0 => Words::None,
            _ if count > KEYS_MAX => return None,
            Some(words) => Words::Bloom(words),
            None if span < BITS_MAX => {
                let mut words = vec![0; (span / 64 + 1) as usize].into_boxed_slice();
                for key in listed {
                    let at = key.wrapping_sub(least) as u64;
                    words[(at / 64) as usize] |= 1 << (at % 64);
                }
                Words::Bitmap(words)
            }
            None => Words::Bloom(bloom(&listed, (listed.len() * BITS_OF_KEY / 64).next_power_of_two())),
        };
        Some(KeySet { least, greatest, words })
    }
}

/// Returns a Bloom filter of these keys.
fn bloom(keys: &[i64], words: usize) -> Box<[u64]> {
    let mut filter = vec![0; words].into_boxed_slice();
    for key in keys {
        let (at, bits) = bloom_bits(*key, words);
        filter[at] |= bits;
    }
    filter
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int32Array, Int64Array};

    use super::*;

    fn set(keys: &[i64]) -> Option<KeySet> {
        let mut builder = KeySetBuilder::default();
        builder.add_all(&(Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef));
        builder.finish()
    }

    #[test]
    fn narrow_sets_are_exact() {
        let keys = [-5, 0, 3, 64, 1_000_000];
        let set = set(&keys).unwrap();
        assert!(matches!(set.words, Words::Bitmap(_)));
        for key in -70..2000 {
            assert_eq!(set.has(key), keys.contains(&key), "{key}");
        }
        assert!(set.has(1_000_000) && !set.has(i64::MIN) && !set.has(i64::MAX));
    }

    #[test]
    fn wide_sets_deny_no_key_and_pass_few_others() {
        for count in [2, 1000, LISTED_MAX as i64 + 500] {
            let keys: Vec<i64> =
                (0..count).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15u64 as i64)).collect();
            let set = set(&keys).unwrap();
            assert!(matches!(set.words, Words::Bloom(_)), "{count}");
            assert!(keys.iter().all(|key| set.has(*key)), "{count}");
            let others = (1..10_000i64).filter(|n| set.has(n.wrapping_mul(0x5851_F42D_4C95_7F2D))).count();
            assert!(others < 200, "{count}: {others} of 10000 others pass");
        }
    }

    #[test]
    fn edges_of_integers_nulls_and_too_many_keys() {
        let extremes = set(&[i64::MIN, i64::MAX]).unwrap();
        assert!(extremes.has(i64::MIN) && extremes.has(i64::MAX));
        assert!(set(&[]).unwrap().is_empty());
        assert!(!set(&[]).unwrap().has(0));
        let mut builder = KeySetBuilder::default();
        builder.add_all(&(Arc::new(Int32Array::from(vec![None, Some(7), None])) as ArrayRef));
        let with_nulls = builder.finish().unwrap();
        assert!(with_nulls.has(7) && !with_nulls.has(0));
        assert!(set(&vec![1; KEYS_MAX + 1]).is_none());
    }
}
