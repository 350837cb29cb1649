//! Empties the NVM page buffer (pages in persistent memory). All its pages are written to the data files.
//!
//! Invariants
//! 1. When [`bring_home`](NvmBuffer::bring_home) returns, the data files have the newest version of every
//!    page, durably. Nothing in the buffer's slots is needed any more.
//!
//! This module does not know what happens to the region (`attach.rs`), or to the log in it
//! (`running/checkpoint.rs`).

use std::time::Duration;

use varve_device::{planted, reached};

use super::buffer::NvmBuffer;
use super::flush::FLUSH_MAX;
use crate::base::error::{PagerError, Result};

/// The number of waits for pages that other threads use, and the length of each.
const WAITS_MAX: u32 = 1000;
const WAIT: Duration = Duration::from_millis(1);

impl NvmBuffer {
    /// Writes all pages to the data files. No thread puts pages meanwhile, and no thread flushes. It is an
    /// error if a full device refuses some pages. Then these pages stay in their slots. It is also an error
    /// if another thread uses a page for as long as a second, because the region must not be left then.
    pub(crate) fn bring_home(&self) -> Result<()> {
        if planted("nvm: the region is left with pages in it") {
            return Ok(());
        }
        for _ in 0..WAITS_MAX {
            if self.flush_all()? == 0 {
                reached("nvm: everything is home");
                return Ok(());
            }
            // Another thread uses a page, and will soon have finished.
            std::thread::sleep(WAIT);
        }
        let [_, dirty, ..] = self.book.lock().counts();
        let cause = format!("{dirty} pages in NVM are in use while all are to be brought home");
        Err(PagerError::Stopped { cause: cause.into() })
    }

    /// Writes all versions that no other thread uses to the data files. Returns the number of pages that are
    /// left.
    fn flush_all(&self) -> Result<usize> {
        // A refused version is tried again after all others.
        let (mut tried, mut dirty) = (0, usize::MAX);
        loop {
            let flushed = self.flush_some(FLUSH_MAX);
            let [_, left, ..] = self.book.lock().counts();
            tried = if left < dirty { 0 } else { tried + FLUSH_MAX };
            dirty = left;
            match flushed {
                Ok(0) => return Ok(left),
                Err(error) if !error.is_no_space() || tried > left => return Err(error),
                _ => {}
            }
        }
    }
}
