//! A region of persistent memory: a range of bytes. The program stores into it, writes cache lines back, and
//! waits with a fence.
//!
//! Invariants
//! 1. An aligned store of eight bytes is stored whole or not at all. Larger stores may be torn.
//! 2. A store is durable when its cache line was written back after the store, and a later fence has
//!    returned. Before that, each part of the store may or may not survive, because the processor can evict
//!    lines at any time.
//! 3. The region's name and length are durable when [`crate::Directory::map`] returns.

use serde::Deserialize;

use crate::error::Result;

/// The number of bytes of a cache line: the unit of writing back.
pub const LINE_BYTES: u64 = 64;
/// The number of bytes of a word, which is stored atomically.
pub const WORD_BYTES: usize = 8;

/// The suffix of the name of a region's file until the file is complete.
pub(crate) const UNFINISHED: &str = ".new";

/// The medium of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory, mapped without a page cache. Stores that were written back and fenced survive a
    /// power failure.
    Persistent,
    /// An ordinary shared mapping of a file. It survives the end of the process, but not the end of the
    /// machine.
    EmulatedByFile,
    /// Memory of the process, for tests.
    Memory,
}

impl Medium {
    /// Returns the name of the medium in reports.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Persistent => "persistent memory",
            Medium::EmulatedByFile => "emulated by a file",
            Medium::Memory => "memory of the process",
        }
    }
}

/// The instruction that writes a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// Writes a line back and keeps it in the cache.
    Clwb,
    /// Writes a line back and drops it from the cache. Only fences order these write-backs.
    ClflushOpt,
    /// Writes a line back and drops it from the cache. These write-backs are executed one after the other.
    Clflush,
    /// No instruction is needed, because the caches survive a power failure, or because the memory is not
    /// persistent anyway.
    FenceOnly,
}

impl WriteBack {
    /// Returns the name of the instruction in reports.
    pub fn name(self) -> &'static str {
        match self {
            WriteBack::Clwb => "clwb",
            WriteBack::ClflushOpt => "clflushopt",
            WriteBack::Clflush => "clflush",
            WriteBack::FenceOnly => "fence only",
        }
    }
}

/// Endurance and energy of the cells of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmCell {
    /// The number of writes until a cell is worn out.
    pub endurance_writes: u64,
    /// Energy for the access of a bit, in picojoules.
    pub energy_pj_per_bit: f64,
}

impl NvmCell {
    /// Returns the energy in joules for writing this number of lines back, if every bit of them is written.
    /// The energy is modelled, not measured.
    pub fn write_joules(&self, written_back_lines: u64) -> f64 {
        let bits = written_back_lines as f64 * (LINE_BYTES * 8) as f64;
        bits * self.energy_pj_per_bit * 1e-12
    }
}

/// The properties of a region.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionFacts {
    /// The medium of the region.
    pub medium: Medium,
    /// The instruction that writes lines back.
    pub write_back: WriteBack,
    /// Name of the profile whose latency and bandwidth the region emulates.
    pub emulates: Option<String>,
    /// Endurance and energy of the cells of the emulated medium, if its profile states them.
    pub cell: Option<NvmCell>,
    /// The boot of the machine until whose end the contents exist, as a number that is not 0. `None` if the
    /// contents survive a restart of the machine.
    pub boot: Option<u64>,
}

/// Exact counts since a region was mapped. Lines are counted because lines, not bytes, wear a medium out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionTally {
    /// The number of calls that read.
    pub loads_count: u64,
    /// The number of lines that these reads touched.
    pub loaded_lines: u64,
    /// The number of bytes that these calls read.
    pub loaded_bytes: u64,
    /// The number of calls that stored.
    pub stores_count: u64,
    /// The number of lines that these stores touched.
    pub stored_lines: u64,
    /// The number of bytes that these calls stored.
    pub stored_bytes: u64,
    /// The number of lines written back.
    pub written_back_lines: u64,
    /// The number of fences.
    pub fences_count: u64,
}

/// A mapped region. A fence waits for the write-backs of its own thread.
///
/// While a thread stores bytes, no other thread may store or read them, except by [`Region::store_word`] and
/// [`Region::load_word`]. The callers' locks ensure this. Ranges beyond the end are a programmer's error and
/// asserted.
pub trait Region: Send + Sync {
    /// Returns the length in bytes.
    fn len_bytes(&self) -> u64;
    /// Copies bytes out.
    fn read(&self, offset: u64, buf: &mut [u8]);
    /// Copies bytes in.
    fn store(&self, offset: u64, bytes: &[u8]);
    /// Begins to write back the lines that hold a range.
    fn write_back(&self, offset: u64, len_bytes: u64);
    /// Waits until everything that this thread wrote back before is durable.
    fn fence(&self);
    /// Returns the properties of the region.
    fn facts(&self) -> RegionFacts;
    /// Returns the counts since the region was mapped.
    fn tally(&self) -> RegionTally;
    /// If persistent memory is emulated, writes everything to the medium below the emulation. Otherwise does
    /// nothing, because fences have done this already. A clean shutdown calls this.
    fn settle(&self) -> Result<()>;

    /// Stores an aligned word (little endian) atomically. Other threads may load it at the same time.
    fn store_word(&self, offset: u64, value: u64) {
        assert_word(offset);
        self.store(offset, &value.to_le_bytes());
    }

    /// Loads an aligned word. Other threads may store it at the same time.
    fn load_word(&self, offset: u64) -> u64 {
        assert_word(offset);
        let mut word = [0; WORD_BYTES];
        self.read(offset, &mut word);
        u64::from_le_bytes(word)
    }

    /// Stores bytes and begins to write them back, in one pass if the processor can. Until the next fence of
    /// this thread, no thread may read or store these bytes.
    fn store_back(&self, offset: u64, bytes: &[u8]) {
        self.store(offset, bytes);
        self.write_back(offset, bytes.len() as u64);
    }

    /// Asks the processor to prefetch the lines of a range that will be read soon. The call is only a hint.
    /// It is not counted as a load, and a range beyond the end is ignored. The default implementation does
    /// nothing.
    fn prefetch(&self, _offset: u64, _len_bytes: u64) {}

    /// Makes a range durable.
    fn persist(&self, offset: u64, len_bytes: u64) {
        self.write_back(offset, len_bytes);
        self.fence();
    }
}

/// Asserts that a word is aligned. Only aligned words are stored atomically.
pub(crate) fn assert_word(offset: u64) {
    assert!(offset.is_multiple_of(WORD_BYTES as u64), "the word at {offset} is not aligned");
}

/// Asserts that a range lies within a region.
pub(crate) fn assert_within(region_bytes: u64, offset: u64, len_bytes: u64) {
    let is_within = offset.checked_add(len_bytes).is_some_and(|end| end <= region_bytes);
    assert!(is_within, "bytes {offset}..+{len_bytes} are not within a region of {region_bytes}");
}

/// Returns the numbers of the lines that contain a range.
pub(crate) fn lines(offset: u64, len_bytes: u64) -> std::ops::Range<u64> {
    offset / LINE_BYTES..(offset + len_bytes).div_ceil(LINE_BYTES)
}

/// Cuts a store into parts of one line each.
pub(crate) fn for_each_line(offset: u64, bytes: &[u8], mut part: impl FnMut(u64, &[u8])) {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let room = (LINE_BYTES - at % LINE_BYTES) as usize;
        let (head, tail) = rest.split_at(room.min(rest.len()));
        part(at, head);
        at += head.len() as u64;
        rest = tail;
    }
}
