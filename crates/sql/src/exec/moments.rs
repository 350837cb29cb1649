//! Counts, sums and sums of squares, from which variance, correlation and regression are computed.
//!
//! Sums of integers and numeric are exact. For double precision, the deviations from the current mean are
//! summed (Youngs and Cramer, "Some results relevant to choice of sum and sum-of-product algorithms", 1971).
//! The operations have PostgreSQL's order, so that the last digits are equal.
//!
//! Invariants
//! 1. The merged moments of parts equal the moments of the whole. For double precision this holds up to
//!    rounding.
//!
//! This module does not know groups or NULL.

use varve_engine::{Datum, Numeric, NumericRef, Value};

use super::sum::Sum;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::number;
use crate::plan::Moment;
use crate::ty::Ty;

/// The moments of the values so far.
#[derive(Debug, Clone)]
pub enum Moments {
    /// The count, the sum, and the sum of squares of integers and numeric.
    Exact(Box<(u64, Sum, Sum)>),
    /// The sums for double precision.
    Float(Box<Deviations>),
}

/// Moments of pairs (x, y) of double precision. For single values, x is the value and y is not used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deviations {
    /// The number of pairs.
    n: f64,
    /// Sum of x.
    sx: f64,
    /// Sum of the squares of x's deviations from its mean.
    sxx: f64,
    /// Sum of y.
    sy: f64,
    /// Sum of the squares of y's deviations from its mean.
    syy: f64,
    /// Sum of the products of both deviations.
    sxy: f64,
}

impl Moments {
    /// Returns the moments before the first value of this type.
    pub fn of(input: Ty) -> Moments {
        match input {
            Ty::Float8 => Moments::Float(Box::default()),
            _ => Moments::Exact(Box::new((0, Sum::of(Ty::Numeric), Sum::of(Ty::Numeric)))),
        }
    }

    /// Adds one value, which is not NULL.
    pub fn add(&mut self, value: Datum<'_>) -> Result<()> {
        match (self, value) {
            (Moments::Float(d), Datum::Float8(f)) => d.add(f),
            (Moments::Exact(exact), Datum::Numeric(n)) => exact_add(exact, n),
            (Moments::Exact(exact), value) => {
                let whole = Numeric::from_i64(value.as_integer().unwrap_or(0));
                exact_add(exact, whole.as_ref())
            }
            _ => Err(SqlError::internal("a moment of the wrong type")),
        }
    }

    /// Adds a pair of values, which are not NULL.
    pub fn add_pair(&mut self, y: Datum<'_>, x: Datum<'_>) -> Result<()> {
        match (self, y, x) {
            (Moments::Float(d), Datum::Float8(y), Datum::Float8(x)) => d.add_pair(y, x),
            _ => Err(SqlError::internal("a moment of the wrong type")),
        }
    }

    /// Adds the moments of another part.
    pub fn merge(&mut self, other: Moments) -> Result<()> {
        match (self, other) {
            (Moments::Float(a), Moments::Float(b)) => a.merge(&b),
            (Moments::Exact(a), Moments::Exact(b)) => {
                let (count, sum, squares) = *b;
                a.0 += count;
                a.1.merge(sum)?;
                a.2.merge(squares)
            }
            _ => Err(SqlError::internal("moments of two types")),
        }
    }

    /// Returns the moments as bytes.
    pub fn state(&self) -> Result<Vec<u8>> {
        Ok(match self {
            Moments::Float(d) => {
                [d.n, d.sx, d.sxx, d.sy, d.syy, d.sxy].into_iter().flat_map(f64::to_le_bytes).collect()
            }
            Moments::Exact(exact) => {
                let (sum, squares) = (numeric(&exact.1)?, numeric(&exact.2)?);
                let (sum, squares) = (sum.as_ref(), squares.as_ref());
                let length = (sum.as_bytes().len() as u64).to_le_bytes();
                [&exact.0.to_le_bytes()[..], &length, sum.as_bytes(), squares.as_bytes()].concat()
            }
        })
    }

    /// Reads moments from the bytes that `state` has made.
    pub fn of_state(input: Ty, bytes: &[u8]) -> Result<Moments> {
        let broken = || SqlError::internal("moments of the wrong length");
        let words = |n: usize| bytes.get(n * 8..n * 8 + 8).and_then(|w| w.try_into().ok()).ok_or_else(broken);
        if input == Ty::Float8 {
            let word = |n| words(n).map(f64::from_le_bytes);
            let (n, sx, sxx) = (word(0)?, word(1)?, word(2)?);
            let (sy, syy, sxy) = (word(3)?, word(4)?, word(5)?);
            return Ok(Moments::Float(Box::new(Deviations { n, sx, sxx, sy, syy, sxy })));
        }
        let count = words(0).map(u64::from_le_bytes)?;
        let length = words(1).map(u64::from_le_bytes)? as usize;
        let (sum, squares) =
            bytes.get(16..).and_then(|rest| rest.split_at_checked(length)).ok_or_else(broken)?;
        let sum_of = |bytes| {
            let value = NumericRef::from_bytes(bytes).ok_or_else(broken)?;
            Sum::of_state(Ty::Numeric, Datum::Numeric(value))
        };
        Ok(Moments::Exact(Box::new((count, sum_of(sum)?, sum_of(squares)?))))
    }

    /// Returns the result of an aggregate over the values so far.
    pub fn result(&self, moment: Moment) -> Result<Value> {
        let float = |f: Option<f64>| f.map_or(Value::Null, Value::Float8);
        match self {
            Moments::Float(d) if moment == Moment::RegrCount => Ok(Value::Int8(d.n as i64)),
            Moments::Float(d) => Ok(float(d.result(moment))),
            Moments::Exact(exact) => exact_result(exact, moment),
        }
    }
}

fn exact_add((count, sum, squares): &mut (u64, Sum, Sum), value: NumericRef<'_>) -> Result<()> {
    *count += 1;
    sum.add(Datum::Numeric(value))?;
    squares.add(Datum::Numeric(number::multiply(value, value)?.as_ref()))
}

fn numeric(sum: &Sum) -> Result<Numeric> {
    match sum.state()? {
        Value::Numeric(n) => Ok(n),
        _ => Err(SqlError::internal("a sum of numeric that is none")),
    }
}

/// Does the same as PostgreSQL's `numeric_stddev_internal`.
fn exact_result((count, sum, squares): &(u64, Sum, Sum), moment: Moment) -> Result<Value> {
    let of_sample = matches!(moment, Moment::VarSamp | Moment::StddevSamp);
    let root = matches!(moment, Moment::StddevPop | Moment::StddevSamp);
    if *count == 0 || of_sample && *count == 1 {
        return Ok(Value::Null);
    }
    let (sum, squares) = (numeric(sum)?, numeric(squares)?);
    if sum.as_ref().as_special().is_some() {
        return Ok(Value::Numeric(Numeric::nan()));
    }
    let n = number::of_i128(i128::from(*count));
    let whole = number::multiply(n.as_ref(), squares.as_ref())?;
    let square = number::multiply(sum.as_ref(), sum.as_ref())?;
    let above = number::subtract(whole.as_ref(), square.as_ref())?;
    let below = i128::from(*count) * (i128::from(*count) - i128::from(of_sample));
    let below = number::of_i128(below);
    number::mean_square(above.as_ref(), below.as_ref(), root).map(Value::Numeric)
}

impl Deviations {
    fn add(&mut self, x: f64) -> Result<()> {
        let before = *self;
        self.n += 1.0;
        self.sx += x;
        if before.n > 0.0 {
            let by = x * self.n - self.sx;
            self.sxx += by * by / (self.n * before.n);
            if self.sx.is_infinite() || self.sxx.is_infinite() {
                refuse_overflow(!before.sx.is_infinite() && !x.is_infinite())?;
                self.sxx = f64::NAN;
            }
        } else if !x.is_finite() {
            self.sxx = f64::NAN;
        }
        Ok(())
    }

    fn add_pair(&mut self, y: f64, x: f64) -> Result<()> {
        let before = *self;
        self.n += 1.0;
        self.sx += x;
        self.sy += y;
        if before.n > 0.0 {
            let (by_x, by_y) = (x * self.n - self.sx, y * self.n - self.sy);
            let scale = 1.0 / (self.n * before.n);
            self.sxx += by_x * by_x * scale;
            self.syy += by_y * by_y * scale;
            self.sxy += by_x * by_y * scale;
            let (fine_x, fine_y) =
                (!before.sx.is_infinite() && !x.is_infinite(), !before.sy.is_infinite() && !y.is_infinite());
            return self.check_pair(fine_x, fine_y);
        }
        if !x.is_finite() {
            (self.sxx, self.sxy) = (f64::NAN, f64::NAN);
        }
        if !y.is_finite() {
            (self.syy, self.sxy) = (f64::NAN, f64::NAN);
        }
        Ok(())
    }

    /// Fails if a sum has overflowed. An infinite sum of infinite values is no overflow.
    fn check_pair(&mut self, fine_x: bool, fine_y: bool) -> Result<()> {
        refuse_overflow((self.sx.is_infinite() || self.sxx.is_infinite()) && fine_x)?;
        refuse_overflow((self.sy.is_infinite() || self.syy.is_infinite()) && fine_y)?;
        refuse_overflow(self.sxy.is_infinite() && fine_x && fine_y)?;
        for sum in [&mut self.sxx, &mut self.syy, &mut self.sxy] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: &Deviations) -> Result<()> {
        if self.n == 0.0 || other.n == 0.0 {
            if self.n == 0.0 {
                *self = *other;
            }
            return Ok(());
        }
        let (a, b) = (*self, *other);
        let n = a.n + b.n;
        let (by_x, by_y) = (a.sx / a.n - b.sx / b.n, a.sy / a.n - b.sy / b.n);
        let scale = a.n * b.n / n;
        *self = Deviations {
            n,
            sx: a.sx + b.sx,
            sxx: a.sxx + b.sxx + scale * by_x * by_x,
            sy: a.sy + b.sy,
            syy: a.syy + b.syy + scale * by_y * by_y,
            sxy: a.sxy + b.sxy + scale * by_x * by_y,
        };
        refuse_overflow(self.sxx.is_infinite() && a.sxx.is_finite() && b.sxx.is_finite())
    }

    fn result(&self, moment: Moment) -> Option<f64> {
        let Deviations { n, sx, sxx, sy, syy, sxy } = *self;
        let some = (n >= 1.0).then_some(());
        let sample = (n >= 2.0).then_some(());
        // If all values of x are equal, the regression is undefined.
        let varied = |s: f64| (s != 0.0).then_some(());
        some?;
        Some(match moment {
            Moment::VarPop => sxx / n,
            Moment::StddevPop => (sxx / n).sqrt(),
            Moment::VarSamp => sample.map(|()| sxx / (n - 1.0))?,
            Moment::StddevSamp => sample.map(|()| (sxx / (n - 1.0)).sqrt())?,
            Moment::CovarPop => sxy / n,
            Moment::CovarSamp => sample.map(|()| sxy / (n - 1.0))?,
            Moment::Corr => varied(sxx).and(varied(syy)).map(|()| sxy / (sxx * syy).sqrt())?,
            Moment::RegrCount => n,
            Moment::RegrAvgX => sx / n,
            Moment::RegrAvgY => sy / n,
            Moment::RegrSxx => sxx,
            Moment::RegrSyy => syy,
            Moment::RegrSxy => sxy,
            Moment::RegrR2 => {
                varied(sxx)?;
                if syy == 0.0 { 1.0 } else { (sxy * sxy) / (sxx * syy) }
            }
            Moment::RegrSlope => varied(sxx).map(|()| sxy / sxx)?,
            Moment::RegrIntercept => varied(sxx).map(|()| (sy - sx * sxy / sxx) / n)?,
        })
    }
}

fn refuse_overflow(overflows: bool) -> Result<()> {
    if overflows {
        let message = "value out of range: overflow";
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    Ok(())
}
