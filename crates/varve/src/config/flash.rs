//! The section `[flash]`: the cache of pages on flash. The pager declares the settings of the cache.

use varve_pager::FlashSettings;

use super::KIB;
use super::reader::{ConfigError, SectionReader};

/// The settings of the section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashSection {
    /// Name of the device whose directory has the cache file.
    pub device: String,
    /// All other settings.
    pub settings: FlashSettings,
}

impl FlashSection {
    /// Reads the section. Its values override those of `before`.
    pub(super) fn read(before: Option<&Self>, section: &mut SectionReader<'_>) -> Result<Self, ConfigError> {
        let at = ["device", "size"].map(|key| section.position(key));
        let device = section.text("device")?.or(before.map(|flash| flash.device.clone()));
        let missing = |key, at, what| section.error(key, at, &format!("is missing: {what}"));
        // Without the section there is no cache that could be changed.
        let of_device = "section [flash] of varve.toml must name the device for the cache file";
        let device = device.ok_or_else(|| missing("device", at[0], of_device))?;
        if before.is_none() && !section.has("size") {
            return Err(missing("size", at[1], "the bytes of its file"));
        }
        let mut settings = before.map_or(FlashSettings::DEFAULT, |flash| flash.settings);
        section.declared(FlashSettings::TABLE, &mut settings)?;
        if !settings.size_bytes.is_multiple_of(4 * KIB) {
            return Err(section.error("size", at[1], "must be a multiple of 4 KiB, as whole MiB are"));
        }
        Ok(Self { device, settings })
    }
}
