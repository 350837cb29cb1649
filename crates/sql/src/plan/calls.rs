//! Calls that are computed over many rows: aggregates and window functions.
//!
//! This module does not know which types a call takes (`bind::aggregate`, `bind::window`) or how it is
//! computed.

use crate::eval::Expr;
use crate::ty::Ty;

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
    /// bit_xor
    BitXor,
    /// string_agg
    StringAgg,
    /// array_agg
    ArrayAgg,
    /// An aggregate for variance, correlation or regression.
    Moment(Moment),
    /// percentile_cont
    PercentileCont,
    /// percentile_disc
    PercentileDisc,
    /// percentile_cont of an array of fractions
    PercentilesCont,
    /// percentile_disc of an array of fractions
    PercentilesDisc,
    /// mode
    Mode,
    /// json_agg. The flag is set for rows and arrays, which are written on separate lines.
    JsonAgg(bool),
    /// json_object_agg
    JsonObjectAgg,
}

/// An aggregate that is computed from moments (`exec::moments`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// var_pop
    VarPop,
    /// var_samp, variance
    VarSamp,
    /// stddev_pop
    StddevPop,
    /// stddev_samp, stddev
    StddevSamp,
    /// covar_pop
    CovarPop,
    /// covar_samp
    CovarSamp,
    /// corr
    Corr,
    /// regr_count
    RegrCount,
    /// regr_avgx
    RegrAvgX,
    /// regr_avgy
    RegrAvgY,
    /// regr_sxx
    RegrSxx,
    /// regr_syy
    RegrSyy,
    /// regr_sxy
    RegrSxy,
    /// regr_r2
    RegrR2,
    /// regr_slope
    RegrSlope,
    /// regr_intercept
    RegrIntercept,
}

impl Moment {
    /// All aggregates of this kind, with their names.
    const NAMES: [(&'static str, Moment); 18] = [
        ("var_pop", Moment::VarPop),
        ("var_samp", Moment::VarSamp),
        ("variance", Moment::VarSamp),
        ("stddev_pop", Moment::StddevPop),
        ("stddev_samp", Moment::StddevSamp),
        ("stddev", Moment::StddevSamp),
        ("covar_pop", Moment::CovarPop),
        ("covar_samp", Moment::CovarSamp),
        ("corr", Moment::Corr),
        ("regr_count", Moment::RegrCount),
        ("regr_avgx", Moment::RegrAvgX),
        ("regr_avgy", Moment::RegrAvgY),
        ("regr_sxx", Moment::RegrSxx),
        ("regr_syy", Moment::RegrSyy),
        ("regr_sxy", Moment::RegrSxy),
        ("regr_r2", Moment::RegrR2),
        ("regr_slope", Moment::RegrSlope),
        ("regr_intercept", Moment::RegrIntercept),
    ];

    /// Returns the aggregate of this name.
    pub fn of(name: &str) -> Option<Moment> {
        Moment::NAMES.iter().find(|(n, _)| *n == name).map(|(_, moment)| *moment)
    }

    /// Returns the result type for arguments of double precision.
    pub fn result(self) -> Ty {
        match self {
            Moment::RegrCount => Ty::Int8,
            _ => Ty::Float8,
        }
    }

    /// Returns whether the aggregate has two arguments, first y, then x.
    pub fn is_of_pairs(self) -> bool {
        !matches!(self, Moment::VarPop | Moment::VarSamp | Moment::StddevPop | Moment::StddevSamp)
    }
}

/// One key of ORDER BY in a window or in an aggregate.
#[derive(Debug, Clone)]
pub struct OrderKey {
    /// The expression to sort by.
    pub expr: Expr,
    /// The type of the expression.
    pub ty: Ty,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

/// One aggregate to compute.
#[derive(Debug, Clone)]
pub struct AggCall {
    /// The function.
    pub kind: AggKind,
    /// The argument, as an expression over the input row. It is `None` for count(*).
    pub argument: Option<Expr>,
    /// The argument's type.
    pub input: Ty,
    /// The result's type.
    pub output: Ty,
    /// DISTINCT
    pub distinct: bool,
    /// FILTER (WHERE ...)
    pub filter: Option<Expr>,
    /// The second argument: the separator of string_agg, the x of a pair, or the fraction of a percentile.
    pub second: Option<Expr>,
    /// ORDER BY within the call, or WITHIN GROUP.
    pub order: Vec<OrderKey>,
}

impl AggKind {
    /// Returns the aggregate of this name.
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
            "bit_xor" => AggKind::BitXor,
            "string_agg" => AggKind::StringAgg,
            "array_agg" => AggKind::ArrayAgg,
            "percentile_cont" => AggKind::PercentileCont,
            "percentile_disc" => AggKind::PercentileDisc,
            "mode" => AggKind::Mode,
            "json_agg" => AggKind::JsonAgg(false),
            "json_object_agg" => AggKind::JsonObjectAgg,
            name => AggKind::Moment(Moment::of(name)?),
        })
    }

    /// Returns whether the aggregate keeps all values. Only the runner of general queries computes such an
    /// aggregate.
    pub fn collects(self) -> bool {
        matches!(self, AggKind::StringAgg | AggKind::ArrayAgg | AggKind::JsonAgg(_) | AggKind::JsonObjectAgg)
            || self.is_ordered_set()
    }

    /// Returns whether the aggregate needs sorted values (WITHIN GROUP).
    pub fn is_ordered_set(self) -> bool {
        use AggKind::{Mode, PercentileCont, PercentileDisc, PercentilesCont, PercentilesDisc};
        matches!(self, PercentileCont | PercentileDisc | PercentilesCont | PercentilesDisc | Mode)
    }

    /// Returns whether the aggregate takes pairs of values. Pairs with a NULL are ignored.
    pub fn is_of_pairs(self) -> bool {
        matches!(self, AggKind::Moment(moment) if moment.is_of_pairs())
    }

    /// Returns whether only the runner of general queries computes the aggregate.
    pub fn needs_runner(self) -> bool {
        self.collects() || self.is_of_pairs()
    }

    /// Returns whether the aggregate ignores NULL.
    pub fn skips_null(self) -> bool {
        !matches!(self, AggKind::ArrayAgg | AggKind::JsonAgg(_) | AggKind::JsonObjectAgg)
    }

    /// Returns the type of the second argument, if the first one has type `input`.
    pub fn second_type(self, input: Ty) -> Ty {
        match self {
            AggKind::PercentileCont | AggKind::PercentileDisc => Ty::Float8,
            AggKind::PercentilesCont | AggKind::PercentilesDisc => Ty::Array(&Ty::Float8),
            AggKind::JsonObjectAgg => Ty::Json,
            _ => input,
        }
    }
}

impl AggCall {
    /// Returns the expressions of the call.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|o| &o.expr);
        self.argument.iter().chain(&self.filter).chain(&self.second).chain(order)
    }

    /// Returns the expressions of the call, to be changed.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|o| &mut o.expr);
        self.argument.iter_mut().chain(&mut self.filter).chain(&mut self.second).chain(order)
    }
}

/// A window function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WinFunction {
    /// row_number
    RowNumber,
    /// rank
    Rank,
    /// dense_rank
    DenseRank,
    /// percent_rank
    PercentRank,
    /// cume_dist
    CumeDist,
    /// ntile
    Ntile,
    /// lag
    Lag,
    /// lead
    Lead,
    /// first_value
    FirstValue,
    /// last_value
    LastValue,
    /// nth_value
    NthValue,
    /// An aggregate over the frame.
    Aggregate(AggKind),
}

/// The unit in which a frame counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameUnits {
    /// Rows.
    Rows,
    /// Groups of rows with equal sort keys.
    Groups,
    /// Values of the sort key.
    Range,
}

/// An end of a frame.
#[derive(Debug, Clone)]
pub enum FrameBound {
    /// The first or last row of the partition.
    Unbounded,
    /// The current row. In RANGE and GROUPS, the end includes all rows that have the same sort key.
    Current,
    /// A number of rows or groups from the current row. The end is before the row if the flag is set, else
    /// after it.
    Count(Expr, bool),
    /// The offset of RANGE, and the value of the sort key at this offset from the current row. Both are
    /// expressions over this row.
    Value(Expr, Expr),
}

/// The rows that a frame excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclude {
    /// EXCLUDE NO OTHERS
    Nothing,
    /// EXCLUDE CURRENT ROW
    Row,
    /// EXCLUDE GROUP: the current row and all rows with the same sort key.
    Group,
    /// EXCLUDE TIES: all rows with the same sort key, except the current row.
    Ties,
}

/// The window frame: the rows around the current row that the function uses.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The unit of `start` and `end`.
    pub units: FrameUnits,
    /// The start of the frame.
    pub start: FrameBound,
    /// The end of the frame.
    pub end: FrameBound,
    /// The rows that are excluded.
    pub exclude: Exclude,
}

/// A call of a window function.
#[derive(Debug, Clone)]
pub struct WinCall {
    /// The function.
    pub function: WinFunction,
    /// The arguments and their types.
    pub arguments: Vec<(Expr, Ty)>,
    /// FILTER (WHERE ...) of an aggregate.
    pub filter: Option<Expr>,
    /// PARTITION BY
    pub partition: Vec<(Expr, Ty)>,
    /// ORDER BY
    pub order: Vec<OrderKey>,
    /// The frame.
    pub frame: Frame,
    /// The result's type.
    pub output: Ty,
}

impl WinCall {
    /// Returns the expressions of the call.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut out: Vec<&Expr> = self.arguments.iter().chain(&self.partition).map(|(e, _)| e).collect();
        out.extend(&self.filter);
        out.extend(self.order.iter().map(|o| &o.expr));
        for bound in [&self.frame.start, &self.frame.end] {
            match bound {
                FrameBound::Count(e, _) => out.push(e),
                FrameBound::Value(by, e) => out.extend([by, e]),
                FrameBound::Unbounded | FrameBound::Current => {}
            }
        }
        out
    }

    /// Calls `change` with each expression.
    pub fn each_mut(&mut self, change: &mut dyn FnMut(&mut Expr)) {
        self.arguments.iter_mut().chain(&mut self.partition).for_each(|(e, _)| change(e));
        self.filter.iter_mut().for_each(&mut *change);
        self.order.iter_mut().for_each(|o| change(&mut o.expr));
        for bound in [&mut self.frame.start, &mut self.frame.end] {
            match bound {
                FrameBound::Count(e, _) => change(e),
                FrameBound::Value(by, e) => {
                    change(by);
                    change(e);
                }
                FrameBound::Unbounded | FrameBound::Current => {}
            }
        }
    }
}

impl WinFunction {
    /// Returns the window function of this name. Aggregates are not among these.
    pub fn of(name: &str) -> Option<WinFunction> {
        Some(match name {
            "row_number" => WinFunction::RowNumber,
            "rank" => WinFunction::Rank,
            "dense_rank" => WinFunction::DenseRank,
            "percent_rank" => WinFunction::PercentRank,
            "cume_dist" => WinFunction::CumeDist,
            "ntile" => WinFunction::Ntile,
            "lag" => WinFunction::Lag,
            "lead" => WinFunction::Lead,
            "first_value" => WinFunction::FirstValue,
            "last_value" => WinFunction::LastValue,
            "nth_value" => WinFunction::NthValue,
            _ => return None,
        })
    }
}
