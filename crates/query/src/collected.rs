//! The values that an aggregate keeps until its result is computed: string_agg, array_agg, json_agg,
//! json_object_agg, percentiles and mode.
//!
//! Invariants
//! 1. The memory of each value is counted when the value is added, not after the batch.
//! 2. A result of a gigabyte is refused before it is built. The check counts the bytes of the values.
//!
//! What it does not know: which rows belong to a group, and DISTINCT.

use varve_engine::{Datum, Value};
use varve_sql::general::{AggKind, SqlError, SqlState, Ty, array_of, push_json_string};

use crate::budget::{Account, check_array, check_text, datum_bytes};
use crate::ordered_set::{self, Placed};

/// The values of one group.
#[derive(Debug, Default)]
pub struct Collected {
    /// For each row: the sort key, the value, and a second value. The second value is a delimiter, a
    /// fraction, or the value of a JSON field.
    rows: Vec<Placed>,
    memory: Account,
    /// The length of the result, in bytes.
    whole_bytes: usize,
}

impl Collected {
    /// Adds a value. Error 54000 if the result would have a gigabyte, and 53200 if memory is used up.
    pub fn push(
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

    /// Bytes of memory that the memory pool does not count yet.
    pub fn unreserved(&self) -> usize {
        self.memory.unreserved()
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
        let mut rows: Vec<&Placed> = self.rows.iter().collect();
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
