//! Intervals: arithmetic, reading and showing (IntervalStyle `postgres`).
//!
//! Invariants
//! 1. Months, days and microseconds are never converted into each other by addition.
//!
//! Does not know: how an interval is kept (engine, `interval.rs`).

use varve_engine::Interval;

use super::read::{parse_seconds, syntax};
use super::show::write_clock;
use super::{
    DAY_US, Zone, check_timestamp, civil_of, days_of, interval_range, is_infinite, month_len, timestamp_range,
};
use crate::error::Result;

/// The opposite span, or 22008.
pub fn negate_interval(iv: Interval) -> Result<Interval> {
    iv.negate().ok_or_else(interval_range)
}

/// The sum, or 22008.
pub fn add_intervals(a: Interval, b: Interval) -> Result<Interval> {
    a.plus(b).ok_or_else(interval_range)
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

/// `timestamptz + interval`: months and days on the calendar of the zone, then the time.
pub fn add_interval_in(ts: i64, iv: Interval, zone: &Zone) -> Result<i64> {
    if is_infinite(ts) {
        return Ok(ts);
    }
    let mut moved = ts;
    if iv.months != 0 || iv.days != 0 {
        moved = zone.to_utc(add_interval(zone.to_local(ts)?, Interval { micros: 0, ..iv })?)?;
    }
    add_interval(moved, Interval { micros: iv.micros, ..Interval::default() })
}

/// `interval * by`, or `interval / by`: what is left of months goes to days, of days to the time (`interval_mul` in PostgreSQL).
pub fn scale_interval(iv: Interval, by: f64, divide: bool) -> Result<Interval> {
    let scaled = |n: f64| if divide { n / by } else { n * by };
    let (months, days) = (scaled(f64::from(iv.months)), scaled(f64::from(iv.days)));
    let (whole_months, whole_days) = whole(months).zip(whole(days)).ok_or_else(interval_range)?;
    let left_days = to_micros((months - f64::from(whole_months)) * 30.0);
    let left_seconds = to_micros((days - f64::from(whole_days) + left_days.fract()) * 86_400.0);
    let more_days = (left_seconds / 86_400.0).trunc();
    let days = whole(f64::from(whole_days) + left_days.trunc() + more_days).ok_or_else(interval_range)?;
    let micros = (scaled(iv.micros as f64) + (left_seconds - more_days * 86_400.0) * 1e6).round_ties_even();
    if micros.is_nan() || micros.abs() >= i64::MAX as f64 {
        return Err(interval_range());
    }
    Ok(Interval { months: whole_months, days, micros: micros as i64 })
}

/// Six digits after the point (PostgreSQL's TSROUND).
fn to_micros(amount: f64) -> f64 {
    (amount * 1e6).round_ties_even() / 1e6
}

/// Appends an interval in IntervalStyle `postgres`: behind a negative part a positive one shows its sign.
pub fn write_interval(iv: Interval, out: &mut Vec<u8>) {
    let start = out.len();
    let mut after_negative = false;
    for (n, name) in [(iv.months / 12, "year"), (iv.months % 12, "mon"), (iv.days, "day")] {
        if n != 0 {
            let gap = if out.len() > start { " " } else { "" };
            let sign = if after_negative && n > 0 { "+" } else { "" };
            let plural = if n == 1 { "" } else { "s" };
            out.extend_from_slice(format!("{gap}{sign}{n} {name}{plural}").as_bytes());
            after_negative = n < 0;
        }
    }
    if iv.micros != 0 || out.len() == start {
        if out.len() > start {
            out.push(b' ');
        }
        match iv.micros < 0 {
            true => out.push(b'-'),
            false if after_negative => out.push(b'+'),
            false => {}
        }
        write_clock(iv.micros.unsigned_abs(), out);
    }
}

/// Reads an interval: `n unit` pairs, a clock time, `years-months`, `ago`, or ISO 8601 (`P1Y2M3DT4H5M6S`).
pub fn parse_interval(original: &str) -> Result<Interval> {
    let lower = crate::text::trimmed(original).to_ascii_lowercase();
    let read = match lower.strip_prefix('p') {
        Some(iso) => parse_iso(iso),
        None => {
            let body = lower.strip_prefix('@').unwrap_or(&lower).trim_start();
            match body.strip_suffix("ago") {
                Some(past) => parse_spans(past.trim_end()).and_then(Interval::negate),
                None => parse_spans(body),
            }
        }
    };
    read.ok_or_else(|| syntax("interval", original))
}

fn parse_spans(body: &str) -> Option<Interval> {
    let spaced = space_units(body);
    let mut words = spaced.split(crate::text::BLANKS).filter(|word| !word.is_empty()).peekable();
    let mut iv = Interval::default();
    // A unit may come once.
    let mut seen = 0;
    let mut note = |fields: u16| (seen & fields == 0).then(|| seen |= fields);
    words.peek()?;
    while let Some(word) = words.next() {
        if word.contains(':') {
            let (sign, clock) = signed(word);
            note(CLOCK)?;
            iv.micros = iv.micros.checked_add(sign.checked_mul(span_clock(clock)?)?)?;
        } else if let Some(months) = years_and_months(word) {
            note(Unit::of("month")?.field())?;
            iv.months = iv.months.checked_add(months)?;
        } else {
            let amount = Amount::of(word)?;
            // `1 2:03` is a day and a time.
            let unit =
                if words.peek().is_some_and(|next| next.contains(':')) { Some("day") } else { words.next() };
            let unit = Unit::of(unit.unwrap_or("second"))?;
            // A second with a fraction has said all that there is below it.
            let below =
                if matches!(unit, Unit::Micros(1_000_000)) && amount.fraction != 0.0 { SECOND } else { 0 };
            note(unit.field() | below)?;
            add_span(&mut iv, amount, unit)?;
        }
    }
    Some(iv)
}

/// A plain number, no exponent, whole part and fraction apart so that no digit of the first is lost.
#[derive(Clone, Copy)]
struct Amount {
    whole: i64,
    fraction: f64,
}

impl Amount {
    fn of(word: &str) -> Option<Amount> {
        let (sign, bare) = signed(word);
        let (whole, fraction) = bare.split_once('.').unwrap_or((bare, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let minus = if sign < 0 { "-" } else { "" };
        Some(Amount {
            whole: if whole.is_empty() { 0 } else { format!("{minus}{whole}").parse().ok()? },
            fraction: format!("{minus}0.{fraction}0").parse().ok()?,
        })
    }
}

/// What an amount counts.
#[derive(Clone, Copy)]
enum Unit {
    /// So many months: a fraction is rounded to whole months, but that of a single month goes to days.
    Months(i64),
    /// So many days.
    Days(i64),
    /// So many microseconds.
    Micros(i64),
}

/// Fields of a clock time.
const CLOCK: u16 = 0b1_1111;
/// A second and what is below it.
const SECOND: u16 = 0b111;

impl Unit {
    fn of(name: &str) -> Option<Unit> {
        let name = name.trim_end_matches(',');
        let name = if name.len() > 2 { name.strip_suffix('s').unwrap_or(name) } else { name };
        Some(match name {
            "millennium" | "millennia" | "mil" => Unit::Months(12_000),
            "century" | "centurie" | "c" | "cent" => Unit::Months(1200),
            "decade" | "dec" => Unit::Months(120),
            "year" | "y" | "yr" => Unit::Months(12),
            "month" | "mon" => Unit::Months(1),
            "week" | "w" => Unit::Days(7),
            "day" | "d" => Unit::Days(1),
            "hour" | "h" | "hr" => Unit::Micros(3_600_000_000),
            "minute" | "m" | "min" => Unit::Micros(60_000_000),
            "second" | "s" | "sec" => Unit::Micros(1_000_000),
            "millisecond" | "ms" | "msec" => Unit::Micros(1000),
            "microsecond" | "us" | "usec" => Unit::Micros(1),
            _ => return None,
        })
    }

    /// One bit for each unit.
    fn field(self) -> u16 {
        1 << match self {
            Unit::Micros(1) => 0,
            Unit::Micros(1000) => 1,
            Unit::Micros(1_000_000) => 2,
            Unit::Micros(60_000_000) => 3,
            Unit::Micros(_) => 4,
            Unit::Days(1) => 5,
            Unit::Days(_) => 6,
            Unit::Months(1) => 7,
            Unit::Months(12) => 8,
            Unit::Months(120) => 9,
            Unit::Months(1200) => 10,
            Unit::Months(_) => 11,
        }
    }
}

fn signed(word: &str) -> (i64, &str) {
    match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    }
}

/// Months of `years-months`.
fn years_and_months(word: &str) -> Option<i32> {
    let (sign, rest) = signed(word);
    let (years, months) = rest.split_once('-')?;
    let (years, months): (i32, i32) = (years.parse().ok()?, months.parse().ok()?);
    let total = years.checked_mul(12)?.checked_add(months)?;
    (0..12).contains(&months).then_some(total * sign as i32)
}

/// What follows the P of ISO 8601: numbers with designators, or `years-months-daysThh:mm:ss`.
fn parse_iso(text: &str) -> Option<Interval> {
    let (date, clock) = match text.split_once('t') {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut iv = Interval::default();
    if date.is_empty() && clock.is_none_or(str::is_empty) {
        return None;
    }
    if date.trim_start_matches('-').contains('-') {
        let mut parts = date.split('-').map(|part| part.parse::<i32>().ok());
        let (years, months, days) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
        if parts.next().is_some() {
            return None;
        }
        iv.months = years.checked_mul(12)?.checked_add(months)?;
        iv.days = days;
    } else {
        add_designated(&mut iv, date, |c| match c {
            'y' => Some("year"),
            'm' => Some("month"),
            'w' => Some("week"),
            'd' => Some("day"),
            _ => None,
        })?;
    }
    match clock {
        Some(clock) if clock.contains(':') => {
            let (sign, clock) = signed(clock);
            iv.micros = sign * span_clock(clock)?;
        }
        Some(clock) => add_designated(&mut iv, clock, |c| match c {
            'h' => Some("hour"),
            'm' => Some("minute"),
            's' => Some("second"),
            _ => None,
        })?,
        None => {}
    }
    Some(iv)
}

fn add_designated(iv: &mut Interval, text: &str, unit: impl Fn(char) -> Option<&'static str>) -> Option<()> {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let designator = rest[at..].chars().next()?;
        add_span(iv, Amount::of(&rest[..at])?, Unit::of(unit(designator)?)?)?;
        rest = &rest[at + 1..];
    }
    rest.is_empty().then_some(())
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
    if !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.')) {
        return None;
    }
    let mut parts = text.split(':');
    let hour: i64 = parts.next()?.parse().ok()?;
    let minute: i64 = parts.next()?.parse().ok()?;
    let second_us = parse_seconds(parts.next().unwrap_or("0"))?;
    if parts.next().is_some() || minute >= 60 || second_us > 60_000_000 {
        return None;
    }
    hour.checked_mul(3600)?.checked_add(minute * 60)?.checked_mul(1_000_000)?.checked_add(second_us)
}

fn add_span(iv: &mut Interval, amount: Amount, unit: Unit) -> Option<()> {
    let Amount { whole: count, fraction } = amount;
    let times = |unit: i64| i32::try_from(count.checked_mul(unit)?).ok();
    match unit {
        Unit::Months(1) => {
            iv.months = iv.months.checked_add(times(1)?)?;
            add_days(iv, fraction * 30.0)
        }
        Unit::Months(months) => {
            iv.months = iv.months.checked_add(times(months)?)?;
            iv.months = iv.months.checked_add(whole((fraction * months as f64).round_ties_even())?)?;
            Some(())
        }
        Unit::Days(days) => {
            iv.days = iv.days.checked_add(times(days)?)?;
            add_days(iv, fraction * days as f64)
        }
        Unit::Micros(micros) => {
            iv.micros = iv.micros.checked_add(count.checked_mul(micros)?)?;
            add_micros(iv, fraction * micros as f64)
        }
    }
}

/// Half a microsecond is dropped, more is rounded up, as in PostgreSQL.
fn add_micros(iv: &mut Interval, micros: f64) -> Option<()> {
    let rest = micros.fract();
    let up = if rest.abs() > 0.5 { rest.signum() } else { 0.0 };
    iv.micros = iv.micros.checked_add((micros.trunc() + up) as i64)?;
    Some(())
}

/// The whole part, if it fits.
fn whole(amount: f64) -> Option<i32> {
    let whole = amount.trunc();
    (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole).then_some(whole as i32)
}

fn add_days(iv: &mut Interval, days: f64) -> Option<()> {
    iv.days = iv.days.checked_add(whole(days)?)?;
    add_micros(iv, days.fract() * DAY_US as f64)
}
