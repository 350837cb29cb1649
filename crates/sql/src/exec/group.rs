//! Computes aggregates and groups.
//!
//! Invariants
//! 1. NULL arguments are ignored. Without other arguments, an aggregate is NULL, and count is 0.
//! 2. Sums of integers and of numeric are exact. The range of an integer sum is checked only at the end.
//! 3. Groups are compared like keys: NULL equals NULL, 1.0 equals 1.00.
//!
//! This module does not know how rows are read.

use bumpalo::Bump;
use rustc_hash::{FxHashMap, FxHashSet};
use varve_engine::{Datum, Value, key};

use super::moments::Moments;
use super::sum::Sum;
use crate::error::{Result, SqlError};
use crate::eval::{Cx, Input, keep_in};
use crate::plan::{AggCall, AggKind, Aggregate};
use crate::value_bytes::key_type;

/// State of one aggregate of one group.
struct State {
    count: u64,
    sum: Sum,
    moments: Option<Moments>,
    /// The smallest or largest value so far. It is owned and not in the arena, so that a value's memory is
    /// freed when another value replaces it.
    extreme: Value,
    truth: bool,
    seen: FxHashSet<Box<[u8]>>,
}

/// One group.
struct Group<'s> {
    keys: Vec<Datum<'s>>,
    states: Vec<State>,
}

/// All groups of a query.
pub struct Groups<'s> {
    arena: &'s Bump,
    index: FxHashMap<Box<[u8]>, usize>,
    groups: Vec<Group<'s>>,
    key: Vec<u8>,
}

impl<'s> Groups<'s> {
    /// Returns the groups before the first row.
    pub fn new(plan: &Aggregate, arena: &'s Bump) -> Self {
        let mut groups = Groups { arena, index: FxHashMap::default(), groups: Vec::new(), key: Vec::new() };
        if plan.single {
            groups.groups.push(new_group(plan, Vec::new()));
        }
        groups
    }

    /// Adds one row to its group.
    pub fn add<'a>(&mut self, plan: &'a Aggregate, row: &Input<'a>, cx: &Cx<'a>) -> Result<()> {
        let at = if plan.single { 0 } else { self.find(plan, row, cx)? };
        for (call, state) in plan.calls.iter().zip(&mut self.groups[at].states) {
            if let Some(filter) = &call.filter
                && !filter.is_true(row, cx)?
            {
                continue;
            }
            let value = match &call.argument {
                None => {
                    state.count += 1;
                    continue;
                }
                Some(argument) => argument.eval(row, cx)?,
            };
            if !value.is_null() {
                add_value(call, state, value, &mut self.key)?;
            }
        }
        Ok(())
    }

    fn find<'a>(&mut self, plan: &'a Aggregate, row: &Input<'a>, cx: &Cx<'a>) -> Result<usize> {
        self.key.clear();
        let mut values: super::Row<'a> = super::Row::new();
        for e in &plan.keys {
            let value = e.eval(row, cx)?;
            key::push(&mut self.key, key_type(value), &value);
            values.push(value);
        }
        if let Some(at) = self.index.get(self.key.as_slice()) {
            return Ok(*at);
        }
        let kept = values.iter().map(|v| keep_in(self.arena, *v)).collect();
        self.groups.push(new_group(plan, kept));
        self.index.insert(self.key.as_slice().into(), self.groups.len() - 1);
        Ok(self.groups.len() - 1)
    }

    /// Returns the slots of each group: first its keys, then its aggregates.
    pub fn finish(self, plan: &Aggregate) -> Result<Vec<&'s [Datum<'s>]>> {
        let mut out = Vec::with_capacity(self.groups.len());
        for group in self.groups {
            let mut slots = group.keys;
            for (call, state) in plan.calls.iter().zip(group.states) {
                slots.push(result(call, state, self.arena)?);
            }
            out.push(&*self.arena.alloc_slice_copy(&slots));
        }
        Ok(out)
    }
}

fn new_group<'s>(plan: &Aggregate, keys: Vec<Datum<'s>>) -> Group<'s> {
    let state = |call: &AggCall| State {
        count: 0,
        sum: Sum::of(call.input),
        moments: matches!(call.kind, AggKind::Moment(_)).then(|| Moments::of(call.input)),
        extreme: Value::Null,
        truth: call.kind == AggKind::BoolAnd,
        seen: FxHashSet::default(),
    };
    Group { keys, states: plan.calls.iter().map(state).collect() }
}

fn add_value(call: &AggCall, state: &mut State, value: Datum<'_>, scratch: &mut Vec<u8>) -> Result<()> {
    if call.distinct {
        scratch.clear();
        key::push(scratch, key_type(value), &value);
        if state.seen.contains(scratch.as_slice()) {
            return Ok(());
        }
        state.seen.insert(scratch.as_slice().into());
    }
    state.count += 1;
    match call.kind {
        AggKind::Count => {}
        AggKind::Sum | AggKind::Avg => state.sum.add(value)?,
        AggKind::Min | AggKind::Max => {
            // If two values are equal but differ in form (1.0 and 1.00), the later one is kept, as in
            // PostgreSQL.
            let known = state.extreme.as_datum();
            let order = value.order(&known);
            let wanted = if call.kind == AggKind::Max { order.is_ge() } else { order.is_le() };
            if (known.is_null() || wanted) && !is_same(&value, &known) {
                state.extreme = value.to_value();
            }
        }
        AggKind::BoolAnd => state.truth &= matches!(value, Datum::Bool(true)),
        AggKind::BoolOr => state.truth |= matches!(value, Datum::Bool(true)),
        AggKind::BitAnd | AggKind::BitOr | AggKind::BitXor => {
            state.extreme = bits(call.kind, value, &state.extreme);
        }
        AggKind::Moment(_) => {
            if let Some(moments) = &mut state.moments {
                moments.add(value)?;
            }
        }
        AggKind::StringAgg
        | AggKind::ArrayAgg
        | AggKind::PercentileCont
        | AggKind::PercentileDisc
        | AggKind::PercentilesCont
        | AggKind::PercentilesDisc
        | AggKind::Mode
        | AggKind::JsonAgg(_)
        | AggKind::JsonObjectAgg => {
            return Err(SqlError::internal("an aggregate that only general queries compute"));
        }
    }
    Ok(())
}

/// Returns the result of bit_and, bit_or or bit_xor after one more value.
pub fn bits(kind: AggKind, value: Datum<'_>, before: &Value) -> Value {
    let both = |a: i64, b: i64| match kind {
        AggKind::BitAnd => a & b,
        AggKind::BitXor => a ^ b,
        _ => a | b,
    };
    match (value, before) {
        (Datum::Int2(v), Value::Int2(b)) => Value::Int2(both(v.into(), (*b).into()) as i16),
        (Datum::Int4(v), Value::Int4(b)) => Value::Int4(both(v.into(), (*b).into()) as i32),
        (Datum::Int8(v), Value::Int8(b)) => Value::Int8(both(v, *b)),
        (first, _) => first.to_value(),
    }
}

/// Returns whether two texts have the same bytes. Then the kept value need not be replaced.
fn is_same(a: &Datum<'_>, b: &Datum<'_>) -> bool {
    match (a, b) {
        (Datum::Text(a), Datum::Text(b)) => a == b,
        (Datum::Bytea(a), Datum::Bytea(b)) => a == b,
        _ => false,
    }
}

fn result<'s>(call: &AggCall, state: State, arena: &'s Bump) -> Result<Datum<'s>> {
    match call.kind {
        AggKind::Count => return Ok(Datum::Int8(state.count as i64)),
        _ if state.count == 0 => return Ok(Datum::Null),
        AggKind::Min | AggKind::Max | AggKind::BitAnd | AggKind::BitOr | AggKind::BitXor => {
            return Ok(keep_in(arena, state.extreme.as_datum()));
        }
        AggKind::BoolAnd | AggKind::BoolOr => return Ok(Datum::Bool(state.truth)),
        AggKind::Moment(moment) => {
            let value = state.moments.map_or(Ok(Value::Null), |m| m.result(moment))?;
            return Ok(keep_in(arena, value.as_datum()));
        }
        _ => {}
    }
    let total = state.sum.total(call.input, call.kind == AggKind::Avg, state.count)?;
    Ok(keep_in(arena, total.as_datum()))
}
