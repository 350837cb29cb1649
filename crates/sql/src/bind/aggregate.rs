//! Aggregate calls: which there are, and the types they give.
//!
//! Invariants
//! 1. Results have PostgreSQL's types: sum of integer is bigint, sum of bigint and avg of any whole number are numeric.
//! 2. The same call written twice is computed once.
//! 3. A call belongs to the nearest query whose columns it reads, or to its own if it reads none (SQL:2016, 6.9).
//!
//! Does not know: how groups are formed (`exec`).

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::function::{is_distinct, plain_argument};
use super::scope::Scope;
use super::window::WinOrder;
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
    /// bit_and
    BitAnd,
    /// bit_or
    BitOr,
    /// string_agg
    StringAgg,
    /// array_agg
    ArrayAgg,
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
    /// What string_agg puts before each value but the first.
    pub delimiter: Option<Expr>,
    /// ORDER BY within the call.
    pub order: Vec<WinOrder>,
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
            "bit_and" => AggKind::BitAnd,
            "bit_or" => AggKind::BitOr,
            "string_agg" => AggKind::StringAgg,
            "array_agg" => AggKind::ArrayAgg,
            _ => return None,
        })
    }

    /// Whether it keeps all values: only a runner of general queries computes it.
    pub fn collects(self) -> bool {
        matches!(self, AggKind::StringAgg | AggKind::ArrayAgg)
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
            AggKind::BitAnd => "bit_and",
            AggKind::BitOr => "bit_or",
            AggKind::StringAgg => "string_agg",
            AggKind::ArrayAgg => "array_agg",
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
            (AggKind::BitAnd | AggKind::BitOr, Ty::Int2 | Ty::Int4 | Ty::Int8) => (t, t),
            (AggKind::StringAgg, Ty::Bytea) => (t, t),
            (AggKind::StringAgg, t) if t == Ty::Unknown || t.is_text() => (Ty::Text, Ty::Text),
            (AggKind::ArrayAgg, Ty::Unknown) => (Ty::Text, Ty::Text.array()?),
            (AggKind::ArrayAgg, t) => (t, t.array()?),
            _ => return None,
        })
    }
}

impl Binder<'_> {
    /// An aggregate call: becomes a slot of the group. It belongs to the nearest query whose columns its argument reads.
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
        let same = |c: &AggCall| c.written.is_some() && c.written == call.written;
        let index = grouping.calls.iter().position(same).unwrap_or_else(|| {
            grouping.calls.push(call);
            grouping.calls.len() - 1
        });
        // Slots of aggregates are counted from the top; the plan renumbers them behind the keys.
        Ok(Bound { expr: Expr::Slot(usize::MAX - index), t, at })
    }

    /// The delimiter of string_agg as a value of this type; no error of its own if the call takes none such.
    fn delimiter(&mut self, d: Bound, input: Ty) -> std::result::Result<Expr, Option<SqlError>> {
        if d.t.ty != Ty::Unknown && d.t.ty.is_text() != (input == Ty::Text) {
            return Err(None);
        }
        Ok(self.cast(d, Typed::plain(input), false).map_err(Some)?.expr)
    }

    /// ORDER BY within a call.
    fn order_in_call(
        &mut self,
        list: &ast::FunctionArgumentList,
        scope: &mut Scope,
    ) -> Result<Vec<WinOrder>> {
        let mut out = Vec::new();
        for clause in &list.clauses {
            if let ast::FunctionArgumentClause::OrderBy(written) = clause {
                out.extend(self.window_order(written, scope)?.into_iter().map(|(o, _)| o));
            }
        }
        Ok(out)
    }

    /// The call, bound over the rows that are grouped.
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

    /// Whether the call reads columns of queries around, and none of this one.
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
        let call = self.without_trace(|b| b.argument_of(kind, f, at, scope));
        scope.grouping = grouping;
        // If it can't be bound, whoever binds it in earnest says why.
        let Ok((call, _)) = call else { return Ok(false) };
        Ok(call.exprs().any(Expr::reads_outer) && !call.exprs().any(Expr::reads_columns))
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
                delimiter: None,
                order: Vec::new(),
                written,
            };
            return Ok((call, Typed::plain(Ty::Int8)));
        }
        let mut bound = Vec::with_capacity(list.args.len());
        for argument in &list.args {
            bound.push(self.expression(plain_argument(argument)?, scope)?);
        }
        let order = self.order_in_call(list, scope)?;
        let types = bound.iter().map(|b| b.t.ty.name()).collect::<Vec<_>>().join(", ");
        let undefined = || no_such_call(kind, &types).at(at);
        let wanted = if kind == AggKind::StringAgg { 2 } else { 1 };
        if bound.len() != wanted {
            return Err(undefined());
        }
        let mut bound = bound.into_iter();
        let (Some(b), delimiter) = (bound.next(), bound.next()) else { return Err(undefined()) };
        let (input, result) = kind.signature(b.t.ty).ok_or_else(undefined)?;
        let shown = if result == Ty::Char { b.t } else { Typed::plain(result) };
        if is_distinct(f) {
            super::query::orderable(b.t, "DISTINCT")?;
        }
        let argument = self.cast(b, Typed::plain(input), false)?.expr;
        let delimiter = delimiter.map(|d| self.delimiter(d, input).map_err(|e| e.unwrap_or_else(undefined)));
        let delimiter = delimiter.transpose()?;
        let order = ordered_values(kind, is_distinct(f), &argument, input, order)?;
        let call = AggCall {
            kind,
            argument: Some(argument),
            input,
            output: result,
            distinct: is_distinct(f),
            filter,
            delimiter,
            order,
            written,
        };
        Ok((call, Typed { ty: result, ..shown }))
    }
}

/// The order in which values are taken. Where it makes no difference, it is none; values that are taken once are sorted.
fn ordered_values(
    kind: AggKind,
    distinct: bool,
    argument: &Expr,
    input: Ty,
    order: Vec<WinOrder>,
) -> Result<Vec<WinOrder>> {
    if distinct && order.iter().any(|o| format!("{:?}", o.expr) != format!("{argument:?}")) {
        let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    Ok(match kind.collects() {
        false => Vec::new(),
        true if distinct && order.is_empty() => {
            vec![WinOrder { expr: argument.clone(), ty: input, descending: false, nulls_first: false }]
        }
        true => order,
    })
}

impl AggCall {
    /// Its expressions.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|o| &o.expr);
        self.argument.iter().chain(&self.filter).chain(&self.delimiter).chain(order)
    }

    /// Its expressions, to change them.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|o| &mut o.expr);
        self.argument.iter_mut().chain(&mut self.filter).chain(&mut self.delimiter).chain(order)
    }
}

fn nested(e: SqlError) -> SqlError {
    if e.sqlstate == SqlState::GROUPING_ERROR && e.message.contains("an aggregate's argument") {
        return SqlError { message: "aggregate function calls cannot be nested".into(), ..e };
    }
    e
}

fn no_such(kind: AggKind, t: Ty) -> SqlError {
    no_such_call(kind, t.name())
}

fn no_such_call(kind: AggKind, types: &str) -> SqlError {
    let message = format!("function {}({types}) does not exist", kind.name());
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}
