//! Evaluates a program on rows. Device and host use the same code.
//!
//! Invariants
//! 1. Rows are collected until there are enough rows or bytes for a batch. Then Arrow's functions check the
//!    condition for all of them.
//! 2. NULL counts as Arrow's `kleene` functions count it, which is SQL's way.

use std::sync::Arc;

use arrow_arith::boolean::{and_kleene, is_null, not, or_kleene};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Datum, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, RecordBatchOptions, Scalar, StringArray,
};
use arrow_ord::cmp;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::filter::filter;
use arrow_string::like::starts_with;

use crate::aggregate::{Groups, state_schema};
use crate::decode::{CollectedColumns, Collector, RowSource, normal};
use crate::error::{Result, SmartError};
use crate::program::{ColumnKind, Comparison, Condition, Constant, Output, Program};

/// The number of rows that are collected before they are evaluated.
const BATCH_ROWS: usize = 8192;
/// The bytes of values that are collected before they are evaluated, even if there are fewer rows.
pub(crate) const BATCH_BYTES: usize = 2 << 20;

/// A program at work.
pub struct Evaluator {
    program: Program,
    collector: Collector,
    groups: Option<Groups>,
    schema: SchemaRef,
}

/// Returns the columns of a program's results: the returned columns, or the states of groups.
fn result_schema(program: &Program) -> SchemaRef {
    let Output::Columns(columns) = &program.output else { return state_schema(program) };
    let field =
        |(n, column): (usize, &usize)| Field::new(format!("{n}"), program.columns[*column].returned(), true);
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}

impl Evaluator {
    /// Begins a program. Its groups may take `limit_bytes` of memory.
    pub fn new(program: &Program, limit_bytes: usize) -> Result<Evaluator> {
        program.check()?;
        Ok(Evaluator {
            collector: Collector::new(program),
            groups: Groups::of(program, limit_bytes),
            schema: result_schema(program),
            program: program.clone(),
        })
    }

    /// Returns the columns of the results.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Takes all of these rows. Returns false, and takes none, if a value can't be compared.
    pub fn push(&mut self, rows: &[RowSource<'_>]) -> bool {
        self.collector.push(rows)
    }

    /// Returns whether enough rows are collected for a batch.
    pub fn is_full(&self) -> bool {
        self.collector.rows() >= BATCH_ROWS || self.has_many_bytes()
    }

    /// Returns whether the collected rows have the bytes of a batch.
    pub(crate) fn has_many_bytes(&self) -> bool {
        self.collector.bytes() >= BATCH_BYTES
    }

    /// Evaluates the collected rows. Returns the kept rows, if the program returns rows and any was kept.
    pub fn evaluate(&mut self) -> Result<Option<RecordBatch>> {
        if self.collector.rows() == 0 {
            return Ok(None);
        }
        let columns = self.collector.take();
        let kept = match &self.program.condition {
            None => None,
            Some(condition) => Some(holds(&self.program, condition, &columns)?),
        };
        let count = kept.as_ref().map_or(columns.rows, BooleanArray::true_count);
        if count == 0 {
            return Ok(None);
        }
        let kept = kept.filter(|_| count < columns.rows);
        let select = |array: &ArrayRef| match &kept {
            Some(kept) => filter(array, kept),
            None => Ok(Arc::clone(array)),
        };
        if let Some(groups) = &mut self.groups {
            let selected = columns.mapped(|array| Ok(select(array)?))?;
            groups.add(count, |column, is_operand| selected.of(column, is_operand))?;
            return Ok(None);
        }
        let Output::Columns(returned) = &self.program.output else { return Ok(None) };
        let arrays = returned
            .iter()
            .map(|column| Ok(select(needed(&columns, *column, false)?)?))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?))
    }

    /// Takes states of groups that the other side has sent.
    pub fn merge(&mut self, states: &RecordBatch) -> Result<()> {
        match &mut self.groups {
            Some(groups) => groups.merge(states),
            None => Err(SmartError::Malformed("states for a program without groups".into())),
        }
    }

    /// Ends the program. Returns the states of its groups, or `None` if it returns rows.
    pub fn finish(mut self) -> Result<Option<RecordBatch>> {
        self.evaluate()?;
        self.groups.take().map(Groups::finish).transpose()
    }
}

fn needed(columns: &CollectedColumns, column: usize, is_operand: bool) -> Result<&ArrayRef> {
    let missing = || SmartError::Program(format!("column {column} was not collected"));
    columns.of(column, is_operand).ok_or_else(missing)
}

/// Returns for each row whether the condition is true, false or NULL.
fn holds(program: &Program, condition: &Condition, columns: &CollectedColumns) -> Result<BooleanArray> {
    Ok(match condition {
        Condition::And(parts) => {
            let mut all = BooleanArray::from(vec![true; columns.rows]);
            for part in parts {
                all = and_kleene(&all, &holds(program, part, columns)?)?;
            }
            all
        }
        Condition::Or(parts) => {
            let mut any = BooleanArray::from(vec![false; columns.rows]);
            for part in parts {
                any = or_kleene(&any, &holds(program, part, columns)?)?;
            }
            any
        }
        Condition::Not(inner) => not(&holds(program, inner, columns)?)?,
        Condition::IsNull(column) => is_null(needed(columns, *column, false)?)?,
        Condition::Compare(column, comparison, constant) => {
            let values = needed(columns, *column, true)?;
            compare(values, *comparison, program.kind(*column)?, constant)?
        }
        Condition::Between(column, low, high) => {
            let (values, kind) = (needed(columns, *column, true)?, program.kind(*column)?);
            let above = compare(values, Comparison::GreaterOrEqual, kind, low)?;
            and_kleene(&above, &compare(values, Comparison::LessOrEqual, kind, high)?)?
        }
        Condition::Prefix(column, prefix) => {
            let prefix = StringArray::from(vec![prefix.as_str()]);
            starts_with(needed(columns, *column, true)?, &Scalar::new(prefix))?
        }
    })
}

fn compare(
    values: &ArrayRef,
    comparison: Comparison,
    kind: ColumnKind,
    constant: &Constant,
) -> Result<BooleanArray> {
    let constant = scalar(kind, constant)?;
    let constant: &dyn Datum = &*constant;
    Ok(match comparison {
        Comparison::Equal => cmp::eq(values, constant),
        Comparison::NotEqual => cmp::neq(values, constant),
        Comparison::Less => cmp::lt(values, constant),
        Comparison::LessOrEqual => cmp::lt_eq(values, constant),
        Comparison::Greater => cmp::gt(values, constant),
        Comparison::GreaterOrEqual => cmp::gt_eq(values, constant),
    }?)
}

/// Returns a constant as a value of its column's array.
fn scalar(kind: ColumnKind, constant: &Constant) -> Result<Box<dyn Datum>> {
    Ok(match (kind, constant) {
        (_, Constant::Bool(value)) => Box::new(Scalar::new(BooleanArray::from(vec![*value]))),
        (ColumnKind::Int2, Constant::Int(value)) => {
            Box::new(Scalar::new(Int16Array::from(vec![*value as i16])))
        }
        (ColumnKind::Int4, Constant::Int(value)) => {
            Box::new(Scalar::new(Int32Array::from(vec![*value as i32])))
        }
        (_, Constant::Int(value)) => Box::new(Scalar::new(Int64Array::from(vec![*value]))),
        (ColumnKind::Float4, Constant::Float(bits)) => {
            Box::new(Scalar::new(Float32Array::from(vec![normal(f64::from_bits(*bits)) as f32])))
        }
        (_, Constant::Float(bits)) => {
            Box::new(Scalar::new(Float64Array::from(vec![normal(f64::from_bits(*bits))])))
        }
        (_, Constant::Decimal(value)) => {
            let values = Decimal128Array::from(vec![i128::from(*value)]);
            let ty = kind.operand();
            match ty {
                Some(DataType::Decimal128(digits, scale)) => {
                    Box::new(Scalar::new(values.with_precision_and_scale(digits, scale)?))
                }
                _ => return Err(SmartError::Program(format!("{kind:?} is compared with a decimal"))),
            }
        }
        (_, Constant::Text(text)) => Box::new(Scalar::new(StringArray::from(vec![text.as_str()]))),
        (_, Constant::Bytes(bytes)) => Box::new(Scalar::new(BinaryArray::from(vec![bytes.as_slice()]))),
    })
}
