//! The directories of tablespaces: a location is the name of a device of the configuration that no space
//! uses, or the absolute path of a directory.
//!
//! Invariants
//! 1. A directory is locked before anything in it is read. It stays locked as long as anything uses it.
//! 2. A directory that is in use is not opened a second time.
//!
//! This module does not know which tablespaces there are.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use varve_device::{Directory, FileDirectory, FileOptions};
use varve_pager::{BadLocation, LocationFlaw, Locations};

use crate::config::DeviceSettings;
use crate::error::OpenError;

/// Makes an emulated device over files, from the name of its profile and its capacity in bytes.
pub(crate) type Emulate = fn(Arc<dyn Directory>, &str, Option<u64>) -> Result<Arc<dyn Directory>, OpenError>;

/// The locations.
pub(crate) struct TablespaceLocations {
    /// The devices of the configuration that no space uses.
    devices: BTreeMap<String, DeviceSettings>,
    emulate: Emulate,
    /// The directories in use.
    opened: Mutex<BTreeMap<PathBuf, Weak<dyn Directory>>>,
}

impl TablespaceLocations {
    pub(crate) fn new(devices: BTreeMap<String, DeviceSettings>, emulate: Emulate) -> TablespaceLocations {
        TablespaceLocations { devices, emulate, opened: Mutex::default() }
    }

    fn settings_of(&self, location: &str) -> Result<DeviceSettings, BadLocation> {
        if let Some(device) = self.devices.get(location) {
            return Ok(device.clone());
        }
        if !Path::new(location).is_absolute() {
            let what = format!(
                "tablespace location \"{location}\" must be an absolute path, or the name of a device in [devices] that no \
                 space uses"
            );
            return Err(BadLocation::new(LocationFlaw::NotAbsolute, what));
        }
        Ok(DeviceSettings {
            path: location.into(),
            profile: None,
            capacity_bytes: None,
            direct: true,
            endurance_bytes: None,
        })
    }
}

/// The real path of a directory.
fn real_path(path: &Path) -> Result<PathBuf, BadLocation> {
    let shown = path.display();
    let bad = |flaw, what| Err(BadLocation::new(flaw, what));
    match path.canonicalize() {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => bad(LocationFlaw::NotDirectory, format!("\"{shown}\" is not a directory")),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => {
                bad(LocationFlaw::Missing, format!("directory \"{shown}\" does not exist: make it first"))
            }
            ErrorKind::NotADirectory => {
                bad(LocationFlaw::NotDirectory, format!("a part of the path \"{shown}\" is not a directory"))
            }
            ErrorKind::PermissionDenied => {
                let what =
                    format!("directory \"{shown}\" cannot be used: {error}; let this user read and write it");
                bad(LocationFlaw::NoAccess, what)
            }
            _ => bad(LocationFlaw::Io, format!("directory \"{shown}\" cannot be used: {error}")),
        },
    }
}

impl Locations for TablespaceLocations {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, BadLocation> {
        let settings = self.settings_of(location)?;
        let path = &settings.path;
        let real = real_path(path)?;
        let mut opened = self.opened.lock();
        opened.retain(|_, directory| directory.strong_count() > 0);
        if let Some(directory) = opened.get(&real).and_then(Weak::upgrade) {
            return Ok(directory);
        }
        let options = FileOptions { direct_io: settings.direct, ..FileOptions::default() };
        let files: Arc<dyn Directory> = FileDirectory::open_locked(path, options)?;
        let directory = match &settings.profile {
            None => files,
            Some(profile) => {
                let emulated = (self.emulate)(files, profile, settings.capacity_bytes);
                emulated.map_err(|error| BadLocation::new(LocationFlaw::Io, error.to_string()))?
            }
        };
        opened.insert(real, Arc::downgrade(&directory));
        Ok(directory)
    }
}
