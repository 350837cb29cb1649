//! The in-place layout: every page is stored at a fixed address in the file of its space.
//!
//! Invariants
//! 1. Page `n` of a space begins at byte `n * page_size` of the space's file.
//! 2. A stored page has only as many bytes as it needs. A compressed page, for example, is shorter than the
//!    page size. The bytes after it, up to the next page's address, have no meaning, and may be a hole
//!    (`holes.rs`).
//! 3. If the trim setting is on, holes are punched into free extents, a piece at a time, to return their file
//!    blocks to the device. A hole never reaches into a page that is in use.
//! 4. When `write` returns, the pages are stable: they are written under the configured protection, and
//!    flushed. Then the `Ledger` (the table of dirty pages) learns that they are stable. Pages of the
//!    temporary space have no protection, are not flushed, and are not in the ledger.
//!
//! This module does not know how the protection works.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{ReadOp, planted};

use super::punch::Punches;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::image::Image;
use crate::home::compression::by_owner::Compressions;
use crate::home::compression::encoder::Forms;
use crate::home::compression::stored_page::{self, StoredLengths};
use crate::home::files::{SpaceFile, SpaceFiles};
use crate::home::in_place::holes::Holes;
use crate::home::layout::{Layout, Trimmed};
use crate::home::pace::{Pace, PieceBytes};
use crate::home::protection::Protection;
use crate::home::trim::TrimSetting;
use crate::level::ledger::Ledger;
use crate::level::{Cause, Need, Step, Want};
use crate::log::WriteAhead;

pub(crate) mod holes;

/// The least number of bytes that are cut off a file's end at a time. The next constant is the largest
/// number, unless an extent is longer. The piece is limited because other I/O of the file waits for it.
const CUT_BYTES_MIN: u64 = 64 << 10;
const CUT_BYTES_MAX: u64 = 8 << 20;

/// The parts of the pager that the layout uses.
pub(crate) struct InPlaceParts {
    pub(crate) files: Arc<SpaceFiles>,
    pub(crate) protection: Box<dyn Protection>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) log: Arc<dyn WriteAhead>,
    pub(crate) compressions: Arc<Compressions>,
    pub(crate) trim: Arc<TrimSetting>,
    pub(crate) page_size: usize,
    /// The lengths that a stored page may have.
    pub(crate) stored_lengths: StoredLengths,
}

/// The in-place layout.
pub(crate) struct InPlace {
    parts: InPlaceParts,
    forms: Forms,
    pub(crate) holes: Holes,
    punches: Punches,
    /// The pages whose doublewrite copy is held during a checkpoint, but not needed any more once the log is
    /// durable.
    unneeded: Mutex<Vec<(PageId, u32)>>,
}

impl InPlace {
    pub(crate) fn new(parts: InPlaceParts) -> InPlace {
        let forms = Forms::new(parts.compressions.clone(), parts.stored_lengths);
        let holes = Holes::new(&parts.files, parts.page_size, parts.trim.clone());
        InPlace { parts, forms, holes, punches: Punches::default(), unneeded: Mutex::default() }
    }

    fn decode(&self, id: PageId, want: &mut Want<'_>) -> Result<()> {
        let Want::Page { frame, .. } = want else { return Ok(()) };
        match stored_page::decode_in(frame, id) {
            Ok(form) => {
                self.forms.read(frame, form);
                Ok(())
            }
            Err(damage) => Err(PagerError::DamagedPage { id, damage }),
        }
    }

    fn read_many(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        for group in wants.chunk_by_mut(|a, b| a.0.space() == b.0.space()) {
            let file = self.parts.files.of(group[0].0)?;
            let mut ops = Vec::with_capacity(group.len());
            for (id, want) in group {
                if let Want::Page { frame, .. } = want {
                    ops.push(ReadOp { offset: file.offset(*id)?, buf: frame, why: file.purpose() });
                }
            }
            file.file().read_batch(&mut ops)?;
        }
        Ok(())
    }
}

impl InPlace {
    fn change_length(
        &self,
        space: SpaceId,
        pages: u32,
        change: impl FnOnce(&SpaceFile, u32) -> Result<()>,
    ) -> Result<()> {
        let Some(file) = self.parts.files.space(space) else { return Ok(()) };
        let before = file.pages();
        change(file, pages)?;
        let gone =
            PageRange { first: PageId::new(space, PageNo(pages)), count: before.saturating_sub(pages) };
        self.holes.forget(gone);
        Ok(())
    }
}

impl Layout for InPlace {
    fn read(&self, wants: &mut [(PageId, &mut Want<'_>)]) -> Result<()> {
        if let [(id, Want::Page { frame, .. })] = wants {
            let file = self.parts.files.of(*id)?;
            file.file().read_at(file.offset(*id)?, frame, file.purpose())?;
        } else {
            self.read_many(wants)?;
        }
        wants.iter_mut().try_for_each(|(id, want)| self.decode(*id, want))
    }

    fn write(&self, images: &[&Image], cause: Cause, _need: Need) -> Result<()> {
        let stored = self.forms.encode(images);
        if images.iter().any(|image| !image.id().space().is_logged()) {
            return self.parts.files.write(&stored.iter().collect::<Vec<_>>());
        }
        if planted("trim: holes before the page is durable") {
            self.holes.punch_behind(&self.punches, &self.parts.files, &stored);
        }
        let written = self.parts.protection.write(&stored, cause);
        written.inspect_err(|_| self.holes.forget_written(&stored))?;
        self.parts.log.note_written(images);
        images.iter().for_each(|image| self.parts.ledger.stable(image.id(), image.lsn()));
        self.holes.punch_behind(&self.punches, &self.parts.files, &stored);
        Ok(())
    }

    fn write_unlogged(&self, image: &Image) -> Result<()> {
        self.parts.files.of(image.id())?.write_unlogged(image)
    }

    fn pages(&self, space: SpaceId) -> u32 {
        self.parts.files.space(space).map_or(0, |file| file.pages())
    }

    fn resize(&self, space: SpaceId, pages: u32) -> Result<()> {
        self.change_length(space, pages, SpaceFile::resize)
    }

    fn shorten(&self, space: SpaceId, pages: u32) -> Result<()> {
        self.change_length(space, pages, SpaceFile::set_pages)
    }

    fn cut_pieces(&self) -> Option<PieceBytes> {
        Some(PieceBytes::between(CUT_BYTES_MIN, CUT_BYTES_MAX))
    }

    fn trims(&self) -> bool {
        self.parts.trim.gives_extents() && self.punches.can()
    }

    fn leaves_holes(&self) -> bool {
        true
    }

    fn trim(&self, ids: PageRange, pace: &Pace<'_>) -> Result<Trimmed> {
        let file = self.parts.files.of(ids.first)?;
        let (start, bytes) = file.range(ids)?;
        let mut at = 0;
        while at < bytes && self.trims() {
            at += pace.short_piece(&self.punches.pieces, |most| {
                let len_bytes = most.min(bytes - at);
                self.punches.punch(file.file(), start + at, len_bytes);
                len_bytes
            });
        }
        Ok(match at {
            0 => Trimmed::NotNow,
            _ if self.punches.can() => Trimmed::Hollow,
            _ => Trimmed::Whole,
        })
    }

    fn reserve(&self, ids: PageRange) -> Result<()> {
        let file = self.parts.files.of(ids.first)?;
        let (start, bytes) = file.range(ids)?;
        file.file().reserve(start, bytes)?;
        // If a crash came before the reservation is durable, other files could take the space, and redo would
        // fail.
        file.file().flush()?;
        self.holes.forget(ids);
        Ok(())
    }

    /// Releases the copies of half-written pages that were discarded. Such a page will never be put again, so
    /// its copy is not needed when the discard is durable.
    fn checkpoint(&self, step: Step) -> Result<()> {
        let mut unneeded = self.unneeded.lock();
        match step {
            Step::Begin => {
                *unneeded = self.parts.protection.held();
                unneeded.retain(|(id, _)| !self.parts.ledger.has(*id));
            }
            Step::BeforeEnd => {}
            Step::End => {
                // A page that was created again meanwhile may be half written again, with a copy in the same
                // slot.
                unneeded.retain(|(id, _)| !self.parts.ledger.has(*id));
                self.parts.protection.forget(&std::mem::take(&mut *unneeded));
            }
        }
        Ok(())
    }

    fn drain(&self) -> Result<()> {
        self.parts.files.flush_all()
    }

    fn part(&self) -> &'static str {
        "in-place"
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.parts.protection.counters();
        counters.extend(self.forms.counters());
        counters.extend(self.punches.counters());
        counters
    }
}
