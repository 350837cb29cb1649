//! Resolves the names of a view's query when the view is created, and makes a text of the query with
//! qualified names.
//!
//! Invariants
//! 1. A qualified name keeps its meaning when tables get columns later.
//! 2. A name stays as written if it has had two meanings, or if no qualified name says what it means.
//!
//! This module knows nothing about views. The caller binds the new text and compares the result with that of
//! the old text.

use super::Binder;
use super::meanings::Meaning;
use super::relations::{BoundFrom, common_names};
use super::scope::{ColumnMatch, Relation, Scope};
use crate::ast::{self, Expr as Ast, JoinConstraint, JoinOperator, Placed, TableFactor};
use crate::eval::Expr;

use crate::system::names::quoted;

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
                (found != ColumnMatch::Several).then(|| holder.unwrap_or_default() + &quoted(name))
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

    /// Notes what the names of an expression mean that is known by how it is written, and so is not bound
    /// where it stands.
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

/// A place within an item of FROM before which nothing of it but parentheses stands.
fn begin_of(factor: &TableFactor) -> Option<u32> {
    match factor {
        TableFactor::Table(table) => table.name.place().position(),
        TableFactor::Function { name, .. } => name.place().position(),
        TableFactor::Derived { subquery, .. } => subquery.place().position(),
        TableFactor::NestedJoin { table_with_joins, .. } => begin_of(&table_with_joins.relation),
    }
}
