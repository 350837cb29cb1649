//! Functions that read parts of a JSON value. The input is text that was checked before.
//!
//! Invariants
//! 1. A part of a JSON value is returned exactly as it was written.
//!
//! This module does not know how JSON is made (`json`).

use varve_engine::{ColumnType, Datum, Value};

use super::{Builtin, any, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::ty::Ty::{self, Int4, Json, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("json_array_length", &[Json], Int4, |a, _| match Parts::of(text(a, 0)) {
        Parts::Array(items) => Ok(Datum::Int4(items.len() as i32)),
        Parts::Object(_) => Err(wrong_shape("cannot get array length of a non-array")),
        Parts::Scalar => Err(wrong_shape("cannot get array length of a scalar")),
    }),
    strict("json_typeof", &[Json], Text, |a, _| Ok(Datum::Text(type_of(text(a, 0))))),
    Builtin { strict: true, ..any("json_extract_path", &[Json, Text], Json, |a, _| Ok(json(path(a)?))) },
    Builtin {
        strict: true,
        ..any("json_extract_path_text", &[Json, Text], Text, |a, cx| plain(path(a)?, cx))
    },
    strict("json.path", &[Json, Ty::Array(&Ty::Text)], Json, |a, _| Ok(json(path_in(a)?))),
    strict("json.path_text", &[Json, Ty::Array(&Ty::Text)], Text, |a, cx| plain(path_in(a)?, cx)),
    strict("json.field", &[Json, Text], Json, |a, _| Ok(json(member(readable(text(a, 0))?, text(a, 1))?))),
    strict("json.field_text", &[Json, Text], Text, |a, cx| {
        plain(member(readable(text(a, 0))?, text(a, 1))?, cx)
    }),
    strict("json.element", &[Json, Int4], Json, |a, _| {
        let whole = readable(text(a, 0))?;
        Ok(json(element(whole, super::int(a, 1))))
    }),
    strict("json.element_text", &[Json, Int4], Text, |a, cx| {
        let whole = readable(text(a, 0))?;
        plain(element(whole, super::int(a, 1)), cx)
    }),
    strict("json_array_elements.value", &[Json], Ty::Array(&Ty::Json), |a, cx| {
        list(
            ColumnType::Json,
            elements(text(a, 0), "json_array_elements")?.into_iter().map(|v| Ok(json(Some(v)))),
            cx,
        )
    }),
    strict("json_array_elements_text.value", &[Json], Ty::Array(&Ty::Text), |a, cx| {
        let values = elements(readable(text(a, 0))?, "json_array_elements_text")?;
        list(ColumnType::Text, values.into_iter().map(|value| plain(Some(value), cx)), cx)
    }),
    strict("json_each.key", &[Json], Ty::Array(&Ty::Text), |a, cx| {
        keys(members(readable(text(a, 0))?, DECONSTRUCT)?, cx)
    }),
    strict("json_each.value", &[Json], Ty::Array(&Ty::Json), |a, cx| {
        let values = members(readable(text(a, 0))?, DECONSTRUCT)?;
        list(ColumnType::Json, values.into_iter().map(|(_, value)| Ok(json(Some(value)))), cx)
    }),
    strict("json_each_text.key", &[Json], Ty::Array(&Ty::Text), |a, cx| {
        keys(members(readable(text(a, 0))?, DECONSTRUCT)?, cx)
    }),
    strict("json_each_text.value", &[Json], Ty::Array(&Ty::Text), |a, cx| {
        let values = members(readable(text(a, 0))?, DECONSTRUCT)?;
        list(ColumnType::Text, values.into_iter().map(|(_, value)| plain(Some(value), cx)), cx)
    }),
    strict("json_object_keys.json_object_keys", &[Json], Ty::Array(&Ty::Text), |a, cx| {
        keys(
            members(
                readable(text(a, 0))?,
                ["cannot call json_object_keys on an array", "cannot call json_object_keys on a scalar"],
            )?,
            cx,
        )
    }),
    strict("json_strip_nulls", &[Json], Json, |a, cx| {
        let mut out = String::new();
        without_nulls(text(a, 0), &mut out)?;
        Ok(cx.text(&out))
    }),
];

fn wrong_shape(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The direct parts of a json value.
enum Parts<'t> {
    Array(Vec<&'t str>),
    /// The keys, as they are written, and the values.
    Object(Vec<(&'t str, &'t str)>),
    Scalar,
}

impl<'t> Parts<'t> {
    fn of(json: &'t str) -> Parts<'t> {
        let mut reader = Reader { rest: json };
        match reader.peek() {
            b'[' => Parts::Array(reader.items(b']', |r| r.value())),
            b'{' => Parts::Object(reader.items(b'}', |r| {
                let key = r.value();
                r.step();
                (key, r.value())
            })),
            _ => Parts::Scalar,
        }
    }
}

/// Reads json that is known to be valid.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    /// Skips blanks and returns the next byte, or 0 at the end.
    fn peek(&mut self) -> u8 {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.bytes().next().unwrap_or(0)
    }

    fn step(&mut self) {
        self.peek();
        self.rest = self.rest.get(1..).unwrap_or("");
    }

    fn items<T>(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut out = Vec::new();
        self.step();
        while !matches!(self.peek(), 0) && self.peek() != end {
            out.push(item(self));
            if self.peek() == b',' {
                self.step();
            }
        }
        out
    }

    /// Reads the next value and returns its text.
    fn value(&mut self) -> &'t str {
        self.peek();
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        let mut end = self.rest.len();
        for (at, byte) in self.rest.bytes().enumerate() {
            if in_string {
                in_string = escaped || byte != b'"';
                escaped = !escaped && byte == b'\\';
                if !in_string && depth == 0 {
                    end = at + 1;
                    break;
                }
                continue;
            }
            match byte {
                b'"' => in_string = true,
                b'[' | b'{' => depth += 1,
                b']' | b'}' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => {
                    end = at;
                    break;
                }
                b']' | b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        end = at + 1;
                        break;
                    }
                }
                _ => {}
            }
        }
        let (value, rest) = self.rest.split_at(end);
        self.rest = rest;
        value
    }
}

fn type_of(json: &str) -> &'static str {
    match (Reader { rest: json }).peek() {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "boolean",
        b'n' => "null",
        _ => "number",
    }
}

/// Returns the elements of an array, for the function of this name.
fn elements<'t>(json: &'t str, function: &str) -> Result<Vec<&'t str>> {
    match Parts::of(json) {
        Parts::Array(items) => Ok(items),
        Parts::Object(_) => Err(wrong_shape(&format!("cannot call {function} on a non-array"))),
        Parts::Scalar => Err(wrong_shape(&format!("cannot call {function} on a scalar"))),
    }
}

/// The errors of json_each for an array and for a scalar.
const DECONSTRUCT: [&str; 2] = ["cannot deconstruct an array as an object", "cannot deconstruct a scalar"];

/// Returns the members of an object. For an array or a scalar, returns the error with the given message.
fn members<'t>(json: &'t str, [of_array, of_scalar]: [&str; 2]) -> Result<Vec<(&'t str, &'t str)>> {
    match Parts::of(json) {
        Parts::Object(members) => Ok(members),
        Parts::Array(_) => Err(wrong_shape(of_array)),
        Parts::Scalar => Err(wrong_shape(of_scalar)),
    }
}

fn keys<'a>(members: Vec<(&str, &str)>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    list(ColumnType::Text, members.into_iter().map(|(key, _)| unquoted(key).map(|key| cx.text(&key))), cx)
}

fn list<'a, 'v>(
    of: ColumnType,
    values: impl Iterator<Item = Result<Datum<'v>>>,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    let mut array = varve_engine::Array::new(of);
    for value in values {
        array.push(value?);
    }
    Ok(cx.keep_value(Value::Array(array)))
}

/// Returns the last member of this name.
fn member<'t>(json: &'t str, name: &str) -> Result<Option<&'t str>> {
    let Parts::Object(members) = Parts::of(json) else { return Ok(None) };
    let mut last = None;
    // All keys are read, because a key that is not a valid text is an error at any position.
    for (key, value) in members {
        if unquoted(key)? == name {
            last = Some(value);
        }
    }
    Ok(last)
}

/// Returns the element with this index. A negative index counts from the end.
fn element(json: &str, number: i64) -> Option<&str> {
    let Parts::Array(items) = Parts::of(json) else { return None };
    let at = if number < 0 { number + items.len() as i64 } else { number };
    usize::try_from(at).ok().and_then(|at| items.get(at).copied())
}

/// Makes one step of a path: `name` is the name of a member, or the index of an element.
fn step<'t>(json: &'t str, name: &str) -> Result<Option<&'t str>> {
    match Parts::of(json) {
        Parts::Array(_) => {
            Ok(name.trim_start().parse().ok().and_then(|number: i32| element(json, number.into())))
        }
        _ => member(json, name),
    }
}

fn path<'a>(a: &[Datum<'a>]) -> Result<Option<&'a str>> {
    let mut found = Some(readable(text(a, 0))?);
    for n in 1..a.len() {
        let Some(json) = found else { break };
        found = step(json, text(a, n))?;
    }
    Ok(found)
}

/// Follows an array of steps. A NULL step finds nothing.
fn path_in<'a>(a: &[Datum<'a>]) -> Result<Option<&'a str>> {
    let Some(Datum::Array(steps)) = a.get(1) else { return Ok(None) };
    let mut found = Some(readable(text(a, 0))?);
    for name in steps.iter() {
        let (Some(json), Datum::Text(name)) = (found, name) else { return Ok(None) };
        found = step(json, name)?;
    }
    Ok(found)
}

fn json(found: Option<&str>) -> Datum<'_> {
    found.map_or(Datum::Null, |json| Datum::Text(json.trim()))
}

/// Returns a part as text. A string loses its quotes, and `null` becomes NULL.
fn plain<'a>(found: Option<&str>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    Ok(match found.map(str::trim) {
        None | Some("null") => Datum::Null,
        Some(string) if string.starts_with('"') => cx.text(&unquoted(string)?),
        Some(other) => cx.text(other),
    })
}

/// Writes json without blanks, and without members that are null. It does not recurse, because json may be
/// nested a million levels deep.
fn without_nulls(json: &str, out: &mut String) -> Result<()> {
    let mut reader = Reader { rest: json };
    let mut open: Vec<Open> = Vec::new();
    loop {
        let may_be_key = open.last().is_some_and(|o| o.is_object && !o.has_key);
        match reader.peek() {
            0 => return Ok(()),
            b',' | b':' => reader.step(),
            first @ (b'[' | b'{') => {
                before_item(&mut open, out);
                out.push(char::from(first));
                open.push(Open { is_object: first == b'{', ..Open::default() });
                reader.step();
            }
            last @ (b']' | b'}') => {
                open.pop();
                out.push(char::from(last));
                reader.step();
            }
            _ if may_be_key => {
                let key = reader.value();
                reader.step();
                if reader.peek() == b'n' {
                    reader.value();
                    continue;
                }
                before_item(&mut open, out);
                put_scalar(key, out)?;
                out.push(':');
                open.iter_mut().last().into_iter().for_each(|o| o.has_key = true);
            }
            _ => {
                let scalar = reader.value();
                before_item(&mut open, out);
                put_scalar(scalar, out)?;
            }
        }
    }
}

/// An array or an object that is not closed yet.
#[derive(Default)]
struct Open {
    is_object: bool,
    /// Whether something was written into it.
    has_items: bool,
    /// Whether a key was written, so that its value comes next.
    has_key: bool,
}

/// Writes the comma before an item, except before the first item and before the value of a key.
fn before_item(open: &mut [Open], out: &mut String) {
    let Some(innermost) = open.last_mut() else { return };
    if !std::mem::take(&mut innermost.has_key) && std::mem::replace(&mut innermost.has_items, true) {
        out.push(',');
    }
}

fn put_scalar(scalar: &str, out: &mut String) -> Result<()> {
    if !scalar.starts_with('"') {
        out.push_str(scalar);
        return Ok(());
    }
    let mut quoted = Vec::new();
    super::json::quoted(&unquoted(scalar)?, &mut quoted);
    out.push_str(&String::from_utf8_lossy(&quoted));
    Ok(())
}

/// Checks that all strings of a json value are valid texts. PostgreSQL does this, too, for each part that is
/// read.
fn readable(json: &str) -> Result<&str> {
    if json.contains("\\u") {
        let mut rest = json;
        while let Some(at) = rest.find('"') {
            let mut reader = Reader { rest: &rest[at..] };
            unquoted(reader.value())?;
            rest = reader.rest;
        }
    }
    Ok(json)
}

/// Returns the text of a json string. Two kinds of escapes cannot become text: half of a surrogate pair
/// (22P02), and the character 0 (22P05).
fn unquoted(string: &str) -> Result<String> {
    if string.contains("\\u0000") && holds_zero(string) {
        return Err(SqlError::new(SqlState::UNTRANSLATABLE_CHARACTER, "unsupported Unicode escape sequence")
            .with_detail("\\u0000 cannot be converted to text."));
    }
    serde_json::from_str(string).map_err(|_| {
        SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type json")
            .with_detail("Unicode low surrogate must follow a high surrogate.")
    })
}

/// Returns whether the string has an escape of the character 0. An escaped backslash before `u0000` is not
/// one.
fn holds_zero(string: &str) -> bool {
    let mut rest = string;
    while let Some(at) = rest.find('\\') {
        if rest[at..].starts_with("\\u0000") {
            return true;
        }
        // In valid json, the character after a backslash is ASCII.
        rest = rest.get(at + 2..).unwrap_or("");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_as_they_were_written() {
        let json = r#" {"a" : {"b": [1, "x,]\"", {}]} , "c":null,"a":[ ] }"#;
        let Parts::Object(members) = Parts::of(json) else { panic!("an object") };
        assert_eq!(members, [("\"a\"", r#"{"b": [1, "x,]\"", {}]}"#), ("\"c\"", "null"), ("\"a\"", "[ ]")]);
        let Parts::Array(items) = Parts::of(r#"[1 , "x,]\"",{} ,-2.5e3]"#) else { panic!("an array") };
        assert_eq!(items, ["1", r#""x,]\"""#, "{}", "-2.5e3"]);
        assert_eq!(member(json, "a").unwrap(), Some("[ ]"));
        assert!(matches!(Parts::of(" 12 "), Parts::Scalar));
    }
}
