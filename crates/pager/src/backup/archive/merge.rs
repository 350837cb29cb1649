//! Makes one piece of many small ones, so that an archive does not have a file for every few seconds.
//!
//! Invariants
//! 1. The merged piece replaces the first of the small ones, and only then the others are removed. So a crash
//!    leaves all blocks, some of them twice.
//!
//! This module does not know the log.

use std::ops::Range;

use varve_device::reached;

use super::piece::Piece;
use super::store::{ArchiveStore, StoredPiece, TimelineName};
use super::timeline::read_piece;
use crate::base::compression::Compression;
use crate::base::error::Result;
use crate::base::lsn::Lsn;

/// A piece with at least this many bytes stays as it is.
const FULL_BYTES: u64 = 8 << 20;
/// This many small pieces are merged.
const SMALL_PIECES: usize = 32;

/// Returns the last pieces of the list if they are small and should become one piece.
fn small_run(pieces: &[StoredPiece]) -> Option<Range<usize>> {
    let first = pieces.iter().rposition(|piece| piece.bytes >= FULL_BYTES).map_or(0, |full| full + 1);
    let run = &pieces[first..];
    let bytes: u64 = run.iter().map(|piece| piece.bytes).sum();
    (run.len() >= SMALL_PIECES || run.len() > 1 && bytes >= FULL_BYTES).then_some(first..pieces.len())
}

/// Merges the last pieces of a timeline, if there are enough small ones. `pieces` are all of its pieces.
/// Returns whether it has merged any.
pub(super) fn merge(
    store: &dyn ArchiveStore,
    timeline: TimelineName,
    pieces: &[StoredPiece],
    compression: Compression,
) -> Result<bool> {
    let Some(run) = small_run(pieces) else { return Ok(false) };
    let (mut first, mut blocks, mut next) = (None, Vec::new(), Lsn::ZERO);
    for small in &pieces[run.clone()] {
        let piece = read_piece(store, timeline, small.start)?;
        // A crash during an earlier merge may have left a piece whose blocks are in the one before it.
        if piece.end.next > next {
            blocks.extend_from_slice(&piece.blocks);
            next = piece.end.next;
        }
        first.get_or_insert(piece.start);
    }
    let Some(first) = first else { return Ok(false) };
    let merged = Piece::new(first, blocks)?;
    let failed = |error| super::timeline::store_failed(store, &error);
    store.replace(timeline, merged.start.start, &merged.encode(compression)).map_err(failed)?;
    reached("archive: pieces are merged");
    pieces[run].iter().skip(1).try_for_each(|small| store.remove(timeline, small.start)).map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u64]) -> Vec<StoredPiece> {
        let numbered = bytes.iter().zip(1_u64..);
        numbered.map(|(bytes, at)| StoredPiece { start: Lsn::new(at), bytes: *bytes }).collect()
    }

    #[test]
    fn only_small_pieces_at_the_end_are_merged() {
        assert_eq!(small_run(&pieces(&[10; 31])), None);
        assert_eq!(small_run(&pieces(&[10; 32])), Some(0..32));
        assert_eq!(small_run(&pieces(&[FULL_BYTES, 10, 10])), None);
        assert_eq!(small_run(&pieces(&[10, FULL_BYTES, FULL_BYTES - 1, 1])), Some(2..4));
        assert_eq!(small_run(&pieces(&[FULL_BYTES])), None);
        assert_eq!(small_run(&[]), None);
    }
}
