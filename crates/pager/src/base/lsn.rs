//! Log sequence numbers (LSNs): byte positions in the log.
//!
//! Invariants
//! 1. In one database an LSN is never used twice, and LSNs never decrease, over any number of restarts.
//! 2. LSN 0 names no record. A page with LSN 0 was never changed by a logged change.
//!
//! This module does not know the position of an LSN in the log's files (`log::format::Geometry`).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest LSN that is accepted from stored data. A larger one is damage. The limit is so low that
/// arithmetic with segments cannot overflow.
pub(crate) const LSN_MAX: u64 = 1 << 62;

/// A byte position in the log stream. The LSN of a change is the *end* of its mini-transaction's group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The position before every record, which means that there is no position.
    pub const ZERO: Lsn = Lsn(0);
    /// After every record.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// Returns the LSN at byte `position` of the stream.
    pub const fn new(position: u64) -> Lsn {
        Lsn(position)
    }

    /// Returns the byte position.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Reads the form that `Display` writes.
    pub fn parse(text: &str) -> Option<Lsn> {
        let (high, low) = text.split_once('/')?;
        let (high, low) = (u64::from_str_radix(high, 16).ok()?, u64::from_str_radix(low, 16).ok()?);
        (high < 1 << 30 && low < 1 << 32).then_some(Lsn(high << 32 | low))
    }

    /// Moves on by `bytes`.
    #[must_use]
    pub fn forward(self, bytes: u64) -> Lsn {
        Lsn(self.0.checked_add(bytes).expect("the log stream is shorter than 2^64 bytes"))
    }

    /// Returns the number of bytes from `earlier` to here, or 0 when `earlier` is not earlier.
    pub const fn since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the first multiple of `2^shift` at or after this position.
    #[must_use]
    pub fn align_up(self, shift: u8) -> Lsn {
        let mask = (1_u64 << shift) - 1;
        Lsn(self.forward(mask).0 & !mask)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:08X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// An LSN that many threads read and one at a time advances.
#[derive(Debug, Default)]
pub struct AtomicLsn(AtomicU64);

impl AtomicLsn {
    /// Starts at `lsn`.
    pub const fn new(lsn: Lsn) -> AtomicLsn {
        AtomicLsn(AtomicU64::new(lsn.0))
    }

    /// Reads the LSN with acquire order. So the thread sees everything that happened before the matching
    /// `advance`.
    pub fn load(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Acquire))
    }

    /// Moves forward to `lsn`. A smaller value changes nothing.
    pub fn advance(&self, lsn: Lsn) {
        self.0.fetch_max(lsn.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_up_to_the_next_boundary() {
        assert_eq!(Lsn::new(1).align_up(9), Lsn::new(512));
        assert_eq!(Lsn::new(512).align_up(9), Lsn::new(512));
    }

    #[test]
    fn an_atomic_lsn_never_goes_back() {
        let lsn = AtomicLsn::new(Lsn::new(7));
        lsn.advance(Lsn::new(5));
        assert_eq!(lsn.load(), Lsn::new(7));
    }
}
