//! The working space of run generation. It is one piece of memory, with rows at the beginning and the entries
//! of a heap at the end. Both parts grow towards each other, so the size of neither must be known in advance.
//!
//! A row is stored in a cell, whose size is a multiple of 16 bytes. Free cells are in lists by size, and are
//! merged with free neighbours (boundary tags: Knuth, The Art of Computer Programming, volume 1, section
//! 2.5).
//!
//! | offset in a cell | bytes | content |
//! |---|---|---|
//! | 0 | 4 | size in units of 16 bytes; bit 30: the cell before this one is free; bit 31: this cell is free |
//! | 4 | | the row; or in a free cell: next and previous free cell of the list (u32 each) |
//! | end - 4 | 4 | in a free cell: its size again |
//!
//! Invariants
//! 1. All memory is allocated at once.
//! 2. Two free cells are never neighbours, and the last cell before the gap is never free.
//! 3. The entries form a heap, ordered by run, prefix of the key, and key. [`Workspace::sort`] sorts them
//!    completely.
//!
//! Source of replacement selection with rows of different lengths: Larson and Graefe, "Memory Management
//! during Run Generation in External Sorting" (1998).

use std::sync::Arc;

use crate::error::{Result, SpillError};
use crate::memory::{Bytes, MemoryBudget};
use crate::page::{put_row, row_in};
use crate::row::Row;

const UNIT_BYTES: usize = 16;
const TAG_BYTES: usize = 4;
const ENTRY_BYTES: usize = 16;
const BEFORE_IS_FREE: u32 = 1 << 30;
const IS_FREE: u32 = 1 << 31;
const SIZE: u32 = BEFORE_IS_FREE - 1;
/// The number of lists for exactly one size. Each further list is for the sizes up to the next power of two.
const EXACT_LISTS: usize = 64;
const LISTS: usize = 96;
const NIL: u32 = u32::MAX;
/// The maximum number of free cells that are checked in one list.
const STEPS_MAX: usize = 8;

/// An entry of the heap, which describes a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The number of the run to which the row belongs.
    pub run: u32,
    /// The position of the cell of the row.
    at: u32,
    /// The first bytes of the key, as a number that has the same order.
    prefix: u64,
}

impl Entry {
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let [r0, r1, r2, r3, a0, a1, a2, a3, prefix @ ..] = *bytes;
        Entry {
            run: u32::from_le_bytes([r0, r1, r2, r3]),
            at: u32::from_le_bytes([a0, a1, a2, a3]),
            prefix: u64::from_le_bytes(prefix),
        }
    }

    fn encode(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.run.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..].copy_from_slice(&self.prefix.to_le_bytes());
        bytes
    }
}

/// Returns the first bytes of a key, as a number that has the same order.
fn prefix(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let known = key.len().min(head.len());
    head[..known].copy_from_slice(&key[..known]);
    u64::from_be_bytes(head)
}

/// Rows in memory, with a heap of their entries.
pub(crate) struct Workspace {
    bytes: Bytes,
    /// The end of the cells.
    top: usize,
    entries: usize,
    lists: [u32; LISTS],
}

impl Workspace {
    /// Returns a working space of this number of bytes, but of less than 4 GiB.
    pub(crate) fn new(memory: &Arc<MemoryBudget>, len_bytes: usize) -> Result<Workspace> {
        let len_bytes = len_bytes.min(u32::MAX as usize) / UNIT_BYTES * UNIT_BYTES;
        Ok(Workspace { bytes: Bytes::new(memory, len_bytes)?, top: 0, entries: 0, lists: [NIL; LISTS] })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        (self.top, self.entries, self.lists) = (0, 0, [NIL; LISTS]);
    }

    /// Returns the error for a row that does not fit in an empty working space.
    #[cold]
    pub(crate) fn too_small(&self, row: Row<'_>) -> SpillError {
        let wanted_bytes = row.stored_bytes() + ENTRY_BYTES + UNIT_BYTES;
        SpillError::Memory { wanted_bytes, left_bytes: self.bytes.len(), limit_bytes: self.bytes.len() }
    }

    /// Adds a row and its entry, but does not order the entries. Returns false if there is no room.
    pub(crate) fn push(&mut self, row: Row<'_>, run: u32) -> bool {
        let Some(at) = self.allocate(row.stored_bytes()) else { return false };
        put_row(&mut self.bytes[at + TAG_BYTES..], row);
        self.entries += 1;
        self.set_entry(self.entries - 1, Entry { run, at: at as u32, prefix: prefix(row.key) });
        true
    }

    /// Adds a row to the heap. Returns false if there is no room.
    pub(crate) fn insert(&mut self, row: Row<'_>, run: u32) -> bool {
        let is_added = self.push(row, run);
        if is_added {
            self.sift_up(self.entries - 1);
        }
        is_added
    }

    /// Returns the smallest entry of the heap.
    pub(crate) fn first(&self) -> Option<Entry> {
        (self.entries > 0).then(|| self.entry(0))
    }

    /// Returns the row of an entry.
    pub(crate) fn row(&self, entry: Entry) -> Row<'_> {
        row_in(&self.bytes[entry.at as usize + TAG_BYTES..])
    }

    /// Returns row `n` in the sorted order. May be called only after [`Workspace::sort`].
    pub(crate) fn row_at(&self, n: usize) -> Row<'_> {
        self.row(self.entry(n))
    }

    /// Removes the smallest entry from the heap. Its row stays in memory until [`Workspace::free_row`] is
    /// called.
    pub(crate) fn take_first(&mut self) -> Option<Entry> {
        let first = self.first()?;
        let last = self.entry(self.entries - 1);
        self.entries -= 1;
        if self.entries > 0 {
            self.sift_down(last);
        }
        Some(first)
    }

    /// Frees the memory of a row whose entry was removed from the heap.
    pub(crate) fn free_row(&mut self, entry: Entry) {
        self.free(entry.at as usize);
    }

    /// Assigns all rows to one run. After this, the entries form no heap until they are sorted.
    pub(crate) fn join_runs(&mut self) {
        for n in 0..self.entries {
            let entry = self.entry(n);
            self.set_entry(n, Entry { run: 0, ..entry });
        }
    }

    /// Sorts the entries (quicksort).
    pub(crate) fn sort(&mut self) {
        let begin = self.bytes.len() - self.entries * ENTRY_BYTES;
        let (rows, entries) = self.bytes.split_at_mut(begin);
        let (entries, _) = entries.as_chunks_mut::<ENTRY_BYTES>();
        let key = |entry: Entry| row_in(&rows[entry.at as usize + TAG_BYTES..]).key;
        // The entries are stored backwards: the first entry is at the end of the memory.
        entries.sort_unstable_by(|a, b| {
            let (a, b) = (Entry::decode(a), Entry::decode(b));
            (b.run, b.prefix).cmp(&(a.run, a.prefix)).then_with(|| key(b).cmp(key(a)))
        });
    }

    fn entry(&self, n: usize) -> Entry {
        let at = self.bytes.len() - (n + 1) * ENTRY_BYTES;
        self.bytes[at..].first_chunk().map_or(Entry { run: 0, at: 0, prefix: 0 }, Entry::decode)
    }

    fn set_entry(&mut self, n: usize, entry: Entry) {
        let at = self.bytes.len() - (n + 1) * ENTRY_BYTES;
        self.bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry.encode());
    }

    fn is_before(&self, a: Entry, b: Entry) -> bool {
        (a.run, a.prefix).cmp(&(b.run, b.prefix)).then_with(|| self.row(a).key.cmp(self.row(b).key)).is_lt()
    }

    fn sift_up(&mut self, mut n: usize) {
        let entry = self.entry(n);
        while n > 0 {
            let parent = self.entry((n - 1) / 2);
            if !self.is_before(entry, parent) {
                break;
            }
            self.set_entry(n, parent);
            n = (n - 1) / 2;
        }
        self.set_entry(n, entry);
    }

    /// Replaces the first entry of the heap by this entry.
    fn sift_down(&mut self, entry: Entry) {
        let mut n = 0;
        loop {
            let mut child = 2 * n + 1;
            if child >= self.entries {
                break;
            }
            let mut least = self.entry(child);
            if child + 1 < self.entries && self.is_before(self.entry(child + 1), least) {
                child += 1;
                least = self.entry(child);
            }
            if !self.is_before(least, entry) {
                break;
            }
            self.set_entry(n, least);
            n = child;
        }
        self.set_entry(n, entry);
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    fn set_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    fn size_bytes(&self, at: usize) -> usize {
        (self.word(at) & SIZE) as usize * UNIT_BYTES
    }

    fn list_of(size_bytes: usize) -> usize {
        let units = size_bytes / UNIT_BYTES;
        let above = (units / EXACT_LISTS).checked_ilog2().map_or(0, |log| 1 + log as usize);
        if units < EXACT_LISTS { units } else { (EXACT_LISTS + above - 1).min(LISTS - 1) }
    }

    /// Allocates a cell for a row.
    fn allocate(&mut self, row_bytes: usize) -> Option<usize> {
        let size_bytes = (TAG_BYTES + row_bytes).next_multiple_of(UNIT_BYTES);
        let gap_end = self.bytes.len() - self.entries * ENTRY_BYTES;
        if self.top + ENTRY_BYTES > gap_end {
            return None;
        }
        if let Some(at) = self.find(size_bytes) {
            return Some(self.use_free(at, size_bytes));
        }
        if self.top + size_bytes + ENTRY_BYTES > gap_end {
            return None;
        }
        let at = self.top;
        self.top += size_bytes;
        self.set_word(at, (size_bytes / UNIT_BYTES) as u32);
        Some(at)
    }

    /// Returns a free cell of at least this size.
    fn find(&self, size_bytes: usize) -> Option<usize> {
        let fits = |at: u32| self.size_bytes(at as usize) >= size_bytes;
        (Self::list_of(size_bytes)..LISTS).find_map(|list| {
            let mut at = self.lists[list];
            for _ in 0..STEPS_MAX {
                if at == NIL || fits(at) {
                    break;
                }
                at = self.word(at as usize + 4);
            }
            (at != NIL && fits(at)).then_some(at as usize)
        })
    }

    /// Allocates a part of a free cell. The rest of the cell stays free.
    fn use_free(&mut self, at: usize, size_bytes: usize) -> usize {
        let whole_bytes = self.size_bytes(at);
        self.unlink(at);
        self.set_word(at, (size_bytes / UNIT_BYTES) as u32);
        match whole_bytes - size_bytes {
            0 => self.mark_before(at + size_bytes, false),
            rest_bytes => self.link(at + size_bytes, rest_bytes),
        }
        at
    }

    /// Frees the cell of a row.
    fn free(&mut self, mut at: usize) {
        let mut size_bytes = self.size_bytes(at);
        if self.word(at) & BEFORE_IS_FREE != 0 {
            let before_bytes = self.word(at - 4) as usize * UNIT_BYTES;
            at -= before_bytes;
            size_bytes += before_bytes;
            self.unlink(at);
        }
        let behind = at + size_bytes;
        if behind == self.top {
            self.top = at;
            return;
        }
        if self.word(behind) & IS_FREE != 0 {
            size_bytes += self.size_bytes(behind);
            self.unlink(behind);
        }
        self.link(at, size_bytes);
    }

    /// Records in a cell whether the cell before it is free.
    fn mark_before(&mut self, at: usize, is_free: bool) {
        if at < self.top {
            let word = self.word(at);
            self.set_word(at, if is_free { word | BEFORE_IS_FREE } else { word & !BEFORE_IS_FREE });
        }
    }

    /// Makes a cell free. Its neighbours must not be free.
    fn link(&mut self, at: usize, size_bytes: usize) {
        let units = (size_bytes / UNIT_BYTES) as u32;
        let list = Self::list_of(size_bytes);
        let next = std::mem::replace(&mut self.lists[list], at as u32);
        self.set_word(at, units | IS_FREE);
        self.set_word(at + 4, next);
        self.set_word(at + 8, NIL);
        self.set_word(at + size_bytes - 4, units);
        if next != NIL {
            self.set_word(next as usize + 8, at as u32);
        }
        self.mark_before(at + size_bytes, true);
    }

    /// Removes a free cell from its list.
    fn unlink(&mut self, at: usize) {
        let (next, previous) = (self.word(at + 4), self.word(at + 8));
        match previous {
            NIL => self.lists[Self::list_of(self.size_bytes(at))] = next,
            previous => self.set_word(previous as usize + 4, next),
        }
        if next != NIL {
            self.set_word(next as usize + 8, previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_reused_and_rows_stay_whole() {
        let memory = MemoryBudget::new(1 << 16);
        let mut space = Workspace::new(&memory, 1 << 16).unwrap();
        let mut random = 7_u64;
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..50_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let payload = vec![(random >> 40) as u8; (random >> 33) as usize % 700];
            let key = (random >> 20).to_be_bytes()[random as usize % 3..].to_vec();
            while !space.insert(Row::new(&key, &payload), 0) {
                let first = space.row(space.first().unwrap());
                expected.sort_unstable_by(|a, b| b.cmp(a));
                let (key, _) = expected.last().unwrap().clone();
                assert_eq!(first.key, key);
                let same = expected.iter().rposition(|(k, p)| (&**k, &**p) == (first.key, first.payload));
                expected.remove(same.unwrap());
                let first = space.take_first().unwrap();
                space.free_row(first);
            }
            expected.push((key, payload));
        }
        assert_eq!(space.len(), expected.len());
        expected.sort_unstable();
        space.sort();
        for (n, (key, _)) in expected.iter().enumerate() {
            assert_eq!(space.row_at(n).key, key);
        }
        while let Some(first) = space.take_first() {
            space.free_row(first);
        }
        assert_eq!(space.top, 0, "all cells are free again");
    }
}
