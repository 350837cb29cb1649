//! Fuzzes the reading of a file of the temporary space whose pages are damaged.
//!
//! The input has these fields, in this order:
//!
//! | field | bytes |
//! |---|---|
//! | partitions (remainder by 5; 0 is a run), pages of a write (by 4), pages of a read (by 4) | 1, 1, 1 |
//! | number of rows | 1 |
//! | for each row: key and payload, each after its length; how often the payload is repeated | 2 + n, 1 |
//! | for each damage, to the end: page, runs over the page | 1, runs |

use varve_spill::fuzzing::{StoredLists, StoredShape};
use varve_spill::{Row, SpillError};

use crate::input::Input;

const PAGE_BYTES: usize = 512;
const PARTITIONS: usize = 5;
const REQUEST_PAGES: usize = 4;

/// A row, and the payload that it repeats.
struct RepeatedRow<'a> {
    key: &'a [u8],
    payload: Vec<u8>,
}

impl<'a> RepeatedRow<'a> {
    fn of(input: &mut Input<'a>) -> Self {
        let (key, piece) = (input.piece(), input.piece());
        RepeatedRow { key, payload: piece.repeat(usize::from(input.byte() % 16)) }
    }

    fn row(&self) -> Row<'_> {
        Row::new(self.key, &self.payload)
    }
}

/// Checks that rows are read as they were written, and that a damaged file gives as many rows or an error.
pub fn spill_file(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut below = |most: usize| usize::from(input.byte()) % most;
    let (partitions, buffer_pages, read_pages) =
        (below(PARTITIONS), 1 + below(REQUEST_PAGES), 1 + below(REQUEST_PAGES));
    let count = input.byte();
    let owned: Vec<RepeatedRow<'_>> = (0..count).map(|_| RepeatedRow::of(&mut input)).collect();
    let rows: Vec<Row<'_>> = owned.iter().map(RepeatedRow::row).collect();
    let shape = StoredShape { page_bytes: PAGE_BYTES, buffer_pages, partitions };
    let lists = StoredLists::write(&rows, shape).expect("memory has room");
    comes_back(&lists, &rows, read_pages);
    while !input.is_empty() && lists.pages() > 0 {
        let page = u32::from(input.byte()) % lists.pages();
        lists.damage(page, |page| input.runs(page)).expect("the page is there");
    }
    for list in 0..lists.count() {
        let mut row_bytes = 0;
        match lists.read(list, read_pages, &mut |row| row_bytes += row.stored_bytes()) {
            Ok(read) => {
                assert_eq!(read, expected(&lists, rows.len(), list), "rows are missing");
                assert!(row_bytes <= lists.pages() as usize * PAGE_BYTES, "pages were read twice");
            }
            Err(SpillError::Corrupt { .. }) => {}
            Err(error) => panic!("damaged bytes are another error: {error}"),
        }
    }
}

/// Returns the rows that went to a list.
fn expected(lists: &StoredLists, rows: usize, list: usize) -> u64 {
    (rows.saturating_sub(list)).div_ceil(lists.count()) as u64
}

fn comes_back(lists: &StoredLists, rows: &[Row<'_>], read_pages: usize) {
    let as_bytes = |row: Row<'_>| (row.key.to_vec(), row.payload.to_vec());
    let mut read = Vec::new();
    for list in 0..lists.count() {
        let seen = lists.read(list, read_pages, &mut |row| read.push(as_bytes(row)));
        assert_eq!(seen.expect("nothing is damaged"), expected(lists, rows.len(), list));
    }
    let mut written: Vec<_> = rows.iter().map(|row| as_bytes(*row)).collect();
    written.sort();
    read.sort();
    assert_eq!(read, written, "rows come back");
}
