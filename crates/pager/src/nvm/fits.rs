//! Decides whether a region of persistent memory is the one that a database needs. Three callers use this
//! answer: the start, `varve nvm status`, and the check of a new configuration.
//!
//! Invariants
//! 1. The functions of this module change nothing.
//!
//! This module does not know what is in the areas, or how a database gets a region (`attach.rs`).

use std::sync::Arc;

use varve_device::{DeviceError, Directory, ErrorKind, Region, planted};

use super::config::WantedRegion;
use super::layout::{AREAS_AT, BOOT_AT, HeaderDamage, Layout, RegionHeader, STAMP_AT, SlotUse};
use crate::base::error::{PagerError, Result};
use crate::control::{Attached, State, Superblock};

/// Name of the file that is a region of persistent memory, in the directory of its device.
pub const NVM_FILE: &str = "nvm.varve";
/// The command that makes a database leave its region, for messages.
pub(crate) const DRAIN: &str = "`varve nvm drain`";

/// Returns the path of the region's file, for messages.
pub(crate) fn place(directory: &dyn Directory) -> String {
    format!("{}/{NVM_FILE}", directory.location())
}

/// Maps the existing file of a region with its length. `None` means that there is no file.
pub(crate) fn existing(directory: &dyn Directory) -> Result<Option<Arc<dyn Region>>> {
    // The length in this call counts only if the file had to be made.
    let is_there = directory.exists(NVM_FILE)?;
    Ok(is_there.then(|| directory.map(NVM_FILE, AREAS_AT)).transpose()?)
}

/// The right region, or the reason why the file is not the right one.
pub(crate) type Fitting = std::result::Result<(Arc<dyn Region>, Layout), String>;

/// Returns the region in `directory` that `attached` names, or the reason why the file there is not that
/// region.
pub(crate) fn needed(directory: &dyn Directory, stored: &Superblock, attached: &Attached) -> Result<Fitting> {
    let place = place(directory);
    let is = match existing(directory) {
        Ok(Some(region)) => {
            let layout = whole(stored, attached, &*region).map_err(|why| format!("{place} {why}"));
            return Ok(layout.map(|layout| (region, layout)));
        }
        Ok(None) => "is missing",
        Err(PagerError::Device(DeviceError { kind: ErrorKind::ShortRead { .. }, .. })) => "is empty",
        Err(error) => return Err(error),
    };
    let parts = attached.parts();
    Ok(Err(format!("{place} {is}, and has {parts} of the database: bring it back, or restore a backup")))
}

/// Returns the layout of the region, if the region is the database's, complete, and not an older copy.
/// Otherwise the error says what is wrong.
fn whole(
    stored: &Superblock,
    attached: &Attached,
    region: &dyn Region,
) -> std::result::Result<Layout, String> {
    let header = RegionHeader::read(region).map_err(|damage| {
        let (what, parts) = (described(damage), attached.parts());
        format!(
            "{what}; the right one has {parts} of the database: bring that file back, or restore a backup"
        )
    })?;
    if header.database != stored.database || header.region != attached.region {
        return Err("belongs to another database: bring this one's file back, or restore a backup".into());
    }
    if header.layout.region_bytes != region.len_bytes() {
        return Err(format!(
            "is {} bytes long and should be {}: it was cut or has grown; bring the whole file back, or restore a backup",
            region.len_bytes(),
            header.layout.region_bytes
        ));
    }
    if is_lost(region.load_word(BOOT_AT), boot_of(region), stored.state) {
        return Err(
            "was emulated by memory that did not survive the restart of the machine: restore a backup".into(),
        );
    }
    if !planted("nvm: the stamp is not compared") && region.load_word(STAMP_AT) < attached.stamp {
        return Err(
            "was put back from an earlier moment: bring the newest file back, or restore a backup".into()
        );
    }
    let made = Attached { stamp: attached.stamp, ..made(attached.region, &header.layout) };
    if made != *attached {
        return Err(format!(
            "has {} and should have {}: bring the right file back, or restore a backup",
            made.parts(),
            attached.parts()
        ));
    }
    Ok(header.layout)
}

/// Checks that a configuration fits the database's region with this layout. The error says why it does not.
pub(crate) fn configured(config: &WantedRegion<'_>, layout: &Layout) -> std::result::Result<(), String> {
    match Layout::of(config).map_err(|error| error.to_string())? {
        Some(wanted) if wanted == *layout => Ok(()),
        Some(_) => Err(format!(
            "has other sizes than the configuration: restore the old settings of [nvm] and [protection] ({} bytes, {} of \
             them for the log, {} for pages), or move its contents into the data files first: {DRAIN}",
            layout.region_bytes,
            layout.log.map_or(0, |log| log.bytes()),
            layout.slots.map_or(0, |slots| slots.bytes(layout.page_size))
        )),
        None => Err(format!(
            "is the persistent memory of this database, but the configuration has no section [nvm]: restore this \
             section, or move the contents into the data files first: {DRAIN}"
        )),
    }
}

/// Returns whether a file with these first bytes is a region that no database needs: no region was made in it
/// yet, or its database has left it.
pub fn is_unneeded_region(header: &[u8]) -> bool {
    let header = header.first_chunk().map(RegionHeader::decode);
    matches!(header, Some(Err(HeaderDamage::Empty | HeaderDamage::Left)))
}

/// Returns what is wrong with a file that should be a region.
pub(crate) fn described(damage: HeaderDamage) -> String {
    match damage {
        HeaderDamage::NotOne | HeaderDamage::Empty => "is no NVM region".into(),
        HeaderDamage::Left => "is an NVM region that its database has left".into(),
        HeaderDamage::OtherVersion(version) => format!("is an NVM region of version {version}"),
        HeaderDamage::Checksum | HeaderDamage::Impossible => "has a damaged header".into(),
    }
}

/// Returns the entry of the control file for a region that was just made.
pub(crate) fn made(region: u64, layout: &Layout) -> Attached {
    let holds = |purpose| layout.slots.is_some_and(|slots| slots.purpose == purpose);
    let (pages, copies) = (holds(SlotUse::Buffer), holds(SlotUse::Copies));
    Attached { region, pages, log: layout.log.is_some(), copies, stamp: 0 }
}

/// Returns whether the content of the region was lost with the machine's main memory. After a clean shutdown
/// nothing is lost, because the file of the region has all of it.
fn is_lost(noted: u64, now: u64, state: State) -> bool {
    noted != 0 && noted != now && state != State::Clean
}

/// Returns the number of the machine's start that is stored in the region, or 0 if the medium survives the
/// machine's end.
pub(crate) fn boot_of(region: &dyn Region) -> u64 {
    region.facts().boot.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a new start of the machine, an emulated region counts as lost, unless a clean shutdown wrote
    /// everything to its file.
    #[test]
    fn memory_does_not_outlive_the_machine() {
        assert!(is_lost(7, 8, State::Open));
        assert!(is_lost(7, 0, State::Open), "it was emulated, whatever it is now");
        assert!(!is_lost(7, 8, State::Clean));
        assert!(!is_lost(7, 7, State::Open));
        assert!(!is_lost(0, 8, State::Open), "the medium outlives the machine");
    }
}
