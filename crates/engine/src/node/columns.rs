//! Rows of a leaf that lie by columns: one minipage for each column, as in PAX (Ailamaki et al., 2001).
//!
//! A leaf by columns is a node whose rows may be in its *columns*. They lie between the heap and the prefix,
//! and end with a directory (little endian, offsets from the page's first byte):
//!
//! | part | bytes |
//! |---|---|
//! | heads | for each row: head and NULL bitmap, as `row.rs` encodes them |
//! | fixed columns | one minipage each, in the table's order: the values, with zeros for NULL |
//! | variable columns | one minipage each: for each row the end of its value (u16), then the values |
//! | directory | start of the heads u16, number of rows u16, width of each column u8 (0: variable), start of each minipage u16 |
//!
//! An entry whose row is in the columns has `IN_COLUMNS` and the row's number in place of its value's length,
//! and only a stamp as its value. Other entries have their row after the stamp, as in a leaf by rows. These
//! are rows that were written since the leaf was built, and overflow pointers.
//!
//! Invariants
//! 1. A row takes as many bytes in the columns as in an entry. So a leaf by columns holds the rows of a leaf
//!    by rows, except for the bytes of its directory.
//! 2. `append_row` gives exactly the bytes that were placed.
//! 3. The number of rows and their places are fixed until the leaf is built again. A row that is replaced by
//!    one with other lengths, or removed, leaves its bytes as garbage.
//!
//! This module does not know types, keys or stamps.

use super::minipage::{END_BYTES, Minipage};
use super::usable_bytes;
use crate::fixed;
use crate::row::ROW_LAYOUT;

/// The bit that is set in the length of an entry's value if its row is in the columns. The other bits are the
/// row's number.
pub(crate) const IN_COLUMNS: usize = 0x8000;
/// The longest value of a leaf by columns, because `IN_COLUMNS` is a bit of its length.
pub(crate) const VALUE_BYTES_MAX: usize = IN_COLUMNS - 1;
const START_BYTES: usize = 2;
/// The directory's bytes before the widths.
const DIRECTORY_HEAD_BYTES: usize = 4;
const DIRECTORY_BYTES_OF_COLUMN: usize = 1 + START_BYTES;

/// Returns the bytes that the directory of `columns` columns takes in a leaf.
pub(crate) const fn directory_bytes(columns: usize) -> usize {
    if columns == 0 { 0 } else { DIRECTORY_HEAD_BYTES + columns * DIRECTORY_BYTES_OF_COLUMN }
}

/// Returns the most columns of a leaf by columns: the directory takes at most 1/16 of the usable page. So a
/// full leaf can still be split (`entry_bytes_max`).
pub const fn columns_max(page_bytes: usize) -> usize {
    (usable_bytes(page_bytes) / 16 - DIRECTORY_HEAD_BYTES) / DIRECTORY_BYTES_OF_COLUMN
}

/// The widths of a table's columns in bytes; 0 is a variable width.
#[derive(Clone, Copy)]
struct Widths<'a>(&'a [u8]);

impl Widths<'_> {
    const fn head_bytes(self) -> usize {
        1 + self.0.len().div_ceil(8)
    }

    fn variable_count(self) -> usize {
        self.0.iter().filter(|width| **width == 0).count()
    }

    /// Returns the offset of the ends in an encoded row.
    fn ends_at(self) -> usize {
        self.head_bytes() + self.0.iter().map(|width| usize::from(*width)).sum::<usize>()
    }

    /// Returns the offset of the first value of variable width in an encoded row.
    fn values_at(self) -> usize {
        self.ends_at() + self.variable_count() * END_BYTES
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> usize {
    usize::from(u16::from_le_bytes(fixed::bytes_at(bytes, offset)))
}

fn put_u16(page: &mut [u8], offset: usize, value: usize) {
    assert!(value <= usize::from(u16::MAX), "{value} does not fit a field of two bytes");
    fixed::put_at(page, offset, (value as u16).to_le_bytes());
}

/// Returns whether `row` is an encoded row of columns with these widths, so that it can be placed in columns.
pub(crate) fn is_row(widths: &[u8], row: &[u8]) -> bool {
    let widths = Widths(widths);
    let (ends_at, mut end) = (widths.ends_at(), widths.values_at());
    if row.len() < end || row[0] != ROW_LAYOUT {
        return false;
    }
    for which in 0..widths.variable_count() {
        let next = u16_at(row, ends_at + which * END_BYTES);
        if next < end || next > row.len() {
            return false;
        }
        end = next;
    }
    end == row.len()
}

/// Writes a directory of columns without rows, which ends at `end`. Returns where it begins.
pub(crate) fn format(page: &mut [u8], end: usize, widths: &[u8]) -> usize {
    let at = end - directory_bytes(widths.len());
    put_u16(page, at, at);
    put_u16(page, at + 2, 0);
    let widths_at = at + DIRECTORY_HEAD_BYTES;
    page[widths_at..widths_at + widths.len()].copy_from_slice(widths);
    (0..widths.len()).for_each(|column| put_u16(page, widths_at + widths.len() + column * START_BYTES, at));
    at
}

/// Places encoded rows (`is_row`) in the columns of a leaf that has none, before the directory at
/// `directory`. Returns where the columns begin.
pub(crate) fn place(page: &mut [u8], directory: usize, widths: &[u8], rows: &[&[u8]]) -> usize {
    let area_start = directory - rows.iter().map(|row| row.len()).sum::<usize>();
    put_u16(page, directory, area_start);
    put_u16(page, directory + 2, rows.len());
    let shape = Widths(widths);
    let starts_at = directory + DIRECTORY_HEAD_BYTES + widths.len();
    let mut at = put_slices(page, area_start, rows, 0, shape.head_bytes());
    let mut in_row = shape.head_bytes();
    for (column, width) in widths.iter().enumerate().filter(|(_, width)| **width != 0) {
        put_u16(page, starts_at + column * START_BYTES, at);
        at = put_slices(page, at, rows, in_row, usize::from(*width));
        in_row += usize::from(*width);
    }
    for (which, column) in (0..widths.len()).filter(|column| widths[*column] == 0).enumerate() {
        put_u16(page, starts_at + column * START_BYTES, at);
        at = put_values(page, at, rows, shape, which);
    }
    assert_eq!(at, directory, "the columns fill their area");
    area_start
}

/// Writes the bytes `from..from + width` of each row. Returns where they end.
fn put_slices(page: &mut [u8], mut at: usize, rows: &[&[u8]], from: usize, width: usize) -> usize {
    for row in rows {
        page[at..at + width].copy_from_slice(&row[from..from + width]);
        at += width;
    }
    at
}

/// Writes the minipage of a variable column. Returns where it ends.
fn put_values(page: &mut [u8], start: usize, rows: &[&[u8]], shape: Widths<'_>, which: usize) -> usize {
    let values_start = start + rows.len() * END_BYTES;
    let mut at = values_start;
    for (number, row) in rows.iter().enumerate() {
        let value = value_of(row, shape, which);
        page[at..at + value.len()].copy_from_slice(value);
        at += value.len();
        put_u16(page, start + number * END_BYTES, at - values_start);
    }
    at
}

/// Returns the value of the variable column with number `which` in an encoded row.
fn value_of<'r>(row: &'r [u8], shape: Widths<'_>, which: usize) -> &'r [u8] {
    let ends_at = shape.ends_at();
    let end = u16_at(row, ends_at + which * END_BYTES);
    let start = match which {
        0 => shape.values_at(),
        _ => u16_at(row, ends_at + (which - 1) * END_BYTES),
    };
    &row[start..end]
}

/// Overwrites the row with this number by one of the same lengths (`Columns::fits_over`).
pub(crate) fn overwrite(page: &mut [u8], directory: usize, columns: usize, number: usize, row: &[u8]) {
    let widths_at = directory + DIRECTORY_HEAD_BYTES;
    let widths = page[widths_at..widths_at + columns].to_vec();
    let shape = Widths(&widths);
    let (mut in_row, mut which) = (shape.head_bytes(), 0);
    let heads_at = u16_at(page, directory) + number * shape.head_bytes();
    page[heads_at..heads_at + in_row].copy_from_slice(&row[..in_row]);
    for (column, width) in widths.iter().enumerate() {
        let all = Columns { page, directory, count: columns };
        let (place, new) = match usize::from(*width) {
            0 => {
                which += 1;
                (all.value_place(column, number), value_of(row, shape, which - 1))
            }
            width => {
                in_row += width;
                (all.start(column) + number * width, &row[in_row - width..in_row])
            }
        };
        page[place..place + new.len()].copy_from_slice(new);
    }
}

/// The columns of a leaf.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    page: &'a [u8],
    /// Where the directory begins.
    directory: usize,
    /// The number of columns.
    count: usize,
}

impl<'a> Columns<'a> {
    pub(crate) const fn new(page: &'a [u8], directory: usize, count: usize) -> Self {
        Self { page, directory, count }
    }

    /// Returns the offset at which the directory begins.
    pub(crate) const fn directory(&self) -> usize {
        self.directory
    }

    /// Returns the offset at which the columns begin.
    pub(crate) fn area_start(&self) -> usize {
        u16_at(self.page, self.directory)
    }

    /// Returns the number of rows, with those that no entry has any more.
    pub fn rows(&self) -> usize {
        u16_at(self.page, self.directory + 2)
    }

    /// Returns the number of columns.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the width of each column in bytes; 0 is a variable width.
    pub fn widths(&self) -> &'a [u8] {
        let at = self.directory + DIRECTORY_HEAD_BYTES;
        &self.page[at..at + self.count]
    }

    fn start(&self, column: usize) -> usize {
        u16_at(self.page, self.directory + DIRECTORY_HEAD_BYTES + self.count + column * START_BYTES)
    }

    /// Returns whether a column of a row is NULL.
    #[inline]
    pub fn is_null(&self, column: usize, row: usize) -> bool {
        let at = self.area_start() + row * Widths(self.widths()).head_bytes();
        self.page[at + 1 + column / 8] & (1 << (column % 8)) != 0
    }

    /// Returns the minipage of a column of fixed width: the values of all rows, one after the other.
    pub fn fixed(&self, column: usize) -> &'a [u8] {
        let (start, width) = (self.start(column), usize::from(self.widths()[column]));
        assert!(width > 0, "column {column} has a variable width");
        &self.page[start..start + self.rows() * width]
    }

    /// Returns the value of a column of variable width.
    #[inline]
    pub fn variable(&self, column: usize, row: usize) -> &'a [u8] {
        let start = self.start(column);
        let values_start = start + self.rows() * END_BYTES;
        let [from, to] = self.value_range(start, row);
        &self.page[values_start + from..values_start + to]
    }

    /// Returns where a value begins and ends in its minipage's values.
    fn value_range(&self, start: usize, row: usize) -> [usize; 2] {
        let from = if row == 0 { 0 } else { u16_at(self.page, start + (row - 1) * END_BYTES) };
        [from, u16_at(self.page, start + row * END_BYTES)]
    }

    fn value_place(&self, column: usize, row: usize) -> usize {
        let start = self.start(column);
        start + self.rows() * END_BYTES + self.value_range(start, row)[0]
    }

    /// Returns the values of a column.
    pub fn minipage(&self, column: usize) -> Minipage<'a> {
        let (area, rows, shape) = (self.area_start(), self.rows(), Widths(self.widths()));
        let heads = &self.page[area..area + rows * shape.head_bytes()];
        let (start, width) = (self.start(column), usize::from(shape.0[column]));
        let all = Minipage::new(heads, shape.head_bytes(), column);
        if width > 0 {
            return all.with_fixed(&self.page[start..start + rows * width], width);
        }
        let values_start = start + rows * END_BYTES;
        all.with_variable(&self.page[start..values_start], &self.page[values_start..self.directory])
    }

    fn head(&self, row: usize) -> &'a [u8] {
        let bytes = Widths(self.widths()).head_bytes();
        let at = self.area_start() + row * bytes;
        &self.page[at..at + bytes]
    }

    fn variable_columns(&self) -> impl Iterator<Item = usize> + use<'a> {
        let widths = self.widths();
        (0..widths.len()).filter(|column| widths[*column] == 0)
    }

    /// Returns the number of bytes of a row.
    pub(crate) fn row_bytes(&self, row: usize) -> usize {
        let values: usize = self.variable_columns().map(|column| self.variable(column, row).len()).sum();
        Widths(self.widths()).values_at() + values
    }

    /// Appends a row in the encoding of `row.rs`.
    pub fn append_row(&self, row: usize, out: &mut Vec<u8>) {
        let first = out.len();
        out.extend_from_slice(self.head(row));
        for (column, width) in self.widths().iter().enumerate().filter(|(_, width)| **width != 0) {
            let width = usize::from(*width);
            let at = self.start(column) + row * width;
            out.extend_from_slice(&self.page[at..at + width]);
        }
        let mut ends_at = out.len();
        let values_at = first + Widths(self.widths()).values_at();
        out.resize(values_at, 0);
        for column in self.variable_columns() {
            out.extend_from_slice(self.variable(column, row));
            let end = out.len() - first;
            put_u16(out, ends_at, end);
            ends_at += END_BYTES;
        }
    }

    /// Returns whether `row` has the same lengths as the row with this number, so that `row` can overwrite
    /// it.
    pub(crate) fn fits_over(&self, number: usize, row: &[u8]) -> bool {
        let shape = Widths(self.widths());
        let mut columns = self.variable_columns().enumerate();
        is_row(self.widths(), row)
            && columns.all(|(which, column)| {
                value_of(row, shape, which).len() == self.variable(column, number).len()
            })
    }

    /// Returns whether the minipages lie one after the other between `heap_start` and the directory, and have
    /// all values of the row with this number. A change of one entry needs this, because an overwritten value
    /// must not change the ends of another column.
    pub(crate) fn has_row(&self, row: usize, heap_start: usize) -> bool {
        let (area, rows, widths) = (self.area_start(), self.rows(), self.widths());
        if row >= rows || area < heap_start {
            return false;
        }
        let mut at = area + rows * Widths(widths).head_bytes();
        let fixed = (0..self.count).filter(|column| widths[*column] != 0);
        for column in fixed.chain(self.variable_columns()) {
            let (start, width) = (self.start(column), usize::from(widths[column]));
            let values_at = at + rows * if width == 0 { END_BYTES } else { width };
            if start != at || values_at > self.directory {
                return false;
            }
            at = values_at;
            if width == 0 {
                let [from, to] = self.value_range(start, row);
                let [_, last] = self.value_range(start, rows - 1);
                if from > to || to > last {
                    return false;
                }
                at += last;
            }
        }
        at == self.directory
    }

    /// Describes the first damage of the directory and the minipages. Trusts none of their bytes.
    pub(crate) fn damage(&self, heap_start: usize) -> Option<String> {
        let (area, rows) = (self.area_start(), self.rows());
        if area < heap_start || area > self.directory {
            return Some(format!("columns at {area}, before the heap or behind their directory"));
        }
        let shape = Widths(self.widths());
        let mut at = area + rows * shape.head_bytes();
        if at > self.directory {
            return Some(format!("the heads of {rows} rows reach outside the columns"));
        }
        if let Some(row) = (0..rows).find(|row| self.head(*row)[0] != ROW_LAYOUT) {
            return Some(format!("row {row} in the columns has another layout"));
        }
        let (fixed, variable): (Vec<_>, Vec<_>) = (0..self.count).partition(|c| self.widths()[*c] != 0);
        for column in fixed.into_iter().chain(variable) {
            let start = self.start(column);
            let end = if start == at { self.minipage_end(column) } else { None };
            match end {
                Some(end) => at = end,
                None => return Some(format!("the minipage of column {column} is not in its place")),
            }
        }
        (at != self.directory).then(|| "bytes between the columns and their directory".into())
    }

    /// Returns where the minipage of a column ends. Returns `None` if the minipage is not before the
    /// directory, or its ends do not ascend.
    fn minipage_end(&self, column: usize) -> Option<usize> {
        let (start, rows, width) = (self.start(column), self.rows(), usize::from(self.widths()[column]));
        let end = start + rows * if width == 0 { END_BYTES } else { width };
        if end > self.directory {
            return None;
        }
        if width > 0 || rows == 0 {
            return Some(end);
        }
        let ends = || (0..rows).map(|row| u16_at(self.page, start + row * END_BYTES));
        let last = ends().next_back()?;
        (ends().is_sorted() && end + last <= self.directory).then_some(end + last)
    }
}
