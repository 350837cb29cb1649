//! DDL of sequences: CREATE, ALTER and DROP.
//!
//! Invariants
//! 1. The definition of a sequence changes with its transaction, like every definition. The current value is
//!    in a separate row, which ALTER SEQUENCE replaces. A rollback restores the old row, so values that the
//!    sequence has returned since the ALTER can be returned again.
//! 2. If two transactions change one sequence, the second waits for the first.
//!
//! This module does not know SQL, or the bounds of a type.

use std::sync::Arc;

use crate::catalog::sequence_range::{LastValue, StoredSequence, after};
use crate::catalog::{Definition, NewSequence, ObjectChange, ObjectId, SequenceDef, SequenceId, TableId};
use crate::ddl::invalid;
use crate::error::{Error, ObjectKind, Result};
use crate::sequence;
use crate::system_tables;
use crate::transaction::Transaction;

impl Transaction {
    /// Makes a sequence.
    pub fn create_sequence(&mut self, new: NewSequence) -> Result<Arc<SequenceDef>> {
        self.hold_schema(&new.schema)?;
        check_sequence(&new)?;
        self.whole(|txn| {
            let id = txn.new_object_id()?;
            system_tables::add_name(&mut txn.cx, ObjectKind::Sequence, &new.schema, &new.name, id)?;
            system_tables::add_sequence(
                &mut txn.cx,
                id,
                StoredSequence { next: new.start, is_ended: false },
            )?;
            txn.store_new(id, Definition::Sequence(defined(txn.cx.database, new, SequenceId(id), id)))?;
            let missing = || Error::corrupt("a new sequence is not in the catalog");
            txn.catalog().sequence_by_id(SequenceId(id)).ok_or_else(missing)
        })
    }

    /// Drops a sequence.
    pub fn drop_sequence(&mut self, sequence: SequenceId) -> Result<()> {
        let def = self.sequence_alone(sequence)?;
        self.whole(|txn| txn.remove_sequence(&def))
    }

    /// Restarts a sequence at its first value.
    pub fn restart_sequence(&mut self, sequence: SequenceId) -> Result<()> {
        let def = self.sequence_alone(sequence)?;
        self.alter_sequence(sequence, NewSequence::of(&def), Some(def.start)).map(|_| ())
    }

    /// Changes the definition of a sequence. It continues after its last value, or begins with `restart`.
    pub fn alter_sequence(
        &mut self,
        sequence: SequenceId,
        new: NewSequence,
        restart: Option<i64>,
    ) -> Result<Arc<SequenceDef>> {
        let old = self.sequence_alone(sequence)?;
        check_sequence(&new)?;
        if (&new.schema, &new.name) != (&old.schema, &old.name) {
            self.hold_schema(&new.schema)?;
        }
        // The range is locked until the old row is removed. Other transactions then find no row, and wait for
        // this one.
        let range = self.cx.core.catalog.range_of(&old);
        let mut range = range.lock();
        let now = sequence::state(&range, &self.cx.core, &old)?;
        sequence::give_back(&mut range, &self.cx.core, old.state)?;
        let now = LastValue { value: now.last_value, is_called: now.is_called };
        let last = restart.map_or(now, |value| LastValue { value, is_called: false });
        let changed = self.whole(|txn| {
            if (&new.schema, &new.name) != (&old.schema, &old.name) {
                system_tables::remove_name_of(&mut txn.cx, &old.schema, &old.name, sequence.0)?;
                system_tables::add_name(
                    &mut txn.cx,
                    ObjectKind::Sequence,
                    &new.schema,
                    &new.name,
                    sequence.0,
                )?;
            }
            let state = txn.new_object_id()?;
            let def = defined(txn.cx.database, new, sequence, state);
            let row = after(&def, last);
            system_tables::remove_sequence(&mut txn.cx, old.state)?;
            system_tables::add_sequence(&mut txn.cx, state, row)?;
            txn.cx.core.catalog.range_of(&def).lock().continue_after(last);
            txn.replace_sequence(def)?;
            let missing = || Error::corrupt("a changed sequence is not in the catalog");
            txn.catalog().sequence_by_id(sequence).ok_or_else(missing)
        });
        drop(range);
        changed
    }

    /// Changes name, schema or owning column of a sequence. Its values continue as before.
    pub fn move_sequence(
        &mut self,
        sequence: SequenceId,
        schema: &str,
        name: &str,
        owned_by: Option<(TableId, usize)>,
    ) -> Result<()> {
        let old = self.sequence_alone(sequence)?;
        let is_renamed = (schema, name) != (&*old.schema, &*old.name);
        if is_renamed {
            self.hold_schema(schema)?;
        }
        self.whole(|txn| {
            if is_renamed {
                system_tables::remove_name_of(&mut txn.cx, &old.schema, &old.name, sequence.0)?;
                system_tables::add_name(&mut txn.cx, ObjectKind::Sequence, schema, name, sequence.0)?;
            }
            let (schema, name) = (schema.to_owned(), name.to_owned());
            txn.replace_sequence(SequenceDef { schema, name, owned_by, ..SequenceDef::clone(&old) })
        })
    }

    /// Locks a sequence exclusively until the transaction ends, and returns its present definition.
    fn sequence_alone(&mut self, sequence: SequenceId) -> Result<Arc<SequenceDef>> {
        let missing = || Error::StaleDefinition { table: format!("sequence {}", sequence.0) };
        let def = self.catalog().sequence_by_id(sequence).ok_or_else(missing)?;
        self.lock_alone(&self.cx.core.catalog.lock_of_object(sequence.into()), &def.name)?;
        self.catalog().sequence_by_id(sequence).ok_or_else(missing)
    }

    pub(crate) fn replace_sequence(&mut self, def: SequenceDef) -> Result<()> {
        let id = def.id.0;
        let new = Definition::Sequence(def);
        system_tables::set_object(&mut self.cx, id, &new)?;
        let change: ObjectChange = system_tables::opened(&self.cx.core, new);
        self.note_change(change);
        Ok(())
    }

    pub(crate) fn remove_sequence(&mut self, def: &SequenceDef) -> Result<()> {
        system_tables::remove_name_of(&mut self.cx, &def.schema, &def.name, def.id.0)?;
        system_tables::remove_sequence(&mut self.cx, def.state)?;
        system_tables::remove_object(&mut self.cx, def.id.0)?;
        self.forget_about(def.id)?;
        self.note_change(ObjectChange::Sequence(def.id, None));
        Ok(())
    }
}

fn check_sequence(new: &NewSequence) -> Result<()> {
    if new.increment == 0 {
        return invalid("INCREMENT must not be zero".into());
    }
    if new.min >= new.max {
        return invalid(format!("MINVALUE ({}) must be less than MAXVALUE ({})", new.min, new.max));
    }
    match (new.min..=new.max).contains(&new.start) {
        true => Ok(()),
        false => invalid(format!("START value ({}) lies outside of its bounds", new.start)),
    }
}

fn defined(database: ObjectId, new: NewSequence, id: SequenceId, state: u32) -> SequenceDef {
    SequenceDef {
        id,
        database,
        schema: new.schema,
        name: new.name,
        start: new.start,
        increment: new.increment,
        min: new.min,
        max: new.max,
        cycle: new.cycle,
        owned_by: new.owned_by,
        data_type: new.data_type,
        cache: new.cache,
        state,
    }
}
