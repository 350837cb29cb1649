//! Checks one node for damage. It trusts none of the node's bytes.
//!
//! This module knows nothing about other pages. `tree::check` compares nodes with each other.

use super::read::head_of;
use super::{
    CHILD_BYTES, ENTRY_HEAD_BYTES, NodeRef, SECONDARY_VALUE_BYTES, SLOT_BYTES, SLOTS_START, STAMP_BYTES,
};

/// Describes the first damage of a node. `None` means that it is sound.
pub fn damage(page: &[u8]) -> Option<String> {
    let node = NodeRef::new(page);
    check_frame(node).and_then(|()| check_entries(node)).and_then(|()| check_order(node)).err()
}

/// Whether lengths and offsets in the header are within the page. A change of one entry needs this.
#[inline]
pub(crate) fn has_frame(node: NodeRef<'_>) -> bool {
    let (page_bytes, fixed) = (node.page_bytes(), fixed_bytes(node));
    let slots_end = SLOTS_START + node.len() * SLOT_BYTES;
    let heap = node.heap_start();
    slots_end <= heap
        && heap <= page_bytes
        && fixed <= page_bytes - heap
        && node.garbage_bytes() <= page_bytes
}

/// Whether an entry is within the heap of a node that `has_frame`, with a value of at least
/// `value_bytes_min`.
#[inline]
pub(crate) fn has_entry(node: NodeRef<'_>, index: usize, value_bytes_min: usize) -> bool {
    if index >= node.len() {
        return false;
    }
    let (slot, end) = (node.slot(index), node.page_bytes() - fixed_bytes(node));
    let value_start = slot.offset + ENTRY_HEAD_BYTES + slot.suffix_bytes;
    slot.offset >= node.heap_start() && value_start + value_bytes_min <= end && {
        let bytes = node.entry_bytes(index) - SLOT_BYTES;
        slot.offset + bytes <= end && slot.offset + bytes >= value_start + value_bytes_min
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn fixed_bytes(node: NodeRef<'_>) -> usize {
    node.raw_lengths().iter().sum()
}

fn check_frame(node: NodeRef<'_>) -> Result<(), String> {
    let (page_bytes, fixed) = (node.page_bytes(), fixed_bytes(node));
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

fn check_entries(node: NodeRef<'_>) -> Result<(), String> {
    let end = node.page_bytes() - fixed_bytes(node);
    let mut live = 0;
    let mut taken = Vec::with_capacity(node.len());
    for index in 0..node.len() {
        let slot = node.slot(index);
        let start = slot.offset + ENTRY_HEAD_BYTES + slot.suffix_bytes;
        ensure(slot.offset >= node.heap_start() && start <= end, || {
            format!("entry {index} lies outside the heap")
        })?;
        let bytes = node.entry_bytes(index) - SLOT_BYTES;
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
    let heap_bytes = end - node.heap_start();
    ensure(live + node.garbage_bytes() == heap_bytes, || {
        format!("{live} live and {} garbage bytes in a heap of {heap_bytes}", node.garbage_bytes())
    })
}

fn check_value(node: NodeRef<'_>, index: usize) -> Result<(), String> {
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
