//! Functions that make, compare and adjust intervals and times of day.
//!
//! This module does not know fields of timestamps (`moment`).

use varve_engine::{Datum, Interval};

use super::{Builtin, float, int, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::eval::arith::interval_of;
use crate::time::{self, DAY_US};
use crate::ty::Ty::{self, Date, Float8, Int4, Text, Time, Timestamp, TimestampTz};

const SPAN: Ty = Ty::Interval;

pub(super) const TABLE: &[Builtin] = &[
    strict("age", &[Timestamp, Timestamp], SPAN, |a, cx| age(a[0], a[1], cx)),
    strict("age", &[TimestampTz, TimestampTz], SPAN, |a, cx| age(a[0], a[1], cx)),
    strict("age", &[Timestamp], SPAN, |a, cx| age(Datum::Timestamp(midnight(cx)?), a[0], cx)),
    strict("age", &[TimestampTz], SPAN, |a, cx| {
        age(Datum::TimestampTz(cx.env.zone().to_utc(midnight(cx)?)?), a[0], cx)
    }),
    strict("justify_days", &[SPAN], SPAN, |a, _| {
        interval_of(a[0]).and_then(justify_days).map(Datum::Interval)
    }),
    strict("justify_hours", &[SPAN], SPAN, |a, _| {
        interval_of(a[0]).and_then(justify_hours).map(Datum::Interval)
    }),
    strict("justify_interval", &[SPAN], SPAN, |a, _| {
        interval_of(a[0]).and_then(justify_interval).map(Datum::Interval)
    }),
    strict("isfinite", &[Date], Ty::Bool, |a, _| {
        Ok(Datum::Bool(!matches!(a[0], Datum::Date(i32::MIN | i32::MAX))))
    }),
    strict("isfinite", &[TimestampTz], Ty::Bool, |a, _| {
        Ok(Datum::Bool(!matches!(a[0], Datum::TimestampTz(t) if time::is_infinite(t))))
    }),
    strict("isfinite", &[SPAN], Ty::Bool, |_, _| Ok(Datum::Bool(true))),
    strict("make_time", &[Int4, Int4, Float8], Time, |a, _| {
        clock(int(a, 0), int(a, 1), float(a, 2)).map(Datum::Time).ok_or_else(|| {
            let message =
                format!("time field value out of range: {}:{:02}:{:02}", int(a, 0), int(a, 1), float(a, 2));
            SqlError::new(SqlState::DATETIME_OVERFLOW, message)
        })
    }),
    strict("make_timestamp", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamp, |a, _| {
        moment(a).map(Datum::Timestamp)
    }),
    strict("make_timestamptz", &[Int4, Int4, Int4, Int4, Int4, Float8], TimestampTz, |a, cx| {
        cx.env.zone().to_utc(moment(a)?).map(Datum::TimestampTz)
    }),
    strict("make_timestamptz", &[Int4, Int4, Int4, Int4, Int4, Float8, Text], TimestampTz, |a, _| {
        time::parse_zone(text(a, 6))?.to_utc(moment(&a[..6])?).map(Datum::TimestampTz)
    }),
    strict("date_bin", &[SPAN, Timestamp, Timestamp], Timestamp, |a, _| binned(a).map(Datum::Timestamp)),
    strict("date_bin", &[SPAN, TimestampTz, TimestampTz], TimestampTz, |a, _| {
        binned(a).map(Datum::TimestampTz)
    }),
    strict("make_interval", &[], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4, Int4], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4, Int4, Int4], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4, Int4, Int4, Int4], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4, Int4, Int4, Int4, Int4], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4, Int4, Int4, Int4, Int4, Int4], SPAN, |a, _| make_interval(a)),
    strict("make_interval", &[Int4, Int4, Int4, Int4, Int4, Int4, Float8], SPAN, |a, _| make_interval(a)),
];

/// Computes date_bin: the beginning of the stride that contains a timestamp. Strides are counted from an
/// origin.
fn binned(a: &[Datum<'_>]) -> Result<i64> {
    let Datum::Interval(stride) = a[0] else {
        return Err(SqlError::internal("a stride that is no interval"));
    };
    let micros = |datum: &Datum<'_>| match datum {
        Datum::Timestamp(us) | Datum::TimestampTz(us) => *us,
        _ => 0,
    };
    let (source, origin) = (micros(&a[1]), micros(&a[2]));
    if time::is_infinite(source) {
        return Ok(source);
    }
    if time::is_infinite(origin) {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "origin out of range"));
    }
    if stride.months != 0 {
        let message = "timestamps cannot be binned into intervals containing months or years";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let width = i64::from(stride.days).checked_mul(time::DAY_US).and_then(|us| us.checked_add(stride.micros));
    let width = width.ok_or_else(time::interval_range)?;
    if width <= 0 {
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "stride must be greater than zero"));
    }
    let since = source.checked_sub(origin).ok_or_else(time::interval_range)?;
    since
        .div_euclid(width)
        .checked_mul(width)
        .and_then(|us| us.checked_add(origin))
        .ok_or_else(time::timestamp_range)
}

/// Makes an interval of years, months, weeks, days, hours, minutes and seconds. The last ones may be left
/// out.
fn make_interval<'a>(a: &[Datum<'a>]) -> Result<Datum<'a>> {
    let made = || {
        let months = int(a, 0).checked_mul(12)?.checked_add(int(a, 1))?;
        let days = int(a, 2).checked_mul(7)?.checked_add(int(a, 3))?;
        let whole =
            int(a, 4).checked_mul(3600)?.checked_add(int(a, 5).checked_mul(60)?)?.checked_mul(1_000_000)?;
        let seconds = (float(a, 6) * 1e6).round_ties_even();
        (seconds.abs() < 9e18).then_some(())?;
        Some(Interval {
            months: i32::try_from(months).ok()?,
            days: i32::try_from(days).ok()?,
            micros: whole.checked_add(seconds as i64)?,
        })
    };
    made().map(Datum::Interval).ok_or_else(time::interval_range)
}

fn midnight(cx: &Cx<'_>) -> Result<i64> {
    Ok(cx.env.zone().to_local(cx.env.now_us())?.div_euclid(DAY_US) * DAY_US)
}

fn clock(hour: i64, minute: i64, second: f64) -> Option<i64> {
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    let us = (hour * 60 + minute) * 60_000_000 + (second * 1e6).round_ties_even() as i64;
    (fits && us <= DAY_US).then_some(us)
}

/// Makes a local time of six fields.
fn moment(a: &[Datum<'_>]) -> Result<i64> {
    let (year, month, day) = (int(a, 0), int(a, 1), int(a, 2));
    let astronomical = if year < 0 { year + 1 } else { year };
    let fits = year != 0 && (1..=12).contains(&month) && day >= 1 && (-5000..300_000).contains(&year);
    if !fits || day > i64::from(time::month_len(astronomical, month as u32)) {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, message));
    }
    let us = clock(int(a, 3), int(a, 4), float(a, 5)).ok_or_else(|| {
        let message =
            format!("time field value out of range: {}:{:02}:{:02}", int(a, 3), int(a, 4), float(a, 5));
        SqlError::new(SqlState::DATETIME_OVERFLOW, message)
    })?;
    let days = time::days_of(astronomical, month as u32, day as u32);
    let total = days.checked_mul(DAY_US).and_then(|d| d.checked_add(us)).and_then(time::check_timestamp);
    total.ok_or_else(time::timestamp_range)
}

/// Returns the span from `b` to `a` in years, months, days and a time, as a calendar counts it
/// (`timestamp_age` in PostgreSQL).
fn age<'a>(a: Datum<'a>, b: Datum<'a>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (x, y) = match (a, b) {
        (Datum::TimestampTz(x), Datum::TimestampTz(y)) => {
            (cx.env.zone().to_local(x)?, cx.env.zone().to_local(y)?)
        }
        (Datum::Timestamp(x), Datum::Timestamp(y)) => (x, y),
        _ => return Ok(Datum::Null),
    };
    // PostgreSQL 15 computes with the bits of infinity as if it were a timestamp. The bits of -infinity are
    // out of range.
    if [x, y].iter().any(|t| time::is_infinite(*t) && *t < 0) {
        return Err(time::timestamp_range());
    }
    let (later, earlier, sign) = if x >= y { (x, y, 1) } else { (y, x, -1) };
    let fields = |t: i64| (time::civil_of(t.div_euclid(DAY_US)), t.rem_euclid(DAY_US));
    let ((y1, m1, d1), t1) = fields(later);
    let ((y2, m2, d2), t2) = fields(earlier);
    let (mut months, mut days, mut micros) =
        ((y1 - y2) * 12 + i64::from(m1) - i64::from(m2), i64::from(d1) - i64::from(d2), t1 - t2);
    if micros < 0 {
        micros += DAY_US;
        days -= 1;
    }
    // The borrowed month has the length of the earlier timestamp's month.
    if days < 0 {
        days += i64::from(time::month_len(y2, m2));
        months -= 1;
    }
    let fit = |n: i64| i32::try_from(sign * n).map_err(|_| time::interval_range());
    Ok(Datum::Interval(Interval { months: fit(months)?, days: fit(days)?, micros: sign * micros }))
}

/// Moves whole days from the time to the days, and gives both the same sign.
fn justify_hours(iv: Interval) -> Result<Interval> {
    let mut days = i64::from(iv.days) + iv.micros / DAY_US;
    let mut micros = iv.micros % DAY_US;
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + DAY_US);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - DAY_US);
    }
    Ok(Interval { days: narrow(days)?, micros, ..iv })
}

/// Moves whole months of 30 days from the days to the months, and gives both the same sign.
fn justify_days(iv: Interval) -> Result<Interval> {
    let mut months = i64::from(iv.months) + i64::from(iv.days / 30);
    let mut days = iv.days % 30;
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    Ok(Interval { months: narrow(months)?, days, ..iv })
}

/// Does what `justify_days` and `justify_hours` do, and gives all fields the same sign.
fn justify_interval(iv: Interval) -> Result<Interval> {
    let mut days = i64::from(iv.days) + iv.micros / DAY_US;
    let mut micros = iv.micros % DAY_US;
    let mut months = i64::from(iv.months) + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && micros < 0)) {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && (days > 0 || (days == 0 && micros > 0)) {
        (months, days) = (months + 1, days - 30);
    }
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + DAY_US);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - DAY_US);
    }
    Ok(Interval { months: narrow(months)?, days: narrow(days)?, micros })
}

fn narrow(n: i64) -> Result<i32> {
    i32::try_from(n).map_err(|_| time::interval_range())
}
