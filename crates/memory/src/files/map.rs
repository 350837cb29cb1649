//! The blocks of a file, in their order, and the maps that list them.
//!
//! Invariants
//! 1. A block is active exactly as long as a map lists it, because both change in one publication.
//! 2. Blocks are listed without gaps. A map is added when the maps before it are full.
//! 3. A refused change leaves the blocks as they were.
//!
//! This module does not know the length of the file.

use varve_device::WORD_BYTES;

use super::error::{FileError, FileResult};
use super::format::{BLOCK_BYTES, MAP_BLOCKS, MAP_BYTES, NEXT_AT, block_at};
use super::space::FileSpace;
use crate::layout::get_u64;
use crate::pointer::{Pointer, Word};
use crate::publish::Step;
use crate::sizes::STEPS_MAX;

/// The number of blocks that one publication can add or free. Each block takes two of its steps.
const BLOCKS_AT_ONCE: usize = STEPS_MAX / 2;

/// The blocks of a file.
pub(super) struct BlockMap {
    /// The maps. The first one exists as long as the file.
    maps: Vec<Pointer>,
    blocks: Vec<Pointer>,
}

/// A place in the region where bytes of a file are contiguous.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// The offset in the region.
    pub(super) offset: u64,
    /// Bytes from there to the end of the block.
    pub(super) len_bytes: usize,
}

/// Reserves an empty map. A later fence of the caller makes its bytes durable.
pub(super) fn new_map(space: &FileSpace) -> FileResult<Pointer> {
    space.allocate_with(&[0; MAP_BYTES])
}

impl BlockMap {
    /// Returns the blocks of a new file.
    pub(super) fn empty(first: Pointer) -> BlockMap {
        BlockMap { maps: vec![first], blocks: Vec::new() }
    }

    /// Reads the maps of a file. Errors: a map is damaged.
    pub(super) fn read(space: &FileSpace, first: Pointer) -> FileResult<BlockMap> {
        let mut map = BlockMap { maps: Vec::new(), blocks: Vec::new() };
        let mut next = first;
        while !next.is_none() {
            space.check(next, MAP_BYTES as u64, "the map of a file")?;
            if map.maps.contains(&next) {
                return Err(FileError::Damaged { what: "a circle of maps of a file", at: next });
            }
            next = map.read_one(space, next)?;
        }
        Ok(map)
    }

    /// Adds the blocks of a map. Returns the pointer to the next map.
    fn read_one(&mut self, space: &FileSpace, at: Pointer) -> FileResult<Pointer> {
        let mut bytes = [0; MAP_BYTES];
        space.region().read(at.to_u64(), &mut bytes);
        let before = self.maps.len() * MAP_BLOCKS;
        self.maps.push(at);
        for number in 0..MAP_BLOCKS {
            let block = Pointer::from_u64(get_u64(&bytes, block_at(number) as usize));
            if block.is_none() {
                continue;
            }
            if self.blocks.len() != before + number {
                return Err(FileError::Damaged { what: "a gap in the map of a file", at });
            }
            space.check(block, BLOCK_BYTES, "a block of a file")?;
            self.blocks.push(block);
        }
        Ok(Pointer::from_u64(get_u64(&bytes, NEXT_AT as usize)))
    }

    /// Returns the first map.
    pub(super) fn first(&self) -> Pointer {
        self.maps.first().copied().unwrap_or_default()
    }

    /// Returns the number of bytes that fit in the blocks.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    /// Returns where a byte of the file is in the region, or `None` after the last block.
    pub(super) fn locate(&self, at: u64) -> Option<Stretch> {
        let block = self.blocks.get((at / BLOCK_BYTES) as usize)?;
        let within = at % BLOCK_BYTES;
        Some(Stretch { offset: block.to_u64() + within, len_bytes: (BLOCK_BYTES - within) as usize })
    }

    /// Returns the word that lists a block.
    fn word(&self, space: &FileSpace, block: usize) -> FileResult<Word> {
        let map = self.maps.get(block / MAP_BLOCKS).copied().unwrap_or_default();
        space.word(map, block_at(block % MAP_BLOCKS))
    }

    /// Adds blocks until they hold this many bytes, durably. Errors: the region is full.
    pub(super) fn grow_to(&mut self, space: &FileSpace, len_bytes: u64) -> FileResult<()> {
        if len_bytes <= self.capacity_bytes() {
            return Ok(());
        }
        let (before, needed) = (self.blocks.len(), len_bytes.div_ceil(BLOCK_BYTES) as usize);
        let grown = self.add_blocks(space, needed);
        grown.or_else(|error| self.shrink_to(space, before).and(Err(error)))
    }

    fn add_blocks(&mut self, space: &FileSpace, needed: usize) -> FileResult<()> {
        while self.blocks.len() < needed {
            let listed = self.maps.len() * MAP_BLOCKS;
            if self.blocks.len() == listed {
                self.add_map(space)?;
                continue;
            }
            let count = (needed.min(listed) - self.blocks.len()).min(BLOCKS_AT_ONCE);
            let mut added = Vec::with_capacity(count);
            let linked = self.add_some(space, count, &mut added);
            linked.inspect_err(|_| added.iter().for_each(|block| space.give_up(*block)))?;
            self.blocks.extend(added);
        }
        Ok(())
    }

    fn add_some(&self, space: &FileSpace, count: usize, added: &mut Vec<Pointer>) -> FileResult<()> {
        let mut steps = Vec::with_capacity(2 * count);
        for number in 0..count {
            let block = space.allocate(BLOCK_BYTES)?;
            added.push(block);
            let word = self.word(space, self.blocks.len() + number)?;
            steps.extend([Step::Activate(block), Step::Store { word, value: block.to_u64() }]);
        }
        space.publish(&steps)
    }

    fn add_map(&mut self, space: &FileSpace) -> FileResult<()> {
        let last = self.maps.last().copied().unwrap_or_default();
        let map = new_map(space)?;
        space.region().fence();
        let link = space.word(last, NEXT_AT).and_then(|word| {
            space.publish(&[Step::Activate(map), Step::Store { word, value: map.to_u64() }])
        });
        link.inspect_err(|_| space.give_up(map))?;
        self.maps.push(map);
        Ok(())
    }

    /// Frees the blocks that are not needed for this many bytes, durably.
    pub(super) fn cut_to(&mut self, space: &FileSpace, len_bytes: u64) -> FileResult<()> {
        self.shrink_to(space, len_bytes.div_ceil(BLOCK_BYTES) as usize)
    }

    fn shrink_to(&mut self, space: &FileSpace, kept: usize) -> FileResult<()> {
        while self.blocks.len() > kept {
            let from = kept.max(self.blocks.len().saturating_sub(BLOCKS_AT_ONCE));
            let mut steps = Vec::with_capacity(2 * BLOCKS_AT_ONCE);
            for (number, block) in self.blocks.iter().enumerate().skip(from) {
                let word = self.word(space, number)?;
                steps.extend([Step::Free(*block), Step::Store { word, value: 0 }]);
            }
            space.publish(&steps)?;
            self.blocks.truncate(from);
        }
        let maps = kept.div_ceil(MAP_BLOCKS).max(1);
        while self.maps.len() > maps
            && let [.., before, last] = self.maps[..]
        {
            let word = space.word(before, NEXT_AT)?;
            space.publish(&[Step::Free(last), Step::Store { word, value: 0 }])?;
            self.maps.pop();
        }
        Ok(())
    }

    /// Frees all blocks and maps, durably. `link` is the word that leads to the first map. It becomes 0.
    pub(super) fn release(mut self, space: &FileSpace, link: Word) -> FileResult<()> {
        self.shrink_to(space, 0)?;
        space.publish(&[Step::Free(self.first()), Step::Store { word: link, value: 0 }])
    }

    /// Adds all chunks of the file to `chunks`.
    pub(super) fn add_chunks(&self, chunks: &mut Vec<Pointer>) {
        chunks.extend_from_slice(&self.maps);
        chunks.extend_from_slice(&self.blocks);
    }
}

const _: () = assert!(WORD_BYTES == 8 && 2 * BLOCKS_AT_ONCE <= STEPS_MAX);
