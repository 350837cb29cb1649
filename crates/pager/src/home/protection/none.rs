//! The protection that does nothing. A page is written once, at its address in the data file, and a crash may
//! tear it. This protection is used for measurements, and with full-page-log, because the log then has images
//! of the pages.
//!
//! Invariants: those of `mod.rs`, except the second.
//!
//! This module does not know what pages contain, or why they are written.

use std::sync::Arc;

use super::Protection;
use crate::base::error::Result;
use crate::base::times::{Times, Timing};
use crate::home::compression::stored_page::Stored;
use crate::home::files::SpaceFiles;
use crate::level::Cause;

/// Writes pages in place, without copies.
pub(super) struct Unprotected {
    files: Arc<SpaceFiles>,
    times: Arc<Times>,
}

impl Unprotected {
    pub(super) fn new(files: Arc<SpaceFiles>, times: Arc<Times>) -> Unprotected {
        Unprotected { files, times }
    }
}

impl Protection for Unprotected {
    fn write(&self, batch: &[Stored<'_>], cause: Cause) -> Result<()> {
        let batch: Vec<&Stored<'_>> = batch.iter().collect();
        let what = if cause == Cause::EvictInline { Timing::SinglePlace } else { Timing::BatchPlace };
        self.times.of(what, || {
            self.files.write(&batch)?;
            self.files.flush(&batch)
        })
    }
}
