//! Functions of dates and times.
//!
//! Invariants
//! 1. `now()` and its relatives are those of the transaction; only `clock_timestamp` moves.
//!
//! Does not know: the tz database (`time::Zone`).

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use varve_engine::Datum;

use super::{Builtin, Run, float, int, strict, text, volatile};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::arith::{self, interval_of};
use crate::eval::{Cx, number};
use crate::time::{self, DAY_US, UNIX_SHIFT_US, Zone};
use crate::ty::Ty::{Date, Float8, Int4, Interval, Numeric, Text, Time, Timestamp, TimestampTz};

pub(super) const TABLE: &[Builtin] = &[
    strict("now", &[], TimestampTz, NOW),
    strict("transaction_timestamp", &[], TimestampTz, NOW),
    strict("statement_timestamp", &[], TimestampTz, NOW),
    volatile("clock_timestamp", &[], TimestampTz, |_, _| Ok(Datum::TimestampTz(clock_us()))),
    strict("date_trunc", &[Text, Timestamp], Timestamp, |a, cx| truncated(a, cx.env.zone, cx)),
    strict("date_trunc", &[Text, TimestampTz], TimestampTz, |a, cx| truncated(a, cx.env.zone, cx)),
    strict("date_part", &[Text, Timestamp], Float8, part_float),
    strict("date_part", &[Text, TimestampTz], Float8, part_float),
    strict("date_part", &[Text, Date], Float8, part_float),
    strict("date_part", &[Text, Interval], Float8, part_float),
    strict("extract", &[Text, Timestamp], Numeric, extract),
    strict("extract", &[Text, TimestampTz], Numeric, extract),
    strict("extract", &[Text, Date], Numeric, extract),
    strict("extract", &[Text, Interval], Numeric, extract),
    strict("extract", &[Text, Time], Numeric, extract),
    strict("date_part", &[Text, Time], Float8, part_float),
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

/// Microseconds since 2000-01-01 UTC by the system's clock.
pub fn clock_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64 - UNIX_SHIFT_US
}

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

/// Local microseconds of a moment.
fn local_of(value: Datum<'_>, cx: &Cx<'_>) -> Result<i64> {
    Ok(match value {
        Datum::Timestamp(t) => t,
        Datum::TimestampTz(t) => cx.env.zone.to_local(t)?,
        Datum::Date(d) => time::date_to_timestamp(d)?,
        _ => 0,
    })
}

/// `value AT TIME ZONE zone`: what clocks there show, or the moment at which they show it.
fn at_zone<'a>(a: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    moved_to(&zone_named(text(a, 0))?, a[1])
}

pub(super) fn zone_named(name: &str) -> Result<Zone> {
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

/// A span without what is below a unit.
fn truncated_span<'a>(unit: &str, iv: time::Interval) -> Result<Datum<'a>> {
    let time::Interval { months, days, micros } = iv;
    let whole = |months: i32, days, micros| Ok(Datum::Interval(time::Interval { months, days, micros }));
    let floor = |us: i64| whole(months, days, micros / us * us);
    match unit.to_ascii_lowercase().as_str() {
        "microsecond" | "microseconds" => whole(months, days, micros),
        "millisecond" | "milliseconds" => floor(1000),
        "second" => floor(1_000_000),
        "minute" => floor(60_000_000),
        "hour" => floor(3_600_000_000),
        "day" => whole(months, days, 0),
        "month" => whole(months, 0, 0),
        "quarter" => whole(months / 3 * 3, 0, 0),
        "year" => whole(months / 12 * 12, 0, 0),
        "decade" => whole(months / 120 * 120, 0, 0),
        "century" => whole(months / 1200 * 1200, 0, 0),
        "millennium" => whole(months / 12_000 * 12_000, 0, 0),
        _ => Err(unknown_unit(unit, "interval")),
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
        // Units below a day keep the offset, so that an hour that occurs twice stays the one it is.
        Datum::TimestampTz(t) if within_day(text(a, 0)) => Datum::TimestampTz(t - (local - result)),
        Datum::TimestampTz(_) => Datum::TimestampTz(zone.to_utc(result)?),
        _ => Datum::Timestamp(result),
    })
}

fn within_day(unit: &str) -> bool {
    let lower = unit.to_ascii_lowercase();
    matches!(lower.trim_end_matches('s'), "microsecond" | "millisecond" | "second" | "minute" | "hour")
}

fn truncate_local(unit: &str, local: i64, ty: &str) -> Result<i64> {
    let days = local.div_euclid(DAY_US);
    let (y, m, _) = time::civil_of(days);
    let start = |year, month| time::days_of(year, month, 1) * DAY_US;
    let floor = |us: i64| local.div_euclid(us) * us;
    Ok(match unit.to_ascii_lowercase().as_str() {
        "microseconds" | "microsecond" => local,
        "milliseconds" | "millisecond" => floor(1000),
        "second" => floor(1_000_000),
        "minute" => floor(60_000_000),
        "hour" => floor(3_600_000_000),
        "day" => floor(DAY_US),
        "week" => (days - (iso_weekday(days) - 1)) * DAY_US,
        "month" => start(y, m),
        "quarter" => start(y, (m - 1) / 3 * 3 + 1),
        "year" => start(y, 1),
        "decade" => start(y.div_euclid(10) * 10, 1),
        "century" => start((y - 1).div_euclid(100) * 100 + 1, 1),
        "millennium" => start((y - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => return Err(unknown_unit(unit, ty)),
    })
}

fn unknown_unit(unit: &str, ty: &str) -> SqlError {
    let message = format!("unit \"{unit}\" not recognized for type {ty}");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Monday is 1.
fn iso_weekday(days: i64) -> i64 {
    // 2000-01-01 was a Saturday.
    (days + 5).rem_euclid(7) + 1
}

/// A field as an integer and its number of decimal digits.
type Field = (i128, u16);

/// EXTRACT(field FROM value)
pub fn extract<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (value, scale) = field(a, cx)?;
    let big = BigDecimal::new(BigInt::from(value), i64::from(scale));
    Ok(arith::numeric(&number::pack(&big)?, cx))
}

fn part_float<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (value, scale) = field(a, cx)?;
    Ok(Datum::Float8(value as f64 / 10f64.powi(i32::from(scale))))
}

fn field(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<Field> {
    let unit = text(a, 0).to_ascii_lowercase();
    if matches!(a[1], Datum::Interval(_)) {
        return interval_field(&unit, interval_of(a[1])?);
    }
    if let Datum::Time(us) = a[1] {
        let found = clock_field(&unit, us).or((unit == "epoch").then_some((i128::from(us), 6)));
        return found.ok_or_else(|| match day_field(&unit, 0) {
            Some(_) => {
                let message =
                    format!("unit \"{}\" not supported for type time without time zone", text(a, 0));
                SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            }
            None => unknown_unit(text(a, 0), "time without time zone"),
        });
    }
    let local = local_of(a[1], cx)?;
    if time::is_infinite(local) {
        return Err(SqlError::unsupported("a field of an infinite date or time"));
    }
    match (unit.as_str(), a[1]) {
        ("epoch", Datum::Date(_)) => {
            return Ok(((i128::from(local) + i128::from(UNIX_SHIFT_US)) / 1_000_000, 0));
        }
        ("epoch", Datum::TimestampTz(t)) => return Ok((i128::from(t) + i128::from(UNIX_SHIFT_US), 6)),
        ("epoch", _) => return Ok((i128::from(local) + i128::from(UNIX_SHIFT_US), 6)),
        ("timezone", Datum::TimestampTz(t)) => return Ok((i128::from(cx.env.zone.offset_at(t)), 0)),
        ("timezone_hour", Datum::TimestampTz(t)) => {
            return Ok((i128::from(cx.env.zone.offset_at(t) / 3600), 0));
        }
        ("timezone_minute", Datum::TimestampTz(t)) => {
            return Ok((i128::from(cx.env.zone.offset_at(t) / 60 % 60), 0));
        }
        _ => {}
    }
    let day = local.div_euclid(DAY_US);
    let found = clock_field(&unit, local.rem_euclid(DAY_US)).filter(|_| !matches!(a[1], Datum::Date(_)));
    found.or_else(|| day_field(&unit, day).map(|n| (i128::from(n), 0))).ok_or_else(|| {
        let ty = match a[1] {
            Datum::Date(_) => "date",
            Datum::TimestampTz(_) => "timestamp with time zone",
            _ => "timestamp without time zone",
        };
        unknown_unit(text(a, 0), ty)
    })
}

fn clock_field(unit: &str, us: i64) -> Option<Field> {
    Some(match unit {
        "hour" => (i128::from(us / 3_600_000_000), 0),
        "minute" => (i128::from(us / 60_000_000 % 60), 0),
        "second" => (i128::from(us % 60_000_000), 6),
        "milliseconds" => (i128::from(us % 60_000_000), 3),
        "microseconds" => (i128::from(us % 60_000_000), 0),
        _ => return None,
    })
}

fn day_field(unit: &str, days: i64) -> Option<i64> {
    let (y, m, d) = time::civil_of(days);
    Some(match unit {
        "year" => {
            if y > 0 {
                y
            } else {
                y - 1
            }
        }
        "month" => i64::from(m),
        "day" => i64::from(d),
        "quarter" => i64::from((m - 1) / 3 + 1),
        "dow" => iso_weekday(days) % 7,
        "isodow" => iso_weekday(days),
        "doy" => days - time::days_of(y, 1, 1) + 1,
        "week" => iso_week(days).1,
        "isoyear" => iso_week(days).0,
        "decade" => y.div_euclid(10),
        "century" => {
            if y > 0 {
                (y + 99) / 100
            } else {
                -((100 - y) / 100)
            }
        }
        "millennium" => {
            if y > 0 {
                (y + 999) / 1000
            } else {
                -((1000 - y) / 1000)
            }
        }
        "julian" => days + 2_451_545,
        _ => return None,
    })
}

/// Year and week by ISO 8601: the week belongs to the year of its Thursday.
fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days + 4 - iso_weekday(days);
    let (year, _, _) = time::civil_of(thursday);
    (year, (thursday - time::days_of(year, 1, 1)) / 7 + 1)
}

fn interval_field(unit: &str, iv: time::Interval) -> Result<Field> {
    let months = i128::from(iv.months);
    let clock = iv.micros;
    Ok(match unit {
        "year" => (months / 12, 0),
        "month" => (months % 12, 0),
        "day" => (i128::from(iv.days), 0),
        "hour" => (i128::from(clock / 3_600_000_000), 0),
        "minute" => (i128::from(clock / 60_000_000 % 60), 0),
        "second" => (i128::from(clock % 60_000_000), 6),
        "epoch" => {
            let days = months / 12 * 36_525 + months % 12 * 3000 + i128::from(iv.days) * 100;
            (days * i128::from(DAY_US) / 100 + i128::from(clock), 6)
        }
        _ => return Err(unknown_unit(unit, "interval")),
    })
}
