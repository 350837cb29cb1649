//! Online backup of a database, and restore (decision 0262).
//!
//! Invariants
//! 1. A backup has no tables of the memory-oriented engines. If the database has such a table when the backup
//!    begins, or at any moment before its end, the backup fails.
//!
//! This module does not know the format of backups (`varve_pager`), or who may take one.

use std::sync::Arc;

use varve_pager::{
    ArchiveSource, BackupOptions, BackupProgress, BackupSource, BackupStart, MapLocation, PagerConfig,
    RestoreReport,
};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::paged::PAGED;
use crate::redo::EngineRedo;

/// A backup that is being made. Dropping it before its end releases the log.
pub struct Backup<'d> {
    database: &'d Database,
    pages: varve_pager::Backup<'d>,
}

impl Database {
    /// Begins an online backup. Transactions go on meanwhile.
    ///
    /// # Errors
    ///
    /// Fails with 0A000 if the database has tables of the memory-oriented engines, and with 55000 if the
    /// earlier backup of an incremental one is of another database.
    pub fn backup(&self, options: BackupOptions) -> Result<Backup<'_>> {
        let backup = Backup { database: self, pages: self.pager().backup(options)? };
        backup.refuse_memory_tables()?;
        Ok(backup)
    }
}

impl Backup<'_> {
    /// Appends the next bytes of the backup to `out`. Returns false after the end.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let before = out.len();
        let goes_on = self.pages.next(out)?;
        // The catalog of now has every table that was committed when these bytes were copied.
        self.refuse_memory_tables().inspect_err(|_| out.truncate(before))?;
        Ok(goes_on)
    }

    /// Returns what the backup says at its start.
    pub fn start(&self) -> &BackupStart {
        self.pages.start()
    }

    /// Returns how much of the backup is made.
    pub fn progress(&self) -> BackupProgress {
        self.pages.progress()
    }

    fn refuse_memory_tables(&self) -> Result<()> {
        let catalog = self.database.core().catalog.current();
        let Some(table) = catalog.all_tables().find(|def| def.engine != PAGED) else { return Ok(()) };
        Err(Error::NoBackup { table: table.name.clone(), engine: table.engine.to_string() })
    }
}

/// Makes a database of a chain of backups, newest first, in the empty place that `config` names. Its id is a
/// new one. With an archive, it has the state at a moment after the backup. The next start rolls back the
/// transactions that had not committed at the end of the backup, or at this moment.
pub fn restore(
    config: PagerConfig,
    chain: &[&dyn BackupSource],
    archive: Option<ArchiveSource<'_>>,
    location: MapLocation<'_>,
) -> Result<RestoreReport> {
    Ok(varve_pager::restore_until(config, Arc::new(EngineRedo), chain, archive, location)?)
}
