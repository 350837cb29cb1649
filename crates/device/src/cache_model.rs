//! A model of the processor's cache in front of persistent memory. The model counts what a machine with such
//! memory would do: lines fetched, lines written back, blocks that the memory writes, and how often each line
//! is written.
//!
//! The counts depend only on the sequence of operations. So two runs of the same operations have the same
//! counts on any machine. Times are computed from the counts afterwards ([`CacheCounts::extra_ns`]). The
//! model does not wait.
//!
//! Invariants
//! 1. The cache is set-associative and write-back. It fetches a line before a part of the line is stored. In
//!    each set, the line that was used longest ago is evicted.
//! 2. A changed line reaches the memory in two cases only: it is written back by an instruction, or it is
//!    evicted from the cache.
//! 3. The memory writes blocks of [`MEDIUM_BLOCK_BYTES`]. A block waits in the memory's write buffer, and
//!    lines of the same block that arrive meanwhile are written with it. Each time a block enters the buffer,
//!    one write is counted.
//! 4. Every operation is passed to the region below without a change.
//!
//! Sources: the model of the cache is from Arulraj, Pavlo and Dulloor 2015, section 5 (their cache has 20
//! MB). The sizes of the block and of the buffer are from Yang et al., FAST 2020, section 4.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::nvm_profile::NvmProfile;
use crate::region::{self, LINE_BYTES, Region, RegionFacts, RegionTally, WORD_BYTES, WriteBack};

/// The number of bytes that the medium writes at once.
pub const MEDIUM_BLOCK_BYTES: u64 = 256;
/// The largest number of blocks that wait in the medium's buffer: together they have 16 KiB.
const BUFFERED_BLOCKS: usize = 64;
/// Counters of wear are allocated in chunks for this many lines, when the first line of a chunk is written.
const WEAR_CHUNK_LINES: usize = 1024;

/// Size and behaviour of the modelled cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheShape {
    /// The size of all lines, in bytes.
    pub bytes: u64,
    /// The number of lines of a set.
    pub ways: usize,
    /// What a write-back does to the line in the cache. `Clwb` writes the line back and keeps it. `Clflush`
    /// and `ClflushOpt` write it back and drop it. With `FenceOnly`, no line is written back.
    pub write_back: WriteBack,
}

impl CacheShape {
    /// The cache of the paper's platform: 20 MB, 20 ways.
    pub const PAPER: CacheShape =
        CacheShape { bytes: 20 * 1024 * 1024, ways: 20, write_back: WriteBack::Clwb };

    /// Returns one of `parts` equal parts of this cache, which has at least one set. `parts` is not 0.
    pub fn split(self, parts: u64) -> CacheShape {
        CacheShape { bytes: self.bytes / parts, ..self }
    }

    fn sets(&self) -> usize {
        ((self.bytes / LINE_BYTES) as usize / self.ways).max(1)
    }
}

/// Exact counts since the model was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// The number of lines that a read did not find in the cache.
    pub load_misses: u64,
    /// The number of lines that a store did not find in the cache, and fetched.
    pub store_misses: u64,
    /// Reads and stores that fetched lines, by the number of lines that each one fetched.
    pub fetches_by_lines: BTreeMap<u64, u64>,
    /// The number of changed lines that were evicted to make room for other lines.
    pub dirty_evictions: u64,
    /// The number of changed lines that were written back by an instruction.
    pub written_back_lines: u64,
    /// The number of unchanged lines for which a write-back instruction was executed. The instruction wrote
    /// nothing to the medium.
    pub clean_write_backs: u64,
    /// Fences, by the number of lines that they had to wait for.
    pub fences_by_lines: BTreeMap<u64, u64>,
    /// The number of blocks of [`MEDIUM_BLOCK_BYTES`] that the medium wrote, including the blocks that wait
    /// in its buffer.
    pub medium_writes: u64,
}

impl CacheCounts {
    /// Lines that were fetched from the medium.
    pub fn loaded_lines(&self) -> u64 {
        self.load_misses + self.store_misses
    }

    /// Returns the number of lines that reached the medium.
    pub fn stored_lines(&self) -> u64 {
        self.dirty_evictions + self.written_back_lines
    }

    /// Returns the number of all fences, including those that had no lines to wait for.
    pub fn fences(&self) -> u64 {
        self.fences_by_lines.values().sum()
    }

    /// Adds the counts of another user of the same machine.
    pub fn add(&mut self, other: &CacheCounts) {
        self.load_misses += other.load_misses;
        self.store_misses += other.store_misses;
        self.dirty_evictions += other.dirty_evictions;
        self.written_back_lines += other.written_back_lines;
        self.clean_write_backs += other.clean_write_backs;
        self.medium_writes += other.medium_writes;
        for (lines, fences) in &other.fences_by_lines {
            *self.fences_by_lines.entry(*lines).or_default() += fences;
        }
        for (lines, fetches) in &other.fetches_by_lines {
            *self.fetches_by_lines.entry(*lines).or_default() += fetches;
        }
    }

    /// Returns how many nanoseconds longer the counted operations take on the medium of `profile` than in
    /// main memory. Each fetched line takes the profile's extra latency. A fence with lines to wait for takes
    /// the longer of two times. One is the profile's time of a fence and of its lines; the other is the
    /// transfer of the lines at the profile's bandwidth. Evictions cost nothing, because no operation waits
    /// for them. The profile's cache is not used.
    pub fn extra_ns(&self, profile: &NvmProfile) -> f64 {
        self.loaded_lines() as f64 * profile.read_extra_ns + self.waits_ns(profile)
    }

    /// Returns the same time as [`CacheCounts::extra_ns`], but assumes that a processor fetches the lines of
    /// one access in parallel. The profile has the number of lines that are fetched at once
    /// (`parallel_lines`). [`CacheCounts::extra_ns`] assumes that the processor fetches one line after the
    /// other.
    pub fn overlapped_extra_ns(&self, profile: &NvmProfile) -> f64 {
        let fetch =
            |(lines, fetches): (&u64, &u64)| *fetches as f64 * profile.run_ns(*lines, profile.read_extra_ns);
        self.fetches_by_lines.iter().map(fetch).sum::<f64>() + self.waits_ns(profile)
    }

    fn waits_ns(&self, profile: &NvmProfile) -> f64 {
        let wait = |(lines, fences): (&u64, &u64)| *fences as f64 * wait_ns(profile, *lines);
        self.fences_by_lines.iter().map(wait).sum()
    }
}

/// Returns how long a fence waits for this number of lines, in nanoseconds.
fn wait_ns(profile: &NvmProfile, lines: u64) -> f64 {
    if lines == 0 {
        return 0.0;
    }
    let issue_ns = profile.run_ns(lines, profile.write_line_ns);
    let latency_ns = profile.persist_extra_ns + issue_ns;
    let transfer_ns = match profile.bandwidth_bytes_per_s {
        0.0 => 0.0,
        bandwidth => (lines * LINE_BYTES) as f64 * 1e9 / bandwidth,
    };
    latency_ns.max(transfer_ns)
}

/// How often lines of a region reached the medium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wear {
    /// The number of lines that reached the medium at least once.
    pub worn_lines: u64,
    /// How often lines reached the medium, for all lines together.
    pub writes: u64,
    /// How often the most worn line reached the medium.
    pub most_writes: u64,
    /// The offset of the first byte of the most worn line. If several lines have the most writes, it is the
    /// offset of the first of them.
    pub most_at: u64,
}

/// A region with a modelled cache of its own in front of it. One worker uses the region. The model does not
/// know threads: a fence waits for all lines that were written back since the last fence.
pub struct CachedRegion {
    inner: Arc<dyn Region>,
    model: Mutex<Model>,
}

impl CachedRegion {
    /// Puts an empty cache in front of `inner`.
    pub fn wrap(inner: Arc<dyn Region>, shape: CacheShape) -> Arc<CachedRegion> {
        let model = Mutex::new(Model::new(shape, inner.len_bytes()));
        Arc::new(CachedRegion { inner, model })
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> CacheCounts {
        self.model.lock().counts.clone()
    }

    /// Returns the wear of the lines so far.
    pub fn wear(&self) -> Wear {
        self.model.lock().wear.summary()
    }

    /// Sets the counts and the wear to 0. The lines stay in the cache. A measurement calls this after its
    /// data is loaded.
    pub fn restart_counts(&self) {
        let mut model = self.model.lock();
        model.counts = CacheCounts::default();
        model.wear.chunks.fill(None);
    }
}

impl Region for CachedRegion {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.inner.read(offset, buf);
        self.model.lock().load(offset, buf.len() as u64);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        self.model.lock().store(offset, bytes.len() as u64);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.inner.write_back(offset, len_bytes);
        self.model.lock().write_back(offset, len_bytes);
    }

    fn fence(&self) {
        self.inner.fence();
        self.model.lock().fence();
    }

    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.inner.store_word(offset, value);
        self.model.lock().store(offset, WORD_BYTES as u64);
    }

    fn load_word(&self, offset: u64) -> u64 {
        let value = self.inner.load_word(offset);
        self.model.lock().load(offset, WORD_BYTES as u64);
        value
    }

    /// Counts a store and its write-back, even if the real processor stores directly to the medium.
    fn store_back(&self, offset: u64, bytes: &[u8]) {
        self.inner.store_back(offset, bytes);
        let mut model = self.model.lock();
        model.store(offset, bytes.len() as u64);
        model.write_back(offset, bytes.len() as u64);
    }
}

/// The state of the cache and of the medium's buffer.
struct Model {
    cache: Cache,
    write_back: WriteBack,
    /// The number of lines that the next fence waits for.
    pending_lines: u64,
    buffer: BlockBuffer,
    counts: CacheCounts,
    wear: WearCounters,
}

impl Model {
    fn new(shape: CacheShape, region_bytes: u64) -> Model {
        Model {
            cache: Cache::new(shape.sets(), shape.ways),
            write_back: shape.write_back,
            pending_lines: 0,
            buffer: BlockBuffer::default(),
            counts: CacheCounts::default(),
            wear: WearCounters::new(region_bytes.div_ceil(LINE_BYTES)),
        }
    }

    fn load(&mut self, offset: u64, len_bytes: u64) {
        let misses = self.touch_all(offset, len_bytes, false);
        self.counts.load_misses += misses;
    }

    fn store(&mut self, offset: u64, len_bytes: u64) {
        let misses = self.touch_all(offset, len_bytes, true);
        self.counts.store_misses += misses;
    }

    /// Uses the lines of a range. Returns how many of them the cache had to fetch.
    fn touch_all(&mut self, offset: u64, len_bytes: u64, changes: bool) -> u64 {
        let misses = touched(offset, len_bytes).filter(|line| !self.touch(*line, changes)).count() as u64;
        if misses > 0 {
            *self.counts.fetches_by_lines.entry(misses).or_default() += 1;
        }
        misses
    }

    /// Uses a line. Returns whether the cache had it.
    fn touch(&mut self, line: u64, changes: bool) -> bool {
        match self.cache.touch(line, changes) {
            Touch::Hit => return true,
            Touch::Fetched { evicted: Some(changed) } => {
                self.counts.dirty_evictions += 1;
                self.arrive(changed);
            }
            Touch::Fetched { evicted: None } => {}
        }
        false
    }

    fn write_back(&mut self, offset: u64, len_bytes: u64) {
        if self.write_back == WriteBack::FenceOnly {
            return;
        }
        let keeps = self.write_back == WriteBack::Clwb;
        for line in touched(offset, len_bytes) {
            if self.cache.clean(line, keeps) {
                self.counts.written_back_lines += 1;
                self.pending_lines += 1;
                self.arrive(line);
            } else {
                self.counts.clean_write_backs += 1;
            }
        }
    }

    fn fence(&mut self) {
        let lines = std::mem::take(&mut self.pending_lines);
        *self.counts.fences_by_lines.entry(lines).or_default() += 1;
    }

    /// Counts a changed line that reaches the medium.
    fn arrive(&mut self, line: u64) {
        self.wear.count(line);
        self.counts.medium_writes += u64::from(self.buffer.enter(line * LINE_BYTES / MEDIUM_BLOCK_BYTES));
    }
}

/// Returns the lines of a range, or none if it is empty.
fn touched(offset: u64, len_bytes: u64) -> std::ops::Range<u64> {
    if len_bytes == 0 { 0..0 } else { region::lines(offset, len_bytes) }
}

/// The result of the use of a line.
enum Touch {
    Hit,
    /// The line was fetched. `evicted` is the changed line that made room for it, if there was one.
    Fetched {
        evicted: Option<u64>,
    },
}

/// A way of a set. Its value is 0 if it is empty. Otherwise it is twice the number of its line plus one, and
/// one more if the line is changed.
type Way = u64;

fn way(line: u64, is_changed: bool) -> Way {
    (line + 1) << 1 | u64::from(is_changed)
}

/// The lines in the cache. Within a set the line that was used last comes first.
struct Cache {
    ways: Box<[Way]>,
    ways_of_set: usize,
}

impl Cache {
    fn new(sets: usize, ways_of_set: usize) -> Cache {
        assert!(ways_of_set > 0, "a cache needs at least one way");
        Cache { ways: vec![0; sets * ways_of_set].into(), ways_of_set }
    }

    fn set(&mut self, line: u64) -> &mut [Way] {
        let sets = self.ways.len() / self.ways_of_set;
        let first = (line % sets as u64) as usize * self.ways_of_set;
        &mut self.ways[first..first + self.ways_of_set]
    }

    fn touch(&mut self, line: u64, changes: bool) -> Touch {
        let set = self.set(line);
        let at = set.iter().position(|held| held >> 1 == line + 1);
        let used = at.unwrap_or(set.len() - 1);
        let before = set[used];
        set.copy_within(0..used, 1);
        match at {
            Some(_) => {
                set[0] = before | u64::from(changes);
                Touch::Hit
            }
            None => {
                set[0] = way(line, changes);
                let is_changed = before & 1 == 1;
                Touch::Fetched { evicted: is_changed.then(|| (before >> 1) - 1) }
            }
        }
    }

    /// Marks a line as equal to the medium, and returns whether it was changed. If `keeps` is false, the line
    /// leaves the cache.
    fn clean(&mut self, line: u64, keeps: bool) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|held| held >> 1 == line + 1) else { return false };
        let was_changed = set[at] & 1 == 1;
        if keeps {
            set[at] = way(line, false);
        } else {
            set[at] = 0;
            set[at..].rotate_left(1);
        }
        was_changed
    }
}

/// The blocks that wait in the medium's buffer. The block that was used last is at the end.
#[derive(Default)]
struct BlockBuffer {
    blocks: VecDeque<u64>,
}

impl BlockBuffer {
    /// Takes a line of this block into the buffer. Returns whether the block was not in the buffer yet.
    fn enter(&mut self, block: u64) -> bool {
        let at = self.blocks.iter().rposition(|held| *held == block);
        match at {
            Some(at) => drop(self.blocks.remove(at)),
            None if self.blocks.len() == BUFFERED_BLOCKS => drop(self.blocks.pop_front()),
            None => {}
        }
        self.blocks.push_back(block);
        at.is_none()
    }
}

/// For each line, how often it reached the medium. The counters are in chunks that are allocated when they
/// are needed.
struct WearCounters {
    chunks: Vec<Option<Box<[u64; WEAR_CHUNK_LINES]>>>,
}

impl WearCounters {
    fn new(lines: u64) -> WearCounters {
        WearCounters { chunks: vec![None; (lines as usize).div_ceil(WEAR_CHUNK_LINES)] }
    }

    fn count(&mut self, line: u64) {
        let (chunk, at) = (line as usize / WEAR_CHUNK_LINES, line as usize % WEAR_CHUNK_LINES);
        self.chunks[chunk].get_or_insert_with(|| Box::new([0; WEAR_CHUNK_LINES]))[at] += 1;
    }

    fn summary(&self) -> Wear {
        let mut wear = Wear::default();
        let made = self.chunks.iter().enumerate().filter_map(|(no, chunk)| Some((no, chunk.as_deref()?)));
        let each = made.flat_map(|(no, chunk)| {
            chunk.iter().enumerate().map(move |(at, writes)| (no * WEAR_CHUNK_LINES + at, *writes))
        });
        for (line, writes) in each.filter(|(_, writes)| *writes > 0) {
            wear.worn_lines += 1;
            wear.writes += writes;
            if writes > wear.most_writes {
                (wear.most_writes, wear.most_at) = (writes, line as u64 * LINE_BYTES);
            }
        }
        wear
    }
}

#[cfg(test)]
mod tests;
