//! What a database that is not open has in persistent memory, as its control file and the region say.
//!
//! Invariants
//! 1. Nothing is changed.
//!
//! Not known here: the configuration that a person has written.

use varve_device::{AlignedBuf, BlockFile, Directory, OpenHow, Purpose, Space};

use super::area::{SLOT_HEADER_BYTES, Slot};
use super::attach::{NVM_FILE, described};
use super::layout::{HEADER_BYTES, Layout, RegionHeader, SlotUse};
use crate::config::{NvmConfig, PagerConfig, ProtectionKind};
use crate::control::{Attached, Control, InForce, State, Superblock};
use crate::error::{PagerError, Result};
use crate::protection;

/// What is found in persistent memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmFound {
    /// Whether the database was shut down cleanly.
    pub is_clean: bool,
    /// What of it is in a region; `None`: nothing, and what is in one is not needed.
    pub attached: Option<Attached>,
    /// The log left a region, and the next start begins it anew.
    pub log_begins_anew: bool,
    /// The region that it needs, or what is wrong with it; `None` if it needs none.
    pub region: Option<std::result::Result<RegionFound, String>>,
}

/// A region that goes with its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionFound {
    /// Where it is.
    pub place: String,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Bytes of it for the log.
    pub log_bytes: u64,
    /// Slots for pages, or for doublewrite copies.
    pub slots: u32,
    /// How many of them hold a page; 0 for copies, which nobody counts.
    pub used_slots: u32,
    /// The protection that goes with it, if pages or copies are in it.
    pub protection: Option<ProtectionKind>,
}

impl PagerConfig {
    /// Makes this the configuration with which the database opens as it is, whatever was configured, and gives what was found;
    /// `None` if there is no database. A region is looked for in the directory of `nvm`.
    pub fn as_found(&mut self) -> Result<Option<NvmFound>> {
        let Some(control) = Control::open(&*self.control)? else { return Ok(None) };
        let stored = control.get();
        let mut found = NvmFound {
            is_clean: stored.state == State::Clean,
            attached: stored.attached,
            log_begins_anew: stored.log_begins_anew,
            region: None,
        };
        let directory = self.nvm.take().map(|nvm| nvm.directory);
        self.protection = of_files(stored.protection, self.protection);
        self.page_size = stored.page_size as usize;
        let Some(attached) = stored.attached else { return Ok(Some(found)) };
        let looked = match &directory {
            Some(directory) => look(&**directory, &stored, &attached)?,
            None => Err("nobody says in which directory the region is".into()),
        };
        if let (Ok(region), Some(directory)) = (&looked, directory) {
            let (size_bytes, log_bytes) = (region.size_bytes, region.log_bytes);
            self.nvm = Some(NvmConfig { directory, size_bytes, log_bytes });
            self.protection = region.protection.unwrap_or(self.protection);
        }
        found.region = Some(looked);
        Ok(Some(found))
    }

    /// Whether the region of the database, `found`, is divided as this configuration says; also if both say that there is none.
    pub fn goes_with(&self, found: &NvmFound) -> bool {
        let wanted = Layout::of(self).ok().flatten();
        match (&found.region, wanted) {
            (None, wanted) => found.attached.is_none() && wanted.is_none(),
            (Some(Ok(region)), Some(wanted)) => {
                wanted.region_bytes == region.size_bytes
                    && wanted.log.map_or(0, |log| log.bytes()) == region.log_bytes
                    && wanted.slots.map_or(0, |slots| slots.slots) == region.slots
            }
            _ => false,
        }
    }
}

/// The protection in force of a database without pages or copies in a region: the configured one, if it is of that kind.
fn of_files(in_force: InForce, configured: ProtectionKind) -> ProtectionKind {
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

/// The region, or why it is not the one that the database needs.
fn look(
    directory: &dyn Directory,
    stored: &Superblock,
    attached: &Attached,
) -> Result<std::result::Result<RegionFound, String>> {
    let place = format!("{}/{NVM_FILE}", directory.location());
    if !directory.exists(NVM_FILE)? {
        return Ok(Err(format!("{place} is missing")));
    }
    let file = directory.open(NVM_FILE, OpenHow::existing(Space::Nvm))?;
    let len_bytes = file.len_bytes()?;
    let header = match read(&*file, 0, HEADER_BYTES)?.first_chunk::<HEADER_BYTES>() {
        Some(bytes) if len_bytes >= HEADER_BYTES as u64 => RegionHeader::decode(bytes),
        _ => return Ok(Err(format!("{place} is too short for a region"))),
    };
    let header = match header {
        Ok(header) => header,
        Err(damage) => return Ok(Err(format!("{place} {}", described(damage)))),
    };
    if header.database != stored.database || header.region != attached.region {
        return Ok(Err(format!("{place} belongs to another database")));
    }
    let layout = header.layout;
    if layout.region_bytes != len_bytes {
        return Ok(Err(format!("{place} is {len_bytes} bytes long and should be {}", layout.region_bytes)));
    }
    let (used_slots, protection) = in_slots(&*file, &header)?;
    Ok(Ok(RegionFound {
        place,
        size_bytes: len_bytes,
        log_bytes: layout.log.map_or(0, |log| log.bytes()),
        slots: layout.slots.map_or(0, |slots| slots.slots),
        used_slots,
        protection,
    }))
}

/// How many slots hold a page, and the protection that they are for.
fn in_slots(file: &dyn BlockFile, header: &RegionHeader) -> Result<(u32, Option<ProtectionKind>)> {
    let layout = header.layout;
    let Some(slots) = layout.slots else { return Ok((0, None)) };
    if slots.purpose == SlotUse::Copies {
        let unit = read(file, slots.pages, layout.page_size as usize)?;
        // Without a header no page was ever copied there.
        let (batch_slots, single_slots) =
            protection::slots_of(&unit).unwrap_or((slots.slots.saturating_sub(2), 1));
        return Ok((0, Some(ProtectionKind::NvmDoublewrite { batch_slots, single_slots })));
    }
    let headers = read(file, slots.headers, slots.slots as usize * SLOT_HEADER_BYTES)?;
    let (headers, _) = headers.as_chunks::<SLOT_HEADER_BYTES>();
    let is_used =
        |line: &&[u8; SLOT_HEADER_BYTES]| Slot::decode(line, header.region, layout.page_size) != Slot::Free;
    let used = headers.iter().take(slots.slots as usize).filter(is_used).count();
    Ok((used as u32, Some(ProtectionKind::Nvm)))
}

/// At least `count` bytes from `at` on, in whole units; fewer where the file ends.
fn read(file: &dyn BlockFile, at: u64, count: usize) -> Result<AlignedBuf> {
    let end = file.len_bytes()?.saturating_sub(at) as usize / HEADER_BYTES * HEADER_BYTES;
    let mut bytes = AlignedBuf::new(count.next_multiple_of(HEADER_BYTES).min(end));
    if !bytes.is_empty() {
        file.read_at(at, &mut bytes, Purpose::NvmMeta)?;
    }
    Ok(bytes)
}

impl NvmFound {
    /// The region that the database needs, or why it cannot be used.
    pub fn needed(&self) -> Result<Option<&RegionFound>> {
        match &self.region {
            None => Ok(None),
            Some(Ok(region)) => Ok(Some(region)),
            Some(Err(why)) => {
                let what = format!("{why}, and the database needs it: bring it back, or restore a backup");
                Err(PagerError::Incompatible { what })
            }
        }
    }
}
