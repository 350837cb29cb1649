//! Errors of the cache's device, and how the cache reacts (its states are in `life.rs`).
//!
//! ```text
//!   sound ---> failing:  note_error counts ERRORS_MAX errors in succession
//!   failing -> lost:     leave has written all changed pages to the data files
//!   sound, failing -> lost:  lose, with no changed page in the cache
//!   sound, failing -> lost with changed pages: lose, of a changed page that can't be read; the log stops
//! ```
//!
//! Invariants
//! 1. A request that succeeds sets the count of errors of a sound device to zero.
//! 2. A failing cache takes no page. The cleaning threads write its changed pages to the data files.
//! 3. If the cache is lost with changed pages, it has pages that are not in the data files and can't be read
//!    here. The log has stopped before any thread sees that the cache is lost. A changed page that can still
//!    be read from flash is read from there. The read of any other changed page is refused, and is never
//!    served from the data files. The cache is reported as the reason for the stop only if nothing else
//!    stopped the log before (`why_stopped`).
//! 4. When a page changes in the pool, its slot in a lost cache is freed, as in a sound one.
//!
//! This module does not know which requests the device gets, or which thread makes them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use varve_device::reached;

use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::flash::cache::life::Event;
use crate::flash::cache::{FlashCache, add};
use crate::level::Run;

/// After this many errors in succession, the cache takes no more pages.
const ERRORS_MAX: u32 = 8;

/// The errors of the device, and the messages about these errors. The state of the cache is in `life.rs`.
#[derive(Default)]
pub(in crate::flash) struct Trouble {
    errors_in_a_row: AtomicU32,
    /// Set if the cache was lost with changed pages: the error that stops the database, unless another error
    /// has stopped it before.
    lost_dirty: OnceLock<PagerError>,
    /// The error after which the cache takes no more pages.
    failing: Mutex<Option<PagerError>>,
    /// Messages that the server has not yet fetched.
    notices: Mutex<Vec<String>>,
}

impl FlashCache {
    /// Returns whether the cache is lost, so that its device is not used any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.life.is_lost()
    }

    /// Counts an error of the device. Too many errors in succession end the cache.
    pub(in crate::flash) fn note_error(&self, cause: &PagerError) {
        add(&self.counters.errors);
        if self.trouble.errors_in_a_row.fetch_add(1, Relaxed) + 1 < ERRORS_MAX {
            return;
        }
        self.forget_unverified();
        let is_news = self.take_no_more(cause);
        if !self.has_dirty() {
            return self.lose(cause);
        }
        // The cleaning threads write those changed pages to the data files that can still be read.
        reached("flash: dirty pages leave a failing device");
        self.transit.cleaning.ring();
        if is_news {
            self.notice(
                "fails",
                cause,
                "what home lacks is brought there, and then it is left: check the drive",
            );
        }
    }

    fn notice(&self, what: &str, cause: &PagerError, then: &str) {
        self.tell(&format!("{what}: {cause}; {then}"));
    }

    /// Adds a message about the cache for the server.
    pub(in crate::flash) fn tell(&self, what: &str) {
        let place = self.drive.directory.location();
        self.trouble.notices.lock().push(format!("the flash cache on {place} {what}"));
    }

    /// Returns the messages since the last call.
    pub(crate) fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.trouble.notices.lock())
    }

    /// Makes the cache take no more pages from now on. A thread that adds a changed page checks this under
    /// the lock of the page's partition. So a later search of the partition finds all pages that will ever be
    /// dirty in it. Returns whether the state has changed.
    #[cold]
    fn take_no_more(&self, cause: &PagerError) -> bool {
        self.trouble.failing.lock().get_or_insert_with(|| cause.clone());
        self.life.on(Event::Fail)
    }

    /// Returns whether the cache has a page that the data files lack.
    pub(in crate::flash) fn has_dirty(&self) -> bool {
        self.tables().any(|table| table.dirty_count() > 0)
    }

    /// Returns whether the device is failing or lost, so that the cache takes no more pages.
    pub(in crate::flash) fn is_failing(&self) -> bool {
        self.life.is_failing()
    }

    /// Writes all changed pages of a failing device to the data files. When they have all of them, the cache
    /// is lost. Returns the number of pages written.
    #[cold]
    pub(in crate::flash) fn leave(&self) -> Result<usize> {
        let each = self.tables().flat_map(|table| table.dirty_pages());
        let mut pages: Vec<PageId> = each.collect();
        pages.sort_unstable();
        let cleaned = self.clean_pages(&pages)?;
        let cause = self.trouble.failing.lock().clone();
        if let Some(cause) = cause.filter(|_| !self.has_dirty()) {
            self.lose(&cause);
        }
        Ok(cleaned)
    }

    /// A request to the device succeeded: resets the count of errors.
    pub(in crate::flash) fn note_success(&self) {
        if self.trouble.errors_in_a_row.load(Relaxed) > 0 {
            self.trouble.errors_in_a_row.store(0, Relaxed);
        }
    }

    /// Gives the cache up, because its device is of no use. If the data files lack pages of the cache, the
    /// log stops, because only redo can make these pages.
    #[cold]
    pub(in crate::flash) fn lose(&self, cause: &PagerError) {
        self.forget_unverified();
        self.take_no_more(cause);
        let dirty: u64 = self.tables().map(|table| table.dirty_count()).sum();
        // This comes first. So a thread that sees a lost cache also sees that the log has stopped, if the
        // data files lack pages.
        if dirty > 0 {
            let place = self.drive.directory.location();
            let why = format!("the flash cache on {place} is lost with {dirty} changed pages: {cause}");
            let stopped = PagerError::Stopped { cause: why.into() };
            let is_first = self.trouble.lost_dirty.set(stopped).is_ok();
            // The log keeps the first reason for a stop. A thread that comes second also finds the log
            // stopped.
            if let Some(own) = self.trouble.lost_dirty.get() {
                self.around.log.stop(own);
            }
            if is_first {
                self.tell_lost_dirty(dirty, cause);
            }
        }
        if !self.life.on(Event::Lose) {
            return;
        }
        reached("flash: the cache is lost");
        let each = self.tables().map(|mut table| table.remove_clean());
        self.counters.invalidated.fetch_add(each.sum(), Relaxed);
        if self.trouble.lost_dirty.get().is_none() {
            let then = "no change is, and the database goes on without it until the next start: check the drive, or remove the \
                        section [flash]";
            self.notice("is lost", cause, then);
        }
    }

    fn tell_lost_dirty(&self, dirty: u64, cause: &PagerError) {
        reached("flash: dirty pages are lost");
        let then = match self.why_stopped() {
            Some(_) => {
                "the database stops, and redoes them when it starts: check the drive, or remove the section [flash], first"
            }
            None => {
                "the database had stopped before, for another reason, and redoes them when it starts: check this drive, too, or remove \
                 the section [flash], first"
            }
        };
        self.notice(&format!("is lost with {dirty} changed pages"), cause, then);
    }

    /// Does the same as `lose`, for a caller that needs a page which can't be read. If the log has stopped,
    /// the caller gets the error with which it stopped, because the next start can restore the page.
    #[cold]
    pub(in crate::flash) fn lose_for(&self, cause: PagerError) -> PagerError {
        self.lose(&cause);
        self.around.log.check().err().unwrap_or(cause)
    }

    /// Returns the error with which the cache stopped the database, or `None` if the cache did not stop it,
    /// or something else stopped it first.
    pub(crate) fn why_stopped(&self) -> Option<&PagerError> {
        let is_why = |own: &&PagerError| match (own, self.around.log.check()) {
            (PagerError::Stopped { cause: own }, Err(PagerError::Stopped { cause })) => *own == cause,
            _ => false,
        };
        self.trouble.lost_dirty.get().filter(is_why)
    }

    /// Returns whether the data files lack some of these pages although the cache is lost. Such a page is
    /// being written there, or is in a slot that can perhaps be read.
    pub(in crate::flash) fn has_lost_dirty(&self, runs: &[Run<'_, '_>]) -> bool {
        let mut ids = runs.iter().flat_map(|run| (0..run.want.len() as u32).map(|at| run.first.plus(at)));
        self.is_lost() && ids.any(|id| self.table_of(id).is_dirty(id))
    }
}
