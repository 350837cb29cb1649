//! The layout of the allocator's region: its header, its parts, and the words in it.
//!
//! All numbers are little endian. The region begins with a header of 4096 bytes. It is written when the
//! allocator is created. Its magic is stored last and in one word, so a header with the magic is complete.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVEMEM" |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | bytes of a segment, 65536 |
//! | 16 | 8 | database id |
//! | 24 | 8 | length of the region in bytes |
//! | 32 | 4 | number of segments |
//! | 36 | 4 | number of roots, 256 |
//! | 40 | 4 | number of lanes, 16 |
//! | 44 | 4 | bytes of a lane, 256 |
//! | 48 | 8 | descriptors: offset |
//! | 56 | 8 | bitmaps: offset |
//! | 64 | 8 | segments: offset |
//! | 72 | 4020 | zeros |
//! | 4092 | 4 | crc32c of bytes 0..4092 |
//!
//! After the header come these parts, each at a multiple of 4096:
//!
//! | at | part |
//! |---|---|
//! | 4096 | lanes: what publications are about to do (`intent.rs`) |
//! | 8192 | roots, 64 bytes each |
//! | 24576 | descriptors, a word for each segment |
//! | bitmaps | 512 bytes for each segment: a bit for each chunk of a slab, 1 = active |
//! | segments | the segments |
//!
//! A descriptor is a word. It is 0 for a free segment, and for all segments of a run but the first. Otherwise
//! its bits are:
//!
//! | bits | field |
//! |---:|---|
//! | 0..2 | 1 = a slab, 2 = the first segment of a run |
//! | 2..8 | slab: size class |
//! | 8..24 | owner |
//! | 24..48 | run: number of segments |
//! | 48..64 | low bits of the crc32c of bits 0..48 (6 bytes) and the segment's number (4 bytes) |
//!
//! A root is one cache line:
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | value |
//! | 8 | 8 | seal: bits 32..40 length of the name in bytes; bits 0..32 crc32c of bytes 16..64 and that byte; 0 = no root |
//! | 16 | 48 | name in UTF-8, then zeros |
//!
//! Invariants
//! 1. The bitmap of a segment that is no slab is zero.
//!
//! This module does not know in which order these words are stored.

use varve_device::Region;

use crate::classes::Class;
use crate::error::{MemoryError, Result};
use crate::pointer::Owner;
use crate::sizes::{CHUNK_BYTES_MIN, ROOT_NAME_BYTES_MAX, ROOTS, SEGMENT_BYTES};

/// The size of the header, in bytes.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Where the magic is.
pub(crate) const MAGIC_AT: u64 = 0;
/// The magic as a word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"VARVEMEM");
/// The number of lanes.
pub(crate) const LANES: usize = 16;
/// The number of bytes of a lane: one block of the medium.
pub(crate) const LANE_BYTES: usize = 256;
/// The size of a root, in bytes.
pub(crate) const ROOT_BYTES: usize = 64;
/// Where the seal is in a root.
pub(crate) const SEAL_AT: u64 = 8;
/// Where the name is in a root.
pub(crate) const NAME_AT: u64 = 16;
/// The number of bytes of a segment's bitmap: a bit for each of the smallest chunks.
pub(crate) const BITMAP_BYTES: u64 = SEGMENT_BYTES / CHUNK_BYTES_MIN / 8;

/// The version of the format. Since version 2 an entry of the undo log has fewer bytes.
const VERSION: u32 = 2;
const CHECKSUM_AT: usize = HEADER_BYTES - 4;
const PART_ALIGNMENT: u64 = 4096;
const LANES_AT: u64 = HEADER_BYTES as u64;
const ROOTS_AT: u64 = LANES_AT + (LANES * LANE_BYTES) as u64;
const DESCRIPTORS_AT: u64 = ROOTS_AT + ROOTS as u64 * ROOT_BYTES as u64;
const DESCRIPTOR_BYTES: u64 = 8;
/// The largest number of segments: a descriptor has 24 bits for the length of a run.
const SEGMENTS_MAX: u32 = (1 << 24) - 1;

/// The places of the parts of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The length of the region.
    pub(crate) len_bytes: u64,
    /// The number of segments, at least 1.
    pub(crate) segments: u32,
    bitmaps_at: u64,
    segments_at: u64,
}

impl Layout {
    /// Returns the layout with this many segments. Its end may be beyond the end of the region.
    fn with_segments(len_bytes: u64, segments: u32) -> Layout {
        let count = u64::from(segments);
        let bitmaps_at = (DESCRIPTORS_AT + count * DESCRIPTOR_BYTES).next_multiple_of(PART_ALIGNMENT);
        let segments_at = (bitmaps_at + count * BITMAP_BYTES).next_multiple_of(PART_ALIGNMENT);
        Layout { len_bytes, segments, bitmaps_at, segments_at }
    }

    fn end(&self) -> u64 {
        self.segment_at(self.segments)
    }

    /// Returns the layout of a region with this many bytes.
    pub(crate) fn of(len_bytes: u64) -> Result<Layout> {
        let least_bytes = Layout::with_segments(0, 1).end();
        let most_bytes = Layout::with_segments(0, SEGMENTS_MAX).end();
        if !(least_bytes..=most_bytes).contains(&len_bytes) {
            return Err(MemoryError::Size { got_bytes: len_bytes, least_bytes, most_bytes });
        }
        // The parts are rounded up to multiples of their alignment. That costs one segment at most.
        let each = SEGMENT_BYTES + BITMAP_BYTES + DESCRIPTOR_BYTES;
        let most = ((len_bytes - DESCRIPTORS_AT) / each) as u32;
        let whole = Layout::with_segments(len_bytes, most);
        Ok(if whole.end() <= len_bytes { whole } else { Layout::with_segments(len_bytes, most - 1) })
    }

    /// Returns where a lane begins.
    pub(crate) fn lane_at(&self, lane: usize) -> u64 {
        LANES_AT + (lane * LANE_BYTES) as u64
    }

    /// Returns where a root begins.
    pub(crate) fn root_at(&self, root: u32) -> u64 {
        ROOTS_AT + u64::from(root) * ROOT_BYTES as u64
    }

    /// Returns the root whose value is at an offset.
    pub(crate) fn root_of_value(&self, offset: u64) -> Option<u32> {
        let within = offset.checked_sub(ROOTS_AT)?;
        let is_value = offset < DESCRIPTORS_AT && within.is_multiple_of(ROOT_BYTES as u64);
        is_value.then_some((within / ROOT_BYTES as u64) as u32)
    }

    /// Returns where a segment's descriptor is.
    pub(crate) fn descriptor_at(&self, segment: u32) -> u64 {
        DESCRIPTORS_AT + u64::from(segment) * DESCRIPTOR_BYTES
    }

    /// Returns where a segment's bitmap is.
    pub(crate) fn bitmap_at(&self, segment: u32) -> u64 {
        self.bitmaps_at + u64::from(segment) * BITMAP_BYTES
    }

    /// Returns where a segment is.
    pub(crate) fn segment_at(&self, segment: u32) -> u64 {
        self.segments_at + u64::from(segment) * SEGMENT_BYTES
    }

    /// Returns the segment that holds an offset, and the offset within it.
    pub(crate) fn segment_of(&self, offset: u64) -> Option<(u32, u64)> {
        let within = offset.checked_sub(self.segments_at)?;
        let segment = within / SEGMENT_BYTES;
        (segment < u64::from(self.segments)).then_some((segment as u32, within % SEGMENT_BYTES))
    }

    /// Returns whether an offset is in a bitmap.
    pub(crate) fn is_in_bitmaps(&self, offset: u64) -> bool {
        (self.bitmaps_at..self.bitmap_at(self.segments)).contains(&offset)
    }

    /// Returns whether a publication may store a value at this offset: it is in a root, a descriptor, or a
    /// segment.
    pub(crate) fn is_published(&self, offset: u64) -> bool {
        let is_descriptor = (DESCRIPTORS_AT..self.descriptor_at(self.segments)).contains(&offset);
        is_descriptor || self.root_of_value(offset).is_some() || self.segment_of(offset).is_some()
    }

    /// Returns the bytes between the header and the segments. They are zeros in an empty region.
    pub(crate) fn tables(&self) -> std::ops::Range<u64> {
        LANES_AT..self.segments_at
    }
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}

/// Returns the word at an offset of a buffer, or 0 beyond the end of the buffer.
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

/// Returns the header of a region that belongs to a database.
pub(crate) fn encode_header(layout: &Layout, database: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    put(&mut bytes, 0, MAGIC.to_le_bytes());
    put(&mut bytes, 16, database.to_le_bytes());
    put(&mut bytes, 24, layout.len_bytes.to_le_bytes());
    put(&mut bytes, 48, DESCRIPTORS_AT.to_le_bytes());
    put(&mut bytes, 56, layout.bitmaps_at.to_le_bytes());
    put(&mut bytes, 64, layout.segments_at.to_le_bytes());
    let numbers = [
        (8, VERSION),
        (12, SEGMENT_BYTES as u32),
        (32, layout.segments),
        (36, ROOTS),
        (40, LANES as u32),
        (44, LANE_BYTES as u32),
    ];
    numbers.into_iter().for_each(|(at, number)| put(&mut bytes, at, number.to_le_bytes()));
    let checksum = crc32c::crc32c(bytes.get(..CHECKSUM_AT).unwrap_or_default());
    put(&mut bytes, CHECKSUM_AT, checksum.to_le_bytes());
    bytes
}

/// Returns the layout of a region, if its header is whole and belongs to this database.
pub(crate) fn read_header(region: &dyn Region, database: u64) -> Result<Layout> {
    let len_bytes = region.len_bytes();
    let mut bytes = [0; HEADER_BYTES];
    let layout = Layout::of(len_bytes);
    if len_bytes >= HEADER_BYTES as u64 {
        region.read(MAGIC_AT, &mut bytes);
    }
    let found = get_u64(&bytes, 0);
    if found != MAGIC {
        return Err(MemoryError::NoAllocator { found });
    }
    if get_u32(&bytes, CHECKSUM_AT) != crc32c::crc32c(bytes.get(..CHECKSUM_AT).unwrap_or_default()) {
        return Err(MemoryError::Damaged { what: "the checksum of the header", at: CHECKSUM_AT as u64 });
    }
    let version = get_u32(&bytes, 8);
    if version != VERSION {
        return Err(MemoryError::OtherVersion { found: version, known: VERSION });
    }
    let (found, expected_bytes) = (get_u64(&bytes, 16), get_u64(&bytes, 24));
    if found != database {
        return Err(MemoryError::OtherDatabase { found, expected: database });
    }
    if expected_bytes != len_bytes {
        return Err(MemoryError::OtherLength { found_bytes: len_bytes, expected_bytes });
    }
    let layout = layout?;
    if encode_header(&layout, database) != bytes {
        return Err(MemoryError::Damaged { what: "the header, whose numbers cannot be", at: 8 });
    }
    Ok(layout)
}

/// The use of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// A free segment, or a segment of a run that is not its first one.
    Free,
    /// A segment with chunks of one class.
    Slab { class: Class, owner: Owner },
    /// The first segment of a large chunk.
    Run { segments: u32, owner: Owner },
}

impl Descriptor {
    /// Returns the word of the descriptor. Its checksum includes the number of the segment.
    pub(crate) fn encode(self, segment: u32) -> u64 {
        let fields = match self {
            Descriptor::Free => return 0,
            Descriptor::Slab { class, owner } => {
                1 | u64::from(class.number()) << 2 | u64::from(owner.number()) << 8
            }
            Descriptor::Run { segments, owner } => {
                2 | u64::from(owner.number()) << 8 | u64::from(segments) << 24
            }
        };
        let checked = crc32c::crc32c(fields.to_le_bytes().get(..6).unwrap_or_default());
        let checksum = crc32c::crc32c_append(checked, &segment.to_le_bytes());
        fields | u64::from(checksum & 0xFFFF) << 48
    }

    /// Returns the descriptor of a segment, if the word can be one.
    pub(crate) fn decode(word: u64, segment: u32) -> Option<Descriptor> {
        let owner = Owner::new((word >> 8) as u16);
        let found = match word & 3 {
            0 => Descriptor::Free,
            1 => Descriptor::Slab { class: Class::new((word >> 2) as u8 & 0x3F)?, owner: owner? },
            2 => Descriptor::Run { segments: (word >> 24) as u32 & SEGMENTS_MAX, owner: owner? },
            _ => return None,
        };
        (found.encode(segment) == word).then_some(found)
    }
}

/// Returns the bytes of a name for its field in a root, and the seal over this field.
pub(crate) fn encode_name(name: &str) -> Result<([u8; ROOT_NAME_BYTES_MAX], u64)> {
    let mut field = [0; ROOT_NAME_BYTES_MAX];
    match field.get_mut(..name.len()) {
        Some(place) if !name.is_empty() => place.copy_from_slice(name.as_bytes()),
        _ => return Err(MemoryError::RootName { name: name.into() }),
    }
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&field), &[name.len() as u8]);
    let seal = u64::from(checksum) | (name.len() as u64) << 32;
    Ok((field, seal))
}

/// Returns the name in a root, if the seal is valid for this name.
pub(crate) fn decode_name(root: &[u8; ROOT_BYTES]) -> Option<&str> {
    let seal = get_u64(root, SEAL_AT as usize);
    let field = root.get(NAME_AT as usize..)?;
    let name = std::str::from_utf8(field.get(..(seal >> 32) as usize)?).ok()?;
    let (again, sealed) = encode_name(name).ok()?;
    (sealed == seal && again == field).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_behind_each_other_and_fill_the_region() {
        let lengths = (0..400).map(|step| 98_304 + step * 5_000).chain([1 << 30, 1 << 40]);
        for len_bytes in lengths {
            let Ok(layout) = Layout::of(len_bytes) else { continue };
            assert!(layout.segments > 0 && layout.end() <= len_bytes, "{layout:?}");
            assert!(layout.descriptor_at(layout.segments) <= layout.bitmap_at(0));
            assert!(layout.bitmap_at(layout.segments) <= layout.segment_at(0));
            let next = Layout::with_segments(len_bytes, layout.segments + 1);
            assert!(next.end() > len_bytes, "{layout:?} has room for one more");
        }
        assert!(matches!(Layout::of(98_303), Err(MemoryError::Size { least_bytes: 98_304, .. })));
    }

    #[test]
    fn descriptors_come_back_and_others_do_not() {
        let (Some(owner), Some(class)) = (Owner::new(4095), Class::new(25)) else { panic!("they exist") };
        let all = [
            Descriptor::Free,
            Descriptor::Slab { class, owner },
            Descriptor::Run { segments: SEGMENTS_MAX, owner },
        ];
        for descriptor in all {
            let word = descriptor.encode(7);
            assert_eq!(Descriptor::decode(word, 7), Some(descriptor));
            for bit in 0..64 {
                assert_eq!(Descriptor::decode(word ^ 1 << bit, 7), None, "{descriptor:?}, bit {bit}");
            }
        }
        let word = Descriptor::Slab { class, owner }.encode(7);
        assert_eq!(Descriptor::decode(word, 8), None, "another segment's");
    }

    #[test]
    fn the_header_is_the_same_as_ever() {
        let Ok(layout) = Layout::of(1 << 20) else { panic!("a MiB is enough") };
        let bytes = encode_header(&layout, 0x0102_0304_0506_0708);
        let words: Vec<u64> = (0..9).map(|word| get_u64(&bytes, word * 8)).collect();
        let expected = [
            MAGIC,
            0x0001_0000_0000_0002,
            0x0102_0304_0506_0708,
            1 << 20,
            0x0000_0100_0000_000F,
            0x0000_0100_0000_0010,
            24_576,
            28_672,
            36_864,
        ];
        assert_eq!(words, expected);
    }
}
