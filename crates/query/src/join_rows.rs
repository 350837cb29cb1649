//! Converts batches of Arrow to rows of the crate `spill`, which are bytes, and joined rows to batches.
//!
//! Invariants
//! 1. Two keys are equal in SQL if their bytes are equal. If the equality of a type differs from Arrow's, a
//!    column of this type comes as key bytes (see `cells.rs` and `translate.rs`).
//! 2. A row with NULL in its key never matches, unless NULL equals NULL in the join.
//!
//! This module does not know methods, memory or files.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{DataFusionError, JoinSide, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use varve_spill::Row;

fn made(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// Converts the columns of one input to bytes, and back.
pub struct RowCoder {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Columns of the input that a row has.
    columns: Vec<usize>,
    key_converter: RowConverter,
    row_converter: RowConverter,
    null_equals_null: bool,
}

impl RowCoder {
    /// Returns a coder for rows with these columns of the input.
    pub fn new(
        schema: &Schema,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        columns: Vec<usize>,
        null_equals_null: bool,
    ) -> Result<RowCoder> {
        let key_types = keys.iter().map(|key| key.data_type(schema)).collect::<Result<Vec<_>>>()?;
        let key_converter = RowConverter::new(key_types.into_iter().map(SortField::new).collect())?;
        let row_types = columns.iter().map(|n| schema.field(*n).data_type().clone());
        let row_converter = RowConverter::new(row_types.map(SortField::new).collect())?;
        Ok(RowCoder { keys, columns, key_converter, row_converter, null_equals_null })
    }

    /// Returns the rows of a batch as bytes.
    pub fn encode(&self, batch: &RecordBatch) -> Result<EncodedRows> {
        let rows = batch.num_rows();
        let key = |key: &Arc<dyn PhysicalExpr>| key.evaluate(batch)?.into_array(rows);
        let keys = self.keys.iter().map(key).collect::<Result<Vec<ArrayRef>>>()?;
        let columns: Vec<ArrayRef> = self.columns.iter().map(|n| batch.column(*n).clone()).collect();
        let has_null = |array: &ArrayRef| array.logical_null_count() > 0;
        let nulls = if self.null_equals_null {
            Vec::new()
        } else {
            keys.iter().filter(|a| has_null(a)).cloned().collect()
        };
        Ok(EncodedRows {
            keys: self.key_converter.convert_columns(&keys)?,
            rows: if columns.is_empty() { None } else { Some(self.row_converter.convert_columns(&columns)?) },
            nulls,
            count: rows,
        })
    }

    /// Returns the columns of some rows.
    fn decode<'r>(&self, rows: impl Iterator<Item = &'r [u8]>) -> Result<Vec<ArrayRef>> {
        if self.columns.is_empty() {
            return Ok(Vec::new());
        }
        let parser = self.row_converter.parser();
        Ok(self.row_converter.convert_rows(rows.map(|row| parser.parse(row)))?)
    }
}

/// A batch as bytes.
pub struct EncodedRows {
    keys: Rows,
    /// The rows, or `None` if they have no columns.
    rows: Option<Rows>,
    /// Columns of the key in which NULL equals nothing.
    nulls: Vec<ArrayRef>,
    count: usize,
}

impl EncodedRows {
    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of bytes of the longest row, in the temporary space.
    pub fn longest_bytes(&self) -> usize {
        (0..self.count).map(|n| self.row(n).stored_bytes()).max().unwrap_or(0)
    }

    /// Returns a row.
    pub fn row(&self, n: usize) -> Row<'_> {
        Row {
            key: self.keys.row(n).data(),
            payload: self.rows.as_ref().map_or(&[], |rows| rows.row(n).data()),
            never_matches: self.nulls.iter().any(|array| array.is_null(n)),
        }
    }
}

/// The rows of one side of the result.
#[derive(Default)]
struct SideRows {
    bytes: Vec<u8>,
    /// The ends of the rows in `bytes`.
    ends: Vec<usize>,
    /// For each row of the result, the number of this side's row. `None` stands for a row of NULLs.
    places: Vec<Option<u32>>,
    has_none: bool,
}

impl SideRows {
    fn push(&mut self, row: Option<&[u8]>) {
        let place = row.map(|row| {
            self.bytes.extend_from_slice(row);
            self.ends.push(self.bytes.len());
            self.ends.len() as u32 - 1
        });
        self.has_none |= place.is_none();
        self.places.push(place);
    }

    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    fn columns(&self, coder: &RowCoder) -> Result<Vec<ArrayRef>> {
        let columns = coder.decode(self.rows())?;
        if !self.has_none {
            return Ok(columns);
        }
        let places = UInt32Array::from(self.places.clone());
        columns.iter().map(|column| Ok(take(column, &places, None)?)).collect()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.places.clear();
        self.has_none = false;
    }
}

/// The coders of both inputs, the columns of the result, and the condition.
pub struct JoinRows {
    /// The coders of the left and the right input.
    pub coders: [RowCoder; 2],
    schema: SchemaRef,
    columns: Vec<ColumnIndex>,
    filter: Option<JoinFilter>,
}

fn side_of(side: JoinSide) -> Option<usize> {
    match side {
        JoinSide::Left => Some(0),
        JoinSide::Right => Some(1),
        JoinSide::None => None,
    }
}

fn no_column() -> DataFusionError {
    DataFusionError::Internal("a column of a join belongs to no input".into())
}

impl JoinRows {
    /// Returns the object for a result with these columns.
    pub fn new(
        coders: [RowCoder; 2],
        schema: SchemaRef,
        columns: Vec<ColumnIndex>,
        filter: Option<JoinFilter>,
    ) -> JoinRows {
        JoinRows { coders, schema, columns, filter }
    }

    /// Returns whether there is a condition in addition to the keys.
    pub fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns columns by their positions, from the decoded columns of both inputs.
    fn chosen(&self, columns: &[ColumnIndex], decoded: &[Vec<ArrayRef>; 2]) -> Result<Vec<ArrayRef>> {
        let column = |column: &ColumnIndex| {
            let side = side_of(column.side)?;
            let place = self.coders[side].columns.iter().position(|n| *n == column.index)?;
            decoded[side].get(place).cloned()
        };
        columns.iter().map(|c| column(c).ok_or_else(no_column)).collect()
    }

    /// Returns for each pair of rows whether the condition is true.
    fn passing(&self, decoded: &[Vec<ArrayRef>; 2], rows: usize) -> Result<BooleanArray> {
        let Some(filter) = &self.filter else { return Ok(BooleanArray::from(vec![true; rows])) };
        let columns = self.chosen(filter.column_indices(), decoded)?;
        let batch = made(filter.schema(), columns, rows)?;
        let passes = filter.expression().evaluate(&batch)?.into_array(rows)?;
        Ok(passes.as_boolean().clone())
    }

    /// Returns which pairs satisfy the condition, with a bit for each pair. `left` and `right` are the rows
    /// of the inputs, one for each pair.
    pub fn satisfying<'r>(
        &self,
        left: impl Iterator<Item = &'r [u8]>,
        right: impl Iterator<Item = &'r [u8]>,
        pairs: usize,
    ) -> Result<BooleanBuffer> {
        let needs = |side: JoinSide| {
            let mut columns = self.filter.iter().flat_map(|filter| filter.column_indices());
            columns.any(|column| column.side == side)
        };
        let left = if needs(JoinSide::Left) { self.coders[0].decode(left)? } else { Vec::new() };
        let right = if needs(JoinSide::Right) { self.coders[1].decode(right)? } else { Vec::new() };
        let passing = self.passing(&[left, right], pairs)?;
        Ok(match passing.nulls() {
            Some(nulls) => passing.values() & nulls.inner(),
            None => passing.values().clone(),
        })
    }
}

/// Joined rows that become a batch.
#[derive(Default)]
pub struct JoinedRows {
    sides: [SideRows; 2],
    rows: usize,
}

impl JoinedRows {
    /// Adds a row.
    pub fn push(&mut self, left: Option<&[u8]>, right: Option<&[u8]>) {
        let [for_left, for_right] = &mut self.sides;
        for_left.push(left);
        for_right.push(right);
        self.rows += 1;
    }

    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.rows
    }

    /// Returns the number of bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.sides.iter().map(|side| side.bytes.len()).sum()
    }

    /// Takes the rows out of this object, and returns them as a batch. With `is_filtered`, the batch has only
    /// the rows that satisfy the condition.
    pub fn take(&mut self, join: &JoinRows, is_filtered: bool) -> Result<RecordBatch> {
        let needs = |side: usize| {
            join.columns
                .iter()
                .chain(join.filter.iter().filter(|_| is_filtered).flat_map(|f| f.column_indices()))
                .any(|c| side_of(c.side) == Some(side))
        };
        let columns = |side: usize| match needs(side) {
            true => self.sides[side].columns(&join.coders[side]),
            false => Ok(Vec::new()),
        };
        let decoded = [columns(0)?, columns(1)?];
        let mut batch = made(&join.schema, join.chosen(&join.columns, &decoded)?, self.rows)?;
        if is_filtered && join.has_filter() {
            let passing = join.passing(&decoded, self.rows)?;
            batch = datafusion::arrow::compute::filter_record_batch(&batch, &passing)?;
        }
        self.sides.iter_mut().for_each(SideRows::clear);
        self.rows = 0;
        Ok(batch)
    }
}
