//! Checks a data directory before the database is opened: whether other programs or processes use it, and
//! which devices belong to the database.
//!
//! Invariants
//! 1. Nothing is written into a directory that has files of other programs.
//! 2. Every directory of a database is locked before anything in it is read, and stays locked.
//! 3. A missing device is an error. The only exception is a device that has nothing but the flash cache. The
//!    database then opens without the cache and reports that.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_device::{
    Capabilities, DeviceError, DirLock, Directory, Emulated, EmulatedMemory, ErrorKind, FileDirectory,
    FileOptions, MemoryDirectory, NvmProfile, Profile,
};
use varve_engine::{Database, Options};
use varve_pager::control::{CONTROL_FILE, Control};
use varve_pager::{
    ArchiveOptions, FlashConfig, HomeLayout, NVM_FILE, NvmConfig, NvmFlush, PackedConfig, PagerConfig,
    ProtectionKind, REGION_HEADER_BYTES, is_unneeded_region,
};
use varve_query::EmulatedDrive;

use crate::archive_place::ArchivePlace;
use crate::config::{
    AUTO_FILE_NAME, AUTO_FILE_NEW, DeviceSettings, FILE_NAME, FlashSection, MAIN_DEVICE, NvmSettings,
    RegionSettings, Settings, show_bytes,
};
use crate::error::OpenError;
use crate::memory::{default_pool_bytes, memory_bytes};
use crate::tables_file::wanted;
use crate::tablespace_locations::TablespaceLocations;

/// The state of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryState {
    /// There is no such directory.
    Missing,
    /// It has no files, or only files that may be in any data directory.
    Empty,
    /// It has a database.
    Database,
}

/// Names of files that do not count as files of other programs.
const NOBODYS: &[&str] = &[
    FILE_NAME,
    AUTO_FILE_NAME,
    AUTO_FILE_NEW,
    "varve.lock",
    "control.new",
    "nvm.varve.new",
    "tables.varve.new",
    "lost+found",
];
/// The purpose of the device of `[flash]`, for messages.
const FLASH: &str = "flash";
/// Permission bits of a directory, in this order: the group may write; all other users have all rights; all
/// other users may write; users may remove only their own files.
const GROUP_WRITES: u32 = 0o020;
const OTHERS: u32 = 0o007;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// If the flash cache is smaller than one tenth of the pool, there is a warning.
const POOL_IN_FLASH: u64 = 10;
/// If persistent memory has fewer bytes for pages, there is a warning.
const NVM_PAGES_BYTES_MIN: u64 = 1 << 20;
/// The most page writers by default.
const WRITERS_MAX: usize = 8;

/// Inspects a directory without changing it.
pub fn inspect(path: &Path) -> Result<DirectoryState, OpenError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return if path.is_symlink() {
                Err(OpenError::Dangling { path: path.to_owned() })
            } else {
                Ok(DirectoryState::Missing)
            };
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(OpenError::NotDirectory { path: path.to_owned() });
        }
        Err(error) => return Err(OpenError::Unreadable { path: path.to_owned(), error }),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| OpenError::Unreadable { path: path.to_owned(), error })?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !NOBODYS.contains(&name.as_str()));
    if !names.iter().any(|name| name == CONTROL_FILE) && is_unused_region(&path.join(NVM_FILE)) {
        names.retain(|name| name != NVM_FILE);
    }
    names.sort();
    let ours = |name: &String| name == CONTROL_FILE || name.ends_with(".varve");
    match names.first() {
        None => Ok(DirectoryState::Empty),
        Some(_) if names.iter().any(|name| name == CONTROL_FILE) => Ok(DirectoryState::Database),
        Some(_) if names.iter().any(ours) => Err(OpenError::ControlLost { path: path.to_owned() }),
        Some(_) => Err(OpenError::Foreign { path: path.to_owned(), names: some_of(&names) }),
    }
}

/// Returns whether the user made a file for a new region, or the file is a region that is not needed any
/// more.
fn is_unused_region(path: &Path) -> bool {
    let mut header = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(REGION_HEADER_BYTES as u64).read_to_end(&mut header));
    read.is_ok() && is_unneeded_region(&header)
}

fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 3 { format!("{shown} and {} more", names.len() - 3) } else { shown }
}

/// A device that is ready for use, with its properties.
pub struct Device {
    /// Its name in the configuration.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// The device.
    pub directory: Arc<dyn Directory>,
}

impl Device {
    /// Returns the properties that were found.
    pub fn capabilities(&self) -> &Capabilities {
        self.directory.capabilities()
    }
}

/// The locked devices of a database and the options to open it with.
pub struct DatabaseDevices {
    /// The devices. The first one is the data directory.
    pub devices: Vec<Device>,
    /// Whether the data directory has no database yet.
    pub is_new: bool,
    /// Warnings about missing parts that are not needed, with the reasons.
    pub warnings: Vec<String>,
    locks: Vec<DirLock>,
}

impl DatabaseDevices {
    /// Locks and probes the data directory and the devices that spaces use. If the data directory is missing,
    /// it is created.
    pub fn open(path: &Path, settings: &Settings) -> Result<DatabaseDevices, OpenError> {
        let state = inspect(path)?;
        check_pool(settings)?;
        varve_device::create_directory(path)
            .map_err(|error| OpenError::Unreadable { path: path.to_owned(), error })?;
        let mut warnings = Vec::from_iter(close_to_others(path, state)?);
        warnings.extend(open_devices(settings));
        let is_new = state != DirectoryState::Database;
        let main = DeviceSettings {
            path: path.to_owned(),
            profile: None,
            capacity_bytes: None,
            direct: true,
            endurance_bytes: None,
        };
        let mut home = DatabaseDevices { devices: Vec::new(), is_new, warnings, locks: Vec::new() };
        home.add(MAIN_DEVICE, &main, &["control"])?;
        for (name, device) in &settings.devices {
            let spaces = spaces_on(name, settings);
            match spaces[..] {
                [] => home.check_path(name, &device.path, &["none"])?,
                [FLASH] => home.add_cache(name, device)?,
                _ => home.add(name, device, &spaces)?,
            }
        }
        Ok(home)
    }

    /// Adds warnings about levels that are too small for a start with these settings. `varve nvm` starts
    /// nothing and does not call this.
    pub fn warn_of_small_levels(&mut self, settings: &Settings) {
        self.warnings.extend(small_levels(settings));
    }

    fn add(&mut self, name: &str, settings: &DeviceSettings, spaces: &[&str]) -> Result<(), OpenError> {
        let path = &settings.path;
        let fail = |error: DeviceError| device_error(name, spaces, path, error);
        self.check_path(name, path, spaces)?;
        self.locks.push(DirLock::take(path).map_err(fail)?);
        let options = FileOptions { direct_io: settings.direct, ..FileOptions::default() };
        let files: Arc<dyn Directory> = FileDirectory::open(path, options).map_err(fail)?;
        let directory = match &settings.profile {
            None => files,
            Some(profile) => emulated(files, profile, settings.capacity_bytes)?,
        };
        self.devices.push(Device { name: name.to_owned(), path: path.clone(), directory });
        Ok(())
    }

    /// Adds the device of the flash cache. If the device has nothing else, it may be missing.
    fn add_cache(&mut self, name: &str, settings: &DeviceSettings) -> Result<(), OpenError> {
        match self.add(name, settings, &[FLASH]) {
            Err(
                gone @ (OpenError::DeviceMissing { .. }
                | OpenError::DeviceNoDirectory { .. }
                | OpenError::DeviceReadOnly { .. }
                | OpenError::Device { .. }),
            ) => {
                self.warnings.push(format!("there is no flash cache until the next start: {gone}"));
                Ok(())
            }
            added => added,
        }
    }

    /// Checks the directory of a device. Each device needs its own directory. Two devices in one directory
    /// would need the directory's lock twice, and their bytes would be counted for both.
    fn check_path(&self, name: &str, path: &Path, spaces: &[&str]) -> Result<(), OpenError> {
        let (name, spaces) = (name.to_owned(), spaces.join(", "));
        if !path.exists() {
            return Err(OpenError::DeviceMissing { name, spaces, path: path.to_owned() });
        }
        if !path.is_dir() {
            return Err(OpenError::DeviceNoDirectory { name, spaces, path: path.to_owned() });
        }
        let real = path.canonicalize().ok();
        let twin = self.devices.iter().find(|device| device.path.canonicalize().ok() == real);
        match twin {
            Some(twin) => {
                Err(OpenError::DeviceTwice { name, other: twin.name.clone(), path: path.to_owned() })
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes that drives may write in their life, by the locations of the devices.
    pub fn rated_bytes(&self, settings: &Settings) -> Vec<(String, u64)> {
        let rated =
            |device: &Device| Some((device.directory.location(), settings.endurance_bytes(&device.name)?));
        self.devices.iter().filter_map(rated).collect()
    }

    /// Returns the options for opening the database.
    pub fn options(&self, settings: &Settings) -> Result<Options, OpenError> {
        let main = self.directory(MAIN_DEVICE);
        let mut pager = PagerConfig::new(main.clone());
        let mut has_compressed = false;
        if !self.is_new
            && let Some(control) = Control::open(&*main)?
        {
            self.check_created_with(&control, settings)?;
            let stored = control.get();
            pager.page_size = stored.page_size as usize;
            pager.layout = layout_of(&control);
            has_compressed = stored.has_compressed_pages;
        }
        if let Some(bytes) = settings.pool.page_size_bytes {
            pager.page_size = bytes as usize;
        }
        pager.data = self.directory(&settings.spaces.data);
        pager.log = self.directory(&settings.spaces.log);
        pager.rollback = self.directory(&settings.spaces.rollback);
        pager.temporary = self.directory(&settings.spaces.temporary);
        let unused = settings.devices.iter().filter(|(name, _)| spaces_on(name, settings).is_empty());
        let unused = unused.map(|(name, device)| (name.clone(), device.clone())).collect();
        pager.locations = Arc::new(TablespaceLocations::new(unused, emulated));
        let memory = settings.nvm.as_ref().map(|nvm| self.memory(nvm)).transpose()?;
        pager.nvm = memory.clone().and_then(|directory| region(settings, directory));
        let has_device = |cache: &FlashSection| self.devices.iter().any(|one| one.name == cache.device);
        if settings.flash.as_ref().is_some_and(has_device) {
            pager.flash = flash(settings, |device| self.directory(device));
        }
        apply(settings, has_compressed, &mut pager);
        let tables = settings.nvm.as_ref().map(|nvm| nvm.tables);
        let tables = memory.zip(tables).and_then(|(directory, tables)| wanted(tables, directory));
        let archive = settings.archive.directory.clone().map(|path| ArchiveOptions {
            store: Arc::new(ArchivePlace::new(path)),
            interval: settings.archive.interval(),
            compression: settings.archive.compression(),
        });
        Ok(Options { derive: Some(varve_sql::deriver()), memory: tables, archive, ..Options::new(pager) })
    }

    /// Returns the device of `[nvm]`, with the speed of the medium that it emulates.
    fn memory(&self, nvm: &NvmSettings) -> Result<Arc<dyn Directory>, OpenError> {
        let memory = self.directory(&nvm.device);
        Ok(match &nvm.emulate {
            None => memory,
            Some(name) => {
                let profile = NvmProfile::shipped(name).map_err(|error| OpenError::Profile { error })?;
                EmulatedMemory::wrap(memory, profile, 1.0)
            }
        })
    }

    fn check_created_with(&self, control: &Control, settings: &Settings) -> Result<(), OpenError> {
        let path = || self.devices[0].path.clone();
        let created = u64::from(control.get().page_size);
        if let Some(wanted) = settings.pool.page_size_bytes
            && wanted != created
        {
            let (created, wanted) = (show_bytes(created), show_bytes(wanted));
            return Err(OpenError::PageSize { path: path(), created, wanted });
        }
        let created = layout_of(control).name();
        match settings.layout.map(HomeLayout::name) {
            Some(wanted) if wanted != created => Err(OpenError::Layout { path: path(), created, wanted }),
            _ => Ok(()),
        }
    }

    /// Returns the device with this name.
    pub fn directory(&self, name: &str) -> Arc<dyn Directory> {
        let device = self.devices.iter().find(|device| device.name == name);
        match device {
            Some(device) => device.directory.clone(),
            None => unreachable!("the configuration was checked: every space names a device ({name})"),
        }
    }

    /// Returns the directory for temporary files of queries, which is that of the temporary space.
    pub fn spill(&self, settings: &Settings) -> Option<PathBuf> {
        let device = self.devices.iter().find(|device| device.name == settings.spaces.temporary);
        device.or(self.devices.first()).map(|device| device.path.clone())
    }

    /// Returns the device of the temporary space, if it is emulated.
    pub fn emulated_spill(&self, settings: &Settings) -> Result<Option<EmulatedDrive>, OpenError> {
        let name = &settings.spaces.temporary;
        let profile = settings.devices.get(name).and_then(|device| device.profile.as_deref());
        let device = self.devices.iter().find(|device| device.name == *name);
        let (Some(profile), Some(device)) = (profile, device) else { return Ok(None) };
        let (directory, profile) = (device.directory.clone(), shipped(profile)?);
        Ok(Some(EmulatedDrive { directory, profile }))
    }

    /// Releases the locks. The database must be closed.
    pub fn close(self) {
        drop(self.locks);
    }
}

/// Returns the configuration of the flash cache. `directory` returns a device by its name.
fn flash(settings: &Settings, directory: impl Fn(&str) -> Arc<dyn Directory>) -> Option<FlashConfig> {
    settings.flash.as_ref().map(|flash| FlashConfig::with(directory(&flash.device), flash.settings))
}

/// Returns the region for the log and pages, in a directory.
fn region(settings: &Settings, directory: Arc<dyn Directory>) -> Option<NvmConfig> {
    let RegionSettings { size_bytes, log_bytes } = settings.nvm.as_ref()?.region?;
    Some(NvmConfig { directory, size_bytes, log_bytes })
}

/// Sets the settings of the pager other than directories. `has_compressed` says that the database may have
/// compressed pages, even if the settings no longer ask for compression.
fn apply(settings: &Settings, has_compressed: bool, pager: &mut PagerConfig) {
    pager.pool_bytes = settings.pool.size_bytes.unwrap_or_else(default_pool_bytes) as usize;
    pager.replacement = settings.pool.replacement;
    pager.page_writers = page_writers(settings, has_compressed);
    pager.nvm_flush = settings.nvm.as_ref().map_or(NvmFlush::DEFAULT, |nvm| nvm.flush);
    pager.pacing = settings.pool.pacing;
    pager.log_segment_bytes = settings.log.segment_bytes;
    pager.log_capacity_bytes = settings.log.capacity_bytes;
    pager.checkpoint = settings.checkpoint.over(pager.checkpoint);
    pager.protection = settings.protection;
    pager.layout = match settings.layout.unwrap_or(pager.layout) {
        HomeLayout::InPlace => HomeLayout::InPlace,
        HomeLayout::Packed(wished) => {
            let now = pager.layout.packed().unwrap_or(wished);
            HomeLayout::Packed(settings.packed.over(now))
        }
    };
    pager.compression = settings.compression;
    pager.trim = settings.trim;
    pager.accepts_copy = settings.accepts_copy;
}

/// Returns the number of page writers for these settings. `has_compressed` says that the database may have
/// compressed pages, even if the settings do not ask for compression.
pub fn page_writers(settings: &Settings, has_compressed: bool) -> usize {
    let compresses = has_compressed || !settings.compression.is_none();
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    settings.pool.page_writers.unwrap_or_else(|| writers_for(compresses, processors))
}

/// Returns the default number of page writers. It is higher with compression, which takes processor time.
fn writers_for(compresses: bool, processors: usize) -> usize {
    if compresses { processors.min(WRITERS_MAX) } else { 1 }
}

/// Returns an error if the next start of an open database would refuse the settings. Devices are not checked,
/// because ALTER SYSTEM cannot change them.
pub fn check_next(settings: &Settings, database: &Database) -> Result<(), OpenError> {
    check_pool(settings)?;
    database.check_next_tables(settings.nvm.as_ref().and_then(|nvm| nvm.tables.form()))?;
    let open = database.pager();
    let mut next = open.config().clone();
    let nvm_device = next.nvm.take().map_or_else(|| next.control.clone(), |nvm| nvm.directory);
    next.nvm = region(settings, nvm_device);
    let flash_device = next.flash.take().map_or_else(|| next.control.clone(), |flash| flash.directory);
    next.flash = flash(settings, |_| flash_device.clone());
    apply(settings, false, &mut next);
    Ok(open.check_next(&next)?)
}

/// Returns the page layout of a database.
fn layout_of(control: &Control) -> HomeLayout {
    match control.get().packed {
        true => HomeLayout::Packed(PackedConfig::DEFAULT),
        false => HomeLayout::InPlace,
    }
}

/// Takes the rights of other users on the data directory away, because they could read rows and passwords
/// there. If there is no database yet, this happens without a message, as in PostgreSQL's initdb. If an older
/// program left the directory open to readers, the function returns a message. It refuses a directory in
/// which others may write, because they may have changed its files.
fn close_to_others(path: &Path, state: DirectoryState) -> Result<Option<String>, OpenError> {
    let unreadable = |error| OpenError::Unreadable { path: path.to_owned(), error };
    let mode = varve_device::directory_mode(path).map_err(unreadable)?;
    let is_closed = mode & (GROUP_WRITES | OTHERS) == 0;
    match state {
        DirectoryState::Database if mode & (GROUP_WRITES | OTHERS_WRITE) != 0 => {
            Err(OpenError::Permissions { path: path.to_owned(), mode: mode & 0o777 })
        }
        _ if is_closed => Ok(None),
        DirectoryState::Database => {
            let closed = varve_device::restrict_directory(path);
            let who =
                if closed.is_ok() { "only its owner may from now on" } else { "close it with chmod 700" };
            let shown = path.display();
            Ok(Some(format!(
                "others could read the data directory {shown} (mode {:04o}): {who}",
                mode & 0o777
            )))
        }
        DirectoryState::Missing | DirectoryState::Empty => {
            // The call fails if the user is not the owner of the directory. Even then, the permissions of the
            // files in the directory protect them.
            let _not_the_owner = varve_device::restrict_directory(path);
            Ok(None)
        }
    }
}

/// Returns warnings about directories of devices in which others can remove and replace files. The operator
/// made these directories, so Varve does not change them.
fn open_devices(settings: &Settings) -> Vec<String> {
    let is_open = |device: &&DeviceSettings| {
        let mode = varve_device::directory_mode(&device.path).unwrap_or(0);
        mode & STICKY == 0 && mode & (GROUP_WRITES | OTHERS_WRITE) != 0
    };
    let used = settings.devices.iter().filter(|(name, _)| !spaces_on(name, settings).is_empty());
    let told = |device: &DeviceSettings| {
        let path = device.path.display();
        format!("others can write to {path}, and could remove files of the database: run chmod go-w {path}")
    };
    used.map(|(_, device)| device).filter(is_open).map(told).collect()
}

/// Returns warnings about levels that are too small to be useful.
fn small_levels(settings: &Settings) -> Vec<String> {
    let pool = settings.pool.size_bytes.unwrap_or_else(default_pool_bytes);
    let is_small = |flash: &&FlashSection| flash.settings.size_bytes < pool / POOL_IN_FLASH;
    let flash = settings.flash.iter().filter(is_small).map(|flash| {
        format!(
            "flash.size = {} is small compared with the buffer pool of {}: most of its pages will be in memory, too. Raise [flash] size",
            show_bytes(flash.settings.size_bytes),
            show_bytes(pool)
        )
    });
    let has_pages = settings.protection == ProtectionKind::Nvm;
    let regions = settings.nvm.iter().filter_map(|nvm| nvm.region);
    let nvm =
        regions.filter(|it| has_pages && it.size_bytes - it.log_bytes < NVM_PAGES_BYTES_MIN).map(|region| {
            format!(
                "nvm.size = {} leaves {} for pages: changes will wait until pages are written to the data files. Raise [nvm] size",
                show_bytes(region.size_bytes),
                show_bytes(region.size_bytes - region.log_bytes)
            )
        });
    flash.chain(nvm).collect()
}

/// Checks settings without opening any file.
pub fn check_settings(settings: &Settings) -> Result<(), OpenError> {
    check_pool(settings)?;
    let default_bytes = PagerConfig::new(MemoryDirectory::new()).page_size as u64;
    let page_size = settings.pool.page_size_bytes.unwrap_or(default_bytes);
    Ok(next_config(settings, page_size as usize).check()?)
}

/// Returns the pager's configuration with the sizes in the settings. No device is accessed.
pub fn next_config(settings: &Settings, page_size: usize) -> PagerConfig {
    let memory = MemoryDirectory::new();
    let mut pager = PagerConfig { page_size, ..PagerConfig::new(memory.clone()) };
    pager.flash = flash(settings, |_| memory.clone());
    pager.nvm = region(settings, memory);
    apply(settings, false, &mut pager);
    pager
}

/// Checks the size of the pool. If the pool is larger than the memory, the system ends the process, or it
/// swaps pages that it could read from their files.
fn check_pool(settings: &Settings) -> Result<(), OpenError> {
    match (settings.pool.size_bytes, memory_bytes()) {
        (Some(pool), Some(memory)) if pool > memory => {
            Err(OpenError::PoolTooLarge { pool: show_bytes(pool), memory: show_bytes(memory) })
        }
        _ => Ok(()),
    }
}

fn spaces_on(device: &str, settings: &Settings) -> Vec<&'static str> {
    let spaces = &settings.spaces;
    let places = [
        ("data", &spaces.data),
        ("log", &spaces.log),
        ("rollback", &spaces.rollback),
        ("temporary", &spaces.temporary),
    ];
    let spaces = places.iter().filter(|(_, place)| *place == device).map(|(space, _)| *space);
    let nvm = settings.nvm.iter().filter(|nvm| nvm.device == device).map(|_| "nvm");
    let flash = settings.flash.iter().filter(|flash| flash.device == device).map(|_| FLASH);
    spaces.chain(nvm).chain(flash).collect()
}

fn emulated(
    files: Arc<dyn Directory>,
    profile: &str,
    capacity_bytes: Option<u64>,
) -> Result<Arc<dyn Directory>, OpenError> {
    let found = shipped(profile)?;
    Ok(match capacity_bytes {
        None => Emulated::wrap(files, found, 1.0),
        Some(bytes) => Emulated::sized(files, found, 1.0, bytes),
    })
}

fn shipped(profile: &str) -> Result<Profile, OpenError> {
    Profile::shipped(profile).map_err(|error| OpenError::Profile { error })
}

fn device_error(name: &str, spaces: &[&str], path: &Path, error: DeviceError) -> OpenError {
    let (name, spaces, path) = (name.to_owned(), spaces.join(", "), path.to_owned());
    match error.kind {
        ErrorKind::Locked { pid } => {
            OpenError::Locked { path, pid: pid.map_or("unknown".into(), |pid| pid.to_string()) }
        }
        ErrorKind::NotFound => OpenError::DeviceMissing { name, spaces, path },
        ErrorKind::ReadOnly => OpenError::DeviceReadOnly { name, spaces, path },
        _ => OpenError::Device { name, spaces, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without compression there is one page writer, with either layout.
    #[test]
    fn page_writers_are_as_many_as_compression_needs() {
        assert_eq!([1, 4, 64].map(|processors| writers_for(false, processors)), [1, 1, 1]);
        assert_eq!([1, 4, 64].map(|processors| writers_for(true, processors)), [1, 4, 8]);
        let plain = Settings::default();
        assert_eq!(page_writers(&plain, false), 1);
        let read =
            |text: &str| Settings::parse(text, Path::new("")).map(|settings| page_writers(&settings, true));
        assert_eq!(read("[pool]\npage_writers = 3\n").ok(), Some(3));
        let compressed = Settings::parse("[home]\ncompression = \"lz4\"\n", Path::new(""));
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let writers = compressed.map(|settings| page_writers(&settings, false));
        assert_eq!(writers.ok(), Some(processors.min(WRITERS_MAX)));
        let packed = Settings::parse("[home]\nlayout = \"packed\"\n", Path::new(""));
        assert_eq!(packed.map(|settings| page_writers(&settings, false)).ok(), Some(1));
    }
}
