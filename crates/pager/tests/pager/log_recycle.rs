//! Segments are reused, and their old contents are never read as log again.

use crate::log_support::*;
use varve_device::{AlignedBuf, Directory, Durability, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::log::{Admission, FIRST_LSN, Known, Life, LogConfig, StoredLog, Tail};
use varve_pager::{Log, LogError, Lsn};

/// Writes `count` notes of 1000 bytes, each flushed.
fn write(log: &Log, count: usize) -> Lsn {
    let mut last = Lsn::ZERO;
    for i in 0..count {
        assert_eq!(log.admit().unwrap(), Admission::Go);
        last = append(log, &payload(i, 1000));
        log.flush(last).unwrap();
    }
    last
}

#[test]
fn truncated_segments_are_used_again() {
    on_both(|directory| {
        let log = create(directory);
        for _ in 0..40 {
            write(&log, 50);
            log.truncate(log.redo_point(|| None).unwrap()).unwrap();
        }
        let files = directory.directory().list().unwrap();
        assert!(files.len() <= 8, "{files:?}");
        assert!(log.end().get() > 20 * SEGMENT_BYTES);
    });
}

#[test]
fn old_contents_of_a_recycled_segment_do_not_replay() {
    on_both(|directory| {
        let log = create(directory);
        let mut from = FIRST_LSN;
        let mut last = Lsn::ZERO;
        for round in 0..60 {
            write(&log, 20 + round % 7);
            from = log.redo_point(|| None).unwrap();
            log.truncate(from).unwrap();
            last = write(&log, 3);
        }
        let (notes, tail) = read(directory, &first_life(), from, NOTHING_KNOWN).unwrap();
        assert_eq!(notes.len(), 3);
        assert_eq!(tail.end, last);
    });
}

#[test]
fn the_tail_that_recovery_cut_off_does_not_come_back() {
    on_both(|directory| {
        let log = create(directory);
        let one = append(&log, b"one");
        log.flush(one).unwrap();
        let before = directory.copy();
        log.flush(append(&log, b"lost")).unwrap();
        log.flush(append(&log, b"behind it")).unwrap();
        drop(log);
        // The second flush never arrived, the third did: the log is cut off after the first.
        let tail = read_all(&*before).unwrap().1;
        let stored = StoredLog::open(config(directory), DATABASE).unwrap();
        let start = stored.next_start(tail);
        let log = stored.resume(2, tail, FIRST_LSN).unwrap();
        let two = append(&log, b"two!");
        log.flush(two).unwrap();
        let mut lives = first_life();
        lives.push(Life { incarnation: 2, after: tail.next, start });
        let (notes, _) = read(directory, &lives, FIRST_LSN, NOTHING_KNOWN).unwrap();
        assert_eq!(notes, [(one, b"one".to_vec()), (two, b"two!".to_vec())]);
    });
}

#[test]
fn a_life_that_is_missing_in_the_log_is_damage() {
    on_both(|directory| {
        let log = create(directory);
        log.flush(append(&log, b"one")).unwrap();
        let mut lives = first_life();
        let later = Lsn::new(FIRST_LSN.get() + 8192);
        lives.push(Life { incarnation: 2, after: later, start: later });
        let error = read(directory, &lives, FIRST_LSN, NOTHING_KNOWN).unwrap_err();
        assert!(error.to_string().contains("opened again"), "{error}");
    });
}

#[test]
fn a_full_log_admits_nothing_until_it_is_truncated() {
    on_both(|directory| {
        let log = create(directory);
        let mut i = 0;
        while log.admit().unwrap() == Admission::Go {
            log.flush(append(&log, &payload(i, 2000))).unwrap();
            i += 1;
        }
        // Groups that are not admitted still fit, so page writers and checkpoints continue.
        for i in 0..20 {
            log.flush(append(&log, &payload(i, 2000))).unwrap();
        }
        log.truncate(log.redo_point(|| None).unwrap()).unwrap();
        assert_eq!(log.admit().unwrap(), Admission::Go);
    });
}

#[test]
fn reopening_again_and_again_keeps_the_files_few() {
    on_both(|directory| {
        let log = create(directory);
        write(&log, 3);
        drop(log);
        let mut lives = first_life();
        for incarnation in 2..30 {
            let (_, tail) = read(directory, &lives, FIRST_LSN, NOTHING_KNOWN).unwrap();
            let stored = StoredLog::open(config(directory), DATABASE).unwrap();
            lives.retain(|life| life.start < tail.next);
            lives.push(Life { incarnation, after: tail.next, start: stored.next_start(tail) });
            let log = stored.resume(incarnation, tail, FIRST_LSN).unwrap();
            write(&log, incarnation as usize % 3);
        }
        assert!(directory.directory().list().unwrap().len() <= 3);
    });
}

#[test]
fn a_life_that_the_control_file_does_not_know_is_damage() {
    on_both(|directory| {
        let log = create(directory);
        log.flush(append(&log, b"one")).unwrap();
        drop(log);
        let (_, tail) = read_all(directory).unwrap();
        let stored = StoredLog::open(config(directory), DATABASE).unwrap();
        let log = stored.resume(2, tail, FIRST_LSN).unwrap();
        log.flush(append(&log, b"two")).unwrap();
        let error = read_all(directory).unwrap_err();
        assert!(error.to_string().contains("incarnation 2"), "{error}");
        // A log that was shut down is refused, too, although nothing else is looked for after its end.
        for lsn in [tail.end, tail.next] {
            let error = read(directory, &first_life(), FIRST_LSN, shut_down(lsn)).unwrap_err();
            assert!(error.to_string().contains("incarnation 2"), "{error}");
        }
    });
}

fn shut_down(lsn: Lsn) -> Known<'static> {
    Known { lsn, why: "it was shut down at", is_end: true }
}

/// Returns the files of a log on another medium.
fn moved(from: &dyn Medium, to: Box<dyn Medium>) -> Box<dyn Medium> {
    let (from, to_files) = (from.directory(), to.directory());
    for name in from.list().unwrap() {
        let mut bytes = AlignedBuf::new(SEGMENT_BYTES as usize);
        from.open(&name, OpenHow::existing(Space::Log))
            .unwrap()
            .read_at(0, &mut bytes, Purpose::Log)
            .unwrap();
        let file = to_files.open(&name, OpenHow::new_file(Space::Log)).unwrap();
        file.set_len(SEGMENT_BYTES).unwrap();
        file.write_at(0, &bytes, Purpose::Log, Durability::Now).unwrap();
    }
    to
}

/// A life of the log begins at a boundary of the sectors of its device at that time. If the log was moved,
/// these sectors differ from those of the previous life and of the present device. If the segment has no such
/// boundary left, the life begins in the next segment.
#[test]
fn a_life_that_nobody_knows_is_found_whatever_sectors_its_log_had() {
    let media: [fn() -> Box<dyn Medium>; 3] = [
        || Box::new(OnRegion(MemoryDirectory::new())),
        || Box::new(MemoryDirectory::with_sector(512)),
        || Box::new(MemoryDirectory::with_sector(4096)),
    ];
    for (first, second) in media.iter().flat_map(|first| media.iter().map(move |second| (first, second))) {
        for (before_bytes, then_bytes) in [(10, 10), (1200, 5000), (40_000, 50_000), (58_000, 10)] {
            let medium = first();
            let log = create(&*medium);
            log.flush(append(&log, &payload(0, before_bytes))).unwrap();
            drop(log);
            let (_, tail) = read_all(&*medium).unwrap();
            let medium = moved(&*medium, second());
            let stored = StoredLog::open(config(&*medium), DATABASE).unwrap();
            let log = stored.resume(2, tail, FIRST_LSN).unwrap();
            log.flush(append(&log, &payload(1, then_bytes))).unwrap();
            drop(log);
            for third in &media {
                let medium = moved(&*medium, third());
                for known in [NOTHING_KNOWN, shut_down(tail.end), shut_down(tail.next)] {
                    let error = read(&*medium, &first_life(), FIRST_LSN, known).unwrap_err();
                    assert!(error.to_string().contains("incarnation 2"), "{error}");
                }
            }
        }
    }
}

#[test]
fn behind_a_shutdown_the_rest_of_a_segment_is_not_read() {
    const SEGMENT_BYTES: u64 = 16 << 20;
    let directory = MemoryDirectory::new();
    let config = || LogConfig {
        segment_bytes: SEGMENT_BYTES,
        capacity_bytes: 4 * SEGMENT_BYTES,
        ..config(&directory)
    };
    let open = || StoredLog::open(config(), DATABASE).unwrap();
    let log = open().resume(1, Tail::empty(), FIRST_LSN).unwrap();
    let end = append(&log, b"one");
    log.flush(end).unwrap();
    drop(log);
    let read_bytes = |known: Known<'_>| {
        let read = || -> u64 { directory.accounting().rows().iter().map(|row| row.read.bytes).sum() };
        let before = read();
        let tail = open().each_group::<LogError>(&first_life(), FIRST_LSN, known, |_| Ok(())).unwrap();
        assert_eq!(tail.end, end);
        read() - before
    };
    assert!(read_bytes(NOTHING_KNOWN) >= SEGMENT_BYTES - FIRST_LSN.get());
    assert!(read_bytes(shut_down(end)) < SEGMENT_BYTES / 8);
    let earlier = Lsn::new(end.get() - 1);
    assert!(read_bytes(shut_down(earlier)) >= SEGMENT_BYTES - FIRST_LSN.get(), "it went on behind that");
}

/// In an earlier version, any number of bytes counted as fitting as soon as the next segment existed.
#[test]
fn several_groups_have_room_only_in_segments_that_exist() {
    on_both(|directory| {
        let log = create(directory);
        log.prepare_ahead().unwrap();
        // Four groups fill the two segments.
        let groups = [25_000; 5];
        assert!(log.has_segments_for(&groups[..4]) && log.has_segment_for(55_000));
        assert!(!log.has_segments_for(&groups));
        assert!(log.make_segments_for(&groups).unwrap());
        assert!(log.has_segments_for(&groups) && !log.has_segments_for(&[25_000; 7]));
        let files = || directory.directory().list().unwrap();
        let before = files();
        for bytes in groups {
            append(&log, &payload(0, bytes - 64));
        }
        log.flush(log.end()).unwrap();
        assert_eq!(files(), before, "they lie in what was there");
    });
}
