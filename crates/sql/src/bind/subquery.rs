//! Binds subqueries in expressions, and the values of outer queries that they use.
//!
//! Invariants
//! 1. A subquery reads values of its outer query only through `Expr::Outer`. If a name belongs to a query
//!    several levels further out, each level in between passes the value inwards.
//! 2. A column name means the column of the nearest query that has such a column. A name with a dot belongs
//!    to the nearest query that has the relation before the dot.
//!
//! This module does not know how a subquery runs.

use std::sync::Arc;

use crate::ast::{self, Expr as Ast};

use super::around::QueryAround;
use super::bound::Bound;
use super::row::fields_of;
use super::scope::{ColumnMatch, Scope};
use super::{Binder, lock};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{CmpOp, Expr};
use crate::plan::{Output, Select, SharedBody, Source, Subquery, SubqueryKind};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Runs `bind` with `scope` as the innermost outer query. Also returns the values that the bound part
    /// uses of this outer query.
    pub(super) fn inside<T>(
        &mut self,
        scope: &mut Scope,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<Bound>)> {
        self.around.levels.push(QueryAround {
            scope: std::mem::take(scope),
            given: Vec::new(),
            hidden: false,
        });
        let bound = self.deeper(bind);
        let given = match self.around.levels.pop() {
            Some(level) => {
                *scope = level.scope;
                level.given
            }
            None => return Err(SqlError::internal("a query around was lost")),
        };
        Ok((bound?, given))
    }

    /// Runs `bind` while the outer queries with indexes `from` and above are hidden.
    pub(super) fn hiding<T>(&mut self, from: usize, bind: impl FnOnce(&mut Self) -> T) -> T {
        let hidden: Vec<bool> = self.around.levels[from..].iter().map(|l| l.hidden).collect();
        self.around.levels[from..].iter_mut().for_each(|l| l.hidden = true);
        let bound = bind(self);
        self.around.levels[from..].iter_mut().zip(hidden).for_each(|(l, h)| l.hidden = h);
        bound
    }

    /// Returns whether the query that is being bound has a visible outer query.
    pub(super) fn is_within(&self) -> bool {
        self.around.levels.last().is_some_and(|l| !l.hidden)
    }

    /// Binds an expression in the next outer query, and passes its value inwards.
    pub(super) fn in_query_around(
        &mut self,
        bind: impl FnOnce(&mut Self, &mut Scope) -> Result<Bound>,
    ) -> Result<Bound> {
        let Some(mut level) = self.around.levels.pop() else {
            return Err(SqlError::internal("a query around was lost"));
        };
        let bound = bind(self, &mut level.scope);
        let given = bound.map(|b| level.give(b));
        self.around.levels.push(level);
        given
    }

    /// Runs `bind` as a trial. The values that the outer queries would pass inwards are dropped. While `bind`
    /// runs, the outer queries count as not grouped.
    pub(super) fn without_trace<T>(&mut self, bind: impl FnOnce(&mut Self) -> T) -> T {
        let note = |l: &mut QueryAround| (l.scope.grouping.take(), l.given.len());
        let before: Vec<_> = self.around.levels.iter_mut().map(note).collect();
        let (failed, meanings) = (self.failed_as_grouped, self.meanings.take());
        let bound = bind(self);
        (self.failed_as_grouped, self.meanings) = (failed, meanings);
        for (level, (grouping, given)) in self.around.levels.iter_mut().zip(before) {
            level.scope.grouping = grouping;
            level.given.truncate(given);
        }
        bound
    }

    /// Binds a query that is part of another query. Its untyped literals become text.
    pub(super) fn inner_query(&mut self, query: &ast::Query) -> Result<super::bound::BoundQuery> {
        self.as_inner(|b| b.query(query))
    }

    /// Runs `bind` with the settings for a query that is part of another query.
    pub(super) fn as_inner(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<super::bound::BoundQuery>,
    ) -> Result<super::bound::BoundQuery> {
        let keeps = std::mem::replace(&mut self.keep_unknown, false);
        let was_in_from = std::mem::replace(&mut self.in_from, true);
        let part = self.part.take();
        let bound = bind(self);
        (self.keep_unknown, self.in_from, self.part) = (keeps, was_in_from, part);
        let bound = bound?;
        if let Some(locked) = &bound.select.lock {
            return Err(SqlError::unsupported(format!("{} in a subquery", lock::clause(locked.strength))));
        }
        Ok(bound)
    }

    /// Finds a column in the outer queries. Returns `None` if no outer query has it.
    pub(super) fn outer_column(
        &mut self,
        qualifier: Option<&str>,
        name: &str,
        ident: &ast::Ident,
        nearest: &Scope,
    ) -> Result<Option<Bound>> {
        let knows = |scope: &Scope| match qualifier {
            Some(q) => scope.relation(q).is_some(),
            None => scope.find(None, name) != ColumnMatch::Nothing,
        };
        let Some(owner) = self.around.levels.iter().rposition(|l| !l.hidden && knows(&l.scope)) else {
            return Ok(None);
        };
        let mut scope = std::mem::take(&mut self.around.levels[owner].scope);
        if qualifier.is_none() && self.meanings.is_some() {
            let levels = std::mem::take(&mut self.around.levels);
            let nearer = levels[owner + 1..].iter().filter(|l| !l.hidden).map(|l| &l.scope);
            let nearer: Vec<&Scope> = nearer.chain([nearest]).collect();
            self.note_column(ident, scope.find(None, name), &scope, &nearer);
            self.around.levels = levels;
        }
        let found = self.own_column(qualifier, name, ident, &mut scope);
        self.around.levels[owner].scope = scope;
        let mut bound = found.map_err(of_outer_query)?;
        for level in &mut self.around.levels[owner..] {
            bound = level.give(bound);
        }
        Ok(Some(bound))
    }

    /// Returns whether an outer query has a relation of this name.
    pub(super) fn is_outer_relation(&self, name: &str) -> bool {
        self.around.levels.iter().any(|l| !l.hidden && l.scope.relation(name).is_some())
    }

    /// Returns whether FROM has a relation of this name beside the item that is being bound. The item cannot
    /// use this relation, so an error can say why.
    pub(super) fn is_beside(&self, name: &str) -> bool {
        self.around.levels[self.around.outside.min(self.around.levels.len())..]
            .iter()
            .any(|l| l.scope.relation(name).is_some())
    }

    /// Binds a subquery. Also returns the values of the outer query that it uses.
    fn subquery(&mut self, query: &ast::Query, scope: &mut Scope) -> Result<(Select, Vec<Bound>)> {
        self.around.subqueries += 1;
        let bound = self.inside(scope, |b| b.inner_query(query));
        self.around.subqueries -= 1;
        let (bound, given) = bound?;
        Ok((bound.select, given))
    }

    /// Binds `(SELECT ...)` as a value.
    pub(super) fn scalar_subquery(&mut self, query: &ast::Query, scope: &mut Scope) -> Result<Bound> {
        if let Some(answer) = self.locked_value(query)? {
            return Ok(answer);
        }
        let at = self.at(query);
        let (select, given) = self.subquery(query, scope)?;
        if select.visible != 1 {
            let message = "subquery must return only one column";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at));
        }
        Ok(bound_subquery(SubqueryKind::Scalar, select, given, at))
    }

    /// Binds `(SELECT a, b ...)` as one value for each column. Each value is a query that runs by itself. So
    /// only a query that returns the same row in each run is accepted.
    pub(super) fn row_subquery(&mut self, query: &ast::Query, scope: &mut Scope) -> Result<Vec<Bound>> {
        let at = self.at(query);
        let (select, given) = self.subquery(query, scope)?;
        let width = select.visible;
        if width == 1 {
            return Ok(vec![bound_subquery(SubqueryKind::Scalar, select, given, at)]);
        }
        if select.distinct || !select.order.is_empty() || select.is_volatile() || picks_rows(&select) {
            let what = "assignment to several columns of a query with ORDER BY, LIMIT, DISTINCT, windows or a volatile function";
            return Err(SqlError::unsupported(what).at(at));
        }
        let mut columns = Vec::with_capacity(width);
        for n in 0..width {
            // The query is bound as a whole each time, and then loses its other columns. Grouping and
            // positions (as in GROUP BY 2) refer to all columns.
            let (select, given) = self.subquery(query, scope)?;
            let outputs: Box<[Output]> = select.outputs.into_vec().into_iter().skip(n).take(1).collect();
            let select = Select { outputs, visible: 1, ..select };
            columns.push(bound_subquery(SubqueryKind::Scalar, select, given, at));
        }
        Ok(columns)
    }

    /// Binds `ARRAY(SELECT ...)`.
    pub(super) fn array_subquery(&mut self, query: &ast::Query, scope: &mut Scope) -> Result<Bound> {
        let at = self.at(query);
        let (select, given) = self.subquery(query, scope)?;
        if select.visible != 1 {
            let message = "subquery must return only one column";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(at));
        }
        let element = select.outputs[0].t.ty;
        if element.array().is_none() {
            return Err(SqlError::unsupported(format!("an array of type {}", element.name())).at(at));
        }
        Ok(bound_subquery(SubqueryKind::List, select, given, at))
    }

    /// Binds `EXISTS (SELECT ...)`.
    pub(super) fn exists(&mut self, query: &ast::Query, negated: bool, scope: &mut Scope) -> Result<Bound> {
        let at = self.at(query);
        let (select, given) = self.subquery(query, scope)?;
        Ok(inverted(bound_subquery(SubqueryKind::Exists, select, given, at), negated))
    }

    /// Binds `x [NOT] IN (SELECT ...)`, `(x, y) IN (SELECT ...)`.
    pub(super) fn in_subquery(
        &mut self,
        operand: &Ast,
        query: &ast::Query,
        negated: bool,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if let Some(found) = self.locked_member(operand, query, scope)? {
            return Ok(inverted(found, negated));
        }
        let found = self.compared_with_rows(operand, CmpOp::Eq, query, SubqueryKind::Any, scope)?;
        Ok(inverted(found, negated))
    }

    /// Binds `x op ANY (SELECT ...)` or `x op ALL (SELECT ...)`. `kind` says which of them.
    pub(super) fn compared_with_rows(
        &mut self,
        operand: &Ast,
        op: CmpOp,
        query: &ast::Query,
        kind: fn(Expr) -> SubqueryKind,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let operands = fields_of(operand).unwrap_or_else(|| vec![operand]);
        let left = operands.iter().map(|e| self.expression(e, scope)).collect::<Result<Vec<_>>>()?;
        let at = left.first().and_then(|l| l.at);
        let (select, mut given) = self.subquery(query, scope)?;
        let test = self.row_test(op, left, &select, &mut given).map_err(|e| match e.position {
            Some(_) => e,
            None => e.at(at),
        })?;
        Ok(bound_subquery(kind(test), select, given, at))
    }

    /// Binds `(a, b) = (SELECT ...)`. The result is NULL if the subquery returns no row. Several rows are
    /// error 21000.
    pub(super) fn compared_with_row(
        &mut self,
        operands: &[&Ast],
        op: CmpOp,
        query: &ast::Query,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let left = operands.iter().map(|e| self.expression(e, scope)).collect::<Result<Vec<_>>>()?;
        let at = left.first().and_then(|l| l.at);
        let (select, mut given) = self.subquery(query, scope)?;
        let mut test = self.row_test(op, left, &select, &mut given)?;
        test.walk_mut(&mut |e| {
            if let Expr::Slot(n) = e {
                *e = Expr::Column(*n);
            }
        });
        let outputs = Box::new([Output::new(test, Typed::plain(Ty::Bool))]);
        let source = Source::Query(Box::new(select));
        let compared = Select { source, outputs, visible: 1, ..Select::nothing() };
        Ok(bound_subquery(SubqueryKind::Scalar, compared, given, at))
    }

    /// Returns the comparison of the operands with a row of the subquery.
    fn row_test(
        &mut self,
        op: CmpOp,
        left: Vec<Bound>,
        select: &Select,
        given: &mut Vec<Bound>,
    ) -> Result<Expr> {
        let wrong_count =
            |how| SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {how} columns"));
        match select.visible.cmp(&left.len()) {
            std::cmp::Ordering::Greater => return Err(wrong_count("many")),
            std::cmp::Ordering::Less => return Err(wrong_count("few")),
            std::cmp::Ordering::Equal => {}
        }
        let mut right = Vec::with_capacity(left.len());
        let mut fixed = Vec::with_capacity(left.len());
        for (slot, (operand, output)) in left.into_iter().zip(&select.outputs).enumerate() {
            right.push(Bound { expr: Expr::Slot(slot), t: output.t, at: operand.at });
            fixed.push(if is_fixed(&operand.expr) {
                operand
            } else {
                given.push(operand.clone());
                Bound { expr: Expr::Outer(given.len() - 1), ..operand }
            });
        }
        Ok(self.compare_rows(op, fixed, right, None)?.expr)
    }
}

/// Returns whether the query, or a query within it, has a clause (such as LIMIT) by which two runs may return
/// different rows.
fn picks_rows(select: &Select) -> bool {
    let picks = |s: &Select| {
        s.limit.is_some() || s.offset.is_some() || !s.distinct_on.is_empty() || !s.windows.is_empty()
    };
    let mut found = picks(select);
    select.each_source(&mut |source| {
        found |= match source {
            Source::Query(select) => picks(select),
            Source::Expand(expand) => picks(&expand.rows),
            Source::Set(set) => set.sides.iter().any(picks),
            Source::Shared(shared) => match &shared.body {
                SharedBody::Query(select) => picks_rows(select),
                SharedBody::Recursive(recursion) => {
                    picks_rows(&recursion.first) || picks_rows(&recursion.then)
                }
            },
            _ => false,
        }
    });
    select.walk_all(&mut |e| found |= matches!(e, Expr::Subquery(_, subquery) if picks(&subquery.select)));
    found
}

/// Returns whether the expression is a literal or a parameter. A subquery can use these directly.
fn is_fixed(e: &Expr) -> bool {
    matches!(e, Expr::Const(_) | Expr::Param(_))
}

fn bound_subquery(kind: SubqueryKind, select: Select, given: Vec<Bound>, at: Option<u32>) -> Bound {
    let (exprs, types): (Vec<Expr>, Vec<Typed>) = given.into_iter().map(|b| (b.expr, b.t)).unzip();
    let subquery = Subquery { kind, select, given: types.into() };
    let t = subquery.result();
    Bound { expr: Expr::Subquery(exprs.into(), Arc::new(subquery)), t, at }
}

fn inverted(b: Bound, negated: bool) -> Bound {
    if !negated {
        return b;
    }
    Bound { expr: Expr::Not(Box::new(b.expr)), t: Typed::plain(Ty::Bool), at: b.at }
}

/// Returns the error about an ungrouped column of an outer query, with PostgreSQL's text for a subquery.
fn of_outer_query(e: SqlError) -> SqlError {
    let ungrouped = " must appear in the GROUP BY clause or be used in an aggregate function";
    match e.message.strip_suffix(ungrouped) {
        Some(column) => {
            let message = format!("subquery uses ungrouped {column} from outer query");
            SqlError { message: message.into(), ..e }
        }
        None => e,
    }
}
