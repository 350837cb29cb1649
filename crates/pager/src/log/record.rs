//! The format of log records. All records of one mini-transaction (changes of a few pages that are logged
//! together) are one *group*.
//!
//! Invariants
//! 1. A group is whole or absent after a crash, because it is in one block with one checksum.
//! 2. Each record changes one page. The records are in the order in which the changes were made.
//!
//! A group is a `varint length`, followed by this number of bytes of records. A record is one byte of
//! operation, and then:
//!
//! | operation | body |
//! |---|---|
//! | 1 page | varint space, varint page number: the following records change this page |
//! | 2 note | varint length, kind (1 byte), payload: belongs to no page |
//! | others | varint length, payload: applied to the page |
//!
//! A varint has 7 bits in each byte, lowest bits first. The high bit is set in all bytes but the last.
//!
//! This module does not know how an operation changes a page (`redo.rs` and the engine).

use crate::base::ids::{PageId, PageNo, SpaceId};
use crate::base::log_error::RecordError;

/// Names the page of the following records.
pub const OP_PAGE: u8 = 1;
/// A note record, which belongs to no page.
pub const OP_NOTE: u8 = 2;

const VARINT_BYTES_MAX: usize = 10;

/// One record of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A change of a page.
    Change {
        /// The changed page.
        page: PageId,
        /// Operation number, 3 or more.
        op: u8,
        /// The arguments of the operation.
        payload: &'a [u8],
    },
    /// A note record, for levels or for the engine.
    Note {
        /// The kind, which says who uses the record.
        kind: u8,
        /// Its contents.
        payload: &'a [u8],
    },
}

/// Appends `value` as a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the number of bytes that `value` takes as a varint.
pub fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes a varint off the front of `bytes`.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        let part = u64::from(byte & 0x7F);
        if i == VARINT_BYTES_MAX - 1 && part > 1 {
            return None;
        }
        value |= part << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes `count` bytes off the front of `bytes`.
pub fn take_bytes<'a>(bytes: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(usize::try_from(count).ok()?)?;
    *bytes = rest;
    Some(head)
}

/// Appends the record that names the page of the following changes.
pub fn put_page(out: &mut Vec<u8>, page: PageId) {
    out.push(OP_PAGE);
    put_varint(out, u64::from(page.space().0));
    put_varint(out, u64::from(page.no().0));
}

/// Appends a change of the page named last.
pub fn put_change(out: &mut Vec<u8>, op: u8, payload: &[u8]) {
    put_change_of(out, op, &[payload]);
}

/// Appends a change whose payload comes in `parts`.
pub fn put_change_of(out: &mut Vec<u8>, op: u8, parts: &[&[u8]]) {
    debug_assert!(op > OP_NOTE, "operation {op} is not a change");
    out.push(op);
    put_varint(out, parts.iter().map(|part| part.len() as u64).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a note.
pub fn put_note(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    out.push(OP_NOTE);
    put_varint(out, payload.len() as u64 + 1);
    out.push(kind);
    out.extend_from_slice(payload);
}

/// Iterates over the records of a group.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    page: Option<PageId>,
}

impl<'a> Records<'a> {
    /// Returns the records in `bytes` (a group without its length).
    pub fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { rest: bytes, page: None }
    }

    /// Returns the bytes that were not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn switch_page(&mut self) -> Result<(), RecordError> {
        let space = take_varint(&mut self.rest).ok_or(RecordError::Overrun)?;
        let no = take_varint(&mut self.rest).ok_or(RecordError::Overrun)?;
        let space = u16::try_from(space).map_err(|_| RecordError::BadPage)?;
        let no = u32::try_from(no).map_err(|_| RecordError::BadPage)?;
        self.page = Some(PageId::new(SpaceId(space), PageNo(no)));
        Ok(())
    }

    fn body(&mut self) -> Result<&'a [u8], RecordError> {
        let length = take_varint(&mut self.rest).ok_or(RecordError::Overrun)?;
        take_bytes(&mut self.rest, length).ok_or(RecordError::Overrun)
    }

    fn step(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        while let Some((op, rest)) = self.rest.split_first() {
            self.rest = rest;
            match *op {
                OP_PAGE => self.switch_page()?,
                OP_NOTE => {
                    let (kind, payload) = self.body()?.split_first().ok_or(RecordError::Overrun)?;
                    return Ok(Some(Record::Note { kind: *kind, payload }));
                }
                op => {
                    let payload = self.body()?;
                    let page = self.page.ok_or(RecordError::NoPage)?;
                    return Ok(Some(Record::Change { page, op, payload }));
                }
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, Some(Err(_))) {
            self.rest = &[];
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_their_edges() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_bytes(value), "{value}");
            let mut rest = out.as_slice();
            assert_eq!(take_varint(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn layout_snapshot_of_records() {
        let mut out = Vec::new();
        put_page(&mut out, PageId::new(SpaceId::DATA, PageNo(300)));
        put_change(&mut out, 17, b"abc");
        put_note(&mut out, 9, b"z");
        assert_eq!(out, [1, 1, 0xAC, 2, 17, 3, b'a', b'b', b'c', 2, 2, 9, b'z']);
        let page = PageId::new(SpaceId::DATA, PageNo(300));
        let records: Result<Vec<_>, _> = Records::new(&out).collect();
        let change = Record::Change { page, op: 17, payload: b"abc" };
        assert_eq!(records, Ok(vec![change, Record::Note { kind: 9, payload: b"z" }]));
    }

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        let over: Result<Vec<_>, _> = Records::new(&[17, 3, 1]).collect();
        assert_eq!(over, Err(RecordError::Overrun));
        let no_page: Result<Vec<_>, _> = Records::new(&[17, 0]).collect();
        assert_eq!(no_page, Err(RecordError::NoPage));
    }
}
