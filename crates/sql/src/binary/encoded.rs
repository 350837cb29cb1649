//! Text inside binary forms, converted between UTF-8 and a client's encoding.

use std::borrow::Cow;

use varve_engine::ColumnType;

use super::array::Fields;
use crate::encoding::Encoding;
use crate::error::Result;
use crate::oid::{self, Oid};

/// Returns a value that a client sent, with its text in UTF-8.
pub fn to_utf8(raw: &[u8], oid: Oid, encoding: Encoding) -> Result<Cow<'_, [u8]>> {
    match encoding.converts() {
        true => converted(raw, oid, &|text| encoding.to_utf8(text)),
        false => Ok(Cow::Borrowed(raw)),
    }
}

/// Converts the text in an encoded value to a client's encoding.
pub fn of_utf8(raw: &[u8], oid: Oid, encoding: Encoding) -> Result<Cow<'_, [u8]>> {
    match encoding.converts() {
        true => converted(raw, oid, &|text| encoding.of_utf8(super::utf8(text)?)),
        false => Ok(Cow::Borrowed(raw)),
    }
}

type Conversion<'c> = dyn for<'t> Fn(&'t [u8]) -> Result<Cow<'t, [u8]>> + 'c;

fn converted<'r>(raw: &'r [u8], oid: Oid, convert: &Conversion<'_>) -> Result<Cow<'r, [u8]>> {
    if raw.is_ascii() {
        return Ok(Cow::Borrowed(raw));
    }
    match oid::element(oid) {
        Some(element) if is_text(element) => elements(raw, convert).map(Cow::Owned),
        None if is_text(oid) => convert(raw),
        _ => Ok(Cow::Borrowed(raw)),
    }
}

/// Returns whether the binary form of a type is its text.
fn is_text(oid: Oid) -> bool {
    let text = |t| matches!(t, ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Json);
    oid != oid::CHAR && oid::column_type(oid).is_some_and(text)
}

/// Converts the elements of an array, after its header.
fn elements(raw: &[u8], convert: &Conversion<'_>) -> Result<Vec<u8>> {
    const WORD_BYTES: usize = 4;
    let mut fields = Fields::new(raw);
    let dimensions = usize::try_from(fields.word()?).unwrap_or(0).min(raw.len());
    let head = WORD_BYTES * (3 + 2 * dimensions);
    let (head, rest) = raw.split_at_checked(head).ok_or_else(super::bad_binary)?;
    let (mut out, mut fields) = (head.to_vec(), Fields::new(rest));
    while !fields.is_empty() {
        match fields.value()? {
            None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(element) => {
                let element = convert(element)?;
                out.extend_from_slice(&(element.len() as u32).to_be_bytes());
                out.extend_from_slice(&element);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_their_arrays_are_converted_and_nothing_else() {
        let encoding = Encoding::named("latin1").unwrap();
        let array = b"\0\0\0\x01\0\0\0\x01\0\0\0\x19\0\0\0\x02\0\0\0\x01\xff\xff\xff\xff\0\0\0\x02a\xe4";
        let wide = b"\0\0\0\x01\0\0\0\x01\0\0\0\x19\0\0\0\x02\0\0\0\x01\xff\xff\xff\xff\0\0\0\x03a\xc3\xa4";
        for (raw, oid, expect) in [
            (&b"\xe4"[..], oid::TEXT, &b"\xc3\xa4"[..]),
            (b"\xe4", oid::JSON, b"\xc3\xa4"),
            (b"\xe4", oid::BYTEA, b"\xe4"),
            (array, 1009, wide),
        ] {
            let utf8 = to_utf8(raw, oid, encoding).unwrap();
            assert_eq!(utf8.as_ref(), expect, "{oid}");
            assert_eq!(of_utf8(&utf8, oid, encoding).unwrap().as_ref(), raw, "{oid}");
        }
        let cut = &array[..array.len() - 1];
        assert!(to_utf8(cut, 1009, encoding).is_err());
    }
}
