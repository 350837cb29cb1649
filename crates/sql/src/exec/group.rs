//! Aggregates and grouping.
//!
//! Invariants
//! 1. NULL arguments do not count; an aggregate of no values is NULL, count is 0.
//! 2. Sums of whole numbers are exact and checked only at the end, sums of numeric exact.
//! 3. Groups compare as keys do: NULL equals NULL, 1.0 equals 1.00.
//!
//! Does not know: how rows are read.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use bumpalo::Bump;
use rustc_hash::{FxHashMap, FxHashSet};
use varve_engine::{Datum, Numeric, key};

use crate::bind::aggregate::{AggCall, AggKind};
use crate::error::{Result, SqlError};
use crate::eval::arith::{self, Class};
use crate::eval::{Cx, Input, keep_in, number};
use crate::plan::Aggregate;
use crate::ty::Ty;

/// A sum that stays in machine words while it can.
#[derive(Clone)]
enum Sum {
    Whole(i128),
    Scaled(i128, u16),
    Big(BigDecimal),
    Float(f64),
    NotANumber,
}

/// State of one aggregate of one group.
struct State<'s> {
    count: u64,
    sum: Sum,
    extreme: Datum<'s>,
    truth: bool,
    seen: FxHashSet<Box<[u8]>>,
}

/// One group.
struct Group<'s> {
    keys: Vec<Datum<'s>>,
    states: Vec<State<'s>>,
}

/// All groups of a query.
pub struct Groups<'s> {
    arena: &'s Bump,
    index: FxHashMap<Box<[u8]>, usize>,
    groups: Vec<Group<'s>>,
    key: Vec<u8>,
}

impl<'s> Groups<'s> {
    /// No rows yet.
    pub fn new(plan: &Aggregate, arena: &'s Bump) -> Self {
        let mut groups = Groups { arena, index: FxHashMap::default(), groups: Vec::new(), key: Vec::new() };
        if plan.single {
            groups.groups.push(new_group(plan, Vec::new()));
        }
        groups
    }

    /// Takes in one row.
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
                add_value(call, state, value, self.arena, &mut self.key)?;
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

    /// The slots of each group: keys, then aggregates.
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

/// Any column type under which `key::push` encodes the value.
fn key_type(value: Datum<'_>) -> varve_engine::ColumnType {
    match value {
        Datum::Numeric(_) => varve_engine::ColumnType::Numeric { precision: None },
        Datum::Float8(_) => varve_engine::ColumnType::Float8,
        _ => varve_engine::ColumnType::Text,
    }
}

fn new_group<'s>(plan: &Aggregate, keys: Vec<Datum<'s>>) -> Group<'s> {
    let state = |call: &AggCall| State {
        count: 0,
        sum: match call.input {
            Ty::Float8 => Sum::Float(0.0),
            Ty::Numeric => Sum::Scaled(0, 0),
            _ => Sum::Whole(0),
        },
        extreme: Datum::Null,
        truth: call.kind == AggKind::BoolAnd,
        seen: FxHashSet::default(),
    };
    Group { keys, states: plan.calls.iter().map(state).collect() }
}

fn add_value<'s>(
    call: &AggCall,
    state: &mut State<'s>,
    value: Datum<'_>,
    arena: &'s Bump,
    scratch: &mut Vec<u8>,
) -> Result<()> {
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
        AggKind::Sum | AggKind::Avg => add_to_sum(&mut state.sum, value)?,
        AggKind::Min | AggKind::Max => {
            // Of equal values the later one stays, as in PostgreSQL (1.0 and 1.00).
            let order = value.order(&state.extreme);
            let wanted = if call.kind == AggKind::Max { order.is_ge() } else { order.is_le() };
            if state.extreme.is_null() || wanted {
                state.extreme = keep_in(arena, value);
            }
        }
        AggKind::BoolAnd => state.truth &= matches!(value, Datum::Bool(true)),
        AggKind::BoolOr => state.truth |= matches!(value, Datum::Bool(true)),
    }
    Ok(())
}

fn add_to_sum(sum: &mut Sum, value: Datum<'_>) -> Result<()> {
    match (&mut *sum, value) {
        (Sum::Whole(total), v) => *total += i128::from(v.as_integer().unwrap_or(0)),
        (Sum::Float(total), Datum::Float8(f)) => {
            let infinite = total.is_infinite() || f.is_infinite();
            *total = arith::check_float(*total + f, infinite, true)?;
        }
        (Sum::NotANumber, _) => {}
        (_, Datum::Numeric(n)) if n.is_nan() => *sum = Sum::NotANumber,
        (Sum::Scaled(total, scale), Datum::Numeric(n)) => {
            if let Some((v, s)) = n.to_unscaled()
                && let Some(added) = add_scaled((*total, *scale), (i128::from(v), s))
            {
                (*total, *scale) = added;
                return Ok(());
            }
            let so_far = BigDecimal::new(BigInt::from(*total), i64::from(*scale));
            *sum = Sum::Big(so_far + n.to_big().unwrap_or_default());
        }
        (Sum::Big(total), Datum::Numeric(n)) => *total += n.to_big().unwrap_or_default(),
        _ => return Err(SqlError::internal("a sum of the wrong type")),
    }
    Ok(())
}

fn add_scaled(a: (i128, u16), b: (i128, u16)) -> Option<(i128, u16)> {
    let scale = a.1.max(b.1);
    let lift = |v: i128, by: u16| 10i128.checked_pow(u32::from(by)).and_then(|p| v.checked_mul(p));
    let sum = lift(a.0, scale - a.1)?.checked_add(lift(b.0, scale - b.1)?)?;
    Some((sum, scale))
}

fn result<'s>(call: &AggCall, state: State<'s>, arena: &'s Bump) -> Result<Datum<'s>> {
    match call.kind {
        AggKind::Count => return Ok(Datum::Int8(state.count as i64)),
        _ if state.count == 0 => return Ok(Datum::Null),
        AggKind::Min | AggKind::Max => return Ok(state.extreme),
        AggKind::BoolAnd | AggKind::BoolOr => return Ok(Datum::Bool(state.truth)),
        AggKind::Sum | AggKind::Avg => {}
    }
    let average = call.kind == AggKind::Avg;
    let total = match state.sum {
        Sum::Float(f) => return Ok(Datum::Float8(if average { f / state.count as f64 } else { f })),
        Sum::Whole(total) if !average && call.input != Ty::Int8 => {
            return arith::narrow(Class::Int8, i64::try_from(total).ok());
        }
        Sum::Whole(total) => number::of_i128(total),
        Sum::Scaled(total, scale) => number::pack(&BigDecimal::new(BigInt::from(total), i64::from(scale)))?,
        Sum::Big(total) => number::pack(&total)?,
        Sum::NotANumber => Numeric::nan(),
    };
    let total = if average { number::average(total.as_ref(), state.count)? } else { total };
    Ok(keep_in(arena, Datum::Numeric(total.as_ref())))
}
