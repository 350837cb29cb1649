//! Functions of regular expressions.
//!
//! Does not know: how patterns are compiled (`eval::regex`).

use std::borrow::Cow;

use varve_engine::{Datum, Value};

use super::{Builtin, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::eval::regex::compiled;
use crate::ty::Elem;
use crate::ty::Ty::{Array, Bool, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("textregexeq", &[Text, Text], Bool, |a, _| matches(a, false)),
    strict("texticregexeq", &[Text, Text], Bool, |a, _| matches(a, true)),
    strict("regexp_replace", &[Text, Text, Text], Text, |a, cx| replaced(a, "", cx)),
    strict("regexp_replace", &[Text, Text, Text, Text], Text, |a, cx| replaced(a, text(a, 3), cx)),
    strict("regexp_match", &[Text, Text], Array(Elem::Text), |a, cx| groups(a, "", cx)),
    strict("regexp_match", &[Text, Text, Text], Array(Elem::Text), |a, cx| groups(a, text(a, 2), cx)),
    strict("regexp_like", &[Text, Text], Bool, |a, _| matches(a, false)),
    strict("regexp_like", &[Text, Text, Text], Bool, |a, _| matches(a, flags(text(a, 2))?.fold_case)),
    strict("regexp_split_to_array", &[Text, Text], Array(Elem::Text), |a, cx| {
        let mut parts = crate::array::of(crate::oid::TEXT);
        let regex = compiled(text(a, 1), false)?;
        let whole = text(a, 0);
        let mut from = 0;
        // What matches nothing at either end separates nothing.
        for found in
            regex.find_iter(whole).filter(|m| !m.is_empty() || (m.start() > 0 && m.end() < whole.len()))
        {
            parts.push(Datum::Text(&whole[from..found.start()]));
            from = found.end();
        }
        parts.push(Datum::Text(&whole[from..]));
        Ok(cx.keep_value(Value::Array(parts)))
    }),
];

fn matches<'a>(a: &[Datum<'a>], fold_case: bool) -> Result<Datum<'a>> {
    Ok(Datum::Bool(compiled(text(a, 1), fold_case)?.is_match(text(a, 0))))
}

#[derive(Default)]
struct Flags {
    fold_case: bool,
    all: bool,
}

fn flags(letters: &str) -> Result<Flags> {
    let mut flags = Flags::default();
    for letter in letters.chars() {
        match letter {
            'i' => flags.fold_case = true,
            'c' => flags.fold_case = false,
            'g' => flags.all = true,
            's' => {}
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    Ok(flags)
}

fn replaced<'a>(a: &[Datum<'a>], letters: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let flags = flags(letters)?;
    let regex = compiled(text(a, 1), flags.fold_case)?;
    let replacement = template(text(a, 2));
    let replaced = match flags.all {
        true => regex.replace_all(text(a, 0), replacement.as_ref()),
        false => regex.replace(text(a, 0), replacement.as_ref()),
    };
    super::check_size(replaced.len())?;
    Ok(cx.text(&replaced))
}

/// `\1` and `\&` as the crate writes them, its own `$` escaped.
fn template(written: &str) -> Cow<'_, str> {
    if !written.contains(['\\', '$']) {
        return Cow::Borrowed(written);
    }
    let mut out = String::with_capacity(written.len() + 8);
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => out.push_str("$$"),
            '\\' => match chars.next() {
                Some(digit @ '1'..='9') => out.extend(['$', '{', digit, '}']),
                Some('&') => out.push_str("${0}"),
                Some('\\') | None => out.push('\\'),
                Some(other) => out.extend(['\\', other]),
            },
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The groups of the first match, or all of it if there are none; NULL if nothing fits.
fn groups<'a>(a: &[Datum<'a>], letters: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let flags = flags(letters)?;
    if flags.all {
        let message = "regexp_match() does not support the \"global\" option";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Use the regexp_matches function instead."));
    }
    let regex = compiled(text(a, 1), flags.fold_case)?;
    let Some(found) = regex.captures(text(a, 0)) else { return Ok(Datum::Null) };
    let mut array = crate::array::of(crate::oid::TEXT);
    for group in found.iter().skip(usize::from(found.len() > 1)) {
        array.push(group.map_or(Datum::Null, |group| Datum::Text(group.as_str())));
    }
    Ok(cx.keep_value(Value::Array(array)))
}
