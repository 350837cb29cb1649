//! The file `tables.varve`: the region with the tables of a database (decision 0117).
//!
//! Two roots of the allocator describe the region. `partitions` has the number of partitions. `boot` has the
//! id of the start of the machine for which the contents are valid, or 0 if the medium survives a restart of
//! the machine.
//!
//! ```text
//!  no file, or a file without tables that does not fit:  remove -> map (zeros) -> format -> partitions, boot -> settle
//!  a file with tables:                                   open -> boot, size, partitions must fit
//! ```
//!
//! Invariants
//! 1. A file is removed or formatted only if it has no tables of the database, and no other database has
//!    written it.
//! 2. A region whose root `partitions` is 0 or missing was not finished. No store was opened in it.
//!
//! This module does not know the configuration file or the catalog.

use std::sync::Arc;

use varve_device::{DeviceError, Directory, ErrorKind, Medium, Region};

use crate::engine_kind::{EngineKind, PARTITIONS_MAX, TABLE_OWNER_MIN};
use crate::error::MemoryError;
use crate::state::Allocator;

/// The name of the file, in the directory of its device.
pub const TABLES_FILE: &str = "tables.varve";

const PARTITIONS: &str = "partitions";
const BOOT: &str = "boot";

/// Result of opening the file.
pub type TablesFileResult<T> = std::result::Result<T, TablesFileError>;

/// The reason why the file was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TablesFileError {
    /// The file is missing, although the database has tables in it.
    #[error("{place} is missing, and has tables of the database: bring the file back, or restore a backup")]
    Missing {
        /// The file.
        place: String,
    },
    /// The file has no allocator, although the database has tables in it.
    #[error(
        "{place} is empty, and has tables of the database: bring the right file back, or restore a backup"
    )]
    Empty {
        /// The file.
        place: String,
    },
    /// The file is damaged, or of another database or version.
    #[error("{place} is not the region of this database's tables: {why}. {}", advice(*.has_tables))]
    Unusable {
        /// The file.
        place: String,
        /// What is wrong with it.
        why: MemoryError,
        /// Whether the database has tables there.
        has_tables: bool,
    },
    /// An unfinished file, or one that the user made, has another length.
    #[error(
        "{place} has {found_bytes} bytes, and nvm.tables is {wanted_bytes} bytes: configure that, or remove the file if no \
         database needs it"
    )]
    NewSize {
        /// The file.
        place: String,
        /// The present length of the file.
        found_bytes: u64,
        /// The configured length.
        wanted_bytes: u64,
    },
    /// The machine was restarted, and its memory emulated persistent memory.
    #[error(
        "{place} was emulated by memory that did not survive the restart of the machine: restore a backup"
    )]
    Lost {
        /// The file.
        place: String,
    },
    /// The size is fixed while there are tables.
    #[error(
        "{place} has {found_bytes} bytes, and nvm.tables is {wanted_bytes} bytes: the size can change only while \
         the file has no tables. Put the old size back, and drop the tables or copy them first"
    )]
    Size {
        /// The file.
        place: String,
        /// The present length of the file.
        found_bytes: u64,
        /// The configured length.
        wanted_bytes: u64,
    },
    /// The number of partitions is fixed while there are tables.
    #[error(
        "the number of partitions in {place} is {found}, and nvm.partitions is {wanted}: it can change only while the \
         file has no tables. Put the old number back, and drop the tables or copy them first"
    )]
    Partitions {
        /// The file.
        place: String,
        /// The number of partitions in the file.
        found: u64,
        /// The configured number.
        wanted: u16,
    },
    /// The device has too little room.
    #[error(
        "nvm.tables is {wanted_bytes} bytes, but {place} can have {free_bytes}: lower nvm.tables, or name a larger device"
    )]
    NoSpace {
        /// The file.
        place: String,
        /// The configured length.
        wanted_bytes: u64,
        /// The number of free bytes of the device.
        free_bytes: u64,
    },
    /// The configuration has no file for tables, but the database has tables in it.
    #[error(
        "the table {table} is in the file {TABLES_FILE}, and the configuration has no such file: put the key tables \
         back into section [nvm] of varve.toml. To do without the file, drop its tables or copy them first"
    )]
    NotConfigured {
        /// One of the tables.
        table: String,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The new region refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

fn advice(has_tables: bool) -> &'static str {
    match has_tables {
        true => "Bring the right file back, or restore a backup",
        false => "Choose another device in section [nvm], or remove the file if no database needs it",
    }
}

/// The configuration of the file.
#[derive(Clone)]
pub struct MemoryTables {
    /// The directory of the file on its device.
    pub directory: Arc<dyn Directory>,
    /// The length of the file: a multiple of 4096 bytes.
    pub size_bytes: u64,
    /// The number of partitions, at least 1.
    pub partitions: u16,
}

/// The facts that a database knows about its file before it opens the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablesNeed {
    /// The id of the database.
    pub database: u64,
    /// Whether the database was shut down cleanly.
    pub is_clean: bool,
    /// Whether the catalog has tables in the file.
    pub has_tables: bool,
}

/// The open file.
pub struct TablesRegion {
    allocator: Arc<Allocator>,
    partitions: u16,
    place: String,
}

/// The contents of the file of a database that is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablesFound {
    /// The file.
    pub place: String,
    /// The present length of the file.
    pub size_bytes: u64,
    /// The number of bytes in all segments, for tables and logs.
    pub capacity_bytes: u64,
    /// The number of bytes in free segments.
    pub free_bytes: u64,
    /// The number of partitions; 0 if the file was not finished.
    pub partitions: u64,
    /// The engines that have a store in the file.
    pub engines: Vec<EngineKind>,
    /// The number of tables that have chunks.
    pub filled_tables: usize,
}

/// Returns where the file of a device is, for messages.
fn place_in(directory: &dyn Directory) -> String {
    format!("{}/{TABLES_FILE}", directory.location())
}

/// Maps the existing file in its present length. Returns `None` if there is no file, or it has no bytes.
fn existing(directory: &dyn Directory, new_bytes: u64) -> TablesFileResult<Option<Arc<dyn Region>>> {
    if !directory.exists(TABLES_FILE)? {
        return Ok(None);
    }
    match directory.map(TABLES_FILE, new_bytes) {
        Err(DeviceError { kind: ErrorKind::ShortRead { .. }, .. }) => Ok(None),
        mapped => Ok(Some(mapped?)),
    }
}

fn value(allocator: &Allocator, root: &str) -> u64 {
    allocator.root_value(root).unwrap_or_default()
}

fn set_value(allocator: &Allocator, root: &str, value: u64) -> TablesFileResult<()> {
    if allocator.root(root).is_err() {
        allocator.create_root(root)?;
    }
    Ok(allocator.set_root(root, value)?)
}

/// Returns whether the contents were lost with the memory of the machine. After a clean shutdown they are not
/// lost, because the file has all of them.
fn is_lost(noted: u64, now: u64, is_clean: bool) -> bool {
    noted != 0 && noted != now && !is_clean
}

impl MemoryTables {
    /// Opens the file. If the database has no tables in it, makes a missing or unfitting file again.
    ///
    /// Errors: the file is missing, damaged, of another database, or lost with the machine's memory. The size
    /// or the partitions of the file differ from the configured ones while there are tables. The device
    /// fails.
    pub fn open(&self, need: &TablesNeed) -> TablesFileResult<TablesRegion> {
        let place = place_in(&*self.directory);
        let Some(region) = existing(&*self.directory, self.size_bytes)? else {
            return if need.has_tables { Err(TablesFileError::Missing { place }) } else { self.make(need) };
        };
        let found_bytes = region.len_bytes();
        match Allocator::open(region, need.database) {
            Ok(allocator) => self.open_fitting(allocator, need),
            Err(MemoryError::NoAllocator { found: 0 }) if need.has_tables => {
                Err(TablesFileError::Empty { place })
            }
            Err(MemoryError::NoAllocator { found: 0 }) if found_bytes == self.size_bytes => self.make(need),
            Err(MemoryError::NoAllocator { found: 0 }) => {
                Err(TablesFileError::NewSize { place, found_bytes, wanted_bytes: self.size_bytes })
            }
            Err(why) => Err(TablesFileError::Unusable { place, why, has_tables: need.has_tables }),
        }
    }

    /// Stores in the file that its contents are valid for the present start of the machine. This is called
    /// before the start of a database that was shut down cleanly, so that a failed start loses nothing. A
    /// file that [`MemoryTables::open`] would refuse is left as it is.
    pub fn note_boot(&self, database: u64) -> TablesFileResult<()> {
        let Some(region) = existing(&*self.directory, self.size_bytes)? else { return Ok(()) };
        let Some(now) = region.facts().boot else { return Ok(()) };
        match Allocator::open(region, database) {
            Ok(allocator) if value(&allocator, BOOT) != now => set_value(&allocator, BOOT, now),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn open_fitting(&self, allocator: Allocator, need: &TablesNeed) -> TablesFileResult<TablesRegion> {
        match self.misfit(&allocator, need) {
            Some(misfit) if need.has_tables => Err(misfit),
            Some(_) => {
                drop(allocator);
                self.make(need)
            }
            None => self.finish(allocator),
        }
    }

    /// Returns why a region of this database cannot be used as it is.
    fn misfit(&self, allocator: &Allocator, need: &TablesNeed) -> Option<TablesFileError> {
        let place = place_in(&*self.directory);
        let region = allocator.region();
        let now = region.facts().boot.unwrap_or_default();
        if is_lost(value(allocator, BOOT), now, need.is_clean) {
            return Some(TablesFileError::Lost { place });
        }
        let (found_bytes, wanted_bytes) = (region.len_bytes(), self.size_bytes);
        if found_bytes != wanted_bytes {
            return Some(TablesFileError::Size { place, found_bytes, wanted_bytes });
        }
        let (found, wanted) = (value(allocator, PARTITIONS), self.partitions);
        let is_same = found == u64::from(wanted) || (found == 0 && !need.has_tables);
        (!is_same).then_some(TablesFileError::Partitions { place, found, wanted })
    }

    /// Makes an empty region in a new file.
    fn make(&self, need: &TablesNeed) -> TablesFileResult<TablesRegion> {
        if self.directory.exists(TABLES_FILE)? {
            self.directory.remove(TABLES_FILE)?;
            self.directory.sync()?;
        }
        if let Some(free_bytes) = self.directory.free_bytes().filter(|free| *free < self.size_bytes) {
            let place = place_in(&*self.directory);
            return Err(TablesFileError::NoSpace { place, wanted_bytes: self.size_bytes, free_bytes });
        }
        let region = self.directory.map(TABLES_FILE, self.size_bytes)?;
        let made = self.finish(Allocator::format(region, need.database)?)?;
        made.settle()?;
        Ok(made)
    }

    fn finish(&self, allocator: Allocator) -> TablesFileResult<TablesRegion> {
        let now = allocator.region().facts().boot.unwrap_or_default();
        if value(&allocator, BOOT) != now {
            set_value(&allocator, BOOT, now)?;
        }
        if value(&allocator, PARTITIONS) == 0 {
            set_value(&allocator, PARTITIONS, u64::from(self.partitions))?;
        }
        let place = place_in(&*self.directory);
        Ok(TablesRegion { allocator: Arc::new(allocator), partitions: self.partitions, place })
    }
}

impl TablesRegion {
    /// Returns the allocator of the region.
    pub fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// Returns where the file is, for messages.
    pub fn location(&self) -> &str {
        &self.place
    }

    /// Refuses a configuration for the next start that would change or remove the file while `table` is in
    /// it. `next` has the configured bytes and partitions, or `None` if no file is configured.
    pub fn check_next(&self, table: &str, next: Option<(u64, u16)>) -> TablesFileResult<()> {
        let (place, found_bytes) = (self.place.clone(), self.allocator.region().len_bytes());
        match next {
            None => Err(TablesFileError::NotConfigured { table: table.into() }),
            Some((wanted_bytes, _)) if wanted_bytes != found_bytes => {
                Err(TablesFileError::Size { place, found_bytes, wanted_bytes })
            }
            Some((_, wanted)) if wanted != self.partitions => {
                Err(TablesFileError::Partitions { place, found: u64::from(self.partitions), wanted })
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns a warning that a start should show to the user.
    pub fn warning(&self) -> Option<String> {
        (self.allocator.region().facts().medium == Medium::EmulatedByFile).then(|| {
            format!(
                "{}: NVM is emulated by a file: what is committed survives the death of the process, not that of the machine",
                self.place
            )
        })
    }

    /// If persistent memory is emulated, writes everything to the medium below the emulation. A clean
    /// shutdown does this before the shutdown is recorded.
    pub fn settle(&self) -> TablesFileResult<()> {
        Ok(self.allocator.region().settle()?)
    }
}

/// Looks into the file of a database that is not open. Returns `None` if there is no file, or it was not
/// finished.
///
/// Errors: the file is damaged, or of another database or version, or the device fails.
pub fn look_into_tables(directory: &dyn Directory, database: u64) -> TablesFileResult<Option<TablesFound>> {
    // The length 4096 is only for a new file. It is not used here, because the file exists.
    let Some(region) = existing(directory, 4096)? else { return Ok(None) };
    let place = place_in(directory);
    let size_bytes = region.len_bytes();
    let allocator = match Allocator::open(region, database) {
        Ok(allocator) => allocator,
        Err(MemoryError::NoAllocator { found: 0 }) => return Ok(None),
        Err(why) => return Err(TablesFileError::Unusable { place, why, has_tables: true }),
    };
    let has_store = |kind: &EngineKind| (0..PARTITIONS_MAX).any(|part| kind.has_store(&allocator, part));
    Ok(Some(TablesFound {
        place,
        size_bytes,
        capacity_bytes: allocator.capacity_bytes(),
        free_bytes: allocator.free_bytes(),
        partitions: value(&allocator, PARTITIONS),
        engines: EngineKind::ALL.into_iter().filter(has_store).collect(),
        filled_tables: filled_tables(&allocator),
    }))
}

/// Returns the number of owners that have segments, among owners that are for tables.
fn filled_tables(allocator: &Allocator) -> usize {
    allocator.owners().iter().filter(|owner| owner.number() >= TABLE_OWNER_MIN).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_does_not_outlive_the_machine() {
        assert!(is_lost(7, 8, false));
        assert!(is_lost(7, 0, false), "it was emulated, whatever it is now");
        assert!(!is_lost(7, 8, true));
        assert!(!is_lost(7, 7, false));
        assert!(!is_lost(0, 8, false), "the medium outlives the machine");
    }
}
