//! Subqueries as joins where that is possible, else as `Apply`.
//!
//! | subquery | becomes |
//! |---|---|
//! | EXISTS, IN, op ANY among the conditions of WHERE or HAVING | semi join |
//! | NOT EXISTS, NOT IN there | anti join |
//! | one aggregate, of rows whose values equal values of the query around | grouped by these, left join |
//! | any other | `Apply`: run for each row, once for equal values |
//!
//! Invariants
//! 1. A join takes no row of the query around away or doubles it, except as the condition says.
//! 2. NOT IN is true only where the comparison is false for each row: a NULL on either side is no "false".
//!
//! Does not know: how an inner plan is run again (`apply`).

use std::sync::Arc;

use datafusion::common::{Column, ExprSchema, JoinType, Result};
use datafusion::logical_expr::{LogicalPlanBuilder, lit};
use varve_sql::general::{
    AggKind, CmpOp, Expr, Join, JoinKind, Lateral, Select, Subquery, SubqueryKind, Ty, Typed, conjuncts,
};

use super::{Part, Translator, Typing};
use crate::apply::{Answer, Apply, Inner};

/// The rows of a subquery beside those of the query around.
struct Beside {
    part: Part,
    /// Its conditions that read the query around, over both.
    tests: Vec<Expr>,
    /// Its outputs, over both.
    outputs: Vec<Expr>,
}

impl Translator<'_> {
    /// Adds a column for each subquery in the expressions, which then stands for it.
    pub(super) fn applied(&mut self, mut part: Part, exprs: &mut [Expr]) -> Result<Part> {
        for e in exprs {
            if e.has_subquery() {
                part = self.applied_in(part, e)?;
            }
        }
        Ok(part)
    }

    fn applied_in(&mut self, part: Part, e: &mut Expr) -> Result<Part> {
        let Expr::Subquery(given, subquery) = e else {
            let mut state = Ok(part);
            e.children_mut(&mut |child| {
                if let Ok(part) = &state {
                    state = self.applied(part.clone(), std::slice::from_mut(child));
                }
            });
            return state;
        };
        let subquery = subquery.clone();
        let mut given = std::mem::take(given).into_vec();
        let part = self.applied(part, &mut given)?;
        let (part, value) = match self.grouped_value(&part, &given, &subquery)? {
            Some(joined) => joined,
            None => self.answered(part, given, &subquery)?,
        };
        *e = value;
        Ok(part)
    }

    /// A translator for what is run again with values of these types.
    fn nested(&self, types: impl Iterator<Item = Ty>) -> Translator<'_> {
        Translator {
            tables: self.tables,
            reader: self.reader.clone(),
            around: Arc::new(self.around.within(types)),
            names: self.names,
        }
    }

    /// The part with the subquery's answer for each row.
    fn answered(&mut self, part: Part, given: Vec<Expr>, subquery: &Subquery) -> Result<(Part, Expr)> {
        let mut inner = self.nested(subquery.given.iter().map(|t| t.ty));
        let rows = inner.select(&subquery.select)?;
        let (answer, rows) = match &subquery.kind {
            SubqueryKind::Exists => {
                let plan = rows.plan.project(vec![lit(true).alias("found")])?.limit(0, Some(1))?;
                (Answer::Exists, Part { plan, columns: Vec::new() })
            }
            SubqueryKind::Scalar => (Answer::Only(subquery.result().ty), rows),
            SubqueryKind::List => (Answer::List(subquery.select.outputs[0].t.ty), rows),
            SubqueryKind::Any(test) => (Answer::Any, inner.tested(rows, test)?),
            SubqueryKind::All(test) => (Answer::All, inner.tested(rows, test)?),
        };
        let around = inner.around.clone();
        let varies = subquery.select.is_volatile();
        let ran = Ran { plan: rows, around, types: &subquery.given, answer, varies };
        let part = self.apply(part, given, ran)?;
        let value = Expr::Column(part.columns.len() - 1);
        Ok((part, value))
    }

    fn tested(&mut self, rows: Part, test: &Expr) -> Result<Part> {
        let test = self.own(test);
        let mut tests = [test];
        let rows = self.applied(rows, &mut tests)?;
        let [test] = tests;
        self.computed_columns(rows, vec![(test, Ty::Bool)])
    }

    /// Runs a plan for each row.
    fn apply(&mut self, part: Part, given: Vec<Expr>, ran: Ran<'_>) -> Result<Part> {
        let types: Vec<Ty> = ran.types.iter().map(|t| t.ty).collect();
        let values =
            given.into_iter().zip(&types).map(|(e, t)| self.computed(e, *t, &part.columns)).collect();
        let added: Vec<Ty> = match ran.answer.ty() {
            Some(ty) => vec![ty],
            None => ran.plan.columns.iter().map(|(_, t)| *t).collect(),
        };
        let names: Vec<String> = added.iter().map(|_| self.name()).collect();
        let inner = Inner {
            plan: ran.plan.plan.build()?,
            around: ran.around,
            given: types,
            answer: ran.answer,
            varies: ran.varies,
        };
        let plan = Apply::plan(part.plan.build()?, values, inner, names.clone())?;
        let mut columns = part.columns;
        columns.extend(names.into_iter().map(Column::new_unqualified).zip(added));
        Ok(Part { plan: LogicalPlanBuilder::from(plan), columns })
    }

    /// A condition that is a subquery as a join with its rows; `None` if it can't be one.
    pub(super) fn member(&mut self, part: &Part, condition: &Expr) -> Result<Option<Part>> {
        let (negated, subquery) = match condition {
            Expr::Not(inner) => (true, inner.as_ref()),
            other => (false, other),
        };
        let Expr::Subquery(given, subquery) = subquery else { return Ok(None) };
        if matches!(subquery.kind, SubqueryKind::Scalar | SubqueryKind::List | SubqueryKind::All(_)) {
            return Ok(None);
        }
        if given.iter().any(Expr::has_subquery) {
            return Ok(None);
        }
        let width = part.columns.len();
        let Some(beside) = self.beside(width, given, &subquery.select)? else { return Ok(None) };
        let mut tests = beside.tests;
        if let SubqueryKind::Any(test) = &subquery.kind {
            let test = over_both(self.own_slots(test, &beside.outputs), 0, given);
            let certain = conjuncts(test.clone()).iter().all(|t| never_null(t, part, &beside.part));
            tests.extend(match negated && !certain {
                true => vec![Expr::IsBool(Box::new(test), false, true)],
                false => conjuncts(test),
            });
        }
        if tests.is_empty() {
            return Ok(None);
        }
        let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
        let both: Vec<Typing> = part.columns.iter().chain(&beside.part.columns).cloned().collect();
        let on = self.conditions(tests, &both);
        let plan = part.plan.clone().join_on(beside.part.plan.build()?, kind, on)?;
        Ok(Some(Part { plan, columns: part.columns.clone() }))
    }

    /// The test of IN with the outputs for their slots.
    fn own_slots(&self, test: &Expr, outputs: &[Expr]) -> Expr {
        match test {
            Expr::Slot(n) => outputs[*n].clone(),
            other => {
                let mut e = other.clone();
                e.children_mut(&mut |child| *child = self.own_slots(child, outputs));
                e
            }
        }
    }

    /// The rows of a subquery without the conditions that read the query around; `None` if it reads that elsewhere too.
    fn beside(&mut self, width: usize, given: &[Expr], select: &Select) -> Result<Option<Beside>> {
        if !select.reads_outer() {
            let part = self.select(select)?;
            let outputs = (width..width + select.visible).map(Expr::Column).collect();
            return Ok(Some(Beside { part, tests: Vec::new(), outputs }));
        }
        if select.aggregate.is_some()
            || !select.windows.is_empty()
            || select.limit.is_some()
            || select.offset.is_some()
            || !select.distinct_on.is_empty()
            || select.outputs.iter().any(|o| o.expr.has_subquery())
        {
            return Ok(None);
        }
        let Some((part, correlated)) = self.uncorrelated_rows(select)? else { return Ok(None) };
        if correlated.iter().any(Expr::has_subquery) {
            return Ok(None);
        }
        let tests = correlated.into_iter().map(|e| over_both(e, width, given)).collect();
        let outputs = select.outputs.iter().map(|o| over_both(o.expr.clone(), width, given)).collect();
        Ok(Some(Beside { part, tests, outputs }))
    }

    /// The rows of a query's source that pass the conditions which don't read the query around, and the other conditions;
    /// `None` if the source reads it.
    fn uncorrelated_rows(&mut self, select: &Select) -> Result<Option<(Part, Vec<Expr>)>> {
        let mut reads = false;
        select.source.walk(&mut |e| reads |= matches!(e, Expr::Outer(_)));
        if reads {
            return Ok(None);
        }
        let conditions: Vec<Expr> = select.filter.iter().cloned().flat_map(conjuncts).collect();
        let (correlated, plain) = conditions.into_iter().partition(reads_outer);
        let part = self.source(&select.source)?;
        Ok(Some((self.filtered(part, plain)?, correlated)))
    }

    /// An aggregate over rows that equal the row around in some values: all groups of these are formed once.
    fn grouped_value(
        &mut self,
        part: &Part,
        given: &[Expr],
        subquery: &Subquery,
    ) -> Result<Option<(Part, Expr)>> {
        let select = &subquery.select;
        let Some(aggregate) = &select.aggregate else { return Ok(None) };
        let opaque = |e: &Expr| e.has_subquery() || reads_outer(e);
        let mut arguments = aggregate.calls.iter().flat_map(|c| c.exprs());
        if !matches!(subquery.kind, SubqueryKind::Scalar)
            || !aggregate.single
            || aggregate.having.is_some()
            || !select.windows.is_empty()
            || select.limit.is_some()
            || select.offset.is_some()
            || select.outputs[0].expr.has_subquery()
            || arguments.any(opaque)
        {
            return Ok(None);
        }
        let Some((rows, correlated)) = self.uncorrelated_rows(select)? else { return Ok(None) };
        let Some(pairs) = correlated.iter().map(equal_sides).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let mut keys = Vec::new();
        for (inner, _) in &pairs {
            let Some(ty) = inner.type_in(&|n| rows.columns[n].1, &|n| self.around.param_type(n)) else {
                return Ok(None);
            };
            keys.push((self.computed(self.own(inner), ty, &rows.columns), ty));
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let calls = aggregate.calls.iter().map(|call| self.call(call, &rows.columns)).collect();
        let groups = self.grouped(rows.plan, keys, calls)?;
        let width = part.columns.len();
        let on = pairs.iter().enumerate().map(|(n, (_, outer))| {
            let sides = (Expr::Column(width + n), over_both((*outer).clone(), 0, given));
            Expr::Compare(CmpOp::Eq, Box::new(sides))
        });
        let joined = self.joined(JoinKind::Left, part.clone(), groups, on.collect())?;
        let values: Vec<Expr> = aggregate
            .calls
            .iter()
            .enumerate()
            .map(|(n, call)| of_no_rows(call.kind, Expr::Column(width + pairs.len() + n)))
            .collect();
        let value = over_both(self.own_slots(&select.outputs[0].expr, &values), 0, given);
        Ok(Some((joined, value)))
    }

    /// A join whose right side is run for each row of the left one.
    pub(super) fn lateral(&mut self, left: Part, join: &Join, lateral: &Lateral) -> Result<Part> {
        let outer = join.kind == JoinKind::Left;
        let on = self.owned(&join.on);
        let mut given = self.owned(&lateral.given);
        let mut types = lateral.types.to_vec();
        let first = self.around.statement_params() + given.len();
        // Rows without a partner are found inside, so the condition is checked there, on what the left row gives.
        if outer {
            given.extend((0..left.columns.len()).map(Expr::Column));
            types.extend(left.columns.iter().map(|(_, t)| Typed::plain(*t)));
        }
        let width = left.columns.len();
        let mut inner = self.nested(types.iter().map(|t| t.ty));
        let mut rows = inner.source(&join.right)?;
        if outer {
            rows = inner.filtered(rows, on.iter().map(|e| inside(e.clone(), width, first)).collect())?;
        }
        let around = inner.around.clone();
        let ran = Ran { plan: rows, around, types: &types, answer: Answer::Rows { outer }, varies: true };
        let part = self.apply(left, given, ran)?;
        if outer { Ok(part) } else { self.filtered(part, on) }
    }
}

/// What is run for each row.
struct Ran<'a> {
    plan: Part,
    around: Arc<varve_sql::general::Around>,
    types: &'a [Typed],
    answer: Answer,
    varies: bool,
}

fn reads_outer(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Outer(_)));
    found
}

/// An expression of the inner rows over both sides: its columns behind the `width` of the outer ones, and what it is given for
/// what stands for that.
fn over_both(e: Expr, width: usize, given: &[Expr]) -> Expr {
    match e {
        Expr::Column(n) | Expr::Slot(n) => Expr::Column(n + width),
        Expr::Outer(n) => given[n].clone(),
        mut other => {
            other.children_mut(&mut |child| {
                let taken = std::mem::replace(child, Expr::NULL);
                *child = over_both(taken, width, given);
            });
            other
        }
    }
}

/// A condition over both sides of a lateral join as its right side sees it.
fn inside(mut e: Expr, width: usize, first: usize) -> Expr {
    e.walk_mut(&mut |e| {
        if let Expr::Column(n) = e {
            *e = if *n < width { Expr::Param(first + *n) } else { Expr::Column(*n - width) };
        }
    });
    e
}

/// The sides of `inner = outer`, if the condition is that.
fn equal_sides(condition: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::Compare(CmpOp::Eq, sides) = condition else { return None };
    let has_columns = |e: &Expr| {
        let mut found = false;
        e.walk(&mut |e| found |= matches!(e, Expr::Column(_) | Expr::Slot(_)));
        found
    };
    let pair = match (reads_outer(&sides.0), reads_outer(&sides.1)) {
        (false, true) => (&sides.0, &sides.1),
        (true, false) => (&sides.1, &sides.0),
        _ => return None,
    };
    let plain = !pair.0.has_subquery() && !pair.1.has_subquery();
    (plain && !has_columns(pair.1)).then_some(pair)
}

/// An aggregate's column behind a left join: count of no rows is 0.
fn of_no_rows(kind: AggKind, column: Expr) -> Expr {
    match kind {
        AggKind::Count => Expr::Coalesce([column, Expr::Const(varve_engine::Value::Int8(0))].into()),
        _ => column,
    }
}

/// Whether the comparison is of columns that are never NULL.
fn never_null(test: &Expr, left: &Part, right: &Part) -> bool {
    let Expr::Compare(_, sides) = test else { return false };
    let known = |e: &Expr| match e {
        Expr::Column(n) => {
            let width = left.columns.len();
            let (part, at) = if *n < width { (left, *n) } else { (right, *n - width) };
            let Some((column, _)) = part.columns.get(at) else { return false };
            part.plan.schema().field_from_column(column).is_ok_and(|f| !f.is_nullable())
        }
        Expr::Const(value) => !value.as_datum().is_null(),
        _ => false,
    };
    known(&sides.0) && known(&sides.1)
}
