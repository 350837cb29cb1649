//! What the cache tells of itself.
//!
//! Not known here: when anything is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::cache::FlashCache;
use super::table::Counts;
use crate::level::{LevelReport, Run, Tier, Want};
use crate::log::redo::RedoOps;

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
    pub(super) bypassed: AtomicU64,
    pub(super) budget: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) invalidated: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) write_batches: AtomicU64,
    pub(super) cleaned: AtomicU64,
    pub(super) clean_batches: AtomicU64,
    pub(super) widened: AtomicU64,
    pub(super) widened_pages: AtomicU64,
    pub(super) widened_refused: AtomicU64,
    pub(super) hardened: AtomicU64,
    pub(super) hardened_passes: AtomicU64,
    pub(super) restored: AtomicU64,
    pub(super) restored_dirty: AtomicU64,
    pub(super) not_restored: AtomicU64,
    pub(super) restored_wrong: AtomicU64,
}

/// Reads by kind of page, as the engine tells them apart. Nothing is counted before it is known how.
#[derive(Default)]
pub(super) struct Kinds(OnceLock<ByKind>);

struct ByKind {
    ops: Arc<dyn RedoOps>,
    /// Names, and how often: hits, misses.
    counters: Box<[[(&'static str, AtomicU64); 2]]>,
}

impl Kinds {
    /// Counts what was just read.
    pub(super) fn count(&self, runs: &[Run<'_, '_>]) {
        let Some(ByKind { ops, counters }) = self.0.get() else { return };
        for want in runs.iter().flat_map(|run| run.want.iter()) {
            let Want::Page { frame, got: Some(got) } = want else { continue };
            if let Some([(_, hits), (_, misses)]) = counters.get(ops.counted_kind(frame)) {
                let counter = if got.from == Tier::Flash { hits } else { misses };
                counter.fetch_add(1, Relaxed);
            }
        }
    }

    fn told(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let each = self.0.get().into_iter().flat_map(|kinds| kinds.counters.iter().flatten());
        each.map(|(name, counter)| (*name, counter.load(Relaxed)))
    }
}

impl FlashCache {
    /// From now on reads are counted by kind of page, too.
    pub(crate) fn count_kinds(&self, ops: Arc<dyn RedoOps>) {
        let counters = ops.counted_kinds().iter().map(|names| names.map(|name| (name, AtomicU64::new(0))));
        let counters = counters.collect();
        // There is one engine.
        let _first = self.kinds.0.set(ByKind { ops, counters });
    }

    /// Frames by state.
    pub(super) fn counts(&self) -> Counts {
        let each = self.tables().map(|table| table.counts());
        each.fold(Counts::default(), Counts::plus)
    }

    /// Counters of this level.
    pub(super) fn report_of_cache(&self) -> LevelReport {
        let (counts, counters) = (self.counts(), &self.counters);
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let mut told = vec![
            ("frames", u64::from(self.frames())),
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
            ("pending", self.writes.pending() as u64),
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
        told.extend(self.kinds.told());
        LevelReport { name: "flash", part: None, counters: told }
    }
}
