//! What the cache counts.
//!
//! What it does not know: when, and how it is shown.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::level::{Run, Tier, Want};
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
pub(super) struct Kinds(pub(super) OnceLock<ByKind>);

pub(super) struct ByKind {
    pub(super) ops: Arc<dyn RedoOps>,
    /// Names, and how often: hits, misses.
    pub(super) counters: Box<[[(&'static str, AtomicU64); 2]]>,
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

    pub(super) fn told(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let each = self.0.get().into_iter().flat_map(|kinds| kinds.counters.iter().flatten());
        each.map(|(name, counter)| (*name, counter.load(Relaxed)))
    }
}
