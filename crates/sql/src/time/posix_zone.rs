//! Time zones that are written as POSIX rules: `EST5EDT,M3.2.0,M11.1.0`, `<+02>-02`, `+5`.
//!
//! The reading is as lenient as PostgreSQL's `tzparse`: a name may be empty or have any characters, and rules
//! may be missing.
//!
//! This module does not know names of the tz database.

use jiff::tz::TimeZone;

use super::zone::{Zone, shown_offset};

/// The rules for daylight saving time if the text has none: those of New York.
const USUAL_RULES: &str = "M3.2.0,M11.1.0";
/// The shortest name that the library accepts.
const NAME_CHARS_MIN: usize = 3;

/// Makes the time zone of POSIX rules, which are in upper case. Offsets in the rules count west.
pub(super) fn zone(text: &str) -> Option<Zone> {
    let (standard, rest) = name(text)?;
    let (west_s, rest) = offset(rest)?;
    if rest.is_empty() {
        return Some(without_summer_time(standard, west_s));
    }
    let (summer, rest) = name(rest).filter(|(summer, _)| !summer.is_empty())?;
    let (summer_west_s, rest) = match rest.chars().next() {
        None | Some(',' | ';') => (west_s - 3600, rest),
        Some(_) => offset(rest)?,
    };
    let rules = match rest.strip_prefix([',', ';']) {
        Some(rules) => rules,
        None if rest.is_empty() => USUAL_RULES,
        None => return None,
    };
    let rules =
        format!("{}{}{}{},{rules}", quoted(standard), clock(west_s), quoted(summer), clock(summer_west_s));
    TimeZone::posix(&rules).ok().map(Zone::Rules)
}

fn without_summer_time(standard: &str, west_s: i32) -> Zone {
    let fixed = Zone::Fixed(-west_s);
    if standard.is_empty() || standard == shown_offset(-west_s) {
        return fixed;
    }
    TimeZone::posix(&format!("{}{}", quoted(standard), clock(west_s))).map_or(fixed, Zone::Rules)
}

/// Reads a name. Also returns the rest. A sign or digit ends a name without brackets.
fn name(text: &str) -> Option<(&str, &str)> {
    if let Some(bracketed) = text.strip_prefix('<') {
        return bracketed.split_once('>');
    }
    let ends = |c: char| c.is_ascii_digit() || matches!(c, ',' | '-' | '+');
    Some(text.split_at(text.find(ends).unwrap_or(text.len())))
}

/// Reads `[+-]h[:m[:s]]` in seconds. Also returns the rest.
fn offset(text: &str) -> Option<(i32, &str)> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, mut rest) = number(text, 167)?;
    let (mut minutes, mut seconds) = (0, 0);
    if let Some(behind) = rest.strip_prefix(':') {
        (minutes, rest) = number(behind, 59)?;
        if let Some(behind) = rest.strip_prefix(':') {
            (seconds, rest) = number(behind, 60)?;
        }
    }
    Some((sign * (hours * 3600 + minutes * 60 + seconds), rest))
}

/// Reads a number up to `max`. Also returns the rest.
fn number(text: &str, max: i32) -> Option<(i32, &str)> {
    let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    digits.parse().ok().filter(|number| *number <= max).map(|number| (number, rest))
}

/// Returns the name in a form that the library accepts. Other characters are dropped, because the name is
/// never shown.
fn quoted(name: &str) -> String {
    let plain = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+'));
    format!("<{:-<NAME_CHARS_MIN$}>", plain.collect::<String>())
}

fn clock(seconds: i32) -> String {
    let abs = seconds.unsigned_abs();
    let sign = if seconds < 0 { "-" } else { "" };
    format!("{sign}{}:{:02}:{:02}", abs / 3600, abs / 60 % 60, abs % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_postgresql_reads_them() {
        for (text, expected) in [
            ("+5", Some(-5 * 3600)),
            ("-05:30", Some(5 * 3600 + 1800)),
            ("+5:3", Some(-5 * 3600 - 180)),
            ("+167", Some(-167 * 3600)),
            ("+168", None),
            ("+0530", None),
            ("+05:60", None),
            ("+5:", None),
            ("<>5", Some(-5 * 3600)),
            ("<+02>2", Some(-2 * 3600)),
            ("NAME", None),
            ("", None),
        ] {
            assert_eq!(zone(text).map(|zone| zone.offset_at(0)), expected, "{text}");
        }
    }

    #[test]
    fn summer_time_without_rules_is_that_of_new_york() {
        for (text, winter_s, summer_s) in [
            ("FOO5BAR", -5 * 3600, -4 * 3600),
            ("FOO5BAR4,J60/2,J300/2", -5 * 3600, -4 * 3600),
            ("FOO5BAR6;M3.2.0,M11.1.0", -5 * 3600, -6 * 3600),
            ("1 ", -3600, 0),
        ] {
            let zone = zone(text).unwrap();
            // 2000-01-01, 2000-07-01
            let offsets = [0, 182 * super::super::DAY_US].map(|moment| zone.offset_at(moment));
            assert_eq!(offsets, [winter_s, summer_s], "{text}");
        }
    }
}
