//! Binds ON CONFLICT.
//!
//! Invariants
//! 1. DO UPDATE reads one row with two parts: the columns of the existing row, then the columns of the row to
//!    insert (`excluded`).
//!
//! This module does not know how a conflict is found and handled (`exec::upsert`).

use varve_engine::TableDef;

use super::Binder;
use super::answers::Answers;
use super::foreign::same_columns;
use super::scope::{Relation, Scope};
use crate::ast::{self, ConflictTarget};
use crate::error::{Result, SqlError, SqlState};
use crate::names::object_name;
use crate::plan::{Arbiter, OnConflict, Upsert};

impl Binder<'_> {
    /// Binds ON CONFLICT. `relation` is the table with its name in the statement.
    pub(super) fn on_conflict(
        &mut self,
        on: Option<&ast::OnConflict>,
        table: &TableDef,
        relation: &Relation,
        answers: &mut Answers,
    ) -> Result<OnConflict> {
        let Some(conflict) = on else { return Ok(OnConflict::Fail) };
        let arbiter = match &conflict.target {
            None => None,
            Some(target) => Some(self.arbiter(target, table)?),
        };
        match (&conflict.update, arbiter) {
            (None, arbiter) => Ok(OnConflict::Nothing(arbiter)),
            (Some(update), Some(arbiter)) => self
                .upsert(update, arbiter, table, relation, answers)
                .map(|u| OnConflict::Update(Box::new(u))),
            (Some(_), None) => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                    .with_hint("For example, ON CONFLICT (column_name)."))
            }
        }
    }

    fn upsert(
        &mut self,
        update: &ast::DoUpdate,
        arbiter: Arbiter,
        table: &TableDef,
        relation: &Relation,
        answers: &mut Answers,
    ) -> Result<Upsert> {
        let excluded = Relation {
            alias: "excluded".to_owned(),
            hidden: None,
            first: relation.columns.len(),
            key: Vec::new(),
            ..relation.clone()
        };
        let mut scope = Scope { relations: vec![relation.clone(), excluded], ..Scope::default() };
        let mut assignments = self.assignments(table, &update.assignments, &mut scope)?;
        let assigned: Vec<usize> = assignments.iter().map(|(ordinal, _)| *ordinal).collect();
        let mut filter = crate::access::joined(self.filter(update.selection.as_ref(), &mut scope)?);
        let rules = self.rules_of_update(table, &assigned)?;
        let width = table.columns.len();
        let proposed = |n: usize| n.checked_sub(width);
        for e in assignments.iter_mut().map(|(_, e)| e).chain(&mut filter) {
            let what = "a subquery in ON CONFLICT DO UPDATE that reads the row that is there";
            answers.take(e, 2 * width, &proposed, what)?;
        }
        Ok(Upsert { arbiter, rules, assignments: assignments.into(), filter })
    }

    fn arbiter(&mut self, target: &ConflictTarget, table: &TableDef) -> Result<Arbiter> {
        match target {
            ConflictTarget::OnConstraint(name) => {
                let (_, name) = object_name(name)?;
                let primary = table.primary_key.iter().map(|k| (&k.name, &k.columns));
                let unique = table.indexes.iter().filter(|i| i.unique && i.constraint);
                let mut keys = primary.chain(unique.map(|i| (&i.name, &i.columns)));
                let missing = || {
                    let message =
                        format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
                };
                keys.find(|(n, _)| **n == name).map(|(n, c)| arbiter(n, c)).ok_or_else(missing)
            }
            ConflictTarget::Columns(columns) => self.arbiter_of(columns, table),
        }
    }

    fn arbiter_of(&mut self, columns: &[ast::Ident], table: &TableDef) -> Result<Arbiter> {
        let mut wanted = Vec::with_capacity(columns.len());
        for column in columns {
            wanted.push(self.column_of(table, &column.clone().into())?);
        }
        // PostgreSQL allows a column to be named twice.
        wanted.sort_unstable();
        wanted.dedup();
        if let Some(key) = table.primary_key.as_ref().filter(|k| same_columns(&k.columns, &wanted)) {
            return Ok(arbiter(&key.name, &key.columns));
        }
        if let Some(index) = table.plain_indexes().find(|i| i.unique && same_columns(&i.columns, &wanted)) {
            return Ok(arbiter(&index.name, &index.columns));
        }
        let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
        Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message))
    }
}

fn arbiter(name: &str, columns: &[usize]) -> Arbiter {
    Arbiter { constraint: name.to_owned(), key: columns.into() }
}
