//! Sort-merge join. Both inputs are divided into sorted runs, and one merge of all runs joins them.
//!
//! Invariants
//! 1. Both merges together use the rest of the memory, with equal shares for all runs. A small part is left
//!    for rows with equal keys.
//! 2. If the build rows with one key do not fit in this part, they are joined in chunks. The probe rows with
//!    this key are then stored in a list in the temporary space.
//! 3. If the join has a condition, the build rows of several keys stay in memory, until no more fit. So a
//!    batch of candidates has pairs of many keys. If the build rows with one key do not fit, the rows with
//!    this key are joined in the same way as by block nested loops.
//!
//! Source: Do 2012, section 2.3.2.

use std::sync::Arc;

use crate::bits;
use crate::chunk::{Cell, HashChunk};
use crate::error::Result;
use crate::merge::{MergeShape, Merger, reduce};
use crate::reader::RowReader;
use crate::row::{RowSource, hash};
use crate::sort::{ListedRuns, RunMethod, SortSettings, Sorter};
use crate::space::SpillPurpose;
use crate::writer::{RowList, RowWriter, WriterShape};

use super::emit::Emitter;
use super::nested_loops::{SEED, return_chunk, return_rows};
use super::probe_scan::{ProbeScan, SameKey};
use super::{Join, JoinInput, RowPair, Side};

/// The memory divided by this number is left for rows with equal keys.
const GROUP_SHARE: usize = 16;

/// An input that is being merged.
struct Sorted {
    merger: Merger,
    has_row: bool,
}

impl Sorted {
    fn advance(&mut self) -> Result<()> {
        self.has_row = self.merger.advance()?;
        Ok(())
    }
}

/// Both inputs, which are being merged, and the memory for rows with equal keys.
struct Merging<'a, 'o> {
    join: &'a Join,
    build: Sorted,
    probe: Sorted,
    group: HashChunk,
    /// The first build row with the current key. Rows of earlier keys are before it, if the join has a
    /// condition.
    begin: Cell,
    /// The scan of all probe rows whose key has few build rows, if the join has a condition.
    scan: Option<ProbeScan>,
    emitter: &'a mut Emitter<'o>,
}

impl Join {
    pub(super) async fn sort_merge(
        &self,
        build: JoinInput<'_>,
        probe: JoinInput<'_>,
        emitter: &mut Emitter<'_>,
    ) -> Result<()> {
        let mut buffers = self.pages(build.size, probe.size).sort_merge(self.settings.times);
        buffers.input = self.pages_of_request(buffers.input);
        let build = self.sorted_runs(build, buffers.input, Side::Left, emitter).await?;
        let probe = self.sorted_runs(probe, buffers.input, Side::Right, emitter).await?;
        // The memory of the lists stays granted until all runs are read.
        let _lists = [build.grant, probe.grant];
        let (build, probe) = self.fewer_runs(build.runs, probe.runs, emitter)?;
        emitter.second_phase();
        self.merge(build, probe, emitter).await
    }

    fn sort_settings(&self, write_pages: usize) -> SortSettings {
        SortSettings {
            page_bytes: self.settings.page_bytes,
            write_pages,
            cluster_bytes: (self.pages_of_request(2) == 1).then_some(self.settings.page_bytes),
            runs: RunMethod::ReplacementSelection,
        }
    }

    /// Returns the memory for rows with equal keys and for a list of such rows.
    fn group_bytes(&self, row_bytes: usize, emitter: &Emitter<'_>) -> usize {
        self.list_bytes(row_bytes, emitter) + (self.memory.left_bytes() / GROUP_SHARE).max(2 * row_bytes + 64)
    }

    fn list_bytes(&self, row_bytes: usize, emitter: &Emitter<'_>) -> usize {
        let page_bytes = self.settings.page_bytes;
        let bits_bytes = if emitter.has_condition() { bits::memory_bytes(page_bytes) } else { 0 };
        3 * page_bytes + row_bytes + bits_bytes
    }

    /// Sorts an input into runs. `part` is `Left` for the build input.
    async fn sorted_runs(
        &self,
        input: JoinInput<'_>,
        pages: usize,
        part: Side,
        emitter: &mut Emitter<'_>,
    ) -> Result<ListedRuns> {
        input.source.rewind(&self.memory, pages * self.settings.page_bytes)?;
        let mut sorter = Sorter::new(&self.space, &self.memory, self.sort_settings(pages))?;
        while emitter.advance(input.source).await? {
            let row = input.source.row();
            match (row.never_matches, part) {
                (false, _) => sorter.push(row)?,
                (true, Side::Left) => emitter.build_row(row, false)?,
                (true, Side::Right) => emitter.probe_row(row, false)?,
            }
            emitter.make_room().await?;
        }
        input.source.release();
        sorter.into_runs(0)
    }

    /// Merges runs of the input that has more runs, until one merge can read all runs.
    fn fewer_runs(
        &self,
        build: Vec<RowList>,
        probe: Vec<RowList>,
        emitter: &Emitter<'_>,
    ) -> Result<(Vec<RowList>, Vec<RowList>)> {
        let shape = self.sort_settings(self.pages_of_request(32)).merge_shape();
        let all: Vec<RowList> = build.iter().chain(&probe).cloned().collect();
        let row_bytes = row_bytes_max(&all);
        let left_bytes = self.memory.left_bytes().saturating_sub(self.group_bytes(row_bytes, emitter));
        let fan_in = shape.fan_in(&all, left_bytes);
        if all.len() <= fan_in {
            return Ok((build, probe));
        }
        drop(all);
        let least = (fan_in / 2).max(1);
        let (for_build, for_probe) = if build.len() <= least {
            (build.len(), fan_in.saturating_sub(build.len()))
        } else if probe.len() <= least {
            (fan_in.saturating_sub(probe.len()), probe.len())
        } else {
            (least, fan_in.saturating_sub(least))
        };
        let few = |runs, most: usize| reduce(runs, &self.space, &self.memory, shape, move |_| most);
        Ok((few(build, for_build)?, few(probe, for_probe)?))
    }

    async fn merge(&self, build: Vec<RowList>, probe: Vec<RowList>, emitter: &mut Emitter<'_>) -> Result<()> {
        let row_bytes = row_bytes_max(&build).max(row_bytes_max(&probe));
        let group_bytes = self.group_bytes(row_bytes, emitter);
        let chunk_bytes = group_bytes - self.list_bytes(row_bytes, emitter);
        let group = HashChunk::new(&self.memory, chunk_bytes)?;
        let left_bytes = self.memory.left_bytes().saturating_sub(group_bytes - chunk_bytes);
        let all: Vec<RowList> = build.iter().chain(&probe).cloned().collect();
        let shape = self.sort_settings(1).merge_shape();
        let shape = MergeShape { cluster_bytes: Some(shape.cluster_of(&all, left_bytes)), ..shape };
        drop(all);
        let open = |runs| Merger::new(runs, &self.memory, shape, 0, SpillPurpose::Runs);
        let build = Sorted { merger: open(build)?, has_row: false };
        let probe = Sorted { merger: open(probe)?, has_row: false };
        let scan = if emitter.has_condition() { Some(ProbeScan::only(emitter)) } else { None };
        Merging { join: self, build, probe, group, begin: Cell::FIRST, scan, emitter }.run().await
    }
}

fn row_bytes_max(runs: &[RowList]) -> usize {
    runs.iter().map(|run| run.row_bytes_max).max().unwrap_or(0)
}

impl Merging<'_, '_> {
    async fn run(mut self) -> Result<()> {
        self.build.advance()?;
        self.probe.advance()?;
        while self.build.has_row && self.probe.has_row {
            self.emitter.count_row().await;
            match self.build.merger.row().key.cmp(self.probe.merger.row().key) {
                std::cmp::Ordering::Less => self.build_alone().await?,
                std::cmp::Ordering::Greater => self.probe_alone().await?,
                std::cmp::Ordering::Equal if self.emitter.has_condition() => self.join_group_if().await?,
                std::cmp::Ordering::Equal => self.join_group().await?,
            }
        }
        self.begin = self.group.end();
        self.end_groups().await?;
        while self.build.has_row && self.emitter.wants_build(false) {
            self.build_alone().await?;
        }
        while self.probe.has_row && self.emitter.wants_probe(false) {
            self.probe_alone().await?;
        }
        Ok(())
    }

    async fn build_alone(&mut self) -> Result<()> {
        self.emitter.build_row(self.build.merger.row(), false)?;
        self.emitter.count_row().await;
        self.emitter.make_room().await?;
        self.build.advance()
    }

    async fn probe_alone(&mut self) -> Result<()> {
        self.emitter.probe_row(self.probe.merger.row(), false)?;
        self.emitter.count_row().await;
        self.emitter.make_room().await?;
        self.probe.advance()
    }

    /// Joins the rows of both inputs with the current key.
    async fn join_group(&mut self) -> Result<()> {
        self.group.clear();
        let is_whole = self.load_group(true).await?;
        let list = if is_whole { None } else { Some(self.list_writer()?) };
        let list = self.scan_probe_group(list).await?;
        let Some(list) = list else { return Ok(()) };
        // There are more build rows with this key. The probe rows with this key are in the list.
        loop {
            let key_is_done = self.next_chunk_of_group(true).await?;
            if self.emitter.returns_pairs() {
                self.join_list(&list).await?;
            }
            if key_is_done {
                return Ok(());
            }
        }
    }

    /// Returns whether the current build row has the key of the group.
    fn is_in_group(&self) -> bool {
        let key = self.group.first_from(self.begin).map(|cell| self.group.row(cell).key);
        self.build.has_row && key.is_none_or(|key| key == self.build.merger.row().key)
    }

    /// Loads build rows with one key. Returns false if more rows with this key are left. `have_partners` is
    /// true if the rows are known to have partners.
    async fn load_group(&mut self, have_partners: bool) -> Result<bool> {
        while self.is_in_group() {
            let row = self.build.merger.row();
            // All hashes are equal, so all rows are in one bucket.
            if !self.group.load(row, hash(row.key, SEED)) {
                if self.begin > Cell::FIRST {
                    self.end_groups().await?;
                    continue;
                }
                return if self.group.is_empty() { Err(self.group.too_small(row)) } else { Ok(false) };
            }
            if have_partners {
                self.emitter.build_row(row, true)?;
                self.emitter.make_room().await?;
            }
            self.build.advance()?;
        }
        Ok(true)
    }

    /// Replaces the rows in memory by more build rows with the same key. Returns true if these are the last
    /// ones.
    async fn next_chunk_of_group(&mut self, have_partners: bool) -> Result<bool> {
        // The current row has this key, because it was refused only when the chunk was full.
        self.group.clear();
        self.load_group(have_partners).await
    }

    /// Joins the rows of both inputs with the current key, if the join has a condition.
    async fn join_group_if(&mut self) -> Result<()> {
        self.begin = self.group.end();
        if self.load_group(false).await? {
            return self.join_whole_group_if().await;
        }
        // The group is alone in memory.
        if let Some(scan) = self.scan.take() {
            scan.end(&mut self.group, self.emitter).await?;
        }
        let Some(list) = self.probe_group_to_list().await? else { return Ok(()) };
        self.scan_list(list).await?;
        self.group.clear();
        self.scan = Some(ProbeScan::only(self.emitter));
        Ok(())
    }

    /// Joins the probe rows in a list to the chunks of build rows with the same key.
    async fn scan_list(&mut self, list: RowList) -> Result<()> {
        let Join { memory, settings, .. } = self.join;
        let mut reader = RowReader::new(list);
        let (mut bits, mut is_last) = (None, false);
        loop {
            self.group.build();
            reader.rewind(memory, settings.page_bytes)?;
            bits = self.join.scan_probe(&mut reader, &mut self.group, bits, is_last, self.emitter).await?;
            reader.release();
            return_chunk(&self.group, self.emitter).await?;
            if is_last {
                return Ok(());
            }
            is_last = self.next_chunk_of_group(false).await?;
        }
    }

    /// Joins the rows of both inputs with the current key, if the join has a condition and all build rows
    /// with this key are in memory.
    async fn join_whole_group_if(&mut self) -> Result<()> {
        let Some(first) = self.group.first_from(self.begin) else { return Ok(()) };
        while self.probe.has_row && self.group.row(first).key == self.probe.merger.row().key {
            let probe = self.probe.merger.row();
            if let Some(scan) = &mut self.scan {
                scan.join_row(&mut self.group, probe, SameKey::From(first), self.emitter).await?;
            }
            self.emitter.count_row().await;
            self.probe.advance()?;
        }
        Ok(())
    }

    /// Decides all candidates, and removes the build rows of earlier keys from memory.
    async fn end_groups(&mut self) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        scan.decide_all(&mut self.group, self.emitter).await?;
        return_rows(&self.group, self.begin, self.emitter).await?;
        self.group.remove_before(self.begin);
        self.begin = Cell::FIRST;
        Ok(())
    }

    /// Writes the probe rows with the current key to a list.
    async fn probe_group_to_list(&mut self) -> Result<Option<RowList>> {
        let Some(first) = self.group.first_cell() else { return Ok(None) };
        let mut list = self.list_writer()?;
        while self.probe.has_row && self.group.row(first).key == self.probe.merger.row().key {
            list.push(self.probe.merger.row())?;
            self.emitter.count_row().await;
            self.probe.advance()?;
        }
        list.finish().map(Some)
    }

    fn list_writer(&self) -> Result<RowWriter> {
        let Join { space, memory, settings, .. } = self.join;
        let file = space.create(settings.page_bytes)?;
        RowWriter::new(&file, memory, WriterShape::full(settings.page_bytes, 1, SpillPurpose::Lists))
    }

    /// Joins the probe rows with this key to the rows in memory. Adds them to the list if there is one.
    async fn scan_probe_group(&mut self, mut list: Option<RowWriter>) -> Result<Option<RowList>> {
        let Some(first) = self.group.first_cell() else { return Ok(None) };
        while self.probe.has_row && self.group.row(first).key == self.probe.merger.row().key {
            let probe = self.probe.merger.row();
            let mut next = if self.emitter.returns_pairs() { Some(first) } else { None };
            while let Some(cell) = next {
                self.emitter.pair(RowPair { build: self.group.row(cell), probe })?;
                self.emitter.make_room().await?;
                next = self.group.next_cell(cell);
            }
            self.emitter.probe_row(probe, true)?;
            self.emitter.count_row().await;
            self.emitter.make_room().await?;
            if let Some(list) = &mut list {
                list.push(probe)?;
            }
            self.probe.advance()?;
        }
        list.map(RowWriter::finish).transpose()
    }

    async fn join_list(&mut self, list: &RowList) -> Result<()> {
        let memory: &Arc<_> = &self.join.memory;
        let page_bytes = self.join.settings.page_bytes;
        let mut reader = RowReader::open(list.clone(), memory, page_bytes, SpillPurpose::Lists)?;
        while self.emitter.advance(&mut reader).await? {
            let mut next = self.group.first_cell();
            while let Some(cell) = next {
                self.emitter.pair(RowPair { build: self.group.row(cell), probe: reader.row() })?;
                self.emitter.make_room().await?;
                next = self.group.next_cell(cell);
            }
        }
        Ok(())
    }
}
