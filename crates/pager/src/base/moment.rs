//! Times for messages.
//!
//! This module does not know clocks.

use std::fmt;

/// Microseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) u64);

const DAY_SECONDS: u64 = 86_400;

/// Returns year, month and day of the day after this number of days since 1970. The years of the calculation
/// begin in March (Hinnant, "chrono-compatible low-level date algorithms").
fn civil_of(days: u64) -> [u64; 3] {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    [era * 400 + year + u64::from(month <= 2), month, day]
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, us) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let [year, month, day] = civil_of(seconds / DAY_SECONDS);
        let of_day = seconds % DAY_SECONDS;
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{us:06} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_shown() {
        let shown = |us| Moment(us).to_string();
        assert_eq!(shown(0), "1970-01-01 00:00:00.000000 UTC");
        assert_eq!(shown(951_782_400_000_001), "2000-02-29 00:00:00.000001 UTC");
        assert_eq!(shown(1_796_083_199_999_999), "2026-11-30 23:59:59.999999 UTC");
    }
}
