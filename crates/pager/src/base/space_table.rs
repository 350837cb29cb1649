//! A table with one item for each tablespace. Items are added while other threads read the table without a
//! lock. The number of a tablespace is an index, so finding an item takes the same time for any number of
//! tablespaces.
//!
//! Invariants
//! 1. An item does not move and is not removed until the table is dropped.
//!
//! This module does not know what the items are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::ids::SpaceId;

/// The items of this many neighbouring numbers are allocated together.
const CHUNK_ITEMS: usize = 64;
const CHUNKS: usize = (u16::MAX as usize + 1) / CHUNK_ITEMS;

type Chunk<T> = Box<[OnceLock<Box<T>>]>;

/// The table.
pub(crate) struct SpaceTable<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    /// The highest number with an item, plus one.
    end: AtomicUsize,
}

impl<T> Default for SpaceTable<T> {
    fn default() -> SpaceTable<T> {
        SpaceTable { chunks: empty(CHUNKS), end: AtomicUsize::new(0) }
    }
}

fn empty<I>(count: usize) -> Box<[OnceLock<I>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl<T> SpaceTable<T> {
    /// Adds the item of a tablespace.
    pub(crate) fn add(&self, space: SpaceId, item: T) {
        let (chunk, within) = index(space);
        let items = self.chunks[chunk].get_or_init(|| empty(CHUNK_ITEMS));
        let is_new = items[within].set(Box::new(item)).is_ok();
        assert!(is_new, "{} was added twice", space.title());
        self.end.fetch_max(usize::from(space.0) + 1, Ordering::Release);
    }

    /// The item of a tablespace.
    pub(crate) fn get(&self, space: SpaceId) -> Option<&T> {
        let (chunk, within) = index(space);
        self.chunks.get(chunk)?.get()?.get(within)?.get().map(|item| &**item)
    }

    /// The items, in the order of the numbers of their tablespaces.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let end = self.end.load(Ordering::Acquire);
        let chunks = self.chunks.iter().zip((0..end).step_by(CHUNK_ITEMS));
        let items = chunks.filter_map(move |(chunk, first)| {
            let count = (end - first).min(CHUNK_ITEMS);
            chunk.get().map(|items| items.iter().take(count))
        });
        items.flatten().filter_map(|item| item.get().map(|item| &**item))
    }
}

fn index(space: SpaceId) -> (usize, usize) {
    let number = usize::from(space.0);
    (number / CHUNK_ITEMS, number % CHUNK_ITEMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_by_number_and_come_in_the_order_of_numbers() {
        let table = SpaceTable::default();
        let numbers = [16, 63, 64, 4000, u16::MAX, 17];
        for number in numbers {
            assert_eq!(table.get(SpaceId(number)), None);
            table.add(SpaceId(number), number);
        }
        assert!(numbers.iter().all(|number| table.get(SpaceId(*number)) == Some(number)));
        assert_eq!((table.get(SpaceId(15)), table.get(SpaceId(65))), (None, None));
        assert!(table.iter().copied().eq([16, 17, 63, 64, 4000, u16::MAX]));
    }
}
