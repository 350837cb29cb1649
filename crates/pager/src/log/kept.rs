//! A cache of log bytes during a start. A start reads the same part of the log twice, for analysis and for
//! redo.
//!
//! Invariants
//! 1. Redo gets the same bytes as analysis. They don't change in between, because the log's new life begins
//!    after them.
//! 2. The cache never exceeds its limit. If it is full, the bytes that were read first are dropped, because
//!    redo reads the bytes at the end last.
//!
//! This module does not know what the bytes mean, or which read is the last.

use std::collections::VecDeque;

/// Bytes that were read together.
struct Piece {
    /// The number of the segment.
    number: u64,
    from: usize,
    bytes: Box<[u8]>,
}

/// Pieces in the order in which they were read.
#[derive(Default)]
pub(super) struct Kept {
    pieces: VecDeque<Piece>,
    bytes: usize,
    limit_bytes: usize,
}

impl Kept {
    /// Returns an empty cache with this limit.
    pub(super) fn with_limit(limit_bytes: usize) -> Kept {
        Kept { limit_bytes, ..Kept::default() }
    }

    /// Keeps bytes that were read from segment `number`, beginning at its byte `from`.
    pub(super) fn keep(&mut self, number: u64, from: usize, bytes: &[u8]) {
        if bytes.len() > self.limit_bytes {
            return;
        }
        while self.bytes + bytes.len() > self.limit_bytes
            && let Some(first) = self.pieces.pop_front()
        {
            self.bytes -= first.bytes.len();
        }
        self.bytes += bytes.len();
        self.pieces.push_back(Piece { number, from, bytes: bytes.into() });
    }

    /// Fills `out` with kept bytes of segment `number`, from its byte `from` on. Returns whether all bytes
    /// are kept. If not, the content of `out` is undefined.
    pub(super) fn fill(&self, number: u64, from: usize, out: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < out.len() {
            let at = from + filled;
            let has = |piece: &&Piece| piece.number == number && (piece.from..piece.end()).contains(&at);
            let Some(piece) = self.pieces.iter().find(has) else { return false };
            let found = &piece.bytes[at - piece.from..];
            let count = found.len().min(out.len() - filled);
            out[filled..filled + count].copy_from_slice(&found[..count]);
            filled += count;
        }
        true
    }
}

impl Piece {
    fn end(&self) -> usize {
        self.from + self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(kept: &Kept, number: u64, range: std::ops::Range<usize>) -> Option<Vec<u8>> {
        let mut out = vec![0; range.len()];
        kept.fill(number, range.start, &mut out).then_some(out)
    }

    #[test]
    fn what_was_read_is_given_out_over_the_seams() {
        let mut kept = Kept::with_limit(100);
        kept.keep(1, 10, &[1; 10]);
        kept.keep(1, 20, &[2; 10]);
        kept.keep(2, 30, &[3; 10]);
        assert_eq!(filled(&kept, 1, 18..22), Some(vec![1, 1, 2, 2]));
        assert_eq!(filled(&kept, 1, 10..30).map(|bytes| bytes.len()), Some(20));
        for (number, range) in [(1, 9..12), (1, 28..31), (2, 20..31), (3, 30..31)] {
            assert_eq!(filled(&kept, number, range.clone()), None, "{number} {range:?}");
        }
    }

    #[test]
    fn what_was_read_first_goes_first() {
        let mut kept = Kept::with_limit(25);
        (0..4).for_each(|no| kept.keep(1, 10 * no, &[no as u8; 10]));
        assert!(kept.bytes <= 25 && kept.pieces.len() == 2);
        assert_eq!(filled(&kept, 1, 10..20), None);
        assert_eq!(filled(&kept, 1, 20..40).map(|bytes| (bytes[0], bytes[19])), Some((2, 3)));
        kept.keep(1, 40, &[9; 26]);
        assert!(filled(&kept, 1, 40..41).is_none() && filled(&kept, 1, 30..40).is_some(), "too long to keep");
    }
}
