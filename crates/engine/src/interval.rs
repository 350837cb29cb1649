//! The interval type, stored as in PostgreSQL: months, days and microseconds.
//!
//! Invariants
//! 1. Months, days and microseconds are converted into each other only for comparisons. There a month is 30
//!    days and a day 24 hours, so different intervals may be equal.
//!
//! This module does not know text forms or calendars.

use std::cmp::Ordering;

/// A span of months, days and microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

impl Interval {
    /// Returns the stored form: microseconds (i64), days (i32), months (i32), little endian.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&self.micros.to_le_bytes());
        raw[8..12].copy_from_slice(&self.days.to_le_bytes());
        raw[12..].copy_from_slice(&self.months.to_le_bytes());
        raw
    }

    /// Returns the reverse of `to_bytes`.
    pub fn from_bytes(raw: [u8; 16]) -> Self {
        let word = |at: usize| i32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let micros = i64::from(word(0) as u32) | i64::from(word(4)) << 32;
        Self { micros, days: word(8), months: word(12) }
    }

    /// Returns the length in microseconds by which spans are ordered.
    pub fn length_us(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * i128::from(DAY_US) + i128::from(self.micros)
    }

    /// Returns the order of spans, by length.
    pub fn order(self, other: Self) -> Ordering {
        self.length_us().cmp(&other.length_us())
    }

    /// Returns the opposite span, or `None` if a part has none.
    pub fn negate(self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// Returns the sum, or `None` if a part overflows.
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            micros: self.micros.checked_add(other.micros)?,
        })
    }
}
