//! The second step of reading a date or a time: it combines the fields that `tokens` has found.
//!
//! Each field sets some of year, month, day, hour, minute, second and zone. None of these may be set twice.
//!
//! Invariants
//! 1. The meaning of a field depends only on earlier fields.
//! 2. Ranges are checked at the end, because only then is the order of day, month and year known.
//!
//! This module does not know types, their ranges, or texts of errors. The behaviour is that of
//! `DecodeDateTime` and `DecodeTimeOnly` in PostgreSQL's `datetime.c`.

use super::style::{DateOrder, Reading};
use super::tokens::{Field, Kind};
use super::words::{self, Label, Named, Word};
use super::{
    DAY_US, EPOCH_SHIFT_DAYS, HOUR_US, JULIAN_OF_2000, MINUTE_US, Zone, civil_of, days_of, month_len,
};

const YEAR: u16 = 1;
const MONTH: u16 = 1 << 1;
const DAY: u16 = 1 << 2;
const HOUR: u16 = 1 << 3;
const MINUTE: u16 = 1 << 4;
const SECOND: u16 = 1 << 5;
const ZONE: u16 = 1 << 6;
const DAY_OF_YEAR: u16 = 1 << 7;
const WEEKDAY: u16 = 1 << 8;
const HALF: u16 = 1 << 9;
const ERA: u16 = 1 << 10;
const DAYLIGHT: u16 = 1 << 11;
const DATE: u16 = YEAR | MONTH | DAY;
const CLOCK: u16 = HOUR | MINUTE | SECOND;

const SECOND_US: i64 = 1_000_000;

/// The reason why fields are not a valid date or time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bad {
    /// The fields do not fit together.
    Format,
    /// A field is out of its range.
    Range,
    /// The day or the month is out of its range. The user may have meant another order of them.
    Order,
    /// The offset from UTC is 16 hours or more.
    Offset,
    /// There is no time zone of this name.
    Zone(String),
}

type Done<T = ()> = Result<T, Bad>;

/// The values of the fields.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// The set of fields that have a value, as bits.
    mask: u16,
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
    /// The fraction of the second, in microseconds.
    fraction_us: i64,
    /// The time zone in the text, if there is one.
    pub zone: Option<Zone>,
    /// `infinity` (true) or `-infinity` (false).
    pub infinite: Option<bool>,
    is_afternoon: Option<bool>,
    is_bc: bool,
    is_exact_year: bool,
    has_short_year: bool,
    has_text_month: bool,
    label: Option<Label>,
}

/// Reads the digits of a number before its point. Also returns the rest of the text.
fn number(text: &str) -> Done<(i64, &str)> {
    let signs = usize::from(text.starts_with(['+', '-']));
    let digits = text[signs..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(Bad::Format);
    }
    let (whole, rest) = text.split_at(signs + digits);
    // Integers have 32 bits here, as in PostgreSQL.
    whole.parse::<i32>().map(|whole| (i64::from(whole), rest)).map_err(|_| Bad::Range)
}

/// Fails if `T` is not before a time of day.
fn refuse_late_t(field: &Field, next: Option<&Field>) -> Done {
    let is_t = field.kind == Kind::Word && field.text == "t";
    let has_time = next.is_some_and(|next| matches!(next.kind, Kind::Number | Kind::Time | Kind::Date));
    if is_t && !has_time { Err(Bad::Format) } else { Ok(()) }
}

/// Reads a fraction, which begins with its point, in microseconds.
fn fraction(text: &str) -> Done<i64> {
    let digits = text.strip_prefix('.').ok_or(Bad::Format)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    let share: f64 = format!("0.{digits}0").parse().map_err(|_| Bad::Format)?;
    Ok((share * 1e6).round_ties_even() as i64)
}

/// Reads an offset such as `+05:30`, in seconds east of UTC.
pub(super) fn offset(text: &str) -> Done<i32> {
    let (sign, digits) = match text.split_at_checked(1) {
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        _ => return Err(Bad::Format),
    };
    let unsigned = |text: &str| match number(text) {
        Err(Bad::Range) => Err(Bad::Offset),
        _ if text.starts_with(['+', '-']) => Err(Bad::Format),
        Ok((value, rest)) => Ok((value, rest.to_owned())),
        Err(bad) => Err(bad),
    };
    let (mut hour, mut rest) = unsigned(digits)?;
    let (mut minute, mut second) = (0, 0);
    if let Some(minutes) = rest.clone().strip_prefix(':') {
        (minute, rest) = unsigned(minutes)?;
        if let Some(seconds) = rest.clone().strip_prefix(':') {
            (second, rest) = unsigned(seconds)?;
        }
    } else if rest.is_empty() && digits.len() > 2 {
        (hour, minute) = (hour / 100, hour % 100);
    }
    if hour > 15 || minute > 59 || second > 59 {
        return Err(Bad::Offset);
    }
    if !rest.is_empty() {
        return Err(Bad::Format);
    }
    Ok(sign * (hour * 3600 + minute * 60 + second) as i32)
}

/// Finds the time zone of a name, such as `america/new_york`.
fn zone_of_name(name: &str) -> Done<Zone> {
    Zone::of_expression(name).ok_or_else(|| Bad::Zone(name.to_owned()))
}

impl Decoded {
    /// Reads a date, with or without a time of day and a time zone.
    pub(super) fn moment(fields: &[Field], reading: &Reading<'_>) -> Done<Decoded> {
        let mut decoded = Decoded::default();
        for (at, field) in fields.iter().enumerate() {
            refuse_late_t(field, fields.get(at + 1))?;
            let set = decoded.moment_field(field, reading)?;
            decoded.note(set)?;
        }
        decoded.finish()?;
        if decoded.infinite.is_none() && decoded.mask & DATE != DATE {
            return Err(Bad::Format);
        }
        if decoded.mask & DAYLIGHT != 0 && decoded.mask & ZONE == 0 {
            return Err(Bad::Format);
        }
        Ok(decoded)
    }

    /// Reads a time of day, with or without a time zone. A date before it is dropped.
    pub(super) fn clock(fields: &[Field], reading: &Reading<'_>) -> Done<Decoded> {
        let mut decoded = Decoded::default();
        let ends_in_date = fields.len() >= 2 && fields.last().is_some_and(|f| f.kind == Kind::Date);
        for (at, field) in fields.iter().enumerate() {
            let has_date = at == 0
                && match field.kind {
                    Kind::Date => ends_in_date || fields.get(1).is_some_and(|f| f.kind == Kind::Time),
                    _ => ends_in_date,
                };
            refuse_late_t(field, fields.get(at + 1))?;
            let set = decoded.clock_field(field, has_date, reading)?;
            decoded.note(set)?;
        }
        decoded.finish()?;
        if decoded.mask & CLOCK != CLOCK {
            return Err(Bad::Format);
        }
        // If a time zone has changed its offset at some time, the offset depends on the date.
        let needs_date = decoded.zone.as_ref().is_some_and(Zone::has_changed);
        if needs_date && decoded.mask & DATE != DATE { Err(Bad::Format) } else { Ok(decoded) }
    }

    /// Returns the days since 2000-01-01.
    pub(super) fn days(&self) -> i64 {
        days_of(self.year, self.month as u32, self.day as u32)
    }

    /// Returns the microseconds of the day.
    pub(super) fn time_us(&self) -> i64 {
        self.hour * HOUR_US + self.minute * MINUTE_US + self.second * SECOND_US + self.fraction_us
    }

    fn note(&mut self, set: u16) -> Done {
        if self.mask & set != 0 {
            return Err(Bad::Format);
        }
        self.mask |= set;
        Ok(())
    }

    fn moment_field(&mut self, field: &Field, reading: &Reading<'_>) -> Done<u16> {
        let text = field.text.as_str();
        match field.kind {
            Kind::Date if self.label == Some(Label::Julian) => self.julian_with_zone(text),
            Kind::Date if self.label.is_some() || self.mask & (MONTH | DAY) == MONTH | DAY => {
                self.time_or_zone(text)
            }
            Kind::Date => self.date(text, reading.forms.dates.order),
            Kind::Time => self.time(text),
            Kind::Signed => self.offset(text),
            Kind::Number => match self.label.take() {
                Some(label) => self.labelled(label, text),
                None => self.plain_number(text, reading.forms.dates.order),
            },
            Kind::Word | Kind::SignedWord => self.word(text, reading, true),
        }
    }

    fn clock_field(&mut self, field: &Field, has_date: bool, reading: &Reading<'_>) -> Done<u16> {
        let (text, order) = (field.text.as_str(), reading.forms.dates.order);
        match field.kind {
            Kind::Date if has_date => self.date(text, order),
            Kind::Date => self.time_or_zone(text),
            Kind::Time => self.time(text),
            Kind::Signed => self.offset(text),
            Kind::Number => {
                if let Some(label) = self.label.take() {
                    return self.labelled(label, text);
                }
                match text.find('.') {
                    Some(_) if has_date => self.date(text, order),
                    Some(point) if point > 2 => self.run_together(text, self.mask | DATE),
                    Some(_) => Err(Bad::Format),
                    None if text.len() > 4 => self.run_together(text, self.mask | DATE),
                    None => self.number(text, self.mask | DATE, order),
                }
            }
            Kind::Word | Kind::SignedWord => self.word(text, reading, false),
        }
    }

    /// Reads a Julian day and an offset, such as `J2451187-08`.
    fn julian_with_zone(&mut self, text: &str) -> Done<u16> {
        self.label = None;
        let (day, zone) = number(text)?;
        self.set_julian(day);
        self.zone = Some(Zone::Fixed(offset(zone)?));
        Ok(DATE | CLOCK | ZONE)
    }

    /// Reads the field after a date: a time with an offset, such as `040506-08`, or the name of a time zone.
    fn time_or_zone(&mut self, text: &str) -> Done<u16> {
        let label = self.label.take();
        if !text.starts_with(|c: char| c.is_ascii_digit()) && label.is_none() {
            self.zone = Some(zone_of_name(text)?);
            return Ok(ZONE);
        }
        if label.is_some_and(|label| label != Label::Time) || self.mask & CLOCK == CLOCK {
            return Err(Bad::Format);
        }
        let at = text.find('-').ok_or(Bad::Format)?;
        let (clock, zone) = text.split_at(at);
        self.zone = Some(Zone::Fixed(offset(zone)?));
        Ok(self.run_together(clock, self.mask | DATE)? | ZONE)
    }

    /// Reads a time in the form `hh:mm`, `hh:mm:ss.ff` or `mm:ss.ff`.
    fn time(&mut self, text: &str) -> Done<u16> {
        if self.label.take().is_some_and(|label| label != Label::Time) {
            return Err(Bad::Format);
        }
        let [hour, minute, second, fraction_us] = clock_parts(text)?;
        if hour > 24 {
            return Err(Bad::Range);
        }
        let total = hour * HOUR_US + minute * MINUTE_US + second * SECOND_US + fraction_us;
        if total > DAY_US {
            return Err(Bad::Range);
        }
        (self.hour, self.minute, self.second, self.fraction_us) = (hour, minute, second, fraction_us);
        Ok(CLOCK)
    }

    fn offset(&mut self, text: &str) -> Done<u16> {
        self.zone = Some(Zone::Fixed(offset(text)?));
        Ok(ZONE)
    }

    fn set_julian(&mut self, day: i64) {
        let (year, month, day) = civil_of(day - JULIAN_OF_2000);
        (self.year, self.month, self.day) = (year, i64::from(month), i64::from(day));
        self.is_exact_year = true;
    }

    /// Reads a number after a word that says which field it is.
    fn labelled(&mut self, label: Label, text: &str) -> Done<u16> {
        if label == Label::Time {
            let set = self.run_together(text, self.mask | DATE)?;
            return if set == CLOCK { Ok(set) } else { Err(Bad::Format) };
        }
        let (value, rest) = number(text)?;
        let takes_fraction = matches!(label, Label::Julian | Label::Second);
        if !(rest.is_empty() || takes_fraction && rest.starts_with('.')) {
            return Err(Bad::Format);
        }
        let (place, set) = match label {
            Label::Year => (&mut self.year, YEAR),
            // After an hour, a number labelled as month is the minute.
            Label::Month if self.mask & MONTH != 0 && self.mask & HOUR != 0 => (&mut self.minute, MINUTE),
            Label::Month => (&mut self.month, MONTH),
            Label::Day => (&mut self.day, DAY),
            Label::Hour => (&mut self.hour, HOUR),
            Label::Minute => (&mut self.minute, MINUTE),
            Label::Second => {
                if !rest.is_empty() {
                    self.fraction_us = fraction(rest)?;
                }
                (&mut self.second, SECOND)
            }
            Label::Julian => return self.julian(value, rest),
            Label::Time | Label::Other => return Err(Bad::Format),
        };
        *place = value;
        Ok(set)
    }

    fn julian(&mut self, day: i64, rest: &str) -> Done<u16> {
        if day < 0 {
            return Err(Bad::Range);
        }
        self.set_julian(day);
        if rest.is_empty() {
            return Ok(DATE);
        }
        let share: f64 = format!("0{rest}0").parse().map_err(|_| Bad::Format)?;
        self.set_time_us((share * DAY_US as f64) as i64);
        Ok(DATE | CLOCK)
    }

    fn set_time_us(&mut self, us: i64) {
        (self.hour, self.minute) = (us / HOUR_US, us / MINUTE_US % 60);
        (self.second, self.fraction_us) = (us / SECOND_US % 60, us % SECOND_US);
    }

    fn plain_number(&mut self, text: &str, order: DateOrder) -> Done<u16> {
        let point = text.find('.');
        match point {
            Some(_) if self.mask & DATE == 0 => self.date(text, order),
            Some(point) if point > 2 => self.run_together(text, self.mask),
            None if text.len() >= 6 && (self.mask & DATE == 0 || self.mask & CLOCK == 0) => {
                self.run_together(text, self.mask)
            }
            _ => self.number(text, self.mask, order),
        }
    }

    /// Reads a date whose parts are separated by signs: two or three numbers, or a month's name among them.
    fn date(&mut self, text: &str, order: DateOrder) -> Done<u16> {
        let (mut numbers, mut set) = (Vec::new(), 0);
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
            let belongs = |c: char| if is_number { c.is_ascii_digit() } else { c.is_ascii_alphabetic() };
            let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
            let part = &rest[..end];
            // One separator after a part belongs to this part.
            rest = rest[end..].strip_prefix(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(&rest[end..]);
            if part.is_empty() {
                return Err(Bad::Format);
            }
            if is_number {
                numbers.push(part);
                continue;
            }
            match words::of(part) {
                Some(Word::Filler) => {}
                Some(Word::Month(month)) if (self.mask | set) & MONTH == 0 => {
                    self.month = month;
                    self.has_text_month = true;
                    set |= MONTH;
                }
                _ => return Err(Bad::Format),
            }
        }
        for part in numbers {
            let more = self.number(part, self.mask | set, order)?;
            if (self.mask | set) & more != 0 {
                return Err(Bad::Format);
            }
            set |= more;
        }
        if (self.mask | set) & !(DAY_OF_YEAR | ZONE) == DATE { Ok(set) } else { Err(Bad::Format) }
    }

    /// Reads one number of a date. Its meaning depends on the fields before it.
    fn number(&mut self, text: &str, mask: u16, order: DateOrder) -> Done<u16> {
        let (value, rest) = number(text)?;
        let digits = text.len() - rest.len();
        if rest.starts_with('.') {
            if digits > 2 {
                return self.run_together(text, mask | DATE);
            }
            self.fraction_us = fraction(rest)?;
        } else if !rest.is_empty() {
            return Err(Bad::Format);
        }
        if text.len() == 3 && mask & DATE == YEAR && (1..=366).contains(&value) {
            self.day_of_year = value;
            return Ok(DAY_OF_YEAR | MONTH | DAY);
        }
        let is_year = text.len() >= 3 || order == DateOrder::Ymd;
        let set = match mask & DATE {
            0 if is_year => YEAR,
            0 if order == DateOrder::Dmy => DAY,
            0 | YEAR | DAY => MONTH,
            MONTH if self.has_text_month && is_year => YEAR,
            MONTH => DAY,
            // The first number was taken for the year but is the day: `99-Jan-1999`.
            m if m == YEAR | MONTH && self.has_text_month && text.len() >= 3 && self.has_short_year => {
                self.day = self.year;
                self.year = value;
                self.has_short_year = false;
                return Ok(DAY);
            }
            m if m == YEAR | MONTH => DAY,
            m if m == MONTH | DAY => YEAR,
            DATE => return self.run_together(text, mask),
            _ => return Err(Bad::Format),
        };
        let place = match set {
            YEAR => &mut self.year,
            MONTH => &mut self.month,
            _ => &mut self.day,
        };
        *place = value;
        if set == YEAR {
            self.has_short_year = text.len() <= 2;
        }
        Ok(set)
    }

    /// Reads digits without separators: `yymmdd`, `yyyymmdd`, `hhmm`, `hhmmss.ff`.
    fn run_together(&mut self, text: &str, mask: u16) -> Done<u16> {
        let digits = match text.find('.') {
            Some(point) => {
                self.fraction_us = fraction(&text[point..])?;
                &text[..point]
            }
            None if mask & DATE != DATE && text.len() >= 6 => {
                let (year, day) = text.split_at(text.len() - 4);
                self.year = number(year)?.0;
                (self.month, self.day) = (number(&day[..2])?.0, number(&day[2..])?.0);
                self.has_short_year |= year.len() == 2;
                return Ok(DATE);
            }
            None => text,
        };
        if mask & CLOCK == CLOCK || !matches!(digits.len(), 4 | 6) {
            return Err(Bad::Format);
        }
        let two = |at: usize| digits.get(at..at + 2).map_or(Ok(0), |pair| number(pair).map(|(n, _)| n));
        (self.hour, self.minute, self.second) = (two(0)?, two(2)?, two(4)?);
        Ok(CLOCK)
    }

    fn word(&mut self, text: &str, reading: &Reading<'_>, is_moment: bool) -> Done<u16> {
        if let Some(zone) = Zone::of_abbreviation(text) {
            self.zone = Some(zone);
            return Ok(ZONE);
        }
        match words::of(text) {
            Some(Word::Filler) => Ok(0),
            Some(Word::Named(named)) => self.named(named, reading, is_moment),
            Some(Word::Month(month)) if is_moment => {
                let mut set = MONTH;
                // If the month has a name, a number before it was the day.
                if self.mask & (MONTH | DAY) == MONTH
                    && !self.has_text_month
                    && (1..=31).contains(&self.month)
                {
                    self.day = self.month;
                    set = DAY;
                }
                self.has_text_month = true;
                self.month = month;
                Ok(set)
            }
            Some(Word::Weekday) if is_moment => Ok(WEEKDAY),
            Some(Word::Month(_) | Word::Weekday) => Err(Bad::Format),
            Some(Word::Half(afternoon)) => {
                self.is_afternoon = Some(afternoon);
                Ok(HALF)
            }
            Some(Word::Era(bc)) => {
                self.is_bc = bc;
                Ok(ERA)
            }
            Some(Word::Label(Label::Time)) if is_moment && self.mask & DATE != DATE => Err(Bad::Format),
            Some(Word::Label(label)) => {
                self.label = Some(label);
                Ok(0)
            }
            Some(Word::Daylight) => {
                let Some(Zone::Fixed(offset)) = &mut self.zone else { return Err(Bad::Format) };
                *offset += 3600;
                Ok(DAYLIGHT)
            }
            None => {
                self.zone = Some(Zone::of_expression(text).ok_or(Bad::Format)?);
                Ok(ZONE)
            }
        }
    }

    fn named(&mut self, named: Named, reading: &Reading<'_>, is_moment: bool) -> Done<u16> {
        let now = || reading.forms.zone.to_local(reading.now_us()).map_err(|_| Bad::Range);
        match named {
            Named::Midnight => {
                self.set_time_us(0);
                self.zone = Some(Zone::UTC);
                return Ok(CLOCK | ZONE);
            }
            Named::Now if !is_moment => {
                self.set_time_us(now()?.rem_euclid(DAY_US));
                return Ok(CLOCK);
            }
            _ if !is_moment => return Err(Bad::Format),
            Named::Now => {
                let now = now()?;
                self.set_day(now.div_euclid(DAY_US));
                self.set_time_us(now.rem_euclid(DAY_US));
                self.zone = Some(Zone::Fixed(reading.forms.zone.offset_at(reading.now_us())));
            }
            Named::Today(days) => {
                self.set_day(now()?.div_euclid(DAY_US) + days);
                return Ok(DATE);
            }
            Named::Epoch => {
                self.set_day(-EPOCH_SHIFT_DAYS);
                self.set_time_us(0);
                self.zone = Some(Zone::UTC);
            }
            Named::Late | Named::Early => {
                self.infinite = Some(named == Named::Late);
                self.set_day(0);
            }
        }
        Ok(DATE | CLOCK | ZONE)
    }

    fn set_day(&mut self, days: i64) {
        self.set_julian(days + JULIAN_OF_2000);
    }

    /// Checks the ranges, and computes the year and the hour from BC, AM, PM and short years.
    fn finish(&mut self) -> Done {
        if self.mask & YEAR != 0 && !self.is_exact_year {
            self.year = match (self.is_bc, self.has_short_year, self.year) {
                (true, _, 1..) => 1 - self.year,
                (false, true, 0..70) => self.year + 2000,
                (false, true, 70..100) => self.year + 1900,
                (false, true, 100..) | (false, false, 1..) => self.year,
                _ => return Err(Bad::Range),
            };
        }
        if self.mask & DAY_OF_YEAR != 0 {
            let (year, month, day) = civil_of(days_of(self.year, 1, 1) + self.day_of_year - 1);
            (self.year, self.month, self.day) = (year, i64::from(month), i64::from(day));
        }
        let month_is_bad = self.mask & MONTH != 0 && !(1..=12).contains(&self.month);
        let day_is_bad = self.mask & DAY != 0 && !(1..=31).contains(&self.day);
        if month_is_bad || day_is_bad {
            return Err(Bad::Order);
        }
        if self.mask & DATE == DATE && self.day > i64::from(month_len(self.year, self.month as u32)) {
            return Err(Bad::Range);
        }
        if let Some(afternoon) = self.is_afternoon {
            self.hour = match (afternoon, self.hour) {
                (_, 13..) => return Err(Bad::Range),
                (false, 12) => 0,
                (true, hour) if hour != 12 => hour + 12,
                (_, hour) => hour,
            };
        }
        let in_range = (0..=24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..=60).contains(&self.second)
            && self.time_us() <= DAY_US;
        if in_range { Ok(()) } else { Err(Bad::Range) }
    }
}

/// Reads hour, minute, second and microseconds of a clock time. The caller checks the range of the hour.
pub(super) fn clock_parts(text: &str) -> Done<[i64; 4]> {
    // The hours of an interval may need 64 bits.
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(Bad::Format);
    }
    let (hour, rest) = text.split_at(digits);
    let hour: i64 = hour.parse().map_err(|_| Bad::Range)?;
    let (minute, rest) = number(rest.strip_prefix(':').ok_or(Bad::Format)?)?;
    let parts = if rest.starts_with('.') {
        [0, hour, minute, fraction(rest)?]
    } else if let Some(seconds) = rest.strip_prefix(':') {
        let (second, rest) = number(seconds)?;
        [hour, minute, second, if rest.is_empty() { 0 } else { fraction(rest)? }]
    } else if rest.is_empty() {
        [hour, minute, 0, 0]
    } else {
        return Err(Bad::Format);
    };
    let [hour, minute, second, _] = parts;
    let in_range = hour >= 0 && (0..60).contains(&minute) && (0..=60).contains(&second);
    if in_range { Ok(parts) } else { Err(Bad::Range) }
}
