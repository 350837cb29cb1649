//! Histograms of latencies for each kind of operation (HDR histograms with three digits). They are off until
//! they are switched on.
//!
//! Invariants
//! 1. While the histograms are off, they cost nothing beyond the one flag that the accounting reads.
//!
//! A latency does not include the time that a request waited above the device.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Kinds of operation. Each has a histogram of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// Reads; a member of a batch is timed from the batch's submission.
    Read,
    /// Writes without durability.
    Write,
    /// Durable writes (FUA).
    DurableWrite,
    /// Flushes.
    Flush,
}

impl Timed {
    /// All kinds.
    pub const ALL: [Timed; KINDS] = [Timed::Read, Timed::Write, Timed::DurableWrite, Timed::Flush];

    /// Returns the lower-case name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            Timed::Read => "read",
            Timed::Write => "write",
            Timed::DurableWrite => "durable write",
            Timed::Flush => "flush",
        }
    }
}

const KINDS: usize = 4;
const MAX_NS: u64 = 60_000_000_000;

/// The figures of a histogram, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// The number of operations.
    pub count: u64,
    /// The number of operations, also of those before [`Latencies::clear`].
    pub total_count: u64,
    /// Sum of the latencies of all these operations.
    pub total_ns: u64,
    /// Mean, rounded.
    pub latency_ns_mean: u64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// Largest.
    pub latency_ns_max: u64,
}

/// The latencies of one kind of operation. A histogram rounds, so it cannot give their sum.
#[derive(Default)]
struct Recorded {
    histogram: Option<Histogram<u64>>,
    total_count: u64,
    total_ns: u64,
}

/// The histograms of one device.
#[derive(Default)]
pub struct Latencies {
    on: AtomicBool,
    kinds: [Mutex<Recorded>; KINDS],
}

impl Latencies {
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    pub(crate) fn record(&self, what: Timed, took: Duration) {
        if !self.on.load(Relaxed) {
            return;
        }
        let mut recorded = self.kinds[what as usize].lock();
        let took_ns = took.as_nanos().min(u128::from(MAX_NS)) as u64;
        recorded.total_count += 1;
        recorded.total_ns += took_ns;
        let histogram = recorded.histogram.get_or_insert_with(|| {
            Histogram::new_with_bounds(1, MAX_NS, 3).expect("constant bounds are valid")
        });
        histogram.saturating_record(took_ns);
    }

    /// Returns the figures of one kind since the last [`Latencies::clear`], and the totals.
    pub fn summary(&self, what: Timed) -> LatencySummary {
        let recorded = self.kinds[what as usize].lock();
        let totals = LatencySummary {
            total_count: recorded.total_count,
            total_ns: recorded.total_ns,
            ..LatencySummary::default()
        };
        recorded.histogram.as_ref().map_or(totals, |histogram| LatencySummary {
            count: histogram.len(),
            latency_ns_mean: histogram.mean() as u64,
            latency_ns_p50: histogram.value_at_quantile(0.5),
            latency_ns_p99: histogram.value_at_quantile(0.99),
            latency_ns_max: histogram.max(),
            ..totals
        })
    }

    /// Returns whether latencies are recorded.
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Empties the histograms. The totals stay.
    pub fn clear(&self) {
        for kind in &self.kinds {
            kind.lock().histogram = None;
        }
    }
}
