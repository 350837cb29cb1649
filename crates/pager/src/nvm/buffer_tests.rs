//! The level over a region in memory and a home that is a map: order of persists, full and damaged media, threads.
//!
//! What it does not know: pool, files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use varve_device::{
    Change, Directory, MemoryDirectory, RecordLog, Recorder, Region, RegionFacts, RegionTally, Tracked,
};

use super::area::SLOT_HEADER_BYTES;
use super::*;
use crate::config::NvmFlush;
use crate::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::level::{Cause, Got, Image, Level, LevelReport, Need, Run, Step, Tier, Want};
use crate::lsn::Lsn;
use crate::page;
use crate::pool::WriteAhead;
use std::sync::Arc;

use crate::error::{PagerError, Result};
use parking_lot::Mutex;
use varve_device::{DeviceError, ErrorKind, Operation};

const PAGE_BYTES: usize = 4096;

/// Pages by their number, as home has them.
#[derive(Default)]
struct TestHome {
    pages: Mutex<BTreeMap<PageId, Vec<u8>>>,
    batches: Mutex<Vec<Vec<PageId>>>,
    is_full: AtomicBool,
}

impl Level for TestHome {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
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
    fn put(&self, batch: &[Image], _cause: Cause, need: Need) -> Result<()> {
        assert_eq!(need, Need::Stable);
        if self.is_full.load(SeqCst) {
            return Err(DeviceError::new("data", Operation::Write, ErrorKind::NoSpace).into());
        }
        let mut pages = self.pages.lock();
        for image in batch {
            let before = pages.insert(image.id(), image.bytes().to_vec());
            assert!(before.is_none_or(|old| page::page_lsn(&old) <= image.lsn()), "home goes back");
        }
        self.batches.lock().push(batch.iter().map(Image::id).collect());
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

/// A log that is durable as far as it is told.
struct TestLog(AtomicU64);

impl WriteAhead for TestLog {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.0.load(SeqCst))
    }
    fn flush(&self, upto: Lsn) -> Result<()> {
        self.0.fetch_max(upto.get(), SeqCst);
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn stop(&self, _cause: &PagerError) {}
}

/// A level of some slots, and what is around it.
struct Rig {
    region: Arc<dyn Region>,
    home: Arc<TestHome>,
    log: Arc<TestLog>,
    slots: u32,
}

impl Rig {
    fn over(directory: &dyn Directory, slots: u32) -> Rig {
        let region = directory.map("nvm", u64::from(slots) * (64 + PAGE_BYTES as u64) + 4096).unwrap();
        let log = Arc::new(TestLog(AtomicU64::new(1000)));
        Rig { region, home: Arc::default(), log, slots }
    }

    fn new(slots: u32) -> Rig {
        Rig::over(&*MemoryDirectory::new(), slots)
    }

    fn area(&self) -> area::PageArea {
        area::PageArea {
            headers: self.region.clone(),
            pages: Arc::new(Behind(self.region.clone())),
            region: 77,
            page_size: PAGE_BYTES as u32,
            slots: self.slots,
            location: "nvm".into(),
        }
    }

    /// The level as a start finds it.
    fn try_open(&self) -> Result<NvmBuffer> {
        NvmBuffer::open(self.area(), NvmFlush::DEFAULT, self.home.clone(), Arc::default(), self.log.clone())
    }

    fn open(&self) -> NvmBuffer {
        self.try_open().unwrap()
    }
}

/// The pages of the region, behind the headers, which take the first 4096 bytes.
struct Behind(Arc<dyn Region>);

const PAGES_AT: u64 = 4096;

impl Region for Behind {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes() - PAGES_AT
    }
    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.0.read(offset + PAGES_AT, buf);
    }
    fn store(&self, offset: u64, bytes: &[u8]) {
        self.0.store(offset + PAGES_AT, bytes);
    }
    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.0.write_back(offset + PAGES_AT, len_bytes);
    }
    fn fence(&self) {
        self.0.fence();
    }
    fn facts(&self) -> RegionFacts {
        self.0.facts()
    }
    fn tally(&self) -> RegionTally {
        self.0.tally()
    }
    fn settle(&self) -> varve_device::Result<()> {
        Ok(())
    }
}

fn id(no: u32) -> PageId {
    PageId::new(SpaceId::DATA, PageNo(no))
}

fn image(no: u32, lsn: u64) -> Image {
    let mut bytes = vec![lsn as u8; PAGE_BYTES];
    page::set_page_lsn(&mut bytes, Lsn::new(lsn));
    page::format(&mut bytes, id(no), 16, 0);
    bytes[100..].fill(lsn as u8);
    Image::of(id(no), &bytes, Access::Random)
}

fn put(level: &NvmBuffer, pages: &[u32], lsn: u64) -> Result<()> {
    let images: Vec<Image> = pages.iter().map(|no| image(*no, lsn)).collect();
    level.put(&images, Cause::Evict, Need::Held)
}

/// LSN of a page, and where it came from.
fn read(level: &NvmBuffer, no: u32) -> Result<(u64, Tier)> {
    let mut frame = varve_device::AlignedBuf::new(PAGE_BYTES);
    let mut want = [Want::Page { frame: &mut frame, got: None }];
    level.read(&mut [Run { first: id(no), want: &mut want }], Access::Random)?;
    let [Want::Page { frame, got }] = want else { unreachable!() };
    let got = got.unwrap();
    page::verify(frame, id(no)).unwrap();
    assert_eq!(page::page_lsn(frame), got.lsn);
    Ok((got.lsn.get(), got.from))
}

fn counter(level: &NvmBuffer, name: &str) -> u64 {
    level.report()[0].counters.iter().find(|(found, _)| *found == name).unwrap().1
}

#[test]
fn a_page_is_read_from_its_slot_and_goes_home_when_slots_are_short() {
    let rig = Rig::new(8);
    let level = rig.open();
    for no in 0..40 {
        put(&level, &[no], 10).unwrap();
        put(&level, &[no], 20).unwrap();
    }
    assert_eq!(read(&level, 39).unwrap(), (20, Tier::Nvm));
    assert_eq!(read(&level, 0).unwrap(), (20, Tier::Home));
    assert!(counter(&level, "reclaimed") > 0, "versions that were superseded in time are not written home");
    let mut damages = Vec::new();
    level.check(&mut damages).unwrap();
    assert_eq!(damages, Vec::<String>::new());
    let again = rig.open();
    (0..40).for_each(|no| assert_eq!(read(&again, no).unwrap().0, 20, "page {no} after a restart"));
}

/// A put stores, writes back and fences in this order: images and headers; state words; words of the older versions.
#[test]
fn the_steps_of_a_put_come_in_order() {
    let record = RecordLog::new();
    let rig = Rig::over(&*Recorder::wrap(MemoryDirectory::new(), record.clone()), 8);
    let level = rig.open();
    put(&level, &[1, 2], 10).unwrap();
    let before = record.recording().events.len();
    put(&level, &[1, 2], 20).unwrap();
    let steps: Vec<&str> = record.recording().events[before..]
        .iter()
        .filter_map(|event| match &event.change {
            Change::Fence => Some("fence"),
            Change::Store { offset, bytes, .. } if *offset < PAGES_AT && offset.is_multiple_of(64) => {
                Some(if bytes[..] == [0; 8] { "retire" } else { "publish" })
            }
            Change::Store { .. } => Some("fill"),
            _ => None,
        })
        .collect();
    let mut steps = steps;
    steps.dedup();
    assert_eq!(steps, ["fill", "fence", "publish", "fence", "retire", "fence"]);
}

#[test]
fn after_each_call_everything_stored_is_durable() {
    let rig = Rig::new(8);
    let tracked = Tracked::wrap(rig.region.clone());
    let rig = Rig { region: tracked.clone(), ..rig };
    let level = rig.open();
    for round in 1..30 {
        put(&level, &[round % 7, 7 + round % 5], u64::from(round)).unwrap();
        assert_eq!(tracked.unpersisted(), 0, "after put {round}");
        if round % 4 == 0 {
            level.discard(PageRange { first: id(round % 7), count: 2 }, Lsn::new(1)).unwrap();
            assert_eq!(tracked.unpersisted(), 0, "after discard {round}");
        }
    }
}

/// A process was killed when the word that frees the older version was stored, and in a cache only. A start that takes the slot
/// for free makes it so: power that fails later would bring the older version back, when home has the newer one alone.
#[test]
fn a_start_makes_durable_what_a_killed_process_freed_in_a_cache() {
    let rig = Rig::new(8);
    let tracked = Tracked::wrap(rig.region.clone());
    let rig = Rig { region: tracked.clone(), ..rig };
    let (older, newer) = (image(1, 10), image(1, 20));
    let area = rig.area();
    for (slot, sequence, image) in [(5, 7, &older), (2, 8, &newer)] {
        let header = area::SlotHeader::of(image, sequence);
        area.fill(slot, &header, image.bytes());
        area.publish(slot, &header);
    }
    area.fence();
    tracked.store_word(5 * SLOT_HEADER_BYTES as u64, 0);
    assert_eq!(tracked.unpersisted(), 1, "the process is killed before it writes that back");
    let level = rig.open();
    assert_eq!(counter(&level, "free"), 7, "the start takes the slot for free");
    assert_eq!(tracked.unpersisted(), 0, "so no power failure may publish it again");
}

#[test]
fn a_discarded_page_keeps_its_slot_until_the_log_knows() {
    let rig = Rig::new(8);
    let level = rig.open();
    put(&level, &[1, 2], 10).unwrap();
    level.discard(PageRange { first: id(1), count: 1 }, Lsn::new(2000)).unwrap();
    level.checkpoint(Step::End).unwrap();
    assert_eq!(read(&rig.open(), 1).unwrap(), (10, Tier::Nvm), "a crash brings it back");
    assert!(read(&level, 1).is_err(), "but nobody here sees it");
    rig.log.0.store(2000, SeqCst);
    level.checkpoint(Step::End).unwrap();
    assert!(read(&rig.open(), 1).is_err());
    level.discard(PageRange { first: id(2), count: 1 }, Lsn::new(2000)).unwrap();
    assert!(read(&rig.open(), 2).is_err(), "what the log knows goes at once");
    assert!(rig.home.batches.lock().is_empty(), "nothing discarded goes home");
}

/// All slots are of discarded pages whose discard is not durable yet: who needs one makes it durable.
#[test]
fn discarded_pages_do_not_block_the_area() {
    let rig = Rig::new(4);
    let level = rig.open();
    (0..4).for_each(|no| put(&level, &[no], 10).unwrap());
    level.discard(PageRange { first: id(0), count: 4 }, Lsn::new(2000)).unwrap();
    put(&level, &[9], 10).unwrap();
    assert_eq!(rig.log.0.load(SeqCst), 2000);
}

#[test]
fn of_two_versions_the_later_put_counts_whatever_its_lsn() {
    let rig = Rig::new(8);
    let (first, second) = (image(1, 30), image(1, 20));
    let area = rig.area();
    for (slot, sequence, image) in [(5, 7, &first), (2, 8, &second)] {
        let header = area::SlotHeader::of(image, sequence);
        area.fill(slot, &header, image.bytes());
        area.publish(slot, &header);
    }
    assert_eq!(read(&rig.open(), 1).unwrap(), (20, Tier::Nvm));
    let again = rig.open();
    assert_eq!(read(&again, 1).unwrap(), (20, Tier::Nvm), "twice is once");
    assert_eq!(counter(&again, "free"), 7);
    put(&again, &[1], 40).unwrap();
    assert_eq!(read(&rig.open(), 1).unwrap(), (40, Tier::Nvm), "sequences go on behind the largest");
}

#[test]
fn pages_that_are_not_in_use_have_no_slot_after_recovery() {
    let rig = Rig::new(8);
    put(&rig.open(), &[1, 2], 10).unwrap();
    rig.open().keep_used(|page| page == id(2));
    let level = rig.open();
    assert!(read(&level, 1).is_err());
    assert_eq!(read(&level, 2).unwrap(), (10, Tier::Nvm));
}

/// Whatever bit of a dirty slot is wrong, home's older page isn't taken for the newest.
#[test]
fn damage_in_a_slot_is_found_and_named() {
    let rig = Rig::new(4);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    level.flush_oldest(9).unwrap();
    put(&level, &[1], 20).unwrap();
    let slot = (0..4).find(|slot| rig.area().header(*slot) != area::Slot::Free).unwrap();
    let header_at = u64::from(slot) * SLOT_HEADER_BYTES as u64;
    let page_at = PAGES_AT + u64::from(slot) * PAGE_BYTES as u64;
    let places = (1..44).map(|at| header_at + at).chain([0, 7, 9, 20, 100, 4095].map(|at| page_at + at));
    for at in places {
        let mut byte = [0];
        rig.region.read(at, &mut byte);
        rig.region.store(at, &[byte[0] ^ 0x10]);
        let error = rig.try_open().err().expect("must be refused").to_string();
        assert!(error.contains(&format!("slot {slot}")), "byte {at}: {error}");
        assert!(read(&level, 1).is_err(), "byte {at}");
        let mut damages = Vec::new();
        level.check(&mut damages).unwrap();
        assert_eq!(damages.len(), 1, "byte {at}");
        rig.region.store(at, &byte);
    }
    assert_eq!(read(&rig.open(), 1).unwrap(), (20, Tier::Nvm));
}

#[test]
fn home_serves_a_clean_page_whose_slot_is_damaged() {
    let rig = Rig::new(4);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    level.flush_oldest(9).unwrap();
    rig.region.store(PAGES_AT + 200, &[9]);
    assert_eq!(read(&level, 1).unwrap().0, 10);
}

#[test]
fn home_does_not_stand_in_with_another_version() {
    let rig = Rig::new(4);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    level.flush_oldest(9).unwrap();
    rig.region.store(PAGES_AT + 200, &[9]);
    rig.home.pages.lock().insert(id(1), image(1, 9).bytes().to_vec());
    assert!(read(&level, 1).is_err(), "home has another version");
    assert_eq!(counter(&level, "clean"), 1, "and the slot is kept");
}

/// The running program knew that home had the page, and left the slot published: the next start took it for the only place of
/// the newest image, and refused the database.
#[test]
fn a_damaged_slot_that_home_replaced_does_not_bar_the_next_start() {
    for at in [3, 20, PAGES_AT + 200] {
        let rig = Rig::new(4);
        let tracked = Tracked::wrap(rig.region.clone());
        let rig = Rig { region: tracked.clone(), ..rig };
        let level = rig.open();
        put(&level, &[1], 10).unwrap();
        level.flush_oldest(9).unwrap();
        let mut byte = [0];
        rig.region.read(at, &mut byte);
        rig.region.store(at, &[byte[0] ^ 0x10]);
        rig.region.persist(at, 1);
        assert_eq!(read(&level, 1).unwrap().0, 10, "byte {at}");
        assert_eq!(tracked.unpersisted(), 0, "byte {at}");
        assert_eq!(read(&rig.open(), 1).unwrap(), (10, Tier::Home), "byte {at}: after a start");
        assert_eq!(read(&level, 1).unwrap(), (10, Tier::Home), "byte {at}: nobody looks at the slot again");
        assert_eq!([counter(&level, "replaced"), counter(&level, "free")], [1, 4], "byte {at}");
        put(&level, &[1], 20).unwrap();
        assert_eq!(read(&rig.open(), 1).unwrap(), (20, Tier::Nvm), "byte {at}: put again");
    }
}

#[test]
fn a_slot_beyond_the_log_is_refused() {
    let rig = Rig::new(4);
    put(&rig.open(), &[1], 900).unwrap();
    rig.log.0.store(800, SeqCst);
    let error = rig.try_open().err().expect("the log lost something").to_string();
    assert!(error.contains("data:1"), "{error}");
}

/// A full device: puts go on until the area is full; then they are refused whole, and with room everything goes on.
#[test]
fn a_full_home_refuses_only_when_the_area_is_full() {
    let rig = Rig::new(8);
    let level = rig.open();
    rig.home.is_full.store(true, SeqCst);
    (0..7).for_each(|no| put(&level, &[no], 10).unwrap());
    let refused = put(&level, &[20, 21], 10).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    (0..7).for_each(|no| assert_eq!(read(&level, no).unwrap(), (10, Tier::Nvm), "page {no}"));
    put(&level, &[3], 20).unwrap();
    assert!(read(&level, 20).is_err() && read(&level, 21).is_err(), "a refused put leaves nothing");
    rig.home.is_full.store(false, SeqCst);
    put(&level, &[20, 21], 10).unwrap();
    let again = rig.open();
    assert_eq!((read(&again, 3).unwrap().0, read(&again, 20).unwrap().0), (20, 10));
}

/// Several threads put pages of their own, and others flush; each page ends at its last put.
#[test]
fn threads_put_and_flush_together() {
    let rig = Rig::new(16);
    rig.log.0.store(1 << 40, SeqCst);
    let level = rig.open();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (level, is_done) = (&level, &is_done);
        let putters: Vec<_> = (0..4_u32)
            .map(|thread| {
                scope.spawn(move || {
                    for round in 0..300_u32 {
                        let first = thread * 16 + round % 15;
                        put(level, &[first, first + 1], u64::from(round) + 1).unwrap();
                        assert_eq!(read(level, first).unwrap().0, u64::from(round) + 1);
                    }
                })
            })
            .collect();
        let flushers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    while !is_done.load(SeqCst) {
                        level.flush_oldest(3).unwrap();
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        putters.into_iter().for_each(|thread| thread.join().unwrap());
        is_done.store(true, SeqCst);
        flushers.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let last =
        |page: u32| (0..300).rev().find(|round| [round % 15, round % 15 + 1].contains(&page)).unwrap() + 1;
    let mut damages = Vec::new();
    level.check(&mut damages).unwrap();
    assert_eq!(damages, Vec::<String>::new());
    for level in [level, rig.open()] {
        for no in (0..64).filter(|no| no % 16 < 15) {
            assert_eq!(read(&level, no).unwrap().0, u64::from(last(no % 16)), "page {no}");
        }
    }
}

/// Rounds of a flushing thread: none below the high mark, then down to the low one, the latest puts last.
#[test]
fn threads_flush_from_the_high_mark_to_the_low_one() {
    let rig = Rig::new(20);
    let level = rig.open();
    let mut is_flushing = false;
    (0..16).for_each(|no| put(&level, &[no], 10).unwrap());
    assert!(!level.flush_round(&mut is_flushing).unwrap(), "16 of 20 are not above 80 in a hundred");
    put(&level, &[16], 10).unwrap();
    while level.flush_round(&mut is_flushing).unwrap() {}
    assert_eq!((counter(&level, "dirty"), counter(&level, "clean")), (12, 5));
    let home: Vec<u32> = rig.home.batches.lock().concat().iter().map(|id| id.no().0).collect();
    assert_eq!(home, [0, 1, 2, 3, 4], "the oldest");
    assert_eq!(read(&level, 0).unwrap(), (10, Tier::Nvm), "and they serve reads on");
}
