//! Finding again what is in the slots; and comparing it with what memory and home say.
//!
//! Invariants
//! 1. Of several versions of a page the one with the largest sequence stays. It is written back before the others are retired: a
//!    killed process may have left it in caches. Words that freed a slot as well, so all headers are: else a power failure later
//!    brings back a version that this start took for gone.
//! 2. A published slot that makes no sense is an error: no crash leaves one. Home's older page is never taken instead.
//! 3. Doing this twice is doing it once: only what has a durable newer version, or no place in its file, is
//!    retired. (A page that was freed keeps its slot: redo may begin before that again, and home may never have had the page.)
//!
//! Not known here: redo.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use varve_device::{planted, reached};

use super::area::{PageArea, Slot};
use super::book::{Book, State, Version};
use super::buffer::{NvmBuffer, NvmCounters};
use super::marks::Marks;
use crate::config::NvmFlush;
use crate::error::{PagerError, Result};
use crate::ids::{Access, PageId};
use crate::ledger::Ledger;
use crate::level::{Level, Run, Want};
use crate::lsn::Lsn;
use crate::page::PageDamage;
use crate::pool::WriteAhead;

/// What the slots hold.
struct Found {
    free: Vec<u32>,
    newest: HashMap<PageId, Version>,
    older: Vec<Version>,
}

impl NvmBuffer {
    /// The level over the slots of a region, with what is in them.
    pub(crate) fn open(
        area: PageArea,
        flush: NvmFlush,
        home: Arc<dyn Level>,
        ledger: Arc<Ledger>,
        log: Arc<dyn WriteAhead>,
    ) -> Result<NvmBuffer> {
        let found = scan(&area, log.durable_lsn())?;
        let mut free = found.free;
        area.write_back_headers();
        found.newest.values().for_each(|version| area.write_back_page(version.slot));
        area.fence();
        if !found.older.is_empty() {
            reached("nvm: two versions found");
            found.older.iter().for_each(|version| area.retire(version.slot));
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
            counters: NvmCounters::default(),
        })
    }

    /// Before redo: the pages that have a version, and its LSN.
    pub(crate) fn held(&self) -> impl Iterator<Item = (PageId, Lsn)> + use<> {
        let versions = self.book.lock().versions();
        versions.into_iter().map(|(version, _)| (version.id, version.lsn))
    }

    /// After redo: pages that lie behind the end of their file have no version.
    pub(crate) fn keep_used(&self, is_used: impl Fn(PageId) -> bool) {
        let unused = self.book.lock().leave_unless(is_used);
        if !unused.is_empty() {
            reached("nvm: unallocated slot retired");
        }
        self.retire(&unused);
    }

    /// Compares the slots with the book, and home with the slots. Nobody writes meanwhile.
    pub(super) fn check_slots(&self, damages: &mut Vec<String>) -> Result<()> {
        let (versions, free) = {
            let book = self.book.lock();
            (book.versions(), book.free())
        };
        for slot in free {
            if self.area.header(slot) != Slot::Free {
                damages.push(self.area.damaged(slot, "nobody owns it and it is published").to_string());
            }
        }
        let mut buf = self.area.buffer();
        for (version, state) in versions {
            let checked =
                self.load(&version, &mut buf).and_then(|()| self.check_home(&version, state, &mut buf));
            match checked {
                Err(damage @ (PagerError::Corrupt { .. } | PagerError::DamagedPage { .. })) => {
                    damages.push(damage.to_string());
                }
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Home has what a clean version says, and nothing newer than a dirty one.
    fn check_home(&self, version: &Version, state: State, buf: &mut [u8]) -> Result<()> {
        let mut want = [Want::Page { frame: buf, got: None }];
        let read = self.home.read(&mut [Run { first: version.id, want: &mut want }], Access::Sequential);
        let [Want::Page { got, .. }] = want else { return Ok(()) };
        let at_home = got.filter(|_| read.is_ok()).map(|got| got.lsn);
        match state {
            State::Clean if at_home != Some(version.lsn) => {
                Err(self.area.damaged(version.slot, "home should have the same image and has not"))
            }
            // A crash lost the note that home has the page, and its slot was free: redo made it anew and put an early state.
            // Its changes are in the pool now.
            State::Dirty if at_home.is_some_and(|lsn| lsn > version.lsn) && !self.ledger.has(version.id) => {
                Err(self.area.damaged(version.slot, "home has a newer image"))
            }
            _ => Ok(()),
        }
    }
}

fn scan(area: &PageArea, durable: Lsn) -> Result<Found> {
    let mut found = Found { free: Vec::new(), newest: HashMap::new(), older: Vec::new() };
    let mut buf = area.buffer();
    for slot in 0..area.slots() {
        let header = match area.header(slot) {
            Slot::Free => {
                found.free.push(slot);
                continue;
            }
            Slot::Damaged(why) => return Err(area.damaged(slot, why)),
            Slot::Published(header) => header,
        };
        area.load(slot, &mut buf);
        if !planted("nvm: slot images are not verified") {
            area.verify(slot, &header, &buf)?;
        }
        if header.lsn > durable {
            let damage = PageDamage::BeyondLog { lsn: header.lsn, durable };
            return Err(PagerError::DamagedPage { id: header.id, damage });
        }
        let (id, sequence, lsn) = (header.id, header.sequence, header.lsn);
        found.add(Version { id, slot, sequence, lsn });
    }
    Ok(found)
}

impl Found {
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
