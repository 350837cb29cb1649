//! An emulated device serves at its profile's rate, for one caller and for many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_device::{
    AlignedBuf, Directory, Durability, Emulated, ErrorKind, FileDirectory, FileOptions, MemoryDirectory,
    OpenHow, Profile, Purpose, ReadOp, Space, WriteOp,
};

const PAGE_BYTES: usize = 8192;
const PAGES: u64 = 64;

fn device() -> (Arc<Emulated>, Arc<dyn varve_device::BlockFile>) {
    let profile = Profile::shipped("fusion-io-160").expect("it is shipped");
    // The device is ten times slower than the real one, so that a busy test machine does not matter.
    let device = Emulated::wrap(MemoryDirectory::new(), profile, 10.0);
    let file = device.open("a", OpenHow::new_file(Space::Data)).expect("a new file");
    file.set_len(PAGES * PAGE_BYTES as u64).expect("memory grows");
    (device, file)
}

/// Returns an address that never continues the last one.
fn scattered(no: u64) -> u64 {
    no * 7 % PAGES * PAGE_BYTES as u64
}

#[test]
fn random_reads_take_the_modelled_time() {
    let (device, file) = device();
    let mut buf = AlignedBuf::new(PAGE_BYTES);
    let started = Instant::now();
    (0..200).for_each(|no| file.read_at(scattered(no), &mut buf, Purpose::DataPage).unwrap());
    let per_s = 200.0 / started.elapsed().as_secs_f64();
    assert!(per_s < 1218.2 * 1.05, "too fast: {per_s} per second");
    let report = device.report();
    assert!(report.model_error_share < 0.5 && report.busy_share > 0.1, "{report:?}");
    assert_eq!(report.operations, 200);
}

/// A report of a run does not include the operations that loaded the data.
#[test]
fn a_report_begins_anew() {
    let (device, file) = device();
    let mut buf = AlignedBuf::new(PAGE_BYTES);
    (0..50).for_each(|no| file.read_at(scattered(no), &mut buf, Purpose::DataPage).unwrap());
    let loaded = device.report();
    assert!(loaded.operations == 50 && loaded.busy_share > 0.1, "{loaded:?}");
    device.begin_report();
    std::thread::sleep(Duration::from_millis(50));
    let idle = device.report();
    assert!(idle.operations == 0 && idle.busy_share < 0.01 && idle.cpu_share < 1.0, "{idle:?}");
}

/// The times are switched off while a database is brought into the state that will be measured.
#[test]
fn a_drive_whose_times_are_not_taken_is_as_fast_as_what_is_below() {
    let (device, file) = device();
    let mut buf = AlignedBuf::new(PAGE_BYTES);
    device.take_times(false);
    let fast = timed(|| {
        (0..1_000).for_each(|no| file.read_at(scattered(no), &mut buf, Purpose::DataPage).unwrap());
    });
    assert!(fast < Duration::from_millis(400), "{fast:?}: 1,000 reads take 821 ms by the model");
    assert_eq!((device.report().operations, device.report().modelled_ns), (0, 0));
    device.take_times(true);
    file.read_at(scattered(0), &mut buf, Purpose::DataPage).unwrap();
    assert_eq!(device.report().operations, 1);
}

#[test]
fn callers_share_the_channels() {
    let (_, file) = device();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &file;
            scope.spawn(move || {
                let mut buf = AlignedBuf::new(PAGE_BYTES);
                let read =
                    |no: u64| file.read_at(scattered(no * 4 + thread), &mut buf, Purpose::DataPage).unwrap();
                (0..50).for_each(read);
            });
        }
    });
    let per_s = 200.0 / started.elapsed().as_secs_f64();
    assert!(per_s < 1598.0 * 1.05, "more callers do not make a device faster: {per_s} per second");
}

#[test]
fn sequential_writes_are_faster_than_scattered_ones() {
    let (_, file) = device();
    let buf = AlignedBuf::new(PAGE_BYTES);
    let time = |address: &dyn Fn(u64) -> u64| {
        let started = Instant::now();
        for no in 0..60 {
            file.write_at(address(no), &buf, Purpose::DataPage, Durability::Now).unwrap();
        }
        started.elapsed()
    };
    let modelled_s = 60.0 / 1496.5;
    assert!(time(&|no| no * PAGE_BYTES as u64).as_secs_f64() > modelled_s * 0.95);
    assert!(time(&scattered).as_secs_f64() > modelled_s * 1.1);
}

#[test]
fn a_batch_takes_as_long_as_its_requests_on_one_channel() {
    let (_, file) = device();
    let mut bufs: Vec<_> = (0..40).map(|_| AlignedBuf::new(PAGE_BYTES)).collect();
    let op = |(no, buf)| ReadOp { offset: scattered(no as u64), buf, why: Purpose::DataPage };
    let mut ops: Vec<_> = bufs.iter_mut().enumerate().map(|(no, buf)| op((no, &mut buf[..]))).collect();
    let started = Instant::now();
    file.read_batch(&mut ops).unwrap();
    assert!(started.elapsed().as_secs_f64() > 40.0 / 1218.2 * 0.95);
}

/// Returns a drive that is twenty times slower than the real one. A flush takes 33 ms. A write that goes to
/// the cache takes 0.6 ms.
fn drive_of_2014(profile: &str) -> (Arc<Emulated>, Arc<dyn varve_device::BlockFile>) {
    let device = Emulated::wrap(MemoryDirectory::new(), Profile::parse(profile).expect("a profile"), 20.0);
    let file = device.open("a", OpenHow::new_file(Space::Data)).expect("a new file");
    file.set_len(PAGES * PAGE_BYTES as u64).expect("memory grows");
    (device, file)
}

const SATA_SSD: &str = include_str!("../profiles/sata-ssd-2014.toml");
const FLUSH: Duration = Duration::from_micros(1643 * 20);

fn timed(what: impl FnOnce()) -> Duration {
    let started = Instant::now();
    what();
    started.elapsed()
}

/// In an earlier version, a durable write took no longer than any other write. So a log on such a drive was
/// too fast.
#[test]
fn a_durable_write_costs_a_flush_where_the_profile_says_so() {
    let buf = AlignedBuf::new(PAGE_BYTES);
    let write = |file: &dyn varve_device::BlockFile, durability| {
        timed(|| file.write_at(0, &buf, Purpose::Log, durability).unwrap())
    };
    let (_, file) = drive_of_2014(SATA_SSD);
    assert!(write(&*file, Durability::Later) < FLUSH / 2, "the cache answers");
    assert!(write(&*file, Durability::Now) >= FLUSH);
    let (_, file) = drive_of_2014(&SATA_SSD.replace("\"flush\"", "\"fua\""));
    assert!(write(&*file, Durability::Now) < FLUSH / 2, "that drive writes through");
    let slow =
        SATA_SSD.replace("\"flush\"", "\"cached\"").replace("random_write = 90000", "random_write = 300");
    let (_, file) = drive_of_2014(&slow);
    assert!(write(&*file, Durability::Now) < FLUSH / 2, "the cache of that drive outlives a power failure");
}

#[test]
fn a_batch_costs_one_flush_for_all_its_durable_writes() {
    let (_, file) = drive_of_2014(SATA_SSD);
    let buf = AlignedBuf::new(PAGE_BYTES);
    let batch = |durability| {
        let op = |no| WriteOp { offset: scattered(no), buf: &buf, why: Purpose::DataPage, durability };
        let ops: Vec<_> = (0..8).map(op).collect();
        timed(|| file.write_batch(&ops).unwrap())
    };
    assert!(batch(Durability::Later) < FLUSH / 2);
    let took = batch(Durability::Now);
    assert!(took >= FLUSH && took < FLUSH * 3, "{took:?}");
}

#[test]
fn callers_who_wait_for_a_flush_share_it() {
    let (_, file) = drive_of_2014(SATA_SSD);
    let buf = AlignedBuf::new(PAGE_BYTES);
    let write = |no| file.write_at(scattered(no), &buf, Purpose::DataPage, Durability::Now).unwrap();
    let took = timed(|| {
        std::thread::scope(|scope| (0..16).for_each(|no| drop(scope.spawn(move || write(no)))));
    });
    assert!(took < FLUSH * 8, "16 flushes, one after the other, take 16 times as long: {took:?}");
}

#[test]
fn a_profile_may_promise_atomic_writes_and_says_what_they_are_worth() {
    let promise = SATA_SSD.replace("atomic_write_bytes = 0", "atomic_write_bytes = 8192");
    let scratch = tempfile::tempdir().unwrap();
    let on_files = |text: &str| {
        let below = FileDirectory::open(scratch.path(), FileOptions::default()).unwrap();
        Emulated::wrap(below, Profile::parse(text).unwrap(), 1.0)
    };
    let buf = AlignedBuf::new(PAGE_BYTES);
    let write = |device: &Emulated, buf: &AlignedBuf| {
        let file = device.open("a", OpenHow::or_create(Space::Data)).unwrap();
        file.write_atomic(0, buf, Purpose::DataPage, Durability::Now).map_err(|error| error.kind)
    };
    let device = on_files(&promise);
    assert_eq!(write(&device, &buf), Ok(()));
    assert_eq!(write(&device, &AlignedBuf::new(2 * PAGE_BYTES)), Err(ErrorKind::Unsupported));
    let found = device.capabilities();
    assert_eq!(found.atomic_write_bytes, 8192);
    assert!(found.warnings.iter().any(|warning| warning.contains("a real crash may tear them")), "{found}");
    assert_eq!(write(&on_files(SATA_SSD), &buf), Err(ErrorKind::Unsupported), "no promise, no atomic write");
}

#[test]
fn regions_of_the_device_below_can_be_mapped() {
    let (device, _) = device();
    let region = device.map("nvm", 4096).unwrap();
    region.store(0, &[7; 8]);
    assert_eq!(region.len_bytes(), 4096);
}
