//! Makes window functions available to the library DataFusion. DataFusion sorts the rows and divides them
//! into partitions. The code here computes the results.
//!
//! Invariants
//! 1. A function gets a whole partition at once, in the order of the window. Two rows are peers if the bytes
//!    of their order keys are equal.
//! 2. Aggregates over a window use the same code as aggregates of grouped queries (`aggregate`).

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use varve_engine::{Datum, Value};
use varve_sql::general::{Around, Exclude, FrameUnits, SqlError, SqlState, Ty, WinFunction};
use varve_sql::planted;

use crate::aggregate::Folded;
use crate::budget::{Account, datum_bytes};
use crate::cells::{Cells, CellsBuilder, data_type};
use crate::error::wrapped;
use crate::identity::{Identity, compared_by_identity};

/// The start or the end of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The start or the end of the partition.
    Unbounded,
    /// The current row, or its peers.
    Current,
    /// This number of rows or groups after the current row, or before it if the number is negative.
    Count(i64),
    /// A number of rows or groups after the current row, or before it if the flag is set. The number is the
    /// value of this argument in the first row of the partition.
    Argument(usize, bool),
    /// The rows up to the order key in this argument. If the distance must still be checked, it is in the
    /// second argument.
    Key(usize, Option<usize>),
}

impl End {
    /// Returns the bound for a partition with these arguments. `name` is used in errors.
    fn of(self, columns: &[Cells<'_>], name: &str) -> varve_sql::Result<End> {
        let first = |argument: usize| columns.get(argument).map_or(Datum::Null, |c| c.get(0)).to_value();
        match self {
            End::Argument(argument, before) => {
                let count = count(&first(argument), name)?;
                Ok(End::Count(if before { -count } else { count }))
            }
            End::Key(_, Some(distance)) => check_distance(&first(distance), name).map(|()| self),
            other => Ok(other),
        }
    }
}

/// Returns the number of rows or groups between the current row and a bound of the frame.
pub fn count(value: &Value, name: &str) -> varve_sql::Result<i64> {
    match value {
        Value::Int8(n) if *n >= 0 => Ok(*n),
        Value::Null => Err(null_offset(name)),
        _ => {
            let message = format!("frame {name} offset must not be negative");
            Err(SqlError::new(SqlState("22013"), message))
        }
    }
}

/// Checks that a distance is not negative. Returns the error 22013 if it is.
pub fn check_distance(value: &Value, name: &str) -> varve_sql::Result<()> {
    let negative = match value {
        Value::Null => return Err(null_offset(name)),
        Value::Int2(n) => *n < 0,
        Value::Int4(n) => *n < 0,
        Value::Int8(n) => *n < 0,
        Value::Float4(f) => *f < 0.0 || f.is_nan(),
        Value::Float8(f) => *f < 0.0 || f.is_nan(),
        Value::Numeric(n) => n.as_ref().is_nan() || n.as_ref().to_string().starts_with('-'),
        Value::Interval(i) => i.order(varve_engine::Interval::default()).is_lt(),
        _ => false,
    };
    match negative {
        true => {
            let message = "invalid preceding or following size in window function";
            Err(SqlError::new(SqlState("22013"), message))
        }
        false => Ok(()),
    }
}

fn null_offset(name: &str) -> SqlError {
    SqlError::new(SqlState::NULL_NOT_ALLOWED, format!("frame {name} offset must not be null"))
}

/// A call of a window function.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// The function.
    pub function: WinFunction,
    /// The unit in which the frame counts.
    pub units: FrameUnits,
    /// The start of the frame.
    pub start: End,
    /// The end of the frame.
    pub end: End,
    /// The rows that the frame leaves out.
    pub exclude: Exclude,
    /// The types of all arguments. The first argument is the order key. The values for the bounds of the
    /// frame and the condition may follow. The arguments of the call in the statement come last.
    pub types: Vec<Ty>,
    /// The number of the argument that is the condition of FILTER.
    pub filter: Option<usize>,
    /// The number of the first argument of the call in the statement.
    pub first: usize,
    /// The type of the result.
    pub output: Ty,
}

/// A call of a window function, as a function of DataFusion.
#[derive(Debug)]
struct Windowed {
    id: Identity,
    call: WindowCall,
    around: Arc<Around>,
    signature: Signature,
}

impl WindowCall {
    /// Returns the function for DataFusion.
    pub fn into_udf(self, around: Arc<Around>) -> WindowUDF {
        let arguments = self.types.iter().map(|t| data_type(*t)).collect();
        let signature = Signature::exact(arguments, Volatility::Immutable);
        WindowUDF::new_from_impl(Windowed { id: Identity::next(), call: self, around, signature })
    }
}

compared_by_identity!(Windowed);

impl WindowUDFImpl for Windowed {
    fn name(&self) -> &str {
        "window"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator { call: self.call.clone(), around: self.around.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), data_type(self.call.output), true)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }
}

#[derive(Debug)]
struct Evaluator {
    call: WindowCall,
    around: Arc<Around>,
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let partition = Partition::new(&self.call, &self.around, values, rows).map_err(wrapped)?;
        let mut out = CellsBuilder::new(self.call.output);
        partition.compute(&mut out).map_err(wrapped)?;
        Ok(out.finish())
    }
}

/// The rows of one partition.
struct Partition<'a> {
    call: &'a WindowCall,
    around: &'a Around,
    start: End,
    end: End,
    rows: usize,
    keys: &'a BinaryViewArray,
    columns: Vec<Cells<'a>>,
    arrays: &'a [ArrayRef],
    /// The number of the peer group of each row.
    group: Vec<usize>,
    /// The first row of each peer group, followed by the number of rows.
    begins: Vec<usize>,
}

impl<'a> Partition<'a> {
    fn new(
        call: &'a WindowCall,
        around: &'a Around,
        arrays: &'a [ArrayRef],
        rows: usize,
    ) -> varve_sql::Result<Partition<'a>> {
        let columns: Vec<Cells<'a>> = call.types.iter().zip(arrays).map(|(t, a)| Cells::of(*t, a)).collect();
        let (start, end) = (call.start.of(&columns, "starting")?, call.end.of(&columns, "ending")?);
        let keys = arrays[0].as_binary_view();
        let (mut group, mut begins) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            if row == 0 || keys.value(row) != keys.value(row - 1) {
                begins.push(row);
            }
            group.push(begins.len() - 1);
        }
        begins.push(rows);
        Ok(Partition { call, around, start, end, rows, keys, columns, arrays, group, begins })
    }

    /// Returns argument `n` of the call in the statement, for one row.
    fn argument(&self, n: usize, row: usize) -> Datum<'_> {
        self.columns.get(self.call.first + n).map_or(Datum::Null, |c| c.get(row))
    }

    fn has_argument(&self, n: usize) -> bool {
        self.columns.len() > self.call.first + n
    }

    /// Returns the rows of the row's peer group.
    fn equals(&self, row: usize) -> Range<usize> {
        let group = self.group[row];
        self.begins[group]..self.begins[group + 1]
    }

    fn compute(&self, out: &mut CellsBuilder) -> varve_sql::Result<()> {
        if let WinFunction::Aggregate(_) = self.call.function {
            return self.aggregated(out);
        }
        if self.call.function == WinFunction::Ntile {
            return self.ntile(out);
        }
        for row in 0..self.rows {
            out.push(self.value(row)?);
        }
        Ok(())
    }

    fn value(&self, row: usize) -> varve_sql::Result<Datum<'_>> {
        let rank = self.equals(row).start;
        Ok(match self.call.function {
            WinFunction::RowNumber => whole(row + 1),
            WinFunction::Rank => whole(rank + 1),
            WinFunction::DenseRank => whole(self.group[row] + 1),
            WinFunction::PercentRank if self.rows == 1 => Datum::Float8(0.0),
            WinFunction::PercentRank => Datum::Float8(rank as f64 / (self.rows - 1) as f64),
            WinFunction::CumeDist => Datum::Float8(self.equals(row).end as f64 / self.rows as f64),
            WinFunction::Lag => self.beside(row, -1),
            WinFunction::Lead => self.beside(row, 1),
            WinFunction::FirstValue => {
                self.within(row).into_iter().flatten().next().map_or(Datum::Null, |at| self.argument(0, at))
            }
            WinFunction::LastValue => {
                let last = self.within(row).into_iter().rev().find_map(|mut part| part.next_back());
                last.map_or(Datum::Null, |at| self.argument(0, at))
            }
            WinFunction::NthValue => self.nth(row)?,
            WinFunction::Ntile | WinFunction::Aggregate(_) => Datum::Null,
        })
    }

    /// Computes lag and lead: the value of a row that is some rows away, or the default if there is no such
    /// row.
    fn beside(&self, row: usize, direction: i64) -> Datum<'_> {
        let offset = match self.argument(1, row) {
            _ if !self.has_argument(1) => 1,
            Datum::Int4(n) => i64::from(n),
            _ => return Datum::Null,
        };
        match usize::try_from(row as i64 + direction * offset) {
            Ok(at) if at < self.rows => self.argument(0, at),
            _ => self.argument(2, row),
        }
    }

    fn nth(&self, row: usize) -> varve_sql::Result<Datum<'_>> {
        let Datum::Int4(n) = self.argument(1, row) else { return Ok(Datum::Null) };
        if n <= 0 {
            let message = "argument of nth_value must be greater than zero";
            return Err(SqlError::new(SqlState("22016"), message));
        }
        let mut before = n as usize - 1;
        for part in self.within(row) {
            if before < part.len() {
                return Ok(self.argument(0, part.start + before));
            }
            before -= part.len();
        }
        Ok(Datum::Null)
    }

    fn ntile(&self, out: &mut CellsBuilder) -> varve_sql::Result<()> {
        // As in PostgreSQL, the first number that is not NULL is used for the rest of the partition. The
        // buckets begin at its row. The result for earlier rows is NULL.
        let number = |row: usize| match self.argument(0, row) {
            Datum::Int4(n) => Some((row, n)),
            _ => None,
        };
        let found = (0..self.rows).find_map(number);
        let (first, count) = found.unwrap_or((self.rows, 1));
        (0..first).for_each(|_| out.push(Datum::Null));
        if count <= 0 {
            let message = "argument of ntile must be greater than zero";
            return Err(SqlError::new(SqlState("22014"), message));
        }
        let count = count as usize;
        let (each, larger) = (self.rows / count, self.rows % count);
        for row in 0..self.rows - first {
            let in_larger = larger * (each + 1);
            let bucket =
                if row < in_larger { row / (each + 1) } else { larger + (row - in_larger) / each.max(1) };
            out.push(Datum::Int4(bucket as i32 + 1));
        }
        Ok(())
    }

    /// Computes an aggregate over the frame of each row. If the frame has only grown at its end since the
    /// previous row, only the new rows are added.
    fn aggregated(&self, out: &mut CellsBuilder) -> varve_sql::Result<()> {
        let WinFunction::Aggregate(kind) = self.call.function else { return Ok(()) };
        let input = self.call.types.get(self.call.first).copied().unwrap_or(Ty::Int8);
        let fresh = || Folded::of(kind, input, self.call.output);
        if self.call.exclude != Exclude::Nothing {
            for row in 0..self.rows {
                self.around.check_cancel()?;
                let mut folded = fresh();
                for at in self.within(row).into_iter().flatten() {
                    self.take(&mut folded, at)?;
                }
                out.push(folded.result()?.as_datum());
            }
            return Ok(());
        }
        let (mut folded, mut taken, mut memory) = (fresh(), 0..0, Account::default());
        let mut result = folded.result()?;
        for row in 0..self.rows {
            // If the start of the frame moves, each row reads its whole frame. So each row checks for a
            // cancel request.
            self.around.check_cancel()?;
            let frame = self.frame(row);
            if frame.start != taken.start || frame.end < taken.end {
                (folded, taken) = (fresh(), frame.start..frame.start);
                result = folded.result()?;
            }
            if frame.end > taken.end {
                for at in taken.end..frame.end {
                    self.take(&mut folded, at)?;
                }
                taken.end = frame.end;
                result = folded.result()?;
            }
            memory.grow(datum_bytes(&result.as_datum()))?;
            out.push(result.as_datum());
        }
        Ok(())
    }

    fn take(&self, folded: &mut Folded, row: usize) -> varve_sql::Result<()> {
        if let Some(filter) = self.call.filter
            && !matches!(self.columns[filter].get(row), Datum::Bool(true))
        {
            return Ok(());
        }
        if let WinFunction::Aggregate(kind) = self.call.function
            && kind.collects()
        {
            return folded.collect(self.argument(0, row), self.argument(1, row), &[]);
        }
        if let WinFunction::Aggregate(kind) = self.call.function
            && kind.is_of_pairs()
        {
            return folded.add_pair(self.argument(0, row), self.argument(1, row));
        }
        folded.add(if self.has_argument(0) { self.argument(0, row) } else { Datum::Int8(1) })
    }

    /// Returns the rows of a row's frame. It is empty if the end is before the start.
    fn frame(&self, row: usize) -> Range<usize> {
        let start = self.start(row).min(self.rows);
        let end = self.end(row).min(self.rows);
        start..end.max(start)
    }

    /// Returns the rows of a row's frame without those that EXCLUDE leaves out. They are three ranges in
    /// ascending order, some of which may be empty.
    fn within(&self, row: usize) -> [Range<usize>; 3] {
        let frame = self.frame(row);
        let nothing = frame.end..frame.end;
        let (out, kept) = match self.call.exclude {
            Exclude::Nothing => return [frame, nothing.clone(), nothing],
            Exclude::Row => (row..row + 1, nothing),
            Exclude::Group => (self.equals(row), nothing),
            Exclude::Ties => (self.equals(row), row..row + 1),
        };
        let cut = |part: Range<usize>| {
            let start = part.start.clamp(frame.start, frame.end);
            start..part.end.clamp(start, frame.end)
        };
        [cut(0..out.start), cut(kept), cut(out.end..self.rows)]
    }

    fn start(&self, row: usize) -> usize {
        match (self.start, self.call.units) {
            (End::Unbounded | End::Argument(..), _) => 0,
            (End::Current, FrameUnits::Rows) => row,
            (End::Current, _) => self.equals(row).start,
            (End::Count(n), FrameUnits::Rows) => shifted(row, n).unwrap_or(0),
            (End::Count(n), _) => match shifted(self.group[row], n) {
                Some(group) => self.begins.get(group).copied().unwrap_or(self.rows),
                None => 0,
            },
            (End::Key(argument, _), _) => {
                let bound = self.arrays[argument].as_binary_view().value(row);
                self.place(|key| key < bound)
            }
        }
    }

    fn end(&self, row: usize) -> usize {
        match (self.end, self.call.units) {
            (End::Unbounded | End::Argument(..), _) => self.rows,
            (End::Current, FrameUnits::Rows) => row + 1,
            (End::Current, _) if planted("query: a frame ends before the row's equals") => row + 1,
            (End::Current, _) => self.equals(row).end,
            (End::Count(n), FrameUnits::Rows) => shifted(row, n).map_or(0, |at| at.saturating_add(1)),
            (End::Count(n), _) => match shifted(self.group[row], n) {
                Some(group) => self.begins.get(group.saturating_add(1)).copied().unwrap_or(self.rows),
                None => 0,
            },
            (End::Key(argument, _), _) => {
                let bound = self.arrays[argument].as_binary_view().value(row);
                self.place(|key| key <= bound)
            }
        }
    }

    /// Returns the first row for whose key `before` is false.
    fn place(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.keys.value(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

fn whole(n: usize) -> Datum<'static> {
    Datum::Int8(n as i64)
}

/// Returns `at + n`, or `None` if the result is negative.
fn shifted(at: usize, n: i64) -> Option<usize> {
    usize::try_from((at as i64).saturating_add(n)).ok()
}
