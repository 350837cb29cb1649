//! Block nested loops: chunks of the build input with a hash table each, and a scan of the probe input for
//! each chunk. It is also the second phase of hash joins, whose partitions usually are one chunk.
//!
//! Invariants
//! 1. If the build input is one chunk, the probe input is read once, and its rows are returned at once.
//! 2. Otherwise a list of bits in the temporary space knows which probe rows have matched. It exists only if
//!    the kind of join needs it.

use crate::allocation::JoinPages;
use crate::bits::{self, BitReader, BitWriter};
use crate::chunk::HashChunk;
use crate::error::Result;
use crate::row::{RowSource, hash};
use crate::writer::RowList;

use super::emit::Emitter;
use super::{Join, JoinInput, RowPair};

/// Seed of the hashes in tables. Partitions use other ones.
const SEED: u64 = 0;
/// Pages of a request that reads the build input while a chunk is loaded.
const BUILD_READ_PAGES: usize = 8;

/// Memory of block nested loops, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoopsBuffers {
    /// The buffer that reads the build input.
    pub build_read: usize,
    /// The buffer that reads the probe input.
    pub probe_read: usize,
    /// Rows of the build input, and their table.
    pub chunk: usize,
}

/// Whether the build input has more rows than the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    All,
    SomeAreLeft,
}

/// Which scan of the probe input this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scan {
    is_first: bool,
    is_last: bool,
}

/// Looks a probe row up in a chunk, and returns its pairs. Returns whether it has a partner.
#[inline]
pub(super) fn probe_chunk(
    chunk: &mut HashChunk,
    probe: crate::row::Row<'_>,
    probe_hash: u64,
    emitter: &mut Emitter<'_>,
) -> Result<bool> {
    if probe.never_matches {
        return Ok(false);
    }
    let is_marked = emitter.marks_build();
    let first = chunk.find(probe_hash, probe.key);
    let mut next = first;
    while let Some(cell) = next {
        emitter.pair(RowPair { build: chunk.row(cell), probe })?;
        if is_marked {
            chunk.mark(cell);
        } else if !emitter.returns_pairs() {
            break;
        }
        next = chunk.find_next(cell, probe_hash, probe.key);
    }
    Ok(first.is_some())
}

/// Returns the rows of a chunk that the kind of join returns alone.
pub(super) fn return_chunk(chunk: &HashChunk, emitter: &mut Emitter<'_>) -> Result<()> {
    let mut next = if emitter.marks_build() { chunk.first_cell() } else { None };
    while let Some(cell) = next {
        emitter.build_row(chunk.row(cell), chunk.has_matched(cell))?;
        next = chunk.next_cell(cell);
    }
    Ok(())
}

impl Join {
    pub(super) fn nested_loops(
        &self,
        build: JoinInput<'_>,
        probe: JoinInput<'_>,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let buffers = self.nested_loops_buffers(self.pages(build.size, probe.size));
        self.scan_for_chunks(build.source, probe.source, buffers, emitter)
    }

    /// How the memory is divided.
    pub(super) fn nested_loops_buffers(&self, pages: JoinPages) -> LoopsBuffers {
        let page_bytes = self.settings.page_bytes;
        let inner = pages.nested_loops(self.settings.times, page_bytes).inner;
        let inner = self.pages_of_request(inner);
        let outer = self.pages_of_request(BUILD_READ_PAGES.min(pages.buffer / 8).max(1));
        LoopsBuffers { build_read: outer * page_bytes, probe_read: inner * page_bytes, chunk: usize::MAX }
    }

    /// Joins with chunks of at most the size that the buffers say.
    pub(super) fn scan_for_chunks(
        &self,
        build: &mut dyn RowSource,
        probe: &mut dyn RowSource,
        buffers: LoopsBuffers,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        build.rewind(&self.memory, buffers.build_read)?;
        let bits_bytes = if emitter.marks_probe() { bits::memory_bytes(self.settings.page_bytes) } else { 0 };
        let others_bytes = probe.memory_bytes(buffers.probe_read) + bits_bytes;
        let most_bytes = self.memory.left_bytes().saturating_sub(others_bytes);
        let mut chunk = HashChunk::new(&self.memory, buffers.chunk.min(most_bytes))?;
        let mut bits: Option<RowList> = None;
        let mut has_row = advance_matching(build, emitter)?;
        let mut is_first = true;
        loop {
            let loaded = load(build, &mut chunk, &mut has_row, emitter)?;
            if loaded == Loaded::All {
                build.release();
            }
            chunk.build();
            probe.rewind(&self.memory, buffers.probe_read)?;
            let scan = Scan { is_first, is_last: loaded == Loaded::All };
            bits = self.scan_probe(probe, &mut chunk, bits, scan, emitter)?;
            probe.release();
            return_chunk(&chunk, emitter)?;
            if loaded == Loaded::All {
                return Ok(());
            }
            chunk.clear();
            is_first = false;
        }
    }

    /// Scans the probe input for one chunk. Returns the bits of the rows that have matched so far.
    fn scan_probe(
        &self,
        probe: &mut dyn RowSource,
        chunk: &mut HashChunk,
        bits: Option<RowList>,
        scan: Scan,
        emitter: &mut Emitter<'_>,
    ) -> Result<Option<RowList>> {
        let page_bytes = self.settings.page_bytes;
        let has_bits = emitter.marks_probe() && !(scan.is_first && scan.is_last);
        let mut before = BitReader::new(bits, &self.memory, page_bytes)?;
        let mut after = match has_bits && !scan.is_last {
            true => Some(BitWriter::new(&self.space, &self.memory, page_bytes)?),
            false => None,
        };
        while probe.advance()? {
            let row = probe.row();
            let has_partner = probe_chunk(chunk, row, hash(row.key, SEED), emitter)?;
            let had_partner = has_bits && before.next()?;
            if let Some(after) = &mut after {
                after.push(has_partner || had_partner)?;
            }
            if has_partner && !had_partner {
                emitter.probe_row(row, true)?;
            }
            if scan.is_last && !has_partner && !had_partner {
                emitter.probe_row(row, false)?;
            }
        }
        after.map(BitWriter::finish).transpose()
    }
}

/// Goes to the next build row that can match; returns the others on the way.
fn advance_matching(build: &mut dyn RowSource, emitter: &mut Emitter<'_>) -> Result<bool> {
    while build.advance()? {
        if !build.row().never_matches {
            return Ok(true);
        }
        emitter.build_row(build.row(), false)?;
    }
    Ok(false)
}

/// Fills a chunk. `has_row`: the source is at a row that is not loaded yet.
fn load(
    build: &mut dyn RowSource,
    chunk: &mut HashChunk,
    has_row: &mut bool,
    emitter: &mut Emitter<'_>,
) -> Result<Loaded> {
    while *has_row {
        let row = build.row();
        if !chunk.load(row, hash(row.key, SEED)) {
            return if chunk.is_empty() { Err(chunk.too_small(row)) } else { Ok(Loaded::SomeAreLeft) };
        }
        *has_row = advance_matching(build, emitter)?;
    }
    Ok(Loaded::All)
}
