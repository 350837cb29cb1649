//! Intervals: arithmetic, reading and showing.
//!
//! Invariants
//! 1. An addition never converts months, days and microseconds into each other.
//!
//! This module does not know how an interval is stored (engine, `interval.rs`).

use varve_engine::Interval;

use super::show::write_clock;
use super::style::IntervalStyle;
use super::{
    DAY_US, Zone, check_timestamp, civil_of, days_of, interval_range, is_infinite, month_len, timestamp_range,
};
use crate::error::Result;

/// Returns the negated interval. Fails with 22008 if it is out of range.
pub fn negate_interval(iv: Interval) -> Result<Interval> {
    iv.negate().ok_or_else(interval_range)
}

/// Returns the sum of two intervals. Fails with 22008 if it is out of range.
pub fn add_intervals(a: Interval, b: Interval) -> Result<Interval> {
    a.plus(b).ok_or_else(interval_range)
}

/// Computes `timestamp + interval`. Months are added first (the day is limited to the month's end), then
/// days, then the time.
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

/// Computes `timestamptz + interval`. Months and days are added in the local time of the zone, then the time
/// is added.
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

/// Computes `interval * by` or `interval / by`. The fraction of a month becomes days, and the fraction of a
/// day becomes time (`interval_mul` in PostgreSQL).
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

/// Rounds to six digits after the point (PostgreSQL's TSROUND).
fn to_micros(amount: f64) -> f64 {
    (amount * 1e6).round_ties_even() / 1e6
}

/// Appends an interval.
pub fn write_interval(iv: Interval, style: IntervalStyle, out: &mut Vec<u8>) {
    match style {
        IntervalStyle::Postgres => write_postgres(iv, out),
        IntervalStyle::PostgresVerbose => out.extend_from_slice(verbose(iv).as_bytes()),
        IntervalStyle::SqlStandard => out.extend_from_slice(sql_standard(iv).as_bytes()),
        IntervalStyle::Iso8601 => out.extend_from_slice(iso_8601(iv).as_bytes()),
    }
}

/// Returns the years, months, days, hours, minutes and microseconds of an interval, each with its sign.
fn parts(iv: Interval) -> [i64; 6] {
    let (months, us) = (i64::from(iv.months), iv.micros);
    let hour_us = 3_600_000_000;
    [months / 12, months % 12, i64::from(iv.days), us / hour_us, us % hour_us / 60_000_000, us % 60_000_000]
}

/// Writes microseconds as seconds without a sign: `6` or `6.5`, or with `filled` as `06.5`.
fn seconds(us: i64, filled: bool) -> String {
    let us = us.unsigned_abs();
    let (whole, fraction) = (us / 1_000_000, us % 1_000_000);
    let whole = if filled { format!("{whole:02}") } else { whole.to_string() };
    if fraction == 0 { whole } else { format!("{whole}.{fraction:06}").trim_end_matches('0').to_owned() }
}

/// Writes an interval like `@ 1 year 2 mons -3 days ago`. If the first part is negative, `ago` is added and
/// all signs are inverted.
fn verbose(iv: Interval) -> String {
    let parts = parts(iv);
    let Some(first) = parts.iter().find(|part| **part != 0) else { return "@ 0".to_owned() };
    let before = *first < 0;
    let mut out = "@".to_owned();
    for (part, name) in parts.into_iter().zip(["year", "mon", "day", "hour", "min", "sec"]) {
        if part == 0 {
            continue;
        }
        let sign = if (part < 0) != before { "-" } else { "" };
        let (amount, is_one) = match name {
            "sec" => (seconds(part, false), part.abs() == 1_000_000),
            // The singular is used only without a shown sign, so it is `-1 days`.
            _ => (part.unsigned_abs().to_string(), part.abs() == 1 && sign.is_empty()),
        };
        out.push_str(&format!(" {sign}{amount} {name}{}", if is_one { "" } else { "s" }));
    }
    if before {
        out.push_str(" ago");
    }
    out
}

/// Writes years and months, or days and a time, with one sign. An interval with both, or with different
/// signs, is written with a sign for each part.
fn sql_standard(iv: Interval) -> String {
    let [years, months, days, hours, minutes, us] = parts(iv).map(i64::unsigned_abs);
    let clock = format!("{hours}:{minutes:02}:{}", seconds(us as i64, true));
    let (negative, positive) =
        (iv.months < 0 || iv.days < 0 || iv.micros < 0, iv.months > 0 || iv.days > 0 || iv.micros > 0);
    if !negative && !positive {
        return "0".to_owned();
    }
    if (negative && positive) || (iv.months != 0 && (iv.days != 0 || iv.micros != 0)) {
        let sign = |negative: bool| if negative { '-' } else { '+' };
        let (m, d, t) = (sign(iv.months < 0), sign(iv.days < 0), sign(iv.micros < 0));
        return format!("{m}{years}-{months} {d}{days} {t}{clock}");
    }
    let sign = if negative { "-" } else { "" };
    match (iv.months, iv.days) {
        (0, 0) => format!("{sign}{clock}"),
        (0, _) => format!("{sign}{days} {clock}"),
        _ => format!("{sign}{years}-{months}"),
    }
}

/// Writes an interval like `P1Y2M-3DT4H5M6S`.
fn iso_8601(iv: Interval) -> String {
    if iv == Interval::default() {
        return "PT0S".to_owned();
    }
    let mut out = "P".to_owned();
    for (at, (part, unit)) in parts(iv).into_iter().zip(["Y", "M", "D", "H", "M", "S"]).enumerate() {
        if at == 3 && iv.micros != 0 {
            out.push('T');
        }
        let shown = if at == 5 { seconds(part, false) } else { part.unsigned_abs().to_string() };
        if part != 0 {
            out.push_str(&format!("{}{shown}{unit}", if part < 0 { "-" } else { "" }));
        }
    }
    out
}

/// Writes an interval in the style `postgres`. A positive part after a negative one has a `+` sign.
fn write_postgres(iv: Interval, out: &mut Vec<u8>) {
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

/// Returns the integer part, if it fits.
pub(super) fn whole(amount: f64) -> Option<i32> {
    let whole = amount.trunc();
    (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole).then_some(whole as i32)
}
