//! Aggregate calls: which there are, and the types they give.
//!
//! Invariants
//! 1. Results have PostgreSQL's types: sum of integer is bigint, sum of bigint and avg of any whole number are numeric.
//! 2. The same call written twice is computed once.
//!
//! Does not know: how groups are formed (`exec`).

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::function::{is_distinct, plain_argument};
use super::scope::Scope;
use super::{Binder, Bound};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::ty::{Ty, Typed};

/// An aggregate function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggKind {
    /// count(*) and count(x)
    Count,
    /// sum
    Sum,
    /// avg
    Avg,
    /// min
    Min,
    /// max
    Max,
    /// bool_and, every
    BoolAnd,
    /// bool_or
    BoolOr,
}

/// One aggregate to compute.
#[derive(Debug, Clone)]
pub struct AggCall {
    /// The function.
    pub kind: AggKind,
    /// Its argument over the input row; `None` for count(*).
    pub argument: Option<Expr>,
    /// The argument's type.
    pub input: Ty,
    /// The result's type.
    pub output: Ty,
    /// DISTINCT
    pub distinct: bool,
    /// FILTER (WHERE ...)
    pub filter: Option<Expr>,
    /// The call as written, by which equal ones are found.
    written: Option<ast::Function>,
}

impl AggKind {
    /// The aggregate of this name.
    pub fn of(name: &str) -> Option<AggKind> {
        Some(match name {
            "count" => AggKind::Count,
            "sum" => AggKind::Sum,
            "avg" => AggKind::Avg,
            "min" => AggKind::Min,
            "max" => AggKind::Max,
            "bool_and" | "every" => AggKind::BoolAnd,
            "bool_or" => AggKind::BoolOr,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            AggKind::Count => "count",
            AggKind::Sum => "sum",
            AggKind::Avg => "avg",
            AggKind::Min => "min",
            AggKind::Max => "max",
            AggKind::BoolAnd => "bool_and",
            AggKind::BoolOr => "bool_or",
        }
    }

    /// Type that the argument is cast to, and type of the result.
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
            _ => return None,
        })
    }
}

impl Binder<'_> {
    /// An aggregate call: becomes a slot of the group.
    pub(super) fn aggregate(
        &mut self,
        kind: AggKind,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if let Some(clause) = scope.no_aggregates {
            let message = format!("aggregate functions are not allowed in {clause}");
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).at(at));
        }
        let Some(grouping) = scope.grouping.take() else {
            // The query is bound again as a grouped one.
            self.met_aggregate = true;
            let message = "aggregate functions are not allowed here";
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).at(at));
        };
        scope.no_aggregates = Some("an aggregate's argument");
        let call = self.aggregate_call(kind, f, at, scope).map_err(nested);
        scope.no_aggregates = None;
        let grouping = scope.grouping.insert(grouping);
        let (call, t) = call?;
        let same = |c: &AggCall| c.written.is_some() && c.written == call.written;
        let index = grouping.calls.iter().position(same).unwrap_or_else(|| {
            grouping.calls.push(call);
            grouping.calls.len() - 1
        });
        // Slots of aggregates are counted from the top; the plan renumbers them behind the keys.
        Ok(Bound { expr: Expr::Slot(usize::MAX - index), t, at })
    }

    pub(super) fn aggregate_call(
        &mut self,
        kind: AggKind,
        f: &ast::Function,
        at: Option<u32>,
        scope: &mut Scope,
    ) -> Result<(AggCall, Typed)> {
        let FunctionArguments::List(list) = &f.args else {
            return Err(no_such(kind, Ty::Unknown).at(at));
        };
        let filter = match &f.filter {
            Some(e) => {
                let b = self.expression(e, scope)?;
                Some(self.condition(b, "FILTER")?)
            }
            None => None,
        };
        let written = Some(f.clone());
        if let [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] = list.args.as_slice() {
            if kind != AggKind::Count || is_distinct(f) {
                return Err(no_such(kind, Ty::Unknown).at(at));
            }
            let call = AggCall {
                kind,
                argument: None,
                input: Ty::Int8,
                output: Ty::Int8,
                distinct: false,
                filter,
                written,
            };
            return Ok((call, Typed::plain(Ty::Int8)));
        }
        let [argument] = list.args.as_slice() else { return Err(no_such(kind, Ty::Unknown).at(at)) };
        let b = self.expression(plain_argument(argument)?, scope)?;
        let (input, result) = kind.signature(b.t.ty).ok_or_else(|| no_such(kind, b.t.ty).at(at))?;
        let shown = if result == Ty::Char { b.t } else { Typed::plain(result) };
        if is_distinct(f) {
            super::query::orderable(b.t, "DISTINCT")?;
        }
        let argument = Some(self.cast(b, Typed::plain(input), false)?.expr);
        let call =
            AggCall { kind, argument, input, output: result, distinct: is_distinct(f), filter, written };
        Ok((call, Typed { ty: result, ..shown }))
    }
}

fn nested(e: SqlError) -> SqlError {
    if e.sqlstate == SqlState::GROUPING_ERROR && e.message.contains("an aggregate's argument") {
        return SqlError { message: "aggregate function calls cannot be nested".into(), ..e };
    }
    e
}

fn no_such(kind: AggKind, t: Ty) -> SqlError {
    let message = format!("function {}({}) does not exist", kind.name(), t.name());
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}
