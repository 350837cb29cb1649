//! The region with the tables of the memory-oriented engines, as a part of an open database (decision 0117).
//!
//! The file of the region is opened when the catalog is known, because only the catalog says whether the file
//! is needed. Stores of tables are opened before that. They take the region from the core with their first
//! operation.
//!
//! Invariants
//! 1. A database with such tables does not open without their region.
//!
//! This module does not know the stores in the region.

use std::collections::HashSet;

use varve_memory::{MemoryTables, TablesFileError, TablesNeed, TablesRegion};
use varve_pager::PagerConfig;
use varve_pager::control::{Control, State};

use crate::catalog::{Catalog, TableDef};
use crate::core::Core;
use crate::error::Result;
use crate::paged::PAGED;
use crate::partitions::StoredTable;

/// Records in the file of tables that its contents are valid. The caller does this before the database is
/// opened, because the pager will then record that the database is in use, when the catalog is not known yet.
pub(crate) fn prepare(memory: Option<&MemoryTables>, config: &PagerConfig) -> Result<()> {
    let Some(memory) = memory else { return Ok(()) };
    let stored = Control::open(&*config.control)?.map(|control| control.get());
    match stored.filter(|stored| stored.state == State::Clean) {
        Some(stored) => Ok(memory.note_boot(stored.database)?),
        None => Ok(()),
    }
}

/// Returns one of the tables in the region, if there is any.
fn table_in(catalog: &Catalog) -> Option<&TableDef> {
    catalog.all_tables().map(|def| &**def).find(|def| def.engine != PAGED)
}

/// Returns the addresses of the tables in the region that the catalog names.
fn stored_tables(catalog: &Catalog) -> HashSet<StoredTable> {
    catalog.all_tables().flat_map(|def| def.stored_tables()).collect()
}

/// Opens the configured region. If it is refused, a database that was shut down cleanly is shut down cleanly
/// again.
///
/// Fails with [`TablesFileError`] if the region does not belong to the database.
pub(crate) fn open(core: &Core, memory: Option<&MemoryTables>) -> Result<()> {
    let region = match find(core, memory) {
        Ok(region) => region,
        Err(why) => {
            if core.pager.was_clean() {
                // The reason of the refusal is the important error. If the clean shutdown fails, the next
                // start recovers.
                let _not_clean = core.pager.shutdown();
            }
            return Err(why);
        }
    };
    let is_set = region.is_none_or(|region| core.memory.set(region).is_ok());
    assert!(is_set, "the region of tables is opened twice");
    Ok(())
}

fn find(core: &Core, memory: Option<&MemoryTables>) -> Result<Option<TablesRegion>> {
    let catalog = core.catalog.current();
    let table = table_in(&catalog);
    match (memory, table) {
        (None, None) => Ok(None),
        (None, Some(def)) => Err(TablesFileError::NotConfigured { table: def.name.clone() }.into()),
        (Some(memory), table) => {
            let (database, is_clean) = (core.pager.database_id(), core.pager.was_clean());
            let need = TablesNeed { database, is_clean, has_tables: table.is_some() };
            let region = memory.open(&need)?;
            core.partitions.open(&region, &stored_tables(&catalog))?;
            Ok(Some(region))
        }
    }
}

/// Returns an error if a configuration for the next start does not fit the present tables. `None` means no
/// region.
pub(crate) fn check_next(core: &Core, next: Option<(u64, u16)>) -> Result<()> {
    let catalog = core.catalog.current();
    let (Some(def), Some(region)) = (table_in(&catalog), core.memory.get()) else { return Ok(()) };
    Ok(region.check_next(&def.name, next)?)
}
