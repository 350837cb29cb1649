//! PostgreSQL's text form of values: input for literals, parameters and COPY, output for text results and casts.
//!
//! Invariants
//! 1. `parse_text(write_text(v)) = v` for every value of every column type (infinities and NaN included).
//! 2. Text input applies the column type's modifier: lengths are checked, numerics rounded.
//!
//! Does not know: sessions. Times with zone are read and shown in UTC unless an offset is given (`write_in_zone`).

use std::io::Write;

use varve_engine::{ColumnType, Datum, Numeric, NumericError, Value};

use crate::error::{Result, SqlError, SqlState};
use crate::time::{self, Zone};
use crate::ty::Ty;

/// Reads the text form of a value of type `t`, in UTC.
pub fn parse_text(text: &str, t: &ColumnType) -> Result<Value> {
    parse_in_zone(text, t, &Zone::UTC)
}

/// Reads the text form of a value of type `t`; times with zone that name none are in `zone`.
pub fn parse_in_zone(text: &str, t: &ColumnType, zone: &Zone) -> Result<Value> {
    Ok(match *t {
        ColumnType::Bool => Value::Bool(parse_bool(text)?),
        ColumnType::Int2 => Value::Int2(parse_int(text, Ty::Int2)? as i16),
        ColumnType::Int4 => Value::Int4(parse_int(text, Ty::Int4)? as i32),
        ColumnType::Int8 => Value::Int8(parse_int(text, Ty::Int8)?),
        ColumnType::Float8 => Value::Float8(parse_float(text)?),
        ColumnType::Numeric { precision } => Value::Numeric(fit(parse_numeric(text)?, precision)?),
        ColumnType::Char(n) => Value::Text(fit_char(text, n as usize)?.to_owned()),
        ColumnType::Varchar(Some(n)) => Value::Text(fit_varchar(text, n as usize)?.to_owned()),
        ColumnType::Varchar(None) | ColumnType::Text => Value::Text(text.to_owned()),
        ColumnType::Bytea => Value::Bytea(parse_bytea(text)?),
        ColumnType::Date => Value::Date(time::parse_date(text)?),
        ColumnType::Timestamp => Value::Timestamp(time::parse_timestamp(text)?),
        ColumnType::TimestampTz => Value::TimestampTz(time::parse_timestamptz(text, zone)?),
    })
}

/// The value, if PostgreSQL has it: 22008 for a date or a timestamp outside its range. For values that come as bytes.
pub fn check_range(value: Value) -> Result<Value> {
    match value {
        Value::Date(days) if !matches!(days, i32::MIN | i32::MAX) => {
            time::check_date(i64::from(days)).map(Value::Date).ok_or_else(time::date_range)
        }
        Value::Timestamp(us) | Value::TimestampTz(us) if !time::is_infinite(us) => {
            time::check_timestamp(us).map(|_| value).ok_or_else(time::timestamp_range)
        }
        other => Ok(other),
    }
}

/// Appends the text form of a value, times with zone in UTC; nothing for NULL.
pub fn write_text(datum: Datum<'_>, out: &mut Vec<u8>) {
    write_in_zone(datum, &Zone::UTC, out);
}

/// Appends the text form of a value, times with zone as clocks in `zone` show them.
pub fn write_in_zone(datum: Datum<'_>, zone: &Zone, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => {}
        Datum::Bool(b) => out.push(if b { b't' } else { b'f' }),
        Datum::Int2(n) => write_int(i64::from(n), out),
        Datum::Int4(n) => write_int(i64::from(n), out),
        Datum::Int8(n) => write_int(n, out),
        Datum::Float8(f) => write_float(f, out),
        Datum::Numeric(n) => {
            // A Vec takes all that is written to it.
            let _ = write!(out, "{n}");
        }
        Datum::Text(t) => out.extend_from_slice(t.as_bytes()),
        Datum::Bytea(b) => write_bytea(b, out),
        Datum::Date(d) => time::write_date(d, out),
        Datum::Timestamp(t) => time::write_timestamp(t, None, out),
        Datum::TimestampTz(t) => time::write_timestamp(t, Some(zone), out),
    }
}

fn write_int(n: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// 22P02 for a value of a type.
pub fn invalid(ty: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {ty}: \"{text}\""))
}

fn parse_bool(text: &str) -> Result<bool> {
    let lower = text.trim().to_ascii_lowercase();
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
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
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

fn parse_float(text: &str) -> Result<f64> {
    let trimmed = text.trim();
    match trimmed.to_ascii_lowercase().as_str() {
        "nan" => return Ok(f64::NAN),
        "infinity" | "inf" | "+infinity" | "+inf" => return Ok(f64::INFINITY),
        "-infinity" | "-inf" => return Ok(f64::NEG_INFINITY),
        _ => {}
    }
    let shaped = trimmed.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    let value = if shaped { trimmed.parse::<f64>().ok() } else { None };
    let value = value.ok_or_else(|| invalid("double precision", text))?;
    let lost = value.is_infinite() || (value == 0.0 && mantissa_is_not_zero(trimmed));
    if lost {
        let message = format!("\"{trimmed}\" is out of range for type double precision");
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    Ok(value)
}

fn mantissa_is_not_zero(text: &str) -> bool {
    text.bytes().take_while(|b| !matches!(b, b'e' | b'E')).any(|b| (b'1'..=b'9').contains(&b))
}

/// Months, days and microseconds of an interval in its text form.
pub fn interval_parts(text: &str) -> Result<(i32, i32, i64)> {
    time::parse_interval(text).map(|iv| (iv.months, iv.days, iv.micros))
}

/// Reads a numeric of any precision.
pub fn parse_numeric(text: &str) -> Result<Numeric> {
    text.parse::<Numeric>().map_err(|e| match e {
        NumericError::Overflow => numeric_overflow(),
        _ if is_infinity(text) => SqlError::unsupported("infinity as numeric"),
        _ => invalid("numeric", text),
    })
}

fn is_infinity(text: &str) -> bool {
    let bare = text.trim().trim_start_matches(['+', '-']);
    bare.eq_ignore_ascii_case("inf") || bare.eq_ignore_ascii_case("infinity")
}

/// 22003 for a numeric beyond every limit.
pub fn numeric_overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
}

/// Rounds to a declared precision and scale; 22003 if digits are too many.
pub fn fit(value: Numeric, precision: Option<(u16, i16)>) -> Result<Numeric> {
    let Some((precision, scale)) = precision else { return Ok(value) };
    value.fit(precision, scale).map_err(|_| {
        let power = i32::from(precision) - i32::from(scale);
        let bound = if power == 0 { "1".to_owned() } else { format!("10^{power}") };
        SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
        ))
    })
}

/// The value of a char(n): trailing blanks cut, at most `n` characters.
pub fn fit_char(text: &str, n: usize) -> Result<&str> {
    let kept = text.trim_end_matches(' ');
    if kept.len() > n && kept.chars().count() > n {
        return Err(too_long("character", n));
    }
    Ok(kept)
}

/// The value of a varchar(n): trailing blanks beyond `n` characters are dropped, anything else there is an error.
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
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    out.extend(bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]));
}

/// Appends the shortest decimal that reads back as the same double, in PostgreSQL's notation.
pub fn write_float(f: f64, out: &mut Vec<u8>) {
    if f.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if f.is_infinite() {
        return out.extend_from_slice(if f > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let shortest = format!("{f:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&exponent) {
        // A Vec takes all that is written to it.
        let _ = write!(out, "{f}");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
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
}
