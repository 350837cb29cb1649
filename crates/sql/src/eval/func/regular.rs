//! Functions of regular expressions.
//!
//! Does not know: how patterns are compiled (`eval::regex`).

use regex::Captures;
use varve_engine::{Datum, Value};

use super::{Builtin, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::eval::regex::{compiled, similar};
use crate::ty::Elem;
use crate::ty::Ty::{Array, Bool, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("textregexeq", &[Text, Text], Bool, |a, _| matches(a, false)),
    strict("texticregexeq", &[Text, Text], Bool, |a, _| matches(a, true)),
    strict("regexp_replace", &[Text, Text, Text], Text, |a, cx| replaced(a, "", cx)),
    strict("regexp_replace", &[Text, Text, Text, Text], Text, |a, cx| replaced(a, text(a, 3), cx)),
    strict("regexp_match", &[Text, Text], Array(Elem::Text), |a, cx| groups(a, "", cx)),
    strict("regexp_match", &[Text, Text, Text], Array(Elem::Text), |a, cx| groups(a, text(a, 2), cx)),
    strict("substring", &[Text, Text], Text, |a, _| {
        let (whole, regex) = (text(a, 0), compiled(text(a, 1), false)?);
        let Some((start, _)) = regex.find(whole, 0)? else { return Ok(Datum::Null) };
        Ok(first_group(regex.captures(whole, start)?))
    }),
    strict("substring", &[Text, Text, Text], Text, |a, _| {
        let regex = compiled(&similar::pattern(text(a, 1), text(a, 2))?, false)?;
        Ok(first_group(regex.captures_whole(text(a, 0))))
    }),
    strict("similar_to_escape", &[Text], Text, |a, cx| Ok(cx.text(&similar::pattern(text(a, 0), "\\")?))),
    strict("similar_to_escape", &[Text, Text], Text, |a, cx| {
        Ok(cx.text(&similar::pattern(text(a, 0), text(a, 1))?))
    }),
    strict("regexp_like", &[Text, Text], Bool, |a, _| matches(a, false)),
    strict("regexp_like", &[Text, Text, Text], Bool, |a, _| matches(a, flags(text(a, 2))?.fold_case)),
    strict("regexp_split_to_array", &[Text, Text], Array(Elem::Text), |a, cx| split(a, "", cx)),
    strict("regexp_split_to_array", &[Text, Text, Text], Array(Elem::Text), |a, cx| split(a, text(a, 2), cx)),
];

/// The first group of a match, all of it if there are none; NULL without a match.
fn first_group(found: Option<Captures<'_>>) -> Datum<'_> {
    let group = found.and_then(|groups| groups.get(usize::from(groups.len() > 1)));
    group.map_or(Datum::Null, |group| Datum::Text(group.as_str()))
}

/// The parts of a text between what the pattern matches.
fn split<'a>(a: &[Datum<'a>], letters: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let flags = flags(letters)?;
    if flags.all {
        let message = "regexp_split_to_array() does not support the \"global\" option";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let mut parts = crate::array::of(crate::oid::TEXT);
    let regex = compiled(text(a, 1), flags.fold_case)?;
    let whole = text(a, 0);
    let mut from = 0;
    for (start, end) in regex.matches(whole)? {
        // What matches nothing at either end separates nothing.
        if start == end && (start == 0 || end == whole.len()) {
            continue;
        }
        cx.env.check_cancel()?;
        parts.push(Datum::Text(&whole[from..start]));
        from = end;
    }
    parts.push(Datum::Text(&whole[from..]));
    Ok(cx.keep_value(Value::Array(parts)))
}

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
    let (whole, pieces) = (text(a, 0), template(text(a, 2)));
    let has_groups = pieces.iter().any(|piece| matches!(piece, Piece::Group(1..)));
    let matches = match flags.all {
        true => regex.matches(whole)?,
        false => regex.find(whole, 0)?.into_iter().collect(),
    };
    let mut replaced = String::with_capacity(whole.len());
    let mut from = 0;
    for (start, end) in matches {
        cx.env.check_cancel()?;
        let groups = if has_groups { regex.captures(whole, start)? } else { None };
        replaced.push_str(&whole[from..start]);
        for piece in &pieces {
            replaced.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Group(0) => &whole[start..end],
                Piece::Group(n) => groups.as_ref().and_then(|g| g.get(*n)).map_or("", |g| g.as_str()),
            });
        }
        super::check_size(replaced.len())?;
        from = end;
    }
    replaced.push_str(&whole[from..]);
    super::check_size(replaced.len())?;
    Ok(cx.text(&replaced))
}

/// A part of a replacement.
enum Piece<'t> {
    Text(&'t str),
    /// A group of the match, 0 for all of it.
    Group(usize),
}

/// `\1` and `\&` in a replacement.
fn template(written: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        out.push(Piece::Text(&rest[..at]));
        let after = &rest[at + 1..];
        let mut chars = after.chars();
        let (piece, left) = match chars.next() {
            Some(digit @ '1'..='9') => (Piece::Group(digit as usize - '0' as usize), chars.as_str()),
            Some('&') => (Piece::Group(0), chars.as_str()),
            Some('\\') => (Piece::Text("\\"), chars.as_str()),
            _ => (Piece::Text("\\"), after),
        };
        out.push(piece);
        rest = left;
    }
    out.push(Piece::Text(rest));
    out
}

/// The groups of the first match, of each one with the flag g, or all of it if there are none: as arrays.
///
/// `look` ends the search with its error.
pub fn all_groups(
    whole: &str,
    pattern: &str,
    letters: &str,
    look: &dyn Fn() -> Result<()>,
) -> Result<Vec<Value>> {
    let flags = flags(letters)?;
    let regex = compiled(pattern, flags.fold_case)?;
    let starts = match flags.all {
        true => regex.matches(whole)?,
        false => regex.find(whole, 0)?.into_iter().collect(),
    };
    let mut rows = Vec::with_capacity(starts.len());
    for (start, _) in starts {
        look()?;
        let Some(found) = regex.captures(whole, start)? else { continue };
        let mut array = crate::array::of(crate::oid::TEXT);
        for group in found.iter().skip(usize::from(found.len() > 1)) {
            array.push(group.map_or(Datum::Null, |group| Datum::Text(group.as_str())));
        }
        rows.push(Value::Array(array));
    }
    Ok(rows)
}

/// The groups of the first match, or all of it if there are none; NULL if nothing fits.
fn groups<'a>(a: &[Datum<'a>], letters: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    if flags(letters)?.all {
        let message = "regexp_match() does not support the \"global\" option";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Use the regexp_matches function instead."));
    }
    let found = all_groups(text(a, 0), text(a, 1), letters, &|| cx.env.check_cancel())?.pop();
    Ok(found.map_or(Datum::Null, |array| cx.keep_value(array)))
}
