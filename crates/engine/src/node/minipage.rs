//! One column of the rows of a leaf by columns: its minipage, and its bit of the rows' NULL bitmaps.
//!
//! This module does not know types. It trusts the page, as `read.rs` does.

/// The size of the end of a value of variable width.
pub(super) const END_BYTES: usize = 2;

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
}
