//! `format`, quoting, and other functions that make SQL or parts of text.

use varve_engine::Datum;

use super::{Builtin, any, check_size, int, loose, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Cx;
use crate::system::names::{literal, quoted};
use crate::ty::Ty::{Int4, Text, Unknown};

pub(super) const TABLE: &[Builtin] = &[
    strict("format", &[Text], Text, formatted_call),
    any("format", &[Text, Unknown], Text, formatted_call),
    strict("quote_ident", &[Text], Text, |a, cx| Ok(cx.text(&quoted(text(a, 0))))),
    strict("quote_literal", &[Text], Text, |a, cx| Ok(cx.text(&literal(text(a, 0))))),
    strict("quote_literal", &[Unknown], Text, |a, cx| Ok(cx.text(&literal(text(a, 0))))),
    loose("quote_nullable", &[Unknown], Text, |a, cx| {
        Ok(match a[0] {
            Datum::Text(t) => cx.text(&literal(t)),
            _ => Datum::Text("NULL"),
        })
    }),
    strict("overlay", &[Text, Text, Int4], Text, |a, cx| overlay(a, text(a, 1).chars().count() as i64, cx)),
    strict("overlay", &[Text, Text, Int4, Int4], Text, |a, cx| overlay(a, int(a, 3), cx)),
];

fn formatted_call<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    match a.first() {
        Some(Datum::Text(template)) => formatted(template, &a[1..]).map(|made| cx.text(&made)),
        _ => Ok(Datum::Null),
    }
}

fn overlay<'a>(a: &[Datum<'a>], length: i64, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let from = int(a, 2);
    if from < 1 {
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let (whole, put) = (text(a, 0), text(a, 1));
    check_size(whole.len() + put.len())?;
    let after = usize::try_from((from - 1).saturating_add(length)).unwrap_or(0);
    let head = whole.chars().take(from as usize - 1);
    let made: String = head.chain(put.chars()).chain(whole.chars().skip(after)).collect();
    Ok(cx.text(&made))
}

fn refused(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message.into())
}

/// One `%...` specifier of a template.
#[derive(Default)]
struct Piece {
    /// The number of the argument, from 1, if the specifier has one.
    position: Option<usize>,
    left: bool,
    width: usize,
    /// The argument that has the width, if the width is an argument: the argument with this number, or else
    /// the next one.
    width_from: Option<Option<usize>>,
    kind: char,
}

/// Computes `format`: %s, %I and %L with positions, flags and widths.
fn formatted(template: &str, arguments: &[Datum<'_>]) -> Result<String> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (mut piece, after) = piece(rest)?;
        rest = after;
        let mut take = |position: Option<usize>| {
            next = position.unwrap_or(next + 1);
            arguments.get(next - 1).copied().ok_or_else(|| refused("too few arguments for format()"))
        };
        if let Some(from) = piece.width_from {
            let width = match take(from)? {
                Datum::Text(digits) => digits.trim().parse::<i64>().unwrap_or(0),
                _ => 0,
            };
            piece.left |= width < 0;
            piece.width = usize::try_from(width.unsigned_abs()).unwrap_or(0);
        }
        let shown = converted(piece.kind, take(piece.position)?)?;
        check_size(out.len() + piece.width.max(shown.len()))?;
        let blanks = " ".repeat(piece.width.saturating_sub(shown.chars().count()));
        let (before, behind) = if piece.left { ("", blanks.as_str()) } else { (blanks.as_str(), "") };
        out.extend([before, &shown, behind]);
    }
    out.push_str(rest);
    check_size(out.len())?;
    Ok(out)
}

/// Reads the specifier after a `%`. Returns it and the rest of the text.
fn piece(text: &str) -> Result<(Piece, &str)> {
    let mut piece = Piece::default();
    let mut rest = text;
    if let (Some(n), after) = number(rest)
        && let Some(after) = after.strip_prefix('$')
    {
        piece.position = Some(positive(n)?);
        rest = after;
    }
    while let Some(after) = rest.strip_prefix('-') {
        piece.left = true;
        rest = after;
    }
    if let Some(after) = rest.strip_prefix('*') {
        rest = after;
        piece.width_from = Some(None);
        if let (Some(n), after) = number(rest)
            && let Some(after) = after.strip_prefix('$')
        {
            piece.width_from = Some(Some(positive(n)?));
            rest = after;
        }
    } else if let (Some(width), after) = number(rest) {
        piece.width = width;
        rest = after;
    }
    let kind = rest.chars().next().ok_or_else(|| {
        refused("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".")
    })?;
    if !matches!(kind, 's' | 'I' | 'L') {
        return Err(refused(format!("unrecognized format() type specifier \"{kind}\""))
            .with_hint("For a single \"%\" use \"%%\"."));
    }
    piece.kind = kind;
    Ok((piece, &rest[1..]))
}

fn number(text: &str) -> (Option<usize>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

fn positive(position: usize) -> Result<usize> {
    match position {
        0 => Err(refused("format specifies argument 0, but arguments are numbered from 1")),
        n => Ok(n),
    }
}

fn converted(kind: char, value: Datum<'_>) -> Result<String> {
    Ok(match (kind, value) {
        ('s', Datum::Text(t)) => t.to_owned(),
        ('I', Datum::Text(t)) => quoted(t),
        ('L', Datum::Text(t)) => literal(t),
        ('L', _) => "NULL".to_owned(),
        ('I', _) => {
            let message = "null values cannot be formatted as an SQL identifier";
            return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
        }
        _ => String::new(),
    })
}
