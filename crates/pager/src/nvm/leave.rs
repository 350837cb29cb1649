//! Leaving the page buffer: everything goes home; and how far it is from there.
//!
//! Invariants
//! 1. When this returns home has every page's newest version, durably: nothing in the slots is needed any more.
//!
//! Not known here: what becomes of the region (`attach.rs`), and of the log in it (`checkpoint.rs`).

use varve_device::{planted, reached};

use super::buffer::NvmBuffer;
use super::flush::FLUSH_MAX;
use crate::config::NvmFlush;
use crate::durability::SlotCounts;
use crate::error::{PagerError, Result};

impl NvmBuffer {
    /// The marks by which pages go home from now on.
    pub(crate) fn set_flush(&self, flush: NvmFlush) {
        self.marks.set(flush);
        self.bell.notify_all();
    }

    /// Whether a thread brings everything home while nothing else is done.
    pub(crate) fn flushes_when_idle(&self) -> bool {
        self.marks.flushes_when_idle()
    }

    /// What the slots hold now; one that somebody is filling or retiring is none of these.
    pub(crate) fn slot_counts(&self) -> SlotCounts {
        let [free, dirty, clean, doomed] = self.book.lock().counts().map(|count| count as u64);
        SlotCounts { total: u64::from(self.area.slots()), free, dirty, clean, doomed }
    }

    /// Brings all pages home. Nobody puts any meanwhile, and no thread flushes. Want of room is an error if the rest can't be
    /// brought home for it; everything stays in its slot then.
    pub(crate) fn bring_home(&self) -> Result<()> {
        if planted("nvm: the region is left with pages in it") {
            return Ok(());
        }
        while self.flush_oldest(FLUSH_MAX)? > 0 {}
        let [_, dirty, ..] = self.book.lock().counts();
        if dirty > 0 {
            let what = format!("{dirty} pages in NVM are still in use while they are to be brought home");
            return Err(PagerError::Corrupt { what });
        }
        reached("nvm: everything is home");
        Ok(())
    }
}
