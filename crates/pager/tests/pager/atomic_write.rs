//! Page protection by devices that write a page atomically. A device that does not promise this is refused.
//! On a device that does, no page is written twice.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set};
use varve_device::{
    Directory, Emulated, FileDirectory, FileOptions, MemoryDirectory, Profile, Purpose, Space,
};
use varve_pager::control::Control;
use varve_pager::{Algorithm, Compression, Pager, PagerConfig, ProtectionKind, SpaceId};

/// All spaces on one device.
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

/// The drive of 2014, made to promise this much.
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
    // The rollback space needs it, too.
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

/// Found by review: nothing was compressed, nobody was told, and older programs were shut out all the same.
#[test]
fn compression_that_can_not_be_is_said_and_not_noted() {
    let directory = MemoryDirectory::new();
    let settings = PagerConfig { compression: Compression::of(Algorithm::Lz4), ..on(directory.clone()) };
    let pager = open(&settings);
    let warnings = pager.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains("compression of pages changes nothing")),
        "{warnings:?}"
    );
    pager.set_default_compression(Compression::of(Algorithm::Zstd)).unwrap();
    let zstd = Compression::of(Algorithm::Zstd);
    pager.prepare_compression(zstd).unwrap();
    pager.set_compression(SpaceId::DATA, &[(20, Some(zstd))]);
    let noted = || Control::open(&*directory).unwrap().unwrap().get().has_compressed_pages;
    assert!(!noted());
    pager.shutdown().unwrap();
    drop(pager);
    let settings = PagerConfig { protection: ProtectionKind::DOUBLEWRITE, ..settings };
    assert!(open(&settings).warnings().iter().all(|warning| !warning.contains("compression")));
    assert!(noted());
}
