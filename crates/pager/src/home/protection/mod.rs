//! The protection of page writes. A crash during a write may tear a page, and the protection makes the page
//! whole again (Kang 2016, sections 1 and 2.1).
//!
//! Invariants
//! 1. [`Protection::write`] returns without error only when every page is in the data file, and flushed.
//!    After an error, any of the pages may have been written.
//! 2. A crash may interrupt the write of a protected page. After [`repair`] this page is whole, whatever
//!    protection is configured now. Under full-page-log the page is whole only after redo: the log has an
//!    image of the page, and redo writes this image before anything reads the page.
//! 3. [`open`] is called after [`repair`], because [`open`] may make new, empty files for the configured
//!    protection.
//! 4. If a crash made copies necessary, and the file with the copies is missing, the database does not open
//!    ([`check_copies`]). If the copies in a region are marked as being made anew, none is needed, because
//!    they are made anew only after [`repair`].
//!
//! This module does not know why pages are written.

mod atomic;
mod doublewrite;
pub(crate) mod kind;
mod none;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use varve_device::Directory;

use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::times::Times;
use crate::control::{InForce, State, Superblock};
use crate::home::compression::stored_page::Stored;
use crate::home::files::{self, SpaceFiles};
use crate::level::Cause;

use atomic::AtomicWrites;
pub(crate) use doublewrite::REGION_PREFIX;
use doublewrite::{CopyFile, Doublewrite};
use kind::ProtectionKind;
use none::Unprotected;

/// The name of the file with doublewrite copies, and its name until it is complete.
pub(crate) const COPY_FILES: [&str; 2] = doublewrite::COPY_FILES;

/// A protection: a way to write pages so that a crash leaves no torn page after repair.
pub(crate) trait Protection: Send + Sync {
    /// Writes pages in place, durably.
    fn write(&self, batch: &[Stored<'_>], cause: Cause) -> Result<()>;
    /// Returns the pages that a full device left half written, each with the slot of its copy. The result is
    /// empty if the protection makes no copies.
    fn held(&self) -> Vec<(PageId, u32)> {
        Vec::new()
    }
    /// Releases these copies, because their pages are not needed any more, even after a crash.
    fn forget(&self, _held: &[(PageId, u32)]) {}
    /// Returns a warning for the user about the way in which the protection was opened.
    fn warning(&self) -> Option<String> {
        None
    }
    /// Returns the counters for the level's report.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The configured protection, and the parts from which it is made.
pub(crate) struct Wanted<'c> {
    /// The kind of protection.
    pub(crate) kind: ProtectionKind,
    /// The directory of the doublewrite file, which is the directory of the data space or of a tablespace.
    pub(crate) data: &'c dyn Directory,
    /// The part of the NVM region for doublewrite copies, if it has one.
    pub(crate) copies: Option<&'c dyn Directory>,
    /// Page size in bytes.
    pub(crate) page_size: usize,
    /// Threads that write batches.
    pub(crate) writers: usize,
    /// Measures the times of slow calls.
    pub(crate) times: &'c Arc<Times>,
}

/// Checks that the doublewrite copies of a space exist and are of this database, if [`repair`] may need them.
/// Pages need repair only after a crash. `was` is the protection with which they were written.
pub(crate) fn check_copies(
    space: SpaceId,
    directory: &dyn Directory,
    was: InForce,
    stored: &Superblock,
) -> Result<()> {
    let (place, home) = (CopyFile::file(directory), files::file_name(space));
    let may_be_torn = stored.state != State::Clean && was == InForce::Doublewrite;
    // If the file of the space is missing, too, another check reports that, with both names.
    if !may_be_torn || !directory.exists(&home)? {
        return Ok(());
    }
    match place.exists()? {
        false => Err(PagerError::Incompatible { what: place.missing() }),
        true if place.is_foreign(stored.database)? => Err(PagerError::Incompatible { what: place.foreign() }),
        true => Ok(()),
    }
}

/// Returns whether a directory has doublewrite copies of another database.
pub(crate) fn has_foreign_copies(directory: &dyn Directory, database: u64) -> Result<bool> {
    CopyFile::file(directory).is_foreign(database)
}

/// A page that was repaired from its copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mended {
    /// The page.
    pub(crate) id: PageId,
    /// Page LSN of the copy.
    pub(crate) lsn: Lsn,
}

/// The function that a repair calls with each page before it writes the page to the data files.
pub(crate) type Announce<'a> = &'a mut dyn FnMut(&Mended) -> Result<()>;

/// Is called before redo. Repairs pages whose write was interrupted under the protection that was in force.
/// `redo_start` is where redo will begin. Returns the repaired pages. Each is a version since that position,
/// and not always its newest stable image.
pub(crate) fn repair(
    was: InForce,
    wanted: &Wanted<'_>,
    files: &SpaceFiles,
    redo_start: Lsn,
    announce: Announce<'_>,
) -> Result<Vec<Mended>> {
    let page_size = wanted.page_size as u32;
    match was {
        // No repair is needed here: redo begins with an image of every page whose write was interrupted, or a
        // slot in persistent memory has the newest version of the page.
        InForce::Nothing | InForce::AtomicWrite | InForce::FullPageLog | InForce::Nvm => Ok(Vec::new()),
        InForce::Doublewrite => {
            doublewrite::repair(CopyFile::file(wanted.data), page_size, files, redo_start, announce)
        }
        InForce::NvmDoublewrite => {
            let copies = CopyFile::region(in_region(wanted.copies)?);
            doublewrite::repair(copies, page_size, files, redo_start, announce)
        }
    }
}

/// Opens the configured protection. `was` is the protection in force until now, or `None` for a new database.
/// Files of any other protection are replaced by new ones, because it is unknown whose pages they hold.
/// `database` is the id of the database.
pub(crate) fn open(
    wanted: &Wanted<'_>,
    database: u64,
    files: &Arc<SpaceFiles>,
    was: Option<InForce>,
) -> Result<Box<dyn Protection>> {
    let (page_size, writers, times) = (wanted.page_size as u32, wanted.writers as u32, wanted.times);
    let doublewrite =
        |place: CopyFile<'_>, batch_slots, areas, single_slots| -> Result<Box<dyn Protection>> {
            let layout = doublewrite::Layout { page_size, batch_slots, single_slots };
            let is_kept = was == Some(wanted.kind.in_force());
            Ok(Box::new(Doublewrite::open(
                place,
                database,
                layout,
                areas,
                files.clone(),
                times.clone(),
                is_kept,
            )?))
        };
    Ok(match wanted.kind {
        // No copies are needed, or the log or a slot in persistent memory has the page that is being written.
        ProtectionKind::None | ProtectionKind::FullPageLog | ProtectionKind::Nvm => {
            Box::new(Unprotected::new(files.clone(), times.clone()))
        }
        ProtectionKind::AtomicWrite => Box::new(AtomicWrites::new(files.clone(), times.clone())),
        ProtectionKind::Doublewrite { batch_slots, single_slots } => {
            doublewrite(CopyFile::file(wanted.data), writers * batch_slots, writers, single_slots)?
        }
        ProtectionKind::NvmDoublewrite { batch_slots, single_slots } => {
            // The length of the region is fixed when it is made, so the writers share its slots.
            let areas = writers.min(batch_slots);
            doublewrite(CopyFile::region(in_region(wanted.copies)?), batch_slots, areas, single_slots)?
        }
    })
}

/// Returns the part of the region for copies, or an error if there is none.
fn in_region(copies: Option<&dyn Directory>) -> Result<&dyn Directory> {
    copies.ok_or_else(|| PagerError::Corrupt {
        what: "the doublewrite copies should be in an NVM region, and the control file names none with them"
            .into(),
    })
}

/// Returns the numbers of batch slots and of single-page slots in doublewrite copies that begin with these
/// bytes, or `None` if the bytes are no such header.
pub(crate) fn slots_of(header: &[u8]) -> Option<(u32, u32)> {
    let (layout, _) = doublewrite::Layout::decode(header)?;
    Some((layout.batch_slots, layout.single_slots))
}

/// Returns the number of bytes that doublewrite copies take in a region.
pub(crate) fn copies_bytes(page_size: u32, batch_slots: u32, single_slots: u32) -> u64 {
    doublewrite::Layout { page_size, batch_slots, single_slots }.len_bytes()
}
