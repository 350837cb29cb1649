//! Stores loaded databases and makes copies of them. An experiment measures a copy, and the loaded database
//! stays as it is. Files are in one directory. Regions of persistent memory are in another directory.
//!
//! Invariants
//! 1. An experiment creates and removes files only in a directory that was new or empty when the first
//!    experiment used it. Only one process at a time uses the directory.
//! 2. A copied file has holes at the same places as its original, so both occupy equally many blocks. The two
//!    files share no blocks. If they shared blocks, the file system would copy these during a measurement. A
//!    region has no holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use varve_device::{DirLock, ErrorKind};
use varve_pager::NVM_FILE;

use varve_bench::{BenchError, Result};

/// A file that marks a directory as one that experiments use.
const EXPERIMENTS: &str = "experiments";
/// A directory that a new file system has. A directory with nothing but this and a lock file counts as empty.
const LOST_AND_FOUND: &str = "lost+found";

/// The file that is made last when a database is loaded. It shows that the load was completed.
const LOADED: &str = "loaded";
/// The subdirectory of a loaded database that has its region of persistent memory.
const REGION: &str = "region";
/// A directory that is usually in a file system in memory.
const MEMORY: &str = "/dev/shm";

/// The two directories of a database.
#[derive(Debug, Clone)]
pub struct DatabasePaths {
    /// The directory of the database's files.
    pub files: PathBuf,
    /// The directory of the database's region of persistent memory.
    pub region: PathBuf,
}

impl DatabasePaths {
    fn remove(&self) -> Result<()> {
        remove(&self.files)?;
        remove(&self.region)
    }
}

/// The directories of an experiment. They are removed when this is dropped, unless the user named them.
#[derive(Debug)]
pub struct Bench {
    path: PathBuf,
    is_ours: bool,
    /// The directory for the regions of copies.
    regions: PathBuf,
    /// A lock on the directory, which keeps other processes out.
    _lock: DirLock,
}

/// Locks the directory for experiments. Refuses it if another process uses it, or if it has other files than
/// those of experiments.
fn take(path: &Path) -> Result<DirLock> {
    std::fs::create_dir_all(path)?;
    check_ours(path)?;
    let lock = DirLock::take(path).map_err(|error| refused(path, &error.kind))?;
    // Checks again, because other files may have been made before the lock was taken.
    check_ours(path)?;
    std::fs::write(path.join(EXPERIMENTS), "")?;
    Ok(lock)
}

fn check_ours(path: &Path) -> Result<()> {
    if path.join(EXPERIMENTS).is_file() {
        return Ok(());
    }
    let mut others = Vec::new();
    for entry in std::fs::read_dir(path)? {
        others.push(entry?.file_name());
    }
    others.retain(|name| name != DirLock::file_name() && name != LOST_AND_FOUND);
    let Some(other) = others.iter().min() else { return Ok(()) };
    Err(BenchError::Arguments(format!(
        "{} holds files of others ({}), and an experiment makes and removes databases there: choose a new or an empty directory, or \
         one that an earlier experiment made",
        path.display(),
        other.to_string_lossy()
    )))
}

fn refused(path: &Path, why: &ErrorKind) -> BenchError {
    let path = path.display();
    BenchError::Arguments(match why {
        ErrorKind::Locked { pid } => {
            let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
            format!(
                "{path} is in use by another process (number {pid}): wait until that has ended, or choose another directory"
            )
        }
        why => format!("{path} can't be locked: {why}"),
    })
}

impl Bench {
    /// Opens the directories. Databases are in the directory `asked`, or in a new one below the working
    /// directory. Regions of copies are in a new directory below `memory`. Without `memory` they are in a
    /// file system in the machine's memory, or beside the databases if there is none.
    pub fn open(asked: Option<PathBuf>, memory: Option<PathBuf>) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let fresh = PathBuf::from(format!("varve-experiment-{}-{number}", std::process::id()));
        let is_ours = asked.is_none();
        let path = asked.unwrap_or_else(|| fresh.clone());
        let lock = take(&path)?;
        let shared = Some(PathBuf::from(MEMORY)).filter(|memory| memory.is_dir());
        let memory = memory.or(shared).unwrap_or_else(|| path.clone());
        let regions = memory.join(format!("{}-regions", fresh.display()));
        Ok(Self { path, is_ours, regions, _lock: lock })
    }

    /// Returns the directories of a loaded database. Calls `load` to fill them, unless an earlier run has
    /// done so.
    pub fn base(&self, name: &str, load: impl FnOnce(&DatabasePaths) -> Result<()>) -> Result<DatabasePaths> {
        let files = self.path.join(name);
        let place = DatabasePaths { region: files.join(REGION), files };
        if place.files.join(LOADED).exists() {
            return Ok(place);
        }
        place.remove()?;
        load(&place)?;
        std::fs::write(place.files.join(LOADED), "")?;
        Ok(place)
    }

    /// Makes empty directories for a database. They are removed when the result is dropped.
    pub fn empty(&self, name: &str) -> Result<Copied> {
        let place =
            DatabasePaths { files: self.path.join(format!("copy-{name}")), region: self.regions.join(name) };
        place.remove()?;
        std::fs::create_dir_all(&place.files)?;
        std::fs::create_dir_all(&place.region)?;
        Ok(Copied(place))
    }

    /// Makes a copy of a loaded database.
    pub fn copy(&self, base: &DatabasePaths, name: &str) -> Result<Copied> {
        let copied = self.empty(name)?;
        for entry in std::fs::read_dir(&base.files)? {
            let entry = entry?;
            if entry.file_name() != LOADED && entry.file_type()?.is_file() {
                copy_file(&entry.path(), &copied.0.files.join(entry.file_name()))?;
            }
        }
        let region = base.region.join(NVM_FILE);
        if region.exists() {
            // The copy of the region has no holes. In a hole, the first store would have to get memory from
            // the kernel, and this would be measured, too.
            std::fs::copy(&region, copied.0.region.join(NVM_FILE))?;
        }
        Ok(copied)
    }
}

/// The number of bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The unit in which `stat` counts blocks.
const STAT_BLOCK_BYTES: u64 = 512;

/// Copies a file and writes the copy to the device. So the kernel has nothing left to write during a
/// measurement.
///
/// If the file has all its blocks, written or only reserved, the copy has them, too. If the file has holes,
/// its reserved blocks become holes. The bytes are read and written, and no system call copies them: such a
/// call may make both files share blocks (xfs, btrfs).
fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    // The file system reports the holes only if no bytes of the file wait to be written.
    from.sync_data()?;
    let metadata = from.metadata()?;
    let len_bytes = metadata.len();
    to.set_len(len_bytes)?;
    if len_bytes > 0 && metadata.blocks() * STAT_BLOCK_BYTES >= len_bytes {
        match fallocate(&to, FallocateFlags::empty(), 0, len_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    let mut piece = vec![0; PIECE_BYTES.min(len_bytes) as usize];
    let mut end = 0;
    while let Some(start) = next_written(&from, end)? {
        end = seek(&from, SeekFrom::Hole(start)).map_err(io::Error::from)?;
        for offset in (start..end).step_by(PIECE_BYTES as usize) {
            let piece = &mut piece[..PIECE_BYTES.min(end - offset) as usize];
            from.read_exact_at(piece, offset)?;
            to.write_all_at(piece, offset)?;
        }
    }
    Ok(to.sync_all()?)
}

/// Returns the offset of the next written range of a file, at or after `from`.
fn next_written(file: &File, from: u64) -> Result<Option<u64>> {
    match seek(file, SeekFrom::Data(from)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = remove(&self.regions);
        if self.is_ours {
            let _ = remove(&self.path);
        }
    }
}

/// The directories of a database, which are removed when this is dropped.
#[derive(Debug)]
pub struct Copied(DatabasePaths);

impl Copied {
    /// Returns the two directories.
    pub fn place(&self) -> &DatabasePaths {
        &self.0
    }

    /// Returns the allocated bytes of the database's files whose name is `wanted`.
    pub fn allocated_bytes(&self, wanted: impl Fn(&str) -> bool) -> Result<u64> {
        allocated_bytes(&self.0.files, wanted)
    }
}

/// Returns the allocated bytes of the files in a directory whose name is `wanted`: the bytes of their blocks.
pub fn allocated_bytes(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && entry.file_name().to_str().is_some_and(&wanted) {
            bytes += metadata.blocks() * STAT_BLOCK_BYTES;
        }
    }
    Ok(bytes)
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(|error| not_removed(path, error))
    } else {
        Ok(())
    }
}

fn not_removed(path: &Path, error: io::Error) -> BenchError {
    match error.kind() {
        io::ErrorKind::ResourceBusy => BenchError::Arguments(format!(
            "{} can't be removed, because a file system is mounted below it. An experiment that was killed leaves its file systems \
             mounted: find them with findmnt, and unmount them with umount",
            path.display()
        )),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(place: &DatabasePaths) -> Result<()> {
        std::fs::create_dir_all(&place.region)?;
        std::fs::write(place.region.join(NVM_FILE), "lines")?;
        Ok(std::fs::write(place.files.join("data"), "rows")?)
    }

    #[test]
    fn a_load_that_was_cut_off_is_done_again_and_a_whole_one_is_not() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let memory = tempfile::tempdir().expect("a temporary directory");
        let bench = Bench::open(Some(folder.path().to_owned()), Some(memory.path().to_owned()));
        let bench = bench.expect("directories");
        let cut_off = bench.base("a", |place| load(place).and(Err(BenchError::Wrong("cut off".to_owned()))));
        assert!(cut_off.is_err());
        let base = bench.base("a", load).expect("loaded");
        let again = bench.base("a", |_| Err(BenchError::Wrong("loaded twice".to_owned())));
        assert_eq!(again.expect("the same").files, base.files);
        let copy = bench.copy(&base, "x").expect("a copy");
        let place = copy.place().clone();
        assert_eq!(std::fs::read_to_string(place.files.join("data")).expect("copied"), "rows");
        assert_eq!(std::fs::read_to_string(place.region.join(NVM_FILE)).expect("copied"), "lines");
        assert!(place.region.starts_with(memory.path()));
        assert!(!place.files.join(LOADED).exists());
        assert!(copy.allocated_bytes(|name| name == "data").expect("files") > 0);
        assert_eq!(copy.allocated_bytes(|_| false).expect("files"), 0);
        drop(copy);
        assert!(!place.files.exists() && !place.region.exists() && base.files.exists());
        drop(bench);
        assert!(base.files.exists(), "somebody's directory stays");
        assert_eq!(std::fs::read_dir(memory.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn a_directory_with_a_mounted_file_system_says_what_to_do() {
        let busy = not_removed(Path::new("databases"), io::ErrorKind::ResourceBusy.into()).to_string();
        assert!(busy.contains("databases") && busy.contains("umount"), "{busy}");
        let other = not_removed(Path::new("databases"), io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(!other.contains("umount"), "{other}");
    }

    /// Copied holes became allocated blocks once, on ext4. So a table that was never trimmed looked as dense
    /// as a trimmed one.
    #[test]
    fn a_copy_keeps_holes() {
        const LEN_BYTES: u64 = (5 << 20) + 77;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).expect("made");
        file.set_len(LEN_BYTES).expect("long");
        let written = [(0, 5000), (1 << 20, (1 << 20) + 9), (4 << 20, 4096)];
        for (offset, bytes) in written {
            let bytes: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
            file.write_all_at(&bytes, offset).expect("written");
        }
        copy_file(&from, &to).expect("copied");
        assert!(std::fs::read(&from).expect("there") == std::fs::read(&to).expect("there"), "the same bytes");
        let blocks = |path: &Path| path.metadata().expect("there").blocks();
        assert!(blocks(&to) <= blocks(&from), "{} of {}", blocks(&to), blocks(&from));
        // Reserved blocks are not written, but the file has them.
        fallocate(&file, FallocateFlags::empty(), 0, LEN_BYTES).expect("reserved");
        copy_file(&from, &to).expect("copied");
        assert!(blocks(&to) * STAT_BLOCK_BYTES >= LEN_BYTES, "{}", blocks(&to));
        File::create(&from).expect("empty");
        copy_file(&from, &to).expect("copied");
        assert_eq!(to.metadata().expect("there").len(), 0);
    }

    /// Once, two processes in one directory removed each other's databases. And the directory of a database
    /// that no experiment had made was taken for an empty directory.
    #[test]
    fn directories_of_others_are_left_alone() {
        for other in ["control", "notes.txt"] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            std::fs::write(folder.path().join(other), "").expect("written");
            let refused = Bench::open(Some(folder.path().to_owned()), None).expect_err("refused").to_string();
            assert!(refused.contains(&format!("files of others ({other})")), "{refused}");
            assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1, "nothing was made");
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let open = || Bench::open(Some(folder.path().to_owned()), None);
        let first = open().expect("an empty directory");
        let refused = open().expect_err("in use").to_string();
        assert!(refused.contains(&format!("in use by another process (number {})", std::process::id())));
        drop(first);
        std::fs::write(folder.path().join("left"), "").expect("written");
        drop(open().expect("one of an earlier experiment"));
    }
}
