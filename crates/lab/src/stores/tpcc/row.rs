//! Keys and rows as bytes.
//!
//! 1. A row has its primary key, then numbers of fixed width, then texts. So a number has a fixed offset, and
//!    can be changed in place.
//! 2. Numbers in keys are big-endian, so keys sort in the order of their numbers. Other numbers are
//!    little-endian. A number of less than eight bytes is not negative.
//! 3. A text in a row has its length before it, in two bytes. A text in a key ends with a zero byte.
//!
//! This module does not know tables.

use std::ops::Range;

use varve_bench::{BenchError, Result};

/// Bytes of the longest key, which is the key of a customer by name.
const KEY_BYTES_MAX: usize = 48;
/// Bytes of the length that is before a text.
pub const LENGTH_BYTES: usize = 2;

/// The place of a number of fixed width in a row.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    at: usize,
    width_bytes: usize,
}

impl Column {
    /// Returns the first number after a primary key of this many bytes.
    pub const fn behind_key(key_bytes: usize, width_bytes: usize) -> Self {
        Self { at: key_bytes, width_bytes }
    }

    /// Returns the number that follows this one.
    pub const fn then(self, width_bytes: usize) -> Self {
        Self { at: self.end(), width_bytes }
    }

    /// Returns the offset in the row at which the number begins.
    pub const fn at(self) -> usize {
        self.at
    }

    /// Returns the offset in the row at which the number ends.
    pub const fn end(self) -> usize {
        self.at + self.width_bytes
    }

    /// Returns the value of the number in a row.
    ///
    /// Errors: the row is too short.
    pub fn of(self, row: &[u8]) -> Result<i64> {
        let mut wide = [0; 8];
        let bytes = row.get(self.at..self.end()).ok_or_else(|| short(row))?;
        wide.iter_mut().zip(bytes).for_each(|(wide, byte)| *wide = *byte);
        Ok(i64::from_le_bytes(wide))
    }

    /// Stores a value of the number in a row.
    ///
    /// Errors: the row is too short.
    pub fn put(self, row: &mut [u8], value: i64) -> Result<()> {
        let span = self.at..self.end();
        let error = short(row);
        let bytes = row.get_mut(span).ok_or(error)?;
        bytes.iter_mut().zip(value.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        Ok(())
    }

    /// Adds to the value of the number in a row.
    ///
    /// Errors: the row is too short.
    pub fn add(self, row: &mut [u8], more: i64) -> Result<()> {
        let value = self.of(row)?;
        self.put(row, value + more)
    }
}

/// Returns the bytes of a row in this range.
///
/// Errors: the row is too short.
pub fn span(row: &[u8], span: Range<usize>) -> Result<&[u8]> {
    row.get(span).ok_or_else(|| short(row))
}

fn short(row: &[u8]) -> BenchError {
    BenchError::Wrong(format!("a row of TPC-C has {} bytes, which are too few", row.len()))
}

/// Returns a text of a row. Texts follow the numbers, and `number` counts them from 0.
///
/// Errors: the row has no such text.
pub fn text(row: &[u8], texts_at: usize, number: usize) -> Result<&[u8]> {
    let mut at = texts_at;
    for _ in 0..number {
        at += LENGTH_BYTES + length(row, at)?;
    }
    let from = at + LENGTH_BYTES;
    span(row, from..from + length(row, at)?)
}

fn length(row: &[u8], at: usize) -> Result<usize> {
    let bytes = row.get(at..).and_then(|rest| rest.first_chunk()).ok_or_else(|| short(row))?;
    Ok(usize::from(u16::from_le_bytes(*bytes)))
}

/// A key of an index.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len_bytes: usize,
}

impl Key {
    /// A key without any bytes.
    pub const EMPTY: Key = Key { bytes: [0; KEY_BYTES_MAX], len_bytes: 0 };

    /// Appends bytes to the key. Bytes for which there is no space are left out.
    pub fn bytes(mut self, more: &[u8]) -> Self {
        let room = self.bytes.iter_mut().skip(self.len_bytes);
        self.len_bytes += room.zip(more).map(|(byte, new)| *byte = *new).count();
        self
    }

    /// Appends a byte to the key.
    pub fn byte(self, byte: u8) -> Self {
        self.bytes(&[byte])
    }

    /// Appends a number to the key.
    pub fn number(self, number: u32) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    /// Appends a text to the key.
    pub fn text(self, text: &[u8]) -> Self {
        self.bytes(text).byte(0)
    }

    /// Returns the bytes of the key.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len_bytes).unwrap_or_default()
    }
}

/// Replaces the contents of `row` by its primary key. The numbers and texts are appended later.
pub fn begin(row: &mut Vec<u8>, key: &Key) {
    row.clear();
    row.extend_from_slice(key.as_slice());
}

/// Appends numbers, each with the width of its column.
pub fn push_numbers(row: &mut Vec<u8>, numbers: &[(Column, i64)]) {
    for (column, value) in numbers {
        row.extend(value.to_le_bytes().iter().take(column.width_bytes));
    }
}

/// Appends a text.
pub fn push_text(row: &mut Vec<u8>, text: &[u8]) {
    row.extend_from_slice(&(text.len() as u16).to_le_bytes());
    row.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Column = Column::behind_key(3, 8);
    const SECOND: Column = FIRST.then(2);

    #[test]
    fn numbers_and_texts_are_found_where_they_were_stored() {
        let mut row = Vec::new();
        begin(&mut row, &Key::EMPTY.byte(1).bytes(&[2, 3]));
        push_numbers(&mut row, &[(FIRST, -5), (SECOND, 65_535)]);
        [&b"one"[..], b"", b"three"].iter().for_each(|text| push_text(&mut row, text));
        assert_eq!((FIRST.of(&row).ok(), SECOND.of(&row).ok()), (Some(-5), Some(65_535)));
        assert!(FIRST.add(&mut row, 7).is_ok() && SECOND.put(&mut row, 9).is_ok());
        assert_eq!((FIRST.of(&row).ok(), SECOND.of(&row).ok()), (Some(2), Some(9)));
        let found: Vec<_> = (0..3).filter_map(|number| text(&row, SECOND.end(), number).ok()).collect();
        assert_eq!(found, [&b"one"[..], b"", b"three"]);
        assert!(text(&row, SECOND.end(), 3).is_err() && FIRST.of(&row[..5]).is_err());
    }

    #[test]
    fn keys_sort_as_their_numbers_and_texts_do() {
        let key = |last: &[u8], number| Key::EMPTY.text(last).number(number);
        let keys = [key(b"BAR", 300), key(b"BAR", 70_000), key(b"BARBAR", 1), key(b"PRI", 0)];
        assert!(keys.is_sorted_by(|one, other| one.as_slice() < other.as_slice()));
        assert_eq!(Key::EMPTY.bytes(&[1; 100]).as_slice().len(), KEY_BYTES_MAX);
    }
}
