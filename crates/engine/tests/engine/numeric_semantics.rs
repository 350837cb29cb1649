//! Numerics behave like PostgreSQL's: the expected texts are what PostgreSQL 15 prints.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use varve_engine::{Numeric, NumericError, NumericRef};

fn numeric(text: &str) -> Numeric {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
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
fn whole_digits_end_at_131072() {
    let nines = |count: usize| "9".repeat(count);
    assert_eq!(numeric(&nines(131_072)).to_string(), nines(131_072));
    assert!(numeric("9.9e131071").as_ref().to_i64().is_none());
    for over in
        [nines(131_073), "1e131072".into(), format!("-{}e131071", nines(25)), format!("{}.5", nines(131_073))]
    {
        assert_eq!(over.parse::<Numeric>(), Err(NumericError::Overflow), "{} characters", over.len());
    }
}

#[test]
fn exponents_beyond_all_limits_are_cheap() {
    assert_eq!("1e2000000000".parse::<Numeric>(), Err(NumericError::Overflow));
    assert_eq!("1e131073".parse::<Numeric>(), Err(NumericError::Overflow));
    assert_eq!(numeric("1e131071").to_string().len(), 131_072);
    assert_eq!("7e-2000000000".parse::<Numeric>(), Err(NumericError::Overflow));
    assert_eq!("7e-16384".parse::<Numeric>(), Err(NumericError::Overflow));
    assert_eq!(numeric("7e-16383").as_ref().scale(), 16_383);
    assert!("1e99999999999999999999".parse::<Numeric>().is_err());
}

#[test]
fn integers_round_half_away_from_zero() {
    for (text, expected) in
        [("2.5", Some(3)), ("-2.5", Some(-3)), ("2.4", Some(2)), ("9223372036854775808", None), ("NaN", None)]
    {
        assert_eq!(numeric(text).as_ref().to_i64(), expected, "{text}");
    }
}

#[test]
fn columns_round_and_overflow() {
    assert_eq!(numeric("12.345").fit(4, 2).unwrap().to_string(), "12.35");
    assert_eq!(numeric("5").fit(4, 2).unwrap().to_string(), "5.00");
    assert_eq!(numeric("99.995").fit(4, 2), Err(NumericError::Overflow));
    assert_eq!(numeric("0.0004").fit(2, 2).unwrap().to_string(), "0.00");
    assert!(numeric("NaN").fit(4, 2).unwrap().as_ref().is_nan());
    assert_eq!(numeric("-inf").fit(4, 2), Err(NumericError::Overflow));
}

#[test]
fn floats_convert_by_fifteen_digits() {
    for (value, expected) in [(0.1, "0.1"), (1e20, "100000000000000000000"), (-2.5, "-2.5"), (0.0, "0")] {
        assert_eq!(Numeric::from_f64(value).unwrap().to_string(), expected);
        assert_eq!(numeric(expected).as_ref().to_f64(), value);
    }
    for (value, expected) in [(f64::INFINITY, "Infinity"), (f64::NEG_INFINITY, "-Infinity")] {
        assert_eq!(Numeric::from_f64(value).unwrap().to_string(), expected);
        assert_eq!(numeric(expected).as_ref().to_f64(), value);
    }
}

proptest! {
    #[test]
    fn order_and_small_form_agree_with_the_decimal(a in any::<i64>(), s in 0u16..6, b in any::<i64>(), t in 0u16..6) {
        let (x, y) = (Numeric::from_unscaled(a, s), Numeric::from_unscaled(b, t));
        let (x, y) = (x.as_ref(), y.as_ref());
        prop_assert_eq!(x.to_unscaled(), Some((a, s)));
        let (p, q) = (x.to_big().unwrap(), y.to_big().unwrap());
        prop_assert_eq!(x.order(y), p.cmp(&q));
        let again = Numeric::from_big(&p).unwrap();
        prop_assert_eq!(again.as_ref().as_bytes(), x.as_bytes());
    }
}
