//! The setting TimeZone: which zone a text means, and how SHOW writes the zone.
//!
//! Does not know: the rules of zones.

use super::zone::{named, shown_offset};
use super::{IntervalStyle, Zone, parse_interval};

/// Offsets are smaller than a week.
const OFFSET_END_S: i32 = 168 * 3600;

impl Zone {
    /// The value of the setting TimeZone and how SHOW spells it: hours east as a number or an interval, a
    /// name, or POSIX rules.
    pub fn of_setting(value: &str) -> Option<(Zone, String)> {
        let value = value.trim();
        if let Ok(hours) = value.parse::<f64>() {
            let seconds = (hours * 3600.0).round();
            return (seconds.abs() < f64::from(OFFSET_END_S)).then(|| fixed(seconds as i32));
        }
        if let Some(text) = interval_text(value) {
            let offset = parse_interval(text, IntervalStyle::Postgres)
                .ok()
                .filter(|i| i.months == 0 && i.days == 0)?;
            let seconds = i32::try_from(offset.micros / 1_000_000).ok()?;
            return (seconds.abs() < OFFSET_END_S).then(|| fixed(seconds));
        }
        named(value)
    }
}

/// What stands in quotes behind INTERVAL.
fn interval_text(value: &str) -> Option<&str> {
    let (word, rest) = value.split_at_checked("interval".len())?;
    let quoted = rest.trim().strip_prefix('\'')?.strip_suffix('\'')?;
    word.eq_ignore_ascii_case("interval").then_some(quoted)
}

fn fixed(seconds: i32) -> (Zone, String) {
    // POSIX rules count west.
    let west = if seconds == 0 { "-00".to_owned() } else { shown_offset(-seconds) };
    (Zone::Fixed(seconds), format!("<{}>{west}", shown_offset(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_keeps_the_spelling_of_the_database() {
        let spelled = |value: &str| Zone::of_setting(value).map(|(_, spelled)| spelled);
        assert_eq!(spelled("europe/berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(spelled("2").as_deref(), Some("<+02>-02"));
        assert_eq!(spelled("<+02>-02").as_deref(), Some("<+02>-02"));
        assert_eq!(Zone::of_setting("<+02>-02").unwrap().0, Zone::Fixed(7200));
        for unknown in ["CEST", "nonsense", "foo", "z", "200", "", "Europe/Nowhere"] {
            assert_eq!(spelled(unknown), None, "{unknown}");
        }
    }
}
