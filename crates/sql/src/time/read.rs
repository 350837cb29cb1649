//! Reading dates and timestamps.
//!
//! Invariants
//! 1. Text that is no date is 22007, a field that no calendar has is 22008. A zone that nobody knows is 22023 if it is written
//!    with a `/`, 22007 otherwise; an offset out of range is 22009.
//!
//! Does not know: `now`, `today` and the like (`eval::cast`).

use super::{DAY_US, EPOCH_SHIFT_DAYS, Zone, check_date, check_timestamp, days_of, month_len};
use crate::error::{Result, SqlError, SqlState};

/// A date and time as read from text, before it becomes one type or the other.
struct Parsed {
    /// Days since 2000-01-01, or an infinity.
    days: Moment,
    /// Microseconds of the day; may be a whole day for 24:00:00.
    time_us: i64,
    /// Zone given in the text.
    zone: Option<Zone>,
}

enum Moment {
    Day(i64),
    Infinity,
    MinusInfinity,
}

pub(super) fn syntax(kind: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_DATETIME, format!("invalid input syntax for type {kind}: \"{text}\""))
}

fn field_range(text: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

/// Reads a date; a time after it is checked and dropped.
pub fn parse_date(text: &str) -> Result<i32> {
    let p = parse(text, "date")?;
    match p.days {
        Moment::Infinity => Ok(i32::MAX),
        Moment::MinusInfinity => Ok(i32::MIN),
        Moment::Day(d) => check_date(d).ok_or_else(|| {
            SqlError::new(
                SqlState::DATETIME_OVERFLOW,
                format!("date out of range: \"{}\"", crate::text::trimmed(text)),
            )
        }),
    }
}

/// Reads a timestamp without time zone; an offset in the text is ignored, as in PostgreSQL.
pub fn parse_timestamp(text: &str) -> Result<i64> {
    local(&parse(text, "timestamp")?, text)
}

/// Reads a timestamp with time zone; text that names no zone is in `default_zone`.
pub fn parse_timestamptz(text: &str, default_zone: &Zone) -> Result<i64> {
    let p = parse(text, "timestamp with time zone")?;
    let Moment::Day(day) = p.days else { return local(&p, text) };
    // The local time of a moment at the end of time may be beyond it.
    let local = i128::from(day) * i128::from(DAY_US) + i128::from(p.time_us);
    let near = local.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
    let offset = p.zone.as_ref().unwrap_or(default_zone).offset_at_local(near);
    let utc = i64::try_from(local - i128::from(offset) * 1_000_000).ok();
    utc.and_then(check_timestamp).ok_or_else(|| out_of_range(text))
}

/// Reads a time of day; a date before it and a zone behind it are checked and dropped, as in PostgreSQL.
pub fn parse_time(original: &str) -> Result<i64> {
    let lower = crate::text::trimmed(original).to_ascii_lowercase();
    if lower == "allballs" {
        return Ok(0);
    }
    let (text, afternoon) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
        (Some(rest), _) => (rest.trim_end(), Some(false)),
        (_, Some(rest)) => (rest.trim_end(), Some(true)),
        _ => (lower.as_str(), None),
    };
    if text
        .split(['t', ' '])
        .next()
        .is_some_and(|date| date.contains('-') && parse_day(date, false).is_some())
    {
        return parse(original, "time").map(|p| p.time_us);
    }
    let (clock, zone) = split_zone(text);
    let spelled = match clock.len() {
        4 | 6 if !clock.contains([':', '.']) => &colons(clock),
        _ => clock,
    };
    if !zone.is_empty() {
        parse_zone(zone, "time", original)?;
    }
    if !spelled.contains(':') {
        return Err(syntax("time", original));
    }
    let us = parse_clock(spelled).ok_or_else(|| syntax("time", original))?;
    us.and_then(|us| half_day(us, afternoon)).ok_or_else(|| field_range(original))
}

/// `hhmm` and `hhmmss` as a clock shows them.
fn colons(digits: &str) -> String {
    let pairs: Vec<&str> = (0..digits.len()).step_by(2).filter_map(|at| digits.get(at..at + 2)).collect();
    pairs.join(":")
}

/// AM and PM count from 12 to 12.
fn half_day(us: i64, afternoon: Option<bool>) -> Option<i64> {
    const HOUR_US: i64 = 3_600_000_000;
    let Some(afternoon) = afternoon else { return Some(us) };
    let within = us.checked_sub(12 * HOUR_US).filter(|us| (0..HOUR_US).contains(us)).unwrap_or(us);
    (within < 12 * HOUR_US).then_some(if afternoon { within + 12 * HOUR_US } else { within })
}

fn local(p: &Parsed, text: &str) -> Result<i64> {
    let day = match p.days {
        Moment::Infinity => return Ok(i64::MAX),
        Moment::MinusInfinity => return Ok(i64::MIN),
        Moment::Day(d) => d,
    };
    let us = day.checked_mul(DAY_US).and_then(|d| d.checked_add(p.time_us));
    us.and_then(check_timestamp).ok_or_else(|| out_of_range(text))
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DATETIME_OVERFLOW,
        format!("timestamp out of range: \"{}\"", crate::text::trimmed(text)),
    )
}

fn parse(original: &str, kind: &str) -> Result<Parsed> {
    let text = crate::text::trimmed(original);
    let fixed = |days| Ok(Parsed { days, time_us: 0, zone: None });
    match text.to_ascii_lowercase().as_str() {
        "infinity" => return fixed(Moment::Infinity),
        "-infinity" => return fixed(Moment::MinusInfinity),
        "epoch" => {
            return Ok(Parsed { days: Moment::Day(-EPOCH_SHIFT_DAYS), time_us: 0, zone: Some(Zone::UTC) });
        }
        _ => {}
    }
    let (text, bc) = match text.strip_suffix("BC").or_else(|| text.strip_suffix("bc")) {
        Some(rest) => (rest.trim_end(), true),
        None => (text.strip_suffix("AD").map_or(text, str::trim_end), false),
    };
    let split = text.find(['T', 't', ' ']).unwrap_or(text.len());
    let (date, rest) = text.split_at(split);
    let days =
        parse_day(date, bc).ok_or_else(|| syntax(kind, original))?.ok_or_else(|| field_range(original))?;
    let (clock, zone) = split_zone(rest.trim_start_matches(['T', 't', ' ']));
    let time_us =
        parse_clock(clock).ok_or_else(|| syntax(kind, original))?.ok_or_else(|| field_range(original))?;
    let zone = if zone.is_empty() { None } else { Some(parse_zone(zone, kind, original)?) };
    Ok(Parsed { days: Moment::Day(days), time_us, zone })
}

/// Outer `None`: not a date at all; inner `None`: a field is out of range.
fn parse_day(date: &str, bc: bool) -> Option<Option<i64>> {
    let mut fields = [0i64; 3];
    let mut lens = [0usize; 3];
    if date.len() >= 8 && date.bytes().all(|b| b.is_ascii_digit()) {
        let (year, tail) = date.split_at(date.len() - 4);
        fields = [year.parse().ok()?, tail[..2].parse().ok()?, tail[2..].parse().ok()?];
        lens[0] = year.len();
    } else {
        let mut parts = date.split(['-', '/']);
        for (field, len) in fields.iter_mut().zip(&mut lens) {
            let part = parts.next()?;
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            (*field, *len) = (part.parse().ok()?, part.len());
        }
        if parts.next().is_some() {
            return None;
        }
    }
    let [a, b, c] = fields;
    let (year, month, day) = if lens[0] > 2 { (a, b, c) } else { (century(c, lens[2]), a, b) };
    Some(valid_day(if bc { 1 - year } else { year }, month, day, year))
}

fn century(year: i64, len: usize) -> i64 {
    match (len, year) {
        (..=2, ..70) => year + 2000,
        (..=2, _) => year + 1900,
        _ => year,
    }
}

fn valid_day(year: i64, month: i64, day: i64, written_year: i64) -> Option<i64> {
    let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    let ok = (1..=6_000_000).contains(&written_year)
        && (1..=12).contains(&month)
        && day >= 1
        && day <= month_len(year, month);
    ok.then(|| days_of(year, month, day))
}

/// The time of day and the zone behind it.
fn split_zone(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(text.len());
    (&text[..end], crate::text::trimmed(&text[end..]))
}

/// What looks like a name but is none is 22023, as in PostgreSQL; other rubbish is 22007.
fn parse_zone(zone: &str, kind: &str, original: &str) -> Result<Zone> {
    match Zone::of_input(zone) {
        Some(Some(zone)) => Ok(zone),
        Some(None) => {
            let message = format!("time zone displacement out of range: \"{original}\"");
            Err(SqlError::new(SqlState::INVALID_ZONE_DISPLACEMENT, message))
        }
        None if zone.contains('/') && !zone.contains(' ') => {
            let message = format!("time zone \"{zone}\" not recognized");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
        None => Err(syntax(kind, original)),
    }
}

/// Microseconds of `[hh:mm[:ss[.frac]]]`; outer `None`: not a time; inner `None`: out of range.
fn parse_clock(clock: &str) -> Option<Option<i64>> {
    if clock.is_empty() {
        return Some(Some(0));
    }
    let mut parts = clock.split(':');
    let hour: i64 = parts.next()?.parse().ok()?;
    let minute: i64 = parts.next()?.parse().ok()?;
    let second_us = parse_seconds(parts.next().unwrap_or("0"))?;
    if parts.next().is_some() {
        return None;
    }
    if hour > 24 || minute >= 60 || second_us > 60_000_000 {
        return Some(None);
    }
    let us = (hour * 3600 + minute * 60) * 1_000_000 + second_us;
    Some((us <= DAY_US).then_some(us))
}

/// Seconds with a fraction, rounded to microseconds.
pub(super) fn parse_seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().ok()?;
    let whole_us = whole.checked_mul(1_000_000)?;
    if fraction.is_empty() {
        return Some(whole_us);
    }
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let scaled: f64 = format!("0.{fraction}").parse().ok()?;
    whole_us.checked_add((scaled * 1e6).round_ties_even() as i64)
}
