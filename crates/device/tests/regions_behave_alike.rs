//! Every region means the same by every operation and counts alike.

use std::sync::Arc;

use varve_device::{
    Change, Directory, Faulty, MemoryDirectory, RecordLog, Recorder, Region, RegionTally, Space,
};

const LEN_BYTES: u64 = 1 << 20;

struct Fixture {
    what: &'static str,
    region: Arc<dyn Region>,
}

/// One region of each kind, zeroed, [`LEN_BYTES`] long.
fn all_kinds() -> Vec<Fixture> {
    let recorder = Recorder::wrap(MemoryDirectory::new(), RecordLog::new());
    let on = |what, directory: Arc<dyn Directory>| Fixture {
        what,
        region: directory.map("r", LEN_BYTES).expect("a new region"),
    };
    vec![
        on("memory", MemoryDirectory::new()),
        on("recorded", recorder),
        on("faulty", Faulty::wrap(MemoryDirectory::new())),
    ]
}

fn bytes_at(region: &dyn Region, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len_bytes];
    region.read(offset, &mut bytes);
    bytes
}

#[test]
fn what_is_stored_is_read() {
    for Fixture { what, region } in all_kinds() {
        assert_eq!(region.len_bytes(), LEN_BYTES, "{what}");
        assert_eq!(
            bytes_at(&*region, 0, LEN_BYTES as usize),
            vec![0; LEN_BYTES as usize],
            "{what}: zeros at first"
        );
        let stored: Vec<u8> = (0..5000).map(|no| no as u8).collect();
        region.store(4090, &stored);
        region.persist(4090, 5000);
        assert_eq!(bytes_at(&*region, 4090, 5000), stored, "{what}");
        assert_eq!(bytes_at(&*region, 4089, 1), [0], "{what}: nothing before it");
        assert_eq!(bytes_at(&*region, 9090, 1), [0], "{what}: nothing behind it");
        region.store(LEN_BYTES - 1, &[7]);
        assert_eq!(bytes_at(&*region, LEN_BYTES - 1, 1), [7], "{what}: the last byte");
        region.settle().unwrap();
    }
}

#[test]
fn a_word_is_the_eight_bytes_at_its_place() {
    for Fixture { what, region } in all_kinds() {
        region.store_word(64, 0x0102_0304_0506_0708);
        assert_eq!(bytes_at(&*region, 64, 8), [8, 7, 6, 5, 4, 3, 2, 1], "{what}: little endian");
        region.store(72, &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((region.load_word(64), region.load_word(72)), (0x0102_0304_0506_0708, 1), "{what}");
    }
}

#[test]
fn counts_are_exact() {
    for Fixture { what, region } in all_kinds() {
        region.store(0, &[1; 64]);
        region.store(60, &[1; 8]);
        region.store(130, &[1; 128]);
        region.store(5, &[]);
        region.store_word(256, 7);
        region.write_back(0, 1);
        region.write_back(63, 2);
        region.write_back(64, 4096);
        region.write_back(100, 0);
        region.fence();
        region.persist(0, 8);
        region.read(1, &mut [0; 64]);
        region.read(64, &mut [0; 4096]);
        region.load_word(0);
        let expected = RegionTally {
            loads_count: 3,
            loaded_lines: 2 + 64 + 1,
            loaded_bytes: 64 + 4096 + 8,
            stores_count: 5,
            stored_lines: 1 + 2 + 3 + 1,
            stored_bytes: 64 + 8 + 128 + 8,
            written_back_lines: 1 + 2 + 64 + 1,
            fences_count: 2,
        };
        assert_eq!(region.tally(), expected, "{what}");
    }
}

type Call = fn(&dyn Region);

#[test]
fn what_lies_beyond_the_end_or_is_no_word_is_asserted() {
    let wrong: [(&str, Call); 7] = [
        ("a store across the end", |region| region.store(LEN_BYTES - 3, &[0; 4])),
        ("a store behind the end", |region| region.store(LEN_BYTES + 1, &[])),
        ("a store that overflows", |region| region.store(u64::MAX, &[0; 2])),
        ("a read across the end", |region| region.read(LEN_BYTES - 3, &mut [0; 4])),
        ("a write-back across the end", |region| region.write_back(LEN_BYTES - 3, 4)),
        ("a word that is not aligned", |region| region.store_word(4, 1)),
        ("loading a word that is not aligned", |region| assert_eq!(region.load_word(4), 0)),
    ];
    for Fixture { what, region } in all_kinds() {
        for (name, call) in wrong {
            let call = std::panic::AssertUnwindSafe(|| call(&*region));
            assert!(std::panic::catch_unwind(call).is_err(), "{what}: {name} passed");
        }
    }
}

#[test]
fn mapping_again_finds_the_bytes_and_the_length() {
    let directory = MemoryDirectory::new();
    directory.map("r", LEN_BYTES).unwrap().store(9, &[5]);
    let again = directory.map("r", 2 * LEN_BYTES).unwrap();
    assert_eq!(again.len_bytes(), LEN_BYTES, "one that is there keeps its length");
    assert_eq!(bytes_at(&*again, 9, 1), [5]);
}

#[test]
fn a_recorded_word_is_one_event_of_a_region_in_its_space() {
    let log = RecordLog::new();
    let directory = Recorder::wrap(MemoryDirectory::new(), Arc::clone(&log));
    let region = directory.map("r", LEN_BYTES).unwrap();
    let before = log.recording().events.len();
    region.store_word(8, 3);
    let recording = log.recording();
    let [event] = &recording.events[before..] else { panic!("one event") };
    let Change::Store { file, offset: 8, bytes } = &event.change else { panic!("a store") };
    assert_eq!(bytes[..], 3_u64.to_le_bytes());
    assert_eq!(recording.file_spaces[file.0], Some(Space::Nvm));
}
