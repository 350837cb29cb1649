//! Collects what the names of a text meant when it was bound, and makes a text with qualified names.
//!
//! Invariants
//! 1. A name that has had two meanings stays as written.
//!
//! This module does not know how a name got its meaning (`meaning`).

use std::collections::{BTreeMap, BTreeSet};

use crate::ast;
use crate::error::Result;
use crate::parse::{self, Token};
use crate::system::names::quoted;

/// The meaning of a place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A name of a table or view: one of this schema.
    OfSchema(String),
    /// A column: one of this relation.
    OfRelation(String),
    /// A star: these columns.
    Columns(Vec<String>),
    /// A name in GROUP BY or ORDER BY: the output of this number.
    Output(usize),
}

/// The names that the new text qualifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All.
    All,
    /// Schemas and stars.
    Relations,
}

/// What names meant while a query was bound, by their places.
#[derive(Debug, Clone, Default)]
pub(super) struct Meanings {
    places: BTreeMap<u32, Meaning>,
    /// NATURAL joins: the columns, by the place where the right side begins.
    pub(super) natural: BTreeMap<u32, Vec<String>>,
    /// The places with several meanings.
    unclear: BTreeSet<u32>,
}

impl Meanings {
    pub(super) fn note(&mut self, at: Option<u32>, meaning: Meaning) {
        let Some(at) = at.filter(|at| !self.unclear.contains(at)) else { return };
        if self.places.get(&at).is_some_and(|before| *before != meaning) {
            self.places.remove(&at);
            self.unclear.insert(at);
            return;
        }
        self.places.insert(at, meaning);
    }

    /// Notes that a name means an output.
    pub(super) fn note_output(&mut self, name: &ast::Ident, output: usize) {
        self.note(name.at.position(), Meaning::Output(output + 1));
    }

    /// The text in which the names stood, with their meanings.
    pub(super) fn written_out(&self, text: &str, extent: Extent) -> Result<String> {
        let tokens = parse::tokens(text)?;
        let mut changes: Vec<(usize, usize, String)> = Vec::new();
        let (mut at, mut counted) = (1, 0);
        let mut starts = Vec::with_capacity(tokens.len());
        for (n, token) in tokens.iter().enumerate() {
            at += text[counted..token.start].chars().count() as u32;
            counted = token.start;
            starts.push(at);
            let (end, new) = match self.places.get(&at) {
                Some(Meaning::OfSchema(name)) => (token.start, format!("{}.", quoted(name))),
                Some(Meaning::Columns(columns)) => match tokens[n..].iter().find(|t| t.is("*")) {
                    Some(star) => (star.end, columns.join(", ")),
                    None => continue,
                },
                Some(Meaning::OfRelation(name)) if extent == Extent::All => {
                    (token.start, format!("{}.", quoted(name)))
                }
                Some(Meaning::Output(n)) if extent == Extent::All => (token.end, n.to_string()),
                _ => continue,
            };
            changes.push((token.start, end, new));
        }
        if extent == Extent::All {
            for (place, columns) in &self.natural {
                let right = starts.partition_point(|at| at < place);
                changes.extend(natural_join(&tokens, right, columns).into_iter().flatten());
            }
        }
        changes.sort();
        let (mut out, mut copied) = (String::with_capacity(2 * text.len()), 0);
        for (start, end, new) in changes {
            out.push_str(&text[copied..start]);
            out.push_str(&new);
            copied = end;
        }
        out.push_str(&text[copied..]);
        Ok(out)
    }
}

/// The changes that make a join of these columns of a NATURAL one, whose right side holds a token.
fn natural_join(
    tokens: &[Token<'_>],
    right: usize,
    columns: &[String],
) -> Option<[(usize, usize, String); 2]> {
    const WORDS: [&str; 21] = [
        "join",
        "natural",
        "inner",
        "left",
        "right",
        "full",
        "cross",
        "on",
        "using",
        "where",
        "group",
        "having",
        "window",
        "union",
        "intersect",
        "except",
        "order",
        "limit",
        "offset",
        "fetch",
        "for",
    ];
    let natural = tokens[..right].iter().rposition(|t| t.is_word("natural"))?;
    let join = natural + tokens[natural..].iter().position(|t| t.is_word("join"))?;
    let begins = tokens[natural].start;
    let after = tokens[natural + 1].start;
    let mut depth = 0usize;
    let mut end = tokens[join].end;
    for token in &tokens[join + 1..] {
        let is_over = token.is(",") || token.is(";") || WORDS.iter().any(|word| token.is_word(word));
        match () {
            () if token.is("(") || token.is("[") => depth += 1,
            () if depth > 0 && (token.is(")") || token.is("]")) => depth -= 1,
            () if depth == 0 && (token.is(")") || is_over) => break,
            () => {}
        }
        end = token.end;
    }
    if !columns.is_empty() {
        let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
        return Some([
            (begins, after, String::new()),
            (end, end, format!(" USING ({})", columns.join(", "))),
        ]);
    }
    let is_inner = join == natural + 1 || tokens[natural + 1].is_word("inner");
    Some(match is_inner {
        true => [(begins, tokens[join].start, "CROSS ".to_owned()), (end, end, String::new())],
        false => [(begins, after, String::new()), (end, end, " ON true".to_owned())],
    })
}
