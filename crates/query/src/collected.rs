//! The values that an aggregate keeps until its result is computed: string_agg, array_agg, json_agg,
//! json_object_agg, percentiles and mode.
//!
//! Invariants
//! 1. The memory of each value is counted when the value is added, not after the batch.
//! 2. A result of a gigabyte is refused before it is built. The check counts the bytes of the values.
//! 3. The values can be written as bytes, so that a grouping can spill them. Each part of a group has a
//!    number. A merge orders the parts by these numbers, so the values keep the order in which they were
//!    collected.
//!
//! This module does not know which rows belong to a group, or DISTINCT.

use std::sync::atomic::{AtomicU64, Ordering};

use varve_engine::{Datum, Value};
use varve_sql::general::{
    AggKind, SqlError, SqlState, Ty, array_of, push_image, push_json_string, take_image,
};

use crate::budget::{Account, check_array, check_text, datum_bytes};
use crate::ordered_set::{self, Placed};

/// The values of one group.
#[derive(Debug, Default)]
pub struct Collected {
    /// For each row, the sort key, the value, and a second value. The second value is a delimiter, a
    /// fraction, or the value of a JSON field.
    rows: Vec<Placed>,
    /// The parts of `rows`: the number of the part, and its first row.
    parts: Vec<(u64, usize)>,
    memory: Account,
    /// The length of the result, in bytes.
    whole_bytes: usize,
}

impl Collected {
    /// Adds a value. The error is 54000 if the result would have a gigabyte, and 53200 if memory is used up.
    pub fn push(
        &mut self,
        kind: AggKind,
        value: Datum<'_>,
        second: Datum<'_>,
        place: &[u8],
    ) -> varve_sql::Result<()> {
        if self.parts.is_empty() {
            self.parts.push((next_part(), 0));
        }
        self.add(kind, value, second, place)
    }

    /// Adds a value to the part that was begun last.
    pub fn add(
        &mut self,
        kind: AggKind,
        value: Datum<'_>,
        second: Datum<'_>,
        place: &[u8],
    ) -> varve_sql::Result<()> {
        self.lengthen(kind, &value, &second)?;
        let bytes = place.len() + datum_bytes(&value) + datum_bytes(&second);
        self.memory.grow(bytes + size_of::<Placed>())?;
        self.rows.push((place.into(), value.to_value(), second.to_value()));
        Ok(())
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the length of the result in bytes, or 0 if the result is one of the values.
    pub fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// Returns the number of bytes of memory that the values take.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Gives back the memory that this type has reserved, because DataFusion has reserved it.
    pub fn pass_on(&mut self) {
        self.memory.pass_on();
    }

    /// Returns the values as bytes: the number of the part, and for each row the length of its sort key, the
    /// sort key, the value and the second value.
    pub fn state(&self) -> Vec<u8> {
        let (number, _) = self.parts.first().copied().unwrap_or_else(|| (next_part(), 0));
        let mut out = number.to_le_bytes().to_vec();
        for (place, value, second) in self.in_order() {
            push_row(&mut out, place, &value.as_datum(), &second.as_datum());
        }
        out
    }

    /// Begins a part with the number that `rows_of` has returned.
    pub fn begin_part(&mut self, number: u64) {
        self.parts.push((number, self.rows.len()));
    }

    /// Returns the rows in the order in which they were collected.
    fn in_order(&self) -> Vec<&Placed> {
        let end = |n: usize| self.parts.get(n + 1).map_or(self.rows.len(), |(_, first)| *first);
        let mut parts: Vec<(u64, &[Placed])> = self
            .parts
            .iter()
            .enumerate()
            .map(|(n, (number, first))| (*number, &self.rows[*first..end(n)]))
            .collect();
        parts.sort_by_key(|(number, _)| *number);
        parts.into_iter().flat_map(|(_, rows)| rows).collect()
    }

    /// Adds the length of a value to the length of the result. `second` is a delimiter, or the value of a
    /// JSON field.
    fn lengthen(&mut self, kind: AggKind, value: &Datum<'_>, second: &Datum<'_>) -> varve_sql::Result<()> {
        let is_later = usize::from(!self.rows.is_empty());
        let parts = match kind {
            AggKind::StringAgg => [is_later * datum_bytes(second), datum_bytes(value)],
            AggKind::JsonAgg(_) => [2, datum_bytes(value)],
            AggKind::JsonObjectAgg => [datum_bytes(value) + 2, datum_bytes(second) + 5],
            AggKind::ArrayAgg => {
                self.whole_bytes += datum_bytes(value);
                return check_array(self.whole_bytes);
            }
            _ => return Ok(()),
        };
        for part in parts {
            check_text(self.whole_bytes, part)?;
            self.whole_bytes += part;
        }
        Ok(())
    }

    /// Returns the result, which is computed from the values in the order of their sort keys.
    pub fn whole(&self, kind: AggKind, output: Ty) -> varve_sql::Result<Value> {
        let mut rows = self.in_order();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        match kind {
            AggKind::StringAgg => Ok(strung(rows, output)),
            AggKind::ArrayAgg => {
                let mut array = array_of(output.element().unwrap_or(Ty::Text));
                rows.iter().for_each(|(_, value, _)| array.push(value.as_datum()));
                Ok(Value::Array(array))
            }
            AggKind::JsonAgg(structured) => Ok(json_list(&rows, structured)),
            AggKind::JsonObjectAgg => json_object(&rows),
            AggKind::PercentilesCont | AggKind::PercentilesDisc => {
                let array = array_of(output.element().unwrap_or(Ty::Text));
                ordered_set::results(kind, &rows, array)
            }
            _ => ordered_set::result(kind, &rows),
        }
    }
}

/// Returns a number for a part. Later parts have higher numbers.
fn next_part() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The sort key, the value and the second value of a row.
pub type StateRow<'b> = (&'b [u8], Datum<'b>, Datum<'b>);

/// Appends a row to the bytes of a state.
pub fn push_row(out: &mut Vec<u8>, place: &[u8], value: &Datum<'_>, second: &Datum<'_>) {
    out.extend_from_slice(&(place.len() as u64).to_le_bytes());
    out.extend_from_slice(place);
    push_image(out, value);
    push_image(out, second);
}

/// Returns the number of the part in the bytes of `Collected::state`, and its rows.
pub fn rows_of(
    state: &[u8],
) -> varve_sql::Result<(u64, impl Iterator<Item = varve_sql::Result<StateRow<'_>>>)> {
    let (number, mut rest) = state.split_first_chunk().ok_or_else(damaged)?;
    let rows = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let row = taken(&mut rest).ok_or_else(damaged);
        if row.is_err() {
            rest = &[];
        }
        Some(row)
    });
    Ok((u64::from_le_bytes(*number), rows))
}

/// Takes a row from the beginning of the bytes.
fn taken<'b>(bytes: &mut &'b [u8]) -> Option<StateRow<'b>> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (place, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some((place, take_image(bytes)?, take_image(bytes)?))
}

fn damaged() -> SqlError {
    SqlError::internal("the state of an aggregate that keeps its values")
}

/// Concatenates the texts, with the delimiters between them.
fn strung(rows: Vec<&Placed>, output: Ty) -> Value {
    let mut bytes = Vec::new();
    for (n, (_, value, delimiter)) in rows.into_iter().enumerate() {
        for part in [delimiter, value].into_iter().skip(usize::from(n == 0)) {
            match part {
                Value::Text(t) => bytes.extend_from_slice(t.as_bytes()),
                Value::Bytea(b) => bytes.extend_from_slice(b),
                _ => {}
            }
        }
    }
    if output == Ty::Bytea {
        return Value::Bytea(bytes);
    }
    // This cannot fail, because concatenated UTF-8 texts are valid UTF-8.
    Value::Text(String::from_utf8(bytes).unwrap_or_default())
}

/// Returns the result of json_agg. A value that is an array or a row begins on a new line.
fn json_list(rows: &[&Placed], structured: bool) -> Value {
    let mut out = String::from("[");
    for (n, (_, value, _)) in rows.iter().enumerate() {
        out.push_str(if n > 0 { ", " } else { "" });
        out.push_str(if n > 0 && structured && !matches!(value, Value::Null) { "\n " } else { "" });
        out.push_str(json_piece(value));
    }
    Value::Text(out + "]")
}

fn json_object(rows: &[&Placed]) -> varve_sql::Result<Value> {
    let mut out = b"{ ".to_vec();
    for (n, (_, key, value)) in rows.iter().enumerate() {
        let Value::Text(key) = key else {
            let message = "field name must not be null";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        out.extend_from_slice(if n > 0 { b", " } else { b"" });
        push_json_string(key, &mut out);
        out.extend_from_slice(b" : ");
        out.extend_from_slice(json_piece(value).as_bytes());
    }
    out.extend_from_slice(b" }");
    Ok(Value::Text(String::from_utf8(out).unwrap_or_default()))
}

fn json_piece(value: &Value) -> &str {
    match value {
        Value::Text(json) => json,
        _ => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: AggKind = AggKind::StringAgg;

    fn merge(collected: &mut Collected, state: &[u8]) -> varve_sql::Result<()> {
        let (number, mut rows) = rows_of(state)?;
        collected.begin_part(number);
        rows.try_for_each(|row| row.and_then(|(place, a, b)| collected.add(KIND, a, b, place)))
    }

    #[test]
    fn parts_are_put_together_in_the_order_of_their_values() {
        let text = |state: &Collected| format!("{:?}", state.whole(KIND, Ty::Text).unwrap());
        let part = |values: [&str; 2]| {
            let mut part = Collected::default();
            for value in values {
                part.push(KIND, Datum::Text(value), Datum::Text("-"), b"").unwrap();
            }
            part.state()
        };
        let (first, second, third) = (part(["a", "b"]), part(["c", "a"]), part(["e", "f"]));
        let mut merged = Collected::default();
        for state in [&second, &third, &first] {
            merge(&mut merged, state).unwrap();
        }
        assert_eq!(text(&merged), "Text(\"a-b-c-a-e-f\")");
        let mut again = Collected::default();
        merge(&mut again, &merged.state()).unwrap();
        assert_eq!(text(&again), text(&merged));
        assert!(merge(&mut again, &first[..first.len() - 1]).is_err(), "cut bytes");
    }
}
