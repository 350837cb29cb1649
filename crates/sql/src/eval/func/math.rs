//! Mathematical functions.
//!
//! Invariants
//! 1. A result outside of its type's range is an error (22003). Other invalid operations have PostgreSQL's
//!    SQLSTATEs.
//!
//! This module does not know operators (`arith`).

use bigdecimal::RoundingMode;
use varve_engine::{Datum, NumericRef};

use super::{Builtin, Run, float, int, strict, volatile};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::arith::{self, ArithOp, Class, check_float};
use crate::eval::{Cx, number, power};
use crate::ty::Ty::{Float4, Float8, Int2, Int4, Int8, Numeric};

pub(super) const TABLE: &[Builtin] = &[
    strict("abs", &[Int2], Int2, |a, _| arith::narrow(Class::Int2, int(a, 0).checked_abs())),
    strict("abs", &[Int4], Int4, |a, _| arith::narrow(Class::Int4, int(a, 0).checked_abs())),
    strict("abs", &[Int8], Int8, |a, _| arith::narrow(Class::Int8, int(a, 0).checked_abs())),
    strict("abs", &[Float4], Float4, |a, _| match a[0] {
        Datum::Float4(f) => Ok(Datum::Float4(f.abs())),
        other => Ok(other),
    }),
    strict("abs", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).abs()))),
    strict("abs", &[Numeric], Numeric, |a, cx| match a[0] {
        Datum::Numeric(n) if n.sign().is_some_and(i8::is_negative) => {
            Ok(arith::numeric(&number::negate(n)?, cx))
        }
        other => Ok(other),
    }),
    strict("round", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).round_ties_even()))),
    strict("round", &[Numeric], Numeric, |a, cx| rounded(a, RoundingMode::HalfUp, cx)),
    strict("round", &[Numeric, Int4], Numeric, |a, cx| rounded(a, RoundingMode::HalfUp, cx)),
    strict("trunc", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).trunc()))),
    strict("trunc", &[Numeric], Numeric, |a, cx| rounded(a, RoundingMode::Down, cx)),
    strict("trunc", &[Numeric, Int4], Numeric, |a, cx| rounded(a, RoundingMode::Down, cx)),
    strict("ceil", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).ceil()))),
    strict("ceil", &[Numeric], Numeric, |a, cx| rounded(a, RoundingMode::Ceiling, cx)),
    strict("ceiling", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).ceil()))),
    strict("ceiling", &[Numeric], Numeric, |a, cx| rounded(a, RoundingMode::Ceiling, cx)),
    strict("floor", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).floor()))),
    strict("floor", &[Numeric], Numeric, |a, cx| rounded(a, RoundingMode::Floor, cx)),
    strict("mod", &[Int2, Int2], Int2, |a, cx| arith::apply(ArithOp::Remainder, Class::Int2, a[0], a[1], cx)),
    strict("mod", &[Int4, Int4], Int4, |a, cx| arith::apply(ArithOp::Remainder, Class::Int4, a[0], a[1], cx)),
    strict("mod", &[Int8, Int8], Int8, |a, cx| arith::apply(ArithOp::Remainder, Class::Int8, a[0], a[1], cx)),
    strict("mod", &[Numeric, Numeric], Numeric, |a, cx| {
        arith::apply(ArithOp::Remainder, Class::Numeric, a[0], a[1], cx)
    }),
    strict("div", &[Numeric, Numeric], Numeric, |a, cx| {
        let (Datum::Numeric(n), Datum::Numeric(d)) = (a[0], a[1]) else { return Ok(Datum::Null) };
        Ok(arith::numeric(&number::whole_quotient(n, d)?, cx))
    }),
    strict("sign", &[Float8], Float8, |a, _| {
        let f = float(a, 0);
        Ok(Datum::Float8(if f > 0.0 {
            1.0
        } else if f < 0.0 {
            -1.0
        } else {
            0.0
        }))
    }),
    strict("sign", &[Numeric], Numeric, |a, cx| match a[0] {
        Datum::Numeric(n) => Ok(match n.sign() {
            Some(sign) => arith::numeric(&varve_engine::Numeric::from_i64(sign.into()), cx),
            None => a[0],
        }),
        other => Ok(other),
    }),
    strict("power", &[Float8, Float8], Float8, |a, _| power(float(a, 0), float(a, 1))),
    strict("pow", &[Float8, Float8], Float8, |a, _| power(float(a, 0), float(a, 1))),
    strict("power", &[Numeric, Numeric], Numeric, |a, cx| of_two(a, cx, power::power)),
    strict("pow", &[Numeric, Numeric], Numeric, |a, cx| of_two(a, cx, power::power)),
    strict("sqrt", &[Float8], Float8, |a, _| match float(a, 0) {
        f if f < 0.0 => {
            Err(SqlError::new(SqlState::INVALID_POWER, "cannot take square root of a negative number"))
        }
        f => Ok(Datum::Float8(f.sqrt())),
    }),
    strict("sqrt", &[Numeric], Numeric, |a, cx| match a[0] {
        Datum::Numeric(n) => Ok(arith::numeric(&number::square_root(n)?, cx)),
        other => Ok(other),
    }),
    strict("cbrt", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).cbrt()))),
    strict("exp", &[Float8], Float8, |a, _| {
        let f = float(a, 0);
        check_float(f.exp(), f.is_infinite(), f.is_infinite()).map(Datum::Float8)
    }),
    strict("exp", &[Numeric], Numeric, |a, cx| of_one(a, cx, power::exponential)),
    strict("ln", &[Numeric], Numeric, |a, cx| of_one(a, cx, power::natural_logarithm)),
    strict("log", &[Numeric], Numeric, |a, cx| of_one(a, cx, to_ten)),
    strict("log10", &[Numeric], Numeric, |a, cx| of_one(a, cx, to_ten)),
    strict("log", &[Numeric, Numeric], Numeric, |a, cx| of_two(a, cx, power::logarithm)),
    strict("gcd", &[Numeric, Numeric], Numeric, |a, cx| {
        of_two(a, cx, |a, b| power::greatest_divisor(a, b, cx))
    }),
    strict("lcm", &[Numeric, Numeric], Numeric, |a, cx| {
        of_two(a, cx, |a, b| power::least_multiple(a, b, cx))
    }),
    strict("ln", &[Float8], Float8, |a, _| logarithm(float(a, 0), f64::ln)),
    strict("log", &[Float8], Float8, |a, _| logarithm(float(a, 0), f64::log10)),
    strict("log10", &[Float8], Float8, |a, _| logarithm(float(a, 0), f64::log10)),
    strict("sin", &[Float8], Float8, |a, _| of_angle(float(a, 0), f64::sin)),
    strict("cos", &[Float8], Float8, |a, _| of_angle(float(a, 0), f64::cos)),
    strict("tan", &[Float8], Float8, |a, _| of_angle(float(a, 0), f64::tan)),
    strict("atan", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0).atan()))),
    strict("degrees", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0) / RADIANS_PER_DEGREE))),
    strict("radians", &[Float8], Float8, |a, _| Ok(Datum::Float8(float(a, 0) * RADIANS_PER_DEGREE))),
    strict("pi", &[], Float8, |_, _| Ok(Datum::Float8(std::f64::consts::PI))),
    volatile("random", &[], Float8, RANDOM),
];

const RANDOM: Run = |_, cx| Ok(Datum::Float8((cx.env.next_random() >> 11) as f64 / (1u64 << 53) as f64));

/// The constant that PostgreSQL uses, so that the last digits of results are the same.
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

fn of_one<'a>(
    a: &[Datum<'a>],
    cx: &Cx<'a>,
    f: fn(NumericRef<'_>) -> Result<varve_engine::Numeric>,
) -> Result<Datum<'a>> {
    match a[0] {
        Datum::Numeric(x) => Ok(arith::numeric(&f(x)?, cx)),
        other => Ok(other),
    }
}

fn of_two<'a>(
    a: &[Datum<'a>],
    cx: &Cx<'a>,
    f: impl Fn(NumericRef<'_>, NumericRef<'_>) -> Result<varve_engine::Numeric>,
) -> Result<Datum<'a>> {
    match (a[0], a[1]) {
        (Datum::Numeric(x), Datum::Numeric(y)) => Ok(arith::numeric(&f(x, y)?, cx)),
        (other, _) => Ok(other),
    }
}

/// Returns the decimal logarithm.
fn to_ten(a: NumericRef<'_>) -> Result<varve_engine::Numeric> {
    power::logarithm(varve_engine::Numeric::from_i64(10).as_ref(), a)
}

fn rounded<'a>(a: &[Datum<'a>], mode: RoundingMode, cx: &Cx<'a>) -> Result<Datum<'a>> {
    let Datum::Numeric(n) = a[0] else { return Ok(a[0]) };
    let scale = if a.len() > 1 { int(a, 1) } else { 0 };
    Ok(arith::numeric(&number::round_to(n, scale, mode)?, cx))
}

fn power<'a>(base: f64, exponent: f64) -> Result<Datum<'a>> {
    if base == 0.0 && exponent < 0.0 {
        return Err(SqlError::new(SqlState::INVALID_POWER, "zero raised to a negative power is undefined"));
    }
    // An infinite exponent counts as an integer, and NaN is no error here.
    if base < 0.0 && !exponent.is_nan() && exponent.floor() != exponent {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(SqlError::new(SqlState::INVALID_POWER, message));
    }
    let infinite = base.is_infinite() || exponent.is_infinite();
    check_float(base.powf(exponent), infinite, infinite || base == 0.0).map(Datum::Float8)
}

/// Computes a function of an angle. Fails with 22003 for an infinite angle.
pub(super) fn of_angle<'a>(angle: f64, of: fn(f64) -> f64) -> Result<Datum<'a>> {
    if angle.is_infinite() {
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "input is out of range"));
    }
    Ok(Datum::Float8(of(angle)))
}

fn logarithm<'a>(f: f64, log: fn(f64) -> f64) -> Result<Datum<'a>> {
    if f <= 0.0 {
        return Err(power::no_logarithm(f == 0.0));
    }
    Ok(Datum::Float8(log(f)))
}
