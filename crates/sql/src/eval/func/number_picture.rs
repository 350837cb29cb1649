//! to_char of numbers and to_number: pictures such as `FM9,999.99`.
//!
//! Does not know: locales: the decimal point is a point, groups are cut by commas, the currency sign is a blank.
//! The behaviour is that of PostgreSQL's `formatting.c`.

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
    /// 9, or 0 (true): from the first of them on, zeros are shown.
    Digit(bool),
    /// `.` or `D`
    Point,
    /// `,` or `G`
    Group,
    Text(String),
    /// S, MI, PL, SG, PR: where a sign stands.
    Sign(&'static str),
    /// L
    Currency,
    /// TH, or th (false)
    Ordinal(bool),
    Blank,
}

/// A picture, understood.
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

    fn check(&self) -> Result<()> {
        let points = self.parts.iter().filter(|part| **part == Part::Point).count();
        let signs = self.parts.iter().filter(|part| **part == Part::Sign("S")).count();
        let message = match (points, signs) {
            (2.., _) => "multiple decimal points",
            (_, 2..) => "cannot use \"S\" twice",
            _ => return Ok(()),
        };
        Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
    }

    /// Takes out the point and the digits behind it: NaN and infinities have none.
    fn drop_fraction(&mut self) {
        let mut behind = false;
        self.parts.retain(|part| {
            behind |= *part == Part::Point;
            !(behind && matches!(part, Part::Point | Part::Digit(_)))
        });
    }

    /// Places for digits before and behind the point.
    fn places(&self) -> (usize, usize) {
        let point = self.parts.iter().position(|part| *part == Part::Point).unwrap_or(self.parts.len());
        let digits = |parts: &[Part]| parts.iter().filter(|part| matches!(part, Part::Digit(_))).count();
        (digits(&self.parts[..point]), digits(&self.parts[point..]))
    }
}

fn shown<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let mut picture = Picture::of(text(a, 1))?;
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
    if special.is_some() {
        picture.drop_fraction();
    }
    if let Some(upper) = picture.roman {
        return Ok(cx.text(&roman(value, upper, picture.fills)));
    }
    let (whole_places, places) = picture.places();
    let (negative, whole, fraction) = rounded(value, places)?;
    let is_zero = whole == "0" && fraction.bytes().all(|b| b == b'0');
    if whole.len() > whole_places && !(whole == "0" && whole_places == 0) {
        return Ok(cx.text(&overflow(&picture)));
    }
    let negative = negative && !is_zero;
    let digits = Digits { negative, whole: &whole, fraction: &fraction };
    Ok(cx.text(&digits.laid_out(&picture, whole_places, places)))
}

/// The value's sign, its whole digits and so many behind the point. NaN and infinities have their names for digits.
fn rounded(value: &str, places: usize) -> Result<(bool, String, String)> {
    let read = crate::text::parse_numeric(value)?;
    let shown = number::round_to(read.as_ref(), places as i64, RoundingMode::HalfUp)?.as_ref().to_string();
    let (negative, digits) = match shown.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, &*shown),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    Ok((negative, whole.to_owned(), fraction.to_owned()))
}

struct Digits<'d> {
    negative: bool,
    whole: &'d str,
    fraction: &'d str,
}

impl Digits<'_> {
    fn laid_out(&self, picture: &Picture, whole_places: usize, places: usize) -> String {
        // A whole zero is not shown where only digits behind the point are asked for.
        let whole = if self.whole == "0" && places > 0 { "" } else { self.whole };
        let blanks = whole_places.saturating_sub(whole.len());
        let first_zero = picture
            .parts
            .iter()
            .filter(|part| matches!(part, Part::Digit(_)))
            .take(whole_places)
            .position(|part| *part == Part::Digit(true));
        let shows_from = first_zero.unwrap_or(whole_places).min(blanks);
        let fraction = match picture.fills {
            true => self.fraction.to_owned(),
            false => self.kept_fraction(picture),
        };
        let mut out = String::new();
        let (mut seen, mut behind, mut started) = (0, false, false);
        let has_sign = picture.parts.iter().any(|part| matches!(part, Part::Sign(_)));
        let sign = if self.negative {
            "-"
        } else if picture.fills {
            " "
        } else {
            ""
        };
        let mut pending = if has_sign { "" } else { sign };
        for (at, part) in picture.parts.iter().enumerate() {
            match part {
                Part::Digit(_) if behind => {
                    let digit = fraction.get(seen..=seen);
                    out.push_str(digit.unwrap_or(""));
                    seen += 1;
                }
                Part::Digit(_) => {
                    let shows = seen >= shows_from;
                    if shows && !started {
                        started = true;
                        out.push_str(std::mem::take(&mut pending));
                    }
                    // FM leaves nothing behind the point of a zero: it is shown before it.
                    let only_point = !picture.fills && fraction.is_empty() && places > 0;
                    match (shows, seen >= blanks) {
                        (false, _) if only_point && whole.is_empty() && seen + 1 == whole_places => {
                            out.push('0')
                        }
                        (true, true) => out.push_str(&whole[seen - blanks..=seen - blanks]),
                        (true, false) => out.push('0'),
                        (false, _) if picture.fills => out.push(' '),
                        _ => {}
                    }
                    seen += 1;
                }
                Part::Point => {
                    out.push_str(std::mem::take(&mut pending));
                    started = true;
                    (seen, behind) = (0, true);
                    out.push('.');
                }
                Part::Group if started => out.push(','),
                Part::Group if picture.fills => out.push(' '),
                Part::Group => {}
                Part::Text(text) => out.push_str(text),
                Part::Blank => out.push(' '),
                Part::Currency => out.push(' '),
                Part::Sign(kind) => self.sign(kind, at, picture, &mut out),
                Part::Ordinal(upper) => out.push_str(&self.ordinal(*upper, picture.fills)),
            }
        }
        self.around(picture, pending, out)
    }

    /// Without FM zeros at the end go, up to the last 0 of the picture.
    fn kept_fraction(&self, picture: &Picture) -> String {
        let point = picture.parts.iter().position(|part| *part == Part::Point).unwrap_or(picture.parts.len());
        let digits = picture.parts[point..].iter().filter(|part| matches!(part, Part::Digit(_)));
        let last_zero = digits.enumerate().filter(|(_, part)| **part == Part::Digit(true)).last();
        let least = last_zero.map_or(0, |(at, _)| at + 1);
        let kept = self.fraction.trim_end_matches('0').len().max(least);
        self.fraction[..kept.min(self.fraction.len())].to_owned()
    }

    fn sign(&self, kind: &str, at: usize, picture: &Picture, out: &mut String) {
        let sign = match (kind, self.negative) {
            ("MI" | "SG" | "S", true) => "-",
            ("SG" | "S", false) => "+",
            ("PL", false) => "+",
            ("MI" | "PL", _) if picture.fills => " ",
            _ => "",
        };
        // S before the digits stands directly before them.
        let leads = kind == "S" && !picture.parts[..at].iter().any(|part| matches!(part, Part::Digit(_)));
        if leads {
            out.push('\u{0}');
        } else {
            out.push_str(sign);
        }
    }

    /// The sign that hangs on the digits: S before them, or brackets.
    fn around(&self, picture: &Picture, pending: &str, out: String) -> String {
        let mut out = format!("{pending}{out}");
        if let Some(at) = out.find('\u{0}') {
            out.remove(at);
            let digit = out[at..].find(|c: char| c != ' ').map_or(out.len(), |d| at + d);
            out.insert(digit, if self.negative { '-' } else { '+' });
        }
        if picture.parts.contains(&Part::Sign("PR")) {
            let digit = out.find(|c: char| c != ' ').unwrap_or(out.len());
            let (open, close) = match (self.negative, picture.fills) {
                (true, _) => ("<", ">"),
                (false, true) => (" ", " "),
                (false, false) => ("", ""),
            };
            out.insert_str(digit, open);
            out.push_str(close);
        }
        out
    }

    fn ordinal(&self, upper: bool, fills: bool) -> String {
        if self.negative {
            return if fills { "  ".to_owned() } else { String::new() };
        }
        let last_two = &self.whole[self.whole.len().saturating_sub(2)..];
        let ending = match (last_two, last_two.as_bytes().last()) {
            ("11" | "12" | "13", _) => "th",
            (_, Some(b'1')) => "st",
            (_, Some(b'2')) => "nd",
            (_, Some(b'3')) => "rd",
            _ => "th",
        };
        if upper { ending.to_uppercase() } else { ending.to_owned() }
    }
}

/// A number that has more digits than the picture: each place is a #.
fn overflow(picture: &Picture) -> String {
    let mut out = if picture.fills { String::from(" ") } else { String::new() };
    for part in &picture.parts {
        match part {
            Part::Digit(_) => out.push('#'),
            Part::Point => out.push('.'),
            Part::Group => out.push(','),
            Part::Text(text) => out.push_str(text),
            _ => {}
        }
    }
    out
}

/// NaN or an infinity: as many # as the number would have characters. The first one is the sign's blank.
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

fn roman(value: &str, upper: bool, fills: bool) -> String {
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
    let number = value.parse::<f64>().map_or(0.0, f64::round_ties_even);
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

/// Takes the digits, the point and the sign of a text; what the picture has beside them is passed over.
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
