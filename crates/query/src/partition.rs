//! Divides a range of keys into parts of about equal size. The boundaries are computed from the bytes of the
//! first and the last key.
//!
//! Invariants
//! 1. The boundaries between parts are in strictly ascending order. Each one is above the first key, and not
//!    above the last key. So the parts are disjoint, and together they are the whole range.
//!
//! This module does not know the number of rows between two keys. The parts have equally many rows only if
//! the keys are evenly spread.

use std::ops::Bound;

use varve_sql::general::KeyBytes;

/// The number of bytes after the common prefix that are interpolated.
const DIGITS: usize = 8;

/// Divides a range into up to `parts` parts. `first` and `last` are the first and the last key of the range.
pub fn parts(range: &KeyBytes, first: &[u8], last: &[u8], parts: usize) -> Vec<KeyBytes> {
    let mut lower = range.lower.clone();
    let mut out = Vec::with_capacity(parts);
    for cut in cuts(first, last, parts) {
        let upper = Bound::Excluded(cut.clone());
        out.push(KeyBytes { lower: std::mem::replace(&mut lower, Bound::Included(cut)), upper });
    }
    out.push(KeyBytes { lower, upper: range.upper.clone() });
    out
}

fn cuts(first: &[u8], last: &[u8], parts: usize) -> Vec<Vec<u8>> {
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let (low, high) = (digits(&first[common..]), digits(&last[common..]));
    let mut out: Vec<Vec<u8>> = Vec::new();
    for n in 1..parts as u128 {
        let value = u128::from(low) + u128::from(high.saturating_sub(low)) * n / parts as u128;
        let mut cut = first[..common].to_vec();
        cut.extend_from_slice(&(value as u64).to_be_bytes());
        let above = out.last().map_or(first, Vec::as_slice);
        if cut.as_slice() > above && cut.as_slice() <= last {
            out.push(cut);
        }
    }
    out
}

/// Returns the first `DIGITS` bytes as a number. Missing bytes count as zeros.
fn digits(bytes: &[u8]) -> u64 {
    let mut out = [0; DIGITS];
    let len = bytes.len().min(DIGITS);
    out[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::cuts;

    fn key(n: i64) -> Vec<u8> {
        let mut key = vec![1];
        key.extend_from_slice(&(n as u64 ^ (1 << 63)).to_be_bytes());
        key
    }

    #[test]
    fn even_keys_are_cut_evenly() {
        let cuts = cuts(&key(0), &key(1_000), 4);
        let below = |cut: &Vec<u8>| (0..1_000).filter(|n| key(*n) < *cut).count();
        let sizes: Vec<usize> = cuts.iter().map(below).collect();
        assert_eq!(sizes, [251, 501, 751]);
    }

    #[test]
    fn what_cannot_be_cut_stays_whole() {
        assert!(cuts(&key(7), &key(7), 4).is_empty());
        assert!(cuts(b"a", b"a", 4).is_empty());
        assert!(cuts(&key(-1), &key(1), 64).windows(2).all(|w| w[0] < w[1]));
    }
}
