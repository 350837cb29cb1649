//! `generate_series` for integers.

use bumpalo::Bump;
use varve_engine::Datum;

use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Env, Expr, Input};
use crate::ty::Ty;

/// The values of generate_series.
pub struct Series {
    next: Option<i64>,
    stop: i64,
    step: i64,
    wide: bool,
}

impl Series {
    /// Evaluates the bounds. If one is NULL, the series is empty.
    pub fn new(
        bounds: &[Expr; 3],
        ty: Ty,
        params: &[Datum<'_>],
        arena: &Bump,
        env: &Env<'_>,
    ) -> Result<Series> {
        let cx = Cx { params, arena, env };
        let wide = ty == Ty::Int8;
        let mut values = [0; 3];
        for (value, e) in values.iter_mut().zip(bounds) {
            match e.eval(&Input::None, &cx)?.as_integer() {
                Some(n) => *value = n,
                None => return Ok(Series { next: None, stop: 0, step: 1, wide }),
            }
        }
        let [start, stop, step] = values;
        Series::between(start, stop, step, wide)
    }

    /// Returns the numbers from `start` to `stop`, as bigint if `wide`.
    pub fn between(start: i64, stop: i64, step: i64, wide: bool) -> Result<Series> {
        if step == 0 {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero"));
        }
        Ok(Series { next: Some(start), stop, step, wide })
    }
}

impl Iterator for Series {
    type Item = Datum<'static>;

    fn next(&mut self) -> Option<Datum<'static>> {
        let at = self.next?;
        let past = if self.step > 0 { at > self.stop } else { at < self.stop };
        if past {
            return None;
        }
        self.next = at.checked_add(self.step);
        Some(if self.wide { Datum::Int8(at) } else { Datum::Int4(at as i32) })
    }
}
