//! The outer queries of the query that is being bound, and the values of them that it uses.
//!
//! Invariants
//! 1. If a subquery uses the same value of an outer query twice, both uses have one number.
//!
//! This module does not know which outer query resolves a name (`subquery`).

use super::bound::Bound;
use super::scope::Scope;
use crate::eval::Expr;

/// The outer queries of the query that is bound.
#[derive(Debug, Default)]
pub(super) struct QueriesAround {
    /// The queries, outermost first. While LATERAL items are bound, items of the innermost query's FROM
    /// follow.
    pub(super) levels: Vec<QueryAround>,
    /// The number of levels that are outer queries.
    pub(super) outside: usize,
    /// The number of subqueries in expressions that surround the bound part.
    pub(super) subqueries: usize,
}

/// An outer query, and the values that it passes to the query that is bound.
#[derive(Debug)]
pub(super) struct QueryAround {
    /// The scope of names there.
    pub(super) scope: Scope,
    /// The passed values, over its rows.
    pub(super) given: Vec<Bound>,
    /// Whether its names are hidden. There are two reasons. The query surrounds the use of a query of WITH
    /// and not its definition, or it is an item of FROM next to an item that is not LATERAL.
    pub(super) hidden: bool,
}

impl QueryAround {
    /// Returns the value in the form for the inner query.
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
