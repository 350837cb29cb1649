//! `[checkpoint]`: which pages a checkpoint has written, and the interval between checkpoints.

use varve_pager::{CheckpointConfig, CheckpointKind};

use super::reader::{ConfigError, SectionReader};

/// Most seconds between two of them: a day.
const SECONDS_MAX: usize = 86_400;

/// Checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// Which pages a checkpoint has written.
    pub kind: CheckpointKind,
    /// The most seconds between two of them.
    pub interval_seconds: usize,
}

impl CheckpointSettings {
    /// The default.
    pub const DEFAULT: Self = Self { kind: CheckpointKind::Indirect, interval_seconds: 1 };

    /// These settings, overridden by those of the section.
    pub(super) fn overlaid(self, mut section: SectionReader<'_>) -> Result<Self, ConfigError> {
        let kinds = CheckpointKind::ALL.map(|kind| (kind.name(), kind));
        let kind = section.choice("kind", &kinds)?.unwrap_or(self.kind);
        let interval_seconds = section.count("interval", 1..=SECONDS_MAX)?.unwrap_or(self.interval_seconds);
        section.finish()?;
        Ok(Self { kind, interval_seconds })
    }

    /// The pager's configuration with these settings.
    pub fn over(self, now: CheckpointConfig) -> CheckpointConfig {
        CheckpointConfig { kind: self.kind, interval_ms: self.interval_seconds as u64 * 1000, ..now }
    }
}
