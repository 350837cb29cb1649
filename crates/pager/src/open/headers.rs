//! Whether control file and spaces are of one moment, or somebody has put an older one there, or one of
//! another copy of the database (decision 0260).
//!
//! Invariants
//! 1. Each start gives the header pages of the durable spaces a new random mark: announced in the control
//!    file together with the new life of the log, at home on return, and only then what the control file
//!    expects. Want of room is no reason to refuse the start; the mark stays announced.
//! 2. From then on the control file does not go with a log that ends before that.
//! 3. Headers are looked at before a page is mended or redone, and before copies are made anew.
//!
//! Not known here: what else is in the pages; who reads the log.

use varve_device::{AlignedBuf, reached};

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

/// Refuses a file in place that the control file does not go with, before the log is read: of two files of different moments
/// nothing else can be expected to fit.
pub(super) fn refuse_other(config: &PagerConfig, stored: &Superblock) -> Result<()> {
    if config.layout != HomeLayout::InPlace || stored.mark == 0 {
        return Ok(());
    }
    for (space, directory) in super::durable_spaces(config) {
        let file = SpaceFile::open(space, &**directory, config.page_size, false)?;
        let header = header_of(space, config);
        let Ok(offset) = file.offset(header) else { continue };
        let mut buf = AlignedBuf::new(config.page_size);
        let is_read = file.file().read_at(offset, &mut buf, file.purpose()).is_ok();
        // One that a crash tore, or that can't be read, is made whole before it is needed, or is refused then.
        if is_read && stored_page::decode_in(&mut buf, header).is_ok() {
            expect_mark(&buf, (space, &directory.location()), config, stored)?;
        }
    }
    Ok(())
}

/// The same of packed files, where the log was read up to `until`: it says where their headers are. Nothing of it, nor the control
/// file, has been changed yet.
pub(super) fn refuse_other_packed(
    packed: &[(SpaceId, packed::Found)],
    until: Lsn,
    config: &PagerConfig,
    stored: &Superblock,
) -> Result<()> {
    for (space, found) in packed {
        found.refuse_shorter(until)?;
        // One that is damaged, or can't be read, redo doesn't need, or refuses.
        let header = match found.read(header_of(*space, config), config.page_size) {
            Err(PagerError::Device(_)) => None,
            read => read?,
        };
        if let Some(header) = header.filter(|_| stored.mark != 0) {
            let directories = super::durable_spaces(config);
            let location =
                directories.iter().find(|(of, _)| of == space).map(|(_, directory)| directory.location());
            expect_mark(&header, (*space, &location.unwrap_or_default()), config, stored)?;
        }
    }
    Ok(())
}

fn header_of(space: SpaceId, config: &PagerConfig) -> PageId {
    Geometry::of(space, config.page_size).header()
}

fn expect_mark(
    header: &[u8],
    (space, location): (SpaceId, &str),
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
            "{older} is an older copy than {newer} goes with, or one of another copy of the database (the header of the {} space is of \
             LSN {lsn}, and the control file knows of a log up to {}): put back the one that was there, or all files of one backup",
            space.name(),
            stored.durable
        ),
    })
}
