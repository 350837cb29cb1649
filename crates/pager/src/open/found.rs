//! Reports what a database that is not open has in persistent memory. The report comes from the control file
//! of the database and from the region.
//!
//! Invariants
//! 1. The functions of this module change nothing.
//!
//! This module does not know the configuration file.

use varve_device::{Directory, Region};

use crate::base::error::{PagerError, Result};
use crate::config::PagerConfig;
use crate::control::{Attached, Control, InForce, State, Superblock};
use crate::home::protection;
use crate::home::protection::kind::ProtectionKind;
use crate::nvm::area::{SLOT_HEADER_BYTES, Slot};
use crate::nvm::layout::{HeaderDamage, Layout, RegionHeader, SlotUse};
use crate::nvm::{NvmConfig, fits};

/// What a database has in persistent memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmFound {
    /// Whether the database was shut down cleanly.
    pub is_clean: bool,
    /// The parts of the database that are in a region. `None` means that no region is needed.
    pub attached: Option<Attached>,
    /// The log left a region, and the next start begins with an empty log.
    pub log_begins_empty: bool,
    /// The path of a region's file that is not needed: the database has left it, or it was never completed.
    pub left_over: Option<String>,
    /// The region that the database needs, or what is wrong with it. `None` means that it needs none.
    pub region: Option<std::result::Result<RegionFound, String>>,
}

/// A region that fits its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionFound {
    /// The path of the region's file.
    pub place: String,
    layout: Layout,
    /// The number of slots with a page; 0 if the slots are for doublewrite copies.
    pub used_slots: u32,
    /// The protection that uses the region, if pages or copies are in it.
    pub protection: Option<ProtectionKind>,
}

impl PagerConfig {
    /// Changes this configuration to one with which the database opens as it is. Returns what was found in
    /// persistent memory, or `None` if there is no database. The call fails if the making of the database was
    /// not finished. A region is looked for in the directory of `nvm`.
    pub fn as_found(&mut self) -> Result<Option<NvmFound>> {
        let Some(control) = Control::open(&*self.control)? else { return Ok(None) };
        let stored = control.get();
        if stored.state == State::Creating {
            let what = "the making of the database was not finished: start it, which makes it again".into();
            return Err(PagerError::Incompatible { what });
        }
        let mut found = NvmFound {
            is_clean: stored.state == State::Clean,
            attached: stored.attached,
            log_begins_empty: stored.log_begins_empty,
            left_over: None,
            region: None,
        };
        let directory = self.nvm.take().map(|nvm| nvm.directory);
        self.protection = of_files(stored.protection, self.protection);
        self.page_size = stored.page_size as usize;
        let Some(attached) = stored.attached else {
            found.left_over = directory.map(|it| left_over(&*it, &stored)).transpose()?.flatten();
            return Ok(Some(found));
        };
        let looked = match &directory {
            Some(directory) => look(&**directory, &stored, &attached)?,
            None => Err("no NVM directory is configured".into()),
        };
        if let (Ok(region), Some(directory)) = (&looked, directory) {
            let (size_bytes, log_bytes) = (region.size_bytes(), region.log_bytes());
            self.nvm = Some(NvmConfig { directory, size_bytes, log_bytes });
            self.protection = region.protection.unwrap_or(self.protection);
        }
        found.region = Some(looked);
        Ok(Some(found))
    }

    /// Returns whether the region of the database, `found`, has the layout of this configuration. The result
    /// is true, too, if both have no region.
    pub fn goes_with(&self, found: &NvmFound) -> bool {
        let wanted = Layout::of(&self.wanted_region()).ok().flatten();
        match (&found.region, wanted) {
            (None, wanted) => found.attached.is_none() && wanted.is_none(),
            (Some(Ok(region)), Some(wanted)) => wanted == region.layout,
            _ => false,
        }
    }
}

/// Returns the protection in force of a database without pages or copies in a region. It is the configured
/// one if that is of this kind.
pub(crate) fn of_files(in_force: InForce, configured: ProtectionKind) -> ProtectionKind {
    if configured.in_force() == in_force {
        return configured;
    }
    match in_force {
        InForce::FullPageLog => ProtectionKind::FullPageLog,
        InForce::AtomicWrite => ProtectionKind::AtomicWrite,
        InForce::Nothing | InForce::Doublewrite | InForce::NvmDoublewrite | InForce::Nvm => {
            ProtectionKind::DOUBLEWRITE
        }
    }
}

/// Returns the region, or the reason why it is not the one that the database needs. A start would report the
/// same reason.
fn look(
    directory: &dyn Directory,
    stored: &Superblock,
    attached: &Attached,
) -> Result<std::result::Result<RegionFound, String>> {
    let (region, layout) = match fits::needed(directory, stored, attached)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let (used_slots, protection) = in_slots(&*region, attached.region, &layout);
    let place = fits::place(directory);
    Ok(Ok(RegionFound { place, layout, used_slots, protection }))
}

/// Returns the path of a region's file that is not needed.
fn left_over(directory: &dyn Directory, stored: &Superblock) -> Result<Option<String>> {
    let Some(region) = fits::existing(directory)? else { return Ok(None) };
    let is_left = match RegionHeader::read(&*region) {
        Ok(header) => stored.unneeded_region == Some(header.region),
        Err(damage) => damage == HeaderDamage::Left,
    };
    Ok(is_left.then(|| fits::place(directory)))
}

/// Returns the number of slots with a page, and the protection that uses the slots.
fn in_slots(region: &dyn Region, id: u64, layout: &Layout) -> (u32, Option<ProtectionKind>) {
    let Some(slots) = layout.slots else { return (0, None) };
    if slots.purpose == SlotUse::Copies {
        let mut unit = vec![0; layout.page_size as usize];
        region.read(slots.pages, &mut unit);
        // Without a header no page was ever copied there, or the copies are being made again: any split will
        // do.
        let (batch_slots, single_slots) =
            protection::slots_of(&unit).unwrap_or((slots.slots.saturating_sub(2), 1));
        return (0, Some(ProtectionKind::NvmDoublewrite { batch_slots, single_slots }));
    }
    let is_used = |slot: &u32| {
        let mut line = [0; SLOT_HEADER_BYTES];
        region.read(slots.headers + u64::from(*slot) * SLOT_HEADER_BYTES as u64, &mut line);
        Slot::decode(&line, id, layout.page_size) != Slot::Free
    };
    ((0..slots.slots).filter(is_used).count() as u32, Some(ProtectionKind::Nvm))
}

impl RegionFound {
    /// Returns the length of the region in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.layout.region_bytes
    }

    /// Returns the bytes of the region for the log.
    pub fn log_bytes(&self) -> u64 {
        self.layout.log.map_or(0, |log| log.bytes())
    }

    /// Returns the number of slots for pages or for doublewrite copies.
    pub fn slots(&self) -> u32 {
        self.layout.slots.map_or(0, |slots| slots.slots)
    }
}

impl NvmFound {
    /// Returns the region that the database needs, or the reason why it cannot be used.
    pub fn needed(&self) -> Result<Option<&RegionFound>> {
        match &self.region {
            None => Ok(None),
            Some(Ok(region)) => Ok(Some(region)),
            Some(Err(why)) => Err(PagerError::Incompatible { what: why.clone() }),
        }
    }
}
