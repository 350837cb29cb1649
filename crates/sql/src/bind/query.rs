//! Binds SELECT and VALUES.
//!
//! Invariants
//! 1. A query that this crate's executor cannot run is marked `general`: DataFusion runs it. Its conditions
//!    and its order stay as written.
//! 2. Outputs that only ORDER BY needs come after the outputs that the client sees.
//! 3. A row is locked only if the newest version satisfies the whole WHERE clause. Another transaction may
//!    have changed the row after it was found, even in its key.
//!
//! This module does not know how rows are read.

use super::bound::{Bound, BoundQuery, Returned};
use super::items::Items;
use super::order::orderable;
use super::scope::{GROUPING_SET_SLOT, Grouping, Relation, Scope, Sets, Windows};
use super::set::WrittenSetOperation;
use super::{Binder, clauses, lock, outer_joins};
use crate::access::{self, WantedOrder};
use crate::ast::{self, Expr as Ast, SelectItem, SetExpr};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::loops;
use crate::plan::{Aggregate, Output, Select, SortKey, Source, TableAccess, WinCall};
use crate::ty::{Ty, Typed};

impl Binder<'_> {
    /// Binds a whole query.
    pub fn query(&mut self, q: &ast::Query) -> Result<BoundQuery> {
        match &q.with {
            Some(with) => self.with_named(with, |b| b.query_body(q)),
            None => self.query_body(q),
        }
    }

    pub(super) fn query_body(&mut self, q: &ast::Query) -> Result<BoundQuery> {
        match q.body.as_ref() {
            SetExpr::Select(s) => self.select(s, q),
            SetExpr::Values(v) => self.values(v, q),
            SetExpr::Query(inner) => self.query(&clauses::without_parentheses(q, inner)?),
            SetExpr::SetOperation { left, op, all, right } => {
                let written = WrittenSetOperation { op: *op, all: *all, left, right };
                self.set_operation(&written, q)
            }
        }
    }

    /// Binds a SELECT. A query with GROUP BY or HAVING is grouped from the start. Another query becomes
    /// grouped at the first aggregate in its outputs. An output that was bound before may be wrong in a
    /// grouped query. The query is then bound again as grouped from the start, to report the error.
    fn select(&mut self, s: &ast::Select, q: &ast::Query) -> Result<BoundQuery> {
        let says_so = !s.group_by.is_empty() || s.having.is_some();
        let (mut late, uses) = (false, self.work_uses());
        match self.select_as(says_so, s, q, &mut late) {
            // The outer queries do not bind this query again.
            Err(_) if late && !self.failed_as_grouped => {
                self.set_work_uses(&uses);
                let again = self.select_as(true, s, q, &mut false);
                self.failed_as_grouped = again.is_err();
                again
            }
            bound => bound,
        }
    }

    fn select_as(
        &mut self,
        grouped: bool,
        s: &ast::Select,
        q: &ast::Query,
        late: &mut bool,
    ) -> Result<BoundQuery> {
        let from = self.from(&s.from)?;
        let mut scope = Scope { relations: from.relations, merged: from.merged, ..Scope::default() };
        let bound = self.clauses(grouped, s, q, from.source, &mut scope);
        *late = !grouped && scope.grouping.is_some();
        bound
    }

    /// Binds the clauses after FROM.
    fn clauses(
        &mut self,
        grouped: bool,
        s: &ast::Select,
        q: &ast::Query,
        source: Source,
        scope: &mut Scope,
    ) -> Result<BoundQuery> {
        let filter = self.filter(s.selection.as_ref(), scope)?;
        if grouped {
            self.grouping(s, scope)?;
        }
        scope.windows = Some(self.named_windows(&s.named_windows)?);
        scope.sets = Some(Sets::default());
        let mut items = self.items(&s.projection, scope)?;
        let having = self.having(s.having.as_ref(), scope)?;
        let distinct = is_distinct(s, &items)?;
        let visible = items.outputs.len();
        let mut order = self.compared_order(q, &mut items, scope, distinct)?;
        let distinct_on = match &s.distinct {
            Some(ast::Distinct::On(on)) => self.distinct_on(on, &mut order, visible, &mut items, scope)?,
            _ => Box::default(),
        };
        let mut sets = scope.sets.take().unwrap_or_default();
        let (limit, offset) = self.limits(q)?;
        let is_grouped = scope.grouping.is_some();
        if is_grouped {
            check_grouped(grouped, &items, (scope.windows.as_ref(), &sets), &source)?;
        }
        let lock = lock::row_lock(q, s, is_grouped, &scope.relations)?;
        if let Some(lock) = lock.as_ref().filter(|_| matches!(source, Source::Query(_))) {
            return Err(SqlError::unsupported(format!("{} of a subquery", lock::clause(lock.strength))));
        }
        let mut select = Select {
            source,
            filter: access::joined(filter),
            aggregate: None,
            windows: Box::default(),
            outputs: Box::default(),
            visible,
            distinct,
            distinct_on,
            order: order.into(),
            limit,
            offset,
            ties: q.with_ties,
            lock,
            general: false,
        };
        let mut windows = scope.windows.take().unwrap_or_default();
        let mut width = scope.width();
        // The grouping stays in the scope. A later error is then recognized as an error of a grouped query.
        if let Some(grouping) = scope.grouping.as_mut().map(std::mem::take) {
            width = grouping.width();
            let aggregate = renumbered(grouping, &mut items, (&mut windows, &mut sets), having);
            select.aggregate = Some(Aggregate { single: s.group_by.is_empty(), ..aggregate });
        }
        let outputs = items.outputs.iter_mut().map(|o| &mut o.expr);
        select.windows = windows.placed(width, outputs.chain(sets.arguments_mut()).collect());
        lock::refuse_with_windows(&select)?;
        let columns = items.columns(visible);
        select.outputs = items.outputs.into();
        if !sets.calls.is_empty() {
            lock::refuse_with_sets(&select)?;
            let row = row_types(&select, scope);
            select = sets.spread(select, row);
        }
        self.locked_and_placed(&mut select, q, scope)?;
        Ok(BoundQuery { select, columns })
    }

    /// Binds ORDER BY. A compared output gets a type here, even if an enclosing set operation later converts
    /// it.
    fn compared_order(
        &mut self,
        q: &ast::Query,
        items: &mut Items,
        scope: &mut Scope,
        distinct: bool,
    ) -> Result<Vec<SortKey>> {
        let order = self.order_by(q, items, scope, distinct)?;
        for (n, output) in items.outputs.iter_mut().enumerate() {
            let is_compared = distinct || order.iter().any(|key| key.output == n);
            if is_compared && output.t.ty == Ty::Unknown {
                let b = self.known(Bound { expr: output.expr.clone(), t: output.t, at: None })?;
                *output = Output::new(b.expr, b.t);
            }
        }
        Ok(order)
    }

    fn locked_and_placed(&mut self, select: &mut Select, q: &ast::Query, scope: &Scope) -> Result<()> {
        // Outer joins are reduced first. As in PostgreSQL, the rows of a reduced outer join can be locked.
        outer_joins::reduce(select);
        let is_beside = scope.relations.len() > 1 || select.needs_runner();
        if select.lock.is_some() && is_beside && !self.in_from {
            lock::give_locked(select, q, &scope.relations)?;
            select.lock.take_if(|lock| lock.beside.is_empty());
        }
        self.placed(select)
    }

    fn having(&mut self, having: Option<&Ast>, scope: &mut Scope) -> Result<Option<Expr>> {
        let Some(having) = having else { return Ok(None) };
        scope.refuse_windows(Some("HAVING"));
        scope.refuse_sets(Some("HAVING"));
        let bound = self.expression(having, scope);
        scope.refuse_windows(None);
        scope.refuse_sets(None);
        self.condition(bound?, "HAVING").map(Some)
    }

    /// Decides whether this crate's executor or the runner of general queries runs the query. The executor
    /// needs an access path.
    fn placed(&mut self, select: &mut Select) -> Result<()> {
        let locks_beside = select.lock.as_ref().is_some_and(|lock| !lock.beside.is_empty());
        select.general = self.in_from || select.needs_runner() || self.is_forced(select) || locks_beside;
        if !select.general {
            place_filter(select);
            // This crate's executor does not run this join.
            select.general = matches!(select.source, Source::Join(_));
        }
        Ok(())
    }

    /// Returns whether the query is forced to the runner of general queries. A query with volatile functions
    /// or row locks is not forced: only the executor handles sequences and locks.
    fn is_forced(&self, select: &Select) -> bool {
        self.forced && select.lock.is_none() && !select.expressions().any(Expr::is_volatile)
    }

    /// Binds WHERE, which has no aggregates.
    pub(super) fn filter(&mut self, selection: Option<&Ast>, scope: &mut Scope) -> Result<Vec<Expr>> {
        let part = self.part_condition(scope)?;
        let Some(selection) = selection else { return Ok(part.into_iter().collect()) };
        scope.no_aggregates = Some("WHERE");
        let bound = self.expression(selection, scope);
        scope.no_aggregates = None;
        let mut conditions = access::conjuncts(self.condition(bound?, "WHERE")?);
        conditions.extend(part);
        Ok(conditions)
    }

    fn values(&mut self, rows: &[Vec<Ast>], q: &ast::Query) -> Result<BoundQuery> {
        lock::refuse_on_values(q)?;
        let (rows, types) = self.value_rows(rows)?;
        super::limits::targets(types.len())?;
        let mut items = Items::default();
        let mut relation = Relation::unnamed();
        for (i, t) in types.iter().enumerate() {
            let name = format!("column{}", i + 1);
            items.outputs.push(Output::new(Expr::Slot(i), *t));
            items.written.push(None);
            items.names.push(name.clone());
            relation.columns.push((name, *t));
        }
        let order = self.order_by(q, &mut items, &mut Scope::of(relation), false)?;
        let (limit, offset) = self.limits(q)?;
        let columns = items.names.iter().zip(&items.outputs).take(types.len());
        let columns = columns.map(|(n, o)| o.column(n)).collect();
        let mut select = Select {
            source: Source::Values(rows, types.iter().map(|t| t.ty).collect()),
            filter: None,
            aggregate: None,
            windows: Box::default(),
            visible: types.len(),
            outputs: items.outputs.into(),
            distinct: false,
            distinct_on: Box::default(),
            order: order.into(),
            limit,
            offset,
            ties: q.with_ties,
            lock: None,
            general: false,
        };
        self.placed(&mut select)?;
        Ok(BoundQuery { select, columns })
    }

    /// Binds the rows of VALUES. Each column gets one type.
    fn value_rows(&mut self, rows: &[Vec<Ast>]) -> Result<(Vec<Vec<Expr>>, Vec<Typed>)> {
        let mut scope = Scope { no_aggregates: Some("VALUES"), ..Scope::default() };
        let mut columns: Vec<Vec<Bound>> = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            if n > 0 && row.len() != columns.len() {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                ));
            }
            columns.resize_with(row.len(), Vec::new);
            for (column, e) in columns.iter_mut().zip(row) {
                column.push(self.expression(e, &mut scope)?);
            }
        }
        let mut out: Vec<Vec<Expr>> = rows.iter().map(|_| Vec::with_capacity(columns.len())).collect();
        let mut types = Vec::with_capacity(columns.len());
        for column in columns {
            let (exprs, t) = self.unify(column, "VALUES")?;
            types.push(t);
            out.iter_mut().zip(exprs).for_each(|(row, e)| row.push(e));
        }
        Ok((out, types))
    }

    pub(super) fn limits(&mut self, q: &ast::Query) -> Result<(Option<Expr>, Option<Expr>)> {
        let limit = self.limit(q.limit.as_ref(), "LIMIT")?;
        Ok((limit, self.limit(q.offset.as_ref(), "OFFSET")?))
    }

    fn limit(&mut self, e: Option<&Ast>, clause: &'static str) -> Result<Option<Expr>> {
        let Some(e) = e else { return Ok(None) };
        let mut scope = Scope { no_aggregates: Some(clause), ..Scope::default() };
        let b = self.expression(e, &mut scope)?;
        let at = b.at;
        if !b.t.ty.is_number() && b.t.ty != Ty::Unknown {
            let message = format!("argument of {clause} must be type bigint, not type {}", b.t.ty.name());
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).at(at));
        }
        Ok(Some(self.cast(b, Typed::plain(Ty::Int8), false)?.expr))
    }

    /// Binds the RETURNING clause of a DML statement.
    pub(super) fn returning(
        &mut self,
        written: Option<&[SelectItem]>,
        scope: &mut Scope,
    ) -> Result<Option<Returned>> {
        let Some(written) = written else { return Ok(None) };
        scope.no_aggregates = Some("RETURNING");
        let items = self.items(written, scope)?;
        scope.no_aggregates = None;
        let columns = items.columns(items.outputs.len());
        Ok(Some((items.outputs.into(), columns)))
    }
}

fn is_distinct(s: &ast::Select, items: &Items) -> Result<bool> {
    let distinct = matches!(s.distinct, Some(ast::Distinct::All));
    if distinct {
        items.outputs.iter().try_for_each(|o| orderable(o.t, "DISTINCT"))?;
    }
    Ok(distinct)
}

/// Refuses expressions that a grouped query must not contain. If the query was not `grouped` from the start,
/// it may have bound columns without grouping.
fn check_grouped(
    grouped: bool,
    items: &Items,
    (windows, sets): (Option<&Windows>, &Sets),
    source: &Source,
) -> Result<()> {
    let over = windows.iter().flat_map(|w| &w.calls).flat_map(WinCall::exprs).chain(sets.arguments());
    if !grouped && items.outputs.iter().map(|o| &o.expr).chain(over).any(Expr::reads_columns) {
        return Err(SqlError::internal("a column beside an aggregate"));
    }
    if source.joins_work() {
        let message = "aggregate functions are not allowed in a recursive query's recursive term";
        return Err(SqlError::new(SqlState::INVALID_RECURSION, message));
    }
    Ok(())
}

/// Returns the types of the input values of the outputs.
fn row_types(select: &Select, scope: &Scope) -> Vec<Typed> {
    let mut row: Vec<Typed> = match &select.aggregate {
        Some(aggregate) => {
            let calls = aggregate.calls.iter().map(|call| Typed::plain(call.output));
            let set = (!aggregate.sets.is_empty()).then_some(Typed::plain(Ty::Int8));
            aggregate.key_types.iter().copied().chain(calls).chain(set).collect()
        }
        None => {
            let mut relations: Vec<&Relation> = scope.relations.iter().collect();
            relations.sort_by_key(|r| r.first);
            relations.into_iter().flat_map(|r| r.columns.iter().map(|(_, t)| *t)).collect()
        }
    };
    row.extend(select.windows.iter().map(|call| Typed::plain(call.output)));
    row
}

/// Moves the conditions that the access path can use from the filter into the path. Drops ORDER BY if the
/// path returns the rows in this order.
fn place_filter(select: &mut Select) {
    let conditions = select.filter.take().map(access::conjuncts).unwrap_or_default();
    let order = wanted_order(select);
    let target = match std::mem::replace(&mut select.source, Source::Nothing) {
        Source::Table(target) => target,
        source => {
            // A source other than a table has no rows to lock.
            select.lock = None;
            if let Err(conditions) = loops::place(select, &source, conditions, order.as_ref()) {
                select.source = source;
                select.filter = access::joined(conditions);
            }
            return;
        }
    };
    let choice = access::choose(&target.table, &conditions, order.as_ref(), select.limit.is_some());
    if let Some(lock) = &mut select.lock {
        lock.recheck = access::joined(conditions.clone());
    }
    let kept = conditions.into_iter().zip(&choice.covered).filter(|(_, covered)| !**covered).map(|(c, _)| c);
    select.filter = access::joined(kept.collect());
    let reverse = choice.ordered && order.is_some_and(|o| o.descending);
    if choice.ordered {
        select.order = Box::default();
    }
    let in_order = choice.ordered;
    let mut target = TableAccess { access: choice.access, reverse, in_order, ..target };
    if select.lock.is_none() {
        target.note_reads(&columns_read(select));
    }
    select.source = Source::Table(target);
}

/// Returns the columns that a query over one table reads.
fn columns_read(select: &Select) -> Vec<usize> {
    let mut columns = Vec::new();
    for expression in select.expressions() {
        expression.add_columns(&mut columns);
    }
    columns
}

/// Returns ORDER BY as plain columns in one direction, with NULL where an index has it. Returns `None` for
/// any other ORDER BY.
fn wanted_order(select: &Select) -> Option<WantedOrder> {
    let first = select.order.first()?;
    if select.aggregate.is_some() || select.distinct {
        return None;
    }
    let mut columns = Vec::with_capacity(select.order.len());
    for key in &select.order {
        match select.outputs[key.output].expr {
            Expr::Column(c) if key.descending == first.descending && key.nulls_first == key.descending => {
                columns.push(c)
            }
            _ => return None,
        }
    }
    Some(WantedOrder { columns, descending: first.descending })
}

/// Gives the aggregates their final slots, after the keys.
fn renumbered(
    grouping: Grouping,
    items: &mut Items,
    (windows, sets): (&mut Windows, &mut Sets),
    mut having: Option<Expr>,
) -> Aggregate {
    let key_count = grouping.keys.len();
    let call_count = grouping.calls.len();
    let mut renumber = |e: &mut Expr| match e {
        Expr::Slot(n) if usize::MAX - *n < call_count => *n = key_count + (usize::MAX - *n),
        Expr::Slot(n) if *n == GROUPING_SET_SLOT => *n = key_count + call_count,
        _ => {}
    };
    items.outputs.iter_mut().for_each(|o| o.expr.walk_mut(&mut renumber));
    windows.calls.iter_mut().for_each(|call| call.each_mut(&mut |e| e.walk_mut(&mut renumber)));
    sets.arguments_mut().for_each(|e| e.walk_mut(&mut renumber));
    if let Some(having) = &mut having {
        having.walk_mut(&mut renumber);
    }
    let key_types = grouping.keys.iter().map(|(_, b)| b.t).collect();
    let keys = grouping.keys.into_iter().map(|(_, b)| b.expr).collect();
    let calls = grouping.calls.into_iter().map(|aggregate| aggregate.call).collect();
    let sets = grouping.sets.into();
    Aggregate { keys, key_types, calls, sets, having: having.map(Box::new), single: false }
}
