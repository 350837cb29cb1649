//! Functions that make JSON. `of` converts one value to JSON. The binder calls it for each argument, so the
//! other functions only join texts.
//!
//! `json_parts` reads JSON.

use varve_engine::Datum;

use super::{Builtin, any, check_size, loose, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::text::write_with;
use crate::time::{DateStyle, TimeForms};
use crate::ty::Ty::{Json, Text, Unknown};

/// Converts one value to json. Only the binder can call this function and the next ones, because their names
/// are not valid in SQL.
pub const OF: &str = "json of a value";
/// Converts an array of json.
pub const OF_ARRAY: &str = "json of an array of json";
/// Makes an object from a row: names and json.
pub const ROW: &str = "json of a row";
/// Does json_build_object for names and json.
pub const OBJECT: &str = "json of pairs";
/// Does json_build_array for json.
pub const ARRAY: &str = "json of a list";

pub(super) const TABLE: &[Builtin] = &[
    loose(OF, &[Unknown], Json, |a, cx| {
        let value = a.first().copied().unwrap_or(Datum::Null);
        if value.is_null() {
            return Ok(Datum::Null);
        }
        let mut out = Vec::new();
        // Dates in json have the ISO form for every setting of DateStyle.
        let forms = TimeForms { dates: DateStyle::ISO, ..cx.env.forms.clone() };
        write(value, &forms, &mut out);
        finished(out, cx)
    }),
    loose(OF_ARRAY, &[Unknown], Json, |a, cx| {
        let Some(Datum::Array(array)) = a.first() else { return Ok(Datum::Null) };
        let pieces: Vec<Datum<'_>> = array.iter().collect();
        let mut out = Vec::new();
        listed(&pieces, b",", &mut out);
        finished(out, cx)
    }),
    any(ROW, &[Unknown], Json, |a, cx| {
        let mut out = vec![b'{'];
        for (n, pair) in a.chunks(2).enumerate() {
            out.extend_from_slice(if n > 0 { b"," } else { b"" });
            quoted(text(pair, 0), &mut out);
            out.push(b':');
            piece(pair.get(1).copied(), &mut out);
        }
        out.push(b'}');
        finished(out, cx)
    }),
    any(OBJECT, &[Text], Json, |a, cx| {
        let mut out = vec![b'{'];
        for (n, pair) in a.chunks(2).enumerate() {
            if pair[0].is_null() {
                let message = format!("argument {} cannot be null", 2 * n + 1);
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .with_hint("Object keys should be text."));
            }
            out.extend_from_slice(if n > 0 { b", " } else { b"" });
            quoted(text(pair, 0), &mut out);
            out.extend_from_slice(b" : ");
            piece(pair.get(1).copied(), &mut out);
        }
        out.push(b'}');
        finished(out, cx)
    }),
    any(ARRAY, &[Json], Json, |a, cx| {
        let mut out = Vec::new();
        listed(a, b", ", &mut out);
        finished(out, cx)
    }),
];

fn finished<'a>(out: Vec<u8>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    check_size(out.len())?;
    Ok(cx.text(&String::from_utf8_lossy(&out)))
}

/// Writes pieces of json as an array.
fn listed(pieces: &[Datum<'_>], between: &[u8], out: &mut Vec<u8>) {
    out.push(b'[');
    for (n, value) in pieces.iter().enumerate() {
        out.extend_from_slice(if n > 0 { between } else { b"" });
        piece(Some(*value), out);
    }
    out.push(b']');
}

/// Writes a piece of json. NULL becomes `null`.
fn piece(value: Option<Datum<'_>>, out: &mut Vec<u8>) {
    match value {
        Some(Datum::Text(json)) => out.extend_from_slice(json.as_bytes()),
        _ => out.extend_from_slice(b"null"),
    }
}

/// Writes a value as json. Numbers and booleans are written as they are, times in ISO 8601, and other values
/// as a string.
fn write(value: Datum<'_>, forms: &TimeForms, out: &mut Vec<u8>) {
    match value {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Bool(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
        Datum::Text(t) => quoted(t, out),
        Datum::Array(array) => {
            out.push(b'[');
            for (n, element) in array.iter().enumerate() {
                out.extend_from_slice(if n > 0 { b"," } else { b"" });
                write(element, forms, out);
            }
            out.push(b']');
        }
        _ => {
            let mut shown = Vec::new();
            write_with(value, forms, &mut shown);
            let shown = String::from_utf8_lossy(&shown);
            match value {
                Datum::Timestamp(_) | Datum::TimestampTz(_) => quoted(&iso(&shown), out),
                _ if is_number(value) && is_plain(&shown) => out.extend_from_slice(shown.as_bytes()),
                _ => quoted(&shown, out),
            }
        }
    }
}

fn is_number(value: Datum<'_>) -> bool {
    matches!(
        value,
        Datum::Int2(_)
            | Datum::Int4(_)
            | Datum::Int8(_)
            | Datum::Float4(_)
            | Datum::Float8(_)
            | Datum::Numeric(_)
    )
}

/// Returns whether the text of a number is neither NaN nor infinity.
fn is_plain(number: &str) -> bool {
    number.ends_with(|c: char| c.is_ascii_digit())
}

/// Returns a timestamp in the form of ISO 8601: with a T between date and time, and with minutes in its time
/// zone.
fn iso(shown: &str) -> String {
    let out = shown.replacen(' ', "T", 1);
    let zone = out.find('T').and_then(|t| out[t..].find(['+', '-']).map(|n| t + n));
    match zone {
        Some(sign) if out[sign..].split(' ').next().is_some_and(|zone| zone.len() == 3) => {
            format!("{}:00{}", &out[..sign + 3], &out[sign + 3..])
        }
        _ => out,
    }
}

/// Writes a string as json.
pub fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
