//! Functions of strings, bytes and regular expressions, and `num_nulls` and `num_nonnulls`, which count
//! NULLs.
//!
//! This module does not know how patterns are compiled (`eval::regex`).

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use varve_engine::{Datum, Value};

use super::{Builtin, any, int, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::ty::Ty::{self, Array, Bytea, Int4, Int8, Text, Unknown};

pub(super) const TABLE: &[Builtin] = &[
    any("num_nulls", &[Unknown], Int4, |a, _| count(a, true)),
    any("num_nonnulls", &[Unknown], Int4, |a, _| count(a, false)),
    strict("sha224", &[Bytea], Bytea, |a, cx| Ok(Datum::Bytea(cx.bytes(&Sha224::digest(bytes(a, 0)))))),
    strict("sha256", &[Bytea], Bytea, |a, cx| Ok(Datum::Bytea(cx.bytes(&Sha256::digest(bytes(a, 0)))))),
    strict("sha384", &[Bytea], Bytea, |a, cx| Ok(Datum::Bytea(cx.bytes(&Sha384::digest(bytes(a, 0)))))),
    strict("sha512", &[Bytea], Bytea, |a, cx| Ok(Datum::Bytea(cx.bytes(&Sha512::digest(bytes(a, 0)))))),
    strict("btrim", &[Bytea, Bytea], Bytea, |a, _| Ok(trimmed(a, true, true))),
    strict("ltrim", &[Bytea, Bytea], Bytea, |a, _| Ok(trimmed(a, true, false))),
    strict("rtrim", &[Bytea, Bytea], Bytea, |a, _| Ok(trimmed(a, false, true))),
    strict("overlay", &[Bytea, Bytea, Int4], Bytea, |a, cx| overlay(a, bytes(a, 1).len() as i64, cx)),
    strict("overlay", &[Bytea, Bytea, Int4, Int4], Bytea, |a, cx| overlay(a, int(a, 3), cx)),
    strict("get_bit", &[Bytea, Int8], Int4, |a, _| {
        let (all, at) = (bytes(a, 0), int(a, 1));
        let byte = usize::try_from(at / 8).ok().filter(|_| at >= 0).and_then(|byte| all.get(byte));
        let byte = byte.ok_or_else(|| {
            let highest = all.len() as i64 * 8 - 1;
            SqlError::new(SqlState("2202E"), format!("index {at} out of valid range, 0..{highest}"))
        })?;
        Ok(Datum::Int4(i32::from(byte >> (at % 8) & 1)))
    }),
    strict("unistr", &[Text], Text, unistr),
    strict("parse_ident", &[Text], Array(&Ty::Text), parse_ident),
];

fn count<'a>(a: &[Datum<'a>], nulls: bool) -> Result<Datum<'a>> {
    Ok(Datum::Int4(a.iter().filter(|value| value.is_null() == nulls).count() as i32))
}

/// `overlay` of bytea: replaces a number of bytes of the first argument, from a position on.
fn overlay<'a>(a: &[Datum<'a>], length: i64, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (whole, put, start) = (bytes(a, 0), bytes(a, 1), int(a, 2));
    if start < 1 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = i32::try_from(start + length);
    let end = end.map_err(|_| SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "integer out of range"))?;
    let at = |place: i64| usize::try_from(place - 1).unwrap_or(0).min(whole.len());
    let made = [&whole[..at(start)], put, &whole[at(i64::from(end))..]].concat();
    super::check_size(made.len())?;
    Ok(Datum::Bytea(cx.bytes(&made)))
}

fn bytes<'a>(a: &[Datum<'a>], n: usize) -> &'a [u8] {
    match a.get(n) {
        Some(Datum::Bytea(bytes)) => bytes,
        _ => &[],
    }
}

fn trimmed<'a>(a: &[Datum<'a>], left: bool, right: bool) -> Datum<'a> {
    let (mut rest, set) = (bytes(a, 0), bytes(a, 1));
    while let Some((first, others)) = rest.split_first().filter(|(first, _)| left && set.contains(first)) {
        let _ = first;
        rest = others;
    }
    while let Some((last, others)) = rest.split_last().filter(|(last, _)| right && set.contains(last)) {
        let _ = last;
        rest = others;
    }
    Datum::Bytea(rest)
}

/// Replaces `\0061`, `\+000061`, `\u0061` and `\U00000061` by their characters.
fn unistr<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let invalid = || SqlError::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape");
    let (mut rest, mut out) = (text(a, 0), String::new());
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (skipped, digits) = match after.chars().next() {
            Some('\\') => {
                out.push('\\');
                rest = &after[1..];
                continue;
            }
            Some('+') => (1, 6),
            Some('u') => (1, 4),
            Some('U') => (1, 8),
            _ => (0, 4),
        };
        let code = after.get(skipped..skipped + digits).ok_or_else(invalid)?;
        let code = u32::from_str_radix(code, 16).map_err(|_| invalid())?;
        out.push(char::from_u32(code).ok_or_else(invalid)?);
        rest = &after[skipped + digits..];
    }
    out.push_str(rest);
    Ok(cx.text(&out))
}

/// Splits a dotted name into its parts, and folds them like SQL names.
fn parse_ident<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let whole = text(a, 0);
    let invalid = || {
        let message = format!("string is not a valid identifier: \"{whole}\"");
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
    };
    let (mut rest, mut out) = (whole.trim(), crate::array::of(crate::oid::TEXT));
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted).ok_or_else(invalid)?,
            None => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
                let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
                (part.to_lowercase(), after)
            }
        };
        if part.is_empty()
            || (!rest.starts_with('"') && part.starts_with(|c: char| c.is_ascii_digit() || c == '$'))
        {
            return Err(invalid());
        }
        out.push(Datum::Text(&part));
        match after.trim_start() {
            "" => return Ok(cx.keep_value(Value::Array(out))),
            more => rest = more.strip_prefix('.').ok_or_else(invalid)?.trim_start(),
        }
    }
}

/// Reads the text up to the closing quote. Two quotes mean one quote. Also returns the rest of the text.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let at = rest.find('"')?;
        part.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                part.push('"');
                rest = more;
            }
            None => return Some((part, rest)),
        }
    }
}
