//! Calendar arithmetic. The modules below read and show dates, timestamps and intervals.
//!
//! Invariants
//! 1. Dates are days since 2000-01-01, timestamps microseconds since 2000-01-01 00:00 (UTC for timestamptz),
//!    as in PostgreSQL.
//! 2. `i32::MAX` and `i64::MAX` are infinity, the minima are -infinity. All other values are within
//!    PostgreSQL's range.
//! 3. The calendar is the proleptic Gregorian calendar. Year 0 is 1 BC.
//!
//! This module does not know sessions. The caller passes the time zone as a `Zone`. Algorithms: Howard
//! Hinnant, "chrono-compatible low-level date algorithms".

mod abbreviations;
mod decode;
mod fields;
mod interval;
mod iso_interval;
mod posix_zone;
mod read;
mod read_interval;
mod show;
mod style;
mod tokens;
mod words;
mod zone;
mod zone_setting;

pub use fields::IntervalFields;
pub use interval::{
    add_interval, add_interval_in, add_intervals, negate_interval, scale_interval, write_interval,
};
pub use read::{parse_date, parse_time, parse_timestamp, parse_timestamptz, parse_zone};
pub use read_interval::{parse_interval, parse_interval_of};
pub use show::{write_date, write_time, write_timestamp};
pub use style::{DateOrder, DateStyle, IntervalStyle, NoDateStyle, PLAIN, Reading, TimeForms};
pub use varve_engine::{DAY_US, Interval};
pub use zone::Zone;

use varve_engine::Datum;

use crate::error::{Result, SqlError, SqlState};

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_SHIFT_DAYS: i64 = 10_957;
/// Julian day of 2000-01-01.
const JULIAN_OF_2000: i64 = 2_451_545;
/// The first date: 4713-11-24 BC, Julian day 0.
const DATE_MIN: i64 = -2_451_545;
/// The last date: 5874897-12-31.
const DATE_MAX: i64 = 2_145_031_948;
/// The end of timestamps: one microsecond after 294276-12-31 23:59:59.999999.
const TIMESTAMP_END: i64 = 9_223_371_331_200_000_000;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const UNIX_SHIFT_US: i64 = EPOCH_SHIFT_DAYS * DAY_US;
/// An hour, in microseconds.
const HOUR_US: i64 = 60 * MINUTE_US;
/// A minute, in microseconds.
const MINUTE_US: i64 = 60_000_000;

/// Returns the current time, in microseconds since 2000-01-01 UTC.
pub fn clock_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() as i64 * 1_000_000 + i64::from(since.subsec_micros()) - UNIX_SHIFT_US
}

/// Returns the days from 2000-01-01 to a civil date. The date must be valid.
pub fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 - EPOCH_SHIFT_DAYS
}

/// Returns the year, month and day that are this number of days after 2000-01-01.
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

/// Returns the abbreviations of time zones, in lower case.
pub fn zone_abbreviations() -> impl Iterator<Item = &'static str> {
    abbreviations::all()
}

/// Returns the number of days in a month.
pub fn month_len(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 => 29,
        2 => 28,
        _ => 31,
    }
}

/// Rounds a time to this number of digits after the second. A half is rounded away from zero. Values of other
/// types are returned unchanged.
pub fn rounded(value: Datum<'_>, digits: u8) -> Result<Datum<'_>> {
    let whole = |us: i64| round_us(us, digits);
    let moment = |us: i64| match is_infinite(us) {
        true => Ok(us),
        false => whole(us).and_then(check_timestamp).ok_or_else(timestamp_range),
    };
    Ok(match value {
        Datum::Timestamp(us) => Datum::Timestamp(moment(us)?),
        Datum::TimestampTz(us) => Datum::TimestampTz(moment(us)?),
        Datum::Time(us) => Datum::Time(whole(us).unwrap_or(us)),
        Datum::Interval(iv) => Datum::Interval(IntervalFields::of_code(digits).fit(iv)?),
        other => other,
    })
}

/// Rounds microseconds to this number of digits of a second.
fn round_us(us: i64, digits: u8) -> Option<i64> {
    let unit = 10_i64.pow(u32::from(6 - digits.min(6)));
    let half = if us < 0 { -(unit / 2) } else { unit / 2 };
    us.checked_add(half).map(|us| us / unit * unit)
}

/// Returns whether a timestamp is one of the infinities.
pub fn is_infinite(ts: i64) -> bool {
    ts == i64::MAX || ts == i64::MIN
}

/// Returns the error 22008: the timestamp is out of range.
pub fn timestamp_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")
}

/// Returns the error 22008: the interval is out of range.
pub fn interval_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range")
}

/// Returns the error 22008: the date is out of range.
pub fn date_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range")
}

/// Returns the date if it is in PostgreSQL's range.
pub fn check_date(days: i64) -> Option<i32> {
    (DATE_MIN..=DATE_MAX).contains(&days).then_some(days as i32)
}

/// Returns the timestamp if it is in PostgreSQL's range.
pub fn check_timestamp(us: i64) -> Option<i64> {
    (DATE_MIN * DAY_US..TIMESTAMP_END).contains(&us).then_some(us)
}

/// Returns the timestamp of midnight of a date.
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

/// Returns the day of a timestamp.
pub fn timestamp_to_date(ts: i64) -> i32 {
    match ts {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        ts => ts.div_euclid(DAY_US) as i32,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Result<i64> {
        parse_timestamp(text, &Reading::plain())
    }

    fn shown(ts: i64) -> String {
        let mut out = Vec::new();
        write_timestamp(ts, false, &PLAIN, &mut out);
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
            assert_eq!(shown(moment(text).unwrap()), text);
        }
        assert_eq!(parse_timestamptz("2000-01-01 02:00:00+02", &Reading::plain()).unwrap(), 0);
        assert_eq!(moment("01/02/2003").unwrap(), moment("20030102").unwrap());
    }

    #[test]
    fn bad_dates_are_told_apart() {
        let error = |text: &str| parse_date(text, &Reading::plain()).unwrap_err().sqlstate;
        assert_eq!(error("2023-02-29"), SqlState::DATETIME_OVERFLOW);
        assert_eq!(error("soon"), SqlState::INVALID_DATETIME);
    }

    #[test]
    fn intervals_move_timestamps_like_postgresql() {
        let style = IntervalStyle::Postgres;
        let ts = moment("2024-01-31 10:00:00").unwrap();
        let moved = add_interval(ts, parse_interval("1 month 1 day 02:30", style).unwrap()).unwrap();
        assert_eq!(shown(moved), "2024-03-01 12:30:00");
        let mut out = Vec::new();
        write_interval(parse_interval("14 months 3 days -1 second", style).unwrap(), style, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "1 year 2 mons 3 days -00:00:01");
    }
}
