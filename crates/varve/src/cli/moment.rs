//! Reads and shows moments to which a database is restored.

use varve_pager::{Lsn, TimelineName, Until};
use varve_sql::time::{PLAIN, Reading, UNIX_SHIFT_US, parse_timestamptz, write_timestamp};

/// Reads a moment: `latest`, an LSN, or a time. A time without a time zone is in UTC.
pub fn until(text: &str) -> Result<Until, String> {
    if text == "latest" {
        return Ok(Until::Latest);
    }
    if let Some(lsn) = Lsn::parse(text) {
        return Ok(Until::Lsn(lsn));
    }
    let time = parse_timestamptz(text, &Reading::of(&PLAIN)).ok();
    let time = time.and_then(|us| us.checked_add(UNIX_SHIFT_US)).and_then(|us| u64::try_from(us).ok());
    let wrong = "is no moment: write \"latest\", an LSN such as 0/1A2B3C, or a time such as \"2026-11-30 12:00:00+01\"";
    time.map(Until::TimeUs).ok_or_else(|| wrong.to_owned())
}

/// Reads the number of a timeline, or its name, `DATABASE-NUMBER`. A restore only looks at timelines of the
/// database of the backup.
pub fn timeline(text: &str) -> Result<u64, String> {
    let named = TimelineName::of(text).map(|name| name.timeline);
    let number = named.or_else(|| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| {
        "is no timeline: write its hexadecimal number, or DATABASE-NUMBER as SHOW varve.archive prints it"
            .to_owned()
    })
}

/// Shows microseconds since 1970.
pub fn shown(time_us: u64) -> String {
    let mut out = Vec::new();
    let us = i64::try_from(time_us).unwrap_or(i64::MAX).saturating_sub(UNIX_SHIFT_US);
    write_timestamp(us, true, &PLAIN, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_are_read() {
        assert_eq!(timeline("ab"), Ok(0xAB));
        assert_eq!(timeline("0000000000000005-00000000000000ab"), Ok(0xAB));
        for wrong in ["", "5-", "5-ab", "x"] {
            assert!(timeline(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_read() {
        assert_eq!(until("latest"), Ok(Until::Latest));
        assert_eq!(until("1/A0"), Ok(Until::Lsn(Lsn::new((1 << 32) + 0xA0))));
        assert_eq!(until("2000-01-01 00:00:00.5+00"), Ok(Until::TimeUs(946_684_800_500_000)));
        assert_eq!(until("2000-01-01 01:00:00+01"), Ok(Until::TimeUs(946_684_800_000_000)));
        assert_eq!(until("2000-01-01"), Ok(Until::TimeUs(946_684_800_000_000)));
        for wrong in ["", "yesterday evening", "1/", "1969-12-31", "infinity"] {
            assert!(until(wrong).is_err(), "{wrong}");
        }
        assert_eq!(shown(946_684_800_500_000), "2000-01-01 00:00:00.5+00");
    }
}
