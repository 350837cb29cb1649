//! The node of a B+tree: a slotted page with a common prefix, 4-byte key heads and fences. The fences of a
//! node are the bounds of the keys that belong in it: the lower fence is the lowest such key, the upper fence
//! is the first key above them. The rows of a leaf may lie by columns (`columns.rs`).
//!
//! Layout after the pager's page header (little endian; page numbers are within the tree's space)
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 32 | 1 | level: 0 leaf |
//! | 33 | 1 | bit 0: leaf entries carry a stamp (clustered tree); bit 1: the fences imply the prefix; bit 2: a leaf by columns |
//! | 34 | 2 | slot count |
//! | 36 | 4 | heap start: lowest byte of the entries |
//! | 40 | 4 | garbage: bytes of the heap that no slot refers to |
//! | 44 | 4 | right sibling, 0 none |
//! | 48 | 4 | leftmost child (level > 0) |
//! | 52 | 2 | prefix length |
//! | 54 | 2 | lower fence length |
//! | 56 | 2 | upper fence length, 0 = no upper bound |
//! | 58 | 2 | slot of the last insert |
//! | 60 | 2 | run: successive inserts that were each at the slot after the one before |
//! | 62 | 2 | number of columns of a leaf by columns, else 0 |
//! | 64 | 8 | newest transaction that changed the leaf (secondary trees) |
//! | 72 | 8 each | slots: head u32 (first four bytes of the suffix, read big endian), offset u16, suffix length u16 |
//! | ... | | free |
//! | heap start | | entries: value length u16, key suffix, value; in any order |
//! | ... | | in a leaf by columns: the columns and their directory |
//! | end - ... | | prefix, lower fence, upper fence |
//!
//! A leaf value of a clustered tree is: flags u8, transaction id 6 bytes, roll pointer 8 bytes, payload. A
//! leaf value of a secondary tree is: flags u8. An inner value is a child's page number (u32). The child
//! holds the keys >= its entry's key.
//!
//! Invariants
//! 1. Slots are in strictly ascending key order. Every key is prefix + suffix, and lower fence <= key < upper
//!    fence.
//! 2. heap start >= end of slots; live entries with their rows in columns + garbage + directory + prefix +
//!    fences = page end - heap start.
//! 3. Every change is a function of `edit`, which depends only on the page's bytes and its arguments. So redo
//!    gives the same bytes as the original change.
//! 4. The search trusts the page, because checksums and `check` protect it. Damage can make it panic, but it
//!    never reads outside the page.
//!
//! Source of heads and prefixes: Graefe, "Modern B-Tree Techniques" (2011), sections 3.4 and 3.5.
//!
//! This module does not know latches, logs, other pages, or what keys and payloads mean.
pub mod check;
mod columns;
pub mod edit;
mod entry;
mod minipage;
mod read;
pub mod split;

pub(crate) use columns::VALUE_BYTES_MAX;
pub use columns::{Columns, columns_max};
pub(crate) use entry::encode_stamp;
pub use entry::{EntryRef, FLAG_DELETED, Stamp, TXN_MAX};
pub use minipage::Minipage;
pub use read::{KeyPosition, NodeRef, common_prefix_bytes, entry_bytes};

/// Page kind of tree nodes, in the pager's header.
pub const KIND_NODE: u8 = 16;
/// Page kind of the pages of large values (`overflow.rs`).
pub const KIND_OVERFLOW: u8 = 17;
/// First byte of the node in its page.
pub const NODE_START: usize = 32;
pub(crate) const SLOTS_START: usize = 72;
pub(crate) const SLOT_BYTES: usize = 8;
pub(crate) const STAMPED: u8 = 0x01;
/// Both fences begin with the prefix, so every key between them begins with it, too.
pub(crate) const PREFIX_IMPLIED: u8 = 0x02;
/// Rows of this leaf may lie by columns.
pub(crate) const BY_COLUMNS: u8 = 0x04;
/// The number of bytes of an entry without its suffix, value and slot.
pub(crate) const ENTRY_HEAD_BYTES: usize = 2;
/// Bytes of flags, transaction id and roll pointer in a clustered leaf value.
pub const STAMP_BYTES: usize = 15;
/// Bytes of a leaf value of a secondary tree.
pub const SECONDARY_VALUE_BYTES: usize = 1;
/// Bytes of an inner value.
pub const CHILD_BYTES: usize = 4;

/// Returns how many bytes slots, entries, prefix and fences share.
pub const fn usable_bytes(page_bytes: usize) -> usize {
    page_bytes - SLOTS_START
}

/// Returns the longest key in bytes: a quarter of the usable page.
pub const fn key_bytes_max(page_bytes: usize) -> usize {
    usable_bytes(page_bytes) / 4
}

/// Returns the length limit of the prefix that a node stores once for all its keys.
pub const fn prefix_bytes_max(page_bytes: usize) -> usize {
    usable_bytes(page_bytes) / 16
}

/// Returns the most bytes that an entry with its slot may take. Two fences of `key_bytes_max`, a prefix and
/// one such entry fit in a page, with the directory of a leaf by columns, and a full page can always be split
/// so that both halves fit (`split`).
pub const fn entry_bytes_max(page_bytes: usize) -> usize {
    usable_bytes(page_bytes) * 3 / 8
}

/// Returns the longest payload that is stored in a clustered leaf with a key of `key_bytes`. A longer payload
/// is in an overflow chain.
pub const fn payload_bytes_max(page_bytes: usize, key_bytes: usize) -> usize {
    entry_bytes_max(page_bytes) - SLOT_BYTES - ENTRY_HEAD_BYTES - STAMP_BYTES - key_bytes
}
