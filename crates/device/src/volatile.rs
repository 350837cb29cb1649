//! A simulated machine for tests of a power failure. Its ordinary memory emulates persistent memory, so a
//! power failure loses the contents of regions.
//!
//! Invariants
//! 1. Files survive a power failure. A store to a region survives in the region's file only if `settle` was
//!    called for the region after the store.
//! 2. After each power failure the machine boots again, with another boot number.
//!
//! A test gets two copies of the state: after the death of the process, and after a power failure.

use std::sync::Arc;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Directory, Durability, OpenHow};
use crate::buf::AlignedBuf;
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::memory::MemoryDirectory;
use crate::purpose::{Purpose, Space};
use crate::region::{Medium, Region, RegionFacts, RegionTally};

/// A directory in memory whose regions are lost at a reboot.
pub struct VolatileMachine {
    files: Arc<MemoryDirectory>,
    /// The present contents of the mapped regions.
    mapped: Arc<MemoryDirectory>,
    boot: u64,
    capabilities: Capabilities,
}

fn copy(directory: &MemoryDirectory) -> Arc<MemoryDirectory> {
    MemoryDirectory::from_images(directory.images())
}

impl VolatileMachine {
    /// Returns an empty directory, in the first boot of the machine.
    pub fn new() -> Arc<VolatileMachine> {
        VolatileMachine::of(MemoryDirectory::new(), MemoryDirectory::new(), 1)
    }

    fn of(files: Arc<MemoryDirectory>, mapped: Arc<MemoryDirectory>, boot: u64) -> Arc<VolatileMachine> {
        // The backend is called "file", because files survive a power failure like files on a disk.
        let capabilities = Capabilities { backend: "file".into(), ..files.capabilities().clone() };
        Arc::new(VolatileMachine { files, mapped, boot, capabilities })
    }

    /// Returns the state that a new process finds after this process was killed.
    pub fn after_process_death(&self) -> Arc<VolatileMachine> {
        VolatileMachine::of(copy(&self.files), copy(&self.mapped), self.boot)
    }

    /// Returns the state that a new process finds after a power failure.
    pub fn after_power_loss(&self) -> Arc<VolatileMachine> {
        VolatileMachine::of(copy(&self.files), MemoryDirectory::new(), self.boot + 1)
    }
}

impl Directory for VolatileMachine {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        self.files.open(name, how)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.files.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.files.list()
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        // A later region with the same name must not get the contents of this one.
        if self.mapped.exists(name)? {
            self.mapped.remove(name)?;
        }
        self.files.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.files.sync()
    }

    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        let stored = self.files.map(name, len_bytes)?;
        let is_mapped = self.mapped.exists(name)?;
        let mapped = self.mapped.map(name, stored.len_bytes())?;
        if !is_mapped {
            let mut bytes = vec![0; stored.len_bytes() as usize];
            stored.read(0, &mut bytes);
            mapped.store(0, &bytes);
        }
        let (files, name, boot) = (Arc::clone(&self.files), name.into(), self.boot);
        Ok(Arc::new(VolatileRegion { mapped, files, name, boot }))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn accounting(&self) -> &Arc<Accounting> {
        self.files.accounting()
    }

    fn location(&self) -> String {
        "(volatile)".into()
    }
}

struct VolatileRegion {
    mapped: Arc<dyn Region>,
    files: Arc<MemoryDirectory>,
    name: Box<str>,
    boot: u64,
}

impl Region for VolatileRegion {
    fn len_bytes(&self) -> u64 {
        self.mapped.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.mapped.read(offset, buf);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.mapped.store(offset, bytes);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.mapped.write_back(offset, len_bytes);
    }

    fn fence(&self) {
        self.mapped.fence();
    }

    fn facts(&self) -> RegionFacts {
        RegionFacts { medium: Medium::EmulatedByFile, boot: Some(self.boot), ..self.mapped.facts() }
    }

    fn tally(&self) -> RegionTally {
        self.mapped.tally()
    }

    fn settle(&self) -> Result<()> {
        let mut bytes = AlignedBuf::new(self.len_bytes() as usize);
        self.read(0, &mut bytes);
        let file = self.files.open(&self.name, OpenHow::existing(Space::Nvm))?;
        file.write_at(0, &bytes, Purpose::NvmPage, Durability::Now)
    }
}
