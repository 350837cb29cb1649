//! The section `[archive]`: where the log is archived, so that a database can be restored to a moment.

use std::path::PathBuf;
use std::time::Duration;

use varve_pager::{Algorithm, Compression, Form, Setting, Unit};

/// The longest interval in seconds: an hour.
const SECONDS_MAX: usize = 3600;

/// The log archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// The directory of the archive; `None` means that the log is not archived.
    pub directory: Option<PathBuf>,
    /// The loss of the machine costs at most the commits of this many seconds.
    pub interval_seconds: usize,
    /// The compression of the archive.
    pub compression: Algorithm,
}

impl ArchiveSettings {
    /// The default: no archive.
    pub const DEFAULT: Self = Self { directory: None, interval_seconds: 10, compression: Algorithm::Lz4 };

    /// The settings of the section that SQL can show and change.
    pub(super) const TABLE: &'static [Setting<ArchiveSettings>] = &[
        Setting {
            key: "interval",
            form: Form::Count {
                unit: Unit::Seconds,
                bounds: 1..=SECONDS_MAX,
                get: |archive| archive.interval_seconds,
                set: |archive, seconds| archive.interval_seconds = seconds,
            },
            is_online: false,
            help: "The commits that the loss of the machine costs at most, in seconds.",
        },
        Setting {
            key: "compression",
            form: Form::Word {
                words: || Algorithm::ALL.map(Algorithm::name).to_vec(),
                get: |archive| archive.compression.name(),
                set: |archive, word| {
                    archive.compression = Algorithm::named(word).unwrap_or(archive.compression);
                },
            },
            is_online: false,
            help: "How the log archive is compressed.",
        },
    ];

    /// Returns the interval.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_seconds as u64)
    }

    /// Returns the compression.
    pub fn compression(&self) -> Compression {
        Compression::of(self.compression)
    }
}
