//! Functions that take json apart. json is text that is known to be sound.
//!
//! Invariants
//! 1. Parts of a json value are given out as they were written.
//!
//! Does not know: how json is made (`json`).

use varve_engine::{ColumnType, Datum, Value};

use super::{Builtin, any, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::ty::Elem;
use crate::ty::Ty::{self, Int4, Json, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("json_array_length", &[Json], Int4, |a, _| match Parts::of(text(a, 0)) {
        Parts::Array(items) => Ok(Datum::Int4(items.len() as i32)),
        Parts::Object(_) => Err(wrong_shape("cannot get array length of a non-array")),
        Parts::Scalar => Err(wrong_shape("cannot get array length of a scalar")),
    }),
    strict("json_typeof", &[Json], Text, |a, _| Ok(Datum::Text(type_of(text(a, 0))))),
    Builtin { strict: true, ..any("json_extract_path", &[Json, Text], Json, |a, _| Ok(json(path(a)))) },
    Builtin {
        strict: true,
        ..any("json_extract_path_text", &[Json, Text], Text, |a, cx| Ok(plain(path(a), cx)))
    },
    strict("json.field", &[Json, Text], Json, |a, _| Ok(json(member(text(a, 0), text(a, 1))))),
    strict("json.field_text", &[Json, Text], Text, |a, cx| Ok(plain(member(text(a, 0), text(a, 1)), cx))),
    strict("json.element", &[Json, Int4], Json, |a, _| Ok(json(element(text(a, 0), super::int(a, 1))))),
    strict("json.element_text", &[Json, Int4], Text, |a, cx| {
        Ok(plain(element(text(a, 0), super::int(a, 1)), cx))
    }),
    strict("json_array_elements.value", &[Json], Ty::Array(Elem::Json), |a, cx| {
        list(elements(text(a, 0))?.into_iter().map(Datum::Text), cx)
    }),
    strict("json_array_elements_text.value", &[Json], Ty::Array(Elem::Text), |a, cx| {
        list(elements(text(a, 0))?.into_iter().map(|item| plain(Some(item), cx)), cx)
    }),
];

fn wrong_shape(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// A json value, one level taken apart.
enum Parts<'t> {
    Array(Vec<&'t str>),
    /// Keys as they are written, and values.
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

/// Reads sound json.
struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    /// The first byte that is no blank; 0 at the end.
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

    /// The next value, whole.
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

fn elements(json: &str) -> Result<Vec<&str>> {
    match Parts::of(json) {
        Parts::Array(items) => Ok(items),
        Parts::Object(_) => Err(wrong_shape("cannot call json_array_elements on a non-array")),
        Parts::Scalar => Err(wrong_shape("cannot call json_array_elements on a scalar")),
    }
}

fn list<'a, 'v>(values: impl Iterator<Item = Datum<'v>>, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let mut array = varve_engine::Array::new(ColumnType::Text);
    values.for_each(|value| array.push(value));
    Ok(cx.keep_value(Value::Array(array)))
}

/// The last member of this name.
fn member<'t>(json: &'t str, name: &str) -> Option<&'t str> {
    let Parts::Object(members) = Parts::of(json) else { return None };
    members.into_iter().rev().find(|(key, _)| unquoted(key) == name).map(|(_, value)| value)
}

/// The element of this number, from the end if negative.
fn element(json: &str, number: i64) -> Option<&str> {
    let Parts::Array(items) = Parts::of(json) else { return None };
    let at = if number < 0 { number + items.len() as i64 } else { number };
    usize::try_from(at).ok().and_then(|at| items.get(at).copied())
}

fn path<'a>(a: &[Datum<'a>]) -> Option<&'a str> {
    let step = |json: &'a str, n: usize| match Parts::of(json) {
        Parts::Array(_) => element(json, text(a, n).parse().ok()?),
        _ => member(json, text(a, n)),
    };
    (1..a.len()).try_fold(text(a, 0), step)
}

fn json(found: Option<&str>) -> Datum<'_> {
    found.map_or(Datum::Null, |json| Datum::Text(json.trim()))
}

/// A part as text: a string without its quotes, null as NULL.
fn plain<'a>(found: Option<&'a str>, cx: &Cx<'a>) -> Datum<'a> {
    match found.map(str::trim) {
        None | Some("null") => Datum::Null,
        Some(string) if string.starts_with('"') => cx.text(&unquoted(string)),
        Some(other) => Datum::Text(other),
    }
}

/// What a string of json says.
fn unquoted(string: &str) -> String {
    serde_json::from_str(string).unwrap_or_else(|_| string.to_owned())
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
        assert_eq!(member(json, "a"), Some("[ ]"));
        assert!(matches!(Parts::of(" 12 "), Parts::Scalar));
    }
}
