//! A batch of candidates: pairs of rows with equal keys, whose condition the caller decides at once.
//!
//! If a join has a condition beside the keys, each pair of a build row and a probe row with equal keys is a
//! candidate. The build rows are in a chunk. The probe rows are copied, because their source moves on.
//!
//! Invariants
//! 1. All memory of a batch is granted and allocated when the join begins.
//! 2. The build rows of all candidates are in one chunk, from which no row is removed before they are
//!    decided.
//! 3. Only the last probe row of a batch can have candidates in the next batch.

use std::sync::Arc;

use crate::chunk::{Cell, HashChunk};
use crate::error::Result;
use crate::memory::{Bytes, MemoryBudget, MemoryGrant};
use crate::page::{put_row, row_in};
use crate::row::Row;

use super::RowPair;
use super::kind::Side;

/// The maximum number of candidates of a batch.
const PAIRS_MAX: usize = 8192;
/// The memory divided by this number is the number of candidates of a batch.
const PAIRS_SHARE: usize = 256;
/// The memory divided by this number is for copies of probe rows.
const COPIES_SHARE: usize = 16;
/// The memory divided by this number limits the bytes of all pairs of a batch, for callers that copy them.
const PAIR_BYTES_SHARE: usize = 4;
/// The maximum number of bytes of copies, and of all pairs, beside the last pair.
const BYTES_MAX: usize = 1 << 20;

/// A pair of rows with equal keys.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    build: Cell,
    /// The number of the probe row in the batch.
    probe: u32,
}

/// Where a probe row is kept while its partners are not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kept {
    /// A copy begins at this byte.
    Copy(u32),
    /// The row is too long for a copy. It is still the current row of its source.
    Source,
    /// The row has no candidates, and a later scan reads it again. Only its bit is needed.
    Unneeded,
}

/// What is known about the partners of a probe row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matched {
    /// The row had a partner in an earlier scan.
    pub before: bool,
    /// The row has a partner in this scan.
    pub now: bool,
}

/// A probe row whose partners are not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeRow {
    pub kept: Kept,
    pub matched: Matched,
}

/// The decision on a batch of candidates: a bit for each of them.
#[derive(Debug)]
pub struct Partners {
    words: Vec<u64>,
}

impl Partners {
    /// Records that the rows of candidate `n` are partners.
    #[inline]
    pub fn set(&mut self, n: usize) {
        if let Some(word) = self.words.get_mut(n / 64) {
            *word |= 1 << (n % 64);
        }
    }

    #[inline]
    fn contains(&self, n: usize) -> bool {
        self.words.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }
}

/// A batch of pairs of rows with equal keys, as the caller sees it.
pub struct CandidatePairs<'a> {
    pairs: &'a [Candidate],
    probes: &'a [ProbeRow],
    copies: &'a [u8],
    chunk: &'a HashChunk,
    current: Row<'a>,
    build: Side,
}

impl<'a> CandidatePairs<'a> {
    /// Returns the number of pairs.
    pub fn count(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the rows of one input, one for each pair, in the order of the pairs.
    pub fn rows(&self, side: Side) -> impl Iterator<Item = Row<'a>> + '_ {
        let is_build = side == self.build;
        self.pairs
            .iter()
            .map(move |pair| if is_build { self.chunk.row(pair.build) } else { self.probe(pair) })
    }

    fn probe(&self, pair: &Candidate) -> Row<'a> {
        let kept = self.probes.get(pair.probe as usize).map(|probe| probe.kept);
        row_at(kept, self.copies, self.current)
    }
}

#[inline]
fn row_at<'r>(kept: Option<Kept>, copies: &'r [u8], current: Row<'r>) -> Row<'r> {
    match kept {
        Some(Kept::Copy(at)) => row_in(copies.get(at as usize..).unwrap_or_default()),
        _ => current,
    }
}

/// A batch of candidates.
pub(super) struct Candidates {
    pairs: Vec<Candidate>,
    probes: Vec<ProbeRow>,
    /// The maximum number of candidates, and of probe rows.
    most: usize,
    copies: Bytes,
    /// The end of the copies.
    top: usize,
    /// The bytes of the rows of all pairs.
    pair_bytes: usize,
    pair_bytes_max: usize,
    partners: Partners,
    _grant: MemoryGrant,
}

impl Candidates {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Result<Candidates> {
        let left_bytes = memory.left_bytes();
        let most = (left_bytes / PAIRS_SHARE).clamp(8, PAIRS_MAX);
        let words = most.div_ceil(64);
        let grant = memory.take(most * (size_of::<Candidate>() + size_of::<ProbeRow>()) + 8 * words)?;
        Ok(Candidates {
            pairs: Vec::with_capacity(most),
            probes: Vec::with_capacity(most),
            most,
            copies: Bytes::new(memory, (left_bytes / COPIES_SHARE).min(BYTES_MAX))?,
            top: 0,
            pair_bytes: 0,
            pair_bytes_max: (left_bytes / PAIR_BYTES_SHARE).min(BYTES_MAX),
            partners: Partners { words: vec![0; words] },
            _grant: grant,
        })
    }

    /// Adds a probe row. Returns false if there is no room.
    pub(super) fn begin_row(&mut self, row: Row<'_>, is_needed: bool, matched: Matched) -> bool {
        if self.probes.len() >= self.most {
            return false;
        }
        let Some(kept) = self.keep(row, is_needed) else { return false };
        self.probes.push(ProbeRow { kept, matched });
        true
    }

    fn keep(&mut self, row: Row<'_>, is_needed: bool) -> Option<Kept> {
        let (at, row_bytes) = (self.top, row.stored_bytes());
        if !is_needed {
            return Some(Kept::Unneeded);
        }
        if row_bytes > self.copies.len() {
            return Some(Kept::Source);
        }
        if at + row_bytes > self.copies.len() {
            return None;
        }
        put_row(&mut self.copies[at..], row);
        self.top += row_bytes;
        Some(Kept::Copy(at as u32))
    }

    /// Adds a pair of a build row and the last probe row.
    #[inline]
    pub(super) fn push(&mut self, pair: RowPair<'_>, build: Cell) {
        self.pair_bytes += pair.build.stored_bytes() + pair.probe.stored_bytes();
        self.pairs.push(Candidate { build, probe: self.probes.len().saturating_sub(1) as u32 });
    }

    pub(super) fn is_full(&self) -> bool {
        self.pairs.len() >= self.most || self.pair_bytes >= self.pair_bytes_max
    }

    /// Returns whether the last probe row must be decided before its source moves on.
    pub(super) fn needs_source(&self) -> bool {
        self.probes.last().is_some_and(|probe| matches!(probe.kept, Kept::Source))
    }

    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        self.probes.clear();
        (self.top, self.pair_bytes) = (0, 0);
    }

    /// Returns the candidates, and where the decision on them is written. `current` is the current row of the
    /// source.
    pub(super) fn batch<'b>(
        &'b mut self,
        chunk: &'b HashChunk,
        current: Row<'b>,
        build: Side,
    ) -> (CandidatePairs<'b>, &'b mut Partners) {
        let Candidates { pairs, probes, copies, partners, .. } = self;
        partners.words.fill(0);
        (CandidatePairs { pairs, probes, copies, chunk, current, build }, partners)
    }

    /// Returns the number of candidates.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the probe rows.
    pub(super) fn probes(&self) -> &[ProbeRow] {
        &self.probes
    }

    /// Returns a probe row. `current` is the current row of the source.
    #[inline]
    pub(super) fn probe_row<'r>(&'r self, kept: Kept, current: Row<'r>) -> Row<'r> {
        row_at(Some(kept), &self.copies, current)
    }

    /// Returns candidate `n` if its rows are partners, and records that its probe row has one.
    pub(super) fn partner(&mut self, n: usize) -> Option<(Cell, Kept)> {
        let pair = self.pairs.get(n).filter(|_| self.partners.contains(n))?;
        let probe = self.probes.get_mut(pair.probe as usize)?;
        probe.matched.now = true;
        Some((pair.build, probe.kept))
    }
}
