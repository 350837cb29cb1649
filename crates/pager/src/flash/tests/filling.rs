//! Tests of aggressive filling: a page is put, changed or dropped while it is read together with a neighbour.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use varve_device::{AlignedBuf, MemoryDirectory, plant};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::flash::cache::{FlashCache, Opened, Owner, Surroundings};
use crate::flash::config::{FlashFill, FlashRestart};
use crate::flash::policy::daily_writes::running;
use crate::flash::policy::design::FlashDesign;
use crate::flash::tests::cache::{NoLog, PAGE_BYTES, Random, image, page};
use crate::flash::{FlashConfig, FlashSettings};
use crate::level::ledger::Ledger;
use crate::level::{Cause, Got, Level, LevelReport, Need, Run, Step, Tier, Want};

type Hook = Box<dyn FnOnce() + Send>;

/// Data files in memory, with hooks that run during a read or a put.
#[derive(Default)]
pub(in crate::flash) struct Home {
    pages: Mutex<BTreeMap<PageId, Image>>,
    ledger: Arc<Ledger>,
    /// Runs after the bytes were copied, and before the read returns them.
    in_read: Mutex<Option<Hook>>,
    /// Runs before the data files have the pages of a put.
    in_put: Mutex<Option<Hook>>,
    /// The pages that the last read requested.
    asked: Mutex<Vec<u32>>,
}

fn run(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().take();
    hook.into_iter().for_each(|hook| hook());
}

impl Level for Home {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        let mut asked = Vec::new();
        for run in runs {
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                let (id, Want::Page { frame, got }) = (run.first.plus(at), want) else { continue };
                asked.push(id.no().0);
                let found = self.pages.lock().get(&id).cloned();
                let image = found.ok_or(PagerError::NoSuchPage { id, pages: 0 })?;
                frame.copy_from_slice(image.bytes());
                *got = Some(Got { from: Tier::Home, lsn: image.lsn(), taken: false });
            }
        }
        *self.asked.lock() = asked;
        std::thread::yield_now();
        run(&self.in_read);
        Ok(())
    }
    fn put(&self, batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        run(&self.in_put);
        std::thread::yield_now();
        self.pages.lock().extend(batch.iter().map(|image| (image.id(), image.clone())));
        batch.iter().for_each(|image| self.ledger.stable(image.id(), image.lsn()));
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

/// Returns a cache over pages 0 to 39, all of LSN 5.
pub(in crate::flash) fn open(
    slots: u64,
    design: FlashDesign,
    fill: FlashFill,
) -> (Arc<FlashCache>, Arc<Home>) {
    let config = FlashConfig {
        pending_max: 100,
        queued_max: 100,
        writers: 1,
        ..FlashConfig::with(
            MemoryDirectory::new(),
            FlashSettings {
                design,
                restart: FlashRestart::None,
                fill,
                ..FlashSettings::of_size(8192 + slots * PAGE_BYTES as u64)
            },
        )
    };
    let home = Arc::new(Home::default());
    home.pages.lock().extend((0..40).map(|no| (page(no), image(no, 5))));
    let owner = Owner { database: 7, page_size: PAGE_BYTES, clock: running() };
    let around = Surroundings {
        has_threads: false,
        is_below_nvm: false,
        below: home.clone(),
        ledger: home.ledger.clone(),
        log: Arc::new(NoLog),
    };
    let Opened { cache, warning } = FlashCache::open(&config, owner, around);
    assert_eq!(warning, None);
    let cache = cache.expect("its device is sound");
    cache.redone(|_| true);
    (cache, home)
}

/// Reads a page. Returns its LSN, and the level that it came from.
pub(in crate::flash) fn read(cache: &FlashCache, no: u32, why: Access) -> (u64, Tier) {
    let mut bytes = AlignedBuf::new(PAGE_BYTES);
    let mut want = [Want::Page { frame: &mut bytes, got: None }];
    cache.read(&mut [Run { first: page(no), want: &mut want }], why).expect("home has it");
    let [Want::Page { frame, got: Some(got) }] = &want else { panic!("it is told what was read") };
    assert_eq!((page::page_identity(frame), page::page_lsn(frame)), (page(no), got.lsn));
    (got.lsn.get(), got.from)
}

fn from_flash(cache: &FlashCache, pages: std::ops::Range<u32>) -> Vec<u32> {
    pages.filter(|no| cache.table_of(page(*no)).touch(page(*no), 1)).collect()
}

#[test]
fn a_miss_brings_the_neighbours_to_flash() {
    for design in FlashDesign::ALL {
        let (cache, home) = open(100, design, FlashFill::Aggressive);
        assert_eq!(read(&cache, 11, Access::Random), (5, Tier::Home));
        let widens = !matches!(
            design,
            FlashDesign::Off
                | FlashDesign::TemperatureAware
                | FlashDesign::Exclusive
                | FlashDesign::Inclusive
        );
        let asked = home.asked.lock().clone();
        assert_eq!(asked, if widens { (8..16).collect() } else { vec![11] }, "{design:?}");
        if widens {
            assert_eq!(from_flash(&cache, 0..40), [8, 9, 10, 12, 13, 14, 15]);
            assert_eq!(read(&cache, 14, Access::Random), (5, Tier::Flash));
            // A page that has a slot is not read as a neighbour.
            assert_eq!(read(&cache, 11, Access::Random), (5, Tier::Home));
            assert_eq!(*home.asked.lock(), [11]);
            assert_eq!(read(&cache, 16, Access::Sequential), (5, Tier::Home));
            assert_eq!(*home.asked.lock(), [16], "read-ahead is as wide as it is");
        }
        assert!(cache.is_at_rest());
    }
}

#[test]
fn a_cache_that_is_full_or_fills_plainly_reads_what_was_asked_for() {
    let (cache, home) = open(100, FlashDesign::CleanWrite, FlashFill::Plain);
    read(&cache, 11, Access::Random);
    cache.offer(page(11), Access::Sequential, &mut || image(11, 5));
    assert_eq!((home.asked.lock().clone(), from_flash(&cache, 0..40)), (vec![11], vec![]));
    let (cache, home) = open(20, FlashDesign::CleanWrite, FlashFill::Aggressive);
    for no in [0, 8, 16, 24, 32] {
        read(&cache, no, Access::Random);
    }
    let on_flash = from_flash(&cache, 0..40);
    assert_eq!(on_flash, [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21]);
    assert_eq!(*home.asked.lock(), [32], "one slot of twenty is free, and that is full");
}

#[test]
fn neighbours_that_are_not_there_are_not_asked_for_again() {
    let (cache, home) = open(100, FlashDesign::DualWrite, FlashFill::Aggressive);
    home.pages.lock().remove(&page(12));
    assert_eq!(read(&cache, 11, Access::Random), (5, Tier::Home));
    assert_eq!((home.asked.lock().clone(), from_flash(&cache, 0..40)), (vec![11], vec![]));
    assert_eq!(read(&cache, 10, Access::Random), (5, Tier::Home));
    let report = cache.report();
    let refused = report[0].counters.iter().find(|(name, _)| *name == "widened_refused");
    assert_eq!(refused, Some(&("widened_refused", 1)));
}

/// The set of watched pages prevents that an older version is admitted. Without the set, the older version is
/// admitted.
#[test]
fn an_older_version_is_admitted_where_nobody_watches() {
    for fault in [None, Some("flash: what is read along is not watched")] {
        let (cache, home) = open(100, FlashDesign::CleanWrite, FlashFill::Aggressive);
        let inner = cache.clone();
        *home.in_read.lock() = Some(Box::new(move || {
            inner.put(&[image(9, 9)], Cause::Evict, Need::Held).expect("home takes all");
        }));
        plant(fault);
        read(&cache, 11, Access::Random);
        plant(None);
        let expected = if fault.is_some() { (5, Tier::Flash) } else { (9, Tier::Home) };
        assert_eq!(read(&cache, 9, Access::Random), expected, "{fault:?}");
    }
}

/// A page is read as a neighbour, in an older version. Meanwhile it is put, changed or dropped.
#[test]
fn what_is_overtaken_while_it_is_read_along_is_not_admitted() {
    type Overtake = fn(&FlashCache, &Home);
    let put = |cache: &FlashCache, home: &Home| {
        home.ledger.first_change(page(9), Lsn::new(8), Lsn::new(8));
        cache.changed(page(9));
        cache.put(&[image(9, 9)], Cause::Checkpoint, Need::Held).expect("home takes all");
    };
    let put_only = |cache: &FlashCache, _: &Home| {
        cache.put(&[image(9, 9)], Cause::Evict, Need::Held).expect("home takes all");
    };
    let put_while_off = |cache: &FlashCache, _: &Home| {
        cache.set_design(FlashDesign::Off).expect("nothing is dirty");
        cache.put(&[image(9, 9)], Cause::Evict, Need::Held).expect("home takes all");
        cache.set_design(FlashDesign::CleanWrite).expect("nothing is dirty");
    };
    let changed = |cache: &FlashCache, _: &Home| cache.changed(page(9));
    let dropped = |cache: &FlashCache, _: &Home| {
        let ids = PageRange { first: page(9), count: 1 };
        cache.discard(ids, Lsn::ZERO).expect("nothing fails");
    };
    // A mini-transaction has entered the page in the dirty-page table, because it is about to change the
    // page.
    let logged = |_: &FlashCache, home: &Home| {
        home.ledger.first_change(page(9), Lsn::new(8), Lsn::new(8));
    };
    let all: [(Overtake, u64); 6] =
        [(put, 9), (put_only, 9), (put_while_off, 9), (changed, 5), (dropped, 5), (logged, 5)];
    for (case, (overtake, expected)) in all.into_iter().enumerate() {
        let (cache, home) = open(100, FlashDesign::CleanWrite, FlashFill::Aggressive);
        let (inner, below) = (cache.clone(), home.clone());
        *home.in_read.lock() = Some(Box::new(move || overtake(&inner, &below)));
        assert_eq!(read(&cache, 11, Access::Random), (5, Tier::Home));
        assert_eq!(from_flash(&cache, 0..40), [8, 10, 12, 13, 14, 15], "case {case}");
        assert_eq!(read(&cache, 9, Access::Random), (expected, Tier::Home), "case {case}");
        assert!(cache.is_at_rest());
    }
}

#[test]
fn what_home_may_lack_is_not_read_along() {
    let (cache, home) = open(100, FlashDesign::LazyCleaning, FlashFill::Aggressive);
    home.ledger.first_change(page(9), Lsn::new(8), Lsn::new(8));
    read(&cache, 11, Access::Random);
    assert_eq!(*home.asked.lock(), [8, 10, 11, 12, 13, 14, 15], "its newest version is above");
    // The page is on flash only, is being cleaned, and is dropped meanwhile. Then only the cleaning thread
    // knows about it.
    home.ledger.stable(page(9), Lsn::new(20));
    cache.put(&[image(17, 9)], Cause::Evict, Need::Held).expect("flash takes it");
    let (inner, below) = (cache.clone(), home.clone());
    *home.in_put.lock() = Some(Box::new(move || {
        inner.changed(page(17));
        assert_eq!(read(&inner, 19, Access::Random), (5, Tier::Home));
        assert_eq!(*below.asked.lock(), [16, 18, 19, 20, 21, 22, 23]);
    }));
    cache.clean(&[page(17)]).expect("home takes all");
    assert_eq!(read(&cache, 17, Access::Random), (9, Tier::Home));
    assert!(cache.is_at_rest());
}

/// Threads read, change and put pages, each page by one thread at a time. Meanwhile their neighbours are read
/// together with them.
#[test]
fn threads_read_what_was_put_last() {
    for design in [FlashDesign::CleanWrite, FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
        let (cache, home) = open(400, design, FlashFill::Aggressive);
        let versions: Vec<Mutex<u64>> = (0..40).map(|_| Mutex::new(5)).collect();
        let (log, clean) = (Mutex::new(10_u64), AtomicU64::new(0));
        let work = |seed: u64| {
            let mut random = Random(seed);
            for _ in 0..1500 {
                let no = random.below(40) as u32;
                let mut version = versions[no as usize].lock();
                if random.below(3) > 0 {
                    let (found, _) = read(&cache, no, Access::Random);
                    assert_eq!(found, *version, "{no} under {design:?}");
                    continue;
                }
                cache.changed(page(no));
                {
                    let mut end = log.lock();
                    home.ledger.first_change(page(no), Lsn::new(*end), Lsn::new(*end));
                    *end += 10;
                    *version = *end;
                }
                let cause = if random.below(2) == 0 { Cause::Evict } else { Cause::Checkpoint };
                cache.put(&[image(no, *version)], cause, Need::Held).expect("home takes all");
                if random.below(8) == 0 {
                    clean.fetch_add(cache.clean(&[page(no)]).expect("home takes all") as u64, Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || work(seed));
            }
        });
        assert!(cache.is_at_rest());
        assert!(!design.is_lazy() || clean.load(Relaxed) > 0);
        let report = cache.report();
        let widened = report[0].counters.iter().find(|(name, _)| *name == "widened_pages");
        assert!(widened.is_some_and(|(_, count)| *count > 0), "{design:?}");
    }
}
