//! Executes ALTER TABLE for identity columns, and creates or changes their sequences.
//!
//! This module does not know how options are resolved (`bind::sequence`).

use std::sync::Arc;

use varve_engine::{Identity, SequenceDef, TableDef};

use super::alter::Alter;
use super::notice::Result;
use crate::ast::SequenceOptions;
use crate::bind::Binder;
use crate::bind::sequence::{changed, identity, refuse_beyond};
use crate::error::{SqlError, SqlState};
use crate::nextval::draws_from;

impl Alter<'_> {
    /// Runs ADD GENERATED ... AS IDENTITY.
    pub(super) fn add_identity(
        &mut self,
        table: &TableDef,
        ordinal: usize,
        kind: Identity,
        options: &SequenceOptions,
    ) -> Result<()> {
        let mut column = table.columns[ordinal].clone();
        let refused = |what: &str| {
            let message = format!("column \"{}\" of relation \"{}\" {what}", column.name, table.name);
            Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message).into())
        };
        if !column.not_null {
            return refused("must be declared NOT NULL before identity can be added");
        }
        if column.identity.is_some() {
            return refused("is already an identity column");
        }
        if column.default.is_some() {
            return refused("already has a default value");
        }
        identity(&table.name, &mut column, kind)?;
        let catalog = self.txn.catalog();
        let binder = Binder::new(&catalog, "", &[])?;
        let mut sequence = binder.sequence_of_column(&table.schema, &table.name, &mut column, options)?;
        if catalog.resolve(&sequence.schema, &sequence.name).is_some() {
            let message = format!("relation \"{}\" already exists", sequence.name);
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
        }
        sequence.owned_by = Some((table.id, ordinal));
        self.txn.create_sequence(sequence)?;
        self.txn.set_identity(table.id, ordinal, Some(kind), column.default)?;
        Ok(())
    }

    /// Runs SET GENERATED, SET with an option of the sequence, and RESTART.
    pub(super) fn set_identity(
        &mut self,
        table: &TableDef,
        ordinal: usize,
        kind: Option<Identity>,
        options: &SequenceOptions,
    ) -> Result<()> {
        let column = &table.columns[ordinal];
        let Some(old) = column.identity else { return Err(no_identity(table, ordinal).into()) };
        if kind.is_some_and(|kind| kind != old) {
            self.txn.set_identity(table.id, ordinal, kind, column.default.clone())?;
        }
        if *options != SequenceOptions::default() {
            let sequence = self.sequence_behind(table, ordinal)?;
            let (new, restart) = changed(&sequence, options)?;
            if restart.is_none() {
                refuse_beyond("RESTART", self.txn.sequence_state(sequence.id)?.last_value, &new)?;
            }
            self.txn.alter_sequence(sequence.id, new, restart)?;
        }
        Ok(())
    }

    /// Runs DROP IDENTITY.
    pub(super) fn drop_identity(&mut self, table: &TableDef, ordinal: usize, if_exists: bool) -> Result<()> {
        if table.columns[ordinal].identity.is_none() {
            let missing = no_identity(table, ordinal);
            if if_exists {
                self.tell(format!("{}, skipping", missing.message));
                return Ok(());
            }
            return Err(missing.into());
        }
        let sequence = self.sequence_behind(table, ordinal)?;
        self.txn.set_identity(table.id, ordinal, None, None)?;
        self.txn.drop_sequence(sequence.id)?;
        Ok(())
    }

    /// Gives the sequence of an identity column the column's new type.
    pub(super) fn retype_identity(&mut self, table: &TableDef, ordinal: usize) -> Result<()> {
        let data_type = Some(table.columns[ordinal].column_type);
        self.set_identity(table, ordinal, None, &SequenceOptions { data_type, ..SequenceOptions::default() })
    }

    /// Finds the sequence of an identity column. The column may also own a sequence from the time when it was
    /// a serial column.
    fn sequence_behind(&mut self, table: &TableDef, ordinal: usize) -> Result<Arc<SequenceDef>> {
        let catalog = self.txn.catalog();
        let default = table.columns[ordinal].default.as_deref().unwrap_or_default();
        let is_its = |s: &SequenceDef| s.owned_by == Some((table.id, ordinal)) && draws_from(default, s);
        let found = catalog.sequences().find(|s| is_its(s));
        found.cloned().ok_or_else(|| SqlError::internal("an identity column without a sequence").into())
    }
}

/// Returns the error 55000: the column is not an identity column.
fn no_identity(table: &TableDef, ordinal: usize) -> SqlError {
    let name = &table.columns[ordinal].name;
    let message = format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name);
    SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message)
}
