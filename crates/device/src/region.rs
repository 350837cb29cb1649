//! Persistent memory: a range of bytes that is stored to, written back line by line, and fenced.
//!
//! Invariants
//! 1. Eight aligned bytes are stored whole or not at all; nothing larger is.
//! 2. A store is durable once its cache line was written back after it and a later fence has returned. Before that any
//!    part of it may or may not survive, since lines leave the processor's caches when they like.
//! 3. The region itself (name and length) is durable when [`crate::Directory::map`] returns.
//!
//! What it does not know: what is kept in it.

/// Bytes of a cache line: the unit of writing back.
pub const LINE_BYTES: u64 = 64;
/// Bytes that are stored whole.
pub const WORD_BYTES: usize = 8;

/// A mapped region. Fences are of the calling thread: they wait for its own write-backs.
pub trait Region: Send + Sync {
    /// Length in bytes.
    fn len_bytes(&self) -> u64;
    /// Copies bytes out.
    fn read(&self, offset: u64, buf: &mut [u8]);
    /// Copies bytes in.
    fn store(&self, offset: u64, bytes: &[u8]);
    /// Begins to write back the lines that hold a range.
    fn write_back(&self, offset: u64, len_bytes: u64);
    /// Waits until everything written back before is durable.
    fn fence(&self);

    /// Makes a range durable.
    fn persist(&self, offset: u64, len_bytes: u64) {
        self.write_back(offset, len_bytes);
        self.fence();
    }
}

/// The lines that hold a range, by number.
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
