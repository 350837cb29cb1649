//! The interface of files: results, counts, fences, many blocks, and a full region.

use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_device::{Directory, RecordLog};
use varve_memory::{CallCounts, FileCosts, FileError, FileHandle, Files, MemoryError, Owner};

use super::life::{self, Plan};
use super::model::{Model, contents};
use super::{OpenedFiles, no_chunk_is_lost, open};
use crate::life::{REGION, empty};

fn opened(region_bytes: u64) -> OpenedFiles {
    open(&empty(region_bytes)).unwrap_or_else(|error| panic!("{error}"))
}

fn create(files: &mut Files, name: &str) -> FileHandle {
    files.create(name).unwrap_or_else(|error| panic!("{error}"))
}

fn live(region_bytes: u64, plan: &Plan) -> u64 {
    let fail = |error: String| -> ! { panic!("{plan:?}: {error}") };
    let directory = empty(region_bytes);
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    let life = life::live_on(region, &RecordLog::new(), Model::default(), plan);
    let life = life.unwrap_or_else(|error| fail(error));
    let opened = open(&directory).unwrap_or_else(|error| fail(error));
    no_chunk_is_lost(&opened).unwrap_or_else(|error| fail(error));
    life.full_count
}

#[test]
fn files_are_as_the_model_says() {
    for seed in 0..4 {
        let full = live(16 << 20, &Plan { seed, operations: 600, skip: None });
        assert_eq!(full, 0, "seed {seed}");
    }
}

#[test]
fn a_full_region_refuses_a_call_and_nothing_else() {
    let full: u64 = (0..4).map(|seed| live(240_000, &Plan { seed, operations: 600, skip: None })).sum();
    assert!(full > 10, "full {full} times");
}

#[test]
fn a_write_that_finds_the_region_full_changes_nothing_and_says_why() {
    let OpenedFiles { allocator, mut files } = opened(1 << 20);
    let file = create(&mut files, "log");
    assert_eq!(files.append(file, &[1; 100_000]), Ok(0));
    let used = |files: &Files| files.chunks().map_or(0, |chunks| chunks.len());
    let before = used(&files);
    let error = files.append(file, &vec![2; 2 << 20]);
    let Err(FileError::Memory(MemoryError::Full { needed_bytes, .. })) = error else {
        panic!("it does not fit: {error:?}")
    };
    assert_eq!(needed_bytes, 16_384);
    let text = error.map_or_else(|error| error.to_string(), |_| String::new());
    assert!(text.starts_with("persistent memory is full"), "{text}");
    assert_eq!((files.len_bytes(file), used(&files)), (Ok(100_000), before));
    assert_eq!(files.reserve(file, 300_000), Ok(()), "the room is there again");
    while files.append(file, &[3; 10_000]).is_ok() {}
    assert_eq!(files.truncate(file, 100_000), Ok(()));
    assert_eq!(contents(&mut files, "log"), Ok(vec![1; 100_000]));
    assert_eq!(used(&files), before);
    assert!(allocator.check().is_ok());
}

#[test]
fn what_cannot_be_is_refused() {
    let mut files = opened(4 << 20).files;
    let long = "n".repeat(49);
    let name = |name: &str| Err(FileError::Name { name: name.into(), most_bytes: 48 });
    assert_eq!(files.create("").map(drop), name(""));
    assert_eq!(files.create(&long).map(drop), name(&long));
    assert_eq!(files.open_file("none"), Err(FileError::NoFile { name: "none".into() }));
    assert_eq!(files.remove("none"), Err(FileError::NoFile { name: "none".into() }));
    let file = create(&mut files, "file");
    assert_eq!(files.create("file"), Err(FileError::Exists { name: "file".into() }));
    assert_eq!(files.rename("file", &long), name(&long));
    assert_eq!(files.append(file, b"bytes"), Ok(0));
    let range = |at, len_bytes| FileError::Range { at, len_bytes, file_bytes: 5 };
    assert_eq!(files.read_at(file, 3, &mut [0; 3]), Err(range(3, 3)));
    assert_eq!(files.read_at(file, u64::MAX, &mut [0; 3]), Err(range(u64::MAX, 3)));
    assert_eq!(files.write_at(file, 6, b"x"), Err(range(6, 1)));
    assert_eq!(files.truncate(file, 6), Err(range(6, 0)));
    assert_eq!(files.rename("file", "other"), Ok(()));
    assert_eq!(files.len_bytes(file), Ok(5), "the handle stays with the file");
    assert_eq!(files.open_file("other"), Ok(file));
    let replaced = create(&mut files, "file");
    assert_eq!(files.rename("other", "file"), Ok(()));
    assert_eq!(files.len_bytes(replaced), Err(FileError::Stale));
    assert_eq!(files.remove("file"), Ok(()));
    assert_eq!(files.append(file, b"x"), Err(FileError::Stale));
    assert_eq!(files.names(), Vec::<Box<str>>::new());
}

#[test]
fn the_directory_has_255_entries() {
    let mut files = opened(8 << 20).files;
    for number in 0..255 {
        create(&mut files, &number.to_string());
    }
    assert_eq!(files.create("one more"), Err(FileError::TooMany { most: 255 }));
    assert_eq!(files.rename("7", "one more"), Err(FileError::TooMany { most: 255 }));
    assert_eq!(files.rename("7", "8"), Ok(()));
    assert!(files.create("one more").is_ok());
}

/// A map lists 504 blocks of 16 KiB. The file of this test needs two maps.
#[test]
fn a_file_can_have_many_blocks() {
    let directory = empty(16 << 20);
    let mut opened_files = open(&directory).unwrap_or_else(|error| panic!("{error}"));
    let chunks = |files: &Files| files.chunks().map_or(0, |chunks| chunks.len());
    let file = create(&mut opened_files.files, "long");
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at / 1000) as u8).collect();
    for (number, part) in bytes.chunks(70_000).enumerate() {
        assert_eq!(opened_files.files.append(file, part), Ok(number as u64 * 70_000));
    }
    assert_eq!(opened_files.files.fsync(file), Ok(()));
    assert_eq!(chunks(&opened_files.files), 1 + 2 + 550);
    drop(opened_files);
    let mut again = open(&directory).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(contents(&mut again.files, "long").map(|found| found == bytes), Ok(true));
    let file = again.files.open_file("long").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.files.truncate(file, 20_000), Ok(()));
    assert_eq!(chunks(&again.files), 1 + 1 + 2);
    no_chunk_is_lost(&again).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.files.remove("long"), Ok(()));
    assert_eq!(chunks(&again.files), 1);
    no_chunk_is_lost(&again).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn fences_are_as_few_as_said() {
    let OpenedFiles { allocator, mut files } = opened(1 << 20);
    let region = Arc::clone(allocator.region());
    let file = create(&mut files, "log");
    assert_eq!(files.reserve(file, 16_384), Ok(()));
    let mut fences = |work: &mut dyn FnMut(&mut Files)| {
        let before = region.tally().fences_count;
        work(&mut files);
        region.tally().fences_count - before
    };
    let append = &mut |files: &mut Files| assert!(files.append(file, &[1; 1000]).is_ok());
    let fsync = &mut |files: &mut Files| assert_eq!(files.fsync(file), Ok(()));
    let write = &mut |files: &mut Files| assert_eq!(files.write_at(file, 7, &[2; 100]), Ok(()));
    assert_eq!([fences(append), fences(append), fences(fsync)], [0, 0, 2], "the bytes, then the length");
    assert_eq!([fences(write), fences(fsync)], [0, 1], "the length has not changed");
    assert_eq!(fences(fsync), 0, "nothing is left");
    let append_blocks = &mut |files: &mut Files| assert!(files.append(file, &[1; 5 * 16_384]).is_ok());
    assert_eq!(fences(append_blocks), 3 + 1, "a publication, and a new slab");
}

#[test]
fn calls_are_counted_and_take_their_time() {
    let allocator = opened(1 << 20).allocator;
    let Some(owner) = Owner::new(6) else { panic!("6 is an owner") };
    let costs = FileCosts { system_call: Duration::from_millis(1), ..FileCosts::default() };
    let files = Files::open(allocator, "others", owner, costs);
    let mut files = files.unwrap_or_else(|error| panic!("{error}"));
    let begun = Instant::now();
    let file = create(&mut files, "file");
    (0..4).for_each(|_| assert!(files.append(file, &[1; 100]).is_ok()));
    assert_eq!(files.write_at(file, 8, &[2; 10]), Ok(()));
    assert_eq!(files.read_at(file, 0, &mut [0; 60]), Ok(()));
    assert_eq!(files.fsync(file), Ok(()));
    assert_eq!(files.truncate(file, 50), Ok(()));
    let counts = CallCounts {
        reads_count: 1,
        read_bytes: 60,
        writes_count: 5,
        written_bytes: 410,
        fsyncs_count: 1,
        resizes_count: 1,
        names_count: 1,
    };
    assert_eq!((files.counts(), counts.total_count()), (counts, 9));
    assert!(begun.elapsed() >= Duration::from_millis(9), "{:?}", begun.elapsed());
}
