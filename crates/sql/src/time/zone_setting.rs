//! Reads the setting TimeZone, and writes the zone as SHOW does.
//!
//! This module does not know the rules of zones.

use super::zone::{named, shown_offset};
use super::{IntervalStyle, Zone, parse_interval};
use crate::error::Result;
use crate::lexeme::BLANKS;

/// The limit of offsets, which are smaller than a week.
const OFFSET_END_S: i32 = 168 * 3600;

impl Zone {
    /// Reads a value of the setting TimeZone: hours to the east as a number or an interval, a name, or POSIX
    /// rules. Also returns the text for SHOW.
    ///
    /// # Errors 22007 and others: the text of an interval is not valid.
    pub fn of_setting(value: &str) -> Result<Option<(Zone, String)>> {
        if let Some(rest) = after_interval(value) {
            let Some(text) = quoted(rest) else { return Ok(None) };
            let offset = parse_interval(text, IntervalStyle::Postgres)?;
            let seconds = i32::try_from(offset.micros / 1_000_000).ok();
            let seconds = seconds.filter(|_| offset.months == 0 && offset.days == 0);
            return Ok(seconds.filter(|seconds| seconds.abs() < OFFSET_END_S).map(fixed));
        }
        if let Some(hours) = hours(value) {
            let seconds = (hours * 3600.0).trunc();
            return Ok((seconds.abs() < f64::from(OFFSET_END_S)).then(|| fixed(seconds as i32)));
        }
        Ok(named(value))
    }
}

/// Reads a number like `strtod` of C. Blanks are allowed before it but not after it.
fn hours(value: &str) -> Option<f64> {
    let number = value.trim_start_matches(BLANKS);
    match number.strip_prefix("0x").or_else(|| number.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(f64::from),
        None => number.parse().ok(),
    }
}

/// Returns the text after the word INTERVAL.
fn after_interval(value: &str) -> Option<&str> {
    let (word, rest) = value.split_at_checked("interval".len())?;
    word.eq_ignore_ascii_case("interval").then_some(rest)
}

/// Returns the text in quotes, or `None` if there is anything else.
fn quoted(text: &str) -> Option<&str> {
    let inner = text.trim_start_matches(BLANKS).strip_prefix('\'')?.strip_suffix('\'')?;
    (!inner.contains('\'')).then_some(inner)
}

fn fixed(seconds: i32) -> (Zone, String) {
    // Offsets in POSIX rules count west.
    let west = if seconds == 0 { "-00".to_owned() } else { shown_offset(-seconds) };
    (Zone::Fixed(seconds), format!("<{}>{west}", shown_offset(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_keeps_the_spelling_of_the_database() {
        let spelled = |value: &str| Zone::of_setting(value).unwrap().map(|(_, spelled)| spelled);
        assert_eq!(spelled("europe/berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(spelled("2").as_deref(), Some("<+02>-02"));
        assert_eq!(spelled("<+02>-02").as_deref(), Some("<+02>-02"));
        assert_eq!(Zone::of_setting("<+02>-02").unwrap().unwrap().0, Zone::Fixed(7200));
        assert_eq!(spelled("Posix/europe/berlin").as_deref(), Some("posix/Europe/Berlin"));
        assert_eq!(spelled(" 1.00001").as_deref(), Some("<+01>-01"));
        for unknown in
            ["CEST", "nonsense", "foo", "z", "200", "", "Europe/Nowhere", " Europe/Berlin", "UTC ", "posix/"]
        {
            assert_eq!(spelled(unknown), None, "{unknown}");
        }
    }
}
