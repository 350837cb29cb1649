//! Resolves the names of a view's query when the view is created, and makes a text of the query with
//! qualified names.
//!
//! Invariants
//! 1. A qualified name keeps its meaning when tables get columns later.
//! 2. A name stays as written if it has had two meanings, or if no qualified name says what it means.
//!
//! This module does not know views. The caller binds the new text and compares the result with that of the
//! old text.

use super::Binder;
use super::meanings::Meaning;
use super::relations::{BoundFrom, common_names};
use super::scope::{ColumnMatch, Relation, Scope};
use crate::ast::{self, Expr as Ast, JoinConstraint, JoinOperator, Placed, TableFactor};
use crate::eval::Expr;

use crate::system::names::quoted;

impl Binder<'_> {
    /// Records the schema of a relation that the text names without a schema.
    pub(super) fn note_schema(&mut self, name: &ast::ObjectName, schema: &str) {
        if let Some(meanings) = &mut self.meanings
            && name.0.len() == 1
            && !schema.is_empty()
        {
            meanings.note(name.place().position(), Meaning::OfSchema(schema.to_owned()));
        }
    }

    /// Records the relation of a column that the text names without a relation. `within` has the scopes
    /// between the name and `scope`: if one of them has a relation of the same name, a qualified name would
    /// mean that one, so nothing is recorded.
    pub(super) fn note_column(
        &mut self,
        ident: &ast::Ident,
        found: ColumnMatch,
        scope: &Scope,
        within: &[&Scope],
    ) {
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

    /// Records that an item of GROUP BY is the name of an output.
    pub(super) fn note_output(&mut self, item: &Ast, output: usize) {
        if let (Some(meanings), Ast::Identifier(name)) = (&mut self.meanings, item) {
            meanings.note_output(name, output);
        }
    }

    /// Records the columns that a star stands for, each qualified with its relation. Nothing is recorded if
    /// several columns of the relation have the same name.
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
                (found != ColumnMatch::Several).then(|| holder.unwrap_or_default() + &quoted(name))
            }
        };
        let columns: Option<Vec<String>> = columns.iter().map(shown).collect();
        if let (Some(meanings), Some(columns)) = (&mut self.meanings, columns) {
            meanings.note(at, Meaning::Columns(columns));
        }
    }

    /// Records the columns that a NATURAL join compares.
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

    /// Records what the names in `e` mean, if `e` was recognized by its text (for example as a GROUP BY item)
    /// and therefore is not bound again here.
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
            // The same expression was bound before, so an error was already reported.
            let _known = b.expression(e, &mut apart);
            b.meanings.take()
        });
    }
}

/// A column that a star shows.
pub(super) enum StarColumn<'a> {
    /// A column of this relation, with its name.
    Of(&'a Relation, &'a str),
    /// A column of this name that USING or NATURAL merged from both sides of a join.
    Merged(&'a str),
}

/// Returns the relation whose name can qualify a column that the text names without a relation. Returns
/// `None` if the qualified name would mean another column, or no column.
fn holder<'s>(found: ColumnMatch, name: &str, scope: &'s Scope) -> Option<&'s Relation> {
    let (ordinal, t) = match found {
        ColumnMatch::Column(ordinal, t) => (ordinal, t),
        ColumnMatch::Merged(n) => match scope.merged[n].expr {
            Expr::Column(ordinal) => (ordinal, scope.merged[n].t),
            _ => return None,
        },
        ColumnMatch::Nothing | ColumnMatch::Several => return None,
    };
    let relation = scope.owner(ordinal).filter(|relation| !relation.alias.is_empty())?;
    (scope.find(Some(&relation.alias), name) == ColumnMatch::Column(ordinal, t)).then_some(relation)
}

/// Returns the position of the first name or subquery of an item of FROM. Only parentheses of the item stand
/// before it.
fn begin_of(factor: &TableFactor) -> Option<u32> {
    match factor {
        TableFactor::Table(table) => table.name.place().position(),
        TableFactor::Function { name, .. } => name.place().position(),
        TableFactor::Derived { subquery, .. } => subquery.place().position(),
        TableFactor::NestedJoin { table_with_joins, .. } => begin_of(&table_with_joins.relation),
    }
}
