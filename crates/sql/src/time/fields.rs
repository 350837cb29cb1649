//! The type modifier of an interval. It says which fields the interval keeps, and how many digits of a
//! second.
//!
//! The catalog stores the modifier in one byte: the number of digits (7 for all digits), plus eight times the
//! index in `FIELDS`.
//!
//! The behaviour is that of `AdjustIntervalForTypmod` in PostgreSQL's `timestamp.c`.

use varve_engine::Interval;

use super::{HOUR_US, MINUTE_US, interval_range, round_us};
use crate::error::Result;

const MONTH: i32 = 1 << 1;
const YEAR: i32 = 1 << 2;
const DAY: i32 = 1 << 3;
const HOUR: i32 = 1 << 10;
const MINUTE: i32 = 1 << 11;
const SECOND: i32 = 1 << 12;
const ALL: i32 = 0x7FFF;

/// Sets of fields, as their bits in a modifier and as words.
const FIELDS: [(i32, &str); 14] = [
    (ALL, ""),
    (YEAR, "year"),
    (MONTH, "month"),
    (DAY, "day"),
    (HOUR, "hour"),
    (MINUTE, "minute"),
    (SECOND, "second"),
    (YEAR | MONTH, "year to month"),
    (DAY | HOUR, "day to hour"),
    (DAY | HOUR | MINUTE, "day to minute"),
    (DAY | HOUR | MINUTE | SECOND, "day to second"),
    (HOUR | MINUTE, "hour to minute"),
    (HOUR | MINUTE | SECOND, "hour to second"),
    (MINUTE | SECOND, "minute to second"),
];
const DIGITS_MAX: u8 = 6;
const ALL_DIGITS: u8 = 7;
/// The bits of a modifier that mean all digits of the second.
const NO_DIGITS: i32 = 0xFFFF;

/// The fields and digits that an interval type keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalFields {
    place: u8,
    digits: Option<u8>,
}

/// The smallest field of a type. A number without a unit counts this field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastField {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

impl IntervalFields {
    /// All fields and all digits.
    pub const ALL: IntervalFields = IntervalFields { place: 0, digits: None };

    /// Reads the modifiers of a written type: the bits of the fields, then the digits.
    pub fn of_written(modifiers: &[i64]) -> Option<IntervalFields> {
        let (mask, digits) = match *modifiers {
            [mask] => (mask, None),
            [mask, digits] => (mask, Some(digits.clamp(0, i64::from(DIGITS_MAX)) as u8)),
            _ => return None,
        };
        Some(IntervalFields { place: place_of(i32::try_from(mask).ok()?)?, digits })
    }

    /// Reads the byte that the catalog stores.
    pub fn of_code(code: u8) -> IntervalFields {
        let digits = code % 8;
        let place = if usize::from(code / 8) < FIELDS.len() { code / 8 } else { 0 };
        IntervalFields { place, digits: (digits <= DIGITS_MAX).then_some(digits) }
    }

    /// Returns the byte that the catalog stores.
    pub fn code(self) -> u8 {
        self.place * 8 + self.digits.unwrap_or(ALL_DIGITS)
    }

    /// Reads PostgreSQL's modifier. Returns `None` if there is no modifier.
    pub fn of_typmod(typmod: i32) -> Option<IntervalFields> {
        if typmod < 0 {
            return None;
        }
        let digits = typmod & NO_DIGITS;
        let digits = (digits != NO_DIGITS).then_some(digits.min(i32::from(DIGITS_MAX)) as u8);
        Some(IntervalFields { place: place_of(typmod >> 16)?, digits })
    }

    /// Returns PostgreSQL's modifier for this type.
    pub fn typmod(self) -> i32 {
        FIELDS[usize::from(self.place)].0 << 16 | self.digits.map_or(NO_DIGITS, i32::from)
    }

    /// Returns whether the type drops some fields.
    pub fn is_partial(self) -> bool {
        self.place != 0
    }

    /// Returns the number of digits of a second, if the type has one.
    pub fn digits(self) -> Option<u8> {
        self.digits
    }

    /// Returns the text of the modifier, such as `year to month`, `second(2)` or `(3)`.
    pub fn name(self) -> String {
        let digits = self.digits.map_or(String::new(), |digits| format!("({digits})"));
        format!("{}{digits}", FIELDS[usize::from(self.place)].1)
    }

    /// Returns the smallest field.
    pub(super) fn last(self) -> LastField {
        let mask = FIELDS[usize::from(self.place)].0;
        let smallest = [
            (SECOND, LastField::Second),
            (MINUTE, LastField::Minute),
            (HOUR, LastField::Hour),
            (DAY, LastField::Day),
            (MONTH, LastField::Month),
        ];
        smallest.into_iter().find(|(bit, _)| mask & bit != 0).map_or(LastField::Year, |(_, last)| last)
    }

    /// Returns whether the fields are MINUTE TO SECOND, so that `2:03` means minutes and seconds.
    pub(super) fn is_minute_to_second(self) -> bool {
        FIELDS[usize::from(self.place)].0 == MINUTE | SECOND
    }

    /// Returns the interval without units below the smallest field, rounded to the digits. Units above the
    /// largest field stay.
    pub fn fit(self, iv: Interval) -> Result<Interval> {
        let below = |unit: i64| Interval { micros: iv.micros / unit * unit, ..iv };
        Ok(match self.last() {
            LastField::Year => Interval { months: iv.months / 12 * 12, ..Interval::default() },
            LastField::Month => Interval { months: iv.months, ..Interval::default() },
            LastField::Day => Interval { micros: 0, ..iv },
            LastField::Hour => below(HOUR_US),
            LastField::Minute => below(MINUTE_US),
            LastField::Second => match self.digits {
                Some(digits) => {
                    Interval { micros: round_us(iv.micros, digits).ok_or_else(interval_range)?, ..iv }
                }
                None => iv,
            },
        })
    }
}

fn place_of(mask: i32) -> Option<u8> {
    FIELDS.iter().position(|(known, _)| *known == mask).map(|place| place as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_a_modifier_say_the_same() {
        for (place, (mask, _)) in FIELDS.iter().enumerate() {
            for digits in [None, Some(0), Some(6)] {
                let fields = IntervalFields { place: place as u8, digits };
                assert_eq!(IntervalFields::of_code(fields.code()), fields);
                assert_eq!(IntervalFields::of_typmod(fields.typmod()), Some(fields));
                let written = [Some(i64::from(*mask)), digits.map(i64::from)];
                let written: Vec<i64> = written.into_iter().flatten().collect();
                assert_eq!(IntervalFields::of_written(&written), Some(fields));
            }
        }
        // The form in catalogs of versions without interval fields.
        assert_eq!(IntervalFields::of_code(3).name(), "(3)");
        assert_eq!(IntervalFields::of_typmod(0x7FFF_0003).map(IntervalFields::code), Some(3));
    }
}
