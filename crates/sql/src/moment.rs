//! The moment that a query reads with AS OF: a time, or an LSN. The setting `as_of` has the same values.
//!
//! This module does not know which moments can still be read (`varve_engine::PastMoment`).

use varve_engine::{DAY_US, Datum, PastMoment};

use crate::ast::AsOf;
use crate::error::{Result, SqlError, SqlState};
use crate::time::{self, Reading, UNIX_SHIFT_US};

/// The setting that makes a session read an earlier moment.
pub const SETTING: &str = "as_of";
/// The beginning of a value of the setting that is an LSN.
const LSN_WORD: &str = "lsn ";

/// Reads a value of the setting. Returns `None` if it is empty, which means the present.
pub fn of_setting(value: &str) -> Option<AsOf> {
    let value = value.trim();
    match value.get(..LSN_WORD.len()) {
        Some(word) if word.eq_ignore_ascii_case(LSN_WORD) => {
            let text = value[LSN_WORD.len()..].trim().trim_matches('\'').to_owned();
            Some(AsOf { is_lsn: true, text })
        }
        _ if value.is_empty() => None,
        _ => Some(AsOf { is_lsn: false, text: value.to_owned() }),
    }
}

/// Returns the moment that AS OF means now. A time is read as a `timestamptz`. A time that begins with `-` is
/// an interval before the present.
pub fn moment(as_of: &AsOf, reading: &Reading<'_>) -> Result<PastMoment> {
    if as_of.is_lsn {
        return lsn(&as_of.text).map(PastMoment::Lsn);
    }
    let us = match as_of.text.trim_start().starts_with('-') && !as_of.text.contains("infinity") {
        true => time::clock_us().saturating_add(interval_us(&as_of.text, reading)?),
        false => time::parse_timestamptz(&as_of.text, reading)?,
    };
    Ok(PastMoment::TimeUs(us.saturating_add(UNIX_SHIFT_US)))
}

/// Returns the moment that the value of an expression means: a `timestamptz`, or the text of an LSN.
pub fn of_value(value: Datum<'_>) -> Result<PastMoment> {
    match value {
        Datum::TimestampTz(us) => Ok(PastMoment::TimeUs(us.saturating_add(UNIX_SHIFT_US))),
        Datum::Text(text) => lsn(text).map(PastMoment::Lsn),
        _ => Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, "the moment of AS OF must not be null")),
    }
}

fn interval_us(text: &str, reading: &Reading<'_>) -> Result<i64> {
    let interval = time::parse_interval(text, reading.forms.intervals)?;
    if interval.months != 0 {
        let message = format!("AS OF takes an interval of days and shorter units, not \"{text}\"");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(i64::from(interval.days).saturating_mul(DAY_US).saturating_add(interval.micros))
}

/// Reads an LSN as PostgreSQL writes it: two hexadecimal numbers with a slash between.
fn lsn(text: &str) -> Result<u64> {
    let part = |part: &str| match part.len() {
        1..=8 => u32::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+')),
        _ => None,
    };
    let read = text.split_once('/').and_then(|(high, low)| Some((part(high)?, part(low)?)));
    match read {
        Some((high, low)) => Ok(u64::from(high) << 32 | u64::from(low)),
        None => {
            let message = format!("invalid input syntax for type pg_lsn: \"{text}\"");
            Err(SqlError::new(SqlState::INVALID_TEXT, message))
        }
    }
}

/// Returns an LSN as PostgreSQL writes it.
pub fn shown_lsn(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsn_has_two_parts() {
        for number in [0, 1, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX] {
            assert_eq!(lsn(&shown_lsn(number)).unwrap(), number);
        }
        for text in ["", "/", "1", "1/", "/1", "1/+2", "g/0", "123456789/0", "1/2/3", "-1/0", "ä/ö"] {
            assert!(lsn(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_setting_has_a_time_or_an_lsn() {
        assert_eq!(of_setting("  "), None);
        let as_of = |is_lsn, text: &str| Some(AsOf { is_lsn, text: text.to_owned() });
        assert_eq!(of_setting("LSN 0/10"), as_of(true, "0/10"));
        assert_eq!(of_setting("lsn '0/10'"), as_of(true, "0/10"));
        assert_eq!(of_setting("-10 s"), as_of(false, "-10 s"));
        assert_eq!(of_setting("ähm"), as_of(false, "ähm"));
    }
}
