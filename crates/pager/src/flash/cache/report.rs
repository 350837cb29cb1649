//! The report of the flash cache: the number of slots in each state, and the counters of the cache.
//!
//! This module does not know when anything is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::counters::ByKind;
use crate::flash::cache::FlashCache;
use crate::flash::table::Counts;
use crate::level::LevelReport;
use crate::log::redo::RedoOps;

impl FlashCache {
    /// From now on reads are counted by kind of page, too.
    pub(crate) fn count_kinds(&self, ops: Arc<dyn RedoOps>) {
        let counters = ops.counted_kinds().iter().map(|names| names.map(|name| (name, AtomicU64::new(0))));
        let counters = counters.collect();
        // There is only one engine, so the value is set only once.
        let _first = self.counters.kinds.0.set(ByKind { ops, counters });
    }

    /// Returns the number of slots in each state.
    pub(in crate::flash) fn counts(&self) -> Counts {
        let each = self.tables().map(|table| table.counts());
        each.fold(Counts::default(), Counts::plus)
    }

    /// Returns the counters of this level.
    pub(in crate::flash) fn report_of_cache(&self) -> LevelReport {
        let (counts, counters) = (self.counts(), &self.counters);
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let mut told = vec![
            ("frames", u64::from(self.slots())),
            ("free", counts.free),
            ("writing", counts.writing),
            ("clean", counts.clean),
            ("dirty", counts.dirty),
            ("invalid", counts.invalid),
            ("is_lost", u64::from(self.is_lost())),
            ("read_hits", of(&counters.hits)),
            ("read_hits_dirty", of(&counters.dirty_hits)),
            ("read_misses", of(&counters.misses)),
            ("trimmed_reads", of(&counters.trimmed)),
            ("admitted_clean", of(&counters.admitted_clean)),
            ("admitted_dirty", of(&counters.admitted_dirty)),
            ("refused_sequential", of(&counters.sequential)),
            ("refused_colder", of(&counters.colder)),
            ("refused_throttled", of(&counters.throttled)),
            ("bypassed_reads", of(&counters.bypassed)),
            ("refused_budget", of(&counters.budget)),
            ("refused_busy", of(&counters.busy)),
            ("invalidated", of(&counters.invalidated)),
            ("damaged", of(&counters.damaged)),
            ("errors", of(&counters.errors)),
            ("written_pages", of(&counters.written)),
            ("write_batches", of(&counters.write_batches)),
            ("cleaned_pages", of(&counters.cleaned)),
            ("clean_batches", of(&counters.clean_batches)),
            ("pending", self.drive.writes.pending() as u64),
            ("widened_reads", of(&counters.widened)),
            ("widened_pages", of(&counters.widened_pages)),
            ("widened_refused", of(&counters.widened_refused)),
            ("hardened_blocks", of(&counters.hardened)),
            ("hardened_passes", of(&counters.hardened_passes)),
            ("restored", of(&counters.restored)),
            ("restored_dirty", of(&counters.restored_dirty)),
            ("not_restored", of(&counters.not_restored)),
            ("restored_wrong", of(&counters.restored_wrong)),
        ];
        told.extend(self.counters.kinds.told());
        LevelReport { name: "flash", part: None, counters: told }
    }
}
