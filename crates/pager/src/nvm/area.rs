//! The page slots in persistent memory. This module has the format of a slot's header, and all stores of the
//! page buffer to the region.
//!
//! A slot header is 64 bytes (one cache line), little endian. The header of slot n is at 64 n in the area of
//! headers. The page image of slot n is at page size x n in the area of pages.
//!
//! | at | size | field |
//! |---:|---:|---|
//! | 0 | 8 | state word: 0 = free, else sequence << 8 with 0x50 below: published. The only word that publishes |
//! | 8 | 8 | page id |
//! | 16 | 8 | page LSN |
//! | 24 | 4 | checksum that the image carries in its first 4 bytes |
//! | 28 | 4 | bytes of the image (the page size) |
//! | 32 | 8 | region id |
//! | 40 | 4 | crc32c over bytes 8..40 and then the 8 bytes of the sequence |
//! | 44 | 20 | zeros |
//!
//! Invariants
//! 1. While a slot is published, only its state word is stored to.
//!
//! This module does not know which page is in which slot, or the order of the steps.

use std::sync::Arc;

use varve_device::{Accounting, AlignedBuf, Purpose, Region, RegionPart, Space, WORD_BYTES, planted};

use super::layout::{Layout, SlotUse};

use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Bytes of a slot header.
pub(crate) const SLOT_HEADER_BYTES: usize = 64;
/// The largest sequence number that fits into a state word.
const SEQUENCE_MAX: u64 = (1 << 56) - 1;
/// A larger sequence number counts as damaged, because puts never reach half of the maximum. The other half
/// is left for later starts.
const SEQUENCE_BELIEVED_MAX: u64 = SEQUENCE_MAX / 2;
const PUBLISHED: u64 = 0x50;
const CHECKED: std::ops::Range<usize> = 8..40;
const CHECKSUM_AT: usize = 40;

/// The header of a published slot, which describes the image in the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotHeader {
    pub(crate) id: PageId,
    pub(crate) lsn: Lsn,
    pub(crate) image_crc: u32,
    pub(crate) sequence: u64,
}

/// The state of a slot, according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Free,
    Published(SlotHeader),
    /// The slot is published, and its header is invalid, for this reason.
    Damaged(&'static str),
}

impl SlotHeader {
    pub(crate) fn of(image: &Image, sequence: u64) -> SlotHeader {
        SlotHeader { id: image.id(), lsn: image.lsn(), image_crc: get_u32(image.bytes(), 0), sequence }
    }

    /// Returns the bytes of the header, with the state word of a free slot.
    fn encode(&self, region: u64, image_bytes: u32) -> [u8; SLOT_HEADER_BYTES] {
        let mut bytes = [0; SLOT_HEADER_BYTES];
        put_u64(&mut bytes, 8, self.id.to_u64());
        put_u64(&mut bytes, 16, self.lsn.get());
        put_u32(&mut bytes, 24, self.image_crc);
        put_u32(&mut bytes, 28, image_bytes);
        put_u64(&mut bytes, 32, region);
        let checksum = checksum(&bytes, self.sequence);
        put_u32(&mut bytes, CHECKSUM_AT, checksum);
        bytes
    }

    /// Returns the bytes of the header of a published slot.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn published(&self, region: u64, image_bytes: u32) -> [u8; SLOT_HEADER_BYTES] {
        let mut bytes = self.encode(region, image_bytes);
        put_u64(&mut bytes, 0, self.state_word());
        bytes
    }

    fn state_word(&self) -> u64 {
        assert!(self.sequence > 0 && self.sequence <= SEQUENCE_MAX);
        self.sequence << 8 | PUBLISHED
    }
}

fn checksum(bytes: &[u8; SLOT_HEADER_BYTES], sequence: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[CHECKED]), &sequence.to_le_bytes())
}

impl Slot {
    pub(crate) fn decode(bytes: &[u8; SLOT_HEADER_BYTES], region: u64, image_bytes: u32) -> Slot {
        let word = get_u64(bytes, 0);
        if word == 0 {
            return Slot::Free;
        }
        let sequence = word >> 8;
        if word & 0xFF != PUBLISHED || sequence == 0 || sequence > SEQUENCE_BELIEVED_MAX {
            return Slot::Damaged("its state word is none");
        }
        if get_u32(bytes, CHECKSUM_AT) != checksum(bytes, sequence) {
            return Slot::Damaged("its header's checksum is wrong");
        }
        let Some(id) = PageId::from_u64(get_u64(bytes, 8)) else {
            return Slot::Damaged("it names no page");
        };
        if get_u64(bytes, 32) != region || get_u32(bytes, 28) != image_bytes {
            return Slot::Damaged("it is of another region or page size");
        }
        let (lsn, image_crc) = (Lsn::new(get_u64(bytes, 16)), get_u32(bytes, 24));
        Slot::Published(SlotHeader { id, lsn, image_crc, sequence })
    }
}

/// The slots of a region.
pub(crate) struct PageArea {
    pub(super) headers: Arc<dyn Region>,
    pub(super) pages: Arc<dyn Region>,
    pub(super) region: u64,
    pub(super) page_size: u32,
    pub(super) slots: u32,
    /// The location of the region, for messages.
    pub(super) location: String,
}

impl PageArea {
    /// Returns the page slots of a region with this id and this division, or `None` if the region has no page
    /// slots.
    pub(crate) fn of(
        region: &Arc<dyn Region>,
        id: u64,
        layout: &Layout,
        account: &Arc<Accounting>,
        location: String,
    ) -> Option<PageArea> {
        let slots = layout.slots.filter(|slots| slots.purpose == SlotUse::Buffer)?;
        let part = |offset, len_bytes, why| {
            RegionPart::new(region.clone(), offset..offset + len_bytes, Space::Nvm, why, account.clone())
        };
        Some(PageArea {
            headers: part(slots.headers, Self::header_at(slots.slots), Purpose::NvmMeta),
            pages: part(slots.pages, slots.bytes(layout.page_size), Purpose::NvmPage),
            region: id,
            page_size: layout.page_size,
            slots: slots.slots,
            location,
        })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    fn header_at(slot: u32) -> u64 {
        u64::from(slot) * SLOT_HEADER_BYTES as u64
    }

    fn page_at(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.page_size)
    }

    /// Copies an image and its header, without the state word, into a slot that this thread owns, and begins
    /// to write their cache lines back. A fence ends the write-back.
    pub(crate) fn begin_fill(&self, slot: u32, header: &SlotHeader, image: &[u8]) {
        if planted("nvm: the page is not written back") {
            self.pages.store(self.page_at(slot), image);
        } else {
            self.pages.store_back(self.page_at(slot), image);
        }
        let line = header.encode(self.region, self.page_size);
        self.headers.store(Self::header_at(slot) + WORD_BYTES as u64, &line[WORD_BYTES..]);
        self.headers.write_back(Self::header_at(slot), line.len() as u64);
    }

    /// Publishes a filled slot. This is durable after the next fence.
    pub(crate) fn begin_publish(&self, slot: u32, header: &SlotHeader) {
        self.headers.store_word(Self::header_at(slot), header.state_word());
        self.headers.write_back(Self::header_at(slot), WORD_BYTES as u64);
    }

    /// Makes a slot free. This is durable after the next fence.
    pub(crate) fn begin_retire(&self, slot: u32) {
        self.headers.store_word(Self::header_at(slot), 0);
        self.headers.write_back(Self::header_at(slot), WORD_BYTES as u64);
    }

    /// Waits until all lines that this thread has written back are durable.
    pub(crate) fn fence(&self) {
        self.headers.fence();
    }

    /// Begins to write back the cache lines of all slot headers, even if other threads or processes stored
    /// them.
    pub(crate) fn begin_write_back_headers(&self) {
        self.headers.write_back(0, Self::header_at(self.slots));
    }

    /// Begins to write back the cache lines of the image in a slot.
    pub(crate) fn begin_write_back_page(&self, slot: u32) {
        self.pages.write_back(self.page_at(slot), u64::from(self.page_size));
    }

    /// Copies the image of a slot to `page`.
    pub(crate) fn load(&self, slot: u32, page: &mut [u8]) {
        self.pages.read(self.page_at(slot), page);
    }

    /// Returns whether a slot is published. Any thread may call this at any time.
    pub(crate) fn is_published(&self, slot: u32) -> bool {
        self.headers.load_word(Self::header_at(slot)) != 0
    }

    /// Returns the header of a slot. The caller must prevent other threads from storing to the slot.
    pub(crate) fn header(&self, slot: u32) -> Slot {
        let mut bytes = [0; SLOT_HEADER_BYTES];
        self.headers.read(Self::header_at(slot), &mut bytes);
        Slot::decode(&bytes, self.region, self.page_size)
    }

    /// Returns a buffer for an image.
    pub(crate) fn buffer(&self) -> AlignedBuf {
        AlignedBuf::new(self.page_size as usize)
    }

    /// Checks that the image is the one that the header describes.
    pub(crate) fn verify(&self, slot: u32, header: &SlotHeader, image: &[u8]) -> Result<()> {
        let damage = page::verify(image, header.id).map_err(|damage| damage.to_string());
        let fits = page::page_lsn(image) == header.lsn && get_u32(image, 0) == header.image_crc;
        let damage =
            damage.and_then(|()| fits.then_some(()).ok_or("its header speaks of another image".into()));
        damage.map_err(|why| self.damaged(slot, &format!("the newest image of page {}: {why}", header.id)))
    }

    /// Returns the error for a slot that does not have the image that was put there.
    pub(crate) fn damaged(&self, slot: u32, why: &str) -> PagerError {
        PagerError::Corrupt {
            what: format!("slot {slot} of {} is damaged ({why}): restore a backup", self.location),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    const HEADER: SlotHeader = SlotHeader {
        id: PageId::new(SpaceId::DATA, PageNo(0x0102)),
        lsn: Lsn::new(0x0304),
        image_crc: 0x0506,
        sequence: 0x0708,
    };

    fn published() -> [u8; SLOT_HEADER_BYTES] {
        HEADER.published(77, 4096)
    }

    #[test]
    fn slot_headers_come_back() {
        assert_eq!(Slot::decode(&published(), 77, 4096), Slot::Published(HEADER));
        assert_eq!(Slot::decode(&HEADER.encode(77, 4096), 77, 4096), Slot::Free);
    }

    /// A sequence number that is too large is damage, even if the checksum is right. Otherwise later puts
    /// would have no number.
    #[test]
    fn a_sequence_that_no_put_reaches_is_damage() {
        let header = |sequence| SlotHeader { sequence, ..HEADER }.published(77, 4096);
        assert!(matches!(Slot::decode(&header(SEQUENCE_BELIEVED_MAX), 77, 4096), Slot::Published(_)));
        for sequence in [SEQUENCE_BELIEVED_MAX + 1, SEQUENCE_MAX] {
            assert!(matches!(Slot::decode(&header(sequence), 77, 4096), Slot::Damaged(_)));
        }
    }

    #[test]
    fn the_slot_header_keeps_its_layout() {
        let bytes = published();
        let expected = [
            [0x50, 8, 7, 0, 0, 0, 0, 0],
            [2, 1, 0, 0, 1, 0, 0, 0],
            [4, 3, 0, 0, 0, 0, 0, 0],
            [6, 5, 0, 0, 0, 16, 0, 0],
            [77, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes[..40], *expected.as_flattened());
        assert!(bytes[44..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_published_header_with_any_other_bit_is_damaged() {
        for bit in 0..44 * 8 {
            let mut damaged = published();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = Slot::decode(&damaged, 77, 4096);
            assert!(matches!(found, Slot::Damaged(_)), "bit {bit}: {found:?}");
        }
        assert!(matches!(Slot::decode(&published(), 78, 4096), Slot::Damaged(_)));
        assert!(matches!(Slot::decode(&published(), 77, 8192), Slot::Damaged(_)));
    }
}
