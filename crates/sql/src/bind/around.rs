//! The outer queries of the query that is bound, and the values that it uses from them.
//!
//! Invariants
//! 1. If a subquery uses the same value of an outer query twice, both uses have one number.
//!
//! This module does not know which outer query resolves a name (`subquery`).

use super::bound::Bound;
use super::scope::Scope;
use crate::eval::Expr;

/// The queries around the one that is bound.
#[derive(Debug, Default)]
pub(super) struct QueriesAround {
    /// The queries, outermost first; behind them, while LATERAL items are bound, items of the innermost
    /// query's FROM.
    pub(super) levels: Vec<QueryAround>,
    /// How many of the levels are queries around.
    pub(super) outside: usize,
    /// How many subqueries in expressions are around what is bound.
    pub(super) subqueries: usize,
}

/// A query around the one that is bound, and what it gives to it.
#[derive(Debug)]
pub(super) struct QueryAround {
    /// What names mean there.
    pub(super) scope: Scope,
    /// The values given, over its rows.
    pub(super) given: Vec<Bound>,
    /// It is around the place where a query of WITH is used, not where that is written; or an item of FROM
    /// beside what is not LATERAL.
    pub(super) hidden: bool,
}

impl QueryAround {
    /// The value as the query within gets it.
    pub(super) fn give(&mut self, value: Bound) -> Bound {
        let same = |b: &Bound| match (&b.expr, &value.expr) {
            (Expr::Column(m), Expr::Column(n))
            | (Expr::Slot(m), Expr::Slot(n))
            | (Expr::Outer(m), Expr::Outer(n)) => m == n,
            _ => false,
        };
        let (t, at) = (value.t, value.at);
        let place = self.given.iter().position(same).unwrap_or_else(|| {
            self.given.push(value);
            self.given.len() - 1
        });
        Bound { expr: Expr::Outer(place), t, at }
    }
}
