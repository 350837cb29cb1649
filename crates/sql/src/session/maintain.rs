//! Runs VACUUM and ANALYZE.
//!
//! Invariants
//! 1. VACUUM changes nothing, because purge runs by itself. VACUUM FULL copies each table into a new tree, in
//!    a transaction of its own. The new tree has no gaps and uses the table's current storage options.
//!    ANALYZE counts rows, and the counts are kept until the database is closed.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ast;
use crate::names::{fold, object_name, undefined_table};
use varve_engine::{Error as EngineError, Isolation, LockMode, ScanSpec, TableDef, Transaction};

use super::Session;
use super::command::not_in_block;
use crate::error::{Result, SqlError, SqlState};
use crate::rights::{Holder, Kind, Object};
use crate::system;
use crate::utility::maintain::Maintain;

/// The number of rows between two checks whether the statement is cancelled.
const ROWS_BETWEEN_LOOKS: u64 = 4096;

impl Session {
    /// Runs VACUUM and ANALYZE.
    pub(super) fn maintain(&mut self, command: &Maintain) -> Result<&'static str> {
        let (tag, verb) = if command.is_vacuum { ("VACUUM", "vacuum") } else { ("ANALYZE", "analyze") };
        if command.is_vacuum {
            self.forbid_block(tag)?;
        }
        if command.rewrites && self.txn.as_ref().is_some_and(Transaction::has_begun) {
            // Earlier statements in the same text may have locked the table.
            return Err(not_in_block("VACUUM"));
        }
        let catalog = self.current_catalog();
        let holder = Holder::of(&catalog, self.facts.who);
        let owns = |t: &TableDef| holder.owns(&catalog, &Object::new(t.id, Kind::Table, &t.name));
        let mut tables: Vec<Arc<TableDef>> = Vec::new();
        for (name, columns) in &command.tables {
            let Some(table) = self.maintained(name, columns, verb)? else { continue };
            if owns(&table) {
                tables.push(table);
            } else {
                let message =
                    format!("skipping \"{}\" --- only table or database owner can {verb} it", table.name);
                self.warn(SqlState::WARNING, &message);
            }
        }
        if command.tables.is_empty() {
            tables = catalog.tables().filter(|t| owns(t)).cloned().collect();
        }
        if command.rewrites {
            tables = self.rewritten(&tables)?;
        }
        if command.analyzes {
            tables.iter().try_for_each(|table| self.analyze(table))?;
        }
        Ok(tag)
    }

    /// Finds the table of this name. Returns `None` for a relation without rows to count. Then there is a
    /// warning if PostgreSQL has one.
    fn maintained(
        &mut self,
        name: &ast::ObjectName,
        columns: &[ast::Ident],
        verb: &str,
    ) -> Result<Option<Arc<TableDef>>> {
        let (schema, last) = object_name(name)?;
        let catalog = self.current_catalog();
        if let Some(table) = catalog.table(&schema, &last) {
            if let Some(missing) = columns.iter().map(fold).find(|c| table.column(c).is_none()) {
                let message = format!("column \"{missing}\" of relation \"{last}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
            }
            return Ok(Some(table));
        }
        let is_system =
            system::table(&schema, &last).or_else(|| system::table("pg_catalog", &last)).is_some();
        if catalog.part(&schema, &last).is_some() || is_system {
            return Ok(None);
        }
        if catalog.resolve(&schema, &last).is_none() {
            return Err(undefined_table(name));
        }
        let message = format!("skipping \"{last}\" --- cannot {verb} non-tables or special system tables");
        self.warn(SqlState::WARNING, &message);
        Ok(None)
    }

    /// Rewrites tables. Returns the tables that still exist afterwards.
    fn rewritten(&mut self, tables: &[Arc<TableDef>]) -> Result<Vec<Arc<TableDef>>> {
        let mut made = Vec::with_capacity(tables.len());
        for table in tables {
            self.facts.check_cancel()?;
            let mut txn = self.shared.engine.begin_in(self.facts.database_id, Isolation::ReadCommitted);
            txn.set_cancel(Some(self.facts.cancel.clone()));
            txn.set_session(&self.locks);
            if self.defaults.lock_timeout.is_some() {
                txn.set_lock_timeout(self.defaults.lock_timeout);
            }
            txn.start_statement();
            match txn.rewrite(table.id) {
                Ok(def) => {
                    txn.commit()?;
                    made.push(def);
                }
                Err(EngineError::StaleDefinition { .. }) => txn.rollback()?,
                Err(error) => {
                    // The first error is reported, and an error of the rollback is not.
                    let _ = txn.rollback();
                    return Err(error.into());
                }
            }
        }
        self.catalog = None;
        Ok(made)
    }

    /// Counts the rows of a table. Skips a table that was altered meanwhile.
    fn analyze(&mut self, table: &Arc<TableDef>) -> Result<()> {
        self.begin_engine();
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        txn.start_statement();
        let Ok(open) = txn.table_for(table, LockMode::AccessShare) else { return Ok(()) };
        let mut rows = 0_u64;
        let facts = &self.facts;
        let mut cancelled = Ok(());
        txn.constraint_reader().scan(&open, &ScanSpec::ALL, &mut |_, _| {
            rows += 1;
            if rows.is_multiple_of(ROWS_BETWEEN_LOOKS) {
                cancelled = facts.check_cancel();
            }
            Ok(if cancelled.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        cancelled?;
        self.shared.watched.counted(table.id, rows);
        Ok(())
    }
}
