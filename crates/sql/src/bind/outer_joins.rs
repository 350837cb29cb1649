//! Reduces outer joins: an outer join is an inner join if conditions reject all rows that it fills with
//! NULLs. For example, `a LEFT JOIN b ON ... WHERE b.x < 5` has no row without a row of `b`.
//!
//! Invariants
//! 1. The query returns the same rows, in the same columns.
//! 2. A condition rejects a row only if no value of the other columns can make it true (`eval::outcomes`).
//!
//! This module knows only the joins of one FROM clause. In views and subqueries of FROM, the crate
//! `varve-query` finds the joins that conditions of the outer query reduce.

use std::ops::Range;

use crate::access;
use crate::eval::{Expr, Outcomes};
use crate::plan::{Join, JoinKind, Select, Source};
use crate::planted::planted;

/// Reduces the outer joins of a query whose WHERE is not yet divided among the tables.
pub(super) fn reduce(select: &mut Select) {
    let Source::Join(join) = &mut select.source else { return };
    if has_outer(join) {
        let hold: Vec<Expr> = select.filter.iter().cloned().flat_map(access::conjuncts).collect();
        reduce_join(join, 0..usize::MAX, &hold);
    }
}

/// Reduces a join and the joins in it. The join has these columns of the joined row. Each row that the query
/// needs fulfils the conditions `hold`.
fn reduce_join(join: &mut Join, columns: Range<usize>, hold: &[Expr]) {
    let middle = columns.start + join.left_width;
    let (left, right) = (columns.start..middle, middle..columns.end);
    let rejected = |side: &Range<usize>| hold.iter().any(|condition| rejects(condition, side));
    join.kind = reduced(join.kind, || rejected(&left), || rejected(&right));
    let on: Vec<Expr> = join.on.iter().cloned().map(|condition| shifted(condition, columns.start)).collect();
    let (of_left, of_right) = match join.kind {
        JoinKind::Inner => {
            let all = [&on, hold].concat();
            (all.clone(), all)
        }
        JoinKind::Left => (hold.to_vec(), on),
        JoinKind::Right => (on, hold.to_vec()),
        JoinKind::Full => (Vec::new(), Vec::new()),
    };
    for (side, columns, hold) in [(&mut join.left, left, of_left), (&mut join.right, right, of_right)] {
        if let Source::Join(inner) = side
            && has_outer(inner)
        {
            reduce_join(inner, columns, &hold);
        }
    }
}

/// Returns the kind of a join, if conditions reject the rows in which a side is filled with NULLs.
fn reduced(kind: JoinKind, rejects_left: impl Fn() -> bool, rejects_right: impl Fn() -> bool) -> JoinKind {
    match kind {
        JoinKind::Inner => JoinKind::Inner,
        JoinKind::Left if rejects_right() => JoinKind::Inner,
        JoinKind::Right if rejects_left() => JoinKind::Inner,
        JoinKind::Full => match (rejects_left(), rejects_right()) {
            (true, true) => JoinKind::Inner,
            (true, false) => JoinKind::Left,
            (false, true) => JoinKind::Right,
            (false, false) => JoinKind::Full,
        },
        kind => kind,
    }
}

/// Returns whether the condition cannot hold if these columns are NULL.
fn rejects(condition: &Expr, columns: &Range<usize>) -> bool {
    let column = |n| if columns.contains(&n) { Outcomes::NULL } else { Outcomes::ANY };
    let reads_them = || {
        let mut found = false;
        condition.walk(&mut |e| found |= matches!(e, Expr::Column(n) if columns.contains(n)));
        found
    };
    !condition.outcomes(&column).can_hold()
        || planted("sql: any condition reduces an outer join") && reads_them()
}

/// Returns whether the join or a join in it is an outer join.
fn has_outer(join: &Join) -> bool {
    let inner = |side: &Source| matches!(side, Source::Join(join) if has_outer(join));
    join.kind != JoinKind::Inner || inner(&join.left) || inner(&join.right)
}

/// Returns a condition of a join whose first column has this number in the joined row.
fn shifted(mut condition: Expr, first: usize) -> Expr {
    condition.walk_mut(&mut |e| {
        if let Expr::Column(n) = e {
            *n += first;
        }
    });
    condition
}
