//! Measures how long threads spend in slow calls, for comparison with published profiles (Kang 2016, tables
//! 2.1 and 4.4).
//!
//! Invariants
//! 1. If the measurement is off, each slow call costs one additional load.
//! 2. The time of a call is the time of the whole call. If the call waits in another measured call, this time
//!    is in both sums. For example, reading a page may have to write another page first.
//!
//! This module does not know which thread spent the time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// The calls that are measured. The names in parentheses are those of Kang's profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Waiting until the log is durable: commits, and pages that must not be written before it
    /// (`log_write_up_to`).
    LogWait,
    /// Getting a page that is not in the pool, including a free frame for it (`buf_page_get_gen`).
    PageRead,
    /// Making the copy of a single page durable (`single_page_dwb_write`, `single_page_dwb_flush`).
    SingleCopy,
    /// Writing a single page durably to its address in the data file (`single_page_ori_write`,
    /// `single_page_ori_flush`).
    SinglePlace,
    /// Making the copies of a batch durable (`add_to_batch_write`, `add_to_batch_flush`).
    BatchCopy,
    /// Writing the pages of a batch durably to their addresses in the data file.
    BatchPlace,
    /// Making pages stable in persistent memory, including the allocation of their slots.
    NvmPut,
    /// Getting slots when none is free: reusing some, writing some to the data files, or waiting for other
    /// threads that do so.
    NvmWait,
}

impl Timing {
    /// All timings, in the order of reports.
    pub const ALL: [Timing; 8] = [
        Timing::LogWait,
        Timing::PageRead,
        Timing::SingleCopy,
        Timing::SinglePlace,
        Timing::BatchCopy,
        Timing::BatchPlace,
        Timing::NvmPut,
        Timing::NvmWait,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Timing::LogWait => "log_wait",
            Timing::PageRead => "page_read",
            Timing::SingleCopy => "single_copy",
            Timing::SinglePlace => "single_place",
            Timing::BatchCopy => "batch_copy",
            Timing::BatchPlace => "batch_place",
            Timing::NvmPut => "nvm_put",
            Timing::NvmWait => "nvm_wait",
        }
    }
}

/// The number of calls, and their total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Number of calls.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
}

#[derive(Default)]
struct Sum {
    count: AtomicU64,
    ns: AtomicU64,
}

/// For each [`Timing`], the sum over all threads. Nothing is measured unless the value was made by
/// [`Times::on`].
#[derive(Default)]
pub struct Times {
    on: AtomicBool,
    sums: [Sum; Timing::ALL.len()],
}

impl Times {
    /// Returns sums that start at zero, with the measurement on.
    pub fn on() -> Times {
        Times { on: AtomicBool::new(true), ..Times::default() }
    }

    /// Returns the sum for `what` so far.
    pub fn spent(&self, what: Timing) -> Spent {
        let sum = &self.sums[what as usize];
        Spent { count: sum.count.load(Relaxed), ns: sum.ns.load(Relaxed) }
    }

    /// Runs `work`, and adds its duration to the sum for `what`.
    pub(crate) fn of<T>(&self, what: Timing, work: impl FnOnce() -> T) -> T {
        if !self.on.load(Relaxed) {
            return work();
        }
        let started = Instant::now();
        let done = work();
        let sum = &self.sums[what as usize];
        sum.count.fetch_add(1, Relaxed);
        sum.ns.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        done
    }
}
