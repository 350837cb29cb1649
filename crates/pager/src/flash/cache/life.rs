//! Where the cache stands: in a start, and with its device. Each is one state, which goes one way.
//!
//! ```text
//!   phase    opened --begin, with frames of the start before--> restoring --redone--> open
//!              '---------------------------- redone ------------------------------------^
//!   device   sound --errors in a row--> failing --lose--> lost
//! ```
//!
//! Invariants
//! 1. A state is never left for an earlier one, until the next start.
//!
//! What it does not know: what is done in a state.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// How far the start has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::flash) enum Phase {
    /// Redo is not over.
    Opened,
    /// Redo is not over, and frames from before the start are there.
    Restoring,
    /// Redo is over. From now on, each change of a page is reported to the cache.
    Open,
}

/// What the device is good for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::flash) enum Device {
    /// Everything.
    Sound,
    /// No page is taken any more, and what is dirty goes home.
    Failing,
    /// Nothing is to be had of it.
    Lost,
}

/// The two of them.
pub(in crate::flash) struct Life {
    phase: AtomicU8,
    device: AtomicU8,
}

impl Default for Life {
    fn default() -> Life {
        Life { phase: AtomicU8::new(Phase::Opened as u8), device: AtomicU8::new(Device::Sound as u8) }
    }
}

impl Life {
    /// Goes on to this phase, if it has not come so far.
    pub(in crate::flash) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Relaxed);
    }

    /// Whether it is in this phase.
    pub(in crate::flash) fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Relaxed) == phase as u8
    }

    /// The device is no better than this from now on. Whether that is news.
    pub(in crate::flash) fn worsen(&self, device: Device) -> bool {
        self.device.fetch_max(device as u8, Relaxed) < device as u8
    }

    /// Whether the device is this, or worse.
    pub(in crate::flash) fn is_at_least(&self, device: Device) -> bool {
        self.device.load(Relaxed) >= device as u8
    }
}
