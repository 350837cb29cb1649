//! Block nested loops. The build input is loaded in chunks, each with a hash table, and the probe input is
//! scanned once for each chunk. The second phase of hash joins uses the same code, and each partition is
//! usually one chunk.
//!
//! Invariants
//! 1. If the build input is one chunk, the probe input is read once, and its rows are returned at once.
//! 2. Otherwise a list of bits in the temporary space contains which probe rows have matched. The list exists
//!    only if the kind of join needs it.

use crate::allocation::JoinPages;
use crate::bits::{self, BitReader, BitWriter};
use crate::chunk::{CHUNK_ROW_BYTES, Cell, HashChunk};
use crate::error::Result;
use crate::row::{RowSource, hash};
use crate::spool::{SpoolSettings, SpoolWriter};
use crate::writer::RowList;

use super::emit::Emitter;
use super::probe_scan::{ProbeScan, SameKey};
use super::{InputSize, Join, JoinInput};

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

/// Passes those rows of a chunk to the emitter that the kind of join returns alone.
pub(super) async fn return_chunk(chunk: &HashChunk, emitter: &mut Emitter<'_>) -> Result<()> {
    return_rows(chunk, chunk.end(), emitter).await
}

/// Does the same as [`return_chunk`], but only for the rows that were loaded before `end`.
pub(super) async fn return_rows(chunk: &HashChunk, end: Cell, emitter: &mut Emitter<'_>) -> Result<()> {
    let mut next = if emitter.marks_build() { chunk.first_cell() } else { None };
    while let Some(cell) = next.filter(|cell| *cell < end) {
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
        loop {
            let loaded = load(build, &mut chunk, &mut has_row, emitter).await?;
            if loaded == Loaded::All {
                build.release();
            }
            chunk.build();
            probe.rewind(&self.memory, buffers.probe_read)?;
            bits = self.scan_probe(probe, &mut chunk, bits, loaded == Loaded::All, emitter).await?;
            probe.release();
            return_chunk(&chunk, emitter).await?;
            if loaded == Loaded::All {
                return Ok(());
            }
            chunk.clear();
        }
    }

    /// Scans the probe input for one chunk. `bits` are those of the previous scan, if there was one. Returns
    /// the bits of the rows that have matched so far, unless this is the last scan.
    pub(super) async fn scan_probe(
        &self,
        probe: &mut dyn RowSource,
        chunk: &mut HashChunk,
        bits: Option<RowList>,
        is_last: bool,
        emitter: &mut Emitter<'_>,
    ) -> Result<Option<RowList>> {
        let page_bytes = self.settings.page_bytes;
        let open = |bits| BitReader::open(bits, &self.memory, page_bytes);
        let before = bits.map(open).transpose()?;
        let after = match emitter.marks_probe() && !is_last {
            true => Some(BitWriter::new(&self.space, &self.memory, page_bytes)?),
            false => None,
        };
        let mut scan = ProbeScan::one_of_several(before, after, is_last, emitter);
        while emitter.advance(probe).await? {
            let row = probe.row();
            scan.join_row(chunk, row, SameKey::Bucket(hash(row.key, SEED)), emitter).await?;
        }
        scan.end(chunk, emitter).await
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
