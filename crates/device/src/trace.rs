//! A trace of single I/O operations: time, file, offset, length, kind, purpose. It can be plotted as time
//! against address. It is off until it is switched on.
//!
//! Invariants
//! 1. The trace has a limited length. Operations beyond it are only counted as dropped.
//!
//! Files appear as numbers, which a directory assigns (see the implementations of `Directory`).

use std::time::Instant;

use parking_lot::Mutex;

use crate::latency::Timed;
use crate::purpose::{Io, Purpose, Space};

/// One traced operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEntry {
    /// Start, in nanoseconds since the trace was switched on.
    pub start_ns: u64,
    /// The duration in nanoseconds.
    pub took_ns: u64,
    /// Space of the file.
    pub space: Space,
    /// The number of the file within its directory, in order of opening.
    pub file: u32,
    /// The byte offset.
    pub offset: u64,
    /// The length in bytes.
    pub len_bytes: u64,
    /// Read or write.
    pub what: Timed,
    /// The purpose of the operation.
    pub why: Purpose,
}

/// The bytes of an entry in memory.
pub const TRACE_ENTRY_BYTES: usize = size_of::<TraceEntry>();
const _: () = assert!(TRACE_ENTRY_BYTES <= 48);

struct Recording {
    since: Instant,
    entries_max: usize,
    entries: Vec<TraceEntry>,
    dropped_count: u64,
}

/// A bounded trace.
#[derive(Default)]
pub struct IoTrace {
    recording: Mutex<Option<Recording>>,
}

impl IoTrace {
    pub(crate) fn switch(&self, entries_max: usize) {
        *self.recording.lock() = (entries_max > 0).then(|| Recording {
            since: Instant::now(),
            entries_max,
            entries: Vec::new(),
            dropped_count: 0,
        });
    }

    pub(crate) fn record(&self, what: Timed, io: Io, started: Instant) {
        let mut slot = self.recording.lock();
        let Some(recording) = slot.as_mut() else { return };
        if recording.entries.len() >= recording.entries_max {
            recording.dropped_count += 1;
            return;
        }
        recording.entries.push(TraceEntry {
            start_ns: started.saturating_duration_since(recording.since).as_nanos() as u64,
            took_ns: started.elapsed().as_nanos() as u64,
            space: io.space,
            file: io.file,
            offset: io.offset,
            len_bytes: io.bytes,
            what,
            why: io.why,
        });
    }

    /// Returns the entries, in the order in which the operations ended. The trace keeps them.
    pub fn entries(&self) -> Vec<TraceEntry> {
        self.recording.lock().as_ref().map_or_else(Vec::new, |recording| recording.entries.clone())
    }

    /// Returns the number of operations that did not fit in the trace.
    pub fn dropped_count(&self) -> u64 {
        self.recording.lock().as_ref().map_or(0, |recording| recording.dropped_count)
    }

    /// Takes the entries out of the trace, and returns them with the number of dropped operations.
    pub fn take(&self) -> (Vec<TraceEntry>, u64) {
        let mut slot = self.recording.lock();
        slot.as_mut().map_or_else(Default::default, |recording| {
            let dropped = std::mem::take(&mut recording.dropped_count);
            (std::mem::take(&mut recording.entries), dropped)
        })
    }
}
