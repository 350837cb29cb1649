//! An emulated device serves at its profile's rate, for one caller and for many.

use std::sync::Arc;
use std::time::Instant;

use varve_device::{
    AlignedBuf, Directory, Durability, Emulated, MemoryDirectory, OpenHow, Profile, Purpose, ReadOp, Space,
};

const PAGE_BYTES: usize = 8192;
const PAGES: u64 = 64;

fn device() -> (Arc<Emulated>, Arc<dyn varve_device::BlockFile>) {
    let profile = Profile::shipped("fusion-io-160").expect("it is shipped");
    // Ten times slower than the real one, so that a busy test machine does not matter.
    let device = Emulated::wrap(MemoryDirectory::new(), profile, 10.0);
    let file = device.open("a", OpenHow::new_file(Space::Data)).expect("a new file");
    file.set_len(PAGES * PAGE_BYTES as u64).expect("memory grows");
    (device, file)
}

/// An address that never continues the last one.
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
