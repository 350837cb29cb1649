//! All kinds of regions give the same results and the same counts.

#[path = "device/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use common::on_files;
use varve_device::{
    Accounting, CacheShape, CachedRegion, Change, Directory, EmulatedRegion, ErrorKind, Faulty,
    FileDirectory, FileOptions, Medium, MemoryDirectory, NvmProfile, OpenHow, Operation, Purpose, RecordLog,
    Recorder, Region, RegionPart, RegionTally, Space, Tally, Tracked,
};

const LEN_BYTES: u64 = 1 << 20;

/// The offset of the part in a region of three times the length.
const PART_AT: u64 = LEN_BYTES;

struct Fixture {
    what: &'static str,
    region: Arc<dyn Region>,
    _files: Option<common::Fixture>,
}

fn map(directory: &dyn Directory, len_bytes: u64) -> Arc<dyn Region> {
    directory.map("r", len_bytes).expect("a new region")
}

fn part(region: Arc<dyn Region>, account: &Arc<Accounting>) -> Arc<RegionPart> {
    let range = PART_AT..PART_AT + LEN_BYTES;
    RegionPart::new(region, range, Space::Nvm, Purpose::NvmPage, Arc::clone(account))
}

/// Returns one region of each kind, zeroed, [`LEN_BYTES`] long.
fn all_kinds() -> Vec<Fixture> {
    let memory = |len_bytes| map(&*MemoryDirectory::new(), len_bytes);
    let slow = NvmProfile::shipped("nvm-2x").expect("it is shipped");
    let files = on_files("mapped", FileOptions::default());
    let mapped = map(&*files.directory, LEN_BYTES);
    let of = |what, region| Fixture { what, region, _files: None };
    vec![
        of("memory", memory(LEN_BYTES)),
        of("recorded", map(&*Recorder::wrap(MemoryDirectory::new(), RecordLog::new()), LEN_BYTES)),
        of("faulty", map(&*Faulty::wrap(MemoryDirectory::new()), LEN_BYTES)),
        of("emulated", EmulatedRegion::wrap(memory(LEN_BYTES), slow, 1.0)),
        of("tracked", Tracked::wrap(memory(LEN_BYTES))),
        of("behind a modelled cache", CachedRegion::wrap(memory(LEN_BYTES), CacheShape::PAPER)),
        of("a part", part(memory(3 * LEN_BYTES), &Arc::default())),
        Fixture { what: "mapped", region: mapped, _files: Some(files) },
    ]
}

fn bytes_at(region: &dyn Region, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len_bytes];
    region.read(offset, &mut bytes);
    bytes
}

#[test]
fn what_is_stored_is_read() {
    for Fixture { what, region, _files } in all_kinds() {
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
    for Fixture { what, region, _files } in all_kinds() {
        region.store_word(64, 0x0102_0304_0506_0708);
        assert_eq!(bytes_at(&*region, 64, 8), [8, 7, 6, 5, 4, 3, 2, 1], "{what}: little endian");
        region.store(72, &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((region.load_word(64), region.load_word(72)), (0x0102_0304_0506_0708, 1), "{what}");
    }
}

/// `store_back` is tried for whole lines and for other lengths, at whole lines and at other offsets. It
/// counts as a store and a write-back.
#[test]
fn what_is_stored_back_is_stored_and_written_back() {
    for Fixture { what, region, _files } in all_kinds() {
        for (offset, len_bytes) in
            [(0, 4096), (64, 64), (8256, 100), (8400, 128), (LEN_BYTES - 64, 64), (5, 0)]
        {
            let stored: Vec<u8> = (0..len_bytes).map(|no| (no + len_bytes) as u8).collect();
            let before = region.tally();
            region.store_back(offset, &stored);
            region.fence();
            let after = region.tally();
            assert_eq!(bytes_at(&*region, offset, len_bytes), stored, "{what}");
            let lines = after.stored_lines - before.stored_lines;
            assert_eq!(after.written_back_lines - before.written_back_lines, lines, "{what}");
            assert_eq!(after.stored_bytes - before.stored_bytes, len_bytes as u64, "{what}");
        }
    }
}

#[test]
fn counts_are_exact() {
    for Fixture { what, region, _files } in all_kinds() {
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
    let wrong: [(&str, Call); 8] = [
        ("a store across the end", |region| region.store(LEN_BYTES - 3, &[0; 4])),
        ("a store behind the end", |region| region.store(LEN_BYTES + 1, &[])),
        ("a store that overflows", |region| region.store(u64::MAX, &[0; 2])),
        ("a read across the end", |region| region.read(LEN_BYTES - 3, &mut [0; 4])),
        ("a write-back across the end", |region| region.write_back(LEN_BYTES - 3, 4)),
        ("storing back across the end", |region| region.store_back(LEN_BYTES - 64, &[0; 128])),
        ("a word that is not aligned", |region| region.store_word(4, 1)),
        ("loading a word that is not aligned", |region| assert_eq!(region.load_word(4), 0)),
    ];
    for Fixture { what, region, _files } in all_kinds() {
        for (name, call) in wrong {
            let call = std::panic::AssertUnwindSafe(|| call(&*region));
            assert!(std::panic::catch_unwind(call).is_err(), "{what}: {name} passed");
        }
    }
}

#[test]
fn mapping_again_finds_the_bytes_and_the_length() {
    for kind in common::all_kinds() {
        map(&*kind.directory, LEN_BYTES).store(9, &[5]);
        let again = kind.directory.map("r", 2 * LEN_BYTES).unwrap();
        assert_eq!(again.len_bytes(), LEN_BYTES, "{}: one that is there keeps its length", kind.what);
        assert_eq!(bytes_at(&*again, 9, 1), [5], "{}", kind.what);
    }
}

#[test]
fn an_empty_file_is_no_region() {
    for kind in common::all_kinds() {
        kind.directory.open("r", OpenHow::new_file(Space::Nvm)).unwrap();
        let error = kind.directory.map("r", LEN_BYTES).err().expect("it is refused");
        let wanted = ErrorKind::ShortRead { wanted_bytes: LEN_BYTES, got_bytes: 0 };
        assert_eq!((error.operation, error.kind), (Operation::Open, wanted), "{}", kind.what);
        assert!(error.file.ends_with('r'), "{}", error.file);
    }
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

#[test]
fn a_part_touches_nothing_else_and_is_in_the_account() {
    let whole = map(&*MemoryDirectory::new(), 3 * LEN_BYTES);
    let account = Arc::<Accounting>::default();
    let part = part(Arc::clone(&whole), &account);
    part.store(0, &vec![1; LEN_BYTES as usize]);
    assert_eq!(bytes_at(&*whole, PART_AT - 1, 2), [0, 1]);
    assert_eq!(bytes_at(&*whole, PART_AT + LEN_BYTES - 1, 2), [1, 0]);
    part.store_word(8, 3);
    assert_eq!(whole.load_word(PART_AT + 8), 3);
    part.persist(64, 64);
    part.read(0, &mut [0; 100]);
    part.load_word(8);
    let tally = |operations, bytes| Tally { operations, bytes };
    assert_eq!(account.written(Space::Nvm, Purpose::NvmPage), tally(2, LEN_BYTES + 8));
    assert_eq!(account.read(Space::Nvm, Purpose::NvmPage), tally(2, 108));
    assert_eq!(account.rows().len(), 1);
    assert_eq!(part.tally().written_back_lines, 1);
}

#[test]
fn a_tracked_line_is_durable_when_its_own_writer_back_has_fenced() {
    let region = Tracked::wrap(map(&*MemoryDirectory::new(), LEN_BYTES));
    let elsewhere =
        |run: fn(&Tracked)| std::thread::scope(|scope| scope.spawn(|| run(&region)).join().unwrap());
    region.store(60, &[1; 8]);
    assert_eq!(region.unpersisted(), 2, "a store across two lines");
    region.fence();
    assert_eq!(region.unpersisted(), 2, "a fence alone writes nothing back");
    region.write_back(0, 64);
    elsewhere(|region| region.fence());
    assert_eq!(region.unpersisted(), 2, "another thread's fence waits for nothing of this one");
    region.fence();
    assert_eq!(region.unpersisted(), 1, "the second line was not written back");
    region.write_back(64, 1);
    region.store_word(64, 2);
    region.fence();
    assert_eq!(region.unpersisted(), 1, "stored again after it was written back");
    elsewhere(|region| region.persist(0, 128));
    assert_eq!(region.unpersisted(), 0, "whoever writes a line back takes all that is in it");
}

#[test]
fn a_mapped_file_says_that_it_is_none_of_persistent_memory() {
    let files = on_files("mapped", FileOptions::default());
    let facts = map(&*files.directory, LEN_BYTES).facts();
    assert_eq!((facts.medium, facts.emulates), (Medium::EmulatedByFile, None));
    let memory = map(&*MemoryDirectory::new(), LEN_BYTES);
    let slow = EmulatedRegion::wrap(memory, NvmProfile::shipped("nvm-8x").unwrap(), 1.0);
    let facts = slow.facts();
    assert_eq!((facts.medium, facts.emulates.as_deref()), (Medium::Memory, Some("nvm-8x")));
    assert_eq!(facts.cell, None);
    let memory = map(&*MemoryDirectory::new(), LEN_BYTES);
    let rram = EmulatedRegion::wrap(memory, NvmProfile::shipped("rram").unwrap(), 1.0);
    rram.persist(0, 640);
    let joules = rram.facts().cell.map(|cell| cell.write_joules(rram.tally().written_back_lines));
    assert_eq!(joules, Some(10.0 * 512.0 * 100.0 * 1e-12));
}

#[test]
fn files_that_cannot_be_mapped_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let open = |options| FileDirectory::open(scratch.path(), options).unwrap();
    let path = scratch.path().join("r");
    let failure = |options: FileOptions| open(options).map("r", LEN_BYTES).err().expect("it is refused");
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    let error = failure(read_only);
    assert_eq!((error.operation, &error.kind), (Operation::Open, &ErrorKind::ReadOnly));
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(!path.exists());
    std::fs::write(&path, [7; 5000]).unwrap();
    let cut = open(FileOptions::default()).map("r", LEN_BYTES).unwrap();
    assert_eq!((cut.len_bytes(), bytes_at(&*cut, 4999, 1)), (5000, vec![7]), "its own length counts");
}

#[test]
fn a_new_region_that_was_not_finished_is_made_again() {
    let files = on_files("mapped", FileOptions::default());
    let scratch = files.directory.location();
    std::fs::write(Path::new(&scratch).join("r.new"), [7; 8192]).unwrap();
    let region = map(&*files.directory, 4096);
    assert_eq!((region.len_bytes(), bytes_at(&*region, 0, 4096)), (4096, vec![0; 4096]));
    assert_eq!(files.directory.list().unwrap(), ["r"]);
}

/// The environment variable that tells a child process its directory.
const CHILD: &str = "VARVE_TEST_REGION_CHILD";

/// Runs one of the tests below in a process of its own, through `sh`. `directory` is its directory, and
/// `before` are commands of the shell that run before it.
fn child(test: &str, directory: &Path, before: &str, environment: &[(&str, &str)]) -> Output {
    let script = format!("{before} exec \"$0\" --exact {test} --nocapture");
    let this = std::env::current_exe().expect("a test has a file");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(this).env(CHILD, directory).envs(environment.iter().copied());
    command.output().expect("a shell runs")
}

fn child_directory() -> Option<Arc<FileDirectory>> {
    let path = std::env::var_os(CHILD)?;
    Some(FileDirectory::open(Path::new(&path), FileOptions::default()).expect("it opens"))
}

#[test]
fn child_that_dies() {
    let Some(directory) = child_directory() else { return };
    let region = map(&*directory, LEN_BYTES);
    region.store(5000, b"stored");
    region.store_word(8, 77);
    std::process::abort();
}

#[test]
fn what_was_stored_survives_the_process() {
    let files = on_files("mapped", FileOptions::default());
    let output = child("child_that_dies", Path::new(&files.directory.location()), "ulimit -c 0;", &[]);
    assert!(!output.status.success(), "it aborts");
    let region = map(&*files.directory, LEN_BYTES);
    assert_eq!((bytes_at(&*region, 5000, 6), region.load_word(8)), (b"stored".to_vec(), 77));
}

#[test]
fn child_with_an_instruction() {
    let Some(directory) = child_directory() else { return };
    let region = map(&*directory, LEN_BYTES);
    region.store(100, &[1; 1000]);
    region.persist(100, 1000);
    assert_eq!(bytes_at(&*region, 100, 1000), [1; 1000]);
    assert_eq!(region.facts().write_back.name(), std::env::var("VARVE_NVM_WRITE_BACK").unwrap());
}

#[test]
fn every_instruction_that_the_processor_has_runs() {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let run = |name| {
        let files = on_files("mapped", FileOptions::default());
        let path = files.directory.location();
        child("child_with_an_instruction", Path::new(&path), "", &[("VARVE_NVM_WRITE_BACK", name)])
    };
    for name in ["clwb", "clflushopt", "clflush"] {
        if processor.split_whitespace().any(|flag| flag == name) {
            let output = run(name);
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn child_with_a_wrong_instruction() {
    let Some(directory) = child_directory() else { return };
    let error = directory.map("r", LEN_BYTES).err().expect("there is no such instruction").to_string();
    assert!(error.contains("/r: VARVE_NVM_WRITE_BACK is \"clflash\": choose clwb"), "{error}");
}

/// In an earlier version the process panicked. Every other wrong setting is refused with an error.
#[test]
fn an_instruction_that_is_none_is_refused() {
    let files = on_files("mapped", FileOptions::default());
    let path = files.directory.location();
    let environment = [("VARVE_NVM_WRITE_BACK", "clflash")];
    let output = child("child_with_a_wrong_instruction", Path::new(&path), "", &environment);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(files.directory.list().unwrap(), [""; 0], "and nothing is made");
}

/// Returns how many kilobytes of the mapping of a file are in memory, and how many are dirty.
fn mapped_kilobytes(path: &str) -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("a process may read its maps");
    let of_file = maps.lines().skip_while(|line| !line.ends_with(path)).skip(1);
    let rows =
        of_file.take_while(|line| line.split_whitespace().next().is_some_and(|name| name.ends_with(':')));
    let (mut resident, mut dirty) = (0, 0);
    for row in rows {
        let mut words = row.split_whitespace();
        let (name, count) =
            (words.next().unwrap_or_default(), words.next().and_then(|count| count.parse::<u64>().ok()));
        match name {
            "Rss:" => resident += count.unwrap_or_default(),
            "Shared_Dirty:" | "Private_Dirty:" => dirty += count.unwrap_or_default(),
            _ => {}
        }
    }
    (resident, dirty)
}

/// In an earlier version, each start made all pages of the region dirty. So a file system wrote a whole GiB
/// back.
#[test]
fn mapping_an_existing_region_dirties_nothing() {
    let files = on_files("mapped", FileOptions::default());
    let path = format!("{}/r", files.directory.location());
    map(&*files.directory, LEN_BYTES).settle().unwrap();
    let file_system = Command::new("stat").args(["-f", "-c", "%T", &path]).output().unwrap().stdout;
    if file_system.starts_with(b"tmpfs") {
        return;
    }
    let _region = map(&*files.directory, LEN_BYTES);
    let (resident, dirty) = mapped_kilobytes(&path);
    assert_eq!(dirty, 0, "of {resident} KiB");
}

#[test]
fn child_without_room() {
    let Some(directory) = child_directory() else { return };
    let error = directory.map("r", LEN_BYTES).err().expect("there is no room");
    assert_eq!(error.operation, Operation::SetLen);
    assert!(error.to_string().contains("/r: "), "{error}");
}

#[test]
fn a_region_that_finds_no_room_leaves_nothing_behind() {
    let files = on_files("mapped", FileOptions::default());
    // A limit of the length of files, which the kernel reports as an error and not by a signal.
    let limit = "trap '' XFSZ; ulimit -f 64;";
    let output = child("child_without_room", Path::new(&files.directory.location()), limit, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(files.directory.list().unwrap(), [""; 0]);
}
