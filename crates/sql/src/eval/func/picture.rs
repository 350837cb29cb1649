//! `to_char`, `to_date` and `to_timestamp`: dates and times by a template.
//!
//! Invariants
//! 1. At each position of a template the longest pattern counts, as in PostgreSQL. Letters that are no
//!    pattern are copied, and so is text in double quotes.
//! 2. A pattern that PostgreSQL has and Varve lacks is refused (0A000), never copied.
//!
//! This module does not know templates of numbers (`number_picture`).

use varve_engine::{Datum, Interval};

use super::{Builtin, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::time::{self, DAY_US};
use crate::ty::Ty::{self, Date, Text, Timestamp, TimestampTz};

pub(super) const TABLE: &[Builtin] = &[
    strict("to_char", &[Timestamp, Text], Text, |a, cx| match a[0] {
        Datum::Timestamp(t) if !time::is_infinite(t) => shown(Moment::of(t, None), text(a, 1), cx),
        _ => Ok(Datum::Null),
    }),
    strict("to_char", &[TimestampTz, Text], Text, |a, cx| match a[0] {
        Datum::TimestampTz(t) if !time::is_infinite(t) => {
            shown(Moment::of(cx.env.zone().to_local(t)?, Some(cx.env.zone().offset_at(t))), text(a, 1), cx)
        }
        _ => Ok(Datum::Null),
    }),
    strict("to_char", &[Ty::Interval, Text], Text, |a, cx| match a[0] {
        Datum::Interval(iv) => shown(Moment::of_span(iv), text(a, 1), cx),
        _ => Ok(Datum::Null),
    }),
    strict("to_date", &[Text, Text], Date, |a, _| {
        let (days, _) = read(text(a, 0), text(a, 1))?.moment(text(a, 0))?;
        time::check_date(days).map(Datum::Date).ok_or_else(time::date_range)
    }),
    strict("to_timestamp", &[Text, Text], TimestampTz, |a, cx| {
        let (days, us) = read(text(a, 0), text(a, 1))?.moment(text(a, 0))?;
        let local = days.checked_mul(DAY_US).and_then(|d| d.checked_add(us));
        let local = local.and_then(time::check_timestamp).ok_or_else(time::timestamp_range)?;
        cx.env.zone().to_utc(local).map(Datum::TimestampTz)
    }),
];

/// All patterns. A longer pattern comes before a shorter one that is its beginning.
const PATTERNS: [&str; 63] = [
    "SSSSS", "SSSS", "HH24", "HH12", "MONTH", "Month", "month", "IYYY", "Y,YYY", "YYYY", "A.M.", "P.M.",
    "a.m.", "p.m.", "B.C.", "A.D.", "b.c.", "a.d.", "IDDD", "DDD", "DAY", "Day", "day", "MON", "Mon", "mon",
    "IYY", "YYY", "TZH", "TZM", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "IY", "HH", "MI", "SS", "MS", "US",
    "AM", "PM", "am", "pm", "BC", "AD", "bc", "ad", "DY", "Dy", "dy", "DD", "ID", "IW", "WW", "MM", "YY",
    "CC", "OF", "TZ", "tz",
];
const LETTERS: [&str; 8] = ["RM", "rm", "D", "W", "J", "Q", "Y", "I"];

/// One part of a template.
enum Part<'t> {
    /// A pattern, whether it is without padding (FM), and its ordinal suffix (TH, th).
    Field(&'static str, bool, &'t str),
    /// Text that is copied.
    Literal(&'t str),
    /// A blank or a sign outside of quotes. The text that is read may have another one here, or none.
    Separator(&'t str),
    /// FX. From here on, the fields of the text must have the same lengths as in the template.
    Fixed,
}

/// The prefix of a pattern.
enum Prefix {
    None,
    /// FM: without padding.
    Bare,
    /// TM: names of the locale, without padding. The locale is always C, so the names are English.
    Local,
}

fn parts(template: &str) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    let mut rest = template;
    let mut prefix = Prefix::None;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            (prefix, rest) = (Prefix::Bare, after);
            continue;
        }
        if let Some(after) = rest.strip_prefix("TM").or_else(|| rest.strip_prefix("tm")) {
            (prefix, rest) = (Prefix::Local, after);
            continue;
        }
        if let Some(after) = rest.strip_prefix("FX").or_else(|| rest.strip_prefix("fx")) {
            out.push(Part::Fixed);
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix('"') {
            let end = after.find('"').unwrap_or(after.len());
            out.push(Part::Literal(&after[..end]));
            rest = after.get(end + 1..).unwrap_or_default();
            continue;
        }
        let pattern = PATTERNS.iter().chain(&LETTERS).find(|p| fits(rest, p));
        if let Some(pattern) = pattern {
            rest = &rest[pattern.len()..];
            let suffix =
                ["TH", "th"].into_iter().find(|s| rest.starts_with(s)).map_or("", |s| &rest[..s.len()]);
            rest = &rest[suffix.len()..];
            let is_bare = match std::mem::replace(&mut prefix, Prefix::None) {
                Prefix::None => false,
                Prefix::Bare => true,
                Prefix::Local => matches!(pattern.to_ascii_uppercase().as_str(), "MONTH" | "DAY"),
            };
            out.push(Part::Field(pattern, is_bare, suffix));
        } else {
            let (literal, after) = rest.split_at(first.len_utf8());
            out.push(if is_separator(first) { Part::Separator(literal) } else { Part::Literal(literal) });
            rest = after;
        }
    }
    out
}

/// Returns whether the text begins with this pattern. Upper and lower case make a difference for patterns of
/// words: the list of patterns has MONTH, Month and month. All other patterns, such as YYYY, match in any
/// case.
fn fits(rest: &str, pattern: &str) -> bool {
    const SPELLED: [&str; 8] = ["MONTH", "MON", "DAY", "DY", "A.M.", "AM", "RM", "TZ"];
    let spelled = SPELLED.iter().any(|word| word.eq_ignore_ascii_case(pattern))
        || pattern.chars().any(|c| c.is_ascii_lowercase());
    let head = rest.get(..pattern.len());
    head.is_some_and(|head| head == pattern || (!spelled && head.eq_ignore_ascii_case(pattern)))
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// The fields of a timestamp or an interval.
struct Moment {
    year: i64,
    month: i32,
    day: i32,
    us: i64,
    /// Days since 2000-01-01, or `None` for an interval.
    days: Option<i64>,
    /// Seconds east of UTC.
    offset: Option<i32>,
}

impl Moment {
    fn of(local: i64, offset: Option<i32>) -> Moment {
        let days = local.div_euclid(DAY_US);
        let (year, month, day) = time::civil_of(days);
        let (month, day) = (month as i32, day as i32);
        Moment { year, month, day, us: local.rem_euclid(DAY_US), days: Some(days), offset }
    }

    fn of_span(iv: Interval) -> Moment {
        Moment {
            year: i64::from(iv.months / 12),
            month: iv.months % 12,
            day: iv.days,
            us: iv.micros,
            days: None,
            offset: None,
        }
    }

    fn hour(&self) -> i64 {
        self.us / 3_600_000_000
    }

    fn day_of_year(&self) -> i64 {
        self.days.map_or(0, |days| days - time::days_of(self.year, 1, 1) + 1)
    }

    /// Returns the day of the week. Sunday is 0.
    fn weekday(&self) -> usize {
        // 2000-01-01 was a Saturday.
        self.days.map_or(0, |days| (days + 6).rem_euclid(7) as usize)
    }

    /// Returns the year and the week by ISO 8601.
    fn iso_week(&self) -> (i64, i64) {
        let days = self.days.unwrap_or(0);
        let thursday = days + 4 - iso_day(self.weekday());
        let (year, _, _) = time::civil_of(thursday);
        (year, (thursday - time::days_of(year, 1, 1)) / 7 + 1)
    }

    fn shown_year(&self) -> i64 {
        if self.days.is_some() { counted(self.year) } else { self.year }
    }
}

/// Returns the year as it is shown. Years before year 1 are counted backward from there.
fn counted(year: i64) -> i64 {
    if year <= 0 { 1 - year } else { year }
}

/// Returns the day of the week by ISO 8601. Monday is 1 and Sunday is 7.
fn iso_day(weekday: usize) -> i64 {
    if weekday == 0 { 7 } else { weekday as i64 }
}

fn shown<'a>(moment: Moment, template: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let mut out = String::new();
    for part in parts(template) {
        match part {
            Part::Literal(literal) | Part::Separator(literal) => out.push_str(literal),
            Part::Fixed => {}
            Part::Field(pattern, bare, suffix) => {
                let shown = field(&moment, pattern, bare, cx)?;
                out.push_str(&shown);
                if !suffix.is_empty() {
                    let ordinal = ordinal(&shown);
                    out.push_str(&if suffix == "TH" {
                        ordinal.to_ascii_uppercase()
                    } else {
                        ordinal.to_owned()
                    });
                }
            }
        }
    }
    super::check_size(out.len())?;
    Ok(cx.text(&out))
}

fn ordinal(number: &str) -> &'static str {
    let digits: Vec<u8> = number.bytes().filter(u8::is_ascii_digit).collect();
    let teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    match digits.last() {
        Some(b'1') if !teen => "st",
        Some(b'2') if !teen => "nd",
        Some(b'3') if !teen => "rd",
        _ => "th",
    }
}

/// Returns a word in the case of its pattern, padded to `width` characters.
fn word(name: &str, pattern: &str, width: usize) -> String {
    let mut chars = pattern.chars();
    let cased = match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_uppercase() => name.to_uppercase(),
        (Some(first), _) if first.is_uppercase() => name.to_owned(),
        _ => name.to_lowercase(),
    };
    format!("{cased:<width$}")
}

/// The patterns for which an interval has a value.
const OF_SPANS: [&str; 18] = [
    "HH", "HH12", "HH24", "MI", "SS", "MS", "US", "DD", "MM", "YYYY", "YYY", "YY", "Y", "SSSS", "SSSSS",
    "AM", "PM", "am",
];

fn field(m: &Moment, pattern: &'static str, bare: bool, cx: &Cx<'_>) -> Result<String> {
    if m.days.is_none() && !OF_SPANS.contains(&pattern) {
        return Err(SqlError::unsupported(format!("the pattern {pattern} for an interval")));
    }
    let found = clock_field(m, pattern, bare).or_else(|| calendar_field(m, pattern, bare));
    found
        .or_else(|| zone_field(m, pattern, cx))
        .ok_or_else(|| SqlError::unsupported(format!("the pattern {pattern}")))
}

/// Returns a number with leading zeros, unless `bare` is set.
fn padded(n: i64, width: usize, bare: bool) -> String {
    match (bare, n < 0) {
        (true, _) => n.to_string(),
        (false, true) => format!("-{:0width$}", -n),
        (false, false) => format!("{n:0width$}"),
    }
}

fn clock_field(m: &Moment, pattern: &str, bare: bool) -> Option<String> {
    let number = |n: i64| padded(n, 2, bare);
    let fraction = |digits: u32| padded((m.us % 1_000_000) / 10_i64.pow(6 - digits), digits as usize, false);
    let morning = m.hour() % 24 < 12;
    Some(match pattern {
        "HH24" => number(m.hour()),
        "HH" | "HH12" => number(if m.hour() % 12 == 0 { 12 } else { m.hour() % 12 }),
        "MI" => number(m.us / 60_000_000 % 60),
        "SS" => number(m.us / 1_000_000 % 60),
        "MS" | "FF3" => fraction(3),
        "US" | "FF6" => fraction(6),
        "FF1" => fraction(1),
        "FF2" => fraction(2),
        "FF4" => fraction(4),
        "FF5" => fraction(5),
        "SSSS" | "SSSSS" => (m.us / 1_000_000).to_string(),
        "AM" | "PM" => if morning { "AM" } else { "PM" }.to_owned(),
        "am" | "pm" => if morning { "am" } else { "pm" }.to_owned(),
        "A.M." | "P.M." => if morning { "A.M." } else { "P.M." }.to_owned(),
        "a.m." | "p.m." => if morning { "a.m." } else { "p.m." }.to_owned(),
        _ => return None,
    })
}

fn calendar_field(m: &Moment, pattern: &str, bare: bool) -> Option<String> {
    let number = |n: i64, width: usize| padded(n, width, bare);
    let year = m.shown_year();
    let month = MONTHS[(m.month.clamp(1, 12) - 1) as usize];
    let roman = ROMAN[(m.month.clamp(1, 12) - 1) as usize];
    let day = DAYS[m.weekday()];
    let (name_width, roman_width) = if bare { (0, 0) } else { (9, 4) };
    let century = if m.year > 0 { (m.year - 1) / 100 + 1 } else { m.year / 100 - 1 };
    Some(match pattern {
        "YYYY" => number(year, 4),
        "YYY" => number(year % 1000, 3),
        "YY" => number(year % 100, 2),
        "Y" => number(year % 10, 1),
        "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
        "IYYY" => number(counted(m.iso_week().0), 4),
        "IYY" => number(counted(m.iso_week().0) % 1000, 3),
        "IY" => number(counted(m.iso_week().0) % 100, 2),
        "I" => number(counted(m.iso_week().0) % 10, 1),
        "BC" | "AD" => if m.year <= 0 { "BC" } else { "AD" }.to_owned(),
        "bc" | "ad" => if m.year <= 0 { "bc" } else { "ad" }.to_owned(),
        "B.C." | "A.D." => if m.year <= 0 { "B.C." } else { "A.D." }.to_owned(),
        "b.c." | "a.d." => if m.year <= 0 { "b.c." } else { "a.d." }.to_owned(),
        "MONTH" | "Month" | "month" => word(month, pattern, name_width),
        "MON" | "Mon" | "mon" => word(&month[..3], pattern, 0),
        "MM" => number(i64::from(m.month), 2),
        "RM" => format!("{roman:<roman_width$}"),
        "rm" => format!("{:<roman_width$}", roman.to_lowercase()),
        "DAY" | "Day" | "day" => word(day, pattern, name_width),
        "DY" | "Dy" | "dy" => word(&day[..3], pattern, 0),
        "DDD" => number(m.day_of_year(), 3),
        // The sign counts as a digit here.
        "DD" => {
            if bare {
                m.day.to_string()
            } else {
                format!("{:02}", m.day)
            }
        }
        "D" => (m.weekday() + 1).to_string(),
        "ID" => iso_day(m.weekday()).to_string(),
        "W" => (i64::from(m.day - 1) / 7 + 1).to_string(),
        "WW" => number((m.day_of_year() - 1) / 7 + 1, 2),
        "IW" => number(m.iso_week().1, 2),
        "Q" => ((m.month - 1) / 3 + 1).to_string(),
        "CC" => number(century, 2),
        "J" => (m.days.unwrap_or(0) + 2_451_545).to_string(),
        _ => return None,
    })
}

fn zone_field(m: &Moment, pattern: &str, cx: &Cx<'_>) -> Option<String> {
    let seconds = m.offset.unwrap_or(0);
    Some(match pattern {
        "OF" => offset(seconds, false),
        "TZH" => offset(seconds, true),
        "TZM" => format!("{:02}", seconds.abs() / 60 % 60),
        "TZ" | "tz" => zone_name(m, pattern, cx),
        _ => return None,
    })
}

fn offset(seconds: i32, hours_only: bool) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    match minutes % 60 {
        rest if rest > 0 && !hours_only => format!("{sign}{:02}:{rest:02}", minutes / 60),
        _ => format!("{sign}{:02}", minutes / 60),
    }
}

/// Returns the abbreviation of the time zone at this time. The result is empty for a value without a time
/// zone.
fn zone_name(m: &Moment, pattern: &str, cx: &Cx<'_>) -> String {
    let (Some(offset), Some(days)) = (m.offset, m.days) else { return String::new() };
    let name = cx.env.zone().abbreviation_at(days * DAY_US + m.us - i64::from(offset) * 1_000_000);
    if pattern == "tz" { name.to_lowercase() } else { name }
}

/// The fields that were read by a template.
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    /// Whether the hour belongs to the 12-hour clock, because of its pattern or because of AM or PM.
    half_day: bool,
    minute: i64,
    second: i64,
    us: i64,
    afternoon: bool,
    before_christ: bool,
}

fn invalid(state: SqlState, message: String) -> SqlError {
    SqlError::new(state, message)
}

/// Reads a text by a template. The text may differ from the template as in PostgreSQL: there may be more or
/// fewer blanks around fields, and a separator of the template matches any separator or none. A number takes
/// all digits that follow, unless the next field is a number, too. If the text ends early, the rest of the
/// template is ignored.
fn read(original: &str, template: &str) -> Result<Fields> {
    let mut fields = Fields::default();
    let parts = parts(template);
    let mut rest = original.trim_start();
    // The number of skipped blanks, minus the blanks of the template.
    let mut skipped = chars_between(original, rest);
    let mut is_fixed = matches!(parts.first(), Some(Part::Fixed));
    if is_fixed {
        rest = original;
    }
    for (n, part) in parts.iter().enumerate() {
        if rest.is_empty() {
            break;
        }
        match part {
            Part::Fixed => is_fixed = true,
            Part::Separator(_) if is_fixed => rest = without_first(rest),
            Part::Literal(literal) if is_fixed => {
                rest = literal.chars().fold(rest, |rest, _| without_first(rest));
            }
            Part::Separator(_) => {
                let after = rest.strip_prefix(|c: char| c.is_ascii_whitespace() || is_separator(c));
                skipped += i64::from(after.is_some()) - 1;
                rest = after.unwrap_or(rest);
            }
            Part::Literal(literal) => {
                for _ in literal.chars() {
                    if skipped > 0 {
                        skipped -= 1;
                    } else {
                        rest = without_first(rest);
                    }
                }
            }
            Part::Field(pattern, bare, suffix) => {
                let exact = !bare && suffix.is_empty() && parts.get(n + 1).is_some_and(begins_with_digits);
                let start = if is_fixed && is_word(pattern) { rest } else { rest.trim_start() };
                rest = fields.take(pattern, start, exact)?;
                rest = suffix.chars().fold(rest, |rest, _| without_first(rest));
                if is_fixed {
                    continue;
                }
                let after = rest.trim_start();
                skipped = chars_between(rest, after);
                rest = after;
            }
        }
    }
    Ok(fields)
}

fn chars_between(text: &str, end: &str) -> i64 {
    text[..text.len() - end.len()].chars().count() as i64
}

fn without_first(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next();
    chars.as_str()
}

/// Returns whether a pattern means a word.
fn is_word(pattern: &str) -> bool {
    const WORDS: [&str; 9] = ["AM", "PM", "BC", "AD", "MON", "DAY", "DY", "RM", "TZ"];
    let upper = pattern.to_ascii_uppercase().replace('.', "");
    WORDS.iter().any(|word| upper.starts_with(word))
}

/// Returns whether this part begins with digits. Then a number before it must have exactly the length of its
/// pattern.
fn begins_with_digits(part: &Part<'_>) -> bool {
    match part {
        Part::Field(pattern, ..) => !is_word(pattern) && *pattern != "OF" && !pattern.starts_with("FF"),
        Part::Fixed => false,
        Part::Literal(text) | Part::Separator(text) => text.len() == 1 && text.as_bytes()[0].is_ascii_digit(),
    }
}

fn is_separator(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric()
}

impl Fields {
    /// Reads the field of one pattern. Returns the rest of the text.
    fn take<'t>(&mut self, pattern: &'static str, text: &'t str, exact: bool) -> Result<&'t str> {
        let number = |width: usize| digits(text, pattern, width, exact);
        let set = |field: &mut Option<i64>, width: usize| {
            let (value, rest) = number(width)?;
            *field = Some(value);
            Ok(rest)
        };
        match pattern {
            "YYYY" => set(&mut self.year, 4),
            "YY" => {
                let (value, rest) = number(2)?;
                self.year = Some(match value {
                    0..70 => value + 2000,
                    70..100 => value + 1900,
                    whole => whole,
                });
                Ok(rest)
            }
            "MM" => set(&mut self.month, 2),
            "DD" => set(&mut self.day, 2),
            "DDD" => set(&mut self.day_of_year, 3),
            "HH24" | "HH" | "HH12" => {
                let (value, rest) = number(2)?;
                self.hour = value;
                self.half_day |= pattern != "HH24";
                Ok(rest)
            }
            "MI" => {
                let (value, rest) = number(2)?;
                self.minute = value;
                Ok(rest)
            }
            "SS" => {
                let (value, rest) = number(2)?;
                self.second = value;
                Ok(rest)
            }
            "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let width = match pattern {
                    "MS" => 3,
                    "US" => 6,
                    other => other[2..].parse().unwrap_or(6),
                };
                let end = text.bytes().take(width).take_while(u8::is_ascii_digit).count();
                let piece: String = text.chars().take(width).collect();
                if end == 0 {
                    return Err(no_number(&piece, pattern));
                }
                let padded = format!("{:0<6}", &text[..end]);
                self.us = padded.parse().map_err(|_| no_number(&piece, pattern))?;
                Ok(&text[end..])
            }
            _ => self.take_word(pattern, text),
        }
    }

    fn take_word<'t>(&mut self, pattern: &'static str, text: &'t str) -> Result<&'t str> {
        // Bytes are compared, because a character that folds to an ASCII letter may have another length.
        let starts = |words: &[&str]| {
            let begins = |word: &&str| {
                let head = text.as_bytes().get(..word.len());
                head.is_some_and(|head| head.eq_ignore_ascii_case(word.as_bytes()))
            };
            words.iter().position(begins)
        };
        let upper = pattern.to_ascii_uppercase();
        match upper.as_str() {
            "AM" | "PM" | "A.M." | "P.M." => {
                let word = if upper.len() == 2 { ["am", "pm"] } else { ["a.m.", "p.m."] };
                let found = starts(&word).ok_or_else(|| no_word(text, pattern))?;
                (self.afternoon, self.half_day) = (found == 1, true);
                Ok(&text[word[0].len()..])
            }
            "BC" | "AD" => {
                let found = starts(&["bc", "ad"]).ok_or_else(|| no_word(text, pattern))?;
                self.before_christ = found == 0;
                Ok(&text[2..])
            }
            "MONTH" | "MON" => {
                let short: Vec<&str> = MONTHS.iter().map(|name| &name[..3]).collect();
                let whole = starts(&MONTHS).filter(|_| upper == "MONTH");
                let length = whole.map_or(3, |n| MONTHS[n].len());
                let found = whole.or_else(|| starts(&short)).ok_or_else(|| no_word(text, pattern))?;
                self.month = Some(found as i64 + 1);
                Ok(&text[length..])
            }
            "DAY" | "DY" => {
                let short: Vec<&str> = DAYS.iter().map(|name| &name[..3]).collect();
                let whole = starts(&DAYS).filter(|_| upper == "DAY");
                let length = whole.map_or(3, |n| DAYS[n].len());
                whole.or_else(|| starts(&short)).ok_or_else(|| no_word(text, pattern))?;
                Ok(&text[length..])
            }
            _ => Err(SqlError::unsupported(format!("reading the pattern {pattern}"))),
        }
    }

    /// Returns the days since 2000-01-01, and the microseconds of the day. A field that was not read has its
    /// smallest value.
    fn moment(&self, original: &str) -> Result<(i64, i64)> {
        // A template without a year means 1 BC, as in PostgreSQL.
        let year = self.year.map_or(0, |year| if self.before_christ { -year } else { year });
        let year = if year < 0 { year + 1 } else { year };
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        let hour = match (self.half_day, self.hour) {
            (false, hour) => hour,
            (true, hour @ 1..=12) => hour % 12 + if self.afternoon { 12 } else { 0 },
            (true, hour) => return Err(no_half_day(hour)),
        };
        if !(1..=12).contains(&month) || day < 1 || day > i64::from(time::month_len(year, month as u32)) {
            return Err(out_of_range(original));
        }
        if !(0..24).contains(&hour) || !(0..60).contains(&self.minute) || !(0..60).contains(&self.second) {
            return Err(out_of_range(original));
        }
        let days = match self.day_of_year {
            Some(day) if day < 1 || day > time::days_of(year + 1, 1, 1) - time::days_of(year, 1, 1) => {
                return Err(out_of_range(original));
            }
            Some(day) => time::days_of(year, 1, 1) + day - 1,
            None => time::days_of(year, month as u32, day as u32),
        };
        Ok((days, ((hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.us))
    }
}

/// Returns the error 22007: the hour is not valid for the 12-hour clock.
fn no_half_day(hour: i64) -> SqlError {
    invalid(SqlState::INVALID_DATETIME, format!("hour \"{hour}\" is invalid for the 12-hour clock"))
        .with_hint("Use the 24-hour clock, or give an hour between 1 and 12.")
}

/// Reads a number with its sign: with `exact`, exactly `width` characters, else all digits.
fn digits<'t>(text: &'t str, pattern: &str, width: usize, exact: bool) -> Result<(i64, &'t str)> {
    let hint = "If your source string is not fixed-width, try using the \"FM\" modifier.";
    let piece: String = text.chars().take(width).collect();
    let read = if exact { piece.as_str() } else { text };
    let unsigned = read.strip_prefix(['-', '+']).unwrap_or(read);
    let count = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let used = if count == 0 { 0 } else { read.len() - unsigned.len() + count };
    if exact && piece.len() < width {
        let message = format!("source string too short for \"{pattern}\" formatting field");
        let detail = format!("Field requires {width} characters, but only {} remain.", piece.len());
        return Err(invalid(SqlState::INVALID_DATETIME, message).with_detail(detail).with_hint(hint));
    }
    if exact && used > 0 && used < width {
        let message = format!("invalid value \"{piece}\" for \"{pattern}\"");
        let detail = format!("Field requires {width} characters, but only {used} could be parsed.");
        return Err(invalid(SqlState::INVALID_DATETIME, message).with_detail(detail).with_hint(hint));
    }
    if used == 0 {
        return Err(no_number(&piece, pattern));
    }
    let value: i32 = text[..used].parse().map_err(|_| too_large(pattern))?;
    Ok((i64::from(value), &text[used..]))
}

fn no_number(piece: &str, pattern: &str) -> SqlError {
    invalid(SqlState::INVALID_DATETIME, format!("invalid value \"{piece}\" for \"{pattern}\""))
        .with_detail("Value must be an integer.")
}

fn too_large(pattern: &str) -> SqlError {
    let message = format!("value for \"{pattern}\" in source string is out of range");
    invalid(SqlState::DATETIME_OVERFLOW, message)
        .with_detail("Value must be in the range -2147483648 to 2147483647.")
}

fn no_word(text: &str, pattern: &str) -> SqlError {
    let piece: String = text.chars().take_while(|c| !is_separator(*c)).collect();
    invalid(SqlState::INVALID_DATETIME, format!("invalid value \"{piece}\" for \"{pattern}\""))
        .with_detail("The given value did not match any of the allowed values for this field.")
}

fn out_of_range(text: &str) -> SqlError {
    invalid(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}
