//! The file `tables.varve` of a database: what the configuration wants, and what a stopped database has.
//!
//! Invariants
//! 1. Looking at the file of a stopped database never creates a file.
//!
//! This module does not know which tables the catalog has. The engine opens the file and compares.

use std::sync::Arc;

use varve_device::Directory;
use varve_memory::{MemoryTables, TablesFileError, TablesFound, look_into_tables};

use crate::config::{TablesSettings, show_bytes};

/// Returns the configured file on the device of `[nvm]`; `None` means no tables.
pub fn wanted(tables: TablesSettings, directory: Arc<dyn Directory>) -> Option<MemoryTables> {
    let (size_bytes, partitions) = tables.form()?;
    Some(MemoryTables { directory, size_bytes, partitions })
}

/// The file of a stopped database.
pub struct StoppedTables {
    /// The contents.
    pub found: TablesFound,
    /// The configuration with which it opens.
    pub memory: MemoryTables,
}

impl StoppedTables {
    /// Looks for the file on these devices.
    pub fn find(
        devices: impl Iterator<Item = Arc<dyn Directory>>,
        database: u64,
    ) -> Result<Option<StoppedTables>, TablesFileError> {
        for directory in devices {
            if let Some(found) = look_into_tables(&*directory, database)? {
                let partitions = u16::try_from(found.partitions).unwrap_or(u16::MAX);
                let memory = MemoryTables { directory, size_bytes: found.size_bytes, partitions };
                return Ok(Some(StoppedTables { found, memory }));
            }
        }
        Ok(None)
    }

    /// Returns whether the file has the configured size and number of partitions.
    pub fn fits(&self, wanted: TablesSettings) -> bool {
        let found = (self.found.size_bytes, self.found.partitions);
        wanted.form().is_some_and(|(bytes, partitions)| (bytes, u64::from(partitions)) == found)
    }

    /// Returns whether a table was ever made in the file.
    pub fn has_tables(&self) -> bool {
        !self.found.engines.is_empty()
    }

    /// Returns a description in one line.
    pub fn described(&self) -> String {
        let found = &self.found;
        let partitions = if found.partitions == 1 { "partition" } else { "partitions" };
        let used_bytes = found.capacity_bytes - found.free_bytes;
        let mut said = format!(
            "{}, {} in {} {partitions}, {} used, {} free",
            found.place,
            show_bytes(found.size_bytes),
            found.partitions,
            show_bytes(used_bytes),
            show_bytes(found.free_bytes)
        );
        if !found.engines.is_empty() {
            let engines = found.engines.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            said +=
                &format!("; engines: {engines}; tables with segments of their own: {}", found.filled_tables);
        }
        said
    }
}

/// Describes the tables that stay when a database leaves persistent memory.
pub fn stays(found: &TablesFound) -> String {
    format!("{} stays: the rows of its tables are nowhere else", found.place)
}
