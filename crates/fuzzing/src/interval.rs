//! Fuzzes values of the type interval: from text to value and back, the binary format, and arithmetic.
//!
//! The input has three numbers: a time zone (i8; half of it is the number of quarters of an hour), a factor
//! (f64), and a timestamp (i64). Two texts follow, separated by `|`.

use varve_engine::{ColumnType, Datum, Interval, Value};
use varve_server::fuzzing;
use varve_sql::{Zone, oid, text};

use crate::input::Input;

const QUARTER_SECONDS: i32 = 900;
/// Timestamps from about 4713 BC to 200,000 AD, in microseconds from 2000.
const TIMESTAMP_US: std::ops::Range<i64> = -200_000_000_000_000_000..6_000_000_000_000_000_000;

/// Checks each text: it is refused, or its value, written as text and read again, is the same value. The
/// binary form must have the expected bytes.
pub fn interval(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let zone = Zone::Fixed(i32::from(input.byte() as i8) / 2 * QUARTER_SECONDS);
    let by = f64::from_bits(input.u64());
    let timestamp = (input.u64() as i64).clamp(TIMESTAMP_US.start, TIMESTAMP_US.end);
    let Ok(texts) = std::str::from_utf8(input.rest()) else { return };
    let (first, second) = texts.split_once('|').unwrap_or((texts, "1 mon -1 day"));
    let Some(first) = read(first) else { return };
    round_trip(first);
    let Some(second) = read(second) else { return };
    round_trip(second);
    varve_sql::fuzzing::interval_arithmetic(first, second, by, timestamp, &zone);
}

/// Reads a text as an interval.
fn read(shown: &str) -> Option<Interval> {
    match text::parse_text(shown, &ColumnType::Interval) {
        Ok(Value::Interval(interval)) => Some(interval),
        _ => None,
    }
}

fn round_trip(interval: Interval) {
    let shown = varve_sql::fuzzing::show_interval(interval);
    let back = read(&shown);
    assert_eq!(back, Some(interval), "{shown:?} is read as {back:?}");
    let mut raw = Vec::new();
    let Interval { months, days, micros } = interval;
    let value = Datum::Interval(interval);
    let written = fuzzing::write_binary(value, oid::INTERVAL, &mut raw);
    assert!(written.is_ok(), "{shown:?}: {written:?}");
    let expected = [&micros.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat();
    assert_eq!(raw, expected, "the binary form of {shown:?}");
}
