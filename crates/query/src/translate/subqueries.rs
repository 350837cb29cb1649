//! Translates subqueries. A subquery becomes a join if possible. Otherwise the plan node `Apply` runs the
//! subquery for each outer row.
//!
//! | subquery | becomes |
//! |---|---|
//! | EXISTS, IN, op ANY among the conditions of WHERE or HAVING | semi join |
//! | NOT EXISTS, NOT IN there | anti join |
//! | one aggregate of rows with values equal to outer values | grouped by these values, left join |
//! | any other | `Apply`: run for each outer row, once for equal values |
//!
//! Invariants
//! 1. The join that replaces a subquery never duplicates a row of the outer query. It removes a row only if
//!    the condition with the subquery is not true for the row.
//! 2. NOT IN is true only if the comparison is false for each row. A comparison with NULL is not false.

use std::sync::Arc;

use datafusion::common::{Column, ExprSchema, JoinType, Result};
use datafusion::logical_expr::{Expr as Logical, LogicalPlanBuilder, lit};
use varve_sql::general::{
    AggKind, ArithOp, Class, CmpOp, Expr, JoinKind, Lateral, Moment, Select, Source, Subquery, SubqueryKind,
    Ty, Typed, conjuncts,
};
use varve_sql::planted;

use super::limits::is_found_late;
use super::{Key, Part, Translator, Typing, reads_one, shown};
use crate::apply::{Answer, Apply, Inner, Window};
use crate::failing::may_fail;

/// The rows of a subquery, for a join with the rows of the outer query.
struct Beside {
    part: Part,
    /// The conditions of the subquery that read the outer query, as expressions over both sides of the join.
    tests: Vec<Expr>,
    /// The outputs of the subquery, as expressions over both sides of the join.
    outputs: Vec<Expr>,
}

impl Translator<'_> {
    /// Adds a column for each subquery in the expressions, and replaces the subquery by this column.
    pub(super) fn applied(&mut self, mut part: Part, exprs: &mut [Expr]) -> Result<Part> {
        for e in exprs {
            part = self.applied_in(part, e, None)?;
        }
        Ok(part)
    }

    /// Does the same as `applied` for one expression. The expression is evaluated only for rows for which
    /// `guard` is true.
    fn applied_in(&mut self, mut part: Part, e: &mut Expr, guard: Option<&Expr>) -> Result<Part> {
        if !e.has_subquery() {
            return Ok(part);
        }
        match e {
            Expr::Subquery(..) => self.applied_to(part, e, guard),
            Expr::Case(branches, otherwise) => {
                let mut before = guard.cloned();
                for (condition, result) in branches.iter_mut() {
                    part = self.applied_in(part, condition, before.as_ref())?;
                    let taken = both(before.clone(), condition.clone());
                    part = self.applied_in(part, result, Some(&taken))?;
                    before = Some(both(before, is_bool(condition, true, true)));
                }
                self.applied_in(part, otherwise, before.as_ref())
            }
            Expr::Coalesce(items) => {
                self.applied_in_turn(part, items, guard, |e| Expr::IsNull(Box::new(e.clone()), false))
            }
            Expr::And(items) => self.applied_in_turn(part, items, guard, |e| is_bool(e, false, true)),
            Expr::Or(items) => self.applied_in_turn(part, items, guard, |e| is_bool(e, true, true)),
            other => {
                let mut state = Ok(part);
                other.children_mut(&mut |child| {
                    if let Ok(part) = &state {
                        state = self.applied_in(part.clone(), child, guard);
                    }
                });
                state
            }
        }
    }

    /// Does the same as `applied` for several expressions. Each of them is evaluated only for rows for which
    /// `goes_on` holds for all earlier ones.
    fn applied_in_turn(
        &mut self,
        mut part: Part,
        items: &mut [Expr],
        guard: Option<&Expr>,
        goes_on: impl Fn(&Expr) -> Expr,
    ) -> Result<Part> {
        let mut before = guard.cloned();
        for item in items {
            part = self.applied_in(part, item, before.as_ref())?;
            before = Some(both(before, goes_on(item)));
        }
        Ok(part)
    }

    fn applied_to(&mut self, part: Part, e: &mut Expr, guard: Option<&Expr>) -> Result<Part> {
        let Expr::Subquery(given, subquery) = e else { return Ok(part) };
        let subquery = subquery.clone();
        let mut given = std::mem::take(given).into_vec();
        let mut part = part;
        for e in &mut given {
            part = self.applied_in(part, e, guard)?;
        }
        // A subquery in a branch of CASE could fail for a row that does not take the branch. So it is not run
        // for such rows.
        let guard = guard.filter(|guard| can_fail(&subquery) && !reads_held(guard));
        let (part, value) = match self.grouped_value(&part, &given, &subquery)? {
            Some(joined) => joined,
            None => self.answered(part, given, &subquery, guard)?,
        };
        *e = value;
        Ok(part)
    }

    /// Returns a translator for a plan that runs several times, each time with values of these types.
    pub(super) fn nested(&self, types: impl Iterator<Item = Ty>) -> Translator<'_> {
        Translator {
            tables: self.tables,
            snapshot: self.snapshot.clone(),
            around: self.around.within(types),
            whole: self.whole,
            names: self.names,
            shared: self.shared.clone(),
            turns: self.turns.clone(),
            of_one_row: false,
            assumed: self.assumed.clone(),
        }
    }

    /// Adds a column with the answer of the subquery for each row.
    fn answered(
        &mut self,
        part: Part,
        given: Vec<Expr>,
        subquery: &Subquery,
        guard: Option<&Expr>,
    ) -> Result<(Part, Expr)> {
        if let Some(found) = self.looked_up(&part, &given, subquery, guard)? {
            return Ok(found);
        }
        let mut inner = self.nested(subquery.given.iter().map(|t| t.ty));
        let select = &subquery.select;
        inner.of_one_row = reads_one(select);
        let mut window = Window::default();
        let mut rows;
        if select.ties || select.limit.iter().chain(&select.offset).any(Expr::has_subquery) {
            rows = inner.select(select)?;
        } else if is_found_late(select) {
            rows = inner.source(&select.source)?;
            rows = inner.ordered_rows(rows, select)?;
            let own = |e: &Option<Expr>| e.as_ref().map(|e| inner.own(e));
            window = Window { limit: own(&select.limit), offset: own(&select.offset) };
            rows = shown(rows, select.visible)?;
        } else {
            rows = inner.source(&select.source)?;
            rows = inner.ordered_rows(rows, select)?;
            rows = inner.cut(rows, select)?;
        }
        let (answer, rows) = match &subquery.kind {
            SubqueryKind::Exists => {
                let mut plan = rows.plan.project(vec![lit(true).alias("found")])?;
                if window.is_none() {
                    plan = plan.limit(0, Some(1))?;
                }
                (Answer::Exists, Part { plan, columns: Vec::new() })
            }
            SubqueryKind::Scalar => (Answer::Only(subquery.result().ty), rows),
            SubqueryKind::List => (Answer::List(subquery.select.outputs[0].t.ty), rows),
            SubqueryKind::Any(test) => (Answer::Any, inner.tested(rows, test)?),
            SubqueryKind::All(test) => (Answer::All, inner.tested(rows, test)?),
        };
        let around = inner.around.clone();
        let varies = subquery.select.is_volatile();
        let members = Vec::new();
        let ran = Ran { plan: rows, around, types: &subquery.given, answer, members, varies, window, guard };
        let part = self.apply(part, given, ran)?;
        let value = Expr::Column(part.columns.len() - 1);
        Ok((part, value))
    }

    /// Translates `x IN (SELECT ...)` or `(x, y) IN (SELECT ...)` whose subquery does not use a column of the
    /// outer query. Its rows are read once, into a hash table, and each outer row looks up its values there.
    /// Returns `None` for any other subquery.
    fn looked_up(
        &mut self,
        part: &Part,
        given: &[Expr],
        subquery: &Subquery,
        guard: Option<&Expr>,
    ) -> Result<Option<(Part, Expr)>> {
        let Some(pairs) = equal_to_slots(subquery) else { return Ok(None) };
        let rows = self.select(&subquery.select)?;
        let ty = |e: &Expr, columns: &[Typing]| e.type_in(&|n| columns[n].1, &|n| self.around.param_type(n));
        let (mut wanted, mut types, mut own, mut members) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (left, right) in pairs {
            let left = over_both(left.clone(), 0, given);
            let (Some(of_left), Some(of_right)) = (ty(&left, &part.columns), ty(right, &rows.columns)) else {
                return Ok(None);
            };
            if of_left != of_right && !(of_left.is_integer() && of_right.is_integer()) {
                return Ok(None);
            }
            wanted.push(left);
            types.push(Typed::plain(of_left));
            own.push((self.own(right), of_right));
            members.push(of_right);
        }
        let plan = self.computed_columns(rows, own)?;
        let ran = Ran {
            plan,
            around: self.around.clone(),
            types: &types,
            answer: Answer::In,
            members,
            varies: false,
            window: Window::default(),
            guard,
        };
        let part = self.apply(part.clone(), wanted, ran)?;
        let value = Expr::Column(part.columns.len() - 1);
        Ok(Some((part, value)))
    }

    fn tested(&mut self, rows: Part, test: &Expr) -> Result<Part> {
        let test = self.own(test);
        let mut tests = [test];
        let rows = self.applied(rows, &mut tests)?;
        let [test] = tests;
        self.computed_columns(rows, vec![(test, Ty::Bool)])
    }

    /// Adds an `Apply` node, which runs a plan for each row.
    pub(super) fn apply(&mut self, part: Part, given: Vec<Expr>, ran: Ran<'_>) -> Result<Part> {
        let types: Vec<Ty> = ran.types.iter().map(|t| t.ty).collect();
        let mut values: Vec<Logical> =
            given.into_iter().zip(&types).map(|(e, t)| self.computed(e, *t, &part.columns)).collect();
        values.extend(ran.guard.map(|guard| self.computed(guard.clone(), Ty::Bool, &part.columns)));
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
            members: ran.members,
            varies: ran.varies,
            window: ran.window,
            is_guarded: ran.guard.is_some(),
        };
        let plan = Apply::plan(part.plan.build()?, values, inner, names.clone())?;
        let mut columns = part.columns;
        columns.extend(names.into_iter().map(Column::new_unqualified).zip(added));
        Ok(Part { plan: LogicalPlanBuilder::from(plan), columns })
    }

    /// Translates a condition that is a subquery to a join with the rows of the subquery. Returns `None` if
    /// this is not possible.
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
        // For a single outer row, it is better to run the subquery with the values of this row, because an
        // index may find the rows. A join would read all rows of the subquery.
        if self.of_one_row && matches!(subquery.kind, SubqueryKind::Exists) && !given.is_empty() {
            return Ok(None);
        }
        let width = part.columns.len();
        let Some(beside) = self.beside(width, given, &subquery.select)? else { return Ok(None) };
        let mut tests = beside.tests;
        if let SubqueryKind::Any(test) = &subquery.kind {
            let test = over_both(self.own_slots(test, &beside.outputs), 0, given);
            let blind = planted("query: NOT IN forgets NULLs");
            let certain = blind || conjuncts(test.clone()).iter().all(|t| never_null(t, part, &beside.part));
            if negated && !certain && equal_to_slots(subquery).is_some() {
                return Ok(None);
            }
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

    /// Returns the test of IN, with its slots replaced by the outputs.
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

    /// Translates a subquery without its conditions that read the outer query. Returns `None` if other parts
    /// of the subquery read the outer query, too.
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

    /// Translates the source of a query, with those conditions that do not read the outer query. Returns it
    /// with the other conditions. Returns `None` if the source reads the outer query.
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

    /// Translates an aggregate over rows with values that are equal to values of the outer row. All groups
    /// are computed once and joined. Returns `None` for any other subquery.
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
            // For a single outer row, most of the groups would be computed without need.
            || self.of_one_row
            || arguments.any(|e| opaque(e) || may_fail_beyond_numeric(e))
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
            keys.push(Key::plain(self.computed(self.own(inner), ty, &rows.columns), ty));
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

    /// Translates the right side of a lateral join. Returns it with its LIMIT and OFFSET, if they are known
    /// only when it runs.
    fn lateral_rows(&mut self, right: &Source, outer: bool) -> Result<(Part, Window)> {
        if let Source::Query(select) = right
            && !outer
            && !select.ties
            && !select.limit.iter().chain(&select.offset).any(Expr::has_subquery)
            && select.limit.iter().chain(&select.offset).any(Expr::reads_outer)
        {
            let own = |e: &Option<Expr>| e.as_ref().map(|e| self.own(e));
            let window = Window { limit: own(&select.limit), offset: own(&select.offset) };
            let rows = self.source(&select.source)?;
            let rows = self.ordered_rows(rows, select)?;
            return Ok((shown(rows, select.visible)?, window));
        }
        Ok((self.source(right)?, Window::default()))
    }

    /// Passes the outer query's values that the conditions read to the inner query, which checks the
    /// conditions.
    fn give_around(&self, on: &mut [Expr], given: &mut Vec<Expr>, types: &mut Vec<Typed>) {
        let first = self.around.statement_params();
        for e in on {
            e.walk_mut(&mut |e| {
                if let Expr::Param(n) = e
                    && *n >= first
                {
                    types.push(Typed::plain(self.around.param_type(*n).unwrap_or(Ty::Text)));
                    let place = first + given.len();
                    given.push(std::mem::replace(e, Expr::Param(place)));
                }
            });
        }
    }

    /// Translates a join whose right side runs for each row of the left side. If `outer` is set, a left row
    /// without a partner stays in the result.
    pub(super) fn lateral(
        &mut self,
        left: Part,
        right: &Source,
        outer: bool,
        mut on: Vec<Expr>,
        lateral: &Lateral,
    ) -> Result<Part> {
        let mut given = self.owned(&lateral.given);
        let mut types = lateral.types.to_vec();
        let first = self.around.statement_params() + given.len();
        // The right side must know which left rows have no partner. So it checks the condition itself, and
        // the left row gives it the values that the condition needs.
        if outer {
            given.extend((0..left.columns.len()).map(Expr::Column));
            types.extend(left.columns.iter().map(|(_, t)| Typed::plain(*t)));
            self.give_around(&mut on, &mut given, &mut types);
        }
        let width = left.columns.len();
        let mut inner = self.nested(types.iter().map(|t| t.ty));
        let (mut rows, window) = inner.lateral_rows(right, outer)?;
        if outer {
            let count = rows.columns.len();
            rows = inner.filtered(rows, on.iter().map(|e| inside(e.clone(), width, first)).collect())?;
            // The columns with the answers of subqueries in the conditions are not part of the result.
            rows = shown(rows, count)?;
        }
        let around = inner.around.clone();
        let ran = Ran {
            plan: rows,
            around,
            types: &types,
            answer: Answer::Rows { outer },
            members: Vec::new(),
            varies: true,
            window,
            guard: None,
        };
        let part = self.apply(left, given, ran)?;
        if outer { Ok(part) } else { self.filtered(part, on) }
    }
}

/// Returns the two sides of each test of `x IN (SELECT ...)` or `(x, y) IN (SELECT ...)`, if the subquery
/// reads no values of an outer query. The first side is `x`, and the second side is a value of the subquery's
/// row.
fn equal_to_slots(subquery: &Subquery) -> Option<Vec<(&Expr, &Expr)>> {
    let SubqueryKind::Any(test) = &subquery.kind else { return None };
    let tests = match test {
        Expr::And(tests) => tests,
        test => std::slice::from_ref(test),
    };
    let select = &subquery.select;
    if select.reads_outer() || select.limit.iter().chain(&select.offset).any(Expr::reads_outer) {
        return None;
    }
    tests.iter().map(equal_to_slot).collect()
}

/// Returns the two sides of the test `x = value`, where the value comes from the subquery's row.
fn equal_to_slot(test: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::Compare(CmpOp::Eq, sides) = test else { return None };
    let reads = |e: &Expr| {
        let (mut slots, mut outer, mut others) = (false, false, false);
        e.walk(&mut |e| match e {
            Expr::Slot(_) => slots = true,
            Expr::Outer(_) => outer = true,
            Expr::Subquery(..) | Expr::Held(_) => others = true,
            _ => {}
        });
        (slots, outer, others)
    };
    let (left, right) = (reads(&sides.0), reads(&sides.1));
    let is_plain = !left.2 && !right.2;
    match (left.0, left.1, right.0, right.1) {
        (false, _, true, false) if is_plain => Some((&sides.0, &sides.1)),
        (true, false, false, _) if is_plain => Some((&sides.1, &sides.0)),
        _ => None,
    }
}

fn both(before: Option<Expr>, e: Expr) -> Expr {
    match before {
        Some(before) => Expr::And([before, e].into()),
        None => e,
    }
}

/// Returns the expression `e IS [NOT] value`.
fn is_bool(e: &Expr, value: bool, negated: bool) -> Expr {
    Expr::IsBool(Box::new(e.clone()), value, negated)
}

fn reads_held(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Held(_)));
    found
}

/// Returns whether a subquery can fail with an error.
fn can_fail(subquery: &Subquery) -> bool {
    let select = &subquery.select;
    let is_one = select.aggregate.as_ref().is_some_and(|a| a.single);
    let several = matches!(subquery.kind, SubqueryKind::Scalar) && !is_one;
    let mut fails = several;
    if let SubqueryKind::Any(test) | SubqueryKind::All(test) = &subquery.kind {
        fails |= may_fail(test);
    }
    select.walk_all(&mut |e| fails |= may_fail(e));
    fails
}

/// Returns whether the evaluation of the expression can fail with an error. Sums, differences and products of
/// numeric values are assumed not to fail, because the range of numeric is very large.
fn may_fail_beyond_numeric(e: &Expr) -> bool {
    match e {
        Expr::Arith(op, Class::Numeric, sides) if !matches!(op, ArithOp::Divide | ArithOp::Remainder) => {
            may_fail_beyond_numeric(&sides.0) || may_fail_beyond_numeric(&sides.1)
        }
        Expr::Column(_) | Expr::Slot(_) | Expr::Const(_) | Expr::Param(_) => false,
        other => may_fail(other),
    }
}

/// A plan that runs for each row, and its properties.
pub(super) struct Ran<'a> {
    pub(super) plan: Part,
    pub(super) around: Arc<varve_sql::general::Around>,
    pub(super) types: &'a [Typed],
    pub(super) answer: Answer,
    /// The types of the columns of the plan, for `Answer::In`.
    pub(super) members: Vec<Ty>,
    pub(super) varies: bool,
    pub(super) window: Window,
    /// The plan runs only for rows for which this is true. The answer for other rows is NULL.
    pub(super) guard: Option<&'a Expr>,
}

fn reads_outer(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Outer(_)));
    found
}

/// Changes an expression over the inner rows to an expression over both sides of a join. The numbers of its
/// columns are increased by `width`, the number of outer columns. References to outer values are replaced by
/// the values in `given`.
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

/// Changes a condition over both sides of a lateral join to a condition inside the right side. Columns of the
/// left side become parameters.
fn inside(mut e: Expr, width: usize, first: usize) -> Expr {
    e.walk_mut(&mut |e| {
        if let Expr::Column(n) = e {
            *e = if *n < width { Expr::Param(first + *n) } else { Expr::Column(*n - width) };
        }
    });
    e
}

/// Returns the inner and the outer side of a condition `inner = outer`. Returns `None` for other conditions.
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

/// Returns the value of an aggregate after a left join. For a count, NULL becomes 0, because the count of no
/// rows is 0.
fn of_no_rows(kind: AggKind, column: Expr) -> Expr {
    match kind {
        AggKind::Count | AggKind::Moment(Moment::RegrCount) => {
            Expr::Coalesce([column, Expr::Const(varve_engine::Value::Int8(0))].into())
        }
        _ => column,
    }
}

/// Returns whether the test is a comparison of values that are never NULL.
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
