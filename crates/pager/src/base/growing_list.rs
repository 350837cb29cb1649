//! A list to which items are added while other threads read it without a lock.
//!
//! Invariants
//! 1. An item does not move and is not removed until the list is dropped.
//!
//! What it does not know: what the items are.

use std::sync::OnceLock;

/// The most items of a list.
pub(crate) const ITEMS_MAX: usize = 1000;

/// The list.
pub(crate) struct GrowingList<T> {
    items: Box<[OnceLock<Box<T>>]>,
}

impl<T> Default for GrowingList<T> {
    fn default() -> GrowingList<T> {
        GrowingList { items: (0..ITEMS_MAX).map(|_| OnceLock::new()).collect() }
    }
}

impl<T> GrowingList<T> {
    /// Adds an item. If the list is full, the item is returned.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut item = Box::new(item);
        for place in &self.items {
            match place.set(item) {
                Ok(()) => return Ok(()),
                Err(back) => item = back,
            }
        }
        Err(*item)
    }

    /// The items, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map_while(|place| place.get().map(|item| &**item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_their_order_until_the_list_is_full() {
        let list = GrowingList::default();
        for item in 0..ITEMS_MAX {
            assert_eq!(list.push(item), Ok(()));
        }
        assert_eq!(list.push(7), Err(7));
        assert!(list.iter().copied().eq(0..ITEMS_MAX));
    }
}
