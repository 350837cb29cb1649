//! Traces of requests to the temporary space, and the order of their addresses.
//!
//! Traces are taken at the drive's real speed, so the axis of a chart shows the seconds of the drive and of
//! this machine's processor.

use serde::Serialize;
use varve_device::{Space, Timed, TraceEntry};

use super::super::claim::Claim;
use super::super::scale::Scale;
use super::super::trace::{DrawnTrace, end_to_end};
use super::bed::SpillBed;
use super::judge::ClaimPlace;

/// The most requests of a trace.
const TRACE_MAX: usize = 2_000_000;
/// In a test no time is judged, and no request waits.
const TINY_DILATION: f64 = 0.001;
/// A pattern is called sequential, or random, if at least this part of its requests is.
const PATTERN_BAR: f64 = 0.9;

/// Returns the factor of the drive's times.
pub fn dilation(scale: Scale) -> f64 {
    if scale.name == Scale::TINY.name { TINY_DILATION } else { 1.0 }
}

/// Begins a trace.
pub fn begin(bed: &SpillBed) {
    bed.account().observe(false, TRACE_MAX);
}

/// The requests of a trace. A request is sequential if it begins where the last request of its kind ended.
#[derive(Debug, Clone, Serialize)]
pub struct RequestOrder {
    /// The number of writes.
    pub writes: usize,
    /// The number of reads.
    pub reads: usize,
    /// The part of the writes that is sequential.
    pub sequential_writes_share: f64,
    /// The part of the reads that is sequential.
    pub sequential_reads_share: f64,
    /// Requests that the trace had no space for.
    pub dropped: u64,
}

impl RequestOrder {
    fn of(entries: &[TraceEntry], dropped: u64) -> Self {
        let share = |what: Timed| {
            let of_kind: Vec<_> = entries.iter().filter(|entry| entry.what == what).collect();
            let follows = of_kind.windows(2).filter(|pair| {
                pair[0].file == pair[1].file && pair[0].offset + pair[0].len_bytes == pair[1].offset
            });
            (of_kind.len(), follows.count() as f64 / of_kind.len().max(1) as f64)
        };
        let ((writes, sequential_writes_share), (reads, sequential_reads_share)) =
            (share(Timed::Write), share(Timed::Read));
        Self { writes, reads, sequential_writes_share, sequential_reads_share, dropped }
    }

    /// Judges the claim "sequential write followed by random read" (Lee 2008, section 6).
    pub fn claims(&self, at: &ClaimPlace) -> [Claim; 2] {
        let writes = self.sequential_writes_share;
        let reads = 1.0 - self.sequential_reads_share;
        [
            at.at_least("part of the writes that is sequential", writes, PATTERN_BAR),
            at.at_least("part of the reads that is random", reads, PATTERN_BAR),
        ]
    }
}

/// Ends a trace.
pub fn end(bed: &SpillBed) -> (RequestOrder, DrawnTrace) {
    let (mut entries, dropped) = bed.account().trace().take();
    bed.account().observe(false, 0);
    let order = RequestOrder::of(&entries, dropped);
    end_to_end(&mut entries);
    (order, DrawnTrace::of(&entries, Space::Temporary))
}
