//! SELECT and VALUES.
//!
//! Invariants
//! 1. One relation at most: a table, generate_series or VALUES. Joins, subqueries and set operations are 0A000.
//! 2. Outputs that serve ORDER BY only come after those that the client sees.
//!
//! Does not know: how rows are read.

use std::sync::Arc;

use sqlparser::ast::{
    self, Expr as Ast, GroupByExpr, LimitClause, OrderByKind, SelectItem, SetExpr, TableFactor,
};
use varve_engine::{TableDef, Value};

use super::scope::{Grouping, Relation, Scope};
use super::{Binder, Bound, fold, object_name, undefined_table};
use crate::access::{self, WantedOrder};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{Access, Aggregate, Output, RowLock, Select, SortKey, Source, TableAccess};
use crate::sink::Column;
use crate::ty::{Ty, Typed};

/// A bound query and the columns it shows.
pub struct BoundQuery {
    /// The plan.
    pub select: Select,
    /// Names and types of what the client sees.
    pub columns: Vec<Column>,
}

/// Outputs of RETURNING and the columns they show.
pub(super) type Returned = (Box<[Output]>, Vec<Column>);

/// Outputs while they are collected.
#[derive(Default)]
struct Items {
    outputs: Vec<Output>,
    names: Vec<String>,
    /// The select list as written, for ORDER BY and GROUP BY by name or number.
    written: Vec<Option<Ast>>,
}

impl Binder<'_> {
    /// Binds a whole query.
    pub fn query(&mut self, q: &ast::Query) -> Result<BoundQuery> {
        refuse_query_clauses(q)?;
        match q.body.as_ref() {
            SetExpr::Select(s) => self.select(s, q),
            SetExpr::Values(v) => self.values(v, q),
            SetExpr::Query(inner) if q.order_by.is_none() && q.limit_clause.is_none() => self.query(inner),
            SetExpr::SetOperation { op, .. } => Err(SqlError::unsupported(op.to_string())),
            SetExpr::Query(_) => Err(SqlError::unsupported("ORDER BY or LIMIT around a parenthesised query")),
            _ => Err(SqlError::unsupported("this form of query")),
        }
    }

    fn select(&mut self, s: &ast::Select, q: &ast::Query) -> Result<BoundQuery> {
        refuse_select_clauses(s)?;
        let (source, relation) = self.from(&s.from)?;
        let mut scope = Scope { relation, ..Scope::default() };
        let filter = self.filter(s.selection.as_ref(), &mut scope)?;
        let grouped = self.grouping(s, q, &mut scope)?;
        let mut items = self.items(&s.projection, &mut scope)?;
        let having = match &s.having {
            Some(h) => {
                let b = self.expression(h, &mut scope)?;
                Some(self.condition(b, "HAVING")?)
            }
            None => None,
        };
        let distinct = match &s.distinct {
            None | Some(ast::Distinct::All) => false,
            Some(ast::Distinct::Distinct) => true,
            Some(ast::Distinct::On(_)) => return Err(SqlError::unsupported("DISTINCT ON")),
        };
        if distinct {
            items.outputs.iter().try_for_each(|o| orderable(o.t, "DISTINCT"))?;
        }
        let visible = items.outputs.len();
        let order = self.order_by(q, &mut items, &mut scope, distinct)?;
        let (limit, offset) = self.limits(q)?;
        let lock = row_lock(q, grouped.then(|| group_count(&s.group_by) > 0), distinct)?;
        let mut select = Select {
            source: Source::Nothing,
            filter: None,
            aggregate: None,
            outputs: Box::default(),
            visible,
            distinct,
            order: order.into(),
            limit,
            offset,
            lock,
        };
        if grouped {
            let grouping = scope.grouping.take().unwrap_or_default();
            select.aggregate = Some(renumbered(grouping, &mut items, having, group_count(&s.group_by) == 0));
        }
        let columns =
            items.names.iter().zip(&items.outputs).take(visible).map(|(n, o)| o.column(n)).collect();
        select.outputs = items.outputs.into();
        place_filter(&mut select, source, filter);
        if select.lock.is_some() && select.table().is_none() {
            select.lock = None;
        }
        Ok(BoundQuery { select, columns })
    }

    /// WHERE, without aggregates.
    pub(super) fn filter(&mut self, selection: Option<&Ast>, scope: &mut Scope) -> Result<Vec<Expr>> {
        let Some(selection) = selection else { return Ok(Vec::new()) };
        scope.no_aggregates = Some("WHERE");
        let bound = self.expression(selection, scope);
        scope.no_aggregates = None;
        Ok(access::conjuncts(self.condition(bound?, "WHERE")?))
    }

    fn values(&mut self, v: &ast::Values, q: &ast::Query) -> Result<BoundQuery> {
        if q.order_by.is_some() {
            return Err(SqlError::unsupported("ORDER BY on VALUES"));
        }
        let (rows, types) = self.value_rows(&v.rows)?;
        let (limit, offset) = self.limits(q)?;
        let output = |(i, t): (usize, &Typed)| Output::new(Expr::Slot(i), *t);
        let outputs: Box<[Output]> = types.iter().enumerate().map(output).collect();
        let columns =
            outputs.iter().enumerate().map(|(i, o)| o.column(&format!("column{}", i + 1))).collect();
        let select = Select {
            source: Source::Values(rows),
            filter: None,
            aggregate: None,
            visible: outputs.len(),
            outputs,
            distinct: false,
            order: Box::default(),
            limit,
            offset,
            lock: None,
        };
        Ok(BoundQuery { select, columns })
    }

    /// Rows of VALUES, each column of one type.
    fn value_rows(&mut self, rows: &[ast::Parens<Vec<Ast>>]) -> Result<(Vec<Vec<Expr>>, Vec<Typed>)> {
        let mut scope = Scope { no_aggregates: Some("VALUES"), ..Scope::default() };
        let mut columns: Vec<Vec<Bound>> = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            if n > 0 && row.content.len() != columns.len() {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                ));
            }
            columns.resize_with(row.content.len(), Vec::new);
            for (column, e) in columns.iter_mut().zip(&row.content) {
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

    fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<(Source, Option<Relation>)> {
        let [only] = from else {
            return if from.is_empty() {
                Ok((Source::Nothing, None))
            } else {
                Err(SqlError::unsupported("a join"))
            };
        };
        if !only.joins.is_empty() {
            return Err(SqlError::unsupported("a join"));
        }
        match &only.relation {
            TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } => {
                self.table_function(name, args, alias.as_ref())
            }
            TableFactor::Table { name, alias, args: None, .. } => {
                refuse_table_clauses(&only.relation)?;
                let table = self.table(name)?;
                let relation = relation_of(&table, alias.as_ref())?;
                let access = TableAccess { table, access: Access::Full, reverse: false };
                Ok((Source::Table(access), Some(relation)))
            }
            TableFactor::Derived { .. } => Err(SqlError::unsupported("a subquery in FROM")),
            _ => Err(SqlError::unsupported("this kind of FROM item")),
        }
    }

    /// A table by name; 42P01 with its position.
    pub(super) fn table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let at = self.at(name);
        let (schema, table) = object_name(name).map_err(|e| e.at(at))?;
        if let Some(found) = self.catalog.table(&schema, &table) {
            return Ok(found);
        }
        if schema != "public"
            && schema != "pg_catalog"
            && schema != "information_schema"
            && !self.catalog.has_schema(&schema)
        {
            // PostgreSQL, too, speaks of the relation here.
            return Err(undefined_table(name).at(at));
        }
        if self.catalog.sequence(&schema, &table).is_some() || self.catalog.index(&schema, &table).is_some() {
            let message = format!("\"{table}\" is not a table");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        Err(undefined_table(name).at(at))
    }

    fn table_function(
        &mut self,
        name: &ast::ObjectName,
        args: &ast::TableFunctionArgs,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Source, Option<Relation>)> {
        let (_, function) = object_name(name)?;
        if function != "generate_series" {
            return Err(SqlError::unsupported(format!("function {function} in FROM")).at(self.at(name)));
        }
        let at = self.at(name);
        let mut scope = Scope { no_aggregates: Some("functions in FROM"), ..Scope::default() };
        let mut bounds = Vec::new();
        for argument in &args.args {
            bounds.push(self.expression(super::function::plain_argument(argument)?, &mut scope)?);
        }
        if !(2..=3).contains(&bounds.len()) {
            return Err(no_series().at(at));
        }
        if bounds.len() == 2 {
            bounds.push(Bound { expr: Expr::Const(Value::Int4(1)), t: Typed::plain(Ty::Int4), at: None });
        }
        let ty = bounds.iter().try_fold(Ty::Unknown, |ty, b| crate::ty::common(ty, b.t.ty));
        let ty = match ty {
            Some(Ty::Unknown | Ty::Int2) => Ty::Int4,
            Some(t @ (Ty::Int4 | Ty::Int8)) => t,
            Some(Ty::Numeric) => return Err(SqlError::unsupported("generate_series of numeric").at(at)),
            _ => return Err(no_series().at(at)),
        };
        let mut cast = |b: Bound| Ok(self.cast(b, Typed::plain(ty), false)?.expr);
        let exprs = bounds.into_iter().map(&mut cast).collect::<Result<Vec<_>>>()?;
        let bounds: Box<[Expr; 3]> = exprs
            .try_into()
            .map(Box::new)
            .map_err(|_| SqlError::internal("generate_series takes three bounds"))?;
        let alias_name = alias.map_or(function, |a| fold(&a.name));
        let column = alias.and_then(|a| a.columns.first()).map_or(alias_name.clone(), |c| fold(&c.name));
        let relation = Relation {
            alias: alias_name,
            hidden: None,
            columns: vec![(column, Typed::plain(ty))],
            key: Vec::new(),
        };
        Ok((Source::Series(bounds, ty), Some(relation)))
    }

    /// Binds GROUP BY; true if the query is grouped.
    fn grouping(&mut self, s: &ast::Select, q: &ast::Query, scope: &mut Scope) -> Result<bool> {
        let GroupByExpr::Expressions(written, modifiers) = &s.group_by else {
            return Err(SqlError::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(SqlError::unsupported("ROLLUP, CUBE or GROUPING SETS"));
        }
        if written.is_empty() && s.having.is_none() && !uses_aggregates(s, q) {
            return Ok(false);
        }
        let mut grouping = Grouping::default();
        scope.no_aggregates = Some("GROUP BY");
        for item in written {
            let e = group_item(item, s, scope)?;
            let b = self.expression(&e, scope)?;
            let key = self.known(b)?;
            orderable(key.t, "GROUP BY")?;
            grouping.keys.push((e, key));
        }
        scope.no_aggregates = None;
        let key = scope.relation.as_ref().map_or(&[][..], |r| &r.key);
        let is_key =
            |c: &usize| grouping.keys.iter().any(|(_, b)| matches!(b.expr, Expr::Column(n) if n == *c));
        grouping.keyed = !key.is_empty() && key.iter().all(is_key);
        scope.grouping = Some(grouping);
        Ok(true)
    }

    fn items(&mut self, projection: &[SelectItem], scope: &mut Scope) -> Result<Items> {
        let mut items = Items::default();
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(e) => {
                    let name = output_name(e);
                    self.item(e, name, scope, &mut items)?;
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    self.item(expr, fold(alias), scope, &mut items)?
                }
                SelectItem::Wildcard(_) => self.star(None, scope, &mut items)?,
                SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let (_, table) = object_name(name)?;
                    self.star(Some(&table), scope, &mut items)?;
                }
                other => return Err(SqlError::unsupported(format!("the select item {other}"))),
            }
        }
        Ok(items)
    }

    fn item(&mut self, e: &Ast, name: String, scope: &mut Scope, items: &mut Items) -> Result<()> {
        let b = self.expression(e, scope)?;
        let keep = self.keep_unknown && matches!(b.expr, Expr::Const(_));
        let b = if keep { b } else { self.known(b)? };
        items.outputs.push(Output::new(b.expr, b.t));
        items.names.push(name);
        items.written.push(Some(e.clone()));
        Ok(())
    }

    fn star(&mut self, table: Option<&str>, scope: &mut Scope, items: &mut Items) -> Result<()> {
        let Some(relation) = scope.relation.clone() else {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "SELECT * with no tables specified is not valid",
            ));
        };
        if table.is_some_and(|t| t != relation.alias) {
            let message = format!("missing FROM-clause entry for table \"{}\"", table.unwrap_or_default());
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
        for (name, _) in relation.columns {
            let ident = ast::Ident::with_quote('"', name.clone());
            self.item(&Ast::Identifier(ident), name, scope, items)?;
        }
        Ok(())
    }

    fn order_by(
        &mut self,
        q: &ast::Query,
        items: &mut Items,
        scope: &mut Scope,
        distinct: bool,
    ) -> Result<Vec<SortKey>> {
        let Some(order_by) = &q.order_by else { return Ok(Vec::new()) };
        let OrderByKind::Expressions(written) = &order_by.kind else {
            return Err(SqlError::unsupported("ORDER BY ALL"));
        };
        let visible = items.outputs.len();
        let mut keys = Vec::with_capacity(written.len());
        for item in written {
            let output = self.order_item(&item.expr, visible, items, scope)?;
            if distinct && output >= visible {
                let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                return Err(
                    SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(self.at(&item.expr))
                );
            }
            orderable(items.outputs[output].t, "ORDER BY")?;
            let descending = match &item.options.sort {
                None | Some(ast::OrderBySort::Asc) => false,
                Some(ast::OrderBySort::Desc) => true,
                Some(ast::OrderBySort::Using(_)) => return Err(SqlError::unsupported("ORDER BY USING")),
            };
            keys.push(SortKey {
                output,
                descending,
                nulls_first: item.options.nulls_first.unwrap_or(descending),
            });
        }
        Ok(keys)
    }

    /// Ordinal of the output that an ORDER BY item means: a number, an output's name, or an expression.
    fn order_item(&mut self, e: &Ast, visible: usize, items: &mut Items, scope: &mut Scope) -> Result<usize> {
        if let Some(ordinal) = literal_position(e) {
            if (1..=visible).contains(&ordinal) {
                return Ok(ordinal - 1);
            }
            let message = format!("ORDER BY position {ordinal} is not in select list");
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(self.at(e)));
        }
        if let Ast::Identifier(ident) = e {
            let name = fold(ident);
            if let Some(found) = items.names[..visible].iter().position(|n| *n == name) {
                return Ok(found);
            }
        }
        if let Some(found) = items.written.iter().position(|w| w.as_ref() == Some(e)) {
            return Ok(found);
        }
        let b = self.expression(e, scope)?;
        let b = self.known(b)?;
        if let Expr::Column(c) = b.expr {
            let same = |o: &Output| matches!(o.expr, Expr::Column(n) if n == c);
            if let Some(found) = items.outputs.iter().position(same) {
                return Ok(found);
            }
        }
        items.outputs.push(Output::new(b.expr, b.t));
        items.names.push(String::new());
        items.written.push(Some(e.clone()));
        Ok(items.outputs.len() - 1)
    }

    fn limits(&mut self, q: &ast::Query) -> Result<(Option<Expr>, Option<Expr>)> {
        let (mut limit, mut offset) = (None, None);
        match &q.limit_clause {
            None => {}
            Some(LimitClause::LimitOffset { limit: l, offset: o, limit_by }) if limit_by.is_empty() => {
                limit = self.limit(l.as_ref(), "LIMIT")?;
                offset = self.limit(o.as_ref().map(|o| &o.value), "OFFSET")?;
            }
            Some(_) => return Err(SqlError::unsupported("this form of LIMIT")),
        }
        if let Some(fetch) = &q.fetch {
            if fetch.with_ties || fetch.percent || limit.is_some() {
                return Err(SqlError::unsupported("FETCH with ties, percent or LIMIT"));
            }
            let one = Ast::value(ast::Value::Number("1".into(), false));
            limit = self.limit(Some(fetch.quantity.as_ref().unwrap_or(&one)), "LIMIT")?;
        }
        Ok((limit, offset))
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

    /// What a DML statement returns.
    pub(super) fn returning(
        &mut self,
        written: Option<&[SelectItem]>,
        scope: &mut Scope,
    ) -> Result<Option<Returned>> {
        let Some(written) = written else { return Ok(None) };
        scope.no_aggregates = Some("RETURNING");
        let items = self.items(written, scope)?;
        scope.no_aggregates = None;
        let columns = items.names.iter().zip(&items.outputs).map(|(n, o)| o.column(n)).collect();
        Ok(Some((items.outputs.into(), columns)))
    }
}

/// The relation that a table is under its alias.
pub(super) fn relation_of(table: &TableDef, alias: Option<&ast::TableAlias>) -> Result<Relation> {
    let mut columns: Vec<(String, Typed)> =
        table.columns.iter().map(|c| (c.name.clone(), Typed::of_column(c.column_type))).collect();
    let mut name = table.name.clone();
    let mut hidden = None;
    if let Some(alias) = alias {
        hidden = Some(std::mem::replace(&mut name, fold(&alias.name)));
        for (column, renamed) in columns.iter_mut().zip(&alias.columns) {
            column.0 = fold(&renamed.name);
        }
    }
    Ok(Relation { alias: name, hidden, columns, key: table.key_columns().to_vec() })
}

/// Puts the filter into the access path as far as it goes, and drops ORDER BY if the path delivers it.
fn place_filter(select: &mut Select, source: Source, conditions: Vec<Expr>) {
    let Source::Table(target) = source else {
        select.source = source;
        select.filter = access::joined(conditions);
        return;
    };
    let order = wanted_order(select);
    let choice = access::choose(&target.table, &conditions, order.as_ref(), select.limit.is_some());
    let kept = conditions.into_iter().zip(&choice.covered).filter(|(_, covered)| !**covered).map(|(c, _)| c);
    select.filter = access::joined(kept.collect());
    let reverse = choice.ordered && order.is_some_and(|o| o.descending);
    if choice.ordered {
        select.order = Box::default();
    }
    select.source = Source::Table(TableAccess { table: target.table, access: choice.access, reverse });
}

/// ORDER BY as plain columns in one direction with the index's place for NULL, if it is that.
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

/// 0A000 for values that are not held in their order.
pub(super) fn orderable(t: Typed, clause: &str) -> Result<()> {
    match t.ty {
        Ty::Interval => Err(SqlError::unsupported(format!("{clause} of intervals"))),
        _ => Ok(()),
    }
}

/// Gives the aggregates their final slots, behind the keys.
fn renumbered(grouping: Grouping, items: &mut Items, mut having: Option<Expr>, single: bool) -> Aggregate {
    let key_count = grouping.keys.len();
    let call_count = grouping.calls.len();
    let mut renumber = |e: &mut Expr| {
        if let Expr::Slot(n) = e
            && usize::MAX - *n < call_count
        {
            *n = key_count + (usize::MAX - *n);
        }
    };
    items.outputs.iter_mut().for_each(|o| o.expr.walk_mut(&mut renumber));
    if let Some(having) = &mut having {
        having.walk_mut(&mut renumber);
    }
    let keys = grouping.keys.into_iter().map(|(_, b)| b.expr).collect();
    Aggregate { keys, calls: grouping.calls.into(), having, single }
}

fn group_count(g: &GroupByExpr) -> usize {
    match g {
        GroupByExpr::Expressions(e, _) => e.len(),
        GroupByExpr::All(_) => 0,
    }
}

/// A GROUP BY item: by number, by an output's alias, or itself.
fn group_item(item: &Ast, s: &ast::Select, scope: &Scope) -> Result<Ast> {
    let at_position = |n: usize| match s.projection.get(n) {
        Some(SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) => Some(e.clone()),
        _ => None,
    };
    if let Some(n) = literal_position(item) {
        return n.checked_sub(1).and_then(at_position).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("GROUP BY position {n} is not in select list"),
            )
        });
    }
    if let Ast::Identifier(ident) = item
        && scope.find(&fold(ident)).is_none()
    {
        let name = fold(ident);
        for selected in &s.projection {
            if let SelectItem::ExprWithAlias { expr, alias } = selected
                && fold(alias) == name
            {
                return Ok(expr.clone());
            }
        }
    }
    Ok(item.clone())
}

/// The number of an item like ORDER BY 2.
fn literal_position(e: &Ast) -> Option<usize> {
    match e {
        Ast::Value(v) => match &v.value {
            ast::Value::Number(n, _) => n.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an aggregate is called anywhere in the select list or ORDER BY.
fn uses_aggregates(s: &ast::Select, q: &ast::Query) -> bool {
    let in_item = |i: &SelectItem| match i {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => has_aggregate(e),
        _ => false,
    };
    let in_order = match q.order_by.as_ref().map(|o| &o.kind) {
        Some(OrderByKind::Expressions(list)) => list.iter().any(|o| has_aggregate(&o.expr)),
        _ => false,
    };
    s.projection.iter().any(in_item) || in_order
}

fn has_aggregate(e: &Ast) -> bool {
    use super::aggregate::AggKind;
    let any = |list: &[&Ast]| list.iter().any(|e| has_aggregate(e));
    match e {
        Ast::Function(f) => {
            let name = f.name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
            AggKind::of(&name).is_some() && f.over.is_none()
                || function_arguments(f).into_iter().any(has_aggregate)
        }
        Ast::BinaryOp { left, right, .. } => any(&[left, right]),
        Ast::UnaryOp { expr, .. } | Ast::Nested(expr) | Ast::Cast { expr, .. } => has_aggregate(expr),
        Ast::IsNull(e) | Ast::IsNotNull(e) | Ast::IsTrue(e) | Ast::IsFalse(e) => has_aggregate(e),
        Ast::Between { expr, low, high, .. } => any(&[expr, low, high]),
        Ast::InList { expr, list, .. } => has_aggregate(expr) || list.iter().any(has_aggregate),
        Ast::Like { expr, pattern, .. } | Ast::ILike { expr, pattern, .. } => any(&[expr, pattern]),
        Ast::Extract { expr, .. } | Ast::Ceil { expr, .. } | Ast::Floor { expr, .. } => has_aggregate(expr),
        Ast::Substring { expr, .. } | Ast::Trim { expr, .. } => has_aggregate(expr),
        Ast::Case { operand, conditions, else_result, .. } => {
            let branch = |w: &ast::CaseWhen| has_aggregate(&w.condition) || has_aggregate(&w.result);
            operand.as_deref().is_some_and(has_aggregate)
                || conditions.iter().any(branch)
                || else_result.as_deref().is_some_and(has_aggregate)
        }
        _ => false,
    }
}

fn function_arguments(f: &ast::Function) -> Vec<&Ast> {
    match &f.args {
        ast::FunctionArguments::List(l) => {
            l.args.iter().filter_map(|a| super::function::plain_argument(a).ok()).collect()
        }
        _ => Vec::new(),
    }
}

/// The name PostgreSQL gives to an output without alias.
fn output_name(e: &Ast) -> String {
    named(e).0
}

/// Name and how much it says: 2 a column or function, 1 a type or CASE, 0 nothing.
fn named(e: &Ast) -> (String, u8) {
    let strong = |n: &str| (n.to_owned(), 2);
    match e {
        Ast::Identifier(i) => (fold(i), 2),
        Ast::CompoundIdentifier(parts) => (parts.last().map(fold).unwrap_or_default(), 2),
        Ast::Function(f) => (f.name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default(), 2),
        Ast::Nested(inner) => named(inner),
        Ast::Cast { expr, data_type, .. } => match named(expr) {
            (name, 2) => (name, 2),
            _ => (type_name(data_type), 1),
        },
        Ast::TypedString(s) => (type_name(&s.data_type), 1),
        Ast::Interval(_) => ("interval".to_owned(), 1),
        Ast::Value(v) if matches!(v.value, ast::Value::Boolean(_)) => ("bool".to_owned(), 1),
        Ast::Case { else_result, .. } => match else_result.as_deref().map(named) {
            Some((name, 2)) => (name, 2),
            _ => ("case".to_owned(), 1),
        },
        Ast::Extract { .. } => strong("extract"),
        Ast::Substring { .. } => strong("substring"),
        Ast::Position { .. } => strong("position"),
        Ast::Ceil { .. } => strong("ceil"),
        Ast::Floor { .. } => strong("floor"),
        Ast::Trim { trim_where, .. } => match trim_where {
            Some(ast::TrimWhereField::Leading) => strong("ltrim"),
            Some(ast::TrimWhereField::Trailing) => strong("rtrim"),
            _ => strong("btrim"),
        },
        _ => ("?column?".to_owned(), 0),
    }
}

fn type_name(t: &ast::DataType) -> String {
    let Ok(t) = crate::ty::of_ast(t) else { return "?column?".to_owned() };
    match t.ty {
        Ty::Bool => "bool",
        Ty::Int2 => "int2",
        Ty::Int4 => "int4",
        Ty::Int8 => "int8",
        Ty::Float8 => "float8",
        Ty::Char => "bpchar",
        Ty::Varchar => "varchar",
        Ty::Timestamp => "timestamp",
        Ty::TimestampTz => "timestamptz",
        other => other.name(),
    }
    .to_owned()
}

fn no_series() -> SqlError {
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        "function generate_series with these arguments does not exist",
    )
    .with_hint("Varve runs generate_series of integer and bigint.")
}

fn row_lock(q: &ast::Query, grouped: Option<bool>, distinct: bool) -> Result<Option<RowLock>> {
    let [lock] = q.locks.as_slice() else {
        return if q.locks.is_empty() {
            Ok(None)
        } else {
            Err(SqlError::unsupported("more than one locking clause"))
        };
    };
    let refuse = |what: &str| {
        let message = format!("{} is not allowed with {what}", lock.lock_type_name());
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    if let Some(by_key) = grouped {
        return refuse(if by_key { "GROUP BY clause" } else { "aggregate functions" });
    }
    if distinct {
        return refuse("DISTINCT clause");
    }
    match lock.nonblock {
        Some(ast::NonBlock::SkipLocked) => Err(SqlError::unsupported("SKIP LOCKED")),
        Some(ast::NonBlock::Nowait) => Ok(Some(RowLock { no_wait: true })),
        None => Ok(Some(RowLock { no_wait: false })),
    }
}

/// The clause's name for messages.
trait LockName {
    fn lock_type_name(&self) -> &'static str;
}

impl LockName for ast::LockClause {
    fn lock_type_name(&self) -> &'static str {
        match self.lock_type {
            ast::LockType::Share => "FOR SHARE",
            ast::LockType::Update => "FOR UPDATE",
        }
    }
}

fn refuse_query_clauses(q: &ast::Query) -> Result<()> {
    let refused = if q.with.is_some() {
        "WITH"
    } else if q.for_clause.is_some()
        || q.settings.is_some()
        || q.format_clause.is_some()
        || !q.pipe_operators.is_empty()
    {
        "this clause"
    } else {
        return Ok(());
    };
    Err(SqlError::unsupported(refused))
}

fn refuse_select_clauses(s: &ast::Select) -> Result<()> {
    let refused = if s.into.is_some() {
        "SELECT INTO"
    } else if !s.named_window.is_empty() {
        "WINDOW"
    } else if s.top.is_some()
        || s.exclude.is_some()
        || !s.lateral_views.is_empty()
        || s.prewhere.is_some()
        || !s.connect_by.is_empty()
        || !s.cluster_by.is_empty()
        || !s.distribute_by.is_empty()
        || !s.sort_by.is_empty()
        || s.qualify.is_some()
        || s.value_table_mode.is_some()
        || s.select_modifiers.is_some()
        || !matches!(s.flavor, ast::SelectFlavor::Standard)
    {
        "this clause of SELECT"
    } else {
        return Ok(());
    };
    Err(SqlError::unsupported(refused))
}

fn refuse_table_clauses(t: &TableFactor) -> Result<()> {
    let TableFactor::Table {
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_hints,
        ..
    } = t
    else {
        return Ok(());
    };
    let plain = with_hints.is_empty()
        && version.is_none()
        && !with_ordinality
        && partitions.is_empty()
        && json_path.is_none()
        && sample.is_none()
        && index_hints.is_empty();
    if plain { Ok(()) } else { Err(SqlError::unsupported("this clause of a table in FROM")) }
}
