//! The last values that a session has taken from sequences, for `currval` and `lastval`.
//!
//! Invariants
//! 1. `currval` and `lastval` return only values that this session has taken.
//!
//! This module does not know how a sequence produces values (`engine`) or which sequence a name means.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use varve_engine::{Catalog, Rights, SequenceDef, SequenceId};

use crate::error::{Result, SqlError, SqlState};
use crate::rights::{Holder, Kind, Object, Who};

/// A role needs one of these rights to read the values that it has taken.
pub const READ: &[Rights] = &[Rights::USAGE, Rights::SELECT];

/// The values that a session has taken from sequences.
#[derive(Default)]
pub struct SequenceMemory(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    values: FxHashMap<u32, i64>,
    last: Option<u32>,
}

impl SequenceMemory {
    /// Records a value that the session has taken.
    pub fn note(&self, id: SequenceId, value: i64) {
        let mut remembered = self.0.lock();
        remembered.values.insert(id.0, value);
        remembered.last = Some(id.0);
    }

    /// Removes all values (DISCARD).
    pub fn clear(&self) {
        *self.0.lock() = Remembered::default();
    }

    /// Computes currval.
    pub fn current(&self, sequence: &SequenceDef) -> Result<i64> {
        self.0.lock().values.get(&sequence.id.0).copied().ok_or_else(|| {
            let message =
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
            SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// Computes lastval.
    pub fn last(&self, catalog: &Catalog, who: Who) -> Result<i64> {
        let remembered = self.0.lock();
        let last = remembered.last.and_then(|id| Some((id, remembered.values.get(&id).copied()?)));
        let (id, value) = last.ok_or_else(|| {
            SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session")
        })?;
        let Some(sequence) = catalog.sequences().find(|s| s.id.0 == id) else { return Ok(value) };
        let object = Object::new(sequence.id, Kind::Sequence, &sequence.name);
        match Holder::of(catalog, who).may_any(catalog, &object, READ) {
            true => Ok(value),
            false => Err(object.denied()),
        }
    }
}
