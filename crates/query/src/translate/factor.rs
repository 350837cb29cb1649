//! Derives conditions from an OR. If all branches of the OR share a condition, it becomes a separate
//! condition. A join can use it as a key. If all branches have conditions on one table, a condition on this
//! table is checked before the join.
//!
//! Invariants
//! 1. The derived conditions hold for the same rows as the given conditions, even if some values are NULL.
//! 2. A condition that may fail is neither moved nor evaluated twice.

use std::collections::BTreeSet;
use std::mem::discriminant;

use varve_sql::general::{Expr, conjuncts, joined};

use crate::failing::may_fail;

/// Returns the conditions, with the conditions that are derived from each OR. `relations` returns the
/// relations that an expression reads.
pub fn factored<R: Ord>(conditions: Vec<Expr>, relations: &dyn Fn(&Expr) -> BTreeSet<R>) -> Vec<Expr> {
    let mut out = Vec::new();
    for condition in conditions {
        match condition {
            Expr::Or(branches) => spread(branches, relations, &mut out),
            other => out.push(other),
        }
    }
    out
}

fn spread<R: Ord>(branches: Box<[Expr]>, relations: &dyn Fn(&Expr) -> BTreeSet<R>, out: &mut Vec<Expr>) {
    let mut branches: Vec<Vec<Expr>> = branches.into_iter().flat_map(alternatives).map(conjuncts).collect();
    let shared = shared(&branches);
    for branch in &mut branches {
        branch.retain(|e| !shared.iter().any(|s| same(s, e)));
    }
    out.extend(shared);
    // If a branch has no other conditions, it is true whenever the shared conditions are true. Then the whole
    // OR is true, too.
    if branches.iter().any(Vec::is_empty) {
        return;
    }
    let read: BTreeSet<R> = branches.iter().flatten().flat_map(relations).collect();
    if read.len() > 1 {
        out.extend(read.iter().filter_map(|one| of_relation(&branches, one, relations)));
    }
    out.push(Expr::Or(branches.into_iter().filter_map(joined).collect()));
}

/// Returns the branches of an expression. If the expression is an OR, nested ORs are resolved, too.
fn alternatives(e: Expr) -> Vec<Expr> {
    match e {
        Expr::Or(list) => list.into_iter().flat_map(alternatives).collect(),
        other => vec![other],
    }
}

/// Returns the conditions that occur in every branch.
fn shared(branches: &[Vec<Expr>]) -> Vec<Expr> {
    let Some((first, others)) = branches.split_first() else { return Vec::new() };
    let everywhere = |e: &&Expr| !may_fail(e) && others.iter().all(|b| b.iter().any(|o| same(o, e)));
    first.iter().filter(everywhere).cloned().collect()
}

/// Returns the condition that the OR implies for this relation alone. Returns `None` if a branch has no
/// condition on this relation alone.
fn of_relation<R: Ord>(
    branches: &[Vec<Expr>],
    one: &R,
    relations: &dyn Fn(&Expr) -> BTreeSet<R>,
) -> Option<Expr> {
    let alone = |e: &&Expr| {
        let read = relations(e);
        !may_fail(e) && read.len() == 1 && read.contains(one)
    };
    let asked = |branch: &Vec<Expr>| joined(branch.iter().filter(alone).cloned().collect());
    branches.iter().map(asked).collect::<Option<Box<[Expr]>>>().map(Expr::Or)
}

/// Returns whether two expressions are the same. Only common kinds of expressions are compared.
fn same(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Column(m), Expr::Column(n)) | (Expr::Slot(m), Expr::Slot(n)) => m == n,
        (Expr::Param(m), Expr::Param(n)) => m == n,
        (Expr::Const(v), Expr::Const(w)) => {
            discriminant(v) == discriminant(w) && v.as_datum().order(&w.as_datum()).is_eq()
        }
        (Expr::Compare(p, s), Expr::Compare(q, t)) => p == q && same(&s.0, &t.0) && same(&s.1, &t.1),
        (Expr::InList(x, list, n), Expr::InList(y, other, m)) => {
            n == m
                && same(x, y)
                && list.len() == other.len()
                && list.iter().zip(other).all(|(a, b)| same(a, b))
        }
        _ => false,
    }
}
