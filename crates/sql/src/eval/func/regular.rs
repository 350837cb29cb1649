//! Functions of regular expressions.
//!
//! This module does not know how patterns are compiled (`eval::regex`).

use varve_engine::{Datum, Value};

use super::{Builtin, int, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::eval::regex::{Groups, Look, Options, Pattern, compiled, similar, whole};
use crate::ty::Ty::{self, Array, Bool, Int4, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("textregexeq", &[Text, Text], Bool, |a, cx| matches(a, Options::default(), cx)),
    strict("texticregexeq", &[Text, Text], Bool, |a, cx| matches(a, Options::folding(true), cx)),
    strict("regexp_replace", &[Text, Text, Text], Text, |a, cx| replaced(a, 0, Some(1), "", cx)),
    strict("regexp_replace", &[Text, Text, Text, Text], Text, replaced_by_flags),
    strict("regexp_replace", &[Text, Text, Text, Int4], Text, |a, cx| {
        replaced(a, start(a, 3)?, Some(1), "", cx)
    }),
    strict("regexp_replace", &[Text, Text, Text, Int4, Int4], Text, |a, cx| {
        replaced(a, start(a, 3)?, Some(at_least(a, 4, "n", 0)?), "", cx)
    }),
    strict("regexp_replace", &[Text, Text, Text, Int4, Int4, Text], Text, |a, cx| {
        replaced(a, start(a, 3)?, Some(at_least(a, 4, "n", 0)?), text(a, 5), cx)
    }),
    strict("regexp_match", &[Text, Text], Array(&Ty::Text), |a, cx| groups(a, "", cx)),
    strict("regexp_match", &[Text, Text, Text], Array(&Ty::Text), |a, cx| groups(a, text(a, 2), cx)),
    strict("substring", &[Text, Text], Text, |a, cx| {
        first_group(text(a, 0), &*compiled(text(a, 1), Options::default())?, cx)
    }),
    strict("substring", &[Text, Text, Text], Text, |a, cx| {
        let pattern = similar::pattern(text(a, 1), text(a, 2))?;
        first_group(text(a, 0), &*compiled(&pattern, Options::default())?, cx)
    }),
    strict("similar_to_escape", &[Text], Text, |a, cx| Ok(cx.text(&similar::pattern(text(a, 0), "\\")?))),
    strict("similar_to_escape", &[Text, Text], Text, |a, cx| {
        Ok(cx.text(&similar::pattern(text(a, 0), text(a, 1))?))
    }),
    strict("regexp_like", &[Text, Text], Bool, |a, cx| matches(a, Options::default(), cx)),
    strict("regexp_like", &[Text, Text, Text], Bool, |a, cx| {
        matches(a, options_of_one(text(a, 2), "regexp_like")?, cx)
    }),
    strict("regexp_split_to_array", &[Text, Text], Array(&Ty::Text), |a, cx| split(a, "", cx)),
    strict("regexp_split_to_array", &[Text, Text, Text], Array(&Ty::Text), |a, cx| split(a, text(a, 2), cx)),
    strict("regexp_count", &[Text, Text], Int4, counted),
    strict("regexp_count", &[Text, Text, Int4], Int4, counted),
    strict("regexp_count", &[Text, Text, Int4, Text], Int4, counted),
    strict("regexp_substr", &[Text, Text], Text, sub_match),
    strict("regexp_substr", &[Text, Text, Int4], Text, sub_match),
    strict("regexp_substr", &[Text, Text, Int4, Int4], Text, sub_match),
    strict("regexp_substr", &[Text, Text, Int4, Int4, Text], Text, sub_match),
    strict("regexp_substr", &[Text, Text, Int4, Int4, Text, Int4], Text, sub_match),
    strict("regexp_instr", &[Text, Text], Int4, place),
    strict("regexp_instr", &[Text, Text, Int4], Int4, place),
    strict("regexp_instr", &[Text, Text, Int4, Int4], Int4, place),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4], Int4, place),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4, Text], Int4, place),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4, Text, Int4], Int4, place),
];

/// Returns the first group of a match, or the whole match if there are no groups. The result is NULL without
/// a match.
fn first_group<'a>(whole: &'a str, regex: &Pattern, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let found = regex.next(whole, 0, true, &|| cx.env.check_cancel())?;
    let group = found.and_then(|groups| groups.get(usize::from(groups.len() > 1)).copied().flatten());
    Ok(group.map_or(Datum::Null, |(start, end)| Datum::Text(&whole[start..end])))
}

/// Returns the parts of a text between the matches of a pattern.
fn split<'a>(a: &[Datum<'a>], letters: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let options = options_of_one(letters, "regexp_split_to_array")?;
    let mut parts = crate::array::of(crate::oid::TEXT);
    let regex = compiled(text(a, 1), options)?;
    let all = text(a, 0);
    let mut from = 0;
    for groups in regex.all(all, 0, false, &|| cx.env.check_cancel())? {
        let (start, end) = whole(&groups);
        // An empty match does not separate anything at the ends of the text, or directly after another match.
        if start >= all.len() || end <= from {
            continue;
        }
        parts.push(Datum::Text(&all[from..start]));
        from = end;
    }
    parts.push(Datum::Text(&all[from..]));
    Ok(cx.keep_value(Value::Array(parts)))
}

fn matches<'a>(a: &[Datum<'a>], options: Options, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let regex = compiled(text(a, 1), options)?;
    Ok(Datum::Bool(regex.is_match(text(a, 0), &|| cx.env.check_cancel())?))
}

/// Returns the options of the flags, and whether the flag g asks for all matches.
fn options(letters: &str) -> Result<(Options, bool)> {
    let (mut options, mut all) = (Options::default(), false);
    for letter in letters.chars() {
        if letter == 'g' {
            all = true;
        } else if !options.set(letter) {
            let message = format!("invalid regular expression option: \"{letter}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    }
    Ok((options, all))
}

/// Returns the options of the flags, for a function that does not allow the flag g.
fn options_of_one(letters: &str, function: &str) -> Result<Options> {
    match options(letters)? {
        (options, false) => Ok(options),
        (_, true) => {
            let message = format!("{function}() does not support the \"global\" option");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Returns the value of an integer argument. Fails with 22023 if it is below `least`.
fn at_least(a: &[Datum<'_>], n: usize, name: &str, least: i64) -> Result<usize> {
    let number = int(a, n);
    if number < least {
        let message = format!("invalid value for parameter \"{name}\": {number}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(number as usize)
}

/// Returns the byte offset at which the search starts. The argument counts characters from 1.
fn start(a: &[Datum<'_>], n: usize) -> Result<usize> {
    let (all, number) = (text(a, 0), if a.len() > n { at_least(a, n, "start", 1)? } else { 1 });
    // A start beyond the end finds nothing, not even an empty match.
    let beyond = || if number > all.chars().count() + 1 { all.len() + 1 } else { all.len() };
    Ok(all.char_indices().nth(number - 1).map_or_else(beyond, |(at, _)| at))
}

fn replaced_by_flags<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let flags = text(a, 3);
    if let Some(digit) = flags.chars().next().filter(char::is_ascii_digit) {
        let message = format!("invalid regular expression option: \"{digit}\"");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(
            "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
        ));
    }
    replaced(a, 0, None, flags, cx)
}

/// Returns the text in which one match, or each match (number 0), is replaced. Without a number, the flag g
/// decides.
fn replaced<'a>(
    a: &[Datum<'a>],
    from: usize,
    number: Option<usize>,
    letters: &str,
    cx: &Cx<'a>,
) -> Result<Datum<'a>> {
    let (options, all) = options(letters)?;
    let number = number.unwrap_or(usize::from(!all));
    let regex = compiled(text(a, 1), options)?;
    let (all, pieces) = (text(a, 0), template(text(a, 2)));
    let has_groups = pieces.iter().any(|piece| matches!(piece, Piece::Group(1..)));
    let look = || cx.env.check_cancel();
    let matches = match number {
        1 => regex.next(all, from, has_groups, &look)?.into_iter().collect(),
        0 => regex.all(all, from, has_groups, &look)?,
        n => regex.all(all, from, has_groups, &look)?.into_iter().skip(n - 1).take(1).collect(),
    };
    let mut replaced = String::with_capacity(all.len());
    let mut from = 0;
    for groups in matches {
        let (start, end) = whole(&groups);
        replaced.push_str(&all[from..start]);
        for piece in &pieces {
            replaced.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Group(n) => groups.get(*n).copied().flatten().map_or("", |(from, to)| &all[from..to]),
            });
        }
        super::check_size(replaced.len())?;
        from = end;
    }
    replaced.push_str(&all[from..]);
    super::check_size(replaced.len())?;
    Ok(cx.text(&replaced))
}

/// A part of a replacement.
enum Piece<'t> {
    Text(&'t str),
    /// A group of the match, 0 for all of it.
    Group(usize),
}

/// Splits a replacement at `\1` and `\&`.
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

/// Returns an array of the groups for the first match, or with the flag g for each match. Without groups, the
/// array has the whole match.
///
/// `look` ends the search with its error.
pub fn all_groups(all: &str, pattern: &str, letters: &str, look: Look<'_>) -> Result<Vec<Value>> {
    let (options, each) = options(letters)?;
    let regex = compiled(pattern, options)?;
    let found = match each {
        true => regex.all(all, 0, true, look)?,
        false => regex.next(all, 0, true, look)?.into_iter().collect(),
    };
    let array = |groups: Groups| {
        let mut array = crate::array::of(crate::oid::TEXT);
        for group in groups.iter().skip(usize::from(groups.len() > 1)) {
            array.push(group.map_or(Datum::Null, |(start, end)| Datum::Text(&all[start..end])));
        }
        Value::Array(array)
    };
    Ok(found.into_iter().map(array).collect())
}

/// Returns the groups of the first match, or the whole match if there are no groups. The result is NULL
/// without a match.
fn groups<'a>(a: &[Datum<'a>], letters: &str, cx: &Cx<'a>) -> Result<Datum<'a>> {
    options_of_one(letters, "regexp_match").map_err(|e| {
        if letters.contains('g') && e.message.contains("global") {
            e.with_hint("Use the regexp_matches function instead.")
        } else {
            e
        }
    })?;
    let found = all_groups(text(a, 0), text(a, 1), letters, &|| cx.env.check_cancel())?.pop();
    Ok(found.map_or(Datum::Null, |array| cx.keep_value(array)))
}

/// Computes regexp_count.
fn counted<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let from = start(a, 2)?;
    let regex = compiled(text(a, 1), options_of_one(text(a, 3), "regexp_count")?)?;
    Ok(Datum::Int4(regex.all(text(a, 0), from, false, &|| cx.env.check_cancel())?.len() as i32))
}

/// Returns the text range of a group in the match with the number in the fourth argument.
fn nth<'a>(a: &[Datum<'a>], flags: usize, function: &str, cx: &Cx<'a>) -> Result<Option<(usize, usize)>> {
    let from = start(a, 2)?;
    let number = if a.len() > 3 { at_least(a, 3, "n", 1)? } else { 1 };
    if a.len() > 4 && flags == 5 && !matches!(int(a, 4), 0 | 1) {
        let message = format!("invalid value for parameter \"endoption\": {}", int(a, 4));
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let wanted = if a.len() > flags + 1 { at_least(a, flags + 1, "subexpr", 0)? } else { 0 };
    let letters = if a.len() > flags { text(a, flags) } else { "" };
    let regex = compiled(text(a, 1), options_of_one(letters, function)?)?;
    // If there are no groups, the whole match counts as the first group.
    let group = if regex.group_count() == 0 { wanted.saturating_sub(1) } else { wanted };
    if group > regex.group_count() {
        return Ok(None);
    }
    let look = || cx.env.check_cancel();
    let found = match number {
        1 => regex.next(text(a, 0), from, group > 0, &look)?,
        number => regex.all(text(a, 0), from, group > 0, &look)?.into_iter().nth(number - 1),
    };
    Ok(found.and_then(|groups| groups.get(group).copied().flatten()))
}

/// Computes regexp_substr.
fn sub_match<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let found = nth(a, 4, "regexp_substr", cx)?;
    Ok(found.map_or(Datum::Null, |(from, to)| match a.first() {
        Some(Datum::Text(all)) => Datum::Text(&all[from..to]),
        _ => Datum::Null,
    }))
}

/// Computes regexp_instr.
fn place<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let at_end = a.len() > 4 && int(a, 4) == 1;
    let found = nth(a, 5, "regexp_instr", cx)?;
    let at = found.map(|(from, to)| if at_end { to } else { from });
    Ok(Datum::Int4(at.map_or(0, |at| text(a, 0)[..at].chars().count() + 1) as i32))
}
