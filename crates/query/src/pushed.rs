//! Conditions that DataFusion pushes down to a table. This module translates them back to expressions of
//! `varve-sql`. The expressions choose the access path of the scan, and the scan checks them on the stored
//! rows.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, Operator};
use varve_engine::Value;
use varve_sql::general::{CmpOp, Expr};

use crate::columns::column_ordinal;
use crate::computed::{Computed, is_key};

/// The condition over the columns of a table; `None` if it has to be checked above.
pub fn condition(e: &Logical) -> Option<Expr> {
    Some(match e {
        Logical::Column(c) => Expr::Column(column_ordinal(&c.name)?),
        Logical::Alias(a) => condition(&a.expr)?,
        // Whole numbers compare by value, whatever their width.
        Logical::Cast(c) => condition(&c.expr)?,
        Logical::Literal(ScalarValue::Boolean(Some(b)), _) => Expr::Const(Value::Bool(*b)),
        // What has been computed since the table took it.
        Logical::Literal(ScalarValue::Boolean(None) | ScalarValue::Null, _) => Expr::NULL,
        Logical::Not(inner) => Expr::Not(Box::new(condition(inner)?)),
        Logical::IsNull(inner) => Expr::IsNull(Box::new(condition(inner)?), false),
        Logical::IsNotNull(inner) => Expr::IsNull(Box::new(condition(inner)?), true),
        Logical::BinaryExpr(b) => binary(b)?,
        // Keys compare as what they are keys of.
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

/// One of our expressions, its arguments put into their slots.
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
