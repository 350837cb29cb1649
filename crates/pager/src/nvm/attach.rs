//! The steps with which a database gets a region of persistent memory, finds it at a start, and leaves it
//! (decision 0308).
//!
//! ```text
//!  getting one:  Room::find (refuses, changes nothing) -> vacate: "left" in the region -> control file: id n, not needed yet
//!                -> make: header n -> control file: needs n (`Superblock::attach`), and the log's new life
//!  opening:      find (refuses whatever is not this database's whole region of now) -> log, pages
//!  leaving it, at a clean shutdown: pages home -> control file: n, not needed (`Superblock::leave_region`) -> remove: "left" in the
//!                region, and its file goes
//! ```
//!
//! Invariants
//! 1. A region is overwritten or removed only in two cases: its header says that it was left, or it has the
//!    id that the control file calls not needed. A file without a header is used only if the header's bytes
//!    are zeros. Its length must be the configured one, unless a start that created the file was interrupted.
//! 2. Each new region gets a new id, even after an interrupted start. So if the data directory was copied,
//!    one copy does not take a region that the other copy has attached since then.
//! 3. A header is written when all slots and segments are empty. At that time the control file says that the
//!    region is not needed, or that the database has no contents.
//! 4. `find` changes nothing before all checks have passed. Then it only records the start of the machine.
//!
//! This module does not know what is in the areas.

use std::sync::Arc;

use varve_device::{Directory, HEAD_BYTES, Region, WORD_BYTES};

use super::area::SLOT_HEADER_BYTES;
use super::config::{NvmConfig, WantedRegion};
use super::fits::{self, DRAIN, NVM_FILE, boot_of, described, place};
use super::layout::{
    BOOT_AT, HEADER_BYTES, HeaderDamage, LEFT, Layout, MAGIC, MAGIC_AT, RegionHeader, STAMP_AT, SlotArea,
    SlotUse,
};
use super::region::NvmRegion;
use crate::base::error::{PagerError, Result};
use crate::base::refuse::beyond_device;
use crate::control::{Attached, Superblock};
use crate::log::format::SEGMENT_HEADER_BYTES;

/// Zeros are stored in pieces of this length.
const PIECE_BYTES: usize = 1 << 16;

/// A plan to make the configured region. At the place of the region there is no file, or a file that no
/// database needs.
pub(crate) struct RegionPlan {
    nvm: NvmConfig,
    layout: Layout,
}

impl RegionPlan {
    /// Finds the space for a region of `database`, if one is configured. It refuses space that another
    /// database may need. `unneeded` is the id of a region that the control file calls not needed.
    pub(crate) fn find(
        config: &WantedRegion<'_>,
        database: u64,
        unneeded: Option<u64>,
    ) -> Result<Option<RegionPlan>> {
        let (Some(nvm), Some(layout)) = (config.nvm, Layout::of(config)?) else { return Ok(None) };
        let room = RegionPlan { nvm: nvm.clone(), layout };
        let Some(region) = fits::existing(&*nvm.directory)? else {
            return room.fits_device().map(|()| Some(room));
        };
        match room.taken(&*region, database, unneeded) {
            None => Ok(Some(room)),
            Some(why) => Err(refused(format!("{} {why}", place(&*nvm.directory)))),
        }
    }

    /// Returns an error if the device has no space for the region, before anything is made.
    fn fits_device(&self) -> Result<()> {
        let NvmConfig { directory, size_bytes, .. } = &self.nvm;
        match directory.free_bytes() {
            Some(free) if free < *size_bytes => Err(refused(format!(
                "{}. Lower [nvm] size, or name a larger device in [nvm]",
                beyond_device("nvm.size", *size_bytes, &**directory)
            ))),
            _ => Ok(()),
        }
    }

    /// Returns why the existing file must not be overwritten, or `None` if it may be.
    fn taken(&self, region: &dyn Region, database: u64, unneeded: Option<u64>) -> Option<String> {
        let (len_bytes, wanted_bytes) = (region.len_bytes(), self.layout.region_bytes);
        match RegionHeader::read(region) {
            Err(HeaderDamage::Left) => None,
            Ok(header) if unneeded == Some(header.region) => None,
            Err(HeaderDamage::Empty) if len_bytes == wanted_bytes || unneeded.is_some() => None,
            Err(HeaderDamage::Empty) => Some(format!(
                "is {len_bytes} bytes long, and a region of {wanted_bytes} is configured: configure that, or remove the \
                 file if no database needs it"
            )),
            Ok(header) if header.database == database => Some(
                "is an NVM region of this database, and its control file does not know it: a copy of the data directory may \
                 have its newest pages there, or the control file was put back from earlier; bring the right one back, or \
                 remove the region's file if no copy needs it"
                    .into(),
            ),
            Ok(_) => Some(
                "is the NVM region of another database: choose another place, or remove the file if that database is gone"
                    .into(),
            ),
            Err(damage) => Some(format!(
                "{}: choose another place, or remove the file if no database needs it",
                described(damage)
            )),
        }
    }

    /// Returns whether the region will have the log.
    pub(crate) fn has_log(&self) -> bool {
        self.layout.log.is_some()
    }

    /// Returns the entry of the control file for the region with this id.
    pub(crate) fn attached(&self, id: u64) -> Attached {
        fits::made(id, &self.layout)
    }

    /// Marks the existing region durably as not needed. This comes before the control file gets the id of the
    /// new region.
    pub(crate) fn vacate(&self) -> Result<()> {
        let Some(region) = fits::existing(&*self.nvm.directory)? else { return Ok(()) };
        write_word(&*region, MAGIC_AT, LEFT);
        Ok(region.settle()?)
    }

    /// Makes the empty region, after `vacate`. The control file has its id already.
    pub(crate) fn make(self, database: u64, id: u64) -> Result<NvmRegion> {
        let (directory, layout) = (self.nvm.directory.clone(), self.layout);
        let region = self.map()?;
        write_word(&*region, MAGIC_AT, LEFT);
        match layout.slots {
            Some(SlotArea { purpose: SlotUse::Buffer, slots, headers, .. }) => {
                clear(&*region, headers, u64::from(slots) * SLOT_HEADER_BYTES as u64);
            }
            Some(SlotArea { purpose: SlotUse::Copies, pages, .. }) => clear(&*region, pages, HEAD_BYTES),
            None => {}
        }
        if let Some(log) = layout.log {
            let heads = (0..u64::from(log.segments)).map(|segment| log.offset + segment * log.segment_bytes);
            heads.for_each(|head| clear(&*region, head, SEGMENT_HEADER_BYTES));
        }
        write_word(&*region, STAMP_AT, 0);
        write_word(&*region, BOOT_AT, boot_of(&*region));
        let behind_magic = MAGIC_AT + WORD_BYTES as u64;
        let header = RegionHeader { database, region: id, layout }.encode();
        region.store(behind_magic, &header[behind_magic as usize..]);
        region.persist(behind_magic, HEADER_BYTES as u64 - behind_magic);
        write_word(&*region, MAGIC_AT, MAGIC);
        // An emulated region may lose its content with the machine. Then at least its header must stay, so
        // that a start can report the loss.
        region.settle()?;
        Ok(NvmRegion { region, id, layout, directory })
    }

    /// Maps the region's file with the configured length.
    fn map(&self) -> Result<Arc<dyn Region>> {
        let NvmConfig { directory, size_bytes, .. } = &self.nvm;
        let region = directory.map(NVM_FILE, *size_bytes)?;
        if region.len_bytes() == *size_bytes {
            return Ok(region);
        }
        drop(region);
        remove_file(&**directory)?;
        Ok(directory.map(NVM_FILE, *size_bytes)?)
    }
}

/// Stores zeros durably.
fn clear(region: &dyn Region, from: u64, len_bytes: u64) {
    let zeros = vec![0; PIECE_BYTES.min(len_bytes as usize)];
    let end = from + len_bytes;
    for at in (from..end).step_by(PIECE_BYTES) {
        let step = (end - at).min(PIECE_BYTES as u64);
        region.store(at, &zeros[..step as usize]);
        region.persist(at, step);
    }
}

/// Finds the region that the control file of an existing database names. `None` means that it names none.
pub(crate) fn find(config: &WantedRegion<'_>, stored: &Superblock) -> Result<Option<NvmRegion>> {
    let Some(attached) = stored.attached else { return Ok(None) };
    let Some(nvm) = config.nvm else {
        return Err(refused(format!(
            "persistent memory has {} of this database, but the configuration has no section [nvm]: restore this \
             section, or move the contents into the data files first: {DRAIN}",
            attached.parts()
        )));
    };
    let (region, layout) = fits::needed(&*nvm.directory, stored, &attached)?.map_err(refused)?;
    let fitting = fits::configured(config, &layout);
    fitting.map_err(|why| refused(format!("{} {why}", place(&*nvm.directory))))?;
    let boot = boot_of(&*region);
    if region.load_word(BOOT_AT) != boot {
        write_word(&*region, BOOT_AT, boot);
    }
    Ok(Some(NvmRegion { region, id: attached.region, layout, directory: nvm.directory.clone() }))
}

impl NvmRegion {
    /// Removes the region's file, because the control file says that the region is not needed. If a crash
    /// leaves a part of the file, the next region uses this part, or the user removes it. After a failure
    /// this can be called again.
    pub(crate) fn remove(&self) -> Result<()> {
        write_word(&*self.region, MAGIC_AT, LEFT);
        remove_file(&*self.directory)
    }
}

fn remove_file(directory: &dyn Directory) -> Result<()> {
    if directory.exists(NVM_FILE)? {
        directory.remove(NVM_FILE)?;
    }
    Ok(directory.sync()?)
}

pub(super) fn write_word(region: &dyn Region, at: u64, value: u64) {
    region.store_word(at, value);
    region.persist(at, WORD_BYTES as u64);
}

fn refused(what: String) -> PagerError {
    PagerError::Incompatible { what }
}
