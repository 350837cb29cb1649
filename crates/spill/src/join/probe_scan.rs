//! One scan of probe rows over a chunk of build rows.
//!
//! In a join without a condition, each probe row ends at once. Otherwise a scan collects candidates. When the
//! batch is full, the caller decides which candidates are partners. Then the scan marks their build rows, and
//! ends their probe rows.
//!
//! ```text
//!   probe row -> its candidates --(the batch is full, or the scan ends)--> decide
//!   decide: mark build rows, return pairs -> end each probe row: write its bit, or return it alone
//! ```
//!
//! Invariants
//! 1. If bits are written, probe rows end in their order, so the bits are in this order, too. Otherwise a row
//!    without candidates ends at once, while rows before it may still wait in the batch.
//! 2. When a scan has ended, no candidate is undecided.

use crate::bits::{BitReader, BitWriter};
use crate::chunk::{Cell, HashChunk};
use crate::error::Result;
use crate::row::Row;
use crate::writer::RowList;

use super::RowPair;
use super::candidates::{Candidates, Matched};
use super::emit::Emitter;

/// If a probe row needs only one partner, the scan decides the batch after this number of candidates of the
/// row. The number doubles each time that none of them is a partner.
const FIRST_PAIRS: usize = 64;

/// How a scan ends a probe row.
struct RowEnds {
    /// No later scan reads the row again.
    is_last: bool,
    /// Where the row's bit is written.
    after: Option<BitWriter>,
}

impl RowEnds {
    /// Ends a probe row: writes its bit, and passes the row to the emitter if the join returns it alone.
    #[inline]
    async fn end_row(&mut self, row: Row<'_>, matched: Matched, emitter: &mut Emitter<'_>) -> Result<()> {
        if let Some(after) = &mut self.after {
            after.push(matched.before || matched.now)?;
        }
        match (matched.before, matched.now) {
            (false, true) => emitter.probe_row(row, true)?,
            (false, false) if self.is_last => emitter.probe_row(row, false)?,
            _ => {}
        }
        emitter.make_room().await
    }
}

/// Which rows of a chunk have the key of a probe row.
#[derive(Debug, Clone, Copy)]
pub(super) enum SameKey {
    /// Rows in the bucket of this hash.
    Bucket(u64),
    /// All rows from this one on.
    From(Cell),
}

impl SameKey {
    #[inline]
    fn first(self, chunk: &HashChunk, key: &[u8]) -> Option<Cell> {
        match self {
            SameKey::Bucket(hash) => chunk.find(hash, key),
            SameKey::From(cell) => Some(cell),
        }
    }

    #[inline]
    fn next(self, chunk: &HashChunk, cell: Cell, key: &[u8]) -> Option<Cell> {
        match self {
            SameKey::Bucket(hash) => chunk.find_next(cell, hash, key),
            SameKey::From(_) => chunk.next_cell(cell),
        }
    }
}

/// One scan of probe rows over one chunk. It is the first, the last, or the only scan of these rows.
pub(super) struct ProbeScan {
    /// The bits of earlier scans. `None` in the first scan.
    before: Option<BitReader>,
    ends: RowEnds,
    /// `None` if the join has no condition.
    candidates: Option<Candidates>,
}

impl ProbeScan {
    /// Returns the only scan of some rows.
    pub(super) fn only(emitter: &mut Emitter<'_>) -> ProbeScan {
        let ends = RowEnds { is_last: true, after: None };
        ProbeScan { before: None, ends, candidates: emitter.take_candidates() }
    }

    /// Returns one of several scans of the same rows.
    pub(super) fn one_of_several(
        before: Option<BitReader>,
        after: Option<BitWriter>,
        is_last: bool,
        emitter: &mut Emitter<'_>,
    ) -> ProbeScan {
        ProbeScan { before, ends: RowEnds { is_last, after }, ..ProbeScan::only(emitter) }
    }

    /// Joins a probe row to the rows of a chunk with its key.
    #[inline]
    pub(super) async fn join_row(
        &mut self,
        chunk: &mut HashChunk,
        row: Row<'_>,
        same_key: SameKey,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let before = self.before.as_mut().map_or(Ok(false), BitReader::next)?;
        if self.candidates.is_some() {
            return self.collect(chunk, row, same_key, before, emitter).await;
        }
        let now = return_partners(chunk, row, same_key, emitter).await?;
        self.ends.end_row(row, Matched { before, now }, emitter).await
    }

    /// Adds a probe row and its candidates to the batch.
    async fn collect(
        &mut self,
        chunk: &mut HashChunk,
        row: Row<'_>,
        same_key: SameKey,
        before: bool,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let needs_all = emitter.returns_pairs() || emitter.marks_build();
        let is_decided = row.never_matches || (before && !needs_all);
        let mut matched = Matched { before, now: false };
        let mut next = if is_decided { None } else { same_key.first(chunk, row.key) };
        if next.is_none() && self.ends.after.is_none() {
            return self.ends.end_row(row, matched, emitter).await;
        }
        let is_needed = next.is_some() || self.ends.is_last;
        self.begin_row(chunk, row, is_needed, matched, emitter).await?;
        let (mut pairs, mut pairs_max) = (0, if needs_all { usize::MAX } else { FIRST_PAIRS });
        while let Some(cell) = next {
            emitter.count_row().await;
            if pairs >= pairs_max || self.candidates.as_ref().is_some_and(Candidates::is_full) {
                (pairs, pairs_max) = (0, pairs_max.saturating_mul(2));
                matched.now = self.decide(chunk, row, true, emitter).await?;
                if matched.now && !needs_all {
                    return self.ends.end_row(row, matched, emitter).await;
                }
                self.begin_row(chunk, row, true, matched, emitter).await?;
            }
            // If only marks of build rows count, a row with a mark needs no further partner.
            let is_needed = emitter.returns_pairs() || emitter.marks_probe() || !chunk.has_matched(cell);
            if let Some(candidates) = self.candidates.as_mut().filter(|_| is_needed) {
                candidates.push(RowPair { build: chunk.row(cell), probe: row }, cell);
            }
            pairs += 1;
            next = same_key.next(chunk, cell, row.key);
        }
        if self.candidates.as_ref().is_some_and(Candidates::needs_source) {
            self.decide(chunk, row, false, emitter).await?;
        }
        Ok(())
    }

    /// Adds a probe row to the batch. `is_needed` says whether the row itself is needed, and not only its
    /// bit.
    async fn begin_row(
        &mut self,
        chunk: &mut HashChunk,
        row: Row<'_>,
        is_needed: bool,
        matched: Matched,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let begin = |candidates: &mut Candidates| candidates.begin_row(row, is_needed, matched);
        if !self.candidates.as_mut().is_none_or(begin) {
            self.decide(chunk, row, false, emitter).await?;
            self.candidates.as_mut().map(begin);
        }
        Ok(())
    }

    /// Decides all candidates, and ends their probe rows. If `is_unfinished`, the last probe row has further
    /// candidates and does not end. Returns whether this row has a partner. `current` is the current row of
    /// the source.
    async fn decide(
        &mut self,
        chunk: &mut HashChunk,
        current: Row<'_>,
        is_unfinished: bool,
        emitter: &mut Emitter<'_>,
    ) -> Result<bool> {
        let Some(candidates) = &mut self.candidates else { return Ok(false) };
        emitter.make_room().await?;
        if candidates.pairs() > 0 {
            let (pairs, partners) = candidates.batch(chunk, current, emitter.build());
            emitter.decide(&pairs, partners)?;
        }
        for n in 0..candidates.pairs() {
            let Some((build, kept)) = candidates.partner(n) else { continue };
            if emitter.marks_build() {
                chunk.mark(build);
            }
            if emitter.returns_pairs() {
                let probe = candidates.probe_row(kept, current);
                emitter.pair(RowPair { build: chunk.row(build), probe })?;
                emitter.make_room().await?;
            }
        }
        let unfinished = usize::from(is_unfinished);
        let ended = candidates.probes().len().saturating_sub(unfinished);
        for probe in candidates.probes().iter().take(ended) {
            let row = candidates.probe_row(probe.kept, current);
            self.ends.end_row(row, probe.matched, emitter).await?;
        }
        let has_partner = candidates.probes().last().is_some_and(|probe| probe.matched.now);
        candidates.clear();
        Ok(has_partner)
    }

    /// Decides all candidates. After this, rows may be removed from the chunk.
    pub(super) async fn decide_all(
        &mut self,
        chunk: &mut HashChunk,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        self.decide(chunk, Row::new(&[], &[]), false, emitter).await?;
        Ok(())
    }

    /// Ends the scan. Returns the bits of the probe rows, if they are written.
    pub(super) async fn end(
        mut self,
        chunk: &mut HashChunk,
        emitter: &mut Emitter<'_>,
    ) -> Result<Option<RowList>> {
        self.decide_all(chunk, emitter).await?;
        emitter.return_candidates(self.candidates);
        self.ends.after.map(BitWriter::finish).transpose()
    }
}

/// Passes the pairs of a probe row to the emitter, in a join without a condition. Returns whether the row has
/// a partner.
#[inline]
async fn return_partners(
    chunk: &mut HashChunk,
    probe: Row<'_>,
    same_key: SameKey,
    emitter: &mut Emitter<'_>,
) -> Result<bool> {
    if probe.never_matches {
        return Ok(false);
    }
    let is_marked = emitter.marks_build();
    let mut has_partner = false;
    let mut next = same_key.first(chunk, probe.key);
    while let Some(cell) = next {
        has_partner = true;
        emitter.pair(RowPair { build: chunk.row(cell), probe })?;
        if is_marked {
            chunk.mark(cell);
        } else if !emitter.returns_pairs() {
            break;
        }
        emitter.make_room().await?;
        next = same_key.next(chunk, cell, probe.key);
    }
    Ok(has_partner)
}
