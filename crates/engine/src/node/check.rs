//! Checks one node for damage. It trusts none of the node's bytes.
//!
//! This module does not know other pages. `tree::check` compares nodes with each other.

use super::read::head_of;
use super::{
    CHILD_BYTES, ENTRY_HEAD_BYTES, NodeRef, SECONDARY_VALUE_BYTES, SLOT_BYTES, SLOTS_START, STAMP_BYTES,
    columns_max,
};

/// Describes the first damage of a node. `None` means that it is sound.
pub fn damage(page: &[u8]) -> Option<String> {
    let node = NodeRef::new(page);
    check_frame(node)
        .and_then(|()| check_columns(node))
        .and_then(|()| check_entries(node))
        .and_then(|()| check_order(node))
        .err()
}

/// Returns whether lengths and offsets in the header are within the page, and whether a leaf by columns can
/// have as many columns as its header says. A change of one entry needs this.
#[inline]
pub(crate) fn has_frame(node: NodeRef<'_>) -> bool {
    let (page_bytes, fixed) = (node.page_bytes(), node.fixed_bytes());
    let slots_end = SLOTS_START + node.len() * SLOT_BYTES;
    let heap = node.heap_start();
    slots_end <= heap
        && heap <= page_bytes
        && fixed <= page_bytes - heap
        && node.garbage_bytes() <= page_bytes
        && (!node.is_by_columns() || has_column_count(node))
}

/// Returns whether a leaf by columns can have as many columns as its header says. A leaf without columns has
/// no directory that could be read.
fn has_column_count(node: NodeRef<'_>) -> bool {
    (1..=columns_max(node.page_bytes())).contains(&node.column_count())
}

/// Returns whether an entry is within the heap of a node, and its value has at least `value_bytes_min` bytes.
/// `has_frame` must be true for the node.
#[inline]
pub(crate) fn has_entry(node: NodeRef<'_>, index: usize, value_bytes_min: usize) -> bool {
    if index >= node.len() {
        return false;
    }
    let (slot, end) = (node.slot(index), node.page_bytes() - node.fixed_bytes());
    let value_start = slot.offset + ENTRY_HEAD_BYTES + slot.suffix_bytes;
    if node.is_by_columns() {
        return slot.offset >= node.heap_start() && has_entry_by_columns(node, index, value_start, end);
    }
    slot.offset >= node.heap_start() && value_start + value_bytes_min <= end && {
        let bytes = node.entry_bytes(index) - SLOT_BYTES;
        slot.offset + bytes <= end && slot.offset + bytes >= value_start + value_bytes_min
    }
}

/// Does the same as `has_entry` for a leaf by columns, whose values all begin with a stamp.
fn has_entry_by_columns(node: NodeRef<'_>, index: usize, value_start: usize, end: usize) -> bool {
    if value_start + STAMP_BYTES > end || !node.is_stamped() {
        return false;
    }
    match (node.row_number(index), node.columns()) {
        (Some(row), Some(columns)) => columns.has_row(row, node.heap_start()),
        _ => {
            let value_bytes = node.entry_bytes(index) - SLOT_BYTES - (value_start - node.slot(index).offset);
            value_bytes >= STAMP_BYTES && value_start + value_bytes <= end
        }
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn check_frame(node: NodeRef<'_>) -> Result<(), String> {
    let (page_bytes, fixed) = (node.page_bytes(), node.fixed_bytes());
    ensure(SLOTS_START + fixed <= page_bytes, || format!("prefix and fences of {fixed} bytes"))?;
    let implied = node.lower_fence().starts_with(node.prefix())
        && node.upper_fence().unwrap_or(&[]).starts_with(node.prefix());
    ensure(node.is_prefix_implied() == implied, || "its flag about the prefix is wrong".into())?;
    let slots_end = SLOTS_START + node.len() * SLOT_BYTES;
    let heap = node.heap_start();
    ensure(slots_end <= heap && heap <= page_bytes - fixed, || {
        format!("heap at {heap}, behind {} slots and before {fixed} bytes of fences", node.len())
    })
}

fn check_columns(node: NodeRef<'_>) -> Result<(), String> {
    let count = node.column_count();
    let Some(columns) = node.columns() else {
        return ensure(count == 0, || format!("{count} columns in a node by rows"));
    };
    ensure(node.is_leaf() && node.is_stamped(), || "columns in a node that is no leaf of rows".into())?;
    ensure(has_column_count(node), || format!("{count} columns"))?;
    columns.damage(node.heap_start()).map_or(Ok(()), Err)
}

fn check_entries(node: NodeRef<'_>) -> Result<(), String> {
    let heap_end = node.page_bytes() - node.fixed_bytes();
    let end = node.columns().map_or(heap_end, |columns| columns.area_start());
    let (mut live, mut rows) = (0, Vec::new());
    let mut taken = Vec::with_capacity(node.len());
    for index in 0..node.len() {
        let slot = node.slot(index);
        let start = slot.offset + ENTRY_HEAD_BYTES + slot.suffix_bytes;
        ensure(slot.offset >= node.heap_start() && start <= end, || {
            format!("entry {index} lies outside the heap")
        })?;
        let bytes = match node.row_number(index) {
            None => node.entry_bytes(index) - SLOT_BYTES,
            Some(row) => {
                let is_there = node.columns().is_some_and(|columns| row < columns.rows());
                ensure(is_there, || format!("row {row} of entry {index} is not in the columns"))?;
                live += node.entry_bytes(index) - SLOT_BYTES - (start - slot.offset) - STAMP_BYTES;
                rows.push(row);
                start - slot.offset + STAMP_BYTES
            }
        };
        ensure(slot.offset + bytes <= end, || format!("entry {index} reaches outside the heap"))?;
        ensure(slot.head == head_of(node.suffix(index)), || {
            format!("head of entry {index} is not its key's")
        })?;
        check_value(node, index)?;
        taken.push((slot.offset, bytes));
        live += bytes;
    }
    taken.sort_unstable();
    let apart = taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    ensure(apart, || "entries overlap".into())?;
    rows.sort_unstable();
    ensure(rows.windows(2).all(|pair| pair[0] < pair[1]), || "two entries have the same row".into())?;
    let heap_bytes = heap_end - node.heap_start();
    ensure(live + node.garbage_bytes() == heap_bytes, || {
        format!("{live} live and {} garbage bytes in a heap of {heap_bytes}", node.garbage_bytes())
    })
}

fn check_value(node: NodeRef<'_>, index: usize) -> Result<(), String> {
    if node.row_number(index).is_some() {
        return Ok(());
    }
    let bytes = node.value(index).len();
    let sound = match (node.is_leaf(), node.is_stamped()) {
        (false, _) => bytes == CHILD_BYTES,
        (true, true) => bytes >= STAMP_BYTES,
        (true, false) => bytes == SECONDARY_VALUE_BYTES,
    };
    ensure(sound, || format!("value of entry {index} has {bytes} bytes"))
}

fn check_order(node: NodeRef<'_>) -> Result<(), String> {
    for index in 1..node.len() {
        let ordered = node.suffix(index - 1) < node.suffix(index);
        ensure(ordered, || format!("entries {} and {index} are not in order", index - 1))?;
    }
    let Some(last) = node.len().checked_sub(1) else { return Ok(()) };
    ensure(node.key(0).as_slice() >= node.lower_fence(), || "a key is below the lower fence".into())?;
    let below = node.upper_fence().is_none_or(|fence| node.key(last).as_slice() < fence);
    ensure(below, || "a key is not below the upper fence".into())
}
