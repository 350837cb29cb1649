//! A set of pages, with one bit for each page of a space.
//!
//! This module does not know what is in the pages.

use std::collections::HashMap;

use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};

/// A set of pages.
#[derive(Default)]
pub(crate) struct PageSet {
    spaces: HashMap<SpaceId, Vec<u64>>,
}

impl PageSet {
    pub(crate) fn insert(&mut self, id: PageId) {
        let words = self.spaces.entry(id.space()).or_default();
        let at = id.no().0 as usize / 64;
        if words.len() <= at {
            words.resize(at + 1, 0);
        }
        words[at] |= 1 << (id.no().0 % 64);
    }

    pub(crate) fn insert_all(&mut self, range: PageRange) {
        range.pages().for_each(|id| self.insert(id));
    }

    /// Removes a page. Returns whether the set had it.
    pub(crate) fn remove(&mut self, id: PageId) -> bool {
        let word = self.spaces.get_mut(&id.space()).and_then(|words| words.get_mut(id.no().0 as usize / 64));
        let bit = 1 << (id.no().0 % 64);
        let Some(word) = word.filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        true
    }

    /// Returns the pages of the set.
    pub(crate) fn each(&self) -> impl Iterator<Item = PageId> {
        self.spaces.iter().flat_map(|(space, words)| {
            let has = |no: &u32| words[*no as usize / 64] >> (no % 64) & 1 == 1;
            (0..words.len() as u32 * 64).filter(has).map(|no| PageId::new(*space, PageNo(no)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_the_set_until_they_are_removed() {
        let id = |no| PageId::new(SpaceId::DATA, PageNo(no));
        let mut set = PageSet::default();
        set.insert_all(PageRange { first: id(62), count: 4 });
        assert!(!set.remove(id(61)) && set.remove(id(63)) && !set.remove(id(63)) && !set.remove(id(900)));
        let left: Vec<u32> = set.each().map(|id| id.no().0).collect();
        assert_eq!(left, [62, 64, 65]);
    }
}
