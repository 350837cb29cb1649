//! Pieces of a region of persistent memory as files: they behave like files, and a durable write ends with a
//! fence.

use std::sync::Arc;

use crate::common::filled;
use varve_device::{
    Accounting, AlignedBuf, BlockFile, Create, Directory, Durability, ErrorKind, Fate, MemoryDirectory,
    OpenHow, Purpose, RecordLog, Recorder, Region, RegionExtents, RegionFiles, Space, Timeline,
};

const EXTENT_BYTES: u64 = 8192;
const COUNT: u32 = 3;
const WHY: Purpose = Purpose::Log;

fn map(device: &dyn Directory) -> Arc<dyn Region> {
    device.map("nvm", EXTENT_BYTES * u64::from(COUNT)).expect("memory can be mapped")
}

/// Returns the files of a region, as after a restart.
fn files_of(device: &dyn Directory) -> Arc<RegionFiles> {
    let how = RegionExtents {
        prefix: "log".into(),
        extent_bytes: EXTENT_BYTES,
        count: COUNT,
        location: "(memory)".into(),
    };
    RegionFiles::new(map(device), how, Arc::new(Accounting::new()))
}

fn read(file: &dyn BlockFile, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut buf = AlignedBuf::new(len_bytes);
    file.read_at(offset, &mut buf, WHY).expect("the range is inside the file");
    buf.to_vec()
}

fn new_file(files: &RegionFiles, name: &str) -> Arc<dyn BlockFile> {
    files.open(name, OpenHow::new_file(Space::Log)).expect("it is new")
}

#[test]
fn what_is_written_is_read_and_stays_in_its_file() {
    let device = MemoryDirectory::new();
    let files = files_of(&*device);
    let (one, two) = (new_file(&files, "log.0000"), new_file(&files, "log.0001"));
    one.write_at(0, &filled(8192, 1), WHY, Durability::Later).unwrap();
    two.write_at(64, &filled(128, 2), WHY, Durability::Now).unwrap();
    assert_eq!(read(&*one, 0, 8192), vec![1; 8192]);
    assert_eq!(read(&*two, 0, 256), [vec![0; 64], vec![2; 128], vec![0; 64]].concat());
    let mut inside = vec![0; 64];
    map(&*device).read(EXTENT_BYTES + 64, &mut inside);
    assert_eq!(inside, vec![2; 64]);
    let counts = files.accounting().written(Space::Log, WHY);
    assert_eq!((counts.operations, counts.bytes), (2, 8320));
}

#[test]
fn a_file_ends_where_the_next_one_begins() {
    let device = MemoryDirectory::new();
    let files = files_of(&*device);
    let file = new_file(&files, "log.0001");
    let error = file.read_at(8128, &mut AlignedBuf::new(128), WHY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ShortRead { wanted_bytes: 128, got_bytes: 64 });
    let error = file.write_at(8128, &filled(128, 1), WHY, Durability::Now).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert_eq!(read(&*new_file(&files, "log.0002"), 0, 64), vec![0; 64], "the neighbour is untouched");
    assert_eq!(file.len_bytes().unwrap(), EXTENT_BYTES);
    file.set_len(EXTENT_BYTES).unwrap();
    assert_eq!(file.set_len(EXTENT_BYTES + 4096).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(file.set_len(4096).unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(file.punch(0, 4096).unwrap_err().kind, ErrorKind::Unsupported);
}

#[test]
fn names_are_made_renamed_removed_and_found_again() {
    let device = MemoryDirectory::new();
    let files = files_of(&*device);
    let kind_of = |name, how| files.open(name, how).map(|_| ()).map_err(|error| error.kind);
    assert_eq!(kind_of("log.0000", OpenHow::existing(Space::Log)), Err(ErrorKind::NotFound));
    for none in ["log.0003", "log.3", "log.00000", "other.0000", "log.", "log"] {
        assert_eq!(kind_of(none, OpenHow::or_create(Space::Log)), Err(ErrorKind::NoSpace), "{none}");
    }
    let unfinished = files.open("log.0000.new", OpenHow::or_create(Space::Log)).unwrap();
    unfinished.write_at(0, &filled(4096, 7), WHY, Durability::Now).unwrap();
    assert!(files.list().unwrap().is_empty() && !files.exists("log.0000.new").unwrap());
    files.rename("log.0000.new", "log.0000").unwrap();
    assert_eq!(files.rename("log.0000.new", "log.0001").unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(kind_of("log.0000", OpenHow::new_file(Space::Log)), Err(ErrorKind::AlreadyExists));
    assert_eq!(read(&*files.open("log.0000", OpenHow::existing(Space::Log)).unwrap(), 0, 64), vec![7; 64]);
    drop(new_file(&files, "log.0002"));
    assert_eq!(files.list().unwrap(), ["log.0000", "log.0002"]);
    // Nothing was written to the last file, so it does not exist after a restart.
    let again = files_of(&*device);
    assert_eq!(again.list().unwrap(), ["log.0000"]);
    again.remove("log.0000").unwrap();
    assert_eq!(again.remove("log.0000").unwrap_err().kind, ErrorKind::NotFound);
    assert!(files_of(&*device).list().unwrap().is_empty());
    let how = OpenHow { create: Create::IfMissing, space: Space::Log, read_only: true };
    let reader = again.open("log.0000", how).unwrap();
    let error = reader.write_at(0, &filled(64, 1), WHY, Durability::Now).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ReadOnly);
}

/// Runs `what` on the files of a region whose changes are recorded. Returns the first bytes of `log.0000`
/// after a power failure at the end, which loses everything that can be lost.
fn after_power_failure(device: &Arc<MemoryDirectory>, what: impl FnOnce(&RegionFiles)) -> Vec<u8> {
    let log = RecordLog::new();
    what(&files_of(&*Recorder::wrap(Arc::clone(device), Arc::clone(&log))));
    let mut timeline = Timeline::new(log.recording());
    timeline.advance(timeline.end());
    let fates = vec![Fate::Absent; timeline.pending().len()];
    let left = timeline.image(&fates).remove(0);
    let mut bytes = vec![0; 512];
    map(&*left).read(0, &mut bytes);
    bytes
}

#[test]
fn only_what_is_fenced_survives() {
    let write = |files: &RegionFiles, durability| {
        let file = files.open("log.0000", OpenHow::or_create(Space::Log)).unwrap();
        file.write_at(0, &filled(512, 9), WHY, durability).unwrap();
        file
    };
    let new = MemoryDirectory::new;
    let lost = after_power_failure(&new(), |files| drop(write(files, Durability::Later)));
    assert_eq!(lost, vec![0; 512]);
    let kept = after_power_failure(&new(), |files| drop(write(files, Durability::Now)));
    assert_eq!(kept, vec![9; 512]);
    let flushed = after_power_failure(&new(), |files| {
        let file = write(files, Durability::Later);
        file.flush().unwrap();
        file.write_at(0, &filled(64, 8), WHY, Durability::Later).unwrap();
        file.write_at(448, &filled(64, 7), WHY, Durability::Later).unwrap();
        file.flush().unwrap();
    });
    assert_eq!(flushed, [vec![8; 64], vec![9; 384], vec![7; 64]].concat());
    let removed = after_power_failure(&new(), |files| {
        drop(write(files, Durability::Now));
        files.remove("log.0000").unwrap();
    });
    assert_eq!(removed, vec![0; 512]);
}

/// A killed process may have left lines in the caches. So the first flush after a restart writes back the
/// whole file.
#[test]
fn the_first_flush_after_a_restart_writes_everything_back() {
    let device = MemoryDirectory::new();
    let log = RecordLog::new();
    let recorder = Recorder::wrap(Arc::clone(&device), Arc::clone(&log));
    let killed = files_of(&*recorder);
    new_file(&killed, "log.0000").write_at(4096, &filled(64, 5), WHY, Durability::Later).unwrap();
    drop(killed);
    let restarted = files_of(&*recorder);
    restarted.open("log.0000", OpenHow::or_create(Space::Log)).unwrap().flush().unwrap();
    let mut timeline = Timeline::new(log.recording());
    timeline.advance(timeline.end());
    assert!(timeline.pending().is_empty(), "{:?}", timeline.pending());
}

#[test]
fn zeros_over_zeros_are_not_stored_but_written_back() {
    let device = MemoryDirectory::new();
    let log = RecordLog::new();
    let files = files_of(&*Recorder::wrap(Arc::clone(&device), Arc::clone(&log)));
    let file = new_file(&files, "log.0000");
    let stores = || {
        let events = log.recording().events;
        events.iter().filter(|event| matches!(event.change, varve_device::Change::Store { .. })).count()
    };
    file.write_at(0, &filled(8192, 0), WHY, Durability::Later).unwrap();
    assert_eq!(stores(), 0);
    file.write_at(128, &filled(64, 1), WHY, Durability::Now).unwrap();
    file.write_at(0, &filled(8192, 0), WHY, Durability::Later).unwrap();
    assert_eq!(stores(), 1 + 128, "lines");
    assert_eq!(read(&*file, 0, 8192), vec![0; 8192]);
}
