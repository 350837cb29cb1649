//! Computes the common aggregates for all groups of a query together: count, sum, avg, min, max, and the
//! first value.
//!
//! Invariants
//! 1. An aggregate of a group has the same result here as in `Folded`, which computes one group at a time.
//!    Both write the state of a group as the same bytes.
//! 2. A sum of numeric values is stored in two machine words while it fits. Larger sums and NaN are stored in
//!    `rare`.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use varve_engine::{Datum, Numeric, Value};
use varve_sql::general::{AggKind, Sum, Ty};

use crate::cells::{Cells, CellsBuilder};
use crate::error::wrapped;
use crate::fold::{Fold, bytes_of};
use crate::numbers::small;

/// Returns whether `Groups` can compute this aggregate.
pub fn is_grouped(fold: Fold) -> bool {
    match fold {
        Fold::First => true,
        Fold::Call { kind, distinct } => {
            !distinct
                && matches!(kind, AggKind::Count | AggKind::Sum | AggKind::Avg | AggKind::Min | AggKind::Max)
        }
        Fold::Least => false,
    }
}

/// The states of all groups.
pub struct Groups {
    fold: Fold,
    input: Ty,
    output: Ty,
    held: Ty,
    states: States,
}

/// The states, indexed by group.
#[derive(Default)]
struct States {
    /// For each group, the number of values that were added.
    counts: Vec<i64>,
    kept: Kept,
}

#[derive(Default)]
enum Kept {
    /// Nothing except the number of values.
    #[default]
    Nothing,
    /// Sums of numeric.
    Scaled(Totals),
    /// Other sums.
    Sums(Vec<Sum>),
    /// One of the values of each group, and the sum of the bytes that these values store outside of `Value`.
    Values(Vec<Value>, usize),
}

/// Sums of numeric: unscaled values and scales.
#[derive(Default)]
struct Totals {
    totals: Vec<i128>,
    scales: Vec<u16>,
    rare: BTreeMap<usize, Sum>,
}

/// Marks a group whose sum is stored in `rare`. It is stored in place of the scale.
const RARE: u16 = u16::MAX;

impl Totals {
    #[inline]
    fn add(&mut self, group: usize, value: i64, scale: u16) -> varve_sql::Result<()> {
        let (total, known) = (&mut self.totals[group], &mut self.scales[group]);
        if *known == scale
            && let Some(sum) = total.checked_add(i128::from(value))
        {
            *total = sum;
            return Ok(());
        }
        if *total == 0 && *known < scale {
            (*total, *known) = (i128::from(value), scale);
            return Ok(());
        }
        self.add_any(group, Datum::Numeric(Numeric::from_unscaled(value, scale).as_ref()))
    }

    fn add_any(&mut self, group: usize, value: Datum<'_>) -> varve_sql::Result<()> {
        let mut sum = self.rare.remove(&group).unwrap_or(Sum::Scaled(self.totals[group], self.scales[group]));
        sum.add(value)?;
        match sum {
            Sum::Scaled(total, scale) => (self.totals[group], self.scales[group]) = (total, scale),
            rare => {
                self.scales[group] = RARE;
                self.rare.insert(group, rare);
            }
        }
        Ok(())
    }

    fn taken(&mut self, emit: EmitTo) -> Totals {
        let rare = match emit {
            EmitTo::All => std::mem::take(&mut self.rare),
            EmitTo::First(n) => {
                let behind = self.rare.split_off(&n);
                let behind = behind.into_iter().map(|(group, sum)| (group - n, sum)).collect();
                std::mem::replace(&mut self.rare, behind)
            }
        };
        Totals {
            totals: emit.take_needed(&mut self.totals),
            scales: emit.take_needed(&mut self.scales),
            rare,
        }
    }
}

impl Kept {
    fn of(fold: Fold, input: Ty) -> Kept {
        match fold {
            Fold::Call { kind: AggKind::Sum | AggKind::Avg, .. } if input == Ty::Numeric => {
                Kept::Scaled(Totals::default())
            }
            Fold::Call { kind: AggKind::Sum | AggKind::Avg, .. } => Kept::Sums(Vec::new()),
            Fold::Call { kind: AggKind::Count, .. } => Kept::Nothing,
            _ => Kept::Values(Vec::new(), 0),
        }
    }

    fn resize(&mut self, groups: usize, input: Ty) {
        match self {
            Kept::Nothing => {}
            Kept::Scaled(totals) => {
                totals.totals.resize(groups, 0);
                totals.scales.resize(groups, 0);
            }
            Kept::Sums(sums) => sums.resize(groups, Sum::of(input)),
            Kept::Values(values, _) => values.resize(groups, Value::Null),
        }
    }

    fn taken(&mut self, emit: EmitTo) -> Kept {
        match self {
            Kept::Nothing => Kept::Nothing,
            Kept::Scaled(totals) => Kept::Scaled(totals.taken(emit)),
            Kept::Sums(sums) => Kept::Sums(emit.take_needed(sums)),
            Kept::Values(values, bytes) => {
                let taken = emit.take_needed(values);
                *bytes = values.iter().map(bytes_of).sum();
                Kept::Values(taken, 0)
            }
        }
    }

    /// Returns the sum of a group, if the aggregate computes one.
    fn sum(&self, group: usize) -> Option<Sum> {
        match self {
            Kept::Scaled(t) => {
                Some(t.rare.get(&group).cloned().unwrap_or(Sum::Scaled(t.totals[group], t.scales[group])))
            }
            Kept::Sums(sums) => Some(sums[group].clone()),
            Kept::Nothing | Kept::Values(..) => None,
        }
    }

    fn value(&self, group: usize) -> Value {
        match self {
            Kept::Values(values, _) => values[group].clone(),
            _ => Value::Null,
        }
    }

    fn size(&self) -> usize {
        match self {
            Kept::Nothing => 0,
            Kept::Scaled(t) => {
                t.totals.capacity() * size_of::<i128>()
                    + t.scales.capacity() * size_of::<u16>()
                    + t.rare.len() * 4 * size_of::<Sum>()
            }
            Kept::Sums(sums) => sums.capacity() * size_of::<Sum>(),
            Kept::Values(values, bytes) => values.capacity() * size_of::<Value>() + bytes,
        }
    }
}

/// Calls `f` with each row that is not NULL and passes the filter, and with the group of the row.
fn each(
    groups: &[usize],
    nulls: Option<&NullBuffer>,
    filter: Option<&BooleanArray>,
    mut f: impl FnMut(usize, usize) -> varve_sql::Result<()>,
) -> varve_sql::Result<()> {
    if nulls.is_none() && filter.is_none() {
        return groups.iter().enumerate().try_for_each(|(n, group)| f(n, *group));
    }
    for (n, group) in groups.iter().enumerate() {
        let counts = nulls.is_none_or(|nulls| nulls.is_valid(n))
            && filter.is_none_or(|filter| filter.is_valid(n) && filter.value(n));
        if counts {
            f(n, *group)?;
        }
    }
    Ok(())
}

impl Groups {
    /// Returns the states without any groups.
    pub fn new(fold: Fold, input: Ty, output: Ty, held: Ty) -> Groups {
        let states = States { counts: Vec::new(), kept: Kept::of(fold, input) };
        Groups { fold, input, output, held, states }
    }

    fn resize(&mut self, groups: usize) {
        self.states.counts.resize(groups, 0);
        self.states.kept.resize(groups, self.input);
    }

    fn taken(&mut self, emit: EmitTo) -> States {
        States { counts: emit.take_needed(&mut self.states.counts), kept: self.states.kept.taken(emit) }
    }

    fn add(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) -> varve_sql::Result<()> {
        let (fold, cells) = (self.fold, Cells::of(self.input, values));
        let States { counts, kept } = &mut self.states;
        // `First` may return a NULL. The other functions ignore NULLs.
        let nulls = if fold == Fold::First { None } else { values.nulls() };
        match kept {
            Kept::Nothing => each(groups, nulls, filter, |_, group| {
                counts[group] += 1;
                Ok(())
            }),
            Kept::Scaled(totals) => {
                let array = values.as_binary_view();
                each(groups, nulls, filter, |n, group| {
                    counts[group] += 1;
                    match small(array.views()[n]) {
                        Some((value, scale)) => totals.add(group, value, scale),
                        None => totals.add_any(group, cells.get(n)),
                    }
                })
            }
            Kept::Sums(sums) => each(groups, nulls, filter, |n, group| {
                counts[group] += 1;
                sums[group].add(cells.get(n))
            }),
            Kept::Values(values, bytes) => each(groups, nulls, filter, |n, group| {
                counts[group] += 1;
                keep(fold, counts[group] == 1, cells.get(n), &mut values[group], bytes);
                Ok(())
            }),
        }
    }

    /// Merges the states of other parts of the query into these states.
    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> varve_sql::Result<()> {
        let parts = states[0].as_primitive::<Int64Type>();
        let (cells, input, fold) = (Cells::of(self.held, &states[1]), self.input, self.fold);
        let States { counts, kept } = &mut self.states;
        for (n, group) in groups.iter().enumerate() {
            let (count, group) = (parts.value(n), *group);
            if count == 0 {
                continue;
            }
            match kept {
                Kept::Nothing => {}
                Kept::Scaled(totals) => totals.add_any(group, cells.get(n))?,
                Kept::Sums(sums) => sums[group].merge(Sum::of_state(input, cells.get(n))?)?,
                Kept::Values(values, bytes) => {
                    keep(fold, counts[group] == 0, cells.get(n), &mut values[group], bytes);
                }
            }
            counts[group] += count;
        }
        Ok(())
    }
}

/// Replaces the kept value of a group if the new value is a better result of the function. The first value of
/// a group is always kept.
fn keep(fold: Fold, is_first: bool, value: Datum<'_>, kept: &mut Value, bytes: &mut usize) {
    let better = is_first
        || match fold {
            Fold::Call { kind: AggKind::Max, .. } => value.order(&kept.as_datum()).is_ge(),
            Fold::Call { .. } => value.order(&kept.as_datum()).is_le(),
            Fold::First | Fold::Least => false,
        };
    if better {
        *bytes = bytes.saturating_sub(bytes_of(kept));
        *kept = value.to_value();
        *bytes += bytes_of(kept);
    }
}

impl States {
    fn result(&self, group: usize, fold: Fold, input: Ty) -> varve_sql::Result<Value> {
        match (fold, self.counts[group]) {
            (Fold::Call { kind: AggKind::Count, .. }, count) => Ok(Value::Int8(count)),
            (_, 0) => Ok(Value::Null),
            (Fold::Call { kind, .. }, count) => match self.kept.sum(group) {
                Some(sum) => sum.total(input, kind == AggKind::Avg, count.unsigned_abs()),
                None => Ok(self.kept.value(group)),
            },
            _ => Ok(self.kept.value(group)),
        }
    }

    /// Returns an array of the values that `result` returns for each group.
    fn array(&self, ty: Ty, result: impl Fn(usize) -> varve_sql::Result<Value>) -> Result<ArrayRef> {
        let mut cells = CellsBuilder::new(ty);
        for group in 0..self.counts.len() {
            cells.push(result(group).map_err(wrapped)?.as_datum());
        }
        Ok(cells.finish())
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.resize(total);
        self.add(&values[0], groups, filter).map_err(wrapped)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let states = self.taken(emit);
        states.array(self.output, |group| states.result(group, self.fold, self.input))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.taken(emit);
        let held = states.array(self.held, |group| match states.kept.sum(group) {
            Some(sum) => sum.state(),
            None => Ok(states.kept.value(group)),
        })?;
        let least = BinaryArray::from_iter_values(states.counts.iter().map(|_| b""));
        Ok(vec![Arc::new(Int64Array::from(states.counts)), held, Arc::new(least)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.resize(total);
        self.merge(states, groups).map_err(wrapped)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Groups::new(self.fold, self.input, self.output, self.held);
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.states.counts.capacity() * size_of::<i64>() + self.states.kept.size()
    }
}
