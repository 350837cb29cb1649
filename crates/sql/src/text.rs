//! PostgreSQL's text form of values. Input is for literals, parameters and COPY. Output is for text results
//! and casts.
//!
//! Invariants
//! 1. `parse_text(write_text(v)) = v` for every value of every column type, including infinities and NaN.
//! 2. Text input applies the modifier of the column's type. Lengths are checked, and numerics are rounded.
//!
//! This module does not know sessions. Times are read and shown in ISO format and in UTC, unless the caller
//! gives other styles (`write_with`).

use std::cell::Cell;
use std::io::Write;

use varve_engine::{ColumnType, Datum, Numeric, NumericError, Value};

use crate::error::{Result, SqlError, SqlState};
use crate::lexeme::BLANKS;
use crate::oid::{self, Oid};
use crate::time::{self, DateOrder, DateStyle, IntervalStyle, PLAIN, Reading, TimeForms};
use crate::ty::Ty;
use crate::{array, json};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Reads the text form of a value of type `t`, in UTC.
pub fn parse_text(text: &str, t: &ColumnType) -> Result<Value> {
    parse_with(text, t, &Reading::plain())
}

/// Reads the text form of a value of type `t`, with the session's settings for times.
pub fn parse_with(text: &str, t: &ColumnType, reading: &Reading<'_>) -> Result<Value> {
    Ok(match *t {
        ColumnType::Bool => Value::Bool(parse_bool(text)?),
        ColumnType::Int2 => Value::Int2(parse_int(text, Ty::Int2)? as i16),
        ColumnType::Int4 => Value::Int4(parse_int(text, Ty::Int4)? as i32),
        ColumnType::Int8 => Value::Int8(parse_int(text, Ty::Int8)?),
        ColumnType::Float4 => Value::Float4(parse_float4(text)?),
        ColumnType::Float8 => Value::Float8(parse_float(text, Ty::Float8)?),
        ColumnType::Numeric { precision } => Value::Numeric(fit(parse_numeric(text)?, precision)?),
        ColumnType::Char(n) => Value::Text(fit_char(text, n as usize)?.to_owned()),
        ColumnType::Varchar(Some(n)) => Value::Text(fit_varchar(text, n as usize)?.to_owned()),
        ColumnType::Varchar(None) | ColumnType::Text => Value::Text(text.to_owned()),
        ColumnType::Bytea => Value::Bytea(parse_bytea(text)?),
        ColumnType::Date => Value::Date(time::parse_date(text, reading)?),
        ColumnType::Timestamp => Value::Timestamp(time::parse_timestamp(text, reading)?),
        ColumnType::TimestampTz => Value::TimestampTz(time::parse_timestamptz(text, reading)?),
        ColumnType::Time => Value::Time(time::parse_time(text, reading)?),
        ColumnType::Interval => Value::Interval(time::parse_interval(text, reading.forms.intervals)?),
        ColumnType::Uuid => Value::Uuid(parse_uuid(text)?),
        ColumnType::Json => Value::Text(json::checked(text)?.to_owned()),
        ColumnType::Oid => Value::Int8(i64::from(parse_oid(text)?)),
        ColumnType::Rounded(varve_engine::Moment::Interval, fields) => {
            let fields = time::IntervalFields::of_code(fields);
            let read = time::parse_interval_of(text, reading.forms.intervals, fields)?;
            Value::Interval(fields.fit(read)?)
        }
        ColumnType::Rounded(moment, digits) => {
            let read = parse_with(text, &moment.unrounded(), reading)?;
            time::rounded(read.as_datum(), digits)?.to_value()
        }
        ColumnType::Array(element) => {
            return fit_elements(
                Value::Array(array::parse(text, oid::of_column(element).0, reading)?),
                *element,
            );
        }
    })
}

/// Makes the elements of an array fit the modifier of their type.
pub fn fit_elements(value: Value, element: ColumnType) -> Result<Value> {
    let has_modifier = match element {
        ColumnType::Char(_) | ColumnType::Varchar(Some(_)) | ColumnType::Rounded(..) => true,
        ColumnType::Numeric { precision } => precision.is_some(),
        _ => false,
    };
    let Value::Array(array) = &value else { return Ok(value) };
    if !has_modifier {
        return Ok(value);
    }
    let mut fitted = array::of(oid::of_column(&element).0);
    for datum in array.as_ref().iter() {
        match (element, datum) {
            (ColumnType::Char(n), Datum::Text(text)) => fitted.push(Datum::Text(fit_char(text, n as usize)?)),
            (ColumnType::Varchar(Some(n)), Datum::Text(text)) => {
                fitted.push(Datum::Text(fit_varchar(text, n as usize)?));
            }
            (ColumnType::Numeric { precision }, Datum::Numeric(number)) => {
                fitted.push(Datum::Numeric(fit(number.to_owned(), precision)?.as_ref()));
            }
            (ColumnType::Rounded(_, digits), moment) => fitted.push(time::rounded(moment, digits)?),
            (_, other) => fitted.push(other),
        }
    }
    Ok(Value::Array(fitted.starting_at(array.as_ref().lower_bound())))
}

/// Reads the text form of a value of the type `oid`. The type may be one that columns cannot have: arrays,
/// oid, "char", name.
pub fn parse_as(text: &str, oid: Oid, reading: &Reading<'_>) -> Result<Value> {
    match oid {
        oid::OID => parse_oid(text).map(|oid| Value::Int8(i64::from(oid))),
        oid::CHAR => Ok(Value::Text(first_byte(text).to_owned())),
        oid::NAME => Ok(Value::Text(text[..text.floor_char_boundary(63)].to_owned())),
        oid::INT2VECTOR | oid::OIDVECTOR => array::parse_vector(text, oid).map(Value::Array),
        _ => match oid::element(oid) {
            Some(element) => array::parse(text, element, reading).map(Value::Array),
            None => parse_with(text, &oid::column_type(oid).unwrap_or(ColumnType::Text), reading),
        },
    }
}

/// Returns the number of characters in a text.
pub fn char_count(text: &str) -> usize {
    const NO_ASCII: u64 = 0x8080_8080_8080_8080;
    // The text is checked by words, because `is_ascii` of the standard library checks up to 63 last bytes one
    // by one.
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let seen = words.iter().fold(0, |seen, word| seen | u64::from_ne_bytes(*word));
    let seen = rest.iter().fold(seen, |seen, byte| seen | u64::from(*byte));
    if seen & NO_ASCII == 0 { text.len() } else { text.chars().count() }
}

/// Returns the value of a "char": the first byte of a text. It is empty if the first character is longer.
pub fn first_byte(text: &str) -> &str {
    text.get(..1).unwrap_or_default()
}

/// Returns a text without blanks around it. Other white space of Unicode does not count as blank.
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(BLANKS)
}

/// Reads an oid: a whole number of 32 bits, which may be written as a negative one.
pub fn parse_oid(text: &str) -> Result<u32> {
    let trimmed = trimmed(text);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid("oid", text));
    }
    let value =
        trimmed.parse::<i64>().ok().filter(|n| (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(n));
    value.map(|n| n as u32).ok_or_else(|| {
        let message = format!("value \"{text}\" is out of range for type oid");
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
    })
}

/// Reads 32 hexadecimal digits. A hyphen may follow each group of four, and braces may surround the digits.
fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let bare = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let mut digits = [0; 32];
    let mut count = 0;
    let mut after_hyphen = true;
    for c in bare.chars() {
        match c.to_digit(16) {
            Some(digit) if count < 32 => {
                digits[count] = digit as u8;
                count += 1;
                after_hyphen = false;
            }
            None if c == '-' && !after_hyphen && count % 4 == 0 && count < 32 => after_hyphen = true,
            _ => return Err(invalid("uuid", text)),
        }
    }
    if count < 32 {
        return Err(invalid("uuid", text));
    }
    let mut out = [0; 16];
    out.iter_mut().zip(digits.chunks(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
    Ok(out)
}

/// Checks that a value which was read from bytes is in PostgreSQL's range. The error is 22008 for a date, a
/// time or a timestamp.
pub fn check_range(value: Value) -> Result<Value> {
    match value {
        Value::Date(days) if !matches!(days, i32::MIN | i32::MAX) => {
            time::check_date(i64::from(days)).map(Value::Date).ok_or_else(time::date_range)
        }
        Value::Timestamp(us) | Value::TimestampTz(us) if !time::is_infinite(us) => {
            time::check_timestamp(us).map(|_| value).ok_or_else(time::timestamp_range)
        }
        Value::Time(us) if !(0..=time::DAY_US).contains(&us) => {
            Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "time out of range"))
        }
        other => Ok(other),
    }
}

/// Appends the text form of a value, with times in ISO format and UTC. Appends nothing for NULL.
pub fn write_text(datum: Datum<'_>, out: &mut Vec<u8>) {
    write_with(datum, &time::PLAIN, out);
}

/// Appends the text form of a value, with times in these forms.
pub fn write_with(datum: Datum<'_>, forms: &TimeForms, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => {}
        Datum::Bool(b) => out.push(if b { b't' } else { b'f' }),
        Datum::Int2(n) => write_int(i64::from(n), out),
        Datum::Int4(n) => write_int(i64::from(n), out),
        Datum::Int8(n) => write_int(n, out),
        Datum::Float4(f) => write_float4(f, out),
        Datum::Float8(f) => write_float(f, out),
        Datum::Numeric(n) => {
            // Writing to a Vec does not fail.
            let _ = write!(out, "{n}");
        }
        Datum::Text(t) => out.extend_from_slice(t.as_bytes()),
        Datum::Bytea(b) => write_bytea(b, out),
        Datum::Date(d) => time::write_date(d, forms.dates, out),
        Datum::Timestamp(t) => time::write_timestamp(t, false, forms, out),
        Datum::TimestampTz(t) => time::write_timestamp(t, true, forms, out),
        Datum::Time(t) => time::write_time(t, out),
        Datum::Interval(iv) => time::write_interval(iv, forms.intervals, out),
        Datum::Uuid(u) => write_uuid(u, out),
        Datum::Array(a) => array::write(a, forms, out),
    }
}

fn write_int(n: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// Returns the error 22P02 for a value of a type.
pub fn invalid(ty: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {ty}: \"{text}\""))
}

fn parse_bool(text: &str) -> Result<bool> {
    let lower = trimmed(text).to_ascii_lowercase();
    let is_prefix = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
    if lower == "1" || is_prefix("true", 1) || is_prefix("yes", 1) || lower == "on" {
        Ok(true)
    } else if lower == "0" || is_prefix("false", 1) || is_prefix("no", 1) || is_prefix("off", 2) {
        Ok(false)
    } else {
        Err(invalid("boolean", text))
    }
}

fn parse_int(text: &str, ty: Ty) -> Result<i64> {
    match plain_int(text) {
        Some(n) if ty != Ty::Int2 || n <= i64::from(i16::MAX) => Ok(n),
        _ => parse_any_int(text, ty),
    }
}

/// Reads a number of few digits and nothing else, which fits in 32 bits. Most numbers have this form.
fn plain_int(text: &str) -> Option<i64> {
    const DIGITS_MAX: usize = 9;
    if text.is_empty() || text.len() > DIGITS_MAX {
        return None;
    }
    text.bytes().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
}

fn parse_any_int(text: &str, ty: Ty) -> Result<i64> {
    let trimmed = trimmed(text);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(ty.name(), text));
    }
    let value = trimmed.parse::<i64>().ok();
    let fits = |n: &i64| match ty {
        Ty::Int2 => i16::try_from(*n).is_ok(),
        Ty::Int4 => i32::try_from(*n).is_ok(),
        _ => true,
    };
    value.filter(fits).ok_or_else(|| {
        let message = format!("value \"{text}\" is out of range for type {}", ty.name());
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
    })
}

fn parse_float4(text: &str) -> Result<f32> {
    let wide = parse_float(text, Ty::Float4)?;
    // The digits are rounded only once, to the nearest real, and not first to a double.
    let narrow = trimmed(text).parse::<f32>().unwrap_or(wide as f32);
    if (narrow.is_infinite() && wide.is_finite()) || (narrow == 0.0 && wide != 0.0) {
        return Err(float_range(trimmed(text), Ty::Float4));
    }
    Ok(narrow)
}

fn float_range(text: &str, ty: Ty) -> SqlError {
    let message = format!("\"{text}\" is out of range for type {}", ty.name());
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
}

fn parse_float(text: &str, ty: Ty) -> Result<f64> {
    let trimmed = trimmed(text);
    match trimmed.to_ascii_lowercase().as_str() {
        "nan" => return Ok(f64::NAN),
        "infinity" | "inf" | "+infinity" | "+inf" => return Ok(f64::INFINITY),
        "-infinity" | "-inf" => return Ok(f64::NEG_INFINITY),
        _ => {}
    }
    let shaped = trimmed.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let value = if shaped { trimmed.parse::<f64>().ok() } else { None };
    let value = value.ok_or_else(|| invalid(ty.name(), text))?;
    let lost = value.is_infinite() || (value == 0.0 && mantissa_is_not_zero(trimmed));
    if lost {
        return Err(float_range(trimmed, ty));
    }
    Ok(value)
}

fn mantissa_is_not_zero(text: &str) -> bool {
    text.bytes().take_while(|b| !matches!(b, b'e' | b'E')).any(|b| (b'1'..=b'9').contains(&b))
}

/// Reads a numeric of any precision.
pub fn parse_numeric(text: &str) -> Result<Numeric> {
    text.parse::<Numeric>().map_err(|e| match e {
        NumericError::Overflow => numeric_overflow(),
        _ => invalid("numeric", text),
    })
}

/// Returns the error 22003 for a numeric beyond all limits.
pub fn numeric_overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
}

/// Rounds to a declared precision and scale. The error is 22003 if there are too many digits.
pub fn fit(value: Numeric, precision: Option<(u16, i16)>) -> Result<Numeric> {
    let Some((precision, scale)) = precision else { return Ok(value) };
    value.fit(precision, scale).map_err(|_| {
        let power = i32::from(precision) - i32::from(scale);
        let bound = if power == 0 { "1".to_owned() } else { format!("10^{power}") };
        let trouble = match value.as_ref().as_special() {
            Some(_) => "cannot hold an infinite value".to_owned(),
            None => format!("must round to an absolute value less than {bound}"),
        };
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow")
            .with_detail(format!("A field with precision {precision}, scale {scale} {trouble}."))
    })
}

/// Returns the value of a char(n): at most `n` characters, without trailing blanks.
pub fn fit_char(text: &str, n: usize) -> Result<&str> {
    let kept = text.trim_end_matches(' ');
    if kept.len() > n && kept.chars().count() > n {
        return Err(too_long("character", n));
    }
    Ok(kept)
}

/// Returns the value of a varchar(n). Blanks beyond `n` characters are dropped. Any other character there is
/// an error.
pub fn fit_varchar(text: &str, n: usize) -> Result<&str> {
    if text.len() <= n {
        return Ok(text);
    }
    let Some((cut, _)) = text.char_indices().nth(n) else { return Ok(text) };
    if text[cut..].bytes().all(|b| b == b' ') {
        Ok(&text[..cut])
    } else {
        Err(too_long("character varying", n))
    }
}

fn too_long(ty: &str, n: usize) -> SqlError {
    SqlError::new(SqlState::STRING_TOO_LONG, format!("value too long for type {ty}({n})"))
}

fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex),
        None => parse_escaped(text),
    }
}

pub(crate) fn parse_hex(hex: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(hex.len() / 2);
    let mut high = None;
    for c in hex.chars() {
        if high.is_none() && c.is_ascii_whitespace() {
            continue;
        }
        let digit = c.to_digit(16).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid hexadecimal digit: \"{c}\""))
        })? as u8;
        match high.take() {
            None => high = Some(digit),
            Some(h) => out.push(h << 4 | digit),
        }
    }
    if high.is_some() {
        let message = "invalid hexadecimal data: odd number of digits";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(out)
}

pub(crate) fn parse_escaped(text: &str) -> Result<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            at += 2;
        } else {
            let octal = bytes.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
            let byte = octal.and_then(|d| u8::from_str_radix(d, 8).ok());
            out.push(byte.ok_or_else(|| {
                SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type bytea")
            })?);
            at += 4;
        }
    }
    Ok(out)
}

fn write_bytea(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    out.extend(bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]));
}

fn write_uuid(bytes: [u8; 16], out: &mut Vec<u8>) {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Appends the shortest decimal that is read as the same double, in PostgreSQL's notation.
pub fn write_float(f: f64, out: &mut Vec<u8>) {
    write_shortest(f, &format!("{f:e}"), 15, out);
}

/// Does the same as `write_float` for a real.
pub fn write_float4(f: f32, out: &mut Vec<u8>) {
    write_shortest(f64::from(f), &format!("{f:e}"), 6, out);
}

/// Writes `shortest`, a number with an exponent. If the exponent is in -4..`exponent_end`, it is written
/// without exponent.
fn write_shortest(f: f64, shortest: &str, exponent_end: i32, out: &mut Vec<u8>) {
    if f.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if f.is_infinite() {
        return out.extend_from_slice(if f > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..exponent_end).contains(&exponent) {
        return write_plain(mantissa, exponent, out);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    // Writing to a Vec does not fail.
    let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
}

/// Moves the point of `d.ddd` by `exponent` places.
fn write_plain(mantissa: &str, exponent: i32, out: &mut Vec<u8>) {
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    out.extend_from_slice(sign.as_bytes());
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = exponent.unsigned_abs() as usize - 1;
        return out.extend_from_slice(format!("0.{}{digits}", "0".repeat(zeros)).as_bytes());
    };
    match digits.split_at_checked(whole) {
        Some((head, "")) => out.extend_from_slice(head.as_bytes()),
        Some(("", tail)) => out.extend_from_slice(format!("0.{tail}").as_bytes()),
        Some((head, tail)) => out.extend_from_slice(format!("{head}.{tail}").as_bytes()),
        None => out.extend_from_slice(format!("{digits:0<whole$}").as_bytes()),
    }
}

/// Returns whether a text is a date, time or interval in the default styles, but has another value or none in
/// these styles.
pub fn is_read_otherwise(text: &str, dates: DateStyle, intervals: IntervalStyle) -> bool {
    let clock = Cell::new(None);
    let styled = TimeForms { dates, intervals, ..PLAIN.clone() };
    [oid::DATE, oid::TIMESTAMP, oid::INTERVAL].into_iter().any(|oid| {
        let read =
            |forms| parse_as(text, oid, &Reading::new(forms, &clock)).ok().map(|value| format!("{value:?}"));
        read(&PLAIN) != read(&styled)
    })
}

/// Returns whether the date in a text depends on DateStyle.
pub fn has_several_orders(text: &str) -> bool {
    [DateOrder::Dmy, DateOrder::Ymd]
        .into_iter()
        .any(|order| is_read_otherwise(text, DateStyle { order, ..DateStyle::ISO }, IntervalStyle::Postgres))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(t: ColumnType, cases: &[(&str, &str)]) {
        for (input, expected) in cases {
            let shown = match parse_text(input, &t) {
                Ok(v) => {
                    let mut out = Vec::new();
                    write_text(v.as_datum(), &mut out);
                    String::from_utf8(out).unwrap()
                }
                Err(e) => e.sqlstate.to_string(),
            };
            assert_eq!(&shown, expected, "{t:?} from {input:?}");
        }
    }

    #[test]
    fn values_read_and_show_as_in_postgresql() {
        check(ColumnType::Bool, &[("t", "t"), (" OFF ", "f"), ("o", "22P02"), ("yes", "t")]);
        check(
            ColumnType::Int2,
            &[(" 12 ", "12"), ("32768", "22003"), ("1.5", "22P02"), ("-32768", "-32768")],
        );
        check(ColumnType::Int8, &[("9223372036854775808", "22003"), ("", "22P02"), ("+7", "7")]);
        check(
            ColumnType::Float8,
            &[
                ("1e15", "1e+15"),
                ("100000000000000", "100000000000000"),
                ("0.0001", "0.0001"),
                ("0.00001", "1e-05"),
                ("1e400", "22003"),
                ("-inf", "-Infinity"),
                ("-0", "-0"),
                ("1.5", "1.5"),
            ],
        );
        let money = ColumnType::Numeric { precision: Some((5, 2)) };
        check(
            money,
            &[
                ("1.005", "1.01"),
                ("999.995", "22003"),
                ("-1.005", "-1.01"),
                ("NaN", "NaN"),
                ("1e2", "100.00"),
            ],
        );
        check(ColumnType::Char(3), &[("ab  ", "ab"), ("abcd", "22001"), ("äöü", "äöü")]);
        check(ColumnType::Varchar(Some(3)), &[("ab    ", "ab "), ("abcd", "22001")]);
        check(
            ColumnType::Bytea,
            &[("\\xDEad", "\\xdead"), ("a\\\\b\\001", "\\x615c6201"), ("\\xabc", "22023")],
        );
        check(
            ColumnType::Date,
            &[("2024-02-30", "22008"), ("1/8/1999", "1999-01-08"), ("infinity", "infinity")],
        );
        check(ColumnType::TimestampTz, &[("2024-01-01 12:00:00+02", "2024-01-01 10:00:00+00")]);
    }

    #[test]
    fn newer_types_read_and_show_as_in_postgresql() {
        check(
            ColumnType::Float4,
            &[
                ("1e6", "1e+06"),
                ("123456.7", "123456.7"),
                ("0.1", "0.1"),
                ("16777217", "1.6777216e+07"),
                ("0.00012", "0.00012"),
                ("-0.00001", "-1e-05"),
                ("1e39", "22003"),
                ("1e-60", "22003"),
                ("x", "22P02"),
            ],
        );
        check(
            ColumnType::Time,
            &[
                ("04:05:06.789", "04:05:06.789"),
                ("040506", "04:05:06"),
                ("0405", "04:05:00"),
                ("04:05 PM", "16:05:00"),
                ("12:05 am", "00:05:00"),
                ("24:00:00", "24:00:00"),
                ("24:00:01", "22008"),
                ("2001-02-03 04:05:06", "04:05:06"),
                ("04:05:06+02", "04:05:06"),
                ("noon", "22007"),
            ],
        );
        check(
            ColumnType::Uuid,
            &[
                ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
                ("{a0eebc999c0b4ef8bb6d6bb9bd380a11}", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
                ("a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
                ("a0eebc999c0b4ef8bb6d6bb9bd380a1", "22P02"),
                ("a-0eebc999c0b4ef8bb6d6bb9bd380a11", "22P02"),
            ],
        );
        check(ColumnType::Interval, &[("1 mon -2 days", "1 mon -2 days"), ("30 days", "30 days")]);
    }
}
