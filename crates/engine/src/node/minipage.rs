//! One column of the rows of a leaf by columns: its minipage, and its bit of the rows' NULL bitmaps.
//!
//! This module does not know types. It trusts the page, as `read.rs` does.

/// The size of the end of a value of variable width.
pub(super) const END_BYTES: usize = 2;

/// The most bytes of a short value.
const SHORT_BYTES: usize = 12;

/// The values of one column of all rows of a leaf by columns. Rows are named by their numbers.
#[derive(Clone, Copy)]
pub struct Minipage<'a> {
    /// The heads of the rows, from the column's byte of the first NULL bitmap.
    nulls: &'a [u8],
    head_bytes: usize,
    null_bit: u8,
    values: Values<'a>,
}

/// Where the values of a minipage lie.
#[derive(Clone, Copy)]
enum Values<'a> {
    /// Values of this width, one after the other.
    Fixed(&'a [u8], usize),
    /// The end of each row's value, and the values.
    Variable(&'a [[u8; END_BYTES]], &'a [u8]),
}

impl<'a> Minipage<'a> {
    /// Returns a column whose rows have these heads, of `head_bytes` each.
    pub(super) fn new(heads: &'a [u8], head_bytes: usize, column: usize) -> Self {
        let nulls = &heads[1 + column / 8..];
        Self { nulls, head_bytes, null_bit: 1 << (column % 8), values: Values::Fixed(&[], 1) }
    }

    /// Returns the same column with these values, all of one width.
    pub(super) const fn with_fixed(self, values: &'a [u8], width: usize) -> Self {
        Self { values: Values::Fixed(values, width), ..self }
    }

    /// Returns the same column with values that have these ends.
    pub(super) fn with_variable(self, ends: &'a [u8], values: &'a [u8]) -> Self {
        Self { values: Values::Variable(ends.as_chunks().0, values), ..self }
    }

    /// Returns whether the value of a row is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls[row * self.head_bytes] & self.null_bit != 0
    }

    /// Returns whether a value of these rows is NULL.
    pub fn has_null(&self, rows: &[u16]) -> bool {
        let bits = rows.iter().fold(0, |bits, row| bits | self.nulls[usize::from(*row) * self.head_bytes]);
        bits & self.null_bit != 0
    }

    /// Returns all values, if they have this width. The value of a NULL is zeros.
    #[inline]
    pub fn fixed<const WIDTH: usize>(&self) -> Option<&'a [[u8; WIDTH]]> {
        match self.values {
            Values::Fixed(values, width) if width == WIDTH => Some(values.as_chunks().0),
            _ => None,
        }
    }

    /// Returns whether the values have a variable width.
    pub const fn is_variable(&self) -> bool {
        matches!(self.values, Values::Variable(..))
    }

    /// Returns the bytes of a row's value. A NULL of variable width has none.
    #[inline]
    pub fn bytes(&self, row: usize) -> &'a [u8] {
        match self.values {
            Values::Fixed(values, width) => &values[row * width..(row + 1) * width],
            Values::Variable(ends, values) => {
                let end = |row: usize| usize::from(u16::from_le_bytes(ends[row]));
                let start = if row == 0 { 0 } else { end(row - 1) };
                &values[start..end(row)]
            }
        }
    }

    /// Returns a value of variable width with at most 12 bytes: its length in the lowest 32 bits, and above it
    /// the bytes in their order, then zeros. This is the form of a value inside an Arrow view.
    #[inline]
    pub fn short(&self, row: usize) -> Option<u128> {
        let Values::Variable(ends, values) = self.values else { return None };
        let end = |row: usize| usize::from(u16::from_le_bytes(ends[row]));
        let (start, end) = (if row == 0 { 0 } else { end(row - 1) }, end(row));
        let len = end - start;
        if len > SHORT_BYTES {
            return None;
        }
        // Most values have others behind them, so that a whole word can be read.
        let word = match values[start..].first_chunk::<16>() {
            Some(word) => u128::from_le_bytes(*word) & ((1 << (8 * len)) - 1),
            None => {
                let mut word = [0; 16];
                word[..len].copy_from_slice(&values[start..end]);
                u128::from_le_bytes(word)
            }
        };
        Some(len as u128 | word << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_have_their_length_and_bytes() {
        let values = [&b"ab"[..], b"", b"0123456789ab", b"0123456789abc", b"\xff\x80", b"z"];
        let mut ends = Vec::new();
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend_from_slice(value);
            ends.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        }
        let heads = [0; 2 * 6];
        let page = Minipage::new(&heads, 2, 0).with_variable(&ends, &bytes);
        for (row, value) in values.iter().enumerate() {
            let short = page.short(row).map(u128::to_le_bytes);
            let Some(short) = short else {
                assert_eq!(value.len(), 13);
                continue;
            };
            assert_eq!(short[..4], (value.len() as u32).to_le_bytes());
            assert_eq!(&short[4..4 + value.len()], *value);
            assert!(short[4 + value.len()..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(Minipage::new(&heads, 2, 0).with_fixed(&[1, 2], 1).short(0), None);
    }
}
