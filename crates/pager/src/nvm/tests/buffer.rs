//! Tests of the NVM page buffer over a region in memory and a map in place of the data files: the order in
//! which stores become durable, full devices, damaged memory.
//!
//! This module does not know pool or files.

use std::sync::atomic::Ordering::SeqCst;

use varve_device::{Change, MemoryDirectory, RecordLog, Recorder, Region, Tracked};

use super::rig::{PAGE_BYTES, PAGES_AT, Rig, counter, damages, id, image, put, put_for, range, read};
use crate::base::error::PagerError;
use crate::base::lsn::Lsn;
use crate::level::{Cause, Level, Step, Tier};
use crate::nvm::NvmFlush;
use crate::nvm::area::{SLOT_HEADER_BYTES, Slot};

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
    assert_eq!(damages(&level), Vec::<String>::new());
    let again = rig.open();
    (0..40).for_each(|no| assert_eq!(read(&again, no).unwrap().0, 20, "page {no} after a restart"));
}

/// A put stores, writes back and fences in this order: first images and headers, then state words, then the
/// words of the older versions.
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
            level.discard(range(round % 7, 2), Lsn::new(1)).unwrap();
            assert_eq!(tracked.unpersisted(), 0, "after discard {round}");
        }
    }
}

/// A process is killed when the word that frees the older version is stored, but only in a cache. A start
/// that counts the slot as free must make this durable. Otherwise a later power failure would bring the older
/// version back, while the data files have only the newer one.
#[test]
fn a_start_makes_durable_what_a_killed_process_freed_in_a_cache() {
    let rig = Rig::new(8);
    let tracked = Tracked::wrap(rig.region.clone());
    let rig = Rig { region: tracked.clone(), ..rig };
    rig.publish(5, 7, &image(1, 10));
    rig.publish(2, 8, &image(1, 20));
    tracked.store_word(5 * SLOT_HEADER_BYTES as u64, 0);
    assert_eq!(tracked.unpersisted(), 1, "the process is killed before it writes that back");
    let level = rig.open();
    assert_eq!(counter(&level, "free"), 7, "the start takes the slot for free");
    assert_eq!(tracked.unpersisted(), 0, "so no power failure may publish it again");
}

/// A published slot may be in a processor cache only. The start relies on the slot, so it must make the slot
/// durable.
#[test]
fn a_start_makes_durable_what_a_killed_process_published_in_a_cache() {
    let rig = Rig::new(8);
    rig.publish(3, 7, &image(1, 20));
    let tracked = Tracked::wrap(rig.region.clone());
    let rig = Rig { region: tracked.clone(), ..rig };
    let page_at = PAGES_AT + 3 * PAGE_BYTES as u64;
    for (at, len_bytes) in [(3 * SLOT_HEADER_BYTES as u64, SLOT_HEADER_BYTES), (page_at, PAGE_BYTES)] {
        let mut bytes = vec![0; len_bytes];
        tracked.read(at, &mut bytes);
        tracked.store(at, &bytes);
    }
    assert_eq!(
        tracked.unpersisted(),
        1 + PAGE_BYTES / 64,
        "the process is killed before it writes that back"
    );
    assert_eq!(read(&rig.open(), 1).unwrap(), (20, Tier::Nvm));
    assert_eq!(tracked.unpersisted(), 0, "so no power failure may take it away");
}

#[test]
fn a_discarded_page_keeps_its_slot_until_the_log_knows() {
    let rig = Rig::new(8);
    let level = rig.open();
    put(&level, &[1, 2], 10).unwrap();
    level.discard(range(1, 1), Lsn::new(2000)).unwrap();
    level.checkpoint(Step::BeforeEnd).unwrap();
    assert_eq!(read(&rig.open(), 1).unwrap(), (10, Tier::Nvm), "a crash brings it back");
    assert!(read(&level, 1).is_err(), "but nobody here sees it");
    rig.log.durable.store(2000, SeqCst);
    level.checkpoint(Step::BeforeEnd).unwrap();
    assert!(read(&rig.open(), 1).is_err());
    level.discard(range(2, 1), Lsn::new(2000)).unwrap();
    assert!(read(&rig.open(), 2).is_err(), "what the log knows goes at once");
    assert!(rig.home.batches.lock().is_empty(), "nothing discarded goes home");
}

/// All slots have discarded pages, and the discard is not durable in the log yet. A put that needs a slot
/// makes the discard durable.
#[test]
fn discarded_pages_do_not_block_the_area() {
    let rig = Rig::new(4);
    let level = rig.open();
    (0..4).for_each(|no| put(&level, &[no], 10).unwrap());
    level.discard(range(0, 4), Lsn::new(2000)).unwrap();
    put(&level, &[9], 10).unwrap();
    assert_eq!(rig.log.durable.load(SeqCst), 2000);
}

#[test]
fn of_two_versions_the_later_put_counts_whatever_its_lsn() {
    let rig = Rig::new(8);
    rig.publish(5, 7, &image(1, 30));
    rig.publish(2, 8, &image(1, 20));
    assert_eq!(read(&rig.open(), 1).unwrap(), (20, Tier::Nvm));
    let again = rig.open();
    assert_eq!(read(&again, 1).unwrap(), (20, Tier::Nvm), "twice is once");
    assert_eq!(counter(&again, "free"), 7);
    put(&again, &[1], 40).unwrap();
    assert_eq!(read(&rig.open(), 1).unwrap(), (40, Tier::Nvm), "sequences go on behind the largest");
}

#[test]
fn pages_behind_the_end_of_their_file_have_no_slot_after_recovery() {
    let rig = Rig::new(8);
    put(&rig.open(), &[1, 2], 10).unwrap();
    rig.open().keep_placed(|page| page == id(2));
    let level = rig.open();
    assert!(read(&level, 1).is_err());
    assert_eq!(read(&level, 2).unwrap(), (10, Tier::Nvm));
}

/// If any bit of a dirty slot is wrong, the older page in the data files is not used instead.
#[test]
fn damage_in_a_slot_is_found_and_named() {
    let rig = Rig::new(4);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    level.flush_some(9).unwrap();
    put(&level, &[1], 20).unwrap();
    let slot = (0..4).find(|slot| rig.area().header(*slot) != Slot::Free).unwrap();
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
        assert_eq!(damages(&level).len(), 1, "byte {at}");
        rig.region.store(at, &byte);
    }
    assert_eq!(read(&rig.open(), 1).unwrap(), (20, Tier::Nvm));
}

#[test]
fn home_serves_a_clean_page_whose_slot_is_damaged() {
    let rig = Rig::new(4);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    level.flush_some(9).unwrap();
    rig.region.store(PAGES_AT + 200, &[9]);
    assert_eq!(read(&level, 1).unwrap().0, 10);
}

#[test]
fn home_does_not_stand_in_with_another_version() {
    let rig = Rig::new(4);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    level.flush_some(9).unwrap();
    rig.region.store(PAGES_AT + 200, &[9]);
    rig.home.pages.lock().insert(id(1), image(1, 9).bytes().to_vec());
    assert!(read(&level, 1).is_err(), "home has another version");
    assert_eq!(counter(&level, "clean"), 1, "and the slot is kept");
}

/// The running program knows that the data files have the page. In an earlier version it left the slot
/// published. The next start took the slot for the only place of the newest image, and refused the database.
#[test]
fn a_damaged_slot_that_home_replaced_does_not_bar_the_next_start() {
    for at in [3, 20, PAGES_AT + 200] {
        let rig = Rig::new(4);
        let tracked = Tracked::wrap(rig.region.clone());
        let rig = Rig { region: tracked.clone(), ..rig };
        let level = rig.open();
        put(&level, &[1], 10).unwrap();
        level.flush_some(9).unwrap();
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

/// Two slots have the same sequence number. The fuzzer found that an earlier version accepted both, and that
/// a put of one of the pages ended the process. If both slots have the same page, it is unknown which version
/// is newer. So the start must refuse the region.
#[test]
fn two_slots_with_the_number_of_one_put_are_refused() {
    for page in [1, 2] {
        let rig = Rig::new(8);
        rig.publish(3, 7, &image(1, 20));
        rig.publish(5, 7, &image(page, 30));
        let error = rig.try_open().err().expect("must be refused").to_string();
        assert!(error.contains("slot 5 ") && error.contains("the number of its put"), "{error}");
    }
}

/// Several threads read a large area at a start. Versions of one page may be in the parts of two threads.
#[test]
fn a_large_area_is_found_whole() {
    const SLOTS: u32 = 3 * 8192;
    let rig = Rig::new(SLOTS);
    let slots = [0, 1, 8191, 8192, 16_000, SLOTS - 1];
    for (at, slot) in (0..).zip(slots) {
        rig.publish(slot, 10 + u64::from(at), &image(at / 2, 20 + u64::from(at)));
    }
    let level = rig.open();
    assert_eq!(counter(&level, "free"), u64::from(SLOTS) - 3);
    assert_eq!([0, 1, 2].map(|no| read(&level, no).unwrap()), [21, 23, 25].map(|lsn| (lsn, Tier::Nvm)));
    rig.region.store((u64::from(SLOTS) - 1) * SLOT_HEADER_BYTES as u64 + 8, &[0xEE]);
    let error = rig.try_open().err().expect("must be refused").to_string();
    assert!(error.contains("slot 24575 "), "{error}");
}

#[test]
fn a_slot_beyond_the_log_is_refused() {
    let rig = Rig::new(4);
    put(&rig.open(), &[1], 900).unwrap();
    rig.log.durable.store(800, SeqCst);
    let error = rig.try_open().err().expect("the log lost something").to_string();
    assert!(error.contains("data:1"), "{error}");
}

/// The device of the data files is full. Puts continue until all slots are used. Then whole puts are refused.
/// When the device has space, everything continues.
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

/// The data files have no space for the oldest pages, but for hundreds of younger ones. In an earlier
/// version, the oldest pages blocked all others, because only they were tried.
#[test]
fn pages_that_a_full_device_refuses_bar_no_others() {
    let rig = Rig::new(400);
    let level = rig.open();
    level.set_flush(NvmFlush { high_water: 80, low_water: 60, ..NvmFlush::DEFAULT });
    rig.home.roomless.lock().extend((0..300).map(id));
    (0..400).for_each(|no| put(&level, &[no], 10).unwrap());
    (400..600).for_each(|no| put(&level, &[no], 10).unwrap());
    assert!(counter(&level, "refused") > 0);
    assert_eq!((read(&level, 0).unwrap(), read(&level, 320).unwrap()), ((10, Tier::Nvm), (10, Tier::Home)));
    let mut is_flushing = true;
    for _ in 0..20 {
        // After each refusal a flushing thread also continues with other pages.
        let _no_room = level.flush_round(&mut is_flushing);
    }
    assert_eq!(counter(&level, "dirty"), 300, "only what has no room stays");
    rig.home.roomless.lock().clear();
    (600..1000).for_each(|no| put(&level, &[no], 10).unwrap());
    (0..1000).for_each(|no| assert_eq!(read(&level, no).unwrap().0, 10, "page {no}"));
}

/// Waits of threads that need a frame are counted separately from waits of page writers.
#[test]
fn puts_that_write_home_themselves_are_counted() {
    let rig = Rig::new(4);
    let level = rig.open();
    (0..4).for_each(|no| put_for(&level, &[no], 10, Cause::EvictInline).unwrap());
    let counts = |level: &_| ["put_flushes", "inline_flushes", "slot_waits"].map(|name| counter(level, name));
    assert_eq!(counts(&level), [0, 0, 0]);
    put_for(&level, &[4], 10, Cause::EvictInline).unwrap();
    assert_eq!(counts(&level), [1, 1, 0]);
    (5..9).for_each(|no| put(&level, &[no], 10).unwrap());
    assert_eq!(counts(&level), [2, 1, 0]);
}

/// A flushing thread does nothing below the high mark. Then it flushes down to the low mark, the latest puts
/// last.
#[test]
fn threads_flush_from_the_high_mark_to_the_low_one() {
    let rig = Rig::new(20);
    let level = rig.open();
    let mut is_flushing = false;
    (0..18).for_each(|no| put(&level, &[no], 10).unwrap());
    assert!(!level.flush_round(&mut is_flushing).unwrap(), "18 of 20 are not above 90 in a hundred");
    put(&level, &[18], 10).unwrap();
    while level.flush_round(&mut is_flushing).unwrap() {}
    assert_eq!((counter(&level, "dirty"), counter(&level, "clean")), (16, 3));
    let home: Vec<u32> = rig.home.batches.lock().concat().iter().map(|id| id.no().0).collect();
    assert_eq!(home, [0, 1, 2], "the oldest");
    assert_eq!(read(&level, 0).unwrap(), (10, Tier::Nvm), "and they serve reads on");
}

/// A large area is read in parts. The newer version of a page wins in whichever part it is, and damage in any
/// part is found.
#[test]
fn parts_of_a_large_area_are_put_together() {
    let rig = Rig::new(16_384);
    let (first, last) = (3, 16_380);
    for (older, newer, page) in [(first, last, 1), (last - 1, first + 1, 2)] {
        rig.publish(older, u64::from(2 * page), &image(page, 10));
        rig.publish(newer, u64::from(2 * page + 1), &image(page, 20));
    }
    rig.publish(last - 2, 9, &image(3, 15));
    let level = rig.open();
    let found = [1, 2, 3].map(|page| read(&level, page).unwrap());
    assert_eq!(found, [(20, Tier::Nvm), (20, Tier::Nvm), (15, Tier::Nvm)]);
    assert_eq!(damages(&level), Vec::<String>::new());
    drop(level);
    let area = rig.area();
    area.headers.store_word(u64::from(last) * 64, 0x7751);
    let told = rig.try_open().err().expect("a slot is damaged").to_string();
    assert!(told.contains("slot 16380 of nvm is damaged"), "{told}");
}

/// The data files have no space for the first pages, but have space for the later ones. The later pages are
/// written there, and the error of the first ones is returned.
#[test]
fn what_has_room_goes_home_behind_what_has_none() {
    let rig = Rig::new(400);
    let level = rig.open();
    for no in 0..300 {
        put(&level, &[no], 10).unwrap();
    }
    rig.home.roomless.lock().extend((0..200).map(id));
    assert!(level.bring_home().is_err_and(|error| error.is_no_space()));
    assert_eq!(rig.home.pages.lock().len(), 100, "the others are home");
    rig.home.roomless.lock().clear();
    level.bring_home().unwrap();
    assert_eq!(rig.home.pages.lock().len(), 300);
}

/// Another thread is writing a page to the data files. In an earlier version, an assertion failed in this
/// case, and the process ended.
#[test]
fn the_region_is_not_left_while_somebody_writes_a_page_home() {
    let rig = Rig::new(8);
    let level = rig.open();
    put(&level, &[1], 10).unwrap();
    rig.home.gate.close();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| level.flush_some(1));
        rig.home.gate.await_somebody();
        let left = level.bring_home();
        rig.home.gate.open();
        assert!(matches!(left, Err(PagerError::Stopped { .. })), "{left:?}");
        assert_eq!(other.join().unwrap().unwrap(), 1);
    });
    level.bring_home().unwrap();
    assert_eq!(rig.home.pages.lock().len(), 1);
}
