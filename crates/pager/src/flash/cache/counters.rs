//! The counters of the flash cache.
//!
//! This module does not know when events are counted, or how the counters are shown.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::level::{Run, Tier, Want};
use crate::log::redo::RedoOps;

/// Counters of events since the start.
#[derive(Default)]
pub(in crate::flash) struct Counters {
    pub(in crate::flash) hits: AtomicU64,
    pub(in crate::flash) dirty_hits: AtomicU64,
    pub(in crate::flash) misses: AtomicU64,
    pub(in crate::flash) trimmed: AtomicU64,
    pub(in crate::flash) admitted_clean: AtomicU64,
    pub(in crate::flash) admitted_dirty: AtomicU64,
    pub(in crate::flash) sequential: AtomicU64,
    pub(in crate::flash) colder: AtomicU64,
    pub(in crate::flash) throttled: AtomicU64,
    pub(in crate::flash) bypassed: AtomicU64,
    pub(in crate::flash) budget: AtomicU64,
    pub(in crate::flash) busy: AtomicU64,
    pub(in crate::flash) invalidated: AtomicU64,
    pub(in crate::flash) damaged: AtomicU64,
    pub(in crate::flash) errors: AtomicU64,
    pub(in crate::flash) written: AtomicU64,
    pub(in crate::flash) write_batches: AtomicU64,
    pub(in crate::flash) cleaned: AtomicU64,
    pub(in crate::flash) clean_batches: AtomicU64,
    pub(in crate::flash) widened: AtomicU64,
    pub(in crate::flash) widened_pages: AtomicU64,
    pub(in crate::flash) widened_refused: AtomicU64,
    pub(in crate::flash) hardened: AtomicU64,
    pub(in crate::flash) hardened_passes: AtomicU64,
    pub(in crate::flash) restored: AtomicU64,
    pub(in crate::flash) restored_dirty: AtomicU64,
    pub(in crate::flash) not_restored: AtomicU64,
    pub(in crate::flash) restored_wrong: AtomicU64,
    /// Reads by kind of page.
    pub(in crate::flash) kinds: Kinds,
}

/// Counters of reads by kind of page. The engine says which kinds there are. Nothing is counted until the
/// engine has said so.
#[derive(Default)]
pub(in crate::flash) struct Kinds(pub(in crate::flash) OnceLock<ByKind>);

pub(in crate::flash) struct ByKind {
    pub(in crate::flash) ops: Arc<dyn RedoOps>,
    /// For each kind, the names and counters of hits and of misses.
    pub(in crate::flash) counters: Box<[[(&'static str, AtomicU64); 2]]>,
}

impl Kinds {
    /// Counts the pages that were just read.
    pub(in crate::flash) fn count(&self, runs: &[Run<'_, '_>]) {
        let Some(ByKind { ops, counters }) = self.0.get() else { return };
        for want in runs.iter().flat_map(|run| run.want.iter()) {
            let Want::Page { frame, got: Some(got) } = want else { continue };
            if let Some([(_, hits), (_, misses)]) = counters.get(ops.counted_kind(frame)) {
                let counter = if got.from == Tier::Flash { hits } else { misses };
                counter.fetch_add(1, Relaxed);
            }
        }
    }

    pub(in crate::flash) fn told(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let each = self.0.get().into_iter().flat_map(|kinds| kinds.counters.iter().flatten());
        each.map(|(name, counter)| (*name, counter.load(Relaxed)))
    }
}
