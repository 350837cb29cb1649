//! A full log device: the database opens and can be read. Work that needs only recycled segments continues.
//! Other work is refused until there is space, without a restart. A full data device is tested, too.

use std::sync::Arc;

use crate::common::{SEGMENT_BYTES, add, config, end_with_the_segment, get, is_full, note, open, set};
use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{PageId, Pager, PagerConfig, ProtectionKind, SpaceId};

/// Returns a configuration whose log device can be full.
fn with_log(directory: &Arc<MemoryDirectory>) -> (PagerConfig, Arc<Faulty>) {
    let faulty = Faulty::wrap(directory.clone());
    let mut config = config(directory, 64);
    config.log = faulty.clone();
    (config, faulty)
}

fn fill(device: &Faulty) {
    let fault = Fault::Fails(ErrorKind::NoSpace);
    let (operation, space) = (Some(Operation::SetLen), Some(Space::Log));
    device.arm(Rule { operation, space, when: When::From(1), fault });
}

fn log_files(pager: &Pager) -> u64 {
    let stats = pager.log().stats();
    stats.live_segments_count + stats.spare_segments_count
}

fn pages(pager: &Pager) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..50).map(|number| add(pager, owner, number).unwrap()).collect()
}

fn assert_numbers(pager: &Pager, ids: &[PageId], first: u64) {
    for (id, number) in ids.iter().zip(first..) {
        assert_eq!(get(pager, *id).unwrap(), number);
    }
}

#[test]
fn a_log_of_one_full_segment_opens_for_reading_and_goes_on_when_there_is_room() {
    let directory = MemoryDirectory::new();
    let (config, device) = with_log(&directory);
    let pager = open(&config);
    let ids = pages(&pager);
    end_with_the_segment(&pager);
    assert_eq!(log_files(&pager), 1);
    drop(pager);
    fill(&device);
    for _ in 0..2 {
        let pager = open(&config);
        assert_numbers(&pager, &ids, 0);
        let error = set(&pager, ids[0], 1).unwrap_err();
        assert!(is_full(&error), "{error}");
        pager.tick_write(100).unwrap();
        pager.checkpoint().unwrap();
        assert!(is_full(&set(&pager, ids[0], 1).unwrap_err()));
    }
    let pager = open(&config);
    assert!(is_full(&set(&pager, ids[0], 1).unwrap_err()));
    device.disarm();
    for (id, number) in ids.iter().zip(100..) {
        set(&pager, *id, number).unwrap();
    }
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    assert_numbers(&open(&config), &ids, 100);
}

#[test]
fn a_log_whose_two_segments_are_full_recycles_after_opening() {
    let directory = MemoryDirectory::new();
    let (config, device) = with_log(&directory);
    let pager = open(&config);
    let ids = pages(&pager);
    note(&pager, 160 << 10).unwrap();
    note(&pager, 90 << 10).unwrap();
    note(&pager, 90 << 10).unwrap();
    assert_eq!(log_files(&pager), 2);
    fill(&device);
    end_with_the_segment(&pager);
    drop(pager);
    let pager = open(&config);
    assert_numbers(&pager, &ids, 0);
    for (id, number) in ids.iter().zip(100..) {
        set(&pager, *id, number).unwrap();
    }
    pager.flush_log(pager.log().end()).unwrap();
    assert_eq!(log_files(&pager), 2);
    drop(pager);
    assert_numbers(&open(&config), &ids, 100);
}

#[test]
fn segments_that_redo_does_not_need_are_recycled_at_opening() {
    let directory = MemoryDirectory::new();
    let (config, device) = with_log(&directory);
    let pager = open(&config);
    let ids = pages(&pager);
    // The log is filled into the first part of a later segment, where the next segment is not made yet.
    while pager.log().end().get() < 2 * SEGMENT_BYTES
        || pager.log().end().get() % SEGMENT_BYTES > SEGMENT_BYTES / 3
    {
        note(&pager, 20 << 10).unwrap();
        pager.tick_write(100).unwrap();
        pager.checkpoint().unwrap();
    }
    note(&pager, 1).unwrap();
    assert!(pager.log().stats().spare_segments_count > 0);
    end_with_the_segment(&pager);
    drop(pager);
    fill(&device);
    let pager = open(&config);
    set(&pager, ids[0], 0).unwrap();
    assert_numbers(&pager, &ids, 0);
}

#[test]
fn a_log_of_two_segments_goes_on_for_ever_on_a_full_device() {
    let directory = MemoryDirectory::new();
    let (config, device) = with_log(&directory);
    let pager = open(&config);
    let ids = pages(&pager);
    note(&pager, 160 << 10).unwrap();
    note(&pager, 1).unwrap();
    assert_eq!(log_files(&pager), 2);
    fill(&device);
    for round in 0..400 {
        note(&pager, 10_000).unwrap();
        set(&pager, ids[round % 50], 1000).unwrap();
    }
    assert_eq!(log_files(&pager), 2);
    device.disarm();
    for _ in 0..200 {
        note(&pager, 10_000).unwrap();
    }
    assert!(log_files(&pager) > 2, "with room again the log grows as configured");
}

/// The making of a log file fails at each operation in turn. In an earlier version, a file that got its name
/// and then could not be opened had the same number as the segment that was made in place of it ("log.0004
/// claims to be segment 4, which another file is too").
#[test]
fn a_log_file_whose_making_breaks_off_anywhere_is_no_second_file_of_its_number() {
    let mut fired = 0;
    for n in 1..12 {
        let directory = MemoryDirectory::new();
        let (config, device) = with_log(&directory);
        let pager = open(&config);
        let ids = pages(&pager);
        let fault = Fault::Fails(ErrorKind::NoSpace);
        let (operation, space) = (Some(Operation::Open), Some(Space::Log));
        device.arm(Rule { operation, space, when: When::Nth(n), fault });
        let mut rounds_left = 200;
        while rounds_left > 0 {
            let _refused_once = note(&pager, 10_000);
            let _refused_once = set(&pager, ids[rounds_left % 50], 1000);
            // The crash comes while the number is in use.
            rounds_left = (rounds_left - 1).min(if device.fired_count() > 0 { 8 } else { 200 });
        }
        fired += device.fired_count();
        drop(pager);
        device.disarm();
        assert_numbers(&open(&config), &ids[..0], 0);
    }
    assert!(fired > 2, "only {fired} openings were refused");
}

/// In an earlier version, every mini-transaction tried twice to make the file longer on a full device. A
/// DELETE of 8,000 rows took a minute.
#[test]
fn a_refused_growth_is_not_tried_again_by_every_mini_transaction() {
    let directory = MemoryDirectory::new();
    let device = Faulty::wrap(directory.clone());
    let config = PagerConfig { data: device.clone(), background: true, ..config(&directory, 256) };
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let fault = Fault::Fails(ErrorKind::NoSpace);
    device.arm(Rule { operation: Some(Operation::SetLen), space: None, when: When::From(1), fault });
    let mut ids = Vec::new();
    while let Ok(id) = add(&pager, owner, ids.len() as u64) {
        ids.push(id);
        assert!(ids.len() < 100_000, "the device never fills up");
    }
    let before = device.fired_count();
    (0..5000).for_each(|number| set(&pager, ids[number % ids.len()], number as u64).unwrap());
    let tries = device.fired_count() - before;
    assert!(tries < 2000, "{tries} tries for 5,000 changes");
    device.disarm();
    let began = std::time::Instant::now();
    while add(&pager, owner, 0).is_err() {
        assert!(began.elapsed().as_secs() < 30, "it does not go on with room again");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// More page writers, or more slots, need a longer doublewrite file. In an earlier version, the start ended
/// with "no space left on the device", although it did not need the longer file.
#[test]
fn a_doublewrite_file_that_has_no_room_to_grow_stays_as_it_is() {
    let directory = MemoryDirectory::new();
    let device = Faulty::wrap(directory.clone());
    let one =
        PagerConfig { data: device.clone(), background: true, page_writers: 1, ..config(&directory, 64) };
    let slots = ProtectionKind::Doublewrite { batch_slots: 16, single_slots: 4 };
    let more = [
        PagerConfig { page_writers: 4, ..one.clone() },
        PagerConfig { page_writers: 3, protection: slots, ..one.clone() },
        // This needs more areas than the file has slots.
        PagerConfig { page_writers: 12, ..one.clone() },
    ];
    let pager = open(&one);
    let ids = pages(&pager);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let fault = Fault::Fails(ErrorKind::NoSpace);
    device.arm(Rule {
        operation: Some(Operation::SetLen),
        space: Some(Space::Data),
        when: When::From(1),
        fault,
    });
    for (round, config) in more.iter().enumerate() {
        let pager = open(config);
        let said = pager.warnings();
        assert!(said.iter().any(|said| said.contains("is used until a start finds room")), "{said:?}");
        assert!(!directory.exists("doublewrite.new.varve").unwrap());
        for (id, number) in ids.iter().zip(1000 * round as u64..) {
            set(&pager, *id, number).unwrap();
        }
        pager.flush_log(pager.log().end()).unwrap();
        pager.tick_write(100).unwrap();
        drop(pager);
    }
    device.disarm();
    let pager = open(&more[0]);
    assert!(pager.warnings().is_empty(), "{:?}", pager.warnings());
    assert_numbers(&pager, &ids, 2000);
}

/// In an earlier version, CHECKPOINT wrote no page, and only recorded how far the page writers had come.
#[test]
fn a_checkpoint_of_all_makes_every_page_stable() {
    for background in [false, true] {
        let directory = MemoryDirectory::new();
        let mut config = PagerConfig { background, ..config(&directory, 256) };
        config.pacing = Some(varve_pager::Pacing { interval_ms: 20_000, free_frames: 1 });
        let pager = open(&config);
        let ids = pages(&pager);
        pager.checkpoint_all().unwrap();
        ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
        let before = pager.stats().dirty_frames;
        assert!(before >= 50, "{before}");
        pager.checkpoint_all().unwrap();
        assert_eq!(pager.stats().dirty_frames, 0);
    }
}
