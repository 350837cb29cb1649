//! Runs of pages over a cache, with holes, from flash and from home at once; many threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use varve_device::{AlignedBuf, MemoryDirectory};

use super::cache::{FlashCache, Opened, Place};
use super::design::FlashDesign;
use super::table::CleanOrder;
use crate::config::FlashConfig;
use crate::error::{PagerError, Result};
use crate::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::level::{Cause, Got, Image, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::lsn::Lsn;
use crate::page;
use crate::pool::WriteAhead;

const PAGE_BYTES: usize = 4096;

/// Pages by number.
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

fn page(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

fn image(no: u32, lsn: u64) -> Image {
    let mut bytes = vec![0; PAGE_BYTES];
    page::format(&mut bytes, page(no), 40, 16);
    page::set_page_lsn(&mut bytes, Lsn::new(lsn));
    bytes[100..108].copy_from_slice(&lsn.to_le_bytes());
    Image::of(page(no), &bytes, Access::Random)
}

fn open(frames: u64, has_threads: bool) -> Arc<FlashCache> {
    let config = FlashConfig {
        directory: MemoryDirectory::new(),
        size_bytes: 4096 + frames * PAGE_BYTES as u64,
        design: FlashDesign::DualWrite,
        pending_max: 10,
        writers: 1,
        dirty_percent: FlashConfig::DIRTY_PERCENT,
        clean_order: CleanOrder::LastUse,
    };
    let place = Place {
        database: 7,
        page_size: PAGE_BYTES,
        has_threads,
        is_below_nvm: false,
        below: Arc::new(Home::default()),
        ledger: Arc::default(),
        log: Arc::new(NoLog),
    };
    let Opened { cache, warning } = FlashCache::open(&config, place);
    assert_eq!(warning, None);
    cache.expect("its device is sound")
}

/// Everything is in the log.
struct NoLog;

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

/// A small generator of repeatable numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Reads a run with holes; whether each page has the LSN that `known` says.
fn read(cache: &FlashCache, first: u32, holes: &[bool], known: &[u64]) -> bool {
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
        assert!(cache.is_at_rest(), "step {step}: a frame is still in use");
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

/// What nobody writes fills the queue, and then nothing more is taken; what changes meanwhile is not found.
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
