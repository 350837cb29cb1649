//! The order in which pages in persistent memory are written to the data files. Pages that were put once come
//! first. Pages that are put again and again come later.
//!
//! If a page is put again while it waits here, one write to the data files is enough for both puts. This
//! saves most writes for pages that come back soon. So pages are divided as in 2Q (Johnson, Shasha: "2Q: A
//! Low Overhead High Performance Buffer Management Replacement Algorithm", VLDB 1994).
//!
//! The first list (A1in) has a tenth of the slots, for pages that were put once. The second list (Am) has
//! pages that came back while they were here, or soon after they had left (A1out). If the first list is
//! longer than its tenth, its oldest page is written next. Otherwise the oldest page of the second list is
//! written next.
//!
//! Invariants
//! 1. Each version is in one of the two lists, identified by its sequence.
//! 2. A round tries the versions that are in the lists when it begins. If a full device refuses some
//!    versions, the round continues with the ones after these, until all have been tried. Later versions wait
//!    for the next round.
//! 3. The list A1out of pages that left may be wrong. Then only the order of writing changes. A page in the
//!    second list may stay there as long as new pages keep coming.
//!
//! This module does not know slots, or which versions may be written now.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::base::ids::PageId;

/// Pages that were put once get one part in this number of the slots.
const ONCE_PART: usize = 10;

/// The dirty versions, in the order in which they are written to the data files.
#[derive(Debug)]
pub(super) struct HomeOrder {
    once: BTreeMap<u64, PageId>,
    again: BTreeMap<u64, PageId>,
    /// If `once` has more versions than this, its oldest version is written next.
    once_kept: usize,
    /// A round after a refusal: the sequences where it continues in each list, and where it ends.
    turn: Option<FlushTurn>,
    /// The pages that left after one put (A1out). Each is in the place that its hash gives, until another
    /// page takes this place. 0 means none.
    left: Box<[u64]>,
}

#[derive(Debug, Clone, Copy)]
struct FlushTurn {
    once: u64,
    again: u64,
    end: u64,
}

impl HomeOrder {
    /// Returns empty lists, for an area with `slots` slots.
    pub(super) fn new(slots: usize) -> HomeOrder {
        let left = vec![0; slots.max(1)].into_boxed_slice();
        let (once, again) = (BTreeMap::new(), BTreeMap::new());
        HomeOrder { once, again, once_kept: slots / ONCE_PART, turn: None, left }
    }

    pub(super) fn len(&self) -> usize {
        self.once.len() + self.again.len()
    }

    pub(super) fn insert(&mut self, sequence: u64, id: PageId, is_again: bool) {
        let list = if is_again { &mut self.again } else { &mut self.once };
        list.insert(sequence, id);
    }

    pub(super) fn remove(&mut self, sequence: u64, is_again: bool) -> Option<PageId> {
        let list = if is_again { &mut self.again } else { &mut self.once };
        list.remove(&sequence)
    }

    /// Offers pages in their order, until `take` has taken `max` of them.
    pub(super) fn next(&self, max: usize, mut take: impl FnMut(PageId) -> bool) {
        let turn = self.turn.unwrap_or(FlushTurn { once: 0, again: 0, end: u64::MAX });
        let mut left = max;
        let mut take_of = |list: &BTreeMap<u64, PageId>, from: u64, most: usize| {
            let mut most = most.min(left);
            for id in list.range(from..turn.end.max(from)).map(|(_, id)| *id) {
                if most == 0 {
                    break;
                }
                let taken = usize::from(take(id));
                (most, left) = (most - taken, left - taken);
            }
        };
        take_of(&self.once, turn.once, self.once.len().saturating_sub(self.once_kept));
        take_of(&self.again, turn.again, max);
        take_of(&self.once, turn.once, max);
    }

    /// Notes that a full device refused this version, so that the round continues after it. `end` is the next
    /// sequence number.
    pub(super) fn pass_over(&mut self, sequence: u64, is_again: bool, end: u64) {
        let turn = self.turn.get_or_insert(FlushTurn { once: 0, again: 0, end });
        let from = if is_again { &mut turn.again } else { &mut turn.once };
        *from = (*from).max(sequence + 1);
    }

    /// Ends a round after a refusal. Returns whether there was one.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.turn.take().is_some()
    }

    /// Remembers a page that leaves after one put.
    pub(super) fn remember(&mut self, id: PageId) {
        self.left[self.place(id)] = id.to_u64();
    }

    /// Returns whether the page left a short time ago, after one put. If so, the page is removed from the
    /// list A1out.
    pub(super) fn recall(&mut self, id: PageId) -> bool {
        let place = &mut self.left[self.place(id)];
        let is_it = *place == id.to_u64();
        if is_it {
            *place = 0;
        }
        is_it
    }

    fn place(&self, id: PageId) -> usize {
        (FxBuildHasher.hash_one(id.to_u64()) % self.left.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    fn id(no: u64) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no as u32))
    }

    /// Returns the pages 0 to 39 in an area with 100 slots. Pages from 30 on were put again.
    fn forty() -> HomeOrder {
        let mut order = HomeOrder::new(100);
        (0..40).for_each(|no| order.insert(no, id(no), no >= 30));
        order
    }

    fn next(order: &HomeOrder, max: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        order.next(max, |id| {
            taken.push(id.no().0);
            true
        });
        taken
    }

    #[test]
    fn pages_that_were_put_once_go_first_but_for_a_tenth_of_the_slots() {
        let mut order = forty();
        assert_eq!(next(&order, 3), [0, 1, 2]);
        assert_eq!(next(&order, 22), (0..20).chain([30, 31]).collect::<Vec<_>>());
        (0..20).for_each(|no| assert!(order.remove(no, false).is_some()));
        assert_eq!(next(&order, 3), [30, 31, 32]);
        assert_eq!(next(&order, 99)[..11], [30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 20]);
        assert_eq!(order.len(), 20);
    }

    #[test]
    fn what_is_not_taken_is_passed_over() {
        let order = forty();
        let mut taken = Vec::new();
        order.next(2, |id| {
            let can = id.no().0 % 2 == 1;
            taken.extend(can.then_some(id.no().0));
            can
        });
        assert_eq!(taken, [1, 3]);
    }

    #[test]
    fn a_turn_tries_all_of_both_lists_once() {
        let mut order = forty();
        let mut tried = Vec::new();
        loop {
            let refused = next(&order, 7);
            if refused.is_empty() {
                break;
            }
            refused.iter().for_each(|no| order.pass_over(u64::from(*no), *no >= 30, 40));
            order.insert(100 + refused[0] as u64, id(100 + refused[0] as u64), false);
            tried.extend(refused);
        }
        tried.sort_unstable();
        assert_eq!(tried, (0..40).collect::<Vec<_>>());
        assert!(order.begin_turn() && !order.begin_turn());
        assert_eq!(next(&order, 1), [0]);
    }

    #[test]
    fn pages_that_left_are_known_until_others_take_their_place() {
        let mut order = HomeOrder::new(1);
        assert!(!order.recall(id(1)));
        order.remember(id(1));
        assert!(order.recall(id(1)) && !order.recall(id(1)), "once");
        order.remember(id(1));
        order.remember(id(2));
        assert!(!order.recall(id(1)) && order.recall(id(2)));
    }
}
