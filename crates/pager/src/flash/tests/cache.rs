//! Tests of the flash cache: runs of pages that are partly on flash and partly in the data files, and many
//! threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use varve_device::{AlignedBuf, Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::flash::cache::{FlashCache, Opened, Owner, Surroundings};
use crate::flash::config::FlashFill;
use crate::flash::policy::daily_writes::{Clock, Hands, running};
use crate::flash::policy::design::FlashDesign;
use crate::flash::restart::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES};
use crate::flash::{FlashConfig, FlashSettings};
use crate::level::{Cause, Got, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::log::WriteAhead;
use crate::log::redo::{RedoError, RedoOps};

pub(in crate::flash) const PAGE_BYTES: usize = 4096;

/// Data files in memory.
#[derive(Default)]
struct Home(Mutex<BTreeMap<PageId, Vec<u8>>>);

impl Level for Home {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        for run in runs {
            for (at, want) in (0_u32..).zip(run.want.iter_mut()) {
                let (id, Want::Page { frame, got }) = (run.first.plus(at), want) else { continue };
                let pages = self.0.lock();
                let page = pages.get(&id).ok_or(PagerError::NoSuchPage { id, pages: 0 })?;
                frame.copy_from_slice(page);
                *got = Some(Got { from: Tier::Home, lsn: page::page_lsn(page), taken: false });
            }
        }
        Ok(())
    }
    fn put(&self, batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        self.0.lock().extend(batch.iter().map(|image| (image.id(), image.bytes().to_vec())));
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

pub(in crate::flash) fn page(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

pub(in crate::flash) fn image(no: u32, lsn: u64) -> Image {
    let mut bytes = vec![0; PAGE_BYTES];
    page::format(&mut bytes, page(no), 40, 16);
    page::set_page_lsn(&mut bytes, Lsn::new(lsn));
    bytes[100..108].copy_from_slice(&lsn.to_le_bytes());
    Image::of(page(no), &bytes, Access::Random)
}

fn open(slots: u64, has_threads: bool) -> Arc<FlashCache> {
    open_on(MemoryDirectory::new(), slots, FlashDesign::DualWrite, (has_threads, Arc::new(NoLog)))
}

fn open_on(
    directory: Arc<dyn Directory>,
    slots: u64,
    design: FlashDesign,
    how: (bool, Arc<dyn WriteAhead>),
) -> Arc<FlashCache> {
    open_over(Arc::new(Home::default()), directory, slots, design, how)
}

pub(in crate::flash) fn open_over(
    below: Arc<dyn Level>,
    directory: Arc<dyn Directory>,
    slots: u64,
    design: FlashDesign,
    how: (bool, Arc<dyn WriteAhead>),
) -> Arc<FlashCache> {
    open_all(below, directory, (slots, design), how, (None, running()))
}

pub(in crate::flash) fn open_with(
    directory: Arc<dyn Directory>,
    slots: u64,
    design: FlashDesign,
    how: (bool, Arc<dyn WriteAhead>),
    budget: (Option<u64>, Clock),
) -> Arc<FlashCache> {
    open_all(Arc::new(Home::default()), directory, (slots, design), how, budget)
}

fn open_all(
    below: Arc<dyn Level>,
    directory: Arc<dyn Directory>,
    (slots, design): (u64, FlashDesign),
    (has_threads, log): (bool, Arc<dyn WriteAhead>),
    (daily_write_bytes, clock): (Option<u64>, Clock),
) -> Arc<FlashCache> {
    let config = FlashConfig {
        pending_max: 100,
        queued_max: 10,
        writers: 1,
        ..FlashConfig::with(
            directory,
            FlashSettings {
                design,
                fill: FlashFill::Aggressive,
                daily_write_bytes,
                ..FlashSettings::of_size(4096 + slots * PAGE_BYTES as u64)
            },
        )
    };
    let owner = Owner { database: 7, page_size: PAGE_BYTES, clock };
    let around = Surroundings { has_threads, is_below_nvm: false, below, ledger: Arc::default(), log };
    let Opened { cache, warning } = FlashCache::open(&config, owner, around);
    assert_eq!(warning, None);
    cache.expect("its device is sound")
}

/// A log that is durable up to any LSN.
pub(in crate::flash) struct NoLog;

impl WriteAhead for NoLog {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(u64::MAX)
    }
    fn flush(&self, _upto: Lsn) -> Result<()> {
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn stop(&self, cause: &PagerError) {
        panic!("{cause}");
    }
}

/// A log that keeps the first reason to stop.
#[derive(Default)]
pub(in crate::flash) struct Stoppable {
    cause: OnceLock<PagerError>,
    /// The reason with which another thread stops the log, just before
    /// the next call of `stop`.
    pub(in crate::flash) first: Mutex<Option<PagerError>>,
}

impl WriteAhead for Stoppable {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(u64::MAX)
    }
    fn flush(&self, _upto: Lsn) -> Result<()> {
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        self.cause.get().cloned().map_or(Ok(()), Err)
    }
    fn stop(&self, cause: &PagerError) {
        let first = self.first.lock().take();
        if let Some(first) = first {
            self.stop(&first);
        }
        let _ = self.cause.set(match cause {
            PagerError::Stopped { .. } => cause.clone(),
            other => PagerError::Stopped { cause: other.to_string().into() },
        });
    }
}

/// A small generator of repeatable numbers (xorshift).
pub(in crate::flash) struct Random(pub(in crate::flash) u64);

impl Random {
    pub(in crate::flash) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Reads a run with holes. Returns whether each page has the LSN
/// in `known`.
pub(in crate::flash) fn read(cache: &FlashCache, first: u32, holes: &[bool], known: &[u64]) -> bool {
    let mut buffers: Vec<AlignedBuf> = holes.iter().map(|_| AlignedBuf::new(PAGE_BYTES)).collect();
    let mut want: Vec<Want<'_>> = buffers
        .iter_mut()
        .zip(holes)
        .map(|(buf, hole)| if *hole { Want::Hole } else { Want::Page { frame: &mut buf[..], got: None } })
        .collect();
    cache.read(&mut [Run { first: page(first), want: &mut want }], Access::Sequential).expect("home has all");
    let is_told = |(want, known): (&Want<'_>, &u64)| match want {
        Want::Hole => true,
        Want::Page { frame, got } => {
            got.is_some_and(|got| got.lsn.get() == *known) && frame[100..108] == known.to_le_bytes()
        }
    };
    want.iter().zip(known).all(is_told)
}

#[test]
fn runs_with_holes_are_read_from_both() {
    const PAGES: usize = 60;
    let cache = open(40, false);
    let mut known: Vec<u64> = (0..PAGES as u64).map(|no| no + 1).collect();
    let (mut random, mut lsn) = (Random(5), 100);
    let first: Vec<Image> = (0..).zip(&known).map(|(no, lsn)| image(no, *lsn)).collect();
    cache.put(&first, Cause::Checkpoint, Need::Stable).expect("home takes all");
    for step in 0..3000 {
        let at = random.below(PAGES as u64) as usize;
        match random.below(4) {
            0 => {
                lsn += 1;
                known[at] = lsn;
                cache.changed(page(at as u32));
                cache.put(&[image(at as u32, lsn)], Cause::Evict, Need::Held).expect("home takes all");
            }
            1 => cache.offer(page(at as u32), Access::Random, &mut || image(at as u32, known[at])),
            2 if step % 100 == 0 => {
                let ids = PageRange { first: page(at as u32), count: 5 };
                cache.discard(ids, Lsn::ZERO).expect("nothing fails");
            }
            _ => {
                let len = 1 + random.below((PAGES - at) as u64) as usize;
                let holes: Vec<bool> = (0..len).map(|_| random.below(3) == 0).collect();
                assert!(read(&cache, at as u32, &holes, &known[at..at + len]), "step {step}");
            }
        }
        assert!(cache.is_at_rest(), "step {step}: a slot is still in use");
    }
    let of = |name: &str| {
        let report = cache.report();
        report[0].counters.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
    };
    assert!(of("read_hits") > 100 && of("trimmed_reads") > 100 && of("invalidated") > 100);
    let mut damages = Vec::new();
    cache.check(&mut damages).expect("nothing fails");
    assert_eq!(damages, Vec::<String>::new());
}

/// No thread writes, so the queue becomes full, and the cache takes no more pages. A queued page that changes
/// is not found any more.
#[test]
fn a_queue_that_is_full_takes_no_more() {
    let cache = open(40, true);
    let images: Vec<Image> = (0..20).map(|no| image(no, 5)).collect();
    cache.put(&images, Cause::Evict, Need::Held).expect("home takes all");
    let counter = |name: &str| {
        let report = cache.report();
        report[0].counters.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
    };
    assert_eq!((counter("admitted_dirty"), counter("refused_throttled"), counter("pending")), (10, 10, 10));
    assert!(read(&cache, 0, &[false; 20], &[5; 20]), "all from home");
    cache.changed(page(3));
    while cache.write_some(Duration::ZERO).expect("nothing fails") {}
    assert_eq!((counter("clean"), counter("pending"), counter("written_pages")), (9, 0, 9));
    assert!(read(&cache, 0, &[false; 20], &[5; 20]) && cache.is_at_rest());
    assert_eq!(
        counter("read_hits"),
        3,
        "those before the one that changed: the others are read with what is behind them"
    );
}

/// The queue of pages that have to be written has ten entries. A put of changed pages waits for free entries
/// while another thread writes pages.
#[test]
fn a_put_waits_for_room_and_its_pages_stay() {
    const PUTS: u32 = 40;
    let (home, how): (_, (bool, Arc<dyn WriteAhead>)) = (Arc::new(Home::default()), (true, Arc::new(NoLog)));
    let directory = MemoryDirectory::new();
    let cache = open_over(home.clone(), directory, 640, FlashDesign::LazyCleaning, how);
    cache.redone(|_| true);
    cache.threads_begin();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                cache.write_some(Duration::from_millis(1)).expect("nothing fails");
            }
        });
        let put = |put| {
            let pages: Vec<Image> = (0..5).map(|no| image(5 * put + no, 5)).collect();
            cache.put(&pages, Cause::Evict, Need::Held)
        };
        let all: Result<()> = (0..PUTS).try_for_each(put);
        is_over.store(true, Relaxed);
        all.expect("nothing fails");
    });
    // A put that has waited for its longest time writes its pages to the data files. That may happen, because
    // the operating system may stop the writing thread for so long.
    let at_home = home.0.lock().len();
    assert!(at_home <= 20, "{at_home} of {} pages went home", 5 * PUTS);
}

/// The limit becomes much smaller. A put then does not clean all pages of earlier puts.
#[test]
fn a_put_far_beyond_the_limit_cleans_about_what_it_brings() {
    const PAGES: u32 = 300;
    let how: (bool, Arc<dyn WriteAhead>) = (true, Arc::new(NoLog));
    let cache = open_on(MemoryDirectory::new(), 640, FlashDesign::LazyCleaning, how);
    let put = |no| cache.put(&[image(no, 5)], Cause::Evict, Need::Held).expect("home takes all");
    // No two of the pages are neighbours, which would be cleaned together.
    for no in 0..PAGES {
        put(2 * no);
        while cache.write_some(Duration::ZERO).expect("nothing fails") {}
    }
    assert_eq!(cache.counts().dirty, u64::from(PAGES));
    cache.set_dirty_percent(1);
    put(2 * PAGES);
    let cleaned = u64::from(PAGES) + 1 - cache.counts().dirty;
    assert!(
        cleaned > 0 && cleaned <= u64::from(cache.slots.shape.partitions()),
        "{cleaned}: one of each partition"
    );
}

/// If a page changes during its put, an older version stays in its slot. Later the data files have a newer
/// version, and the log is cut after it. Then only the record of the slot would name the page.
#[test]
fn a_slot_that_a_change_overtook_gets_no_record() {
    let cache = open(64, false);
    cache.begin(7, None, |_| Ok(())).unwrap();
    cache.put(&[image(1, 100), image(2, 100)], Cause::Evict, Need::Held).unwrap();
    cache.around.ledger.first_change(page(2), Lsn::new(120), Lsn::new(130));
    let found = |cache: &FlashCache| -> Vec<(PageId, Lsn)> {
        let slots = (0..cache.slots()).filter_map(|slot| {
            let mut block = AlignedBuf::new(TABLE_BLOCK_BYTES);
            cache.drive.store.read_records(slot / RECORDS_OF_BLOCK as u32, &mut block).unwrap();
            Record::get(&block, cache.records.hardening.whose().epoch, slot)
        });
        slots.map(|record| (record.page, record.lsn)).collect()
    };
    cache.harden_all(Lsn::ZERO).unwrap();
    assert_eq!(found(&cache), [(page(1), Lsn::new(100))]);
    // The data files have the newer version, and the put has removed the older one from its slot.
    cache.put(&[image(2, 140)], Cause::Evict, Need::Held).unwrap();
    cache.around.ledger.stable(page(2), Lsn::new(140));
    cache.harden_all(Lsn::ZERO).unwrap();
    let mut both = found(&cache);
    both.sort_unstable();
    assert_eq!(both, [(page(1), Lsn::new(100)), (page(2), Lsn::new(140))]);
    cache.changed(page(1));
    cache.harden_all(Lsn::ZERO).unwrap();
    assert_eq!(found(&cache), [(page(2), Lsn::new(140))]);
}

/// Pages that the data files lack are read from the queue, and from slots that can still be read. A version
/// that has changed since is never returned.
#[test]
fn what_a_lost_cache_still_has_is_read() {
    let device = Faulty::wrap(MemoryDirectory::new());
    let log = Arc::new(Stoppable::default());
    let cache = open_on(device.clone(), 40, FlashDesign::LazyCleaning, (true, log.clone()));
    let put = |pages: std::ops::Range<u32>, lsn| {
        let images: Vec<Image> = pages.map(|no| image(no, lsn)).collect();
        cache.put(&images, Cause::Evict, Need::Held).expect("home takes all");
    };
    put(0..4, 5);
    while cache.write_some(Duration::ZERO).expect("nothing fails") {}
    put(4..8, 5);
    cache.lose(&PagerError::Corrupt { what: "a test says so".into() });
    assert!(log.check().is_err(), "it has stopped the log");
    assert!(read(&cache, 0, &[false; 8], &[5; 8]), "from slots, and from the queue");
    // One page of each kind changes with a report of the change, one without, and one is dropped.
    [1, 5].into_iter().for_each(|no| cache.changed(page(no)));
    [1..3, 5..7].into_iter().for_each(|pages| put(pages, 9));
    let gone = |no| {
        let mut bytes = AlignedBuf::new(PAGE_BYTES);
        let mut want = [Want::Page { frame: &mut bytes, got: None }];
        cache.read(&mut [Run { first: page(no), want: &mut want }], Access::Random).err()
    };
    for no in [3, 7] {
        cache.discard(PageRange { first: page(no), count: 1 }, Lsn::ZERO).expect("nothing fails");
        assert!(matches!(gone(no), Some(PagerError::NoSuchPage { .. })));
    }
    while cache.write_some(Duration::ZERO).expect("home takes all") {}
    assert!(read(&cache, 0, &[false; 3], &[5, 9, 9]) && read(&cache, 4, &[false; 3], &[5, 9, 9]));
    let fault = Fault::Fails(ErrorKind::Io(5));
    device.arm(Rule { operation: Some(Operation::Read), space: None, when: When::From(1), fault });
    assert!(matches!(gone(0), Some(PagerError::Stopped { .. })), "{:?}", gone(0));
    device.disarm();
    cache.drain().expect("home takes all");
    assert!(read(&cache, 0, &[false; 3], &[5, 9, 9]) && cache.is_at_rest());
    let told = cache.take_notices();
    assert!(
        told.len() == 1 && told[0].contains("is lost with 8 changed pages: a test says so; "),
        "{told:?}"
    );
}

/// If the budget is used up, put pages are written to the data files. Pages that are in the cache already are
/// still read and cleaned.
#[test]
fn a_budget_that_is_used_up_takes_no_more_until_an_hour_has_passed() {
    const HOUR: u64 = 3600;
    for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
        let hands = Arc::new(Hands::default());
        // Ten pages an hour.
        let daily = Some(25 * 10 * PAGE_BYTES as u64);
        let how: (bool, Arc<dyn WriteAhead>) = (false, Arc::new(NoLog));
        let cache = open_with(MemoryDirectory::new(), 60, design, how, (daily, hands.clock()));
        let counter = |name: &str| {
            let report = cache.report();
            report[0].counters.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
        };
        let put = |pages: std::ops::Range<u32>| {
            pages.for_each(|no| {
                cache.put(&[image(no, 5)], Cause::Evict, Need::Held).expect("home takes all");
            });
        };
        put(0..20);
        assert_eq!((counter("admitted_dirty"), counter("refused_budget")), (10, 10), "{design:?}");
        let kept_back = if design.is_lazy() { 10 } else { 0 };
        assert_eq!(counter("dirty"), kept_back, "{design:?}");
        cache.offer(page(15), Access::Random, &mut || image(15, 5));
        assert_eq!((counter("admitted_clean"), counter("refused_budget")), (0, 11));
        assert!(read(&cache, 0, &[false; 20], &[5; 20]));
        hands.pass(HOUR / 2);
        put(20..40);
        cache.offer(page(15), Access::Random, &mut || image(15, 5));
        assert_eq!((counter("admitted_dirty"), counter("admitted_clean")), (15, 0));
        cache.set_daily_writes(None);
        put(40..42);
        assert_eq!(counter("admitted_dirty"), 17, "{design:?}");
        cache.drain().expect("home takes all");
        assert!(read(&cache, 0, &[false; 42], &[5; 42]) && cache.is_at_rest());
    }
}

#[test]
fn records_are_written_beyond_the_budget_and_made_up_for() {
    let hands = Arc::new(Hands::default());
    let daily = Some(25 * 10 * PAGE_BYTES as u64);
    let how: (bool, Arc<dyn WriteAhead>) = (true, Arc::new(NoLog));
    let cache = open_with(MemoryDirectory::new(), 60, FlashDesign::DualWrite, how, (daily, hands.clock()));
    cache.begin(7, None, |_| Ok(())).unwrap();
    // One block each.
    for _ in 0..30 {
        cache.harden_all(Lsn::ZERO).unwrap();
    }
    let takes = || {
        let pending = cache.drive.writes.pending();
        let id = pending as u32;
        cache.put(&[image(id, 5)], Cause::Evict, Need::Held).expect("home takes all");
        cache.drive.writes.pending() > pending
    };
    let taken = [0, 3600, 3599, 1].map(|seconds| {
        hands.pass(seconds);
        takes()
    });
    assert_eq!(taken, [false, false, false, false], "two hours are made up for");
    hands.pass(1);
    assert!(takes());
}

/// The cache is lost after the put has seen that it is not lost. Nevertheless it takes no page.
#[test]
fn a_put_that_the_loss_overtakes_goes_home() {
    let log = (true, Arc::new(NoLog) as Arc<dyn WriteAhead>);
    let cache = open_on(MemoryDirectory::new(), 40, FlashDesign::LazyCleaning, log);
    cache.lose(&PagerError::Corrupt { what: "a test says so".into() });
    let images: Vec<Image> = (0..4).map(|no| image(no, 5)).collect();
    cache.put_some(&images, Cause::Evict, Need::Held).expect("home takes all");
    assert_eq!((cache.counts().dirty, cache.drive.writes.pending()), (0, 0));
    assert!(read(&cache, 0, &[false; 4], &[5; 4]), "from home");
    cache.changed(page(1));
    cache.put(&[image(1, 9), image(2, 9)], Cause::Evict, Need::Held).expect("home takes all");
    while cache.write_some(Duration::ZERO).expect("home takes all") {}
    assert!(read(&cache, 0, &[false; 4], &[5, 9, 9, 5]) && cache.is_at_rest());
    let told = cache.take_notices();
    let is_right = |notice: &String| notice.contains("is lost: a test says so; no change is");
    assert!(told.len() == 1 && told.iter().all(is_right), "{told:?}");
}

/// Pages with even and odd numbers.
struct Parity;

impl RedoOps for Parity {
    fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> std::result::Result<(), RedoError> {
        Err(RedoError(format!("there is no operation {op}")))
    }
    fn counted_kinds(&self) -> &'static [[&'static str; 2]] {
        &[["even_hits", "even_misses"], ["odd_hits", "odd_misses"]]
    }
    fn counted_kind(&self, page: &[u8]) -> usize {
        page::page_identity(page).no().0 as usize % 2
    }
}

#[test]
fn reads_are_counted_by_kind_of_page() {
    let cache = open(40, false);
    cache.count_kinds(Arc::new(Parity));
    let images: Vec<Image> = (0..8).map(|no| image(no, 5)).collect();
    cache.put(&images, Cause::Evict, Need::Held).expect("home takes all");
    [1, 3, 4].into_iter().for_each(|no| cache.changed(page(no)));
    for no in 0..8 {
        assert!(read(&cache, no, &[false], &[5]));
    }
    assert!(read(&cache, 0, &[false, true, false, false], &[5; 4]), "a run, of which 3 is at home");
    let report = cache.report();
    let of =
        |name: &str| report[0].counters.iter().find(|(found, _)| *found == name).map(|(_, count)| *count);
    let counted = ["even_hits", "even_misses", "odd_hits", "odd_misses"].map(of);
    assert_eq!(counted, [Some(5), Some(1), Some(2), Some(3)]);
    assert_eq!([of("read_hits"), of("read_misses")], [Some(7), Some(4)]);
}
