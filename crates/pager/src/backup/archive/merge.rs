//! Makes one piece of many small ones, so that an archive does not have a file for every few seconds.
//!
//! Invariants
//! 1. The merged piece replaces the first of the small ones, and only then the others are removed, in the
//!    order of the log. So a crash leaves all blocks, some of them twice.
//! 2. A merge needs memory for at most `MERGED_BYTES` of log and one piece more.
//!
//! This module does not know the log.

use varve_device::reached;

use super::passed::Passed;
use super::piece::{Piece, PieceStart};
use super::store::{ArchiveStore, StoredPiece, TimelineName};
use super::timeline::{read_piece, store_failed, two_writers};
use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;

/// A piece with at least this many bytes of log stays as it is.
const FULL_BYTES: u64 = 8 << 20;
/// A merge takes at most this many bytes of log.
const MERGED_BYTES: usize = 64 << 20;
/// This many small pieces are merged.
pub(super) const SMALL_PIECES: usize = 32;

/// A timeline whose small pieces are merged.
pub(super) struct Merge<'s> {
    pub(super) store: &'s dyn ArchiveStore,
    pub(super) timeline: TimelineName,
    pub(super) compression: Compression,
}

/// Small pieces in memory.
struct Merged {
    first: PieceStart,
    blocks: Vec<u8>,
    /// The names of the other pieces.
    others: Vec<Lsn>,
}

/// Returns the first of the small pieces at the end of the list, if they should become one piece. The name of
/// the next piece, or `end`, says how many bytes of log a piece has.
fn small_run(pieces: &[StoredPiece], end: Lsn) -> Option<usize> {
    let ends = pieces.iter().skip(1).map(|piece| piece.start).chain([end]);
    let bytes: Vec<u64> = pieces.iter().zip(ends).map(|(piece, end)| end.since(piece.start)).collect();
    let first = bytes.iter().rposition(|bytes| *bytes >= FULL_BYTES).map_or(0, |full| full + 1);
    let run = &bytes[first..];
    let is_enough = run.len() >= SMALL_PIECES || run.len() > 1 && run.iter().sum::<u64>() >= FULL_BYTES;
    is_enough.then_some(first)
}

impl Merge<'_> {
    /// Merges the last pieces of the timeline, if there are enough small ones. `pieces` are all of its pieces.
    /// The next one begins at `end`. Returns whether it has changed any.
    pub(super) fn run(&self, pieces: &[StoredPiece], end: Lsn) -> Result<bool> {
        let Some(first) = small_run(pieces, end) else { return Ok(false) };
        let mut passed = Passed::default();
        if let Some(before) = first.checked_sub(1) {
            match read_piece(self.store, self.timeline, pieces[before].start) {
                Err(error @ PagerError::ArchiveStore { .. }) => return Err(error),
                // Readers tell that it is damaged. It does not matter here.
                Err(_) => {}
                Ok(full) => passed.add(&full)?,
            }
        }
        let (left_over, merged) = self.read(&pieces[first..], &mut passed)?;
        let mut gone = left_over;
        if let Some(Merged { first, blocks, others }) = merged.filter(|merged| !merged.others.is_empty()) {
            let merged = Piece::new(first, blocks)?;
            let bytes = merged.encode(self.compression);
            let replaced = self.store.replace(self.timeline, merged.start.start, &bytes);
            replaced.map_err(|error| store_failed(self.store, &error))?;
            reached("archive: pieces are merged");
            gone.extend(others);
        }
        let removed = self.store.remove(self.timeline, &gone);
        removed.map_err(|error| store_failed(self.store, &error))?;
        Ok(!gone.is_empty())
    }

    /// Reads small pieces. Also returns those before them that an interrupted merge has left over: all of
    /// their blocks are in the piece before.
    fn read(&self, run: &[StoredPiece], passed: &mut Passed) -> Result<(Vec<Lsn>, Option<Merged>)> {
        let (mut left_over, mut merged) = (Vec::new(), None::<Merged>);
        let mut count = 0;
        for small in run {
            let piece = read_piece(self.store, self.timeline, small.start)?;
            if !passed.agrees(&piece)? {
                return Err(two_writers(self.store, self.timeline, small.start));
            }
            let has_more = passed.next.is_none_or(|next| piece.end.next > next);
            match &mut merged {
                None if !has_more => left_over.push(small.start),
                None => {
                    passed.add(&piece)?;
                    merged = Some(Merged { first: piece.start, blocks: piece.blocks, others: Vec::new() });
                    count = 1;
                }
                Some(merged) => {
                    let rest = passed.rest_of(&piece)?;
                    if has_more && (count == SMALL_PIECES || merged.blocks.len() + rest.len() > MERGED_BYTES)
                    {
                        break;
                    }
                    merged.blocks.extend_from_slice(rest);
                    merged.others.push(small.start);
                    count += usize::from(has_more);
                    passed.add(&piece)?;
                }
            }
        }
        Ok((left_over, merged))
    }
}

#[cfg(test)]
mod tests {
    use super::super::support::{BLOCK_BYTES, MemoryStore, NAME, block_at, store_blocks};
    use super::*;

    /// Returns the first small piece of pieces with this many bytes of log.
    fn run_of(bytes: &[u64]) -> Option<usize> {
        let mut at = 4096;
        let pieces: Vec<StoredPiece> = bytes
            .iter()
            .map(|bytes| {
                at += bytes;
                StoredPiece { start: Lsn::new(at - bytes), bytes: 10 }
            })
            .collect();
        small_run(&pieces, Lsn::new(at))
    }

    fn merge(store: &MemoryStore, end: u64) -> bool {
        let pieces = store.pieces(NAME).unwrap();
        let merge = Merge { store, timeline: NAME, compression: Compression::NONE };
        merge.run(&pieces, block_at(end)).unwrap()
    }

    fn names(store: &MemoryStore) -> Vec<u64> {
        store.pieces.lock().keys().map(|start| start.since(block_at(0)) / BLOCK_BYTES).collect()
    }

    #[test]
    fn only_small_pieces_at_the_end_are_merged() {
        assert_eq!(run_of(&[10; 31]), None);
        assert_eq!(run_of(&[10; 32]), Some(0));
        assert_eq!(run_of(&[FULL_BYTES, 10, 10]), None);
        assert_eq!(run_of(&[10, FULL_BYTES, FULL_BYTES - 1, 1]), Some(2));
        assert_eq!(run_of(&[FULL_BYTES]), None);
        assert_eq!(run_of(&[]), None);
    }

    #[test]
    fn a_merge_takes_a_limited_part_of_the_log() {
        let store = MemoryStore::default();
        let pieces: Vec<_> = (0..18).map(|number| 5 * number..5 * (number + 1)).collect();
        store_blocks(&store, &pieces);
        assert!(merge(&store, 90));
        assert_eq!(names(&store), [0, 60, 65, 70, 75, 80, 85], "at most 64 MiB");
        assert!(merge(&store, 90));
        assert_eq!(names(&store), [0, 60]);
        assert!(!merge(&store, 90));
    }

    #[test]
    fn a_merge_after_an_interrupted_merge_removes_what_is_left_over() {
        let store = MemoryStore::default();
        // The first piece has the blocks of the others, and the removal stopped before block 10.
        let mut pieces = vec![0..12, 10..11, 11..12];
        pieces.extend((12..20).map(|number| number..number + 1));
        store_blocks(&store, &pieces);
        assert!(merge(&store, 20));
        assert_eq!(names(&store), [0, 12]);
        let merged = read_piece(&store, NAME, block_at(12)).unwrap();
        assert_eq!(merged.end.next, block_at(20));
        assert!(!merge(&store, 20));
    }
}
