//! The protection by a device with atomic writes. The device promises to write a page whole or not at all, so
//! each page is written once, at its address in the data file.
//!
//! Invariants: those of `mod.rs`. `PagerConfig::check` refuses devices without this promise for a whole page.
//! The stored form of a compressed page is shorter, and has a length for which the promise holds, too
//! (`open::stored_lengths`).
//!
//! This module does not know how a device keeps that promise.

use std::sync::Arc;

use super::Protection;
use crate::base::error::Result;
use crate::base::times::{Times, Timing};
use crate::home::compression::stored_page::Stored;
use crate::home::files::SpaceFiles;
use crate::level::Cause;

/// Writes in place, each page atomically.
pub(super) struct AtomicWrites {
    files: Arc<SpaceFiles>,
    times: Arc<Times>,
}

impl AtomicWrites {
    pub(super) fn new(files: Arc<SpaceFiles>, times: Arc<Times>) -> AtomicWrites {
        AtomicWrites { files, times }
    }
}

impl Protection for AtomicWrites {
    fn write(&self, batch: &[Stored<'_>], cause: Cause) -> Result<()> {
        let batch: Vec<&Stored<'_>> = batch.iter().collect();
        let what = if cause == Cause::EvictInline { Timing::SinglePlace } else { Timing::BatchPlace };
        self.times.of(what, || {
            self.files.write_whole(&batch)?;
            self.files.flush(&batch)
        })
    }
}
