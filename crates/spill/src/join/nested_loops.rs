//! Block nested loops. The build input is loaded in chunks, each with a hash table, and the probe input is
//! scanned once for each chunk. This is also the second phase of hash joins, where each partition is usually
//! one chunk.
//!
//! Invariants
//! 1. If the build input is one chunk, the probe input is read once, and its rows are returned at once.
//! 2. Otherwise a list of bits in the temporary space contains which probe rows have matched. The list exists
//!    only if the kind of join needs it.

use crate::allocation::JoinPages;
use crate::bits::{self, BitReader, BitWriter};
use crate::chunk::{CHUNK_ROW_BYTES, HashChunk};
use crate::error::Result;
use crate::row::{RowSource, hash};
use crate::spool::{SpoolSettings, SpoolWriter};
use crate::writer::RowList;

use super::emit::Emitter;
use super::{InputSize, Join, JoinInput, RowPair};

/// The seed of the hashes in hash tables. Partitions use other seeds.
pub(super) const SEED: u64 = 0;
/// The maximum number of pages of a request that reads the build input while a chunk is loaded.
const BUILD_READ_PAGES: usize = 8;

/// The memory of block nested loops, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoopsBuffers {
    /// The buffer that reads the build input.
    pub build_read: usize,
    /// The buffer that reads the probe input.
    pub probe_read: usize,
    /// The maximum size of a chunk of the build input with its hash table.
    pub chunk: usize,
}

/// Whether the build input has more rows than the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    All,
    SomeAreLeft,
}

/// Whether this is the first or the last scan of the probe input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan {
    pub is_first: bool,
    pub is_last: bool,
}

/// Looks up a probe row in a chunk, and passes its pairs to the emitter. Returns whether the row has a
/// partner.
#[inline]
pub(super) async fn probe_chunk(
    chunk: &mut HashChunk,
    probe: crate::row::Row<'_>,
    probe_hash: u64,
    emitter: &mut Emitter<'_>,
) -> Result<bool> {
    if probe.never_matches {
        return Ok(false);
    }
    let is_marked = emitter.marks_build();
    let mut has_partner = false;
    let mut next = chunk.find(probe_hash, probe.key);
    while let Some(cell) = next {
        let pair = RowPair { build: chunk.row(cell), probe };
        if emitter.has_condition() {
            // Pairs that the condition rules out fill no output.
            emitter.count_row().await;
        }
        if emitter.are_partners(pair)? {
            has_partner = true;
            emitter.pair(pair)?;
            if is_marked {
                chunk.mark(cell);
            } else if !emitter.returns_pairs() {
                break;
            }
            emitter.make_room().await?;
        }
        next = chunk.find_next(cell, probe_hash, probe.key);
    }
    Ok(has_partner)
}

/// Passes those rows of a chunk to the emitter that the kind of join returns alone.
pub(super) async fn return_chunk(chunk: &HashChunk, emitter: &mut Emitter<'_>) -> Result<()> {
    let mut next = if emitter.marks_build() { chunk.first_cell() } else { None };
    while let Some(cell) = next {
        emitter.build_row(chunk.row(cell), chunk.has_matched(cell))?;
        emitter.make_room().await?;
        next = chunk.next_cell(cell);
    }
    Ok(())
}

impl Join {
    pub(super) async fn nested_loops(
        &self,
        build: JoinInput<'_>,
        probe: JoinInput<'_>,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let buffers = self.nested_loops_buffers(self.pages(build.size, probe.size));
        if !probe.source.can_rewind() && !self.is_one_chunk(&build, &probe, buffers) {
            return self.nested_loops_of_copy(build, probe, emitter).await;
        }
        self.scan_for_chunks(build.source, probe.source, buffers, emitter).await
    }

    /// Returns whether the build input is one chunk, if it has its expected size. If it needs a second chunk,
    /// a probe input that cannot be rewound causes an error. So a tenth of the chunk is left free.
    fn is_one_chunk(&self, build: &JoinInput<'_>, probe: &JoinInput<'_>, buffers: LoopsBuffers) -> bool {
        let others_bytes = build.source.memory_bytes(buffers.build_read)
            + probe.source.memory_bytes(buffers.probe_read)
            + bits::memory_bytes(self.settings.page_bytes);
        let chunk_bytes =
            build.size.bytes.saturating_add(build.size.rows.saturating_mul(CHUNK_ROW_BYTES as u64));
        chunk_bytes / 9 * 10 < self.memory.left_bytes().saturating_sub(others_bytes) as u64
    }

    /// Runs block nested loops over a copy of the probe input, because the probe input may be readable only
    /// once.
    pub(super) async fn nested_loops_of_copy(
        &self,
        build: JoinInput<'_>,
        probe: JoinInput<'_>,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let page_bytes = self.settings.page_bytes;
        probe.source.rewind(&self.memory, page_bytes)?;
        let settings = SpoolSettings { page_bytes, write_pages: 1, fill_percent: 100 };
        let mut spool = SpoolWriter::new(&self.space, &self.memory, settings)?;
        while emitter.advance(probe.source).await? {
            spool.push(probe.source.row())?;
        }
        probe.source.release();
        let mut spool = spool.finish()?;
        let size = InputSize { rows: spool.rows(), bytes: spool.bytes() };
        let buffers = self.nested_loops_buffers(self.pages(build.size, size));
        self.scan_for_chunks(build.source, &mut spool, buffers, emitter).await
    }

    /// Returns how the memory is divided.
    pub(super) fn nested_loops_buffers(&self, pages: JoinPages) -> LoopsBuffers {
        let page_bytes = self.settings.page_bytes;
        let inner = pages.nested_loops(self.settings.times, page_bytes).inner;
        let inner = self.pages_of_request(inner);
        let outer = self.pages_of_request(BUILD_READ_PAGES.min(pages.buffer / 8).max(1));
        LoopsBuffers { build_read: outer * page_bytes, probe_read: inner * page_bytes, chunk: usize::MAX }
    }

    /// Joins the inputs. The chunks have at most the size that `buffers` contains.
    pub(super) async fn scan_for_chunks(
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
        let mut has_row = advance_matching(build, emitter).await?;
        let mut is_first = true;
        loop {
            let loaded = load(build, &mut chunk, &mut has_row, emitter).await?;
            if loaded == Loaded::All {
                build.release();
            }
            chunk.build();
            probe.rewind(&self.memory, buffers.probe_read)?;
            let scan = Scan { is_first, is_last: loaded == Loaded::All };
            bits = self.scan_probe(probe, &mut chunk, bits, scan, emitter).await?;
            probe.release();
            return_chunk(&chunk, emitter).await?;
            if loaded == Loaded::All {
                return Ok(());
            }
            chunk.clear();
            is_first = false;
        }
    }

    /// Scans the probe input for one chunk. Returns the bits of the rows that have matched so far.
    pub(super) async fn scan_probe(
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
        while emitter.advance(probe).await? {
            let row = probe.row();
            let has_partner = probe_chunk(chunk, row, hash(row.key, SEED), emitter).await?;
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
            emitter.make_room().await?;
        }
        after.map(BitWriter::finish).transpose()
    }
}

/// Moves to the next build row that can match. Rows before it cannot match, and are passed to the emitter.
async fn advance_matching(build: &mut dyn RowSource, emitter: &mut Emitter<'_>) -> Result<bool> {
    while emitter.advance(build).await? {
        if !build.row().never_matches {
            return Ok(true);
        }
        emitter.build_row(build.row(), false)?;
        emitter.make_room().await?;
    }
    Ok(false)
}

/// Fills a chunk. `has_row` is true if the source is at a row that is not loaded yet.
async fn load(
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
        *has_row = advance_matching(build, emitter).await?;
    }
    Ok(Loaded::All)
}
