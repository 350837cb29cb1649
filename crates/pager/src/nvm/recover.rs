//! Recovery of the page slots in persistent memory. The module also has a check, which compares the slots
//! with the table in memory and with the data files.
//!
//! Invariants
//! 1. If slots have several versions of a page, the version with the largest sequence stays. Its cache lines
//!    are written back before the slots of the other versions are freed, because a killed process may have
//!    left it in processor caches. All slot headers are written back, too. Otherwise a later power failure
//!    could bring back an old version.
//! 2. A published slot with inconsistent contents is an error, because no crash leaves such a slot. The older
//!    page in the data files is never used instead.
//! 3. Recovery may run again, and gives the same result. It frees only two kinds of slots: those whose page
//!    has a durable newer version, and those whose page is beyond the end of its file after redo. A freed
//!    page keeps its slot, because redo may begin before the freeing again, and the data files may not have
//!    the page.
//! 4. While a check reads a slot, no thread stores to the slot. A put of that page waits until the check is
//!    done.
//!
//! This module does not know redo.

use std::collections::hash_map::Entry;
use std::iter::once;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use varve_device::{planted, reached};

use super::area::{PageArea, Slot, SlotHeader};
use super::book::{Book, State, Version};
use super::buffer::{NvmBuffer, NvmCounters};
use super::marks::Marks;
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId};
use crate::base::lsn::Lsn;
use crate::base::page::PageDamage;
use crate::base::times::Times;
use crate::level::ledger::Ledger;
use crate::level::{Level, Run, Want};
use crate::log::WriteAhead;
use crate::nvm::NvmFlush;

/// The number of free slots that a check examines while it holds the lock once.
const LOOKED_AT_ONCE: usize = 1024;

/// A scan uses another thread only if each thread has at least this many slots.
const THREAD_SLOTS_MIN: u32 = 8192;
const THREADS_MAX: u32 = 8;

/// The versions that a scan found in the slots.
#[derive(Default)]
struct SlotVersions {
    free: Vec<u32>,
    newest: FxHashMap<PageId, Version>,
    older: Vec<Version>,
}

impl NvmBuffer {
    /// Opens the level, with the versions in the slots of a region.
    pub(crate) fn open(
        area: PageArea,
        flush: NvmFlush,
        home: Arc<dyn Level>,
        ledger: Arc<Ledger>,
        log: Arc<dyn WriteAhead>,
        times: Arc<Times>,
    ) -> Result<NvmBuffer> {
        let found = scan(&area, log.durable_lsn())?;
        let mut free = found.free;
        area.begin_write_back_headers();
        found.newest.values().for_each(|version| area.begin_write_back_page(version.slot));
        area.fence();
        if !found.older.is_empty() {
            reached("nvm: two versions found");
            found.older.iter().for_each(|version| area.begin_retire(version.slot));
            area.fence();
            free.extend(found.older.iter().map(|version| version.slot));
        }
        let book = Book::new(free.into(), found.newest.into_values());
        Ok(NvmBuffer {
            marks: Marks::new(flush, area.slots()),
            bell: Condvar::new(),
            area,
            book: Mutex::new(book),
            changed: Condvar::new(),
            home,
            ledger,
            log,
            times,
            counters: NvmCounters::default(),
        })
    }

    /// Is called before redo. Returns the pages that have a version, with the LSN of the version.
    pub(crate) fn held(&self) -> impl Iterator<Item = (PageId, Lsn)> + use<> {
        let versions = self.book.lock().versions();
        versions.into_iter().map(|(version, _)| (version.id, version.lsn))
    }

    /// Is called after redo. Frees the slots of pages that are beyond the end of their file.
    pub(crate) fn keep_placed(&self, has_place: impl Fn(PageId) -> bool) {
        let placeless = self.book.lock().leave_unless(has_place);
        if !placeless.is_empty() {
            reached("nvm: unallocated slot retired");
        }
        self.retire(&placeless);
    }

    /// Compares the slots with the book, and the data files with the slots. Page writers and flushing threads
    /// may run meanwhile.
    pub(super) fn check_slots(&self, damages: &mut Vec<String>) -> Result<()> {
        self.check_free(damages);
        let versions = self.book.lock().versions();
        let mut buf = self.area.buffer();
        for (version, _) in versions {
            // Versions that were removed meanwhile, or that another thread uses, are not checked.
            let Some((version, state)) = self.book.lock().begin_look(version.id) else { continue };
            let checked =
                self.load(&version, &mut buf).and_then(|()| self.check_home(&version, state, &mut buf));
            self.book.lock().end_look(version.id);
            self.changed.notify_all();
            match checked {
                Err(damage @ (PagerError::Corrupt { .. } | PagerError::DamagedPage { .. })) => {
                    damages.push(damage.to_string());
                }
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Checks the free slots. A slot in the list of free slots has no owner as long as the book is locked.
    /// Slots that move in the list between two steps of the check may be missed.
    fn check_free(&self, damages: &mut Vec<String>) {
        for from in (0..self.area.slots() as usize).step_by(LOOKED_AT_ONCE) {
            let book = self.book.lock();
            let published =
                book.free(from..from + LOOKED_AT_ONCE).filter(|slot| self.area.is_published(*slot));
            let damage = |slot| self.area.damaged(slot, "nobody owns it and it is published").to_string();
            damages.extend(published.map(damage));
        }
    }

    /// Checks the data files: they must have the same version as a clean slot, and no newer version than a
    /// dirty one.
    fn check_home(&self, version: &Version, state: State, buf: &mut [u8]) -> Result<()> {
        let mut want = [Want::Page { frame: buf, got: None }];
        let read = self.home.read(&mut [Run { first: version.id, want: &mut want }], Access::Sequential);
        let [Want::Page { got, .. }] = want else { return Ok(()) };
        let at_home = got.filter(|_| read.is_ok()).map(|got| got.lsn);
        match state {
            State::Clean if at_home != Some(version.lsn) => {
                Err(self.area.damaged(version.slot, "home should have the same image and has not"))
            }
            // A crash lost the log record of the write to the data files, and the slot was free. So redo made
            // the page anew and put an early version. The later changes are in the pool now.
            State::Dirty if at_home.is_some_and(|lsn| lsn > version.lsn) && !self.ledger.has(version.id) => {
                Err(self.area.damaged(version.slot, "home has a newer image"))
            }
            _ => Ok(()),
        }
    }
}

/// Scans all slots. In a large area several threads do this.
fn scan(area: &PageArea, durable: Lsn) -> Result<SlotVersions> {
    let threads = (area.slots() / THREAD_SLOTS_MIN).clamp(1, THREADS_MAX);
    let step = area.slots().div_ceil(threads);
    let part = &|no: u32| scan_slots(area, durable, no * step..((no + 1) * step).min(area.slots()));
    let parts: Vec<Result<SlotVersions>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|no| scope.spawn(move || part(no))).collect();
        // Planted faults and counters of tests belong to this thread, so it also scans a part.
        let first = part(0);
        let others = others.into_iter().map(|scan| scan.join().unwrap_or_else(|panic| resume_unwind(panic)));
        once(first).chain(others).collect()
    });
    let mut found = SlotVersions::default();
    parts.into_iter().try_for_each(|part| part.map(|part| found.merge(part)))?;
    found.check_sequences(area)?;
    Ok(found)
}

fn scan_slots(area: &PageArea, durable: Lsn, slots: Range<u32>) -> Result<SlotVersions> {
    let mut found = SlotVersions::default();
    let mut buf = area.buffer();
    for slot in slots {
        match area.header(slot) {
            Slot::Free => found.free.push(slot),
            Slot::Damaged(why) => return Err(area.damaged(slot, why)),
            Slot::Published(header) => found.add(whole_version(area, durable, slot, &header, &mut buf)?),
        }
    }
    Ok(found)
}

/// Returns the version in a published slot. It is an error if the version is not whole, or is newer than the
/// log.
fn whole_version(
    area: &PageArea,
    durable: Lsn,
    slot: u32,
    header: &SlotHeader,
    buf: &mut [u8],
) -> Result<Version> {
    area.load(slot, buf);
    if !planted("nvm: slot images are not verified") {
        area.verify(slot, header, buf)?;
    }
    let SlotHeader { id, lsn, sequence, .. } = *header;
    if lsn > durable {
        return Err(PagerError::DamagedPage { id, damage: PageDamage::BeyondLog { lsn, durable } });
    }
    Ok(Version { id, slot, sequence, lsn })
}

impl SlotVersions {
    /// Returns an error if two versions have the same sequence number, because it is unknown which one is
    /// newer.
    fn check_sequences(&self, area: &PageArea) -> Result<()> {
        let all = self.newest.values().chain(&self.older);
        let mut numbers: Vec<(u64, u32)> = all.map(|version| (version.sequence, version.slot)).collect();
        numbers.sort_unstable();
        let twice = numbers.windows(2).find(|two| two[0].0 == two[1].0);
        twice.map_or(Ok(()), |two| Err(area.damaged(two[1].1, "another slot has the number of its put")))
    }

    fn merge(&mut self, other: SlotVersions) {
        self.free.extend(other.free);
        self.older.extend(other.older);
        other.newest.into_values().for_each(|version| self.add(version));
    }

    fn add(&mut self, version: Version) {
        match self.newest.entry(version.id) {
            Entry::Vacant(entry) => drop(entry.insert(version)),
            Entry::Occupied(mut entry) => {
                let is_newer = version.sequence > entry.get().sequence;
                let keeps_older = planted("nvm: recovery takes the older version");
                let older = if is_newer != keeps_older { entry.insert(version) } else { version };
                self.older.push(older);
            }
        }
    }
}
