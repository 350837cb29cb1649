//! Page protection by devices that write a page atomically. A device that does not promise this is refused.
//! On a device that promises it, no page is written twice.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set};
use varve_device::{
    Directory, Emulated, FileDirectory, FileOptions, MemoryDirectory, Profile, Purpose, Space,
};
use varve_pager::control::Control;
use varve_pager::{Algorithm, Compression, Pager, PagerConfig, ProtectionKind, SpaceId, Trim};

/// Returns a configuration with all spaces on one device.
fn on(device: Arc<dyn Directory>) -> PagerConfig {
    PagerConfig {
        data: device.clone(),
        log: device.clone(),
        rollback: device.clone(),
        temporary: device.clone(),
        control: device,
        protection: ProtectionKind::AtomicWrite,
        ..config(&MemoryDirectory::new(), 64)
    }
}

/// Returns the drive of 2014 with a promise of atomic writes of this length.
fn drive(below: Arc<dyn Directory>, atomic_write_bytes: u32) -> Arc<Emulated> {
    let profile = Profile { atomic_write_bytes, ..Profile::shipped("sata-ssd-2014").unwrap() };
    Emulated::wrap(below, profile, 0.01)
}

#[test]
fn pages_are_written_once() {
    let directory = MemoryDirectory::new();
    let pager = open(&on(directory.clone()));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..200).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    let written = |why| directory.accounting().written(Space::Data, why).operations;
    assert!(written(Purpose::DataPage) > 200 && written(Purpose::Doublewrite) == 0);
    assert!(directory.list().unwrap().iter().all(|name| !name.starts_with("doublewrite")));
    let pager = open(&on(directory));
    ids.iter().enumerate().for_each(|(number, id)| assert_eq!(get(&pager, *id).unwrap(), number as u64));
}

#[test]
fn a_device_that_promises_less_than_a_page_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let files = FileDirectory::open(scratch.path(), FileOptions::default()).unwrap();
    if files.capabilities().writes_whole(4096) {
        return; // This one can.
    }
    let refused = |device: Arc<dyn Directory>| {
        let error = Pager::open(on(device), Arc::new(NoOps)).err().expect("it must be refused");
        error.to_string()
    };
    for device in [files.clone() as Arc<dyn Directory>, drive(files.clone(), 0), drive(files.clone(), 2048)] {
        let why = refused(device);
        assert!(
            why.contains("writes 4096 bytes in one piece") && why.contains("choose doublewrite"),
            "{why}"
        );
    }
    assert!(files.list().unwrap().is_empty(), "nothing was made");
    // The rollback space needs such a write, too.
    let mixed = PagerConfig { rollback: files.clone(), ..on(MemoryDirectory::new()) };
    let why = Pager::open(mixed, Arc::new(NoOps)).err().expect("it must be refused").to_string();
    assert!(why.contains("no such write"), "{why}");
}

#[test]
fn an_emulated_drive_that_promises_a_page_is_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let files = FileDirectory::open(scratch.path(), FileOptions::default()).unwrap();
    let device = drive(files, 16384);
    let pager = open(&on(device.clone()));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    while pager.tick_write(10).unwrap() > 0 {}
    set(&pager, id, 2).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    assert_eq!(get(&open(&on(device)), id).unwrap(), 2);
}

/// Compressed pages are written with trims and atomic writes (Lindstrom 2017). The device in memory refuses a
/// length or an address that no atomic write has.
#[test]
fn compressed_pages_are_written_atomically() {
    let directory = MemoryDirectory::new();
    let settings = PagerConfig {
        page_size: 16 << 10,
        pool_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        compression: Compression::of(Algorithm::Lz4),
        trim: Trim::On,
        ..on(directory.clone())
    };
    let pager = open(&settings);
    assert_eq!(pager.warnings(), [""; 0]);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..200).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);
    let noted = || Control::open(&*directory).unwrap().unwrap().get().has_compressed_pages;
    assert!(noted(), "a program that knows no compression must not open it");
    let accounting = directory.accounting();
    let pages = accounting.written(Space::Data, Purpose::DataPage);
    assert!(pages.operations > 200 && pages.bytes < pages.operations * (8 << 10), "{pages:?}");
    assert_eq!(accounting.written(Space::Data, Purpose::Doublewrite).operations, 0);
    assert!(accounting.punched(Space::Data).bytes > 200 * (8 << 10), "the rest of a page is a hole");
    let pager = open(&settings);
    ids.iter().enumerate().for_each(|(number, id)| assert_eq!(get(&pager, *id).unwrap(), number as u64));
    pager.shutdown().unwrap();
    drop(pager);
    // Pages of any stored length are read under another protection, and are written again in the lengths of
    // that protection.
    let pager = open(&PagerConfig { protection: ProtectionKind::DOUBLEWRITE, ..settings.clone() });
    ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&settings);
    ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 7));
    ids.iter().for_each(|id| set(&pager, *id, 8).unwrap());
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&settings);
    ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 8));
}

/// If the least atomic write is as long as a page, compression saves nothing, and the pager says so.
#[test]
fn a_page_as_long_as_the_least_atomic_write_is_not_compressed() {
    let directory = MemoryDirectory::with_sector(4096);
    let settings = PagerConfig { compression: Compression::of(Algorithm::Lz4), ..on(directory) };
    let warnings = open(&settings).warnings();
    let expected = "in place in atomic writes of at least 4096 bytes";
    assert!(warnings.iter().any(|warning| warning.contains(expected)), "{warnings:?}");
}
