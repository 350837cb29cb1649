//! The drives of an open database. For each drive: its files, its emulation and its I/O counters.
//!
//! 1. If the log has its own drive, its files are still in the same directory as the data, under other names.
//!    So a loaded database is copied as one directory. Requests to one drive do not delay requests to the
//!    other.
//! 2. The file of an emulated flash drive is in memory, so only the emulated times count. The file of a real
//!    flash drive is in the directory of the database.

use std::path::Path;
use std::sync::Arc;

use varve_device::{Accounting, Directory, Emulated, EmulatedMemory, FileDirectory, FileOptions, NvmProfile};

use super::copies::DatabasePaths;
use super::device::{Apart, Device};
use varve_bench::{BenchError, Result};

/// The profile of emulated persistent memory: as fast as the main memory that it is in, like Kang's NVDIMM.
const NVM_PROFILE: &str = "nvdimm";
/// The name of the subdirectory for a flash cache.
const FLASH: &str = "flash";

/// Names of drives in reports.
pub const HOME: &str = "home";
pub const LOG: &str = "log";
pub const FLASH_DRIVE: &str = FLASH;

/// Returns the microseconds of a flush of the drive with this name.
pub fn flush_us(device: &Device, name: &str) -> f64 {
    let of = match (device.apart(), name) {
        (Some(apart), LOG) => &apart.log,
        (Some(apart), FLASH_DRIVE) => &apart.flash,
        _ => device,
    };
    of.flush_us()
}

/// One drive of an open database.
pub struct Drive {
    /// The name of the drive in reports.
    pub name: &'static str,
    /// The emulation, which makes the drive as slow as its profile says.
    pub emulated: Option<Arc<Emulated>>,
    /// The counters of the drive's requests.
    pub account: Arc<Accounting>,
}

/// The directories of an open database, and its drives.
pub struct Drives {
    /// The directory of data and undo, and of the log unless that is separate.
    pub files: Arc<dyn Directory>,
    /// The directory of the log, if it is separate.
    pub log: Option<Arc<dyn Directory>>,
    /// The directory of the flash cache, if the device has a separate drive for one.
    pub flash: Option<Arc<dyn Directory>>,
    /// The directory of temporary files.
    pub temporary: Arc<dyn Directory>,
    /// The directory of the region of persistent memory.
    pub nvm: Option<Arc<dyn Directory>>,
    /// All drives except those of temporary files and of the region.
    pub all: Vec<Drive>,
}

impl Drives {
    /// Opens the directories of a database, with persistent memory or without.
    pub fn open(place: &DatabasePaths, has_nvm: bool, device: &Device, dilation: f64) -> Result<Self> {
        let mut all = Vec::new();
        let mut open = |name, device: &Device, path: &Path| -> Result<Arc<dyn Directory>> {
            let (directory, emulated) = device.open(path, dilation)?;
            let account = Arc::clone(directory.accounting());
            all.push(Drive { name, emulated, account });
            Ok(directory)
        };
        let files = open(HOME, device, &place.files)?;
        let (mut log, mut flash) = (None, None);
        if let Some(Apart { log: log_device, flash: flash_device }) = device.apart() {
            log = Some(open(LOG, log_device, &place.files)?);
            let at = if flash_device.is_emulated() { &place.region } else { &place.files };
            flash = Some(open(FLASH_DRIVE, flash_device, &at.join(FLASH))?);
        }
        let nvm = if has_nvm { Some(open_nvm(&place.region, dilation)?) } else { None };
        let temporary = open_directory(&place.files.join("temporary"))?;
        Ok(Self { files, log, flash, temporary, nvm, all })
    }
}

fn open_directory(path: &Path) -> Result<Arc<dyn Directory>> {
    Ok(FileDirectory::open_or_create(path, FileOptions::default()).map_err(std::io::Error::other)?)
}

fn open_nvm(path: &Path, dilation: f64) -> Result<Arc<dyn Directory>> {
    let profile =
        NvmProfile::shipped(NVM_PROFILE).map_err(|error| BenchError::Arguments(error.to_string()))?;
    Ok(EmulatedMemory::wrap(open_directory(path)?, profile, dilation))
}
