//! Fuzzes the encoding of rows: it encodes rows of any values, and decodes any bytes as a row.
//!
//! The input has the number of columns (u8) and their types. If the next byte is even, values follow. If it
//! is odd, the bytes of an encoded row follow.

use varve_engine::{ColumnType, Datum, RowImage, RowRef, RowSchema, Value};

use crate::input::Input;

const COLUMNS_MAX: u8 = 24;

/// Checks that values are read back from their row, and that other bytes are refused or can be read as a
/// whole row.
pub fn row(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let count = input.byte() % COLUMNS_MAX;
    let columns: Vec<ColumnType> = (0..count).map(|_| input.column_type()).collect();
    let schema = RowSchema::new(&columns);
    if input.byte() & 1 == 0 {
        let values: Vec<Value> = columns.iter().map(|column| value(&mut input, *column)).collect();
        round_trip(&schema, &values);
    } else if let Ok(row) = RowRef::checked(&schema, input.rest()) {
        let data: Vec<Datum<'_>> = (0..row.len()).map(|index| row.get(index)).collect();
        let again = RowImage::encode(&schema, &data).expect("a row that was read has a size");
        compare(again.as_row(&schema), &data);
    }
}

fn round_trip(schema: &RowSchema, values: &[Value]) {
    let data: Vec<Datum<'_>> = values.iter().map(Value::as_datum).collect();
    let Ok(image) = RowImage::encode(schema, &data) else { return };
    let row = RowRef::checked(schema, image.as_bytes()).expect("what was encoded is a row");
    compare(row, &data);
}

fn compare(row: RowRef<'_>, data: &[Datum<'_>]) {
    for (index, datum) in data.iter().enumerate() {
        let read = row.get(index);
        assert!(read.order(datum).is_eq(), "column {index}: {read:?} for {datum:?}");
    }
}

/// Returns a value of a column's type, as the input says; NULL if the input makes no valid value.
pub(crate) fn value(input: &mut Input<'_>, column: ColumnType) -> Value {
    if input.byte() == 0 {
        return Value::Null;
    }
    match column {
        ColumnType::Bool => Value::Bool(input.byte() & 1 != 0),
        ColumnType::Int2 => Value::Int2(input.u16() as i16),
        ColumnType::Int4 => Value::Int4(input.u32() as i32),
        ColumnType::Int8 => Value::Int8(input.u64() as i64),
        ColumnType::Float4 => Value::Float4(f32::from_bits(input.u32())),
        ColumnType::Float8 => Value::Float8(f64::from_bits(input.u64())),
        ColumnType::Time => Value::Time(input.u64() as i64),
        ColumnType::Interval => Value::Interval(varve_engine::Interval {
            months: input.u32() as i32,
            days: input.u32() as i32,
            micros: input.u64() as i64,
        }),
        ColumnType::Oid => Value::Int8(i64::from(input.u32())),
        ColumnType::Rounded(moment, _) => value(input, moment.unrounded()),
        ColumnType::Array(_) => Value::Null,
        ColumnType::Uuid => {
            Value::Uuid((u128::from(input.u64()) << 64 | u128::from(input.u64())).to_be_bytes())
        }
        ColumnType::Date => Value::Date(input.u32() as i32),
        ColumnType::Timestamp => Value::Timestamp(input.u64() as i64),
        ColumnType::TimestampTz => Value::TimestampTz(input.u64() as i64),
        ColumnType::Bytea => Value::Bytea(input.piece().to_vec()),
        ColumnType::Numeric { .. } => {
            let read = varve_engine::NumericRef::from_bytes(input.piece());
            read.map_or(Value::Null, |number| Value::Numeric(number.to_owned()))
        }
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text | ColumnType::Json => {
            Value::Text(String::from_utf8_lossy(input.piece()).into_owned())
        }
    }
}
