//! The directories of tablespaces: a location is the name of a device of the configuration that no space
//! uses, or the absolute path of a directory.
//!
//! Invariants
//! 1. A directory is locked before anything in it is read, and stays locked until the database is closed.
//! 2. Each directory is opened once.
//!
//! This module does not know which tablespaces there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{DirLock, Directory, FileDirectory, FileOptions};
use varve_pager::Locations;

use crate::config::DeviceSettings;
use crate::error::OpenError;

/// Makes an emulated device over files, from the name of its profile and its capacity in bytes.
pub(crate) type Emulate = fn(Arc<dyn Directory>, &str, Option<u64>) -> Result<Arc<dyn Directory>, OpenError>;

/// The locations.
pub(crate) struct TablespaceLocations {
    /// The devices of the configuration that no space uses.
    devices: BTreeMap<String, DeviceSettings>,
    emulate: Emulate,
    opened: Mutex<BTreeMap<PathBuf, Opened>>,
}

struct Opened {
    _lock: DirLock,
    directory: Arc<dyn Directory>,
}

impl TablespaceLocations {
    pub(crate) fn new(devices: BTreeMap<String, DeviceSettings>, emulate: Emulate) -> TablespaceLocations {
        TablespaceLocations { devices, emulate, opened: Mutex::default() }
    }

    fn settings_of(&self, location: &str) -> Result<DeviceSettings, String> {
        if let Some(device) = self.devices.get(location) {
            return Ok(device.clone());
        }
        if !Path::new(location).is_absolute() {
            return Err(format!(
                "tablespace location \"{location}\" must be an absolute path, or the name of a device in [devices] that no \
                 space uses"
            ));
        }
        Ok(DeviceSettings { path: location.into(), profile: None, capacity_bytes: None, direct: true })
    }
}

impl Locations for TablespaceLocations {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, String> {
        let settings = self.settings_of(location)?;
        let path = &settings.path;
        let real =
            path.canonicalize().map_err(|error| format!("directory \"{}\": {error}", path.display()))?;
        if !real.is_dir() {
            return Err(format!("\"{}\" is not a directory", path.display()));
        }
        let mut opened = self.opened.lock();
        if let Some(opened) = opened.get(&real) {
            return Ok(opened.directory.clone());
        }
        let lock = DirLock::take(path).map_err(|error| error.to_string())?;
        let options = FileOptions { direct_io: settings.direct, ..FileOptions::default() };
        let files: Arc<dyn Directory> =
            FileDirectory::open(path, options).map_err(|error| error.to_string())?;
        let directory = match &settings.profile {
            None => files,
            Some(profile) => {
                (self.emulate)(files, profile, settings.capacity_bytes).map_err(|error| error.to_string())?
            }
        };
        opened.insert(real, Opened { _lock: lock, directory: directory.clone() });
        Ok(directory)
    }
}
