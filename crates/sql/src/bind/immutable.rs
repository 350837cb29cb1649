//! Decides whether the value of an expression depends on its row alone. An index needs such expressions.

use crate::eval::Expr;
use crate::eval::func::{Builtin, json};
use crate::text;
use crate::time::{DateOrder, DateStyle, IntervalStyle, Reading, TimeForms, Zone};
use crate::ty::Ty;

/// The functions without effects whose results depend on settings of the session.
const STABLE: [&str; 19] = [
    json::OF,
    json::OF_ARRAY,
    json::ROW,
    json::OBJECT,
    json::ARRAY,
    "age",
    "array_to_string",
    "concat",
    "concat_ws",
    "format",
    "overlaps",
    "quote_literal",
    "quote_nullable",
    "to_char",
    "to_date",
    "to_number",
    "to_timestamp",
    "version",
    "current_setting",
];

impl Expr {
    /// Returns whether the expression always has the same value for the same row. `column` returns the types
    /// of columns.
    pub fn is_immutable(&self, column: &dyn Fn(usize) -> Ty) -> bool {
        let mut immutable = true;
        self.walk(&mut |e| immutable &= is_immutable_node(e, column));
        immutable
    }
}

impl Expr {
    /// Returns whether PostgreSQL's planner makes a constant of the expression, because it reads no row, and
    /// all its functions are immutable.
    pub fn is_folded(&self) -> bool {
        let mut folded = true;
        self.walk(&mut |e| {
            folded &= match e {
                Expr::Param(_) => true,
                Expr::Column(_) => false,
                // A literal gets its type before any computation.
                Expr::Cast(operand, ..) if matches!(operand.as_ref(), Expr::Const(_)) => true,
                other => is_immutable_node(other, &|_| Ty::Unknown),
            }
        });
        folded
    }
}

fn is_immutable_node(e: &Expr, column: &dyn Fn(usize) -> Ty) -> bool {
    match e {
        Expr::Call(function, _) => is_immutable_function(function),
        Expr::Cast(operand, from, to, _) => match operand.as_ref() {
            Expr::Const(varve_engine::Value::Text(literal)) => is_fixed_literal(literal, *from, to.ty),
            _ => !asks_session(*from, to.ty),
        },
        Expr::Arith(_, crate::eval::arith::Class::MomentInterval, _) => {
            e.type_in(column, &|_| None) != Some(Ty::TimestampTz)
        }
        Expr::Subquery(..) | Expr::Param(_) | Expr::Outer(_) | Expr::Slot(_) => false,
        _ => true,
    }
}

fn is_immutable_function(f: &Builtin) -> bool {
    let zoned = f.result == Ty::TimestampTz || f.arguments.contains(&Ty::TimestampTz);
    let names_zone = f.name == "timezone" && f.arguments.len() == 2;
    let asks_for_nothing = f.arguments.is_empty() && !f.variadic && f.name != "pi";
    !f.volatile && !f.world && (!zoned || names_zone) && !asks_for_nothing && !STABLE.contains(&f.name)
}

/// Returns whether the cast depends on the session's time zone, its style of dates, or names in the catalog.
fn asks_session(from: Ty, to: Ty) -> bool {
    let element = |t: Ty| t.element().unwrap_or(t);
    let (from, to) = (element(from), element(to));
    let is_named = |t: Ty| matches!(t, Ty::Reg(_));
    let is_styled = |t: Ty| t.is_moment() || matches!(t, Ty::Time | Ty::Interval);
    let is_string = |t: Ty| t.is_text() || matches!(t, Ty::Unknown | Ty::Json);
    let crosses_zone = (from == Ty::TimestampTz) != (to == Ty::TimestampTz);
    is_named(from)
        || is_named(to)
        || crosses_zone
        || (is_styled(from) && from != Ty::Time && is_string(to))
        || (is_string(from) && is_styled(to))
}

/// Returns whether a literal has the same value in every session.
fn is_fixed_literal(literal: &str, from: Ty, to: Ty) -> bool {
    if !asks_session(from, to) {
        return true;
    }
    const CHANGING: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
    let lower = literal.to_ascii_lowercase();
    if matches!(to, Ty::Reg(_)) || CHANGING.iter().any(|word| lower.contains(word)) {
        return false;
    }
    let Some(tokyo) = Zone::of_expression("Asia/Tokyo") else { return false };
    let forms = |zone: &Zone, order, intervals| TimeForms {
        zone: zone.clone(),
        dates: DateStyle { order, ..DateStyle::ISO },
        intervals,
    };
    let read = |forms: &TimeForms| {
        text::parse_as(literal, to.oid(), &Reading::of(forms)).ok().map(|value| format!("{value:?}"))
    };
    let usual = read(&forms(&Zone::UTC, DateOrder::Mdy, IntervalStyle::Postgres));
    [DateOrder::Dmy, DateOrder::Ymd]
        .iter()
        .all(|order| read(&forms(&tokyo, *order, IntervalStyle::SqlStandard)) == usual)
}

#[cfg(test)]
mod tests {
    use super::STABLE;
    use crate::eval::func::overloads;

    #[test]
    fn each_name_is_a_functions() {
        for name in STABLE {
            assert!(
                overloads(name).next().is_some(),
                "no function is called {name}: what was meant is taken for immutable"
            );
        }
    }
}
