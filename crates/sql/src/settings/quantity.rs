//! Numbers, times and sizes as values of settings: how they are read, kept and shown.
//!
//! This module does not know which settings there are.

use std::ops::RangeInclusive;

use super::invalid;
use crate::error::{Result, SqlError, SqlState};

/// The unit of a number without a unit. All units except `Real` and `RealMillis` allow only integers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Plain,
    Real,
    Bytes,
    Kilobytes,
    /// 8 KiB
    Pages,
    Millis,
    RealMillis,
}

/// The words for units, each with its size in the first unit.
type Words = &'static [(&'static str, f64)];

const BYTES: Words =
    &[("B", 1.0), ("kB", 1024.0), ("MB", 1048576.0), ("GB", 1073741824.0), ("TB", 1099511627776.0)];
const MICROS: Words = &[("us", 1.0), ("ms", 1e3), ("s", 1e6), ("min", 6e7), ("h", 3.6e9), ("d", 8.64e10)];

impl Unit {
    /// Returns the words that may follow a number, and the size of the default unit in the first unit of the
    /// list.
    fn words(self) -> (Words, f64) {
        match self {
            Unit::Plain | Unit::Real => (&[], 1.0),
            Unit::Bytes => (BYTES, 1.0),
            Unit::Kilobytes => (BYTES, 1024.0),
            Unit::Pages => (BYTES, 8192.0),
            Unit::Millis | Unit::RealMillis => (MICROS, 1e3),
        }
    }

    fn is_whole(self) -> bool {
        !matches!(self, Unit::Real | Unit::RealMillis)
    }

    /// Returns the word for this unit.
    fn word(self) -> &'static str {
        match self {
            Unit::Plain | Unit::Real => "",
            Unit::Bytes => " B",
            Unit::Kilobytes => " kB",
            Unit::Pages => " 8kB",
            Unit::Millis | Unit::RealMillis => " ms",
        }
    }
}

/// Reads a number and returns its stored form. Fails with 22023 if it is not a number, or out of range.
pub(super) fn number(name: &str, value: &str, unit: Unit, range: RangeInclusive<f64>) -> Result<String> {
    let trimmed = value.trim();
    let is_of_number = |c: char| matches!(c, '0'..='9' | '.' | '-' | '+');
    let digits = trimmed.find(|c: char| !is_of_number(c)).unwrap_or(trimmed.len());
    // A value with an exponent is a number as a whole.
    let whole = trimmed.parse::<f64>().ok().filter(|n| n.is_finite());
    let (written, word) = if whole.is_some() { (trimmed, "") } else { trimmed.split_at(digits) };
    let amount: f64 = written.parse().map_err(|_| invalid(name, value))?;
    let (words, base) = unit.words();
    let factor = match (word.trim(), words) {
        ("", _) => base,
        (_, []) => return Err(invalid(name, value)),
        (word, words) => match words.iter().find(|(known, _)| *known == word) {
            Some((_, factor)) => *factor,
            None => return Err(invalid(name, value).with_hint(units_hint(words))),
        },
    };
    let amount = amount * factor / base;
    let amount = if unit.is_whole() { amount.round_ties_even() } else { amount };
    if range.contains(&amount) {
        return Ok(amount.to_string());
    }
    if unit.is_whole() && amount.abs() > f64::from(i32::MAX) {
        return Err(invalid(name, value).with_hint("Value exceeds integer range."));
    }
    let (least, greatest, word) = (real(*range.start()), real(*range.end()), unit.word());
    let message = format!(
        "{}{word} is outside the valid range for parameter \"{name}\" ({least} .. {greatest})",
        real(amount)
    );
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

fn units_hint(words: Words) -> String {
    let names: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    format!("Valid units for this parameter are {}, and {last}.", others.join(", "))
}

/// Writes a number like `%g` of C.
fn real(number: f64) -> String {
    if number.abs() < 1e6 || number.fract() == 0.0 && number.abs() < 1e15 {
        return number.to_string();
    }
    let written = format!("{number:.5e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    format!("{}e+{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the stored form of a number. Fails with 22023 if the system does not allow a number that large.
pub(super) fn within(name: &str, number: u32, unit: &str, max: u32) -> Result<String> {
    if number <= max {
        return Ok(number.to_string());
    }
    let message = format!("{number}{unit} is outside the valid range for parameter \"{name}\" (0 .. {max})");
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

pub(super) fn millis(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let amount: f64 = value[..digits].parse().ok()?;
    let unit = match value[digits..].trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let total = (amount * unit).round();
    (total <= f64::from(i32::MAX)).then_some(total as u64)
}

/// Reads a size of memory in kilobytes.
pub(super) fn kilobytes(name: &str, value: &str, least: u64) -> Result<u64> {
    const UNITS: &[(&str, f64)] = &[
        ("", 1.0),
        ("kB", 1.0),
        ("MB", 1024.0),
        ("GB", 1048576.0),
        ("TB", 1073741824.0),
        ("B", 1.0 / 1024.0),
    ];
    let value = value.trim();
    let digits = value.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+')).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: f64 = number.parse().map_err(|_| invalid(name, value))?;
    let Some((_, factor)) = UNITS.iter().find(|(known, _)| *known == unit.trim()) else {
        let hint = "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".";
        return Err(invalid(name, value).with_hint(hint));
    };
    let amount = (number * factor).round_ties_even();
    if amount.abs() > f64::from(i32::MAX) {
        return Err(invalid(name, value).with_hint("Value exceeds integer range."));
    }
    if amount < least as f64 {
        let range = format!("({least} .. {})", i32::MAX);
        let message = format!("{amount} kB is outside the valid range for parameter \"{name}\" {range}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(amount as u64)
}

/// Returns a size of memory as SHOW prints it.
pub(super) fn show_kilobytes(kilobytes: u64) -> String {
    match kilobytes {
        n if n % (1 << 30) == 0 => format!("{}TB", n >> 30),
        n if n % (1 << 20) == 0 => format!("{}GB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{}MB", n >> 10),
        n => format!("{n}kB"),
    }
}

pub(super) fn count(value: &str) -> Option<u32> {
    value.trim().parse().ok().filter(|n| *n <= i32::MAX as u32)
}

/// Returns a time as SHOW prints it.
pub(super) fn show_millis(millis: u64) -> String {
    match millis {
        0 => "0".to_owned(),
        n if n % 86_400_000 == 0 => format!("{}d", n / 86_400_000),
        n if n % 3_600_000 == 0 => format!("{}h", n / 3_600_000),
        n if n % 60_000 == 0 => format!("{}min", n / 60_000),
        n if n % 1000 == 0 => format!("{}s", n / 1000),
        n => format!("{n}ms"),
    }
}
