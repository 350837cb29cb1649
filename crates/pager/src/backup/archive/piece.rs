//! The format of a piece of an archive: frames (`backup/frame.rs`).
//!
//! | kind | contents |
//! |---|---|
//! | 1 start | magic "VARVEARC" (8), version (4), page size (4), database (8), timeline (8), start LSN (8), bytes of a log segment (8), program version: length (1) and text |
//! | 4 log | whole blocks of the log, one after the other |
//! | 5 end | end LSN (8), next log block (8), start of the last block (8), its checksum (4) |
//!
//! Invariants
//! 1. `decode` returns a piece only if it is complete and all of its blocks are valid and consecutive.
//!
//! This module does not know where pieces are stored.

use super::store::TimelineName;
use crate::backup::contents::{KIND_END, KIND_LOG, KIND_START, Taker};
use crate::backup::frame::{FrameReader, FrameWriter};
use crate::base::compression::Compression;
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::log::blocks::{BlockChain, BlockMark};
use crate::log::format::Geometry;

const MAGIC: &[u8; 8] = b"VARVEARC";
/// The version of the format of pieces.
pub const ARCHIVE_VERSION: u32 = 1;
/// The most bytes of log in a frame.
const LOG_FRAME_BYTES: usize = 1 << 20;

/// What a piece says at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceStart {
    pub(crate) page_size: u32,
    pub(crate) timeline: TimelineName,
    /// The LSN of the first block.
    pub(crate) start: Lsn,
    pub(crate) log_segment_bytes: u64,
    /// The version of the program that made the piece.
    pub(crate) program: String,
}

/// What a piece says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceEnd {
    /// The end of the last group.
    pub(crate) end: Lsn,
    /// The position of the block after the piece.
    pub(crate) next: Lsn,
    /// The last block.
    pub(crate) last: BlockMark,
}

/// A piece of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: PieceStart,
    pub(crate) end: PieceEnd,
    /// Whole blocks, one after the other.
    pub(crate) blocks: Vec<u8>,
}

impl PieceStart {
    /// Returns a chain that begins at the first block.
    pub(crate) fn chain(&self) -> BlockChain {
        BlockChain::new(Geometry::new(self.log_segment_bytes), self.timeline.database, self.start)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&ARCHIVE_VERSION.to_le_bytes());
        out.extend_from_slice(&self.page_size.to_le_bytes());
        let TimelineName { database, timeline } = self.timeline;
        let numbers = [database, timeline, self.start.get(), self.log_segment_bytes];
        out.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        let program = &self.program.as_bytes()[..self.program.len().min(255)];
        out.push(program.len() as u8);
        out.extend_from_slice(program);
        out
    }

    fn decode(contents: &[u8]) -> Result<PieceStart> {
        let mut rest = Taker(contents);
        if rest.bytes(8) != Some(&MAGIC[..]) {
            return Err(PagerError::Incompatible {
                what: "this is no piece of a log archive of Varve".into(),
            });
        }
        let version = rest.u32().unwrap_or_default();
        if version != ARCHIVE_VERSION {
            let what = format!(
                "it has format {version}, and this program knows format {ARCHIVE_VERSION}: use the program that made it"
            );
            return Err(PagerError::Incompatible { what });
        }
        PieceStart::fields(&mut rest)
            .filter(|_| rest.0.is_empty())
            .ok_or_else(|| damaged("its start makes no sense"))
    }

    fn fields(rest: &mut Taker<'_>) -> Option<PieceStart> {
        let page_size = rest.page_size()?;
        let timeline = TimelineName { database: rest.u64()?, timeline: rest.u64()? };
        let (start, log_segment_bytes) = (rest.lsn()?, rest.segment_bytes()?);
        let length = rest.u8()?;
        let program = String::from_utf8(rest.bytes(usize::from(length))?.to_vec()).ok()?;
        Some(PieceStart { page_size, timeline, start, log_segment_bytes, program })
    }
}

impl PieceEnd {
    fn encode(&self) -> Vec<u8> {
        let numbers = [self.end.get(), self.next.get(), self.last.start.get()];
        let mut out: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        out.extend_from_slice(&self.last.checksum.to_le_bytes());
        out
    }

    fn decode(contents: &[u8]) -> Option<PieceEnd> {
        let mut rest = Taker(contents);
        let (end, next, start) = (rest.lsn()?, rest.lsn()?, rest.lsn()?);
        let last = BlockMark { start, checksum: rest.u32()? };
        rest.0.is_empty().then_some(PieceEnd { end, next, last })
    }
}

impl Piece {
    /// Makes a piece of blocks that begin at its start.
    pub(crate) fn new(start: PieceStart, blocks: Vec<u8>) -> Result<Piece> {
        let end = end_of(&start, &blocks)?;
        Ok(Piece { start, end, blocks })
    }

    pub(crate) fn encode(&self, compression: Compression) -> Vec<u8> {
        let (mut out, mut frames) = (Vec::new(), FrameWriter::new(compression));
        frames.put(KIND_START, &self.start.encode(), &mut out);
        // Blocks may be cut between frames, because the frames of a piece are always read together.
        self.blocks.chunks(LOG_FRAME_BYTES).for_each(|part| frames.put(KIND_LOG, part, &mut out));
        frames.put(KIND_END, &self.end.encode(), &mut out);
        out
    }

    /// Reads a piece, and checks all of it.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Piece> {
        let mut frames = FrameReader::default();
        let (mut start, mut end, mut blocks) = (None, None, Vec::new());
        while let Some(frame) = frames.read(&mut bytes)? {
            match (frame.kind, &start, &end) {
                (KIND_START, None, None) => start = Some(PieceStart::decode(&frame.contents)?),
                (KIND_LOG, Some(_), None) => blocks.extend_from_slice(&frame.contents),
                (KIND_END, Some(_), None) => {
                    let found = PieceEnd::decode(&frame.contents);
                    end = Some(found.ok_or_else(|| damaged("its end makes no sense"))?);
                }
                (_, None, _) => {
                    return Err(PieceStart::decode(&[]).err().unwrap_or_else(|| damaged("no start")));
                }
                _ => return Err(damaged("its frames are in a wrong order")),
            }
        }
        let (Some(start), Some(end)) = (start, end) else { return Err(damaged("it is not complete")) };
        if end_of(&start, &blocks)? != end {
            return Err(damaged("its blocks do not end where it says"));
        }
        Ok(Piece { start, end, blocks })
    }
}

/// Checks the blocks, and returns where they end.
fn end_of(start: &PieceStart, blocks: &[u8]) -> Result<PieceEnd> {
    let mut chain = start.chain();
    chain.take_blocks(blocks, |block| block.groups().try_for_each(|group| Ok(group.map(drop)?)))?;
    let last = chain.last().ok_or_else(|| damaged("it has no block of the log"))?;
    Ok(PieceEnd { end: chain.end(), next: chain.next(), last })
}

fn damaged(why: &str) -> PagerError {
    PagerError::Corrupt { what: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::compression::Algorithm;
    use crate::log::format::{BLOCK_HEADER_BYTES, BlockHeader, Epoch};
    use crate::log::record::{put_note, put_varint};

    const NAME: TimelineName = TimelineName { database: 5, timeline: 9 };

    fn block(at: u64, incarnation: u32) -> Vec<u8> {
        let (mut records, mut bytes) = (Vec::new(), vec![0; BLOCK_HEADER_BYTES]);
        put_note(&mut records, 9, &[7; 100]);
        put_varint(&mut bytes, records.len() as u64);
        bytes.extend_from_slice(&records);
        let header = BlockHeader {
            length_bytes: bytes.len() as u32,
            start: Lsn::new(at),
            epoch: Epoch { database: NAME.database, incarnation },
            jump: false,
            sector_shift: 9,
            durable_before: Lsn::new(at),
        };
        header.seal(&mut bytes);
        bytes
    }

    fn start() -> PieceStart {
        let (page_size, log_segment_bytes) = (8192, 1 << 20);
        PieceStart {
            page_size,
            timeline: NAME,
            start: Lsn::new(4096),
            log_segment_bytes,
            program: "0.1".into(),
        }
    }

    fn piece() -> Piece {
        Piece::new(start(), [block(4096, 1), block(4608, 1), block(5120, 2)].concat()).unwrap()
    }

    #[test]
    fn a_piece_comes_back() {
        for algorithm in [Algorithm::None, Algorithm::Zstd] {
            let bytes = piece().encode(Compression::of(algorithm));
            assert_eq!(Piece::decode(&bytes).unwrap(), piece());
        }
        assert_eq!(piece().end.next, Lsn::new(5632));
    }

    #[test]
    fn no_changed_byte_and_no_cut_goes_unseen() {
        let bytes = piece().encode(Compression::NONE);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(Piece::decode(&damaged).is_err(), "byte {at}");
            assert!(Piece::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn blocks_of_two_lives_are_in_order() {
        assert!(Piece::new(start(), [block(4096, 2), block(4608, 1)].concat()).is_err(), "an earlier life");
        assert!(Piece::new(start(), [block(4096, 1), block(5120, 1)].concat()).is_err(), "a gap");
        assert!(Piece::new(start(), Vec::new()).is_err(), "no block");
    }
}
