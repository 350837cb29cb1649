//! Fields of dates, times and intervals: EXTRACT and date_part.
//!
//! Invariants
//! 1. A field has the same names as in PostgreSQL (`datetktbl` and `deltatktbl` in its `datetime.c`). Only
//!    the first ten letters of a name count, as in PostgreSQL.
//! 2. For an infinite date or timestamp, a field that grows with time is infinite. Every other field is NULL.
//!
//! This module does not know the tz database (`time::Zone`).

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use varve_engine::{Datum, Numeric, Special};

use super::moment::{iso_week, iso_weekday, local_of};
use super::{Builtin, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::arith;
use crate::eval::{Cx, number};
use crate::time::{self, DAY_US, Interval, UNIX_SHIFT_US};
use crate::ty::Ty::{self, Date, Float8, Numeric as NumericTy, Text, Time, Timestamp, TimestampTz};

pub(super) const TABLE: &[Builtin] = &[
    strict("date_part", &[Text, Timestamp], Float8, date_part),
    strict("date_part", &[Text, TimestampTz], Float8, date_part),
    strict("date_part", &[Text, Date], Float8, date_part),
    strict("date_part", &[Text, Ty::Interval], Float8, date_part),
    strict("date_part", &[Text, Time], Float8, date_part),
    strict("extract", &[Text, Timestamp], NumericTy, extract),
    strict("extract", &[Text, TimestampTz], NumericTy, extract),
    strict("extract", &[Text, Date], NumericTy, extract),
    strict("extract", &[Text, Ty::Interval], NumericTy, extract),
    strict("extract", &[Text, Time], NumericTy, extract),
];

/// A field of a date, a time or an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    Epoch,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

/// The number of letters of a name that count.
const NAME_LEN_MAX: usize = 10;

impl Unit {
    /// Finds the field of a name in upper or lower case.
    pub(super) fn of(name: &str) -> Option<Unit> {
        let mut name = name.to_ascii_lowercase();
        if name.is_ascii() {
            name.truncate(NAME_LEN_MAX);
        }
        Some(match name.as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "qtr" | "quarter" => Unit::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
            "dow" => Unit::DayOfWeek,
            "isodow" => Unit::IsoDayOfWeek,
            "doy" => Unit::DayOfYear,
            "isoyear" => Unit::IsoYear,
            "j" | "jd" | "julian" => Unit::Julian,
            "epoch" => Unit::Epoch,
            "timezone" => Unit::Timezone,
            "timezone_h" => Unit::TimezoneHour,
            "timezone_m" => Unit::TimezoneMinute,
            _ => return None,
        })
    }

    /// Returns whether only EXTRACT knows the field, so that nothing can be truncated to it (as in
    /// PostgreSQL).
    pub(super) fn is_special(self) -> bool {
        use Unit::{DayOfWeek, DayOfYear, Epoch, IsoDayOfWeek, IsoYear, Julian};
        matches!(self, DayOfWeek | DayOfYear | Epoch | IsoDayOfWeek | IsoYear | Julian)
    }

    /// Returns whether the field always grows with time. Then it is infinite for an infinite date or
    /// timestamp.
    fn grows(self) -> bool {
        use Unit::{Century, Decade, Epoch, IsoYear, Julian, Millennium, Year};
        matches!(self, Epoch | Year | Decade | Century | Millennium | Julian | IsoYear)
    }
}

/// A field's value.
enum FieldValue {
    /// An integer, and the number of its digits that are after the point.
    Exact(i128, u16),
    /// The Julian day, and the microseconds since its start.
    Julian(i64, i64),
    /// An infinite value: a field that grows with time, of an infinite date or timestamp. It is true for plus
    /// infinity.
    Infinite(bool),
    /// NULL: another field of an infinite date or timestamp.
    Unknown,
}

/// Computes EXTRACT(field FROM value).
fn extract<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let value = match field(a, cx)? {
        FieldValue::Exact(value, scale) => {
            number::pack(&BigDecimal::new(BigInt::from(value), i64::from(scale)))?
        }
        FieldValue::Julian(day, us) => {
            let part = number::divide(Numeric::from_i64(us).as_ref(), Numeric::from_i64(DAY_US).as_ref())?;
            number::add(Numeric::from_i64(day).as_ref(), part.as_ref())?
        }
        FieldValue::Infinite(later) => Numeric::special(Special::infinity(!later)),
        FieldValue::Unknown => return Ok(Datum::Null),
    };
    Ok(arith::numeric(&value, cx))
}

fn date_part<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(match field(a, cx)? {
        FieldValue::Exact(value, scale) => Datum::Float8(value as f64 / 10f64.powi(i32::from(scale))),
        FieldValue::Julian(day, us) => Datum::Float8(day as f64 + us as f64 / DAY_US as f64),
        FieldValue::Infinite(later) => Datum::Float8(if later { f64::INFINITY } else { f64::NEG_INFINITY }),
        FieldValue::Unknown => Datum::Null,
    })
}

fn field(a: &[Datum<'_>], cx: &Cx<'_>) -> Result<FieldValue> {
    let name = text(a, 0);
    let unit = Unit::of(name).ok_or_else(|| not_recognized(name, type_name(a[1])))?;
    let found = match a[1] {
        Datum::Interval(iv) => of_interval(unit, iv),
        Datum::Time(us) => {
            of_clock(unit, us).or((unit == Unit::Epoch).then_some(FieldValue::Exact(us.into(), 6)))
        }
        _ => of_moment(unit, a[1], local_of(a[1], cx)?, cx),
    };
    found.ok_or_else(|| not_supported(name, type_name(a[1])))
}

fn type_name(value: Datum<'_>) -> &'static str {
    match value {
        Datum::Interval(_) => "interval",
        Datum::Time(_) => "time without time zone",
        Datum::Date(_) => "date",
        Datum::TimestampTz(_) => "timestamp with time zone",
        _ => "timestamp without time zone",
    }
}

/// Returns the error 22023: there is no field of this name.
pub(super) fn not_recognized(name: &str, ty: &str) -> SqlError {
    let message = format!("unit \"{name}\" not recognized for type {ty}");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Returns the error 0A000: the type does not have this field.
pub(super) fn not_supported(name: &str, ty: &str) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("unit \"{name}\" not supported for type {ty}"))
}

/// Returns a field of a date or timestamp whose local time is known.
fn of_moment(unit: Unit, value: Datum<'_>, local: i64, cx: &Cx<'_>) -> Option<FieldValue> {
    let is_date = matches!(value, Datum::Date(_));
    if time::is_infinite(local) {
        let has = !is_date || of_day(unit, 0).is_some() || unit.grows();
        return has.then_some(if unit.grows() {
            FieldValue::Infinite(local > 0)
        } else {
            FieldValue::Unknown
        });
    }
    let (day, us) = (local.div_euclid(DAY_US), local.rem_euclid(DAY_US));
    let since_1970 = |us: i64| i128::from(us) + i128::from(UNIX_SHIFT_US);
    match (unit, value) {
        (Unit::Epoch, Datum::Date(_)) => Some(FieldValue::Exact(since_1970(local) / 1_000_000, 0)),
        (Unit::Epoch, Datum::TimestampTz(utc)) => Some(FieldValue::Exact(since_1970(utc), 6)),
        (Unit::Epoch, _) => Some(FieldValue::Exact(since_1970(local), 6)),
        (Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute, Datum::TimestampTz(utc)) => {
            let seconds = cx.env.zone().offset_at(utc);
            let shown = match unit {
                Unit::Timezone => seconds,
                Unit::TimezoneHour => seconds / 3600,
                _ => seconds / 60 % 60,
            };
            Some(FieldValue::Exact(shown.into(), 0))
        }
        (Unit::Julian, Datum::Date(_)) => Some(FieldValue::Exact((day + JULIAN_SHIFT).into(), 0)),
        (Unit::Julian, _) => Some(FieldValue::Julian(day + JULIAN_SHIFT, us)),
        _ => of_clock(unit, us)
            .filter(|_| !is_date)
            .or_else(|| of_day(unit, day).map(|n| FieldValue::Exact(n.into(), 0))),
    }
}

/// The Julian day of 2000-01-01.
const JULIAN_SHIFT: i64 = 2_451_545;

fn of_clock(unit: Unit, us: i64) -> Option<FieldValue> {
    let exact = |n: i64, scale| Some(FieldValue::Exact(n.into(), scale));
    match unit {
        Unit::Hour => exact(us / 3_600_000_000, 0),
        Unit::Minute => exact(us / 60_000_000 % 60, 0),
        Unit::Second => exact(us % 60_000_000, 6),
        Unit::Millisecond => exact(us % 60_000_000, 3),
        Unit::Microsecond => exact(us % 60_000_000, 0),
        _ => None,
    }
}

fn of_day(unit: Unit, days: i64) -> Option<i64> {
    let (y, m, d) = time::civil_of(days);
    // There is no year 0. The year before year 1 is 1 BC.
    let counted = |years: i64| if y > 0 { (y + years - 1) / years } else { -((years - y) / years) };
    Some(match unit {
        Unit::Year => y - i64::from(y <= 0),
        Unit::Month => i64::from(m),
        Unit::Day => i64::from(d),
        Unit::Quarter => i64::from((m - 1) / 3 + 1),
        Unit::DayOfWeek => iso_weekday(days) % 7,
        Unit::IsoDayOfWeek => iso_weekday(days),
        Unit::DayOfYear => days - time::days_of(y, 1, 1) + 1,
        Unit::Week => iso_week(days).1,
        // As with years, there is no year 0.
        Unit::IsoYear => {
            let year = iso_week(days).0;
            year - i64::from(year <= 0)
        }
        Unit::Decade => y.div_euclid(10),
        Unit::Century => counted(100),
        Unit::Millennium => counted(1000),
        _ => return None,
    })
}

fn of_interval(unit: Unit, iv: Interval) -> Option<FieldValue> {
    let months = i64::from(iv.months);
    let whole = |n: i64| Some(FieldValue::Exact(n.into(), 0));
    match unit {
        Unit::Hour => whole(iv.micros / 3_600_000_000),
        Unit::Day => whole(iv.days.into()),
        Unit::Month => whole(months % 12),
        Unit::Quarter => whole(months % 12 / 3 + 1),
        Unit::Year => whole(months / 12),
        Unit::Decade => whole(months / 120),
        Unit::Century => whole(months / 1200),
        Unit::Millennium => whole(months / 12_000),
        Unit::Epoch => {
            // A year has 365.25 days, a month 30.
            let hundredths = months / 12 * 36_525 + months % 12 * 3000 + i64::from(iv.days) * 100;
            let us = i128::from(hundredths) * i128::from(DAY_US) / 100 + i128::from(iv.micros);
            Some(FieldValue::Exact(us, 6))
        }
        _ => of_clock(unit, iv.micros),
    }
}
