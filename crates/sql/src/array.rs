//! Reads and writes the text form of arrays, `{1,NULL,"a b"}` and `[5:6]={1,2}`, and of vectors, `1 2`.
//!
//! Invariants
//! 1. `parse` reads a written text back as the same array.
//!
//! Arrays of more than one dimension are refused (0A000).

use varve_engine::{Array, ArrayRef, ColumnType, Datum, Value};

use crate::error::{Result, SqlError, SqlState};
use crate::lexeme::BLANKS;
use crate::oid::{self, Oid};
use crate::text;
use crate::time::{Reading, TimeForms};

/// Returns an empty array for elements of this type.
pub fn of(element: Oid) -> Array {
    match element {
        // A single value of char(n) is stored as varchar, but an array distinguishes the two types.
        oid::BPCHAR => Array::new(ColumnType::Char(1)),
        _ => Array::new(oid::column_type(element).unwrap_or(ColumnType::Text)),
    }
}

/// Reads an array with elements of the type `element`.
pub fn parse(text: &str, element: Oid, reading: &Reading<'_>) -> Result<Array> {
    let malformed = |detail: &str| malformed(text, detail);
    let mut reader = Reader { rest: text::trimmed(text), text };
    let bounds = reader.dimension()?;
    if bounds.is_some() && !reader.rest.trim_start_matches(BLANKS).starts_with('{') {
        return Err(malformed("Array contents must start with \"{\"."));
    }
    let array = elements(&mut reader, element, reading)?;
    let Some((lower, upper)) = bounds else { return Ok(array) };
    if i64::from(upper) - i64::from(lower) + 1 != array.as_ref().len() as i64 {
        return Err(malformed("Specified array dimensions do not match array contents."));
    }
    starting_at(array, lower)
}

/// Returns the array with this first subscript. The error is 54000 if the last one is out of range.
pub fn starting_at(array: Array, lower_bound: i32) -> Result<Array> {
    if !array.as_ref().is_empty() && !array.as_ref().fits(lower_bound) {
        let message = format!("array lower bound is too large: {lower_bound}");
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT, message));
    }
    Ok(array.starting_at(lower_bound))
}

/// Reads the elements in their braces.
fn elements(reader: &mut Reader<'_>, element: Oid, reading: &Reading<'_>) -> Result<Array> {
    let text = reader.text;
    let malformed = |detail: &str| malformed(text, detail);
    if !reader.skip('{') {
        return Err(malformed("Array value must start with \"{\" or dimension information."));
    }
    let mut array = of(element);
    if reader.skip('}') {
        return reader.end().map(|()| array);
    }
    loop {
        let value = match reader.element()? {
            Some(item) => text::parse_as(&item, element, reading)?,
            None => Value::Null,
        };
        array.push(value.as_datum());
        if reader.skip('}') {
            return reader.end().map(|()| array);
        }
        if !reader.skip(',') {
            return Err(malformed(if reader.rest.is_empty() {
                "Unexpected end of input."
            } else {
                "Unexpected array element."
            }));
        }
    }
}

/// Reads a vector: whole numbers with blanks between them.
pub fn parse_vector(text: &str, vector: Oid) -> Result<Array> {
    let element = oid::element(vector).unwrap_or(oid::OID);
    let mut array = Array::vector(oid::column_type(element).unwrap_or(ColumnType::Int8));
    for word in text.split(BLANKS).filter(|word| !word.is_empty()) {
        array.push(text::parse_as(word, element, &Reading::plain())?.as_datum());
    }
    Ok(array)
}

fn malformed(text: &str, detail: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("malformed array literal: \"{text}\"")).with_detail(detail)
}

/// Reads a subscript. Returns the subscript and the rest of the text. As in PostgreSQL, a number beyond the
/// range wraps around, and signs without digits are 0.
fn subscript(text: &str) -> Option<(i32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '+').unwrap_or(text.len());
    let (written, rest) = text.split_at(end);
    let digits = written.trim_start_matches(['-', '+']);
    let digits = &digits[..digits.find(['-', '+']).unwrap_or(digits.len())];
    let signs = written.len() - written.trim_start_matches(['-', '+']).len();
    let size = digits.parse::<i64>().unwrap_or(if digits.is_empty() { 0 } else { i64::MAX });
    let value = match (signs, written.starts_with('-')) {
        (2.., _) => 0,
        (_, true) => -size,
        (_, false) => size,
    };
    (!written.is_empty()).then_some((value as i32, rest))
}

struct Reader<'t> {
    rest: &'t str,
    text: &'t str,
}

impl Reader<'_> {
    /// Skips blanks, and this character if it follows.
    fn skip(&mut self, wanted: char) -> bool {
        self.rest = self.rest.trim_start_matches(BLANKS);
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Reads `[lower:upper]=` or `[upper]=` before the braces.
    fn dimension(&mut self) -> Result<Option<(i32, i32)>> {
        if !self.rest.starts_with('[') {
            return Ok(None);
        }
        let missing = |detail: &str| malformed(self.text, detail);
        let Some((first, mut rest)) = subscript(&self.rest[1..]) else {
            return Err(missing("\"[\" must introduce explicitly-specified array dimensions."));
        };
        let (mut lower, mut upper) = (1, first);
        if let Some(behind) = rest.strip_prefix(':') {
            let last = subscript(behind).ok_or_else(|| missing("Missing array dimension value."))?;
            (lower, (upper, rest)) = (first, last);
        }
        let Some(rest) = rest.strip_prefix(']') else {
            return Err(missing("Missing \"]\" after array dimensions."));
        };
        if upper < lower {
            return Err(SqlError::new(
                SqlState::ARRAY_SUBSCRIPT,
                "upper bound cannot be less than lower bound",
            ));
        }
        let rest = rest.trim_start_matches(BLANKS);
        if rest.starts_with('[') {
            return Err(SqlError::unsupported("an array of more than one dimension"));
        }
        let Some(rest) = rest.strip_prefix('=') else {
            return Err(missing("Missing \"=\" after array dimensions."));
        };
        self.rest = rest;
        Ok(Some((lower, upper)))
    }

    fn end(&mut self) -> Result<()> {
        if text::trimmed(self.rest).is_empty() {
            return Ok(());
        }
        Err(malformed(self.text, "Junk after closing right brace."))
    }

    /// Reads the next element's text. Returns `None` for NULL.
    fn element(&mut self) -> Result<Option<String>> {
        if self.skip('"') {
            return self.quoted().map(Some);
        }
        let mut item = String::new();
        // An escaped character is kept as it is, so blanks are dropped only after the last one.
        let mut escaped_end = 0;
        loop {
            let mut chars = self.rest.chars();
            match chars.next() {
                None => return Err(malformed(self.text, "Unexpected end of input.")),
                Some('{') if item.is_empty() => {
                    return Err(SqlError::unsupported("an array of more than one dimension"));
                }
                Some(c @ ('{' | '"')) => {
                    let detail = if c == '"' {
                        "Unexpected array element.".to_owned()
                    } else {
                        format!("Unexpected \"{c}\" character.")
                    };
                    return Err(malformed(self.text, &detail));
                }
                Some(',' | '}') => break,
                Some('\\') => {
                    item.extend(chars.next());
                    escaped_end = item.len();
                }
                Some(c) => item.push(c),
            }
            self.rest = chars.as_str();
        }
        let bare = item[escaped_end..].trim_end_matches(BLANKS).len();
        item.truncate(escaped_end + bare);
        let has_escape = escaped_end > 0;
        if item.is_empty() {
            let next = self.rest.chars().next().unwrap_or(',');
            return Err(malformed(self.text, &format!("Unexpected \"{next}\" character.")));
        }
        Ok(if item.eq_ignore_ascii_case("null") && !has_escape { None } else { Some(item) })
    }

    fn quoted(&mut self) -> Result<String> {
        let mut item = String::new();
        loop {
            let mut chars = self.rest.chars();
            match chars.next() {
                None => return Err(malformed(self.text, "Unexpected end of input.")),
                Some('"') => {
                    self.rest = chars.as_str();
                    return Ok(item);
                }
                Some('\\') => item.extend(chars.next()),
                Some(c) => item.push(c),
            }
            self.rest = chars.as_str();
        }
    }
}

/// Appends the text form.
pub fn write(array: ArrayRef<'_>, forms: &TimeForms, out: &mut Vec<u8>) {
    let vector = array.is_vector();
    if !vector {
        write_bounds(array, out);
        out.push(b'{');
    }
    for (n, element) in array.iter().enumerate() {
        if n > 0 {
            out.push(if vector { b' ' } else { b',' });
        }
        write_element(element, forms, out);
    }
    if !vector {
        out.push(b'}');
    }
}

/// Writes `[lower:upper]=`, unless the array begins at 1.
fn write_bounds(array: ArrayRef<'_>, out: &mut Vec<u8>) {
    let lower = array.lower_bound();
    if lower != 1 {
        let upper = i64::from(lower) + array.len() as i64 - 1;
        out.extend_from_slice(format!("[{lower}:{upper}]=").as_bytes());
    }
}

fn write_element(element: Datum<'_>, forms: &TimeForms, out: &mut Vec<u8>) {
    if element.is_null() {
        return out.extend_from_slice(b"NULL");
    }
    let start = out.len();
    text::write_with(element, forms, out);
    if needs_quotes(&out[start..]) {
        let bare = out.split_off(start);
        out.push(b'"');
        for byte in bare {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
}

fn needs_quotes(bare: &[u8]) -> bool {
    let special = |b: &u8| matches!(b, b'"' | b'\\' | b'{' | b'}' | b',') || b" \t\n\r\x0b\x0c".contains(b);
    bare.is_empty() || bare.eq_ignore_ascii_case(b"null") || bare.iter().any(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, element: Oid) -> String {
        match parse(text, element, &Reading::plain()) {
            Ok(array) => {
                let mut out = Vec::new();
                write(array.as_ref(), &crate::time::PLAIN, &mut out);
                String::from_utf8(out).unwrap()
            }
            Err(e) => format!("{} {}", e.sqlstate, e.detail.as_deref().unwrap_or(&e.message)),
        }
    }

    /// The expected texts are those of PostgreSQL 15.
    #[test]
    fn arrays_read_and_show_as_in_postgresql() {
        for (text, element, expected) in [
            (" { 1 , 2,NULL } ", oid::INT4, "{1,2,NULL}"),
            ("{}", oid::INT4, "{}"),
            (r#"{"a b",c,"","null",null,"q\"t",\,}"#, oid::TEXT, r#"{"a b",c,"","null",NULL,"q\"t",","}"#),
            (r"{a\ ,\ b\ \  , \ ,\  ,nu\ll}", oid::TEXT, r#"{"a "," b  "," "," ","null"}"#),
            (r"{a\", oid::TEXT, "22P02 Unexpected end of input."),
            ("{2020-01-01}", oid::DATE, "{2020-01-01}"),
            ("{t,f}", oid::BOOL, "{t,f}"),
            ("1", oid::INT4, "22P02 Array value must start with \"{\" or dimension information."),
            ("{1,", oid::INT4, "22P02 Unexpected end of input."),
            ("{1,}", oid::INT4, "22P02 Unexpected \"}\" character."),
            ("{1} 2", oid::INT4, "22P02 Junk after closing right brace."),
            ("{a}", oid::INT4, "22P02 invalid input syntax for type integer: \"a\""),
            // White space that exists only in Unicode is part of a text.
            ("{\u{3000},\u{85} }", oid::TEXT, "{\u{3000},\u{85}}"),
            ("\u{a0}{1}", oid::INT4, "22P02 Array value must start with \"{\" or dimension information."),
            ("[1:2]={1,2}", oid::INT4, "{1,2}"),
            ("[1:3]={1,2}", oid::INT4, "22P02 Specified array dimensions do not match array contents."),
            ("[0:1]={1,2}", oid::INT4, "[0:1]={1,2}"),
            ("[1:2]={1,2}", oid::INT4, "{1,2}"),
            ("[2]={1,2}", oid::INT4, "{1,2}"),
            ("[-2147483648:-2147483648]={1}", oid::INT4, "[-2147483648:-2147483648]={1}"),
            ("[2147483647:2147483647]={1}", oid::INT4, "54000 array lower bound is too large: 2147483647"),
            ("[5:6]=1", oid::INT4, "22P02 Array contents must start with \"{\"."),
            ("{{1},{2}}", oid::INT4, "0A000 an array of more than one dimension is not supported"),
        ] {
            assert_eq!(shown(text, element), expected, "{text}");
        }
    }
}
