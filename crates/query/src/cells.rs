//! Converts values to and from Arrow arrays. The table shows the array for each type.
//!
//! | type | array | holds |
//! |---|---|---|
//! | boolean | Boolean | |
//! | smallint, integer, bigint | Int16, Int32, Int64 | |
//! | real, double precision | Float32, Float64 | |
//! | date | Int32 | days since 2000-01-01 |
//! | timestamp, timestamptz | Int64 | microseconds since 2000-01-01 |
//! | time | Int64 | microseconds since midnight |
//! | oid, regclass and its relatives | Int64 | |
//! | char, varchar, text, name, "char", json | Utf8View | without the blanks of char(n) |
//! | bytea | BinaryView | |
//! | numeric | BinaryView | the engine's bytes, any precision |
//! | interval, uuid, arrays | BinaryView | the engine's bytes |
//!
//! Invariants
//! 1. A value is the same after conversion to Arrow and back. Arrow's own types for dates, decimals and
//!    intervals are not used, because their rules differ from PostgreSQL's.
//! 2. For a type that `is_native`, Arrow's equality and order are PostgreSQL's ("C" collation).
//!
//! This module does not know expressions.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewArray, BinaryViewBuilder, BooleanArray,
    BooleanBuilder, Float32Array, Float32Builder, Float64Array, Float64Builder, Int16Array, Int16Builder,
    Int32Array, Int32Builder, Int64Array, Int64Builder, PrimitiveBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use varve_engine::{Datum, Interval, LeafColumn, NumericRef};
use varve_sql::general::Ty;

use crate::numbers::NumericBuilder;

/// The number of rows of a batch that is made from single rows.
pub const BATCH_ROWS: usize = 4096;

/// The number of values of a leaf that are appended to an array together.
const PUSHED_VALUES: usize = 128;

/// Returns the array that holds values of the type.
pub fn data_type(ty: Ty) -> DataType {
    match ty {
        Ty::Bool => DataType::Boolean,
        Ty::Int2 => DataType::Int16,
        Ty::Int4 | Ty::Date => DataType::Int32,
        Ty::Int8 | Ty::Oid | Ty::Reg(_) | Ty::Timestamp | Ty::TimestampTz | Ty::Time => DataType::Int64,
        Ty::Float4 => DataType::Float32,
        Ty::Float8 => DataType::Float64,
        Ty::Numeric | Ty::Bytea | Ty::Interval | Ty::Uuid => DataType::BinaryView,
        Ty::Array(_) | Ty::Int2Vector | Ty::OidVector => DataType::BinaryView,
        _ => DataType::Utf8View,
    }
}

/// Returns whether Arrow compares values of the type as PostgreSQL does. It is false for numeric (1.0 and
/// 1.00 are equal), double precision and real (0 and -0 are equal), interval (a month is 30 days), and
/// arrays.
pub fn is_native(ty: Ty) -> bool {
    !matches!(ty, Ty::Float4 | Ty::Float8 | Ty::Numeric | Ty::Interval) && ty.element().is_none()
}

/// A column to read.
pub enum Cells<'a> {
    /// boolean
    Bool(&'a BooleanArray),
    /// smallint
    Int2(&'a Int16Array),
    /// integer
    Int4(&'a Int32Array),
    /// bigint
    Int8(&'a Int64Array),
    /// real
    Float4(&'a Float32Array),
    /// double precision
    Float8(&'a Float64Array),
    /// numeric
    Numeric(&'a BinaryViewArray),
    /// All strings.
    Text(&'a StringViewArray),
    /// bytea
    Bytea(&'a BinaryViewArray),
    /// interval
    Interval(&'a BinaryViewArray),
    /// uuid
    Uuid(&'a BinaryViewArray),
    /// Arrays and vectors.
    List(&'a BinaryViewArray),
    /// date
    Date(&'a Int32Array),
    /// timestamp
    Timestamp(&'a Int64Array),
    /// timestamptz
    TimestampTz(&'a Int64Array),
    /// time
    Time(&'a Int64Array),
}

impl<'a> Cells<'a> {
    /// Reads an array of this type.
    pub fn of(ty: Ty, array: &'a ArrayRef) -> Cells<'a> {
        match ty {
            Ty::Bool => Cells::Bool(array.as_boolean()),
            Ty::Int2 => Cells::Int2(array.as_primitive::<Int16Type>()),
            Ty::Int4 => Cells::Int4(array.as_primitive::<Int32Type>()),
            Ty::Int8 | Ty::Oid | Ty::Reg(_) => Cells::Int8(array.as_primitive::<Int64Type>()),
            Ty::Float4 => Cells::Float4(array.as_primitive::<Float32Type>()),
            Ty::Float8 => Cells::Float8(array.as_primitive::<Float64Type>()),
            Ty::Date => Cells::Date(array.as_primitive::<Int32Type>()),
            Ty::Timestamp => Cells::Timestamp(array.as_primitive::<Int64Type>()),
            Ty::TimestampTz => Cells::TimestampTz(array.as_primitive::<Int64Type>()),
            Ty::Numeric => Cells::Numeric(array.as_binary_view()),
            Ty::Time => Cells::Time(array.as_primitive::<Int64Type>()),
            Ty::Bytea => Cells::Bytea(array.as_binary_view()),
            Ty::Interval => Cells::Interval(array.as_binary_view()),
            Ty::Uuid => Cells::Uuid(array.as_binary_view()),
            Ty::Array(_) | Ty::Int2Vector | Ty::OidVector => Cells::List(array.as_binary_view()),
            _ => Cells::Text(array.as_string_view()),
        }
    }

    fn array(&self) -> &'a dyn Array {
        match self {
            Cells::Bool(a) => *a,
            Cells::Int2(a) => *a,
            Cells::Int4(a) | Cells::Date(a) => *a,
            Cells::Int8(a) | Cells::Timestamp(a) | Cells::TimestampTz(a) | Cells::Time(a) => *a,
            Cells::Float4(a) => *a,
            Cells::Float8(a) => *a,
            Cells::Numeric(a) | Cells::Bytea(a) => *a,
            Cells::Interval(a) | Cells::Uuid(a) | Cells::List(a) => *a,
            Cells::Text(a) => *a,
        }
    }

    /// Returns the value of row `n`.
    pub fn get(&self, n: usize) -> Datum<'a> {
        if self.array().is_null(n) {
            return Datum::Null;
        }
        match self {
            Cells::Bool(a) => Datum::Bool(a.value(n)),
            Cells::Int2(a) => Datum::Int2(a.value(n)),
            Cells::Int4(a) => Datum::Int4(a.value(n)),
            Cells::Int8(a) => Datum::Int8(a.value(n)),
            Cells::Float4(a) => Datum::Float4(a.value(n)),
            Cells::Float8(a) => Datum::Float8(a.value(n)),
            Cells::Date(a) => Datum::Date(a.value(n)),
            Cells::Timestamp(a) => Datum::Timestamp(a.value(n)),
            Cells::TimestampTz(a) => Datum::TimestampTz(a.value(n)),
            Cells::Time(a) => Datum::Time(a.value(n)),
            Cells::Interval(a) => {
                a.value(n).try_into().map_or(Datum::Null, |raw| Datum::Interval(Interval::from_bytes(raw)))
            }
            Cells::Uuid(a) => a.value(n).try_into().map_or(Datum::Null, Datum::Uuid),
            Cells::List(a) => {
                varve_engine::ArrayRef::from_bytes(a.value(n)).map_or(Datum::Null, Datum::Array)
            }
            Cells::Text(a) => Datum::Text(a.value(n)),
            Cells::Bytea(a) => Datum::Bytea(a.value(n)),
            Cells::Numeric(a) => NumericRef::from_bytes(a.value(n)).map_or(Datum::Null, Datum::Numeric),
        }
    }
}

/// A column to which values are appended.
pub enum CellsBuilder {
    /// boolean
    Bool(BooleanBuilder),
    /// smallint
    Int2(Int16Builder),
    /// integer, date
    Int4(Int32Builder),
    /// bigint, oid, timestamps, time
    Int8(Int64Builder),
    /// real
    Float4(Float32Builder),
    /// double precision
    Float8(Float64Builder),
    /// All strings.
    Text(StringViewBuilder),
    /// numeric
    Numeric(NumericBuilder),
    /// bytea, interval, uuid, arrays
    Bytes(BinaryViewBuilder),
}

impl CellsBuilder {
    /// Returns an empty column of the type.
    pub fn new(ty: Ty) -> CellsBuilder {
        match data_type(ty) {
            DataType::Boolean => CellsBuilder::Bool(BooleanBuilder::new()),
            DataType::Int16 => CellsBuilder::Int2(Int16Builder::new()),
            DataType::Int32 => CellsBuilder::Int4(Int32Builder::new()),
            DataType::Int64 => CellsBuilder::Int8(Int64Builder::new()),
            DataType::Float32 => CellsBuilder::Float4(Float32Builder::new()),
            DataType::Float64 => CellsBuilder::Float8(Float64Builder::new()),
            DataType::BinaryView if ty == Ty::Numeric => CellsBuilder::Numeric(NumericBuilder::default()),
            DataType::BinaryView => CellsBuilder::Bytes(BinaryViewBuilder::new()),
            _ => CellsBuilder::Text(StringViewBuilder::new()),
        }
    }

    /// Appends a value. Panics if it has another type, which only a bug in the binder can cause.
    pub fn push(&mut self, value: Datum<'_>) {
        match (self, value) {
            (CellsBuilder::Bool(b), Datum::Bool(v)) => b.append_value(v),
            (CellsBuilder::Int2(b), Datum::Int2(v)) => b.append_value(v),
            (CellsBuilder::Int4(b), Datum::Int4(v) | Datum::Date(v)) => b.append_value(v),
            (
                CellsBuilder::Int8(b),
                Datum::Int8(v) | Datum::Timestamp(v) | Datum::TimestampTz(v) | Datum::Time(v),
            ) => b.append_value(v),
            (CellsBuilder::Float4(b), Datum::Float4(v)) => b.append_value(v),
            (CellsBuilder::Float8(b), Datum::Float8(v)) => b.append_value(v),
            (CellsBuilder::Text(b), Datum::Text(v)) => b.append_value(v),
            (CellsBuilder::Bytes(b), Datum::Bytea(v)) => b.append_value(v),
            (CellsBuilder::Numeric(b), Datum::Numeric(v)) => b.push(v.as_bytes()),
            (CellsBuilder::Bytes(b), Datum::Interval(v)) => b.append_value(v.to_bytes()),
            (CellsBuilder::Bytes(b), Datum::Uuid(v)) => b.append_value(v),
            (CellsBuilder::Bytes(b), Datum::Array(v)) => b.append_value(v.as_bytes()),
            (builder, Datum::Null) => builder.push_null(),
            (_, value) => panic!("a value of another type: {value:?}"),
        }
    }

    /// Appends the values of rows of a leaf, which are named by their numbers.
    pub fn push_column(&mut self, column: &LeafColumn<'_>, numbers: &[u16]) {
        let is_done = match self {
            CellsBuilder::Int2(b) => push_fixed(b, column, numbers, i16::from_le_bytes),
            CellsBuilder::Int4(b) => push_fixed(b, column, numbers, i32::from_le_bytes),
            CellsBuilder::Int8(b) => push_fixed(b, column, numbers, i64::from_le_bytes),
            CellsBuilder::Float4(b) => push_fixed(b, column, numbers, f32::from_le_bytes),
            CellsBuilder::Float8(b) => push_fixed(b, column, numbers, f64::from_le_bytes),
            CellsBuilder::Numeric(b) => {
                b.push_column(column, numbers);
                true
            }
            CellsBuilder::Bool(_) | CellsBuilder::Text(_) | CellsBuilder::Bytes(_) => false,
        };
        if !is_done {
            numbers.iter().for_each(|number| self.push(column.get(*number)));
        }
    }

    fn push_null(&mut self) {
        match self {
            CellsBuilder::Bool(b) => b.append_null(),
            CellsBuilder::Int2(b) => b.append_null(),
            CellsBuilder::Int4(b) => b.append_null(),
            CellsBuilder::Int8(b) => b.append_null(),
            CellsBuilder::Float4(b) => b.append_null(),
            CellsBuilder::Float8(b) => b.append_null(),
            CellsBuilder::Text(b) => b.append_null(),
            CellsBuilder::Numeric(b) => b.push_null(),
            CellsBuilder::Bytes(b) => b.append_null(),
        }
    }

    /// Returns the array.
    pub fn finish(&mut self) -> ArrayRef {
        match self {
            CellsBuilder::Bool(b) => Arc::new(b.finish()),
            CellsBuilder::Int2(b) => Arc::new(b.finish()),
            CellsBuilder::Int4(b) => Arc::new(b.finish()),
            CellsBuilder::Int8(b) => Arc::new(b.finish()),
            CellsBuilder::Float4(b) => Arc::new(b.finish()),
            CellsBuilder::Float8(b) => Arc::new(b.finish()),
            CellsBuilder::Text(b) => Arc::new(b.finish()),
            CellsBuilder::Numeric(b) => b.finish(),
            CellsBuilder::Bytes(b) => Arc::new(b.finish()),
        }
    }
}

/// Appends values of fixed width. Returns false if the column has values of another width.
fn push_fixed<T: ArrowPrimitiveType, const WIDTH: usize>(
    builder: &mut PrimitiveBuilder<T>,
    column: &LeafColumn<'_>,
    numbers: &[u16],
    decode: impl Fn([u8; WIDTH]) -> T::Native,
) -> bool {
    let page = column.minipage();
    let Some(values) = page.fixed::<WIDTH>() else { return false };
    let value = |number: &u16| decode(values[usize::from(*number)]);
    if page.has_null(numbers) {
        let value = |number: &u16| (!page.is_null(usize::from(*number))).then(|| value(number));
        builder.extend(numbers.iter().map(value));
    } else {
        // The builder takes many values at a time only from a slice.
        let mut decoded = [T::default_value(); PUSHED_VALUES];
        for numbers in numbers.chunks(PUSHED_VALUES) {
            decoded.iter_mut().zip(numbers).for_each(|(decoded, number)| *decoded = value(number));
            builder.append_slice(&decoded[..numbers.len()]);
        }
    }
    true
}
