//! Rows too large for a leaf: chains of pages of the tree's segment, and the stub that stands for them in the leaf.
//!
//! Does not know: when a chain is no longer needed (purge does).

use varve_pager::Pager;

use crate::tree::{Tree, TreeResult};

/// Whether a payload is the stub of a chain.
pub fn is_stub(payload: &[u8]) -> bool {
    payload[0] & crate::row::EXTERNAL != 0
}

/// Whether a payload of this length goes to a chain, beside a key of this length.
pub fn must_spill(pager: &Pager, key_bytes: usize, payload_bytes: usize) -> bool {
    payload_bytes > crate::node::payload_bytes_max(pager.page_size(), key_bytes)
}

/// Writes a payload to a chain in mini-transactions of its own; gives the stub to put in the leaf instead.
pub fn write(pager: &Pager, tree: &Tree, payload: &[u8]) -> TreeResult<Vec<u8>> {
    unimplemented!()
}

/// Appends the payload that a stub stands for to `out`.
pub fn read(pager: &Pager, stub: &[u8], out: &mut Vec<u8>) -> TreeResult<()> {
    unimplemented!()
}

/// Frees the chain of a stub, in mini-transactions of its own. Safe to repeat after a crash: see the invariants.
pub fn free(pager: &Pager, tree: &Tree, stub: &[u8]) -> TreeResult<()> {
    unimplemented!()
}
