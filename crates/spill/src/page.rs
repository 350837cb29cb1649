//! The format of pages of the temporary space, and of rows in them.
//!
//! The format of a page, in little endian:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the rest of the page, of the file's salt and of the page's number |
//! | 4 | 2 | bytes of rows in this page |
//! | 6 | 2 | offset after the header of the first row that begins here; 0xFFFF if no row begins here |
//! | 8 | 4 | first page of the block before this one in its partition |
//! | 12 | 4 | number of pages of that block; 0 if there is no such block |
//! | 16 | | rows, one after the other; a row may continue in the next page |
//!
//! A row has four parts: the length of the key (u32), the length of the payload (u32), the key, and the
//! payload. The highest bit of the first length is set if the row never matches.
//!
//! Invariants
//! 1. A page that was written to another place or another file does not pass the check.
//! 2. No function here panics, whatever the bytes are.

use crate::row::{ROW_HEAD_BYTES, Row};

/// The size of the header of a page, in bytes.
pub(crate) const HEADER_BYTES: usize = 16;
/// The smallest size of a page.
pub(crate) const PAGE_BYTES_MIN: usize = 512;
/// The largest size of a page. Lengths in the header have 16 bits.
pub(crate) const PAGE_BYTES_MAX: usize = 32 << 10;

const NO_ROW: u16 = 0xFFFF;
const NEVER_MATCHES: u32 = 1 << 31;

/// Pages that were written by one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub first: u32,
    /// The number of pages. It is 0 if there is no such block.
    pub pages: u32,
}

/// The content of the header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub used_bytes: usize,
    /// The position of the first row that begins in the page.
    pub first_row: Option<usize>,
    pub previous: Block,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn checksum(page: &[u8], salt: u32, number: u32) -> u32 {
    let sum = crc32c::crc32c(&salt.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
    crc32c::crc32c_append(sum, page.get(4..).unwrap_or_default())
}

impl PageHeader {
    /// Writes the header without the checksum. `page` must be at least as long as a header.
    pub(crate) fn encode(&self, page: &mut [u8]) {
        let first = self.first_row.map_or(NO_ROW, |at| at as u16);
        page[4..6].copy_from_slice(&(self.used_bytes as u16).to_le_bytes());
        page[6..8].copy_from_slice(&first.to_le_bytes());
        page[8..12].copy_from_slice(&self.previous.first.to_le_bytes());
        page[12..16].copy_from_slice(&self.previous.pages.to_le_bytes());
    }

    /// Reads the header of a page, and checks the page. The error is the text for
    /// [`crate::SpillError::Corrupt`].
    pub(crate) fn decode(page: &[u8], salt: u32, number: u32) -> Result<PageHeader, &'static str> {
        if u32_at(page, 0) != checksum(page, salt, number) {
            return Err("its checksum is wrong");
        }
        let used_bytes = usize::from(u16_at(page, 4));
        let first = u16_at(page, 6);
        let first_row = (first != NO_ROW).then_some(usize::from(first));
        if used_bytes + HEADER_BYTES > page.len() || first_row.is_some_and(|at| at > used_bytes) {
            return Err("its lengths are impossible");
        }
        let previous = Block { first: u32_at(page, 8), pages: u32_at(page, 12) };
        if previous.pages > 0 && previous.first.checked_add(previous.pages).is_none_or(|end| end > number) {
            return Err("its link leads forward");
        }
        Ok(PageHeader { used_bytes, first_row, previous })
    }
}

/// Writes the checksum of a finished page.
pub(crate) fn seal(page: &mut [u8], salt: u32, number: u32) {
    let sum = checksum(page, salt, number);
    page[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes before the key of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowHead {
    pub key_bytes: usize,
    pub payload_bytes: usize,
    pub never_matches: bool,
}

impl RowHead {
    pub(crate) fn of(row: Row<'_>) -> RowHead {
        let (key_bytes, payload_bytes) = (row.key.len(), row.payload.len());
        RowHead { key_bytes, payload_bytes, never_matches: row.never_matches }
    }

    pub(crate) fn encode(self) -> [u8; ROW_HEAD_BYTES] {
        let flag = if self.never_matches { NEVER_MATCHES } else { 0 };
        let mut head = [0; ROW_HEAD_BYTES];
        head[..4].copy_from_slice(&(self.key_bytes as u32 | flag).to_le_bytes());
        head[4..].copy_from_slice(&(self.payload_bytes as u32).to_le_bytes());
        head
    }

    pub(crate) fn decode(head: &[u8; ROW_HEAD_BYTES]) -> RowHead {
        let key = u32_at(head, 0);
        RowHead {
            key_bytes: (key & !NEVER_MATCHES) as usize,
            payload_bytes: u32_at(head, 4) as usize,
            never_matches: key & NEVER_MATCHES != 0,
        }
    }

    /// Returns the length of the row with this head, including the head.
    pub(crate) fn row_bytes(self) -> usize {
        ROW_HEAD_BYTES + self.key_bytes + self.payload_bytes
    }
}

/// Returns the row at the start of `bytes`, which were checked or never left memory.
#[inline]
pub(crate) fn row_in(bytes: &[u8]) -> Row<'_> {
    let head = bytes.first_chunk().map_or([0; ROW_HEAD_BYTES], |head| *head);
    let head = RowHead::decode(&head);
    let key_end = ROW_HEAD_BYTES + head.key_bytes;
    Row {
        key: bytes.get(ROW_HEAD_BYTES..key_end).unwrap_or_default(),
        payload: bytes.get(key_end..key_end + head.payload_bytes).unwrap_or_default(),
        never_matches: head.never_matches,
    }
}

/// Writes a row at the start of `bytes`, which must be long enough.
#[inline]
pub(crate) fn put_row(bytes: &mut [u8], row: Row<'_>) {
    let key_end = ROW_HEAD_BYTES + row.key.len();
    bytes[..ROW_HEAD_BYTES].copy_from_slice(&RowHead::of(row).encode());
    bytes[ROW_HEAD_BYTES..key_end].copy_from_slice(row.key);
    bytes[key_end..key_end + row.payload.len()].copy_from_slice(row.payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_place_and_file() {
        let mut page = vec![7; PAGE_BYTES_MIN];
        let header =
            PageHeader { used_bytes: 400, first_row: Some(9), previous: Block { first: 3, pages: 2 } };
        header.encode(&mut page);
        seal(&mut page, 11, 5);
        assert_eq!(PageHeader::decode(&page, 11, 5), Ok(header));
        assert!(PageHeader::decode(&page, 11, 6).is_err());
        assert!(PageHeader::decode(&page, 12, 5).is_err());
        for at in 0..page.len() {
            page[at] ^= 1;
            assert!(PageHeader::decode(&page, 11, 5).is_err(), "byte {at}");
            page[at] ^= 1;
        }
        assert!(PageHeader::decode(&[], 1, 1).is_err());
    }

    #[test]
    fn impossible_lengths_and_links_are_refused() {
        let sealed = |used_bytes, first_row, previous| {
            let mut page = vec![0; PAGE_BYTES_MIN];
            PageHeader { used_bytes, first_row, previous }.encode(&mut page);
            seal(&mut page, 1, 5);
            PageHeader::decode(&page, 1, 5)
        };
        let none = Block::default();
        assert!(sealed(PAGE_BYTES_MIN - HEADER_BYTES, None, none).is_ok());
        assert!(sealed(PAGE_BYTES_MIN, None, none).is_err());
        assert!(sealed(10, Some(11), none).is_err());
        assert!(sealed(10, None, Block { first: 4, pages: 2 }).is_err());
        assert!(sealed(10, None, Block { first: u32::MAX, pages: 2 }).is_err());
    }
}
