//! Tests of the buffer pool in which several threads use one page. The level and the log below are models
//! that stop where a test needs it.
//!
//! This module does not know devices or mini-transactions.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::base::ids::{PageNo, SpaceId};
use crate::base::image::Image;
use crate::base::latch::{Exclusive, Shared};
use crate::base::page;
use crate::level::{Cause, Got, LevelReport, Need, Run, Step, Tier, Want};
use crate::log::{Appended, WriteAhead};
use crate::pool::*;

/// A level that serves formatted pages, counts, and calls back during a put.
#[derive(Default)]
struct TestLevel {
    reads: AtomicUsize,
    fails: AtomicBool,
    slow: AtomicBool,
    puts: Mutex<Vec<(PageId, Lsn)>>,
    /// The number of pages of each put.
    batches: Mutex<Vec<usize>>,
    /// The largest number of pages of one put. 0 means any number.
    most: AtomicUsize,
    /// The number of the put that fails, counted from 1. 0 means that none fails.
    failing: AtomicUsize,
    discards: Mutex<Vec<(PageRange, Lsn)>>,
    during_put: Mutex<Option<Box<dyn FnMut() + Send>>>,
    ledger: Arc<Ledger>,
    log: Arc<TestLog>,
}

#[derive(Default)]
struct TestLog {
    durable: AtomicU64,
    stopped: AtomicBool,
}

impl WriteAhead for TestLog {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.durable.load(SeqCst))
    }
    fn flush(&self, upto: Lsn) -> Result<()> {
        self.durable.fetch_max(upto.get(), SeqCst);
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        if self.stopped.load(SeqCst) { Err(PagerError::Stopped { cause: "test".into() }) } else { Ok(()) }
    }
    fn stop(&self, _cause: &PagerError) {
        self.stopped.store(true, SeqCst);
    }
}

impl TestLevel {
    fn failure() -> PagerError {
        PagerError::Corrupt { what: "the test says so".into() }
    }
}

impl Level for TestLevel {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        self.reads.fetch_add(1, SeqCst);
        if self.slow.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.fails.load(SeqCst) {
            return Err(Self::failure());
        }
        for run in runs {
            for (at, want) in run.want.iter_mut().enumerate() {
                let Want::Page { frame, got } = want else { continue };
                frame.fill(0);
                page::format(frame, run.first.plus(at as u32), 16, 0);
                *got = Some(Got { from: Tier::Home, lsn: Lsn::ZERO, taken: false });
            }
        }
        Ok(())
    }
    fn put(&self, batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        if let Some(run) = &mut *self.during_put.lock() {
            run();
        }
        self.batches.lock().push(batch.len());
        if self.fails.load(SeqCst) || self.failing.load(SeqCst) == self.batches.lock().len() {
            return Err(Self::failure());
        }
        for image in batch {
            assert!(image.lsn() <= self.log.durable_lsn(), "page before log");
            self.ledger.stable(image.id(), image.lsn());
            self.puts.lock().push((image.id(), image.lsn()));
        }
        Ok(())
    }
    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}
    fn changed(&self, _id: PageId) {}
    fn discard(&self, ids: PageRange, after: Lsn) -> Result<()> {
        self.discards.lock().push((ids, after));
        Ok(())
    }
    fn put_pages_max(&self) -> usize {
        match self.most.load(SeqCst) {
            0 => usize::MAX,
            most => most,
        }
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

fn pool(frames: usize) -> (Arc<Pool>, Arc<TestLevel>) {
    let ledger = Arc::<Ledger>::default();
    let log = Arc::<TestLog>::default();
    let level = Arc::new(TestLevel { ledger: ledger.clone(), log: log.clone(), ..TestLevel::default() });
    let parts = PoolParts { level: level.clone(), ledger, log, counters: Arc::default() };
    (Arc::new(Pool::new(frames, 4096, Replacement::Clock, parts).unwrap()), level)
}

fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

fn change(pool: &Pool, no: u32, lsn: u64) {
    let mut page: PageX<'_> = pool.fix(id(no), Access::Random).unwrap();
    let (start, end) = (Lsn::new(lsn), Lsn::new(lsn + 1));
    page.stamp(&Appended { block: start, start, end });
}

#[test]
fn a_page_that_many_miss_is_read_once() {
    let (pool, level) = pool(64);
    level.slow.store(true, SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(pool.fix::<Shared>(id(7), Access::Random).unwrap().id(), id(7)));
        }
    });
    assert_eq!(level.reads.load(SeqCst), 1);
}

#[test]
fn a_failed_read_fails_for_all_and_leaves_no_trace() {
    let (pool, level) = pool(64);
    level.slow.store(true, SeqCst);
    level.fails.store(true, SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(pool.fix::<Shared>(id(7), Access::Random).is_err()));
        }
    });
    assert_eq!(pool.free_count(), 64);
    level.fails.store(false, SeqCst);
    assert!(pool.fix::<Shared>(id(7), Access::Random).is_ok());
}

#[test]
fn a_page_changed_during_its_write_stays_dirty_with_its_new_recovery_lsn() {
    let (pool, level) = pool(64);
    change(&pool, 1, 10);
    let in_put = Arc::downgrade(&pool);
    *level.during_put.lock() = Some(Box::new(move || change(&in_put.upgrade().unwrap(), 1, 20)));
    assert_eq!(pool.clean(&[id(1)], Cause::Checkpoint).unwrap(), 1);
    *level.during_put.lock() = None;
    assert_eq!(*level.puts.lock(), [(id(1), Lsn::new(11))]);
    assert_eq!(level.ledger.oldest(), Some(Lsn::new(20)));
    assert_eq!(pool.dirty_pages(), [id(1)]);
    assert_eq!(pool.clean(&[id(1)], Cause::Checkpoint).unwrap(), 1);
    assert_eq!((level.ledger.oldest(), pool.dirty_count()), (None, 0));
}

#[test]
fn a_failed_write_leaves_the_page_dirty_and_stops() {
    let (pool, level) = pool(64);
    change(&pool, 1, 10);
    level.fails.store(true, SeqCst);
    assert!(pool.clean(&[id(1)], Cause::Checkpoint).is_err());
    level.fails.store(false, SeqCst);
    assert_eq!(pool.dirty_pages(), [id(1)]);
    assert_eq!(level.ledger.oldest(), Some(Lsn::new(10)));
    assert!(matches!(pool.clean(&[id(1)], Cause::Checkpoint), Err(PagerError::Stopped { .. })));
    for no in 100..200 {
        assert!(pool.fix::<Shared>(id(no), Access::Random).is_ok(), "reading goes on");
    }
    assert_eq!(pool.dirty_pages(), [id(1)], "and never pushes the page out");
}

#[test]
fn discard_waits_for_the_write_in_flight() {
    let (pool, level) = pool(64);
    change(&pool, 1, 10);
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    *level.during_put.lock() = Some(Box::new(move || {
        std::thread::sleep(Duration::from_millis(30));
        assert!(!seen.load(SeqCst), "discarded during the write");
    }));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| pool.clean(&[id(1)], Cause::Checkpoint));
        while !pool.frames[0].is_writing() {
            std::thread::yield_now();
        }
        pool.discard(PageRange { first: id(0), count: 3 }, Lsn::new(17)).unwrap();
        done.store(true, SeqCst);
        writer.join().unwrap().unwrap();
    });
    assert!(!pool.is_resident(id(1)));
    assert_eq!(level.ledger.oldest(), None);
    let range = PageRange { first: id(0), count: 3 };
    assert_eq!(*level.discards.lock(), [(range, Lsn::new(17))], "and the level hears of it afterwards");
}

#[test]
fn pages_are_put_as_many_at_a_time_as_the_level_takes() {
    let (pool, level) = pool(64);
    level.most.store(4, SeqCst);
    (0..6).for_each(|no| change(&pool, no, 10));
    let ids: Vec<PageId> = (0..6).map(id).collect();
    assert_eq!(pool.clean(&ids, Cause::Checkpoint).unwrap(), 6);
    assert_eq!(*level.batches.lock(), [4, 2]);
    assert_eq!((level.ledger.oldest(), pool.dirty_count()), (None, 0));
}

#[test]
fn a_part_that_fails_leaves_its_pages_and_those_of_later_parts_dirty() {
    let (pool, level) = pool(64);
    level.most.store(2, SeqCst);
    level.failing.store(2, SeqCst);
    (0..6).for_each(|no| change(&pool, no, 10));
    let ids: Vec<PageId> = (0..6).map(id).collect();
    assert!(matches!(pool.clean(&ids, Cause::Checkpoint), Err(PagerError::Corrupt { .. })));
    assert_eq!(*level.batches.lock(), [2, 2], "after a failure nothing more is tried");
    assert_eq!(pool.dirty_pages(), ids[2..]);
    assert!(pool.frames.iter().all(|frame| !frame.is_writing()), "and nobody waits for them");
}

#[test]
fn latched_and_pinned_pages_stay() {
    let (pool, _level) = pool(32);
    let latched: PageS<'_> = pool.fix(id(1), Access::Random).unwrap();
    let pin = Pin::new(&pool.fix::<Shared>(id(2), Access::Random).unwrap());
    for no in 10..500 {
        drop(pool.fix::<Shared>(id(no), Access::Random).unwrap());
    }
    assert_eq!(page::page_identity(&latched), id(1));
    assert_eq!(page::page_identity(&pin.lock()), id(2));
    drop((latched, pin));
    for no in 10..500 {
        drop(pool.fix::<Shared>(id(no), Access::Random).unwrap());
    }
    assert!(!pool.is_resident(id(1)) && !pool.is_resident(id(2)));
}

#[test]
fn a_created_page_is_gone_unless_it_was_stamped() {
    let (pool, level) = pool(32);
    drop(pool.create(id(5)).unwrap());
    assert!(!pool.is_resident(id(5)));
    let mut page = pool.create(id(5)).unwrap();
    page::format(page.bytes_mut(), id(5), 16, 0);
    let (start, end) = (Lsn::new(3), Lsn::new(4));
    page.stamp(&Appended { block: start, start, end });
    drop(page);
    drop(pool.create(id(5)).unwrap());
    assert_eq!(pool.dirty_pages(), [id(5)], "older changes are not lost");
    assert_eq!(level.ledger.oldest(), Some(Lsn::new(3)));
}

#[test]
fn try_fix_gives_up_and_resident_reads_nothing() {
    let (pool, level) = pool(32);
    assert!(pool.fix_resident::<Shared>(id(9), Access::Random).is_none());
    assert_eq!(level.reads.load(SeqCst), 0);
    let held: PageX<'_> = pool.try_fix(id(9), Access::Random).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(pool.try_fix::<Shared>(id(9), Access::Random).unwrap().is_none());
            assert!(pool.try_fix::<Exclusive>(id(9), Access::Random).unwrap().is_none());
        });
    });
    drop(held);
    assert!(pool.fix_resident::<Shared>(id(9), Access::Random).is_some());
}

#[test]
fn a_page_may_leave_while_a_writer_is_about_to_look_at_its_frame() {
    let (pool, level) = pool(32);
    change(&pool, 1, 10);
    let held: PageX<'_> = pool.fix(id(1), Access::Random).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| pool.clean(&[id(1)], Cause::Checkpoint));
        // The writer has set `writing`, and waits for the latch. Now the page is dropped, as by a discard
        // that had checked `writing` before.
        while !held.frame().is_writing() {
            std::thread::yield_now();
        }
        held.frame().set_clean();
        pool.detach(held.frame());
        drop(held);
        assert_eq!(writer.join().unwrap().unwrap(), 0);
    });
    assert!(level.puts.lock().is_empty() && !pool.is_resident(id(1)));
}
