//! A directory that emulates persistent memory: its regions take as long as a profile says.
//!
//! Invariants
//! 1. Operations on files are passed to the directory below without a change. `region_emulated` emulates the
//!    regions.

use std::sync::Arc;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Directory, OpenHow};
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::nvm_profile::NvmProfile;
use crate::region::Region;
use crate::region_emulated::EmulatedRegion;

/// A directory with emulated persistent memory.
pub struct EmulatedMemory {
    inner: Arc<dyn Directory>,
    profile: NvmProfile,
    dilation: f64,
}

impl EmulatedMemory {
    /// Makes the regions of `inner` as slow as `profile`, with its times multiplied by `dilation` (1 = none).
    pub fn wrap(inner: Arc<dyn Directory>, profile: NvmProfile, dilation: f64) -> Arc<EmulatedMemory> {
        Arc::new(EmulatedMemory { inner, profile, dilation })
    }
}

impl Directory for EmulatedMemory {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        self.inner.open(name, how)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        let region = self.inner.map(name, len_bytes)?;
        Ok(EmulatedRegion::wrap(region, self.profile.clone(), self.dilation))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn identity(&self, name: &str) -> Result<Option<u64>> {
        self.inner.identity(name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDirectory;

    #[test]
    fn a_region_says_what_it_imitates_and_keeps_its_bytes() {
        let below = MemoryDirectory::new();
        let Ok(profile) = NvmProfile::shipped("pcm") else { panic!("pcm is shipped") };
        let directory = EmulatedMemory::wrap(below.clone(), profile, 1.0);
        let Ok(region) = directory.map("r", 4096) else { panic!("memory has regions") };
        assert_eq!(region.facts().emulates.as_deref(), Some("pcm"));
        region.store(64, b"kept");
        region.persist(64, 4);
        let Ok(again) = below.map("r", 4096) else { panic!("memory has regions") };
        let mut bytes = [0; 4];
        again.read(64, &mut bytes);
        assert_eq!(&bytes, b"kept");
    }
}
