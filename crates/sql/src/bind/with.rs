//! Binds WITH: named queries.
//!
//! Invariants
//! 1. A named query sees the named queries before it, and the outer queries of its WITH clause. It does not
//!    see the outer queries of the place where it is used.
//! 2. A named query is bound where it is defined, even if no query uses it, so that its errors are reported.
//!    All uses share the bound query. There is one exception: a named query with values of an outer query is
//!    bound again for each use, because these values differ.
//! 3. A recursive query reads its own rows at one place, in its second part. There it sees the rows that the
//!    previous iteration has added.
//!
//! This module does not know whether the rows of a shared query are stored or computed again for each use.

use std::rc::Rc;
use std::sync::Arc;

use super::Binder;
use super::bound::BoundQuery;
use super::named_queries::{NamedQuery, NamedRows, WorkTable};
use super::order::orderable;
use super::relations::renamed;
use crate::ast::{self, SetExpr, SetOperator};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::plan::{Output, Recursion, Select, SetKind, Shared, SharedBody, Source};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Runs `bind`, which can use the named queries of a WITH clause.
    pub fn with_named<T>(
        &mut self,
        with: &ast::With,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.named.queries.len();
        let bound = self.name_queries(with, before).and_then(|()| bind(self));
        self.named.queries.truncate(before);
        bound
    }

    fn name_queries(&mut self, with: &ast::With, before: usize) -> Result<()> {
        for cte in &with.cte_tables {
            let ast::Cte { alias, query, materialized } = cte;
            let name = fold(&alias.name);
            if self.named.queries[before..].iter().any(|n| n.name == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message).at(alias.name.at.position()));
            }
            let columns = alias.columns.iter().map(fold).collect();
            let query = Rc::new(query.as_ref().clone());
            let (levels, open) = (self.around.levels.len(), with.recursive);
            let origins = Vec::new();
            self.named.queries.push(NamedQuery {
                name,
                columns,
                query,
                levels,
                open,
                shared: None,
                origins,
                work: None,
            });
            let place = self.named.queries.len() - 1;
            let bound = self.named_body(place)?;
            let named = &mut self.named.queries[place];
            let columns = renamed(&bound, &named.columns);
            named.origins = bound.origins();
            if !bound.select.reads_outer() {
                let materialized = *materialized;
                let types = columns.iter().map(|(_, t)| t.ty).collect();
                let varies = bound.select.is_volatile();
                let shared =
                    Shared { body: SharedBody::Query(Box::new(bound.select)), types, materialized, varies };
                named.shared = Some((Arc::new(shared), columns));
            }
        }
        Ok(())
    }

    /// Returns the index of the named query that a name means.
    pub(super) fn find_named(&self, name: &str) -> Option<usize> {
        self.named.queries.iter().rposition(|n| n.name == name)
    }

    /// Returns the rows of a named query that is not bound again for this use: the rows that all uses share,
    /// or the query's own rows in its second part. Returns `None` if the query must be bound again.
    pub(super) fn named_rows(&mut self, place: usize) -> Result<Option<NamedRows>> {
        let subqueries = self.around.subqueries;
        let named = &mut self.named.queries[place];
        let Some(work) = &mut named.work else {
            let shared = named.shared.as_ref();
            return Ok(shared.map(|(shared, columns)| NamedRows {
                source: Source::Shared(shared.clone()),
                columns: columns.clone(),
                origins: named.origins.clone(),
            }));
        };
        work.uses += 1;
        let types = work.columns.iter().map(|(_, t)| t.ty).collect();
        let source = Source::Work(work.id, types);
        let rows = NamedRows { source, columns: work.columns.clone(), origins: Vec::new() };
        let what = match () {
            () if subqueries > work.subqueries => "must not appear within a subquery",
            () if work.uses > 1 => "must not appear more than once",
            () => return Ok(Some(rows)),
        };
        Err(self.misplaced(what))
    }

    /// Returns, for each recursive query whose second part is being bound, how often it has named itself so
    /// far.
    pub(super) fn work_uses(&self) -> Vec<usize> {
        self.named.queries.iter().filter_map(|n| n.work.as_ref()).map(|w| w.uses).collect()
    }

    /// Sets the counts of `work_uses` back, before a part of the query is bound a second time.
    pub(super) fn set_work_uses(&mut self, uses: &[usize]) {
        let works = self.named.queries.iter_mut().filter_map(|n| n.work.as_mut());
        works.zip(uses).for_each(|(work, uses)| work.uses = *uses);
    }

    /// Returns whether the second part of the recursive query with this number is being bound.
    pub(super) fn is_within_recursion(&self, id: usize) -> bool {
        self.named.queries.iter().any(|n| n.work.as_ref().is_some_and(|work| work.id == id))
    }

    /// Returns the error 42P19: a recursive query names itself where this is not allowed.
    pub(super) fn misplaced(&self, what: &str) -> SqlError {
        let name = self.named.queries.iter().rfind(|n| n.work.is_some()).map_or("", |n| &n.name);
        let message = format!("recursive reference to query \"{name}\" {what}");
        SqlError::new(SqlState::INVALID_RECURSION, message)
    }

    /// Binds the body of a named query.
    pub(super) fn named_body(&mut self, place: usize) -> Result<BoundQuery> {
        let NamedQuery { name, columns, query, levels, open, .. } = self.named.queries[place].clone();
        if open && self.named.recursing.contains(&place) {
            return Err(itself_in_first(&name, &query));
        }
        // Under RECURSIVE the name means the query itself while its body is bound.
        let later = self.named.queries.split_off(if open { place + 1 } else { place });
        self.named.recursing.push(place);
        // A named query that no other query reads is not computed. So a constant in it that cannot be cast is
        // no error here, as in a branch of CASE.
        self.choices += 1;
        let bound = self.hiding(levels, |b| {
            b.deeper(
                |b| if open { b.as_inner(|b| b.open_query(place, &query)) } else { b.inner_query(&query) },
            )
        });
        self.choices -= 1;
        self.named.recursing.pop();
        self.named.queries.extend(later);
        let bound = bound?;
        if columns.len() > bound.columns.len() {
            let message = format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                bound.columns.len(),
                columns.len()
            );
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        Ok(bound)
    }

    /// Binds the body of a query that may read itself.
    fn open_query(&mut self, place: usize, query: &ast::Query) -> Result<BoundQuery> {
        let SetExpr::SetOperation { left, op: SetOperator::Union, all, right } = query.body.as_ref() else {
            return self.query(query);
        };
        let bind = |b: &mut Self| b.open_union(place, query, left, right, *all);
        match &query.with {
            Some(with) => self.with_named(with, bind),
            None => bind(self),
        }
    }

    fn open_union(
        &mut self,
        place: usize,
        query: &ast::Query,
        left: &SetExpr,
        right: &SetExpr,
        all: bool,
    ) -> Result<BoundQuery> {
        let first = self.deeper(|b| b.side(left))?;
        let id = self.named.recursions;
        self.named.recursions += 1;
        let columns = renamed(&first, &self.named.queries[place].columns);
        let work = WorkTable { id, columns, uses: 0, subqueries: self.around.subqueries };
        self.named.queries[place].work = Some(work);
        self.keep_unknown = true;
        let then = self.deeper(|b| b.side(right));
        self.keep_unknown = false;
        let uses = self.named.queries[place].work.take().map_or(0, |w| w.uses);
        let then = then?;
        if uses == 0 {
            // The query does not read itself. So it is bound again as a plain UNION, in which literals get
            // their types from both sides.
            self.probed()?;
            return self.query_body(query);
        }
        refuse_clauses(query)?;
        self.recursion(place, id, all, first, then)
    }

    fn recursion(
        &mut self,
        place: usize,
        id: usize,
        all: bool,
        first: BoundQuery,
        then: BoundQuery,
    ) -> Result<BoundQuery> {
        let BoundQuery { select: first, mut columns } = first;
        columns.iter_mut().for_each(|column| column.origin = None);
        let begun: Vec<Typed> = first.outputs[..first.visible].iter().map(|o| o.t).collect();
        let (sides, types) = self.matched(SetKind::Union, all, vec![first, then.select])?;
        let [first, then] = <[Select; 2]>::try_from(sides)
            .map_err(|_| SqlError::internal("a recursive query has two parts"))?;
        for (n, (begun, overall)) in begun.iter().zip(&types).enumerate() {
            if begun.ty != overall.ty {
                let name = &self.named.queries[place].name;
                let (begun, overall) = (begun.ty.name(), overall.ty.name());
                let message = format!(
                    "recursive query \"{name}\" column {} has type {begun} in non-recursive term but type {overall} overall",
                    n + 1
                );
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                    .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        if !all {
            types.iter().try_for_each(|t| orderable(*t, "UNION"))?;
        }
        let varies = first.is_volatile() || then.is_volatile();
        let recursion = Box::new(Recursion { id, all, first, then });
        let shared_types: Box<[Ty]> = types.iter().map(|t| t.ty).collect();
        let body = SharedBody::Recursive(recursion);
        let shared = Shared { body, types: shared_types, materialized: None, varies };
        let outputs: Box<[Output]> =
            types.iter().enumerate().map(|(n, t)| Output::new(Expr::Column(n), *t)).collect();
        let source = Source::Shared(Arc::new(shared));
        let select = Select { source, visible: outputs.len(), outputs, ..Select::nothing() };
        Ok(BoundQuery { select, columns })
    }
}

/// Returns the error 42P19: a query reads itself in its first part.
fn itself_in_first(name: &str, query: &ast::Query) -> SqlError {
    let is_union = matches!(query.body.as_ref(), SetExpr::SetOperation { op: SetOperator::Union, .. });
    let message = match is_union {
        true => {
            format!("recursive reference to query \"{name}\" must not appear within its non-recursive term")
        }
        false => format!(
            "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
        ),
    };
    SqlError::new(SqlState::INVALID_RECURSION, message)
}

/// Refuses ORDER BY, LIMIT, OFFSET and row locks on a recursive UNION.
fn refuse_clauses(query: &ast::Query) -> Result<()> {
    for (written, clause) in [
        (!query.order_by.is_empty(), "ORDER BY"),
        (query.is_limited(), "LIMIT"),
        (!query.locks.is_empty(), "FOR UPDATE/SHARE"),
    ] {
        if written {
            let message = format!("{clause} in a recursive query is not implemented");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
    }
    Ok(())
}
