//! Reads a node: its header, its entries, and the search.
//!
//! Invariants
//! 1. The search first compares heads (the first four bytes of each suffix) as integers. It compares suffixes
//!    only where heads are equal.
//! 2. Nothing here allocates memory.
//!
//! This module does not know how nodes change.

use std::cmp::Ordering;

use crate::fixed;

use super::columns::{IN_COLUMNS, directory_bytes};
use super::{
    BY_COLUMNS, Columns, ENTRY_HEAD_BYTES, EntryRef, FLAG_DELETED, PREFIX_IMPLIED, SLOT_BYTES, SLOTS_START,
    STAMP_BYTES, STAMPED,
};

const HEAD_BYTES: usize = 4;
const CACHE_LINE_BYTES: usize = 64;
const TOUCH_LINES_MAX: usize = 16;
/// The number of cache lines that are loaded for an entry. An entry of 100 bytes occupies two or three cache
/// lines.
const TOUCH_ENTRY_LINES: usize = 3;

/// A node for reading. Copies are cheap.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    page: &'a [u8],
}

/// The position of a key, or the position where it would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPosition {
    /// Slot of the first key >= the searched key; the slot count if there is none.
    pub slot: usize,
    /// Whether that key is equal.
    pub exact: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub head: u32,
    pub offset: usize,
    pub suffix_bytes: usize,
}

/// Returns the first four bytes, as a number with the same order. Zeros are added to shorter strings.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    if let Some(first) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*first);
    }
    let mut raw = [0; 4];
    raw[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(raw)
}

/// Returns the length of the longest common prefix.
pub fn common_prefix_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Returns the number of bytes that an entry with its slot takes in the node.
pub const fn entry_bytes(suffix_bytes: usize, value_bytes: usize) -> usize {
    SLOT_BYTES + ENTRY_HEAD_BYTES + suffix_bytes + value_bytes
}

/// An entry of a leaf by columns whose row is in the columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowInColumns {
    pub(crate) number: u16,
    /// The transaction that wrote the entry.
    pub(crate) txn: u64,
    /// Whether the entry is delete-marked.
    pub(crate) is_deleted: bool,
}

impl<'a> NodeRef<'a> {
    /// Views a whole page (with the pager's header) as a node.
    #[inline]
    pub const fn new(page: &'a [u8]) -> Self {
        Self { page }
    }

    #[inline]
    fn u16_at(&self, offset: usize) -> usize {
        usize::from(u16::from_le_bytes(fixed::bytes_at(self.page, offset)))
    }

    #[inline]
    fn u32_at(&self, offset: usize) -> u32 {
        u32::from_le_bytes(fixed::bytes_at(self.page, offset))
    }

    /// Returns the page size in bytes.
    pub const fn page_bytes(&self) -> usize {
        self.page.len()
    }

    /// Returns the distance from the leaves.
    #[inline]
    pub const fn level(&self) -> u8 {
        self.page[32]
    }

    /// Returns whether this is a leaf.
    #[inline]
    pub const fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Returns whether every key between the fences begins with the prefix.
    #[inline]
    pub(crate) const fn is_prefix_implied(&self) -> bool {
        self.page[33] & PREFIX_IMPLIED != 0
    }

    /// Returns whether leaf entries carry a stamp (clustered tree).
    #[inline]
    pub const fn is_stamped(&self) -> bool {
        self.page[33] & STAMPED != 0
    }

    /// Returns whether this is a leaf by columns.
    #[inline]
    pub const fn is_by_columns(&self) -> bool {
        self.page[33] & BY_COLUMNS != 0
    }

    /// Returns the number of columns of a leaf by columns.
    pub(crate) fn column_count(&self) -> usize {
        self.u16_at(62)
    }

    /// Returns the number of bytes of the directory of a leaf by columns, or 0 for other nodes.
    #[inline]
    pub(crate) fn directory_bytes(&self) -> usize {
        if self.is_by_columns() { directory_bytes(self.column_count()) } else { 0 }
    }

    /// Returns the columns of a leaf by columns.
    pub fn columns(&self) -> Option<Columns<'a>> {
        let at = || self.page.len() - self.fixed_bytes();
        self.is_by_columns().then(|| Columns::new(self.page, at(), self.column_count()))
    }

    /// Returns the widths of the columns of a leaf by columns (`Frame::widths`), or an empty slice for other
    /// nodes.
    pub fn widths(&self) -> &'a [u8] {
        self.columns().map_or(&[], |columns| columns.widths())
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.u16_at(34)
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn heap_start(&self) -> usize {
        self.u32_at(36) as usize
    }

    /// Returns how many bytes of the heap no slot refers to.
    #[inline]
    pub fn garbage_bytes(&self) -> usize {
        self.u32_at(40) as usize
    }

    /// Returns the page number of the right sibling, 0 if there is none.
    pub fn right(&self) -> u32 {
        self.u32_at(44)
    }

    /// Returns the page number of the leftmost child of an inner node.
    pub fn leftmost_child(&self) -> u32 {
        self.u32_at(48)
    }

    #[inline]
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.u16_at(52)
    }

    /// Returns the bytes with which all keys begin. Suffixes do not have them.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        let start = self.page.len() - self.u16_at(56) - self.u16_at(54) - self.prefix_bytes();
        &self.page[start..start + self.prefix_bytes()]
    }

    /// Returns the lowest key that is allowed in this node, or the empty key for the leftmost node.
    pub fn lower_fence(&self) -> &'a [u8] {
        let end = self.page.len() - self.u16_at(56);
        &self.page[end - self.u16_at(54)..end]
    }

    /// Returns the first key that belongs to the right sibling, or `None` for the rightmost node.
    pub fn upper_fence(&self) -> Option<&'a [u8]> {
        let bytes = self.u16_at(56);
        (bytes > 0).then(|| &self.page[self.page.len() - bytes..])
    }

    /// Returns the number of bytes after the heap and the columns: directory, prefix and fences. They are not
    /// checked.
    #[inline]
    pub(crate) fn fixed_bytes(&self) -> usize {
        self.prefix_bytes() + self.u16_at(54) + self.u16_at(56) + self.directory_bytes()
    }

    /// Returns the slot of the last insert.
    pub(crate) fn last_insert(&self) -> usize {
        self.u16_at(58)
    }

    /// Returns the number of successive inserts that were each at the slot after the one before.
    pub fn run(&self) -> usize {
        self.u16_at(60)
    }

    /// Returns the newest transaction that changed this leaf of a secondary tree.
    #[inline]
    pub fn newest_txn(&self) -> u64 {
        let raw = fixed::bytes_at(self.page, 64);
        u64::from_le_bytes(raw)
    }

    /// Returns the number of bytes between the slots and the heap.
    #[inline]
    pub fn gap_bytes(&self) -> usize {
        self.heap_start() - SLOTS_START - self.len() * SLOT_BYTES
    }

    /// Returns the number of free bytes after a compaction.
    #[inline]
    pub fn free_bytes(&self) -> usize {
        self.gap_bytes() + self.garbage_bytes()
    }

    /// Returns the number of bytes of slots and live entries.
    pub fn live_bytes(&self) -> usize {
        super::usable_bytes(self.page.len()) - self.free_bytes() - self.fixed_bytes()
    }

    #[inline]
    fn slots(&self) -> &'a [[u8; SLOT_BYTES]] {
        self.page[SLOTS_START..SLOTS_START + self.len() * SLOT_BYTES].as_chunks().0
    }

    #[inline]
    pub(crate) fn slot(&self, index: usize) -> Slot {
        decode_slot(&self.slots()[index])
    }

    #[inline]
    fn suffix_of(&self, slot: Slot) -> &'a [u8] {
        let start = slot.offset + ENTRY_HEAD_BYTES;
        &self.page[start..start + slot.suffix_bytes]
    }

    /// Returns the key of an entry without the prefix.
    #[inline]
    pub fn suffix(&self, index: usize) -> &'a [u8] {
        self.suffix_of(self.slot(index))
    }

    /// Returns the number that an entry's row has in the columns of the leaf. `None` means that the entry has
    /// the row itself.
    #[inline]
    pub fn row_number(&self, index: usize) -> Option<usize> {
        if !self.is_by_columns() {
            return None;
        }
        let length = self.u16_at(self.slot(index).offset);
        (length & IN_COLUMNS != 0).then_some(length & !IN_COLUMNS)
    }

    /// Returns the row number and the stamp's parts of an entry whose row is in the columns.
    #[inline]
    pub(crate) fn row_in_columns(&self, index: usize) -> Option<RowInColumns> {
        let number = self.row_number(index)? as u16;
        let stamp = self.stored_stamp(index);
        let [a, b, c, d, e, f] = fixed::bytes_at(stamp, 1);
        let txn = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        Some(RowInColumns { number, txn, is_deleted: stamp[0] & FLAG_DELETED != 0 })
    }

    /// Returns the value of an entry, wherever its row lies.
    pub fn whole_value(&self, index: usize) -> Vec<u8> {
        match (self.row_number(index), self.columns()) {
            (Some(row), Some(columns)) => {
                let mut value = self.stored_stamp(index).to_vec();
                columns.append_row(row, &mut value);
                value
            }
            _ => self.value(index).to_vec(),
        }
    }

    /// Returns the stamp of an entry of a clustered leaf.
    fn stored_stamp(&self, index: usize) -> &'a [u8] {
        let slot = self.slot(index);
        let start = slot.offset + ENTRY_HEAD_BYTES + slot.suffix_bytes;
        &self.page[start..start + STAMP_BYTES]
    }

    /// Returns the value of an entry whose row is not in columns.
    #[inline]
    pub fn value(&self, index: usize) -> &'a [u8] {
        let slot = self.slot(index);
        let start = slot.offset + ENTRY_HEAD_BYTES + slot.suffix_bytes;
        &self.page[start..start + self.u16_at(slot.offset)]
    }

    /// Returns a copy of the whole key of an entry.
    pub fn key(&self, index: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(index)].concat()
    }

    /// Returns a leaf entry.
    #[inline]
    pub fn entry(&self, index: usize) -> EntryRef<'a> {
        debug_assert!(self.is_leaf(), "entries are of leaves");
        if self.is_by_columns() {
            return self.entry_by_columns(index);
        }
        let (suffix, value) = (self.suffix(index), self.value(index));
        EntryRef { prefix: self.prefix(), suffix, value, stamped: self.is_stamped(), in_columns: None }
    }

    fn entry_by_columns(&self, index: usize) -> EntryRef<'a> {
        let in_columns = self.row_number(index).and_then(|row| Some((self.columns()?, row)));
        let value = if in_columns.is_some() { self.stored_stamp(index) } else { self.value(index) };
        let (prefix, suffix) = (self.prefix(), self.suffix(index));
        EntryRef { prefix, suffix, value, stamped: true, in_columns }
    }

    /// Returns the number of bytes that an entry takes with its slot and its row.
    pub fn entry_bytes(&self, index: usize) -> usize {
        let slot = self.slot(index);
        if let Some(row) = self.row_number(index)
            && let Some(columns) = self.columns()
        {
            return entry_bytes(slot.suffix_bytes, STAMP_BYTES + columns.row_bytes(row));
        }
        entry_bytes(slot.suffix_bytes, self.u16_at(slot.offset))
    }

    /// Returns the page number of the child with this index, which is in 0..=len.
    #[inline]
    pub fn child(&self, index: usize) -> u32 {
        match index {
            0 => self.leftmost_child(),
            _ => {
                let value = self.value(index - 1);
                u32::from_le_bytes([value[0], value[1], value[2], value[3]])
            }
        }
    }

    /// Returns the index of the child whose keys may include `key`. The key must be between the node's
    /// fences.
    #[inline]
    pub fn child_for(&self, key: &[u8]) -> usize {
        let found = self.search_inside(key);
        found.slot + usize::from(found.exact)
    }

    /// Returns the index of the child whose keys may include the largest key below `key`. The key must be
    /// between the node's fences.
    pub fn child_below(&self, key: &[u8]) -> usize {
        self.search_inside(key).slot
    }

    /// Does the same as `search`, but the key must be between the node's fences (the bounds of the keys that
    /// belong in the node). After a descent by this key, that is always so. Then the key need not be compared
    /// with the prefix, which is in a distant cache line.
    #[inline]
    pub fn search_inside(&self, key: &[u8]) -> KeyPosition {
        if self.is_prefix_implied() {
            debug_assert!(key.starts_with(self.prefix()), "the key is outside the fences");
            return self.search_suffix(&key[self.prefix_bytes()..]);
        }
        self.search(key)
    }

    /// Finds the first entry whose key is >= `key`.
    #[inline]
    pub fn search(&self, key: &[u8]) -> KeyPosition {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            let slot = if key < prefix { 0 } else { self.len() };
            return KeyPosition { slot, exact: false };
        };
        self.search_suffix(suffix)
    }

    /// Does the same as `search`, but first compares the key with that of `slot` and the next one. So keys
    /// that are searched in ascending order are often found immediately.
    #[inline]
    pub fn search_from(&self, slot: usize, key: &[u8]) -> KeyPosition {
        let suffix = key.strip_prefix(self.prefix());
        let is_there = |slot: usize| slot < self.len() && suffix == Some(self.suffix(slot));
        match [slot, slot + 1].into_iter().find(|slot| is_there(*slot)) {
            Some(slot) => KeyPosition { slot, exact: true },
            None => self.search(key),
        }
    }

    #[inline]
    fn search_suffix(&self, suffix: &[u8]) -> KeyPosition {
        let slots = self.slots();
        let head = head_of(suffix);
        if self.is_leaf() {
            touch(slots);
        }
        let first = lower_bound(slots, head);
        if self.is_leaf() {
            self.touch_entry(slots, first);
        }
        match slots.get(first) {
            Some(raw) if decode_slot(raw).head == head => self.search_equal_heads(slots, first, head, suffix),
            _ => KeyPosition { slot: first, exact: false },
        }
    }

    /// Loads the first cache lines of an entry before its suffix is compared, so that these lines are fetched
    /// at the same time.
    #[inline]
    fn touch_entry(&self, slots: &[[u8; SLOT_BYTES]], index: usize) {
        let Some(raw) = slots.get(index) else { return };
        let start = decode_slot(raw).offset;
        let lines = (0..TOUCH_ENTRY_LINES).map(|line| start + line * CACHE_LINE_BYTES);
        std::hint::black_box(lines.fold(0, |sum, at| sum ^ self.page.get(at).copied().unwrap_or(0)));
    }

    /// Compares the suffixes of an entry and a key whose heads are equal.
    #[inline]
    fn compare(&self, slot: Slot, suffix: &[u8]) -> Ordering {
        if slot.suffix_bytes <= HEAD_BYTES && suffix.len() <= HEAD_BYTES {
            // The heads are the whole suffixes, except for zeros at the end.
            return slot.suffix_bytes.cmp(&suffix.len());
        }
        self.suffix_of(slot).cmp(suffix)
    }

    fn search_equal_heads(&self, slots: &[[u8; 8]], first: usize, head: u32, suffix: &[u8]) -> KeyPosition {
        let mut low = first;
        let mut high = match slots.get(first + 1) {
            Some(raw) if decode_slot(raw).head == head => slots.len(),
            _ => first + 1,
        };
        while low < high {
            let middle = low.midpoint(high);
            let slot = decode_slot(&slots[middle]);
            // Heads do not decrease from `first` on.
            if slot.head != head {
                high = middle;
                continue;
            }
            match self.compare(slot, suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return KeyPosition { slot: middle, exact: true },
                Ordering::Greater => high = middle,
            }
        }
        KeyPosition { slot: low, exact: false }
    }
}

#[inline]
fn decode_slot(raw: &[u8; SLOT_BYTES]) -> Slot {
    let word = u64::from_le_bytes(*raw);
    Slot { head: word as u32, offset: (word >> 32) as usize & 0xFFFF, suffix_bytes: (word >> 48) as usize }
}

/// Loads each cache line of the slots once. These loads overlap, while those of the search wait for each
/// other. (Inner nodes are in the cache.)
#[inline]
fn touch(slots: &[[u8; SLOT_BYTES]]) {
    // This is a plain loop, because without link-time optimisation the adapters of an iterator may be calls.
    let slots_of_a_line = CACHE_LINE_BYTES / SLOT_BYTES;
    let end = slots.len().min(TOUCH_LINES_MAX * slots_of_a_line);
    let (mut sum, mut at) = (0, 0);
    while at < end {
        sum ^= slots[at][0];
        at += slots_of_a_line;
    }
    std::hint::black_box(sum);
}

/// Returns the first slot whose head is >= `head`. The loop has no branch that depends on the data, so it
/// does not mispredict.
#[inline]
fn lower_bound(slots: &[[u8; SLOT_BYTES]], head: u32) -> usize {
    let mut base = 0;
    let mut size = slots.len();
    while size > 1 {
        let half = size / 2;
        let below = decode_slot(&slots[base + half - 1]).head < head;
        base = if below { base + half } else { base };
        size -= half;
    }
    base + usize::from(size == 1 && decode_slot(&slots[base]).head < head)
}
