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
//! 4. A file is acknowledged only after its name, and the name of its timeline, are durable. An earlier
//!    attempt or another process may have made them without making them durable.
//! 5. Only the user of the process may read the files, because the log has all data.
//!
//! This module does not know the format of pieces (`varve_pager`).

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use varve_pager::{ArchiveStore, Lsn, StoredPiece, TimelineName};

const SUFFIX: &str = ".log";
/// The suffix of a file that is being written.
const UNFINISHED_SUFFIX: &str = ".log.new";
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// An unfinished file of this age is of a process that ended before it was whole.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A log archive in a directory.
pub struct ArchivePlace {
    path: PathBuf,
    /// The timelines into which this process has written. The names of their directories are durable.
    begun: Mutex<HashSet<TimelineName>>,
    /// Makes renames and new files in a directory durable.
    sync: fn(&Path) -> io::Result<()>,
}

impl ArchivePlace {
    /// Returns the archive in this directory. The directory may be missing.
    pub fn new(path: PathBuf) -> ArchivePlace {
        ArchivePlace { path, begun: Mutex::default(), sync: sync_directory }
    }

    fn directory(&self, timeline: TimelineName) -> PathBuf {
        self.path.join(timeline.to_string())
    }

    fn file(&self, timeline: TimelineName, start: Lsn) -> PathBuf {
        self.directory(timeline).join(format!("{:016x}{SUFFIX}", start.get()))
    }

    /// Makes the directory of a timeline, if this process has not written into it yet.
    fn begin(&self, timeline: TimelineName) -> io::Result<()> {
        let directory = self.directory(timeline);
        if directory.exists() && self.begun.lock().contains(&timeline) {
            return Ok(());
        }
        // The parent must exist.
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        (self.sync)(&self.path)?;
        remove_abandoned(&directory)?;
        self.begun.lock().insert(timeline);
        Ok(())
    }

    /// Writes the bytes to a file with another name, durably.
    fn write(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<Unfinished> {
        self.begin(timeline)?;
        // Two servers may write at once, on two machines or in two containers with equal process ids.
        let number = RandomState::new().hash_one(start.get());
        let name = format!("{:016x}.{number:016x}{UNFINISHED_SUFFIX}", start.get());
        let path = self.directory(timeline).join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        let unfinished = Unfinished { path };
        file.write_all(piece)?;
        file.sync_all()?;
        Ok(unfinished)
    }
}

/// A file that is not a piece yet. Dropping it removes the file, if it still has this name.
struct Unfinished {
    path: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What cannot be removed now is removed by a later process.
        let _left = std::fs::remove_file(&self.path);
    }
}

/// Removes unfinished files that no process writes any more.
fn remove_abandoned(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let is_unfinished = entry.file_name().to_str().is_some_and(|name| name.ends_with(UNFINISHED_SUFFIX));
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_unfinished && age().is_some_and(|age| age >= ABANDONED_AFTER) {
            // It is only in the way.
            let _left = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Explains an error of a link.
fn link_failed(error: io::Error) -> io::Error {
    let is_unable = matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied);
    if !is_unable {
        return error;
    }
    let what = format!(
        "a hard link cannot be made ({error}): choose a directory on a file system that has hard links, such as ext4, XFS \
         or NFS"
    );
    io::Error::new(error.kind(), what)
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
        let is_new = match std::fs::hard_link(&written.path, self.file(timeline, start)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            linked => linked.map(|()| true).map_err(link_failed)?,
        };
        drop(written);
        // An earlier call may have made the link, and failed before it was durable.
        (self.sync)(&self.directory(timeline))?;
        Ok(is_new)
    }

    fn replace(&self, timeline: TimelineName, start: Lsn, piece: &[u8]) -> io::Result<()> {
        let written = self.write(timeline, start, piece)?;
        std::fs::rename(&written.path, self.file(timeline, start))?;
        (self.sync)(&self.directory(timeline))
    }

    fn remove(&self, timeline: TimelineName, starts: &[Lsn]) -> io::Result<()> {
        for start in starts {
            match std::fs::remove_file(self.file(timeline, *start)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        if starts.is_empty() { Ok(()) } else { (self.sync)(&self.directory(timeline)) }
    }

    fn read(&self, timeline: TimelineName, start: Lsn) -> io::Result<Vec<u8>> {
        std::fs::read(self.file(timeline, start))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::SystemTime;

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
        place.remove(NAME, &[Lsn::new(8192)]).unwrap();
        place.remove(NAME, &[Lsn::new(8192)]).unwrap();
        assert_eq!(place.timelines().unwrap(), [NAME]);
        assert_eq!(place.pieces(NAME).unwrap(), [StoredPiece { start: Lsn::new(4096), bytes: 4 }]);
        let names = std::fs::read_dir(scratch.path().join("archive").join(NAME.to_string())).unwrap();
        assert_eq!(names.count(), 1, "no unfinished file is left");
    }

    thread_local! {
        /// The directories that were made durable, and how many calls fail next.
        static SYNCED: RefCell<(Vec<PathBuf>, usize)> = RefCell::default();
    }

    fn sync(path: &Path) -> io::Result<()> {
        SYNCED.with_borrow_mut(|(synced, fails)| {
            if *fails > 0 {
                *fails -= 1;
                return Err(io::Error::other("planted"));
            }
            synced.push(path.to_owned());
            Ok(())
        })
    }

    fn synced() -> Vec<PathBuf> {
        SYNCED.with_borrow_mut(|(synced, _)| std::mem::take(synced))
    }

    #[test]
    fn a_piece_is_acknowledged_only_when_all_names_are_durable() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().to_owned();
        let place = || ArchivePlace { sync, ..ArchivePlace::new(root.clone()) };
        let (first, directory) = (place(), root.join(NAME.to_string()));
        SYNCED.with_borrow_mut(|(_, fails)| *fails = 1);
        assert!(first.create(NAME, Lsn::new(4096), b"a").is_err(), "the directory is not durable");
        assert!(first.create(NAME, Lsn::new(4096), b"a").unwrap());
        assert_eq!(
            synced(),
            [root.clone(), directory.clone()],
            "the directory is made durable by the next try"
        );
        SYNCED.with_borrow_mut(|(_, fails)| *fails = 1);
        assert!(first.create(NAME, Lsn::new(8192), b"b").is_err(), "the link is not durable");
        assert!(!first.create(NAME, Lsn::new(8192), b"b").unwrap());
        assert_eq!(synced(), std::slice::from_ref(&directory), "a link that was there is made durable");
        first.remove(NAME, &[Lsn::new(8192)]).unwrap();
        assert_eq!(synced(), std::slice::from_ref(&directory), "removals are durable");
        assert!(place().create(NAME, Lsn::new(8192), b"b").unwrap());
        assert_eq!(synced(), [root, directory], "another process may have made the directory");
    }

    #[test]
    fn unfinished_files_are_removed_when_they_are_old_or_cannot_be_linked() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join(NAME.to_string());
        std::fs::create_dir(&directory).unwrap();
        let old = File::create(directory.join("0000000000001000.1.log.new")).unwrap();
        old.set_modified(SystemTime::now() - 2 * ABANDONED_AFTER).unwrap();
        File::create(directory.join("0000000000001000.2.log.new")).unwrap();
        let place = ArchivePlace::new(scratch.path().to_owned());
        place.create(NAME, Lsn::new(4096), b"a").unwrap();
        place.create(NAME, Lsn::new(4096), b"a").unwrap();
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["0000000000001000.2.log.new", "0000000000001000.log"]);
    }

    #[test]
    fn a_file_system_without_hard_links_is_named() {
        for code in [1, 95, 38] {
            let text = link_failed(io::Error::from_raw_os_error(code)).to_string();
            assert!(text.contains("hard links"), "{text}");
        }
        assert!(!link_failed(io::Error::from_raw_os_error(28)).to_string().contains("hard links"));
    }
}
