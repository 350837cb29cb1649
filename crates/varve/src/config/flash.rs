//! `[flash]`: the cache of pages on flash.
//!
//! What this file doesn't know: which devices there are beside their names, what a design does.

use varve_pager::FlashDesign;

use super::reader::{ConfigError, Reader};
use super::{KIB, MIB, TIB};

/// The cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashSettings {
    /// Name of the device whose directory holds its file.
    pub device: String,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Which pages it takes.
    pub design: FlashDesign,
}

impl FlashSettings {
    /// What the section says, over what was said before.
    pub(super) fn read(before: Option<&Self>, section: &mut Reader<'_>) -> Result<Self, ConfigError> {
        let at = ["device", "size"].map(|key| section.position(key));
        let device = section.text("device")?.or(before.map(|flash| flash.device.clone()));
        let size = section.bytes("size", MIB..=64 * TIB)?.or(before.map(|flash| flash.size_bytes));
        let missing = |key, at, what| section.error(key, at, &format!("is missing: {what}"));
        let device = device.ok_or_else(|| missing("device", at[0], "the device whose directory holds it"))?;
        let size_bytes = size.ok_or_else(|| missing("size", at[1], "the bytes of its file"))?;
        if !size_bytes.is_multiple_of(4 * KIB) {
            return Err(section.error("size", at[1], "must be a multiple of 4 KiB"));
        }
        let designs = FlashDesign::ALL.map(|design| (design.name(), design));
        let now = before.map_or(FlashDesign::DualWrite, |flash| flash.design);
        let design = section.choice("design", &designs)?.unwrap_or(now);
        Ok(Self { device, size_bytes, design })
    }
}
