//! Tablespaces: further spaces for tables and indexes, each in a directory of its own (decision 0212).
//!
//! Invariants
//! 1. A tablespace is made and dropped outside of transactions. The change is durable when the call returns.
//! 2. Only a tablespace without tables and indexes is dropped.
//!
//! This module does not know names of SQL, or which roles may make tablespaces.

use varve_device::reached;
use varve_pager::{BadLocation, NewTablespace, PagerError, SpaceId, Tablespace};

use crate::catalog::TableDef;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::purge;
use crate::transaction::Transaction;

impl Database {
    /// Returns all tablespaces.
    pub fn tablespaces(&self) -> Vec<Tablespace> {
        self.pager().tablespaces()
    }

    /// The tablespace with this name.
    pub fn tablespace_named(&self, name: &str) -> Option<Tablespace> {
        self.pager().tablespace_named(name)
    }

    /// The tablespace with this number.
    pub fn tablespace(&self, id: SpaceId) -> Option<Tablespace> {
        self.pager().tablespace(id)
    }

    /// Makes a tablespace.
    pub fn create_tablespace(&self, new: &NewTablespace) -> Result<SpaceId> {
        let made = self.pager().create_tablespace(new).map_err(|error| match error {
            PagerError::BadLocation(BadLocation { flaw, what }) => {
                Error::BadTablespace { flaw: Some(flaw), what }
            }
            PagerError::Incompatible { what } => Error::BadTablespace { flaw: None, what },
            other => other.into(),
        });
        self.count_tablespaces();
        made
    }

    /// Changes the name and the note of a tablespace.
    pub fn change_tablespace(&self, id: SpaceId, name: &str, note: &[u8]) -> Result<()> {
        Ok(self.pager().change_tablespace(id, name, note)?)
    }

    /// Drops a tablespace. Returns false if it has tables or indexes, or if older snapshots need tables or
    /// indexes that were dropped from it.
    pub fn drop_tablespace(&self, id: SpaceId) -> Result<bool> {
        let names_it = |def: &TableDef| {
            def.storage.tablespace == Some(id)
                || def.indexes.iter().any(|index| index.tablespace() == Some(id))
        };
        if self.core().catalog.current().all_tables().any(|def| names_it(def)) {
            return Ok(false);
        }
        if self.pager().drop_tablespace(id)? {
            return Ok(true);
        }
        // Pages of tables that were dropped may wait for purge.
        reached("tablespace: purge before a drop");
        purge::purge(self.core())?;
        Ok(self.pager().drop_tablespace(id)?)
    }
}

impl Transaction {
    /// The tablespace with this name.
    pub fn tablespace_named(&self, name: &str) -> Option<Tablespace> {
        self.cx.core.pager.tablespace_named(name)
    }
}
