//! Tests of the flash cache with difficult devices: data files without space for some pages, a drive with
//! occasional errors, and busy data files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_device::{
    AlignedBuf, DeviceError, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When,
};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::flash::cache::FlashCache;
use crate::flash::policy::design::FlashDesign;
use crate::flash::tests::cache::{NoLog, Stoppable, image, open_over, page, read};
use crate::level::{Cause, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::log::WriteAhead;

type Hook = Box<dyn FnOnce() + Send>;

/// Data files in memory that can refuse pages.
#[derive(Default)]
struct Home {
    pages: Mutex<BTreeMap<PageId, Vec<u8>>>,
    /// Pages for which there is no space.
    full: Mutex<BTreeSet<PageId>>,
    /// Every put fails.
    is_broken: AtomicBool,
    /// Runs in the middle of the next read.
    in_read: Mutex<Option<Hook>>,
    /// Runs in the middle of the next put.
    in_put: Mutex<Option<Hook>>,
}

impl Home {
    fn lsn(&self, no: u32) -> u64 {
        self.pages.lock().get(&page(no)).map_or(0, |bytes| page::page_lsn(bytes).get())
    }
}

fn call(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().take();
    hook.into_iter().for_each(|hook| hook());
}

impl Level for Home {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        call(&self.in_read);
        for run in runs {
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                let (id, Want::Page { frame, got }) = (run.first.plus(at), want) else { continue };
                let pages = self.pages.lock();
                let page = pages.get(&id).ok_or(PagerError::NoSuchPage { id, pages: 0 })?;
                frame.copy_from_slice(page);
                *got = Some(Got { from: Tier::Home, lsn: page::page_lsn(page), taken: false });
            }
        }
        Ok(())
    }
    fn put(&self, batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        call(&self.in_put);
        if self.is_broken.load(Relaxed) {
            return Err(DeviceError::new("home", Operation::Write, ErrorKind::Io(5)).into());
        }
        if batch.iter().any(|image| self.full.lock().contains(&image.id())) {
            return Err(DeviceError::new("home", Operation::Write, ErrorKind::NoSpace).into());
        }
        self.pages.lock().extend(batch.iter().map(|image| (image.id(), image.bytes().to_vec())));
        Ok(())
    }
    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}
    fn changed(&self, _id: PageId) {}
    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
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

struct Rig {
    cache: Arc<FlashCache>,
    home: Arc<Home>,
    device: Arc<Faulty>,
}

impl Rig {
    /// Returns a cache of `slots` slots. The test fails if the log is stopped.
    fn new(slots: u64, design: FlashDesign) -> Rig {
        Rig::on(slots, design, Arc::new(NoLog))
    }

    fn on(slots: u64, design: FlashDesign, log: Arc<dyn WriteAhead>) -> Rig {
        let (home, device) = (Arc::<Home>::default(), Faulty::wrap(MemoryDirectory::new()));
        let cache = open_over(home.clone(), device.clone(), slots, design, (true, log));
        Rig { cache, home, device }
    }

    fn put(&self, pages: impl IntoIterator<Item = u32>, lsn: u64, cause: Cause) {
        for no in pages {
            self.cache.put(&[image(no, lsn)], cause, Need::Held).expect("there is room");
            while self.cache.write_some(Duration::ZERO).expect("the drive takes it") {}
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let report = self.cache.report();
        report[0].counters.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
    }

    /// Makes the next `count` reads of the drive fail.
    fn fail_reads(&self, count: u64) {
        let fault = Fault::Fails(ErrorKind::Io(5));
        let when = When::Between(1, 1 + count);
        self.device.arm(Rule { operation: Some(Operation::Read), space: None, when, fault });
    }
}

#[test]
fn a_page_without_room_keeps_no_other_from_home() {
    let rig = Rig::new(40, FlashDesign::LazyCleaning);
    rig.put(0..8, 5, Cause::Evict);
    rig.home.full.lock().insert(page(3));
    let refused = rig.cache.clean(&[page(6)]).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    let lsns: Vec<u64> = (0..8).map(|no| rig.home.lsn(no)).collect();
    assert_eq!(lsns, [5, 5, 5, 0, 5, 5, 5, 5]);
    assert_eq!((rig.counter("dirty"), rig.counter("cleaned_pages")), (1, 7));
    assert!(read(&rig.cache, 0, &[false; 8], &[5; 8]));
    rig.home.full.lock().clear();
    assert_eq!(rig.cache.clean(&[page(3)]).unwrap(), 1);
    assert!(rig.cache.is_at_rest() && rig.home.lsn(3) == 5);
}

/// The refused page is cleaned after all others of its partition, and does not delay other partitions.
#[test]
fn what_is_cleaned_next_is_not_what_home_has_just_refused() {
    let rig = Rig::new(128, FlashDesign::LazyCleaning);
    let pages: Vec<u32> = (0..8).map(|no| 10 * no).collect();
    rig.put(pages.iter().copied(), 5, Cause::Evict);
    rig.cache.set_dirty_percent(1);
    rig.home.full.lock().insert(page(0));
    for _ in 0..8 {
        if let Err(refused) = rig.cache.clean_some() {
            assert!(refused.is_no_space(), "{refused}");
        }
    }
    let here: Vec<u32> = pages.iter().copied().filter(|no| rig.home.lsn(*no) == 0).collect();
    assert_eq!(here, [0]);
}

/// There are no cleaning threads. A put beyond the limit of dirty pages writes some pages to the data files
/// itself.
#[test]
fn who_puts_beyond_the_limit_cleans() {
    let rig = Rig::new(500, FlashDesign::LazyCleaning);
    rig.cache.set_dirty_percent(10);
    for no in 0..300 {
        rig.put(no..no + 1, 5, Cause::Evict);
        assert!(rig.counter("dirty") <= 500 * 12 / 100 + 1, "page {no}: {} are dirty", rig.counter("dirty"));
    }
    assert!(rig.counter("dirty") >= 20, "all went home: {}", rig.counter("dirty"));
    rig.home.full.lock().extend((0..400).map(page));
    rig.put(300..400, 5, Cause::Evict);
    assert!(rig.counter("dirty") > 100, "without room at home flash takes what comes");
}

/// Redo reads ahead all the time, so the drive is always busy. With the throttle, redo would write one page
/// at a time.
#[test]
fn without_threads_a_busy_drive_gets_whole_batches() {
    let rig = Rig::new(200, FlashDesign::LazyCleaning);
    let _in_flight = rig.cache.drive.throttle.begin(1_000);
    let pages: Vec<Image> = (0..10).map(|no| image(no, 5)).collect();
    rig.cache.put(&pages, Cause::Evict, Need::Held).expect("flash takes them");
    assert!(rig.cache.write_some(Duration::ZERO).expect("the drive takes them"));
    assert_eq!((rig.counter("written_pages"), rig.counter("write_batches")), (10, 1));
}

#[test]
fn a_read_that_fails_once_costs_nothing() {
    let rig = Rig::new(40, FlashDesign::LazyCleaning);
    rig.put(0..8, 5, Cause::Evict);
    rig.fail_reads(1);
    assert!(read(&rig.cache, 0, &[false; 8], &[5; 8]), "together");
    rig.fail_reads(1);
    assert!(read(&rig.cache, 2, &[false], &[5]), "alone");
    rig.device.disarm();
    let fault = Fault::BitFlip { bit: 4000 };
    rig.device.arm(Rule { operation: Some(Operation::Read), space: None, when: When::Nth(1), fault });
    assert!(read(&rig.cache, 2, &[false], &[5]), "with another bit");
    rig.device.disarm();
    assert_eq!((rig.counter("dirty"), rig.counter("errors"), rig.counter("damaged")), (8, 2, 0));
    rig.fail_reads(1);
    assert_eq!(rig.cache.clean(&[page(4)]).unwrap(), 8, "and they are brought home");
    assert!(rig.cache.is_at_rest() && rig.counter("is_lost") == 0);
    // The data files have these pages. Those that can't be read from flash are read there, and their slots
    // are freed. The other slots stay.
    rig.fail_reads(4);
    assert!(read(&rig.cache, 0, &[false; 8], &[5; 8]));
    assert_eq!((rig.counter("clean"), rig.counter("damaged")), (5, 3));
}

/// A page can't be read from flash, but a cleaning thread has just written it to the data files.
#[test]
fn what_can_not_be_read_but_is_home_by_now_is_read_there() {
    let rig = Rig::new(40, FlashDesign::LazyCleaning);
    rig.put([1], 5, Cause::Evict);
    let (begun, has_begun) = channel::<()>();
    let (go, may_go) = channel::<()>();
    *rig.home.in_put.lock() = Some(Box::new(move || {
        begun.send(()).unwrap();
        may_go.recv().unwrap();
    }));
    std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| rig.cache.clean(&[page(1)]));
        has_begun.recv().unwrap();
        rig.fail_reads(2);
        let reader = scope.spawn(|| read(&rig.cache, 1, &[false], &[5]));
        while rig.device.fired_count() < 2 {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        assert!(reader.join().unwrap());
        assert_eq!(cleaner.join().unwrap().unwrap(), 1);
    });
    assert_eq!((rig.counter("is_lost"), rig.counter("dirty")), (0, 0));
    assert!(rig.cache.is_at_rest());
}

/// A check reads a page from flash. Then a page writer puts a newer version before the check reads the page
/// from the data files.
#[test]
fn what_is_put_during_a_check_is_no_damage() {
    for cause in [Cause::Evict, Cause::Checkpoint] {
        for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
            let rig = Rig::new(40, design);
            rig.put([1], 5, Cause::Checkpoint);
            rig.cache.offer(page(1), Access::Random, &mut || image(1, 5));
            while rig.cache.write_some(Duration::ZERO).unwrap() {}
            let cache = rig.cache.clone();
            *rig.home.in_read.lock() = Some(Box::new(move || {
                cache.changed(page(1));
                cache.put(&[image(1, 9)], cause, Need::Held).unwrap();
            }));
            let mut damages = Vec::new();
            rig.cache.check(&mut damages).unwrap();
            assert!(rig.home.in_read.lock().is_none(), "{design:?}: home was asked");
            assert_eq!(damages, Vec::<String>::new(), "{design:?} {cause:?}");
            // What is wrong is found.
            *rig.home.in_read.lock() = None;
            while rig.cache.write_some(Duration::ZERO).unwrap() {}
            rig.cache.clean(&[page(1)]).unwrap();
            rig.home.pages.lock().insert(page(1), image(1, 5).bytes().to_vec());
            rig.cache.check(&mut damages).unwrap();
            let is_there = rig.counter("clean") > 0;
            assert_eq!(damages.len(), usize::from(is_there), "{design:?} {cause:?}");
        }
    }
}

#[test]
fn the_cleaner_hears_of_too_many_dirty_slots() {
    let rig = Rig::new(40, FlashDesign::LazyCleaning);
    rig.cache.set_dirty_percent(10);
    rig.put(0..4, 5, Cause::Evict);
    std::thread::scope(|scope| {
        let began = Instant::now();
        let cleaner = scope.spawn(|| rig.cache.wait_for_dirty(Duration::from_secs(60)));
        // The thread may not be waiting yet at the first call, so the test repeats it.
        for no in (4..40).cycle() {
            if cleaner.is_finished() {
                break;
            }
            rig.put([no], 6, Cause::Evict);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(began.elapsed() < Duration::from_secs(30));
    });
}

/// A drive fails while a slot is dirty. Then the cache takes no more pages, and puts go to the data files.
#[test]
fn a_failing_drive_is_left_without_a_word_to_the_log() {
    let rig = Rig::new(40, FlashDesign::LazyCleaning);
    rig.put(0..4, 5, Cause::Evict);
    let fault = Fault::Fails(ErrorKind::Io(5));
    rig.device.arm(Rule { operation: Some(Operation::Write), space: None, when: When::From(1), fault });
    for lsn in 6..20 {
        rig.cache.put(&[image(7, lsn)], Cause::Evict, Need::Held).unwrap();
        while rig.cache.write_some(Duration::ZERO).unwrap() {}
        assert!(read(&rig.cache, 7, &[false], &[lsn]));
    }
    rig.cache.clean_some().unwrap();
    assert_eq!((rig.counter("is_lost"), rig.counter("dirty")), (1, 0));
    assert!((0..4).all(|no| rig.home.lsn(no) == 5) && rig.home.lsn(7) == 19);
    let mut bytes = AlignedBuf::new(4096);
    let mut want = [Want::Page { frame: &mut bytes, got: None }];
    rig.cache.read(&mut [Run { first: page(0), want: &mut want }], Access::Random).unwrap();
    assert!(matches!(want, [Want::Page { got: Some(Got { from: Tier::Home, .. }), .. }]));
}

/// Another part stops the log after the cache has its reason for a stop, and before the cache reports it.
#[test]
fn whoever_stops_the_log_first_is_why_the_database_stops() {
    for is_other_first in [false, true] {
        let log = Arc::<Stoppable>::default();
        let rig = Rig::on(40, FlashDesign::LazyCleaning, log.clone());
        rig.put(0..8, 5, Cause::Evict);
        let other = PagerError::Incompatible { what: "another reason".to_owned() };
        *log.first.lock() = is_other_first.then_some(other);
        rig.cache.lose(&PagerError::Incompatible { what: "the drive".to_owned() });
        let stopped = log.check().unwrap_err().to_string();
        assert_eq!(stopped.contains("another reason"), is_other_first, "{stopped}");
        assert_eq!(rig.cache.why_stopped().is_some(), !is_other_first);
    }
}

/// The log stops before a thread can find a slot that can't be read, which would be reported as the reason. A
/// full device is no reason to stop.
#[test]
fn a_put_that_home_refuses_stops_the_log_at_once() {
    let log = Arc::<Stoppable>::default();
    let rig = Rig::on(40, FlashDesign::LazyCleaning, log.clone());
    rig.put(0..8, 5, Cause::Evict);
    let put = || rig.cache.put(&[image(9, 5)], Cause::Checkpoint, Need::Held);
    rig.home.full.lock().insert(page(9));
    assert!(put().unwrap_err().is_no_space() && log.check().is_ok());
    rig.home.full.lock().clear();
    assert!(put().is_ok() && log.check().is_ok());
    rig.home.is_broken.store(true, Relaxed);
    assert!(put().is_err() && log.check().is_err());
    rig.cache.lose(&PagerError::Incompatible { what: "the drive".to_owned() });
    assert!(rig.cache.why_stopped().is_none());
    let told = rig.cache.take_notices().join("; ");
    assert!(told.contains("is lost with") && told.contains("had stopped before"), "{told}");
}

/// The data files refuse a write, and then changed pages can't be read from flash. The data files are the
/// reason for the stop, so the next start must not report the cache as the reason.
#[test]
fn behind_a_broken_home_the_cache_is_not_why_the_database_stops() {
    for is_broken in [false, true] {
        let log = Arc::<Stoppable>::default();
        let rig = Rig::on(40, FlashDesign::LazyCleaning, log.clone());
        rig.put(0..8, 5, Cause::Evict);
        rig.home.is_broken.store(is_broken, Relaxed);
        assert_eq!(rig.cache.clean(&[page(0)]).is_err(), is_broken);
        assert_eq!(log.check().is_err(), is_broken);
        rig.put(8..9, 5, Cause::Evict);
        rig.device.arm(Rule { operation: None, space: None, when: When::From(1), fault: Fault::Gone });
        let mut bytes = AlignedBuf::new(4096);
        let mut want = [Want::Page { frame: &mut bytes, got: None }];
        let read = rig.cache.read(&mut [Run { first: page(8), want: &mut want }], Access::Random);
        assert!(read.is_err() && log.check().is_err() && rig.counter("is_lost") == 1);
        assert_eq!(rig.cache.why_stopped().is_some(), !is_broken);
        let told = rig.cache.take_notices().join("; ");
        let then = if is_broken { "the database had stopped before" } else { "the database stops" };
        assert!(told.contains("is lost with") && told.contains(then), "{told}");
    }
}
