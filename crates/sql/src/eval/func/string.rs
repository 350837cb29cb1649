//! Functions of strings and bytes.
//!
//! Invariants
//! 1. Positions count characters from 1, and lengths count characters.
//!
//! The only collation is "C". Upper and lower case follow Unicode's simple case mapping.

use md5::{Digest, Md5};
use varve_engine::Datum;

use super::{Builtin, any, encoding, int, strict, text};
use crate::encoding::Encoding;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::text::char_count;
use crate::ty::Ty::{Bool, Bytea, Int4, Int8, Name, Text, Unknown};

/// The longest string that a function may make, in bytes.
const RESULT_BYTES_MAX: usize = 16 << 20;

pub(super) const TABLE: &[Builtin] = &[
    strict("length", &[Text], Int4, |a, _| Ok(count(char_count(text(a, 0))))),
    strict("char_length", &[Text], Int4, |a, _| Ok(count(char_count(text(a, 0))))),
    strict("character_length", &[Text], Int4, |a, _| Ok(count(char_count(text(a, 0))))),
    strict("length", &[Bytea], Int4, |a, _| Ok(count(bytes(a, 0).len()))),
    strict("octet_length", &[Text], Int4, |a, _| Ok(count(text(a, 0).len()))),
    strict("octet_length", &[Bytea], Int4, |a, _| Ok(count(bytes(a, 0).len()))),
    strict("bit_length", &[Text], Int4, |a, _| Ok(count(text(a, 0).len() * 8))),
    strict("lower", &[Text], Text, |a, cx| Ok(cx.text(&lower(text(a, 0))))),
    strict("upper", &[Text], Text, |a, cx| Ok(cx.text(&upper(text(a, 0))))),
    strict("initcap", &[Text], Text, |a, cx| Ok(cx.text(&initcap(text(a, 0))))),
    strict("substring", &[Text, Int4], Text, |a, _| substring(a)),
    strict("substring", &[Text, Int4, Int4], Text, |a, _| substring(a)),
    strict("substr", &[Text, Int4], Text, |a, _| substring(a)),
    strict("substr", &[Text, Int4, Int4], Text, |a, _| substring(a)),
    strict("substring", &[Bytea, Int4], Bytea, sub_bytes),
    strict("substring", &[Bytea, Int4, Int4], Bytea, sub_bytes),
    strict("substr", &[Bytea, Int4], Bytea, sub_bytes),
    strict("substr", &[Bytea, Int4, Int4], Bytea, sub_bytes),
    strict("get_byte", &[Bytea, Int4], Int4, |a, _| Ok(Datum::Int4(i32::from(bytes(a, 0)[byte_index(a)?])))),
    strict("set_byte", &[Bytea, Int4, Int4], Bytea, |a, cx| {
        let (at, mut changed) = (byte_index(a)?, bytes(a, 0).to_vec());
        changed[at] = int(a, 2) as u8;
        Ok(Datum::Bytea(cx.bytes(&changed)))
    }),
    strict("convert_to", &[Text, Name], Bytea, |a, cx| {
        let bytes = conversion(text(a, 1), "destination")?.of_utf8(text(a, 0))?;
        Ok(Datum::Bytea(cx.bytes(&bytes)))
    }),
    strict("convert_from", &[Bytea, Name], Text, |a, cx| {
        let converted = conversion(text(a, 1), "source")?.to_utf8(bytes(a, 0))?;
        Ok(cx.text(crate::binary::utf8(&converted)?))
    }),
    strict("convert", &[Bytea, Name, Name], Bytea, |a, cx| {
        let source = conversion(text(a, 1), "source")?;
        let destination = conversion(text(a, 2), "destination")?;
        check_pair(source, destination)?;
        let converted = source.to_utf8(bytes(a, 0))?;
        Ok(Datum::Bytea(cx.bytes(&destination.of_utf8(crate::binary::utf8(&converted)?)?)))
    }),
    strict("btrim", &[Text], Text, |a, _| Ok(trimmed(a, true, true))),
    strict("btrim", &[Text, Text], Text, |a, _| Ok(trimmed(a, true, true))),
    strict("ltrim", &[Text], Text, |a, _| Ok(trimmed(a, true, false))),
    strict("ltrim", &[Text, Text], Text, |a, _| Ok(trimmed(a, true, false))),
    strict("rtrim", &[Text], Text, |a, _| Ok(trimmed(a, false, true))),
    strict("rtrim", &[Text, Text], Text, |a, _| Ok(trimmed(a, false, true))),
    strict("replace", &[Text, Text, Text], Text, |a, cx| match text(a, 1) {
        "" => Ok(a[0]),
        from => {
            let count = text(a, 0).matches(from).count();
            let kept = text(a, 0).len() - count * from.len();
            check_size(kept.saturating_add(count.saturating_mul(text(a, 2).len())))?;
            Ok(cx.text(&text(a, 0).replace(from, text(a, 2))))
        }
    }),
    strict("translate", &[Text, Text, Text], Text, |a, cx| Ok(cx.text(&translate(a)))),
    any("concat", &[Unknown], Text, |a, cx| Ok(cx.text(&joined(a, "")?))),
    any("concat_ws", &[Text, Unknown], Text, |a, cx| match a[0] {
        Datum::Text(separator) => Ok(cx.text(&joined(&a[1..], separator)?)),
        _ => Ok(Datum::Null),
    }),
    strict("left", &[Text, Int4], Text, |a, _| Ok(side(a, true))),
    strict("right", &[Text, Int4], Text, |a, _| Ok(side(a, false))),
    strict("lpad", &[Text, Int4], Text, |a, cx| padded(a, true, cx)),
    strict("lpad", &[Text, Int4, Text], Text, |a, cx| padded(a, true, cx)),
    strict("rpad", &[Text, Int4], Text, |a, cx| padded(a, false, cx)),
    strict("rpad", &[Text, Int4, Text], Text, |a, cx| padded(a, false, cx)),
    strict("repeat", &[Text, Int4], Text, |a, cx| {
        let times = usize::try_from(int(a, 1)).unwrap_or(0);
        check_size(text(a, 0).len().saturating_mul(times))?;
        Ok(cx.text(&text(a, 0).repeat(times)))
    }),
    strict("reverse", &[Text], Text, |a, cx| Ok(cx.text(&text(a, 0).chars().rev().collect::<String>()))),
    strict("strpos", &[Text, Text], Int4, |a, _| {
        let found = text(a, 0).find(text(a, 1));
        Ok(count(found.map_or(0, |at| char_count(&text(a, 0)[..at]) + 1)))
    }),
    strict("split_part", &[Text, Text, Int4], Text, |a, _| split_part(a)),
    strict("starts_with", &[Text, Text], Bool, |a, _| Ok(Datum::Bool(text(a, 0).starts_with(text(a, 1))))),
    strict("ascii", &[Text], Int4, |a, _| Ok(Datum::Int4(text(a, 0).chars().next().map_or(0, |c| c as i32)))),
    strict("chr", &[Int4], Text, |a, cx| chr(int(a, 0), cx)),
    strict("to_hex", &[Int4], Text, |a, cx| Ok(cx.text(&format!("{:x}", int(a, 0) as u32)))),
    strict("to_hex", &[Int8], Text, |a, cx| Ok(cx.text(&format!("{:x}", int(a, 0))))),
    strict("encode", &[Bytea, Text], Text, |a, cx| {
        let encoded = encoding::encode(bytes(a, 0), text(a, 1))?;
        check_size(encoded.len())?;
        Ok(cx.text(&encoded))
    }),
    strict("decode", &[Text, Text], Bytea, |a, cx| {
        Ok(Datum::Bytea(cx.bytes(&encoding::decode(text(a, 0), text(a, 1))?)))
    }),
    strict("md5", &[Text], Text, |a, cx| Ok(cx.text(&hex(&Md5::digest(text(a, 0).as_bytes()))))),
    strict("md5", &[Bytea], Text, |a, cx| Ok(cx.text(&hex(&Md5::digest(bytes(a, 0)))))),
];

/// Returns the bytes from a position on, which counts from 1. A third argument limits their number.
fn sub_bytes<'a>(a: &[Datum<'a>], _: &Cx<'a>) -> Result<Datum<'a>> {
    let all = bytes(a, 0);
    let start = int(a, 1);
    let end = match a.get(2) {
        Some(_) if int(a, 2) < 0 => {
            return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(_) => start + int(a, 2),
        None => i64::MAX,
    };
    let place = |n: i64| usize::try_from(n - 1).unwrap_or(0).min(all.len());
    let (start, end) = (place(start), if end == i64::MAX { all.len() } else { place(end) });
    Ok(Datum::Bytea(&all[start..end.max(start)]))
}

/// Returns the index of a byte. Fails with 2202E if there is no such byte.
fn byte_index(a: &[Datum<'_>]) -> Result<usize> {
    let (at, length) = (int(a, 1), bytes(a, 0).len());
    let index = usize::try_from(at).ok().filter(|at| *at < length);
    index.ok_or_else(|| {
        let message = format!("index {at} out of valid range, 0..{}", length as i64 - 1);
        SqlError::new(SqlState::ARRAY_SUBSCRIPT, message)
    })
}

/// Finds an encoding by its name. Fails with 22023 if there is none.
fn conversion(name: &str, role: &str) -> Result<Encoding> {
    Encoding::named(name).ok_or_else(|| {
        let message = format!("invalid {role} encoding name \"{name}\"");
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
    })
}

/// Fails with 42883 if PostgreSQL does not convert between two encodings. PostgreSQL converts between them if
/// one of them is UTF-8, or if both are in one of these groups.
fn check_pair(source: Encoding, destination: Encoding) -> Result<()> {
    const GROUPS: &[&[&str]] = &[&["LATIN2", "WIN1250"], &["KOI8R", "WIN1251", "WIN866", "ISO_8859_5"]];
    let (from, to) = (source.name(), destination.name());
    let is_related = GROUPS.iter().any(|group| group.contains(&from) && group.contains(&to));
    let needs_none = !source.converts() || !destination.converts() || source == destination;
    if needs_none || is_related {
        return Ok(());
    }
    let message = format!("default conversion function for encoding \"{from}\" to \"{to}\" does not exist");
    Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message))
}

fn bytes<'a>(arguments: &[Datum<'a>], n: usize) -> &'a [u8] {
    match arguments[n] {
        Datum::Bytea(b) => b,
        _ => &[],
    }
}

fn count<'a>(n: usize) -> Datum<'a> {
    Datum::Int4(i32::try_from(n).unwrap_or(i32::MAX))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Fails with 54000 if a string would be too long. Without this limit, a few nested calls could use up the
/// memory.
pub(in crate::eval) fn check_size(bytes: usize) -> Result<()> {
    if bytes > RESULT_BYTES_MAX {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "requested length too large"));
    }
    Ok(())
}

/// Returns the characters from `start` (counted from 0) up to `end`.
fn slice(text: &str, start: usize, end: usize) -> &str {
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(i, _)| i);
    if text.is_ascii() {
        let (start, end) = (start.min(text.len()), end.min(text.len()));
        return &text[start..end.max(start)];
    }
    let (start, end) = (at(start), at(end));
    &text[start..end.max(start)]
}

/// Computes substring(text, from [, for]). If `from` is below 1, the positions before 1 count for the length.
fn substring<'a>(a: &[Datum<'a>]) -> Result<Datum<'a>> {
    let from = int(a, 1);
    let end = match a.len() {
        2 => i64::MAX,
        _ if int(a, 2) < 0 => {
            return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        _ => from + int(a, 2),
    };
    let position = |n: i64| usize::try_from(n.saturating_sub(1)).unwrap_or(0);
    Ok(Datum::Text(slice(text(a, 0), position(from), position(end))))
}

fn trimmed<'a>(a: &[Datum<'a>], front: bool, back: bool) -> Datum<'a> {
    let set = if a.len() > 1 { text(a, 1) } else { " " };
    let mut rest = text(a, 0);
    if front {
        rest = rest.trim_start_matches(|c| set.contains(c));
    }
    if back {
        rest = rest.trim_end_matches(|c| set.contains(c));
    }
    Datum::Text(rest)
}

/// Returns the other case of a character. If the other case has several characters, the character stays
/// unchanged, as in PostgreSQL: `upper('ß')` is `ß`.
fn single(c: char, mut other: impl Iterator<Item = char>) -> char {
    match (other.next(), other.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// Converts to lower case, character by character.
pub fn lower(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => text.chars().map(|c| single(c, c.to_lowercase())).collect(),
    }
}

fn upper(text: &str) -> String {
    match text.is_ascii() {
        true => text.to_ascii_uppercase(),
        false => text.chars().map(|c| single(c, c.to_uppercase())).collect(),
    }
}

fn initcap(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.push(single(c, c.to_lowercase()))
        } else {
            out.push(single(c, c.to_uppercase()))
        }
        inside = c.is_alphanumeric();
    }
    out
}

fn translate(a: &[Datum<'_>]) -> String {
    let to: Vec<char> = text(a, 2).chars().collect();
    let replace = |c: char| match text(a, 1).chars().position(|f| f == c) {
        None => Some(c),
        Some(at) => to.get(at).copied(),
    };
    text(a, 0).chars().filter_map(replace).collect()
}

/// Joins the arguments with a separator. NULLs are skipped. The binder has cast the arguments to text.
fn joined(arguments: &[Datum<'_>], separator: &str) -> Result<String> {
    let parts: Vec<&str> = arguments
        .iter()
        .filter_map(|d| match d {
            Datum::Text(t) => Some(*t),
            _ => None,
        })
        .collect();
    check_size(parts.iter().map(|part| part.len() + separator.len()).sum())?;
    Ok(parts.join(separator))
}

/// Computes left(text, n) or right(text, n). A negative n removes -n characters at the other end.
fn side<'a>(a: &[Datum<'a>], left: bool) -> Datum<'a> {
    let whole = text(a, 0);
    let len = char_count(whole) as i64;
    let n = int(a, 1);
    let keep = if n < 0 { (len + n).max(0) } else { n.min(len) } as usize;
    let len = len as usize;
    Datum::Text(if left { slice(whole, 0, keep) } else { slice(whole, len - keep, len) })
}

fn padded<'a>(a: &[Datum<'a>], front: bool, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let fill = if a.len() > 2 { text(a, 2) } else { " " };
    let width = usize::try_from(int(a, 1)).unwrap_or(0);
    let have = char_count(text(a, 0));
    if have >= width || fill.is_empty() {
        return Ok(Datum::Text(slice(text(a, 0), 0, width.min(have))));
    }
    check_size(width.saturating_mul(4))?;
    let padding: String = fill.chars().cycle().take(width - have).collect();
    let whole = if front { padding + text(a, 0) } else { text(a, 0).to_owned() + &padding };
    Ok(cx.text(&whole))
}

fn split_part<'a>(a: &[Datum<'a>]) -> Result<Datum<'a>> {
    let n = int(a, 2);
    let (whole, delimiter) = (text(a, 0), text(a, 1));
    if n == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let parts: Vec<&str> = if delimiter.is_empty() { vec![whole] } else { whole.split(delimiter).collect() };
    let index = if n > 0 { n - 1 } else { parts.len() as i64 + n };
    let part = usize::try_from(index).ok().and_then(|i| parts.get(i));
    Ok(Datum::Text(part.copied().unwrap_or("")))
}

fn chr<'a>(code: i64, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let refused = |message: &str| SqlError::new(SqlState::PROGRAM_LIMIT, message);
    if code == 0 {
        return Err(refused("null character not permitted"));
    }
    if code < 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "character number must be positive"));
    }
    if code > i64::from(u32::from(char::MAX)) {
        return Err(refused(&format!("requested character too large for encoding: {code}")));
    }
    let c = u32::try_from(code).ok().and_then(char::from_u32);
    let c = c.ok_or_else(|| refused(&format!("requested character not valid for encoding: {code}")))?;
    Ok(cx.text(c.encode_utf8(&mut [0; 4])))
}
