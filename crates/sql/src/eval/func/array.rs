//! Functions of arrays. `bind::array` has special code to choose them, because their types follow the type of
//! the elements.
//!
//! Invariants
//! 1. An element that is passed as an argument already has the array's element type.
//!
//! This module does not know types of results.

use varve_engine::{Array, ArrayRef, Datum, Value};

use super::{Builtin, int, loose, strict, text};
use crate::array::starting_at;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::text::write_with;
use crate::ty::Ty::{self, Array as ArrayTy, Bool, Int4, Text, Unknown};

pub(super) const TABLE: &[Builtin] = &[
    strict("array_length", &[Unknown, Int4], Int4, |a, _| bound(a, |array| array.len() as i32)),
    strict("array_upper", &[Unknown, Int4], Int4, |a, _| {
        bound(a, |array| array.len() as i32 - 1 + array.lower_bound())
    }),
    strict("array_lower", &[Unknown, Int4], Int4, |a, _| bound(a, ArrayRef::lower_bound)),
    strict("array_ndims", &[Unknown], Int4, |a, _| {
        Ok(array(a, 0).filter(|array| !array.is_empty()).map_or(Datum::Null, |_| Datum::Int4(1)))
    }),
    strict("array_dims", &[Unknown], Text, |a, cx| {
        let Some(array) = array(a, 0).filter(|array| !array.is_empty()) else { return Ok(Datum::Null) };
        let (lower, length) = (array.lower_bound(), array.len() as i64);
        Ok(cx.text(&format!("[{lower}:{}]", i64::from(lower) + length - 1)))
    }),
    strict("cardinality", &[Unknown], Int4, |a, _| {
        Ok(array(a, 0).map_or(Datum::Null, |array| Datum::Int4(array.len() as i32)))
    }),
    strict("array_subscript", &[Unknown, Int4], Unknown, |a, _| {
        Ok(array(a, 0).and_then(|array| array.get(int(a, 1))).unwrap_or(Datum::Null))
    }),
    loose("array_position", &[Unknown, Unknown], Int4, position),
    loose("array_position", &[Unknown, Unknown, Int4], Int4, position),
    loose("array_positions", &[Unknown, Unknown], ArrayTy(&Ty::Int4), |a, cx| {
        let Some(array) = array(a, 0) else { return Ok(Datum::Null) };
        let mut out = crate::array::of(crate::oid::INT4);
        for (n, element) in elements(array, cx).enumerate() {
            if element?.order(&a[1]).is_eq() {
                out.push(Datum::Int4(n as i32 + array.lower_bound()));
            }
        }
        Ok(cx.keep_value(Value::Array(out)))
    }),
    loose("array_replace", &[Unknown, Unknown, Unknown], Unknown, |a, cx| {
        let Some(array) = array(a, 0) else { return Ok(Datum::Null) };
        let mut out = Array::new(array.element());
        for element in elements(array, cx) {
            let element = element?;
            out.push(if element.order(&a[1]).is_eq() { a[2] } else { element });
        }
        Ok(cx.keep_value(Value::Array(out.starting_at(array.lower_bound()))))
    }),
    strict("arraycontains", &[Unknown, Unknown], Bool, |a, cx| {
        let (Some(all), Some(wanted)) = (array(a, 0), array(a, 1)) else { return Ok(Datum::Null) };
        for element in wanted.iter() {
            if !holds(all, element, cx)? {
                return Ok(Datum::Bool(false));
            }
        }
        Ok(Datum::Bool(true))
    }),
    strict("arrayoverlap", &[Unknown, Unknown], Bool, |a, cx| {
        let (Some(all), Some(other)) = (array(a, 0), array(a, 1)) else { return Ok(Datum::Null) };
        for element in other.iter() {
            if holds(all, element, cx)? {
                return Ok(Datum::Bool(true));
            }
        }
        Ok(Datum::Bool(false))
    }),
    strict("trim_array", &[Unknown, Int4], Unknown, |a, cx| {
        let Some(array) = array(a, 0) else { return Ok(Datum::Null) };
        let gone = usize::try_from(int(a, 1)).ok().filter(|gone| *gone <= array.len()).ok_or_else(|| {
            let message = format!("number of elements to trim must be between 0 and {}", array.len());
            SqlError::new(SqlState("2202E"), message)
        })?;
        part(array, 0, array.len() - gone, cx)
    }),
    strict("array_slice", &[Unknown, Int4, Int4], Unknown, |a, cx| {
        let Some(array) = array(a, 0) else { return Ok(Datum::Null) };
        // The subscripts of the resulting part begin at 1.
        let place =
            |subscript: i64| (subscript - i64::from(array.lower_bound())).clamp(-1, array.len() as i64);
        let (from, to) = (place(int(a, 1)).max(0) as usize, (place(int(a, 2)) + 1) as usize);
        part(array, from, to, cx)
    }),
    loose("array_append", &[Unknown, Unknown], Unknown, |a, cx| joined(a[0], Datum::Null, &[a[1]], cx)),
    loose("array_prepend", &[Unknown, Unknown], Unknown, |a, cx| {
        let Datum::Array(after) = a[1] else { return joined(Datum::Null, Datum::Null, &[a[0]], cx) };
        let mut out = Array::new(after.element());
        out.push(a[0]);
        append(&mut out, after, cx)?;
        // PostgreSQL computes the subscript before the first one, which would overflow, although it is not
        // used.
        if !after.is_empty() && after.lower_bound() == i32::MIN {
            return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "integer out of range"));
        }
        Ok(cx.keep_value(Value::Array(starting_at(out, after.lower_bound())?)))
    }),
    loose("array_cat", &[Unknown, Unknown], Unknown, |a, cx| joined(a[0], a[1], &[], cx)),
    loose("array_remove", &[Unknown, Unknown], Unknown, |a, cx| {
        let Datum::Array(from) = a[0] else { return Ok(Datum::Null) };
        let mut out = Array::new(from.element());
        for element in elements(from, cx) {
            let element = element?;
            if element.order(&a[1]).is_ne() {
                out.push(element);
            }
        }
        Ok(cx.keep_value(Value::Array(out.starting_at(from.lower_bound()))))
    }),
    loose("array_to_string", &[Unknown, Text], Text, to_string),
    loose("array_to_string", &[Unknown, Text, Text], Text, to_string),
    loose("string_to_array", &[Text, Text], ArrayTy(&Ty::Text), split),
    loose("string_to_array", &[Text, Text, Text], ArrayTy(&Ty::Text), split),
];

/// Returns the elements of an array. If the statement was cancelled, the next element is error 57014, because
/// arrays may be long.
fn elements<'e>(array: ArrayRef<'e>, cx: &Cx<'_>) -> impl Iterator<Item = Result<Datum<'e>>> {
    array.iter().map(|element| cx.env.check_cancel().map(|()| element))
}

fn append(out: &mut Array, array: ArrayRef<'_>, cx: &Cx<'_>) -> Result<()> {
    for element in elements(array, cx) {
        out.push(element?);
    }
    Ok(())
}

/// Returns whether an array has this element. NULL is never found.
fn holds(array: ArrayRef<'_>, wanted: Datum<'_>, cx: &Cx<'_>) -> Result<bool> {
    for element in elements(array, cx) {
        let element = element?;
        if !wanted.is_null() && !element.is_null() && element.order(&wanted).is_eq() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the elements from index `from` up to `to`, as an array.
fn part<'a>(array: ArrayRef<'_>, from: usize, to: usize, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let mut out = Array::new(array.element());
    for element in elements(array, cx).take(to).skip(from) {
        out.push(element?);
    }
    Ok(cx.keep_value(Value::Array(out)))
}

fn array<'a>(arguments: &[Datum<'a>], n: usize) -> Option<ArrayRef<'a>> {
    match arguments.get(n) {
        Some(Datum::Array(array)) => Some(*array),
        _ => None,
    }
}

/// Returns a property of the first dimension. The result is NULL for other dimensions, and for an empty
/// array.
fn bound<'a>(a: &[Datum<'a>], of: impl Fn(ArrayRef<'a>) -> i32) -> Result<Datum<'a>> {
    let has_it = |array: &ArrayRef<'_>| int(a, 1) == 1 && !array.is_empty();
    Ok(array(a, 0).filter(has_it).map_or(Datum::Null, |array| Datum::Int4(of(array))))
}

fn position<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Some(array) = array(a, 0) else { return Ok(Datum::Null) };
    let begin = match a.get(2) {
        Some(Datum::Null) => {
            let message = "initial position must not be null";
            return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
        }
        Some(_) => int(a, 2),
        None => array.lower_bound().into(),
    };
    let places =
        (array.lower_bound()..).zip(elements(array, cx)).skip_while(|(at, _)| i64::from(*at) < begin);
    for (at, element) in places {
        if element?.order(&a[1]).is_eq() {
            return Ok(Datum::Int4(at));
        }
    }
    Ok(Datum::Null)
}

/// Returns an array with the elements of both arrays, followed by `more`. One NULL counts as an empty array.
/// If both are NULL and `more` is empty, the result is NULL.
fn joined<'a>(first: Datum<'a>, second: Datum<'a>, more: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let arrays = [first, second].into_iter().filter_map(|datum| match datum {
        Datum::Array(array) => Some(array),
        _ => None,
    });
    let arrays: Vec<ArrayRef<'_>> = arrays.collect();
    let Some(element) = arrays.first().map(|array| array.element()) else {
        return match more {
            [] => Ok(Datum::Null),
            _ => Err(SqlError::unsupported("appending to a NULL array")),
        };
    };
    let mut out = Array::new(element);
    let lower_bound = arrays.iter().find(|array| !array.is_empty()).map_or(1, |array| array.lower_bound());
    for array in arrays {
        append(&mut out, array, cx)?;
    }
    more.iter().for_each(|value| out.push(*value));
    Ok(cx.keep_value(Value::Array(starting_at(out, lower_bound)?)))
}

/// Joins the elements with a separator. NULLs are skipped, unless an argument says how to write them.
fn to_string<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (Some(array), Some(Datum::Text(separator))) = (array(a, 0), a.get(1)) else { return Ok(Datum::Null) };
    let for_null = match a.get(2) {
        Some(Datum::Text(word)) => Some(*word),
        _ => None,
    };
    let mut out = Vec::new();
    let mut first = true;
    for element in elements(array, cx) {
        let element = element?;
        if element.is_null() && for_null.is_none() {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.extend_from_slice(separator.as_bytes());
        }
        match for_null.filter(|_| element.is_null()) {
            Some(word) => out.extend_from_slice(word.as_bytes()),
            None => write_with(element, cx.env.forms, &mut out),
        }
    }
    super::check_size(out.len())?;
    let made = String::from_utf8(out).map_err(|_| SqlError::internal("text output is not UTF-8"))?;
    Ok(cx.text(&made))
}

/// Splits a text at the separators. If the separator is NULL, splits it into characters.
fn split<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Datum::Text(whole) = a[0] else { return Ok(Datum::Null) };
    let as_null = matches!(a.get(2), Some(Datum::Text(_))).then(|| text(a, 2));
    let mut out = crate::array::of(crate::oid::TEXT);
    let mut push = |piece: &str| {
        out.push(if Some(piece) == as_null { Datum::Null } else { Datum::Text(piece) });
        cx.env.check_cancel()
    };
    match a[1] {
        _ if whole.is_empty() => {}
        Datum::Text("") => push(whole)?,
        Datum::Text(separator) => whole.split(separator).try_for_each(push)?,
        _ => whole.chars().try_for_each(|c| push(c.encode_utf8(&mut [0; 4])))?,
    }
    Ok(cx.keep_value(Value::Array(out)))
}

/// Returns the error 2202E: a value cannot be a subscript.
pub fn no_subscript(ty: &str) -> SqlError {
    SqlError::new(
        SqlState::DATATYPE_MISMATCH,
        format!("cannot subscript type {ty} because it does not support subscripting"),
    )
}
