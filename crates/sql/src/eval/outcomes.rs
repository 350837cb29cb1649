//! Computes which results an expression can have on a row if only some of the row's columns are known. An
//! outer join, for example, makes rows in which the columns of one side are known to be NULL.
//!
//! Invariants
//! 1. The outcomes of an expression contain each result that its evaluation can have. They may contain more.
//!    In particular, operands are treated as if they did not depend on each other.
//! 2. Errors do not count as results.
//!
//! This module does not know where rows come from.

use super::Expr;
use varve_engine::Value;

/// The results that an expression can have. A value that is no boolean counts as both true and false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    is_true: bool,
    is_false: bool,
    is_null: bool,
}

impl Outcomes {
    /// Nothing is known.
    pub const ANY: Outcomes = Outcomes { is_true: true, is_false: true, is_null: true };
    /// NULL.
    pub const NULL: Outcomes = Outcomes { is_true: false, is_false: false, is_null: true };
    /// Not NULL.
    pub const VALUE: Outcomes = Outcomes { is_true: true, is_false: true, is_null: false };
    const NOTHING: Outcomes = Outcomes { is_true: false, is_false: false, is_null: false };

    /// Returns the outcomes of an expression that has this value.
    pub fn only(value: bool) -> Outcomes {
        Outcomes { is_true: value, is_false: !value, is_null: false }
    }

    /// Returns whether a condition with these outcomes can hold.
    pub fn can_hold(self) -> bool {
        self.is_true
    }

    /// Returns the outcomes of NOT.
    pub fn negated(self) -> Outcomes {
        Outcomes { is_true: self.is_false, is_false: self.is_true, is_null: self.is_null }
    }

    /// Returns the outcomes of AND.
    pub fn all(items: impl IntoIterator<Item = Outcomes>) -> Outcomes {
        items.into_iter().fold(Outcomes::only(true), |a, b| Outcomes {
            is_true: a.is_true && b.is_true,
            is_false: a.is_false || b.is_false,
            is_null: a.is_null && (b.is_true || b.is_null) || b.is_null && (a.is_true || a.is_null),
        })
    }

    /// Returns the outcomes of OR.
    pub fn any(items: impl IntoIterator<Item = Outcomes>) -> Outcomes {
        Outcomes::all(items.into_iter().map(Outcomes::negated)).negated()
    }

    /// Returns the outcomes of an operator that is NULL if, and only if, one of its operands is NULL.
    pub fn strict(operands: impl IntoIterator<Item = Outcomes>) -> Outcomes {
        operands.into_iter().fold(Outcomes::VALUE, |all, one| match (all, one) {
            (Outcomes::NULL, _) | (_, Outcomes::NULL) => Outcomes::NULL,
            (all, one) => Outcomes { is_null: all.is_null || one.is_null, ..Outcomes::VALUE },
        })
    }

    /// Returns the outcomes of a function that is NULL if one of its operands is NULL. The function can also
    /// be NULL otherwise.
    pub fn strict_function(operands: impl IntoIterator<Item = Outcomes>) -> Outcomes {
        Outcomes::strict(operands).or(Outcomes::NULL)
    }

    /// Returns the outcomes of IS NULL.
    pub fn null_test(self) -> Outcomes {
        Outcomes { is_true: self.is_null, is_false: self.is_true || self.is_false, is_null: false }
    }

    /// Returns the outcomes of IS DISTINCT FROM.
    pub fn distinct_from(self, other: Outcomes) -> Outcomes {
        let (one, two) = (self.null_test(), other.null_test());
        Outcomes {
            is_true: one.is_true && two.is_false || one.is_false,
            is_false: one.is_true && two.is_true || one.is_false && two.is_false,
            is_null: false,
        }
    }

    /// Returns the outcomes of both.
    fn or(self, other: Outcomes) -> Outcomes {
        Outcomes {
            is_true: self.is_true || other.is_true,
            is_false: self.is_false || other.is_false,
            is_null: self.is_null || other.is_null,
        }
    }

    fn without_null(self) -> Outcomes {
        Outcomes { is_null: false, ..self }
    }
}

impl Expr {
    /// Returns the outcomes of the expression. `column` says what is known about a column or a slot.
    pub fn outcomes(&self, column: &dyn Fn(usize) -> Outcomes) -> Outcomes {
        Known { column, held: &[] }.outcomes(self)
    }
}

/// The known facts about a row.
struct Known<'k> {
    column: &'k dyn Fn(usize) -> Outcomes,
    /// The values of the surrounding `Let`.
    held: &'k [Outcomes],
}

impl Known<'_> {
    fn outcomes(&self, e: &Expr) -> Outcomes {
        let both = |sides: &(Expr, Expr)| [self.outcomes(&sides.0), self.outcomes(&sides.1)];
        match e {
            Expr::Const(Value::Null) => Outcomes::NULL,
            Expr::Const(Value::Bool(value)) => Outcomes::only(*value),
            Expr::Const(_) | Expr::Array(..) => Outcomes::VALUE,
            Expr::Column(n) | Expr::Slot(n) => (self.column)(*n),
            Expr::Held(n) => self.held.get(*n).copied().unwrap_or(Outcomes::ANY),
            Expr::Param(_) | Expr::Outer(_) | Expr::Subquery(..) => Outcomes::ANY,
            Expr::Let(values, body) => {
                let held: Vec<Outcomes> = values.iter().map(|e| self.outcomes(e)).collect();
                Known { column: self.column, held: &held }.outcomes(body)
            }
            Expr::And(items) => Outcomes::all(items.iter().map(|e| self.outcomes(e))),
            Expr::Or(items) => Outcomes::any(items.iter().map(|e| self.outcomes(e))),
            Expr::Not(e) => self.outcomes(e).negated(),
            Expr::IsNull(e, negated) => turned(self.outcomes(e).null_test(), *negated),
            Expr::IsBool(e, wanted, negated) => turned(truth(self.outcomes(e), *wanted), *negated),
            Expr::Distinct(sides, negated) => {
                let [one, two] = both(sides);
                turned(one.distinct_from(two), *negated)
            }
            Expr::Compare(_, sides) | Expr::Arith(_, _, sides) | Expr::Concat(sides) => {
                Outcomes::strict(both(sides))
            }
            Expr::Like(like) => Outcomes::strict([&like.subject, &like.pattern].map(|e| self.outcomes(e))),
            Expr::Negate(_, e) | Expr::Pad(e, _) => Outcomes::strict([self.outcomes(e)]),
            Expr::Cast(e, ..) => Outcomes::strict_function([self.outcomes(e)]),
            Expr::Call(function, arguments) if function.strict => {
                Outcomes::strict_function(arguments.iter().map(|e| self.outcomes(e)))
            }
            Expr::Call(..) => Outcomes::ANY,
            // Items of the list can be NULL.
            Expr::InList(e, ..) => Outcomes::strict_function([self.outcomes(e)]),
            Expr::Quantified(_, all, sides, _) => quantified(both(sides), *all),
            Expr::Case(branches, otherwise) => self.case(branches, otherwise),
            Expr::Coalesce(items) => self.coalesce(items),
            Expr::Extreme(items, _) => {
                // The result is NULL if all items are NULL.
                let nulls = Outcomes::all(items.iter().map(|e| self.outcomes(e).null_test()));
                Outcomes { is_true: nulls.is_false, is_false: nulls.is_false, is_null: nulls.is_true }
            }
        }
    }

    fn case(&self, branches: &[(Expr, Expr)], otherwise: &Expr) -> Outcomes {
        let mut found = Outcomes::NOTHING;
        for (condition, result) in branches {
            let condition = self.outcomes(condition);
            if condition.is_true {
                found = found.or(self.outcomes(result));
            }
            if !condition.is_false && !condition.is_null {
                return found;
            }
        }
        found.or(self.outcomes(otherwise))
    }

    fn coalesce(&self, items: &[Expr]) -> Outcomes {
        let mut found = Outcomes::NOTHING;
        for item in items {
            let item = self.outcomes(item);
            found = found.or(item.without_null());
            if !item.is_null {
                return found;
            }
        }
        found.or(Outcomes::NULL)
    }
}

fn turned(outcomes: Outcomes, negated: bool) -> Outcomes {
    if negated { outcomes.negated() } else { outcomes }
}

/// Returns the outcomes of IS TRUE or IS FALSE.
fn truth(of: Outcomes, wanted: bool) -> Outcomes {
    let (is_wanted, is_other) = if wanted { (of.is_true, of.is_false) } else { (of.is_false, of.is_true) };
    Outcomes { is_true: is_wanted, is_false: is_other || of.is_null, is_null: false }
}

/// Returns the outcomes of ANY or ALL of an array. If the left side is NULL, the result is NULL, or the
/// result of an empty array.
fn quantified([left, array]: [Outcomes; 2], all: bool) -> Outcomes {
    match (left, array) {
        (_, Outcomes::NULL) => Outcomes::NULL,
        (Outcomes::NULL, _) => Outcomes::only(all).or(Outcomes::NULL),
        _ => Outcomes::ANY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::{CmpOp, List, ListId};

    /// Returns the outcomes of a condition: whether it can be true, false and NULL. Column 0 is NULL, column
    /// 1 is not NULL, and nothing is known about column 2.
    fn of(e: Expr) -> (bool, bool, bool) {
        let found = e.outcomes(&|n| [Outcomes::NULL, Outcomes::VALUE, Outcomes::ANY][n]);
        (found.is_true, found.is_false, found.is_null)
    }

    fn five() -> Expr {
        Expr::Const(Value::Int4(5))
    }

    fn is(n: usize) -> Expr {
        Expr::Compare(CmpOp::Eq, Box::new((Expr::Column(n), five())))
    }

    fn not(e: Expr) -> Expr {
        Expr::Not(Box::new(e))
    }

    const NULL: (bool, bool, bool) = (false, false, true);
    const ANY: (bool, bool, bool) = (true, true, true);

    #[test]
    fn a_strict_operator_of_null_is_null() {
        assert_eq!(of(is(0)), NULL);
        assert_eq!(of(not(is(0))), NULL);
        assert_eq!(of(is(1)), (true, true, false));
        assert_eq!(of(is(2)), ANY);
        assert_eq!(of(Expr::InList(Box::new(Expr::Column(0)), List::from(vec![five()]), true)), NULL);
    }

    #[test]
    fn and_or_and_not_have_three_values() {
        assert_eq!(of(Expr::And([is(0), is(2)].into())), (false, true, true));
        assert_eq!(of(Expr::Or([is(0), is(2)].into())), (true, false, true));
        assert_eq!(of(Expr::Or([is(0), is(0)].into())), NULL);
        // NOT (NULL AND false) is true.
        assert_eq!(of(not(Expr::And([is(0), is(2)].into()))), (true, false, true));
    }

    #[test]
    fn conditions_that_hold_for_null_can_hold() {
        let is_null = |n, negated| Expr::IsNull(Box::new(Expr::Column(n)), negated);
        assert_eq!(of(is_null(0, false)), (true, false, false));
        assert_eq!(of(is_null(0, true)), (false, true, false));
        assert_eq!(of(is_null(2, false)), (true, true, false));
        let distinct = |a, b, negated| Expr::Distinct(Box::new((Expr::Column(a), Expr::Column(b))), negated);
        assert_eq!(of(distinct(0, 0, false)), (false, true, false));
        assert_eq!(of(distinct(0, 1, false)), (true, false, false));
        assert_eq!(of(distinct(0, 1, true)), (false, true, false));
        assert_eq!(of(distinct(1, 1, false)), (true, true, false));
        assert_eq!(of(distinct(0, 2, false)), (true, true, false));
        let truth = |wanted, negated| Expr::IsBool(Box::new(is(0)), wanted, negated);
        assert_eq!(of(truth(true, false)), (false, true, false));
        assert_eq!(of(truth(true, true)), (true, false, false));
        assert_eq!(of(truth(false, true)), (true, false, false));
    }

    #[test]
    fn what_takes_another_value_for_null_can_hold() {
        let coalesce = |items: Vec<Expr>| Expr::Coalesce(items.into());
        let truth = || Expr::Const(Value::Bool(true));
        assert_eq!(of(coalesce(vec![is(0), truth()])), (true, false, false));
        assert_eq!(of(coalesce(vec![is(0), is(0)])), NULL);
        assert_eq!(of(Expr::Extreme([Expr::Column(0), five()].into(), true)), (true, true, false));
        assert_eq!(of(Expr::Extreme([Expr::Column(0), Expr::Column(0)].into(), true)), NULL);
        let case = |when: Expr, otherwise: Expr| Expr::Case([(when, truth())].into(), Box::new(otherwise));
        assert_eq!(of(case(is(0), Expr::NULL)), NULL);
        assert_eq!(of(case(is(0), truth())), (true, false, false));
        assert_eq!(
            of(case(Expr::IsNull(Box::new(Expr::Column(0)), false), Expr::NULL)),
            (true, false, false)
        );
        assert_eq!(of(case(is(2), Expr::NULL)), (true, false, true));
    }

    #[test]
    fn an_array_can_be_empty() {
        let quantified = |all| {
            let sides = Box::new((Expr::Column(0), Expr::Column(1)));
            Expr::Quantified(CmpOp::Eq, all, sides, ListId::next())
        };
        assert_eq!(of(quantified(false)), (false, true, true));
        assert_eq!(of(quantified(true)), (true, false, true));
    }

    #[test]
    fn a_held_value_is_known() {
        let held = Expr::Compare(CmpOp::Lt, Box::new((Expr::Held(0), five())));
        assert_eq!(of(Expr::Let([Expr::Column(0)].into(), Box::new(held.clone()))), NULL);
        assert_eq!(of(Expr::Let([Expr::Column(2)].into(), Box::new(held))), ANY);
    }
}
