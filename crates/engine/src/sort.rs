//! Sorts (key, value) pairs that may not fit in memory. Sorted runs are written to a file on the temporary
//! device and then merged.
//!
//! Layout of a run, little endian: for each pair key length u32, value length u32, key, value. The run ends
//! where the next begins. The last block of a run is filled with zeros.
//!
//! Invariants
//! 1. Pairs are returned in the order of their keys. Pairs with equal keys have no particular order.
//! 2. The file is removed with the sorter or the sorted pairs. After a crash the next start removes it.
//! 3. Pairs in memory are stored one after the other in one buffer ([`Arena`]), without an allocation for
//!    each pair.
//!
//! Source of the two-pass merge: Graefe, "Implementing Sorting in Database Systems" (2006).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_device::{AlignedBuf, BlockFile, Directory, Durability, OpenHow, Purpose, Space};
use varve_pager::PagerError;

use crate::error::{Error, Result};

/// Memory limit for pairs.
const BUDGET_BYTES: usize = 48 << 20;
/// Unit of reading and writing runs.
const BLOCK_BYTES: usize = 256 << 10;
/// Memory that a pair takes in addition to its bytes.
const PAIR_BYTES: usize = size_of::<Slot>();
/// Upper limit of any memory budget, because offsets in an arena are `u32`.
const ARENA_BYTES_MAX: usize = 1 << 30;
const PREFIX: &str = "sort-";

static FILES: AtomicU64 = AtomicU64::new(0);

type Pair = (Vec<u8>, Vec<u8>);

/// Removes the files that a crash has left.
pub(crate) fn clean(temporary: &Arc<dyn Directory>) -> Result<()> {
    for name in temporary.list().map_err(PagerError::from)? {
        if name.starts_with(PREFIX) {
            temporary.remove(&name).map_err(PagerError::from)?;
        }
    }
    Ok(())
}

/// A file of runs. Dropping it removes the file.
pub(crate) struct RunFile {
    directory: Arc<dyn Directory>,
    name: String,
    file: Arc<dyn BlockFile>,
}

impl RunFile {
    /// Returns a new file.
    pub(crate) fn create(directory: &Arc<dyn Directory>) -> Result<Self> {
        let name = format!("{PREFIX}{}", FILES.fetch_add(1, Ordering::Relaxed));
        let file = directory.open(&name, OpenHow::new_file(Space::Temporary)).map_err(PagerError::from)?;
        Ok(Self { directory: Arc::clone(directory), name, file })
    }

    pub(crate) fn file(&self) -> &dyn BlockFile {
        &*self.file
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // If this fails, the next start removes the file.
        let _ = self.directory.remove(&self.name);
    }
}

/// The position of a pair in an arena, and the first bytes in which its key differs from others.
#[derive(Clone, Copy)]
struct Slot {
    /// During the sort: the bytes of the key after the prefix that all keys have in common, as a number. It
    /// is 0 if the key has no bytes after this prefix.
    next: u64,
    at: u32,
    key_bytes: u32,
    value_bytes: u32,
}

/// Pairs one after the other in one buffer, and their order.
#[derive(Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Arena {
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        let (at, key_bytes, value_bytes) = (self.bytes.len() as u32, key.len() as u32, value.len() as u32);
        self.slots.push(Slot { next: 0, at, key_bytes, value_bytes });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * PAIR_BYTES
    }

    /// Removes all pairs, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
    }

    /// Removes the pairs after the first `count`. This is not allowed after a sort.
    pub(crate) fn truncate(&mut self, count: usize) {
        if let Some(slot) = self.slots.get(count) {
            self.bytes.truncate(slot.at as usize);
            self.slots.truncate(count);
        }
    }

    /// Sorts the pairs by their keys.
    pub(crate) fn sort(&mut self) {
        // Reading a key is a cache miss. The first bytes in which keys differ are copied here, and most
        // comparisons read only those.
        let common = self.common_bytes();
        let bytes = &self.bytes;
        for slot in &mut self.slots {
            slot.next = number(&slot.key(bytes)[common..]);
        }
        self.slots.sort_unstable_by(|a, b| a.next.cmp(&b.next).then_with(|| a.key(bytes).cmp(b.key(bytes))));
    }

    /// Returns the number of bytes with which all keys begin.
    fn common_bytes(&self) -> usize {
        let Some((first, others)) = self.slots.split_first() else { return 0 };
        let first = first.key(&self.bytes);
        others.iter().fold(first.len(), |common, slot| {
            let key = slot.key(&self.bytes);
            match key.get(..common) == Some(&first[..common]) {
                true => common,
                false => first.iter().zip(key).take_while(|(a, b)| a == b).count(),
            }
        })
    }

    /// Returns the key and value of the pair at this position of the order.
    pub(crate) fn pair(&self, n: usize) -> Option<(&[u8], &[u8])> {
        self.slots.get(n).map(|slot| (slot.key(&self.bytes), slot.value(&self.bytes)))
    }
}

/// Returns the first bytes of a key as a number in the same order.
fn number(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let known = key.len().min(head.len());
    head[..known].copy_from_slice(&key[..known]);
    u64::from_be_bytes(head)
}

impl Slot {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.key_bytes as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize + self.key_bytes as usize..][..self.value_bytes as usize]
    }
}

/// Sorts pairs that are added in any order.
pub(crate) struct Sorter {
    directory: Arc<dyn Directory>,
    budget_bytes: usize,
    pairs: Arena,
    file: Option<RunFile>,
    /// The begin and the end of each run in the file.
    runs: Vec<(u64, u64)>,
}

impl Sorter {
    pub(crate) fn new(temporary: &Arc<dyn Directory>) -> Self {
        Self::with_budget(temporary, BUDGET_BYTES)
    }

    fn with_budget(temporary: &Arc<dyn Directory>, budget_bytes: usize) -> Self {
        let directory = Arc::clone(temporary);
        let budget_bytes = budget_bytes.min(ARENA_BYTES_MAX);
        Self { directory, budget_bytes, pairs: Arena::default(), file: None, runs: Vec::new() }
    }

    /// Adds a pair.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.pairs.push(key, value);
        if self.pairs.memory_bytes() >= self.budget_bytes { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        self.pairs.sort();
        let file = match self.file.take() {
            Some(file) => file,
            None => RunFile::create(&self.directory)?,
        };
        let start = self.runs.last().map_or(0, |(_, end)| *end);
        let start = start.next_multiple_of(BLOCK_BYTES as u64);
        let mut writer =
            RunWriter { file: &*file.file, at: start, block: AlignedBuf::new(BLOCK_BYTES), filled: 0 };
        let mut end = start;
        for n in 0..self.pairs.len() {
            let Some((key, value)) = self.pairs.pair(n) else { break };
            end += writer.pair(key, value)?;
        }
        writer.finish()?;
        self.pairs.clear();
        self.file = Some(file);
        self.runs.push((start, end));
        Ok(())
    }

    /// Returns all pairs in order.
    pub(crate) fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            self.pairs.sort();
            return Ok(Sorted {
                memory: std::mem::take(&mut self.pairs),
                given: 0,
                merge: None,
                ahead: None,
            });
        }
        if !self.pairs.is_empty() {
            self.spill()?;
        }
        let Some(file) = self.file.take() else { unreachable!("runs without a file") };
        let mut merge = Merge { file, readers: Vec::new(), heap: BinaryHeap::new() };
        for (start, end) in self.runs.iter().copied() {
            merge.readers.push(RunReader { at: start, end, block: Vec::new(), used: 0, read: start });
        }
        for which in 0..merge.readers.len() {
            merge.refill(which)?;
        }
        Ok(Sorted { memory: Arena::default(), given: 0, merge: Some(merge), ahead: None })
    }
}

struct RunWriter<'f> {
    file: &'f dyn BlockFile,
    at: u64,
    block: AlignedBuf,
    filled: usize,
}

impl RunWriter<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8]) -> Result<u64> {
        let lengths = [(key.len() as u32).to_le_bytes(), (value.len() as u32).to_le_bytes()].concat();
        for mut part in [&lengths[..], key, value] {
            while !part.is_empty() {
                let take = part.len().min(BLOCK_BYTES - self.filled);
                self.block[self.filled..self.filled + take].copy_from_slice(&part[..take]);
                self.filled += take;
                part = &part[take..];
                if self.filled == BLOCK_BYTES {
                    self.flush()?;
                }
            }
        }
        Ok((lengths.len() + key.len() + value.len()) as u64)
    }

    fn flush(&mut self) -> Result<()> {
        self.block[self.filled..].fill(0);
        let written = self.file.write_at(self.at, &self.block, Purpose::TemporarySort, Durability::Later);
        written.map_err(PagerError::from)?;
        self.at += BLOCK_BYTES as u64;
        self.filled = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        if self.filled == 0 { Ok(()) } else { self.flush() }
    }
}

struct RunReader {
    /// Position of the next pair.
    at: u64,
    end: u64,
    block: Vec<u8>,
    used: usize,
    /// Position of the next block.
    read: u64,
}

impl RunReader {
    fn next(&mut self, file: &dyn BlockFile) -> Result<Option<Pair>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let head = self.take(file, 8)?;
        let length =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (key_bytes, value_bytes) = (length(0), length(4));
        let key = self.take(file, key_bytes)?;
        let value = self.take(file, value_bytes)?;
        Ok(Some((key, value)))
    }

    fn take(&mut self, file: &dyn BlockFile, bytes: usize) -> Result<Vec<u8>> {
        if self.at + bytes as u64 > self.end {
            return Err(Error::corrupt("a sort run is shorter than its pairs"));
        }
        let mut out = Vec::with_capacity(bytes);
        while out.len() < bytes {
            if self.used == self.block.len() {
                let mut block = AlignedBuf::new(BLOCK_BYTES);
                file.read_at(self.read, &mut block, Purpose::TemporarySort).map_err(PagerError::from)?;
                self.block = block.to_vec();
                self.read += BLOCK_BYTES as u64;
                self.used = 0;
            }
            let some = (bytes - out.len()).min(self.block.len() - self.used);
            out.extend_from_slice(&self.block[self.used..self.used + some]);
            self.used += some;
        }
        self.at += bytes as u64;
        Ok(out)
    }
}

type Head = (Vec<u8>, usize, Vec<u8>);

struct Merge {
    file: RunFile,
    readers: Vec<RunReader>,
    /// Key, run and value of the first pair of each run.
    heap: BinaryHeap<Reverse<Head>>,
}

impl Merge {
    fn refill(&mut self, which: usize) -> Result<()> {
        if let Some((key, value)) = self.readers[which].next(&*self.file.file)? {
            self.heap.push(Reverse((key, which, value)));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        let Some(Reverse((key, which, value))) = self.heap.pop() else { return Ok(None) };
        self.refill(which)?;
        Ok(Some((key, value)))
    }
}

/// The sorted pairs.
pub(crate) struct Sorted {
    memory: Arena,
    /// The number of pairs in memory that were returned.
    given: usize,
    merge: Option<Merge>,
    ahead: Option<Pair>,
}

impl Sorted {
    /// Returns the next pair.
    pub(crate) fn next(&mut self) -> Result<Option<Pair>> {
        if let Some(pair) = self.ahead.take() {
            return Ok(Some(pair));
        }
        match &mut self.merge {
            Some(merge) => merge.next(),
            None => {
                let pair = self.memory.pair(self.given).map(|(key, value)| (key.to_vec(), value.to_vec()));
                self.given += 1;
                Ok(pair)
            }
        }
    }

    /// Returns the next pair if it has this key.
    pub(crate) fn next_if_key(&mut self, key: &[u8]) -> Result<Option<Pair>> {
        let next = self.next()?;
        match next {
            Some(pair) if pair.0 == key => Ok(Some(pair)),
            other => {
                self.ahead = other;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_device::MemoryDirectory;

    fn sorted(budget_bytes: usize) -> (Vec<Vec<u8>>, usize) {
        let directory: Arc<dyn Directory> = MemoryDirectory::new();
        let mut sorter = Sorter::with_budget(&directory, budget_bytes);
        for i in 0..20_000_u32 {
            let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
            sorter.push(&key, &vec![7; i as usize % 100]).unwrap();
        }
        let runs = sorter.runs.len();
        let mut sorted = sorter.finish().unwrap();
        let mut keys = Vec::new();
        while let Some((key, _)) = sorted.next().unwrap() {
            keys.push(key);
        }
        drop(sorted);
        assert!(directory.list().unwrap().is_empty());
        (keys, runs)
    }

    #[test]
    fn an_arena_sorts_by_whole_keys() {
        let mut arena = Arena::default();
        let keys: [&[u8]; 7] = [b"abcdefgh2", b"", b"abcdefgh", b"abc\0", b"abc", b"\xff", b"abcdefgh1"];
        keys.iter().for_each(|key| arena.push(key, b"v"));
        arena.push(b"later", b"");
        arena.truncate(keys.len());
        arena.sort();
        let sorted: Vec<&[u8]> = (0..arena.len()).map(|n| arena.pair(n).unwrap().0).collect();
        let mut expected = keys.to_vec();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        assert!((0..arena.len()).all(|n| arena.pair(n).unwrap().1 == b"v"));
    }

    #[test]
    fn keys_that_begin_alike_are_sorted_by_what_follows() {
        for (start, end) in [(0, 0), (3, 0), (40, 0), (5, 30)] {
            let mut arena = Arena::default();
            let mut expected = Vec::new();
            for n in (0..2_000_u32).map(|n| n * 7_919 % 2_000) {
                // Some keys are shorter than the compared bytes, and some differ only after them.
                let digits = n.to_be_bytes();
                let number = if n % 3 == 0 { &digits[..3] } else { &digits[..] };
                let key = [&vec![b'a'; start][..], &vec![0; end], number].concat();
                arena.push(&key, &[]);
                expected.push(key);
            }
            expected.sort_unstable();
            arena.sort();
            for (n, key) in expected.iter().enumerate() {
                assert_eq!(arena.pair(n).unwrap().0, key);
            }
        }
    }

    #[test]
    fn runs_merge_into_the_order_of_memory() {
        let (in_memory, none) = sorted(usize::MAX);
        let (merged, several) = sorted(300_000);
        assert_eq!(none, 0);
        assert!(several > 3);
        assert_eq!(in_memory, merged);
        assert!(merged.is_sorted() && merged.len() == 20_000);
    }
}
