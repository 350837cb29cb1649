//! `to_char` of numbers, and `to_number`: numbers by a template such as `FM9,999.99`. The behaviour is that
//! of PostgreSQL's `formatting.c`.
//!
//! Locales are not supported: the decimal separator is a point, groups are separated by commas, and the
//! currency sign is a blank.

use bigdecimal::RoundingMode;
use varve_engine::{Datum, Numeric, Special};

use super::{Builtin, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::cast::no_integer;
use crate::eval::{Cx, arith, number};
use crate::ty::Ty::{self, Float4, Float8, Int4, Int8, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("to_char", &[Int4, Text], Text, shown),
    strict("to_char", &[Int8, Text], Text, shown),
    strict("to_char", &[Float4, Text], Text, shown),
    strict("to_char", &[Float8, Text], Text, shown),
    strict("to_char", &[Ty::Numeric, Text], Text, shown),
    strict("to_number", &[Text, Text], Ty::Numeric, read),
];

/// A part of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `9` (false) or `0` (true). From the first `0` on, leading zeros are shown.
    Digit(bool),
    /// `.` or `D`
    Point,
    /// `,` or `G`
    Group,
    Text(String),
    /// S, MI, PL, SG or PR: the position of the sign.
    Sign(&'static str),
    /// L
    Currency,
    /// TH (true) or th (false).
    Ordinal(bool),
    Blank,
}

/// A parsed picture.
#[derive(Default)]
struct Picture {
    parts: Vec<Part>,
    fills: bool,
    scientific: bool,
    roman: Option<bool>,
    shift: u32,
}

impl Picture {
    fn of(written: &str) -> Result<Picture> {
        let mut picture = Picture { fills: true, ..Picture::default() };
        let mut rest = written;
        while let Some(c) = rest.chars().next() {
            let upper: String = rest.chars().take(4).collect::<String>().to_ascii_uppercase();
            let (part, length) = match () {
                () if upper.starts_with("EEEE") => {
                    picture.scientific = true;
                    (None, 4)
                }
                () if upper.starts_with("FM") => {
                    picture.fills = false;
                    (None, 2)
                }
                () if upper.starts_with("MI") => (Some(Part::Sign("MI")), 2),
                () if upper.starts_with("PL") => (Some(Part::Sign("PL")), 2),
                () if upper.starts_with("SG") => (Some(Part::Sign("SG")), 2),
                () if upper.starts_with("PR") => (Some(Part::Sign("PR")), 2),
                () if upper.starts_with("RN") => {
                    picture.roman = Some(c == 'R');
                    (None, 2)
                }
                () if upper.starts_with("TH") => (Some(Part::Ordinal(c == 'T')), 2),
                () if c == '"' => {
                    let end = rest[1..].find('"').map_or(rest.len(), |end| end + 1);
                    (Some(Part::Text(rest[1..end].to_owned())), (end + 1).min(rest.len()))
                }
                () => {
                    let part = match c.to_ascii_uppercase() {
                        '9' => Part::Digit(false),
                        '0' => Part::Digit(true),
                        '.' | 'D' => Part::Point,
                        ',' | 'G' => Part::Group,
                        'S' => Part::Sign("S"),
                        'L' => Part::Currency,
                        'V' => Part::Text(String::new()),
                        ' ' => Part::Blank,
                        _ => Part::Text(c.to_string()),
                    };
                    if c.eq_ignore_ascii_case(&'v') {
                        picture.shift = 1;
                    }
                    (Some(part), c.len_utf8())
                }
            };
            picture.parts.extend(part);
            rest = &rest[length..];
        }
        if picture.shift > 0 {
            return Err(SqlError::unsupported("V in a picture of a number"));
        }
        picture.check()?;
        Ok(picture)
    }

    /// Fails for signs that exclude each other, for digits after PR, and for parts that occur twice but may
    /// occur only once.
    fn check(&self) -> Result<()> {
        let (mut points, mut signs): (usize, Vec<&str>) = (0, Vec::new());
        for part in &self.parts {
            let message = match part {
                Part::Digit(is_zero) if signs.contains(&"PR") => {
                    format!("\"{}\" must be ahead of \"PR\"", if *is_zero { '0' } else { '9' })
                }
                Part::Point if points > 0 => "multiple decimal points".to_owned(),
                Part::Sign("S") if signs.contains(&"S") => "cannot use \"S\" twice".to_owned(),
                Part::Sign("S") if !signs.is_empty() => {
                    "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together".to_owned()
                }
                Part::Sign("PR") if !signs.is_empty() && signs != ["PR"] => {
                    "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together".to_owned()
                }
                Part::Sign(kind) if signs.contains(&"S") => {
                    format!("cannot use \"S\" and \"{kind}\" together")
                }
                Part::Point => {
                    points += 1;
                    continue;
                }
                Part::Sign(kind) => {
                    signs.push(kind);
                    continue;
                }
                _ => continue,
            };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        Ok(())
    }

    /// Returns the numbers of digit places before and after the point.
    fn places(&self) -> (usize, usize) {
        let (before, behind) = self.parts.split_at(self.point());
        (digits_in(before), digits_in(behind))
    }

    fn point(&self) -> usize {
        self.parts.iter().position(|part| *part == Part::Point).unwrap_or(self.parts.len())
    }

    fn has_point(&self) -> bool {
        self.parts.contains(&Part::Point)
    }

    fn has(&self, sign: &'static str) -> bool {
        self.parts.contains(&Part::Sign(sign))
    }

    /// Returns the place of the first 0, if it is before the point.
    fn zeros_from(&self, whole_places: usize) -> Option<usize> {
        let digits = self.parts.iter().filter(|part| matches!(part, Part::Digit(_)));
        digits.take(whole_places).position(|part| *part == Part::Digit(true))
    }

    /// Returns the number of digit places up to the last 0.
    fn last_zero(&self) -> Option<usize> {
        self.parts.iter().rposition(|part| *part == Part::Digit(true)).map(|at| digits_in(&self.parts[..=at]))
    }

    /// Returns whether S is after the digits: after the point, or after all digits before the point.
    fn sign_is_behind(&self) -> bool {
        let at = self.parts.iter().position(|part| *part == Part::Sign("S"));
        at.is_some_and(|at| at > self.point() || digits_in(&self.parts[..at]) == self.places().0)
    }
}

fn digits_in(parts: &[Part]) -> usize {
    parts.iter().filter(|part| matches!(part, Part::Digit(_))).count()
}

fn shown<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let picture = Picture::of(text(a, 1))?;
    let value = crate::eval::cast::shown(a[0], cx)?;
    let special = Special::read(value);
    if picture.scientific {
        return match special {
            Some(_) => Ok(cx.text(&scientific_overflow(&picture))),
            None => scientific(value, &picture, cx),
        };
    }
    if let (Some(_), Some(special), Datum::Numeric(_)) = (picture.roman, special, a[0]) {
        return Err(no_integer(special, Int4));
    }
    if let Some(upper) = picture.roman {
        let number = value.parse::<f64>().unwrap_or_default();
        // A half is rounded away from zero for a numeric, and to an even number for a float.
        let is_exact = matches!(a[0], Datum::Numeric(_));
        let rounded = if is_exact { number.round() } else { number.round_ties_even() };
        return Ok(cx.text(&roman(rounded, upper, picture.fills)));
    }
    let (whole_places, places) = picture.places();
    let digits = match a[0] {
        Datum::Float4(f) => of_float(f64::from(f), places, f32::DIGITS),
        Datum::Float8(f) => of_float(f, places, f64::DIGITS),
        _ => of_exact(value, places)?,
    };
    Ok(cx.text(&Writer::new(&picture, digits.within(whole_places)).written()))
}

/// The digits of a number without its sign, such as `12.50` or `NaN`. If the picture has too few places,
/// there is a # for each digit.
struct Digits {
    negative: bool,
    shown: String,
    places: usize,
}

/// Returns the digits of an integer or a numeric, rounded to this number of places after the point.
fn of_exact(value: &str, places: usize) -> Result<Digits> {
    let read = crate::text::parse_numeric(value)?;
    let rounded = number::round_to(read.as_ref(), places as i64, RoundingMode::HalfUp)?;
    Ok(Digits::new(&rounded.as_ref().to_string(), places))
}

/// Returns the digits of a float. Only the first `digits` digits of a float are exact. So if it has many
/// digits before the point, fewer than `places` are shown after the point.
fn of_float(value: f64, places: usize, digits: u32) -> Digits {
    let written = |places: usize| match value.is_infinite() {
        true => if value < 0.0 { "-Infinity" } else { "Infinity" }.to_owned(),
        false => format!("{value:.places$}"),
    };
    let whole = written(0).trim_start_matches('-').len();
    let places = places.min((digits as usize).saturating_sub(whole));
    Digits::new(&written(places), places)
}

impl Digits {
    fn new(signed: &str, places: usize) -> Digits {
        let unsigned = signed.strip_prefix('-');
        Digits { negative: unsigned.is_some(), shown: unsigned.unwrap_or(signed).to_owned(), places }
    }

    fn whole(&self) -> usize {
        self.shown.find('.').unwrap_or(self.shown.len())
    }

    /// Returns the same digits. If there are too few places before the point, all places become #.
    fn within(self, whole_places: usize) -> Digits {
        match self.whole() > whole_places {
            false => self,
            true => {
                let shown = format!("{}.{}", "#".repeat(whole_places), "#".repeat(self.places));
                Digits { shown, ..self }
            }
        }
    }

    /// Returns the index of the last character that FM keeps after the point: the last digit other than zero,
    /// or the point itself.
    fn last_kept(&self) -> Option<usize> {
        let is_fraction = self.shown.contains('.');
        is_fraction.then(|| self.shown.trim_end_matches('0').len() - 1)
    }
}

/// Writes a number by a picture. Each place of the picture (a digit or the point) has a number. The first
/// `blanks` places come before the number's first digit.
struct Writer<'p> {
    picture: &'p Picture,
    digits: Digits,
    blanks: usize,
    /// The place of the first 0 of the picture. From there on, leading zeros are shown.
    zeros_from: Option<usize>,
    /// With FM: the last digit that is kept.
    last_kept: Option<usize>,
    /// The place after which a closing sign is written.
    last_place: usize,
    sign_is_due: bool,
    place: usize,
    /// The number of characters of the number that are written.
    next: usize,
    started: bool,
    out: String,
}

impl<'p> Writer<'p> {
    fn new(picture: &'p Picture, digits: Digits) -> Writer<'p> {
        let (whole_places, _) = picture.places();
        let blanks = whole_places.saturating_sub(digits.whole());
        let zeros_from = picture.zeros_from(whole_places);
        let sign_is_due = match picture.has("PL") || picture.has("MI") || picture.has("SG") {
            true => picture.has("PL") && !picture.has("MI") && !picture.has("SG"),
            false => digits.negative || picture.fills || picture.has("S"),
        };
        let mut last_place = whole_places + digits.places + usize::from(picture.has_point());
        if blanks == 0 && !sign_is_due {
            last_place = last_place.saturating_sub(1);
        }
        let kept_at_least = picture.last_zero().filter(|end| *end > blanks).map(|end| end - blanks);
        let last_kept = digits.last_kept().filter(|_| !picture.fills && picture.has_point());
        let last_kept = match (last_kept, kept_at_least) {
            (Some(last), Some(least)) => Some(last.max(least.min(digits.shown.len() - 1))),
            (last, _) => last,
        };
        Writer {
            picture,
            digits,
            blanks,
            zeros_from,
            last_kept,
            last_place,
            sign_is_due,
            place: 0,
            next: 0,
            started: false,
            out: String::new(),
        }
    }

    fn written(mut self) -> String {
        for part in &self.picture.parts {
            match part {
                Part::Digit(is_zero) => self.place(*is_zero),
                Part::Point => self.place(false),
                Part::Group if self.started => self.out.push(','),
                Part::Group => self.blank(),
                Part::Text(text) => self.out.push_str(text),
                Part::Blank | Part::Currency => self.out.push(' '),
                Part::Sign(kind) => self.sign(kind),
                Part::Ordinal(upper) => self.ordinal(*upper),
            }
        }
        self.out
    }

    fn blank(&mut self) {
        if self.picture.fills {
            self.out.push(' ');
        }
    }

    fn byte(&self) -> Option<u8> {
        self.digits.shown.as_bytes().get(self.next).copied()
    }

    /// Returns whether the next digit is the zero before the point of a number below one, and the picture has
    /// no 0 for it.
    fn is_bare_zero(&self) -> bool {
        self.zeros_from.is_none() && self.next == 0 && self.byte() == Some(b'0') && self.digits.places > 0
    }

    /// Returns whether FM removes all digits after the point.
    fn ends_at_point(&self) -> bool {
        self.last_kept.is_some_and(|last| self.digits.shown.as_bytes().get(last) == Some(&b'.'))
    }

    /// Writes a digit or the point.
    fn place(&mut self, is_zero: bool) {
        let in_zeros = self.zeros_from.is_some_and(|from| from <= self.place);
        let is_blank = self.place < self.blanks;
        if self.sign_is_due
            && (!is_blank || self.zeros_from == Some(self.place))
            && (!self.is_bare_zero() || self.ends_at_point())
        {
            self.leading_sign();
        }
        match (is_blank, in_zeros) {
            (true, false) => self.blank(),
            (true, true) => {
                self.out.push('0');
                self.started = true;
            }
            (false, _) => self.digit(is_zero),
        }
        let end = match self.last_kept == Some(self.next) {
            true => self.place,
            false => self.last_place,
        };
        if self.place + 1 == end {
            self.trailing_sign();
        }
        self.place += 1;
    }

    fn digit(&mut self, is_zero: bool) {
        match self.byte() {
            Some(b'.') => self.out.push('.'),
            Some(_) if self.last_kept.is_some_and(|last| self.next > last) && !is_zero => {}
            Some(_) if self.is_bare_zero() => {
                if self.picture.fills {
                    self.out.push(' ');
                } else if self.ends_at_point() {
                    self.out.push('0');
                }
            }
            Some(byte) => {
                self.out.push(char::from(byte));
                self.started = true;
            }
            None => {}
        }
        self.next += usize::from(self.byte().is_some());
    }

    /// Writes the sign before the number: the sign of S, the bracket of PR, a minus or a blank.
    fn leading_sign(&mut self) {
        let negative = self.digits.negative;
        if self.picture.has("S") {
            if !self.picture.sign_is_behind() {
                self.out.push(if negative { '-' } else { '+' });
                self.sign_is_due = false;
            }
            return;
        }
        match (self.picture.has("PR"), negative) {
            (true, true) => self.out.push('<'),
            (false, true) => self.out.push('-'),
            (_, false) => self.blank(),
        }
        self.sign_is_due = false;
    }

    fn trailing_sign(&mut self) {
        let negative = self.digits.negative;
        if self.picture.has("PR") && !self.sign_is_due && (negative || self.picture.fills) {
            self.out.push(if negative { '>' } else { ' ' });
        } else if self.picture.has("S") && self.picture.sign_is_behind() {
            self.out.push(if negative { '-' } else { '+' });
        }
    }

    /// Writes the sign of MI, PL or SG at its own position.
    fn sign(&mut self, kind: &str) {
        match (kind, self.digits.negative) {
            ("MI" | "SG", true) => self.out.push('-'),
            ("PL" | "SG", false) => self.out.push('+'),
            ("MI" | "PL", _) => self.blank(),
            _ => {}
        }
    }

    fn ordinal(&mut self, upper: bool) {
        let shown = &self.digits.shown;
        if shown.starts_with('#') || self.digits.negative || self.picture.has_point() {
            return;
        }
        let ending = match (&shown[shown.len().saturating_sub(2)..], shown.as_bytes().last()) {
            ("11" | "12" | "13", _) => "th",
            (_, Some(b'1')) => "st",
            (_, Some(b'2')) => "nd",
            (_, Some(b'3')) => "rd",
            _ => "th",
        };
        self.out.push_str(&if upper { ending.to_uppercase() } else { ending.to_owned() });
    }
}

/// Returns the text for NaN or infinity: a # for each character that a number would have. The first character
/// is the blank of the sign.
fn scientific_overflow(picture: &Picture) -> String {
    let (whole_places, places) = picture.places();
    format!(" {}.{}", "#".repeat(whole_places), "#".repeat(places + 4))
}

fn scientific<'a>(value: &str, picture: &Picture, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (_, places) = picture.places();
    let number: f64 =
        value.parse().map_err(|_| SqlError::unsupported("this number in a picture with EEEE"))?;
    let made = format!("{number:.places$e}");
    let (mantissa, exponent) = made.split_once('e').unwrap_or((&made, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if number < 0.0 {
        ""
    } else if picture.fills {
        " "
    } else {
        ""
    };
    let direction = if exponent < 0 { '-' } else { '+' };
    Ok(cx.text(&format!("{sign}{mantissa}e{direction}{:02}", exponent.abs())))
}

fn roman(number: f64, upper: bool, fills: bool) -> String {
    const LETTERS: [(u32, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1.0..4000.0).contains(&number) {
        return "#".repeat(15);
    }
    let (mut rest, mut out) = (number as u32, String::new());
    for (worth, letters) in LETTERS {
        while rest >= worth {
            out.push_str(letters);
            rest -= worth;
        }
    }
    let out = if upper { out } else { out.to_lowercase() };
    if fills { format!("{out:>15}") } else { out }
}

/// `to_number`: takes the digits, the point and the sign from the text, and ignores its other characters. The
/// picture only limits how many digits count before and after the point.
fn read<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let picture = Picture::of(text(a, 1))?;
    let (whole_places, places) = picture.places();
    let (mut digits, mut negative, mut behind) = (String::new(), false, None);
    for c in text(a, 0).chars() {
        match c {
            '0'..='9' => {
                let taken = digits.len() - behind.unwrap_or(0);
                let room = if behind.is_some() { places } else { whole_places };
                if taken < room {
                    digits.push(c);
                }
            }
            '.' if behind.is_none() && places > 0 => {
                digits.push('.');
                behind = Some(digits.len());
            }
            '-' | '<' => negative = true,
            _ => {}
        }
    }
    let bare = digits.trim_end_matches('.');
    if bare.is_empty() {
        let message = format!("invalid input syntax for type numeric: \"{}\"", text(a, 0));
        return Err(SqlError::new(SqlState::INVALID_TEXT, message));
    }
    let made: Numeric = crate::text::parse_numeric(&format!("{}{bare}", if negative { "-" } else { "" }))?;
    Ok(arith::numeric(&made, cx))
}
