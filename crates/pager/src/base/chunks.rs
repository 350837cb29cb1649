//! An array of cells that grows in chunks. A chunk is made when its first cell is needed. Cells are read
//! without a lock.
//!
//! Invariants
//! 1. A cell is never moved or removed, so references to it stay valid.
//! 2. If the chunk of a number was not made, the number has no cell, and reading does not make one.
//!
//! This module does not know what is in a cell.

use std::sync::OnceLock;

const INNER_BITS: u32 = 13;
const MIDDLE_BITS: u32 = 9;
const OUTER_BITS: u32 = u32::BITS - INNER_BITS - MIDDLE_BITS;

/// A table whose memory is allocated when it is first needed.
type Table<T> = OnceLock<Box<[T]>>;

/// A growing table of cells.
pub(crate) struct Chunks<T> {
    outer: Box<[Table<Table<T>>]>,
}

/// Returns the indexes of a number in the outer, the middle and the inner table.
fn split(no: u32) -> [usize; 3] {
    let inner = no & ((1 << INNER_BITS) - 1);
    let middle = (no >> INNER_BITS) & ((1 << MIDDLE_BITS) - 1);
    [(no >> (INNER_BITS + MIDDLE_BITS)) as usize, middle as usize, inner as usize]
}

fn filled<T>(bits: u32, cell: impl Fn() -> T) -> Box<[T]> {
    (0..1_usize << bits).map(|_| cell()).collect()
}

impl<T: Default> Chunks<T> {
    pub(crate) fn new() -> Chunks<T> {
        Chunks { outer: filled(OUTER_BITS, OnceLock::new) }
    }

    /// Returns the cell of a number. `None` means that its chunk was not made.
    pub(crate) fn get(&self, no: u32) -> Option<&T> {
        let [outer, middle, inner] = split(no);
        self.outer[outer].get()?[middle].get().map(|chunk| &chunk[inner])
    }

    /// Returns the cell of a number. Makes its chunk if necessary.
    pub(crate) fn make(&self, no: u32) -> &T {
        let [outer, middle, inner] = split(no);
        let middles = self.outer[outer].get_or_init(|| filled(MIDDLE_BITS, OnceLock::new));
        &middles[middle].get_or_init(|| filled(INNER_BITS, T::default))[inner]
    }

    /// Returns all cells of the chunks that were made, in the order of their numbers.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u32, &T)> {
        let made = |(at, middles): (usize, &'_ Table<Table<T>>)| middles.get().map(|_| at);
        let outers = self.outer.iter().enumerate().filter_map(made);
        outers.flat_map(move |outer| self.chunks_of(outer))
    }

    fn chunks_of(&self, outer: usize) -> impl Iterator<Item = (u32, &T)> {
        let middles = self.outer[outer].get().into_iter().flat_map(|middles| middles.iter().enumerate());
        let chunks = middles.filter_map(|(middle, chunk)| Some((middle, chunk.get()?)));
        chunks.flat_map(move |(middle, chunk)| {
            let first = (outer << MIDDLE_BITS | middle) << INNER_BITS;
            chunk.iter().enumerate().map(move |(inner, cell)| ((first | inner) as u32, cell))
        })
    }

    /// Returns the memory of the chunks, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let middles = self.outer.iter().filter_map(OnceLock::get);
        let chunks = middles.flat_map(|middles| middles.iter()).filter(|chunk| chunk.get().is_some());
        chunks.count() * (size_of::<T>() << INNER_BITS)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn cells_stay_where_they_are() {
        let cells: Chunks<AtomicU64> = Chunks::new();
        let numbers = [0, 1, 8191, 8192, (1 << 22) - 1, 1 << 22, u32::MAX];
        assert!(cells.get(0).is_none() && cells.bytes() == 0);
        for (value, no) in (1_u64..).zip(numbers) {
            cells.make(no).store(value, Relaxed);
        }
        for (value, no) in (1_u64..).zip(numbers) {
            assert_eq!(cells.get(no).map(|cell| cell.load(Relaxed)), Some(value), "{no}");
        }
        assert!(cells.get(20_000).is_none(), "looking makes nothing");
        let set: Vec<u32> =
            cells.each().filter(|(_, cell)| cell.load(Relaxed) != 0).map(|(no, _)| no).collect();
        assert_eq!(set, numbers);
        assert_eq!(cells.bytes(), 5 * 8 * 8192);
    }
}
