//! Changes of a node. These pure functions implement the redo operations.
//!
//! Invariants
//! 1. The result depends only on the page's bytes and the arguments.
//! 2. Before a change, the caller checks that the node has enough space (`has_room`) and that the key's
//!    suffix is right (`fits_prefix`). If the check is missing, the caller has a bug. Redo makes the same
//!    checks first, because the log may be damaged.
//! 3. A rebuild writes zeros outside of slots, heap and fences, so no bytes from before the rebuild are left.
//!
//! This module does not know latches, logs or other pages.

use super::columns::{self, IN_COLUMNS};
use super::read::head_of;
use super::{
    BY_COLUMNS, ENTRY_HEAD_BYTES, NODE_START, NodeRef, PREFIX_IMPLIED, SLOT_BYTES, SLOTS_START, STAMP_BYTES,
    STAMPED, Stamp, entry, prefix_bytes_max,
};
use crate::fixed;

/// The header and the fences of a node without entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Distance from the leaves.
    pub level: u8,
    /// Whether leaf entries carry a stamp.
    pub stamped: bool,
    /// Right sibling; 0 means none.
    pub right: u32,
    /// Leftmost child; 0 in a leaf.
    pub leftmost: u32,
    /// Newest transaction of a secondary leaf.
    pub newest_txn: u64,
    /// Lowest key allowed.
    pub lower: &'a [u8],
    /// First key that is not allowed; empty means no limit.
    pub upper: &'a [u8],
    /// Common prefix of the keys that the node will have.
    pub prefix: &'a [u8],
    /// The widths in bytes of the columns of a leaf by columns; 0 is a variable width. Empty for other nodes.
    pub widths: &'a [u8],
}

impl<'a> Frame<'a> {
    /// A leaf without stamps in which every key is allowed.
    pub const EMPTY: Self = Self {
        level: 0,
        stamped: false,
        right: 0,
        leftmost: 0,
        newest_txn: 0,
        lower: &[],
        upper: &[],
        prefix: &[],
        widths: &[],
    };

    /// Returns the frame of an existing node.
    pub fn of(node: NodeRef<'a>) -> Self {
        Self {
            level: node.level(),
            stamped: node.is_stamped(),
            right: node.right(),
            leftmost: node.leftmost_child(),
            newest_txn: node.newest_txn(),
            lower: node.lower_fence(),
            upper: node.upper_fence().unwrap_or(&[]),
            prefix: node.prefix(),
            widths: node.widths(),
        }
    }

    /// Returns the bytes of the page that the frame takes besides the header.
    pub(crate) fn fixed_bytes(&self) -> usize {
        let directory = columns::directory_bytes(self.widths.len());
        self.lower.len() + self.upper.len() + self.prefix.len() + directory
    }
}

#[inline]
fn put_u16(page: &mut [u8], offset: usize, value: usize) {
    assert!(value <= usize::from(u16::MAX), "{value} does not fit a field of two bytes");
    fixed::put_at(page, offset, (value as u16).to_le_bytes());
}

#[inline]
fn put_u32(page: &mut [u8], offset: usize, value: u32) {
    fixed::put_at(page, offset, value.to_le_bytes());
}

/// Makes an empty node, and fills the rest of the page after the pager's header with zeros.
pub fn format(page: &mut [u8], frame: &Frame<'_>) {
    page[NODE_START..].fill(0);
    page[32] = frame.level;
    page[33] = flags(frame);
    put_u32(page, 44, frame.right);
    put_u32(page, 48, frame.leftmost);
    put_u16(page, 52, frame.prefix.len());
    put_u16(page, 54, frame.lower.len());
    put_u16(page, 56, frame.upper.len());
    page[64..72].copy_from_slice(&frame.newest_txn.to_le_bytes());
    let mut end = page.len();
    for part in [frame.upper, frame.lower, frame.prefix] {
        page[end - part.len()..end].copy_from_slice(part);
        end -= part.len();
    }
    if !frame.widths.is_empty() {
        put_u16(page, 62, frame.widths.len());
        end = columns::format(page, end, frame.widths);
    }
    put_u32(page, 36, end as u32);
}

fn flags(frame: &Frame<'_>) -> u8 {
    let implied = frame.lower.starts_with(frame.prefix) && frame.upper.starts_with(frame.prefix);
    let stamped = if frame.stamped { STAMPED } else { 0 };
    let by_columns = if frame.widths.is_empty() { 0 } else { BY_COLUMNS };
    stamped | by_columns | if implied { PREFIX_IMPLIED } else { 0 }
}

/// Returns whether `suffix_bytes` and `value_bytes` more fit without compaction.
#[inline]
pub fn has_gap(node: NodeRef<'_>, suffix_bytes: usize, value_bytes: usize) -> bool {
    node.gap_bytes() >= super::entry_bytes(suffix_bytes, value_bytes)
}

/// Inserts an entry before `slot`.
pub fn insert(page: &mut [u8], slot: usize, suffix: &[u8], value: &[u8]) {
    let node = NodeRef::new(page);
    let (count, run, last) = (node.len(), node.run(), node.last_insert());
    assert!(slot <= count && has_gap(node, suffix.len(), value.len()), "insert needs a slot and room");
    let follows = slot > 0 && last + 1 == slot;
    let offset = push_entry(page, suffix, value);
    let at = SLOTS_START + slot * SLOT_BYTES;
    page.copy_within(at..SLOTS_START + count * SLOT_BYTES, at + SLOT_BYTES);
    write_slot(page, slot, suffix, offset);
    put_u16(page, 34, count + 1);
    put_u16(page, 58, slot);
    put_u16(page, 60, if follows { (run + 1).min(usize::from(u16::MAX)) } else { 0 });
}

#[inline]
fn push_entry(page: &mut [u8], suffix: &[u8], value: &[u8]) -> usize {
    push_entry_of(page, value.len(), suffix, value)
}

/// Writes an entry to the heap, with `length` in place of its value's length.
#[inline]
fn push_entry_of(page: &mut [u8], length: usize, suffix: &[u8], value: &[u8]) -> usize {
    let offset = NodeRef::new(page).heap_start() - ENTRY_HEAD_BYTES - suffix.len() - value.len();
    let value_at = offset + ENTRY_HEAD_BYTES + suffix.len();
    put_u16(page, offset, length);
    page[offset + ENTRY_HEAD_BYTES..value_at].copy_from_slice(suffix);
    page[value_at..value_at + value.len()].copy_from_slice(value);
    put_u32(page, 36, offset as u32);
    offset
}

#[inline]
fn write_slot(page: &mut [u8], slot: usize, suffix: &[u8], offset: usize) {
    let at = SLOTS_START + slot * SLOT_BYTES;
    put_u32(page, at, head_of(suffix));
    put_u16(page, at + 4, offset);
    put_u16(page, at + 6, suffix.len());
}

fn heap_bytes(node: NodeRef<'_>, slot: usize) -> usize {
    node.entry_bytes(slot) - SLOT_BYTES
}

fn add_garbage(page: &mut [u8], bytes: usize) {
    let garbage = NodeRef::new(page).garbage_bytes() + bytes;
    put_u32(page, 40, garbage as u32);
}

/// Removes an entry. Its space becomes garbage.
pub fn remove(page: &mut [u8], slot: usize) {
    let node = NodeRef::new(page);
    let count = node.len();
    assert!(slot < count, "remove needs an entry");
    let freed = heap_bytes(node, slot);
    add_garbage(page, freed);
    let at = SLOTS_START + slot * SLOT_BYTES;
    page.copy_within(at + SLOT_BYTES..SLOTS_START + count * SLOT_BYTES, at);
    put_u16(page, 34, count - 1);
    put_u16(page, 60, 0);
}

/// Returns whether a value can be replaced by any one of `value_bytes` without compaction.
pub fn can_replace(node: NodeRef<'_>, slot: usize, value_bytes: usize) -> bool {
    let suffix_bytes = node.suffix(slot).len();
    let fits_over = node.row_number(slot).is_none() && value_bytes <= node.value(slot).len();
    fits_over || node.gap_bytes() >= ENTRY_HEAD_BYTES + suffix_bytes + value_bytes
}

/// Returns whether a value can be replaced by this one without compaction.
pub fn can_replace_by(node: NodeRef<'_>, slot: usize, value: &[u8]) -> bool {
    if can_replace(node, slot, value.len()) {
        return true;
    }
    row_below(node, slot, value).is_some()
}

/// Returns the number in the columns of an entry's row, if the row of `value` can overwrite it.
fn row_below(node: NodeRef<'_>, slot: usize, value: &[u8]) -> Option<usize> {
    let (number, columns) = (node.row_number(slot)?, node.columns()?);
    columns.fits_over(number, value.get(STAMP_BYTES..)?).then_some(number)
}

/// Replaces a value: in place if it is not longer than the old one, else at a new place. A row in the columns
/// is replaced in place if no column gets another length.
pub fn replace(page: &mut [u8], slot: usize, value: &[u8]) {
    let node = NodeRef::new(page);
    assert!(slot < node.len() && can_replace_by(node, slot, value), "replace needs an entry and room");
    if node.row_number(slot).is_some() {
        return replace_in_columns(page, slot, value);
    }
    let old = node.slot(slot);
    let old_value_bytes = node.value(slot).len();
    if value.len() <= old_value_bytes {
        let at = old.offset + ENTRY_HEAD_BYTES + old.suffix_bytes;
        page[at..at + value.len()].copy_from_slice(value);
        put_u16(page, old.offset, value.len());
        add_garbage(page, old_value_bytes - value.len());
        return;
    }
    replace_elsewhere(page, slot, value);
}

fn replace_elsewhere(page: &mut [u8], slot: usize, value: &[u8]) {
    let node = NodeRef::new(page);
    let suffix = node.suffix(slot).to_vec();
    let freed = heap_bytes(node, slot);
    let offset = push_entry(page, &suffix, value);
    write_slot(page, slot, &suffix, offset);
    add_garbage(page, freed);
}

fn replace_in_columns(page: &mut [u8], slot: usize, value: &[u8]) {
    let node = NodeRef::new(page);
    match (row_below(node, slot, value), node.columns()) {
        (Some(number), Some(all)) => {
            let (directory, count) = (all.directory(), all.count());
            let (stamp, row) = value.split_at(STAMP_BYTES);
            columns::overwrite(page, directory, count, number, row);
            write_value_start(page, slot, stamp);
        }
        _ => replace_elsewhere(page, slot, value),
    }
}

/// Overwrites flags, transaction id and roll pointer of a clustered entry.
pub fn stamp(page: &mut [u8], slot: usize, stamp: Stamp) {
    let node = NodeRef::new(page);
    assert!(node.is_leaf() && node.is_stamped() && slot < node.len(), "only clustered entries have stamps");
    write_value_start(page, slot, &entry::encode_stamp(stamp));
}

/// Overwrites the flags of a secondary entry and raises the leaf's newest transaction.
pub fn set_flags(page: &mut [u8], slot: usize, flags: u8, txn: u64) {
    let node = NodeRef::new(page);
    assert!(node.is_leaf() && slot < node.len(), "only leaf entries have flags");
    write_value_start(page, slot, &[flags]);
    raise_newest(page, txn);
}

/// Raises the leaf's newest transaction.
pub fn raise_newest(page: &mut [u8], txn: u64) {
    let newest = NodeRef::new(page).newest_txn().max(txn);
    fixed::put_at(page, 64, newest.to_le_bytes());
}

#[inline]
fn write_value_start(page: &mut [u8], slot: usize, bytes: &[u8]) {
    let place = NodeRef::new(page).slot(slot);
    let at = place.offset + ENTRY_HEAD_BYTES + place.suffix_bytes;
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the number of free bytes after a rebuild with a prefix of `prefix_bytes`. It is negative if the
/// node would not fit.
pub fn free_after_rebuild(node: NodeRef<'_>, prefix_bytes: usize) -> isize {
    let shorter = node.prefix().len() as isize - prefix_bytes as isize;
    node.free_bytes() as isize + shorter - shorter * node.len() as isize
}

/// Returns whether all keys share a prefix of this length and the node would fit its page with it.
pub fn can_rebuild(node: NodeRef<'_>, prefix_bytes: usize) -> bool {
    let shared = if node.is_empty() { node.prefix().len() } else { best_prefix(node, 0..node.len()).len() };
    prefix_bytes <= shared.max(node.prefix().len()) && free_after_rebuild(node, prefix_bytes) >= 0
}

/// Returns whether the first `keep` entries fit the page with an upper fence of `upper_bytes`.
pub fn can_keep_left(node: NodeRef<'_>, keep: usize, upper_bytes: usize) -> bool {
    let (old, new) = (node.prefix().len(), best_prefix(node, 0..keep).len());
    let entries: usize = (0..keep).map(|index| node.entry_bytes(index) + old).sum();
    let fixed = new + node.lower_fence().len() + upper_bytes + node.directory_bytes();
    entries + fixed <= super::usable_bytes(node.page_bytes()) + keep * new
}

/// Rewrites the node without garbage, with a prefix of `prefix_bytes` of its first key.
pub fn rebuild(page: &mut [u8], prefix_bytes: usize) {
    let old = page.to_vec();
    let node = NodeRef::new(&old);
    let first = if node.is_empty() { node.prefix().to_vec() } else { node.key(0) };
    let frame = Frame { prefix: &first[..prefix_bytes], ..Frame::of(node) };
    let (run, last) = (node.run(), node.last_insert());
    rewrite(page, &frame, node, 0..node.len());
    put_u16(page, 58, last);
    put_u16(page, 60, run);
}

/// Keeps the first `keep` entries: the left half of a split.
pub fn keep_left(page: &mut [u8], keep: usize, right: u32, upper: &[u8]) {
    let old = page.to_vec();
    let node = NodeRef::new(&old);
    let prefix = best_prefix(node, 0..keep);
    let frame = Frame { right, upper, prefix: &prefix, ..Frame::of(node) };
    rewrite(page, &frame, node, 0..keep);
}

/// Formats the page with `frame`, and copies a range of another node's entries into it.
fn rewrite(page: &mut [u8], frame: &Frame<'_>, from: NodeRef<'_>, range: std::ops::Range<usize>) {
    format(page, frame);
    if from.is_by_columns() {
        let entries =
            range.map(|index| (from.key(index).split_off(frame.prefix.len()), from.whole_value(index)));
        let entries: Vec<(Vec<u8>, Vec<u8>)> = entries.collect();
        let entries: Vec<(&[u8], &[u8])> =
            entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        return fill_by_columns(page, &entries);
    }
    let mut key = Vec::new();
    for index in range {
        key.clear();
        key.extend_from_slice(from.prefix());
        key.extend_from_slice(from.suffix(index));
        append(page, &key[frame.prefix.len()..], from.value(index));
    }
}

/// Writes sorted entries (suffix, value) into an empty leaf by columns. Every row that can lie in the columns
/// is placed there.
pub fn fill_by_columns(page: &mut [u8], entries: &[(&[u8], &[u8])]) {
    let node = NodeRef::new(page);
    let Some(all) = node.columns() else { panic!("a leaf by rows has no columns") };
    let (directory, widths) = (all.directory(), node.widths().to_vec());
    let row_of = |value: &'_ &[u8]| columns::is_row(&widths, &value[STAMP_BYTES..]);
    let is_placed: Vec<bool> = entries.iter().map(|(_, value)| row_of(value)).collect();
    let placed = entries.iter().zip(&is_placed).filter(|(_, is_placed)| **is_placed);
    let rows: Vec<&[u8]> = placed.map(|((_, value), _)| &value[STAMP_BYTES..]).collect();
    let area_start = columns::place(page, directory, &widths, &rows);
    put_u32(page, 36, area_start as u32);
    let mut number = 0;
    for (slot, ((suffix, value), is_placed)) in entries.iter().zip(is_placed).enumerate() {
        let offset = match is_placed {
            true => push_entry_of(page, IN_COLUMNS | number, suffix, &value[..STAMP_BYTES]),
            false => push_entry(page, suffix, value),
        };
        number += usize::from(is_placed);
        write_slot(page, slot, suffix, offset);
    }
    put_u16(page, 34, entries.len());
    put_u16(page, 58, entries.len().saturating_sub(1));
}

/// Appends an entry after the last one. This function fills nodes from sorted input.
pub fn append(page: &mut [u8], suffix: &[u8], value: &[u8]) {
    let count = NodeRef::new(page).len();
    assert!(has_gap(NodeRef::new(page), suffix.len(), value.len()), "append needs room");
    let offset = push_entry(page, suffix, value);
    write_slot(page, count, suffix, offset);
    put_u16(page, 34, count + 1);
    put_u16(page, 58, count);
}

/// Returns the longest prefix that a range of a node's entries has in common and that the node may store
/// once.
pub fn best_prefix(node: NodeRef<'_>, range: std::ops::Range<usize>) -> Vec<u8> {
    if range.is_empty() {
        return Vec::new();
    }
    let (first, last) = (node.key(range.start), node.key(range.end - 1));
    let common = super::common_prefix_bytes(&first, &last).min(prefix_bytes_max(node.page_bytes()));
    first[..common].to_vec()
}
