//! The master record and the two directories: a list of chunks of 8192 bytes.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VNVMCOW1"; its last character is the version |
//! | 8 | 8 | pointer to the next chunk; 0 = none |
//! | 16 | 8 | first chunk: master record |
//! | 24 | 8 | first chunk: pointer to the first block of the list of chunks |
//! | 32 | 8 | first chunk: bytes of a node |
//! | 64 | 64 each | directory 0: 63 tables (`cow_tree/roots.rs`) |
//! | 4096 | 64 each | directory 1: the same 63 tables |
//!
//! All other bytes are zeros. The master record is the number of the last batch. If this number is even,
//! directory 0 is the current one, else directory 1. A chunk is added when a table gets a number that has no
//! line yet.
//!
//! Invariants
//! 1. The current directory is never changed. The master record changes when the other directory is durable.
//!
//! This module does not know nodes or chunks.

use varve_device::LINE_BYTES;

use super::list;
use crate::cow_tree::{Directories, Line, Roots};
use crate::error::MemoryError;
use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer};
use crate::publish::Step;
use crate::space::Space;
use crate::store::TABLES_MAX;
use crate::store_error::{StoreError, StoreResult};

const MAGIC: u64 = u64::from_le_bytes(*b"VNVMCOW1");
const CHUNK_BYTES: usize = 8192;
const NEXT_AT: u64 = 8;
const MASTER_AT: u64 = 16;
const LIST_AT: usize = 24;
const NODE_BYTES_AT: usize = 32;
/// The number of tables of a chunk.
const CHUNK_TABLES: usize = 63;
/// The offset at which the lines of each directory begin.
const LINES_AT: [usize; 2] = [64, 4096];
/// The smallest and the largest size of nodes, in bytes.
const NODE_BYTES_MIN: usize = 512;
const NODE_BYTES_MAX: usize = 16_384;
/// No store has had this many batches. So a larger number is damaged.
const BATCH_MAX: u64 = u64::MAX / 2;

/// The master record and the directories.
pub(super) struct Directory {
    owner: Owner,
    chunks: Vec<Pointer>,
    batch: u64,
    lines: Directories,
    /// The first block of the list of chunks.
    pub(super) list: Pointer,
    pub(super) node_bytes: usize,
}

/// Stores an empty chunk that begins with the magic and these words. A later fence of the caller makes it
/// durable.
fn new_chunk(space: &Space, owner: Owner, words: &[u64]) -> StoreResult<Pointer> {
    let at = space.allocator().allocate(owner, CHUNK_BYTES as u64)?;
    let mut bytes = [0; CHUNK_BYTES];
    let words = [MAGIC].iter().chain(words);
    bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
    space.store_back(at, 0, &bytes)?;
    Ok(at)
}

/// Finds the first chunk of the store with this name. Makes an empty store if there is none.
fn find_or_create(space: &Space, name: &str, owner: Owner, node_bytes: usize) -> StoreResult<Pointer> {
    let root = match space.allocator().root(name) {
        Err(MemoryError::NoRoot { .. }) => space.allocator().create_root(name)?,
        found => found?,
    };
    let found = Pointer::from_u64(space.load(root));
    if !found.is_none() {
        return Ok(found);
    }
    let block = list::new_block(space, owner)?;
    let node_bytes = node_bytes.clamp(NODE_BYTES_MIN, NODE_BYTES_MAX) as u64;
    let chunk = new_chunk(space, owner, &[0, 0, block.to_u64(), node_bytes]);
    let chunk = chunk.inspect_err(|_| drop(space.give_up(block)))?;
    space.fence();
    let link = Step::Store { word: root, value: chunk.to_u64() };
    space.allocator().publish(&[Step::Activate(chunk), Step::Activate(block), link])?;
    Ok(chunk)
}

impl Directory {
    /// Reads the directories of a store. `node_bytes` is used for a new store only.
    pub(super) fn open(space: &Space, name: &str, owner: Owner, node_bytes: usize) -> StoreResult<Directory> {
        let first = find_or_create(space, name, owner, node_bytes)?;
        let [mut even, mut odd] = [Vec::new(), Vec::new()];
        let (mut chunks, mut next, mut head) = (Vec::new(), first, [0; LINE_BYTES as usize]);
        while !next.is_none() {
            let mut bytes = [0; CHUNK_BYTES];
            space.read(next, 0, &mut bytes)?;
            if get_u64(&bytes, 0) != MAGIC || chunks.len() * CHUNK_TABLES > TABLES_MAX {
                let what = "the magic of a store of the engine nvm_cow";
                return Err(StoreError::Damaged { what, at: next });
            }
            let lines = bytes.as_chunks().0;
            for (side, at) in [&mut even, &mut odd].into_iter().zip(LINES_AT) {
                side.extend(lines.iter().skip(at / LINE_BYTES as usize).take(CHUNK_TABLES));
            }
            if chunks.is_empty() {
                head = lines.first().copied().unwrap_or(head);
            }
            chunks.push(next);
            next = Pointer::from_u64(get_u64(&bytes, NEXT_AT as usize));
        }
        let (batch, node_bytes) =
            (get_u64(&head, MASTER_AT as usize), get_u64(&head, NODE_BYTES_AT) as usize);
        if !(NODE_BYTES_MIN..=NODE_BYTES_MAX).contains(&node_bytes) {
            return Err(StoreError::Damaged { what: "the size of nodes", at: first });
        }
        if batch > BATCH_MAX {
            return Err(StoreError::Damaged { what: "the number of the last batch", at: first });
        }
        let is_even = batch.is_multiple_of(2);
        let lines = if is_even { Directories::new(even, odd) } else { Directories::new(odd, even) };
        let list = Pointer::from_u64(get_u64(&head, LIST_AT));
        Ok(Directory { owner, chunks, batch, lines, list, node_bytes })
    }

    /// Returns the number of the batch that has become durable last.
    pub(super) fn batch(&self) -> u64 {
        self.batch
    }

    pub(super) fn chunks(&self) -> &[Pointer] {
        &self.chunks
    }

    /// Returns the roots of the current directory.
    pub(super) fn current(&self) -> StoreResult<Roots> {
        self.lines.current()
    }

    /// Makes sure that there is a line for each of this many tables, durably.
    ///
    /// Errors: the region is full.
    pub(super) fn reserve(&mut self, space: &Space, tables: usize) -> StoreResult<()> {
        while self.chunks.len() * CHUNK_TABLES < tables {
            let last = self.chunks.last().copied().unwrap_or_default();
            let word = space.word(last, NEXT_AT)?;
            let chunk = new_chunk(space, self.owner, &[])?;
            space.fence();
            let link = Step::Store { word, value: chunk.to_u64() };
            let linked = space.allocator().publish(&[Step::Activate(chunk), link]);
            linked.inspect_err(|_| drop(space.give_up(chunk)))?;
            self.chunks.push(chunk);
        }
        Ok(())
    }

    /// Stores the lines of the dirty directory that differ from these roots. A later fence of the caller
    /// makes them durable.
    pub(super) fn stage(&mut self, space: &Space, roots: &mut Roots) -> StoreResult<()> {
        let side = if self.batch.is_multiple_of(2) { 1 } else { 0 };
        let from = LINES_AT.get(side).copied().unwrap_or_default();
        let chunks = &self.chunks;
        self.lines.stage(roots, |number, line: &Line| {
            let chunk = chunks.get(number / CHUNK_TABLES).copied().unwrap_or_default();
            space.store_back(chunk, (from + number % CHUNK_TABLES * LINE_BYTES as usize) as u64, line)
        })
    }

    /// Makes the dirty directory the current one, durably.
    pub(super) fn flip(&mut self, space: &Space) -> StoreResult<()> {
        let first = self.chunks.first().copied().unwrap_or_default();
        self.batch += 1;
        self.lines.flip();
        space.store_word(space.word(first, MASTER_AT)?, self.batch);
        space.fence();
        Ok(())
    }
}
