//! How much room a database takes, and each of its trees.
//!
//! Invariants
//! 1. A table's rows, those long values included that lie outside of them, and its primary key are one tree; each other
//!    index is one.
//!
//! Does not know: what in those pages is free.

use std::collections::BTreeMap;

use varve_pager::{Pager, SpaceId};

use crate::catalog::{IndexDef, TableDef};
use crate::error::Result;

/// What was in use at one moment, in bytes of whole pages.
#[derive(Clone, Debug)]
pub struct Sizes {
    page_bytes: u64,
    pages: u64,
    by_owner: BTreeMap<u32, u64>,
}

impl Sizes {
    pub(crate) fn read(pager: &Pager) -> Result<Sizes> {
        let stats = pager.stats();
        let pages = stats.data_pages + stats.rollback_pages;
        let by_owner = pager.owners(SpaceId::DATA)?;
        Ok(Sizes { page_bytes: pager.page_size() as u64, pages, by_owner })
    }

    fn of_owner(&self, owner: u32) -> u64 {
        self.by_owner.get(&owner).map_or(0, |pages| pages * self.page_bytes)
    }

    /// Of a table's rows, without its secondary indexes.
    pub fn table_bytes(&self, table: &TableDef) -> u64 {
        self.of_owner(table.place.owner)
    }

    /// Of a secondary index.
    pub fn index_bytes(&self, index: &IndexDef) -> u64 {
        self.of_owner(index.place.owner)
    }

    /// Of the database: rows, indexes, catalog, and old versions for as long as somebody may need them.
    pub fn database_bytes(&self) -> u64 {
        self.pages * self.page_bytes
    }
}
