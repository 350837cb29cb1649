//! Runs LOCK TABLE.
//!
//! Invariants
//! 1. LOCK TABLE takes no snapshot. The transaction's first query takes the snapshot, after the lock was
//!    granted. So this query sees the changes of the transaction that held the lock before.
//!
//! This module does not know rows.

use std::time::Duration;

use crate::ast;
use crate::names::{object_name, undefined_table};
use varve_engine::{Error as EngineError, LockMode, Named, Rights, TableDef};

use super::Session;
use crate::error::{Result, SqlError, SqlState};
use crate::utility::lock::LockTable;

impl Session {
    /// Runs LOCK TABLE. `in_text` says that this is one of several statements in a text. Such statements
    /// count as a block here.
    pub(super) fn lock_tables(&mut self, lock: &LockTable, in_text: bool) -> Result<&'static str> {
        if !in_text {
            self.require_block("LOCK TABLE")?;
        }
        let timeout = self.facts.lock_timeout;
        for name in &lock.tables {
            if lock.at_once {
                self.begin_engine().set_lock_timeout(Some(Duration::ZERO));
            }
            let locked = self.lock_table(name, lock);
            self.begin_engine().set_lock_timeout(timeout);
            locked?;
        }
        self.catalog = None;
        Ok("LOCK TABLE")
    }

    /// Locks the table of a name. If the table is replaced while this waits, the new table is locked.
    fn lock_table(&mut self, name: &ast::ObjectName, lock: &LockTable) -> Result<()> {
        loop {
            self.facts.check_cancel()?;
            let table = self.lockable(name)?;
            self.authorize_any(&table, rights_for(lock.mode))?;
            let txn = self.begin_engine();
            let locked = match lock.mode <= LockMode::RowExclusive {
                true => txn.table_for(&table, lock.mode).map(|_| ()),
                false => txn.lock_table(table.id, lock.mode),
            };
            return match locked {
                Ok(()) => Ok(()),
                Err(EngineError::StaleDefinition { .. }) => continue,
                Err(EngineError::LockTimeout | EngineError::Deadlock) if lock.at_once => {
                    let message = format!("could not obtain lock on relation \"{}\"", table.name);
                    Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message))
                }
                Err(e) => Err(e.into()),
            };
        }
    }

    fn lockable(&mut self, name: &ast::ObjectName) -> Result<std::sync::Arc<TableDef>> {
        let (schema, last) = object_name(name)?;
        let catalog = self.begin_engine().catalog();
        let found = match catalog.resolve(&schema, &last) {
            Some(Named::Table(id) | Named::Part(id, _)) => catalog.table_by_id(id),
            Some(Named::View(_)) => return Err(SqlError::unsupported("LOCK TABLE of a view")),
            Some(named) => {
                let what = if matches!(named, Named::Sequence(_)) { "sequences" } else { "indexes" };
                let message = format!("cannot lock relation \"{last}\"");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                    .with_detail(format!("This operation is not supported for {what}.")));
            }
            None => None,
        };
        found.ok_or_else(|| undefined_table(name))
    }
}

/// Returns the rights of which a role needs one to lock a table in this mode, as in PostgreSQL 15.
fn rights_for(mode: LockMode) -> &'static [Rights] {
    match mode {
        LockMode::AccessShare => &[Rights::SELECT],
        LockMode::RowExclusive => &[Rights::INSERT, Rights::UPDATE, Rights::DELETE, Rights::TRUNCATE],
        _ => &[Rights::UPDATE, Rights::DELETE, Rights::TRUNCATE],
    }
}
