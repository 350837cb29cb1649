//! Functions of dates and times.
//!
//! Invariants
//! 1. `now()` and its synonyms return the start time of the transaction. Only `clock_timestamp` returns the
//!    current time.
//!
//! This module does not know the tz database (`time::Zone`).

use varve_engine::Datum;

use super::field::{Unit, not_recognized, not_supported};
use super::{Builtin, Run, clock_us, float, int, strict, text, volatile};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::eval::arith::interval_of;
use crate::time::{self, DAY_US, UNIX_SHIFT_US, Zone};
use crate::ty::Ty::{Date, Float8, Int4, Interval, Text, Timestamp, TimestampTz};

pub(super) const TABLE: &[Builtin] = &[
    strict("now", &[], TimestampTz, NOW),
    strict("transaction_timestamp", &[], TimestampTz, NOW),
    strict("statement_timestamp", &[], TimestampTz, NOW),
    volatile("clock_timestamp", &[], TimestampTz, |_, cx| {
        // Outside of a transaction block, the first use of `now` reads the clock. It must not be later.
        let now = cx.env.now_us();
        Ok(Datum::TimestampTz(clock_us().max(now)))
    }),
    strict("date_trunc", &[Text, Timestamp], Timestamp, |a, cx| truncated(a, cx.env.zone(), cx)),
    strict("date_trunc", &[Text, TimestampTz], TimestampTz, |a, cx| truncated(a, cx.env.zone(), cx)),
    strict("date_trunc", &[Text, Interval], Interval, |a, _| truncated_span(text(a, 0), interval_of(a[1])?)),
    strict("date_trunc", &[Text, TimestampTz, Text], TimestampTz, |a, cx| {
        let zone = zone_named(text(a, 2))?;
        truncated(&a[..2], &zone, cx)
    }),
    strict("timezone", &[Text, TimestampTz], Timestamp, at_zone),
    strict("timezone", &[Text, Timestamp], TimestampTz, at_zone),
    strict("timezone", &[Interval, TimestampTz], Timestamp, at_offset),
    strict("timezone", &[Interval, Timestamp], TimestampTz, at_offset),
    strict("make_date", &[Int4, Int4, Int4], Date, |a, _| make_date(int(a, 0), int(a, 1), int(a, 2))),
    strict("to_timestamp", &[Float8], TimestampTz, |a, _| {
        if float(a, 0).is_nan() {
            return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp cannot be NaN"));
        }
        match float(a, 0) {
            f64::INFINITY => return Ok(Datum::TimestampTz(i64::MAX)),
            f64::NEG_INFINITY => return Ok(Datum::TimestampTz(i64::MIN)),
            _ => {}
        }
        let us = (float(a, 0) * 1e6).round_ties_even() - UNIX_SHIFT_US as f64;
        time::check_timestamp(us as i64).map(Datum::TimestampTz).ok_or_else(|| {
            let mut shown = Vec::new();
            crate::text::write_float(float(a, 0), &mut shown);
            let message = format!("timestamp out of range: \"{}\"", String::from_utf8_lossy(&shown));
            SqlError::new(SqlState::DATETIME_OVERFLOW, message)
        })
    }),
    strict("isfinite", &[Timestamp], crate::ty::Ty::Bool, |a, _| match a[0] {
        Datum::Timestamp(t) => Ok(Datum::Bool(!time::is_infinite(t))),
        _ => Ok(Datum::Null),
    }),
];

const NOW: Run = |_, cx| Ok(Datum::TimestampTz(cx.env.now_us()));

fn make_date<'a>(year: i64, month: i64, day: i64) -> Result<Datum<'a>> {
    let refused = || {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        SqlError::new(SqlState::DATETIME_OVERFLOW, message)
    };
    let astronomical = if year < 0 { year + 1 } else { year };
    let fits = year != 0 && (1..=12).contains(&month) && day >= 1 && (-5000..6_000_000).contains(&year);
    if !fits || day > i64::from(time::month_len(astronomical, month as u32)) {
        return Err(refused());
    }
    let days = time::days_of(astronomical, month as u32, day as u32);
    time::check_date(days).map(Datum::Date).ok_or_else(refused)
}

/// Returns the local time of a date or timestamp, in microseconds.
pub(super) fn local_of(value: Datum<'_>, cx: &Cx<'_>) -> Result<i64> {
    Ok(match value {
        Datum::Timestamp(t) => t,
        Datum::TimestampTz(t) => cx.env.zone().to_local(t)?,
        Datum::Date(d) => time::date_to_timestamp(d)?,
        _ => 0,
    })
}

/// Computes `value AT TIME ZONE zone`. For a moment, the result is the local time in the zone. For a local
/// time in the zone, the result is the moment.
fn at_zone<'a>(a: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    moved_to(&zone_named(text(a, 0))?, a[1])
}

fn zone_named(name: &str) -> Result<Zone> {
    Zone::of_expression(name).ok_or_else(|| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
    })
}

fn at_offset<'a>(a: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    let iv = interval_of(a[0])?;
    let seconds = i32::try_from(iv.micros / 1_000_000).ok().filter(|_| iv.months == 0 && iv.days == 0);
    let seconds = seconds.ok_or_else(|| {
        let message = "an interval that is a time zone must not include months or days";
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
    })?;
    moved_to(&Zone::Fixed(seconds), a[1])
}

fn moved_to<'a>(zone: &Zone, value: Datum<'a>) -> Result<Datum<'a>> {
    match value {
        Datum::TimestampTz(t) => zone.to_local(t).map(Datum::Timestamp),
        Datum::Timestamp(t) => zone.to_utc(t).map(Datum::TimestampTz),
        other => Ok(other),
    }
}

/// Returns an interval, truncated to a unit.
fn truncated_span<'a>(name: &str, iv: time::Interval) -> Result<Datum<'a>> {
    let time::Interval { months, days, micros } = iv;
    let whole = |months: i32, days, micros| Ok(Datum::Interval(time::Interval { months, days, micros }));
    let floor = |us: i64| whole(months, days, micros / us * us);
    match Unit::of(name).ok_or_else(|| not_recognized(name, "interval"))? {
        Unit::Microsecond => whole(months, days, micros),
        Unit::Millisecond => floor(1000),
        Unit::Second => floor(1_000_000),
        Unit::Minute => floor(60_000_000),
        Unit::Hour => floor(3_600_000_000),
        Unit::Day => whole(months, days, 0),
        Unit::Month => whole(months, 0, 0),
        Unit::Quarter => whole(months / 3 * 3, 0, 0),
        Unit::Year => whole(months / 12 * 12, 0, 0),
        Unit::Decade => whole(months / 120 * 120, 0, 0),
        Unit::Century => whole(months / 1200 * 1200, 0, 0),
        Unit::Millennium => whole(months / 12_000 * 12_000, 0, 0),
        Unit::Week => {
            Err(not_supported(name, "interval").with_detail("Months usually have fractional weeks."))
        }
        unit if unit.is_special() => Err(not_recognized(name, "interval")),
        _ => Err(not_supported(name, "interval")),
    }
}

fn truncated<'a>(a: &[Datum<'a>], zone: &Zone, _: &Cx<'a>) -> Result<Datum<'a>> {
    let local = match a[1] {
        Datum::TimestampTz(t) => zone.to_local(t)?,
        Datum::Timestamp(t) => t,
        _ => 0,
    };
    if time::is_infinite(local) {
        return Ok(a[1]);
    }
    let zoned = matches!(a[1], Datum::TimestampTz(_));
    let ty = if zoned { "timestamp with time zone" } else { "timestamp without time zone" };
    let result = truncate_local(text(a, 0), local, ty)?;
    Ok(match a[1] {
        // For units smaller than a day the offset from UTC is kept. So at the end of daylight saving time, an
        // hour that occurs twice is not mixed up with its second occurrence.
        Datum::TimestampTz(t) if within_day(text(a, 0)) => Datum::TimestampTz(t - (local - result)),
        Datum::TimestampTz(_) => Datum::TimestampTz(zone.to_utc(result)?),
        _ => Datum::Timestamp(result),
    })
}

fn within_day(name: &str) -> bool {
    use Unit::{Hour, Microsecond, Millisecond, Minute, Second};
    matches!(Unit::of(name), Some(Microsecond | Millisecond | Second | Minute | Hour))
}

fn truncate_local(name: &str, local: i64, ty: &str) -> Result<i64> {
    let days = local.div_euclid(DAY_US);
    let (y, m, _) = time::civil_of(days);
    let start = |year, month| time::days_of(year, month, 1) * DAY_US;
    let floor = |us: i64| local.div_euclid(us) * us;
    Ok(match Unit::of(name).ok_or_else(|| not_recognized(name, ty))? {
        Unit::Microsecond => local,
        Unit::Millisecond => floor(1000),
        Unit::Second => floor(1_000_000),
        Unit::Minute => floor(60_000_000),
        Unit::Hour => floor(3_600_000_000),
        Unit::Day => floor(DAY_US),
        Unit::Week => (days - (iso_weekday(days) - 1)) * DAY_US,
        Unit::Month => start(y, m),
        Unit::Quarter => start(y, (m - 1) / 3 * 3 + 1),
        Unit::Year => start(y, 1),
        Unit::Decade => start(y.div_euclid(10) * 10, 1),
        Unit::Century => start((y - 1).div_euclid(100) * 100 + 1, 1),
        Unit::Millennium => start((y - 1).div_euclid(1000) * 1000 + 1, 1),
        unit if unit.is_special() => return Err(not_recognized(name, ty)),
        _ => return Err(not_supported(name, ty)),
    })
}

/// Returns the day of the week by ISO 8601. Monday is 1.
pub(super) fn iso_weekday(days: i64) -> i64 {
    // 2000-01-01 was a Saturday.
    (days + 5).rem_euclid(7) + 1
}

/// Returns the year and the week by ISO 8601. A week belongs to the year of its Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days + 4 - iso_weekday(days);
    let (year, _, _) = time::civil_of(thursday);
    (year, (thursday - time::days_of(year, 1, 1)) / 7 + 1)
}
