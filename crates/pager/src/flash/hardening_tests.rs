//! Which chunks of records are written again, and how much of the drive's budget they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use varve_device::{AlignedBuf, Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When};

use super::budget::{Clock, Hands, running};
use super::cache::FlashCache;
use super::cache_tests::{PAGE_BYTES, image, open_with, page};
use super::design::FlashDesign;
use super::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES};
use crate::error::{PagerError, Result};
use crate::level::{Cause, Image, Level, Need};
use crate::lsn::Lsn;
use crate::pool::WriteAhead;

const FRAMES: u64 = 640;
/// Chunks of them: a block each.
const CHUNKS: u64 = 10;

/// A log that is durable as far as a test says.
struct Durable(AtomicU64);

impl Durable {
    fn to(&self, lsn: u64) {
        self.0.store(lsn, Relaxed);
    }
}

impl WriteAhead for Durable {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.0.load(Relaxed))
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

struct Rig {
    cache: Arc<FlashCache>,
    log: Arc<Durable>,
    device: Arc<Faulty>,
}

/// Full of pages; the log is durable up to 1000.
fn full(daily: Option<u64>, clock: Clock) -> Rig {
    let (log, device) = (Arc::new(Durable(AtomicU64::new(1000))), Faulty::wrap(MemoryDirectory::new()));
    let how: (bool, Arc<dyn WriteAhead>) = (true, log.clone());
    let directory: Arc<dyn Directory> = device.clone();
    let blocks = FRAMES.div_ceil(RECORDS_OF_BLOCK as u64);
    let cache = open_with(directory, FRAMES + blocks, FlashDesign::DualWrite, how, (None, clock));
    cache.begin(7, None);
    let rig = Rig { cache, log, device };
    (0..4 * FRAMES as u32).for_each(|no| rig.put(no, 5));
    rig.cache.set_daily_writes(daily);
    rig
}

impl Rig {
    fn put(&self, no: u32, lsn: u64) {
        self.cache.put(&[image(no, lsn)], Cause::Evict, Need::Held).expect("home takes all");
        while self.cache.write_some(std::time::Duration::ZERO).expect("nothing fails") {}
    }

    /// A round; blocks that were written in it.
    fn round(&self) -> u64 {
        let before = self.cache.counters.hardened.load(Relaxed);
        while !self.cache.harden_some() {}
        self.cache.counters.hardened.load(Relaxed) - before
    }

    /// The oldest moment that a record on flash was written of.
    fn oldest(&self) -> Option<Lsn> {
        let frames = (0..self.cache.frames()).filter_map(|frame| {
            let mut block = AlignedBuf::new(TABLE_BLOCK_BYTES);
            self.cache.store.read_records(frame / RECORDS_OF_BLOCK as u32, &mut block).unwrap();
            Record::get(&block, self.cache.hardening.whose().epoch, frame)
        });
        frames.map(|record| record.before).min()
    }
}

#[test]
fn a_chunk_is_written_again_only_if_that_is_worth_it() {
    let rig = full(None, running());
    assert_eq!((u64::from(rig.cache.frames()), rig.round()), (FRAMES, CHUNKS));
    rig.log.to(2000);
    assert_eq!((rig.round(), rig.oldest()), (0, Some(Lsn::new(1000))), "what it says is still true");
    let some = rig.cache.table(0).pages()[0].0;
    rig.put(some.no().0, 1500);
    assert_eq!(rig.round(), 1, "another version of one page");
    rig.cache.changed(some);
    assert_eq!((rig.round(), rig.round()), (1, 0), "it is gone");
    assert_eq!(rig.cache.hardened_from(), Some(Lsn::new(1000)));
}

#[test]
fn reading_alone_has_records_written_now_and_then() {
    let rig = full(None, running());
    rig.round();
    let rounds = 32;
    let mut written = 0;
    for _ in 0..rounds {
        // An access of every page.
        for mut table in rig.cache.tables() {
            for (id, _) in table.pages() {
                assert!(table.touch(id, rig.cache.tick()));
            }
        }
        written += rig.round();
    }
    assert!(written > 0 && written <= CHUNKS * rounds / 8, "{written} blocks in {rounds} rounds");
}

#[test]
fn whoever_waits_has_all_of_them_written_once() {
    let rig = full(None, running());
    rig.round();
    rig.log.to(2000);
    // In the middle of a round.
    (0..4).for_each(|_| assert!(!rig.cache.harden_some()));
    rig.cache.await_hardening(Lsn::new(1800));
    assert!(rig.cache.is_hardening_awaited());
    let written = rig.round() + rig.round();
    assert_eq!(written, CHUNKS);
    assert!(!rig.cache.is_hardening_awaited());
    assert_eq!((rig.oldest(), rig.cache.hardened_from()), (Some(Lsn::new(2000)), Some(Lsn::new(2000))));
    rig.cache.await_hardening(Lsn::new(1900));
    assert_eq!((rig.round(), rig.cache.is_hardening_awaited()), (0, false), "they are as new as that");
}

/// What could not be written is older than whoever cuts the log is told.
#[test]
fn a_write_that_fails_moves_nothing_on() {
    let rig = full(None, running());
    rig.round();
    rig.log.to(2000);
    rig.cache.await_hardening(Lsn::new(2000));
    let fault = Fault::Fails(ErrorKind::Io(5));
    rig.device.arm(Rule { operation: Some(Operation::Write), space: None, when: When::Nth(3), fault });
    assert_eq!(rig.round(), CHUNKS - 1);
    assert_eq!((rig.oldest(), rig.cache.hardened_from()), (Some(Lsn::new(1000)), Some(Lsn::new(1000))));
    rig.device.disarm();
    assert_eq!((rig.round(), rig.oldest()), (1, Some(Lsn::new(2000))), "it is tried again");
}

#[test]
fn a_failing_cache_holds_nobody_up() {
    let rig = full(None, running());
    rig.round();
    assert!(rig.cache.hardened_from().is_some());
    rig.cache.lose(&PagerError::Corrupt { what: "a test says so".into() });
    rig.cache.await_hardening(Lsn::new(2000));
    assert_eq!((rig.round(), rig.cache.hardened_from()), (0, None));
    assert!(!rig.cache.is_hardening_awaited());
}

/// A tenth of what may be written, or half of it for who waits: the rest is that of pages.
#[test]
fn records_have_a_share_of_the_budget() {
    const HOUR: u64 = 3600;
    let hands = Arc::new(Hands::default());
    // Ten blocks an hour.
    let daily = 25 * 10 * TABLE_BLOCK_BYTES as u64;
    assert_eq!(TABLE_BLOCK_BYTES, PAGE_BYTES);
    let rig = full(Some(daily), hands.clock());
    let mut lsn = 1000;
    let mut day = |waits: bool| {
        let (mut blocks, mut pages) = (0, 0);
        for _ in 0..24 * 60 {
            hands.pass(HOUR / 60);
            lsn += 10;
            rig.log.to(lsn);
            // Every chunk changes all the time.
            for no in 0..CHUNKS as u32 {
                let frame = no * RECORDS_OF_BLOCK as u32;
                let (partition, frame) =
                    (frame / rig.cache.partition_frames, frame % rig.cache.partition_frames);
                let mut table = rig.cache.table(partition as usize);
                let kept = table.kept(frame).map(|kept| kept.page);
                kept.map(|id| table.remove(id));
            }
            if waits {
                rig.cache.await_hardening(Lsn::new(lsn));
            }
            blocks += rig.round();
            for _ in 0..2 {
                let before = rig.cache.counters.admitted_dirty.load(Relaxed);
                rig.put(page(1).no().0 + (lsn % 5000) as u32, lsn);
                pages += rig.cache.counters.admitted_dirty.load(Relaxed) - before;
            }
        }
        (blocks, pages)
    };
    let (blocks, pages) = day(false);
    assert!((20..=26).contains(&blocks) && pages >= 200, "{blocks} blocks, {pages} pages");
    let (blocks, pages) = day(true);
    assert!((60..=125).contains(&blocks) && pages >= 110, "{blocks} blocks, {pages} pages");
}
