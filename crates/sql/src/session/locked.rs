//! Runs locking subqueries before the statement that contains them.
//!
//! This module does not know how the statement uses their results.

use varve_engine::{Datum, Value};

use super::Session;
use super::run::Ran;
use crate::error::{Result, SqlError, SqlState};
use crate::oid;
use crate::prepared::Prepared;
use crate::sink::Sink;
use crate::ty::Ty;

/// Keeps the first value of each row.
#[derive(Default)]
struct First(Vec<Value>);

impl Sink for First {
    fn row(&mut self, row: &[Datum<'_>]) -> Result<()> {
        self.0.extend(row.first().map(Datum::to_value));
        Ok(())
    }
}

impl Session {
    /// Runs the locking subqueries of a statement, and adds their results to the parameters. Returns `None`
    /// if one of these queries is out of date.
    pub(super) fn with_answers(
        &mut self,
        prepared: &Prepared,
        params: &[Datum<'_>],
    ) -> Result<Option<Vec<Value>>> {
        let mut values: Vec<Value> = params.iter().map(Datum::to_value).collect();
        for before in &prepared.before {
            let mut rows = First::default();
            match self.run_body(&before.prepared, params, 1, false, &mut rows)? {
                Ran::Stale => return Ok(None),
                Ran::Done(_) => {}
            }
            // In the rows, char(n) values are padded with blanks. In parameters they have no blanks.
            let is_char =
                before.prepared.columns().is_some_and(|c| c.iter().any(|c| c.type_oid == oid::BPCHAR));
            if is_char {
                rows.0.iter_mut().for_each(trim);
            }
            let answer = match before.list_of {
                Some(element) => list(rows.0, element),
                None => only(rows.0)?,
            };
            values.resize(before.place.max(values.len()), Value::Null);
            values.push(answer);
        }
        Ok(Some(values))
    }
}

fn only(mut rows: Vec<Value>) -> Result<Value> {
    if rows.len() > 1 {
        let message = "more than one row returned by a subquery used as an expression";
        return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message));
    }
    Ok(rows.pop().unwrap_or(Value::Null))
}

fn list(rows: Vec<Value>, element: Ty) -> Value {
    let mut array = crate::array::of(element.oid());
    rows.iter().for_each(|value| array.push(value.as_datum()));
    Value::Array(array)
}

fn trim(value: &mut Value) {
    if let Value::Text(text) = value {
        text.truncate(text.trim_end_matches(' ').len());
    }
}
