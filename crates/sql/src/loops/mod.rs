//! Short joins: decides which joins the executor runs as nested loops, and in which order it reads their
//! tables.
//!
//! Invariants
//! 1. Only inner joins of two to four tables become nested loops. The first table is read through an index,
//!    by constants. Each further table is read by its unique key, or by a key prefix that uses every equality
//!    with the earlier tables. All other joins are left to DataFusion, because a nested loop could read a
//!    table many times.
//! 2. A condition is checked at the first step that has all its columns, after earlier conditions on the same
//!    tables.
//! 3. The rows of the nested loops have only the used columns, in the order of the steps. Expressions number
//!    the columns in this order.
//!
//! This module does not know statistics. Two orders are compared by how many key columns each step has.

mod equal;
mod renumber;

use std::sync::Arc;

use varve_engine::TableDef;

use crate::access::{self, Choice, WantedOrder};
use crate::eval::{CmpOp, Expr};
use crate::plan::{Access, Join, JoinKind, KeyRange, Select, Source};
use equal::Classes;

/// The largest number of tables in nested loops.
pub(crate) const TABLES_MAX: usize = 4;

/// A table of the join.
pub(super) struct JoinedTable {
    pub(super) table: Arc<TableDef>,
    /// The ordinal of the table's first column in the joined row.
    pub(super) first: usize,
}

impl JoinedTable {
    fn holds(&self, column: usize) -> bool {
        (self.first..self.first + self.table.columns.len()).contains(&column)
    }
}

/// The parts of a join.
pub(super) struct JoinParts {
    pub(super) tables: Vec<JoinedTable>,
    /// The equalities among the conditions.
    classes: Classes,
    /// All other conditions.
    conditions: Vec<Expr>,
}

/// One table in a chosen order. In `conditions`, columns of the table count from 0, and columns of earlier
/// tables are slots with their ordinal in the joined row.
pub(super) struct Chosen {
    /// The index of the table.
    pub(super) part: usize,
    pub(super) conditions: Vec<Expr>,
    pub(super) choice: Choice,
    /// Whether there is at most one row for each row of the earlier tables.
    single: bool,
    /// Whether the order is descending, if the scan returns rows in the order that the query wants. `None` if
    /// it does not.
    pub(super) ordered: Option<bool>,
}

/// Plans the query's join as nested loops, if it is a short one. Otherwise returns the conditions.
pub fn place(
    select: &mut Select,
    source: &Source,
    conditions: Vec<Expr>,
    order: Option<&WantedOrder>,
) -> Result<(), Vec<Expr>> {
    let Some((tables, on)) = inner_tables(source) else { return Err(conditions) };
    let all: Vec<Expr> = on.into_iter().chain(conditions.iter().cloned()).collect();
    let (classes, rest) = Classes::of(all, &|column| column_type(&tables, column));
    let parts = JoinParts { tables, classes, conditions: rest };
    let limited = select.limit.is_some();
    let mut search = Search { parts: &parts, order, limited, best: None, steps: Vec::new() };
    search.extend(0.0, 1.0);
    let Some((_, best)) = search.best.take() else { return Err(conditions) };
    best.into_iter().for_each(|part| search.push(part));
    let steps = search.steps;
    renumber::apply(select, &parts, steps);
    Ok(())
}

fn column_type(tables: &[JoinedTable], column: usize) -> Option<varve_engine::ColumnType> {
    let part = tables.iter().find(|p| p.holds(column))?;
    Some(part.table.columns[column - part.first].column_type)
}

/// Returns the tables of inner joins, and the conditions over the joined row.
fn inner_tables(source: &Source) -> Option<(Vec<JoinedTable>, Vec<Expr>)> {
    let (mut tables, mut conditions) = (Vec::new(), Vec::new());
    collect(source, 0, &mut tables, &mut conditions)?;
    (2..=TABLES_MAX).contains(&tables.len()).then_some((tables, conditions))
}

fn collect(
    source: &Source,
    first: usize,
    tables: &mut Vec<JoinedTable>,
    conditions: &mut Vec<Expr>,
) -> Option<()> {
    match source {
        Source::Table(t) => tables.push(JoinedTable { table: t.table.clone(), first }),
        Source::Join(join) => {
            let Join { kind: JoinKind::Inner, left, right, left_width, on, lateral: None } = join.as_ref()
            else {
                return None;
            };
            collect(left, first, tables, conditions)?;
            collect(right, first + left_width, tables, conditions)?;
            conditions.extend(on.iter().cloned().map(|c| shifted(c, first)));
        }
        _ => return None,
    }
    Some(())
}

/// Shifts the columns of a join's condition. The join's first column has the ordinal `first` in the joined
/// row.
fn shifted(mut condition: Expr, first: usize) -> Expr {
    condition.walk_mut(&mut |e| {
        if let Expr::Column(n) = e {
            *n += first;
        }
    });
    condition
}

/// The search for the cheapest order, which tries all orders.
struct Search<'p> {
    parts: &'p JoinParts,
    order: Option<&'p WantedOrder>,
    limited: bool,
    /// The cheapest order so far.
    best: Option<(f64, Vec<usize>)>,
    /// The steps of the current order.
    steps: Vec<Chosen>,
}

impl Search<'_> {
    /// Tries each table that may come next. `cost` is the number of rows read so far. `rows` is the number of
    /// rows that the steps so far return.
    fn extend(&mut self, cost: f64, rows: f64) {
        if self.best.as_ref().is_some_and(|(least, _)| cost >= *least) {
            return;
        }
        if self.steps.len() == self.parts.tables.len() {
            self.best = Some((cost, self.steps.iter().map(|s| s.part).collect()));
            return;
        }
        for part in 0..self.parts.tables.len() {
            if self.steps.iter().any(|s| s.part == part) {
                continue;
            }
            let Some((step, found)) = self.step(part) else { continue };
            self.steps.push(step);
            self.extend(cost + rows * found, rows * found);
            self.steps.pop();
        }
    }

    fn push(&mut self, part: usize) {
        self.steps.extend(self.step(part).map(|(step, _)| step));
    }

    /// Returns the access path of a table that is joined to the steps so far, and the number of rows that it
    /// may find. Returns `None` if there is no short path.
    fn step(&self, part: usize) -> Option<(Chosen, f64)> {
        let before: Vec<usize> = self.steps.iter().map(|s| s.part).collect();
        let conditions = self.parts.conditions_at(&before, part);
        let order = self.order_at(&before, part);
        let table = &self.parts.tables[part].table;
        let choice = access::choose(table, &conditions, order.as_ref(), self.limited);
        let known = known(table, &choice.access)?;
        let leftover = conditions.iter().zip(&choice.covered).any(|(c, covered)| !covered && links(c));
        if leftover && !known.unique {
            return None;
        }
        let single = known.unique && known.ranges == 1;
        let ordered = order.filter(|_| choice.ordered).map(|o| o.descending);
        Some((Chosen { part, conditions, choice, single, ordered }, known.rows()))
    }

    /// Returns the wanted order as columns of this table, if the earlier tables have at most one row.
    fn order_at(&self, before: &[usize], part: usize) -> Option<WantedOrder> {
        let wanted = self.order?;
        if !self.steps.iter().all(|s| s.single) {
            return None;
        }
        let tables = &self.parts.tables;
        let mut columns = Vec::new();
        for column in &wanted.columns {
            if tables[part].holds(*column) {
                columns.push(column - tables[part].first);
            } else if !before.iter().any(|b| tables[*b].holds(*column)) {
                return None;
            }
        }
        Some(WantedOrder { columns, descending: wanted.descending })
    }
}

impl JoinParts {
    /// Returns the conditions to check when a table is joined to the earlier tables.
    fn conditions_at(&self, before: &[usize], part: usize) -> Vec<Expr> {
        let known = |c: usize| before.iter().any(|b| self.tables[*b].holds(c));
        let table = &self.tables[part];
        let last = before.len() + 1 == self.tables.len();
        let mut out = self.classes.conditions(&|c| table.holds(c), &known);
        for condition in &self.conditions {
            let (mut own, mut complete, mut plain) = (false, true, true);
            condition.walk(&mut |e| {
                if let Expr::Column(c) = e {
                    plain = false;
                    own |= table.holds(*c);
                    complete &= table.holds(*c) || known(*c);
                }
            });
            let due =
                if condition.is_volatile() { last } else { complete && (own || plain && before.is_empty()) };
            if due {
                out.push(condition.clone());
            }
        }
        out.iter_mut().for_each(|c| self.localize(c, part));
        out
    }

    fn localize(&self, condition: &mut Expr, part: usize) {
        let table = &self.tables[part];
        condition.walk_mut(&mut |e| {
            if let Expr::Column(c) = e {
                *e = if table.holds(*c) { Expr::Column(*c - table.first) } else { Expr::Slot(*c) };
            }
        });
    }
}

/// Returns whether a condition is an equality between the table of the step and an earlier table.
fn links(condition: &Expr) -> bool {
    let Expr::Compare(CmpOp::Eq, _) = condition else { return false };
    let (mut own, mut other) = (false, false);
    condition.walk(&mut |e| match e {
        Expr::Column(_) => own = true,
        Expr::Slot(_) => other = true,
        _ => {}
    });
    own && other
}

/// The part of a key whose values an access path knows.
struct KeyPrefix {
    unique: bool,
    ranges: usize,
    /// The number of columns of the key without a known value.
    open: usize,
    /// Whether the column after the known ones has a lower and an upper bound.
    closed: bool,
}

/// Describes an access path. Returns `None` for a path that reads the whole table, or everything above or
/// below one bound.
fn known(table: &TableDef, access: &Access) -> Option<KeyPrefix> {
    let (index, columns, ranges) = match access {
        Access::Full => return None,
        Access::Point(_) => return Some(KeyPrefix { unique: true, ranges: 1, open: 0, closed: false }),
        Access::Ranges { index, columns, ranges } => (index, columns, ranges),
    };
    let closed = |r: &KeyRange| r.lower.is_some() && r.upper.is_some();
    let equal = ranges.iter().map(|r| r.equal.len()).min()?;
    if equal == 0 && !ranges.iter().all(closed) {
        return None;
    }
    let is_unique = match index {
        varve_engine::ScanIndex::Primary => true,
        varve_engine::ScanIndex::Secondary(id) => table.index(*id).is_some_and(|i| i.unique),
    };
    let open = columns.len().saturating_sub(equal);
    let unique = is_unique && open == 0;
    // The number of elements of an array is unknown here. 10 is a guess.
    let each = if ranges.iter().any(|r| r.each.is_some()) { 10 } else { 1 };
    Some(KeyPrefix { unique, ranges: ranges.len() * each, open, closed: ranges.iter().all(closed) })
}

impl KeyPrefix {
    /// Guesses the number of rows. The guess is good enough to distinguish a whole key from a prefix, and a
    /// long prefix from a short one.
    fn rows(&self) -> f64 {
        let each = if self.unique { 1.0 } else { 10.0 * 30f64.powi(self.open as i32) };
        self.ranges as f64 * if self.closed { each / 10.0 } else { each }
    }
}
