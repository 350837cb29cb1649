//! The interface between the buffer pool and the levels below it.
//!
//! Levels are stacked below the pool: persistent memory, the flash cache, and the data files (`home/mod.rs`)
//! as the lowest. Each level implements [`Level`], and knows only the level below it.
//!
//! Invariants
//! 1. The pool lets one thread at a time read or write a page, until the call to the level has returned. No
//!    latch is held during I/O, except the exclusive latch of a frame that is being filled.
//! 2. If [`Level::changed`] is called during a `put` or `offer` of the same page, the level does not keep the
//!    page that it was given.
//! 3. An older image of a page is never written after a newer one.
//! 4. The log is durable up to the LSN of every image that is put. An assertion checks this.
//! 5. A page's recovery LSN (its oldest change that is not stable) does not belong to a level. The level that
//!    makes an image stable reports this to the dirty-page table, the `Ledger`.
//! 6. A full device may refuse a put. The result depends on what the put needs:
//!    - With `Held`, the level took none of the pages, though their bytes may be on a device. Neither now nor
//!      in a later `settle` does the level report one of these pages as stable because of this put. So the
//!      caller marks the pages as changed again, and their entries are still in the dirty-page table. A dirty
//!      page in the pool always has such an entry (`stamp` asserts this). A level that can't promise this for
//!      pages of two spaces together says so in [`Level::takes_together`].
//!    - `Stable` means `Held` and then `settle`. If `settle` is refused, the pages may stay held, and become
//!      stable later. Only levels use `Stable`: they keep an image until the data files have it, and reported
//!      it as stable when they took it. The pool uses `Held` and settles separately, and a refused `settle`
//!      changes no frame.
//!    - After any other failure the state of the pages is unknown, and the pager stops.
//!
//! This module does not know frames, latches or the log's format.

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;

pub(crate) mod ledger;
pub(crate) mod meter;

/// Returns the sum of the pages of several puts. If some failed, an error that stops the pager has priority
/// over the error of a full device.
pub(crate) fn summed(puts: impl IntoIterator<Item = Result<usize>>) -> Result<usize> {
    let sum = |so_far, put| match (so_far, put) {
        (Ok(before), Ok(count)) => Ok(before + count),
        (Err(error), Err(later)) => Err(if PagerError::is_no_space(&error) { later } else { error }),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    };
    puts.into_iter().reduce(sum).unwrap_or(Ok(0))
}

/// The level from which a page was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Persistent memory.
    Nvm,
    /// The flash cache.
    Flash,
    /// The data file.
    Home,
}

impl Tier {
    /// All levels, topmost first.
    pub const ALL: [Tier; 3] = [Tier::Nvm, Tier::Flash, Tier::Home];

    /// Returns the name of the level in reports.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Nvm => "nvm",
            Tier::Flash => "flash",
            Tier::Home => "home",
        }
    }
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// The level that had the newest version.
    pub from: Tier,
    /// Page LSN of that version.
    pub lsn: Lsn,
    /// Whether the page moved to the pool, so that the level keeps no copy of it (exclusive caching). Then
    /// the data files have an older version, so the frame is dirty.
    pub taken: bool,
}

/// One page of a run.
pub enum Want<'a> {
    /// The page is in the pool already, so it is not read.
    Hole,
    /// The page is read into `frame` and verified.
    Page {
        /// A whole page, aligned for direct I/O.
        frame: &'a mut [u8],
        /// Filled in on success.
        got: Option<Got>,
    },
}

/// Consecutive pages that are read together.
pub struct Run<'r, 'a> {
    /// The page of `want[0]`.
    pub first: PageId,
    /// One entry per page from `first` on.
    pub want: &'r mut [Want<'a>],
}

/// Why pages are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A page writer writes pages so that their frames become free.
    Evict,
    /// A thread that needs a frame now writes one page itself (the single-page path of Kang 2016, section
    /// 2.1).
    EvictInline,
    /// The oldest dirty pages are written, so that the log can be cut.
    Checkpoint,
    /// All dirty pages are written: at a clean shutdown, or before a change of policy.
    Drain,
}

/// The condition that must be true when a put returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The level has the page, and returns it when it is read.
    Held,
    /// The page survives a crash, and the loss of the flash cache, without any log up to the image's LSN.
    Stable,
}

/// Steps of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The step before the oldest recovery LSN is looked up.
    Begin,
    /// The step after that, before the new checkpoint position is stored.
    BeforeEnd,
    /// The position is stored and durable.
    End,
}

/// The report of a level about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelReport {
    /// The level's name.
    pub name: &'static str,
    /// The reported part of the level: a layout of the data files. `None` means the level as a whole.
    pub part: Option<&'static str>,
    /// Named counters.
    pub counters: Vec<(&'static str, u64)>,
}

/// A value that a level keeps for its caller until this is dropped.
pub struct DiscardHold<'l>(#[expect(dead_code, reason = "it is only dropped")] Box<dyn ReleasedOnDrop + 'l>);

/// A value that is released when it is dropped.
pub trait ReleasedOnDrop {}

impl<T> ReleasedOnDrop for T {}

impl<'l> DiscardHold<'l> {
    /// Keeps `held`.
    pub fn new(held: impl ReleasedOnDrop + 'l) -> DiscardHold<'l> {
        DiscardHold(Box::new(held))
    }
}

/// A level of the stack.
pub trait Level: Send + Sync {
    /// Reads the newest version of each page at or below this level, and verifies it. The call blocks. All
    /// runs are submitted together. After an error no buffer may be used.
    fn read(&self, runs: &mut [Run<'_, '_>], why: Access) -> Result<()>;
    /// Takes changed pages. `Ok` means that `need` is met for every page. Invariant 6 says what an error
    /// means.
    fn put(&self, batch: &[Image], cause: Cause, need: Need) -> Result<()>;
    /// Offers a clean page that leaves the level above. If the level takes the page, it calls `copy` to get
    /// an image.
    fn offer(&self, id: PageId, why: Access, copy: &mut dyn FnMut() -> Image);
    /// Announces that a clean page is about to be changed in the pool. This is called under the page's
    /// exclusive latch, before the log record is appended. Redo does not call it.
    fn changed(&self, id: PageId);
    /// Discards pages. Their content is not needed any more once the log is durable up to `after`. Until then
    /// a crash may bring the pages back. If `after` is zero, they are not needed already, and no log record
    /// says so: their space was cut, or they are temporary pages. This is called before the pages are used
    /// again or cut off.
    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()>;
    /// Takes part in a checkpoint.
    fn checkpoint(&self, step: Step) -> Result<()>;
    /// Writes all changed pages to the data files (clean shutdown).
    fn drain(&self) -> Result<()>;
    /// Returns the counters for statistics.
    fn report(&self) -> Vec<LevelReport>;

    /// Checks this level and the levels below for contradictions, and appends at most some hundred findings.
    /// No thread changes pages meanwhile, but changed pages may be written.
    fn check(&self, _damages: &mut Vec<String>) -> Result<()> {
        Ok(())
    }

    /// Is called before the caller logs that pages of this space are discarded. The caller keeps the result
    /// until `discard` has returned. Meanwhile no checkpoint of a page map is made. The caller holds no
    /// latch.
    fn discarding(&self, _space: SpaceId) -> Option<DiscardHold<'_>> {
        None
    }

    /// Makes pages stable that were put with [`Need::Held`], in this level and below. If a device has no
    /// space, some pages may stay held. Nothing is lost then, and the call can be repeated. A level that
    /// keeps changed pages itself, such as a flash cache with lazy cleaning, keeps them. They are still in
    /// the dirty-page table, and [`clean`](Self::clean) writes them.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Writes those of these pages to the data files that this level and those below keep as changed pages.
    /// `settle` then makes them stable. Returns the number of pages.
    fn clean(&self, _ids: &[PageId]) -> Result<usize> {
        Ok(0)
    }

    /// Returns the oldest log position that recovery needs for the data of this level and those below it,
    /// apart from the changes of pages. It is the start of a log block.
    fn needs_log_from(&self) -> Option<Lsn> {
        None
    }

    /// Returns whether one `put` may have pages of both spaces. If such a put is refused, all its pages must
    /// be refused.
    fn takes_together(&self, _one: SpaceId, _other: SpaceId) -> bool {
        true
    }

    /// Returns the largest number of pages of one `put`.
    fn put_pages_max(&self) -> usize {
        usize::MAX
    }
}
