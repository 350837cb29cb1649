//! The list of the chunks of a batch: the chunks that it has made, and the chunks that it does not need any
//! more.
//!
//! The list is in blocks of 8192 bytes. Every batch fills the list from its beginning. A block consists of
//! 128 lines. The first line of a block has the pointer to the next block (8 bytes; 0 = none). Each other
//! line has:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | number of the batch |
//! | 8 | 4 | crc32c of the line without this field, and of the line's number |
//! | 12 | 4 | bits 0..24 number of lines of the list, bits 24..32 number of chunks in this line |
//! | 16 | 8 each | 6 chunks: bit 0 set for an old chunk, bits 4..48 pointer, bits 48..60 owner |
//!
//! Invariants
//! 1. The list of a batch is durable before one of its new chunks is active. The list stays until its old
//!    chunks are free.
//! 2. A start can find lines of an earlier list only if the new list was not durable yet. At that time no
//!    chunk of the new list is active, and all old chunks of the earlier list are free. So the start frees
//!    nothing that is needed.
//!
//! This module does not know what chunks hold.

use varve_device::LINE_BYTES;

use crate::layout::get_u64;
use crate::pointer::{Owner, Pointer};
use crate::publish::Step;
use crate::space::{OwnedChunk, Space};
use crate::store_error::{StoreError, StoreResult};

const BLOCK_BYTES: usize = 8192;
const LINE: usize = LINE_BYTES as usize;
/// The number of lines with chunks in a block.
const BLOCK_LINES: usize = BLOCK_BYTES / LINE - 1;
/// The number of chunks of a line.
const LINE_CHUNKS: usize = 6;
const CHUNKS_AT: usize = 16;
const COUNT_BITS: u32 = 24;
const OWNER_BITS: u32 = 48;
const OLD: u64 = 1;

/// A chunk of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    pub(super) chunk: OwnedChunk,
    /// Whether the chunk is old: the batch does not need it any more. Otherwise the batch has made it.
    pub(super) is_old: bool,
}

impl Listed {
    fn encode(&self) -> u64 {
        let OwnedChunk { pointer, owner } = self.chunk;
        pointer.to_u64() | u64::from(owner.number()) << OWNER_BITS | u64::from(self.is_old)
    }

    fn decode(word: u64) -> Option<Listed> {
        let pointer = Pointer::from_u64(word & ((1 << OWNER_BITS) - 1) & !OLD);
        let owner = Owner::new((word >> OWNER_BITS) as u16)?;
        Some(Listed { chunk: OwnedChunk { pointer, owner }, is_old: word & OLD != 0 })
    }
}

/// The blocks of the list.
pub(super) struct ChunkList {
    owner: Owner,
    blocks: Vec<Pointer>,
}

/// Reserves an empty block. A later fence of the caller makes its bytes durable.
pub(super) fn new_block(space: &Space, owner: Owner) -> StoreResult<Pointer> {
    let block = space.allocator().allocate(owner, BLOCK_BYTES as u64)?;
    space.store_back(block, 0, &[0; BLOCK_BYTES])?;
    Ok(block)
}

/// Returns the checksum of a line.
fn checksum(line: &[u8; LINE], number: usize) -> u32 {
    let (before, behind) = (line.get(..8).unwrap_or_default(), line.get(12..).unwrap_or_default());
    let sum = crc32c::crc32c_append(crc32c::crc32c(before), behind);
    crc32c::crc32c_append(sum, &(number as u32).to_le_bytes())
}

impl ChunkList {
    /// Finds the blocks of a list.
    pub(super) fn open(space: &Space, owner: Owner, first: Pointer) -> StoreResult<ChunkList> {
        let mut list = ChunkList { owner, blocks: Vec::new() };
        let mut next = first;
        while !next.is_none() {
            if list.blocks.contains(&next) {
                return Err(StoreError::Damaged { what: "a circle in the list of chunks", at: next });
            }
            list.blocks.push(next);
            next = Pointer::from_u64(space.load(space.word(next, 0)?));
        }
        Ok(list)
    }

    pub(super) fn blocks(&self) -> &[Pointer] {
        &self.blocks
    }

    /// Adds blocks until the list has room for this many chunks. Errors: the region is full.
    pub(super) fn reserve(&mut self, space: &Space, count: usize) -> StoreResult<()> {
        while self.blocks.len() * BLOCK_LINES * LINE_CHUNKS < count {
            let last = self.blocks.last().copied().unwrap_or_default();
            let block = new_block(space, self.owner)?;
            space.fence();
            let link = Step::Store { word: space.word(last, 0)?, value: block.to_u64() };
            if let Err(error) = space.allocator().publish(&[Step::Activate(block), link]) {
                space.give_up(block)?;
                return Err(error.into());
            }
            self.blocks.push(block);
        }
        Ok(())
    }

    /// Returns where a line is: its block, and its offset in the block.
    fn line_at(&self, number: usize) -> Option<LineAt> {
        let block = *self.blocks.get(number / BLOCK_LINES)?;
        Some(LineAt { block, offset: ((number % BLOCK_LINES + 1) * LINE) as u64 })
    }

    /// Stores the list of a batch, for which room is reserved. A later fence of the caller makes it durable.
    pub(super) fn stage(&self, space: &Space, batch: u64, listed: &[Listed]) -> StoreResult<()> {
        let lines = listed.len().div_ceil(LINE_CHUNKS);
        for (number, chunks) in listed.chunks(LINE_CHUNKS).enumerate() {
            let mut line = [0; LINE];
            let counts = lines as u32 | (chunks.len() as u32) << COUNT_BITS;
            let words = [batch, u64::from(counts) << 32].into_iter().chain(chunks.iter().map(Listed::encode));
            line.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
            let sum = checksum(&line, number).to_le_bytes();
            if let Some(place) = line.get_mut(8..).and_then(|rest| rest.first_chunk_mut()) {
                *place = sum;
            }
            let Some(LineAt { block, offset }) = self.line_at(number) else { break };
            space.store_back(block, offset, &line)?;
        }
        Ok(())
    }

    /// Returns the chunks in the list of a batch, up to the first line that was not stored.
    pub(super) fn read(&self, space: &Space, batch: u64) -> StoreResult<Vec<Listed>> {
        let (mut listed, mut lines) = (Vec::new(), 1);
        for number in 0.. {
            let Some(LineAt { block, offset }) = self.line_at(number).filter(|_| number < lines) else {
                break;
            };
            let mut line = [0; LINE];
            space.read(block, offset, &mut line)?;
            let (sum, counts) = (get_u64(&line, 8) as u32, (get_u64(&line, 8) >> 32) as u32);
            if get_u64(&line, 0) != batch || sum != checksum(&line, number) {
                break;
            }
            lines = (counts & ((1 << COUNT_BITS) - 1)) as usize;
            let chunks = (counts >> COUNT_BITS) as usize;
            let words = (0..chunks.min(LINE_CHUNKS)).map(|chunk| get_u64(&line, CHUNKS_AT + 8 * chunk));
            listed.extend(words.filter_map(Listed::decode));
        }
        Ok(listed)
    }
}

/// Where a line is.
struct LineAt {
    block: Pointer,
    offset: u64,
}
