//! Counters of bytes and operations. Each device has one set of counters, with one counter for each pair of
//! space (kind of file) and purpose. The counters are always on.
//!
//! Invariants
//! 1. A device can wrap another device. Only the innermost one counts, so no operation is counted twice. An
//!    operation that a fault injector makes fail is not counted.
//! 2. An operation is counted after it has succeeded.
//! 3. If latency histograms and traces are off, counting costs two relaxed atomic additions and one relaxed
//!    load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::latency::{Latencies, Timed};
use crate::purpose::{Io, Purpose, Space};
use crate::trace::IoTrace;

#[derive(Default)]
struct Cell {
    operations: AtomicU64,
    bytes: AtomicU64,
}

impl Cell {
    fn add(&self, bytes: u64) {
        self.operations.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
    fn tally(&self) -> Tally {
        Tally { operations: self.operations.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

/// Operations and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of operations.
    pub operations: u64,
    /// The number of bytes moved.
    pub bytes: u64,
}

impl std::ops::Sub for Tally {
    type Output = Tally;
    fn sub(self, earlier: Tally) -> Tally {
        Tally {
            operations: self.operations.saturating_sub(earlier.operations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl std::ops::Add for Tally {
    type Output = Tally;
    fn add(self, other: Tally) -> Tally {
        Tally { operations: self.operations + other.operations, bytes: self.bytes + other.bytes }
    }
}

/// The counts of one space and one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TallyRow {
    /// Space of the file.
    pub space: Space,
    /// The purpose of the operations.
    pub purpose: Purpose,
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub written: Tally,
}

const SPACES: usize = Space::ALL.len();
const PURPOSES: usize = Purpose::ALL.len();

/// The counters of one device, with its latency histograms and its trace, which can be switched on and off.
#[derive(Default)]
pub struct Accounting {
    reads: [[Cell; PURPOSES]; SPACES],
    writes: [[Cell; PURPOSES]; SPACES],
    flushes: [AtomicU64; SPACES],
    punched: [Cell; SPACES],
    timing: AtomicBool,
    /// Whether single operations are traced.
    tracing: AtomicBool,
    latencies: Latencies,
    trace: IoTrace,
}

impl std::fmt::Debug for Accounting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.rows()).finish()
    }
}

impl Accounting {
    /// Returns counters that are all zero.
    pub fn new() -> Accounting {
        Accounting::default()
    }

    /// Switches latency histograms and the trace on or off. The trace keeps at most
    /// `trace_entries_max` entries (0 = no trace).
    pub fn observe(&self, latency: bool, trace_entries_max: usize) {
        self.latencies.switch(latency);
        self.trace.switch(trace_entries_max);
        self.tracing.store(trace_entries_max > 0, Relaxed);
        self.timing.store(latency || trace_entries_max > 0, Relaxed);
    }

    /// Switches only the latency histograms on or off. The trace continues.
    pub fn observe_latencies(&self, is_on: bool) {
        self.latencies.switch(is_on);
        self.timing.store(is_on || self.tracing.load(Relaxed), Relaxed);
    }

    /// Returns the latency histograms.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Returns the trace of single operations.
    pub fn trace(&self) -> &IoTrace {
        &self.trace
    }

    /// Returns the reads of one space and purpose.
    pub fn read(&self, space: Space, purpose: Purpose) -> Tally {
        self.reads[space as usize][purpose as usize].tally()
    }

    /// Returns the writes of one space and purpose.
    pub fn written(&self, space: Space, purpose: Purpose) -> Tally {
        self.writes[space as usize][purpose as usize].tally()
    }

    /// Returns the number of flushes of files of a space.
    pub fn flush_count(&self, space: Space) -> u64 {
        self.flushes[space as usize].load(Relaxed)
    }

    /// Holes punched in files of a space.
    pub fn punched(&self, space: Space) -> Tally {
        self.punched[space as usize].tally()
    }

    /// Returns every pair of space and purpose that has at least one read or write.
    pub fn rows(&self) -> Vec<TallyRow> {
        let all = Space::ALL.iter().flat_map(|space| Purpose::ALL.iter().map(move |p| (*space, *p)));
        all.map(|(space, purpose)| TallyRow {
            space,
            purpose,
            read: self.read(space, purpose),
            written: self.written(space, purpose),
        })
        .filter(|row| row.read.operations + row.written.operations > 0)
        .collect()
    }

    /// Returns the start time of an operation, or `None` if neither latencies nor a trace are recorded.
    #[inline]
    pub(crate) fn start(&self) -> Option<Instant> {
        if self.timing.load(Relaxed) { Some(Instant::now()) } else { None }
    }

    #[inline]
    pub(crate) fn count_read(&self, io: Io, started: Option<Instant>) {
        self.reads[io.space as usize][io.why as usize].add(io.bytes);
        if let Some(at) = started {
            self.note(Timed::Read, io, at);
        }
    }

    #[inline]
    pub(crate) fn count_write(&self, io: Io, durable: bool, started: Option<Instant>) {
        self.writes[io.space as usize][io.why as usize].add(io.bytes);
        if let Some(at) = started {
            self.note(if durable { Timed::DurableWrite } else { Timed::Write }, io, at);
        }
    }

    pub(crate) fn count_flush(&self, space: Space, started: Option<Instant>) {
        self.flushes[space as usize].fetch_add(1, Relaxed);
        if let Some(at) = started {
            self.latencies.record(Timed::Flush, at.elapsed());
        }
    }

    pub(crate) fn count_punch(&self, space: Space, bytes: u64) {
        self.punched[space as usize].add(bytes);
    }

    #[cold]
    fn note(&self, what: Timed, io: Io, started: Instant) {
        self.latencies.record(what, started.elapsed());
        if self.tracing.load(Relaxed) {
            self.trace.record(what, io, started);
        }
    }
}
