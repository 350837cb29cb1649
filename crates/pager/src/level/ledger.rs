//! The [`Ledger`] is the dirty-page table. It says which pages have changes that are only in the log, and the
//! recovery LSN of each: the LSN of the oldest such change.
//!
//! Invariants
//! 1. A page enters the table with its first change, inside the log's append section. It leaves the table
//!    when a stable image has all its changes. Its recovery LSN is the LSN of the oldest change that no
//!    stable image has.
//! 2. The log is cut only up to `oldest`, the lowest recovery LSN. `oldest` never decreases, because changes
//!    are reported in the order of their LSNs.
//! 3. The recovery LSN belongs to the page, on whatever level the page is stored.
//!
//! The table does not store every change of a page. It stores the change that made the page dirty, and then,
//! for each copy of the page that is made to be written (an image), the first change after the copy (decision
//! 0304). It stores at most [`CHANGES_MAX`] changes of a page, and later changes count as the last stored
//! one. So a page may stay in the table longer than necessary, but never leaves it too early. A queue in the
//! order of LSNs gives the oldest page. Stale entries of the queue are skipped.
//!
//! This module does not know frames of the pool, levels or the log.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use varve_device::planted;

use crate::base::ids::{PageId, PageRange};
use crate::base::lsn::Lsn;

/// A change that made a page dirty: the first one after the page was clean, or after an image of it was
/// copied to be written. The changes that follow it, up to the next image, count as this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// The start of the log block that contains the change. To repeat the change, redo must read the log from
    /// here.
    block: Lsn,
    /// Start of the group of log records that contains the change.
    start: Lsn,
    /// Start of the last group that counts as this change. An image whose page LSN is not greater than this
    /// lacks the change. This differs from `start` only in the last of [`CHANGES_MAX`] changes.
    last: Lsn,
}

#[derive(Default)]
struct Pages {
    /// For each page that is not stable, its stored changes, oldest first.
    changes: HashMap<PageId, SmallVec<[Change; 2]>>,
    /// All stored changes in LSN order. An entry is stale, and is skipped, if its change is no longer the
    /// oldest change of its page.
    queue: VecDeque<(Lsn, PageId)>,
    newest_start: Lsn,
    /// The number of times that the whole queue was searched.
    #[cfg(test)]
    gone_through: usize,
}

/// Recovery LSNs of all pages with changes that are not stable.
#[derive(Default)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

/// The largest number of changes that are stored for a page.
const CHANGES_MAX: usize = 4;
const STALE_ENTRIES_MIN: usize = 1024;

impl Ledger {
    /// Enters a page that became dirty with the group of records that starts at `start`, in the log block
    /// that starts at `block`. This is called inside the append section, or by redo, so the calls are in LSN
    /// order.
    pub fn first_change(&self, id: PageId, block: Lsn, start: Lsn) {
        let mut pages = self.pages.lock();
        debug_assert!(block <= start && start >= pages.newest_start, "first changes come in LSN order");
        pages.newest_start = start;
        if planted("ledger: every seventh page is forgotten") && id.no().0.is_multiple_of(7) {
            return;
        }
        let change = Change { block, start, last: start };
        match pages.changes.entry(id) {
            Entry::Vacant(entry) => drop(entry.insert(smallvec![change])),
            Entry::Occupied(mut entry) if entry.get().len() >= CHANGES_MAX => {
                // If a level above the data files keeps the page, the page may change many times before the
                // data files get it.
                let changes = entry.get_mut();
                changes[CHANGES_MAX - 1].last = start;
                return;
            }
            Entry::Occupied(mut entry) => entry.get_mut().push(change),
        }
        pages.queue.push_back((start, id));
        pages.drop_stale();
    }

    /// Records that a stable image of the page with page LSN `image_lsn` exists. The image contains all
    /// changes that start before this LSN, so these are removed.
    pub fn stable(&self, id: PageId, image_lsn: Lsn) {
        let mut pages = self.pages.lock();
        if let Entry::Occupied(mut entry) = pages.changes.entry(id) {
            entry.get_mut().retain(|change| change.last >= image_lsn);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        pages.drop_stale();
    }

    /// Removes pages whose content is not needed any more. A discard record in the log makes redo skip them.
    pub fn forget(&self, ids: PageRange) {
        let mut pages = self.pages.lock();
        ids.pages().for_each(|id| drop(pages.changes.remove(&id)));
        pages.drop_stale();
    }

    /// Returns the LSN from which redo must read the log so that it repeats all changes in the table: the
    /// start of a log block. `None` means that all pages are stable.
    pub fn oldest(&self) -> Option<Lsn> {
        let mut pages = self.pages.lock();
        pages.drop_stale();
        let (_, id) = *pages.queue.front()?;
        pages.changes.get(&id).and_then(|changes| changes.first()).map(|change| change.block)
    }

    /// Appends up to `n` pages with the oldest recovery LSNs, oldest first.
    pub fn next_to_clean(&self, n: usize, out: &mut Vec<PageId>) {
        let pages = self.pages.lock();
        out.extend(
            pages.queue.iter().filter(|(start, id)| pages.is_current(*start, *id)).map(|(_, id)| *id).take(n),
        );
    }

    /// Returns whether the page has changes that no stable image holds.
    pub fn has(&self, id: PageId) -> bool {
        self.pages.lock().changes.contains_key(&id)
    }

    /// Does the same as `has`, for many pages.
    pub fn has_each(&self, ids: &[PageId]) -> Vec<bool> {
        let pages = self.pages.lock();
        ids.iter().map(|id| pages.changes.contains_key(id)).collect()
    }

    /// Returns whether an image with this page LSN contains all changes of the page that are in the table.
    pub fn is_held_by(&self, id: PageId, image_lsn: Lsn) -> bool {
        let pages = self.pages.lock();
        pages.changes.get(&id).is_none_or(|changes| changes.iter().all(|change| change.last < image_lsn))
    }

    /// Returns whether the table has a page that is changed in the pool, for assertions. A planted fault
    /// makes the result true.
    pub(crate) fn knows(&self, id: PageId) -> bool {
        self.has(id) || planted("ledger: every seventh page is forgotten")
    }

    /// Returns the LSN from which redo must read the log for this page. `None` means that the page is stable.
    pub fn since(&self, id: PageId) -> Option<Lsn> {
        self.pages.lock().changes.get(&id).and_then(|changes| changes.first()).map(|change| change.block)
    }

    /// Returns the number of pages that are not stable.
    pub fn pages_count(&self) -> usize {
        self.pages.lock().changes.len()
    }
}

impl Pages {
    fn is_current(&self, start: Lsn, id: PageId) -> bool {
        self.changes.get(&id).and_then(|changes| changes.first()).is_some_and(|oldest| oldest.start == start)
    }

    fn is_needed(&self, start: Lsn, id: PageId) -> bool {
        self.changes.get(&id).is_some_and(|changes| changes.iter().any(|change| change.start == start))
    }

    fn drop_stale(&mut self) {
        while self.queue.front().is_some_and(|(start, id)| !self.is_current(*start, *id)) {
            self.queue.pop_front();
        }
        // When the queue is this long, at most half of its entries are needed. So each entry is looked at
        // only a few times, however long the queue becomes.
        if self.queue.len() > 2 * CHANGES_MAX * self.changes.len() + STALE_ENTRIES_MIN {
            let mut queue = std::mem::take(&mut self.queue);
            queue.retain(|(start, id)| self.is_needed(*start, *id));
            self.queue = queue;
            #[cfg(test)]
            {
                self.gone_through += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    fn change(ledger: &Ledger, no: u32, lsn: u64) {
        ledger.first_change(page(no), Lsn::new(lsn), Lsn::new(lsn));
    }

    #[test]
    fn a_change_during_a_write_keeps_the_page() {
        let ledger = Ledger::default();
        change(&ledger, 1, 10);
        change(&ledger, 2, 20);
        change(&ledger, 1, 40); // an image with LSN 30 is on its way
        ledger.stable(page(1), Lsn::new(30));
        assert_eq!(ledger.oldest(), Some(Lsn::new(20)));
        ledger.stable(page(2), Lsn::new(25));
        assert_eq!(ledger.oldest(), Some(Lsn::new(40)));
        ledger.stable(page(1), Lsn::new(50));
        assert_eq!(ledger.oldest(), None);
    }

    #[test]
    fn an_image_does_not_hold_what_starts_at_its_lsn() {
        let ledger = Ledger::default();
        change(&ledger, 1, 10);
        change(&ledger, 1, 30);
        change(&ledger, 1, 50);
        ledger.stable(page(1), Lsn::new(30));
        assert_eq!(ledger.oldest(), Some(Lsn::new(30)));
    }

    #[test]
    fn cleaning_goes_by_recovery_lsn() {
        let ledger = Ledger::default();
        change(&ledger, 7, 10);
        change(&ledger, 3, 20);
        change(&ledger, 7, 30);
        ledger.stable(page(7), Lsn::new(25));
        let mut out = Vec::new();
        ledger.next_to_clean(9, &mut out);
        assert_eq!(out, [page(3), page(7)]);
        ledger.forget(PageRange { first: page(3), count: 1 });
        assert_eq!(ledger.oldest(), Some(Lsn::new(30)));
    }

    /// No change is lost, although only some changes are stored.
    #[test]
    fn a_page_that_changes_often_before_it_is_stable_stays() {
        let ledger = Ledger::default();
        (1..=10).for_each(|no| change(&ledger, 1, 10 * no));
        change(&ledger, 2, 200);
        assert_eq!(ledger.since(page(1)), Some(Lsn::new(10)));
        ledger.stable(page(1), Lsn::new(25));
        assert_eq!(ledger.oldest(), Some(Lsn::new(30)));
        for lsn in [45, 75, 100] {
            ledger.stable(page(1), Lsn::new(lsn));
            assert_eq!(ledger.oldest(), Some(Lsn::new(40)), "what is not told apart stays together: {lsn}");
        }
        ledger.stable(page(1), Lsn::new(101));
        assert_eq!((ledger.oldest(), ledger.pages_count()), (Some(Lsn::new(200)), 1));
    }

    #[test]
    fn redo_begins_at_the_block() {
        let ledger = Ledger::default();
        ledger.first_change(page(1), Lsn::new(512), Lsn::new(600));
        assert_eq!(ledger.oldest(), Some(Lsn::new(512)));
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let ledger = Ledger::default();
        change(&ledger, 1, 1);
        for lsn in 2..10_000 {
            change(&ledger, 2, lsn);
            ledger.stable(page(2), Lsn::new(lsn + 1));
        }
        assert!(ledger.pages.lock().queue.len() <= STALE_ENTRIES_MIN + 4 * CHANGES_MAX);
        assert_eq!(ledger.oldest(), Some(Lsn::new(1)));
    }

    /// All entries of the queue are needed, so searching it removes none.
    #[test]
    fn many_pages_with_several_changes_each_cost_no_search_at_every_change() {
        const PAGES: u32 = 3 * STALE_ENTRIES_MIN as u32;
        let ledger = Ledger::default();
        let mut lsn = 0;
        for _ in 0..CHANGES_MAX {
            for no in 0..PAGES {
                lsn += 1;
                change(&ledger, no, lsn);
            }
        }
        let pages = ledger.pages.lock();
        assert_eq!(pages.queue.len(), CHANGES_MAX * PAGES as usize);
        assert_eq!(pages.gone_through, 0);
    }
}
