//! The region of persistent memory of an open database. It gives each user its part: the log, the page
//! buffer, or the doublewrite copies.
//!
//! Invariants
//! 1. The region's stamp (the number of the last checkpoint) is durable before the control file gets the same
//!    stamp. So a region with a smaller stamp than the control file was replaced by an older copy.
//!
//! This module does not know what is in the parts, or how the database gets a region and leaves it
//! (`attach.rs`).

use std::sync::Arc;

use varve_device::{
    Accounting, Directory, Medium, Purpose, Region, RegionExtents, RegionFiles, RegionPart, Space,
};

use super::area::PageArea;
use super::attach::write_word;
use super::config::WantedRegion;
use super::fits;
use super::layout::{Layout, STAMP_AT, SlotUse};
use crate::base::error::{PagerError, Result};
use crate::home::protection::REGION_PREFIX;
use crate::log::LogConfig;
use crate::nvm::NvmStats;

const LOG_PREFIX: &str = "log";

/// The region of an open database.
pub(crate) struct NvmRegion {
    pub(super) region: Arc<dyn Region>,
    pub(super) id: u64,
    pub(super) layout: Layout,
    pub(super) directory: Arc<dyn Directory>,
}

impl NvmRegion {
    /// Returns whether the log is in the region.
    pub(crate) fn has_log(&self) -> bool {
        self.layout.log.is_some()
    }

    /// Refuses a configuration for the next start that would not fit this region.
    pub(crate) fn fits(&self, next: &WantedRegion<'_>) -> Result<()> {
        let fits = fits::configured(next, &self.layout);
        fits.map_err(|why| PagerError::Incompatible { what: format!("{} {why}", self.location()) })
    }

    /// Returns the configuration of the log, if it is in the region.
    pub(crate) fn log(&self) -> Option<LogConfig> {
        let log = self.layout.log?;
        let (from, bytes, count) = (log.offset, log.segment_bytes, log.segments);
        Some(LogConfig {
            directory: self.files(LOG_PREFIX, from, bytes, count, Space::Log, Purpose::Log),
            segment_bytes: log.segment_bytes,
            capacity_bytes: log.capacity_bytes(),
        })
    }

    /// Returns the page slots of the page buffer, if the region has them.
    pub(crate) fn page_area(&self) -> Option<PageArea> {
        PageArea::of(&self.region, self.id, &self.layout, self.directory.accounting(), self.location())
    }

    /// Returns the doublewrite copies, if the region has them: a directory with one file.
    pub(crate) fn copies(&self) -> Option<Arc<RegionFiles>> {
        let slots = self.layout.slots.filter(|slots| slots.purpose == SlotUse::Copies)?;
        let bytes = slots.bytes(self.layout.page_size);
        Some(self.files(REGION_PREFIX, slots.pages, bytes, 1, Space::Nvm, Purpose::Doublewrite))
    }

    /// Returns a part of the region as files of equal length.
    fn files(
        &self,
        prefix: &str,
        offset: u64,
        extent_bytes: u64,
        count: u32,
        space: Space,
        why: Purpose,
    ) -> Arc<RegionFiles> {
        // The files count their reads and writes themselves, so the account of the part is not used.
        let uncounted = Arc::new(Accounting::new());
        let range = offset..offset + extent_bytes * u64::from(count);
        let part = RegionPart::new(self.region.clone(), range, space, why, uncounted);
        let how = RegionExtents { prefix: prefix.into(), extent_bytes, count, location: self.location() };
        RegionFiles::new(part, how, self.directory.accounting().clone())
    }

    /// Returns the path of the region's file.
    pub(crate) fn location(&self) -> String {
        fits::place(&*self.directory)
    }

    /// Returns the properties of the region, and counts of its use.
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

    /// A warning for the user at a start.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.region.facts().medium == Medium::EmulatedByFile).then(|| {
            format!(
                "{}: NVM is emulated by a file: what is committed survives the death of the process, not that of the machine",
                self.location()
            )
        })
    }

    /// Returns whether the region survives an end of the machine only after a clean shutdown.
    pub(crate) fn needs_clean_end(&self) -> bool {
        self.region.facts().boot.is_some()
    }

    /// Is called before a checkpoint is stored. Increases the stamp, and returns it. The control file gets
    /// the same stamp with the checkpoint.
    pub(crate) fn next_stamp(&self) -> u64 {
        let stamp = self.region.load_word(STAMP_AT) + 1;
        write_word(&*self.region, STAMP_AT, stamp);
        stamp
    }

    /// Writes an emulated region to its file. This comes before the control file records a clean shutdown.
    pub(crate) fn settle(&self) -> Result<()> {
        Ok(self.region.settle()?)
    }
}
