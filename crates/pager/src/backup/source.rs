//! What a restore reads: backups, and the log archive.
//!
//! This module does not know where they are stored.

use std::io::Read;

use super::archive::moment::Until;
use super::archive::store::ArchiveStore;

/// A backup that is stored somewhere.
pub trait BackupSource {
    /// Returns the name of the backup for messages.
    fn name(&self) -> String;
    /// Opens the backup for reading from its beginning.
    fn open(&self) -> std::io::Result<Box<dyn Read + '_>>;
}

/// The archived log that a restore redoes after a backup.
#[derive(Clone, Copy)]
pub struct ArchiveSource<'a> {
    /// The archive.
    pub store: &'a dyn ArchiveStore,
    /// The number of the timeline. `None` means the only one that has the end of the backup.
    pub timeline: Option<u64>,
    /// The moment to which the database is restored.
    pub until: Until,
}
