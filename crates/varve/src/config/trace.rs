//! The section `[trace]`: the latencies of devices, and the trace of single requests to them.

use varve_pager::{Form, Setting, Unit};

/// The most entries for each device. They take at most 48 MB (`varve_device::TRACE_ENTRY_BYTES`).
const ENTRIES_MAX: usize = 1_000_000;

/// What is recorded of requests to the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSettings {
    /// The most requests to a device that are recorded. 0 means that nothing is recorded.
    pub entries: usize,
    /// Whether the latencies of devices are recorded.
    pub latencies: bool,
}

impl TraceSettings {
    /// The default: only latencies are recorded.
    pub const DEFAULT: Self = Self { entries: 0, latencies: true };

    /// All settings of the section.
    pub(super) const TABLE: &'static [Setting<TraceSettings>] = &[
        Setting {
            key: "entries",
            form: Form::Count {
                unit: Unit::None,
                bounds: 0..=ENTRIES_MAX,
                get: |trace| trace.entries,
                set: |trace, entries| trace.entries = entries,
            },
            is_online: true,
            help: "The most requests to each device that varve_io_trace records; 0 ends the trace.",
        },
        Setting {
            key: "latencies",
            form: Form::Flag {
                get: |trace| trace.latencies,
                set: |trace, latencies| trace.latencies = latencies,
            },
            is_online: true,
            help: "Whether the latencies of requests to each device are recorded, for varve_devices.",
        },
    ];
}
