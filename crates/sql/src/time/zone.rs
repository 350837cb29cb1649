//! Time zones: fixed offsets, names of the tz database, POSIX rules.
//!
//! Invariants
//! 1. A local time that a clock change skips is read with the offset from before the change. A local time
//!    that occurs twice means the later one (`DetermineTimeZoneOffset` in PostgreSQL).
//! 2. The tz library knows the rules of time zones up to a certain year. A later year uses the rules of an
//!    earlier year, 400 years or a multiple of 400 years before.
//! 3. Offsets count seconds east. Only offsets inside POSIX rules count west.
//!
//! This module does not know the session's setting. The program contains the tz database (decision 0605).

use std::sync::LazyLock;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::{
    DAY_US, UNIX_SHIFT_US, abbreviations, check_timestamp, civil_of, is_infinite, posix_zone, timestamp_range,
};
use crate::error::Result;

/// A time zone.
#[derive(Debug, Clone, PartialEq)]
pub enum Zone {
    /// Seconds east of UTC.
    Fixed(i32),
    /// Offsets that depend on the date.
    Rules(TimeZone),
    /// An abbreviation whose offset has changed over time, such as MSK, and its time zone.
    Abbreviation(&'static str, TimeZone),
}

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The directory of the tz database with time zones without leap seconds.
const POSIX: &str = "posix/";
/// 400 years. After this time, the calendar and the weekdays repeat.
const CYCLE_US: i64 = 146_097 * DAY_US;
/// 2038-01-01. The tz database lists single changes only before this time.
static LISTED_END: LazyLock<jiff::Timestamp> =
    LazyLock::new(|| jiff::Timestamp::from_second(2_145_916_800).unwrap_or(jiff::Timestamp::MAX));
/// 9600-01-01. Later times are moved back by whole cycles.
const RULES_END_US: i64 = 2_775_891 * DAY_US;

impl Zone {
    /// UTC
    pub const UTC: Zone = Zone::Fixed(0);

    /// Returns the time zone that AT TIME ZONE names: an abbreviation, a name, or POSIX rules.
    pub fn of_expression(text: &str) -> Option<Zone> {
        let by_abbreviation = Zone::of_abbreviation(&text.to_ascii_lowercase());
        by_abbreviation.or_else(|| named(text).map(|(zone, _)| zone))
    }

    /// Returns the zone of an abbreviation in lower case.
    pub fn of_abbreviation(lower: &str) -> Option<Zone> {
        if let Some(offset) = abbreviations::offset_of(lower) {
            return Some(Zone::Fixed(offset));
        }
        let (abbreviation, zone) = abbreviations::zone_of(lower)?;
        DATABASE.get(zone).ok().map(|zone| Zone::Abbreviation(abbreviation, zone))
    }

    /// Returns whether the offset depends on the date.
    pub fn has_changed(&self) -> bool {
        let Zone::Rules(rules) = self else { return false };
        let first = rules.to_offset(jiff::Timestamp::MIN);
        rules.following(jiff::Timestamp::MIN).any(|change| change.offset() != first)
    }

    /// Returns the offset at a moment, in seconds east of UTC.
    #[inline]
    pub fn offset_at(&self, utc_us: i64) -> i32 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Rules(rules) => {
                let moment = jiff::Timestamp::from_microsecond(within_rules(utc_us) + UNIX_SHIFT_US);
                moment.map_or(0, |moment| rules.to_offset(moment).seconds())
            }
            Zone::Abbreviation(abbreviation, rules) => abbreviated_offset_at(abbreviation, rules, utc_us),
        }
    }

    /// Returns the abbreviation of the time zone at a moment, such as EDT. For a fixed offset, the result is
    /// its digits.
    pub fn abbreviation_at(&self, utc_us: i64) -> String {
        match self {
            Zone::Fixed(0) => "UTC".to_owned(),
            Zone::Fixed(offset) => shown_offset(*offset),
            Zone::Rules(rules) | Zone::Abbreviation(_, rules) => {
                let moment = jiff::Timestamp::from_microsecond(within_rules(utc_us) + UNIX_SHIFT_US);
                moment.map_or_else(|_| String::new(), |m| rules.to_offset_info(m).abbreviation().to_owned())
            }
        }
    }

    /// Returns whether daylight saving time is in effect at a moment.
    pub fn saves_daylight_at(&self, utc_us: i64) -> bool {
        let (Zone::Rules(rules) | Zone::Abbreviation(_, rules)) = self else { return false };
        let moment = jiff::Timestamp::from_microsecond(within_rules(utc_us) + UNIX_SHIFT_US);
        moment.is_ok_and(|moment| rules.to_offset_info(moment).dst().is_dst())
    }

    /// Returns all zones that have a name, in the order of their names.
    pub fn all() -> Vec<(String, Zone)> {
        let named = |name: jiff::tz::TimeZoneName<'_>| {
            let zone = DATABASE.get(name.as_str()).ok()?;
            Some((name.as_str().to_owned(), Zone::Rules(zone)))
        };
        let mut all: Vec<_> = DATABASE.available().filter_map(named).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Returns the offset for a local time, in seconds east of UTC.
    pub fn offset_at_local(&self, local_us: i64) -> i32 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Abbreviation(_, rules) => {
                let seconds = Zone::Rules(rules.clone()).offset_at_local(local_us);
                self.offset_at(local_us.saturating_sub(i64::from(seconds) * 1_000_000))
            }
            Zone::Rules(rules) => {
                match rules.to_ambiguous_timestamp(civil(within_rules(local_us))).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset.seconds(),
                    AmbiguousOffset::Gap { before, .. } => before.seconds(),
                    AmbiguousOffset::Fold { after, .. } => after.seconds(),
                }
            }
        }
    }

    /// Returns the local time at a moment. Infinities stay unchanged.
    pub fn to_local(&self, utc_us: i64) -> Result<i64> {
        moved(utc_us, i64::from(self.offset_at(utc_us)))
    }

    /// Returns the moment of a local time. Infinities stay unchanged.
    pub fn to_utc(&self, local_us: i64) -> Result<i64> {
        moved(local_us, -i64::from(self.offset_at_local(local_us)))
    }
}

/// Returns the offset that the abbreviation had at a moment or last before it. If it had no offset by then,
/// returns the first offset after the moment. If the time zone has no change with this abbreviation, returns
/// the offset of the time zone itself.
fn abbreviated_offset_at(abbreviation: &str, rules: &TimeZone, utc_us: i64) -> i32 {
    let Ok(moment) = jiff::Timestamp::from_microsecond(within_rules(utc_us) + UNIX_SHIFT_US) else {
        return 0;
    };
    let info = rules.to_offset_info(moment);
    if info.abbreviation().eq_ignore_ascii_case(abbreviation) {
        return info.offset().seconds();
    }
    let is_meant =
        |change: &jiff::tz::TimeZoneTransition<'_>| change.abbreviation().eq_ignore_ascii_case(abbreviation);
    // Rules without an end have no last change. So only the changes that the tz database lists are searched.
    let listed = |change: &jiff::tz::TimeZoneTransition<'_>| change.timestamp() < *LISTED_END;
    let before = rules.preceding(moment).find(is_meant);
    let after = || rules.following(moment).take_while(listed).find(is_meant);
    before.or_else(after).map_or_else(|| info.offset().seconds(), |change| change.offset().seconds())
}

fn moved(us: i64, seconds: i64) -> Result<i64> {
    if is_infinite(us) {
        return Ok(us);
    }
    us.checked_add(seconds * 1_000_000).and_then(check_timestamp).ok_or_else(timestamp_range)
}

fn within_rules(us: i64) -> i64 {
    if us < RULES_END_US { us } else { us - ((us - RULES_END_US) / CYCLE_US + 1) * CYCLE_US }
}

fn civil(us: i64) -> DateTime {
    let (year, month, day) = civil_of(us.div_euclid(DAY_US));
    let of_day = us.rem_euclid(DAY_US);
    let part = |unit: i64, modulus: i64| (of_day / unit % modulus) as i8;
    // Every part is in its range. Only an infinity could fail here, and callers never pass one.
    DateTime::new(
        year as i16,
        month as i8,
        day as i8,
        part(3_600_000_000, 24),
        part(60_000_000, 60),
        part(1_000_000, 60),
        (of_day % 1_000_000 * 1000) as i32,
    )
    .unwrap_or(DateTime::ZERO)
}

/// Returns an offset as `+hh`, with minutes and seconds if they are not zero.
pub(super) fn shown_offset(seconds: i32) -> String {
    let abs = seconds.unsigned_abs();
    let mut out = format!("{}{:02}", if seconds < 0 { '-' } else { '+' }, abs / 3600);
    if !abs.is_multiple_of(3600) {
        out.push_str(&format!(":{:02}", abs / 60 % 60));
    }
    if !abs.is_multiple_of(60) {
        out.push_str(&format!(":{:02}", abs % 60));
    }
    out
}

/// Finds a time zone by its name in the tz database, or by POSIX rules. Also returns the name as the database
/// spells it, or the rules in upper case.
pub(super) fn named(text: &str) -> Option<(Zone, String)> {
    // As in the environment variable TZ, a name of the database follows a colon.
    if let Some(name) = text.strip_prefix(':') {
        return of_database(name);
    }
    let of_rules = || {
        let rules = text.to_ascii_uppercase();
        posix_zone::zone(&rules).map(|zone| (zone, rules))
    };
    of_database(text).or_else(of_rules)
}

fn of_database(text: &str) -> Option<(Zone, String)> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "" | "local" => return None,
        "localtime" => return of_machine().map(|zone| (zone, lower)),
        "posixrules" => return DATABASE.get("America/New_York").ok().map(|zone| (Zone::Rules(zone), lower)),
        "utc" | "etc/utc" | "uct" | "zulu" => {
            let spelled = DATABASE.get(text).ok().and_then(|found| found.iana_name().map(str::to_owned));
            return Some((Zone::UTC, spelled.unwrap_or_else(|| text.to_owned())));
        }
        _ => {}
    }
    // The tz database has all time zones a second time in this directory, without leap seconds. Both copies
    // are the same here.
    if lower.starts_with(POSIX) {
        let (zone, spelled) =
            text.get(POSIX.len()..).filter(|rest| !is_of_machine(rest)).and_then(of_database)?;
        return Some((zone, format!("{POSIX}{spelled}")));
    }
    let found = DATABASE.get(text).ok()?;
    let spelled = found.iana_name().unwrap_or(text).to_owned();
    Some((Zone::Rules(found), spelled))
}

/// Returns whether a name cannot follow the prefix `posix/`, because the tz database has no such name in its
/// directories.
fn is_of_machine(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower == "localtime" || lower.starts_with(POSIX)
}

/// Returns the time zone of the machine.
fn of_machine() -> Option<Zone> {
    let rules = std::fs::read("/etc/localtime").ok()?;
    TimeZone::tzif("localtime", &rules).ok().map(Zone::Rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Reading, TimeForms, parse_timestamp, parse_timestamptz, write_timestamp};

    /// The expected texts are those of PostgreSQL 15 after `SET timezone = ...`. Each line has the time zone,
    /// the input and the text.
    #[test]
    fn zones_with_rules_are_as_in_postgresql() {
        for (zone, input, expected) in [
            ("Europe/Berlin", "2024-07-01 12:00", "2024-07-01 12:00:00+02"),
            ("europe/berlin", "2024-01-01 12:00", "2024-01-01 12:00:00+01"),
            ("Europe/Berlin", "2024-03-31 02:30", "2024-03-31 03:30:00+02"),
            ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27 02:30:00+01"),
            ("Europe/Berlin", "1800-07-01 00:00Z", "1800-07-01 00:53:28+00:53:28"),
            ("Europe/Berlin", "20240-07-01 00:00", "20240-07-01 00:00:00+02"),
            ("Asia/Kolkata", "2024-07-01 00:00 America/New_York", "2024-07-01 09:30:00+05:30"),
            ("+02:00", "2024-07-01 00:00Z", "2024-06-30 22:00:00-02"),
            ("EST5EDT", "2024-07-01 00:00Z", "2024-06-30 20:00:00-04"),
            ("UTC+3", "2024-07-01 00:00 CEST", "2024-06-30 19:00:00-03"),
            ("Europe/Berlin", "294277-01-01 00:59:59+01", "294277-01-01 00:59:59+01"),
            ("-3.5", "2024-07-01 00:00Z", "2024-06-30 20:30:00-03:30"),
        ] {
            let (zone, _) = Zone::of_setting(zone).unwrap().unwrap();
            let forms = TimeForms::of_zone(zone);
            let mut out = Vec::new();
            let read = parse_timestamptz(input, &Reading::of(&forms)).unwrap();
            write_timestamp(read, true, &forms, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{input}");
        }
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let berlin = Zone::of_setting("Europe/Berlin").unwrap().unwrap().0;
        let last = parse_timestamp("294276-12-31 23:59:59.999999", &Reading::plain()).unwrap();
        assert!(berlin.to_local(last).is_err());
        let mut out = Vec::new();
        write_timestamp(last, true, &TimeForms::of_zone(berlin.clone()), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "294277-01-01 00:59:59.999999+01");
        assert_eq!(berlin.to_local(i64::MAX).unwrap(), i64::MAX);
    }
}
