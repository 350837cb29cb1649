//! Binds set-returning functions in a select list, in ORDER BY and in FROM.
//!
//! A query with set-returning functions becomes two queries. The inner query has conditions, groups and
//! windows. The outer query calls the functions for each row of the inner query. If a call is an argument of
//! another call, it runs first. Calls on the same level advance together, one row at a time.
//!
//! Invariants
//! 1. Expressions that do not depend on the functions are computed in the inner query. If ORDER BY does not
//!    depend on the functions, rows are sorted before they are expanded, as in PostgreSQL.
//!
//! This module does not know which rows a function returns (`exec::sets`).

use crate::ast;

use super::Binder;
use super::bound::Bound;
use super::call::no_polymorphic_type;
use super::relations::{BoundFrom, named};
use super::scope::{SET_CALL_SLOT, Scope, Sets};
use super::set_functions::{ArrayColumn, RowsOf, values_of};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{Expand, Output, Select, SetCall, SetFunction, Source};
use crate::ty::{self, Ty, Typed};

/// Returns the index of the call that a temporary slot stands for.
fn call_of(slot: usize, count: usize) -> Option<usize> {
    SET_CALL_SLOT.checked_sub(slot).filter(|n| *n < count)
}

impl Binder<'_> {
    /// Binds a call in an expression. Its value is in a slot after the slots of the row.
    pub(super) fn set_call(
        &mut self,
        name: &str,
        rows: RowsOf,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if let Some(message) = refusal(scope) {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at).with_hint(
                "You might be able to move the set-returning function into a LATERAL FROM item.",
            ));
        }
        let arguments = self.arguments(f, scope)?;
        let call = self.set_of(name, rows, arguments, at)?;
        let t = call.output;
        let sets = scope.sets.get_or_insert_default();
        sets.calls.push(call);
        Ok(Bound { expr: Expr::Slot(SET_CALL_SLOT - (sets.calls.len() - 1)), t, at })
    }

    /// Returns the bound call of this function with these arguments.
    fn set_of(
        &mut self,
        name: &str,
        rows: RowsOf,
        arguments: Vec<Bound>,
        at: Option<u32>,
    ) -> Result<SetCall> {
        let (by, ty) = match rows {
            RowsOf::Series => return self.series(arguments, at),
            RowsOf::Subscripts => {
                let bounds = self.subscripts(arguments, at)?;
                return self.series(bounds, at);
            }
            RowsOf::Elements => return self.elements(arguments, at),
            RowsOf::Matches => return self.matches(arguments, at),
            RowsOf::Array(by) => (by, None),
            RowsOf::Columns([ArrayColumn { by, ty, .. }]) => (*by, *ty),
            RowsOf::Columns(_) => return Err(SqlError::internal("a set of several columns as a value")),
        };
        let renamed = |e: SqlError| SqlError { message: e.message.replace(by, name).into(), ..e };
        let array = self.call_function(by, arguments, at).map_err(renamed)?;
        let mut call = self.elements(vec![array], at)?;
        call.output = ty.map_or(call.output, Typed::plain);
        Ok(call)
    }

    fn elements(&mut self, arguments: Vec<Bound>, at: Option<u32>) -> Result<SetCall> {
        let types: Vec<Ty> = arguments.iter().map(|a| a.t.ty).collect();
        if types == [Ty::Unknown] {
            return Err(no_polymorphic_type(at));
        }
        match (types.as_slice(), <[Bound; 1]>::try_from(arguments)) {
            ([ty], Ok([array])) if ty.element().is_some() => Ok(SetCall {
                function: SetFunction::Elements,
                output: Typed::plain(ty.element().unwrap_or(Ty::Text)),
                arguments: vec![(array.expr, *ty)],
            }),
            _ => Err(super::call::undefined("unnest", &types).at(at)),
        }
    }

    fn matches(&mut self, mut arguments: Vec<Bound>, at: Option<u32>) -> Result<SetCall> {
        let types: Vec<Ty> = arguments.iter().map(|a| a.t.ty).collect();
        let texts = types.iter().all(|t| *t == Ty::Unknown || t.is_text());
        if !(2..=3).contains(&types.len()) || !texts {
            return Err(super::call::undefined("regexp_matches", &types).at(at));
        }
        if arguments.len() == 2 {
            let none = Expr::Const(varve_engine::Value::Text(String::new()));
            arguments.push(Bound { expr: none, t: Typed::plain(Ty::Text), at: None });
        }
        let texts =
            arguments.into_iter().map(|a| Ok((self.cast(a, Typed::plain(Ty::Text), false)?.expr, Ty::Text)));
        Ok(SetCall {
            function: SetFunction::Matches,
            arguments: texts.collect::<Result<_>>()?,
            output: Typed::plain(Ty::Text.array().unwrap_or(Ty::Text)),
        })
    }

    fn series(&mut self, mut bounds: Vec<Bound>, at: Option<u32>) -> Result<SetCall> {
        let types: Vec<Ty> = bounds.iter().map(|b| b.t.ty).collect();
        let (ty, step) = series_type(&types).map_err(|e| e.at(at))?;
        if bounds.len() == 2 {
            let one = Expr::Const(varve_engine::Value::Int4(1));
            bounds.push(Bound { expr: one, t: Typed::plain(Ty::Int4), at: None });
        }
        let mut arguments = Vec::with_capacity(3);
        for (bound, wanted) in bounds.into_iter().zip([ty, ty, step]) {
            arguments.push((self.cast(bound, Typed::plain(wanted), false)?.expr, wanted));
        }
        Ok(SetCall { function: SetFunction::Series(ty), arguments, output: Typed::plain(ty) })
    }

    /// Binds a function in FROM, which returns a set or one value.
    pub(super) fn function_rows(
        &mut self,
        written: (&ast::ObjectName, &str),
        arguments: Vec<Bound>,
        numbered: bool,
        alias: Option<&ast::TableAlias>,
    ) -> Result<BoundFrom> {
        let (name, function) = written;
        let at = self.at(name);
        let (call, value) = match values_of(function) {
            Some(rows) => (Some(self.set_of(function, rows, arguments, at)?), None),
            None => (None, Some(self.call_function(function, arguments, at)?)),
        };
        let t = call.as_ref().map(|c| c.output).or(value.as_ref().map(|v| v.t));
        let t = t.unwrap_or(Typed::plain(Ty::Text));
        let only = alias.map_or_else(|| function.to_owned(), |a| crate::names::fold(&a.name));
        let mut columns = vec![(only, t)];
        if numbered {
            columns.push(("ordinality".to_owned(), Typed::plain(Ty::Int8)));
        }
        let types: Box<[Ty]> = columns.iter().map(|(_, t)| t.ty).collect();
        let source = match (call, value) {
            (None, Some(value)) => {
                let number = Output::new(Expr::Const(varve_engine::Value::Int8(1)), Typed::plain(Ty::Int8));
                let outputs = [Output::new(value.expr, t)].into_iter().chain(numbered.then_some(number));
                let outputs: Box<[Output]> = outputs.collect();
                Source::Query(Box::new(Select { visible: outputs.len(), outputs, ..Select::nothing() }))
            }
            (call, _) => {
                let calls = call.into_iter().collect();
                Source::Expand(Box::new(Expand { rows: Select::nothing(), calls, numbered, types }))
            }
        };
        Ok(BoundFrom::one(source, named(function, columns, &[], alias)?))
    }
}

/// Returns the reason why a set-returning function is not allowed here.
fn refusal(scope: &Scope) -> Option<String> {
    let refused = scope.sets.as_ref().and_then(|sets| sets.refused);
    match (scope.no_aggregates, refused, &scope.sets) {
        (Some("an aggregate's argument"), ..) => {
            Some("aggregate function calls cannot contain set-returning function calls".to_owned())
        }
        (Some(clause), ..) | (None, Some(clause), _) => {
            Some(format!("set-returning functions are not allowed in {clause}"))
        }
        (None, None, None) => Some("set-returning functions are not allowed here".to_owned()),
        (None, None, Some(_)) if scope.windows.is_none() => {
            Some("window function calls cannot contain set-returning function calls".to_owned())
        }
        _ => None,
    }
}

/// Returns the type of the values of generate_series for bounds of these types, and the type of its step.
pub(super) fn series_type(types: &[Ty]) -> Result<(Ty, Ty)> {
    let undefined = || super::call::undefined("generate_series", types);
    let ends = types.get(..2).ok_or_else(undefined)?;
    let of_time = |t: &Ty| matches!(t, Ty::Date | Ty::Timestamp | Ty::TimestampTz);
    if ends.iter().any(of_time) && types.len() == 3 {
        let fits = ends.iter().all(|t| of_time(t) || *t == Ty::Unknown)
            && matches!(types[2], Ty::Interval | Ty::Unknown);
        let zoned = ends.contains(&Ty::TimestampTz) || !ends.contains(&Ty::Timestamp);
        let ty = if zoned { Ty::TimestampTz } else { Ty::Timestamp };
        return if fits { Ok((ty, Ty::Interval)) } else { Err(undefined()) };
    }
    if types.len() > 3 {
        return Err(undefined());
    }
    match types.iter().try_fold(Ty::Unknown, |ty, t| ty::common(ty, *t)) {
        Some(Ty::Unknown) if types.iter().all(|t| *t == Ty::Unknown) => Err(SqlError::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!(
                "function generate_series({}) is not unique",
                types.iter().map(|_| "unknown").collect::<Vec<_>>().join(", ")
            ),
        )
        .with_hint("Could not choose a best candidate function. You might need to add explicit type casts.")),
        Some(Ty::Int2 | Ty::Int4) => Ok((Ty::Int4, Ty::Int4)),
        Some(t @ (Ty::Int8 | Ty::Numeric)) => Ok((t, t)),
        _ => Err(undefined()),
    }
}

impl Sets {
    /// Returns the arguments of all calls, to be changed.
    pub(super) fn arguments_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.calls.iter_mut().flat_map(|call| call.arguments.iter_mut().map(|(e, _)| e))
    }

    /// Returns the arguments of all calls.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &Expr> {
        self.calls.iter().flat_map(|call| call.arguments.iter().map(|(e, _)| e))
    }

    /// Splits the query in two: an inner query without the calls, and an outer query that expands its rows by
    /// the calls. `row` has the types of the values that the outputs of `select` use.
    pub(super) fn spread(mut self, select: Select, row: Vec<Typed>) -> Select {
        let count = self.calls.len();
        let reads_set = |e: &Expr| reads_call(e, count);
        let early = !select.distinct
            && select.distinct_on.is_empty()
            && !select.order.iter().any(|key| reads_set(&select.outputs[key.output].expr));
        let mut rows = Select { general: true, ..select };
        let mut outer = Select {
            visible: rows.visible,
            outputs: std::mem::take(&mut rows.outputs),
            distinct: std::mem::take(&mut rows.distinct),
            distinct_on: std::mem::take(&mut rows.distinct_on),
            order: std::mem::take(&mut rows.order),
            limit: rows.limit.take(),
            offset: rows.offset.take(),
            ..Select::nothing()
        };
        let mut outputs: Vec<Output> =
            row.iter().enumerate().map(|(n, t)| Output::new(Expr::Slot(n), *t)).collect();
        rows.visible = outputs.len();
        if early {
            rows.order = std::mem::take(&mut outer.order);
            for key in &mut rows.order {
                outputs.push(outer.outputs[key.output].clone());
                key.output = outputs.len() - 1;
            }
            outer.outputs = outer.outputs.into_vec().into_iter().take(outer.visible).collect();
        }
        rows.outputs = outputs.into();
        let (source, places) = self.stacked(rows, row);
        outer.source = source;
        let mut place = |e: &mut Expr| placed(e, &places);
        outer.outputs.iter_mut().for_each(|o| o.expr.walk_mut(&mut place));
        outer
    }

    /// Makes sources that compute the calls. A call whose arguments use other calls is computed over the
    /// source of these calls. Also returns, for each call, the index of the column with its values.
    fn stacked(&mut self, mut rows: Select, mut row: Vec<Typed>) -> (Source, Vec<usize>) {
        let count = self.calls.len();
        let mut places = vec![usize::MAX; count];
        let mut left: Vec<usize> = (0..count).collect();
        loop {
            let waits = |n: &usize| {
                let reads = |m: &usize| self.calls[*n].arguments.iter().any(|(e, _)| reads_one(e, *m, count));
                left.iter().any(reads)
            };
            let (later, now): (Vec<usize>, Vec<usize>) = left.iter().partition(|n| waits(n));
            let mut calls: Vec<SetCall> = now.iter().map(|n| self.calls[*n].clone()).collect();
            for (e, _) in calls.iter_mut().flat_map(|call| &mut call.arguments) {
                e.walk_mut(&mut |e| placed(e, &places));
            }
            for (n, at) in now.iter().zip(row.len()..) {
                places[*n] = at;
            }
            row.extend(calls.iter().map(|call| call.output));
            let types = calls.iter().map(|call| call.output.ty).collect();
            let expand = Expand { rows, calls: calls.into(), numbered: false, types };
            let source = Source::Expand(Box::new(expand));
            if later.is_empty() || now.is_empty() {
                return (source, places);
            }
            let outputs = row.iter().enumerate().map(|(n, t)| Output::new(Expr::Slot(n), *t)).collect();
            rows = Select { source, outputs, visible: row.len(), ..Select::nothing() };
            left = later;
        }
    }
}

fn reads_call(e: &Expr, count: usize) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Slot(n) if call_of(*n, count).is_some()));
    found
}

fn reads_one(e: &Expr, call: usize, count: usize) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e, Expr::Slot(n) if call_of(*n, count) == Some(call)));
    found
}

/// Replaces the temporary slot of a call by the index of its column.
fn placed(e: &mut Expr, places: &[usize]) {
    if let Expr::Slot(n) = e
        && let Some(call) = call_of(*n, places.len())
    {
        *n = places[call];
    }
}
