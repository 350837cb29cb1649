//! The section `[undo]`: how long old versions of rows are kept for queries that read an earlier moment.

use std::time::Duration;

use varve_pager::{Form, Setting, Unit};

/// The longest time in seconds for which undo records are kept: 30 days.
const SECONDS_MAX: usize = 30 * 86_400;

/// How long undo records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoSettings {
    /// The seconds for which the undo records of a transaction are kept after its commit.
    pub retention_seconds: usize,
}

impl UndoSettings {
    /// The default: undo records are kept only as long as running transactions need them.
    pub const DEFAULT: Self = Self { retention_seconds: 0 };

    /// All settings of the section.
    pub(super) const TABLE: &'static [Setting<UndoSettings>] = &[Setting {
        key: "retention",
        form: Form::Count {
            unit: Unit::Seconds,
            bounds: 0..=SECONDS_MAX,
            get: |undo| undo.retention_seconds,
            set: |undo, seconds| undo.retention_seconds = seconds,
        },
        is_online: true,
        help: "How long old versions of rows are kept for queries with AS OF, in seconds.",
    }];

    /// Returns the time for which undo records are kept.
    pub fn retention(self) -> Duration {
        Duration::from_secs(self.retention_seconds as u64)
    }
}
