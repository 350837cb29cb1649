//! Splits PostgreSQL's binary COPY format into rows and fields.
//!
//! | bytes | what |
//! |---|---|
//! | 11 | signature |
//! | 4 | flags; bit 16 for OIDs, which no longer exist |
//! | 4 + n | length of more header, which is skipped |
//! | 2 | of each row: number of fields, -1 after the last row |
//! | 4 + n each | length of the field, -1 for NULL; its binary form |
//!
//! Invariants
//! 1. The input comes in pieces, and a piece may end anywhere. Only whole rows are taken from it.
//!
//! This module does not know columns or their types.

use super::lines::Record;
use crate::error::{Result, SqlError, SqlState};

/// The bytes at the beginning of a file.
pub const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const FLAG_OIDS: u32 = 1 << 16;
const HEADER_BYTES: usize = SIGNATURE.len() + 8;

/// The position in the data.
#[derive(Debug, Default)]
pub struct Rows {
    has_header: bool,
    ended: bool,
    /// The number of the row that was read last.
    pub number: u64,
}

/// An error, and the index of the field that has it.
pub type InField = (SqlError, Option<usize>);

impl Rows {
    /// Reads the header, a row or the end mark at `start`, if it is complete. Returns where the next row
    /// begins, and whether a row was read. `at_end` says that no more bytes will come.
    pub fn next(
        &mut self,
        bytes: &[u8],
        mut start: usize,
        at_end: bool,
        columns: usize,
        record: &mut Record,
    ) -> Result<Option<(usize, bool)>, InField> {
        if self.ended {
            return match bytes.len() > start {
                true => Err((bad("received copy data after EOF marker"), None)),
                false => Ok(None),
            };
        }
        if !self.has_header {
            match header(&bytes[start..], at_end).map_err(|e| (e, None))? {
                Some(length) => start += length,
                None => return Ok(None),
            }
            self.has_header = true;
            return Ok(Some((start, false)));
        }
        let Some(count) = word::<2>(bytes, start) else { return Ok(None) };
        self.number += 1;
        match i16::from_be_bytes(count) {
            -1 => {
                self.ended = true;
                return Ok(Some((start + 2, false)));
            }
            count if count as usize != columns => {
                let message = format!("row field count is {count}, expected {columns}");
                return Err((bad(&message), None));
            }
            _ => {}
        }
        let taken = fields(bytes, start + 2, columns, at_end, record)?;
        // A row counts only when it is complete.
        self.number -= u64::from(taken.is_none());
        Ok(taken.map(|next| (next, true)))
    }
}

/// Returns the length of the header.
fn header(bytes: &[u8], at_end: bool) -> Result<Option<usize>> {
    let is_short = bytes.len() < HEADER_BYTES;
    if bytes.len() >= SIGNATURE.len() && !bytes.starts_with(SIGNATURE)
        || at_end && bytes.len() < SIGNATURE.len()
    {
        return Err(bad("COPY file signature not recognized"));
    }
    let flags = word(bytes, SIGNATURE.len()).map(u32::from_be_bytes);
    let more = word(bytes, SIGNATURE.len() + 4).map(i32::from_be_bytes);
    let (Some(flags), Some(more)) = (flags, more) else {
        let what = if flags.is_none() { "missing flags" } else { "missing length" };
        return match is_short && at_end {
            true => Err(bad(&format!("invalid COPY file header ({what})"))),
            false => Ok(None),
        };
    };
    if flags & FLAG_OIDS != 0 {
        return Err(bad("invalid COPY file header (WITH OIDS)"));
    }
    if flags >> 16 != 0 {
        return Err(bad("unrecognized critical flags in COPY file header"));
    }
    let wrong = || bad("invalid COPY file header (wrong length)");
    let end = HEADER_BYTES + usize::try_from(more).map_err(|_| wrong())?;
    match bytes.len() >= end {
        true => Ok(Some(end)),
        false if at_end => Err(wrong()),
        false => Ok(None),
    }
}

fn fields(
    bytes: &[u8],
    mut at: usize,
    columns: usize,
    at_end: bool,
    record: &mut Record,
) -> Result<Option<usize>, InField> {
    record.clear();
    for n in 0..columns {
        let length = word(bytes, at).map(i32::from_be_bytes);
        let end = match length {
            None => None,
            Some(-1) => {
                record.push(None);
                at += 4;
                continue;
            }
            Some(length) => {
                let length = usize::try_from(length).map_err(|_| (bad("invalid field size"), Some(n)))?;
                Some(at + 4 + length).filter(|end| *end <= bytes.len())
            }
        };
        match end {
            Some(end) => {
                record.push(Some(&bytes[at + 4..end]));
                at = end;
            }
            None if at_end => return Err((bad("unexpected EOF in COPY data"), Some(n))),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn bad(message: &str) -> SqlError {
    SqlError::new(SqlState::BAD_COPY, message)
}
