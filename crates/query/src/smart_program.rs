//! Turns the filter of a scan into a program for a smart device: the part that the device checks, and the
//! part that is checked on the rows that it returns.
//!
//! Invariants
//! 1. For each row, a condition of the program has the same result as its expression: true, false or NULL. An
//!    expression for which there is no such condition stays in the rest.
//! 2. No condition is moved before one that can fail. So the program drops no row for which the host's scan
//!    fails.
//!
//! This module does not know plans and devices.

use varve_engine::{NumericRef, Table, Value, lifted};
use varve_smart::{Aggregate, ColumnKind, Comparison, Condition, Constant, Output, Program};
use varve_sql::general::{AggKind, CmpOp, Expr, Like, Ty, conjuncts, joined};

use crate::columns::column_types;
use crate::failing::may_fail;
use crate::fold::Fold;

/// The most items of IN that a program compares.
const LIST_MAX: usize = 1000;
/// The most nodes of a condition. A device takes no more than 4,096.
const NODES_MAX: usize = 3000;

/// A filter, split between the device and the host.
pub struct SplitFilter {
    /// What the device checks.
    pub condition: Option<Condition>,
    /// The same conditions as expressions.
    pub pushed: Option<Expr>,
    /// What is checked on the returned rows.
    pub rest: Option<Expr>,
}

/// The columns of a table, as a program needs them.
pub struct SmartColumns {
    types: Vec<Ty>,
    kinds: Vec<ColumnKind>,
}

impl SmartColumns {
    /// The columns of this table.
    pub fn of(table: &Table) -> SmartColumns {
        let kinds = table.def().columns.iter().map(|column| ColumnKind::of(column.column_type)).collect();
        SmartColumns { types: column_types(table), kinds }
    }

    /// The kinds of the columns.
    pub fn kinds(&self) -> &[ColumnKind] {
        &self.kinds
    }

    /// Splits a filter whose constants are known.
    pub fn split(&self, filter: Option<&Expr>) -> SplitFilter {
        let (mut conditions, mut pushed, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let (mut held_up, mut nodes) = (false, 1);
        for part in filter.cloned().into_iter().flat_map(conjuncts) {
            let condition = if held_up { None } else { self.condition(&part) };
            let condition = condition.filter(|condition| nodes + count(condition) <= NODES_MAX);
            match condition {
                // DataFusion may have pushed it down twice.
                Some(condition) if conditions.contains(&condition) => {}
                Some(condition) => {
                    nodes += count(&condition);
                    conditions.push(condition);
                    pushed.push(part);
                }
                None => {
                    held_up |= may_fail(&part);
                    rest.push(part);
                }
            }
        }
        let condition = match conditions.len() {
            0 => None,
            1 => conditions.pop(),
            _ => Some(Condition::And(conditions)),
        };
        SplitFilter { condition, pushed: joined(pushed), rest: joined(rest) }
    }

    /// The program that returns these columns of the rows for which the condition is true.
    pub fn rows(&self, condition: Option<Condition>, columns: Vec<usize>) -> Program {
        Program { columns: self.kinds.clone(), condition, output: Output::Columns(columns) }
    }

    /// The program that groups these rows.
    pub fn groups(
        &self,
        condition: Option<Condition>,
        keys: Vec<usize>,
        aggregates: Vec<Aggregate>,
    ) -> Program {
        let output = Output::Groups { keys, aggregates };
        Program { columns: self.kinds.clone(), condition, output }
    }

    /// The aggregate of the device for an aggregate of a column. `None` if the device can't compute it with
    /// exactly the host's result.
    pub fn aggregate(&self, fold: Fold, column: usize) -> Option<Aggregate> {
        let Fold::Call { kind, distinct: false } = fold else { return None };
        let stored = *self.kinds.get(column)?;
        let is_added =
            matches!(stored, ColumnKind::Int2 | ColumnKind::Int4 | ColumnKind::Int8 | ColumnKind::Decimal(_));
        // -0 and 0 are equal, so the least of them depends on the order of rows.
        let is_ordered = is_added || stored == ColumnKind::Text;
        match kind {
            AggKind::Count => Some(Aggregate::Count(column)),
            AggKind::Sum if is_added => Some(Aggregate::Sum(column)),
            AggKind::Avg if is_added => Some(Aggregate::Average(column)),
            AggKind::Min if is_ordered => Some(Aggregate::Min(column)),
            AggKind::Max if is_ordered => Some(Aggregate::Max(column)),
            _ => None,
        }
    }

    /// Whether groups by this column have the host's groups and values. Equal values must be identical,
    /// unlike 1.0 and 1.00.
    pub fn is_key(&self, column: usize) -> bool {
        matches!(
            self.kinds.get(column),
            Some(
                ColumnKind::Bool
                    | ColumnKind::Int2
                    | ColumnKind::Int4
                    | ColumnKind::Int8
                    | ColumnKind::Text
                    | ColumnKind::Uuid
            )
        )
    }

    fn condition(&self, expr: &Expr) -> Option<Condition> {
        Some(match expr {
            Expr::And(parts) => Condition::And(self.all(parts)?),
            Expr::Or(parts) => Condition::Or(self.all(parts)?),
            Expr::Not(inner) => Condition::Not(Box::new(self.condition(inner)?)),
            Expr::IsNull(inner, negated) => {
                let Expr::Column(column) = **inner else { return None };
                self.kinds.get(column)?;
                inverted(Condition::IsNull(column), *negated)
            }
            Expr::Column(column) if self.types.get(*column) == Some(&Ty::Bool) => {
                Condition::Compare(*column, Comparison::Equal, Constant::Bool(true))
            }
            Expr::Compare(op, sides) => match (&sides.0, &sides.1) {
                (Expr::Column(column), Expr::Const(value)) => self.compare(*column, *op, value)?,
                (Expr::Const(value), Expr::Column(column)) => self.compare(*column, op.mirrored(), value)?,
                _ => return None,
            },
            Expr::InList(operand, list, negated) => {
                let Expr::Column(column) = **operand else { return None };
                if list.is_empty() || list.len() > LIST_MAX {
                    return None;
                }
                let item = |item: &Expr| match item {
                    Expr::Const(value) => self.compare(column, CmpOp::Eq, value),
                    _ => None,
                };
                inverted(Condition::Or(list.iter().map(item).collect::<Option<_>>()?), *negated)
            }
            Expr::Like(like) => self.prefix(like)?,
            _ => return None,
        })
    }

    fn all(&self, parts: &[Expr]) -> Option<Vec<Condition>> {
        parts.iter().map(|part| self.condition(part)).collect()
    }

    /// A LIKE whose pattern has only one wildcard, a `%` at its end.
    fn prefix(&self, like: &Like) -> Option<Condition> {
        let (Expr::Column(column), Expr::Const(Value::Text(pattern))) = (&like.subject, &like.pattern) else {
            return None;
        };
        let is_plain = |c: char| c != '%' && c != '_' && Some(c) != like.escape;
        let prefix = pattern.strip_suffix('%').filter(|prefix| prefix.chars().all(is_plain))?;
        // A char(n) is compared with its blanks, which are not stored.
        let is_text = matches!(self.types.get(*column)?, Ty::Text | Ty::Varchar);
        (is_text && !like.fold_case)
            .then(|| inverted(Condition::Prefix(*column, prefix.to_owned()), like.negated))
    }

    fn compare(&self, column: usize, op: CmpOp, value: &Value) -> Option<Condition> {
        let (ty, kind) = (*self.types.get(column)?, *self.kinds.get(column)?);
        if let (ColumnKind::Decimal(scale), Value::Numeric(number)) = (kind, value) {
            let (op, units) = in_units(op, number.as_ref(), scale)?;
            return Some(Condition::Compare(column, op, Constant::Decimal(units)));
        }
        let is_text = matches!(ty, Ty::Text | Ty::Varchar | Ty::Char);
        let constant = match (ty, value) {
            (Ty::Bool, Value::Bool(value)) => Constant::Bool(*value),
            (Ty::Int2 | Ty::Int4 | Ty::Int8, Value::Int2(_) | Value::Int4(_) | Value::Int8(_)) => {
                let value = value.as_datum().as_integer()?;
                let fits = match ty {
                    Ty::Int2 => i16::try_from(value).is_ok(),
                    Ty::Int4 => i32::try_from(value).is_ok(),
                    _ => true,
                };
                Constant::Int(Some(value).filter(|_| fits)?)
            }
            (Ty::Date, Value::Date(day)) => Constant::Int(i64::from(*day)),
            (Ty::Timestamp, Value::Timestamp(us))
            | (Ty::TimestampTz, Value::TimestampTz(us))
            | (Ty::Time, Value::Time(us)) => Constant::Int(*us),
            (Ty::Float8, Value::Float8(value)) => Constant::Float(value.to_bits()),
            (Ty::Float4, Value::Float4(value)) => Constant::Float(f64::from(*value).to_bits()),
            (_, Value::Text(text)) if is_text => Constant::Text(text.clone()),
            (Ty::Bytea, Value::Bytea(bytes)) => Constant::Bytes(bytes.to_vec()),
            (Ty::Uuid, Value::Uuid(bytes)) => Constant::Bytes(bytes.to_vec()),
            _ => return None,
        };
        Some(Condition::Compare(column, comparison(op), constant))
    }
}

fn inverted(condition: Condition, negated: bool) -> Condition {
    if negated { Condition::Not(Box::new(condition)) } else { condition }
}

/// The number of nodes of a condition.
fn count(condition: &Condition) -> usize {
    1 + match condition {
        Condition::And(parts) | Condition::Or(parts) => parts.iter().map(count).sum(),
        Condition::Not(inner) => count(inner),
        _ => 0,
    }
}

fn comparison(op: CmpOp) -> Comparison {
    match op {
        CmpOp::Eq => Comparison::Equal,
        CmpOp::Ne => Comparison::NotEqual,
        CmpOp::Lt => Comparison::Less,
        CmpOp::Le => Comparison::LessOrEqual,
        CmpOp::Gt => Comparison::Greater,
        CmpOp::Ge => Comparison::GreaterOrEqual,
    }
}

/// The comparison with a number, in units of the last digit of a column. A number between two units is
/// rounded down, and the comparison is changed to match. `None` for NaN, infinity and numbers of too many
/// digits, and for = and <> if no value of the column can be equal.
fn in_units(op: CmpOp, number: NumericRef<'_>, scale: u8) -> Option<(Comparison, i64)> {
    let (unscaled, of_number) = number.to_unscaled()?;
    let scale = u16::from(scale);
    if of_number <= scale {
        let units = lifted(unscaled, scale - of_number)?;
        return Some((comparison(op), i64::try_from(units).ok()?));
    }
    let unit = 10i64.checked_pow(u32::from(of_number - scale))?;
    let (units, is_whole) = (unscaled.div_euclid(unit), unscaled.rem_euclid(unit) == 0);
    let op = match op {
        op if is_whole => comparison(op),
        CmpOp::Lt | CmpOp::Le => Comparison::LessOrEqual,
        CmpOp::Gt | CmpOp::Ge => Comparison::Greater,
        CmpOp::Eq | CmpOp::Ne => return None,
    };
    Some((op, units))
}
