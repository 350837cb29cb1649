//! Writes dates and timestamps as text, in each DateStyle.
//!
//! Invariants
//! 1. `read` reads the written text back as the same value, if the style is the same.
//!
//! This module does not know intervals (`interval`).

use super::style::{DateOrder, DateOutput, DateStyle, TimeForms};
use super::{DAY_US, civil_of};

const WEEKDAYS: [&str; 7] = ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Appends a date.
pub fn write_date(days: i32, style: DateStyle, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        d => {
            if write_day(i64::from(d), style, out) {
                out.extend_from_slice(b" BC");
            }
        }
    }
}

/// Appends the date without the suffix BC, which comes last. Returns whether the date is BC.
fn write_day(days: i64, style: DateStyle, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil_of(days);
    let days_first = style.order == DateOrder::Dmy;
    let (sign, first, second) = match style.output {
        DateOutput::Iso => {
            write_year(year, out);
            for part in [month, day] {
                out.push(b'-');
                two(out, part);
            }
            return year <= 0;
        }
        DateOutput::German => (b'.', day, month),
        DateOutput::Sql if days_first => (b'/', day, month),
        DateOutput::Sql => (b'/', month, day),
        DateOutput::Postgres if days_first => (b'-', day, month),
        DateOutput::Postgres => (b'-', month, day),
    };
    for part in [first, second] {
        two(out, part);
        out.push(sign);
    }
    write_year(year, out);
    year <= 0
}

fn write_year(year: i64, out: &mut Vec<u8>) {
    let shown = if year > 0 { year } else { 1 - year };
    if shown >= 10_000 {
        out.extend_from_slice(itoa::Buffer::new().format(shown).as_bytes());
    } else {
        two(out, (shown / 100) as u32);
        two(out, (shown % 100) as u32);
    }
}

fn two(out: &mut Vec<u8>, n: u32) {
    out.push(b'0' + (n / 10) as u8);
    out.push(b'0' + (n % 10) as u8);
}

/// Appends a time of day.
pub fn write_time(us: i64, out: &mut Vec<u8>) {
    write_clock(us.unsigned_abs(), out);
}

/// Appends `hh:mm:ss[.ffffff]`, without trailing zeros of the fraction.
pub(super) fn write_clock(us: u64, out: &mut Vec<u8>) {
    let seconds = us / 1_000_000;
    match seconds / 3600 {
        hours @ ..100 => two(out, hours as u32),
        hours => out.extend_from_slice(itoa::Buffer::new().format(hours).as_bytes()),
    }
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

/// Appends a timestamp. A timestamptz (`zoned`) is written in local time, with the time zone.
pub fn write_timestamp(ts: i64, zoned: bool, forms: &TimeForms, out: &mut Vec<u8>) {
    match ts {
        i64::MAX => return out.extend_from_slice(b"infinity"),
        i64::MIN => return out.extend_from_slice(b"-infinity"),
        _ => {}
    }
    let offset = zoned.then(|| forms.zone.offset_at(ts));
    // The local time may be out of the range of timestamps.
    let local_us = ts.rem_euclid(DAY_US) + i64::from(offset.unwrap_or(0)) * 1_000_000;
    let days = ts.div_euclid(DAY_US) + local_us.div_euclid(DAY_US);
    let time_us = local_us.rem_euclid(DAY_US) as u64;
    let bc = if forms.dates.output == DateOutput::Postgres {
        write_in_words(days, time_us, forms.dates.order, out)
    } else {
        let bc = write_day(days, forms.dates, out);
        out.push(b' ');
        write_clock(time_us, out);
        bc
    };
    match offset {
        Some(offset) if forms.dates.output == DateOutput::Iso => write_offset(offset, out),
        Some(_) => {
            out.push(b' ');
            out.extend_from_slice(forms.zone.abbreviation_at(ts).as_bytes());
        }
        None => {}
    }
    if bc {
        out.extend_from_slice(b" BC");
    }
}

/// Appends a timestamp like `Wed Dec 17 07:37:16 1997`.
fn write_in_words(days: i64, time_us: u64, order: DateOrder, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil_of(days);
    let month = MONTHS[month as usize - 1];
    out.extend_from_slice(WEEKDAYS[days.rem_euclid(7) as usize].as_bytes());
    let date = match order {
        DateOrder::Dmy => format!(" {day:02} {month} "),
        _ => format!(" {month} {day:02} "),
    };
    out.extend_from_slice(date.as_bytes());
    write_clock(time_us, out);
    out.push(b' ');
    write_year(year, out);
    year <= 0
}

fn write_offset(offset: i32, out: &mut Vec<u8>) {
    out.push(if offset < 0 { b'-' } else { b'+' });
    let abs = offset.unsigned_abs();
    match abs / 3600 {
        hours @ ..100 => two(out, hours),
        hours => out.extend_from_slice(hours.to_string().as_bytes()),
    }
    if !abs.is_multiple_of(3600) {
        out.push(b':');
        two(out, abs / 60 % 60);
    }
    if !abs.is_multiple_of(60) {
        out.push(b':');
        two(out, abs % 60);
    }
}
