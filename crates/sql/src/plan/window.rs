//! Calls of window functions, and the windows that they are over.
//!
//! Does not know: which types a function takes (`bind::window`), how a window is computed (`varve-query`).

use super::aggregate::{AggKind, OrderKey};
use crate::eval::Expr;
use crate::ty::Ty;

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

/// What a frame counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameUnits {
    /// Rows.
    Rows,
    /// Groups of rows that are equal in the order.
    Groups,
    /// Values of the order.
    Range,
}

/// An end of a frame.
#[derive(Debug, Clone)]
pub enum FrameBound {
    /// The partition's first or last row.
    Unbounded,
    /// The row itself; in RANGE and GROUPS with its equals.
    Current,
    /// So many rows or groups, before the row if the flag is set.
    Count(Expr, bool),
    /// RANGE: a distance, and the value so far away, over the row.
    Value(Expr, Expr),
}

/// Rows that a frame leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclude {
    /// EXCLUDE NO OTHERS
    Nothing,
    /// EXCLUDE CURRENT ROW
    Row,
    /// EXCLUDE GROUP: the row and its equals.
    Group,
    /// EXCLUDE TIES: its equals, but not the row.
    Ties,
}

/// The rows around a row that a function is over.
#[derive(Debug, Clone)]
pub struct Frame {
    /// What is counted.
    pub units: FrameUnits,
    /// Where it begins.
    pub start: FrameBound,
    /// Where it ends.
    pub end: FrameBound,
    /// What it leaves out.
    pub exclude: Exclude,
}

/// A window function's call.
#[derive(Debug, Clone)]
pub struct WinCall {
    /// The function.
    pub function: WinFunction,
    /// Its arguments and their types.
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
    /// Its expressions.
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
    /// The function of this name that is one only over a window.
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
