//! The division of a space: extents, groups, descriptor pages, the header page.
//!
//! A space is a sequence of extents. A group of extents has one descriptor page, which is in the group's
//! first extent. Page 0 of the space is its header. Page 1 belongs to the engine in the data space, and is
//! unused in others. Page 2 describes group 0. In every other group the first page is the descriptor page.
//! Extents with header or descriptor pages belong to [`OWNER_SYSTEM`].
//!
//! Header page (kind 1), little endian, after the page header:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 32 | 8 | magic "VARVESPC" |
//! | 40 | 4 | format version |
//! | 44 | 4 | page size, bytes |
//! | 48 | 4 | pages of an extent |
//! | 52 | 4 | next owner number |
//! | 56 | 8 | database id |
//! | 64 | 8 | mark of the last start: what the control file says it is (decision 0260), 0 = none |
//!
//! Descriptor page (kind 2): from offset 32 on, one entry for each extent of the group:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | owner, 0 = the extent is free |
//! | 4 | 4 | pages in use |
//! | 8 | extent pages / 8, at least 8 | bit per page in use, lowest bit of the first byte = first page |
//!
//! Invariants
//! 1. An entry has an owner exactly if one of its pages is in use. The count is the number of set bits.
//!
//! This module does not know where entries are cached.

use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::page::{self, PAGE_HEADER_BYTES, kind};

/// Owner of the pager's own extents.
pub(crate) const OWNER_SYSTEM: u32 = 1;
/// The first number of an owner that is not the pager.
pub(crate) const FIRST_OWNER: u32 = 16;
/// Pages that describe group 0 and the space.
pub(crate) const SYSTEM_PAGES_FIRST: u32 = 3;

/// The first bytes of the body of a header page.
const MAGIC: &[u8; 8] = b"VARVESPC";
const VERSION: u32 = 1;
const HEADER_NEXT_OWNER: usize = PAGE_HEADER_BYTES + 20;
const HEADER_END: usize = PAGE_HEADER_BYTES + 32;
const EXTENT_PAGES: u32 = 64;
const ROLLBACK_EXTENT_BYTES: usize = 1 << 20;
/// The most pages of an extent (1 MiB in pages of 4 KiB).
pub(crate) const EXTENT_PAGES_MAX: u32 = 256;
const GROUP_EXTENTS_MAX: usize = 256;

/// The division of a space into extents and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) space: SpaceId,
    pub(crate) page_size: usize,
    pub(crate) extent_pages: u32,
    pub(crate) group_extents: u32,
}

/// Number of an extent within its space.
pub(crate) type ExtentNo = u32;

impl Geometry {
    pub(crate) fn of(space: SpaceId, page_size: usize) -> Geometry {
        let extent_pages = match space {
            SpaceId::ROLLBACK => (ROLLBACK_EXTENT_BYTES / page_size) as u32,
            _ => EXTENT_PAGES,
        };
        let fits = (page_size - PAGE_HEADER_BYTES) / entry_bytes(extent_pages);
        let group_extents = (1 << fits.ilog2()).min(GROUP_EXTENTS_MAX) as u32;
        Geometry { space, page_size, extent_pages, group_extents }
    }

    pub(crate) fn entry_bytes(self) -> usize {
        entry_bytes(self.extent_pages)
    }

    pub(crate) fn group_pages(self) -> u32 {
        self.group_extents * self.extent_pages
    }

    pub(crate) fn extent_of(self, id: PageId) -> ExtentNo {
        id.no().0 / self.extent_pages
    }

    /// Returns the number of the page within its extent.
    pub(crate) fn within(self, id: PageId) -> u32 {
        id.no().0 % self.extent_pages
    }

    pub(crate) fn page_of(self, extent: ExtentNo, within: u32) -> PageId {
        PageId::new(self.space, PageNo(extent * self.extent_pages + within))
    }

    pub(crate) fn pages_of(self, extent: ExtentNo) -> PageRange {
        PageRange { first: self.page_of(extent, 0), count: self.extent_pages }
    }

    pub(crate) fn group_of(self, extent: ExtentNo) -> u32 {
        extent / self.group_extents
    }

    /// Returns the first page of a group.
    pub(crate) fn group_start(self, group: u32) -> u32 {
        group * self.group_pages()
    }

    pub(crate) fn descriptor_of(self, group: u32) -> PageId {
        let within = if group == 0 { SYSTEM_PAGES_FIRST - 1 } else { 0 };
        PageId::new(self.space, PageNo(self.group_start(group) + within))
    }

    /// Returns whether `id` is the descriptor page of a group.
    pub(crate) fn is_descriptor(self, id: PageId) -> bool {
        self.descriptor_of(id.no().0 / self.group_pages()) == id
    }

    /// Returns the number of pages at the start of a group that are the pager's own.
    pub(crate) fn system_pages(self, group: u32) -> u32 {
        if group == 0 { SYSTEM_PAGES_FIRST } else { 1 }
    }

    /// Returns the offset of an extent's entry in its descriptor page.
    pub(crate) fn entry_offset(self, extent: ExtentNo) -> usize {
        PAGE_HEADER_BYTES + (extent % self.group_extents) as usize * self.entry_bytes()
    }

    pub(crate) fn header(self) -> PageId {
        PageId::new(self.space, PageNo(0))
    }

    /// Returns a descriptor page of a new group.
    pub(crate) fn new_descriptor(self, group: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.page_size];
        page::format(&mut bytes, self.descriptor_of(group), kind::DESCRIPTOR, OWNER_SYSTEM);
        let mut entry = Entry { owner: OWNER_SYSTEM, used: Bits::default() };
        (0..self.system_pages(group)).for_each(|within| entry.used.set(within));
        self.put_entry(&mut bytes, 0, &entry);
        bytes
    }

    /// Reads the entry of an extent from its descriptor page.
    pub(crate) fn entry(self, descriptor: &[u8], extent: ExtentNo) -> Result<Entry> {
        let bytes = &descriptor[self.entry_offset(extent)..][..self.entry_bytes()];
        let entry = Entry { owner: le_u32(bytes, 0), used: Bits::from_bytes(&bytes[8..]) };
        let is_sound = le_u32(bytes, 4) == entry.used.count()
            && (entry.owner == 0) == (entry.used.count() == 0)
            && entry.used.end() <= self.extent_pages;
        if is_sound {
            return Ok(entry);
        }
        Err(PagerError::Corrupt {
            what: format!(
                "page {} describes extent {extent} wrongly: owner {}, {} pages in use by count, {} by bits",
                self.descriptor_of(self.group_of(extent)),
                entry.owner,
                le_u32(bytes, 4),
                entry.used.count()
            ),
        })
    }

    fn put_entry(self, descriptor: &mut [u8], extent: ExtentNo, entry: &Entry) {
        let at = self.entry_offset(extent);
        descriptor[at..at + self.entry_bytes()].copy_from_slice(&self.encode_entry(entry));
    }

    /// Returns the bytes of an entry.
    pub(crate) fn encode_entry(self, entry: &Entry) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entry_bytes());
        bytes.extend_from_slice(&entry.owner.to_le_bytes());
        bytes.extend_from_slice(&entry.used.count().to_le_bytes());
        bytes.extend(entry.used.0.iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(self.entry_bytes(), 0);
        bytes
    }

    /// Returns the header page of a new space.
    pub(crate) fn new_header(self, database_id: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.page_size];
        page::format(&mut bytes, self.header(), kind::SPACE_HEADER, OWNER_SYSTEM);
        let fields = [VERSION, self.page_size as u32, self.extent_pages, FIRST_OWNER];
        let body = MAGIC.iter().copied().chain(fields.iter().flat_map(|field| field.to_le_bytes()));
        let body: Vec<u8> = body.chain(database_id.to_le_bytes()).collect();
        bytes[PAGE_HEADER_BYTES..HEADER_END].copy_from_slice(&body);
        bytes
    }

    /// Refuses the header of another database or format.
    pub(crate) fn check_header(self, header: &[u8], database_id: u64) -> Result<()> {
        let mut expected = self.new_header(database_id);
        put_next_owner(&mut expected, next_owner(header));
        if header[PAGE_HEADER_BYTES..HEADER_END] == expected[PAGE_HEADER_BYTES..HEADER_END] {
            return Ok(());
        }
        Err(PagerError::Incompatible {
            what: format!(
                "the file of {} belongs to another database, or to another version of the format",
                self.space.title()
            ),
        })
    }
}

fn entry_bytes(extent_pages: u32) -> usize {
    8 + (extent_pages as usize / 8).next_multiple_of(8)
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the database that a header page names, or `None` if this is no header page.
pub(crate) fn database_of(header: &[u8]) -> Option<u64> {
    let body = header.get(PAGE_HEADER_BYTES..HEADER_END)?;
    let id = body.strip_prefix(&MAGIC[..])?.last_chunk()?;
    Some(u64::from_le_bytes(*id))
}

/// Offset of the database id in the header page. The mark follows.
pub(crate) const DATABASE_OFFSET: usize = HEADER_END - 8;

/// Returns the next owner number of a header page.
pub(crate) fn next_owner(header: &[u8]) -> u32 {
    le_u32(header, HEADER_NEXT_OWNER)
}

fn put_next_owner(header: &mut [u8], owner: u32) {
    header[HEADER_NEXT_OWNER..HEADER_NEXT_OWNER + 4].copy_from_slice(&owner.to_le_bytes());
}

/// Offset of the mark in the header page.
pub(crate) const MARK_OFFSET: usize = HEADER_END;

/// Returns the mark of a header page.
pub(crate) fn mark(header: &[u8]) -> u64 {
    u64::from(le_u32(header, MARK_OFFSET)) | u64::from(le_u32(header, MARK_OFFSET + 4)) << 32
}

/// Offset of the next owner number in the header page.
pub(crate) const NEXT_OWNER_OFFSET: usize = HEADER_NEXT_OWNER;

/// State of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    /// The owner of the extent, or 0 if the extent is free.
    pub(crate) owner: u32,
    /// The allocated pages of the extent.
    pub(crate) used: Bits,
}

/// A set of pages of an extent, with one bit for each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bits([u64; EXTENT_PAGES_MAX as usize / 64]);

impl Bits {
    /// Returns the set with the first `count` bits.
    pub(crate) fn first(count: u32) -> Bits {
        let mut bits = Bits::default();
        (0..count).for_each(|at| bits.set(at));
        bits
    }

    fn from_bytes(bytes: &[u8]) -> Bits {
        let mut bits = Bits::default();
        for (at, byte) in bytes.iter().enumerate() {
            bits.0[at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
        bits
    }

    pub(crate) fn has(&self, at: u32) -> bool {
        self.0[at as usize / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, at: u32) {
        self.0[at as usize / 64] |= 1 << (at % 64);
    }

    pub(crate) fn clear(&mut self, at: u32) {
        self.0[at as usize / 64] &= !(1 << (at % 64));
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the bits of both sets.
    pub(crate) fn union(&self, other: &Bits) -> Bits {
        Bits(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Returns the bits of `self` that `other` does not have.
    pub(crate) fn minus(&self, other: &Bits) -> Bits {
        Bits(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Returns the position after the last set bit.
    fn end(&self) -> u32 {
        let last = (0..self.0.len()).rev().find(|at| self.0[*at] != 0);
        last.map_or(0, |at| at as u32 * 64 + 64 - self.0[at].leading_zeros())
    }

    /// Returns the first clear bit in `from .. limit`.
    pub(crate) fn clear_from(&self, from: u32, limit: u32) -> Option<u32> {
        let mut at = from;
        while at < limit {
            let free = !self.0[at as usize / 64] >> (at % 64);
            if free != 0 {
                return Some(at + free.trailing_zeros()).filter(|at| *at < limit);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Positions of the set bits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..EXTENT_PAGES_MAX).filter(|at| self.has(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_are_divided_the_same_way_for_ever() {
        let sizes = |space, page_size| {
            let geometry = Geometry::of(space, page_size);
            (geometry.extent_pages, geometry.group_extents, geometry.entry_bytes())
        };
        assert_eq!(sizes(SpaceId::DATA, 4096), (64, 128, 16));
        assert_eq!(sizes(SpaceId::DATA, 8192), (64, 256, 16));
        assert_eq!(sizes(SpaceId::DATA, 65536), (64, 256, 16));
        assert_eq!(sizes(SpaceId::ROLLBACK, 4096), (256, 64, 40));
        assert_eq!(sizes(SpaceId::ROLLBACK, 8192), (128, 256, 24));
        assert_eq!(sizes(SpaceId::ROLLBACK, 65536), (16, 256, 16));
    }

    #[test]
    fn the_header_keeps_its_layout() {
        let geometry = Geometry::of(SpaceId::DATA, 8192);
        let header = geometry.new_header(0x0102_0304_0506_0708);
        let expected = b"VARVESPC\x01\0\0\0\0\x20\0\0\x40\0\0\0\x10\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01";
        assert_eq!(&header[32..64], expected);
        assert!(geometry.check_header(&header, 0x0102_0304_0506_0708).is_ok());
        assert!(geometry.check_header(&header, 1).is_err());
        assert_eq!(next_owner(&header), FIRST_OWNER);
    }

    #[test]
    fn entries_come_back_and_damage_is_found() {
        for space in SpaceId::DURABLE {
            let geometry = Geometry::of(space, 4096);
            let mut page = geometry.new_descriptor(0);
            assert_eq!(geometry.entry(&page, 0).unwrap().used, Bits::first(3));
            let mut entry = Entry { owner: 77, used: Bits::default() };
            [0, 5, 63, geometry.extent_pages - 1].iter().for_each(|at| entry.used.set(*at));
            geometry.put_entry(&mut page, 9, &entry);
            assert_eq!(geometry.entry(&page, 9).unwrap(), entry);
            assert_eq!(geometry.entry(&page, 10).unwrap(), Entry::default());
            page[geometry.entry_offset(9) + 8] ^= 2;
            assert!(geometry.entry(&page, 9).is_err());
            page[geometry.entry_offset(10)] = 1;
            assert!(geometry.entry(&page, 10).is_err());
        }
    }

    #[test]
    fn clear_bits_are_found_across_words() {
        let mut bits = Bits::first(130);
        assert_eq!(bits.clear_from(0, 256), Some(130));
        assert_eq!(bits.clear_from(0, 130), None);
        bits.clear(64);
        assert_eq!(bits.clear_from(3, 256), Some(64));
        assert_eq!(bits.clear_from(65, 256), Some(130));
        assert_eq!(bits.count(), 129);
        assert_eq!(bits.iter().nth(64), Some(65));
    }
}
