//! The style in which a session reads and writes times: its time zone, DateStyle and IntervalStyle.
//!
//! This module does not know how a setting is changed.

use std::cell::Cell;

use super::Zone;

/// The order of day, month and year in a date of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateOrder {
    /// Year, month, day.
    Ymd,
    /// Day, month, year.
    Dmy,
    /// Month, day, year.
    Mdy,
}

/// The form in which dates are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateOutput {
    /// 1997-12-17 07:37:16-08
    Iso,
    /// 12/17/1997 07:37:16 PST
    Sql,
    /// Wed Dec 17 07:37:16 1997 PST
    Postgres,
    /// 17.12.1997 07:37:16 PST
    German,
}

/// The setting DateStyle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateStyle {
    /// The form in which dates are shown.
    pub output: DateOutput,
    /// The order in which the numbers of a date are read. The outputs SQL and Postgres show dates in this
    /// order, too.
    pub order: DateOrder,
}

/// The reason why a text is not a value of DateStyle.
#[derive(Debug, PartialEq, Eq)]
pub enum NoDateStyle {
    /// A word is not a style.
    Unknown(String),
    /// The text has two outputs or two orders.
    Conflict,
}

impl DateStyle {
    /// The style `ISO, MDY`.
    pub const ISO: DateStyle = DateStyle { output: DateOutput::Iso, order: DateOrder::Mdy };

    /// Returns the style described by a list of words. Parts without a word stay as in `before`. `reset` is
    /// the meaning of DEFAULT.
    pub fn of_setting(value: &str, before: DateStyle, reset: DateStyle) -> Result<DateStyle, NoDateStyle> {
        let (mut output, mut order) = (None, None);
        let mut fallback = before;
        for word in value.split(',') {
            let word = word.trim().trim_matches('"');
            let lower = word.to_ascii_lowercase();
            if let Some(named) = output_of(&lower) {
                conflict(output.replace(named), named)?;
            } else if let Some(named) = order_of(&lower) {
                conflict(order.replace(named), named)?;
            } else if lower == "default" {
                fallback = reset;
            } else if !(word.is_empty() && value.trim().is_empty()) {
                return Err(NoDateStyle::Unknown(word.to_owned()));
            }
        }
        // The output German has its own order.
        if output == Some(DateOutput::German) {
            order = order.or(Some(DateOrder::Dmy));
        }
        Ok(DateStyle { output: output.unwrap_or(fallback.output), order: order.unwrap_or(fallback.order) })
    }

    /// Returns the text that SHOW prints.
    pub const fn name(self) -> &'static str {
        use {DateOrder::*, DateOutput::*};
        match (self.output, self.order) {
            (Iso, Ymd) => "ISO, YMD",
            (Iso, Dmy) => "ISO, DMY",
            (Iso, Mdy) => "ISO, MDY",
            (Sql, Ymd) => "SQL, YMD",
            (Sql, Dmy) => "SQL, DMY",
            (Sql, Mdy) => "SQL, MDY",
            (Postgres, Ymd) => "Postgres, YMD",
            (Postgres, Dmy) => "Postgres, DMY",
            (Postgres, Mdy) => "Postgres, MDY",
            (German, Ymd) => "German, YMD",
            (German, Dmy) => "German, DMY",
            (German, Mdy) => "German, MDY",
        }
    }
}

fn conflict<T: PartialEq>(before: Option<T>, now: T) -> Result<(), NoDateStyle> {
    if before.is_none_or(|before| before == now) { Ok(()) } else { Err(NoDateStyle::Conflict) }
}

fn output_of(lower: &str) -> Option<DateOutput> {
    Some(match lower {
        "iso" => DateOutput::Iso,
        "sql" => DateOutput::Sql,
        "german" => DateOutput::German,
        _ if lower.starts_with("postgres") => DateOutput::Postgres,
        _ => return None,
    })
}

fn order_of(lower: &str) -> Option<DateOrder> {
    Some(match lower {
        "ymd" => DateOrder::Ymd,
        "dmy" => DateOrder::Dmy,
        "mdy" => DateOrder::Mdy,
        _ if lower.starts_with("euro") => DateOrder::Dmy,
        _ if lower.starts_with("us") || lower.starts_with("noneuro") => DateOrder::Mdy,
        _ => return None,
    })
}

/// The setting IntervalStyle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalStyle {
    /// 1 year 2 mons -3 days +04:05:06
    Postgres,
    /// @ 1 year 2 mons -3 days 4 hours 5 mins 6 secs
    PostgresVerbose,
    /// +1-2 -3 +4:05:06
    SqlStandard,
    /// P1Y2M-3DT4H5M6S
    Iso8601,
}

impl IntervalStyle {
    /// Returns the style of this name, in upper or lower case.
    pub fn of_setting(value: &str) -> Option<IntervalStyle> {
        Some(match value.to_ascii_lowercase().as_str() {
            "postgres" => IntervalStyle::Postgres,
            "postgres_verbose" => IntervalStyle::PostgresVerbose,
            "sql_standard" => IntervalStyle::SqlStandard,
            "iso_8601" => IntervalStyle::Iso8601,
            _ => return None,
        })
    }
}

/// The forms in which times are written.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeForms {
    /// The time zone.
    pub zone: Zone,
    /// DateStyle
    pub dates: DateStyle,
    /// IntervalStyle
    pub intervals: IntervalStyle,
}

/// UTC and ISO. Values that belong to no session are written in this form.
pub static PLAIN: TimeForms = TimeForms::of_zone(Zone::UTC);

impl TimeForms {
    /// Returns the styles that a session begins with, in this zone.
    pub const fn of_zone(zone: Zone) -> TimeForms {
        TimeForms { zone, dates: DateStyle::ISO, intervals: IntervalStyle::Postgres }
    }
}

/// The settings for reading times: the forms in which they are written, and the clock for `now` and `today`.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The session's forms.
    pub forms: &'a TimeForms,
    clock: Option<&'a Cell<Option<i64>>>,
}

impl<'a> Reading<'a> {
    /// Returns settings with this clock. `clock` is the start of the transaction, in microseconds since
    /// 2000-01-01 UTC. It is set at the first use.
    pub const fn new(forms: &'a TimeForms, clock: &'a Cell<Option<i64>>) -> Reading<'a> {
        Reading { forms, clock: Some(clock) }
    }

    /// Returns settings with these forms. `now` means the time of reading.
    pub const fn of(forms: &'a TimeForms) -> Reading<'a> {
        Reading { forms, clock: None }
    }

    /// Returns settings for UTC and ISO form.
    pub fn plain() -> Reading<'static> {
        Reading::of(&PLAIN)
    }

    /// Returns the value of `now`, in microseconds since 2000-01-01 UTC.
    pub fn now_us(&self) -> i64 {
        let now = self.clock.and_then(Cell::get).unwrap_or_else(super::clock_us);
        if let Some(clock) = self.clock {
            clock.set(Some(now));
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_style_replace_what_they_name() {
        let set = |value: &str| DateStyle::of_setting(value, DateStyle::ISO, DateStyle::ISO);
        for (value, shown) in [
            ("SQL", "SQL, MDY"),
            ("german", "German, DMY"),
            ("German, YMD", "German, YMD"),
            ("postgresql, european", "Postgres, DMY"),
            ("US", "ISO, MDY"),
            ("ymd", "ISO, YMD"),
            ("sql,sql", "SQL, MDY"),
            ("default", "ISO, MDY"),
            ("", "ISO, MDY"),
        ] {
            assert_eq!(set(value).map(DateStyle::name), Ok(shown), "{value}");
        }
        assert_eq!(set("sql, iso"), Err(NoDateStyle::Conflict));
        assert_eq!(set("mdy, dmy"), Err(NoDateStyle::Conflict));
        assert_eq!(set("foo"), Err(NoDateStyle::Unknown("foo".to_owned())));
    }
}
