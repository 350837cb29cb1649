//! Executes CREATE SEQUENCE and ALTER SEQUENCE.
//!
//! Invariants
//! 1. A sequence that a column owns is in the schema of the column's table, and has the same owner.
//! 2. Defaults name sequences as text. If a sequence is renamed, the text is changed, too.
//!
//! This module does not know how options are resolved (`bind::sequence`).

use std::sync::Arc;

use varve_engine::{Catalog, SequenceDef, TableDef, TableId, Transaction};

use super::Facts;
use super::notice::{Notices, Result, notice};
use crate::ast::{OwnedBy, SequenceAction, SequenceOptions};
use crate::bind::sequence::{changed, refuse_beyond, sequence_of};
use crate::error::{SqlError, SqlState};
use crate::names::{cannot_create, no_schema, split_name};
use crate::nextval::{drawing_from_another, draws_from, sequence_text};
use crate::system::names::quoted;

/// Runs statements about sequences.
pub(super) struct SequenceDdl<'x> {
    pub txn: &'x mut Transaction,
    pub facts: &'x Facts,
    pub notices: &'x mut Notices,
}

impl SequenceDdl<'_> {
    /// Runs CREATE SEQUENCE.
    pub(super) fn create(
        &mut self,
        (schema, name): (String, String),
        options: &SequenceOptions,
        if_not_exists: bool,
    ) -> Result<&'static str> {
        let catalog = self.txn.catalog();
        if catalog.resolve(&schema, &name).is_some() {
            let message = format!("relation \"{name}\" already exists");
            if if_not_exists {
                notice(self.notices, SqlState::DUPLICATE_TABLE.0, format!("{message}, skipping"));
                return Ok("CREATE SEQUENCE");
            }
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
        }
        if !catalog.has_schema(&schema) {
            return Err(cannot_create(&schema, &name).into());
        }
        let mut new = sequence_of(schema, name, options)?;
        if let Some(restart) = options.restart {
            refuse_beyond("RESTART", restart.unwrap_or(new.start), &new)?;
        }
        let restart = options.restart.flatten();
        new.owned_by = self.owner(&catalog, &new.schema, None, options)?;
        let made = self.txn.create_sequence(new)?;
        if let Some(value) = restart {
            self.txn.set_value(made.id, value, false)?;
        }
        Ok("CREATE SEQUENCE")
    }

    /// Runs ALTER SEQUENCE.
    pub(super) fn alter(
        &mut self,
        (schema, name): (String, String),
        if_exists: bool,
        action: &SequenceAction,
    ) -> Result<&'static str> {
        let catalog = self.txn.catalog();
        let Some(sequence) = catalog.sequence(&schema, &name) else {
            if catalog.resolve(&schema, &name).is_some() {
                let message = format!("\"{name}\" is not a sequence");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
            }
            let message = format!("relation \"{name}\" does not exist");
            if if_exists {
                notice(self.notices, "00000", format!("{message}, skipping"));
                return Ok("ALTER SEQUENCE");
            }
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into());
        };
        match action {
            SequenceAction::SetOptions(options) => self.set_options(&catalog, &sequence, options)?,
            SequenceAction::Rename(name) => self.move_to(&catalog, &sequence, &sequence.schema, name)?,
            SequenceAction::SetSchema(schema) => self.set_schema(&catalog, &sequence, schema)?,
        }
        Ok("ALTER SEQUENCE")
    }

    fn set_options(
        &mut self,
        catalog: &Catalog,
        sequence: &SequenceDef,
        options: &SequenceOptions,
    ) -> Result<()> {
        let (mut new, restart) = changed(sequence, options)?;
        new.owned_by = self.owner(catalog, &sequence.schema, Some(sequence), options)?;
        let only_owner = SequenceOptions { owned_by: options.owned_by.clone(), ..SequenceOptions::default() };
        if *options == only_owner {
            self.txn.move_sequence(sequence.id, &sequence.schema, &sequence.name, new.owned_by)?;
            return Ok(());
        }
        if restart.is_none() {
            let now = self.txn.sequence_state(sequence.id)?;
            refuse_beyond("RESTART", now.last_value, &new)?;
        }
        self.txn.alter_sequence(sequence.id, new, restart)?;
        Ok(())
    }

    /// Returns the column that owns the sequence after the statement.
    fn owner(
        &self,
        catalog: &Catalog,
        schema: &str,
        old: Option<&SequenceDef>,
        options: &SequenceOptions,
    ) -> Result<Option<(TableId, usize)>> {
        let owned_now = old.and_then(|old| old.owned_by);
        let Some(wanted) = &options.owned_by else { return Ok(owned_now) };
        if let (Some(old), Some(table)) = (old, identity_table(catalog, owned_now)) {
            let message = "cannot change ownership of identity sequence";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail(format!("Sequence \"{}\" is linked to table \"{}\".", old.name, table.name))
                .into());
        }
        let OwnedBy::Column(names, column) = wanted else { return Ok(None) };
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        let (table_schema, table) = self.facts.path.find_text(catalog, &names.join("."));
        let Some(table) = catalog.table(&table_schema, &table) else {
            if catalog.resolve(&table_schema, &table).is_some() {
                let message = format!("sequence cannot be owned by relation \"{table}\"");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
            }
            let message = format!("relation \"{table}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into());
        };
        let owner_of_sequence = match old {
            Some(old) => catalog.owner(old.id),
            None => self.facts.who.unwrap_or(varve_engine::BOOTSTRAP_ROLE),
        };
        let linked = |message: &str| Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, message).into());
        if catalog.owner(table.id) != owner_of_sequence {
            return linked("sequence must have same owner as table it is linked to");
        }
        if table.schema != schema {
            return linked("sequence must be in same schema as table it is linked to");
        }
        match table.column(column) {
            Some(ordinal) => Ok(Some((table.id, ordinal))),
            None => {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into())
            }
        }
    }

    fn set_schema(&mut self, catalog: &Catalog, sequence: &SequenceDef, schema: &str) -> Result<()> {
        if let Some(table) = sequence.owned_by.and_then(|(table, _)| catalog.table_by_id(table)) {
            let message = "cannot move an owned sequence into another schema";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail(format!("Sequence \"{}\" is linked to table \"{}\".", sequence.name, table.name))
                .into());
        }
        if !catalog.has_schema(schema) {
            return Err(no_schema(schema).into());
        }
        if schema == sequence.schema {
            return Ok(());
        }
        self.move_to(catalog, sequence, schema, &sequence.name)
    }

    /// Gives a sequence another schema and name, and changes the text of the defaults that use it.
    pub(super) fn move_to(
        &mut self,
        catalog: &Catalog,
        sequence: &SequenceDef,
        schema: &str,
        name: &str,
    ) -> Result<()> {
        if catalog.resolve(schema, name).is_some() {
            let at =
                if schema == sequence.schema { String::new() } else { format!(" in schema \"{schema}\"") };
            let message = format!("relation \"{name}\" already exists{at}");
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into());
        }
        self.txn.move_sequence(sequence.id, schema, name, sequence.owned_by)?;
        for (table, ordinal) in columns_drawing(catalog, sequence) {
            let column = &table.columns[ordinal];
            let Some(default) = &column.default else { continue };
            let old = (sequence.schema.clone(), sequence.name.clone());
            let is_it = |written: &str| split_name(written) == old;
            let renamed = drawing_from_another(default, is_it, &sequence_text(schema, name));
            self.txn.alter_column(table.id, ordinal, Some(renamed), column.not_null)?;
        }
        Ok(())
    }
}

/// Returns the columns whose defaults use a sequence.
fn columns_drawing(catalog: &Catalog, sequence: &SequenceDef) -> Vec<(Arc<TableDef>, usize)> {
    let draws = |default: &Option<String>| default.as_deref().is_some_and(|text| draws_from(text, sequence));
    let of_table = |table: &Arc<TableDef>| {
        let ordinals = 0..table.columns.len();
        let drawing = ordinals.filter(|ordinal| draws(&table.columns[*ordinal].default));
        drawing.map(|ordinal| (Arc::clone(table), ordinal)).collect::<Vec<_>>()
    };
    catalog.tables().flat_map(of_table).collect()
}

/// Returns the table of the owning column, if this column is an identity column.
fn identity_table(catalog: &Catalog, owned_by: Option<(TableId, usize)>) -> Option<Arc<TableDef>> {
    let (table, ordinal) = owned_by?;
    let table = catalog.table_by_id(table)?;
    table.columns.get(ordinal).is_some_and(|column| column.identity.is_some()).then_some(table)
}
