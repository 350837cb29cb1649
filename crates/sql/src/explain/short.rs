//! The EXPLAIN steps of plans for this crate's executor.
//!
//! Invariants
//! 1. A scan names the access path and the index.
//! 2. A step that ran shows the figures that the meter has for it and for all steps below it.
//!
//! This module does not know how rows are estimated (trait `Guesses`). The estimates are only shown. The
//! executor's plans do not depend on them.

use varve_engine::{LeafCounts, ScanIndex, TableDef, Value};

use super::cost::{Estimate, GROUPS, Rates, ScanWork};
use super::expression::{Names, shown};
use super::{Actual, Step};
use crate::eval::{CmpOp, Expr};
use crate::exec::watch::{At, Meter};
use crate::oid;
use crate::plan::{
    Access, AggCall, AggKind, Insert, InsertSource, KeyRange, OnConflict, Plan, Select, Source, TableAccess,
};

/// Estimates the parts of a plan.
pub trait Guesses {
    /// Returns the costs of single operations.
    fn rates(&self) -> &Rates;

    /// Returns the work of a scan, and the number of rows that it returns. Returns `None` if the table cannot
    /// be read.
    fn scan(&self, target: &TableAccess, filter: Option<&Expr>) -> Option<(ScanWork, f64)>;
}

/// Returns the steps of a plan, with the measurements of `meter` if the plan has run, and with the estimates
/// of `guesses`.
pub fn steps(plan: &Plan, meter: Option<&Meter>, guesses: Option<&dyn Guesses>) -> Step {
    let steps = Steps { meter, guesses };
    match plan {
        Plan::Select(s) => steps.select(s),
        Plan::Insert(i) => {
            let source = match &i.source {
                InsertSource::Values(rows) if rows.len() == 1 => {
                    steps.made(steps.at(At::Source, Step::new("Result")), 1.0)
                }
                InsertSource::Values(rows) => {
                    steps.made(steps.at(At::Source, values_scan()), rows.len() as f64)
                }
                InsertSource::Query(q, _) | InsertSource::Queried(q, _) => steps.select(q),
            };
            steps.change(plan, source)
        }
        Plan::Update(u) => steps.change(plan, steps.scan(&u.target, u.filter.as_ref(), ROW_ID_BYTES)),
        Plan::Delete(d) => steps.change(plan, steps.scan(&d.target, d.filter.as_ref(), ROW_ID_BYTES)),
    }
}

/// Returns the step that changes the rows of `source`.
pub fn change(plan: &Plan, source: Step, meter: Option<&Meter>) -> Step {
    Steps { meter, guesses: None }.change(plan, source)
}

/// Returns the step that locks the rows of `source`. `rows` is their number, if the plan has run.
pub fn lock(source: Step, rows: Option<u64>) -> Step {
    let leaves = LeafCounts::default();
    let above = |(below, rows)| Actual { rows, loops: 1, left_out: 0, leaves, ..below };
    let actual = source.actual.zip(rows).map(above);
    Step { actual, ..Step::new("LockRows") }.over([source])
}

fn values_scan() -> Step {
    Step::new("Values Scan").on("\"*VALUES*\"")
}

struct Steps<'m> {
    meter: Option<&'m Meter>,
    guesses: Option<&'m dyn Guesses>,
}

impl Steps<'_> {
    /// Returns the step with an estimate, which is made from those of the steps below it.
    fn estimated<const N: usize>(
        &self,
        step: Step,
        below: [&Step; N],
        make: impl FnOnce(&Rates, [Estimate; N]) -> Estimate,
    ) -> Step {
        let mut known = [Estimate::default(); N];
        let is_known = known
            .iter_mut()
            .zip(below)
            .all(|(known, step)| step.estimate.inspect(|estimate| *known = *estimate).is_some());
        match self.guesses.filter(|_| is_known) {
            Some(guesses) => Step { estimate: Some(make(guesses.rates(), known)), ..step },
            None => step,
        }
    }

    /// Returns the step with its own measurements. `over` adds those of the steps below.
    fn at(&self, at: At, step: Step) -> Step {
        let done = self.meter.map(|meter| meter.done(at));
        let actual = done.map(|done| Actual {
            loops: done.loops,
            rows: done.rows,
            left_out: done.left_out,
            unpaired: 0,
            startup: done.startup,
            time: done.time,
            pages: done.pages,
            spilled_bytes: 0,
            leaves: LeafCounts::default(),
        });
        Step { actual, ..step }
    }

    /// Puts the step above other steps, and adds their time and pages to its own.
    fn over(&self, mut step: Step, inner: Vec<Step>) -> Step {
        if let Some(actual) = &mut step.actual {
            for below in inner.iter().filter_map(|inner| inner.actual) {
                actual.time += below.time;
                actual.pages += below.pages;
            }
            // If a step returns no row, its start-up takes until its end. The same holds for a change,
            // because its rows are counted after its end.
            if actual.rows == 0 || actual.startup > actual.time {
                actual.startup = actual.time;
            }
        }
        step.over(inner)
    }

    /// Returns a step that computes its rows without input.
    fn made(&self, step: Step, rows: f64) -> Step {
        self.estimated(step, [], |rates, []| rates.made(rows))
    }

    fn change(&self, plan: &Plan, source: Step) -> Step {
        let (name, returns) = match plan {
            Plan::Insert(i) => ("Insert", i.returning.is_some()),
            Plan::Update(u) => ("Update", u.returning.is_some()),
            Plan::Delete(d) => ("Delete", d.returning.is_some()),
            Plan::Select(_) => return source,
        };
        let mut step = Step::new(name).fact("Node Type", "ModifyTable").fact("Operation", name);
        step.relation = plan.changed_table().map(|table| table.name.clone());
        if let Plan::Insert(Insert { on_conflict, .. }) = plan {
            step = match on_conflict {
                OnConflict::Fail => step,
                OnConflict::Nothing(_) => step.note("Conflict Resolution", "NOTHING"),
                OnConflict::Update(_) => step.note("Conflict Resolution", "UPDATE"),
            };
        }
        let mut step = self.at(At::Change, step);
        if let Some(actual) = step.actual.as_mut().filter(|_| !returns) {
            actual.rows = 0;
        }
        let below = |estimate: Estimate| match returns {
            true => estimate,
            false => Estimate { rows: 0.0, width: 0, ..estimate },
        };
        step.estimate = source.estimate.map(below);
        self.over(step, vec![source])
    }

    fn select(&self, s: &Select) -> Step {
        let names = source_names(&s.source);
        let slots = |n: usize| slot_name(s, n, &*names);
        let width = outputs_width(s);
        let mut step = self.source(s, &*names);
        if let Some(a) = &s.aggregate {
            let mut group = match a.single {
                true => Step::new("Aggregate").fact("Strategy", "Plain"),
                false => Step::new("HashAggregate").fact("Node Type", "Aggregate").fact("Strategy", "Hashed"),
            };
            if !a.keys.is_empty() {
                group = group.note("Group Key", joined(a.keys.iter().map(|k| shown(k, &*names))));
            }
            if let Some(having) = &a.having {
                group = group.note("Filter", shown(having, &slots));
            }
            let group = self.estimated(self.at(At::Group, group), [&step], |rates, [below]| {
                let groups = if a.single { 1.0 } else { below.rows.min(GROUPS) };
                rates.group(below, (a.keys.len() + a.calls.len()) as f64, groups).with_width(width)
            });
            step = self.over(group, vec![step]);
        }
        // A single row that is found by its key is returned directly.
        let is_point = matches!(&s.source, Source::Table(TableAccess { access: Access::Point(_), .. }))
            && s.aggregate.is_none();
        let has_window = s.limit.is_some() || s.offset.is_some();
        if (!s.order.is_empty() || s.distinct) && (!is_point || s.lock.is_some() || has_window) {
            let input: &Names<'_> = if s.aggregate.is_some() { &slots } else { &*names };
            let sort = Step::new("Sort").note("Sort Key", sort_keys(s, input));
            let sort = self.estimated(self.at(At::Sort, sort), [&step], |rates, [below]| rates.sort(below));
            step = self.over(sort, vec![step]);
        }
        if s.distinct && (!is_point || has_window) {
            step = self.passing_on(At::Unique, "Unique", step);
        }
        if s.lock.is_some() {
            step = self.passing_on(At::Lock, "LockRows", step);
        }
        if has_window {
            let limit = self.at(At::Limit, Step::new("Limit"));
            let limit = self.estimated(limit, [&step], |rates, [below]| {
                rates.limit(below, limit_rows(s).unwrap_or(below.rows))
            });
            step = self.over(limit, vec![step]);
        }
        step
    }

    /// Returns a step that examines each row of the step below it.
    fn passing_on(&self, at: At, name: &str, below: Step) -> Step {
        let step = self.estimated(self.at(at, Step::new(name)), [&below], |rates, [below]| {
            rates.filter(below, 1.0, below.rows)
        });
        self.over(step, vec![below])
    }

    fn source(&self, s: &Select, names: &Names<'_>) -> Step {
        let filter = |step: Step| match &s.filter {
            Some(filter) => step.note("Filter", shown(filter, names)),
            None => step,
        };
        let width = input_width(s);
        let rows = match &s.source {
            Source::Nothing => Some(1.0),
            Source::Values(rows, _) => Some(rows.len() as f64),
            Source::Unnest(..) => Some(UNNESTED_ROWS),
            Source::Series(..) => Some(SERIES_ROWS),
            _ => None,
        };
        let step = match &s.source {
            Source::Table(t) => return self.scan(t, s.filter.as_ref(), width),
            Source::Loops(steps) => return filter(self.loops(steps, names, true)),
            Source::Nothing => Step::new("Result"),
            Source::Values(..) => values_scan(),
            Source::System(table) => Step::new("Seq Scan").on(table.name),
            Source::Unnest(..) => Step::new("Function Scan").on("unnest"),
            Source::Series(..) => Step::new("Function Scan").on("generate_series"),
            Source::Join(_)
            | Source::Query(_)
            | Source::Expand(_)
            | Source::Set(_)
            | Source::Target(_)
            | Source::Shared(_)
            | Source::Work(..) => Step::new("General"),
        };
        let step = self.at(At::Source, filter(step));
        match rows {
            Some(rows) => self.estimated(step, [], |rates, []| rates.made(rows).with_width(width)),
            None => step,
        }
    }

    /// Makes nested joins: each join has the join of the earlier tables as its outer side.
    fn loops(&self, steps: &[crate::plan::Step], names: &Names<'_>, is_whole: bool) -> Step {
        let Some((last, before)) = steps.split_last() else { return Step::new("Result") };
        let n = before.len();
        let named = |column: usize| {
            let known = last.target.table.columns.get(column).map(|c| c.name.clone());
            known.unwrap_or_else(|| names(column))
        };
        let mut step = scan_step(&last.target, &named, names);
        if let Some(filter) = &last.filter {
            step = step.note("Filter", shown(filter, names));
        }
        let width = columns_width(&last.target.table, last.columns.iter().copied());
        let scan = self.scanned(self.at(At::Loop(n), step), &last.target, last.filter.as_ref(), width);
        if before.is_empty() {
            return scan;
        }
        let join = Step::new("Nested Loop").fact("Join Type", "Inner");
        let outer = self.loops(before, names, false);
        let join = Step { actual: scan.actual.map(|a| joined_rows(&a, outer.actual)), ..join };
        let mut join = self.estimated(join, [&outer, &scan], |rates, [outer, scan]| {
            rates.nested_loop(outer, scan, 0.0, outer.rows * scan.rows)
        });
        if is_whole {
            // The work on the rows of the innermost loop counts for the outermost join.
            let own = self.at(At::Source, Step::default()).actual;
            join.actual.iter_mut().zip(own).for_each(|(join, own)| {
                join.time += own.time;
                join.pages += own.pages;
            });
        }
        self.over(join, vec![outer, scan])
    }

    /// Returns the step of a scan with its estimate.
    fn scanned(&self, step: Step, target: &TableAccess, filter: Option<&Expr>, width: u32) -> Step {
        // The condition of a loop may read columns of the earlier tables. Such a condition cannot be
        // estimated.
        let columns = target.table.columns.len();
        let own = filter.filter(|filter| {
            let mut read = Vec::new();
            filter.add_columns(&mut read);
            read.iter().all(|column| *column < columns)
        });
        let estimate = self.guesses.and_then(|guesses| {
            let (work, rows) = guesses.scan(target, own)?;
            Some(guesses.rates().scan(&work, rows).with_width(width))
        });
        Step { estimate, ..step }
    }

    fn scan(&self, t: &TableAccess, filter: Option<&Expr>, width: u32) -> Step {
        let names = |n: usize| t.table.columns.get(n).map_or_else(|| format!("${n}"), |c| c.name.clone());
        let mut step = scan_step(t, &names, &names);
        if let Some(filter) = filter {
            step = step.note("Filter", shown(filter, &names));
        }
        self.scanned(self.at(At::Source, step), t, filter, width)
    }
}

/// The size of the identity by which a row is found again, in bytes (PostgreSQL's `ctid`).
const ROW_ID_BYTES: u32 = 6;
/// The assumed number of rows of `unnest` and of `generate_series` (`prorows` in PostgreSQL).
const UNNESTED_ROWS: f64 = 100.0;
const SERIES_ROWS: f64 = 1000.0;

/// Returns the number of rows that LIMIT lets pass, if it is a constant.
fn limit_rows(s: &Select) -> Option<f64> {
    match s.limit.as_ref()? {
        Expr::Const(Value::Int8(rows)) => Some(*rows as f64),
        Expr::Const(Value::Int4(rows)) => Some(f64::from(*rows)),
        _ => None,
    }
}

/// Returns the assumed size of the rows that a query returns, in bytes.
fn outputs_width(s: &Select) -> u32 {
    let visible = s.outputs.iter().take(s.visible);
    visible.map(|output| oid::assumed_width(output.t.ty.oid(), output.t.typmod)).sum()
}

/// Returns the assumed size of the rows that a query reads from its source, in bytes.
fn input_width(s: &Select) -> u32 {
    let Source::Table(target) = &s.source else { return outputs_width(s) };
    let mut columns = Vec::new();
    match &s.aggregate {
        Some(a) => {
            let arguments = a.calls.iter().filter_map(|call| call.argument.as_ref());
            a.keys.iter().chain(arguments).for_each(|expr| expr.add_columns(&mut columns));
        }
        None => s.outputs.iter().for_each(|output| output.expr.add_columns(&mut columns)),
    }
    columns_width(&target.table, columns)
}

/// Returns the assumed size of these columns of a table, in bytes.
fn columns_width(table: &TableDef, columns: impl IntoIterator<Item = usize>) -> u32 {
    let columns = columns.into_iter().filter_map(|column| table.columns.get(column));
    let width = |t| {
        let (oid, typmod) = oid::of_column(t);
        oid::assumed_width(oid, typmod)
    };
    columns.map(|column| width(&column.column_type)).sum()
}

/// Returns the measurements of nested loops. They return the rows of the innermost loop.
fn joined_rows(scan: &Actual, outer: Option<Actual>) -> Actual {
    let outer = outer.unwrap_or_default();
    let first = scan.startup.checked_div(u32::try_from(scan.loops).unwrap_or(u32::MAX)).unwrap_or_default();
    Actual { loops: outer.loops, rows: scan.rows, startup: outer.startup + first, ..Actual::default() }
}

/// Returns the step of an access path. `own` names the table's columns, and `outer` names the columns that
/// the keys read.
fn scan_step(t: &TableAccess, own: &Names<'_>, outer: &Names<'_>) -> Step {
    let back = if t.reverse { " Backward" } else { "" };
    let direction = if t.reverse { "Backward" } else { "Forward" };
    let by_index = |index: &str, condition: String| {
        let node = if t.reads.is_some() { "Index Only Scan" } else { "Index Scan" };
        let step = Step::new(format!("{node}{back}"))
            .fact("Node Type", node)
            .fact("Scan Direction", direction)
            .on(&t.table.name);
        // An index that is used only for its order has no condition.
        let step = if condition.is_empty() { step } else { step.note("Index Cond", condition) };
        Step { index: Some(index.to_owned()), ..step }
    };
    match &t.access {
        Access::Full => Step::new(format!("Seq Scan{back}")).fact("Node Type", "Seq Scan").on(&t.table.name),
        Access::Point(parts) => {
            let range = KeyRange { equal: parts.to_vec(), ..KeyRange::default() };
            by_index(primary(&t.table), range_text(&range, t.table.key_columns(), own, outer))
        }
        Access::Ranges { index, columns, ranges } => {
            let condition = match &**ranges {
                [only] => range_text(only, columns, own, outer),
                several => {
                    format!("{} ranges of ({})", several.len(), joined(columns.iter().map(|c| own(*c))))
                }
            };
            by_index(index_name(&t.table, *index), condition)
        }
    }
}

/// Returns the conditions that a range of an index means.
fn range_text(range: &KeyRange, columns: &[usize], own: &Names<'_>, outer: &Names<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (n, (e, column)) in range.equal.iter().zip(columns).enumerate() {
        let (column, value) = (own(*column), shown(e, outer));
        parts.push(match range.each == Some(n) {
            true => format!("({column} = ANY ({value}))"),
            false => format!("({column} = {value})"),
        });
    }
    if let Some(next) = columns.get(range.equal.len()) {
        let bounds = [(&range.lower, CmpOp::Ge, CmpOp::Gt), (&range.upper, CmpOp::Le, CmpOp::Lt)];
        for (bound, included, excluded) in bounds {
            if let Some((e, is_included)) = bound {
                let op = if *is_included { included } else { excluded };
                parts.push(format!("({} {} {})", own(*next), op.symbol(), shown(e, outer)));
            }
        }
    }
    match parts.len() {
        0 | 1 => parts.pop().unwrap_or_default(),
        _ => format!("({})", parts.join(" AND ")),
    }
}

/// Returns the names of the columns of a source.
fn source_names(source: &Source) -> Box<Names<'_>> {
    match source {
        Source::Table(t) => {
            Box::new(|n| t.table.columns.get(n).map_or_else(|| format!("${n}"), |c| c.name.clone()))
        }
        Source::Loops(steps) => {
            let columns: Vec<String> = steps
                .iter()
                .flat_map(|s| s.columns.iter().map(|c| (&s.target.table, *c)))
                .map(|(table, c)| format!("{}.{}", table.name, table.columns[c].name))
                .collect();
            Box::new(move |n| columns.get(n).cloned().unwrap_or_else(|| format!("${n}")))
        }
        Source::System(table) => Box::new(|n| {
            table.columns.get(n).map_or_else(|| format!("${n}"), |(name, ..)| (*name).to_string())
        }),
        _ => Box::new(|n| format!("column{}", n + 1)),
    }
}

/// Returns the text of a group's slot: a key, or an aggregate.
fn slot_name(s: &Select, n: usize, names: &Names<'_>) -> String {
    let Some(a) = &s.aggregate else { return names(n) };
    match (a.keys.get(n), a.calls.get(n.wrapping_sub(a.keys.len()))) {
        (Some(key), _) => shown(key, names),
        (None, Some(call)) => call_text(call, names),
        (None, None) => format!("${n}"),
    }
}

fn call_text(call: &AggCall, names: &Names<'_>) -> String {
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    let argument = call.argument.as_ref().map_or_else(|| "*".to_owned(), |e| shown(e, names));
    format!("{}({distinct}{argument})", name_of(call.kind))
}

/// Returns the name of an aggregate. It is made from the name of its `AggKind`.
fn name_of(kind: AggKind) -> String {
    let written = format!("{kind:?}");
    let own = written.split_once('(').map_or(written.as_str(), |(_, inner)| inner.trim_end_matches(')'));
    let mut name = String::new();
    for c in own.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(c.to_lowercase());
    }
    name
}

fn sort_keys(s: &Select, names: &Names<'_>) -> String {
    let key = |output: usize| s.outputs.get(output).map(|o| shown(&o.expr, names)).unwrap_or_default();
    let ordered = s.order.iter().map(|k| {
        let nulls = match (k.descending, k.nulls_first) {
            (false, true) => " NULLS FIRST",
            (true, false) => " NULLS LAST",
            _ => "",
        };
        format!("{}{}{nulls}", key(k.output), if k.descending { " DESC" } else { "" })
    });
    let rest = (0..s.visible).filter(|n| s.distinct && !s.order.iter().any(|k| k.output == *n));
    joined(ordered.chain(rest.map(key)))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns the name of the tree that stores the rows.
pub fn primary(table: &TableDef) -> &str {
    table.primary_key.as_ref().map_or("row order", |k| k.name.as_str())
}

/// Returns the name of an index.
pub fn index_name(table: &TableDef, index: ScanIndex) -> &str {
    match index {
        ScanIndex::Primary => primary(table),
        ScanIndex::Secondary(id) => table.index(id).map_or("?", |i| i.name.as_str()),
    }
}

/// Returns the step of a scan in a general query: the table, the access path, and the condition on its rows.
pub fn scan_of(t: &TableAccess, filter: Option<&Expr>) -> Step {
    Steps { meter: None, guesses: None }.scan(t, filter, 0)
}
