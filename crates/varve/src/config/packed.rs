//! The section `[packed]`: how much space the files of a database with packed pages may take.

use varve_pager::PackedConfig;

use super::reader::{ConfigError, SectionReader};

/// The space of packed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedSettings {
    /// Percent of a file that may hold pages before it grows.
    pub fill_percent: u8,
    /// Bytes of an extent. `None`: the default for new files, the existing size for old ones.
    pub extent_bytes: Option<u64>,
}

impl Default for PackedSettings {
    fn default() -> Self {
        Self { fill_percent: PackedConfig::DEFAULT.fill_percent, extent_bytes: None }
    }
}

impl PackedSettings {
    /// Returns these settings, overridden by those of the section.
    pub(super) fn overlaid(self, mut section: SectionReader<'_>) -> Result<Self, ConfigError> {
        let (fills, extents) = (PackedConfig::FILL_PERCENT, PackedConfig::EXTENT_BYTES);
        let fill = section.count("fill", usize::from(*fills.start())..=usize::from(*fills.end()))?;
        let at = section.position("extent");
        let extent_bytes = section.bytes("extent", extents)?.or(self.extent_bytes);
        if extent_bytes.is_some_and(|bytes| !bytes.is_power_of_two()) {
            return Err(section.error("extent", at, "must be a power of two, such as \"2MiB\""));
        }
        section.finish()?;
        Ok(Self { fill_percent: fill.map_or(self.fill_percent, |fill| fill as u8), extent_bytes })
    }

    /// Returns the configuration of packed spaces with these settings. The other settings are those of `now`.
    pub fn over(self, now: PackedConfig) -> PackedConfig {
        PackedConfig {
            fill_percent: self.fill_percent,
            extent_bytes: self.extent_bytes.unwrap_or(now.extent_bytes),
            ..now
        }
    }
}
