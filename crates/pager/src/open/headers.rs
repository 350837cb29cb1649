//! Whether the file of a space is as old as the control file thinks, or an older one that somebody put there (decision 0260).
//!
//! Invariants
//! 1. Each start of an existing database gives the header pages of spaces in place the LSN of its first mini-transaction; want of room
//!    is no reason to refuse the start.
//! 2. A checkpoint tells the control file that LSN once redo begins behind it: then no crash leaves an older header.
//! 3. Headers are looked at before anything is mended or redone in the files, and before copies are made anew.
//!
//! Not known here: when a checkpoint is taken, what is in the other pages.

use varve_device::{AlignedBuf, reached};

use crate::config::PagerConfig;
use crate::control::Superblock;
use crate::error::{PagerError, Result};
use crate::files::{self, SpaceFiles};
use crate::ids::SpaceId;
use crate::log::Admission;
use crate::lsn::Lsn;
use crate::mtr::{H, Mtr};
use crate::page::{self, PAGE_HEADER_BYTES};
use crate::pager::Pager;
use crate::space::layout::{Geometry, MAGIC};
use crate::stored;

/// Before anything is mended or redone: refuses a file in place whose header is older than the control file says.
pub(super) fn refuse_older(files: &SpaceFiles, config: &PagerConfig, stored: &Superblock) -> Result<()> {
    if stored.attached.is_some_and(|attached| attached.pages) {
        // The newest headers may be in the region.
        return Ok(());
    }
    let mut buf = AlignedBuf::new(config.page_size);
    for (space, directory) in super::durable_spaces(config) {
        let header = Geometry::of(space, config.page_size).header();
        let Some(file) = files.space(space) else { continue };
        let Ok(offset) = file.offset(header) else { continue };
        file.file().read_at(offset, &mut buf, file.purpose())?;
        let is_whole = stored::decode_in(&mut buf, header).is_ok();
        let lsn = page::page_lsn(&buf);
        // One that a crash tore is made whole before it is needed, or is refused then.
        if is_whole && lsn < stored.header_lsn {
            reached("open: an older file of a space");
            return Err(PagerError::Incompatible {
                what: is_older(&directory.location(), space, lsn, stored),
            });
        }
    }
    Ok(())
}

fn is_older(location: &str, space: SpaceId, lsn: Lsn, stored: &Superblock) -> String {
    format!(
        "{location}/{} is an older copy than the control file goes with (its header is of LSN {lsn}, and was of {} or later when the \
         database was open last): put back the newer one, or all files of one backup",
        files::file_name(space),
        stored.header_lsn
    )
}

/// Behind redo: gives the headers an LSN of this life, if there is room for that.
pub(crate) fn stamp(pager: &Pager) -> Result<()> {
    match stamped(pager) {
        Ok(Some(lsn)) => pager.shared.headers_stamped.advance(lsn),
        Err(cause) if !cause.is_no_space() => return Err(cause),
        _ => reached("open: no room to stamp headers"),
    }
    Ok(())
}

/// `None`: there is no room in the log.
fn stamped(pager: &Pager) -> Result<Option<Lsn>> {
    if pager.shared.log.admit()? == Admission::Full {
        return Ok(None);
    }
    pager.shared.pool.keep_free()?;
    let mut mtr = Mtr::new(pager);
    let mut headers = Vec::with_capacity(SpaceId::DURABLE.len());
    for space in SpaceId::DURABLE {
        headers.push(mtr.x(Geometry::of(space, pager.page_size()).header())?);
    }
    headers.into_iter().for_each(|header: H| mtr.write(header, PAGE_HEADER_BYTES, MAGIC));
    Ok(Some(mtr.commit()))
}
