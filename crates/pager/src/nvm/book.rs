//! The book of the NVM page buffer: a table in memory that says which slot has the newest version of which
//! page, and the state of this version. A start rebuilds the table from the slots.
//!
//! ```text
//!              replace             begin_flush, end_flush            leave_clean, left
//!  (slot free) -------> Dirty ----------------------------> Clean ----------------> (slot free)
//!                        |  a refused flush leaves it Dirty   |
//!                        +---------------- doom --------------+--> Doomed -- leave_due, left --> (slot free)
//!  replace takes the place of any of them; the older slot is free, or its flusher frees it (end_flush).
//! ```
//!
//! - *Dirty*: the data files do not have this version.
//! - *Clean*: the data files have this version, durably. It serves reads until its slot is needed, or is
//!   found damaged.
//! - *Doomed*: the page was discarded. The version is neither read nor written to the data files. The slot is
//!   freed when the log record of the discard is durable.
//! - *Leaving*: a thread is freeing the slot. A thread that wants to put the page waits.
//!
//! Invariants
//! 1. A page has at most one entry. A slot is free, or belongs to an entry, or is used by one thread.
//! 2. A version is not removed while a put of its page is running, or while the version is read, checked or
//!    flushed. A put waits for a check, but not for a flush.
//! 3. Only one version of a page at a time is being written to the data files. So an older version is never
//!    written after a newer one.
//! 4. Sequence numbers grow. Of two versions, the one with the larger sequence is newer, whatever their LSNs
//!    are (decision 0205).
//! 5. If a full device refuses a version, the flush continues with the others. It returns to the refused
//!    version after all versions that were dirty then have been tried. `home_order.rs` says which version is
//!    flushed first.
//! 6. A put, read or flush looks only at versions that it takes, and at versions in use among them.
//!
//! This module does not know the region, the data files, the log, or how threads wait.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rustc_hash::FxHashMap;

use varve_device::planted;

use super::home_order::HomeOrder;
use crate::base::ids::{PageId, PageRange};
use crate::base::lsn::Lsn;

/// The name of a planted fault.
const REUSED: &str = "nvm: a superseded slot is reused while it is written home";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Dirty,
    Clean,
    Doomed { after: Lsn },
    Leaving,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) slot: u32,
    pub(crate) sequence: u64,
    pub(crate) lsn: Lsn,
    pub(crate) state: State,
    /// The page was put a short time before, too.
    is_again: bool,
    readers: u32,
    is_held: bool,
    /// Whether `check` is comparing the version with its slot and with the data files.
    is_looked_at: bool,
    is_flushing: bool,
    /// Number of older versions of the page that are still being written to the data files.
    older_flights: u32,
}

impl Entry {
    fn is_in_use(&self) -> bool {
        !self.can_go_home() || self.readers > 0
    }

    /// Returns whether no thread uses the version, except readers.
    fn can_go_home(&self) -> bool {
        let is_home_busy = self.is_flushing || self.older_flights > 0;
        !self.is_held && !self.is_looked_at && !is_home_busy
    }
}

/// A version of a page in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) id: PageId,
    pub(crate) slot: u32,
    pub(crate) sequence: u64,
    pub(crate) lsn: Lsn,
}

/// The result of a put's look-up of its page in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OlderVersion {
    /// No version.
    None,
    /// There is an older version in this slot. No thread removes it until `replace`.
    Older(u32),
    /// Another thread frees or checks the version. The put must wait, and ask again.
    Wait,
}

/// The book of all slots.
#[derive(Debug)]
pub(crate) struct Book {
    entries: FxHashMap<PageId, Entry>,
    /// The free slots. The slot that was freed first is used first, so that all slots wear equally.
    free: VecDeque<u32>,
    /// The dirty versions.
    dirty: HomeOrder,
    /// The pages of the clean versions, by sequence.
    clean: BTreeMap<u64, PageId>,
    /// The pages of the doomed versions, by the LSN up to which the log must be durable, and by sequence.
    doomed: BTreeMap<(Lsn, u64), PageId>,
    next_sequence: u64,
    /// Number of threads that wait for a change of the book. If it is zero, changes need not be reported.
    pub(super) waiting: usize,
}

impl Book {
    /// Returns the book after recovery: the slots that are free, and the versions that were found. The data
    /// files may lack these versions.
    pub(crate) fn new(free: VecDeque<u32>, found: impl Iterator<Item = Version>) -> Book {
        let found: Vec<Version> = found.collect();
        let mut book = Book {
            entries: FxHashMap::default(),
            dirty: HomeOrder::new(free.len() + found.len()),
            free,
            clean: BTreeMap::new(),
            doomed: BTreeMap::new(),
            next_sequence: 1,
            waiting: 0,
        };
        for version in found {
            book.next_sequence = book.next_sequence.max(version.sequence + 1);
            book.enter(version, false);
        }
        book
    }

    fn enter(&mut self, Version { id, slot, sequence, lsn }: Version, is_again: bool) -> Option<Entry> {
        self.dirty.insert(sequence, id, is_again);
        let (state, readers) = (State::Dirty, 0);
        let (is_held, is_looked_at, is_flushing, older_flights) = (false, false, false, 0);
        let entry = Entry {
            slot,
            sequence,
            lsn,
            state,
            is_again,
            readers,
            is_held,
            is_looked_at,
            is_flushing,
            older_flights,
        };
        self.entries.insert(id, entry)
    }

    /// Takes `count` free slots, or none.
    pub(crate) fn take_free(&mut self, count: usize) -> Option<Vec<u32>> {
        (self.free.len() >= count).then(|| self.free.drain(..count).collect())
    }

    /// Reserves sequence numbers for `count` puts, and returns the first one.
    pub(crate) fn take_sequences(&mut self, count: usize) -> u64 {
        let first = self.next_sequence;
        self.next_sequence += count as u64;
        first
    }

    /// Begins a put of the page.
    pub(crate) fn hold(&mut self, id: PageId) -> OlderVersion {
        let Some(entry) = self.entries.get_mut(&id) else { return OlderVersion::None };
        if entry.state == State::Leaving || entry.is_looked_at {
            return OlderVersion::Wait;
        }
        assert!(!entry.is_held && entry.readers == 0, "page {id} is put and used at the same time");
        entry.is_held = true;
        OlderVersion::Older(entry.slot)
    }

    /// Ends a put of a page: the new version becomes the page's version. The caller has already marked the
    /// older version's slot in persistent memory as free, durably. This function makes that slot available
    /// again, unless a flushing thread still uses it.
    pub(crate) fn replace(&mut self, new: Version) {
        let is_served = |entry: &Entry| matches!(entry.state, State::Dirty | State::Clean);
        let is_again = self.entries.get(&new.id).is_some_and(is_served) || self.dirty.recall(new.id);
        let Some(old) = self.enter(new, is_again) else { return };
        assert!(old.is_held && old.sequence < new.sequence, "page {} was put without being held", new.id);
        self.strike(&old);
        if let Some(entry) = self.entries.get_mut(&new.id) {
            entry.older_flights = old.older_flights + u32::from(old.is_flushing && !planted(REUSED));
        }
        if !old.is_flushing || planted(REUSED) {
            self.free.push_back(old.slot);
        }
    }

    /// Removes a version from the list for its state.
    fn strike(&mut self, entry: &Entry) {
        let sequence = entry.sequence;
        let struck = match entry.state {
            State::Dirty => self.dirty.remove(sequence, entry.is_again),
            State::Clean => self.clean.remove(&sequence),
            State::Doomed { after } => self.doomed.remove(&(after, sequence)),
            State::Leaving => return,
        };
        assert!(struck.is_some(), "version {sequence} is in no list");
    }

    /// Begins a read: returns the version, which stays until `end_read`, and whether the data files have it,
    /// too.
    pub(crate) fn begin_read(&mut self, id: PageId) -> Option<(Version, bool)> {
        let entry = self.entries.get_mut(&id)?;
        if !matches!(entry.state, State::Dirty | State::Clean) {
            return None;
        }
        entry.readers += 1;
        Some((entry.version(id), entry.state == State::Clean))
    }

    /// Ends a read. Returns whether a thread waits for a change of the book.
    pub(crate) fn end_read(&mut self, id: PageId) -> bool {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.readers -= 1;
        }
        self.waiting > 0
    }

    /// Begins a check of a page. Returns its version and state, which stay until `end_look`. Returns `None`
    /// if there is no version, or if another thread stores to its slot.
    pub(crate) fn begin_look(&mut self, id: PageId) -> Option<(Version, State)> {
        let entry = self.entries.get_mut(&id)?;
        // While a version is being flushed, it is open which version the data files have.
        let is_home_busy = entry.is_flushing || entry.older_flights > 0;
        if entry.is_held || entry.is_looked_at || is_home_busy || entry.state == State::Leaving {
            return None;
        }
        entry.is_looked_at = true;
        Some((entry.version(id), entry.state))
    }

    pub(crate) fn end_look(&mut self, id: PageId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.is_looked_at = false;
        }
    }

    /// Returns the dirty versions to write to the data files next, at most `max`. During a round after a
    /// refusal these are only versions that the round has not tried yet.
    pub(crate) fn begin_flush(&mut self, max: usize) -> Vec<Version> {
        let (entries, mut begun) = (&mut self.entries, Vec::new());
        self.dirty.next(max, |id| {
            let Some(entry) = entries.get_mut(&id) else { return false };
            let can_go = entry.can_go_home();
            if can_go {
                entry.is_flushing = true;
                begun.push(entry.version(id));
            }
            can_go
        });
        begun
    }

    /// Does the same as `begin_flush`, for those of these pages that are dirty, and that no other thread
    /// uses.
    pub(crate) fn begin_flush_of(&mut self, ids: &[PageId]) -> Vec<Version> {
        let mut begun = Vec::new();
        for id in ids {
            let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.can_go_home()) else { continue };
            if entry.state == State::Dirty {
                entry.is_flushing = true;
                begun.push(entry.version(*id));
            }
        }
        begun
    }

    /// Returns whether the buffer has a version of the page that the data files lack.
    pub(crate) fn is_dirty(&self, id: PageId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.state == State::Dirty)
    }

    /// Notes that a full device refused these versions. All other versions that are dirty now are tried
    /// before them.
    pub(crate) fn pass_over(&mut self, refused: impl Iterator<Item = Version>) {
        for version in refused {
            let entry = self.entries.get(&version.id).filter(|entry| entry.sequence == version.sequence);
            if let Some(entry) = entry {
                self.dirty.pass_over(version.sequence, entry.is_again, self.next_sequence);
            }
        }
    }

    /// Ends a round after a refusal, because all versions were tried. Returns whether there was such a round.
    pub(crate) fn begin_turn(&mut self) -> bool {
        self.dirty.begin_turn()
    }

    /// Ends the flush of a version. `is_home` says that the data files have exactly this image, durably.
    pub(crate) fn end_flush(&mut self, version: &Version, is_home: bool) {
        match self.entries.get_mut(&version.id) {
            Some(entry) if entry.sequence == version.sequence => {
                entry.is_flushing = false;
                if is_home && entry.state == State::Dirty {
                    entry.state = State::Clean;
                    self.dirty.remove(version.sequence, entry.is_again);
                    self.clean.insert(version.sequence, version.id);
                }
            }
            Some(_) if planted(REUSED) => {}
            // A newer version has taken its place meanwhile.
            Some(entry) => {
                entry.older_flights -= 1;
                self.free.push_back(version.slot);
            }
            None => unreachable!("a page is not forgotten while a version of it is being written home"),
        }
    }

    /// Begins to free up to `max` slots whose versions the data files have, oldest first. The caller frees
    /// the slots durably, and then calls `left`.
    pub(crate) fn leave_clean(&mut self, max: usize) -> Vec<Version> {
        let oldest = self.clean.values().copied().filter(|id| !self.is_in_use(*id)).take(max);
        let oldest: Vec<PageId> = oldest.collect();
        self.leave(oldest)
    }

    /// Does the same as `leave_clean`, for this version, if it is still in its slot, the data files have it,
    /// and no thread uses it.
    pub(crate) fn leave_if_clean(&mut self, version: &Version) -> Vec<Version> {
        let can_leave = |entry: &Entry| {
            entry.sequence == version.sequence && entry.state == State::Clean && !entry.is_in_use()
        };
        let leaving = self.entries.get(&version.id).filter(|entry| can_leave(entry)).map(|_| version.id);
        self.leave(leaving.into_iter().collect())
    }

    /// Does the same as `leave_clean`, for versions of discarded pages. The log is durable up to `durable`,
    /// so no crash brings these pages back.
    pub(crate) fn leave_due(&mut self, durable: Lsn, max: usize) -> Vec<Version> {
        let due = self.doomed.range(..=(durable, u64::MAX)).map(|(_, id)| *id);
        let due: Vec<PageId> = due.filter(|id| !self.is_in_use(*id)).take(max).collect();
        self.leave(due)
    }

    /// Does the same as `leave_clean`, after recovery, for versions of pages that are beyond the end of their
    /// file.
    pub(crate) fn leave_unless(&mut self, has_place: impl Fn(PageId) -> bool) -> Vec<Version> {
        let can_leave = |(id, entry): &(&PageId, &Entry)| {
            !has_place(**id) && !entry.is_in_use() && entry.state != State::Leaving
        };
        let placeless: Vec<PageId> = self.entries.iter().filter(can_leave).map(|(id, _)| *id).collect();
        self.leave(placeless)
    }

    fn is_in_use(&self, id: PageId) -> bool {
        self.entries.get(&id).is_some_and(Entry::is_in_use)
    }

    fn leave(&mut self, ids: Vec<PageId>) -> Vec<Version> {
        let mut leaving = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            let before = *entry;
            entry.state = State::Leaving;
            if before.state == State::Clean && !before.is_again {
                self.dirty.remember(id);
            }
            self.strike(&before);
            leaving.push(before.version(id));
        }
        leaving
    }

    /// Ends the freeing of these versions, whose slots are durably free.
    pub(crate) fn left(&mut self, versions: &[Version]) {
        for version in versions {
            let gone = self.entries.remove(&version.id);
            let is_it = gone.is_some_and(|entry| entry.sequence == version.sequence && !entry.is_in_use());
            assert!(is_it, "page {} was put while its slot was being retired", version.id);
            self.free.push_back(version.slot);
        }
    }

    /// Marks pages as discarded: their content is not needed once the log is durable up to `after`. Returns
    /// whether one of them is still being read, flushed or retired. Then the caller waits and calls this
    /// again.
    pub(crate) fn doom(&mut self, ids: PageRange, after: Lsn) -> bool {
        let mut is_busy = false;
        for id in self.among(ids) {
            is_busy |= self.doom_one(id, after);
        }
        is_busy
    }

    /// Returns those of these pages that have a version.
    pub(crate) fn among(&self, ids: PageRange) -> Vec<PageId> {
        if ids.count as usize <= self.entries.len() {
            ids.pages().filter(|id| self.entries.contains_key(id)).collect()
        } else {
            self.entries.keys().copied().filter(|id| ids.contains(*id)).collect()
        }
    }

    fn doom_one(&mut self, id: PageId, after: Lsn) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        assert!(!entry.is_held, "page {id} is discarded while it is put");
        let (before, sequence, is_busy) = (*entry, entry.sequence, entry.is_in_use());
        if before.state == State::Leaving {
            return true;
        }
        // The earliest durable record of a discard of the page is enough.
        let after = entry.doomed_after().map_or(after, |earlier| earlier.min(after));
        entry.state = State::Doomed { after };
        self.strike(&before);
        self.doomed.insert((after, sequence), id);
        is_busy
    }

    /// Returns the LSN up to which the log must be durable so that the slot of some discarded page can be
    /// freed.
    pub(crate) fn next_due(&self) -> Option<Lsn> {
        self.doomed.iter().find(|(_, id)| !self.is_in_use(**id)).map(|((after, _), _)| *after)
    }

    /// Returns the numbers of free slots, and of dirty, clean and doomed versions.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [self.free.len(), self.dirty.len(), self.clean.len(), self.doomed.len()]
    }

    /// Returns all versions with their states, in the order of pages.
    pub(crate) fn versions(&self) -> Vec<(Version, State)> {
        let mut all: Vec<_> =
            self.entries.iter().map(|(id, entry)| (entry.version(*id), entry.state)).collect();
        all.sort_unstable_by_key(|(version, _)| version.id);
        all
    }

    /// Returns some of the free slots, by their positions in the list.
    pub(crate) fn free(&self, places: Range<usize>) -> impl Iterator<Item = u32> {
        self.free.iter().copied().skip(places.start).take(places.len())
    }
}

impl Entry {
    fn version(&self, id: PageId) -> Version {
        Version { id, slot: self.slot, sequence: self.sequence, lsn: self.lsn }
    }

    fn doomed_after(&self) -> Option<Lsn> {
        match self.state {
            State::Doomed { after } => Some(after),
            _ => None,
        }
    }
}
