//! What the cache tells of itself.
//!
//! Not known here: when anything is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cache::FlashCache;
use super::table::Counts;
use crate::level::LevelReport;

/// What is counted since the start.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) dirty_hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) trimmed: AtomicU64,
    pub(super) admitted_clean: AtomicU64,
    pub(super) admitted_dirty: AtomicU64,
    pub(super) sequential: AtomicU64,
    pub(super) colder: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) invalidated: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) write_batches: AtomicU64,
    pub(super) cleaned: AtomicU64,
    pub(super) clean_batches: AtomicU64,
}

impl FlashCache {
    /// Frames by state.
    pub(super) fn counts(&self) -> Counts {
        let each = self.partitions.iter().map(|table| table.lock().counts());
        each.fold(Counts::default(), Counts::plus)
    }

    /// Counters of this level.
    pub(super) fn report_of_cache(&self) -> LevelReport {
        let (counts, counters) = (self.counts(), &self.counters);
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let told = vec![
            ("frames", u64::from(self.partition_frames) * self.partitions.len() as u64),
            ("free", counts.free),
            ("writing", counts.writing),
            ("clean", counts.clean),
            ("dirty", counts.dirty),
            ("invalid", counts.invalid),
            ("is_lost", u64::from(self.is_lost.load(Relaxed))),
            ("read_hits", of(&counters.hits)),
            ("read_hits_dirty", of(&counters.dirty_hits)),
            ("read_misses", of(&counters.misses)),
            ("trimmed_reads", of(&counters.trimmed)),
            ("admitted_clean", of(&counters.admitted_clean)),
            ("admitted_dirty", of(&counters.admitted_dirty)),
            ("refused_sequential", of(&counters.sequential)),
            ("refused_colder", of(&counters.colder)),
            ("refused_throttled", of(&counters.throttled)),
            ("refused_busy", of(&counters.busy)),
            ("invalidated", of(&counters.invalidated)),
            ("damaged", of(&counters.damaged)),
            ("errors", of(&counters.errors)),
            ("written_pages", of(&counters.written)),
            ("write_batches", of(&counters.write_batches)),
            ("cleaned_pages", of(&counters.cleaned)),
            ("clean_batches", of(&counters.clean_batches)),
            ("pending", self.writes.pending() as u64),
        ];
        LevelReport { name: "flash", part: None, counters: told }
    }
}
