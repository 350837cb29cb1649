//! What the names of a view's query mean when the view is made, and the query's text with that written out.
//!
//! Invariants
//! 1. A name that is written out still means what it meant: tables that get columns later do not change that.
//! 2. What has meant two things, or cannot be said by a name, is left as it was written.
//!
//! Does not know: views. Who keeps the text binds it again and compares.

use std::collections::{BTreeMap, BTreeSet};

use super::Binder;
use super::relations::{BoundFrom, common_names};
use super::scope::{Found, Relation, Scope};
use crate::ast::{self, Expr as Ast, JoinConstraint, JoinOperator, Placed, TableFactor};
use crate::error::Result;
use crate::eval::Expr;
use crate::parse::{self, Token};
use crate::system::names::quoted;

/// What something in the text means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    /// A name of a table or view: one of this schema.
    OfSchema(String),
    /// A column: one of this relation.
    OfRelation(String),
    /// A star: these columns.
    Columns(Vec<String>),
    /// A name in GROUP BY or ORDER BY: the output of this number.
    Output(usize),
}

/// How much of it is written out.
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
    natural: BTreeMap<u32, Vec<String>>,
    /// Places that have meant several things.
    unclear: BTreeSet<u32>,
}

impl Meanings {
    fn note(&mut self, at: Option<u32>, meaning: Meaning) {
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

impl Binder<'_> {
    /// Notes the schema of a relation that was named without one.
    pub(super) fn note_schema(&mut self, name: &ast::ObjectName, schema: &str) {
        if let Some(meanings) = &mut self.meanings
            && name.0.len() == 1
            && !schema.is_empty()
        {
            meanings.note(name.place().position(), Meaning::OfSchema(schema.to_owned()));
        }
    }

    /// Notes the relation of a column that was named without one. `within`: relations nearer to the name.
    pub(super) fn note_column(&mut self, ident: &ast::Ident, found: Found, scope: &Scope, within: &[&Scope]) {
        if self.meanings.is_none() {
            return;
        }
        let Some(relation) = holder(found, &ident.value, scope) else { return };
        if within.iter().any(|nearer| nearer.relation(&relation.alias).is_some()) {
            return;
        }
        if let Some(meanings) = &mut self.meanings {
            meanings.note(ident.at.position(), Meaning::OfRelation(relation.alias.clone()));
        }
    }

    /// Notes that an item of GROUP BY is the name of an output.
    pub(super) fn note_output(&mut self, item: &Ast, output: usize) {
        if let (Some(meanings), Ast::Identifier(name)) = (&mut self.meanings, item) {
            meanings.note_output(name, output);
        }
    }

    /// Notes the columns of a star, which are named by their relation unless several of it have the name.
    pub(super) fn note_star(&mut self, at: Option<u32>, columns: &[StarColumn<'_>], scope: &Scope) {
        if self.meanings.is_none() {
            return;
        }
        let shown = |column: &StarColumn<'_>| match column {
            StarColumn::Of(relation, name) if relation.is_ambiguous(name) => None,
            StarColumn::Of(relation, name) => Some(format!("{}.{}", quoted(&relation.alias), quoted(name))),
            StarColumn::Merged(name) => {
                let found = scope.find(None, name);
                let holder = holder(found, name, scope).map(|r| format!("{}.", quoted(&r.alias)));
                (found != Found::Several).then(|| holder.unwrap_or_default() + &quoted(name))
            }
        };
        let columns: Option<Vec<String>> = columns.iter().map(shown).collect();
        if let (Some(meanings), Some(columns)) = (&mut self.meanings, columns) {
            meanings.note(at, Meaning::Columns(columns));
        }
    }

    /// Notes the columns of a NATURAL join.
    pub(super) fn note_natural(&mut self, join: &ast::Join, left: &BoundFrom, right: &BoundFrom) {
        let Some(meanings) = &mut self.meanings else { return };
        let (JoinOperator::Inner(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)) = &join.operator
        else {
            return;
        };
        if let (JoinConstraint::Natural, Some(at)) = (constraint, begin_of(&join.relation)) {
            meanings.natural.insert(at, common_names(left, right));
        }
    }

    /// Notes what the names of an expression mean that is known by how it is written, and so is not bound where it stands.
    pub(super) fn note_known(&mut self, e: &Ast, scope: &Scope, is_key: bool) {
        let Some(meanings) = self.meanings.take() else { return };
        let mut apart = Scope {
            relations: scope.relations.clone(),
            merged: scope.merged.clone(),
            grouping: scope.grouping.clone().filter(|_| !is_key),
            windows: scope.windows.clone(),
            sets: Some(super::scope::Sets::default()),
            no_aggregates: None,
        };
        self.meanings = self.without_trace(|b| {
            b.meanings = Some(meanings);
            // It was bound before.
            let _known = b.expression(e, &mut apart);
            b.meanings.take()
        });
    }
}

/// A column that a star shows.
pub(super) enum StarColumn<'a> {
    /// Of a relation.
    Of(&'a Relation, &'a str),
    /// Of USING.
    Merged(&'a str),
}

/// The relation by whose name a column that was found without one is the same.
fn holder<'s>(found: Found, name: &str, scope: &'s Scope) -> Option<&'s Relation> {
    let (ordinal, t) = match found {
        Found::Column(ordinal, t) => (ordinal, t),
        Found::Merged(n) => match scope.merged[n].expr {
            Expr::Column(ordinal) => (ordinal, scope.merged[n].t),
            _ => return None,
        },
        Found::Nothing | Found::Several => return None,
    };
    let relation = scope.owner(ordinal).filter(|relation| !relation.alias.is_empty())?;
    (scope.find(Some(&relation.alias), name) == Found::Column(ordinal, t)).then_some(relation)
}

/// A place within an item of FROM before which nothing of it but parentheses stands.
fn begin_of(factor: &TableFactor) -> Option<u32> {
    match factor {
        TableFactor::Table(table) => table.name.place().position(),
        TableFactor::Function { name, .. } => name.place().position(),
        TableFactor::Derived { subquery, .. } => subquery.place().position(),
        TableFactor::NestedJoin { table_with_joins, .. } => begin_of(&table_with_joins.relation),
    }
}
