//! Protection of page writes against tearing (Kang 2016, sections 1 and 2.1).
//!
//! Invariants
//! 1. [`Protection::write`] returns without error only when every page is in place and flushed. After an error any of them
//!    may be.
//! 2. A protected page whose write was cut off is whole again after [`repair`], whatever is configured now; under full-page-log
//!    after redo, which comes by an image of it before anything reads it.
//! 3. [`open`] comes after [`repair`]: it may make the files of the configured protection anew.
//!
//! What it does not know: why pages are written.

#[cfg(test)]
mod crashes;
mod doublewrite;
mod none;

use std::sync::Arc;

use varve_device::Directory;

use crate::config::{PagerConfig, ProtectionKind};
use crate::control::InForce;
use crate::error::Result;
use crate::files::SpaceFiles;
use crate::ids::PageId;
use crate::level::Cause;
use crate::lsn::Lsn;
use crate::stored::Stored;

use doublewrite::Doublewrite;
use none::Unprotected;

/// A way to write pages so that a crash tears none.
pub(crate) trait Protection: Send + Sync {
    /// Writes pages in place, durably.
    fn write(&self, batch: &[Stored<'_>], cause: Cause) -> Result<()>;
    /// Pages that a full device left half written, each with where its copy is kept.
    fn held(&self) -> Vec<(PageId, u32)>;
    /// These copies are of pages that mean nothing any more, after a crash neither.
    fn forget(&self, held: &[(PageId, u32)]);
    /// Counters for the level's report.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Before redo: mends pages whose write was cut off under the protection that was in force. `redo_start` is where redo
/// will begin. Gives the pages mended: they are of some time since then, not necessarily their newest stable image.
pub(crate) fn repair(
    was: InForce,
    config: &PagerConfig,
    files: &SpaceFiles,
    redo_start: Lsn,
) -> Result<Vec<PageId>> {
    match was {
        // Redo begins with an image of every page whose write was cut off.
        InForce::Nothing | InForce::FullPageLog => Ok(Vec::new()),
        InForce::Doublewrite => {
            doublewrite::repair(&*config.data, config.page_size as u32, files, redo_start)
        }
    }
}

/// The configured protection. `was` is the one in force until now, `None` for a new database: files that others than it
/// left are made anew, since nobody knows whose pages they hold.
pub(crate) fn open(
    config: &PagerConfig,
    files: &Arc<SpaceFiles>,
    was: Option<InForce>,
) -> Result<Box<dyn Protection>> {
    let directory: &dyn Directory = &*config.data;
    Ok(match config.protection {
        ProtectionKind::None | ProtectionKind::FullPageLog => Box::new(Unprotected::new(files.clone())),
        ProtectionKind::Doublewrite { batch_slots, single_slots } => {
            let layout =
                doublewrite::Layout { page_size: config.page_size as u32, batch_slots, single_slots };
            let is_kept = was == Some(InForce::Doublewrite);
            Box::new(Doublewrite::open(directory, layout, files.clone(), is_kept)?)
        }
    })
}
