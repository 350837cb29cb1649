//! Attaching a region to a database, finding it again, and leaving it.
//!
//! ```text
//!  new database: wanted (refuses a region of others) -> control file, creating, names the region -> make -> ... -> open
//!  opening:      find (refuses whatever is not this database's whole region of now) -> log, pages
//!  a region for a database that has none: take (wanted, make) -> control file names the region, and the log's new life in it if
//!                                         the log moves there
//!  leaving it, at a clean shutdown: pages home -> control file names no region (and the log begins anew) -> remove
//! ```
//!
//! Invariants
//! 1. A region whose header names another database or another region id is never written to.
//! 2. A header is written, over empty slots, only while nothing is in the region: the control file names none, or says that the
//!    database has no contents. A region of this database that the control file does not name is what is left of one: it is
//!    used again, or makes room for one of another length.
//! 3. `find` changes nothing before everything fits; then only the start of the machine is noted.
//! 4. The region's stamp is durable before the control file gets the same one, so it is never the smaller one, unless the region
//!    was put back from an earlier moment.
//!
//! Not known here: what is in the areas.

use std::sync::Arc;

use varve_device::{
    Accounting, Directory, Medium, Purpose, Region, RegionExtents, RegionFiles, RegionPart, Space,
    WORD_BYTES, planted,
};

use super::area::{PageArea, SLOT_HEADER_BYTES};
use super::layout::{
    BOOT_AT, HEADER_BYTES, HeaderDamage, Layout, MAGIC, MAGIC_AT, RegionHeader, STAMP_AT, SlotUse,
};
use crate::config::{NvmConfig, PagerConfig};
use crate::control::{Attached, State, Superblock, random_id};
use crate::durability::NvmStats;
use crate::error::{PagerError, Result};
use crate::protection::REGION_PREFIX;

/// Name of the file that is a region of persistent memory, in the directory of its device.
pub const NVM_FILE: &str = "nvm.varve";
const LOG_PREFIX: &str = "log";
/// What a person runs who wants the database out of its region.
const DRAIN: &str = "`varve nvm drain`";

/// The region of an open database.
pub(crate) struct NvmRegion {
    region: Arc<dyn Region>,
    id: u64,
    layout: Layout,
    directory: Arc<dyn Directory>,
}

/// What the control file of `database` has to say of the region that is configured, which gets this id. Refuses a region
/// that somebody else uses.
pub(crate) fn wanted(config: &PagerConfig, database: u64, id: u64) -> Result<Option<Attached>> {
    let (Some(nvm), Some(layout)) = (&config.nvm, Layout::of(config)?) else { return Ok(None) };
    let region = map(nvm)?;
    let place = place(nvm);
    let len_bytes = region.len_bytes();
    let is_left_over = match RegionHeader::read(&*region) {
        Err(HeaderDamage::NotOne) => false,
        // What an unfinished creation or attachment left, or a region that was left.
        Ok(header) if header.region == id || header.database == database => true,
        Ok(_) => {
            return Err(refused(format!(
                "{place} is the NVM region of another database: choose another place, or remove the file if that \
                 database is gone"
            )));
        }
        Err(damage) => {
            return Err(refused(format!(
                "{place} {}: choose another place, or remove the file if no database needs it",
                described(damage)
            )));
        }
    };
    if len_bytes != layout.region_bytes && !is_left_over {
        return Err(refused(format!(
            "{place} is {len_bytes} bytes long, and a region of {} is configured: configure that, or remove the file if no \
             database needs it",
            layout.region_bytes
        )));
    }
    if len_bytes != layout.region_bytes {
        drop(region);
        nvm.directory.remove(NVM_FILE)?;
        nvm.directory.sync()?;
        map(nvm)?;
    }
    Ok(Some(attached(id, &layout)))
}

/// What is wrong with a file that should be a region.
pub(super) fn described(damage: HeaderDamage) -> String {
    match damage {
        HeaderDamage::NotOne => "is no NVM region".into(),
        HeaderDamage::OtherVersion(version) => format!("is an NVM region of version {version}"),
        HeaderDamage::Checksum | HeaderDamage::Impossible => "has a damaged header".into(),
    }
}

/// What the control file says of a region that was just made.
fn attached(region: u64, layout: &Layout) -> Attached {
    let holds = |purpose| layout.slots.is_some_and(|slots| slots.purpose == purpose);
    let (pages, copies) = (holds(SlotUse::Buffer), holds(SlotUse::Copies));
    Attached { region, pages, log: layout.log.is_some(), copies, stamp: 0 }
}

/// What of a database is in its region, for messages.
fn contents(attached: &Attached) -> &'static str {
    match (attached.log, attached.pages, attached.copies) {
        (_, false, false) => "the database's log is",
        (false, true, _) => "the database's newest pages are",
        (false, false, true) => "the database's doublewrite copies are",
        (true, true, _) => "the database's log and its newest pages are",
        (true, false, true) => "the database's log and its doublewrite copies are",
    }
}

/// Makes an empty region of what `wanted` has allowed.
pub(crate) fn make(
    config: &PagerConfig,
    database: u64,
    attached: Option<Attached>,
) -> Result<Option<NvmRegion>> {
    let (Some(nvm), Some(layout), Some(attached)) = (&config.nvm, Layout::of(config)?, attached) else {
        return Ok(None);
    };
    let region = map(nvm)?;
    let header = RegionHeader { database, region: attached.region, layout };
    write_word(&*region, MAGIC_AT, 0);
    if let Some(slots) = layout.slots.filter(|slots| slots.purpose == SlotUse::Buffer) {
        let zeros = vec![0; slots.slots as usize * SLOT_HEADER_BYTES];
        region.store(slots.headers, &zeros);
        region.persist(slots.headers, zeros.len() as u64);
    }
    write_word(&*region, STAMP_AT, attached.stamp);
    write_word(&*region, BOOT_AT, boot_of(&*region));
    let behind_magic = MAGIC_AT + WORD_BYTES as u64;
    region.store(behind_magic, &header.encode()[behind_magic as usize..]);
    region.persist(behind_magic, HEADER_BYTES as u64 - behind_magic);
    write_word(&*region, MAGIC_AT, MAGIC);
    // Of an emulated region that goes with the machine at least the header stays, and what went is told.
    region.settle()?;
    Ok(Some(NvmRegion { region, id: attached.region, layout, directory: nvm.directory.clone() }))
}

/// A region for an existing database that has none, if one is configured, and what the control file has to say of it then. The log
/// moves there only when nothing of it is needed.
pub(crate) fn take(config: &PagerConfig, stored: &Superblock) -> Result<Option<(NvmRegion, Attached)>> {
    let Some(layout) = Layout::of(config)? else { return Ok(None) };
    if layout.log.is_some() && stored.state != State::Clean {
        return Err(refused(format!(
            "the log is in files, a crash has left it needed there, and [nvm] wants it in an NVM region: run {DRAIN}, which \
             recovers the database where it is and shuts it down, and start it again"
        )));
    }
    let attached = wanted(config, stored.database, random_id())?;
    let region = make(config, stored.database, attached)?;
    Ok(region.zip(attached))
}

/// The region that the control file of an existing database names; `None` if it names none.
pub(crate) fn find(config: &PagerConfig, stored: &Superblock) -> Result<Option<NvmRegion>> {
    let Some(attached) = stored.attached else { return Ok(None) };
    let Some(nvm) = &config.nvm else {
        return Err(refused(format!(
            "{} in an NVM region, and none is configured: start it with the [nvm] that it had, or bring everything home \
             first: {DRAIN}",
            contents(&attached)
        )));
    };
    let place = place(nvm);
    if !nvm.directory.exists(NVM_FILE)? {
        return Err(refused(format!(
            "{place} is missing, and {} in it: bring it back, or restore a backup",
            contents(&attached)
        )));
    }
    let region = map(nvm)?;
    let layout =
        fitting(config, stored, &attached, &*region).map_err(|why| refused(format!("{place} {why}")))?;
    let boot = boot_of(&*region);
    if region.load_word(BOOT_AT) != boot {
        write_word(&*region, BOOT_AT, boot);
    }
    Ok(Some(NvmRegion { region, id: attached.region, layout, directory: nvm.directory.clone() }))
}

/// The layout of the region if it is the database's, whole, of now, and as configured; else what is wrong.
fn fitting(
    config: &PagerConfig,
    stored: &Superblock,
    attached: &Attached,
    region: &dyn Region,
) -> std::result::Result<Layout, String> {
    let header = RegionHeader::read(region).map_err(|damage| {
        let (what, contents) = (described(damage), contents(attached));
        format!("{what}, and {contents} in the right one: bring that file back, or restore a backup")
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
    let configured = Layout::of(config).map_err(|error| error.to_string())?;
    let named = Attached { stamp: attached.stamp, ..self::attached(attached.region, &header.layout) };
    if configured != Some(header.layout) || named != *attached {
        return Err(divided_otherwise(&header.layout));
    }
    Ok(header.layout)
}

fn divided_otherwise(layout: &Layout) -> String {
    format!(
        "is divided in another way than is configured: start the database with the [nvm] and the protection that it had \
         ({} bytes, {} of them for the log, {} for pages), or bring everything home first: {DRAIN}",
        layout.region_bytes,
        layout.log.map_or(0, |log| log.bytes()),
        layout.slots.map_or(0, |slots| slots.bytes(layout.page_size))
    )
}

/// Whether what a region held went with the machine's memory. After a clean shutdown the file behind it has everything.
fn is_lost(noted: u64, now: u64, state: State) -> bool {
    noted != 0 && noted != now && state != State::Clean
}

/// What is noted of the machine's start: 0 if the medium outlives it.
fn boot_of(region: &dyn Region) -> u64 {
    region.facts().boot.unwrap_or_default()
}

fn map(nvm: &NvmConfig) -> Result<Arc<dyn Region>> {
    Ok(nvm.directory.map(NVM_FILE, nvm.size_bytes)?)
}

fn write_word(region: &dyn Region, at: u64, value: u64) {
    region.store_word(at, value);
    region.persist(at, WORD_BYTES as u64);
}

fn place(nvm: &NvmConfig) -> String {
    format!("{}/{NVM_FILE}", nvm.directory.location())
}

fn refused(what: String) -> PagerError {
    PagerError::Incompatible { what }
}

impl NvmRegion {
    /// Whether the log is here.
    pub(crate) fn has_log(&self) -> bool {
        self.layout.log.is_some()
    }

    /// Refuses a configuration for the next start that would not fit this region.
    pub(crate) fn fits(&self, next: &PagerConfig) -> Result<()> {
        let why = match Layout::of(next)? {
            Some(layout) if layout == self.layout => return Ok(()),
            Some(_) => divided_otherwise(&self.layout),
            None => format!(
                "is the database's NVM region, and none is configured: bring everything home first: {DRAIN}"
            ),
        };
        Err(refused(format!("{} {why}", self.location())))
    }

    /// The control file names it no more: the file goes. What a crash leaves of it is made a new region of this database, or
    /// removed by hand.
    pub(crate) fn remove(&self) -> Result<()> {
        write_word(&*self.region, MAGIC_AT, 0);
        self.directory.remove(NVM_FILE)?;
        Ok(self.directory.sync()?)
    }

    /// Sizes and place of the log, where it is here.
    pub(crate) fn place_log(&self, config: &mut PagerConfig) {
        let Some(log) = self.layout.log else { return };
        let part = (Space::Log, Purpose::Log);
        config.log = self.files(LOG_PREFIX, log.offset, log.segment_bytes, log.segments, part);
        config.log_segment_bytes = log.segment_bytes;
        config.log_capacity_bytes = log.capacity_bytes();
    }

    /// The page slots, where newest versions of pages are here.
    pub(crate) fn page_area(&self) -> Option<PageArea> {
        PageArea::of(&self.region, self.id, &self.layout, self.directory.accounting(), self.location())
    }

    /// The place of doublewrite copies, where they are here: a directory of one file.
    pub(crate) fn copies(&self) -> Option<Arc<RegionFiles>> {
        let slots = self.layout.slots.filter(|slots| slots.purpose == SlotUse::Copies)?;
        let part = (Space::Nvm, Purpose::Doublewrite);
        Some(self.files(REGION_PREFIX, slots.pages, slots.bytes(self.layout.page_size), 1, part))
    }

    /// A part of the region as files of equal length.
    fn files(
        &self,
        prefix: &str,
        offset: u64,
        extent_bytes: u64,
        count: u32,
        (space, why): (Space, Purpose),
    ) -> Arc<RegionFiles> {
        // The files count what they read and write, so the part's own account goes to nobody.
        let uncounted = Arc::new(Accounting::new());
        let range = offset..offset + extent_bytes * u64::from(count);
        let part = RegionPart::new(self.region.clone(), range, space, why, uncounted);
        let how = RegionExtents { prefix: prefix.into(), extent_bytes, count, location: self.location() };
        RegionFiles::new(part, how, self.directory.accounting().clone())
    }

    /// Where it is.
    pub(crate) fn location(&self) -> String {
        format!("{}/{NVM_FILE}", self.directory.location())
    }

    /// What it is made of, and what went over it.
    pub(crate) fn stats(&self) -> NvmStats {
        NvmStats {
            place: self.location(),
            facts: self.region.facts(),
            size_bytes: self.region.len_bytes(),
            log_bytes: self.layout.log.map_or(0, |log| log.bytes()),
            slots: None,
            tally: self.region.tally(),
        }
    }

    /// What a person should know at start.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.region.facts().medium == Medium::EmulatedByFile).then(|| {
            format!(
                "{}: NVM is emulated by a file: what is committed survives the death of the process, not that of the machine",
                self.location()
            )
        })
    }

    /// Before a checkpoint is noted: the stamp that the control file gets with it.
    pub(crate) fn next_stamp(&self) -> u64 {
        let stamp = self.region.load_word(STAMP_AT) + 1;
        write_word(&*self.region, STAMP_AT, stamp);
        stamp
    }

    /// Before the control file says that everything was shut down: what is emulated is in the file then.
    pub(crate) fn settle(&self) -> Result<()> {
        Ok(self.region.settle()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After another start of the machine an emulated region is as good as lost, unless everything was brought to its file.
    #[test]
    fn memory_does_not_outlive_the_machine() {
        assert!(is_lost(7, 8, State::Open));
        assert!(is_lost(7, 0, State::Open), "it was emulated, whatever it is now");
        assert!(!is_lost(7, 8, State::Clean));
        assert!(!is_lost(7, 7, State::Open));
        assert!(!is_lost(0, 8, State::Open), "the medium outlives the machine");
    }
}
