//! The facade of the crate.

use std::sync::Arc;

use crate::config::PagerConfig;
use crate::error::Result;
use crate::ids::{Access, PageId, SpaceId};
use crate::log::Log;
use crate::lsn::Lsn;
use crate::mtr::Mtr;
use crate::pool::{PageS, PageSx, PageX};
use crate::redo::RedoOps;
use crate::stats::PagerStats;

/// What `Pager::check` found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Pages looked at.
    pub pages: u64,
    /// Damages found, first one first; empty = sound.
    pub damages: Vec<String>,
}

/// An open set of spaces with their log.
pub struct Pager {}

#[expect(unused_variables, reason = "skeleton")]
impl Pager {
    /// Creates or recovers (analysis and redo; undo of losers is the engine's).
    pub fn open(config: PagerConfig, ops: Arc<dyn RedoOps>) -> Result<Pager> {
        unimplemented!()
    }
    /// Whether `open` made a new database.
    pub fn is_new(&self) -> bool {
        unimplemented!()
    }
    /// Page size in bytes.
    pub fn page_size(&self) -> usize {
        unimplemented!()
    }
    /// The page, shared.
    pub fn fix_s(&self, id: PageId, access: Access) -> Result<PageS<'_>> {
        unimplemented!()
    }
    /// The page, shared-exclusive.
    pub fn fix_sx(&self, id: PageId, access: Access) -> Result<PageSx<'_>> {
        unimplemented!()
    }
    /// The page, exclusive.
    pub fn fix_x(&self, id: PageId, access: Access) -> Result<PageX<'_>> {
        unimplemented!()
    }
    /// As `fix_s`, but gives up instead of waiting for the latch (it may still wait for a read).
    pub fn try_fix_s(&self, id: PageId, access: Access) -> Result<Option<PageS<'_>>> {
        unimplemented!()
    }
    /// As `fix_x`, but gives up instead of waiting for the latch.
    pub fn try_fix_x(&self, id: PageId, access: Access) -> Result<Option<PageX<'_>>> {
        unimplemented!()
    }
    /// Reads pages that are not resident, together, as sequential ones. A hint: errors show at the fix.
    pub fn prefetch(&self, ids: &[PageId]) {
        unimplemented!()
    }
    /// Begins a mini-transaction; may wait for log space, so the caller holds no latch.
    pub fn begin(&self) -> Result<Mtr<'_>> {
        unimplemented!()
    }
    /// An exclusively latched page whose old content is not read.
    pub(crate) fn create_page(&self, id: PageId) -> Result<PageX<'_>> {
        unimplemented!()
    }
    /// The engine's redo operations.
    pub(crate) fn redo_ops(&self) -> &dyn RedoOps {
        unimplemented!()
    }
    /// Takes no more changes, writes no more pages.
    pub(crate) fn stop(&self, cause: crate::error::PagerError) {
        unimplemented!()
    }
    /// The log.
    pub fn log(&self) -> &Log {
        unimplemented!()
    }
    /// Makes the log durable up to `upto`.
    pub fn flush_log(&self, upto: Lsn) -> Result<()> {
        unimplemented!()
    }
    /// End of the durable log.
    pub fn durable_lsn(&self) -> Lsn {
        unimplemented!()
    }
    /// Makes sure that `pages` pages can be allocated by the next mini-transactions; grows the file. No latch may be held.
    pub fn reserve(&self, space: SpaceId, pages: u32) -> Result<()> {
        unimplemented!()
    }
    /// A new owner of pages.
    pub fn create_segment(&self, space: SpaceId) -> Result<u32> {
        unimplemented!()
    }
    /// Frees all pages of an owner.
    pub fn drop_segment(&self, space: SpaceId, owner: u32) -> Result<()> {
        unimplemented!()
    }
    /// Stores a checkpoint.
    pub fn checkpoint(&self) -> Result<()> {
        unimplemented!()
    }
    /// Cleans up to `pages` pages, oldest change first (for `background: false`); gives the number cleaned.
    pub fn tick_write(&self, pages: usize) -> Result<usize> {
        unimplemented!()
    }
    /// Writes everything, stores a clean checkpoint, stops the threads.
    pub fn shutdown(&self) -> Result<()> {
        unimplemented!()
    }
    /// Counters.
    pub fn stats(&self) -> PagerStats {
        unimplemented!()
    }
    /// Reads and verifies every page and the allocation.
    pub fn check(&self) -> Result<CheckReport> {
        unimplemented!()
    }
}
