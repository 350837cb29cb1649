//! Makes the aggregates of `varve-sql` available to the library DataFusion, as its aggregate functions.
//!
//! Invariants
//! 1. The state of a group can be written as bytes, and two states can be merged. So DataFusion can spill
//!    groups to files and compute them in parts.
//! 2. DataFusion does not know about DISTINCT. Instead, the state of a group stores the values that it has
//!    already counted. A merge of two states adds the values that only one of them has.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};
use varve_engine::{Datum, Value};
use varve_sql::general::{AggKind, Moment, Moments, Sum, Ty, bits, push_key};

use crate::budget::Account;
use crate::cells::{Cells, CellsBuilder, data_type, is_native};
use crate::collected::{self, Collected};
use crate::error::wrapped;
use crate::fold::Fold;
use crate::groups::{Groups, is_grouped};
use crate::numbers::{Numbers, Scale};

/// What an aggregate needs of the rows that several threads give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parts {
    /// Each thread can compute a part of it, and the order of the rows is of no consequence.
    Merged,
    /// The order of the rows is of no consequence.
    Gathered,
    /// The result can depend on the order of the rows.
    InOrder,
}

/// Returns what an aggregate function needs.
pub fn parts_of(function: &AggregateUDF) -> Parts {
    let Some(folding) = function.inner().downcast_ref::<Folding>() else { return Parts::InOrder };
    let is_exact = !matches!(folding.input, Ty::Float4 | Ty::Float8);
    match folding.fold {
        Fold::Call { kind: AggKind::Count, distinct: true } => Parts::Gathered,
        Fold::Call { kind: AggKind::Sum | AggKind::Avg, distinct: true } if is_exact => Parts::Gathered,
        Fold::Call { kind: AggKind::Count, .. } => Parts::Merged,
        Fold::Call { kind: AggKind::Sum | AggKind::Avg, distinct: false } if is_exact => Parts::Merged,
        Fold::Call { kind: AggKind::Min | AggKind::Max, distinct: false } if is_native(folding.input) => {
            Parts::Merged
        }
        _ => Parts::InOrder,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Folding {
    /// DataFusion distinguishes calls by their name and their arguments.
    name: String,
    fold: Fold,
    input: Ty,
    output: Ty,
    signature: Signature,
}

/// Returns the function from values of type `input` to one of type `output`.
pub fn function(fold: Fold, input: Ty, output: Ty) -> Arc<AggregateUDF> {
    let mut arguments = vec![data_type(input)];
    if let Fold::Call { kind, .. } = fold
        && (kind.collects() || kind.is_of_pairs())
    {
        arguments.push(data_type(kind.second_type(input)));
    }
    arguments.extend((fold == Fold::Least || fold.collects()).then_some(DataType::BinaryView));
    let signature = Signature::exact(arguments, Volatility::Immutable);
    let name = match fold {
        Fold::Call { kind, distinct: true } => format!("{kind:?} of distinct"),
        Fold::Call { kind, distinct: false } => format!("{kind:?}"),
        Fold::First => "First".to_owned(),
        Fold::Least => "Least".to_owned(),
    };
    Arc::new(AggregateUDF::new_from_impl(Folding { name, fold, input, output, signature }))
}

/// The work of an aggregate function.
pub struct FoldTypes {
    /// The way in which it combines its values.
    pub fold: Fold,
    /// The type of its values.
    pub input: Ty,
    /// The type of its result.
    pub output: Ty,
}

/// Returns the work of an aggregate function, or `None` if `function` has not made it.
pub fn folded_by(function: &AggregateUDF) -> Option<FoldTypes> {
    let Folding { fold, input, output, .. } = function.inner().downcast_ref::<Folding>()?;
    Some(FoldTypes { fold: *fold, input: *input, output: *output })
}

impl AggregateUDFImpl for Folding {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.output))
    }

    /// Returns the value of the aggregate over no rows. DataFusion needs this value when it turns a
    /// correlated subquery into a join.
    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        match self.fold {
            Fold::Call { kind: AggKind::Count | AggKind::Moment(Moment::RegrCount), .. } => {
                Ok(ScalarValue::Int64(Some(0)))
            }
            _ => ScalarValue::try_from(data_type),
        }
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Folded::new(self)))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        is_grouped(self.fold)
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups::new(self.fold, self.input, self.output, self.held())))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |name: &str, t: DataType| Arc::new(Field::new(format!("{}_{name}", args.name), t, true));
        Ok(vec![
            field("count", DataType::Int64),
            field("value", data_type(self.held())),
            // Kept values may have more bytes than 32 bits can count.
            field("least", if self.fold.keeps_values() { DataType::LargeBinary } else { DataType::Binary }),
        ])
    }
}

impl Folding {
    /// Returns the type of the value in the state: the type of a partial sum, or the type of the input.
    fn held(&self) -> Ty {
        match self.fold {
            Fold::Call { kind: AggKind::Sum | AggKind::Avg, .. } => Sum::state_type(self.input),
            _ => self.input,
        }
    }
}

/// The state of one group.
#[derive(Debug)]
pub struct Folded {
    fold: Fold,
    input: Ty,
    output: Ty,
    held: Ty,
    count: i64,
    sum: Sum,
    value: Value,
    /// The least key that was added so far.
    least: Vec<u8>,
    /// The keys of the values that were already counted. Only an aggregate with DISTINCT fills this set.
    seen: std::collections::BTreeSet<Box<[u8]>>,
    seen_memory: Account,
    key: Vec<u8>,
    /// The values of an aggregate that keeps them. With DISTINCT, these are the values that were counted.
    collected: Collected,
    moments: Option<Moments>,
}

impl Folded {
    fn new(folding: &Folding) -> Folded {
        Folded {
            fold: folding.fold,
            input: folding.input,
            output: folding.output,
            held: folding.held(),
            count: 0,
            sum: Sum::of(folding.input),
            value: Value::Null,
            least: Vec::new(),
            seen: Default::default(),
            seen_memory: Account::default(),
            key: Vec::new(),
            collected: Collected::default(),
            moments: folding.fold.is_of_moments().then(|| Moments::of(folding.input)),
        }
    }

    /// Returns the state of an aggregate that has no values yet.
    pub fn of(kind: AggKind, input: Ty, output: Ty) -> Folded {
        let fold = Fold::Call { kind, distinct: false };
        let signature = Signature::any(1, Volatility::Immutable);
        Folded::new(&Folding { name: String::new(), fold, input, output, signature })
    }

    /// Adds a value to the state.
    pub fn add(&mut self, value: Datum<'_>) -> varve_sql::Result<()> {
        let Fold::Call { kind, .. } = self.fold else {
            debug_assert_eq!(self.fold, Fold::First, "a value without its key");
            if self.count == 0 {
                self.value = value.to_value();
            }
            self.count += 1;
            return Ok(());
        };
        if value.is_null() || self.fold.needs_distinct() && !self.is_new(&value)? {
            return Ok(());
        }
        if self.fold.needs_distinct() && !self.fold.counts_distinct() {
            self.collected.push(kind, value, Datum::Null, &[])?;
        }
        self.count += 1;
        self.fold_in(kind, value)
    }

    /// Adds a pair of values to the state.
    pub fn add_pair(&mut self, first: Datum<'_>, second: Datum<'_>) -> varve_sql::Result<()> {
        if let Some(moments) = self.moments.as_mut().filter(|_| !first.is_null() && !second.is_null()) {
            self.count += 1;
            moments.add_pair(first, second)?;
        }
        Ok(())
    }

    /// Adds a value with its key to the state.
    fn add_keyed(&mut self, value: Datum<'_>, key: &[u8]) {
        if self.count == 0 || key < self.least.as_slice() {
            self.value = value.to_value();
            self.least = key.to_vec();
        }
        self.count += 1;
    }

    /// Adds a value to an aggregate that keeps all its values. The error is 54000 if the result would have a
    /// gigabyte, and 53200 if the memory limit is reached.
    pub fn collect(&mut self, value: Datum<'_>, second: Datum<'_>, place: &[u8]) -> varve_sql::Result<()> {
        let Fold::Call { kind, distinct } = self.fold else { return Ok(()) };
        if kind.skips_null() && value.is_null() || distinct && !self.is_new(&value)? {
            return Ok(());
        }
        self.count += 1;
        self.collected.push(kind, value, second, place)
    }

    fn is_new(&mut self, value: &Datum<'_>) -> varve_sql::Result<bool> {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        push_key(&mut key, value);
        let is_new = self.is_new_key(&key);
        self.key = key;
        is_new
    }

    fn is_new_key(&mut self, key: &[u8]) -> varve_sql::Result<bool> {
        if self.seen.contains(key) {
            return Ok(false);
        }
        self.seen_memory.grow(key.len() + 2 * size_of::<Box<[u8]>>())?;
        Ok(self.seen.insert(key.into()))
    }

    fn fold_in(&mut self, kind: AggKind, value: Datum<'_>) -> varve_sql::Result<()> {
        match kind {
            AggKind::Count => {}
            AggKind::Sum | AggKind::Avg => self.sum.add(value)?,
            AggKind::Min | AggKind::Max => {
                let order = value.order(&self.value.as_datum());
                let better = if kind == AggKind::Max { order.is_ge() } else { order.is_le() };
                if self.value.is_null() || better {
                    self.value = value.to_value();
                }
            }
            AggKind::BoolAnd | AggKind::BoolOr => {
                let now = matches!(value, Datum::Bool(true));
                let before = match self.value {
                    Value::Bool(b) => b,
                    _ => kind == AggKind::BoolAnd,
                };
                self.value =
                    Value::Bool(if kind == AggKind::BoolAnd { before && now } else { before || now });
            }
            AggKind::BitAnd | AggKind::BitOr | AggKind::BitXor => {
                self.value = bits(kind, value, &self.value);
            }
            AggKind::Moment(_) => {
                if let Some(moments) = &mut self.moments {
                    moments.add(value)?;
                }
            }
            // Values of these aggregates are added by `collect`.
            AggKind::StringAgg
            | AggKind::ArrayAgg
            | AggKind::PercentileCont
            | AggKind::PercentileDisc
            | AggKind::PercentilesCont
            | AggKind::PercentilesDisc
            | AggKind::Mode
            | AggKind::JsonAgg(_)
            | AggKind::JsonObjectAgg => {}
        }
        Ok(())
    }

    /// Returns the value of the aggregate over the values that were added so far.
    pub fn result(&self) -> varve_sql::Result<Value> {
        let kind = match self.fold {
            Fold::First | Fold::Least => return Ok(self.value.clone()),
            Fold::Call { kind, .. } => kind,
        };
        match kind {
            AggKind::Count => Ok(Value::Int8(self.count)),
            AggKind::Sum | AggKind::Avg if self.count == 0 => Ok(Value::Null),
            kind if kind.collects() && self.collected.is_empty() => Ok(Value::Null),
            kind if kind.collects() => self.collected.whole(kind, self.output),
            AggKind::Moment(moment) => {
                self.moments.as_ref().map_or(Ok(Value::Null), |moments| moments.result(moment))
            }
            AggKind::Sum | AggKind::Avg => {
                self.sum.clone().total(self.input, kind == AggKind::Avg, self.count.unsigned_abs())
            }
            _ => Ok(self.value.clone()),
        }
    }

    fn adds(&self) -> bool {
        matches!(self.fold, Fold::Call { kind: AggKind::Sum | AggKind::Avg, .. })
    }

    /// Returns whether the aggregate is a sum or an average of all values of a column of type numeric.
    fn adds_words(&self) -> bool {
        self.adds() && self.input == Ty::Numeric && !matches!(self.fold, Fold::Call { distinct: true, .. })
    }

    fn add_numbers(&mut self, numbers: &Numbers) -> varve_sql::Result<()> {
        let is_valid = |n: usize| numbers.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(n));
        let rows = (0..numbers.values.len()).filter(|n| is_valid(*n));
        let (mut count, mut total) = (0, 0i128);
        match &numbers.scale {
            Scale::Same(scale) => {
                for n in rows {
                    count += 1;
                    total += i128::from(numbers.values[n]);
                }
                if count > 0 {
                    self.sum.merge(Sum::Scaled(total, *scale))?;
                }
            }
            Scale::Each(scales) => {
                for n in rows {
                    count += 1;
                    self.sum.merge(Sum::Scaled(i128::from(numbers.values[n]), scales[n]))?;
                }
            }
        }
        self.count += count;
        Ok(())
    }
}

impl Accumulator for Folded {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.pass_on();
        let cells = Cells::of(self.input, &values[0]);
        if self.fold == Fold::Least {
            let keys = values[1].as_binary_view();
            (0..keys.len()).for_each(|n| self.add_keyed(cells.get(n), keys.value(n)));
            return Ok(());
        }
        if let Fold::Call { kind, .. } = self.fold
            && values.len() > 1
        {
            let seconds = Cells::of(kind.second_type(self.input), &values[1]);
            let pair = |n| (cells.get(n), seconds.get(n));
            let Some(places) = values.get(2).map(AsArray::as_binary_view) else {
                let mut pairs = (0..values[0].len()).map(pair);
                return pairs.try_for_each(|(a, b)| self.add_pair(a, b)).map_err(wrapped);
            };
            let mut rows = 0..values[0].len();
            return rows
                .try_for_each(|n| self.collect(cells.get(n), seconds.get(n), places.value(n)))
                .map_err(wrapped);
        }
        if self.adds_words()
            && let Some(numbers) = Numbers::of(values[0].as_binary_view())
        {
            return self.add_numbers(&numbers).map_err(wrapped);
        }
        (0..values[0].len()).try_for_each(|n| self.add(cells.get(n))).map_err(wrapped)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // While the result is converted to a scalar, memory holds the result twice.
        let mut memory = Account::default();
        memory.grow(2 * self.collected.whole_bytes()).map_err(wrapped)?;
        scalar(self.output, self.result().map_err(wrapped)?)
    }

    fn size(&self) -> usize {
        let value = match &self.value {
            Value::Text(t) => t.len(),
            Value::Bytea(b) => b.len(),
            _ => 0,
        };
        size_of::<Self>() + value + self.collected.bytes() + self.least.len() + self.seen_memory.bytes()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if self.fold.keeps_values() {
            let state = [
                ScalarValue::Int64(Some(self.count)),
                ScalarValue::try_from(&data_type(self.held))?,
                ScalarValue::LargeBinary(Some(self.kept_state())),
            ];
            return Ok(state.into());
        }
        let value = if self.adds() { self.sum.state().map_err(wrapped)? } else { self.value.clone() };
        let moments = self.moments.as_ref().map(Moments::state).transpose().map_err(wrapped)?;
        let least = ScalarValue::Binary(Some(moments.unwrap_or_else(|| self.least.clone())));
        Ok(vec![ScalarValue::Int64(Some(self.count)), scalar(self.held, value)?, least])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.pass_on();
        if self.fold.keeps_values() {
            let states = states[2].as_binary::<i64>();
            return states.iter().flatten().try_for_each(|state| self.merge_kept(state)).map_err(wrapped);
        }
        let counts = states[0].as_primitive::<datafusion::arrow::datatypes::Int64Type>();
        let values = Cells::of(self.held, &states[1]);
        let keys = states[2].as_binary::<i32>();
        for n in 0..counts.len() {
            let (count, value) = (counts.value(n), values.get(n));
            if count == 0 {
                continue;
            }
            if self.fold == Fold::Least {
                self.add_keyed(value, keys.value(n));
                continue;
            }
            match &mut self.moments {
                Some(moments) => {
                    let other = Moments::of_state(self.input, keys.value(n)).map_err(wrapped)?;
                    moments.merge(other).map_err(wrapped)?;
                }
                None => self.merge(value).map_err(wrapped)?,
            }
            self.count += count;
        }
        Ok(())
    }
}

impl Folded {
    /// Gives back the memory that this state has reserved. DataFusion has called `size` since, and has
    /// reserved the same bytes.
    fn pass_on(&mut self) {
        self.collected.pass_on();
        self.seen_memory.pass_on();
    }

    /// Returns the kept values as bytes. count(DISTINCT) keeps only keys.
    fn kept_state(&self) -> Vec<u8> {
        if !self.fold.counts_distinct() {
            return self.collected.state();
        }
        let mut out = 0u64.to_le_bytes().to_vec();
        for key in &self.seen {
            collected::push_row(&mut out, key, &Datum::Null, &Datum::Null);
        }
        out
    }

    /// Adds the values of a state that `kept_state` has returned.
    fn merge_kept(&mut self, state: &[u8]) -> varve_sql::Result<()> {
        let Fold::Call { kind, distinct } = self.fold else { return Ok(()) };
        let (part, rows) = collected::rows_of(state)?;
        self.collected.begin_part(part);
        for row in rows {
            let (place, value, second) = row?;
            if self.fold.counts_distinct() {
                self.count += i64::from(self.is_new_key(place)?);
                continue;
            }
            if distinct && !self.is_new(&value)? {
                continue;
            }
            self.count += 1;
            self.collected.add(kind, value, second, place)?;
            if !kind.collects() {
                self.fold_in(kind, value)?;
            }
        }
        Ok(())
    }
}

impl Folded {
    fn merge(&mut self, value: Datum<'_>) -> varve_sql::Result<()> {
        match self.fold {
            Fold::First if self.count == 0 => self.value = value.to_value(),
            Fold::First | Fold::Least => {}
            Fold::Call { .. } if self.adds() => self.sum.merge(Sum::of_state(self.input, value)?)?,
            Fold::Call { kind, .. } => self.fold_in(kind, value)?,
        }
        Ok(())
    }
}

fn scalar(ty: Ty, value: Value) -> Result<ScalarValue> {
    // A text is moved and not copied, because it may be long.
    let value = match value {
        Value::Text(text) if data_type(ty) == DataType::Utf8View => {
            return Ok(ScalarValue::Utf8View(Some(text)));
        }
        value => value,
    };
    let mut cell = CellsBuilder::new(ty);
    cell.push(value.as_datum());
    ScalarValue::try_from_array(&cell.finish(), 0)
}
