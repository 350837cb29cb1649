//! `[flash]`: the cache of pages on flash.
//!
//! What this file doesn't know: devices other than by their names; the meaning of a design.

use varve_pager::{CleanOrder, FlashConfig, FlashDesign, FlashFill, FlashRestart, FlashScans};

use super::reader::{ConfigError, SectionReader};
use super::{KIB, MIB, TIB};

/// The cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashSettings {
    /// Name of the device whose directory has the cache file.
    pub device: String,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The design: which pages the cache admits.
    pub design: FlashDesign,
    /// The limit of dirty frames in percent, for designs that keep changed pages back.
    pub dirty_percent: u8,
    /// The dirty frames that are written home first.
    pub clean_order: CleanOrder,
    /// How the cache is reused when the database is opened again.
    pub restart: FlashRestart,
    /// How the cache is filled.
    pub fill: FlashFill,
    /// How pages of scans are recognized.
    pub scans: FlashScans,
    /// The most bytes written to its device per day; `None`: no limit.
    pub daily_write_bytes: Option<u64>,
}

impl FlashSettings {
    /// The earlier settings, overridden by those of the section.
    pub(super) fn read(before: Option<&Self>, section: &mut SectionReader<'_>) -> Result<Self, ConfigError> {
        let at = ["device", "size"].map(|key| section.position(key));
        let device = section.text("device")?.or(before.map(|flash| flash.device.clone()));
        let size = section.bytes("size", MIB..=64 * TIB)?.or(before.map(|flash| flash.size_bytes));
        let missing = |key, at, what| section.error(key, at, &format!("is missing: {what}"));
        // There is no cache to be altered without the section.
        let of_device = "section [flash] of varve.toml must name the device for the cache file";
        let device = device.ok_or_else(|| missing("device", at[0], of_device))?;
        let size_bytes = size.ok_or_else(|| missing("size", at[1], "the bytes of its file"))?;
        if !size_bytes.is_multiple_of(4 * KIB) {
            return Err(section.error("size", at[1], "must be a multiple of 4 KiB, as whole MiB are"));
        }
        let designs = FlashDesign::ALL.map(|design| (design.name(), design));
        let now = before.map_or(FlashConfig::DESIGN, |flash| flash.design);
        let design = section.choice("design", &designs)?.unwrap_or(now);
        let percents = FlashConfig::DIRTY_PERCENTS;
        let percent =
            section.count("dirty_limit", usize::from(*percents.start())..=usize::from(*percents.end()))?;
        let now = before.map_or(FlashConfig::DIRTY_PERCENT, |flash| flash.dirty_percent);
        let dirty_percent = percent.map_or(now, |percent| percent as u8);
        let orders = CleanOrder::ALL.map(|order| (order.name(), order));
        let now = before.map_or(CleanOrder::LastUse, |flash| flash.clean_order);
        let clean_order = section.choice("clean_order", &orders)?.unwrap_or(now);
        let restarts = FlashRestart::ALL.map(|restart| (restart.name(), restart));
        let now = before.map_or(FlashConfig::RESTART, |flash| flash.restart);
        let restart = section.choice("restart", &restarts)?.unwrap_or(now);
        let fills = FlashFill::ALL.map(|fill| (fill.name(), fill));
        let now = before.map_or(FlashConfig::FILL, |flash| flash.fill);
        let fill = section.choice("fill", &fills)?.unwrap_or(now);
        let kinds = FlashScans::ALL.map(|scans| (scans.name(), scans));
        let now = before.map_or(FlashConfig::SCANS, |flash| flash.scans);
        let scans = section.choice("scans", &kinds)?.unwrap_or(now);
        let now = before.and_then(|flash| flash.daily_write_bytes);
        let daily_write_bytes = section.bytes("daily_writes", MIB..=1024 * TIB)?.or(now);
        Ok(Self {
            device,
            size_bytes,
            design,
            dirty_percent,
            clean_order,
            restart,
            fill,
            scans,
            daily_write_bytes,
        })
    }
}
