//! Numerics behave like PostgreSQL's: the expected texts are what PostgreSQL 15 prints.

use std::cmp::Ordering;

use proptest::prelude::*;
use varve_engine::{Numeric, NumericError, NumericRef};

fn numeric(text: &str) -> Numeric {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

type Operation = fn(NumericRef<'_>, NumericRef<'_>) -> Result<Numeric, NumericError>;

fn check(operation: Operation, cases: &[(&str, &str, &str)]) {
    for (a, b, expected) in cases {
        let result = operation(numeric(a).as_ref(), numeric(b).as_ref());
        let shown = result.map_or_else(|error| error.to_string(), |value| value.to_string());
        assert_eq!(shown, *expected, "{a} and {b}");
    }
}

#[test]
fn text_round_trips_with_its_scale() {
    for text in
        ["0", "0.00", "1.10", "-12.5", "100", "0.001", "-0.5", "NaN", "123456789012345678901234567890.12"]
    {
        assert_eq!(numeric(text).to_string(), text);
        let stored = numeric(text);
        let again = NumericRef::from_bytes(stored.as_ref().as_bytes()).unwrap();
        assert_eq!(again.to_string(), text);
    }
    assert_eq!(numeric("1e5").to_string(), "100000");
    assert_eq!(numeric("1.5e-3").to_string(), "0.0015");
    assert_eq!(numeric(" 7 ").to_string(), "7");
    for wrong in ["", "x", "1_000", "1.2.3", "--1", "e5"] {
        assert_eq!(wrong.parse::<Numeric>(), Err(NumericError::Syntax), "{wrong:?}");
    }
}

#[test]
fn sums_and_products() {
    check(
        |a, b| a.add(b),
        &[
            ("1.1", "2.22", "3.32"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("NaN", "1", "NaN"),
            ("-0.1", "0.10", "0.00"),
        ],
    );
    check(
        |a, b| a.subtract(b),
        &[("1", "0.001", "0.999"), ("-9223372036854775807", "2", "-9223372036854775809")],
    );
    check(
        |a, b| a.multiply(b),
        &[
            ("1.10", "2.0", "2.200"),
            ("-3", "0.5", "-1.5"),
            ("9223372036854775807", "9223372036854775807", "85070591730234615847396907784232501249"),
        ],
    );
}

#[test]
fn quotients_have_postgresql_scales() {
    check(
        |a, b| a.divide(b),
        &[
            ("1", "3", "0.33333333333333333333"),
            ("10", "3", "3.3333333333333333"),
            ("2", "3", "0.66666666666666666667"),
            ("1", "1", "1.00000000000000000000"),
            ("100", "7", "14.2857142857142857"),
            ("1000000", "3", "333333.333333333333"),
            ("-7", "2", "-3.5000000000000000"),
            ("0", "5", "0.00000000000000000000"),
            ("1", "0", "division by zero"),
            ("NaN", "0", "NaN"),
            ("1.5", "0.00001", "150000.000000000000"),
        ],
    );
    check(
        |a, b| a.remainder(b),
        &[
            ("7", "3", "1"),
            ("-7", "3", "-1"),
            ("7.5", "2", "1.5"),
            ("5", "0.3", "0.2"),
            ("1", "0", "division by zero"),
        ],
    );
}

#[test]
fn rounding_is_half_away_from_zero() {
    for (text, scale, expected) in
        [("2.5", 0, "3"), ("-2.5", 0, "-3"), ("1.005", 2, "1.01"), ("1250", -2, "1300"), ("1.2", 3, "1.200")]
    {
        assert_eq!(numeric(text).as_ref().rounded(scale).to_string(), expected, "{text}");
    }
    assert_eq!(numeric("-2.7").as_ref().truncated(0).to_string(), "-2");
    assert_eq!(numeric("-2.1").as_ref().floor().to_string(), "-3");
    assert_eq!(numeric("2.1").as_ref().ceiling().to_string(), "3");
    assert_eq!(numeric("2.5").as_ref().to_i64(), Some(3));
    assert_eq!(numeric("9223372036854775808").as_ref().to_i64(), None);
}

#[test]
fn columns_round_and_overflow() {
    assert_eq!(numeric("12.345").fit(4, 2).unwrap().to_string(), "12.35");
    assert_eq!(numeric("5").fit(4, 2).unwrap().to_string(), "5.00");
    assert_eq!(numeric("99.995").fit(4, 2), Err(NumericError::Overflow));
    assert_eq!(numeric("0.0004").fit(2, 2).unwrap().to_string(), "0.00");
    assert!(numeric("NaN").fit(4, 2).unwrap().as_ref().is_nan());
}

#[test]
fn floats_convert_by_fifteen_digits() {
    for (value, expected) in [(0.1, "0.1"), (1e20, "100000000000000000000"), (-2.5, "-2.5"), (0.0, "0")] {
        assert_eq!(Numeric::from_f64(value).unwrap().to_string(), expected);
        assert_eq!(numeric(expected).as_ref().to_f64(), value);
    }
    assert_eq!(Numeric::from_f64(f64::INFINITY), Err(NumericError::Overflow));
}

proptest! {
    #[test]
    fn small_and_large_ways_agree(a in any::<i64>(), s in 0u16..6, b in any::<i64>(), t in 0u16..6) {
        let (x, y) = (Numeric::from_unscaled(a, s), Numeric::from_unscaled(b, t));
        let (x, y) = (x.as_ref(), y.as_ref());
        prop_assert_eq!(x.to_unscaled(), Some((a, s)));
        let (p, q) = (x.to_big().unwrap(), y.to_big().unwrap());
        prop_assert_eq!(x.add(y).unwrap().as_ref().to_big().unwrap(), &p + &q);
        prop_assert_eq!(x.subtract(y).unwrap().as_ref().to_big().unwrap(), &p - &q);
        prop_assert_eq!(x.multiply(y).unwrap().as_ref().to_big().unwrap(), &p * &q);
        prop_assert_eq!(x.order(y), p.cmp(&q));
        let back = x.add(y).unwrap();
        prop_assert_eq!(back.as_ref().subtract(y).unwrap().as_ref().order(x), Ordering::Equal);
    }
}
