//! Conditions that DataFusion pushes down to a table. This module translates them back to expressions of
//! `varve-sql`. The expressions choose the access path of the scan, and the scan checks them on the stored
//! rows.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, Operator};
use varve_engine::Value;
use varve_sql::general::{CmpOp, Expr};

use crate::columns::column_ordinal;
use crate::computed::{Computed, is_key};

/// Returns the condition as an expression over the columns of a table. Returns `None` if the condition must
/// be checked above the scan.
pub fn condition(e: &Logical) -> Option<Expr> {
    Some(match e {
        Logical::Column(c) => Expr::Column(column_ordinal(&c.name)?),
        Logical::Alias(a) => condition(&a.expr)?,
        // The cast is between integer types. It can be left out, because integers of different types are
        // compared by value.
        Logical::Cast(c) => condition(&c.expr)?,
        Logical::Literal(ScalarValue::Boolean(Some(b)), _) => Expr::Const(Value::Bool(*b)),
        // DataFusion may have replaced a part by NULL after the condition was pushed down.
        Logical::Literal(ScalarValue::Boolean(None) | ScalarValue::Null, _) => Expr::NULL,
        Logical::Not(inner) => Expr::Not(Box::new(condition(inner)?)),
        Logical::IsNull(inner) => Expr::IsNull(Box::new(condition(inner)?), false),
        Logical::IsNotNull(inner) => Expr::IsNull(Box::new(condition(inner)?), true),
        Logical::BinaryExpr(b) => binary(b)?,
        // Keys compare in the same way as their values. So the value takes the place of the key.
        Logical::ScalarFunction(call) if is_key(call) => condition(call.args.first()?)?,
        Logical::ScalarFunction(call) => computed(call.func.inner().downcast_ref::<Computed>()?, &call.args)?,
        _ => return None,
    })
}

fn binary(b: &BinaryExpr) -> Option<Expr> {
    let sides = (condition(&b.left)?, condition(&b.right)?);
    let op = match b.op {
        Operator::And => return Some(Expr::And([sides.0, sides.1].into())),
        Operator::Or => return Some(Expr::Or([sides.0, sides.1].into())),
        Operator::Eq => CmpOp::Eq,
        Operator::NotEq => CmpOp::Ne,
        Operator::Lt => CmpOp::Lt,
        Operator::LtEq => CmpOp::Le,
        Operator::Gt => CmpOp::Gt,
        Operator::GtEq => CmpOp::Ge,
        _ => return None,
    };
    Some(Expr::Compare(op, Box::new(sides)))
}

/// Returns the expression of the call, with its slots replaced by the arguments.
fn computed(call: &Computed, arguments: &[Logical]) -> Option<Expr> {
    let arguments: Vec<Expr> = arguments.iter().map(condition).collect::<Option<_>>()?;
    let mut expr = call.expr().clone();
    expr.walk_mut(&mut |e| {
        if let Expr::Slot(n) = e {
            *e = arguments[*n].clone();
        }
    });
    Some(expr)
}
