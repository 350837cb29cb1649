//! Aggregates over groups of rows, with states that can be sent and merged.
//!
//! Invariants
//! 1. Merging the states of disjoint sets of rows gives the state of all these rows.
//! 2. The memory of the groups never exceeds the limit. A further group is an error.
//!
//! The states of a group are sent as one row: the key, and for each aggregate one column, or two for an
//! average (sum and count). A sum is a decimal of 38 digits, NULL if there was no value. NaN is
//! `DECIMAL_NAN`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::error::{Result, SmartError};
use crate::program::{ARRAY_DIGITS, Aggregate, ColumnKind, DECIMAL_NAN, Output, Program};

/// The memory of a group in addition to its bytes.
const GROUP_BYTES: usize = 128;

/// A value of a key, or a least or greatest value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Null,
    Int(i128),
    /// The bits of a double.
    Float(u64),
    Bytes(Box<[u8]>),
}

impl Cell {
    fn of(array: &dyn Array, row: usize) -> Cell {
        if array.is_null(row) {
            return Cell::Null;
        }
        match array.data_type() {
            DataType::Boolean => Cell::Int(i128::from(array.as_boolean().value(row))),
            DataType::Int16 => Cell::Int(i128::from(array.as_primitive::<Int16Type>().value(row))),
            DataType::Int32 => Cell::Int(i128::from(array.as_primitive::<Int32Type>().value(row))),
            DataType::Int64 => Cell::Int(i128::from(array.as_primitive::<Int64Type>().value(row))),
            DataType::Decimal128(..) => Cell::Int(array.as_primitive::<Decimal128Type>().value(row)),
            DataType::Float32 => {
                Cell::Float(f64::from(array.as_primitive::<Float32Type>().value(row)).to_bits())
            }
            DataType::Float64 => Cell::Float(array.as_primitive::<Float64Type>().value(row).to_bits()),
            DataType::Utf8 => Cell::Bytes(array.as_string::<i32>().value(row).as_bytes().into()),
            _ => Cell::Bytes(array.as_binary::<i32>().value(row).into()),
        }
    }

    fn order(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Int(a), Cell::Int(b)) => a.cmp(b),
            (Cell::Float(a), Cell::Float(b)) => f64::from_bits(*a).total_cmp(&f64::from_bits(*b)),
            (Cell::Bytes(a), Cell::Bytes(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Cell>() + if let Cell::Bytes(bytes) = self { bytes.len() } else { 0 }
    }

    const fn int(&self) -> Option<i128> {
        if let Cell::Int(value) = self { Some(*value) } else { None }
    }

    const fn float(&self) -> Option<f64> {
        if let Cell::Float(bits) = self { Some(f64::from_bits(*bits)) } else { None }
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        if let Cell::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// Returns an array of this type with these values.
fn array_of(ty: &DataType, cells: &[&Cell]) -> Result<ArrayRef> {
    let ints = || cells.iter().map(|cell| cell.int());
    let floats = || cells.iter().map(|cell| cell.float());
    Ok(match ty {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(ints().map(|v| v.map(|v| v != 0)))),
        DataType::Int16 => Arc::new(Int16Array::from_iter(ints().map(|v| v.map(|v| v as i16)))),
        DataType::Int32 => Arc::new(Int32Array::from_iter(ints().map(|v| v.map(|v| v as i32)))),
        DataType::Int64 => Arc::new(Int64Array::from_iter(ints().map(|v| v.map(|v| v as i64)))),
        DataType::Decimal128(digits, scale) => {
            let values = Decimal128Array::from_iter(ints()).with_precision_and_scale(*digits, *scale)?;
            values.validate_decimal_precision(*digits)?;
            Arc::new(values)
        }
        DataType::Float32 => Arc::new(Float32Array::from_iter(floats().map(|v| v.map(|v| v as f32)))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(floats())),
        DataType::Utf8 => {
            let texts = cells.iter().map(|cell| std::str::from_utf8(cell.as_bytes()?).ok());
            Arc::new(StringArray::from_iter(texts))
        }
        _ => Arc::new(BinaryArray::from_iter(cells.iter().map(|cell| cell.as_bytes()))),
    })
}

/// The state of one aggregate of one group.
#[derive(Clone, Debug)]
enum State {
    Count(i64),
    Sum(Option<i128>),
    Average(Option<i128>, i64),
    Least(Cell),
    Greatest(Cell),
}

fn added(sum: Option<i128>, value: Option<i128>) -> Result<Option<i128>> {
    let (Some(sum), Some(value)) = (sum, value) else { return Ok(sum.or(value)) };
    if sum == DECIMAL_NAN || value == DECIMAL_NAN {
        return Ok(Some(DECIMAL_NAN));
    }
    let total = sum.checked_add(value).filter(|total| total.unsigned_abs() < DECIMAL_NAN.unsigned_abs());
    total.map(Some).ok_or_else(|| SmartError::Program(format!("a sum has more than {ARRAY_DIGITS} digits")))
}

fn counted(count: i64, more: i64) -> Result<i64> {
    count.checked_add(more).ok_or_else(|| SmartError::Malformed("a count has more than 63 bits".into()))
}

/// Returns whether `new` replaces `old` as the least (or greatest, for `Greater`) value.
fn replaces(old: &Cell, new: &Cell, wanted: Ordering) -> bool {
    *new != Cell::Null && (*old == Cell::Null || new.order(old) == wanted)
}

impl State {
    fn new(aggregate: Aggregate) -> State {
        match aggregate {
            Aggregate::CountRows | Aggregate::Count(_) => State::Count(0),
            Aggregate::Sum(_) => State::Sum(None),
            Aggregate::Average(_) => State::Average(None, 0),
            Aggregate::Min(_) => State::Least(Cell::Null),
            Aggregate::Max(_) => State::Greatest(Cell::Null),
        }
    }

    /// Returns the memory for bytes of a least or greatest value.
    fn bytes(&self) -> usize {
        match self {
            State::Least(Cell::Bytes(bytes)) | State::Greatest(Cell::Bytes(bytes)) => bytes.len(),
            _ => 0,
        }
    }

    /// Takes the value of a row.
    fn add(&mut self, array: Option<&ArrayRef>, row: usize) -> Result<()> {
        let value = || array.map_or(Cell::Null, |array| Cell::of(array, row));
        match self {
            State::Count(count) => {
                *count = counted(*count, i64::from(array.is_none_or(|array| array.is_valid(row))))?;
            }
            State::Sum(sum) => *sum = added(*sum, value().int())?,
            State::Average(sum, count) => {
                let value = value().int();
                *sum = added(*sum, value)?;
                *count = counted(*count, i64::from(value.is_some()))?;
            }
            State::Least(_) | State::Greatest(_) => self.replace(value()),
        }
        Ok(())
    }

    fn replace(&mut self, new: Cell) {
        match self {
            State::Least(old) if replaces(old, &new, Ordering::Less) => *old = new,
            State::Greatest(old) if replaces(old, &new, Ordering::Greater) => *old = new,
            _ => {}
        }
    }

    /// Merges the state in a row of sent states, whose columns begin at `at`. Returns where the columns of
    /// the next state begin.
    fn merge(&mut self, states: &RecordBatch, at: usize, row: usize) -> Result<usize> {
        let cell = |at: usize| Cell::of(states.column(at), row);
        let number = |at: usize| {
            let count = cell(at).int().and_then(|count| i64::try_from(count).ok());
            let refused = || SmartError::Malformed("a count is negative or missing".into());
            count.filter(|count| *count >= 0).ok_or_else(refused)
        };
        match self {
            State::Count(count) => *count = counted(*count, number(at)?)?,
            State::Sum(sum) => *sum = added(*sum, cell(at).int())?,
            State::Average(sum, count) => {
                *sum = added(*sum, cell(at).int())?;
                *count = counted(*count, number(at + 1)?)?;
                return Ok(at + 2);
            }
            State::Least(_) | State::Greatest(_) => self.replace(cell(at)),
        }
        Ok(at + 1)
    }

    /// Returns the cells that are sent.
    fn cells(&self) -> Vec<Cell> {
        let sum = |sum: &Option<i128>| sum.map_or(Cell::Null, Cell::Int);
        match self {
            State::Count(count) => vec![Cell::Int(i128::from(*count))],
            State::Sum(total) => vec![sum(total)],
            State::Average(total, count) => vec![sum(total), Cell::Int(i128::from(*count))],
            State::Least(cell) | State::Greatest(cell) => vec![cell.clone()],
        }
    }
}

/// Returns the columns of sent states.
pub(crate) fn state_schema(program: &Program) -> SchemaRef {
    let Output::Groups { keys, aggregates } = &program.output else { return Arc::new(Schema::empty()) };
    let operand = |column: usize| {
        let kind = program.columns[column];
        kind.operand().unwrap_or_else(|| kind.returned())
    };
    let sum = |column: usize| match program.columns[column] {
        ColumnKind::Decimal(scale) => DataType::Decimal128(ARRAY_DIGITS, scale as i8),
        _ => DataType::Decimal128(ARRAY_DIGITS, 0),
    };
    let mut types: Vec<DataType> = keys.iter().map(|column| operand(*column)).collect();
    for aggregate in aggregates {
        match *aggregate {
            Aggregate::CountRows | Aggregate::Count(_) => types.push(DataType::Int64),
            Aggregate::Sum(column) => types.push(sum(column)),
            Aggregate::Average(column) => types.extend([sum(column), DataType::Int64]),
            Aggregate::Min(column) | Aggregate::Max(column) => types.push(operand(column)),
        }
    }
    let field = |(n, ty): (usize, DataType)| Field::new(format!("{n}"), ty, true);
    Arc::new(Schema::new(types.into_iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// The groups of a program.
pub(crate) struct Groups {
    keys: Vec<usize>,
    aggregates: Vec<Aggregate>,
    schema: SchemaRef,
    groups: HashMap<Vec<Cell>, Vec<State>>,
    bytes: usize,
    limit_bytes: usize,
}

impl Groups {
    /// Returns the groups of a program with aggregates, or `None` for other programs.
    pub(crate) fn of(program: &Program, limit_bytes: usize) -> Option<Groups> {
        let Output::Groups { keys, aggregates } = &program.output else { return None };
        let mut groups = Groups {
            keys: keys.clone(),
            aggregates: aggregates.clone(),
            schema: state_schema(program),
            groups: HashMap::new(),
            bytes: 0,
            limit_bytes,
        };
        if keys.is_empty() {
            groups.groups.insert(Vec::new(), groups.new_states());
        }
        Some(groups)
    }

    fn new_states(&self) -> Vec<State> {
        self.aggregates.iter().map(|aggregate| State::new(*aggregate)).collect()
    }

    /// Counts memory that was freed and taken.
    fn count_bytes(&mut self, freed: usize, taken: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_sub(freed).saturating_add(taken);
        if self.bytes <= self.limit_bytes {
            return Ok(());
        }
        let what = format!("{} groups take {} bytes", self.groups.len(), self.bytes);
        Err(SmartError::Limit { what, limit: self.limit_bytes })
    }

    fn states(&mut self, key: Vec<Cell>) -> Result<&mut Vec<State>> {
        if !self.groups.contains_key(&key) {
            let states = size_of::<State>() * self.aggregates.len();
            let key_bytes = key.iter().map(Cell::bytes).sum::<usize>();
            self.count_bytes(0, GROUP_BYTES + states + key_bytes)?;
            let states = self.new_states();
            self.groups.insert(key.clone(), states);
        }
        self.groups.get_mut(&key).ok_or_else(|| SmartError::Program("a group is lost".into()))
    }

    /// Takes rows. `of` returns the values of a column to be compared (true) or tested for NULL.
    pub(crate) fn add<'a>(
        &mut self,
        rows: usize,
        of: impl Fn(usize, bool) -> Option<&'a ArrayRef>,
    ) -> Result<()> {
        let keys: Vec<_> = self.keys.iter().map(|column| of(*column, true)).collect();
        let values: Vec<_> = self
            .aggregates
            .iter()
            .map(|aggregate| match *aggregate {
                Aggregate::CountRows => None,
                Aggregate::Count(column) => of(column, false),
                Aggregate::Sum(c) | Aggregate::Min(c) | Aggregate::Max(c) | Aggregate::Average(c) => {
                    of(c, true)
                }
            })
            .collect();
        for row in 0..rows {
            let cell = |array: &Option<&ArrayRef>| array.map_or(Cell::Null, |array| Cell::of(array, row));
            let states = self.states(keys.iter().map(cell).collect())?;
            let (mut freed, mut taken) = (0, 0);
            for (state, array) in states.iter_mut().zip(&values) {
                freed += state.bytes();
                state.add(*array, row)?;
                taken += state.bytes();
            }
            self.count_bytes(freed, taken)?;
        }
        Ok(())
    }

    /// Merges the states that the other side has sent.
    pub(crate) fn merge(&mut self, sent: &RecordBatch) -> Result<()> {
        if sent.schema().fields() != self.schema.fields() {
            return Err(SmartError::Malformed("states of another program".into()));
        }
        for row in 0..sent.num_rows() {
            let keys = self.keys.len();
            let key = (0..keys).map(|at| Cell::of(sent.column(at), row)).collect();
            let mut at = keys;
            let (mut freed, mut taken) = (0, 0);
            for state in self.states(key)? {
                freed += state.bytes();
                at = state.merge(sent, at, row)?;
                taken += state.bytes();
            }
            self.count_bytes(freed, taken)?;
        }
        Ok(())
    }

    /// Returns the states of all groups, to be sent.
    pub(crate) fn finish(self) -> Result<RecordBatch> {
        let rows: Vec<Vec<Cell>> = self
            .groups
            .into_iter()
            .map(|(mut row, states)| {
                row.extend(states.iter().flat_map(State::cells));
                row
            })
            .collect();
        let column = |(at, field): (usize, &Arc<Field>)| {
            let cells: Vec<&Cell> = rows.iter().map(|row| &row[at]).collect();
            array_of(field.data_type(), &cells)
        };
        let columns = self.schema.fields().iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch: std::result::Result<_, ArrowError> =
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        Ok(batch?)
    }
}
