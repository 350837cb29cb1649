//! Reads the pieces of a timeline.
//!
//! Invariants
//! 1. A reader gets each block once, in the order of the log, from the block at which it begins. A missing or
//!    damaged piece, or a piece of another history, is an error that names the LSNs.
//! 2. A merge may replace and remove pieces while they are read. Then the reader lists them again.
//! 3. Only an error of the store is `ArchiveStore`. Then the next attempt may succeed.
//!
//! This module does not know moments.

use std::io;
use std::ops::ControlFlow;

use varve_device::{planted, reached};

use super::merge::SMALL_PIECES;
use super::passed::Passed;
use super::piece::{Piece, PieceStart};
use super::store::{ArchiveStore, StoredPiece, TimelineName};
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::log::blocks::{BlockMark, ChainedBlock};

/// Returns the error of a store that failed.
pub(super) fn store_failed(store: &dyn ArchiveStore, error: &io::Error) -> PagerError {
    let what = format!("the log archive {}: {error}", store.location());
    PagerError::ArchiveStore { what, is_missing: error.kind() == io::ErrorKind::NotFound }
}

/// A reader lists the pieces again this many times for one piece, if the piece is not there.
const LISTED_AGAIN_MAX: u32 = 5;

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

    /// Returns the piece at which a reader of the block at `at` begins. After a crash, a piece that a merge has
    /// removed may be back, and not the ones after it. So an earlier piece may be the one that has the block.
    fn index_of(&self, pieces: &[StoredPiece], at: Lsn) -> Result<usize> {
        let nearest = pieces.partition_point(|piece| piece.start <= at).checked_sub(1);
        let nearest = nearest.ok_or_else(|| self.nothing_at(at))?;
        for index in (nearest.saturating_sub(SMALL_PIECES)..=nearest).rev() {
            match read_piece(self.store, self.name, pieces[index].start) {
                Ok(piece) if piece.end.next > at => return Ok(index),
                Ok(_) => {}
                // The reader of the nearest piece tells what is wrong.
                Err(_) => break,
            }
        }
        Ok(nearest)
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
        let mut pieces = self.pieces.clone();
        let (mut index, mut listed_again) = (self.index_of(&pieces, from)?, 0);
        let mut passed = Passed::default();
        let (mut is_there, mut is_over) = (false, false);
        while let Some(stored) = pieces.get(index).copied() {
            let piece = match self.next_piece(stored, &passed) {
                Err(error) if is_gone(&error) && listed_again < LISTED_AGAIN_MAX => {
                    reached("archive: a piece was merged while the timeline is read");
                    listed_again += 1;
                    pieces =
                        self.store.pieces(self.name).map_err(|error| store_failed(self.store, &error))?;
                    index = self.index_of(&pieces, passed.next.unwrap_or(from))?;
                    continue;
                }
                piece => piece?,
            };
            (index, listed_again) = (index + 1, 0);
            let next = passed.next.map_or(from, |next| next.max(from));
            piece.start.chain().take_blocks(&piece.blocks, |block| {
                if is_over || block.mark().start < next {
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

    /// Reads the next piece. Fails if there is a gap before it, or if its blocks contradict those that were
    /// read before.
    fn next_piece(&self, stored: StoredPiece, passed: &Passed) -> Result<Piece> {
        let start = stored.start;
        if let Some(next) = passed.next.filter(|next| *next < start) {
            let what = format!(
                "the log archive {}: timeline {} lacks the log from LSN {next} to LSN {start}: a piece is missing",
                self.store.location(),
                self.name
            );
            return Err(PagerError::Backup { what });
        }
        let piece = read_piece(self.store, self.name, start)?;
        if passed.next.is_some_and(|next| next != start) {
            reached("archive: a piece is left over from a merge");
        }
        if passed.agrees(&piece)? { Ok(piece) } else { Err(two_writers(self.store, self.name, start)) }
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

/// Returns whether a piece was listed, and is not there any more.
fn is_gone(error: &PagerError) -> bool {
    matches!(error, PagerError::ArchiveStore { is_missing: true, .. })
}

/// Returns the error of two pieces that contradict each other.
pub(super) fn two_writers(store: &dyn ArchiveStore, timeline: TimelineName, start: Lsn) -> PagerError {
    let what = format!(
        "the log archive {}: two pieces of timeline {timeline} have different log at LSN {start}: two servers have \
         written into it",
        store.location()
    );
    PagerError::Backup { what }
}

#[cfg(test)]
mod tests {
    use super::super::support::{MemoryStore, NAME, block_at, store_blocks};
    use super::*;

    fn starts(store: &MemoryStore, from: Lsn) -> Result<Vec<Lsn>> {
        let timeline = Timeline::all(store, NAME.database)?.remove(0);
        let mut found = Vec::new();
        timeline.each_block(from, |_, block| {
            found.push(block.mark().start);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    #[test]
    fn a_piece_that_overlaps_the_one_before_is_read_once() {
        let store = MemoryStore::default();
        let blocks = store_blocks(&store, &[0..6, 2..9, 3..4, 9..10]);
        assert_eq!(starts(&store, blocks[0]).unwrap(), blocks[..10]);
        assert_eq!(starts(&store, blocks[4]).unwrap(), blocks[4..10]);
    }

    #[test]
    fn a_removed_piece_that_is_back_does_not_hide_the_merged_one() {
        let store = MemoryStore::default();
        let blocks = store_blocks(&store, &[0..8, 2..3, 8..9]);
        assert_eq!(starts(&store, blocks[5]).unwrap(), blocks[5..9]);
    }

    #[test]
    fn pieces_that_are_merged_meanwhile_are_listed_again() {
        let store = MemoryStore::default();
        let blocks = store_blocks(&store, &[0..1, 1..2, 2..3, 3..4]);
        let all: Vec<Lsn> = (0..5).map(block_at).collect();
        let timeline = Timeline::all(&store, NAME.database).unwrap().remove(0);
        for is_later in [false, true] {
            let mut found = Vec::new();
            let is_read = timeline.each_block(blocks[0], |_, block| {
                found.push(block.mark().start);
                if is_later || found.len() == 2 {
                    store.pieces.lock().clear();
                    store_blocks(&store, &[0..3, 3..5]);
                }
                Ok(ControlFlow::Continue(()))
            });
            is_read.unwrap();
            assert_eq!(found, all);
        }
    }
}
