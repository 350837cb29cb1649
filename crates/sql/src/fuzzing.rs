//! Gives the fuzz tests in `crates/fuzzing` access to private code of this crate. It is built only with the
//! feature `fuzzing`.

use crate::ast::{Constraint, ConstraintKind, Definition, IndexKeyKind, KeptExpr};
use crate::error::{Result, SqlState};
use crate::parse::{self, Parsed};
use crate::time::{self, Interval, Zone};

/// Returns the text form of an interval of months, days and microseconds.
pub fn show_interval(interval: Interval) -> String {
    let mut shown = Vec::new();
    time::write_interval(interval, time::IntervalStyle::Postgres, &mut shown);
    String::from_utf8_lossy(&shown).into_owned()
}

/// Checks the arithmetic of intervals. Each result must be in range or refused, and the inverse operation
/// must restore the value.
pub fn interval_arithmetic(a: Interval, b: Interval, by: f64, timestamp: i64, zone: &Zone) {
    if let Some(opposite) = a.negate() {
        assert!(opposite.negate().is_some_and(|back| back == a), "the opposite of the opposite of {a:?}");
        assert!(a.plus(opposite).is_some_and(|sum| sum == Interval::default()), "{a:?} and its opposite");
    }
    assert_eq!(a.plus(b), b.plus(a), "sums of {a:?} and {b:?}");
    let moved = [time::add_interval(timestamp, a), time::add_interval_in(timestamp, a, zone)];
    moved
        .into_iter()
        .filter_map(Result::ok)
        .for_each(|moved| assert!(time::check_timestamp(moved).is_some()));
    for divide in [false, true] {
        std::hint::black_box(time::scale_interval(a, by, divide).ok());
    }
}

/// Reads a statement, in both ways in which the parser's tree is read. Checks that the texts which a
/// definition stores are valid expressions for the same parser.
pub fn read_statement(sql: &str) -> Result<()> {
    parse::postgres::compare_readings(sql);
    parse::on_deep_stack(sql, || {
        let Parsed::Definition(definition) = parse::statement(sql)? else { return Ok(()) };
        for kept in kept_of(&definition) {
            if let Err(e) = parse::expression(&kept.text) {
                assert_ne!(e.sqlstate, SqlState::SYNTAX_ERROR, "{} is kept of {sql}: {e}", kept.text);
            }
        }
        Ok(())
    })
}

/// Returns the expressions that a definition stores.
fn kept_of(definition: &Definition) -> Vec<&KeptExpr> {
    match definition {
        Definition::CreateTable(t) => {
            let constraints = t.columns.iter().flat_map(|column| &column.constraints).chain(&t.constraints);
            constraints.filter_map(of_constraint).collect()
        }
        Definition::CreateIndex(i) => {
            let keys = i.keys.iter().filter_map(|key| match &key.kind {
                IndexKeyKind::Expression(kept) => Some(kept),
                IndexKeyKind::Column(_) => None,
            });
            keys.chain(&i.predicate).collect()
        }
        _ => Vec::new(),
    }
}

fn of_constraint(c: &Constraint) -> Option<&KeptExpr> {
    match &c.kind {
        ConstraintKind::Default(kept) | ConstraintKind::Check(kept) => Some(kept),
        _ => None,
    }
}
