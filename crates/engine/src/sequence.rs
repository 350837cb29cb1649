//! Sequences: blocks of values reserved in the system table, given out from memory.
//!
//! Invariants
//! 1. A value is given out only after the change that reserved it is in the log, and a commit of the transaction that
//!    took it (even one that wrote nothing else) is acknowledged only once that change is durable. A crash loses at most
//!    a block of values, never gives one twice.
//! 2. Nothing here is rolled back.
//! 3. A clean shutdown gives back what is in store, so it leaves no gap.
//!
//! Does not know: who may use a sequence.

use varve_device::planted;
use varve_pager::Lsn;

use crate::catalog::{SequenceDef, SequenceId, store};
use crate::core::Core;
use crate::error::{Error, ObjectKind, Result};

/// Values reserved at once, as in PostgreSQL.
const BLOCK_LEN: u64 = 32;

/// Values in store.
#[derive(Debug, Default)]
pub(crate) struct SequenceRange {
    next: i64,
    left: u64,
    /// Where the log has to be durable before a value may count as given.
    reserved_at: Lsn,
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
        Ok(value)
    }

    fn refill(&mut self, core: &Core, def: &SequenceDef) -> Result<()> {
        let reserved = store::advance_sequence(core, def.id.0, |value, ended| {
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
    pub(crate) fn give_back(&mut self, core: &Core, sequence: SequenceId) -> Result<()> {
        if std::mem::take(&mut self.left) > 0 {
            // A sequence that was dropped has no values any more.
            store::advance_sequence(core, sequence.0, |_, _| Ok(((), self.next, false)))?;
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
        let next = if called { step(def, value) } else { Some(value) };
        let ended = next.is_none() && !def.cycle;
        let edit = |_, _| Ok(((), next.unwrap_or_else(|| first_of(def)), ended));
        let missing = || Error::Undefined { kind: ObjectKind::Sequence, name: def.name.clone() };
        ((), self.reserved_at) = store::advance_sequence(core, def.id.0, edit)?.ok_or_else(missing)?;
        self.left = 0;
        Ok(())
    }
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

    fn def(increment: i64, min: i64, max: i64) -> SequenceDef {
        let (schema, name) = ("public".to_owned(), "s".to_owned());
        let (start, cycle, owned_by) = (min, false, None);
        SequenceDef { id: SequenceId(1), schema, name, start, increment, min, max, cycle, owned_by }
    }

    #[test]
    fn blocks_stop_at_the_bounds() {
        assert_eq!(reserve(&def(1, 1, i64::MAX), 1), (32, Some(33)));
        assert_eq!(reserve(&def(1, 1, 3), 2), (2, None));
        assert_eq!(reserve(&def(-5, -12, 0), 0), (3, None));
        assert_eq!(reserve(&def(1, 1, i64::MAX), i64::MAX), (1, None));
    }
}
