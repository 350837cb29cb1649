//! A damaged log is distinguished from the end of the log. If later bytes prove that more was durable, the
//! log is never cut silently.

use std::sync::Arc;

use crate::log_support::*;
use proptest::prelude::*;
use varve_device::{AlignedBuf, BlockFile, Durability, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::LogError;
use varve_pager::log::format::SegmentHeader;
use varve_pager::log::{FIRST_LSN, Known, StoredLog};

const FILE: &str = "log.0000";

fn open(medium: &dyn Medium) -> Arc<dyn BlockFile> {
    medium.directory().open(FILE, OpenHow::existing(Space::Log)).unwrap()
}

/// Changes one byte of the first segment.
fn flip(medium: &dyn Medium, at: u64) {
    let file = open(medium);
    let mut sector = AlignedBuf::new(512);
    let start = at / 512 * 512;
    file.read_at(start, &mut sector, Purpose::Log).unwrap();
    sector[(at - start) as usize] ^= 0x40;
    file.write_at(start, &sector, Purpose::Log, Durability::Now).unwrap();
}

/// Makes a log with three flushed notes. The second note takes several sectors.
fn three_blocks(medium: &dyn Medium) -> Vec<Note> {
    let log = create(medium);
    let note = |(i, bytes): (usize, &usize)| {
        let bytes = payload(i, *bytes);
        let lsn = append(&log, &bytes);
        log.flush(lsn).unwrap();
        (lsn, bytes)
    };
    [3, 1500, 9].iter().enumerate().map(note).collect()
}

#[test]
fn every_damaged_byte_is_found_or_harmless() {
    on_both(|directory| {
        let notes = three_blocks(directory);
        let last_block = next_sector(directory, notes[1].0);
        for at in FIRST_LSN.get()..notes[2].0.get() {
            let damaged = directory.copy();
            flip(&*damaged, at);
            match read_all(&*damaged) {
                Ok((found, _)) if found == notes => {} // padding
                Ok((found, _)) => {
                    assert!(at >= last_block.get(), "byte {at} was cut off silently");
                    assert_eq!(found, notes[..2]);
                }
                Err(LogError::Damaged { file, offset, .. }) => {
                    assert!(file.contains(FILE), "{file}");
                    assert!(offset <= at && at < last_block.get(), "byte {at} named as {offset}");
                }
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
    });
}

#[test]
fn a_known_lsn_proves_damage_of_the_last_block() {
    on_both(|directory| {
        let notes = three_blocks(directory);
        flip(directory, next_sector(directory, notes[1].0).get());
        let known = Known { lsn: notes[2].0, why: "a page knows", is_end: false };
        let error = read(directory, &first_life(), FIRST_LSN, known).unwrap_err();
        assert!(error.to_string().contains("a page knows LSN"), "{error}");
    });
}

#[test]
fn a_torn_last_block_is_the_end() {
    on_both(|directory| {
        let notes = three_blocks(directory);
        let log_end = next_sector(directory, notes[1].0);
        flip(directory, log_end.get() + 45);
        let (found, tail) = read_all(directory).unwrap();
        assert_eq!(found, notes[..2]);
        assert_eq!(tail.next, log_end);
    });
}

#[test]
fn a_damaged_segment_header_is_named() {
    on_both(|directory| {
        three_blocks(directory);
        flip(directory, 9);
        let error = read_all(directory).unwrap_err();
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    });
}

#[test]
fn a_missing_segment_is_named() {
    on_both(|directory| {
        three_blocks(directory);
        directory.directory().remove(FILE).unwrap();
        let error = read_all(directory).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
    });
}

#[test]
fn a_segment_of_another_database_is_refused() {
    on_both(|directory| {
        three_blocks(directory);
        let error = StoredLog::open(config(directory), DATABASE + 1).err().unwrap();
        assert!(matches!(error, LogError::Foreign { .. }), "{error}");
    });
}

#[test]
fn a_copied_segment_is_refused() {
    let directory = MemoryDirectory::new();
    three_blocks(&directory);
    let mut images = directory.images();
    let twin = images[0].1.clone();
    images.push(("log.0099".into(), twin));
    let error = StoredLog::open(config(&MemoryDirectory::from_images(images)), DATABASE).err().unwrap();
    assert!(matches!(error, LogError::Twice { .. }), "{error}");
}

/// An earlier version took such a file for a file without a number, and overwrote it.
#[test]
fn a_segment_with_a_number_that_no_log_can_reach_is_refused() {
    on_both(|directory| {
        three_blocks(directory);
        let header = SegmentHeader { database: DATABASE, number: u64::MAX / 2, segment_bytes: SEGMENT_BYTES };
        let mut sector = AlignedBuf::new(512);
        header.encode(&mut sector);
        open(directory).write_at(0, &sector, Purpose::Log, Durability::Now).unwrap();
        let error = StoredLog::open(config(directory), DATABASE).err().unwrap();
        assert!(matches!(error, LogError::Impossible { .. }), "{error}");
    });
}

#[test]
fn a_shortened_segment_is_refused() {
    let directory = MemoryDirectory::new();
    three_blocks(&directory);
    open(&directory).set_len(8192).unwrap();
    let error = StoredLog::open(config(&directory), DATABASE).err().unwrap();
    assert!(matches!(error, LogError::SegmentSize { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whatever is in a segment, reading it ends without a panic, and returns only groups that were written.
    #[test]
    fn arbitrary_bytes_are_never_taken_as_groups(
        bytes in proptest::collection::vec(any::<u8>(), 512..4096),
        keep in 0_usize..60,
        on_region in any::<bool>(),
    ) {
        let directory: Box<dyn Medium> = match on_region {
            true => Box::new(OnRegion(MemoryDirectory::new())),
            false => Box::new(MemoryDirectory::new()),
        };
        let notes = three_blocks(&*directory);
        let file = open(&*directory);
        let mut noise = AlignedBuf::new(4096);
        let mut block = AlignedBuf::new(512);
        file.read_at(FIRST_LSN.get(), &mut block, Purpose::Log).unwrap();
        noise[..bytes.len()].copy_from_slice(&bytes);
        noise[..keep].copy_from_slice(&block[..keep]);
        file.write_at(FIRST_LSN.get(), &noise, Purpose::Log, Durability::Now).unwrap();
        match read_all(&*directory) {
            Ok((found, _)) => prop_assert_eq!(&found[..], &notes[..found.len()]),
            Err(LogError::Damaged { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    /// Groups with arbitrary contents in sealed blocks cause at most an error.
    #[test]
    fn arbitrary_records_do_not_panic(records in proptest::collection::vec(any::<u8>(), 0..300)) {
        let directory = MemoryDirectory::new();
        let log = create(&directory);
        let end = log.append(&records, |at| at.end);
        log.flush(end).unwrap();
        let stored = StoredLog::open(config(&directory), DATABASE).unwrap();
        let mut count = 0;
        let lives = first_life();
        let tail = stored.each_group::<LogError>(&lives, FIRST_LSN, NOTHING_KNOWN, |group| {
            count += group.records.count();
            Ok(())
        });
        prop_assert_eq!(tail.unwrap().end, end);
        prop_assert!(count <= records.len());
    }
}
