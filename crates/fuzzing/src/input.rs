//! Reads numbers, pages and pieces from the fuzzer's bytes. If the bytes end, the rest is read as zeros.
//! Numbers are little endian.
//!
//! A page is described by runs. A run is some bytes that overwrite a page of zeros at an offset. So a small
//! input can describe a whole page:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | number of runs |
//! | 3 + n each | offset in the page (u16), length n (u8), n bytes |

use varve_engine::ColumnType;

/// The page size of the targets.
pub const PAGE_BYTES: usize = 4096;
const RUN_BYTES_MAX: usize = 255;

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Returns an input with these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns up to `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let head = self.bytes(N);
        out[..head.len()].copy_from_slice(head);
        out
    }

    /// Returns one byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Returns two bytes, little endian, like all numbers here.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Returns four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Returns eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Reads a length of one byte, and returns as many bytes.
    pub fn piece(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte());
        self.bytes(count)
    }

    /// Returns the remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Writes runs over `page`. The parts that are outside of the page are ignored.
    pub fn runs(&mut self, page: &mut [u8]) {
        for _ in 0..self.byte() {
            let at = usize::from(self.u16()).min(page.len());
            let bytes = self.piece();
            let count = bytes.len().min(page.len() - at);
            page[at..at + count].copy_from_slice(&bytes[..count]);
        }
    }

    /// Returns a page of zeros, overwritten by runs.
    pub fn page(&mut self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        self.runs(&mut page);
        page
    }

    /// Returns a column type.
    pub fn column_type(&mut self) -> ColumnType {
        match self.byte() % 21 {
            0 => ColumnType::Bool,
            1 => ColumnType::Int2,
            2 => ColumnType::Int4,
            3 => ColumnType::Int8,
            4 => ColumnType::Float8,
            5 => ColumnType::Numeric { precision: None },
            6 => ColumnType::Numeric { precision: Some((u16::from(self.byte()), i16::from(self.byte()))) },
            7 => ColumnType::Char(u32::from(self.byte())),
            8 => ColumnType::Varchar(None),
            9 => ColumnType::Varchar(Some(u32::from(self.byte()))),
            10 => ColumnType::Text,
            11 => ColumnType::Bytea,
            12 => ColumnType::Date,
            13 => ColumnType::Timestamp,
            16 => ColumnType::Float4,
            17 => ColumnType::Time,
            18 => ColumnType::Interval,
            19 => ColumnType::Uuid,
            20 => ColumnType::Json,
            _ => ColumnType::TimestampTz,
        }
    }
}

/// Returns a page as runs, for the first inputs.
pub fn page_runs(page: &[u8]) -> Vec<u8> {
    let mut runs: Vec<(usize, &[u8])> = Vec::new();
    let mut at = 0;
    while let Some(start) = page[at..].iter().position(|byte| *byte != 0).map(|skip| at + skip) {
        let gap = page[start..].windows(4).position(|four| four == [0; 4]);
        let end = gap.map_or(page.len(), |gap| start + gap).max(start + 1);
        runs.extend(
            page[start..end]
                .chunks(RUN_BYTES_MAX)
                .enumerate()
                .map(|(number, run)| (start + number * RUN_BYTES_MAX, run)),
        );
        at = end;
    }
    runs.truncate(usize::from(u8::MAX));
    let mut out = vec![runs.len() as u8];
    for (at, run) in runs {
        out.extend_from_slice(&(at as u16).to_le_bytes());
        out.push(run.len() as u8);
        out.extend_from_slice(run);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_from_its_runs() {
        let mut page = vec![0; PAGE_BYTES];
        page[0..7].fill(3);
        page[40] = 1;
        page[43] = 2;
        page[3000..3900].fill(9);
        page[PAGE_BYTES - 1] = 7;
        assert_eq!(Input::new(&page_runs(&page)).page(), page);
    }

    #[test]
    fn what_is_missing_is_zero() {
        let mut input = Input::new(&[7]);
        assert_eq!((input.u32(), input.u64(), input.piece()), (7, 0, &[][..]));
    }
}
