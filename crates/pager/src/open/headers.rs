//! The check that the control file and the space files belong together (decision 0260). It finds a file that
//! was replaced by an older one, or by a file of another copy of the database.
//!
//! The check compares a random number, the *mark*, in the header page of each durable space with the control
//! file.
//!
//! Invariants
//! 1. Each start makes a new mark in three steps. First the control file announces the mark, in the write
//!    that begins the log's new life. Then the headers with the mark are written to the data files. Only then
//!    does the control file expect this mark. On a full device the start does not fail: the mark stays
//!    announced.
//! 2. After that, the control file does not fit a log that ends before the new mark was logged.
//! 3. Headers are checked before a page is repaired or redone, and before the doublewrite copies are replaced
//!    by new, empty ones.
//!
//! This module does not know what else is in the pages, or how the log is read.

use varve_device::{AlignedBuf, reached};

use super::tablespaces::TablespacePlace;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, SpaceId};
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::base::space_format::{self, Geometry};
use crate::config::PagerConfig;
use crate::control::{CONTROL_FILE, Superblock};
use crate::home::compression::stored_page;
use crate::home::files::{self, SpaceFile};
use crate::home::kind::HomeLayout;
use crate::home::packed;

/// Refuses a space file that does not belong to the control file. This check is for files that store pages at
/// fixed addresses. It runs before the log is read, because a log need not fit files of different moments
/// either.
pub(super) fn refuse_other(
    config: &PagerConfig,
    stored: &Superblock,
    found: &[TablespacePlace],
) -> Result<()> {
    if stored.mark == 0 {
        return Ok(());
    }
    let own = super::durable_spaces(config).into_iter().filter(|_| config.layout == HomeLayout::InPlace);
    for (space, directory) in own.chain(found.iter().map(|one| (one.listed.id, &one.directory))) {
        let file = SpaceFile::open(space, &**directory, config.page_size, false)?;
        let header = header_of(space, config);
        let Ok(offset) = file.offset(header) else { continue };
        let mut buf = AlignedBuf::new(config.page_size);
        let is_read = file.file().read_at(offset, &mut buf, file.purpose()).is_ok();
        // A header that a crash tore, or that can't be read, is not checked here. It is repaired before it is
        // needed, or is refused then.
        if is_read && stored_page::decode_in(&mut buf, header).is_ok() {
            expect_mark(&buf, space, &directory.location(), config, stored)?;
        }
    }
    Ok(())
}

/// Makes the same check for packed files. It runs after the log was read up to `until`, because the log says
/// where the headers of packed files are. Neither the log nor the control file has been changed yet.
pub(super) fn refuse_other_packed(
    packed: &[(SpaceId, packed::SpaceFiles)],
    until: Lsn,
    config: &PagerConfig,
    stored: &Superblock,
) -> Result<()> {
    for (space, found) in packed {
        found.refuse_shorter(until)?;
        // A header that is damaged, or can't be read, is not checked here. Redo does not need it, or reports
        // the damage.
        let header = match found.read(header_of(*space, config), config.page_size) {
            Err(PagerError::Device(_)) => None,
            read => read?,
        };
        if let Some(header) = header.filter(|_| stored.mark != 0) {
            let directories = super::durable_spaces(config);
            let location =
                directories.iter().find(|(of, _)| of == space).map(|(_, directory)| directory.location());
            expect_mark(&header, *space, &location.unwrap_or_default(), config, stored)?;
        }
    }
    Ok(())
}

fn header_of(space: SpaceId, config: &PagerConfig) -> PageId {
    Geometry::of(space, config.page_size).header()
}

fn expect_mark(
    header: &[u8],
    space: SpaceId,
    location: &str,
    config: &PagerConfig,
    stored: &Superblock,
) -> Result<()> {
    Geometry::of(space, config.page_size).check_header(header, stored.database)?;
    let mark = space_format::mark(header);
    if mark == stored.mark || mark == stored.next_mark && mark != 0 {
        return Ok(());
    }
    reached("open: files of different moments");
    let lsn = page::page_lsn(header);
    let space_file = format!("{location}/{}", files::file_name(space));
    let control = format!("{}/{CONTROL_FILE}", config.control.location());
    let (older, newer) = if lsn > stored.durable { (&control, &space_file) } else { (&space_file, &control) };
    Err(PagerError::Incompatible {
        what: format!(
            "{older} is an older copy than {newer} goes with, or one of another copy of the database (the header of {} is of \
             LSN {lsn}, and the control file knows of a log up to {}): put back the one that was there, or all files of one backup",
            space.title(),
            stored.durable
        ),
    })
}
