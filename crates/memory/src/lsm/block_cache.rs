//! A cache of blocks of run files, for lookups and scans of the engine `log` (RocksDB has such a block
//! cache). Its frames are chunks of the region that are reserved and never active, like all memory of the
//! engines that use files. So a crash frees the frames, and the laboratory counts loads from them.
//!
//! Invariants
//! 1. A block in the cache has the same bytes as in its file. Runs are read only when they are whole, and
//!    they never change. The handle of a removed file is never given to another file. Blocks of removed files
//!    stay until they are evicted.
//! 2. There are never more frames than the configured bytes have room for.
//! 3. If there is no room for a frame, that is no error: the block is read directly from the file.
//!
//! This module does not know what is in the blocks. Merges do not use the cache, because they read each block
//! once.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::error::MemoryError;
use crate::files::{FileHandle, Files};
use crate::pointer::{Owner, Pointer};
use crate::space::Space;
use crate::store_error::StoreResult;

/// The size of a block, in bytes.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// A block is identified by its file and its number in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BlockId {
    file: FileHandle,
    number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    chunk: Pointer,
    block: BlockId,
    /// Whether the block was used since the hand of the clock passed the frame.
    was_used: bool,
}

#[derive(Default)]
struct Frames {
    frames: Vec<Frame>,
    by_block: FxHashMap<BlockId, usize>,
    /// The hand of the clock: the frame that was examined last.
    hand: usize,
}

/// The cache of a store.
pub(crate) struct BlockCache {
    owner: Owner,
    frames_max: usize,
    frames: Mutex<Frames>,
}

impl BlockCache {
    /// Returns an empty cache of at most this many bytes. Its frames are allocated for `owner`. Returns
    /// `None` if the bytes are too few for a block.
    pub(crate) fn new(owner: Owner, bytes: usize) -> Option<BlockCache> {
        let frames_max = bytes / BLOCK_BYTES;
        (frames_max > 0).then(|| BlockCache { owner, frames_max, frames: Mutex::default() })
    }

    /// Reads bytes of a file. Blocks that are not in the cache are read from the file, and put into the
    /// cache.
    ///
    /// Errors: the range reaches beyond the end of the file.
    pub(crate) fn read(
        &self,
        space: &Space,
        files: &Files,
        file: FileHandle,
        at: u64,
        buf: &mut [u8],
    ) -> StoreResult<()> {
        let file_bytes = files.len_bytes(file)?;
        let is_inside = at.checked_add(buf.len() as u64).is_some_and(|end| end <= file_bytes);
        if buf.len() > BLOCK_BYTES || !is_inside {
            return Ok(files.read_at(file, at, buf)?);
        }
        let (mut at, mut rest) = (at, buf);
        while !rest.is_empty() {
            let (number, from) = (at / BLOCK_BYTES as u64, at as usize % BLOCK_BYTES);
            let (part, behind) = rest.split_at_mut(rest.len().min(BLOCK_BYTES - from));
            let block = BlockId { file, number };
            if !self.read_frame(space, block, from, part)? {
                let begin = number * BLOCK_BYTES as u64;
                let mut bytes = [0; BLOCK_BYTES];
                let whole = (file_bytes - begin).min(BLOCK_BYTES as u64) as usize;
                let bytes = bytes.get_mut(..whole).unwrap_or_default();
                files.read_at(file, begin, bytes)?;
                part.copy_from_slice(bytes.get(from..from + part.len()).unwrap_or_default());
                self.add(space, block, bytes)?;
            }
            at += part.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Reads bytes of a block from its frame. Returns whether the block has a frame.
    fn read_frame(&self, space: &Space, block: BlockId, from: usize, part: &mut [u8]) -> StoreResult<bool> {
        let mut frames = self.frames.lock();
        let found = frames.by_block.get(&block).copied();
        let Some(frame) = found.and_then(|number| frames.frames.get_mut(number)) else { return Ok(false) };
        frame.was_used = true;
        space.read(frame.chunk, from as u64, part).map(|()| true)
    }

    /// Puts a block into a frame, if a frame can be added or evicted.
    fn add(&self, space: &Space, block: BlockId, bytes: &[u8]) -> StoreResult<()> {
        let mut frames = self.frames.lock();
        let chunk = match frames.frames.len() < self.frames_max {
            true => space.allocator().allocate(self.owner, BLOCK_BYTES as u64),
            false => Err(MemoryError::Full { needed_bytes: BLOCK_BYTES as u64, free_bytes: 0 }),
        };
        let number = match chunk {
            Ok(chunk) => {
                frames.frames.push(Frame { chunk, block, was_used: false });
                Some(frames.frames.len() - 1)
            }
            Err(MemoryError::Full { .. }) => frames.evict(),
            Err(error) => return Err(error.into()),
        };
        let Some(number) = number else { return Ok(()) };
        let Some(frame) = frames.frames.get_mut(number) else { return Ok(()) };
        frame.block = block;
        space.store(frame.chunk, 0, bytes)?;
        frames.by_block.insert(block, number);
        Ok(())
    }

    /// Gives up all frames. Returns whether there were any.
    pub(crate) fn clear(&self, space: &Space) -> StoreResult<bool> {
        let Frames { frames, .. } = std::mem::take(&mut *self.frames.lock());
        frames.iter().try_for_each(|frame| space.give_up(frame.chunk))?;
        Ok(!frames.is_empty())
    }
}

impl Frames {
    /// Evicts a block that was not used lately (clock), and returns its frame. Returns `None` if there are no
    /// frames.
    fn evict(&mut self) -> Option<usize> {
        loop {
            self.hand = if self.hand + 1 < self.frames.len() { self.hand + 1 } else { 0 };
            let frame = self.frames.get_mut(self.hand)?;
            if !std::mem::take(&mut frame.was_used) {
                self.by_block.remove(&frame.block);
                return Some(self.hand);
            }
        }
    }
}
