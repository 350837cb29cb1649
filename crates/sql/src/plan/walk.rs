//! Visits all expressions, sources or tables of a query's plan.

use std::sync::Arc;

use varve_engine::TableDef;

use super::{AggCall, Select, Shared, SharedBody, Source, SubqueryKind, WinCall};
use crate::eval::Expr;

impl Select {
    /// Returns the expressions of the query's clauses, and of the rows of VALUES. Other expressions of the
    /// source are not included.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let rows = match &self.source {
            Source::Values(rows, _) => rows.as_slice(),
            _ => &[],
        };
        let calls = self.aggregate.iter().flat_map(|a| a.calls.iter());
        let keys = self.aggregate.iter().flat_map(|a| a.keys.iter().chain(a.having.as_deref()));
        let outputs = self.outputs.iter().map(|o| &o.expr);
        let called = calls.flat_map(AggCall::exprs);
        let windows = self.windows.iter().flat_map(WinCall::exprs);
        let limits = self.limit.iter().chain(&self.offset);
        let clauses = rows.iter().flatten().chain(&self.filter).chain(keys).chain(called);
        clauses.chain(windows).chain(outputs).chain(limits)
    }

    /// Calls `visit` for each expression of the query and its source, but not for those inside subqueries,
    /// whose `Outer` values are their own.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        self.source.walk(visit);
        self.expressions().for_each(|e| e.walk(visit));
    }

    /// Calls `visit` for each expression of the query, its source and the subqueries in it.
    pub fn walk_all(&self, visit: &mut dyn FnMut(&Expr)) {
        let mut inner = |e: &Expr| {
            visit(e);
            if let Expr::Subquery(_, subquery) = e {
                if let SubqueryKind::Any(test) | SubqueryKind::All(test) = &subquery.kind {
                    test.walk(visit);
                }
                subquery.select.walk_all(visit);
            }
        };
        self.walk(&mut inner);
        self.each_source(&mut |source| {
            // `walk` does not visit the right side of a lateral join.
            if let Source::Join(join) = source
                && join.lateral.is_some()
            {
                join.right.walk(&mut inner);
            }
        });
    }

    /// Returns whether two runs of the query may return different rows.
    pub fn is_volatile(&self) -> bool {
        let mut found = false;
        self.walk_all(&mut |e| found |= matches!(e, Expr::Call(f, _) if f.volatile));
        self.each_source(&mut |source| found |= matches!(source, Source::Shared(shared) if shared.varies));
        found
    }

    /// Returns whether the query uses values of its outer query.
    pub fn reads_outer(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, Expr::Outer(_)));
        found
    }

    /// Returns all tables that the query reads or changes, also in subqueries. Each table occurs once.
    pub fn tables(&self) -> Vec<Arc<TableDef>> {
        let mut out: Vec<Arc<TableDef>> = Vec::new();
        let mut add = |table: &Arc<TableDef>| {
            if !out.iter().any(|seen| Arc::ptr_eq(seen, table)) {
                out.push(table.clone());
            }
        };
        self.each_source(&mut |source| match source {
            Source::Table(t) => add(&t.table),
            Source::Target(table) => add(table),
            Source::Loops(steps) => steps.iter().for_each(|s| add(&s.target.table)),
            _ => {}
        });
        out
    }

    /// Calls `visit` for each source, also those of subqueries. A WITH query is visited only once.
    pub fn each_source(&self, visit: &mut dyn FnMut(&Source)) {
        self.each_within(visit, &mut Vec::new());
    }

    fn each_within(&self, visit: &mut dyn FnMut(&Source), seen: &mut Seen) {
        self.source.each(visit, seen);
        self.expressions().for_each(|e| each_source_in(e, visit, seen));
    }
}

/// The queries of WITH that a walk has visited.
type Seen = Vec<*const Shared>;

fn each_source_in(e: &Expr, visit: &mut dyn FnMut(&Source), seen: &mut Seen) {
    e.walk(&mut |e| {
        if let Expr::Subquery(_, subquery) = e {
            subquery.select.each_within(visit, seen);
        }
    });
}

impl Source {
    /// Calls `f` with each table that the source reads, in the order of the query.
    pub fn each_table<'s>(&'s self, f: &mut dyn FnMut(&'s Arc<TableDef>)) {
        match self {
            Source::Table(t) => f(&t.table),
            Source::Loops(steps) => steps.iter().for_each(|s| f(&s.target.table)),
            Source::Join(join) => {
                join.left.each_table(f);
                join.right.each_table(f);
            }
            Source::Query(select) => select.source.each_table(f),
            Source::Expand(expand) => expand.rows.source.each_table(f),
            Source::Set(set) => set.sides.iter().for_each(|side| side.source.each_table(f)),
            Source::Target(t) => f(t),
            Source::Shared(shared) => match &shared.body {
                SharedBody::Query(select) => select.source.each_table(f),
                SharedBody::Recursive(recursion) => {
                    recursion.first.source.each_table(f);
                    recursion.then.source.each_table(f);
                }
            },
            Source::Nothing
            | Source::Series(..)
            | Source::Unnest(_)
            | Source::Values(..)
            | Source::Work(..)
            | Source::System(_) => {}
        }
    }

    /// Calls `visit` for each expression of the source. See [`Select::walk`].
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Source::Nothing | Source::Table(_) | Source::Target(_) | Source::System(_) | Source::Work(..) => {
            }
            Source::Shared(shared) => {
                if let SharedBody::Recursive(recursion) = &shared.body {
                    recursion.first.walk(visit);
                    recursion.then.walk(visit);
                }
            }
            Source::Loops(steps) => {
                for step in steps {
                    step.filter.iter().for_each(|e| e.walk(visit));
                }
            }
            Source::Series(bounds, _) => bounds.iter().for_each(|e| e.walk(visit)),
            Source::Unnest(unnest) => unnest.arrays.iter().for_each(|e| e.walk(visit)),
            Source::Values(rows, _) => rows.iter().flatten().for_each(|e| e.walk(visit)),
            Source::Query(select) => select.walk(visit),
            Source::Expand(expand) => {
                expand.rows.walk(visit);
                expand.arguments().for_each(|e| e.walk(visit));
            }
            Source::Set(set) => set.sides.iter().for_each(|side| side.walk(visit)),
            Source::Join(join) => {
                join.left.walk(visit);
                join.on.iter().for_each(|e| e.walk(visit));
                match &join.lateral {
                    // In a lateral join, the `Outer` values of the right side belong to the left side. So
                    // they are not values of the outer query.
                    Some(lateral) => lateral.given.iter().for_each(|e| e.walk(visit)),
                    None => join.right.walk(visit),
                }
            }
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&Source), seen: &mut Seen) {
        visit(self);
        match self {
            Source::Join(join) => {
                join.left.each(visit, seen);
                join.right.each(visit, seen);
                join.on.iter().for_each(|e| each_source_in(e, visit, seen));
            }
            Source::Query(select) => select.each_within(visit, seen),
            Source::Series(bounds, _) => bounds.iter().for_each(|e| each_source_in(e, visit, seen)),
            Source::Unnest(unnest) => unnest.arrays.iter().for_each(|e| each_source_in(e, visit, seen)),
            Source::Expand(expand) => {
                expand.rows.each_within(visit, seen);
                expand.arguments().for_each(|e| each_source_in(e, visit, seen));
            }
            Source::Set(set) => set.sides.iter().for_each(|side| side.each_within(visit, seen)),
            Source::Shared(shared) if !seen.contains(&Arc::as_ptr(shared)) => {
                seen.push(Arc::as_ptr(shared));
                match &shared.body {
                    SharedBody::Query(select) => select.each_within(visit, seen),
                    SharedBody::Recursive(recursion) => {
                        recursion.first.each_within(visit, seen);
                        recursion.then.each_within(visit, seen);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns whether the source reads the working table of a recursive query for whose number `of` returns
    /// true.
    pub fn reads_work(&self, of: &dyn Fn(usize) -> bool) -> bool {
        let mut found = false;
        self.each(&mut |source| found |= matches!(source, Source::Work(id, _) if of(*id)), &mut Vec::new());
        found
    }
}
