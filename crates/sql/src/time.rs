//! Calendar arithmetic, and the text forms of date, timestamp and interval (DateStyle ISO, MDY).
//!
//! Invariants
//! 1. Dates are days, timestamps microseconds, both since 2000-01-01 00:00 (UTC for timestamptz), as in PostgreSQL.
//! 2. `i32::MAX`/`i64::MAX` are infinity and the minima -infinity; nothing else lies outside PostgreSQL's range.
//! 3. Proleptic Gregorian calendar; year 0 is 1 BC.
//!
//! Does not know: sessions; a time zone is an offset in seconds east, given by the caller.
//! Algorithms: Howard Hinnant, "chrono-compatible low-level date algorithms".

use crate::error::{Result, SqlError, SqlState};

/// Microseconds in a day.
pub const DAY_US: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_SHIFT_DAYS: i64 = 10_957;
/// 4713-11-24 BC, Julian day 0.
const DATE_MIN: i64 = -2_451_545;
/// 5874897-12-31.
const DATE_MAX: i64 = 2_145_031_948;
/// 294276-12-31 23:59:59.999999, plus one microsecond.
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const UNIX_SHIFT_US: i64 = EPOCH_SHIFT_DAYS * DAY_US;

/// Days since 2000-01-01 of a civil date. The date must be valid.
pub fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 - EPOCH_SHIFT_DAYS
}

/// Year, month, day of a number of days since 2000-01-01.
pub fn civil_of(days: i64) -> (i64, u32, u32) {
    let z = days + EPOCH_SHIFT_DAYS + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// Days in a month.
pub fn month_len(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 => 29,
        2 => 28,
        _ => 31,
    }
}

/// A span of months, days and microseconds, kept apart as in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// The opposite span, or 22008.
    pub fn negate(self) -> Result<Interval> {
        let opposite = || {
            Some(Interval {
                months: self.months.checked_neg()?,
                days: self.days.checked_neg()?,
                micros: self.micros.checked_neg()?,
            })
        };
        opposite().ok_or_else(interval_range)
    }

    /// The sum, or 22008.
    pub fn plus(self, other: Interval) -> Result<Interval> {
        let sum = || {
            Some(Interval {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                micros: self.micros.checked_add(other.micros)?,
            })
        };
        sum().ok_or_else(interval_range)
    }
}

/// `timestamp + interval`: months first (clamped to the month's end), then days, then time.
pub fn add_interval(ts: i64, iv: Interval) -> Result<i64> {
    if is_infinite(ts) {
        return Ok(ts);
    }
    let mut days = ts.div_euclid(DAY_US);
    let time = ts.rem_euclid(DAY_US);
    if iv.months != 0 {
        let (y, m, d) = civil_of(days);
        let month0 = y * 12 + i64::from(m) - 1 + i64::from(iv.months);
        let (year, month) = (month0.div_euclid(12), month0.rem_euclid(12) as u32 + 1);
        days = days_of(year, month, d.min(month_len(year, month)));
    }
    let total = (days + i64::from(iv.days)).checked_mul(DAY_US);
    let total = total.and_then(|t| t.checked_add(time)?.checked_add(iv.micros));
    check_timestamp(total.unwrap_or(i64::MAX - 1)).ok_or_else(timestamp_range)
}

/// Whether a timestamp is one of the infinities.
pub fn is_infinite(ts: i64) -> bool {
    ts == i64::MAX || ts == i64::MIN
}

/// 22008 for timestamps.
pub fn timestamp_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")
}

/// 22008 for intervals.
pub fn interval_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range")
}

/// 22008 for dates.
pub fn date_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range")
}

/// The date if PostgreSQL has it.
pub fn check_date(days: i64) -> Option<i32> {
    (DATE_MIN..=DATE_MAX).contains(&days).then_some(days as i32)
}

/// The timestamp if PostgreSQL has it.
pub fn check_timestamp(us: i64) -> Option<i64> {
    (DATE_MIN * DAY_US..TIMESTAMP_END).contains(&us).then_some(us)
}

/// Midnight of a date.
pub fn date_to_timestamp(days: i32) -> Result<i64> {
    match days {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        d => i64::from(d)
            .checked_mul(DAY_US)
            .and_then(check_timestamp)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range for timestamp")),
    }
}

/// The day of a timestamp.
pub fn timestamp_to_date(ts: i64) -> i32 {
    match ts {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        ts => ts.div_euclid(DAY_US) as i32,
    }
}

/// Appends a date, ISO style.
pub fn write_date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        d => {
            if write_day(i64::from(d), out) {
                out.extend_from_slice(b" BC");
            }
        }
    }
}

/// Appends the civil date; true if it is BC (the suffix comes last).
fn write_day(days: i64, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil_of(days);
    let shown = if year > 0 { year } else { 1 - year };
    if shown >= 10_000 {
        out.extend_from_slice(itoa::Buffer::new().format(shown).as_bytes());
    } else {
        two(out, (shown / 100) as u32);
        two(out, (shown % 100) as u32);
    }
    out.push(b'-');
    two(out, month);
    out.push(b'-');
    two(out, day);
    year <= 0
}

fn two(out: &mut Vec<u8>, n: u32) {
    out.push(b'0' + (n / 10) as u8);
    out.push(b'0' + (n % 10) as u8);
}

/// Appends `hh:mm:ss[.ffffff]`, trailing zeros of the fraction cut.
fn write_clock(us: i64, out: &mut Vec<u8>) {
    let seconds = us / 1_000_000;
    two(out, (seconds / 3600) as u32);
    out.push(b':');
    two(out, (seconds / 60 % 60) as u32);
    out.push(b':');
    two(out, (seconds % 60) as u32);
    write_fraction((us % 1_000_000) as u32, out);
}

fn write_fraction(us: u32, out: &mut Vec<u8>) {
    if us == 0 {
        return;
    }
    out.push(b'.');
    let digits = format!("{us:06}");
    out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
}

/// Appends a timestamp. `zone` is `None` for timestamp, the offset to show (seconds east) for timestamptz.
pub fn write_timestamp(ts: i64, zone: Option<i32>, out: &mut Vec<u8>) {
    match ts {
        i64::MAX => return out.extend_from_slice(b"infinity"),
        i64::MIN => return out.extend_from_slice(b"-infinity"),
        _ => {}
    }
    let local = ts + i64::from(zone.unwrap_or(0)) * 1_000_000;
    let bc = write_day(local.div_euclid(DAY_US), out);
    out.push(b' ');
    write_clock(local.rem_euclid(DAY_US), out);
    if let Some(offset) = zone {
        write_offset(offset, out);
    }
    if bc {
        out.extend_from_slice(b" BC");
    }
}

fn write_offset(offset: i32, out: &mut Vec<u8>) {
    out.push(if offset < 0 { b'-' } else { b'+' });
    let abs = offset.unsigned_abs();
    two(out, abs / 3600);
    if !abs.is_multiple_of(3600) {
        out.push(b':');
        two(out, abs / 60 % 60);
    }
}

/// Appends an interval in IntervalStyle `postgres`.
pub fn write_interval(iv: Interval, out: &mut Vec<u8>) {
    let start = out.len();
    let unit = |n: i32, name: &str, out: &mut Vec<u8>| {
        if n != 0 {
            let gap = if out.len() > start { " " } else { "" };
            let plural = if n == 1 { "" } else { "s" };
            out.extend_from_slice(format!("{gap}{n} {name}{plural}").as_bytes());
        }
    };
    unit(iv.months / 12, "year", out);
    unit(iv.months % 12, "mon", out);
    unit(iv.days, "day", out);
    if iv.micros != 0 || out.len() == start {
        if out.len() > start {
            out.push(b' ');
        }
        if iv.micros < 0 {
            out.push(b'-');
        }
        write_clock(iv.micros.abs(), out);
    }
}

/// A date and time as read from text, before it becomes one type or the other.
struct Parsed {
    /// Days since 2000-01-01, or an infinity.
    days: Moment,
    /// Microseconds of the day; may be a whole day for 24:00:00.
    time_us: i64,
    /// Offset given in the text, seconds east.
    zone: Option<i32>,
}

enum Moment {
    Day(i64),
    Infinity,
    MinusInfinity,
}

fn syntax(kind: &str, text: &str) -> SqlError {
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
            SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: \"{}\"", text.trim()))
        }),
    }
}

/// Reads a timestamp without time zone; an offset in the text is ignored, as in PostgreSQL.
pub fn parse_timestamp(text: &str) -> Result<i64> {
    instant(parse(text, "timestamp")?, 0, text)
}

/// Reads a timestamp with time zone; text without an offset is in the zone `default_zone` (seconds east).
pub fn parse_timestamptz(text: &str, default_zone: i32) -> Result<i64> {
    let p = parse(text, "timestamp with time zone")?;
    let zone = p.zone.unwrap_or(default_zone);
    instant(p, zone, text)
}

fn instant(p: Parsed, zone: i32, text: &str) -> Result<i64> {
    let day = match p.days {
        Moment::Infinity => return Ok(i64::MAX),
        Moment::MinusInfinity => return Ok(i64::MIN),
        Moment::Day(d) => d,
    };
    let us = day.checked_mul(DAY_US).and_then(|d| d.checked_add(p.time_us - i64::from(zone) * 1_000_000));
    us.and_then(check_timestamp).ok_or_else(|| {
        SqlError::new(SqlState::DATETIME_OVERFLOW, format!("timestamp out of range: \"{}\"", text.trim()))
    })
}

fn parse(original: &str, kind: &str) -> Result<Parsed> {
    let text = original.trim();
    let fixed = |days| Ok(Parsed { days, time_us: 0, zone: None });
    match text.to_ascii_lowercase().as_str() {
        "infinity" => return fixed(Moment::Infinity),
        "-infinity" => return fixed(Moment::MinusInfinity),
        "epoch" => {
            return Ok(Parsed { days: Moment::Day(-EPOCH_SHIFT_DAYS), time_us: 0, zone: Some(0) });
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
    let rest = rest.trim_start_matches(['T', 't', ' ']);
    let (time_us, zone) =
        parse_clock(rest).ok_or_else(|| syntax(kind, original))?.ok_or_else(|| field_range(original))?;
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

type Clock = (i64, Option<i32>);

/// `[hh:mm[:ss[.frac]]] [zone]`; outer `None`: not a time; inner `None`: out of range.
fn parse_clock(text: &str) -> Option<Option<Clock>> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(text.len());
    let (clock, zone) = text.split_at(end);
    let zone = match zone.trim() {
        "" => None,
        z => Some(parse_zone(z)?),
    };
    if clock.is_empty() {
        return Some(Some((0, zone)));
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
    Some((us <= DAY_US).then_some((us, zone)))
}

/// Seconds with a fraction, rounded to microseconds.
fn parse_seconds(text: &str) -> Option<i64> {
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
    whole_us.checked_add((scaled * 1e6).round() as i64)
}

/// Seconds east of `UTC`, `Z`, `GMT`, `+hh[:mm[:ss]]`, `-hhmm`; `None` for names that need a zone database.
pub fn parse_zone(text: &str) -> Option<i32> {
    let lower = text.to_ascii_lowercase();
    if matches!(
        lower.as_str(),
        "z" | "utc" | "gmt" | "etc/utc" | "etc/gmt" | "zulu" | "uct" | "etc/zulu" | "etc/uct"
    ) {
        return Some(0);
    }
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", d) => (1, d),
        ("-", d) => (-1, d),
        _ => return None,
    };
    let number =
        |s: &str| s.parse::<i32>().ok().filter(|_| s.len() <= 2 && s.bytes().all(|b| b.is_ascii_digit()));
    let mut seconds = 0;
    if digits.contains(':') {
        for (part, unit) in digits.split(':').zip([3600, 60, 1]) {
            seconds += number(part)? * unit;
        }
    } else if digits.len() == 4 {
        let (hours, minutes) = digits.split_at_checked(2)?;
        seconds = number(hours)? * 3600 + number(minutes)? * 60;
    } else {
        seconds = number(digits)? * 3600;
    }
    (seconds < 16 * 3600).then_some(sign * seconds)
}

/// Reads an interval: `n unit` pairs, a clock time, `ago`.
pub fn parse_interval(original: &str) -> Result<Interval> {
    let lower = original.trim().to_ascii_lowercase();
    let (body, ago) = match lower.strip_suffix("ago") {
        Some(b) => (b.trim_end(), true),
        None => (lower.as_str(), false),
    };
    let iv = parse_spans(body).ok_or_else(|| syntax("interval", original))?;
    if ago { iv.negate() } else { Ok(iv) }
}

fn parse_spans(body: &str) -> Option<Interval> {
    let spaced = space_units(body);
    let mut words = spaced.split_whitespace().peekable();
    let mut iv = Interval::default();
    words.peek()?;
    while let Some(word) = words.next() {
        if word.contains(':') {
            let (sign, clock) = match word.strip_prefix('-') {
                Some(c) => (-1, c),
                None => (1, word.strip_prefix('+').unwrap_or(word)),
            };
            iv.micros = iv.micros.checked_add(sign * span_clock(clock)?)?;
            continue;
        }
        let amount: f64 = word.parse().ok()?;
        add_span(&mut iv, amount, words.next().unwrap_or("second"))?;
    }
    Some(iv)
}

/// Puts a space between a number and the unit written against it (`1day`).
fn space_units(body: &str) -> String {
    let mut out = String::with_capacity(body.len() + 4);
    let mut last_digit = false;
    for c in body.chars() {
        if last_digit && c.is_ascii_alphabetic() {
            out.push(' ');
        }
        last_digit = c.is_ascii_digit();
        out.push(c);
    }
    out
}

fn span_clock(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let hour: i64 = parts.next()?.parse().ok()?;
    let minute: i64 = parts.next()?.parse().ok()?;
    let second_us = parse_seconds(parts.next().unwrap_or("0"))?;
    let ok = parts.next().is_none() && hour < 1 << 31 && minute < 60 && second_us <= 60_000_000;
    ok.then(|| (hour * 3600 + minute * 60) * 1_000_000 + second_us)
}

fn add_span(iv: &mut Interval, amount: f64, unit: &str) -> Option<()> {
    let unit = unit.trim_end_matches(',');
    let unit = if unit.len() > 1 { unit.strip_suffix('s').unwrap_or(unit) } else { unit };
    let months = match unit {
        "millennium" | "millennia" | "mil" => 12_000.0,
        "century" | "centurie" | "c" | "cent" => 1200.0,
        "decade" | "dec" => 120.0,
        "year" | "y" | "yr" => 12.0,
        "month" | "mon" => 1.0,
        _ => 0.0,
    };
    if months > 0.0 {
        let total = amount * months;
        iv.months = iv.months.checked_add(whole(total)?)?;
        return add_days(iv, total.fract() * 30.0);
    }
    let us = match unit {
        "week" | "w" => return add_days(iv, amount * 7.0),
        "day" | "d" => return add_days(iv, amount),
        "hour" | "h" | "hr" => 3.6e9,
        "minute" | "m" | "min" => 6e7,
        "second" | "s" | "sec" => 1e6,
        "millisecond" | "ms" | "msec" | "m_s" => 1e3,
        "microsecond" | "us" | "usec" => 1.0,
        _ => return None,
    };
    let micros = (amount * us).round();
    if micros.abs() >= i64::MAX as f64 {
        return None;
    }
    iv.micros = iv.micros.checked_add(micros as i64)?;
    Some(())
}

/// The whole part, if it fits.
pub fn whole(amount: f64) -> Option<i32> {
    (amount.abs() <= f64::from(i32::MAX)).then_some(amount.trunc() as i32)
}

fn add_days(iv: &mut Interval, days: f64) -> Option<()> {
    iv.days = iv.days.checked_add(whole(days)?)?;
    iv.micros = iv.micros.checked_add((days.fract() * DAY_US as f64).round() as i64)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ts: i64) -> String {
        let mut out = Vec::new();
        write_timestamp(ts, None, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn days_and_civil_dates_are_inverse() {
        for days in (-2_451_545..2_451_545).step_by(97) {
            let (y, m, d) = civil_of(days);
            assert_eq!(days_of(y, m, d), days);
        }
        assert_eq!(civil_of(0), (2000, 1, 1));
    }

    #[test]
    fn timestamps_survive_text() {
        for text in
            ["2024-02-29 23:59:59.5", "0044-03-15 00:00:00 BC", "1999-12-31 12:34:56.123456", "infinity"]
        {
            assert_eq!(shown(parse_timestamp(text).unwrap()), text);
        }
        assert_eq!(parse_timestamptz("2000-01-01 02:00:00+02", 0).unwrap(), 0);
        assert_eq!(parse_timestamp("01/02/2003").unwrap(), parse_timestamp("20030102").unwrap());
    }

    #[test]
    fn bad_dates_are_told_apart() {
        assert_eq!(parse_date("2023-02-29").unwrap_err().sqlstate, SqlState::DATETIME_OVERFLOW);
        assert_eq!(parse_date("soon").unwrap_err().sqlstate, SqlState::INVALID_DATETIME);
    }

    #[test]
    fn intervals_move_timestamps_like_postgresql() {
        let ts = parse_timestamp("2024-01-31 10:00:00").unwrap();
        let moved = add_interval(ts, parse_interval("1 month 1 day 02:30").unwrap()).unwrap();
        assert_eq!(shown(moved), "2024-03-01 12:30:00");
        let mut out = Vec::new();
        write_interval(parse_interval("14 months 3 days -1 second").unwrap(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "1 year 2 mons 3 days -00:00:01");
    }
}
