//! Sequences: blocks of values reserved in the system table, given out from memory.
//!
//! Invariants
//! 1. A value is returned only after the change that reserved it is in the log. A commit of the transaction
//!    that took it is acknowledged only when that change is durable. So a crash loses at most a block of
//!    values, and no value is returned twice.
//! 2. Nothing here is rolled back.
//! 3. A clean shutdown returns unused values, so it leaves no gap.
//!
//! Does not know: who may use a sequence.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::planted;
use varve_pager::Lsn;

use crate::catalog::{SequenceDef, SequenceState, store};
use crate::core::Core;
use crate::error::{Error, ObjectKind, Result};

/// Values reserved at once, as in PostgreSQL: one to be given now, and 32 more.
const BLOCK_LEN: u64 = 33;

/// Values in store.
#[derive(Debug, Default)]
pub(crate) struct SequenceRange {
    next: i64,
    left: u64,
    /// Where the log has to be durable before a value may count as given.
    reserved_at: Lsn,
    /// What was given or set last, and whether it was given, since the start.
    last: Option<(i64, bool)>,
}

impl SequenceRange {
    /// The next value of `def`.
    pub(crate) fn next_value(&mut self, core: &Core, def: &SequenceDef) -> Result<i64> {
        if self.left == 0 {
            self.refill(core, def)?;
        }
        let value = self.next;
        self.left -= 1;
        self.next = value.wrapping_add(def.increment);
        self.last = Some((value, true));
        Ok(value)
    }

    /// The sequence's last value. After a start it is derived from the next value, since only that one is stored.
    pub(crate) fn state(&self, core: &Core, def: &SequenceDef) -> Result<SequenceState> {
        let log_count = self.left as i64;
        if let Some((last_value, is_called)) = self.last {
            return Ok(SequenceState { last_value, log_count, is_called });
        }
        let missing = || Error::Undefined { kind: ObjectKind::Sequence, name: def.name.clone() };
        let (next, ended) = store::values_of(core, def.state)?.ok_or_else(missing)?;
        let (last_value, is_called) = match (ended, next.checked_sub(def.increment)) {
            (true, _) => (last_of(def), true),
            (false, Some(before)) if next != def.start && (def.min..=def.max).contains(&before) => {
                (before, true)
            }
            _ => (next, false),
        };
        Ok(SequenceState { last_value, log_count, is_called })
    }

    /// A sequence that takes the place of another one stands where that stood.
    pub(crate) fn standing_at(&mut self, last_value: i64, is_called: bool) {
        self.last = Some((last_value, is_called));
    }

    fn refill(&mut self, core: &Core, def: &SequenceDef) -> Result<()> {
        let reserved = store::advance_sequence(core, def.state, |value, ended| {
            if ended {
                let limit = if def.increment > 0 { def.max } else { def.min };
                return Err(Error::SequenceExhausted { name: def.name.clone(), limit });
            }
            let (count, mut next) = reserve(def, value);
            if planted("sequence: only one value of a block is reserved") {
                next = step(def, value);
            }
            let ended = next.is_none() && !def.cycle;
            Ok(((value, count), next.unwrap_or_else(|| first_of(def)), ended))
        })?;
        let missing = || Error::Undefined { kind: ObjectKind::Sequence, name: def.name.clone() };
        ((self.next, self.left), self.reserved_at) = reserved.ok_or_else(missing)?;
        Ok(())
    }

    /// Gives back the values in store; the next one is reserved anew.
    pub(crate) fn give_back(&mut self, core: &Core, state: u32) -> Result<()> {
        if std::mem::take(&mut self.left) > 0 {
            // A sequence that was dropped has no values any more.
            store::advance_sequence(core, state, |_, _| Ok(((), self.next, false)))?;
        }
        Ok(())
    }

    /// Where the log has to be durable before the last value or `set` may be acknowledged.
    pub(crate) fn reserved_at(&self) -> Lsn {
        self.reserved_at
    }

    /// Continues with `value` (or behind it, if `called`).
    pub(crate) fn set(&mut self, core: &Core, def: &SequenceDef, value: i64, called: bool) -> Result<()> {
        if value < def.min || value > def.max {
            let what = format!("setval: value {value} is out of bounds for sequence \"{}\"", def.name);
            return Err(Error::OutOfRange { what });
        }
        let (next, ended) = after(def, value, called);
        let edit = |_, _| Ok(((), next, ended));
        let missing = || Error::Undefined { kind: ObjectKind::Sequence, name: def.name.clone() };
        ((), self.reserved_at) = store::advance_sequence(core, def.state, edit)?.ok_or_else(missing)?;
        self.left = 0;
        self.last = Some((value, called));
        Ok(())
    }
}

/// Takes values from sequences while readers of rows use the transaction. Such a value is durable from the
/// log position `durable_by` on. The transaction notes this position
/// ([`Transaction::note_drawn`](crate::Transaction::note_drawn)).
pub struct SequenceDrawer {
    core: Arc<Core>,
    durable_by: Mutex<Lsn>,
}

impl SequenceDrawer {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, durable_by: Mutex::default() }
    }

    /// The next value; never given twice, not given back by a rollback. No latch may be held.
    pub fn next_value(&self, def: &SequenceDef) -> Result<i64> {
        self.with(def, |range, core| range.next_value(core, def))
    }

    /// `setval`; not rolled back. No latch may be held.
    pub fn set_value(&self, def: &SequenceDef, value: i64, called: bool) -> Result<()> {
        self.with(def, |range, core| range.set(core, def, value, called))
    }

    fn with<T>(
        &self,
        def: &SequenceDef,
        step: impl FnOnce(&mut SequenceRange, &Core) -> Result<T>,
    ) -> Result<T> {
        let range = self.core.catalog.range_of(def);
        let mut range = range.lock();
        let outcome = step(&mut range, &self.core);
        let mut durable_by = self.durable_by.lock();
        *durable_by = durable_by.max(range.reserved_at());
        outcome
    }

    pub(crate) fn durable_by(&self) -> Lsn {
        *self.durable_by.lock()
    }
}

/// What a sequence gives that stands at a value, and whether there is nothing more to give.
pub(crate) fn after(def: &SequenceDef, value: i64, called: bool) -> (i64, bool) {
    let next = if called { step(def, value) } else { Some(value) };
    (next.unwrap_or_else(|| first_of(def)), next.is_none() && !def.cycle)
}

/// The last value before the end.
fn last_of(def: &SequenceDef) -> i64 {
    let end = if def.increment > 0 { def.max } else { def.min };
    let beyond = (i128::from(end) - i128::from(def.start)) % i128::from(def.increment);
    i64::try_from(i128::from(end) - beyond).unwrap_or(end)
}

fn step(def: &SequenceDef, value: i64) -> Option<i64> {
    value.checked_add(def.increment).filter(|next| (def.min..=def.max).contains(next))
}

fn first_of(def: &SequenceDef) -> i64 {
    if def.increment > 0 { def.min } else { def.max }
}

/// How many values from `value` on fit into a block, and what comes after them.
fn reserve(def: &SequenceDef, value: i64) -> (u64, Option<i64>) {
    let mut next = step(def, value);
    let mut count = 1;
    while let (Some(inside), true) = (next, count < BLOCK_LEN) {
        next = step(def, inside);
        count += 1;
    }
    (count, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{POSTGRES, SequenceId};
    use crate::types::ColumnType;

    fn def(increment: i64, min: i64, max: i64) -> SequenceDef {
        let (schema, name) = ("public".to_owned(), "s".to_owned());
        let (start, cycle, owned_by) = (min, false, None);
        let (id, data_type, cache, state) = (SequenceId(1), ColumnType::Int8, 1, 1);
        SequenceDef {
            id,
            database: POSTGRES,
            schema,
            name,
            start,
            increment,
            min,
            max,
            cycle,
            owned_by,
            data_type,
            cache,
            state,
        }
    }

    #[test]
    fn blocks_stop_at_the_bounds() {
        assert_eq!(reserve(&def(1, 1, i64::MAX), 1), (33, Some(34)));
        assert_eq!(reserve(&def(1, 1, 3), 2), (2, None));
        assert_eq!(reserve(&def(-5, -12, 0), 0), (3, None));
        assert_eq!(reserve(&def(1, 1, i64::MAX), i64::MAX), (1, None));
    }
}
