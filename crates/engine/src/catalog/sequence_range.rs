//! The reserved values of a sequence that have not been returned yet, and the arithmetic of its definition.
//!
//! This module does not know how values are reserved (`sequence.rs`).

use varve_pager::Lsn;

use super::defs::SequenceDef;

/// The number of values that are reserved together, as in PostgreSQL: one to return now, and 32 more.
const BLOCK_LEN: u64 = 33;

/// The row of a sequence in the system table `sequences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSequence {
    /// The first value that is not reserved.
    pub(crate) next: i64,
    /// Whether there is no further value.
    pub(crate) is_ended: bool,
}

impl StoredSequence {
    /// Returns the row if the next value is `next`. `None` means that there is no further value.
    pub(crate) fn next_or_end(def: &SequenceDef, next: Option<i64>) -> Self {
        Self { next: next.unwrap_or_else(|| first_of(def)), is_ended: next.is_none() && !def.cycle }
    }
}

/// The value that `nextval` gave or `setval` set last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastValue {
    /// The value.
    pub(crate) value: i64,
    /// Whether the value was returned. The next value then comes after it.
    pub(crate) is_called: bool,
}

/// The reserved values of a sequence.
#[derive(Debug, Default)]
pub(crate) struct SequenceRange {
    next: i64,
    left: u64,
    /// The LSN up to which the log must be durable before a value may be returned.
    reserved_at: Lsn,
    /// The last value since the start of the server.
    last: Option<LastValue>,
}

impl SequenceRange {
    /// Returns the next reserved value, or `None` if none is left.
    pub(crate) fn take(&mut self, def: &SequenceDef) -> Option<i64> {
        self.left = self.left.checked_sub(1)?;
        let value = self.next;
        self.next = value.wrapping_add(def.increment);
        self.last = Some(LastValue { value, is_called: true });
        Some(value)
    }

    /// Takes the values of a block. Their reservation is durable when the log is durable up to `reserved_at`.
    pub(crate) fn fill(&mut self, block: Block, reserved_at: Lsn) {
        (self.next, self.left, self.reserved_at) = (block.first, block.count, reserved_at);
    }

    /// Gives up all reserved values. Returns the first of them, if there are any.
    pub(crate) fn empty(&mut self) -> Option<i64> {
        (std::mem::take(&mut self.left) > 0).then_some(self.next)
    }

    /// Sets the last value, as `setval` does. The new value is durable when the log is durable up to
    /// `set_at`.
    pub(crate) fn set(&mut self, last: LastValue, set_at: Lsn) {
        (self.left, self.reserved_at, self.last) = (0, set_at, Some(last));
    }

    /// Continues after `last`, the last value of the sequence that this one replaces.
    pub(crate) fn continue_after(&mut self, last: LastValue) {
        self.last = Some(last);
    }

    /// Returns the number of reserved values that are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the value that was last returned or set since the start of the server.
    pub(crate) fn last(&self) -> Option<LastValue> {
        self.last
    }

    /// Returns the LSN up to which the log must be durable before the last value or `set` may be
    /// acknowledged.
    pub(crate) fn reserved_at(&self) -> Lsn {
        self.reserved_at
    }
}

/// Returns the row of a sequence whose last value is `last`.
pub(crate) fn after(def: &SequenceDef, last: LastValue) -> StoredSequence {
    let next = if last.is_called { step(def, last.value) } else { Some(last.value) };
    StoredSequence::next_or_end(def, next)
}

/// Returns the last value before the end.
pub(crate) fn last_of(def: &SequenceDef) -> i64 {
    let end = if def.increment > 0 { def.max } else { def.min };
    let beyond = (i128::from(end) - i128::from(def.start)) % i128::from(def.increment);
    i64::try_from(i128::from(end) - beyond).unwrap_or(end)
}

/// Returns the value after `value`, or `None` at the end.
pub(crate) fn step(def: &SequenceDef, value: i64) -> Option<i64> {
    value.checked_add(def.increment).filter(|next| (def.min..=def.max).contains(next))
}

fn first_of(def: &SequenceDef) -> i64 {
    if def.increment > 0 { def.min } else { def.max }
}

/// Values that are reserved at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The first one.
    pub(crate) first: i64,
    /// The number of values.
    pub(crate) count: u64,
    /// The value after the block; `None` if the block has the last one.
    pub(crate) next: Option<i64>,
}

impl Block {
    /// Returns the block that begins with `first`.
    pub(crate) fn at(def: &SequenceDef, first: i64) -> Self {
        let mut next = step(def, first);
        let mut count = 1;
        while let (Some(inside), true) = (next, count < BLOCK_LEN) {
            next = step(def, inside);
            count += 1;
        }
        Self { first, count, next }
    }
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
        let block = |first, count, next| Block { first, count, next };
        assert_eq!(Block::at(&def(1, 1, i64::MAX), 1), block(1, 33, Some(34)));
        assert_eq!(Block::at(&def(1, 1, 3), 2), block(2, 2, None));
        assert_eq!(Block::at(&def(-5, -12, 0), 0), block(0, 3, None));
        assert_eq!(Block::at(&def(1, 1, i64::MAX), i64::MAX), block(i64::MAX, 1, None));
    }
}
