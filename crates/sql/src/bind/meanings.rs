//! Collects the meanings that the names of a text had when it was bound, and makes a text with qualified
//! names.
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

/// The meaning of the name (or star) at one position of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The name means a table or view of this schema.
    OfSchema(String),
    /// The name means a column of this relation.
    OfRelation(String),
    /// The star stands for these columns.
    Columns(Vec<String>),
    /// A name in GROUP BY or ORDER BY means the output with this number (from 1).
    Output(usize),
}

/// Which names the new text qualifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All names and stars.
    All,
    /// Names of relations (with their schema), and stars.
    Relations,
}

/// The meanings that names had while a query was bound, by their positions in the text.
#[derive(Debug, Clone, Default)]
pub(super) struct Meanings {
    places: BTreeMap<u32, Meaning>,
    /// The columns that each NATURAL join compares, by the position at which the join's right side begins.
    pub(super) natural: BTreeMap<u32, Vec<String>>,
    /// The positions of names that have had several meanings.
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

    /// Records that a name means the output with index `output`.
    pub(super) fn note_output(&mut self, name: &ast::Ident, output: usize) {
        self.note(name.at.position(), Meaning::Output(output + 1));
    }

    /// Returns `text` with each recorded name qualified, or replaced by its meaning.
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

/// Returns the two changes of text that turn a NATURAL join into a join with USING of `columns`. `right` is
/// the index of a token in the right side of this join. Without common columns, it becomes a CROSS JOIN or a
/// join ON true.
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
