//! How many pages a database and each of its trees occupy.
//!
//! Invariants
//! 1. The rows of a table, its long values and its primary key are one tree. Each other index is one tree.
//!
//! Free space inside these pages is not measured.

use std::collections::{BTreeMap, HashMap};

use varve_pager::{Compression, Pager, SpaceId, StoredPages};

use crate::catalog::{IndexDef, TableDef};
use crate::error::Result;

/// The pages that were in use at one moment.
#[derive(Clone, Debug)]
pub struct Sizes {
    page_bytes: u64,
    pages: u64,
    by_owner: BTreeMap<u32, u64>,
    /// The bytes in the data file by owner, if the layout counts them.
    home: Option<BTreeMap<u32, u64>>,
    /// For each owner whose pages are compressed: the pages that were written since the start.
    written: HashMap<u32, StoredPages>,
}

impl Sizes {
    pub(crate) fn read(pager: &Pager) -> Result<Sizes> {
        let stats = pager.stats();
        let pages = stats.data_pages + stats.rollback_pages;
        let mut by_owner = BTreeMap::new();
        for space in pager.spaces_of_tables() {
            by_owner.extend(pager.owners(space)?);
        }
        let home = pager.home_bytes(SpaceId::DATA)?;
        let written = pager.stored_pages(SpaceId::DATA);
        Ok(Sizes { page_bytes: pager.page_size() as u64, pages, by_owner, home, written })
    }

    /// Returns the stored size of an owner's pages. If the layout counts it, it is exact. Otherwise it is
    /// estimated: the plain size, multiplied by the compression ratio of the pages that were written since
    /// the start. Pages that are only in memory count with the ratio of the same owner.
    fn stored(&self, owner: u32) -> u64 {
        let plain = self.of_owner(owner);
        let home = self.home.as_ref().and_then(|home| home.get(&owner)).copied().filter(|bytes| *bytes > 0);
        match (home, self.written.get(&owner).filter(|written| written.plain_bytes > 0)) {
            (Some(bytes), _) => bytes,
            (None, Some(written)) => {
                let share = u128::from(plain) * u128::from(written.stored_bytes);
                u64::try_from(share / u128::from(written.plain_bytes)).unwrap_or(plain)
            }
            (None, None) => plain,
        }
    }

    fn of_owner(&self, owner: u32) -> u64 {
        self.by_owner.get(&owner).map_or(0, |pages| pages * self.page_bytes)
    }

    /// Returns the stored size of a table's rows, without its secondary indexes.
    pub fn table_bytes(&self, table: &TableDef) -> u64 {
        self.stored(table.place.owner)
    }

    /// Returns the stored size of a secondary index.
    pub fn index_bytes(&self, index: &IndexDef) -> u64 {
        self.stored(index.place.owner)
    }

    /// Returns the size of a table with its indexes in plain pages.
    pub fn whole_table_bytes(&self, table: &TableDef) -> u64 {
        table.owners().map(|owner| self.of_owner(owner)).sum()
    }

    /// Returns the size of the database: rows, indexes, catalog, and old versions that a transaction may
    /// still need.
    pub fn database_bytes(&self) -> u64 {
        self.pages * self.page_bytes
    }
}

/// How tables are stored with their indexes, and how much space this saves.
#[derive(Clone, Debug)]
pub struct Savings {
    default: Compression,
    home_bytes: Option<BTreeMap<u32, u64>>,
    written: HashMap<u32, StoredPages>,
}

impl Savings {
    pub(crate) fn read(pager: &Pager) -> Result<Savings> {
        let home_bytes = pager.home_bytes(SpaceId::DATA)?;
        let written = pager.stored_pages(SpaceId::DATA);
        Ok(Savings { default: pager.default_compression(), home_bytes, written })
    }

    /// Returns how the table's pages are stored when they are written.
    pub fn compression(&self, table: &TableDef) -> Compression {
        table.storage.compression.unwrap_or(self.default)
    }

    /// Returns the number of bytes that the table's pages take in the data file. `None` means that each page
    /// has a fixed position and its full length.
    pub fn home_bytes(&self, table: &TableDef) -> Option<u64> {
        // In a tablespace pages are in place.
        let by_owner = self.home_bytes.as_ref().filter(|_| table.storage.tablespace.is_none())?;
        Some(table.owners().filter_map(|owner| by_owner.get(&owner)).sum())
    }

    /// Returns the table's pages that were written with compression since the database was opened.
    pub fn written(&self, table: &TableDef) -> StoredPages {
        let mut sum = StoredPages::default();
        for one in table.owners().filter_map(|owner| self.written.get(&owner)) {
            sum.pages += one.pages;
            sum.plain_bytes += one.plain_bytes;
            sum.stored_bytes += one.stored_bytes;
        }
        sum
    }
}
