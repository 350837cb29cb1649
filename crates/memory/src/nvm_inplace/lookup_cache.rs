//! A hash table in DRAM, from keys of an index to their tuples. With it, a lookup can skip the search in the
//! tree.
//!
//! The table is a cache: it begins empty, entries can be replaced, and a lookup that finds nothing in it
//! searches the tree. So a start reads nothing for it. A bucket is a cache line with eight words. A word has
//! these bits:
//!
//! | bits | field |
//! |---:|---|
//! | 0..40 | pointer to the tuple, in units of 16 bytes; 0 = the word is free |
//! | 40..64 | tag: bits 6..30 of the key's hash |
//!
//! The number of buckets is a power of two, at least 64. The lowest bits of the hash choose the bucket. When
//! the number of buckets doubles, one more bit of the hash is needed. The tag contains this bit, so the keys
//! do not have to be read again.
//!
//! Invariants
//! 1. A word leads to a tuple that has a valid entry in the index. The functions that take an entry out of the
//!    index also take its word out.
//! 2. Two keys may have the same tag, so a lookup compares the key in the tuple.
//! 3. Several threads that read may add tuples at the same time, because the store of a word is atomic.
//!
//! This module does not know what keys and tuples are.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use twox_hash::XxHash64;

use crate::pointer::Pointer;
use crate::sizes::CHUNK_BYTES_MIN;

/// The number of words of a bucket.
const WAYS: usize = 8;
const BUCKET_BYTES: u64 = 64;
const BUCKETS_MIN: usize = 1 << BUCKET_BITS_MIN;
const BUCKET_BITS_MIN: u32 = 6;
const POINTER_BITS: u32 = 40;
const TAG_BITS: u32 = u64::BITS - POINTER_BITS;
const POINTER_MASK: u64 = (1 << POINTER_BITS) - 1;

/// A cache of lookups in one index.
#[derive(Default)]
pub(super) struct LookupCache {
    buckets: Box<[Bucket]>,
    /// The largest number of bytes for the buckets.
    bytes_max: u64,
    /// The number of tuples that have found their bucket full since the number of buckets last changed.
    displaced_count: AtomicU32,
}

#[derive(Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// The hash of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    #[inline]
    pub(super) fn of(key: &[u8]) -> KeyHash {
        KeyHash(XxHash64::oneshot(0, key))
    }

    /// Returns the tag, shifted to its position in a word.
    #[inline]
    fn tag(self) -> u64 {
        self.0 >> BUCKET_BITS_MIN << POINTER_BITS
    }
}

/// Returns the word of a tuple, or `None` if the pointer is too large, as in regions of more than 16 TiB.
fn word_of(hash: KeyHash, tuple: Pointer) -> Option<u64> {
    let unit = tuple.to_u64() / CHUNK_BYTES_MIN;
    (unit <= POINTER_MASK).then_some(hash.tag() | unit)
}

impl LookupCache {
    /// Returns an empty cache that grows up to this number of bytes. With 0 bytes, the cache stays empty.
    pub(super) fn new(bytes_max: u64) -> LookupCache {
        LookupCache { bytes_max, ..LookupCache::default() }
    }

    /// Returns whether the cache may have any tuples.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.bytes_max >= BUCKET_BYTES * BUCKETS_MIN as u64
    }

    #[inline]
    fn bucket(&self, hash: KeyHash) -> &[AtomicU64] {
        let number = hash.0 as usize & self.buckets.len().wrapping_sub(1);
        self.buckets.get(number).map_or(&[], |bucket| &bucket.0)
    }

    /// Tuples that may have the key with this hash.
    #[inline]
    pub(super) fn tuples(&self, hash: KeyHash) -> impl Iterator<Item = Pointer> {
        let words = self.bucket(hash).iter().map(|word| word.load(Relaxed));
        let same = words.filter(move |word| *word & POINTER_MASK != 0 && word & !POINTER_MASK == hash.tag());
        same.map(|word| Pointer::from_u64((word & POINTER_MASK) * CHUNK_BYTES_MIN))
    }

    /// Adds the tuple of a key. If the bucket is full, the tuple replaces another one.
    pub(super) fn note(&self, hash: KeyHash, tuple: Pointer) {
        let Some(new) = word_of(hash, tuple).filter(|_| self.is_on()) else { return };
        let words = self.bucket(hash);
        let free =
            |word: &&AtomicU64| matches!(word.load(Relaxed), old if old & POINTER_MASK == 0 || old == new);
        let displaced = || {
            self.displaced_count.store(self.displaced_count.load(Relaxed).saturating_add(1), Relaxed);
            words.get(tuple.to_u64() as usize / BUCKET_BYTES as usize % WAYS)
        };
        if let Some(word) = words.iter().find(free).or_else(displaced) {
            word.store(new, Relaxed);
        }
    }

    /// Removes the tuple of a key.
    pub(super) fn forget(&self, hash: KeyHash, tuple: Pointer) {
        let Some(old) = word_of(hash, tuple) else { return };
        let same = self.bucket(hash).iter().filter(|word| word.load(Relaxed) == old);
        same.for_each(|word| word.store(0, Relaxed));
    }

    /// Returns whether the cache should double its buckets: a quarter of them displaced a word, and the limit
    /// of bytes allows it.
    #[inline]
    pub(super) fn wants_growth(&self) -> bool {
        let count = self.buckets.len();
        let is_full = self.displaced_count.load(Relaxed) as usize > count / 4;
        is_full && count.max(BUCKETS_MIN / 2) as u64 * 2 * BUCKET_BYTES <= self.bytes_max
    }

    /// Doubles the number of buckets.
    pub(super) fn grow(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        let count = old.len();
        let count_new = (2 * count).max(BUCKETS_MIN);
        let mut new: Box<[Bucket]> = (0..count_new).map(|_| Bucket::default()).collect();
        let bit = POINTER_BITS + count.trailing_zeros().wrapping_sub(BUCKET_BITS_MIN) % TAG_BITS;
        for (number, bucket) in old.into_iter().enumerate() {
            for (way, word) in bucket.0.into_iter().map(AtomicU64::into_inner).enumerate() {
                let to = number + count * (word >> bit & 1) as usize;
                if let Some(place) = new.get_mut(to).and_then(|bucket| bucket.0.get_mut(way)) {
                    *place.get_mut() = word;
                }
            }
        }
        self.buckets = new;
        *self.displaced_count.get_mut() = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> KeyHash {
        KeyHash::of(&number.to_be_bytes())
    }

    fn tuple(number: u64) -> Pointer {
        Pointer::from_u64((number + 1) * 1024)
    }

    fn knows(cache: &LookupCache, number: u64) -> bool {
        cache.tuples(hash(number)).any(|found| found == tuple(number))
    }

    #[test]
    fn growth_keeps_every_tuple() {
        let mut cache = LookupCache::new(1 << 20);
        cache.note(hash(0), tuple(0));
        assert!(!knows(&cache, 0), "there is no bucket yet");
        assert!(cache.wants_growth());
        for number in 0..20_000 {
            if cache.wants_growth() {
                let before: Vec<bool> = (0..number).map(|number| knows(&cache, number)).collect();
                cache.grow();
                let kept = (0..number).all(|number| knows(&cache, number) || !before[number as usize]);
                assert!(kept, "{} buckets", cache.buckets.len());
            }
            cache.note(hash(number), tuple(number));
        }
        let known = (0..20_000).filter(|number| knows(&cache, *number)).count();
        assert!(known > 18_000, "{known} of 20000 in {} buckets", cache.buckets.len());
    }

    #[test]
    fn a_cache_takes_no_more_bytes_than_it_may() {
        let mut cache = LookupCache::new(10_000);
        for number in 0..20_000 {
            cache.note(hash(number), tuple(number));
            if cache.wants_growth() {
                cache.grow();
            }
        }
        assert_eq!(cache.buckets.len(), 128);
        assert!(!LookupCache::new(4095).wants_growth());
    }

    #[test]
    fn a_tuple_that_is_forgotten_is_not_known() {
        let mut cache = LookupCache::new(1 << 20);
        cache.grow();
        (0..100).for_each(|number| cache.note(hash(number), tuple(number)));
        cache.note(hash(7), tuple(7));
        cache.forget(hash(7), tuple(7));
        assert!(!knows(&cache, 7) && knows(&cache, 8), "it was noted twice, and had one word");
    }
}
