//! The region with the tables of the memory-oriented engines, as a part of an open database (decision 0117).
//!
//! The file of the region is opened when the catalog is known, because only the catalog says whether the file
//! is needed. Stores of tables are opened before that. They take the region from the core with their first
//! operation.
//!
//! Invariants
//! 1. A database with such tables does not open without their region.
//!
//! What it does not know: the stores in the region.

use std::collections::HashSet;

use varve_memory::{MemoryTables, TablesFileError, TablesNeed, TablesRegion};
use varve_pager::PagerConfig;
use varve_pager::control::{Control, State};

use crate::catalog::{Catalog, TableDef};
use crate::core::Core;
use crate::error::Result;
use crate::paged::PAGED;
use crate::partitions::StoredTable;

/// Before a database is opened: notes in its file that the contents are valid. The pager is about to record
/// that the database is in use, and the catalog is not known yet.
pub(crate) fn prepare(memory: Option<&MemoryTables>, config: &PagerConfig) -> Result<()> {
    let Some(memory) = memory else { return Ok(()) };
    let stored = Control::open(&*config.control)?.map(|control| control.get());
    match stored.filter(|stored| stored.state == State::Clean) {
        Some(stored) => Ok(memory.note_boot(stored.database)?),
        None => Ok(()),
    }
}

/// One of the tables that are in the region.
fn table_in(catalog: &Catalog) -> Option<&TableDef> {
    catalog.all_tables().map(|def| &**def).find(|def| def.engine != PAGED)
}

/// Where the tables are that the catalog names.
fn stored_tables(catalog: &Catalog) -> HashSet<StoredTable> {
    catalog.all_tables().flat_map(|def| def.stored_tables()).collect()
}

/// Opens the region that is configured. If it is refused, a database that was shut down cleanly is so again.
///
/// Errors: it does not fit the database ([`TablesFileError`]).
pub(crate) fn open(core: &Core, memory: Option<&MemoryTables>) -> Result<()> {
    let region = match find(core, memory) {
        Ok(region) => region,
        Err(why) => {
            if core.pager.was_clean() {
                // The refusal is what a person has to know. Without a clean end the next start recovers.
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
            core.partitions.open(region.allocator(), region.partitions(), &stored_tables(&catalog))?;
            Ok(Some(region))
        }
    }
}

/// Refuses a configuration for the next start that does not fit the tables of now. `None`: no region.
pub(crate) fn check_next(core: &Core, next: Option<(u64, u16)>) -> Result<()> {
    let catalog = core.catalog.current();
    let (Some(def), Some(region)) = (table_in(&catalog), core.memory.get()) else { return Ok(()) };
    Ok(region.check_next(&def.name, next)?)
}
