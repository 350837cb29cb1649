//! Reads intervals: numbers with units, clock times, `years-months`, `ago`. The formats of ISO 8601 are in
//! `iso_interval`.
//!
//! Invariants
//! 1. Fields are read from the last to the first, because a unit follows its number.
//! 2. Each unit may occur once.
//!
//! This module does not know how an interval is stored. The behaviour is that of `DecodeInterval` in
//! PostgreSQL's `datetime.c`.

use varve_engine::Interval;

use super::decode::clock_parts;
use super::fields::{IntervalFields, LastField};
use super::interval::whole;
use super::read::syntax;
use super::style::IntervalStyle;
use super::tokens::{self, Field, Kind};
use super::{DAY_US, HOUR_US, interval_range, iso_interval, words};
use crate::error::{Result, SqlError, SqlState};

/// The reason why a text is not an interval: its form is wrong, or a field is out of its range.
pub(super) enum Bad {
    Format,
    Range,
}

/// Reads an interval. In the style `sql_standard` the sign of the first field is the sign of all fields.
pub fn parse_interval(text: &str, style: IntervalStyle) -> Result<Interval> {
    parse_interval_of(text, style, IntervalFields::ALL)
}

/// Reads an interval of a type with these fields. The fields decide the unit of a number without a unit.
/// Units that the type does not keep are read, too, and `fit` drops them.
pub fn parse_interval_of(text: &str, style: IntervalStyle, kept: IntervalFields) -> Result<Interval> {
    let fields = tokens::fields(text);
    let read = match &fields {
        Some(fields) => Spans::read(fields, style, kept),
        None => Err(Bad::Format),
    };
    let read = match read {
        Err(Bad::Format) => iso_interval::parse(text),
        other => other,
    };
    read.map_err(|bad| match bad {
        Bad::Format => syntax("interval", text),
        Bad::Range => {
            let message = format!("interval field value out of range: \"{text}\"");
            SqlError::new(SqlState::INTERVAL_OVERFLOW, message)
        }
    })?
    .interval()
}

/// The fields of an interval that have been read. Reading goes from the last field to the first.
struct Spans {
    /// The fields of the type.
    kept: IntervalFields,
    parts: Parts,
    /// The units that have a value, as bits.
    seen: u16,
    /// The unit of the next number.
    unit: Option<Unit>,
    is_past: bool,
    /// Whether the minus sign of the first field counts for all fields.
    is_negative: bool,
}

impl Spans {
    fn read(fields: &[Field], style: IntervalStyle, kept: IntervalFields) -> std::result::Result<Parts, Bad> {
        let has_sign = |field: &Field| field.text.starts_with(['+', '-']);
        let is_negative = style == IntervalStyle::SqlStandard
            && fields.first().is_some_and(|first| first.text.starts_with('-'))
            && !fields[1..].iter().any(has_sign);
        let parts = Parts::default();
        let mut spans = Spans { kept, parts, seen: 0, unit: None, is_past: false, is_negative };
        for field in fields.iter().rev() {
            let set = match field.kind {
                Kind::Time => spans.clock(&field.text)?,
                Kind::Signed => match field.text[1..].contains(':') {
                    true => spans.clock(&field.text)?,
                    false => spans.amount(&field.text)?,
                },
                Kind::Date | Kind::Number => spans.amount(&field.text)?,
                Kind::Word | Kind::SignedWord => spans.word(&field.text)?,
            };
            if spans.seen & set != 0 {
                return Err(Bad::Format);
            }
            spans.seen |= set;
        }
        match (spans.seen, spans.is_past) {
            (0, _) => Err(Bad::Format),
            (_, true) => spans.parts.negated().ok_or(Bad::Range),
            (_, false) => Ok(spans.parts),
        }
    }

    fn clock(&mut self, text: &str) -> std::result::Result<u16, Bad> {
        let (sign, clock) = signed(text);
        let sign = if self.is_negative { -1 } else { sign };
        let [mut hour, mut minute, mut second, us] = clock_parts(clock).map_err(|bad| match bad {
            super::decode::Bad::Range => Bad::Range,
            _ => Bad::Format,
        })?;
        if self.kept.is_minute_to_second() && !clock.contains('.') && clock.matches(':').count() == 1 {
            (hour, minute, second) = (0, hour, minute);
            if minute > 59 {
                return Err(Bad::Range);
            }
        }
        let us = (minute * 60 + second) * 1_000_000 + us;
        let us = hour.checked_mul(HOUR_US).and_then(|hours| hours.checked_add(us)).ok_or(Bad::Range)?;
        self.parts.micros = self.parts.micros.checked_add(sign * us).ok_or(Bad::Range)?;
        // A number before a time of day counts days.
        self.unit = Some(Unit::Days(1));
        Ok(CLOCK)
    }

    fn amount(&mut self, text: &str) -> std::result::Result<u16, Bad> {
        let mut unit = self.unit.unwrap_or_else(|| Unit::smallest_of(self.kept));
        let (sign, bare) = signed(text);
        let mut amount = match bare.split_once('-') {
            Some((years, months)) => {
                unit = Unit::Months(1);
                Amount { whole: sign * months_of(years, months)?, fraction: 0.0 }
            }
            None => Amount::of(text).ok_or(match bare.bytes().all(|b| b.is_ascii_digit()) {
                true => Bad::Range,
                false => Bad::Format,
            })?,
        };
        if self.is_negative {
            // The smallest integer cannot be negated. So a positive number is negated instead.
            let whole = if amount.whole > 0 { -amount.whole } else { amount.whole };
            amount = Amount { whole, fraction: -amount.fraction.abs() };
        }
        self.parts.add(amount, unit).ok_or(Bad::Range)?;
        if matches!(unit, Unit::Micros(HOUR_US)) {
            // A number before hours counts days.
            self.unit = Some(Unit::Days(1));
        }
        // A second with a fraction also sets all smaller units.
        let below =
            if matches!(unit, Unit::Micros(1_000_000)) && amount.fraction != 0.0 { SECOND } else { 0 };
        Ok(unit.field() | below)
    }

    fn word(&mut self, text: &str) -> std::result::Result<u16, Bad> {
        if text == "ago" {
            self.is_past = true;
        } else if let Some(unit) = Unit::of(text) {
            self.unit = Some(unit);
        } else if !matches!(words::of(text), Some(words::Word::Filler)) {
            return Err(Bad::Format);
        }
        Ok(0)
    }
}

/// Reads `years-months`. Returns the number of months.
fn months_of(years: &str, months: &str) -> std::result::Result<i64, Bad> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(years) || !digits(months) {
        return Err(Bad::Format);
    }
    let (years, months) = (years.parse::<i64>(), months.parse::<i64>());
    match (years, months) {
        (Ok(years), Ok(months @ ..12)) => {
            years.checked_mul(12).and_then(|years| years.checked_add(months)).ok_or(Bad::Range)
        }
        _ => Err(Bad::Range),
    }
}

/// A number without an exponent. Its integer part and its fraction are separate, so that no digit of the
/// integer part is lost.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub whole: i64,
    pub fraction: f64,
}

impl Amount {
    fn of(word: &str) -> Option<Amount> {
        let (sign, bare) = signed(word);
        let (whole, fraction) = bare.split_once('.').unwrap_or((bare, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let minus = if sign < 0 { "-" } else { "" };
        Some(Amount {
            whole: if whole.is_empty() { 0 } else { format!("{minus}{whole}").parse().ok()? },
            fraction: format!("{minus}0.{fraction}0").parse().ok()?,
        })
    }
}

/// The unit of an amount.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// A number of months. A fraction is rounded to whole months, but a fraction of a single month becomes
    /// days.
    Months(i64),
    /// A number of days.
    Days(i64),
    /// A number of microseconds.
    Micros(i64),
}

/// The bits of the fields of a clock time.
const CLOCK: u16 = 0b1_1111;
/// The bits of the second and of smaller units.
const SECOND: u16 = 0b111;

/// The number of letters of a unit's name that count.
const NAME_LEN_MAX: usize = 10;

impl Unit {
    pub(super) const YEAR: Unit = Unit::Months(12);
    pub(super) const HOUR: Unit = Unit::Micros(HOUR_US);
    pub(super) const MINUTE: Unit = Unit::Micros(60_000_000);
    pub(super) const SECOND: Unit = Unit::Micros(1_000_000);

    /// Returns the unit of a number without a unit.
    fn smallest_of(kept: IntervalFields) -> Unit {
        match kept.last() {
            LastField::Year => Unit::YEAR,
            LastField::Month => Unit::Months(1),
            LastField::Day => Unit::Days(1),
            LastField::Hour => Unit::HOUR,
            LastField::Minute => Unit::MINUTE,
            LastField::Second => Unit::SECOND,
        }
    }

    fn of(name: &str) -> Option<Unit> {
        let name = name.get(..NAME_LEN_MAX).unwrap_or(name);
        Some(match name {
            "millennium" | "millennia" | "mil" | "mils" => Unit::Months(12_000),
            "century" | "centuries" | "c" | "cent" => Unit::Months(1200),
            "decade" | "decades" | "dec" | "decs" => Unit::Months(120),
            "year" | "years" | "y" | "yr" | "yrs" => Unit::Months(12),
            "month" | "months" | "mon" | "mons" => Unit::Months(1),
            "week" | "weeks" | "w" => Unit::Days(7),
            "day" | "days" | "d" => Unit::Days(1),
            "hour" | "hours" | "h" | "hr" | "hrs" => Unit::HOUR,
            "minute" | "minutes" | "m" | "min" | "mins" => Unit::Micros(60_000_000),
            "second" | "seconds" | "s" | "sec" | "secs" => Unit::Micros(1_000_000),
            "millisecon" | "ms" | "msec" | "msecs" | "mseconds" => Unit::Micros(1000),
            "microsecon" | "us" | "usec" | "usecs" | "useconds" | "usecond" => Unit::Micros(1),
            _ => return None,
        })
    }

    /// Returns the bit of a unit.
    fn field(self) -> u16 {
        1 << match self {
            Unit::Micros(1) => 0,
            Unit::Micros(1000) => 1,
            Unit::Micros(1_000_000) => 2,
            Unit::Micros(60_000_000) => 3,
            Unit::Micros(_) => 4,
            Unit::Days(1) => 5,
            Unit::Days(_) => 6,
            Unit::Months(1) => 7,
            Unit::Months(12) => 8,
            Unit::Months(120) => 9,
            Unit::Months(1200) => 10,
            Unit::Months(_) => 11,
        }
    }
}

fn signed(word: &str) -> (i64, &str) {
    match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    }
}

/// The parts of an interval. Years and months are separate, because each has its own range.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Parts {
    years: i32,
    months: i32,
    days: i32,
    micros: i64,
}

impl Parts {
    /// Adds an amount. Returns `None` if a part leaves its range.
    pub(super) fn add(&mut self, amount: Amount, unit: Unit) -> Option<()> {
        let Amount { whole: count, fraction } = amount;
        let times = |unit: i64| i32::try_from(count.checked_mul(unit)?).ok();
        match unit {
            Unit::Months(1) => {
                self.months = self.months.checked_add(times(1)?)?;
                self.add_days(fraction * 30.0)
            }
            Unit::Months(months) => {
                self.years = self.years.checked_add(times(months / 12)?)?;
                self.months =
                    self.months.checked_add(whole((fraction * months as f64).round_ties_even())?)?;
                Some(())
            }
            Unit::Days(days) => {
                self.days = self.days.checked_add(times(days)?)?;
                self.add_days(fraction * days as f64)
            }
            Unit::Micros(micros) => {
                self.micros = self.micros.checked_add(count.checked_mul(micros)?)?;
                self.add_micros(fraction * micros as f64)
            }
        }
    }

    /// Adds microseconds. As in PostgreSQL, half a microsecond is dropped, and more than half is rounded up.
    fn add_micros(&mut self, micros: f64) -> Option<()> {
        let rest = micros.fract();
        let up = if rest.abs() > 0.5 { rest.signum() } else { 0.0 };
        self.micros = self.micros.checked_add((micros.trunc() + up) as i64)?;
        Some(())
    }

    fn add_days(&mut self, days: f64) -> Option<()> {
        self.days = self.days.checked_add(whole(days)?)?;
        self.add_micros(days.fract() * DAY_US as f64)
    }

    fn negated(self) -> Option<Parts> {
        Some(Parts {
            years: self.years.checked_neg()?,
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// Converts years to months. Fails with 22008 if they are out of range.
    fn interval(self) -> Result<Interval> {
        let months = i64::from(self.years) * 12 + i64::from(self.months);
        let months = i32::try_from(months).map_err(|_| interval_range())?;
        Ok(Interval { months, days: self.days, micros: self.micros })
    }
}
