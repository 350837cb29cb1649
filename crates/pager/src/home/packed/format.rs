//! The format of the two files of a packed space. The file `S.varve` has the pages. The file `S.map.varve`
//! has the page map, which says where each page is.
//!
//! All numbers are little endian, and every block has 4096 bytes.
//!
//! `S.varve`: extent e begins at byte e x extent bytes. The first block of the file is the *header block*.
//! All other bytes are slots of pages, or remains of old slots.
//!
//! | header block: offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic "VARVEPCK" |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | page size |
//! | 16 | 8 | extent bytes |
//! | 24 | 8 | database id |
//! | 32 | 2 | space |
//! | 34 | | zeros |
//! | 4092 | 4 | CRC-32C of bytes 0..4092 |
//!
//! `S.map.varve`: blocks 0 and 1 are two equal *heads*. From block 2 on there are *map pages*. Each map page
//! has two places, which are written in turn: map page i has the blocks 2 + 2i and 3 + 2i.
//!
//! | head: offset | bytes | what |
//! |---|---|---|
//! | 0 | 34 | as in the header block, with magic "VARVEMAP" |
//! | 34 | 2 | 0 |
//! | 36 | 4 | length of the space in pages |
//! | 40 | 8 | sequence: counts the heads; if the blocks differ, the larger one counts |
//! | 48 | 8 | number of the last complete checkpoint of the map, 0 before the first |
//! | 56 | 8 | start of a log block: where reading the log has to begin for what follows that checkpoint |
//! | 64 | 8 | end of the log at that checkpoint: groups that end after it apply |
//! | 72 | 4 | map pages that exist at that checkpoint |
//! | 76 | 8 | which versions of the map pages count: the sum of `version_mark(i, checkpoint)` over all of them |
//! | 84 | | zeros |
//! | 4092 | 4 | CRC-32C of bytes 0..4092 |
//!
//! | map page: offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of bytes 4..4096 |
//! | 4 | 4 | number i |
//! | 8 | 8 | number of the checkpoint that wrote it |
//! | 16 | 8 | database id |
//! | 24 | 2 | space |
//! | 26 | 6 | 0 |
//! | 32 | 8 x 508 | places (`unit_run.rs`) of pages 508 i .. 508 i + 507 |
//!
//! Invariants
//! 1. A block is decoded only if its checksum is right, and it belongs to this database and space. A block
//!    with impossible values is refused, and the error says why.
//!
//! Older formats than this version 1 exist only in files of programs whose configuration could not choose the
//! packed layout.
//!
//! This module does not know files, or when each block is written (`map_file.rs`).

use crate::base::ids::{PageNo, SpaceId};
use crate::base::lsn::{LSN_MAX, Lsn};
use crate::base::page::{PAGE_SIZE_MAX_BYTES, PAGE_SIZE_MIN_BYTES};
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

use super::unit_run::UnitRun;

/// Length of a header block, a head and a map page, in bytes.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Places in a map page.
pub(crate) const PLACES: u32 = 508;
/// The smallest extent. It has space for the header block and a few of the largest pages that tests use.
pub(crate) const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// The largest extent.
pub(crate) const EXTENT_BYTES_MAX: u64 = 64 << 20;

const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"VARVEPCK");
const HEAD_MAGIC: u64 = u64::from_le_bytes(*b"VARVEMAP");
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;
const SHAPE_END: usize = 34;
const HEAD_END: usize = 84;
const PLACES_AT: usize = 32;
/// The limit for numbers of heads and checkpoints. It is so high that the next number always exists.
const COUNT_MAX: u64 = 1 << 62;

const _: () = assert!(PLACES_AT + 8 * PLACES as usize == BLOCK_BYTES);

/// Returns the map page that has a page's place.
pub(crate) fn map_page_of(no: PageNo) -> u32 {
    no.0 / PLACES
}

/// Returns the summand in [`Head::versions`] for one map page, whose valid version is that of this
/// checkpoint. The numbers are mixed (SplitMix64; Steele, Lea and Flood 2014). So another choice of versions
/// is unlikely to have the same sum.
pub(crate) fn version_mark(number: u32, checkpoint: u64) -> u64 {
    mixed(mixed(u64::from(number)).wrapping_add(checkpoint))
}

fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Returns whether an extent can have this length.
pub(crate) fn is_extent(bytes: u64) -> bool {
    bytes.is_power_of_two() && (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&bytes)
}

/// Why a block is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockDamage {
    #[error("its checksum or magic is wrong")]
    Checksum,
    #[error("it has version {0}, and this program reads version 1")]
    Version(u32),
    #[error("it says what cannot be")]
    Nonsense,
    #[error("it belongs to another database, space, page size or extent size")]
    Foreign,
}

/// The properties of a packed space that both of its files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) page_size: u32,
    pub(crate) extent_bytes: u64,
    pub(crate) database: u64,
    pub(crate) space: SpaceId,
}

impl Shape {
    fn encode(&self, magic: u64, block: &mut [u8]) {
        block.fill(0);
        put_u64(block, 0, magic);
        put_u32(block, 8, VERSION);
        put_u32(block, 12, self.page_size);
        put_u64(block, 16, self.extent_bytes);
        put_u64(block, 24, self.database);
        block[32..SHAPE_END].copy_from_slice(&self.space.0.to_le_bytes());
    }

    fn decode(magic: u64, block: &[u8]) -> Result<Shape, BlockDamage> {
        let computed = crc32c::crc32c(&block[..CHECKSUM_AT]);
        if get_u32(block, CHECKSUM_AT) != computed || get_u64(block, 0) != magic {
            return Err(BlockDamage::Checksum);
        }
        let version = get_u32(block, 8);
        if version != VERSION {
            return Err(BlockDamage::Version(version));
        }
        let shape = Shape {
            page_size: get_u32(block, 12),
            extent_bytes: get_u64(block, 16),
            database: get_u64(block, 24),
            space: SpaceId(u16::from_le_bytes([block[32], block[33]])),
        };
        let pages = PAGE_SIZE_MIN_BYTES as u32..=PAGE_SIZE_MAX_BYTES as u32;
        let is_sound = shape.page_size.is_power_of_two()
            && pages.contains(&shape.page_size)
            && is_extent(shape.extent_bytes)
            && SpaceId::DURABLE.contains(&shape.space);
        if is_sound { Ok(shape) } else { Err(BlockDamage::Nonsense) }
    }

    /// Returns the header block.
    pub(crate) fn header(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.encode(HEADER_MAGIC, &mut block);
        seal(&mut block);
        block
    }

    /// Checks that this is the header block of this space.
    pub(crate) fn check_header(&self, block: &[u8]) -> Result<(), BlockDamage> {
        let found = Shape::decode(HEADER_MAGIC, block)?;
        require_zeros(&block[SHAPE_END..CHECKSUM_AT])?;
        if found == *self { Ok(()) } else { Err(BlockDamage::Foreign) }
    }
}

fn seal(block: &mut [u8]) {
    let checksum = crc32c::crc32c(&block[..CHECKSUM_AT]);
    put_u32(block, CHECKSUM_AT, checksum);
}

fn require_zeros(bytes: &[u8]) -> Result<(), BlockDamage> {
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(BlockDamage::Nonsense) }
}

/// The head of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) shape: Shape,
    /// Length of the space in pages.
    pub(crate) pages: u32,
    /// Counts the heads.
    pub(crate) sequence: u64,
    /// Number of the last complete checkpoint.
    pub(crate) checkpoint: u64,
    /// The position at which reading the log has to begin.
    pub(crate) log_from: Lsn,
    /// The end of the log at the checkpoint. Log records of later groups are applied to the map.
    pub(crate) after: Lsn,
    /// Map pages at the checkpoint.
    pub(crate) map_pages: u32,
    /// The sum over the valid versions of the map pages.
    pub(crate) versions: u64,
}

impl Head {
    /// Returns the head of a new, empty space.
    pub(crate) fn new(shape: Shape) -> Head {
        let (log_from, after) = (Lsn::ZERO, Lsn::ZERO);
        Head { shape, pages: 0, sequence: 0, checkpoint: 0, log_from, after, map_pages: 0, versions: 0 }
    }

    /// Returns the bytes of the block.
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.shape.encode(HEAD_MAGIC, &mut block);
        put_u32(&mut block, 36, self.pages);
        put_u64(&mut block, 40, self.sequence);
        put_u64(&mut block, 48, self.checkpoint);
        put_u64(&mut block, 56, self.log_from.get());
        put_u64(&mut block, 64, self.after.get());
        put_u32(&mut block, 72, self.map_pages);
        put_u64(&mut block, 76, self.versions);
        seal(&mut block);
        block
    }

    /// Reads a head.
    pub(crate) fn decode(block: &[u8]) -> Result<Head, BlockDamage> {
        let head = Head {
            shape: Shape::decode(HEAD_MAGIC, block)?,
            pages: get_u32(block, 36),
            sequence: get_u64(block, 40),
            checkpoint: get_u64(block, 48),
            log_from: Lsn::new(get_u64(block, 56)),
            after: Lsn::new(get_u64(block, 64)),
            map_pages: get_u32(block, 72),
            versions: get_u64(block, 76),
        };
        require_zeros(&block[SHAPE_END..36])?;
        require_zeros(&block[HEAD_END..CHECKSUM_AT])?;
        let is_sound = head.log_from.get() <= LSN_MAX
            && head.after.get() <= LSN_MAX
            && head.map_pages <= map_page_of(PageNo(u32::MAX)) + 1
            && (head.checkpoint > 0 || head.map_pages == 0)
            && (head.map_pages > 0 || head.versions == 0)
            && head.sequence < COUNT_MAX
            && head.checkpoint < COUNT_MAX;
        if is_sound { Ok(head) } else { Err(BlockDamage::Nonsense) }
    }
}

/// A map page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapPage {
    pub(crate) number: u32,
    pub(crate) checkpoint: u64,
    pub(crate) places: Vec<Option<UnitRun>>,
}

impl MapPage {
    /// The bytes of the block.
    pub(crate) fn encode(&self, shape: &Shape, block: &mut [u8]) {
        assert_eq!(self.places.len(), PLACES as usize, "a map page has a place for each of its pages");
        block.fill(0);
        put_u32(block, 4, self.number);
        put_u64(block, 8, self.checkpoint);
        put_u64(block, 16, shape.database);
        block[24..26].copy_from_slice(&shape.space.0.to_le_bytes());
        for (place, out) in self.places.iter().zip(block[PLACES_AT..].chunks_exact_mut(8)) {
            out.copy_from_slice(&UnitRun::to_stored(*place).to_le_bytes());
        }
        let checksum = crc32c::crc32c(&block[4..]);
        put_u32(block, 0, checksum);
    }

    /// Reads map page `number` of a space.
    pub(crate) fn decode(block: &[u8], number: u32, shape: &Shape) -> Result<MapPage, BlockDamage> {
        if get_u32(block, 0) != crc32c::crc32c(&block[4..]) {
            return Err(BlockDamage::Checksum);
        }
        let space = SpaceId(u16::from_le_bytes([block[24], block[25]]));
        if (get_u32(block, 4), get_u64(block, 16), space) != (number, shape.database, shape.space) {
            return Err(BlockDamage::Foreign);
        }
        require_zeros(&block[26..PLACES_AT])?;
        let stored = block[PLACES_AT..].chunks_exact(8).map(|raw| get_u64(raw, 0));
        let places: Option<Vec<Option<UnitRun>>> = stored.map(UnitRun::of_stored).collect();
        let places = places.ok_or(BlockDamage::Nonsense)?;
        Ok(MapPage { number, checkpoint: get_u64(block, 8), places })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHAPE: Shape = Shape {
        page_size: 8192,
        extent_bytes: 2 << 20,
        database: 0x1122_3344_5566_7788,
        space: SpaceId::DATA,
    };

    fn head() -> Head {
        Head {
            shape: SHAPE,
            pages: 1024,
            sequence: 3,
            checkpoint: 2,
            log_from: Lsn::new(0x2000),
            after: Lsn::new(0x2345),
            map_pages: 3,
            versions: 0x0102_0304_0506_0708,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn layout_snapshot_of_the_header_block() {
        let block = SHAPE.header();
        assert_eq!(
            hex(&block[..34]),
            "564152564550434b\
             01000000\
             00200000\
             0000200000000000\
             8877665544332211\
             0100"
        );
        assert!(block[34..4092].iter().all(|byte| *byte == 0));
        assert_eq!(get_u32(&block, 4092), crc32c::crc32c(&block[..4092]));
        assert_eq!(SHAPE.check_header(&block), Ok(()));
    }

    #[test]
    fn layout_snapshot_of_a_head() {
        let block = head().encode();
        assert_eq!(
            hex(&block[..84]),
            "56415256454d4150\
             01000000\
             00200000\
             0000200000000000\
             8877665544332211\
             01000000\
             00040000\
             0300000000000000\
             0200000000000000\
             0020000000000000\
             4523000000000000\
             03000000\
             0807060504030201"
        );
        assert!(block[84..4092].iter().all(|byte| *byte == 0));
        assert_eq!(Head::decode(&block), Ok(head()));
    }

    /// The function must not change, because heads on devices have its values.
    #[test]
    fn snapshot_of_version_marks() {
        assert_eq!(version_mark(0, 0), 0xA706_DD2F_4D19_7E6F);
        assert_eq!(version_mark(1, 7), 0x3318_0454_BA17_A00C);
        assert_eq!(version_mark(u32::MAX, u64::MAX), 0x1378_7FEC_5F8C_2AE9);
    }

    #[test]
    fn layout_snapshot_of_a_map_page() {
        let mut places = vec![None; PLACES as usize];
        places[1] = UnitRun::new(0x1234, 5);
        let page = MapPage { number: 2, checkpoint: 9, places };
        let mut block = [0xEE; BLOCK_BYTES];
        page.encode(&SHAPE, &mut block);
        assert_eq!(
            hex(&block[4..48]),
            "02000000\
             0900000000000000\
             8877665544332211\
             0100000000000000\
             0000000000000000\
             3412000000040000"
        );
        assert_eq!(get_u32(&block, 0), crc32c::crc32c(&block[4..]));
        assert_eq!(MapPage::decode(&block, 2, &SHAPE), Ok(page));
        assert_eq!(MapPage::decode(&block, 3, &SHAPE), Err(BlockDamage::Foreign));
        let other = Shape { database: 7, ..SHAPE };
        assert_eq!(MapPage::decode(&block, 2, &other), Err(BlockDamage::Foreign));
    }

    /// Changes bytes of a block, and computes its checksum again.
    fn forged(mut block: [u8; BLOCK_BYTES], at: usize, bytes: &[u8]) -> [u8; BLOCK_BYTES] {
        block[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut block);
        block
    }

    #[test]
    fn what_cannot_be_is_refused_under_a_right_checksum() {
        let good = head().encode();
        let cases: &[(usize, &[u8], BlockDamage)] = &[
            (0, b"VARVEPCK", BlockDamage::Checksum),
            (8, &[2], BlockDamage::Version(2)),
            (12, &[1, 32], BlockDamage::Nonsense),
            (16, &[1], BlockDamage::Nonsense),
            (32, &[3], BlockDamage::Nonsense),
            (34, &[1], BlockDamage::Nonsense),
            (48, &[0], BlockDamage::Nonsense),
            (63, &[0x41], BlockDamage::Nonsense),
            (71, &[0x40], BlockDamage::Nonsense),
            (47, &[0x40], BlockDamage::Nonsense),
            (75, &[1], BlockDamage::Nonsense),
            (84, &[1], BlockDamage::Nonsense),
            (100, &[1], BlockDamage::Nonsense),
        ];
        for (at, bytes, damage) in cases {
            assert_eq!(Head::decode(&forged(good, *at, bytes)), Err(*damage), "{at}");
        }
        assert_eq!(SHAPE.check_header(&forged(SHAPE.header(), 24, &[1])), Err(BlockDamage::Foreign));
        assert_eq!(SHAPE.check_header(&forged(SHAPE.header(), 40, &[1])), Err(BlockDamage::Nonsense));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut page = [0; BLOCK_BYTES];
        MapPage { number: 0, checkpoint: 1, places: vec![UnitRun::new(8, 1); PLACES as usize] }
            .encode(&SHAPE, &mut page);
        for at in 0..BLOCK_BYTES {
            let flipped = |block: &[u8; BLOCK_BYTES]| {
                let mut block = *block;
                block[at] ^= 1 << (at % 8);
                block
            };
            assert!(Head::decode(&flipped(&head().encode())).is_err(), "head, byte {at}");
            assert!(SHAPE.check_header(&flipped(&SHAPE.header())).is_err(), "header block, byte {at}");
            assert!(MapPage::decode(&flipped(&page), 0, &SHAPE).is_err(), "map page, byte {at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn map_pages_come_back(
            number in any::<u32>(), checkpoint in any::<u64>(),
            places in proptest::collection::vec((0_u64..1 << 40, 0_u32..=128), PLACES as usize),
        ) {
            let places = places.into_iter().map(|(address, units)| UnitRun::new(address, units)).collect();
            let page = MapPage { number, checkpoint, places };
            let mut block = [0; BLOCK_BYTES];
            page.encode(&SHAPE, &mut block);
            prop_assert_eq!(MapPage::decode(&block, number, &SHAPE), Ok(page));
        }
    }
}
