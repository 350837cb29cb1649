//! The directory of the temporary files of queries, and the temporary space of a join that the crate `spill`
//! runs. The module `spill` of this crate has the files of DataFusion.
//!
//! Invariants
//! 1. The directory is opened when the first query writes to it. So a database can be opened on a full
//!    device.
//! 2. A file has no name once it is open. So the kernel removes it when it is closed, even if the process
//!    crashes. If a crash comes between the two, the file is removed when the directory is opened again.
//! 3. The files count against the quota of the session until they are closed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use varve_device::{
    Accounting, BlockFile, Capabilities, DeviceError, Directory, Durability, ErrorKind, FileDirectory,
    FileOptions, Location, OpenHow, Operation, Profile, Purpose, Result, Space,
};
use varve_engine::TemporaryQuota;
use varve_spill::{DriveTimes, SpillError, TemporarySpace};

/// The beginning of the names of files.
const PREFIX: &str = "query-";

/// The number of the next file of this process.
static FILES: AtomicU64 = AtomicU64::new(0);

/// The resources that the joins of an execution may use.
pub struct JoinResources {
    /// The directory of the files.
    pub directory: Arc<TemporaryDirectory>,
    /// The space that the files may take.
    pub quota: Arc<TemporaryQuota>,
    /// The memory of one join (`work_mem`), in bytes.
    pub work_bytes: usize,
}

/// An emulated device with a directory of temporary files. Queries that spill are as slow on it as on the
/// device of the profile.
#[derive(Clone)]
pub struct EmulatedDrive {
    /// The directory on the device.
    pub directory: Arc<dyn Directory>,
    /// The profile of the device.
    pub profile: Profile,
}

impl std::fmt::Debug for EmulatedDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmulatedDrive({}, {})", self.profile.name, self.directory.location())
    }
}

/// The directory of temporary files, opened when it is needed.
pub struct TemporaryDirectory {
    path: PathBuf,
    emulated: Option<Arc<dyn Directory>>,
    /// The counters of the files, unless the device is emulated.
    accounting: Arc<Accounting>,
    opened: Mutex<Option<Arc<dyn Directory>>>,
    /// The times of its drive, after the first measurement. It is locked while the drive is measured.
    drive: Mutex<Option<DriveTimes>>,
}

impl TemporaryDirectory {
    /// Returns a directory that is not open yet. If the device is not emulated, the requests to its files are
    /// counted in `accounting`.
    pub fn new(
        path: PathBuf,
        emulated: Option<&EmulatedDrive>,
        accounting: Arc<Accounting>,
    ) -> TemporaryDirectory {
        let drive = Mutex::new(emulated.map(|emulated| DriveTimes::of(&emulated.profile)));
        let emulated = emulated.map(|emulated| emulated.directory.clone());
        TemporaryDirectory { path, emulated, accounting, opened: Mutex::default(), drive }
    }

    /// Returns the times of the drive. If the drive is not emulated, the first call measures it, and the
    /// query of this call waits. A measurement takes about half a second on a disk. Other queries do not
    /// wait: until the times are known, they use the times of the flash drive of Do 2012.
    ///
    /// The measurement uses direct I/O, because files that are much larger than the kernel's cache have the
    /// speed of the drive. Its file of 8 MiB exists only during the measurement, and no quota counts it. If
    /// the measurement fails, for example on a full drive, the times of that flash drive are used from then
    /// on.
    pub fn drive(&self) -> DriveTimes {
        let Some(mut drive) = self.drive.try_lock() else { return DriveTimes::FLASH };
        if let Some(times) = *drive {
            return times;
        }
        let directory = FileDirectory::open(&self.path, FileOptions::default());
        let measured =
            directory.map_err(SpillError::from).and_then(|directory| DriveTimes::measure(&*directory));
        *drive.insert(measured.unwrap_or(DriveTimes::FLASH))
    }

    /// Makes a file without a name. It counts against the quota. If the quota refuses space, the error of the
    /// device is that it is full, and `refused` has the error of the quota.
    pub fn file(&self, quota: Arc<TemporaryQuota>, refused: Refused) -> Result<Arc<dyn BlockFile>> {
        let files = UnnamedFiles { inner: self.directory()?, quota, refused, why: None };
        files.open(PREFIX, OpenHow::new_file(Space::Temporary))
    }

    fn directory(&self) -> Result<Arc<dyn Directory>> {
        let mut opened = self.opened.lock();
        if let Some(directory) = &*opened {
            return Ok(directory.clone());
        }
        let directory: Arc<dyn Directory> = match &self.emulated {
            Some(emulated) => emulated.clone(),
            None => {
                // The kernel's cache is used, because partitions are often read again soon after they were
                // written.
                let options = FileOptions { direct_io: false, ..FileOptions::default() };
                FileDirectory::open_counted(&self.path, options, self.accounting.clone())?
            }
        };
        for name in directory.list()?.iter().filter(|name| name.starts_with(PREFIX)) {
            directory.remove(name)?;
        }
        *opened = Some(directory.clone());
        Ok(directory)
    }
}

impl JoinResources {
    /// Returns a temporary space for one join.
    pub fn space(&self) -> std::result::Result<JoinSpace, SpillError> {
        let files = UnnamedFiles {
            inner: self.directory.directory()?,
            quota: self.quota.clone(),
            refused: Arc::default(),
            why: Some(Purpose::TemporaryJoin),
        };
        let (refused, sector_bytes) = (files.refused.clone(), files.inner.capabilities().sector_bytes());
        Ok(JoinSpace { space: TemporarySpace::open(Arc::new(files), u64::MAX)?, refused, sector_bytes })
    }
}

/// The temporary space of one join.
pub struct JoinSpace {
    /// The space.
    pub space: Arc<TemporarySpace>,
    /// The size of a sector, in bytes. The size of a page is a multiple of it.
    pub sector_bytes: u32,
    refused: Refused,
}

/// The reason why the quota has refused space for a file.
pub type Refused = Arc<Mutex<Option<varve_engine::Error>>>;

impl JoinSpace {
    /// Takes and returns the error of the quota, if it has refused something.
    pub fn refused(&self) -> Option<varve_engine::Error> {
        self.refused.lock().take()
    }
}

/// Makes files without names.
struct UnnamedFiles {
    inner: Arc<dyn Directory>,
    quota: Arc<TemporaryQuota>,
    refused: Refused,
    /// The purpose of all requests, instead of the purpose that the caller names.
    why: Option<Purpose>,
}

impl Directory for UnnamedFiles {
    fn open(&self, _name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        let name = format!("{PREFIX}{}-{}", std::process::id(), FILES.fetch_add(1, Relaxed));
        let inner = self.inner.open(&name, how)?;
        if let Err(error) = self.inner.remove(&name)
            && self.inner.exists(&name)?
        {
            return Err(error);
        }
        let (quota, refused) = (self.quota.clone(), self.refused.clone());
        Ok(Arc::new(UnnamedFile { inner, quota, refused, why: self.why, taken_bytes: AtomicU64::new(0) }))
    }

    fn exists(&self, _name: &str) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        Err(DeviceError::new(from, Operation::Rename, ErrorKind::Unsupported))
    }

    fn remove(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn accounting(&self) -> &Arc<Accounting> {
        self.inner.accounting()
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}

/// A file without a name.
struct UnnamedFile {
    inner: Arc<dyn BlockFile>,
    quota: Arc<TemporaryQuota>,
    refused: Refused,
    why: Option<Purpose>,
    taken_bytes: AtomicU64,
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        self.quota.give_back(*self.taken_bytes.get_mut());
    }
}

impl BlockFile for UnnamedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn location(&self) -> &Location {
        self.inner.location()
    }

    fn len_bytes(&self) -> Result<u64> {
        self.inner.len_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, self.why.unwrap_or(why))
    }

    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        self.inner.write_at(offset, buf, self.why.unwrap_or(why), durability)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.inner.punch(offset, len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let more_bytes = len_bytes.saturating_sub(self.taken_bytes.load(Relaxed));
        if let Err(error) = self.quota.take(more_bytes) {
            *self.refused.lock() = Some(error);
            let location = self.location().to_string();
            return Err(DeviceError::new(&location, Operation::SetLen, ErrorKind::NoSpace));
        }
        self.taken_bytes.fetch_add(more_bytes, Relaxed);
        self.inner.set_len(len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_device::MemoryDirectory;

    #[test]
    fn files_have_no_names_and_count_against_the_quota() {
        let (inner, quota) = (MemoryDirectory::new(), Arc::<TemporaryQuota>::default());
        quota.set_limit(1 << 20);
        let refused = Refused::default();
        let files = UnnamedFiles {
            inner: inner.clone(),
            quota: quota.clone(),
            refused: refused.clone(),
            why: Some(Purpose::TemporaryJoin),
        };
        let open = || files.open("spill-0", OpenHow::new_file(Space::Temporary)).unwrap();
        let (one, other) = (open(), open());
        assert_eq!(inner.list().unwrap(), Vec::<String>::new());
        one.set_len(600 << 10).unwrap();
        let error = other.set_len(600 << 10).unwrap_err();
        assert!(error.is_no_space() && refused.lock().take().is_some());
        drop(one);
        other.set_len(1 << 20).unwrap();
        drop(other);
        quota.take(1 << 20).unwrap();
    }
}
