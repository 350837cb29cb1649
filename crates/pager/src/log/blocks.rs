//! Copies of log blocks: reading whole blocks from an open log, and reading groups from copied blocks.
//!
//! Invariants
//! 1. Only durable blocks are copied, in the order of the log and without gaps.
//! 2. A copied block has a right checksum, the id of its database, and the LSN that follows from the block
//!    before it.
//!
//! This module does not know where the copies are stored.

use varve_device::{AlignedBuf, Purpose};

use super::format::{BLOCK_HEADER_BYTES, BlockHeader, Geometry, get_u32};
use super::reader::{Group, Groups};
use super::{Log, LogError};
use crate::base::error::{PagerError, Result as PagerResult};
use crate::base::lsn::Lsn;

/// The number of bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// A part of a segment in memory.
struct Part {
    number: u64,
    from: usize,
    bytes: AlignedBuf,
}

impl Log {
    /// Appends whole blocks to `out`: those that begin at `from`, and before `until`. Ends early when `out`
    /// has `bytes_max` bytes. Blocks stand one after the other, without padding. Returns the position of the
    /// next block, and the end of the last copied group, or `from` if there was none. All blocks before
    /// `until` must be durable, and the caller has pinned the log at `from`.
    pub(crate) fn copy_blocks(
        &self,
        from: Lsn,
        until: Lsn,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(Lsn, Lsn), LogError> {
        let (mut at, mut end, mut part) = (from, from, None);
        while at < until && out.len() < bytes_max {
            let head = self.part_of(&mut part, at, BLOCK_HEADER_BYTES)?;
            let room_bytes = self.geometry.segment_end(at).since(at);
            let header = BlockHeader::peek(head)
                .filter(|header| header.claims(at, self.epoch.database, room_bytes))
                .ok_or_else(|| self.not_a_block(at))?;
            let block = self.part_of(&mut part, at, header.length_bytes as usize)?;
            if !header.is_sealed(block) {
                return Err(self.not_a_block(at));
            }
            out.extend_from_slice(block);
            (at, end) = (header.next_start(self.geometry), header.end());
        }
        Ok((at, end))
    }

    /// Returns whether the log has this block.
    pub(crate) fn has_block(&self, mark: BlockMark) -> bool {
        if mark.start >= self.durable_block() {
            return false;
        }
        let mut part = None;
        let Ok(head) = self.part_of(&mut part, mark.start, BLOCK_HEADER_BYTES) else { return false };
        let room_bytes = self.geometry.segment_end(mark.start).since(mark.start);
        let claims = |header: &BlockHeader| header.claims(mark.start, self.epoch.database, room_bytes);
        let Some(header) = BlockHeader::peek(head).filter(claims) else { return false };
        let block = self.part_of(&mut part, mark.start, header.length_bytes as usize);
        block.is_ok_and(|block| header.is_sealed(block) && get_u32(block, 0) == mark.checksum)
    }

    /// Returns `count` bytes from `at` on, which are in one segment.
    fn part_of<'p>(&self, part: &'p mut Option<Part>, at: Lsn, count: usize) -> Result<&'p [u8], LogError> {
        let (number, offset) = (self.geometry.segment_of(at), self.geometry.offset_of(at) as usize);
        let is_there = |part: &Part| {
            part.number == number && part.from <= offset && offset + count <= part.from + part.bytes.len()
        };
        if !part.as_ref().is_some_and(is_there) {
            let from = offset / AlignedBuf::ALIGN_BYTES * AlignedBuf::ALIGN_BYTES;
            let wanted = (offset + count - from).max(READ_BYTES).next_multiple_of(AlignedBuf::ALIGN_BYTES);
            let length = wanted.min(self.geometry.segment_bytes() as usize - from);
            let mut bytes = AlignedBuf::new(length);
            let file = self.segments.file(number).ok_or_else(|| self.not_a_block(at))?;
            file.read_at(from as u64, &mut bytes, Purpose::Log)?;
            *part = Some(Part { number, from, bytes });
        }
        let found = part.as_ref().and_then(|part| part.bytes.get(offset - part.from..)?.get(..count));
        found.ok_or_else(|| self.not_a_block(at))
    }

    fn not_a_block(&self, at: Lsn) -> LogError {
        let number = self.geometry.segment_of(at);
        let file = self.segments.file(number);
        LogError::Damaged {
            at,
            file: file.map_or_else(|| format!("of segment {number}"), |file| file.location().to_string()),
            offset: self.geometry.offset_of(at),
            evidence: "the log was written beyond this position by this server".into(),
        }
    }

    /// Returns the conversion between LSNs and positions in segments.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }
}

/// The position in a sequence of copied blocks. It checks that no block is missing or damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockChain {
    geometry: Geometry,
    database: u64,
    /// Where the next block begins.
    next: Lsn,
    /// End of the last group, or the start of the chain.
    end: Lsn,
    /// The last block.
    last: Option<BlockMark>,
    /// The life of the log in which the last block was written.
    incarnation: u32,
}

/// The identity of a log block. Two logs that both have the block are equal up to its end: it has the bytes
/// of its own flush, at its position, and each of its database's lives has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMark {
    /// Its first byte.
    pub start: Lsn,
    /// Its checksum.
    pub checksum: u32,
}

impl BlockChain {
    /// Begins a chain at a block of this database.
    pub(crate) fn new(geometry: Geometry, database: u64, start: Lsn) -> BlockChain {
        BlockChain { geometry, database, next: start, end: start, last: None, incarnation: 0 }
    }

    /// Returns the last block, if there was one.
    pub(crate) fn last(&self) -> Option<BlockMark> {
        self.last
    }

    /// Returns where the next block begins.
    pub(crate) fn next(&self) -> Lsn {
        self.next
    }

    /// Returns the end of the last group.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Takes the next blocks, and calls `visit` with each of their groups. The blocks are `Corrupt` if one of
    /// them is damaged, or is not the next one.
    pub(crate) fn take(
        &mut self,
        blocks: &[u8],
        mut visit: impl FnMut(Group<'_>) -> PagerResult<()>,
    ) -> PagerResult<()> {
        self.take_blocks(blocks, |block| block.groups().try_for_each(|group| visit(group?)))
    }

    /// Does the same as `take`, but calls `visit` with each block.
    pub(crate) fn take_blocks(
        &mut self,
        mut blocks: &[u8],
        mut visit: impl FnMut(&ChainedBlock<'_>) -> PagerResult<()>,
    ) -> PagerResult<()> {
        while !blocks.is_empty() {
            let at = self.next;
            let room_bytes = self.geometry.segment_end(at).since(at).min(blocks.len() as u64);
            let header = BlockHeader::peek(blocks)
                .filter(|header| header.claims(at, self.database, room_bytes))
                .ok_or_else(|| damaged(format!("there is no log block for LSN {at}")))?;
            let (bytes, rest) = blocks.split_at(header.length_bytes as usize);
            if !header.is_sealed(bytes) {
                return Err(damaged(format!("the log block at LSN {at} has a wrong checksum")));
            }
            if header.epoch.incarnation < self.incarnation {
                return Err(damaged(format!("the log block at LSN {at} is of an earlier life of the log")));
            }
            let block = ChainedBlock { header, bytes };
            visit(&block)?;
            (self.last, self.incarnation) = (Some(block.mark()), header.epoch.incarnation);
            (self.next, self.end, blocks) = (header.next_start(self.geometry), header.end(), rest);
        }
        Ok(())
    }
}

/// A valid block of a chain.
pub(crate) struct ChainedBlock<'b> {
    header: BlockHeader,
    bytes: &'b [u8],
}

impl ChainedBlock<'_> {
    /// Returns the identity of the block.
    pub(crate) fn mark(&self) -> BlockMark {
        BlockMark { start: self.header.start, checksum: get_u32(self.bytes, 0) }
    }

    /// Returns the end of its last group.
    pub(crate) fn end(&self) -> Lsn {
        self.header.end()
    }

    /// Returns the number of its bytes.
    pub(crate) fn length_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the life of the log in which the block was written.
    pub(crate) fn incarnation(&self) -> u32 {
        self.header.epoch.incarnation
    }

    /// Returns the groups of the block.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Result<Group<'_>, LogError>> {
        Groups::new(&self.header, self.bytes)
    }
}

fn damaged(what: String) -> PagerError {
    PagerError::Corrupt { what }
}
