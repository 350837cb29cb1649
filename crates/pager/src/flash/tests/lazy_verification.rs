//! Tests of lazy verification: which chunks of records are written again, and which part of the drive's
//! budget they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use varve_device::{
    AlignedBuf, Directory, ErrorKind, Fault, Faulty, MemoryDirectory, OpenHow, Operation, Purpose, Rule,
    Space, When,
};

use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::space_format::Geometry;
use crate::flash::cache::{FlashCache, Opened, Owner, Surroundings};
use crate::flash::config::{FlashFill, FlashRestart};
use crate::flash::policy::daily_writes::{Clock, Hands, running};
use crate::flash::policy::design::FlashDesign;
use crate::flash::restart::record::{RECORDS_OF_BLOCK, Record, TABLE_BLOCK_BYTES};
use crate::flash::restart::rounds::{CHUNK_BLOCKS_MIN, SHARE_OF_TRAFFIC};
use crate::flash::restart::start::Earlier;
use crate::flash::tests::cache::{PAGE_BYTES, image, open_with, page};
use crate::flash::tests::filling::Home;
use crate::flash::{FlashConfig, FlashSettings};
use crate::level::{Cause, Level, Need};
use crate::log::WriteAhead;
use crate::log::history::History;

/// The number of chunks of the cache.
const CHUNKS: u64 = 10;
const BLOCKS: u64 = CHUNKS * CHUNK_BLOCKS_MIN as u64;
const SLOTS: u64 = BLOCKS * RECORDS_OF_BLOCK as u64;

/// A log that is durable up to the LSN that a test sets.
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

/// Returns a cache that is full of pages, with a log that is durable up to LSN 1000.
fn full(daily: Option<u64>, clock: Clock) -> Rig {
    let (log, device) = (Arc::new(Durable(AtomicU64::new(1000))), Faulty::wrap(MemoryDirectory::new()));
    let how: (bool, Arc<dyn WriteAhead>) = (true, log.clone());
    let directory: Arc<dyn Directory> = device.clone();
    let cache = open_with(directory, SLOTS + BLOCKS, FlashDesign::DualWrite, how, (None, clock));
    cache.begin(7, None, |_| Ok(())).unwrap();
    let rig = Rig { cache, log, device };
    (0..4 * SLOTS as u32).for_each(|no| rig.put(no, 5));
    rig.cache.set_daily_writes(daily);
    rig
}

impl Rig {
    fn put(&self, no: u32, lsn: u64) {
        self.cache.put(&[image(no, lsn)], Cause::Evict, Need::Held).expect("home takes all");
        while self.cache.write_some(Duration::ZERO).expect("nothing fails") {}
    }

    /// Runs a round. Returns the number of chunks that were written in it.
    fn round(&self) -> u64 {
        let before = self.cache.counters.hardened.load(Relaxed);
        while !self.cache.harden_some() {}
        let blocks = self.cache.counters.hardened.load(Relaxed) - before;
        assert!(blocks.is_multiple_of(u64::from(CHUNK_BLOCKS_MIN)));
        blocks / u64::from(CHUNK_BLOCKS_MIN)
    }

    /// Returns the lowest `before` of all records on flash.
    fn oldest(&self) -> Option<Lsn> {
        let slots = (0..self.cache.slots()).filter_map(|slot| {
            let mut block = AlignedBuf::new(TABLE_BLOCK_BYTES);
            self.cache.drive.store.read_records(slot / RECORDS_OF_BLOCK as u32, &mut block).unwrap();
            Record::get(&block, self.cache.records.hardening.whose().epoch, slot)
        });
        slots.map(|record| record.before).min()
    }
}

#[test]
fn a_chunk_is_written_again_only_if_that_is_worth_it() {
    let rig = full(None, running());
    assert_eq!((u64::from(rig.cache.slots()), rig.round()), (SLOTS, CHUNKS));
    rig.log.to(2000);
    assert_eq!((rig.round(), rig.oldest()), (0, Some(Lsn::new(1000))), "what it says is still true");
    let some = rig.cache.table(0).pages()[0];
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
            for id in table.pages() {
                assert!(table.touch(id, rig.cache.slots.tick()));
            }
        }
        written += rig.round();
    }
    assert!(written > 0 && written <= CHUNKS * rounds / 8, "{written} chunks in {rounds} rounds");
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

#[test]
fn a_busy_drive_has_more_records_written() {
    let rig = full(None, running());
    let chunk_bytes = u64::from(CHUNK_BLOCKS_MIN) * TABLE_BLOCK_BYTES as u64;
    let pages_of_chunk = SHARE_OF_TRAFFIC * chunk_bytes / PAGE_BYTES as u64;
    let hits = |pages| rig.cache.counters.hits.fetch_add(pages, Relaxed);
    let beside = rig.cache.counters.written.load(Relaxed) / pages_of_chunk;
    assert!(beside > 1, "the cache was filled");
    assert_eq!(rig.cache.chunks_at_once() as u64, beside.min(CHUNKS));
    assert_eq!(rig.cache.chunks_at_once(), 1, "nothing was done since");
    hits(3 * pages_of_chunk);
    assert_eq!(rig.cache.chunks_at_once(), 3);
    for _ in 0..3 {
        hits(pages_of_chunk / 2 + 1);
        assert_eq!(rig.cache.chunks_at_once(), 1);
    }
    hits(pages_of_chunk / 2 + 1);
    assert_eq!(rig.cache.chunks_at_once(), 1, "what was too little for one has been used");
    hits(1 << 30);
    assert_eq!(rig.cache.chunks_at_once() as u64, CHUNKS, "a round at a time");
}

/// If the records of a chunk could not be written, the log is still needed from the position of its older
/// records.
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

/// Records may take a tenth of the budget, or half of it if the redo position waits for them. The rest is for
/// pages.
#[test]
fn records_have_a_share_of_the_budget() {
    const HOUR: u64 = 3600;
    let hands = Arc::new(Hands::default());
    // Ten chunks an hour.
    let daily = 25 * BLOCKS * TABLE_BLOCK_BYTES as u64;
    assert_eq!(TABLE_BLOCK_BYTES, PAGE_BYTES);
    let rig = full(Some(daily), hands.clock());
    let mut lsn = 1000;
    let mut day = |waits: bool| {
        let (mut chunks, mut pages) = (0, 0);
        for _ in 0..24 * 60 {
            hands.pass(HOUR / 60);
            lsn += 10;
            rig.log.to(lsn);
            // Every chunk changes all the time.
            for no in 0..CHUNKS as u32 {
                let slot = no * CHUNK_BLOCKS_MIN * RECORDS_OF_BLOCK as u32;
                let (partition, slot) = (
                    slot / rig.cache.slots.shape.partition_slots(),
                    slot % rig.cache.slots.shape.partition_slots(),
                );
                let mut table = rig.cache.table(partition as usize);
                let kept = table.kept(slot).map(|kept| kept.page);
                kept.map(|id| table.remove(id));
            }
            if waits {
                rig.cache.await_hardening(Lsn::new(lsn));
            }
            chunks += rig.round();
            for _ in 0..8 {
                let before = rig.cache.counters.admitted_dirty.load(Relaxed);
                rig.put(page(1).no().0 + (lsn % 5000) as u32, lsn);
                pages += rig.cache.counters.admitted_dirty.load(Relaxed) - before;
            }
        }
        (chunks, pages)
    };
    let (chunks, pages) = day(false);
    assert!((20..=26).contains(&chunks) && pages >= 800, "{chunks} chunks, {pages} pages");
    let (chunks, pages) = day(true);
    assert!((60..=125).contains(&chunks) && pages >= 440, "{chunks} chunks, {pages} pages");
}

fn kept(directory: Arc<dyn Directory>, restart: FlashRestart) -> Arc<FlashCache> {
    let config = FlashConfig {
        pending_max: 100,
        queued_max: 100,
        writers: 1,
        ..FlashConfig::with(
            directory,
            FlashSettings {
                design: FlashDesign::DualWrite,
                restart,
                fill: FlashFill::Aggressive,
                ..FlashSettings::of_size(4096 * (1 + BLOCKS + SLOTS))
            },
        )
    };
    let owner = Owner { database: 7, page_size: PAGE_BYTES, clock: running() };
    let around = Surroundings {
        has_threads: false,
        is_below_nvm: false,
        below: Arc::new(Home::default()),
        ledger: Arc::default(),
        log: Arc::new(Durable(AtomicU64::new(1000))),
    };
    let Opened { cache, .. } = FlashCache::open(&config, owner, around);
    cache.expect("its device is sound")
}

/// The record of one page could not be kept. Until the file says that its records are invalid, the record of
/// another page must still be right.
#[test]
fn nobody_changes_a_page_before_its_record_is_void() {
    const SLOW: Duration = Duration::from_secs(2);
    let files = MemoryDirectory::new();
    let device = Faulty::wrap(files.clone());
    let cache = kept(device.clone(), FlashRestart::MemoryMapped);
    cache.begin(7, None, |_| Ok(())).unwrap();
    let pages: Vec<u32> = (0..40).collect();
    pages
        .iter()
        .for_each(|no| cache.put(&[image(*no, 5)], Cause::Evict, Need::Held).expect("home takes all"));
    let one = page(0);
    let other = pages
        .iter()
        .map(|no| page(*no))
        .find(|id| cache.slots.partition_of(*id) != cache.slots.partition_of(one));
    let other = other.expect("there are several partitions");
    let write = |when, fault| Rule { operation: Some(Operation::Write), space: None, when, fault };
    // First the write of the record fails, and then the write of the header is slow.
    device.arm(write(When::Nth(1), Fault::Fails(ErrorKind::Io(5))));
    device.arm(write(When::Nth(2), Fault::Slow(SLOW)));
    let believed = std::thread::scope(|scope| {
        scope.spawn(|| cache.changed(one));
        while device.fired_count() < 2 {
            std::thread::yield_now();
        }
        cache.changed(other);
        // As a crash would leave it now.
        let file = files.open(crate::flash::io::store::FLASH_FILE, OpenHow::existing(Space::Flash)).unwrap();
        let mut header = AlignedBuf::new(4096);
        file.read_at(0, &mut header, Purpose::FlashMeta).unwrap();
        let is_void = header[40..48] == [0; 8];
        let has_record = (0..cache.slots()).any(|slot| {
            let mut block = AlignedBuf::new(TABLE_BLOCK_BYTES);
            let at = 4096 * (1 + u64::from(slot) / RECORDS_OF_BLOCK as u64);
            file.read_at(at, &mut block, Purpose::FlashMeta).unwrap();
            let record = Record::get(&block, cache.records.hardening.whose().epoch, slot);
            record.is_some_and(|record| record.page == other)
        });
        has_record && !is_void
    });
    assert!(!believed, "its page may be newer elsewhere now");
}

/// Returns an empty log from LSN 1000 on.
fn history() -> History {
    let start = Lsn::new(1000);
    History::empty(start)
}

/// Redo has not ended, and puts pages that lack later changes in the log.
#[test]
fn no_record_is_written_before_redo_is_over() {
    for restart in [FlashRestart::LazyVerification, FlashRestart::MemoryMapped] {
        let cache = kept(MemoryDirectory::new(), restart);
        let history = history();
        // The file is a new one.
        cache
            .begin(
                7,
                Some(Earlier { start: 6, has_cache: true, history: &history, noted: None, sealed: None }),
                |_| Ok(()),
            )
            .unwrap();
        cache.put(&[image(1, 950)], Cause::Evict, Need::Held).unwrap();
        cache.harden_some();
        assert_eq!(cache.counters.hardened.load(Relaxed), 0, "{restart:?}");
        cache.redone(|_| true);
        cache.harden_some();
        assert!(cache.counters.hardened.load(Relaxed) > 0, "{restart:?}");
    }
}

/// A file can be cut and grow again, with other descriptor pages. No log record says so.
#[test]
fn descriptor_pages_are_not_found_again() {
    let files = MemoryDirectory::new();
    let geometry = Geometry::of(SpaceId::DATA, PAGE_BYTES);
    let descriptor = geometry.descriptor_of(1);
    let cache = kept(files.clone(), FlashRestart::LazyVerification);
    cache.begin(7, None, |_| Ok(())).unwrap();
    let usual = descriptor.plus(1);
    let images = [image(descriptor.no().0, 5), image(usual.no().0, 5)];
    cache.put(&images, Cause::Evict, Need::Held).expect("home takes all");
    cache.harden_all(Lsn::ZERO).unwrap();
    drop(cache);
    let (cache, history) = (kept(files, FlashRestart::LazyVerification), history());
    cache
        .begin(
            8,
            Some(Earlier { start: 7, has_cache: true, history: &history, noted: None, sealed: None }),
            |_| Ok(()),
        )
        .unwrap();
    let found: Vec<PageId> = cache.tables().flat_map(|table| table.pages()).collect();
    assert_eq!(found, [usual]);
}
