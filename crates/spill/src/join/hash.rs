//! Grace and hybrid hash joins.
//!
//! The first phase divides both inputs into partitions by hashes of keys. In a hybrid join, one partition of
//! the build input stays in memory, and its probe rows are joined at once. The second phase joins the
//! partitions one by one.
//!
//! ```text
//!   divide build -> divide probe -> for each partition: one chunk?   -> join it
//!                                                       can be split -> divide it by another hash
//!                                                       else         -> block nested loops
//! ```
//!
//! Invariants
//! 1. A probe row is written only if its partition has build rows.
//! 2. If the partition in memory outgrows its memory, it becomes a partition on the drive.
//! 3. A partition is divided again only while this makes it smaller, and at most `DEPTH_MAX` times.
//! 4. The inputs are read once. If there is too little memory for partitions, the probe input is copied to a
//!    spool for block nested loops.
//!
//! Source: Do 2012, sections 2.3.3 to 2.3.5. The roles of a pair of partitions are exchanged if its probe
//! part is smaller (DeWitt and Gerber 1985). The thesis does not do this.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::allocation::{FUDGE, JoinPages, PartitionBuffers};
use crate::chunk::{CHUNK_ROW_BYTES, HashChunk};
use crate::error::{Result, SpillError};
use crate::memory::MemoryGrant;
use crate::reader::RowReader;
use crate::row::{Row, RowSource, hash};
use crate::space::{SpillPurpose, TemporaryFile};
use crate::writer::{RowList, RowWriter, WriterShape};

use super::emit::Emitter;
use super::nested_loops::{LoopsBuffers, return_chunk};
use super::probe_scan::{ProbeScan, SameKey};
use super::{InputSize, Join, JoinInput, JoinMethod, PartitionFiles, STRUCTURES_SHARE};

/// The maximum number of levels of partitions.
const DEPTH_MAX: u32 = 8;
/// The memory of a partition in addition to its buffer: a writer, and a list for each input.
const PARTITION_BYTES: usize = size_of::<RowWriter>() + 3 * size_of::<RowList>();
/// With fewer pages than this, inputs are not divided.
const PAGES_MIN: usize = 6;

/// Describes how one step divides its inputs.
struct Division {
    buffers: PartitionBuffers,
    /// Hashes below this belong to the partition in memory.
    resident_below: u64,
    seed: u64,
    file: Arc<TemporaryFile>,
    _grant: MemoryGrant,
}

impl Division {
    /// Returns the partition on the drive to which a hash belongs. The hash must not belong to the partition
    /// in memory.
    fn partition_of(&self, hash: u64) -> usize {
        let share = u128::from(hash - self.resident_below) * self.buffers.partitions as u128;
        (share / (u128::from(u64::MAX - self.resident_below) + 1)) as usize
    }

    fn is_resident(&self, hash: u64) -> bool {
        hash < self.resident_below || self.buffers.partitions == 0
    }

    /// Returns the number of the partition for rows that should stay in memory but do not fit.
    fn overflow(&self) -> usize {
        self.buffers.partitions
    }
}

/// The divided build input.
struct DividedBuild {
    lists: Vec<RowList>,
    /// The partition in memory, unless it has become a partition on the drive.
    chunk: Option<HashChunk>,
    /// The number of rows that can match.
    rows: u64,
}

/// The two parts of a partition.
struct Pair {
    build: RowList,
    probe: RowList,
}

impl RowList {
    fn size(&self) -> InputSize {
        InputSize { rows: self.rows, bytes: self.bytes }
    }

    /// Returns the memory of a chunk with all rows of the list.
    fn chunk_bytes(&self) -> usize {
        (self.bytes as usize).saturating_add(self.rows as usize * CHUNK_ROW_BYTES)
    }
}

impl Join {
    pub(super) async fn hash(
        &self,
        build: JoinInput<'_>,
        probe: JoinInput<'_>,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        if self.buffer_pages() < PAGES_MIN || self.partitions_max() < 2 {
            return self.nested_loops_of_copy(build, probe, emitter).await;
        }
        self.divide_and_join(build, probe, 1, emitter).await
    }

    /// Returns how the buffer is divided.
    pub(super) fn partition_buffers(&self, pages: JoinPages) -> PartitionBuffers {
        let is_blocked = self.pages_of_request(2) > 1;
        let mut buffers = match self.method {
            JoinMethod::Hybrid => pages.hybrid(is_blocked, self.partitions_max()),
            _ => pages.grace(self.partitions_max()),
        };
        if !is_blocked {
            (buffers.input, buffers.output) = (1, 1);
        }
        buffers
    }

    /// Returns the share of the rows that belong to the partition in memory.
    pub(super) fn resident_share(&self, buffers: PartitionBuffers, pages: JoinPages) -> f64 {
        let workspace = buffers.workspace.saturating_sub(buffers.output) as f64;
        match (self.method, buffers.partitions) {
            (JoinMethod::Hybrid, 0) => 1.0,
            (JoinMethod::Hybrid, _) => (workspace / (FUDGE * pages.build)).min(1.0),
            _ => 0.0,
        }
    }

    /// Returns the maximum number of partitions. It is limited by the memory for structures.
    fn partitions_max(&self) -> usize {
        (self.memory.left_bytes() / STRUCTURES_SHARE / PARTITION_BYTES).saturating_sub(1)
    }

    async fn divide_and_join(
        &self,
        build: JoinInput<'_>,
        probe: JoinInput<'_>,
        depth: u32,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let division = self.division(&build, &probe, depth)?;
        let divided = self.divide_build(build.source, &division, emitter).await?;
        let rows_before = if division.buffers.partitions == 0 { u64::MAX } else { divided.rows };
        let pairs = self.divide_probe(probe.source, &division, divided, emitter).await?;
        if depth == 1 {
            emitter.second_phase();
        }
        drop(division.file);
        emitter.divided(pairs.len());
        for pair in pairs {
            self.join_pair(pair, rows_before, depth, emitter).await?;
        }
        Ok(())
    }

    fn division(&self, build: &JoinInput<'_>, probe: &JoinInput<'_>, depth: u32) -> Result<Division> {
        let page_bytes = self.settings.page_bytes;
        // The readers of partitions also need memory for rows.
        let rows_bytes = build.source.memory_bytes(0).max(probe.source.memory_bytes(0));
        let mut pages = self.pages(build.size, probe.size);
        pages.buffer = pages.buffer.saturating_sub(rows_bytes.div_ceil(page_bytes)).max(PAGES_MIN / 2);
        let buffers = self.partition_buffers(pages);
        let resident = self.resident_share(buffers, pages);
        let _grant = self.memory.take((buffers.partitions + 1) * PARTITION_BYTES)?;
        let resident_below = (resident * u64::MAX as f64) as u64;
        let file = self.space.create(page_bytes)?;
        Ok(Division { buffers, resident_below, seed: u64::from(depth), file, _grant })
    }

    fn writer(&self, division: &Division) -> Result<RowWriter> {
        let page_bytes = self.settings.page_bytes;
        let shape = WriterShape::full(page_bytes, division.buffers.output, SpillPurpose::Partitions);
        match self.settings.partition_files {
            PartitionFiles::Shared => RowWriter::new(&division.file, &self.memory, shape),
            PartitionFiles::OneEach => RowWriter::new(&self.space.create(page_bytes)?, &self.memory, shape),
        }
    }

    fn writers(&self, division: &Division) -> Result<Vec<RowWriter>> {
        let mut writers = Vec::with_capacity(division.buffers.partitions + 1);
        for _ in 0..division.buffers.partitions {
            writers.push(self.writer(division)?);
        }
        Ok(writers)
    }

    async fn divide_build(
        &self,
        build: &mut dyn RowSource,
        division: &Division,
        emitter: &mut Emitter<'_>,
    ) -> Result<DividedBuild> {
        let page_bytes = self.settings.page_bytes;
        build.rewind(&self.memory, division.buffers.input * page_bytes)?;
        let mut writers = self.writers(division)?;
        let (mut chunk, mut rows) = (None, 0);
        if self.method == JoinMethod::Hybrid {
            // One output buffer is left for the overflow partition, which may be needed later.
            let workspace = division.buffers.workspace.saturating_sub(division.buffers.output);
            chunk = Some(HashChunk::new(&self.memory, workspace * page_bytes)?);
        }
        while emitter.advance(build).await? {
            let row = build.row();
            let hash = hash(row.key, division.seed);
            rows += u64::from(!row.never_matches);
            if row.never_matches {
                emitter.build_row(row, false)?;
                emitter.make_room().await?;
            } else if !division.is_resident(hash) {
                push(&mut writers, division.partition_of(hash), row)?;
            } else if let Some(resident) = &mut chunk {
                if !resident.load(row, hash) {
                    self.move_to_drive(chunk.take(), &mut writers, division)?;
                    push(&mut writers, division.overflow(), row)?;
                }
            } else {
                push(&mut writers, division.overflow(), row)?;
            }
        }
        build.release();
        if let Some(chunk) = &mut chunk {
            chunk.build();
        }
        let lists = writers.into_iter().map(RowWriter::finish).collect::<Result<_>>()?;
        Ok(DividedBuild { lists, chunk, rows })
    }

    /// Writes the partition in memory to a separate partition on the drive (invariant 2).
    fn move_to_drive(
        &self,
        chunk: Option<HashChunk>,
        writers: &mut Vec<RowWriter>,
        division: &Division,
    ) -> Result<()> {
        let Some(chunk) = chunk else { return Ok(()) };
        let mut writer = self.writer(division)?;
        let mut next = chunk.first_cell();
        while let Some(cell) = next {
            writer.push(chunk.row(cell))?;
            next = chunk.next_cell(cell);
        }
        writers.push(writer);
        Ok(())
    }

    async fn divide_probe(
        &self,
        probe: &mut dyn RowSource,
        division: &Division,
        build: DividedBuild,
        emitter: &mut Emitter<'_>,
    ) -> Result<Vec<Pair>> {
        let DividedBuild { lists, mut chunk, .. } = build;
        probe.rewind(&self.memory, division.buffers.input * self.settings.page_bytes)?;
        let mut writers = self.writers(division)?;
        if lists.len() > division.overflow() {
            writers.push(self.writer(division)?);
        }
        let mut scan = if chunk.is_some() { Some(ProbeScan::only(emitter)) } else { None };
        while emitter.advance(probe).await? {
            let row = probe.row();
            let hash = hash(row.key, division.seed);
            let is_resident = division.is_resident(hash);
            if is_resident && let (Some(chunk), Some(scan)) = (&mut chunk, &mut scan) {
                scan.join_row(chunk, row, SameKey::Bucket(hash), emitter).await?;
                continue;
            }
            let partition = if is_resident { division.overflow() } else { division.partition_of(hash) };
            if row.never_matches || lists.get(partition).is_none_or(|list| list.rows == 0) {
                emitter.probe_row(row, false)?;
                emitter.make_room().await?;
            } else {
                push(&mut writers, partition, row)?;
            }
        }
        probe.release();
        if let (Some(chunk), Some(scan)) = (&mut chunk, scan) {
            scan.end(chunk, emitter).await?;
            return_chunk(chunk, emitter).await?;
        }
        let probes = writers.into_iter().map(RowWriter::finish);
        lists.into_iter().zip(probes).map(|(build, probe)| Ok(Pair { build, probe: probe? })).collect()
    }

    /// Joins a pair of partitions.
    fn join_pair<'f>(
        &'f self,
        pair: Pair,
        rows_before: u64,
        depth: u32,
        emitter: &'f mut Emitter<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'f>> {
        // A pair may be divided again, so the future of a join contains futures of its own kind.
        Box::pin(async move {
            let is_swapped = pair.probe.bytes < pair.build.bytes && pair.probe.rows > 0;
            if !is_swapped {
                return self.join_parts(pair.build, pair.probe, rows_before, depth, emitter).await;
            }
            emitter.swap();
            let joined = self.join_parts(pair.probe, pair.build, rows_before, depth, emitter).await;
            emitter.swap();
            joined
        })
    }

    async fn join_parts(
        &self,
        build: RowList,
        probe: RowList,
        rows_before: u64,
        depth: u32,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        if build.rows == 0 || (probe.rows == 0 && !emitter.wants_build(false)) {
            return Ok(());
        }
        let page_bytes = self.settings.page_bytes;
        let chunk = build.chunk_bytes();
        let rows_bytes = RowReader::row_memory_bytes(&build) + RowReader::row_memory_bytes(&probe);
        let left_bytes = self.memory.left_bytes();
        let others_bytes = 4 * page_bytes + crate::bits::memory_bytes(page_bytes) + rows_bytes;
        let fits = chunk.saturating_add(others_bytes) <= left_bytes;
        let can_shrink = depth < DEPTH_MAX && build.rows < rows_before / 10 * 9;
        let (build_size, probe_size) = (build.size(), probe.size());
        let (mut build, mut probe) = (RowReader::new(build), RowReader::new(probe));
        let pages_min = PAGES_MIN + rows_bytes.div_ceil(page_bytes);
        let can_divide = self.buffer_pages() >= pages_min && self.partitions_max() >= 2;
        if !fits && can_shrink && can_divide {
            let build = JoinInput { source: &mut build, size: build_size };
            let probe = JoinInput { source: &mut probe, size: probe_size };
            return self.divide_and_join(build, probe, depth + 1, emitter).await;
        }
        let spare_bytes = left_bytes.saturating_sub(chunk.saturating_add(others_bytes)) / 2;
        let read = self.pages_of_request(1 + spare_bytes / page_bytes) * page_bytes;
        let buffers = LoopsBuffers { build_read: read, probe_read: read, chunk };
        self.scan_for_chunks(&mut build, &mut probe, buffers, emitter).await
    }
}

fn push(writers: &mut [RowWriter], partition: usize, row: Row<'_>) -> Result<()> {
    let writer = writers.get_mut(partition);
    writer.ok_or(SpillError::Defect("a row belongs to no partition"))?.push(row)
}
