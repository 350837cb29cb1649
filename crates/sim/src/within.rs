//! Stores the files of tablespaces on the device of the data space, so that a crash image has them, too. A
//! prefix of their names separates the tablespaces.

use std::sync::Arc;

use varve_device::{Accounting, BlockFile, Capabilities, Directory, OpenHow, Result, Space};
use varve_pager::{BadLocation, LocationFlaw, Locations};

use crate::devices::Devices;

/// The locations `one` and `two`.
pub(crate) const LOCATIONS: [&str; 2] = ["one", "two"];

/// A directory whose files are in another directory, under names with a prefix.
struct Within {
    inner: Arc<dyn Directory>,
    prefix: String,
}

impl Within {
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Directory for Within {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        self.inner.open(&self.full(name), how)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(&self.full(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        let all = self.inner.list()?;
        Ok(all.iter().filter_map(|name| name.strip_prefix(&self.prefix)).map(str::to_owned).collect())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(&self.full(from), &self.full(to))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(&self.full(name))
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn accounting(&self) -> &Arc<Accounting> {
        self.inner.accounting()
    }

    fn location(&self) -> String {
        format!("{}/{}", self.inner.location(), self.prefix)
    }
}

/// The locations of tablespaces on devices.
pub(crate) struct OnDevices {
    inner: Arc<dyn Directory>,
}

impl OnDevices {
    pub(crate) fn new(devices: &Devices) -> OnDevices {
        OnDevices { inner: devices.of(Space::Data) }
    }
}

impl Locations for OnDevices {
    fn open(&self, location: &str) -> std::result::Result<Arc<dyn Directory>, BadLocation> {
        match LOCATIONS.contains(&location) {
            true => Ok(Arc::new(Within { inner: self.inner.clone(), prefix: format!("{location}.") })),
            false => {
                let what = format!("there is no location {location}");
                Err(BadLocation::new(LocationFlaw::Missing, what))
            }
        }
    }
}
