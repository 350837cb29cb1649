//! Sequences: a block of values is reserved in the system table, and values are returned from memory.
//!
//! Invariants
//! 1. A sequence returns a value only after the reservation of its block of values is in the log. A
//!    transaction that has taken a value is acknowledged only when this reservation is durable. So a crash
//!    loses at most a block of values, and no value is returned twice.
//! 2. A rollback does not take back values that were returned.
//! 3. A clean shutdown stores how far the values were used, so it leaves no gap.
//!
//! This module does not know rights on a sequence.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::planted;
use varve_pager::Lsn;

use crate::catalog::sequence_range::{Block, LastValue, SequenceRange, StoredSequence, after, last_of, step};
use crate::catalog::{SequenceDef, SequenceState};
use crate::core::Core;
use crate::error::{Error, ObjectKind, Result};
use crate::system_tables;

/// Returns the next value of `def`.
pub(crate) fn next_value(range: &mut SequenceRange, core: &Core, def: &SequenceDef) -> Result<i64> {
    loop {
        if let Some(value) = range.take(def) {
            return Ok(value);
        }
        refill(range, core, def)?;
    }
}

/// Returns the sequence's last value. After a start it is derived from the next value, because only that one
/// is stored.
pub(crate) fn state(range: &SequenceRange, core: &Core, def: &SequenceDef) -> Result<SequenceState> {
    let log_count = range.left() as i64;
    if let Some(LastValue { value: last_value, is_called }) = range.last() {
        return Ok(SequenceState { last_value, log_count, is_called });
    }
    let stored = system_tables::stored_sequence(core, def.state)?.ok_or_else(|| missing(def))?;
    let before = stored.next.checked_sub(def.increment);
    let before = before.filter(|before| stored.next != def.start && (def.min..=def.max).contains(before));
    let (last_value, is_called) = match before {
        _ if stored.is_ended => (last_of(def), true),
        Some(before) => (before, true),
        None => (stored.next, false),
    };
    Ok(SequenceState { last_value, log_count, is_called })
}

fn missing(def: &SequenceDef) -> Error {
    Error::Undefined { kind: ObjectKind::Sequence, name: def.name.clone() }
}

#[cold]
fn refill(range: &mut SequenceRange, core: &Core, def: &SequenceDef) -> Result<()> {
    let reserved = system_tables::advance_sequence(core, def.state, |stored| {
        if stored.is_ended {
            let limit = if def.increment > 0 { def.max } else { def.min };
            return Err(Error::SequenceExhausted { name: def.name.clone(), limit });
        }
        let block = Block::at(def, stored.next);
        let is_short = planted("sequence: only one value of a block is reserved");
        let next = if is_short { step(def, stored.next) } else { block.next };
        Ok((block, StoredSequence::next_or_end(def, next)))
    })?;
    let reserved = reserved.ok_or_else(|| missing(def))?;
    range.fill(reserved.result, reserved.durable_by);
    Ok(())
}

/// Returns the reserved values to the sequence. The next call reserves values again.
pub(crate) fn give_back(range: &mut SequenceRange, core: &Core, state: u32) -> Result<()> {
    if let Some(next) = range.empty() {
        // If the sequence was dropped, its row does not exist any more, and nothing is changed.
        let row = StoredSequence { next, is_ended: false };
        system_tables::advance_sequence(core, state, |_| Ok(((), row)))?;
    }
    Ok(())
}

/// Returns the reserved values of all sequences, at a clean shutdown.
pub(crate) fn give_back_all(core: &Core) -> Result<()> {
    core.catalog.take_ranges().try_for_each(|(state, range)| give_back(&mut range.lock(), core, state))
}

/// Sets the next value to `last.value`, or to the value after it if `is_called` is set.
pub(crate) fn set_value(
    range: &mut SequenceRange,
    core: &Core,
    def: &SequenceDef,
    last: LastValue,
) -> Result<()> {
    let value = last.value;
    if value < def.min || value > def.max {
        let what = format!("setval: value {value} is out of bounds for sequence \"{}\"", def.name);
        return Err(Error::OutOfRange { what });
    }
    let row = after(def, last);
    let set = system_tables::advance_sequence(core, def.state, |_| Ok(((), row)))?;
    range.set(last, set.ok_or_else(|| missing(def))?.durable_by);
    Ok(())
}

/// Takes values from sequences while readers of rows use the transaction. Such a value is durable when the
/// log is durable up to the LSN `durable_by`. The transaction notes this LSN
/// ([`Transaction::note_drawn`](crate::Transaction::note_drawn)).
pub struct SequenceDrawer {
    core: Arc<Core>,
    durable_by: Mutex<Lsn>,
}

impl SequenceDrawer {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, durable_by: Mutex::default() }
    }

    /// Takes the next value. No value is returned twice, and a rollback does not return it. The caller holds
    /// no latch.
    pub fn next_value(&self, def: &SequenceDef) -> Result<i64> {
        self.with(def, |range, core| next_value(range, core, def))
    }

    /// Does what `setval` does. A rollback does not undo it. The caller holds no latch.
    pub fn set_value(&self, def: &SequenceDef, value: i64, called: bool) -> Result<()> {
        self.with(def, |range, core| set_value(range, core, def, LastValue { value, is_called: called }))
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
