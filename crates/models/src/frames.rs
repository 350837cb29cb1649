//! A small buffer pool with eight frames, for the models. The storage level below the pool and the log are in
//! memory. Both check the pool's invariants.
//!
//! The model records what has happened, so that its checks can use it. The records are protected by ordinary
//! mutexes, which the model checker does not see. No thread waits while it holds such a mutex, so the mutexes
//! add no step to the model.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::pager::base::image::Image;
use crate::pager::base::latch::{Mode, Shared, SharedExclusive};
use crate::pager::level::ledger::Ledger;
use crate::pager::level::{Cause, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::pager::log::{Appended, WriteAhead};
use crate::pager::pool::guard::Guard;
use crate::pager::pool::{PageS, PageX, Pool, PoolParts};
use crate::pager::{Access, Lsn, PageId, PageNo, PageRange, PagerError, Replacement, Result, SpaceId, page};
use crate::sync;

/// The smallest number of frames with which the replacer frees a frame.
const FRAMES: usize = 8;
/// The number of pages, which is larger than the number of frames.
pub(crate) const PAGES: u32 = 11;
const PAGE_BYTES: usize = 4096;
/// The number of steps that a write takes. Other threads may run in each of them.
const WRITE_STEPS: usize = 30;
/// The two offsets at which a page stores its number of changes.
const FIRST: usize = 200;
const SECOND: usize = 4000;

pub(crate) fn plain<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log that has only its end and its durable LSN.
#[derive(Default)]
pub(crate) struct ModelLog {
    end: sync::Mutex<u64>,
    durable: AtomicU64,
    stopped: AtomicBool,
}

impl WriteAhead for ModelLog {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.durable.load(SeqCst))
    }
    fn flush(&self, upto: Lsn) -> Result<()> {
        thread::yield_now();
        self.durable.fetch_max(upto.get(), SeqCst);
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        if self.stopped.load(SeqCst) {
            Err(PagerError::Stopped { cause: "the model".into() })
        } else {
            Ok(())
        }
    }
    fn stop(&self, _cause: &PagerError) {
        self.stopped.store(true, SeqCst);
    }
}

#[derive(Default)]
struct Stored {
    pages: HashMap<PageId, (Lsn, Vec<u8>)>,
    busy: HashSet<PageId>,
    discarded: HashSet<PageId>,
}

/// The level below the pool, with pages in memory. It checks that a page has only one operation at a time,
/// and that no older image follows a newer one.
pub(crate) struct ModelLevel {
    stored: Mutex<Stored>,
    ledger: Arc<Ledger>,
    log: Arc<ModelLog>,
    pub(crate) fails: AtomicBool,
}

impl ModelLevel {
    fn begin(&self, id: PageId, what: &str) {
        assert!(plain(&self.stored).busy.insert(id), "{what} of page {id} while it is read or written");
    }

    fn fetch(&self, id: PageId, into: &mut [u8]) -> Got {
        let stored = plain(&self.stored);
        let lsn = stored.pages.get(&id).map_or(Lsn::ZERO, |(lsn, bytes)| {
            into.copy_from_slice(bytes);
            *lsn
        });
        if lsn == Lsn::ZERO {
            into.fill(0);
            page::format(into, id, 16, 0);
        }
        Got { from: Tier::Home, lsn, taken: false }
    }

    fn keep(&self, image: &Image) {
        assert!(image.lsn() <= self.log.durable_lsn(), "page {} before its log", image.id());
        let mut stored = plain(&self.stored);
        assert!(
            !stored.discarded.contains(&image.id()),
            "page {} is written after it was discarded",
            image.id()
        );
        let newest = stored.pages.get(&image.id()).map_or(Lsn::ZERO, |(lsn, _)| *lsn);
        assert!(newest <= image.lsn(), "an older image of page {} after a newer", image.id());
        stored.pages.insert(image.id(), (image.lsn(), image.bytes().to_vec()));
    }
}

impl Level for ModelLevel {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        for run in runs {
            for (at, want) in run.want.iter_mut().enumerate() {
                let id = run.first.plus(at as u32);
                if let Want::Page { frame, got } = want {
                    self.begin(id, "a read");
                    thread::yield_now();
                    *got = Some(self.fetch(id, frame));
                    plain(&self.stored).busy.remove(&id);
                }
            }
        }
        Ok(())
    }

    fn put(&self, batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        batch.iter().for_each(|image| self.begin(image.id(), "a write"));
        (0..WRITE_STEPS).for_each(|_| thread::yield_now());
        let fails = self.fails.load(SeqCst);
        for image in batch {
            if !fails {
                self.keep(image);
                self.ledger.stable(image.id(), image.lsn());
            }
            plain(&self.stored).busy.remove(&image.id());
        }
        if fails { Err(PagerError::Corrupt { what: "the model says so".into() }) } else { Ok(()) }
    }

    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}
    fn changed(&self, _id: PageId) {}

    fn discard(&self, ids: PageRange, _after: Lsn) -> Result<()> {
        plain(&self.stored).discarded.extend(ids.pages());
        Ok(())
    }

    fn checkpoint(&self, _step: Step) -> Result<()> {
        Ok(())
    }
    fn drain(&self) -> Result<()> {
        Ok(())
    }
    fn report(&self) -> Vec<LevelReport> {
        Vec::new()
    }
}

/// A pool, the level below it, and the number of changes of each page.
pub(crate) struct PoolUnderTest {
    pub(crate) pool: Pool,
    pub(crate) level: Arc<ModelLevel>,
    pub(crate) ledger: Arc<Ledger>,
    log: Arc<ModelLog>,
    changes: Mutex<HashMap<PageId, u64>>,
}

pub(crate) fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

impl PoolUnderTest {
    /// Returns a pool in which every frame is in use, so that each miss evicts a page.
    pub(crate) fn new() -> Arc<PoolUnderTest> {
        Self::with(&[])
    }

    /// Makes the same pool as `new`, with these pages in the frames that are evicted first.
    pub(crate) fn with(first: &[u32]) -> Arc<PoolUnderTest> {
        let ledger = Arc::<Ledger>::default();
        let log = Arc::<ModelLog>::default();
        let level = Arc::new(ModelLevel {
            stored: Mutex::default(),
            ledger: ledger.clone(),
            log: log.clone(),
            fails: AtomicBool::new(false),
        });
        let parts = PoolParts {
            level: level.clone(),
            ledger: ledger.clone(),
            log: log.clone(),
            counters: Arc::default(),
        };
        let pool = Pool::new(FRAMES, PAGE_BYTES, Replacement::Clock, parts).expect("a small pool has room");
        let world = PoolUnderTest { pool, level, ledger, log, changes: Mutex::default() };
        let others = (0..PAGES).rev().filter(|no| !first.contains(no));
        first
            .iter()
            .copied()
            .chain(others)
            .take(FRAMES)
            .for_each(|no| drop(world.fixed_by::<Shared>(no, Access::Random)));
        Arc::new(world)
    }

    /// Checks that a latched page is the right one, and that it has all its changes.
    fn look<M: Mode>(&self, page: &Guard<'_, M>, no: u32) -> u64 {
        assert_eq!(
            (page.id(), page::page_identity(page)),
            (id(no), id(no)),
            "another page than the one asked for"
        );
        let expected = plain(&self.changes).get(&id(no)).copied().unwrap_or(0);
        assert_eq!(
            (number(page, FIRST), number(page, SECOND)),
            (expected, expected),
            "page {no} has lost a change"
        );
        expected
    }

    pub(crate) fn read(&self, no: u32) {
        if let Some(page) = self.fixed::<Shared>(no) {
            self.look(&page, no);
            thread::yield_now();
            self.look(&page, no);
        }
    }

    /// Fixes the page. Returns `None` if the model has made writes fail. Half of the calls are for scans,
    /// whose pages are evicted early.
    pub(crate) fn fixed<M: Mode>(&self, no: u32) -> Option<Guard<'_, M>> {
        let access = if thread_rng().gen_range(0..2) == 0 { Access::Sequential } else { Access::Random };
        self.fixed_by(no, access)
    }

    fn fixed_by<M: Mode>(&self, no: u32, access: Access) -> Option<Guard<'_, M>> {
        let fixed = self.pool.fix(id(no), access);
        assert!(
            fixed.is_ok() || self.level.fails.load(SeqCst),
            "page {no} can't be fixed: {:?}",
            fixed.err()
        );
        fixed.ok()
    }

    pub(crate) fn try_read(&self, no: u32) {
        if let Ok(Some(page)) = self.pool.try_fix(id(no), Access::Random) {
            let page: PageS<'_> = page;
            self.look(&page, no);
        }
    }

    /// Makes one change, as a mini-transaction does.
    pub(crate) fn change(&self, no: u32) {
        if let Some(page) = self.fixed(no) {
            self.change_latched(page, no);
        }
    }

    fn change_latched(&self, mut page: PageX<'_>, no: u32) {
        let next = self.look(&page, no) + 1;
        page.announce();
        set_number(&mut page, FIRST, next);
        thread::yield_now();
        set_number(&mut page, SECOND, next);
        let mut end = self.log.end.lock();
        let (start, new_end) = (Lsn::new(*end), Lsn::new(*end + 1));
        page.stamp(&Appended { block: start, start, end: new_end });
        *end += 1;
        drop(end);
        plain(&self.changes).insert(id(no), next);
    }

    /// Does the same as `change`, from a shared-exclusive latch.
    pub(crate) fn change_upgraded(&self, no: u32) {
        if let Some(page) = self.fixed::<SharedExclusive>(no) {
            self.look(&page, no);
            self.change_latched(page.upgrade(), no);
        }
    }
}

fn number(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

fn set_number(page: &mut PageX<'_>, at: usize, number: u64) {
    page.bytes_mut()[at..at + 8].copy_from_slice(&number.to_le_bytes());
}
