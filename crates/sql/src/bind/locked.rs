//! Subqueries that lock rows: `WHERE id = (SELECT ... FOR UPDATE SKIP LOCKED LIMIT 1)`.
//!
//! A subquery that locks rows must not use values of the outer query. It runs before the statement. Its
//! result becomes a parameter of the statement, after the parameters of the client.
//!
//! Invariants
//! 1. Locking subqueries are numbered from 0. The result of number n is the parameter `$m`, where m is the
//!    highest parameter number in the text, plus 1, plus n.
//!
//! This module does not know when the subquery runs (`session::locked`).

use crate::ast::{self, Expr as Ast};

use super::Binder;
use super::bound::{Bound, BoundQuery};
use super::locked_queries::LockedQuery;
use super::scope::Scope;
use crate::error::Result;
use crate::eval::{CmpOp, Expr};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Allows subqueries that lock rows. The caller must then run them before the statement.
    pub fn hold_locked(&mut self) {
        self.locked.allowed = true;
    }

    /// Returns the queries that run before the statement.
    pub fn take_locked(&mut self) -> Vec<LockedQuery> {
        std::mem::take(&mut self.locked.queries)
    }

    /// Binds `(SELECT ... FOR UPDATE)` as a value. Returns `None` if it is no such query, or uses values of
    /// the outer query.
    pub(super) fn locked_value(&mut self, query: &ast::Query) -> Result<Option<Bound>> {
        let Some(bound) = self.locked_query(query)? else { return Ok(None) };
        let t = bound.select.outputs[0].t;
        Ok(Some(self.answer(bound, None, t, query)))
    }

    /// Binds `x IN (SELECT ... FOR UPDATE)`. Returns `None` if it is no such query, or uses values of the
    /// outer query.
    pub(super) fn locked_member(
        &mut self,
        operand: &Ast,
        query: &ast::Query,
        scope: &mut Scope,
    ) -> Result<Option<Bound>> {
        let Some(bound) = self.locked_query(query)? else { return Ok(None) };
        let element = bound.select.outputs[0].t.ty;
        let Some(array) = element.array() else { return Ok(None) };
        let left = self.expression(operand, scope)?;
        let right = self.answer(bound, Some(element), Typed::plain(array), query);
        self.compared_with_array(CmpOp::Eq, left, right, false).map(Some)
    }

    fn answer(&mut self, query: BoundQuery, list_of: Option<Ty>, t: Typed, written: &ast::Query) -> Bound {
        let place = self.params.len().max(highest_parameter(self.source)) + self.locked.queries.len();
        self.locked.queries.push(LockedQuery { query, place, list_of });
        Bound { expr: Expr::Param(place), t, at: self.at(written) }
    }

    /// Binds a query of one column that locks its rows, as a query that runs by itself.
    fn locked_query(&mut self, query: &ast::Query) -> Result<Option<BoundQuery>> {
        if query.locks.is_empty() || !self.locked.allowed {
            return Ok(None);
        }
        self.probed()?;
        let before = (self.locked.queries.len(), self.uses.needs.len(), self.params.len());
        let keeps = std::mem::replace(&mut self.keep_unknown, false);
        let was_in_from = std::mem::replace(&mut self.in_from, false);
        let part = self.part.take();
        let bound = self.hiding(0, |b| b.deeper(|b| b.query(query)));
        (self.keep_unknown, self.in_from, self.part) = (keeps, was_in_from, part);
        let bound = bound.ok().filter(|bound| bound.select.lock.is_some() && bound.columns.len() == 1);
        if bound.is_none() {
            // The query is bound again as a part of the outer query, and that binding reports the error.
            // Everything that this attempt recorded is removed.
            self.locked.queries.truncate(before.0);
            self.uses.needs.truncate(before.1);
            self.params.truncate(before.2);
        }
        Ok(bound)
    }
}

/// Returns the largest number after a `$` in the text.
fn highest_parameter(text: &str) -> usize {
    let number = |piece: &str| {
        let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        piece[..digits].parse::<u16>().map_or(0, usize::from)
    };
    text.split('$').skip(1).map(number).max().unwrap_or(0)
}
