//! The on-disk format of the log: segments, blocks, and the conversion between LSNs and positions in files.
//!
//! The log is one stream of bytes, cut into segments of equal size. The LSN of a byte is its position in the
//! stream, segment headers included. Each flush writes one or more blocks. A block starts on a sector
//! boundary, and one write writes it. A block has whole groups of records (`record.rs`).
//!
//! Invariants
//! 1. A sector with acknowledged bytes is never written again. The next block starts at the next sector.
//! 2. A block's checksum covers its LSN, database id and incarnation (the number of the log's life). So three
//!    kinds of old bytes are never taken as valid: those of an earlier use of the segment, those of another
//!    database, and a tail that recovery cut off.
//! 3. A block is in one segment, and a group is in one block.
//!
//! Segment header, little endian, 48 bytes in the first `SEGMENT_HEADER_BYTES` of the file (the rest is
//! zero):
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | crc32c over bytes 4..48 |
//! | 4 | 4 | format version |
//! | 8 | 8 | magic "VARVELOG" |
//! | 16 | 8 | database id |
//! | 24 | 8 | segment number: its first byte has LSN number x segment bytes |
//! | 32 | 8 | segment bytes |
//! | 40 | 8 | reserved, 0 |
//!
//! Block header, 40 bytes, followed by groups, and by zeros up to the sector boundary:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 4 | crc32c over bytes 4..length |
//! | 4 | 4 | length in bytes: header and groups, without padding |
//! | 8 | 8 | LSN of the block's first byte |
//! | 16 | 8 | database id |
//! | 24 | 4 | incarnation: grows at each opening of the database |
//! | 28 | 1 | flags: 1 = the next block is the first of the next segment |
//! | 29 | 1 | sector shift: the next block starts at the next multiple of 2^shift |
//! | 30 | 2 | reserved, 0 |
//! | 32 | 8 | durable LSN when this block was written: everything before it had reached the medium |
//!
//! This module does not know what the groups mean, files, or threads.

use crate::base::lsn::Lsn;

/// Version of the segment and block formats.
pub const LOG_FORMAT_VERSION: u32 = 1;
/// Bytes at the start of a segment that belong to its header.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;
/// The smallest sector size of a log: a cache line of persistent memory.
pub const LOG_SECTOR_BYTES_MIN: u64 = 64;
/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 40;

const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"VARVELOG");
const SEGMENT_FIELDS_BYTES: usize = 48;
const FLAG_JUMP: u8 = 1;

const _: () = assert!(SEGMENT_FIELDS_BYTES as u64 <= SEGMENT_HEADER_BYTES);
const _: () = assert!(BLOCK_HEADER_BYTES as u64 <= LOG_SECTOR_BYTES_MIN, "a header fits a sector");

/// The writer of a part of the log: a database, in one life between two openings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Random identity of the database.
    pub database: u64,
    /// The number of the life. It grows at each opening.
    pub incarnation: u32,
}

/// Converts between LSNs and positions in segments. All segments have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    segment_bytes: u64,
}

impl Geometry {
    /// Returns a log with segments of `segment_bytes` bytes: a multiple of 4096, and more than the header.
    pub fn new(segment_bytes: u64) -> Geometry {
        assert!(segment_bytes.is_multiple_of(SEGMENT_HEADER_BYTES) && segment_bytes > SEGMENT_HEADER_BYTES);
        Geometry { segment_bytes }
    }

    /// Returns the size of a segment file.
    pub fn segment_bytes(self) -> u64 {
        self.segment_bytes
    }

    /// Returns the segment that holds `lsn`.
    pub fn segment_of(self, lsn: Lsn) -> u64 {
        lsn.get() / self.segment_bytes
    }

    /// Returns the byte of the segment's file at which `lsn` lies.
    pub fn offset_of(self, lsn: Lsn) -> u64 {
        lsn.get() % self.segment_bytes
    }

    /// Returns the LSN of the first block of segment `number`.
    pub fn first_block(self, number: u64) -> Lsn {
        Lsn::new(number * self.segment_bytes + SEGMENT_HEADER_BYTES)
    }

    /// Returns the LSN just after the last byte of the segment that holds `lsn`.
    pub fn segment_end(self, lsn: Lsn) -> Lsn {
        Lsn::new((self.segment_of(lsn) + 1) * self.segment_bytes)
    }

    /// Returns the first position at or after `lsn` where a block may start: on a sector boundary, after a
    /// segment's header.
    pub fn block_start(self, lsn: Lsn, sector_shift: u8) -> Lsn {
        let aligned = lsn.align_up(sector_shift);
        if self.offset_of(aligned) < SEGMENT_HEADER_BYTES {
            return self.first_block(self.segment_of(aligned));
        }
        aligned
    }

    /// Returns the largest group that fits a segment, in bytes.
    pub fn group_bytes_max(self) -> usize {
        let room = self.segment_bytes - SEGMENT_HEADER_BYTES;
        usize::try_from(room).unwrap_or(usize::MAX) - BLOCK_HEADER_BYTES
    }
}

/// The header of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Database that the segment belongs to.
    pub database: u64,
    /// Position in the stream, in segments.
    pub number: u64,
    /// Size of the file.
    pub segment_bytes: u64,
}

impl SegmentHeader {
    /// Writes the header to the start of `sector`.
    pub fn encode(&self, sector: &mut [u8]) {
        put_u32(sector, 4, LOG_FORMAT_VERSION);
        put_u64(sector, 8, SEGMENT_MAGIC);
        put_u64(sector, 16, self.database);
        put_u64(sector, 24, self.number);
        put_u64(sector, 32, self.segment_bytes);
        put_u64(sector, 40, 0);
        let crc = crc32c::crc32c(&sector[4..SEGMENT_FIELDS_BYTES]);
        put_u32(sector, 0, crc);
    }

    /// Decodes a header. `None` means that the bytes are no header, because the segment was never used, or
    /// the header is torn or damaged.
    pub fn decode(sector: &[u8]) -> Option<SegmentHeader> {
        let fields = sector.get(..SEGMENT_FIELDS_BYTES)?;
        if get_u32(fields, 0) != crc32c::crc32c(&fields[4..]) {
            return None;
        }
        if get_u64(fields, 8) != SEGMENT_MAGIC || get_u32(fields, 4) != LOG_FORMAT_VERSION {
            return None;
        }
        Some(SegmentHeader {
            database: get_u64(fields, 16),
            number: get_u64(fields, 24),
            segment_bytes: get_u64(fields, 32),
        })
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Bytes of header and groups.
    pub length_bytes: u32,
    /// LSN of the block's first byte.
    pub start: Lsn,
    /// The writer of the block.
    pub epoch: Epoch,
    /// The next block is the first of the next segment.
    pub jump: bool,
    /// Sector alignment of the next block.
    pub sector_shift: u8,
    /// Everything before this LSN was durable when the block was written.
    pub durable_before: Lsn,
}

impl BlockHeader {
    /// Writes the header to the start of `block`, with the checksum over header and groups.
    pub fn seal(&self, block: &mut [u8]) {
        let length = self.length_bytes as usize;
        assert!((BLOCK_HEADER_BYTES..=block.len()).contains(&length));
        put_u32(block, 4, self.length_bytes);
        put_u64(block, 8, self.start.get());
        put_u64(block, 16, self.epoch.database);
        put_u32(block, 24, self.epoch.incarnation);
        block[28] = if self.jump { FLAG_JUMP } else { 0 };
        block[29] = self.sector_shift;
        block[30..32].fill(0);
        put_u64(block, 32, self.durable_before.get());
        let crc = crc32c::crc32c(&block[4..length]);
        put_u32(block, 0, crc);
    }

    /// Decodes the fields without any check (see `is_sealed`). `None` means that there are too few bytes.
    pub fn peek(block: &[u8]) -> Option<BlockHeader> {
        let fields = block.get(..BLOCK_HEADER_BYTES)?;
        Some(BlockHeader {
            length_bytes: get_u32(fields, 4),
            start: Lsn::new(get_u64(fields, 8)),
            epoch: Epoch { database: get_u64(fields, 16), incarnation: get_u32(fields, 24) },
            jump: fields[28] & FLAG_JUMP != 0,
            sector_shift: fields[29],
            durable_before: Lsn::new(get_u64(fields, 32)),
        })
    }

    /// Returns whether the header claims to be a block that `database` wrote at `start`, with a length that
    /// fits `room`.
    pub fn claims(&self, start: Lsn, database: u64, room_bytes: u64) -> bool {
        self.start == start
            && self.epoch.database == database
            && (6..=16).contains(&self.sector_shift)
            && (BLOCK_HEADER_BYTES as u64..=room_bytes).contains(&u64::from(self.length_bytes))
    }

    /// Returns whether the checksum over `block[4..length]` holds.
    pub fn is_sealed(&self, block: &[u8]) -> bool {
        block.get(4..self.length_bytes as usize).is_some_and(|rest| get_u32(block, 0) == crc32c::crc32c(rest))
    }

    /// Returns the LSN after the last group.
    pub fn end(&self) -> Lsn {
        self.start.forward(u64::from(self.length_bytes))
    }

    /// Returns where the next block starts.
    pub fn next_start(&self, geometry: Geometry) -> Lsn {
        if self.jump {
            return geometry.first_block(geometry.segment_of(self.start) + 1);
        }
        geometry.block_start(self.end(), self.sector_shift)
    }
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn layout_snapshot_of_a_block() {
        let epoch = Epoch { database: 0x1122_3344_5566_7788, incarnation: 3 };
        let header = BlockHeader {
            length_bytes: 42,
            start: Lsn::new(4096),
            epoch,
            jump: true,
            sector_shift: 9,
            durable_before: Lsn::new(77),
        };
        let mut block = vec![0_u8; 42];
        block[40] = 0xAA;
        header.seal(&mut block);
        assert_eq!(
            hex(&block[4..]),
            "2a0000000010000000000000887766554433221103000000010900004d00000000000000aa00"
        );
        assert_eq!(BlockHeader::peek(&block), Some(header));
        assert!(header.is_sealed(&block) && header.claims(Lsn::new(4096), epoch.database, 42));
    }

    #[test]
    fn layout_snapshot_of_a_segment_header() {
        let header = SegmentHeader { database: 5, number: 9, segment_bytes: 65536 };
        let mut sector = vec![0_u8; 512];
        header.encode(&mut sector);
        let expect =
            "010000005641525645 4c4f4705000000000000000900000000000000000001000000000000000000 00000000";
        assert_eq!(hex(&sector[4..48]), expect.replace(' ', ""));
        assert_eq!(SegmentHeader::decode(&sector), Some(header));
    }

    #[test]
    fn any_flipped_byte_breaks_a_header() {
        let mut sector = vec![0_u8; 48];
        SegmentHeader { database: 5, number: 9, segment_bytes: 65536 }.encode(&mut sector);
        for at in 0..48 {
            sector[at] ^= 1;
            assert_eq!(SegmentHeader::decode(&sector), None, "byte {at}");
            sector[at] ^= 1;
        }
    }

    #[test]
    fn blocks_skip_the_segment_header() {
        let geometry = Geometry::new(65536);
        assert_eq!(geometry.block_start(Lsn::ZERO, 9), Lsn::new(4096));
        assert_eq!(geometry.block_start(Lsn::new(65530), 9), Lsn::new(65536 + 4096));
        assert_eq!(geometry.block_start(Lsn::new(4097), 9), Lsn::new(4096 + 512));
    }
}
