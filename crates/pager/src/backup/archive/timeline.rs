//! Reads the pieces of a timeline.
//!
//! Invariants
//! 1. A reader gets each block once, in the order of the log, from the block at which it begins. A missing or
//!    damaged piece, or a piece of another history, is an error that names the LSNs.
//!
//! This module does not know moments.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use varve_device::{planted, reached};

use super::piece::{Piece, PieceStart};
use super::store::{ArchiveStore, StoredPiece, TimelineName};
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::log::blocks::{BlockMark, ChainedBlock};

/// Returns the error of a store that failed.
pub(super) fn store_failed(store: &dyn ArchiveStore, error: &io::Error) -> PagerError {
    PagerError::Backup { what: format!("the log archive {}: {error}", store.location()) }
}

/// Reads a piece, and checks that it is the one that its name says.
pub(super) fn read_piece(store: &dyn ArchiveStore, timeline: TimelineName, start: Lsn) -> Result<Piece> {
    let bytes = store.read(timeline, start).map_err(|error| store_failed(store, &error))?;
    let named = |what: String| PagerError::Backup {
        what: format!(
            "the log archive {}: the piece of timeline {timeline} that begins at LSN {start} is damaged: {what}",
            store.location()
        ),
    };
    let piece = Piece::decode(&bytes).map_err(|error| named(error.to_string()))?;
    if piece.start.timeline != timeline || piece.start.start != start {
        return Err(named("it has the name of another piece".into()));
    }
    Ok(piece)
}

/// A timeline of an archive.
pub(crate) struct Timeline<'s> {
    store: &'s dyn ArchiveStore,
    pub(crate) name: TimelineName,
    pieces: Vec<StoredPiece>,
}

/// The blocks of the piece before, by which a piece that a merge has left over is recognized.
#[derive(Default)]
struct Passed {
    next: Option<Lsn>,
    blocks: HashMap<Lsn, u32>,
}

impl Passed {
    /// Returns whether all blocks of the piece have been passed.
    fn has(&self, piece: &Piece) -> Result<bool> {
        let mut has_all = true;
        piece.start.chain().take_blocks(&piece.blocks, |block| {
            let mark = block.mark();
            has_all &= self.blocks.get(&mark.start) == Some(&mark.checksum);
            Ok(())
        })?;
        Ok(has_all)
    }

    fn add(&mut self, piece: &Piece) -> Result<()> {
        self.next = Some(piece.end.next);
        self.blocks.clear();
        piece.start.chain().take_blocks(&piece.blocks, |block| {
            let mark = block.mark();
            self.blocks.insert(mark.start, mark.checksum);
            Ok(())
        })
    }
}

impl<'s> Timeline<'s> {
    /// Returns the timelines of this database that have pieces.
    pub(crate) fn all(store: &'s dyn ArchiveStore, database: u64) -> Result<Vec<Timeline<'s>>> {
        let failed = |error| store_failed(store, &error);
        let mut all = Vec::new();
        for name in store.timelines().map_err(failed)? {
            if name.database == database {
                let pieces = store.pieces(name).map_err(failed)?;
                all.extend((!pieces.is_empty()).then_some(Timeline { store, name, pieces }));
            }
        }
        Ok(all)
    }

    /// Returns the LSN of the first block.
    pub(crate) fn start(&self) -> Lsn {
        self.pieces.first().map_or(Lsn::ZERO, |first| first.start)
    }

    /// Reads the last piece.
    pub(crate) fn last_piece(&self) -> Result<Option<Piece>> {
        let last = self.pieces.last();
        last.map(|last| read_piece(self.store, self.name, last.start)).transpose()
    }

    /// Returns the start of the piece in which the block at this LSN would be.
    fn index_of(&self, at: Lsn) -> Option<usize> {
        self.pieces.partition_point(|piece| piece.start <= at).checked_sub(1)
    }

    /// Returns whether this timeline has the block.
    pub(crate) fn has_block(&self, mark: BlockMark) -> Result<bool> {
        let mut has = false;
        let found = self.each_block(mark.start, |_, block| {
            has = block.mark() == mark || planted("archive: a timeline of another history is taken");
            Ok(ControlFlow::Break(()))
        });
        match found {
            Ok(()) => Ok(has),
            // The blocks of another history begin at other positions.
            Err(PagerError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Calls `visit` with each block from the one at `from` on, until it breaks or the timeline ends. The
    /// error is `Corrupt` if no block begins at `from`.
    pub(crate) fn each_block(
        &self,
        from: Lsn,
        mut visit: impl FnMut(&PieceStart, &ChainedBlock<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Some(first) = self.index_of(from) else { return Err(self.nothing_at(from)) };
        let mut passed = Passed::default();
        let (mut is_there, mut is_over) = (false, false);
        for stored in &self.pieces[first..] {
            let piece = read_piece(self.store, self.name, stored.start)?;
            if self.is_left_over(&passed, &piece)? {
                continue;
            }
            piece.start.chain().take_blocks(&piece.blocks, |block| {
                if is_over || block.mark().start < from {
                    return Ok(());
                }
                if !is_there && block.mark().start != from {
                    return Err(self.nothing_at(from));
                }
                is_there = true;
                is_over = visit(&piece.start, block)?.is_break();
                Ok(())
            })?;
            if is_over {
                return Ok(());
            }
            passed.add(&piece)?;
        }
        // A timeline may end just before the block.
        let ends_here = passed.next == Some(from);
        if is_there || ends_here { Ok(()) } else { Err(self.nothing_at(from)) }
    }

    /// Returns whether a merge has left this piece over. Fails if there is a gap before it, or if its blocks
    /// contradict those that were read before.
    fn is_left_over(&self, passed: &Passed, piece: &Piece) -> Result<bool> {
        let Some(next) = passed.next.filter(|next| *next != piece.start.start) else { return Ok(false) };
        let start = piece.start.start;
        if start > next {
            let what = format!(
                "the log archive {}: timeline {} lacks the log from LSN {next} to LSN {start}: a piece is missing",
                self.store.location(),
                self.name
            );
            return Err(PagerError::Backup { what });
        }
        if passed.has(piece)? {
            reached("archive: a piece is left over from a merge");
            return Ok(true);
        }
        let what = format!(
            "the log archive {}: two pieces of timeline {} have different log at LSN {start}: two servers have \
             written into it",
            self.store.location(),
            self.name
        );
        Err(PagerError::Backup { what })
    }

    fn nothing_at(&self, at: Lsn) -> PagerError {
        let what = format!(
            "the log archive {}: timeline {} has no log block at LSN {at}",
            self.store.location(),
            self.name
        );
        PagerError::Corrupt { what }
    }
}
