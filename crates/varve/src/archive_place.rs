//! A log archive in a directory: one sub-directory for each timeline, one file for each piece.
//!
//! ```text
//!   DIRECTORY/<database>-<timeline>/<LSN of the first block>.log
//! ```
//!
//! Invariants
//! 1. A file gets its name when it is whole and durable. The directory is made durable before a call returns.
//! 2. A new piece never takes the name of another one, even if two servers write at once.
//! 3. The directory of the archive is never made. If it is missing, its file system is perhaps not mounted,
//!    and the log would be written to another drive.
//! 4. Only the user of the process may read the files, because the log has all data.
//!
//! This module does not know the format of pieces (`varve_pager`).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use varve_pager::{ArchiveStore, Lsn, StoredPiece, TimelineName};

const SUFFIX: &str = ".log";
/// The suffix of a file that is being written.
const UNFINISHED_SUFFIX: &str = ".log.new";
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A log archive in a directory.
pub struct ArchivePlace {
    path: PathBuf,
}

impl ArchivePlace {
    /// Returns the archive in this directory. The directory may be missing.
    pub fn new(path: PathBuf) -> ArchivePlace {
        ArchivePlace { path }
    }

    fn directory(&self, timeline: TimelineName) -> PathBuf {
        self.path.join(timeline.to_string())
    }

    fn file(&self, timeline: TimelineName, start: Lsn) -> PathBuf {
        self.directory(timeline).join(format!("{:016x}{SUFFIX}", start.get()))
    }

    /// Writes the bytes to a file with another name, durably.
    fn write(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<PathBuf> {
        let directory = self.directory(timeline);
        if !directory.exists() {
            // The parent must exist.
            DirBuilder::new().mode(DIRECTORY_MODE).create(&directory)?;
            sync_directory(&self.path)?;
        }
        // The process id keeps two servers from writing the same file.
        let name = format!("{:016x}.{}{UNFINISHED_SUFFIX}", start.get(), std::process::id());
        let path = directory.join(name);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&path)?;
        file.write_all(piece)?;
        file.sync_all()?;
        Ok(path)
    }
}

/// Makes renames and new files in a directory durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns the LSN in the name of a piece.
fn start_of(name: &str) -> Option<Lsn> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(Lsn::new)
}

impl ArchiveStore for ArchivePlace {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn timelines(&self) -> io::Result<Vec<TimelineName>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            found.extend(entry?.file_name().to_str().and_then(TimelineName::of));
        }
        Ok(found)
    }

    fn pieces(&self, timeline: TimelineName) -> io::Result<Vec<StoredPiece>> {
        let entries = match std::fs::read_dir(self.directory(timeline)) {
            // The archive itself must be there.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_dir() => {
                return Ok(Vec::new());
            }
            entries => entries?,
        };
        let mut pieces = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(start) = entry.file_name().to_str().and_then(start_of) else { continue };
            match entry.metadata() {
                Ok(metadata) => pieces.push(StoredPiece { start, bytes: metadata.len() }),
                // Another server has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        pieces.sort_by_key(|piece| piece.start);
        Ok(pieces)
    }

    fn create(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<bool> {
        let written = self.write(timeline, start, piece)?;
        // Unlike a rename, a link never replaces a file.
        let linked = std::fs::hard_link(&written, self.file(timeline, start));
        let removed = std::fs::remove_file(&written);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            linked => linked.and(removed)?,
        }
        sync_directory(&self.directory(timeline))?;
        Ok(true)
    }

    fn replace(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<()> {
        let written = self.write(timeline, start, piece)?;
        std::fs::rename(&written, self.file(timeline, start))?;
        sync_directory(&self.directory(timeline))
    }

    fn remove(&self, timeline: TimelineName, start: Lsn) -> io::Result<()> {
        match std::fs::remove_file(self.file(timeline, start)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn read(&self, timeline: TimelineName, start: Lsn) -> io::Result<Vec<u8>> {
        std::fs::read(self.file(timeline, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: TimelineName = TimelineName { database: 5, timeline: 9 };

    #[test]
    fn pieces_are_created_once_replaced_and_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let place = ArchivePlace::new(scratch.path().join("archive"));
        assert!(place.timelines().is_err() && place.pieces(NAME).is_err(), "it is not mounted");
        assert!(place.create(NAME, Lsn::new(4096), b"a").is_err(), "the archive is never made");
        std::fs::create_dir(scratch.path().join("archive")).unwrap();
        assert_eq!((place.timelines().unwrap(), place.pieces(NAME).unwrap()), (Vec::new(), Vec::new()));
        assert!(place.create(NAME, Lsn::new(8192), b"second").unwrap());
        assert!(place.create(NAME, Lsn::new(4096), b"first").unwrap());
        assert!(!place.create(NAME, Lsn::new(4096), b"another").unwrap());
        assert_eq!(place.read(NAME, Lsn::new(4096)).unwrap(), b"first");
        place.replace(NAME, Lsn::new(4096), b"both").unwrap();
        place.remove(NAME, Lsn::new(8192)).unwrap();
        place.remove(NAME, Lsn::new(8192)).unwrap();
        assert_eq!(place.timelines().unwrap(), [NAME]);
        assert_eq!(place.pieces(NAME).unwrap(), [StoredPiece { start: Lsn::new(4096), bytes: 4 }]);
        let names = std::fs::read_dir(scratch.path().join("archive").join(NAME.to_string())).unwrap();
        assert_eq!(names.count(), 1, "no unfinished file is left");
    }
}
