//! Collects columns of stored rows in Arrow arrays.
//!
//! Invariants
//! 1. The rows of a leaf are checked before the first value is collected. So either all rows of a leaf are
//!    collected, or none.
//! 2. A column is collected as it is returned, or as it is compared (`ColumnKind`), or in both ways.
//!
//! | collected to be | numeric | floating-point numbers |
//! |---|---|---|
//! | returned | the engine's bytes | as they are |
//! | compared | 128-bit integers of a scale, `DECIMAL_NAN` | -0 is 0; one NaN, above all numbers |
//!
//! This module does not know pages and visibility.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Decimal128Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, StringBuilder,
};
use arrow_schema::DataType;
use varve_engine::node::Columns;
use varve_engine::{Datum, Interval, NumericRef, RowRef, RowSchema, lifted};

use crate::error::Result;
use crate::program::{ColumnKind, DECIMAL_NAN, Program};

/// The place of a row.
#[derive(Clone, Copy)]
pub enum RowSource<'a> {
    /// An encoded row, which was checked.
    Whole(RowRef<'a>),
    /// The row with this number in the columns of a leaf.
    InColumns(Columns<'a>, usize),
}

impl<'a> RowSource<'a> {
    /// Returns the value of a column, or `None` if the stored bytes are no such value.
    #[inline]
    fn get(&self, column: usize, kind: ColumnKind) -> Option<Datum<'a>> {
        match self {
            RowSource::Whole(row) => Some(row.get(column)),
            RowSource::InColumns(columns, row) if columns.is_null(column, *row) => Some(Datum::Null),
            RowSource::InColumns(columns, row) => match usize::from(*columns.widths().get(column)?) {
                0 => decode(kind, columns.variable(column, *row)),
                width => decode(kind, columns.fixed(column).get(row * width..(row + 1) * width)?),
            },
        }
    }
}

/// Reads a stored value. Returns `None` if the bytes are no value of this kind.
pub fn decode(kind: ColumnKind, bytes: &[u8]) -> Option<Datum<'_>> {
    Some(match kind {
        ColumnKind::Bool => Datum::Bool(*bytes.first()? != 0),
        ColumnKind::Int2 => Datum::Int2(i16::from_le_bytes(bytes.try_into().ok()?)),
        ColumnKind::Int4 => Datum::Int4(i32::from_le_bytes(bytes.try_into().ok()?)),
        ColumnKind::Int8 => Datum::Int8(i64::from_le_bytes(bytes.try_into().ok()?)),
        ColumnKind::Float4 => Datum::Float4(f32::from_le_bytes(bytes.try_into().ok()?)),
        ColumnKind::Float8 => Datum::Float8(f64::from_le_bytes(bytes.try_into().ok()?)),
        ColumnKind::Decimal(_) | ColumnKind::Numeric => Datum::Numeric(NumericRef::from_bytes(bytes)?),
        ColumnKind::Text => Datum::Text(std::str::from_utf8(bytes).ok()?),
        ColumnKind::Bytes | ColumnKind::List => Datum::Bytea(bytes),
        ColumnKind::Interval => Datum::Interval(Interval::from_bytes(bytes.try_into().ok()?)),
        ColumnKind::Uuid => Datum::Uuid(bytes.try_into().ok()?),
    })
}

/// Returns a numeric as an integer of this scale, or `None` if it is no such integer.
fn decimal(value: NumericRef<'_>, scale: u8) -> Option<i128> {
    if value.is_nan() {
        return Some(DECIMAL_NAN);
    }
    let (unscaled, of_value) = value.to_unscaled()?;
    lifted(unscaled, u16::from(scale).checked_sub(of_value)?)
}

/// One collected column.
enum Values {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal(Decimal128Builder, u8),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Values {
    fn new(ty: &DataType) -> Values {
        match ty {
            DataType::Boolean => Values::Bool(BooleanBuilder::new()),
            DataType::Int16 => Values::Int2(Int16Builder::new()),
            DataType::Int32 => Values::Int4(Int32Builder::new()),
            DataType::Int64 => Values::Int8(Int64Builder::new()),
            DataType::Float32 => Values::Float4(Float32Builder::new()),
            DataType::Float64 => Values::Float8(Float64Builder::new()),
            DataType::Decimal128(_, scale) => {
                Values::Decimal(Decimal128Builder::new().with_data_type(ty.clone()), *scale as u8)
            }
            DataType::Utf8 => Values::Text(StringBuilder::new()),
            _ => Values::Bytes(BinaryBuilder::new()),
        }
    }

    /// Appends a value that `can_take` has accepted. Any other value becomes NULL.
    fn push(&mut self, value: Datum<'_>, is_operand: bool) {
        match (self, value) {
            (Values::Bool(b), Datum::Bool(v)) => b.append_value(v),
            (Values::Int2(b), Datum::Int2(v)) => b.append_value(v),
            (Values::Int4(b), Datum::Int4(v) | Datum::Date(v)) => b.append_value(v),
            (
                Values::Int8(b),
                Datum::Int8(v) | Datum::Timestamp(v) | Datum::TimestampTz(v) | Datum::Time(v),
            ) => b.append_value(v),
            (Values::Float4(b), Datum::Float4(v)) => {
                b.append_value(if is_operand { normal(f64::from(v)) as f32 } else { v });
            }
            (Values::Float8(b), Datum::Float8(v)) => b.append_value(if is_operand { normal(v) } else { v }),
            (Values::Decimal(b, scale), Datum::Numeric(v)) => b.append_option(decimal(v, *scale)),
            (Values::Text(b), Datum::Text(v)) => b.append_value(v),
            (Values::Bytes(b), Datum::Bytea(v)) => b.append_value(v),
            (Values::Bytes(b), Datum::Numeric(v)) => b.append_value(v.as_bytes()),
            (Values::Bytes(b), Datum::Interval(v)) => b.append_value(v.to_bytes()),
            (Values::Bytes(b), Datum::Uuid(v)) => b.append_value(v),
            (Values::Bytes(b), Datum::Array(v)) => b.append_value(v.as_bytes()),
            (values, _) => values.push_null(),
        }
    }

    /// Returns the bytes of the collected values, without those of the marks for NULL.
    fn bytes(&self) -> usize {
        match self {
            Values::Bool(b) => b.len(),
            Values::Int2(b) => b.len() * 2,
            Values::Int4(b) => b.len() * 4,
            Values::Int8(b) => b.len() * 8,
            Values::Float4(b) => b.len() * 4,
            Values::Float8(b) => b.len() * 8,
            Values::Decimal(b, _) => b.len() * 16,
            Values::Text(b) => b.len() * 4 + b.values_slice().len(),
            Values::Bytes(b) => b.len() * 4 + b.values_slice().len(),
        }
    }

    fn push_null(&mut self) {
        match self {
            Values::Bool(b) => b.append_null(),
            Values::Int2(b) => b.append_null(),
            Values::Int4(b) => b.append_null(),
            Values::Int8(b) => b.append_null(),
            Values::Float4(b) => b.append_null(),
            Values::Float8(b) => b.append_null(),
            Values::Decimal(b, _) => b.append_null(),
            Values::Text(b) => b.append_null(),
            Values::Bytes(b) => b.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Values::Bool(b) => Arc::new(b.finish()),
            Values::Int2(b) => Arc::new(b.finish()),
            Values::Int4(b) => Arc::new(b.finish()),
            Values::Int8(b) => Arc::new(b.finish()),
            Values::Float4(b) => Arc::new(b.finish()),
            Values::Float8(b) => Arc::new(b.finish()),
            Values::Decimal(b, _) => ArrayBuilder::finish(b),
            Values::Text(b) => Arc::new(b.finish()),
            Values::Bytes(b) => Arc::new(b.finish()),
        }
    }
}

/// Returns a number for comparisons: -0 is 0, and there is one NaN.
pub(crate) fn normal(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// A column that is collected.
struct Collected {
    column: usize,
    kind: ColumnKind,
    is_operand: bool,
    values: Values,
}

impl Collected {
    fn new(column: usize, kind: ColumnKind, is_operand: bool) -> Collected {
        let ty = if is_operand { kind.operand() } else { None };
        let values = Values::new(&ty.unwrap_or_else(|| kind.returned()));
        Collected { column, kind, is_operand, values }
    }

    /// Returns whether the value of this row can be collected.
    fn can_take(&self, row: &RowSource<'_>) -> bool {
        match (self.kind, self.is_operand, row) {
            (ColumnKind::Decimal(scale), true, _) => match row.get(self.column, self.kind) {
                Some(Datum::Numeric(value)) => decimal(value, scale).is_some(),
                Some(Datum::Null) => true,
                _ => false,
            },
            (_, _, RowSource::Whole(_)) => true,
            _ => row.get(self.column, self.kind).is_some(),
        }
    }

    fn take(&mut self, rows: &[RowSource<'_>]) {
        for row in rows {
            let value = row.get(self.column, self.kind).unwrap_or(Datum::Null);
            self.values.push(value, self.is_operand);
        }
    }
}

/// The columns that a program needs, collected from rows.
pub(crate) struct Collector {
    columns: Vec<Collected>,
    rows: usize,
}

/// The collected columns as arrays.
pub(crate) struct CollectedColumns {
    columns: Vec<(usize, bool, ArrayRef)>,
    /// The number of rows.
    pub(crate) rows: usize,
}

impl CollectedColumns {
    /// Returns the values of a column to be returned (`is_operand` is false) or to be compared.
    pub(crate) fn of(&self, column: usize, is_operand: bool) -> Option<&ArrayRef> {
        let mut found = self.columns.iter().filter(|(c, ..)| *c == column);
        found.find(|(_, operand, _)| *operand == is_operand).map(|(.., array)| array)
    }

    /// Returns the columns with the arrays that `map` makes of their arrays.
    pub(crate) fn mapped(&self, map: impl Fn(&ArrayRef) -> Result<ArrayRef>) -> Result<CollectedColumns> {
        let mapped = |(column, is_operand, array): &(usize, bool, ArrayRef)| {
            map(array).map(|array| (*column, *is_operand, array))
        };
        Ok(CollectedColumns {
            columns: self.columns.iter().map(mapped).collect::<Result<_>>()?,
            rows: self.rows,
        })
    }
}

impl Collector {
    pub(crate) fn new(program: &Program) -> Collector {
        let kind = |column: usize| program.columns[column];
        let operands = program.operands().into_iter().map(|c| Collected::new(c, kind(c), true));
        let returned = program.returned().into_iter().map(|c| Collected::new(c, kind(c), false));
        Collector { columns: operands.chain(returned).collect(), rows: 0 }
    }

    /// Returns the number of collected rows.
    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes of the collected values.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.bytes()).sum()
    }

    /// Collects rows. Returns false, and collects nothing, if a value can't be collected.
    pub(crate) fn push(&mut self, rows: &[RowSource<'_>]) -> bool {
        if !rows.iter().all(|row| self.columns.iter().all(|column| column.can_take(row))) {
            return false;
        }
        self.columns.iter_mut().for_each(|column| column.take(rows));
        self.rows += rows.len();
        true
    }

    /// Takes the collected columns out of the collector.
    pub(crate) fn take(&mut self) -> CollectedColumns {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.columns.iter_mut().map(|c| (c.column, c.is_operand, c.values.finish())).collect();
        CollectedColumns { columns, rows }
    }
}

/// Returns the layout of the rows of a program's table.
pub(crate) fn row_schema(program: &Program) -> RowSchema {
    RowSchema::new(&program.columns.iter().map(|kind| kind.stored()).collect::<Vec<_>>())
}

/// Returns the widths of the columns, as a leaf by columns has them.
pub(crate) fn widths(program: &Program) -> Vec<u8> {
    program.columns.iter().map(|kind| kind.stored().fixed_width_bytes().unwrap_or(0) as u8).collect()
}
