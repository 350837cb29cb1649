//! Binds calls of window functions: the functions, their types, and the OVER clause.
//!
//! Invariants
//! 1. Results have PostgreSQL's types. A call where PostgreSQL does not allow window functions fails with
//!    42P20.
//! 2. The bounds of a RANGE frame have the type of the sort column, and are compared as key bytes.
//!
//! This module does not know how window functions are computed (`varve-query`).

use varve_engine::Value;

use super::Binder;
use super::bound::Bound;
use super::call::plain_argument;
use super::coerce::with_blanks;
use super::order::is_descending;
use super::scope::{Scope, WINDOW_SLOT, Windows};
use crate::ast::{self, BinaryOperator, FrameExclusion, Over};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{CmpOp, Expr};
use crate::names::fold;
use crate::plan::{AggCall, AggKind, Exclude, Frame, FrameBound, FrameUnits, OrderKey, WinCall, WinFunction};
use crate::ty::{Ty, Typed};

impl WinFunction {
    /// Returns the smallest and the largest number of arguments of the function.
    fn arity(self) -> (usize, usize) {
        match self {
            WinFunction::RowNumber
            | WinFunction::Rank
            | WinFunction::DenseRank
            | WinFunction::PercentRank
            | WinFunction::CumeDist => (0, 0),
            WinFunction::Lag | WinFunction::Lead => (1, 3),
            WinFunction::NthValue => (2, 2),
            _ => (1, 1),
        }
    }
}

fn no_distinct() -> SqlError {
    let message = "DISTINCT is not implemented for window functions";
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

fn windowing(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::WINDOWING_ERROR, message)
}

impl Binder<'_> {
    /// Collects the windows that a query's WINDOW clause names.
    pub(super) fn named_windows(&mut self, written: &[ast::NamedWindow]) -> Result<Windows> {
        let mut out = Windows::default();
        for ast::NamedWindow { name, spec } in written {
            let name = fold(name);
            if out.named.iter().any(|(n, _)| *n == name) {
                return Err(windowing(format!("window \"{name}\" is already defined")));
            }
            let spec = out.complete(spec)?;
            out.named.push((name, spec));
        }
        Ok(out)
    }

    /// Binds `function(...) OVER ...`. Its value is in a slot after the slots of the row.
    pub(super) fn window_call(
        &mut self,
        name: &str,
        f: &ast::Function,
        over: &Over,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        match scope.no_aggregates {
            Some("an aggregate's argument") => {
                let message = "aggregate function calls cannot contain window function calls";
                return Err(SqlError::new(SqlState::GROUPING_ERROR, message).at(at));
            }
            Some(clause) => {
                return Err(windowing(format!("window functions are not allowed in {clause}")).at(at));
            }
            None => {}
        }
        if let Some(clause) = scope.windows.as_ref().and_then(|w| w.refused) {
            return Err(windowing(format!("window functions are not allowed in {clause}")).at(at));
        }
        let Some(spec) = scope.windows.as_ref().map(|w| w.spec(over)).transpose()? else {
            return Err(windowing("window function calls cannot be nested").at(at));
        };
        scope.refuse_windows(Some("window definitions"));
        let before = scope.refuse_sets(Some("window definitions"));
        let call = self.window_over(&spec, scope);
        scope.refuse_windows(None);
        scope.refuse_sets(before);
        let mut call = call?;
        let windows = scope.windows.take();
        let bound = self.window_function(name, f, at, &mut call, scope);
        let windows = scope.windows.insert(windows.unwrap_or_default());
        bound?;
        let t = Typed::plain(call.output);
        windows.calls.push(call);
        Ok(Bound { expr: Expr::Slot(WINDOW_SLOT - (windows.calls.len() - 1)), t, at })
    }

    /// Returns a call over this window. The caller sets the function of the call.
    fn window_over(&mut self, spec: &ast::WindowSpec, scope: &mut Scope) -> Result<WinCall> {
        let partition = spec.partition_by.iter().map(|e| {
            let b = self.expression(e, scope)?;
            let b = self.known(b)?;
            super::order::orderable(b.t, "PARTITION BY")?;
            Ok((b.expr, b.t.ty))
        });
        let partition = partition.collect::<Result<Vec<_>>>()?;
        let mut order = self.window_order(&spec.order_by, scope)?;
        let frame = self.frame(spec.frame.as_ref(), &mut order, scope)?;
        let order = order.into_iter().map(|(o, _)| o).collect();
        Ok(WinCall {
            function: WinFunction::RowNumber,
            arguments: Vec::new(),
            filter: None,
            partition,
            order,
            frame,
            output: Ty::Int8,
        })
    }

    fn window_function(
        &mut self,
        name: &str,
        f: &ast::Function,
        at: Option<u32>,
        call: &mut WinCall,
        scope: &mut Scope,
    ) -> Result<()> {
        match (WinFunction::of(name), AggKind::of(name)) {
            (Some(function), _) => self.plain_window_function(function, name, f, at, call, scope),
            (None, Some(kind)) => self.windowed_aggregate((kind, name), f, at, call, scope),
            (None, None) => {
                let message =
                    format!("OVER specified, but {name} is not a window function nor an aggregate function");
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).at(at))
            }
        }
    }

    fn windowed_aggregate(
        &mut self,
        (kind, name): (AggKind, &str),
        f: &ast::Function,
        at: Option<u32>,
        call: &mut WinCall,
        scope: &mut Scope,
    ) -> Result<()> {
        if f.distinct {
            return Err(no_distinct().at(at));
        }
        if kind.is_ordered_set() {
            let message = format!("OVER is not supported for ordered-set aggregate {name}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
        }
        let (aggregate, t): (AggCall, Typed) = self.aggregate_call(kind, f, at, scope)?;
        call.function = WinFunction::Aggregate(kind);
        if !aggregate.order.is_empty() {
            let message = "aggregate ORDER BY is not implemented for window functions";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
        }
        let arguments = aggregate.argument.into_iter().chain(aggregate.second);
        let shown = |e: Expr| match t.length() {
            Some(n) if t.ty == Ty::Char => Expr::Pad(Box::new(e), n),
            _ => e,
        };
        call.arguments = arguments.map(|e| (shown(e), aggregate.input)).collect();
        call.filter = aggregate.filter;
        call.output = t.ty;
        Ok(())
    }

    fn plain_window_function(
        &mut self,
        function: WinFunction,
        name: &str,
        f: &ast::Function,
        at: Option<u32>,
        call: &mut WinCall,
        scope: &mut Scope,
    ) -> Result<()> {
        if f.filter.is_some() {
            let message = "FILTER is not implemented for non-aggregate window functions";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
        }
        if f.distinct {
            return Err(no_distinct().at(at));
        }
        let mut arguments = Vec::new();
        for argument in &f.args {
            arguments.push(self.expression(plain_argument(argument)?, scope)?);
        }
        let (least, most) = function.arity();
        let types: Vec<&str> = arguments.iter().map(|b| b.t.ty.name()).collect();
        let undefined = || {
            let message = format!("function {name}({}) does not exist", types.join(", "));
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message).at(at).with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            )
        };
        if arguments.len() < least || arguments.len() > most {
            return Err(undefined());
        }
        let mut arguments = arguments.into_iter();
        let Some(first) = arguments.next() else {
            call.output = match function {
                WinFunction::PercentRank | WinFunction::CumeDist => Ty::Float8,
                _ => Ty::Int8,
            };
            call.function = function;
            return Ok(());
        };
        let whole = |binder: &mut Self, b: Bound| -> Result<(Expr, Ty)> {
            if b.t.ty != Ty::Unknown && !matches!(b.t.ty, Ty::Int2 | Ty::Int4) {
                return Err(undefined());
            }
            Ok((binder.cast(b, Typed::plain(Ty::Int4), false)?.expr, Ty::Int4))
        };
        if function == WinFunction::Ntile {
            call.arguments.push(whole(self, first)?);
            call.output = Ty::Int4;
        } else {
            let second = arguments.next().map(|b| whole(self, b)).transpose()?;
            let (value, default) = match arguments.next() {
                Some(default) => {
                    let (both, t) = self.unify(vec![with_blanks(first), with_blanks(default)], name)?;
                    let mut both = both.into_iter().map(|e| (e, t.ty));
                    (both.next(), both.next())
                }
                None => {
                    let b = self.known(with_blanks(first))?;
                    (Some((b.expr, b.t.ty)), None)
                }
            };
            call.output = value.as_ref().map_or(Ty::Text, |(_, t)| *t);
            call.arguments.extend(value.into_iter().chain(second).chain(default));
        }
        call.function = function;
        Ok(())
    }

    /// Binds ORDER BY of a window. Returns each key with its bound expression.
    pub(super) fn window_order(
        &mut self,
        written: &[ast::OrderByExpr],
        scope: &mut Scope,
    ) -> Result<Vec<(OrderKey, Bound)>> {
        let mut out = Vec::with_capacity(written.len());
        for item in written {
            let b = self.expression(&item.expr, scope)?;
            let b = self.known(b)?;
            super::order::orderable(b.t, "ORDER BY")?;
            let descending = is_descending(item.direction)?;
            let nulls_first = item.nulls_first.unwrap_or(descending);
            out.push((OrderKey { expr: b.expr.clone(), ty: b.t.ty, descending, nulls_first }, b));
        }
        Ok(out)
    }

    fn frame(
        &mut self,
        written: Option<&ast::WindowFrame>,
        order: &mut [(OrderKey, Bound)],
        scope: &mut Scope,
    ) -> Result<Frame> {
        let Some(written) = written else {
            return Ok(Frame {
                units: FrameUnits::Range,
                start: FrameBound::Unbounded,
                end: FrameBound::Current,
                exclude: Exclude::Nothing,
            });
        };
        let units = match written.units {
            ast::FrameUnits::Rows => FrameUnits::Rows,
            ast::FrameUnits::Range => FrameUnits::Range,
            ast::FrameUnits::Groups => FrameUnits::Groups,
        };
        check_frame(&written.start, &written.end)?;
        if units == FrameUnits::Groups && order.is_empty() {
            return Err(windowing("GROUPS mode requires an ORDER BY clause"));
        }
        let start = self.frame_bound((&written.start, true), units, order, scope)?;
        let end = self.frame_bound((&written.end, false), units, order, scope)?;
        let exclude = match written.exclude {
            FrameExclusion::NoOthers => Exclude::Nothing,
            FrameExclusion::CurrentRow => Exclude::Row,
            FrameExclusion::Group => Exclude::Group,
            FrameExclusion::Ties => Exclude::Ties,
        };
        Ok(Frame { units, start, end, exclude })
    }

    fn frame_bound(
        &mut self,
        (bound, is_start): (&ast::FrameBound, bool),
        units: FrameUnits,
        order: &mut [(OrderKey, Bound)],
        scope: &mut Scope,
    ) -> Result<FrameBound> {
        let (offset, before) = match bound {
            ast::FrameBound::CurrentRow => return Ok(FrameBound::Current),
            ast::FrameBound::Preceding(None) | ast::FrameBound::Following(None) => {
                return Ok(FrameBound::Unbounded);
            }
            ast::FrameBound::Preceding(Some(e)) => (e, true),
            ast::FrameBound::Following(Some(e)) => (e, false),
        };
        let offset = self.expression(offset, scope)?;
        let mut varies = false;
        offset.expr.walk(&mut |e| varies |= matches!(e, Expr::Column(_) | Expr::Slot(_)));
        let name = match units {
            FrameUnits::Rows => "ROWS",
            FrameUnits::Groups => "GROUPS",
            FrameUnits::Range => "RANGE",
        };
        if varies {
            let message = format!("argument of {name} must not contain variables");
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(offset.at));
        }
        if units != FrameUnits::Range {
            if !offset.t.ty.is_number() && offset.t.ty != Ty::Unknown {
                let message =
                    format!("argument of {name} must be type bigint, not type {}", offset.t.ty.name());
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).at(offset.at));
            }
            return Ok(FrameBound::Count(self.cast(offset, Typed::plain(Ty::Int8), false)?.expr, before));
        }
        let end = FrameEnd { is_start, before };
        self.distance_bound(offset, end, order)
    }

    /// Returns the bound of a RANGE frame, which is the value of the sort column plus or minus `offset`. If
    /// the bound has another type than the sort key, the key is cast to this type.
    fn distance_bound(
        &mut self,
        offset: Bound,
        end: FrameEnd,
        order: &mut [(OrderKey, Bound)],
    ) -> Result<FrameBound> {
        let [(key, value)] = order else {
            let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
            return Err(windowing(message));
        };
        let at = offset.at;
        let measured =
            matches!(value.t.ty, Ty::Date | Ty::Timestamp | Ty::TimestampTz | Ty::Time | Ty::Interval);
        if !measured && !value.t.ty.is_number() {
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
                value.t.ty.name()
            );
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
        }
        let offset = self.offset_like(offset, value.t.ty)?;
        if !is_distance(offset.t.ty, value.t.ty) {
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} and offset type {}",
                value.t.ty.name(),
                offset.t.ty.name()
            );
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Cast the offset value to an appropriate type.")
                .at(at));
        }
        // A sum of integers could overflow its type, so it is computed as bigint. As in PostgreSQL, the
        // offset for a real is a double, so the sum is a double.
        let wide = match value.t.ty {
            ty if ty.is_integer() => Typed::plain(Ty::Int8),
            Ty::Float4 => Typed::plain(Ty::Float8),
            _ => value.t,
        };
        let from = if wide.ty == value.t.ty { value.clone() } else { self.cast(value.clone(), wide, false)? };
        let offset = if wide.ty == Ty::Float8 { self.implicit(offset, Ty::Float8, "RANGE")? } else { offset };
        let op = if end.before == key.descending { BinaryOperator::Plus } else { BinaryOperator::Minus };
        let mut bound = self.binary(&op, from.clone(), offset.clone(), at)?;
        if matches!(bound.t.ty, Ty::Float8 | Ty::Numeric) {
            let is_greatest = end.is_start == key.descending;
            bound = self.beyond_infinity(from, bound, is_greatest)?;
        }
        if bound.t.ty != key.ty {
            key.expr = self.cast(value.clone(), bound.t, true)?.expr;
            key.ty = bound.t.ty;
        }
        Ok(FrameBound::Value(offset.expr, bound.expr))
    }

    /// Returns `bound`, except where it is NaN and the row's value is not, that is for infinity minus
    /// infinity. There it returns infinity or -infinity, so that this end of the frame excludes no value.
    fn beyond_infinity(&mut self, from: Bound, bound: Bound, is_greatest: bool) -> Result<Bound> {
        let (at, t) = (bound.at, bound.t);
        let constant = |text: &str| Bound {
            expr: Expr::Const(Value::Text(text.to_owned())),
            t: Typed::plain(Ty::Unknown),
            at,
        };
        let extreme = constant(if is_greatest { "infinity" } else { "-infinity" });
        let extreme = self.cast(extreme, t, false)?.expr;
        let is_number = self.compare(CmpOp::Ne, from, constant("nan"), at)?.expr;
        let has_no_sum = self.compare(CmpOp::Eq, bound.clone(), constant("nan"), at)?.expr;
        let branch = (Expr::And([is_number, has_no_sum].into()), extreme);
        Ok(Bound { expr: Expr::Case([branch].into(), Box::new(bound.expr)), t, at })
    }

    /// Gives an untyped offset the type that belongs to the type of the sort column.
    fn offset_like(&mut self, offset: Bound, of: Ty) -> Result<Bound> {
        if offset.t.ty != Ty::Unknown {
            return Ok(offset);
        }
        let ty = match of {
            Ty::Date | Ty::Timestamp | Ty::TimestampTz | Ty::Time | Ty::Interval => Ty::Interval,
            other => other,
        };
        self.cast(offset, Typed::plain(ty), false)
    }
}

impl Windows {
    /// Returns the calls, and replaces their temporary slots in `exprs` by the final ones, which begin at
    /// `width`.
    pub(super) fn placed(self, width: usize, exprs: Vec<&mut Expr>) -> Box<[WinCall]> {
        let count = self.calls.len();
        for expr in exprs {
            expr.walk_mut(&mut |e| {
                if let Expr::Slot(n) = e
                    && *n <= WINDOW_SLOT
                    && WINDOW_SLOT - *n < count
                {
                    *n = width + (WINDOW_SLOT - *n);
                }
            });
        }
        self.calls.into()
    }

    /// Returns the full specification of the window that OVER names or writes.
    fn spec(&self, over: &Over) -> Result<ast::WindowSpec> {
        match over {
            Over::Name(name) => self.named(name).cloned(),
            Over::Spec(spec) => self.complete(spec),
        }
    }

    fn named(&self, name: &ast::Ident) -> Result<&ast::WindowSpec> {
        let name = fold(name);
        let found = self.named.iter().find(|(n, _)| *n == name).map(|(_, spec)| spec);
        found.ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"))
        })
    }

    /// Completes a specification with the clauses of the window that it names.
    fn complete(&self, spec: &ast::WindowSpec) -> Result<ast::WindowSpec> {
        let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
        let base = self.named(name)?;
        let name = fold(name);
        let refuse = |what: String| Err(windowing(what));
        if !spec.partition_by.is_empty() {
            return refuse(format!("cannot override PARTITION BY clause of window \"{name}\""));
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return refuse(format!("cannot override ORDER BY clause of window \"{name}\""));
        }
        if base.frame.is_some() {
            return refuse(format!("cannot copy window \"{name}\" because it has a frame clause"));
        }
        let order_by = if spec.order_by.is_empty() { base.order_by.clone() } else { spec.order_by.clone() };
        let partition_by = base.partition_by.clone();
        Ok(ast::WindowSpec { window_name: None, partition_by, order_by, frame: spec.frame.clone() })
    }
}

/// Returns whether values of type `ty` can be offsets for a sort column of type `of`.
fn is_distance(ty: Ty, of: Ty) -> bool {
    match of {
        Ty::Float4 | Ty::Float8 => ty.is_number(),
        Ty::Numeric => ty.is_integer() || ty == Ty::Numeric,
        of if of.is_integer() => ty.is_integer(),
        _ => ty == Ty::Interval,
    }
}

/// An end of a frame that is an offset away from the current row.
#[derive(Clone, Copy)]
struct FrameEnd {
    is_start: bool,
    /// Whether the end is PRECEDING.
    before: bool,
}

/// Fails with 42P20 if the ends of a frame contradict each other.
fn check_frame(start: &ast::FrameBound, end: &ast::FrameBound) -> Result<()> {
    use ast::FrameBound::{CurrentRow, Following, Preceding};
    let message = match (start, end) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Preceding(None)) => "frame end cannot be UNBOUNDED PRECEDING",
        (CurrentRow, Preceding(_)) => "frame starting from current row cannot have preceding rows",
        (Following(_), Preceding(_) | CurrentRow) => {
            "frame starting from following row cannot have preceding rows"
        }
        _ => return Ok(()),
    };
    Err(windowing(message))
}
