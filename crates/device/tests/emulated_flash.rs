//! A device of limited size: which requests it refuses, and what its flash translation layer counts.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "device/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::filled;
use varve_device::{
    BlockFile, Directory, Durability, Emulated, ErrorKind, FlashReport, MemoryDirectory, OpenHow, Profile,
    Purpose, Space, WriteOp,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Returns a drive of this size whose operations take no time.
fn drive(below: Arc<dyn Directory>, capacity_bytes: u64) -> Arc<Emulated> {
    Emulated::sized(below, Profile::shipped("sata-ssd-2014").unwrap(), 1e-6, capacity_bytes)
}

fn open(device: &Emulated, name: &str) -> Arc<dyn BlockFile> {
    device.open(name, OpenHow::or_create(Space::Data)).unwrap()
}

fn write(file: &dyn BlockFile, offset: u64, len_bytes: u64) -> varve_device::Result<()> {
    file.write_at(offset, &filled(len_bytes as usize, 7), Purpose::DataPage, Durability::Later)
}

fn flash(device: &Emulated) -> FlashReport {
    device.report().flash.expect("the profile has a translation layer and the device a size")
}

#[test]
fn only_devices_of_limited_size_model_flash() {
    let profile = || Profile::shipped("sata-ssd-2014").unwrap();
    let unlimited = Emulated::wrap(MemoryDirectory::new(), profile(), 1e-6);
    write(&*open(&unlimited, "a"), 0, 4096).unwrap();
    assert_eq!(unlimited.report().flash, None);
    let disk = Profile::shipped("hdd-7200").unwrap();
    let disk = Emulated::sized(MemoryDirectory::new(), disk, 1e-6, MIB);
    let file = open(&disk, "a");
    write(&*file, 0, MIB).unwrap();
    assert_eq!(write(&*file, MIB, 4096).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(disk.report().flash, None);
}

#[test]
fn a_full_device_refuses_and_changes_nothing() {
    let device = drive(MemoryDirectory::new(), MIB);
    let file = open(&device, "a");
    file.set_len(512 * KIB).unwrap();
    assert_eq!(flash(&device).flash_bytes, 0, "what is reserved is not written");
    let refused = file.set_len(MIB + 1).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoSpace);
    assert!(refused.is_no_space());
    assert_eq!(file.len_bytes().unwrap(), 512 * KIB);
    let other = open(&device, "b");
    write(&*other, 0, 512 * KIB).unwrap();
    let page = filled(4096, 1);
    let ops = [0, 512 * KIB].map(|offset| WriteOp {
        offset,
        buf: &page,
        why: Purpose::DataPage,
        durability: Durability::Later,
    });
    assert_eq!(other.write_batch(&ops).unwrap_err().kind, ErrorKind::NoSpace);
    // A reserved range can be written. The room of holes can be used by other files until the holes are
    // filled again.
    write(&*file, 0, 512 * KIB).unwrap();
    file.punch(0, 8 * KIB).unwrap();
    write(&*other, 512 * KIB, 4096).unwrap();
    file.reserve(0, 4096).unwrap();
    assert_eq!(file.reserve(4096, 4096).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(write(&*file, 4096, 4096).unwrap_err().kind, ErrorKind::NoSpace);
    other.set_len(512 * KIB).unwrap();
    write(&*file, 4096, 4096).unwrap();
}

/// Of three pages, only the first two would fit. Their room stays free for other files.
#[test]
fn a_refused_batch_takes_no_room() {
    let device = drive(MemoryDirectory::new(), 64 * KIB);
    let (full, file) = (open(&device, "full"), open(&device, "file"));
    write(&*full, 0, 56 * KIB).unwrap();
    let page = filled(4096, 1);
    let ops = [0, 8 * KIB, 16 * KIB].map(|offset| WriteOp {
        offset,
        buf: &page,
        why: Purpose::DataPage,
        durability: Durability::Later,
    });
    for refused in [file.write_batch(&ops), file.write_batch_atomic(&ops)] {
        let refused = refused.unwrap_err();
        assert_eq!((&refused.kind, refused.offset), (&ErrorKind::NoSpace, Some(16 * KIB)));
    }
    write(&*full, 56 * KIB, 8 * KIB).unwrap();
    assert_eq!(flash(&device).host_bytes, 64 * KIB);
}

/// As in a file system, a removed file has its blocks until it is closed. Then it gives all of them back.
#[test]
fn an_open_file_keeps_its_room_when_it_is_removed() {
    let by_name: [fn(&Emulated); 2] = [
        |device| device.remove("a").unwrap(),
        |device| {
            open(device, "b");
            device.rename("b", "a").unwrap();
        },
    ];
    for goes in by_name {
        let device = drive(MemoryDirectory::new(), MIB);
        let file = open(&device, "a");
        write(&*file, 0, 512 * KIB).unwrap();
        goes(&device);
        assert_eq!(flash(&device).valid_bytes, 512 * KIB);
        let other = open(&device, "other");
        assert_eq!(write(&*other, 0, MIB).unwrap_err().kind, ErrorKind::NoSpace);
        write(&*file, 512 * KIB, 4096).unwrap();
        drop(file);
        assert_eq!(flash(&device).valid_bytes, 0);
        write(&*other, 0, MIB).unwrap();
    }
}

/// A change of the blocks of a file takes the time of the device, whether the file gets blocks or gives them
/// back.
#[test]
fn reserving_takes_as_long_as_giving_back() {
    let mut profile = Profile::shipped("hdd-7200").unwrap();
    profile.trim_us = 20_000.0;
    let device = Emulated::wrap(MemoryDirectory::new(), profile, 1.0);
    let file = open(&device, "a");
    file.set_len(MIB).unwrap();
    let changes: [fn(&dyn BlockFile); 2] =
        [|file| file.punch(0, 8 * KIB).unwrap(), |file| file.reserve(0, 8 * KIB).unwrap()];
    for change in changes {
        device.begin_report();
        let begun = Instant::now();
        change(&*file);
        // If the thread woke up late before, a part of the time may be credited.
        assert!(begun.elapsed() >= Duration::from_millis(18), "{:?}", begun.elapsed());
        assert_eq!(device.report().operations, 1);
    }
}

#[test]
fn every_way_to_give_room_back_is_a_trim() {
    let device = drive(MemoryDirectory::new(), 4 * MIB);
    let held = |what: &str, kib: u64| assert_eq!(flash(&device).valid_bytes, kib * KIB, "{what}");
    let (a, b) = (open(&device, "a"), open(&device, "b"));
    write(&*a, 0, MIB).unwrap();
    write(&*b, 0, MIB).unwrap();
    held("two files", 2048);
    a.punch(4 * KIB, 16 * KIB).unwrap();
    held("a hole", 2032);
    a.set_len(512 * KIB).unwrap();
    held("a cut", 512 - 16 + 1024);
    drop(b);
    device.rename("a", "b").unwrap();
    held("a file in the place of another", 512 - 16);
    write(&*open(&device, "b"), 4 * KIB, 16 * KIB).unwrap();
    held("the same file under its new name", 512);
    drop(a);
    device.remove("b").unwrap();
    held("a removal", 0);
    assert_eq!(flash(&device).trimmed_bytes, (2048 + 16) * KIB);
}

#[test]
fn files_that_were_there_count_and_a_report_begins_anew() {
    let below = MemoryDirectory::new();
    write(&*below.open("a", OpenHow::new_file(Space::Data)).unwrap(), 0, MIB).unwrap();
    let device = drive(below, 8 * MIB);
    let file = open(&device, "a");
    assert_eq!(flash(&device).valid_bytes, MIB);
    assert_eq!(open(&device, "a").len_bytes().unwrap(), MIB);
    assert_eq!(flash(&device).host_bytes, MIB, "opened again it is the same file");
    device.begin_report();
    // These writes are like the end of a log: each write of a sector programs a whole flash page.
    (0..8).for_each(|no| write(&*file, no * 512, 512).unwrap());
    let report = flash(&device);
    assert_eq!((report.host_bytes, report.flash_bytes), (4096, 8 * 4096));
    assert_eq!((report.valid_bytes, report.capacity_bytes), (MIB, 8 * MIB));
}

/// With random updates, garbage collection copies many pages if the device is nine tenths full, and few pages
/// if it is half full.
#[test]
fn a_full_drive_wears_more() {
    let amplification = |fill: f64| {
        let device = drive(MemoryDirectory::new(), 64 * MIB);
        let file = open(&device, "a");
        let pages = (64.0 * fill) as u64 * 128;
        (0..pages).for_each(|no| write(&*file, no * 8192, 8192).unwrap());
        let mut state = 1_u64;
        let mut update = |count: u64| {
            for _ in 0..count {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                write(&*file, (state >> 33) % pages * 8192, 8192).unwrap();
            }
        };
        update(2 * pages);
        device.begin_report();
        update(pages);
        let report = flash(&device);
        report.flash_bytes as f64 / report.host_bytes as f64
    };
    let (full, half) = (amplification(0.9), amplification(0.5));
    assert!(full > 2.0 * half && half < 1.5, "{full:.2} and {half:.2}");
}
