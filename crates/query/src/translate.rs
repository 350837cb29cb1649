//! Translates a query to DataFusion's logical plan. The binder has already resolved the names and types of
//! the query.
//!
//! Invariants
//! 1. Every column has a name that is unique in the whole plan.
//! 2. DataFusion compares, groups and sorts only values that `comparable` returns. These are values that
//!    DataFusion orders as PostgreSQL does, or keys whose bytes have PostgreSQL's order.
//! 3. A condition that may fail is evaluated after the earlier conditions that use no other tables, and only
//!    for rows that satisfy them. PostgreSQL also checks the conditions on one table in their order.
//!
//! Subqueries are in `subqueries`, set operations in `sets`, and conditions derived from an OR in `factor`.

mod constants;
mod distinct_calls;
mod expand;
mod factor;
mod grouping_sets;
mod limits;
mod outer;
mod sets;
mod subqueries;
mod windows;
mod with;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{Column, JoinType, Result, TableReference};
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::{Expr as Logical, LogicalPlan, LogicalPlanBuilder, lit};
use varve_engine::{Table, TableDef, Value};
use varve_sql::general::{
    Access, AggCall, AggKind, Aggregate, Around, CmpOp, Expr, JoinKind, Output, Query, Select, SortKey,
    Source, SqlError, SystemTable, Ty, Typed, Unnest, choose, joined,
};
use varve_sql::planted;

use crate::aggregate::function;
use crate::cells::{CellsBuilder, data_type, is_native};
use crate::columns::{column_name, column_types};
use crate::computed::{Computed, Direction, comparable, order_of};
use crate::constants::hangs_on_execution;
use crate::error::wrapped;
use crate::failing::may_fail;
use crate::fold::Fold;
use crate::kept::{Assumed, Snapshot};
use crate::rows::{Rows, RowsTable};
use crate::shared::{SharedQueries, WorkRows};
use crate::subquery_scan::SubqueryScan;
use crate::table::SnapshotTable;

/// A column of an input and its type.
type Typing = (Column, Ty);

/// Part of a plan, with its columns in the binder's order.
#[derive(Clone)]
struct Part {
    plan: LogicalPlanBuilder,
    columns: Vec<Typing>,
}

/// Translates one query to a plan.
pub struct Translator<'q> {
    tables: &'q [Arc<Table>],
    snapshot: Arc<Snapshot>,
    around: Arc<Around>,
    /// The outermost query of the statement.
    whole: &'q Select,
    names: usize,
    /// The queries of WITH.
    shared: Rc<RefCell<SharedQueries>>,
    /// The recursive queries whose second part is being translated, with the innermost one last. Each has its
    /// number and the rows of the previous iteration.
    turns: Vec<(usize, WorkRows)>,
    /// Whether the query that is being translated reads one row by its primary key.
    of_one_row: bool,
    /// The assumptions of the plan, if it will be cached.
    assumed: Option<Rc<RefCell<Assumed>>>,
}

/// Returns the plan of a query, with a DataFusion context of its own. `assumed` collects the values on which
/// the plan depends, so that the plan can be cached.
pub fn plan(
    query: &Query<'_>,
    around: Arc<Around>,
    snapshot: Arc<Snapshot>,
    assumed: Option<Rc<RefCell<Assumed>>>,
) -> Result<LogicalPlan> {
    let mut shared = SharedQueries::default();
    query.select.each_source(&mut |source| {
        if let Source::Shared(one) = source {
            *shared.uses.entry(Arc::as_ptr(one)).or_default() += 1;
        }
    });
    let shared = Rc::new(RefCell::new(shared));
    let mut translator = Translator {
        tables: &query.tables,
        snapshot,
        around,
        whole: query.select,
        names: 0,
        shared,
        turns: Vec::new(),
        of_one_row: false,
        assumed,
    };
    let part = match &query.only {
        Some(row) => {
            let values = row.values.iter().cloned().map(Expr::Const).collect();
            let part = translator.rows(Rows::Values(vec![values]), row.types.clone())?;
            translator.select_over(part, query.select)?
        }
        None => translator.select(query.select)?,
    };
    part.plan.build()
}

fn as_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Translator<'_> {
    /// Records an assumption of the plan, if it will be cached.
    fn assume(&self, note: impl FnOnce(&mut Assumed)) {
        if let Some(assumed) = &self.assumed {
            note(&mut assumed.borrow_mut());
        }
    }

    /// Returns a name that no other column or relation of the plan has.
    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn select(&mut self, select: &Select) -> Result<Part> {
        if limits::is_found_late(select) {
            return self.limited_late(select);
        }
        let part = self.source(&select.source)?;
        self.select_over(part, select)
    }

    /// Translates a query whose source is already translated.
    fn select_over(&mut self, part: Part, select: &Select) -> Result<Part> {
        let of_one_row = std::mem::replace(&mut self.of_one_row, reads_one(select));
        let part = match puts_off(select) {
            true => self.outputs_last(part, select),
            false => self.ordered_rows(part, select).and_then(|part| self.cut(part, select)),
        };
        self.of_one_row = of_one_row;
        part
    }

    /// Translates a query so that the outputs that are no sort keys are computed after the sort, and only for
    /// the rows that LIMIT returns.
    fn outputs_last(&mut self, part: Part, select: &Select) -> Result<Part> {
        let part = self.grouped_rows(part, select)?;
        let width = part.columns.len();
        let mut order = select.order.to_vec();
        let mut outputs = select.outputs[..select.visible].to_vec();
        let mut keys: Vec<Expr> = order.iter().map(|k| self.own(&select.outputs[k.output].expr)).collect();
        let part = self.applied(part, &mut keys)?;
        let passed = part.columns[..width].iter().enumerate().map(|(n, (_, t))| (Expr::Column(n), *t));
        let types = order.iter().map(|k| select.outputs[k.output].t.ty);
        let values = passed.chain(keys.into_iter().zip(types)).collect();
        let part = self.computed_columns(part, values)?;
        for (n, key) in order.iter_mut().enumerate() {
            if let Some(output) = outputs.get_mut(key.output) {
                output.expr = Expr::Column(width + n);
            }
            key.output = width + n;
        }
        let part = sorted(part, &order)?;
        let part = self.limited(part, select, &order)?;
        if !outputs.iter().any(|output| output.expr.has_subquery()) {
            return self.projected(part, &outputs);
        }
        // A subquery may become a join, which does not keep the order of its rows. So the rows are sorted
        // again.
        let typed = |key: &SortKey| Typed::plain(part.columns[key.output].1);
        let key = |key: &SortKey| Output::new(Expr::Column(key.output), typed(key));
        let keys: Vec<Output> = order.iter().map(key).collect();
        for (n, key) in order.iter_mut().enumerate() {
            key.output = outputs.len() + n;
        }
        outputs.extend(keys);
        let part = self.projected(part, &outputs)?;
        shown(sorted(part, &order)?, select.visible)
    }

    /// Translates a query without LIMIT and OFFSET. The columns that only ORDER BY uses are still in the
    /// result.
    fn ordered_rows(&mut self, part: Part, select: &Select) -> Result<Part> {
        let mut part = self.grouped_rows(part, select)?;
        part = self.projected(part, &select.outputs)?;
        if select.distinct && !planted("query: DISTINCT is lost") {
            part = self.distinct(part, select.outputs.iter().map(|o| o.t))?;
        }
        if !select.distinct_on.is_empty() {
            part = self.first_of_each(part, &select.distinct_on, &select.order)?;
        }
        sorted(part, &select.order)
    }

    /// Translates the conditions, groups and window functions of a query.
    fn grouped_rows(&mut self, mut part: Part, select: &Select) -> Result<Part> {
        let conditions = select.filter.iter().cloned().flat_map(varve_sql::general::conjuncts).collect();
        part = self.filtered(part, conditions)?;
        if let Some(aggregate) = &select.aggregate {
            part = self.aggregated(part, aggregate)?;
        }
        self.windowed(part, &select.windows)
    }

    /// Applies LIMIT and OFFSET, and removes the columns that the query does not return.
    fn cut(&mut self, part: Part, select: &Select) -> Result<Part> {
        let part = self.limited(part, select, &select.order)?;
        shown(part, select.visible)
    }

    /// Translates a subquery in FROM, or a side of UNION ALL. It keeps its order, and its volatile outputs are
    /// computed even if nobody reads them.
    fn subquery(&mut self, select: &Select) -> Result<Part> {
        let Part { plan, columns } = self.select(select)?;
        let mut plan = plan.build()?;
        if !select.order.is_empty() {
            plan = SubqueryScan::keeping_order(plan)?;
        }
        let volatile = select.outputs[..select.visible].iter().zip(&columns);
        let volatile: Vec<String> =
            volatile.filter(|(o, _)| is_volatile(&o.expr)).map(|(_, (c, _))| c.name.clone()).collect();
        if !volatile.is_empty() {
            plan = SubqueryScan::with_volatile(volatile, plan);
        }
        Ok(Part { plan: LogicalPlanBuilder::from(plan), columns })
    }

    fn source(&mut self, source: &Source) -> Result<Part> {
        match source {
            Source::Nothing => Ok(Part { plan: LogicalPlanBuilder::empty(true), columns: Vec::new() }),
            Source::Table(access) => self.table(&access.table, false),
            Source::Target(table) => self.table(table, true),
            Source::Loops(_) => Err(wrapped(SqlError::internal("nested loops are the executor's"))),
            Source::Join(join) => self.join(join),
            Source::Query(select) => self.subquery(select),
            Source::Expand(expand) => self.expanded(expand),
            Source::Shared(shared) => self.shared_rows(shared),
            Source::Work(id, types) => self.work_rows(*id, types),
            Source::System(table) => self.system(table),
            Source::Set(set) => self.set_operation(set),
            Source::Values(rows, types) => self.values(rows, types),
            Source::Unnest(unnest) if unnest.arrays.iter().any(Expr::has_subquery) => {
                self.unnested_late(unnest)
            }
            Source::Unnest(unnest) => {
                let arrays = self.owned(&unnest.arrays).into();
                let types = unnest.types.to_vec();
                self.rows(Rows::Unnest(Unnest { arrays, ..(**unnest).clone() }), types)
            }
            Source::Series(bounds, ty) if bounds.iter().any(Expr::has_subquery) => {
                self.series_late(bounds, *ty)
            }
            Source::Series(bounds, ty) => {
                let bounds = self.owned(bounds.as_slice()).try_into();
                let bounds =
                    bounds.map_err(|_| wrapped(SqlError::internal("generate_series has three bounds")))?;
                self.rows(Rows::Series(Box::new(bounds), *ty), vec![*ty])
            }
        }
    }

    fn table(&mut self, def: &TableDef, keyed: bool) -> Result<Part> {
        let Some(table) = self.tables.iter().find(|t| t.def().id == def.id) else {
            return Err(wrapped(SqlError::internal("a query with a table that was not opened")));
        };
        let provider = SnapshotTable::new(table.clone(), keyed, self.snapshot.clone(), self.around.clone());
        let mut types = column_types(table);
        types.extend(keyed.then_some(Ty::Bytea));
        self.scanned(Arc::new(provider), types)
    }

    fn rows(&mut self, rows: Rows, types: Vec<Ty>) -> Result<Part> {
        let table = RowsTable::new(rows, types.clone(), self.around.clone());
        self.scanned(Arc::new(table), types)
    }

    fn scanned(&mut self, provider: Arc<dyn TableProvider>, types: Vec<Ty>) -> Result<Part> {
        let relation = self.name();
        let plan = LogicalPlanBuilder::scan(relation.as_str(), provider_as_source(provider), None)?;
        let column = |(n, t): (usize, Ty)| (Column::new(Some(relation.as_str()), column_name(n)), t);
        Ok(Part { plan, columns: types.into_iter().enumerate().map(column).collect() })
    }

    /// Translates the rows of VALUES. A row with a subquery becomes a plan of its own.
    fn values(&mut self, rows: &[Vec<Expr>], types: &[Ty]) -> Result<Part> {
        let queries = |row: &Vec<Expr>| row.iter().any(Expr::has_subquery);
        let mut parts = Vec::new();
        for run in rows.chunk_by(|a, b| !queries(a) && !queries(b)) {
            match run {
                [row] if queries(row) => {
                    let mut values = self.owned(row);
                    let nothing = self.source(&Source::Nothing)?;
                    let part = self.applied(nothing, &mut values)?;
                    let typed = values.into_iter().zip(types.iter().copied()).collect();
                    parts.push(self.computed_columns(part, typed)?);
                }
                plain => {
                    let rows = plain.iter().map(|row| self.owned(row)).collect();
                    parts.push(self.rows(Rows::Values(rows), types.to_vec())?);
                }
            }
        }
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => self.all_of(parts.into_iter().map(|part| (part, Vec::new())).collect()),
        }
    }

    /// Returns the expression with the values that are given to this subquery replaced by parameters.
    fn own(&self, expr: &Expr) -> Expr {
        let first = self.around.statement_params();
        let mut expr = expr.clone();
        expr.walk_mut(&mut |e| {
            if let Expr::Outer(n) = e {
                *e = Expr::Param(first + *n);
            }
        });
        expr
    }

    fn owned(&self, exprs: &[Expr]) -> Vec<Expr> {
        exprs.iter().map(|e| self.own(e)).collect()
    }

    /// Translates a system table. Its rows are computed now and are part of the plan.
    fn system(&mut self, table: &SystemTable) -> Result<Part> {
        self.assume(|assumed| assumed.is_of_one_run = true);
        let types = || table.columns.iter().map(|(_, ty, _)| *ty);
        let mut cells: Vec<CellsBuilder> = types().map(CellsBuilder::new).collect();
        for row in self.around.system_rows(table).map_err(wrapped)? {
            cells.iter_mut().zip(&row).for_each(|(column, value)| column.push(value.as_datum()));
        }
        let fields = types().enumerate().map(|(n, t)| Field::new(column_name(n), data_type(t), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = cells.iter_mut().map(CellsBuilder::finish).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays)?;
        let table = MemTable::try_new(schema, vec![vec![batch]])?;
        self.scanned(Arc::new(table), types().collect())
    }

    fn joined(&mut self, kind: JoinKind, left: Part, right: Part, on: Vec<Expr>) -> Result<Part> {
        let mut columns = left.columns;
        columns.extend(right.columns);
        let right = right.plan.build()?;
        let kind = match kind {
            JoinKind::Inner if on.is_empty() => {
                return Ok(Part { plan: left.plan.cross_join(right)?, columns });
            }
            JoinKind::Inner => JoinType::Inner,
            JoinKind::Left if planted("query: a left join is an inner one") => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
            JoinKind::Full => JoinType::Full,
        };
        let mut on = self.conditions(on, &columns);
        if on.is_empty() {
            // The join has no condition, such as a NATURAL join without a common column. DataFusion needs
            // one.
            on.push(lit(true));
        }
        if on.len() > 1 && planted("query: the last condition of a join is dropped") {
            on.pop();
        }
        Ok(Part { plan: left.plan.join_on(right, kind, on)?, columns })
    }

    /// Keeps the rows for which all conditions hold: first those without subqueries, then those that joins
    /// can check.
    fn filtered(&mut self, part: Part, conditions: Vec<Expr>) -> Result<Part> {
        let conditions = self.owned(&conditions);
        let (queries, plain): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(Expr::has_subquery);
        let mut part = self.kept(part, plain)?;
        let mut left = Vec::new();
        for condition in queries {
            match self.member(&part, &condition)? {
                Some(joined) => part = joined,
                None => left.push(condition),
            }
        }
        for mut condition in left {
            let width = part.columns.len();
            part = self.applied(part, std::slice::from_mut(&mut condition))?;
            part = self.kept(part, vec![condition])?;
            // The binder does not know the columns with the answers of subqueries. So they are removed, and
            // later columns are numbered without them.
            part.columns.truncate(width);
        }
        Ok(part)
    }

    fn kept(&mut self, part: Part, conditions: Vec<Expr>) -> Result<Part> {
        let mut plan = part.plan;
        for condition in self.conditions(conditions, &part.columns) {
            plan = plan.filter(condition)?;
        }
        Ok(Part { plan, ..part })
    }

    /// Returns conditions that may each be moved separately. A condition that may fail is combined with the
    /// earlier conditions that use no other relations.
    fn conditions(&mut self, conditions: Vec<Expr>, columns: &[Typing]) -> Vec<Logical> {
        let mut before: Vec<Expr> = Vec::new();
        let mut out = Vec::new();
        let conditions = conditions.into_iter().map(|e| self.folded(e)).collect();
        for condition in factor::factored(conditions, &|e| relations(e, columns)) {
            let reads = relations(&condition, columns);
            let guards = before.iter().filter(|b| relations(b, columns).is_subset(&reads));
            let whole = if may_fail(&condition) && !is_join_key(&condition, columns) {
                joined(guards.chain([&condition]).cloned().collect()).unwrap_or_else(|| condition.clone())
            } else {
                condition.clone()
            };
            before.push(condition);
            out.push(self.condition(whole, columns));
        }
        out
    }

    /// Translates a condition. A comparison between columns of two sides is passed to DataFusion as a
    /// comparison, so that DataFusion can use it as the key of a join.
    fn condition(&mut self, condition: Expr, columns: &[Typing]) -> Logical {
        if let Expr::Compare(op, sides) = &condition
            && let (Some(left), Some(right)) = (self.side(&sides.0, columns), self.side(&sides.1, columns))
            && are_one_type(left.1, right.1)
        {
            return compared(*op, comparable(left.0, left.1), comparable(right.0, right.1));
        }
        self.computed(condition, Ty::Bool, columns)
    }

    /// Returns a side of a comparison and its type, if the side reads columns and its type is known.
    fn side(&mut self, side: &Expr, columns: &[Typing]) -> Option<(Logical, Ty)> {
        if side.is_constant() {
            return None;
        }
        let ty = side.type_in(&|n| columns[n].1, &|n| self.around.param_type(n))?;
        Some((self.computed(side.clone(), ty, columns), ty))
    }

    /// Translates an expression over the columns of its input.
    fn computed(&mut self, mut expr: Expr, result: Ty, columns: &[Typing]) -> Logical {
        if let Expr::Column(n) | Expr::Slot(n) = &expr {
            let n = &shifted(*n, columns);
            return Logical::Column(columns[*n].0.clone());
        }
        expr = self.folded(expr);
        let mut read: Vec<usize> = Vec::new();
        expr.walk_mut(&mut |e| {
            if let Expr::Column(n) | Expr::Slot(n) = e {
                let slot = read.iter().position(|r| r == n).unwrap_or_else(|| {
                    read.push(*n);
                    read.len() - 1
                });
                *e = Expr::Slot(slot);
            }
        });
        let argument = |n: &usize| (Logical::Column(columns[*n].0.clone()), columns[*n].1);
        // The values that are given to a subquery differ from run to run. So an expression with such values
        // must not be computed once for the plan.
        let varies = self.is_given(&expr) || self.assumed.is_some() && hangs_on_execution(&expr);
        let begun = varies.then(|| self.snapshot.begun());
        Computed::call(expr, result, read.iter().map(argument).collect(), begun, &self.around)
    }

    /// Returns whether the expression reads values that are given to this subquery.
    fn is_given(&self, expr: &Expr) -> bool {
        let first = self.around.statement_params();
        let mut given = false;
        expr.walk(&mut |e| given |= matches!(e, Expr::Param(n) if *n >= first));
        given
    }

    /// Translates groups. The columns are the keys, followed by the aggregates.
    fn aggregated(&mut self, part: Part, aggregate: &Aggregate) -> Result<Part> {
        let mut keys = self.owned(&aggregate.keys);
        let mut calls = aggregate.calls.to_vec();
        let mut part = self.applied(part, &mut keys)?;
        for call in &mut calls {
            for e in call.exprs_mut() {
                *e = self.own(e);
                part = self.applied(part, std::slice::from_mut(e))?;
            }
        }
        if !aggregate.sets.is_empty() {
            let part = self.grouped_by_sets(part, aggregate, keys, calls)?;
            return self.having(part, aggregate);
        }
        let types = &aggregate.key_types;
        if let Some(Grouping { rows, keys, calls }) = self.distinct_calls(&part, &keys, types, &calls)? {
            let part = self.grouped(rows.plan, keys, calls)?;
            return self.having(part, aggregate);
        }
        let keys = keys.into_iter().zip(types);
        let keys: Vec<Key> = keys.map(|(e, t)| self.key(e, *t, &part.columns)).collect();
        let mut calls: Vec<(Logical, Ty)> = calls.iter().map(|call| self.call(call, &part.columns)).collect();
        if keys.is_empty() && calls.is_empty() {
            // The query has only HAVING. DataFusion needs an aggregate for the single group.
            let fold = Fold::Call { kind: AggKind::Count, distinct: false };
            calls.push((self::aggregate(fold, lit(1i64), Ty::Int8, Ty::Int8, None), Ty::Int8));
        }
        let part = self.grouped(part.plan, keys, calls)?;
        self.having(part, aggregate)
    }

    fn having(&mut self, part: Part, aggregate: &Aggregate) -> Result<Part> {
        match &aggregate.having {
            Some(_) if planted("query: HAVING is lost") => Ok(part),
            Some(having) => self.filtered(part, varve_sql::general::conjuncts(having.as_ref().clone())),
            None => Ok(part),
        }
    }

    fn call(&mut self, call: &AggCall, columns: &[Typing]) -> (Logical, Ty) {
        let argument = match &call.argument {
            Some(e) if call.distinct && call.kind == AggKind::Count => {
                self.computed(windows::without_blanks(e.clone(), call.input), call.input, columns)
            }
            Some(e) => self.computed(e.clone(), call.input, columns),
            None => lit(1i64),
        };
        let filter = call.filter.clone().filter(|_| !planted("query: FILTER is lost"));
        let filter = filter.map(|f| Box::new(self.computed(f, Ty::Bool, columns)));
        let fold = Fold::Call { kind: call.kind, distinct: call.distinct };
        let mut arguments = vec![argument];
        let second_ty = call.kind.second_type(call.input);
        if call.kind.is_of_pairs() {
            arguments.extend(call.second.clone().map(|e| self.computed(e, second_ty, columns)));
        }
        if call.kind.collects() {
            let second = call.second.clone().unwrap_or(Expr::Const(Value::Null));
            arguments.push(self.computed(second, second_ty, columns));
            arguments.push(self.order_of_call(&call.order, columns));
        }
        (aggregate_of(fold, arguments, call.input, call.output, filter), call.output)
    }

    /// Groups by `keys`. If the grouping does not compare the values of a key directly, the value of the
    /// group's first row is returned.
    fn grouped(
        &mut self,
        plan: LogicalPlanBuilder,
        keys: Vec<Key>,
        calls: Vec<(Logical, Ty)>,
    ) -> Result<Part> {
        let (mut by, mut folds, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for Key { shown, ty, bare } in keys {
            let name = self.name();
            match bare {
                None if is_native(ty) => by.push(shown.alias(&name)),
                bare => {
                    by.push(bare.unwrap_or_else(|| comparable(shown.clone(), ty)).alias(self.name()));
                    folds.push(aggregate(Fold::First, shown, ty, ty, None).alias(&name));
                }
            }
            columns.push((Column::new_unqualified(name), ty));
        }
        for (call, ty) in calls {
            let name = self.name();
            folds.push(call.alias(&name));
            columns.push((Column::new_unqualified(name), ty));
        }
        if by.is_empty() && planted("query: an aggregate of nothing has no row") {
            by.push(lit(true).alias(self.name()));
        }
        Ok(Part { plan: plan.aggregate(by, folds)?, columns })
    }

    fn projected(&mut self, part: Part, outputs: &[Output]) -> Result<Part> {
        let mut values: Vec<Expr> = outputs.iter().map(|o| self.own(&o.expr)).collect();
        let part = self.applied(part, &mut values)?;
        let values = values.into_iter().zip(outputs).map(|(e, o)| (e, o.t.ty)).collect();
        self.computed_columns(part, values)
    }

    /// Returns a part with exactly these values as columns.
    fn computed_columns(&mut self, part: Part, values: Vec<(Expr, Ty)>) -> Result<Part> {
        if values.is_empty() && part.plan.schema().fields().is_empty() {
            return Ok(part);
        }
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for (value, ty) in values {
            let name = self.name();
            exprs.push(self.computed(value, ty, &part.columns).alias(&name));
            columns.push((Column::new_unqualified(name), ty));
        }
        Ok(Part { plan: part.plan.project(exprs)?, columns })
    }

    /// Returns the first row of each group of rows that are equal in the columns `on`. `order` decides which
    /// row is the first.
    fn first_of_each(&mut self, part: Part, on: &[usize], order: &[SortKey]) -> Result<Part> {
        let place = self.name();
        let column = |n: usize| Logical::Column(part.columns[n].0.clone());
        let by = order.iter().map(|k| {
            let direction = Direction { descending: k.descending, nulls_first: k.nulls_first };
            (column(k.output), part.columns[k.output].1, direction)
        });
        let whole = (0..part.columns.len()).map(column).chain([order_of(by.collect()).alias(&place)]);
        let plan = part.plan.clone().project(whole.collect::<Vec<_>>())?;
        let keys: Vec<Logical> =
            on.iter().map(|n| comparable(column(*n), part.columns[*n].1).alias(self.name())).collect();
        let (mut folds, mut columns) = (Vec::new(), Vec::new());
        for (column, ty) in &part.columns {
            let name = self.name();
            let arguments =
                vec![Logical::Column(column.clone()), Logical::Column(Column::new_unqualified(&place))];
            folds.push(aggregate_of(Fold::Least, arguments, *ty, *ty, None).alias(&name));
            columns.push((Column::new_unqualified(name), *ty));
        }
        Ok(Part { plan: plan.aggregate(keys, folds)?, columns })
    }

    /// Returns each distinct row once. The columns have these types.
    fn distinct(&mut self, part: Part, types: impl Iterator<Item = Typed>) -> Result<Part> {
        let types = types.take(part.columns.len()).enumerate();
        let keys = types.map(|(n, t)| self.key(Expr::Column(n), t, &part.columns)).collect();
        self.grouped(part.plan, keys, Vec::new())
    }

    /// Returns a key of groups. Blanks at the end of a char(n) are not compared. A char without a length may
    /// have such blanks.
    fn key(&mut self, e: Expr, t: Typed, columns: &[Typing]) -> Key {
        let bare = t.may_have_blanks().then(|| {
            let bare = Expr::Cast(Box::new(e.clone()), Ty::Char, Typed::plain(Ty::Text), false);
            self.computed(bare, Ty::Text, columns)
        });
        Key { shown: self.computed(e, t.ty, columns), ty: t.ty, bare }
    }
}

/// Rows to group, the keys of the groups, and the aggregates with the types of their results.
struct Grouping {
    rows: Part,
    keys: Vec<Key>,
    calls: Vec<(Logical, Ty)>,
}

/// A key by which rows are grouped.
struct Key {
    shown: Logical,
    ty: Ty,
    /// The value that is compared, if it differs from the value that is shown.
    bare: Option<Logical>,
}

impl Key {
    fn plain(shown: Logical, ty: Ty) -> Key {
        Key { shown, ty, bare: None }
    }
}

fn aggregate(fold: Fold, argument: Logical, input: Ty, output: Ty, filter: Option<Box<Logical>>) -> Logical {
    aggregate_of(fold, vec![argument], input, output, filter)
}

fn aggregate_of(
    fold: Fold,
    arguments: Vec<Logical>,
    input: Ty,
    output: Ty,
    filter: Option<Box<Logical>>,
) -> Logical {
    let function = function(fold, input, output);
    Logical::AggregateFunction(AggregateFunction::new_udf(
        function,
        arguments,
        false,
        filter,
        Vec::new(),
        None,
    ))
}

/// Returns whether DataFusion compares values of these types as PostgreSQL does. Then it can join by their
/// equality.
fn are_one_type(left: Ty, right: Ty) -> bool {
    let is_text = |ty| matches!(ty, Ty::Text | Ty::Varchar);
    left == right || left.is_integer() && right.is_integer() || is_text(left) && is_text(right)
}

fn compared(op: CmpOp, left: Logical, right: Logical) -> Logical {
    match op {
        CmpOp::Eq => left.eq(right),
        CmpOp::Ne => left.not_eq(right),
        CmpOp::Lt => left.lt(right),
        CmpOp::Le => left.lt_eq(right),
        CmpOp::Gt => left.gt(right),
        CmpOp::Ge => left.gt_eq(right),
    }
}

fn sorted(part: Part, order: &[SortKey]) -> Result<Part> {
    if order.is_empty() {
        return Ok(part);
    }
    let keys = sort_keys(&part.columns, order);
    Ok(Part { plan: part.plan.sort(keys)?, ..part })
}

fn sort_keys(columns: &[Typing], order: &[SortKey]) -> Vec<Sort> {
    let key = |k: &SortKey| {
        let (column, ty) = &columns[k.output];
        Sort::new(comparable(Logical::Column(column.clone()), *ty), !k.descending, k.nulls_first)
    };
    order.iter().map(key).collect()
}

/// Returns the number of the column. If a planted fault is active, returns the number of the previous column
/// if it has the same type.
fn shifted(n: usize, columns: &[Typing]) -> usize {
    let wrong = planted("query: a column is read from its neighbour");
    if wrong && n > 0 && columns[n - 1].1 == columns[n].1 { n - 1 } else { n }
}

/// Returns only the columns that the query returns. Columns that only ORDER BY needs, and the keys of groups,
/// are left out.
fn shown(mut part: Part, visible: usize) -> Result<Part> {
    part.columns.truncate(visible);
    let schema = part.plan.schema();
    let same = schema.fields().len() == visible
        && part.columns.iter().zip(schema.columns()).all(|((wanted, _), there)| *wanted == there);
    if same {
        return Ok(part);
    }
    let columns: Vec<Logical> = part.columns.iter().map(|(c, _)| Logical::Column(c.clone())).collect();
    Ok(Part { plan: part.plan.project(columns)?, ..part })
}

/// Returns whether outputs are computed after LIMIT, or, if they are volatile (use sequences, take locks),
/// after the sort. This is possible if no sort and no comparison uses them.
fn puts_off(select: &Select) -> bool {
    let is_key = |n: usize| select.order.iter().any(|k| k.output == n);
    let others = || select.outputs.iter().enumerate().filter(|(n, _)| !is_key(*n)).map(|(_, o)| &o.expr);
    let is_cut = select.limit.is_some() || select.offset.is_some();
    let is_ordered = !select.order.is_empty();
    !select.distinct
        && select.distinct_on.is_empty()
        && (is_cut && others().any(Expr::has_subquery) || (is_cut || is_ordered) && others().any(is_volatile))
}

/// Returns whether the expression, or a subquery in it, calls a function that has side effects or returns
/// another result at each call.
fn is_volatile(e: &Expr) -> bool {
    let mut found = false;
    e.walk(&mut |e| {
        found |= match e {
            Expr::Call(function, _) => function.volatile,
            Expr::Subquery(_, subquery) => subquery.select.is_volatile(),
            _ => false,
        }
    });
    found
}

/// Returns whether the query reads one row of a table, by its primary key.
fn reads_one(select: &Select) -> bool {
    let table = match &select.source {
        Source::Table(access) => &access.table,
        Source::Target(table) => table,
        _ => return false,
    };
    let conditions = select.filter.iter().cloned().flat_map(varve_sql::general::conjuncts);
    let plain: Vec<Expr> = conditions.filter(|e| !e.has_subquery()).collect();
    matches!(choose(table, &plain, None, false).access, Access::Point(_))
}

/// Returns whether the condition compares a value of one relation with a value of another relation.
/// Conditions on one relation alone are checked below the join.
fn is_join_key(condition: &Expr, columns: &[Typing]) -> bool {
    let Expr::Compare(_, sides) = condition else { return false };
    let (left, right) = (relations(&sides.0, columns), relations(&sides.1, columns));
    left.len() == 1 && right.len() == 1 && left != right
}

/// Returns the relations that an expression reads. All columns that are computed above a join count as one
/// relation.
fn relations<'c>(expr: &Expr, columns: &'c [Typing]) -> BTreeSet<Option<&'c str>> {
    let mut out = BTreeSet::new();
    expr.walk(&mut |e| {
        if let Expr::Column(n) | Expr::Slot(n) = e {
            out.insert(columns[*n].0.relation.as_ref().map(TableReference::table));
        }
    });
    out
}
