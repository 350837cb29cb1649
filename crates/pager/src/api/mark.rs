//! The mark that each start writes into the header pages. It shows whether all files are of the same start
//! (`open/headers.rs`).
//!
//! This module does not know which code compares marks.

use varve_device::{planted, reached};

use crate::api::mtr::{H, Mtr};
use crate::base::error::Result;
use crate::base::space_format;
use crate::level::Cause;
use crate::log::Admission;
use crate::running::shared::Shared;

/// Writes the announced mark into the header pages, if the devices have room for that. This is called after
/// redo, before threads start.
pub(crate) fn mark(shared: &Shared) -> Result<()> {
    match marked(shared) {
        Err(cause) if cause.is_no_space() => {
            reached("open: no room to mark headers");
            Ok(())
        }
        done => done,
    }
}

fn marked(shared: &Shared) -> Result<()> {
    if shared.log.admit()? == Admission::Full {
        reached("open: no room to mark headers");
        return Ok(());
    }
    shared.pool.keep_free()?;
    let mark = shared.control.get().next_mark;
    let ids = shared.spaces.headers();
    let mut mtr = Mtr::new(shared);
    let headers = ids.iter().map(|id| mtr.x(*id)).collect::<Result<Vec<H>>>()?;
    headers.into_iter().for_each(|header| mtr.write(header, space_format::MARK_OFFSET, &mark.to_le_bytes()));
    let end = mtr.commit();
    if planted("open: a mark is expected before headers have it") {
        shared.control.update(|block| block.note_marked(block.durable))?;
    }
    shared.log.flush(end)?;
    shared.pool.clean(&ids, Cause::Checkpoint)?;
    shared.level.clean(&ids)?;
    // Only the marks in the data files are compared at a start, so the header pages must be there.
    let is_home = shared.buffer.as_ref().map_or(Ok(true), |buffer| buffer.flush_pages(&ids))?;
    shared.level.settle()?;
    // The log records which say where packed pages are now must be durable.
    shared.log.flush(shared.log.end())?;
    if !is_home || ids.iter().any(|id| shared.ledger.has(*id)) {
        reached("open: a full device took not all marks");
        return Ok(());
    }
    let durable = shared.log.durable();
    shared.control.update(|block| block.note_marked(durable))
}
