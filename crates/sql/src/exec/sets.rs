//! Computes the rows that one call of a set-returning function returns.
//!
//! Invariants
//! 1. If an argument is NULL, there are no rows.
//! 2. Functions that may return many rows (generate_series) compute one row at a time.
//!
//! This module does not know where the rows go or which other columns they get.

use std::cmp::Ordering;

use varve_engine::{Datum, Interval, Numeric, NumericRef, Special, Value};

use super::series::Series;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{func, number};
use crate::plan::SetFunction;
use crate::time::{self, Zone};
use crate::ty::Ty;

/// The remaining rows of one call.
pub enum SetRows {
    /// Integers of generate_series.
    Whole(Series),
    /// Numeric values of generate_series: the next value, the end, and the step.
    Numeric(Option<Numeric>, Numeric, Numeric),
    /// Timestamps of generate_series, with or without a time zone.
    Times(Box<Times>),
    /// Values that were all computed at the start.
    Made(std::vec::IntoIter<Value>),
}

/// The state of generate_series for timestamps.
pub struct Times {
    next: Option<i64>,
    stop: i64,
    step: Interval,
    zone: Option<Zone>,
}

impl SetRows {
    /// Starts a call with these arguments. If many rows are computed at once, an error of `look` ends the
    /// computation.
    pub fn new(
        function: SetFunction,
        arguments: &[Datum<'_>],
        zone: &Zone,
        look: &dyn Fn() -> Result<()>,
    ) -> Result<SetRows> {
        let none = || SetRows::Made(Vec::new().into_iter());
        if arguments.iter().any(Datum::is_null) {
            return Ok(none());
        }
        Ok(match (function, arguments) {
            (SetFunction::Copies(count), _) => {
                SetRows::Made((0..count as i64).map(Value::Int8).collect::<Vec<_>>().into_iter())
            }
            (SetFunction::Elements, [Datum::Array(array)]) => {
                let elements = array.iter().map(|element| look().map(|()| element.to_value()));
                SetRows::Made(elements.collect::<Result<Vec<_>>>()?.into_iter())
            }
            (SetFunction::Matches, [Datum::Text(text), Datum::Text(pattern), Datum::Text(flags)]) => {
                SetRows::Made(func::all_groups(text, pattern, flags, look)?.into_iter())
            }
            (SetFunction::Series(ty), [start, stop, step]) => series(ty, [*start, *stop, *step], zone)?,
            _ => return Err(SqlError::internal("a set of the wrong arguments")),
        })
    }

    /// Returns the next row.
    pub fn next_row(&mut self) -> Result<Option<Value>> {
        match self {
            SetRows::Whole(series) => Ok(series.next().map(|value| value.to_value())),
            SetRows::Made(values) => Ok(values.next()),
            SetRows::Numeric(next, stop, step) => {
                let Some(at) = next.take() else { return Ok(None) };
                let order = Datum::Numeric(at.as_ref()).order(&Datum::Numeric(stop.as_ref()));
                if if sign(step.as_ref()).is_lt() { order.is_lt() } else { order.is_gt() } {
                    return Ok(None);
                }
                *next = Some(number::add(at.as_ref(), step.as_ref())?);
                Ok(Some(Value::Numeric(at)))
            }
            SetRows::Times(times) => times.next_row(),
        }
    }
}

fn series(ty: Ty, [start, stop, step]: [Datum<'_>; 3], zone: &Zone) -> Result<SetRows> {
    Ok(match (start, stop, step) {
        (Datum::Numeric(start), Datum::Numeric(stop), Datum::Numeric(step)) => {
            for (n, what) in [(start, "start value"), (stop, "stop value"), (step, "step size")] {
                if let Some(special) = n.as_special() {
                    let name = if special == Special::NaN { "NaN" } else { "infinity" };
                    return Err(invalid(format!("{what} cannot be {name}")));
                }
            }
            if sign(step).is_eq() {
                return Err(no_step());
            }
            SetRows::Numeric(Some(start.to_owned()), stop.to_owned(), step.to_owned())
        }
        (
            Datum::Timestamp(start) | Datum::TimestampTz(start),
            Datum::Timestamp(stop) | Datum::TimestampTz(stop),
            Datum::Interval(step),
        ) => {
            if step.order(Interval::default()).is_eq() {
                return Err(no_step());
            }
            let zone = (ty == Ty::TimestampTz).then(|| zone.clone());
            SetRows::Times(Box::new(Times { next: Some(start), stop, step, zone }))
        }
        (start, stop, step) => match (start.as_integer(), stop.as_integer(), step.as_integer()) {
            (Some(start), Some(stop), Some(step)) => {
                SetRows::Whole(Series::between(start, stop, step, ty == Ty::Int8)?)
            }
            _ => return Err(SqlError::internal("a series of the wrong type")),
        },
    })
}

impl Times {
    fn next_row(&mut self) -> Result<Option<Value>> {
        let Some(at) = self.next.take() else { return Ok(None) };
        let backwards = self.step.order(Interval::default()).is_lt();
        if if backwards { at < self.stop } else { at > self.stop } {
            return Ok(None);
        }
        match &self.zone {
            Some(zone) => {
                self.next = Some(time::add_interval_in(at, self.step, zone)?);
                Ok(Some(Value::TimestampTz(at)))
            }
            None => {
                self.next = Some(time::add_interval(at, self.step)?);
                Ok(Some(Value::Timestamp(at)))
            }
        }
    }
}

/// Compares a number with 0.
fn sign(n: NumericRef<'_>) -> Ordering {
    Datum::Numeric(n).order(&Datum::Numeric(Numeric::from_i64(0).as_ref()))
}

fn no_step() -> SqlError {
    invalid("step size cannot equal zero".to_owned())
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}
