//! The redo operations of tree nodes, and the engine's `RedoOps`.
//!
//! Payloads (little endian)
//!
//! | op | name | payload |
//! |---|---|---|
//! | 16 | Build | level u8, stamped u8, right u32, leftmost u32, newest transaction u64, lengths of lower, upper and prefix u16 x 3, these three, then entries: suffix length u16, value length u16, suffix, value |
//! | 17 | Insert | slot u16, suffix length u16, suffix, value |
//! | 18 | Replace | slot u16, value |
//! | 19 | Remove | slot u16 |
//! | 20 | Stamp | slot u16, flags u8, transaction 6 bytes, roll pointer u64 |
//! | 21 | Flags | slot u16, flags u8, transaction u64 |
//! | 22 | Rebuild | prefix length u16 |
//! | 23 | KeepLeft | entries kept u16, right sibling u32, upper fence |
//! | 24 | Newest | transaction u64 |
//! | 25 | BuildByColumns | number of columns u16, their widths u8 each, then as Build |
//!
//! Invariants
//! 1. A change is first encoded as a redo record. Then the code of redo decodes the record and applies it to
//!    the page. So the change and its redo after a crash are the same code.
//! 2. A payload does not fit its page if the log or the page is damaged. This is an error, never a panic.
//!
//! This module does not know the log. Operations from 64 on belong to the undo pages.

use smallvec::SmallVec;
use varve_pager::page::page_kind;
use varve_pager::{H, Mtr, RedoError, RedoOps};

use crate::node::edit::{self, Frame};
use crate::node::{
    KIND_NODE, KIND_OVERFLOW, NodeRef, STAMP_BYTES, Stamp, VALUE_BYTES_MAX, check, columns_max, entry_bytes,
    usable_bytes,
};
use crate::undo::page::{KIND_DIRECTORY, KIND_UNDO};

/// First operation number that does not belong to trees.
pub const TREE_OPS_END: u8 = 64;
const BUILD: u8 = 16;
const INSERT: u8 = 17;
const REPLACE: u8 = 18;
const REMOVE: u8 = 19;
const STAMP: u8 = 20;
const FLAGS: u8 = 21;
const REBUILD: u8 = 22;
const KEEP_LEFT: u8 = 23;
const NEWEST: u8 = 24;
const BUILD_BY_COLUMNS: u8 = 25;
const FRAME_BYTES: usize = 24;

/// Buffer of an encoded operation. Small operations stay on the stack.
pub type Payload = SmallVec<[u8; 256]>;

/// One change of one node. The fields are those of the table above.
#[expect(missing_docs, reason = "the table of payloads explains the fields")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOp<'a> {
    /// The whole node: frame and entries (as `push_entry` writes them).
    Build { frame: Frame<'a>, entries: &'a [u8] },
    /// A new entry before `slot`.
    Insert { slot: usize, suffix: &'a [u8], value: &'a [u8] },
    /// Another value.
    Replace { slot: usize, value: &'a [u8] },
    /// One entry less.
    Remove { slot: usize },
    /// Another stamp (clustered leaf).
    Stamp { slot: usize, stamp: Stamp },
    /// Other flags (secondary leaf).
    Flags { slot: usize, flags: u8, txn: u64 },
    /// Compaction with another prefix length.
    Rebuild { prefix_bytes: usize },
    /// The left half of a split.
    KeepLeft { keep: usize, right: u32, upper: &'a [u8] },
    /// A transaction changed this secondary leaf.
    Newest { txn: u64 },
}

/// Appends an entry to the `entries` of a `Build`.
pub fn push_entry(entries: &mut Vec<u8>, suffix: &[u8], value: &[u8]) {
    entries.extend_from_slice(&short(suffix.len()));
    entries.extend_from_slice(&short(value.len()));
    entries.extend_from_slice(suffix);
    entries.extend_from_slice(value);
}

/// Returns the `entries` of a `Build` for a range of a node's entries and a prefix of `prefix_bytes`.
pub fn entries(node: NodeRef<'_>, range: std::ops::Range<usize>, prefix_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(node.live_bytes());
    for index in range {
        push_entry(&mut out, &node.key(index)[prefix_bytes..], &node.whole_value(index));
    }
    out
}

/// Changes a latched page, and logs the change.
pub fn apply(mtr: &mut Mtr<'_>, page: H, op: &NodeOp<'_>) {
    let mut payload = Payload::new();
    let code = encode(op, &mut payload);
    mtr.apply(page, code, &payload);
}

fn short(value: usize) -> [u8; 2] {
    assert!(value <= usize::from(u16::MAX), "{value} does not fit two bytes");
    (value as u16).to_le_bytes()
}

/// Encodes an operation, and returns its number.
pub fn encode(op: &NodeOp<'_>, out: &mut Payload) -> u8 {
    match *op {
        NodeOp::Build { frame, entries } => {
            if !frame.widths.is_empty() {
                out.extend_from_slice(&short(frame.widths.len()));
                out.extend_from_slice(frame.widths);
            }
            encode_frame(&frame, out);
            out.extend_from_slice(entries);
            if frame.widths.is_empty() { BUILD } else { BUILD_BY_COLUMNS }
        }
        NodeOp::Insert { slot, suffix, value } => {
            out.extend_from_slice(&short(slot));
            out.extend_from_slice(&short(suffix.len()));
            out.extend_from_slice(suffix);
            out.extend_from_slice(value);
            INSERT
        }
        NodeOp::Replace { slot, value } => {
            out.extend_from_slice(&short(slot));
            out.extend_from_slice(value);
            REPLACE
        }
        NodeOp::Remove { slot } => {
            out.extend_from_slice(&short(slot));
            REMOVE
        }
        NodeOp::Stamp { slot, stamp } => {
            out.extend_from_slice(&short(slot));
            out.extend_from_slice(&crate::node::encode_stamp(stamp));
            STAMP
        }
        _ => encode_rest(op, out),
    }
}

fn encode_rest(op: &NodeOp<'_>, out: &mut Payload) -> u8 {
    match *op {
        NodeOp::Flags { slot, flags, txn } => {
            out.extend_from_slice(&short(slot));
            out.push(flags);
            out.extend_from_slice(&txn.to_le_bytes());
            FLAGS
        }
        NodeOp::Rebuild { prefix_bytes } => {
            out.extend_from_slice(&short(prefix_bytes));
            REBUILD
        }
        NodeOp::KeepLeft { keep, right, upper } => {
            out.extend_from_slice(&short(keep));
            out.extend_from_slice(&right.to_le_bytes());
            out.extend_from_slice(upper);
            KEEP_LEFT
        }
        NodeOp::Newest { txn } => {
            out.extend_from_slice(&txn.to_le_bytes());
            NEWEST
        }
        _ => unreachable!("encode handles the others"),
    }
}

fn encode_frame(frame: &Frame<'_>, out: &mut Payload) {
    let start = out.len();
    out.push(frame.level);
    out.push(u8::from(frame.stamped));
    out.extend_from_slice(&frame.right.to_le_bytes());
    out.extend_from_slice(&frame.leftmost.to_le_bytes());
    out.extend_from_slice(&frame.newest_txn.to_le_bytes());
    for part in [frame.lower, frame.upper, frame.prefix] {
        out.extend_from_slice(&short(part.len()));
    }
    assert_eq!(out.len() - start, FRAME_BYTES, "the frame's fixed part");
    for part in [frame.lower, frame.upper, frame.prefix] {
        out.extend_from_slice(part);
    }
}

/// Reads a payload from front to back.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    fn u16(&mut self) -> Option<usize> {
        self.array().map(|raw| usize::from(u16::from_le_bytes(raw)))
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn frame(&mut self) -> Option<Frame<'a>> {
        let (level, stamped) = (self.byte()?, self.byte()? != 0);
        let (right, leftmost, newest_txn) = (self.u32()?, self.u32()?, self.u64()?);
        let (lower, upper, prefix) = (self.u16()?, self.u16()?, self.u16()?);
        let (lower, upper, prefix) = (self.bytes(lower)?, self.bytes(upper)?, self.bytes(prefix)?);
        Some(Frame { level, stamped, right, leftmost, newest_txn, lower, upper, prefix, widths: &[] })
    }

    fn stamp(&mut self) -> Option<Stamp> {
        let raw: [u8; STAMP_BYTES] = self.array()?;
        let mut reader = Reader(&raw);
        let flags = reader.byte()?;
        let mut txn = [0; 8];
        txn[..6].copy_from_slice(reader.bytes(6)?);
        Some(Stamp { flags, txn: u64::from_le_bytes(txn), roll: reader.u64()? })
    }
}

/// Decodes an operation. Returns `None` if the payload is malformed.
pub fn decode(code: u8, payload: &[u8]) -> Option<NodeOp<'_>> {
    let mut from = Reader(payload);
    let op = match code {
        BUILD => NodeOp::Build { frame: from.frame()?, entries: from.rest() },
        BUILD_BY_COLUMNS => {
            let count = from.u16()?;
            let widths = from.bytes(count).filter(|widths| !widths.is_empty())?;
            NodeOp::Build { frame: Frame { widths, ..from.frame()? }, entries: from.rest() }
        }
        INSERT => {
            let (slot, suffix_bytes) = (from.u16()?, from.u16()?);
            NodeOp::Insert { slot, suffix: from.bytes(suffix_bytes)?, value: from.rest() }
        }
        REPLACE => NodeOp::Replace { slot: from.u16()?, value: from.rest() },
        REMOVE => NodeOp::Remove { slot: from.u16()? },
        STAMP => NodeOp::Stamp { slot: from.u16()?, stamp: from.stamp()? },
        FLAGS => NodeOp::Flags { slot: from.u16()?, flags: from.byte()?, txn: from.u64()? },
        REBUILD => NodeOp::Rebuild { prefix_bytes: from.u16()? },
        KEEP_LEFT => NodeOp::KeepLeft { keep: from.u16()?, right: from.u32()?, upper: from.rest() },
        NEWEST => NodeOp::Newest { txn: from.u64()? },
        _ => return None,
    };
    from.0.is_empty().then_some(op)
}

/// Changes the page. `None` means that the operation does not fit it, or that the page is not a node.
pub fn change(page: &mut [u8], op: &NodeOp<'_>) -> Option<()> {
    let node = NodeRef::new(page);
    match *op {
        NodeOp::Build { frame, entries } => return build(page, &frame, entries),
        NodeOp::Rebuild { prefix_bytes } => {
            sound(check::damage(page).is_none() && edit::can_rebuild(node, prefix_bytes))?;
            edit::rebuild(page, prefix_bytes);
        }
        NodeOp::KeepLeft { keep, right, upper } => {
            sound(check::damage(page).is_none() && keep <= node.len())?;
            sound(edit::can_keep_left(node, keep, upper.len()))?;
            edit::keep_left(page, keep, right, upper);
        }
        NodeOp::Newest { txn } => edit::raise_newest(page, txn),
        _ => {
            sound(check::has_frame(node))?;
            return change_entry(page, op);
        }
    }
    Some(())
}

/// Changes one entry. Only this entry is checked, because such changes are frequent.
fn change_entry(page: &mut [u8], op: &NodeOp<'_>) -> Option<()> {
    let node = NodeRef::new(page);
    match *op {
        NodeOp::Insert { slot, suffix, value } => {
            sound(slot <= node.len() && edit::has_gap(node, suffix.len(), value.len()))?;
            sound(can_be_value(node, value))?;
            edit::insert(page, slot, suffix, value);
        }
        NodeOp::Replace { slot, value } => {
            sound(check::has_entry(node, slot, 0) && can_be_value(node, value))?;
            sound(edit::can_replace_by(node, slot, value))?;
            edit::replace(page, slot, value);
        }
        NodeOp::Remove { slot } => {
            sound(check::has_entry(node, slot, 0))?;
            edit::remove(page, slot);
        }
        NodeOp::Stamp { slot, stamp } => {
            sound(node.is_leaf() && node.is_stamped() && check::has_entry(node, slot, STAMP_BYTES))?;
            edit::stamp(page, slot, stamp);
        }
        NodeOp::Flags { slot, flags, txn } => {
            sound(node.is_leaf() && check::has_entry(node, slot, 1))?;
            edit::set_flags(page, slot, flags, txn);
        }
        _ => unreachable!("change does the others"),
    }
    Some(())
}

fn sound(holds: bool) -> Option<()> {
    holds.then_some(())
}

/// Returns whether an entry of the node can have this value. A leaf by columns relies on the stamp, and on
/// the free bit in the value's length.
fn can_be_value(node: NodeRef<'_>, value: &[u8]) -> bool {
    !node.is_by_columns() || (STAMP_BYTES..=VALUE_BYTES_MAX).contains(&value.len())
}

fn build(page: &mut [u8], frame: &Frame<'_>, entries: &[u8]) -> Option<()> {
    sound(frame.fixed_bytes() <= usable_bytes(page.len()))?;
    if !frame.widths.is_empty() {
        return build_by_columns(page, frame, entries);
    }
    edit::format(page, frame);
    let mut from = Reader(entries);
    while !from.0.is_empty() {
        let (suffix_bytes, value_bytes) = (from.u16()?, from.u16()?);
        let (suffix, value) = (from.bytes(suffix_bytes)?, from.bytes(value_bytes)?);
        sound(edit::has_gap(NodeRef::new(page), suffix.len(), value.len()))?;
        edit::append(page, suffix, value);
    }
    Some(())
}

fn build_by_columns(page: &mut [u8], frame: &Frame<'_>, entries: &[u8]) -> Option<()> {
    sound(frame.level == 0 && frame.stamped && frame.widths.len() <= columns_max(page.len()))?;
    let mut from = Reader(entries);
    let (mut found, mut bytes) = (Vec::new(), frame.fixed_bytes());
    while !from.0.is_empty() {
        let (suffix_bytes, value_bytes) = (from.u16()?, from.u16()?);
        sound((STAMP_BYTES..=VALUE_BYTES_MAX).contains(&value_bytes))?;
        found.push((from.bytes(suffix_bytes)?, from.bytes(value_bytes)?));
        bytes += entry_bytes(suffix_bytes, value_bytes);
    }
    sound(bytes <= usable_bytes(page.len()))?;
    edit::format(page, frame);
    edit::fill_by_columns(page, &found);
    Some(())
}

/// Names of the counters of a cache, by kind of page: leaves, inner nodes, overflow pages, undo with its
/// headers, all others.
const COUNTED_KINDS: [[&str; 2]; 5] = [
    ["read_hits_leaf", "read_misses_leaf"],
    ["read_hits_inner", "read_misses_inner"],
    ["read_hits_overflow", "read_misses_overflow"],
    ["read_hits_undo", "read_misses_undo"],
    ["read_hits_other", "read_misses_other"],
];

/// The redo operations of the engine, and its kinds of pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineRedo;

impl RedoOps for EngineRedo {
    fn apply(&self, op: u8, page: &mut [u8], payload: &[u8]) -> Result<(), RedoError> {
        if op >= TREE_OPS_END {
            return crate::undo::page::apply(op, page, payload);
        }
        let decoded = decode(op, payload);
        decoded.and_then(|op| change(page, &op)).ok_or_else(|| {
            RedoError(format!(
                "operation {op} with a payload of {} bytes does not fit its page",
                payload.len()
            ))
        })
    }

    fn counted_kinds(&self) -> &'static [[&'static str; 2]] {
        &COUNTED_KINDS
    }

    fn counted_kind(&self, page: &[u8]) -> usize {
        match page_kind(page) {
            KIND_NODE if NodeRef::new(page).is_leaf() => 0,
            KIND_NODE => 1,
            KIND_OVERFLOW => 2,
            KIND_UNDO..=KIND_DIRECTORY => 3,
            _ => 4,
        }
    }
}
