//! Binds calls of aggregates: which aggregates exist, and which types they return.
//!
//! Invariants
//! 1. Results have PostgreSQL's types. For example, the sum of integer is bigint. The sum of bigint is
//!    numeric, and so is the average of every integer type.
//! 2. A call that occurs twice in a query is computed once.
//! 3. A call belongs to the nearest query whose columns it reads. A call that reads no column belongs to the
//!    query that contains it (SQL:2016, 6.9).
//!
//! This module does not know how groups are formed (`exec`).

use super::Binder;
use super::bound::Bound;
use super::call::{plain_argument, whole_row};
use super::coerce::with_blanks;
use super::scope::{ColumnMatch, Scope, WrittenAggregate};
use crate::ast::{self, FunctionArg};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::plan::{AggCall, AggKind, OrderKey};
use crate::ty::{Ty, Typed};

impl AggKind {
    /// Returns the variant of this aggregate for a first argument of this type.
    fn beside(self, first: Option<&Bound>) -> AggKind {
        let is_list = first.and_then(|b| b.t.ty.element()).is_some_and(Ty::is_number);
        match self {
            AggKind::PercentileCont if is_list => AggKind::PercentilesCont,
            AggKind::PercentileDisc if is_list => AggKind::PercentilesDisc,
            other => other,
        }
    }

    /// Returns the error 0A000 if DISTINCT is not supported for this aggregate.
    fn may_be_distinct(self) -> Result<()> {
        match self {
            AggKind::JsonAgg(_) | AggKind::JsonObjectAgg => {
                Err(SqlError::unsupported("DISTINCT in an aggregate of json"))
            }
            kind if kind.is_of_pairs() => Err(SqlError::unsupported("DISTINCT pairs in an aggregate")),
            _ => Ok(()),
        }
    }

    /// Returns whether PostgreSQL has several aggregates with this name, and does not choose one for an
    /// argument without a type.
    fn has_several(self) -> bool {
        use AggKind::{ArrayAgg, Avg, BitAnd, BitOr, BitXor, Sum};
        matches!(self, Sum | Avg | BitAnd | BitOr | BitXor | ArrayAgg)
    }

    /// Returns the error 42725 or 42883 for arguments of these types.
    fn no_such_call(self, f: &ast::Function, types: &str) -> SqlError {
        if types == Ty::Unknown.name() && self.has_several() { not_unique(f) } else { no_such_call(f, types) }
    }

    /// Returns the number of arguments in parentheses.
    fn arity(self) -> usize {
        match self {
            AggKind::StringAgg | AggKind::JsonObjectAgg => 2,
            AggKind::Mode => 0,
            kind if kind.is_of_pairs() => 2,
            _ => 1,
        }
    }

    /// Returns the type to which the argument is cast, and the type of the result.
    fn signature(self, t: Ty) -> Option<(Ty, Ty)> {
        Some(match (self, t) {
            (AggKind::Count, Ty::Unknown) => (Ty::Text, Ty::Int8),
            (AggKind::Count, t) => (t, Ty::Int8),
            (AggKind::Sum, Ty::Int2 | Ty::Int4) => (t, Ty::Int8),
            (AggKind::Sum, Ty::Int8 | Ty::Numeric)
            | (AggKind::Avg, Ty::Int2 | Ty::Int4 | Ty::Int8 | Ty::Numeric) => (t, Ty::Numeric),
            (AggKind::Sum | AggKind::Avg, Ty::Float8 | Ty::Interval) | (AggKind::Sum, Ty::Float4) => (t, t),
            (AggKind::Avg, Ty::Float4) => (t, Ty::Float8),
            (AggKind::BoolAnd | AggKind::BoolOr, Ty::Bool | Ty::Unknown) => (Ty::Bool, Ty::Bool),
            (AggKind::Min | AggKind::Max, Ty::Unknown | Ty::Varchar | Ty::Name | Ty::Char1) => {
                (Ty::Text, Ty::Text)
            }
            (AggKind::Min | AggKind::Max, Ty::Bool | Ty::Bytea | Ty::Uuid | Ty::Json | Ty::Void) => {
                return None;
            }
            (AggKind::Min | AggKind::Max, t) => (t, t),
            (AggKind::BitAnd | AggKind::BitOr | AggKind::BitXor, Ty::Int2 | Ty::Int4 | Ty::Int8) => (t, t),
            (AggKind::StringAgg, Ty::Bytea) => (t, t),
            (AggKind::StringAgg, t) if t == Ty::Unknown || t.is_text() => (Ty::Text, Ty::Text),
            (AggKind::ArrayAgg, Ty::Unknown) => return None,
            (AggKind::ArrayAgg, t) => (t, t.array()?),
            (AggKind::JsonAgg(_), _) => (Ty::Json, Ty::Json),
            (AggKind::JsonObjectAgg, _) => (Ty::Text, Ty::Json),
            (AggKind::Moment(m), Ty::Int2 | Ty::Int4 | Ty::Int8 | Ty::Numeric) if !m.is_of_pairs() => {
                (t, Ty::Numeric)
            }
            (AggKind::Moment(m), t) if t == Ty::Unknown || t.is_number() => (Ty::Float8, m.result()),
            (AggKind::PercentileCont, Ty::Interval) => (t, t),
            (AggKind::PercentileCont, t) if t == Ty::Unknown || t.is_number() => (Ty::Float8, Ty::Float8),
            (AggKind::PercentileDisc | AggKind::Mode, Ty::Unknown) => (Ty::Text, Ty::Text),
            (AggKind::PercentileDisc | AggKind::Mode, t) => (t, t),
            (AggKind::PercentilesCont, t) => {
                let (input, one) = AggKind::PercentileCont.signature(t)?;
                (input, one.array()?)
            }
            (AggKind::PercentilesDisc, t) => {
                let (input, one) = AggKind::PercentileDisc.signature(t)?;
                (input, one.array()?)
            }
            _ => return None,
        })
    }
}

impl Binder<'_> {
    /// Binds an aggregate call, which becomes a slot of the group. It belongs to the nearest query whose
    /// columns its argument reads.
    pub(super) fn aggregate(
        &mut self,
        kind: AggKind,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if self.is_of_query_around(kind, f, at, scope)? {
            return self.in_query_around(|b, scope| b.aggregate(kind, f, at, scope));
        }
        if let Some(clause) = scope.no_aggregates {
            let message = format!("aggregate functions are not allowed in {clause}");
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).at(at));
        }
        // The first aggregate makes the query a grouped one.
        let grouping = scope.grouping.take().unwrap_or_default();
        let call = self.argument_of(kind, f, at, scope).map_err(nested);
        let grouping = scope.grouping.insert(grouping);
        let (call, t) = call?;
        let index = grouping.calls.iter().position(|known| known.written == *f).unwrap_or_else(|| {
            grouping.calls.push(WrittenAggregate { written: f.clone(), call });
            grouping.calls.len() - 1
        });
        // Slots of aggregates are counted down from the highest number. The plan gives them numbers after
        // those of the keys.
        Ok(Bound { expr: Expr::Slot(usize::MAX - index), t, at })
    }

    /// Returns the second argument as a value of its type. The error is `None` if there is no aggregate with
    /// such an argument, because the caller reports this error.
    fn second(&mut self, kind: AggKind, d: Bound, input: Ty) -> std::result::Result<Expr, Option<SqlError>> {
        let ty = kind.second_type(input);
        let fits = match kind {
            AggKind::StringAgg => d.t.ty.is_text() == (input == Ty::Text),
            AggKind::JsonObjectAgg | AggKind::PercentilesCont | AggKind::PercentilesDisc => true,
            _ => d.t.ty.is_number(),
        };
        if d.t.ty != Ty::Unknown && !fits {
            return Err(None);
        }
        Ok(self.cast(d, Typed::plain(ty), false).map_err(Some)?.expr)
    }

    /// Binds FILTER.
    fn filter_of_call(&mut self, f: &ast::Function, scope: &mut Scope) -> Result<Option<Expr>> {
        let Some(e) = &f.filter else { return Ok(None) };
        let b = self.expression(e, scope)?;
        self.condition(b, "FILTER").map(Some)
    }

    /// Binds ORDER BY within a call.
    fn order_in_call(&mut self, f: &ast::Function, scope: &mut Scope) -> Result<Vec<OrderKey>> {
        let mut out = self.window_order(&f.within_group, scope)?;
        out.extend(self.window_order(&f.order_by, scope)?);
        Ok(out.into_iter().map(|(order, _)| order).collect())
    }

    /// Binds the call over the rows that are grouped.
    fn argument_of(
        &mut self,
        kind: AggKind,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<(AggCall, Typed)> {
        let before = scope.no_aggregates.replace("an aggregate's argument");
        let call = self.aggregate_call(kind, f, at, scope);
        scope.no_aggregates = before;
        call
    }

    /// Returns whether the call reads columns of outer queries, and none of this query.
    fn is_of_query_around(
        &mut self,
        kind: AggKind,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<bool> {
        if !self.is_within() {
            return Ok(false);
        }
        self.probed()?;
        let grouping = scope.grouping.take();
        // Operands that are not computed, because another operand is NULL, count as read.
        let before = std::mem::replace(&mut self.keeps_operands, true);
        let call = self.without_trace(|b| b.argument_of(kind, f, at, scope));
        self.keeps_operands = before;
        scope.grouping = grouping;
        // If it can't be bound, the second binding reports the error.
        let Ok((call, _)) = call else { return Ok(false) };
        Ok(call.exprs().any(Expr::reads_outer) && !call.exprs().any(Expr::reads_columns))
    }

    /// Returns the values in a call, with those of WITHIN GROUP last. Values of a json aggregate are
    /// converted to json.
    fn values_of_call(
        &mut self,
        mut kind: AggKind,
        f: &ast::Function,
        scope: &mut Scope,
    ) -> Result<(AggKind, Vec<Bound>)> {
        let mut bound = Vec::with_capacity(f.args.len() + f.within_group.len());
        for (n, argument) in f.args.iter().enumerate() {
            let argument = plain_argument(argument)?;
            let is_json = match kind {
                AggKind::JsonAgg(_) => n == 0,
                AggKind::JsonObjectAgg => n == 1,
                _ => false,
            };
            if !is_json {
                let value = self.expression(argument, scope);
                bound.push(value.map_err(|e| if names_relation(argument, scope) { whole_row() } else { e })?);
                continue;
            }
            let (expr, structured) = self.json_of(argument, scope)?;
            kind = if n == 0 { AggKind::JsonAgg(structured) } else { kind };
            bound.push(Bound { expr, t: Typed::plain(Ty::Json), at: self.at(argument) });
        }
        for sorted in &f.within_group {
            bound.push(self.expression(&sorted.expr, scope)?);
        }
        if kind == AggKind::ArrayAgg
            && let Some(array) = bound.first().filter(|b| b.t.ty.element().is_some())
        {
            return Err(SqlError::unsupported("an array of more than one dimension").at(array.at));
        }
        Ok((kind.beside(bound.first()), bound))
    }

    pub(super) fn aggregate_call(
        &mut self,
        kind: AggKind,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<(AggCall, Typed)> {
        let filter = self.filter_of_call(f, scope)?;
        if let [FunctionArg::Star] = f.args.as_slice() {
            if kind != AggKind::Count || f.distinct {
                return Err(no_such(f, Ty::Unknown).at(at));
            }
            let call = AggCall {
                kind,
                argument: None,
                input: Ty::Int8,
                output: Ty::Int8,
                distinct: false,
                filter,
                second: None,
                order: Vec::new(),
            };
            return Ok((call, Typed::plain(Ty::Int8)));
        }
        let (kind, mut bound) = self.values_of_call(kind, f, scope)?;
        let mut order = self.order_in_call(f, scope)?;
        let types = bound.iter().map(|b| b.t.ty.name()).collect::<Vec<_>>().join(", ");
        let undefined = || kind.no_such_call(f, &types).at(at);
        check_within(kind, f, bound.len()).map_err(|e| e.unwrap_or_else(undefined).at(at))?;
        if kind.is_ordered_set() {
            bound.reverse();
        }
        let mut bound = bound.into_iter();
        let (Some(b), second) = (bound.next(), bound.next()) else { return Err(undefined()) };
        let (input, result) = kind.signature(b.t.ty).ok_or_else(undefined)?;
        let shown = if result == Ty::Char { b.t } else { Typed::plain(result) };
        if f.distinct {
            kind.may_be_distinct().map_err(|e| e.at(at))?;
            super::order::orderable(b.t, "DISTINCT")?;
        }
        let is_key = kind == AggKind::JsonObjectAgg;
        let b = if kind == AggKind::ArrayAgg { with_blanks(b) } else { b };
        let written_argument = b.expr.clone();
        let argument = self.cast(b, Typed::plain(input), is_key)?.expr;
        if f.distinct {
            order_by_argument(&mut order, &written_argument, &argument, input);
        }
        let second = second.map(|d| self.second(kind, d, input).map_err(|e| e.unwrap_or_else(undefined)));
        let second = second.transpose()?;
        // The parameter has its type now.
        if let (true, Expr::Param(_), [only]) = (kind.is_ordered_set(), &argument, order.as_mut_slice()) {
            (only.expr, only.ty) = (argument.clone(), input);
        }
        let order = ordered_values(kind, f.distinct, &argument, input, order)?;
        let call = AggCall {
            kind,
            argument: Some(argument),
            input,
            output: result,
            distinct: f.distinct,
            filter,
            second,
            order,
        };
        Ok((call, Typed { ty: result, ..shown }))
    }
}

/// Returns whether an argument is the name of a relation and not of a column.
fn names_relation(argument: &ast::Expr, scope: &Scope) -> bool {
    let ast::Expr::Identifier(ident) = argument else { return false };
    let name = fold(ident);
    scope.find(None, &name) == ColumnMatch::Nothing && scope.relation(&name).is_some()
}

/// Replaces each sort key that equals `written`, the argument before its cast for the aggregate, by
/// `argument`.
fn order_by_argument(order: &mut [OrderKey], written: &Expr, argument: &Expr, input: Ty) {
    let written = format!("{written:?}");
    for by in order.iter_mut().filter(|by| format!("{:?}", by.expr) == written) {
        (by.expr, by.ty) = (argument.clone(), input);
    }
}

/// Returns the order in which an aggregate gets its values. The list is empty if the order has no effect.
/// With DISTINCT, values are sorted.
fn ordered_values(
    kind: AggKind,
    distinct: bool,
    argument: &Expr,
    input: Ty,
    order: Vec<OrderKey>,
) -> Result<Vec<OrderKey>> {
    // The same subquery, written twice, has different numbers, so any subquery is accepted here.
    let is_it = |o: &OrderKey| o.expr.has_subquery() || format!("{:?}", o.expr) == format!("{argument:?}");
    if distinct && !order.iter().all(is_it) {
        let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    Ok(match kind.collects() {
        false => Vec::new(),
        true if distinct && order.is_empty() => {
            vec![OrderKey { expr: argument.clone(), ty: input, descending: false, nulls_first: false }]
        }
        true => order,
    })
}

/// Checks WITHIN GROUP. Only ordered-set aggregates have it, and for them it is required. `count` is the
/// number of all values of the call. The error is `None` if there is no such function, because the caller
/// reports this error.
fn check_within(kind: AggKind, f: &ast::Function, count: usize) -> std::result::Result<(), Option<SqlError>> {
    let within = f.within_group.len();
    if kind.is_ordered_set() && within > 0 && f.distinct {
        let message = "cannot use DISTINCT with WITHIN GROUP";
        return Err(Some(SqlError::new(SqlState::SYNTAX_ERROR, message)));
    }
    match (kind.is_ordered_set(), within) {
        (false, 0) if count == kind.arity() => Ok(()),
        (true, 1) if count == kind.arity() + 1 => Ok(()),
        (true, 0) if count == kind.arity() + 1 => {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {}", written_name(f));
            Err(Some(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)))
        }
        _ => Err(None),
    }
}

fn written_name(f: &ast::Function) -> String {
    f.name.last().to_owned()
}

fn nested(e: SqlError) -> SqlError {
    if e.sqlstate == SqlState::GROUPING_ERROR && e.message.contains("an aggregate's argument") {
        return SqlError { message: "aggregate function calls cannot be nested".into(), ..e };
    }
    e
}

/// Returns the error 42725.
fn not_unique(f: &ast::Function) -> SqlError {
    let message = format!("function {}(unknown) is not unique", written_name(f));
    SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message)
        .with_hint("Could not choose a best candidate function. You might need to add explicit type casts.")
}

fn no_such(f: &ast::Function, t: Ty) -> SqlError {
    no_such_call(f, t.name())
}

fn no_such_call(f: &ast::Function, types: &str) -> SqlError {
    let message = format!("function {}({types}) does not exist", written_name(f));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}
