//! The section `[trace]`: the trace of single requests to the devices.

use varve_pager::{Form, Setting, Unit};

/// The most entries for each device. They take at most 48 MB (`varve_device::TRACE_ENTRY_BYTES`).
const ENTRIES_MAX: usize = 1_000_000;

/// What is recorded of requests to the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSettings {
    /// The most requests to a device that are recorded. 0 means that nothing is recorded.
    pub entries: usize,
}

impl TraceSettings {
    /// The default: nothing is recorded.
    pub const DEFAULT: Self = Self { entries: 0 };

    /// All settings of the section.
    pub(super) const TABLE: &'static [Setting<TraceSettings>] = &[Setting {
        key: "entries",
        form: Form::Count {
            unit: Unit::None,
            bounds: 0..=ENTRIES_MAX,
            get: |trace| trace.entries,
            set: |trace, entries| trace.entries = entries,
        },
        is_online: true,
        help: "The most requests to each device that varve_io_trace records; 0 ends the trace.",
    }];
}
