//! Undo pages, segment headers and the directory: layouts and redo operations.
//!
//! Undo page, after the pager's header (little endian; page numbers are within the rollback space, 0 = none)
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 32 | 4 | previous page |
//! | 36 | 4 | next page |
//! | 40 | 4 | record count |
//! | 44 | 4 | bytes of records |
//! | 48 | | records, one after the other |
//! | ... | | free |
//! | end - 2 n | 2 | offset of record n - 1, counted from the page's first byte |
//!
//! Header page
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 32 | 4 | state: 0 idle, 1 active |
//! | 36 | 4 | head: oldest undo page |
//! | 40 | 4 | tail: newest undo page |
//! | 44 | 4 | page where the active transaction begins |
//! | 48 | 4 | slot where it begins |
//! | 52 | 4 | reserved, 0 |
//! | 56 | 8 | the active (or last) transaction |
//!
//! Directory page: 32 count (4), 36 header page numbers (4 each).
//!
//! Operations (payloads; numbers little endian)
//!
//! | op | name | payload |
//! |---|---|---|
//! | 64 | Links | previous u32, next u32 |
//! | 65 | Append | the record |
//! | 66 | Pop | - |
//! | 67 | Patch | slot u16, offset in record u16, bytes |
//! | 68 | Begin | transaction u64, page u32, slot u32 |
//! | 69 | End | - |
//! | 70 | Ends | head u32, tail u32 |
//! | 71 | List | header page u32 |
//!
//! Invariants
//! 1. An operation does not fit its page if the log is damaged. This is an error, never a panic.
//! 2. Readers check every offset, because a page that an outdated roll pointer names may have any content.
//!
//! This module does not know the content of an undo record.

use super::Mark;
use super::record::CHAIN_OFFSET;
use crate::fixed;
use varve_pager::{H, Mtr, PageId, PageNo, RedoError, SpaceId};

/// Page kinds in the pager's header.
pub(crate) const KIND_UNDO: u8 = 40;
pub(crate) const KIND_HEADER: u8 = 41;
pub(crate) const KIND_DIRECTORY: u8 = 42;

const LINKS: u8 = 64;
const APPEND: u8 = 65;
const POP: u8 = 66;
const PATCH: u8 = 67;
const BEGIN: u8 = 68;
const END: u8 = 69;
const ENDS: u8 = 70;
const LIST: u8 = 71;

const PREVIOUS: usize = 32;
const NEXT: usize = 36;
const COUNT: usize = 40;
const USED: usize = 44;
const RECORDS: usize = 48;
const OFFSET_BYTES: usize = 2;

const STATE: usize = 32;
const HEAD: usize = 36;
const TAIL: usize = 40;
const START_PAGE: usize = 44;
const START_SLOT: usize = 48;
const TXN: usize = 56;

const LISTED: usize = 32;
const LIST_START: usize = 36;

/// Returns the page of the rollback space with this number.
pub(crate) fn undo_page(no: u32) -> PageId {
    PageId::new(SpaceId::ROLLBACK, PageNo(no))
}

fn get_u32(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(fixed::bytes_at(page, at))
}

fn get_u64(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(fixed::bytes_at(page, at))
}

fn put_u32(page: &mut [u8], at: usize, value: u32) {
    fixed::put_at(page, at, value.to_le_bytes());
}

/// An undo page for reading.
#[derive(Clone, Copy)]
pub(crate) struct UndoPage<'a>(&'a [u8]);

impl<'a> UndoPage<'a> {
    /// Reads a page as an undo page. `None` means that it is not an undo page (any more), or that its counts
    /// do not fit the page.
    pub(crate) fn new(page: &'a [u8]) -> Option<Self> {
        let is_undo = varve_pager::page::page_kind(page) == KIND_UNDO
            && varve_pager::page::page_identity(page).space() == SpaceId::ROLLBACK;
        let filled = RECORDS + get_u32(page, USED) as usize + get_u32(page, COUNT) as usize * OFFSET_BYTES;
        (is_undo && filled <= page.len()).then_some(Self(page))
    }

    pub(crate) fn previous(self) -> Option<PageId> {
        Some(get_u32(self.0, PREVIOUS)).filter(|no| *no != 0).map(undo_page)
    }

    pub(crate) fn next(self) -> Option<PageId> {
        Some(get_u32(self.0, NEXT)).filter(|no| *no != 0).map(undo_page)
    }

    pub(crate) fn count(self) -> u32 {
        get_u32(self.0, COUNT)
    }

    /// Returns the number of bytes that one more record may have.
    pub(crate) fn free_bytes(self) -> usize {
        let slots = (self.count() as usize + 1) * OFFSET_BYTES;
        (self.0.len() - RECORDS).saturating_sub(get_u32(self.0, USED) as usize + slots)
    }

    fn offset(self, slot: u32) -> Option<usize> {
        let at = self.0.len().checked_sub((slot as usize + 1) * OFFSET_BYTES)?;
        let raw = [*self.0.get(at)?, *self.0.get(at + 1)?];
        Some(usize::from(u16::from_le_bytes(raw)))
    }

    /// Returns the bytes of a record, or `None` if the slot has no record.
    pub(crate) fn record(self, slot: u32) -> Option<&'a [u8]> {
        let count = self.count();
        if slot >= count {
            return None;
        }
        let end = match slot + 1 {
            next if next < count => self.offset(next)?,
            _ => RECORDS + get_u32(self.0, USED) as usize,
        };
        self.0.get(self.offset(slot)?..end)
    }
}

/// A header page for reading.
#[derive(Clone, Copy)]
pub(crate) struct HeaderPage<'a>(&'a [u8]);

impl<'a> HeaderPage<'a> {
    pub(crate) fn new(page: &'a [u8]) -> Option<Self> {
        (varve_pager::page::page_kind(page) == KIND_HEADER).then_some(Self(page))
    }

    pub(crate) fn is_active(self) -> bool {
        get_u32(self.0, STATE) == 1
    }

    pub(crate) fn head(self) -> PageId {
        undo_page(get_u32(self.0, HEAD))
    }

    pub(crate) fn tail(self) -> PageId {
        undo_page(get_u32(self.0, TAIL))
    }

    /// Returns the page and slot where the active transaction begins.
    pub(crate) fn start(self) -> (PageId, u32) {
        (undo_page(get_u32(self.0, START_PAGE)), get_u32(self.0, START_SLOT))
    }

    pub(crate) fn txn(self) -> u64 {
        get_u64(self.0, TXN)
    }
}

/// Returns the header pages in a directory page. `None` means that its count is larger than the page allows.
pub(crate) fn listed(page: &[u8]) -> Option<Vec<PageId>> {
    let count = get_u32(page, LISTED) as usize;
    let fits = count <= listed_max(page.len());
    fits.then(|| (0..count).map(|i| undo_page(get_u32(page, LIST_START + i * 4))).collect())
}

/// Returns the most segments that a directory page can list.
pub(crate) fn listed_max(page_bytes: usize) -> usize {
    (page_bytes - LIST_START) / 4
}

fn pair(a: u32, b: u32) -> [u8; 8] {
    let mut raw = [0; 8];
    raw[..4].copy_from_slice(&a.to_le_bytes());
    raw[4..].copy_from_slice(&b.to_le_bytes());
    raw
}

fn number(page: Option<PageId>) -> u32 {
    page.map_or(0, |p| p.no().0)
}

/// Sets both neighbours of an undo page.
pub(crate) fn set_links(mtr: &mut Mtr<'_>, h: H, previous: Option<PageId>, next: Option<PageId>) {
    mtr.apply(h, LINKS, &pair(number(previous), number(next)));
}

/// Appends a record. The caller has made sure that it fits.
pub(crate) fn append(mtr: &mut Mtr<'_>, h: H, record: &[u8]) {
    mtr.apply(h, APPEND, record);
}

/// Removes the last record.
pub(crate) fn pop(mtr: &mut Mtr<'_>, h: H) {
    mtr.apply(h, POP, &[]);
}

/// Overwrites bytes of a record.
fn patch(mtr: &mut Mtr<'_>, h: H, slot: u32, offset: usize, bytes: &[u8]) {
    let mut payload = Vec::with_capacity(4 + bytes.len());
    payload.extend_from_slice(&(slot as u16).to_le_bytes());
    payload.extend_from_slice(&(offset as u16).to_le_bytes());
    payload.extend_from_slice(bytes);
    mtr.apply(h, PATCH, &payload);
}

/// Replaces the first page of the overflow chain in a record.
pub(crate) fn patch_chain(mtr: &mut Mtr<'_>, h: H, slot: u16, chain: Option<PageId>) {
    patch(mtr, h, u32::from(slot), CHAIN_OFFSET, &number(chain).to_le_bytes());
}

/// Records that the segment belongs to a transaction whose records begin at `start`.
pub(crate) fn begin(mtr: &mut Mtr<'_>, header: H, txn: u64, start: Mark) {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&txn.to_le_bytes());
    payload[8..].copy_from_slice(&pair(start.page.no().0, start.slot));
    mtr.apply(header, BEGIN, &payload);
}

/// Records that the segment's transaction is committed, or undone completely.
pub(crate) fn end(mtr: &mut Mtr<'_>, header: H) {
    mtr.apply(header, END, &[]);
}

/// Sets the first and the last undo page of a segment.
pub(crate) fn set_ends(mtr: &mut Mtr<'_>, header: H, head: PageId, tail: PageId) {
    mtr.apply(header, ENDS, &pair(head.no().0, tail.no().0));
}

/// Adds a segment to the directory.
pub(crate) fn list(mtr: &mut Mtr<'_>, directory: H, header: PageId) {
    mtr.apply(directory, LIST, &header.no().0.to_le_bytes());
}

/// Makes the change of an operation of this file. Redo calls it, too.
pub(crate) fn apply(op: u8, page: &mut [u8], payload: &[u8]) -> Result<(), RedoError> {
    let done = match op {
        LINKS if payload.len() == 8 => write(page, PREVIOUS, payload),
        APPEND => apply_append(page, payload),
        POP => apply_pop(page),
        PATCH => apply_patch(page, payload),
        BEGIN if payload.len() == 16 => apply_begin(page, payload),
        END => write(page, STATE, &0u32.to_le_bytes()),
        ENDS if payload.len() == 8 => write(page, HEAD, payload),
        LIST if payload.len() == 4 => apply_list(page, payload),
        _ => None,
    };
    done.ok_or_else(|| {
        RedoError(format!("undo operation {op} with {} bytes does not fit its page", payload.len()))
    })
}

fn write(page: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    page.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    Some(())
}

fn apply_append(page: &mut [u8], record: &[u8]) -> Option<()> {
    let (count, used) = (get_u32(page, COUNT), get_u32(page, USED) as usize);
    let slots = (count as usize + 1).checked_mul(OFFSET_BYTES)?;
    let at = RECORDS + used;
    let slot_at = page.len().checked_sub(slots)?;
    if at + record.len() > slot_at {
        return None;
    }
    page[at..at + record.len()].copy_from_slice(record);
    page[slot_at..slot_at + OFFSET_BYTES].copy_from_slice(&u16::try_from(at).ok()?.to_le_bytes());
    put_u32(page, COUNT, count + 1);
    put_u32(page, USED, (used + record.len()) as u32);
    Some(())
}

fn apply_pop(page: &mut [u8]) -> Option<()> {
    let count = get_u32(page, COUNT).checked_sub(1)?;
    let start = UndoPage(page).offset(count)?.checked_sub(RECORDS)?;
    put_u32(page, COUNT, count);
    put_u32(page, USED, start as u32);
    Some(())
}

fn apply_patch(page: &mut [u8], payload: &[u8]) -> Option<()> {
    let slot = u16::from_le_bytes([*payload.first()?, *payload.get(1)?]);
    let offset = u16::from_le_bytes([*payload.get(2)?, *payload.get(3)?]);
    let at = UndoPage(page).offset(u32::from(slot))? + usize::from(offset);
    write(page, at, &payload[4..])
}

fn apply_begin(page: &mut [u8], payload: &[u8]) -> Option<()> {
    write(page, TXN, &payload[..8])?;
    write(page, START_PAGE, &payload[8..])?;
    write(page, STATE, &1u32.to_le_bytes())
}

fn apply_list(page: &mut [u8], payload: &[u8]) -> Option<()> {
    let count = get_u32(page, LISTED);
    write(page, LIST_START + count as usize * 4, payload)?;
    put_u32(page, LISTED, count + 1);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo() -> Vec<u8> {
        let mut page = vec![0; 4096];
        varve_pager::page::format(&mut page, undo_page(9), KIND_UNDO, 5);
        page
    }

    #[test]
    fn records_are_appended_read_patched_and_popped() {
        let mut page = undo();
        apply(APPEND, &mut page, b"first").unwrap();
        apply(APPEND, &mut page, b"second").unwrap();
        apply(PATCH, &mut page, &[1, 0, 3, 0, b'X']).unwrap();
        let read = UndoPage::new(&page).unwrap();
        assert_eq!(read.record(0), Some(&b"first"[..]));
        assert_eq!(read.record(1), Some(&b"secXnd"[..]));
        assert_eq!(read.record(2), None);
        apply(POP, &mut page, &[]).unwrap();
        let read = UndoPage::new(&page).unwrap();
        assert_eq!((read.count(), read.record(1)), (1, None));
        assert_eq!(read.free_bytes(), 4096 - 48 - 5 - 4);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut page = undo();
        assert!(apply(POP, &mut page, &[]).is_err());
        assert!(apply(APPEND, &mut page, &[0; 4047]).is_err());
        assert!(apply(APPEND, &mut page, &[0; 4046]).is_ok());
        assert!(apply(APPEND, &mut page, &[0; 1]).is_err());
        assert!(apply(LINKS, &mut page, &[0; 7]).is_err());
        assert!(apply(99, &mut page, &[]).is_err());
    }

    #[test]
    fn a_page_that_counts_more_than_fits_is_no_undo_page() {
        for field in [COUNT, USED] {
            let mut page = undo();
            apply(APPEND, &mut page, b"first").unwrap();
            assert!(UndoPage::new(&page).is_some());
            put_u32(&mut page, field, u32::MAX);
            assert!(UndoPage::new(&page).is_none(), "a check would look for so many records");
        }
    }

    #[test]
    fn a_directory_that_lists_more_than_fits_is_damaged() {
        let mut page = vec![0; 4096];
        apply(LIST, &mut page, &7u32.to_le_bytes()).unwrap();
        assert_eq!(listed(&page), Some(vec![undo_page(7)]));
        put_u32(&mut page, LISTED, 1016);
        assert_eq!(listed(&page), None);
    }

    #[test]
    fn layout_snapshot() {
        let mut page = vec![0; 4096];
        varve_pager::page::format(&mut page, undo_page(3), KIND_HEADER, 5);
        apply(ENDS, &mut page, &pair(10, 11)).unwrap();
        let mut payload = [0; 16];
        payload[..8].copy_from_slice(&77u64.to_le_bytes());
        payload[8..].copy_from_slice(&pair(11, 2));
        apply(BEGIN, &mut page, &payload).unwrap();
        let words: Vec<u32> = (32..64).step_by(4).map(|at| get_u32(&page, at)).collect();
        assert_eq!(words, [1, 10, 11, 11, 2, 0, 77, 0]);
        apply(END, &mut page, &[]).unwrap();
        assert!(!HeaderPage::new(&page).unwrap().is_active());
    }
}
