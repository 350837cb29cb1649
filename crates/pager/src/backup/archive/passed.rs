//! The blocks that a reader of a timeline has passed.
//!
//! Invariants
//! 1. A piece agrees only if each of its blocks that was passed is the same one: same LSN, same checksum.
//!
//! This module does not know where pieces are stored.

use std::collections::BTreeMap;

use super::piece::Piece;
use crate::base::error::Result;
use crate::base::lsn::Lsn;

/// The position of a reader, and the blocks of the pieces before it. By them, a piece that a merge has left
/// over is recognized, and also one that has more.
#[derive(Default)]
pub(super) struct Passed {
    /// Where the next block begins; `None` before the first piece.
    pub(super) next: Option<Lsn>,
    /// The blocks are known from here on. Later pieces of a list do not begin before it.
    floor: Lsn,
    /// The checksums of the blocks.
    blocks: BTreeMap<Lsn, u32>,
}

impl Passed {
    /// Returns whether the blocks of the piece before `next` are those that were passed.
    pub(super) fn agrees(&self, piece: &Piece) -> Result<bool> {
        let Some(next) = self.next.filter(|next| piece.start.start < *next) else { return Ok(true) };
        let mut is_same = true;
        piece.start.chain().take_blocks(&piece.blocks, |block| {
            let mark = block.mark();
            let is_known = (self.floor..next).contains(&mark.start);
            is_same &= !is_known || self.blocks.get(&mark.start) == Some(&mark.checksum);
            Ok(())
        })?;
        Ok(is_same)
    }

    /// Passes all blocks of the piece.
    pub(super) fn add(&mut self, piece: &Piece) -> Result<()> {
        self.next = self.next.max(Some(piece.end.next));
        self.floor = piece.start.start;
        self.blocks = self.blocks.split_off(&self.floor);
        piece.start.chain().take_blocks(&piece.blocks, |block| {
            let mark = block.mark();
            self.blocks.insert(mark.start, mark.checksum);
            Ok(())
        })
    }

    /// Returns the blocks of the piece that were not passed.
    pub(super) fn rest_of<'p>(&self, piece: &'p Piece) -> Result<&'p [u8]> {
        let Some(next) = self.next else { return Ok(&piece.blocks) };
        let mut passed_bytes = 0;
        piece.start.chain().take_blocks(&piece.blocks, |block| {
            passed_bytes += if block.mark().start < next { block.length_bytes() } else { 0 };
            Ok(())
        })?;
        Ok(&piece.blocks[passed_bytes..])
    }
}
