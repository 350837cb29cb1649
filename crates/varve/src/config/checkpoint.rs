//! The section `[checkpoint]`: which pages a checkpoint writes, and the interval between checkpoints.

use std::time::Duration;

use varve_pager::{CheckpointConfig, CheckpointKind, Form, Setting, Unit};

use super::reader::{ConfigError, SectionReader};

/// The longest interval in seconds: a day.
const SECONDS_MAX: usize = 86_400;

/// Checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// The pages that a checkpoint writes.
    pub kind: CheckpointKind,
    /// The interval between two checkpoints, in seconds.
    pub interval_seconds: usize,
    /// The time within which a start after a crash should be done with redo, in seconds. 0 means that only
    /// the size of the log limits it.
    pub recovery_target_seconds: usize,
}

impl CheckpointSettings {
    /// The default.
    pub const DEFAULT: Self =
        Self { kind: CheckpointKind::Indirect, interval_seconds: 1, recovery_target_seconds: 0 };

    /// All settings of the section.
    pub(super) const TABLE: &'static [Setting<CheckpointSettings>] = &[
        Setting {
            key: "kind",
            form: Form::Word {
                words: || CheckpointKind::ALL.map(CheckpointKind::name).to_vec(),
                get: |checkpoint| checkpoint.kind.name(),
                set: |checkpoint, word| {
                    checkpoint.kind = CheckpointKind::of(word).unwrap_or(checkpoint.kind);
                },
            },
            is_online: false,
            help: "Which changed pages a checkpoint has written before it is recorded.",
        },
        Setting {
            key: "interval",
            form: Form::Count {
                unit: Unit::Seconds,
                bounds: 1..=SECONDS_MAX,
                get: |checkpoint| checkpoint.interval_seconds,
                set: |checkpoint, seconds| checkpoint.interval_seconds = seconds,
            },
            is_online: false,
            help: "The longest time between two checkpoints, in seconds.",
        },
        Setting {
            key: "recovery_target",
            form: Form::Count {
                unit: Unit::Seconds,
                bounds: 0..=SECONDS_MAX,
                get: |checkpoint| checkpoint.recovery_target_seconds,
                set: |checkpoint, seconds| checkpoint.recovery_target_seconds = seconds,
            },
            is_online: false,
            help: "The time within which a start after a crash should be done with redo, in seconds. 0 sets no target.",
        },
    ];

    /// Returns these settings, overridden by those of the section.
    pub(super) fn overlaid(mut self, mut section: SectionReader<'_>) -> Result<Self, ConfigError> {
        section.declared(Self::TABLE, &mut self)?;
        section.finish()?;
        Ok(self)
    }

    /// Returns the pager's configuration with these settings.
    pub fn over(self, now: CheckpointConfig) -> CheckpointConfig {
        let seconds = Some(self.recovery_target_seconds as u64).filter(|seconds| *seconds > 0);
        CheckpointConfig {
            kind: self.kind,
            interval_ms: self.interval_seconds as u64 * 1000,
            recovery_target: seconds.map(Duration::from_secs),
            ..now
        }
    }
}
