//! Makes the text of expressions in EXPLAIN, with PostgreSQL's parentheses. The text is made from bound
//! expressions, because these do not keep the text of the statement.
//!
//! This module does not know the names of columns (the caller has them).

use varve_engine::{Datum, Value};

use crate::eval::arith::ArithOp;
use crate::eval::{Expr, Like};
use crate::text;

/// Returns the name of a column of the input.
pub type Names<'n> = dyn Fn(usize) -> String + 'n;

/// Returns the text of an expression.
pub fn shown(e: &Expr, names: &Names<'_>) -> String {
    within(e, names, &[])
}

/// Returns the text of an expression within a `Let`. `held` has the texts of the values that the `Let`
/// computes once.
fn within(e: &Expr, names: &Names<'_>, held: &[String]) -> String {
    let one = |e: &Expr| within(e, names, held);
    let list = |items: &[Expr], between: &str| items.iter().map(&one).collect::<Vec<_>>().join(between);
    let not = |negated: bool| if negated { "NOT " } else { "" };
    match e {
        Expr::Const(value) => constant(value),
        Expr::Param(n) => format!("${}", n + 1),
        Expr::Column(n) | Expr::Slot(n) => names(*n),
        Expr::Outer(n) => format!("outer {}", n + 1),
        Expr::Held(n) => held.get(*n).cloned().unwrap_or_else(|| "?".into()),
        Expr::Let(values, e) => {
            let values: Vec<String> = values.iter().map(one).collect();
            within(e, names, &values)
        }
        Expr::Subquery(..) => "(SubPlan)".into(),
        Expr::And(items) => format!("({})", list(items, " AND ")),
        Expr::Or(items) => format!("({})", list(items, " OR ")),
        Expr::Not(e) => format!("(NOT {})", one(e)),
        Expr::IsNull(e, negated) => format!("({} IS {}NULL)", one(e), not(*negated)),
        Expr::IsBool(e, wanted, negated) => {
            format!("({} IS {}{})", one(e), not(*negated), if *wanted { "TRUE" } else { "FALSE" })
        }
        Expr::Compare(op, sides) => format!("({} {} {})", one(&sides.0), op.symbol(), one(&sides.1)),
        Expr::Distinct(sides, negated) => {
            format!("({} IS {}DISTINCT FROM {})", one(&sides.0), not(*negated), one(&sides.1))
        }
        Expr::InList(e, items, negated) => {
            format!("({} {}IN ({}))", one(e), not(*negated), list(items, ", "))
        }
        Expr::Like(like) => matched(like, &one),
        Expr::Case(branches, otherwise) => {
            let whens = branches.iter().map(|(when, then)| format!("WHEN {} THEN {} ", one(when), one(then)));
            format!("CASE {}ELSE {} END", whens.collect::<String>(), one(otherwise))
        }
        Expr::Coalesce(items) => format!("COALESCE({})", list(items, ", ")),
        Expr::Extreme(items, largest) => {
            format!("{}({})", if *largest { "GREATEST" } else { "LEAST" }, list(items, ", "))
        }
        Expr::Arith(op, _, sides) => format!("({} {} {})", one(&sides.0), symbol(*op), one(&sides.1)),
        Expr::Negate(_, e) => format!("(- {})", one(e)),
        Expr::Concat(sides) => format!("({} || {})", one(&sides.0), one(&sides.1)),
        Expr::Call(function, arguments) => format!("{}({})", function.name, list(arguments, ", ")),
        Expr::Cast(e, _, target, _) => format!("({})::{}", one(e), target.ty.name()),
        Expr::Pad(e, _) => one(e),
        Expr::Array(_, items) => format!("ARRAY[{}]", list(items, ", ")),
        Expr::Quantified(op, all, sides, _) => {
            let which = if *all { "ALL" } else { "ANY" };
            format!("({} {} {which} ({}))", one(&sides.0), op.symbol(), one(&sides.1))
        }
    }
}

fn matched(like: &Like, one: &dyn Fn(&Expr) -> String) -> String {
    let operator = match (like.fold_case, like.negated) {
        (false, false) => "~~",
        (false, true) => "!~~",
        (true, false) => "~~*",
        (true, true) => "!~~*",
    };
    format!("({} {operator} {})", one(&like.subject), one(&like.pattern))
}

fn constant(value: &Value) -> String {
    let datum = value.as_datum();
    let mut out = Vec::new();
    text::write_text(datum, &mut out);
    let text = String::from_utf8_lossy(&out);
    match datum {
        Datum::Null => "NULL".into(),
        Datum::Bool(value) => value.to_string(),
        Datum::Int2(_)
        | Datum::Int4(_)
        | Datum::Int8(_)
        | Datum::Float4(_)
        | Datum::Float8(_)
        | Datum::Numeric(_) => text.into_owned(),
        _ => format!("'{}'", text.replace('\'', "''")),
    }
}

fn symbol(op: ArithOp) -> &'static str {
    match op {
        ArithOp::Add => "+",
        ArithOp::Subtract => "-",
        ArithOp::Multiply => "*",
        ArithOp::Divide => "/",
        ArithOp::Remainder => "%",
        ArithOp::BitAnd => "&",
        ArithOp::BitOr => "|",
        ArithOp::BitXor => "#",
        ArithOp::ShiftLeft => "<<",
        ArithOp::ShiftRight => ">>",
    }
}
