//! The layout of a region of persistent memory, and its header.
//!
//! The header is 4096 bytes at offset 0, little endian. It is written when the region is attached to a
//! database. The magic is stored last, in one word, so a header with the magic is complete. While the region
//! is being made, and after its database has left it, the first word is "NVM LEFT". Then no database needs
//! the region, whatever the rest of the header says (decision 0308).
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVENVM"; or "NVM LEFT" |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | page size in bytes |
//! | 16 | 8 | database id |
//! | 24 | 8 | region id: random, not 0; the control file names it |
//! | 32 | 8 | length of the region in bytes |
//! | 40 | 8 | log area: offset, a multiple of 4096; 0 = none |
//! | 48 | 4 | log area: number of segments |
//! | 52 | 4 | number of page slots; 0 = none |
//! | 56 | 8 | log area: bytes of a segment |
//! | 64 | 8 | slot headers: offset, a multiple of 4096; 0 = none |
//! | 72 | 8 | page slots: offset, a multiple of the page size; 0 = none |
//! | 80 | 4 | use of the page slots: 0 none, 1 page buffer, 2 doublewrite copies (below) |
//! | 84 | 4008 | zeros |
//! | 4092 | 4 | crc32c of bytes 0..4092 |
//!
//! Doublewrite copies have no slot headers. Their format is in `home/protection/doublewrite.rs`.
//!
//! After the header there are two words. Each is stored and made durable separately:
//!
//! | at | size | word |
//! |---:|---:|---|
//! | 4096 | 8 | stamp: number of the last checkpoint that was begun with this region |
//! | 4104 | 8 | start of the machine at the last opening, if the medium doesn't outlive it; else 0 |
//!
//! The areas begin at 8192: log segments, slot headers, page slots.
//!
//! This module does not know what is in the areas.

use varve_device::Region;

use super::area::SLOT_HEADER_BYTES;
use super::config::{NvmConfig, WantedRegion};
use crate::base::error::{PagerError, Result};
use crate::base::page::{PAGE_SIZE_MAX_BYTES, PAGE_SIZE_MIN_BYTES};
use crate::home::protection;
use crate::home::protection::kind::ProtectionKind;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Offset of the stamp.
pub(crate) const STAMP_AT: u64 = 4096;
/// Offset of the number of the machine's start.
pub(crate) const BOOT_AT: u64 = 4104;
/// Offset of the magic, which is the first word of the header.
pub(crate) const MAGIC_AT: u64 = 0;
/// The magic as a word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"VARVENVM");
/// The first word of a region that no database needs.
pub(crate) const LEFT: u64 = u64::from_le_bytes(*b"NVM LEFT");

const VERSION: u32 = 1;
/// Offset of the first area.
pub(crate) const AREAS_AT: u64 = 8192;
const ALIGNMENT: u64 = 4096;
const CHECKSUM_AT: usize = HEADER_BYTES - 4;
/// The least number of slots of a page buffer.
const SLOTS_MIN: u64 = 4;
/// The number of segments of a log in the region.
const LOG_SEGMENTS: u32 = 8;
/// The least length of a segment, in pages, so that a mini-transaction fits into it
const SEGMENT_PAGES_MIN: u64 = 16;

/// The area of the log's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogArea {
    pub(crate) offset: u64,
    pub(crate) segments: u32,
    pub(crate) segment_bytes: u64,
}

/// The use of the page slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotUse {
    /// The page buffer.
    Buffer,
    /// Doublewrite copies.
    Copies,
}

/// The area of the page slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotArea {
    pub(crate) purpose: SlotUse,
    pub(crate) slots: u32,
    /// The offset of the slot headers. It is 0 for copies, which have none.
    pub(crate) headers: u64,
    pub(crate) pages: u64,
}

/// The division of a region into areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) region_bytes: u64,
    pub(crate) page_size: u32,
    pub(crate) log: Option<LogArea>,
    pub(crate) slots: Option<SlotArea>,
}

impl LogArea {
    fn end(&self) -> Option<u64> {
        self.segment_bytes.checked_mul(u64::from(self.segments))?.checked_add(self.offset)
    }

    /// Returns the number of bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segment_bytes * u64::from(self.segments)
    }

    /// Returns the capacity of the log. It is one segment less than there are, because one segment may be
    /// about to be reused.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.segment_bytes * u64::from(self.segments - 1)
    }
}

impl Layout {
    /// Returns the layout that a configuration requires. `None` means that it has no region.
    pub(crate) fn of(config: &WantedRegion<'_>) -> Result<Option<Layout>> {
        let Some(nvm) = config.nvm else { return Ok(None) };
        let page_size = config.page_size as u32;
        let log = log_area(nvm.log_bytes, page_size)?;
        let log_end = log.map_or(Some(AREAS_AT), |log| log.end());
        let slots = match log_end.filter(|_| config.protection == ProtectionKind::Nvm) {
            Some(end) => Some(slot_area(nvm, end, u64::from(page_size))?),
            None => log_end.and_then(|end| copies_area(config.protection, end, page_size)),
        };
        require(log.is_some() || slots.is_some(), || {
            "an NVM region with nothing in it: give it a log, or choose protection nvm or nvm-dwb".into()
        })?;
        let end = slots.map_or(log_end, |slots| slots.pages.checked_add(slots.bytes(page_size)));
        let end = end.and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        require(
            nvm.size_bytes.is_multiple_of(ALIGNMENT) && end.is_some_and(|end| end <= nvm.size_bytes),
            || {
                format!(
                    "an NVM region of {} bytes: it must be a multiple of {ALIGNMENT}, and at least {} with a log of {}",
                    nvm.size_bytes,
                    end.unwrap_or(u64::MAX),
                    nvm.log_bytes
                )
            },
        )?;
        Ok(Some(Layout { region_bytes: nvm.size_bytes, page_size, log, slots }))
    }

    /// Returns whether the areas are one after another within the region.
    fn is_sound(&self) -> bool {
        let page_size = self.page_size as usize;
        let has_pages =
            page_size.is_power_of_two() && (PAGE_SIZE_MIN_BYTES..=PAGE_SIZE_MAX_BYTES).contains(&page_size);
        let log_end = self.log.map_or(Some(AREAS_AT), |log| log.end().filter(|_| log.is_sound()));
        let end = log_end.and_then(|end| match &self.slots {
            Some(slots) => slots.end_behind(end, u64::from(self.page_size)),
            None => Some(end),
        });
        has_pages && end.is_some_and(|end| end <= self.region_bytes)
    }
}

/// Returns the area of page slots, which takes the rest of the region.
fn slot_area(nvm: &NvmConfig, headers: u64, page_size: u64) -> Result<SlotArea> {
    let area = |slots: u64| SlotArea {
        purpose: SlotUse::Buffer,
        slots: slots as u32,
        headers,
        pages: (headers + slots * SLOT_HEADER_BYTES as u64).next_multiple_of(page_size),
    };
    let fits = |slots: &u64| area(*slots).pages + slots * page_size <= nvm.size_bytes;
    let most = nvm.size_bytes.saturating_sub(headers) / (page_size + SLOT_HEADER_BYTES as u64);
    // Rounding costs only a few slots, so few numbers need to be tried.
    let slots = (most.saturating_sub(2)..=most.min(u64::from(u32::MAX))).rev().find(fits).unwrap_or(0);
    require(slots >= SLOTS_MIN, || {
        let at_least = area(SLOTS_MIN).pages + SLOTS_MIN * page_size;
        format!(
            "an NVM region of {} bytes holds {slots} pages beside the log: give it at least {at_least}",
            nvm.size_bytes
        )
    })?;
    Ok(area(slots))
}

impl LogArea {
    fn is_sound(&self) -> bool {
        self.offset == AREAS_AT
            && self.segments == LOG_SEGMENTS
            && self.segment_bytes > 0
            && self.segment_bytes.is_multiple_of(ALIGNMENT)
    }
}

/// Returns the log's area, which is the first area. `None` means that the log is not in the region.
fn log_area(log_bytes: u64, page_size: u32) -> Result<Option<LogArea>> {
    if log_bytes == 0 {
        return Ok(None);
    }
    let log_bytes_min = u64::from(LOG_SEGMENTS) * SEGMENT_PAGES_MIN * u64::from(page_size);
    require(log_bytes >= log_bytes_min, || {
        format!(
            "a log of {log_bytes} bytes in NVM: give it at least {log_bytes_min} with pages of {page_size} bytes"
        )
    })?;
    let segment_bytes = log_bytes / u64::from(LOG_SEGMENTS) / ALIGNMENT * ALIGNMENT;
    Ok(Some(LogArea { offset: AREAS_AT, segments: LOG_SEGMENTS, segment_bytes }))
}

/// Returns the area of doublewrite copies after `before`, if the protection needs one. The header of the
/// copies takes a slot, too.
fn copies_area(protection: ProtectionKind, before: u64, page_size: u32) -> Option<SlotArea> {
    let ProtectionKind::NvmDoublewrite { batch_slots, single_slots } = protection else { return None };
    let bytes = protection::copies_bytes(page_size, batch_slots, single_slots);
    let slots = u32::try_from(bytes / u64::from(page_size)).ok()?;
    let pages = before.checked_next_multiple_of(u64::from(page_size))?;
    Some(SlotArea { purpose: SlotUse::Copies, slots, headers: 0, pages })
}

impl SlotArea {
    /// Returns the number of bytes of the slots.
    pub(crate) fn bytes(&self, page_size: u32) -> u64 {
        u64::from(self.slots) * u64::from(page_size)
    }

    /// Returns the end of the area, if the area is valid and after `before`.
    fn end_behind(&self, before: u64, page_size: u64) -> Option<u64> {
        let slots = u64::from(self.slots);
        let headers_end = match self.purpose {
            SlotUse::Buffer => {
                let is_placed = self.headers >= before && self.headers.is_multiple_of(ALIGNMENT);
                self.headers.checked_add(slots * SLOT_HEADER_BYTES as u64).filter(|_| is_placed)?
            }
            SlotUse::Copies => Some(before).filter(|_| self.headers == 0)?,
        };
        let is_placed = self.pages >= headers_end && self.pages.is_multiple_of(page_size) && slots > 0;
        self.pages.checked_add(slots * page_size).filter(|_| is_placed)
    }
}

/// The reason why bytes are not a usable header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderDamage {
    /// The bytes are no header of a region.
    NotOne,
    /// All bytes are zero.
    Empty,
    /// The database has left the region, or the region was never completed.
    Left,
    /// The header is of another version.
    OtherVersion(u32),
    /// The checksum is wrong.
    Checksum,
    /// The checksum is right, but the numbers are impossible.
    Impossible,
}

/// The header of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionHeader {
    pub(crate) database: u64,
    pub(crate) region: u64,
    pub(crate) layout: Layout,
}

impl RegionHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let Layout { region_bytes, page_size, log, slots } = self.layout;
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u32(&mut bytes, 12, page_size);
        put_u64(&mut bytes, 16, self.database);
        put_u64(&mut bytes, 24, self.region);
        put_u64(&mut bytes, 32, region_bytes);
        if let Some(log) = log {
            put_u64(&mut bytes, 40, log.offset);
            put_u32(&mut bytes, 48, log.segments);
            put_u64(&mut bytes, 56, log.segment_bytes);
        }
        if let Some(slots) = slots {
            put_u32(&mut bytes, 52, slots.slots);
            put_u64(&mut bytes, 64, slots.headers);
            put_u64(&mut bytes, 72, slots.pages);
            put_u32(&mut bytes, 80, if slots.purpose == SlotUse::Buffer { 1 } else { 2 });
        }
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        put_u32(&mut bytes, CHECKSUM_AT, checksum);
        bytes
    }

    /// Reads the header of a region.
    pub(crate) fn read(region: &dyn Region) -> std::result::Result<RegionHeader, HeaderDamage> {
        // The two words after the header are part of the region, too.
        if region.len_bytes() < AREAS_AT {
            return Err(HeaderDamage::NotOne);
        }
        let mut bytes = [0; HEADER_BYTES];
        region.read(MAGIC_AT, &mut bytes);
        RegionHeader::decode(&bytes)
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> std::result::Result<RegionHeader, HeaderDamage> {
        match get_u64(bytes, 0) {
            MAGIC => {}
            LEFT => return Err(HeaderDamage::Left),
            _ if bytes.iter().all(|byte| *byte == 0) => return Err(HeaderDamage::Empty),
            _ => return Err(HeaderDamage::NotOne),
        }
        if get_u32(bytes, CHECKSUM_AT) != crc32c::crc32c(&bytes[..CHECKSUM_AT]) {
            return Err(HeaderDamage::Checksum);
        }
        if get_u32(bytes, 8) != VERSION {
            return Err(HeaderDamage::OtherVersion(get_u32(bytes, 8)));
        }
        let layout = Layout {
            region_bytes: get_u64(bytes, 32),
            page_size: get_u32(bytes, 12),
            log: decode_log(bytes),
            slots: decode_slots(bytes)?,
        };
        let found = RegionHeader { database: get_u64(bytes, 16), region: get_u64(bytes, 24), layout };
        // Bytes without a field must be zero, so each header has exactly one encoding.
        let is_sound = found.region != 0 && layout.is_sound() && found.encode() == *bytes;
        if is_sound { Ok(found) } else { Err(HeaderDamage::Impossible) }
    }
}

fn decode_log(bytes: &[u8]) -> Option<LogArea> {
    let found = LogArea {
        offset: get_u64(bytes, 40),
        segments: get_u32(bytes, 48),
        segment_bytes: get_u64(bytes, 56),
    };
    (found.offset != 0).then_some(found)
}

fn decode_slots(bytes: &[u8]) -> std::result::Result<Option<SlotArea>, HeaderDamage> {
    let purpose = match get_u32(bytes, 80) {
        0 => return Ok(None),
        1 => SlotUse::Buffer,
        2 => SlotUse::Copies,
        _ => return Err(HeaderDamage::Impossible),
    };
    let (slots, headers, pages) = (get_u32(bytes, 52), get_u64(bytes, 64), get_u64(bytes, 72));
    Ok(Some(SlotArea { purpose, slots, headers, pages }))
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(PagerError::Incompatible { what: what() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogArea = LogArea { offset: 8192, segments: 8, segment_bytes: 65536 };
    const SLOTS: SlotArea = SlotArea { purpose: SlotUse::Buffer, slots: 6, headers: 532_480, pages: 536_576 };

    fn header(log: Option<LogArea>, slots: Option<SlotArea>) -> RegionHeader {
        let layout = Layout { region_bytes: 1 << 20, page_size: 4096, log, slots };
        RegionHeader { database: 0x0102_0304, region: 77, layout }
    }

    fn sealed(mut bytes: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        put_u32(&mut bytes, CHECKSUM_AT, checksum);
        bytes
    }

    #[test]
    fn headers_come_back() {
        let copies = SlotArea { purpose: SlotUse::Copies, headers: 0, ..SLOTS };
        for (log, slots) in [(Some(LOG), None), (None, Some(SLOTS)), (Some(LOG), Some(copies)), (None, None)]
        {
            let header = header(log, slots);
            assert_eq!(RegionHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn the_header_keeps_its_layout() {
        let bytes = header(Some(LOG), Some(SLOTS)).encode();
        let expected = [
            *b"VARVENVM",
            [1, 0, 0, 0, 0, 16, 0, 0],
            [4, 3, 2, 1, 0, 0, 0, 0],
            [77, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 16, 0, 0, 0, 0, 0],
            [0, 32, 0, 0, 0, 0, 0, 0],
            [8, 0, 0, 0, 6, 0, 0, 0],
            [0, 0, 1, 0, 0, 0, 0, 0],
            [0, 32, 8, 0, 0, 0, 0, 0],
            [0, 48, 8, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes[..88], *expected.as_flattened());
        assert!(bytes[88..CHECKSUM_AT].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn any_damaged_byte_is_found() {
        let bytes = header(Some(LOG), Some(SLOTS)).encode();
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            let expected = if at < 8 { HeaderDamage::NotOne } else { HeaderDamage::Checksum };
            assert_eq!(RegionHeader::decode(&damaged), Err(expected), "byte {at}");
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let bytes = header(Some(LOG), Some(SLOTS)).encode();
        // Page size, region id, length, log (offset, segments, bytes), slots (number, headers, pages, use), a
        // byte of the rest.
        let fields: [(usize, &[u8]); 14] = [
            (12, &[1, 0, 0, 0]),
            (24, &[0; 8]),
            (32, &[0; 8]),
            (40, &[0; 8]),
            (40, &[0, 64, 0, 0]),
            (48, &[9]),
            (48, &[0; 4]),
            (56, &[255; 8]),
            (52, &[255; 4]),
            (52, &[0; 4]),
            (64, &[0, 16, 0, 0]),
            (72, &[255; 8]),
            (80, &[3]),
            (90, &[1]),
        ];
        for (at, field) in fields {
            let mut damaged = bytes;
            damaged[at..at + field.len()].copy_from_slice(field);
            let found = RegionHeader::decode(&sealed(damaged));
            assert_eq!(found, Err(HeaderDamage::Impossible), "{field:?} at {at}");
        }
        assert_eq!(RegionHeader::decode(&[0; HEADER_BYTES]), Err(HeaderDamage::Empty));
        let mut left = bytes;
        left[..8].copy_from_slice(b"NVM LEFT");
        assert_eq!(RegionHeader::decode(&left), Err(HeaderDamage::Left));
        let mut other = bytes;
        other[8] = 9;
        assert_eq!(RegionHeader::decode(&sealed(other)), Err(HeaderDamage::OtherVersion(9)));
    }
}
