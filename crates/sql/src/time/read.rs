//! Reads dates, times and timestamps.
//!
//! Invariants
//! 1. A text that is no date is error 22007. A field outside of the calendar is 22008, and an offset out of
//!    range is 22009. An unknown zone is 22023 if its name has a character such as `/`, otherwise 22007.
//!
//! This module does not know how a text is split into fields (`tokens`) or what the fields mean (`decode`).

use super::decode::{Bad, Decoded, offset};
use super::style::Reading;
use super::{DAY_US, Zone, check_date, check_timestamp, tokens};
use crate::error::{Result, SqlError, SqlState};

pub(super) fn syntax(kind: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_DATETIME, format!("invalid input syntax for type {kind}: \"{text}\""))
}

fn refused(bad: Bad, kind: &str, text: &str) -> SqlError {
    let range = || {
        let message = format!("date/time field value out of range: \"{text}\"");
        SqlError::new(SqlState::DATETIME_OVERFLOW, message)
    };
    match bad {
        Bad::Format => syntax(kind, text),
        Bad::Range => range(),
        Bad::Order => range().with_hint("Perhaps you need a different \"datestyle\" setting."),
        Bad::Offset => {
            let message = format!("time zone displacement out of range: \"{text}\"");
            SqlError::new(SqlState::INVALID_ZONE_DISPLACEMENT, message)
        }
        Bad::Zone(name) => {
            let message = format!("time zone \"{name}\" not recognized");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        }
    }
}

fn moment(text: &str, kind: &str, reading: &Reading<'_>) -> Result<Decoded> {
    let fields = tokens::fields(text).ok_or_else(|| syntax(kind, text))?;
    Decoded::moment(&fields, reading).map_err(|bad| refused(bad, kind, text))
}

/// Reads a time zone for `make_timestamptz`. A number with a sign is an offset to the east. Any other text is
/// an abbreviation or a name.
pub fn parse_zone(text: &str) -> Result<Zone> {
    let refused = |message| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let message = format!("invalid input syntax for type numeric time zone: \"{text}\"");
        let hint = "Numeric time zones must have \"-\" or \"+\" as first character.";
        return Err(refused(message).with_hint(hint));
    }
    match offset(text) {
        // A sign alone means the offset 0.
        _ if matches!(text, "+" | "-") => Ok(Zone::UTC),
        Ok(seconds) => Ok(Zone::Fixed(seconds)),
        Err(Bad::Offset) => Err(refused(format!("numeric time zone \"{text}\" out of range"))),
        Err(_) => {
            Zone::of_expression(text).ok_or_else(|| refused(format!("time zone \"{text}\" not recognized")))
        }
    }
}

/// Reads a date. A time after it is checked and dropped.
pub fn parse_date(text: &str, reading: &Reading<'_>) -> Result<i32> {
    let read = moment(text, "date", reading)?;
    match read.infinite {
        Some(later) => Ok(if later { i32::MAX } else { i32::MIN }),
        None => check_date(read.days()).ok_or_else(|| {
            SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: \"{text}\""))
        }),
    }
}

/// Reads a timestamp without time zone. As in PostgreSQL, a time zone in the text is ignored.
pub fn parse_timestamp(text: &str, reading: &Reading<'_>) -> Result<i64> {
    let read = moment(text, "timestamp", reading)?;
    if let Some(later) = read.infinite {
        return Ok(infinity(later));
    }
    let us = read.days().checked_mul(DAY_US).and_then(|d| d.checked_add(read.time_us()));
    us.and_then(check_timestamp).ok_or_else(|| out_of_range(text))
}

/// Reads a timestamp with time zone. Without a time zone in the text, the session's time zone counts.
pub fn parse_timestamptz(text: &str, reading: &Reading<'_>) -> Result<i64> {
    let read = moment(text, "timestamp with time zone", reading)?;
    if let Some(later) = read.infinite {
        return Ok(infinity(later));
    }
    // Near the ends of the range, the local time may be out of the range although the moment is not.
    let local = i128::from(read.days()) * i128::from(DAY_US) + i128::from(read.time_us());
    let near = local.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    let offset = read.zone.as_ref().unwrap_or(&reading.forms.zone).offset_at_local(near);
    let utc = i64::try_from(local - i128::from(offset) * 1_000_000).ok();
    utc.and_then(check_timestamp).ok_or_else(|| out_of_range(text))
}

/// Reads a time of day. As in PostgreSQL, a date before it and a time zone after it are checked and dropped.
pub fn parse_time(text: &str, reading: &Reading<'_>) -> Result<i64> {
    let fields = tokens::fields(text).ok_or_else(|| syntax("time", text))?;
    let read = Decoded::clock(&fields, reading).map_err(|bad| refused(bad, "time", text))?;
    Ok(read.time_us())
}

fn infinity(later: bool) -> i64 {
    if later { i64::MAX } else { i64::MIN }
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, format!("timestamp out of range: \"{text}\""))
}
