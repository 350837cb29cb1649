//! The text forms of date and timestamp (DateStyle ISO, MDY).
//!
//! Invariants
//! 1. What is written here is read back by `read` as the same value.
//!
//! Does not know: intervals (`interval`).

use super::{DAY_US, Zone, civil_of};

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

/// Appends a time of day.
pub fn write_time(us: i64, out: &mut Vec<u8>) {
    write_clock(us.unsigned_abs(), out);
}

/// Appends `hh:mm:ss[.ffffff]`, trailing zeros of the fraction cut.
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

/// Appends a timestamp; with `zone` as a timestamptz, which is shown in that zone with its offset.
pub fn write_timestamp(ts: i64, zone: Option<&Zone>, out: &mut Vec<u8>) {
    match ts {
        i64::MAX => return out.extend_from_slice(b"infinity"),
        i64::MIN => return out.extend_from_slice(b"-infinity"),
        _ => {}
    }
    let offset = zone.map(|zone| zone.offset_at(ts));
    // The local time may lie outside what a timestamp can hold.
    let of_day = ts.rem_euclid(DAY_US) + i64::from(offset.unwrap_or(0)) * 1_000_000;
    let bc = write_day(ts.div_euclid(DAY_US) + of_day.div_euclid(DAY_US), out);
    out.push(b' ');
    write_clock(of_day.rem_euclid(DAY_US) as u64, out);
    if let Some(offset) = offset {
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
    if !abs.is_multiple_of(60) {
        out.push(b':');
        two(out, abs % 60);
    }
}
