//! Flushed records are read back completely and in order, across segments and restarts.

use crate::log_support::*;
use proptest::prelude::*;
use varve_device::{AlignedBuf, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::log::{FIRST_LSN, Group, Life, StoredLog};
use varve_pager::{LogError, Lsn};

#[test]
fn an_empty_log_is_read_as_empty() {
    on_both(|directory| {
        drop(create(directory));
        let (notes, tail) = read_all(directory).unwrap();
        assert!(notes.is_empty());
        assert_eq!(tail.next, FIRST_LSN);
    });
}

#[test]
fn unflushed_groups_are_absent() {
    on_both(|directory| {
        let log = create(directory);
        let first = append(&log, b"one");
        log.flush(first).unwrap();
        append(&log, b"two");
        let (notes, tail) = read_all(directory).unwrap();
        assert_eq!(notes, [(first, b"one".to_vec())]);
        assert_eq!(tail.end, first);
    });
}

/// A later life may be writing after an end that is known, and bytes that are being written in a region must
/// not be read.
#[test]
fn nothing_is_read_behind_an_end_that_is_known() {
    on_both(|medium| {
        let log = create(medium);
        log.flush(append(&log, &payload(0, 5000))).unwrap();
        drop(log);
        let directory = medium.directory();
        let stored = StoredLog::open(config_on(directory.clone()), DATABASE).unwrap();
        let visit = |_: Group<'_>| Ok::<(), LogError>(());
        let tail = stored.each_group(&first_life(), FIRST_LSN, NOTHING_KNOWN, visit).unwrap();
        let log = stored.resume(2, tail, FIRST_LSN).unwrap();
        let read_bytes = || directory.accounting().read(Space::Log, Purpose::Log).bytes;
        let (before_bytes, mut groups_count) = (read_bytes(), 0);
        let count = |_: Group<'_>| {
            groups_count += 1;
            Ok::<(), LogError>(())
        };
        log.replay(&first_life(), FIRST_LSN..tail.next, count).unwrap();
        assert_eq!(groups_count, 1);
        let read = read_bytes() - before_bytes;
        assert!((5000..=next_sector(medium, tail.next).since(FIRST_LSN)).contains(&read), "{read} bytes");
    });
}

#[test]
fn a_flush_never_rewrites_a_sector() {
    on_both(|directory| {
        let log = create(directory);
        log.flush(append(&log, b"one")).unwrap();
        let bytes_of = |at: Lsn, count: u64| {
            let file = directory.directory().open("log.0000", OpenHow::existing(Space::Log)).unwrap();
            let mut bytes = AlignedBuf::new(count as usize);
            file.read_at(at.get(), &mut bytes, Purpose::Log).unwrap();
            bytes.to_vec()
        };
        let sector_bytes = u64::from(sector_bytes(directory));
        let before = bytes_of(FIRST_LSN, sector_bytes);
        let second = append(&log, b"two");
        log.flush(second).unwrap();
        assert_eq!(bytes_of(FIRST_LSN, sector_bytes), before);
        assert!(second.get() > FIRST_LSN.get() + sector_bytes);
    });
}

#[test]
fn a_group_that_does_not_fit_goes_to_the_next_segment() {
    on_both(|directory| {
        let log = create(directory);
        let sizes = [40_000, 30_000, 60_000, 50, 61_000];
        let written: Vec<Note> = sizes
            .iter()
            .enumerate()
            .map(|(i, bytes)| {
                log.admit().unwrap();
                let bytes = payload(i, *bytes);
                let lsn = append(&log, &bytes);
                log.flush(lsn).unwrap();
                (lsn, bytes)
            })
            .collect();
        assert_eq!(read_all(directory).unwrap().0, written);
    });
}

#[test]
fn a_second_life_goes_on_where_the_first_ended() {
    on_both(|directory| {
        let log = create(directory);
        let one = append(&log, b"one");
        log.flush(one).unwrap();
        drop(log);
        let (_, tail) = read_all(directory).unwrap();
        let stored = StoredLog::open(config(directory), DATABASE).unwrap();
        let start = stored.next_start(tail);
        let log = stored.resume(2, tail, FIRST_LSN).unwrap();
        let two = append(&log, b"two");
        log.flush(two).unwrap();
        let mut lives = first_life();
        lives.push(Life { incarnation: 2, after: tail.next, start });
        let (notes, _) = read(directory, &lives, FIRST_LSN, NOTHING_KNOWN).unwrap();
        assert_eq!(notes, [(one, b"one".to_vec()), (two, b"two".to_vec())]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_sizes_and_flushes_round_trip(
        steps in proptest::collection::vec((0_usize..9_000, any::<bool>()), 1..60),
        sector_shift in 8_u32..13,
    ) {
        // The smallest size stands for a region, whose sectors are lines.
        let medium: Box<dyn Medium> = match sector_shift {
            8 => Box::new(OnRegion(MemoryDirectory::new())),
            shift => Box::new(MemoryDirectory::with_sector(1 << shift)),
        };
        let log = create(&*medium);
        let mut written: Vec<Note> = Vec::new();
        let mut durable_count = 0;
        for (i, (bytes, flush)) in steps.into_iter().enumerate() {
            log.admit().unwrap();
            let bytes = payload(i, bytes);
            let lsn = append(&log, &bytes);
            written.push((lsn, bytes));
            if flush {
                log.flush(lsn).unwrap();
                durable_count = written.len();
            }
        }
        let (notes, _) = read_all(&*medium).unwrap();
        prop_assert!(notes.len() >= durable_count);
        prop_assert_eq!(&notes[..], &written[..notes.len()]);
    }
}
