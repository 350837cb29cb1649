//! A packed database on full devices: a refused page is written later and survives crashes, and a thread that
//! waits for log space gets the reason.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{KIND, NoOps, add, end_with_the_segment, get, is_full, note, set};
use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{HomeLayout, PackedConfig, PageId, Pager, PagerConfig, SpaceId};

/// Returns a configuration of a packed database over a device that can be full. The control file is on
/// another device.
fn full_config(directory: &Arc<MemoryDirectory>) -> (PagerConfig, Arc<Faulty>) {
    let device = Faulty::wrap(directory.clone());
    let files: Arc<dyn Directory> = device.clone();
    let mut config = crate::common::config(directory, 256);
    config.layout = HomeLayout::Packed(PackedConfig {
        extent_bytes: 64 << 10,
        held_pages_max: 1000,
        ..PackedConfig::DEFAULT
    });
    (config.data, config.rollback, config.log) = (files.clone(), files.clone(), files);
    (config, device)
}

fn refuse(device: &Faulty, operation: Operation, space: Space, when: When) {
    let fault = Fault::Fails(ErrorKind::NoSpace);
    device.arm(Rule { operation: Some(operation), space: Some(space), when, fault });
}

/// Moves the last checkpoint of the page maps, and the start of redo, past all changes that are not in the
/// dirty-page table.
fn go_on(pager: &Pager) {
    for _ in 0..60 {
        note(pager, 10_000).unwrap();
        pager.checkpoint().unwrap();
    }
}

/// Changes the pages once more, ends the pager, and checks that the changes survive.
fn assert_changes_survive(config: &PagerConfig, pager: Pager, ids: &[PageId]) {
    for (id, number) in ids.iter().zip(1000..) {
        set(&pager, *id, number).unwrap();
    }
    pager.flush_log(pager.log().end()).unwrap();
    // This writes what the ledger has. The ledger's oldest change would keep all of the log.
    pager.tick_write(1000).unwrap();
    go_on(&pager);
    drop(pager);
    let pager = crate::common::open(config);
    for (id, number) in ids.iter().zip(1000..) {
        assert_eq!(get(&pager, *id).unwrap(), number, "{id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

fn data_pages(pager: &Pager, count: u64) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..count).map(|number| add(pager, owner, number).unwrap()).collect()
}

fn rollback_page(pager: &Pager, owner: u32) -> PageId {
    let mut mtr = pager.begin().unwrap();
    let id = mtr.allocate(SpaceId::ROLLBACK, owner, None).unwrap();
    let new = mtr.create(id, KIND, owner).unwrap();
    mtr.write(new, 100, &[1; 8]);
    mtr.commit();
    id
}

/// A put has pages of two spaces, and the pages of one space are refused. In an earlier version, the pages of
/// the other space became stable in one slot, and then another slot for them was refused. They stayed changed
/// in the pool, but the dirty-page table had removed them. So a crash lost their next change.
#[test]
fn a_put_of_two_spaces_is_not_refused_as_one() {
    let directory = MemoryDirectory::new();
    let (config, device) = full_config(&directory);
    let pager = crate::common::open(&config);
    let owner = pager.create_segment(SpaceId::ROLLBACK).unwrap();
    let mut ids = data_pages(&pager, 5);
    ids.extend((0..5).map(|_| rollback_page(&pager, owner)));
    pager.tick_write(1000).unwrap();
    ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
    refuse(&device, Operation::Write, Space::Rollback, When::From(1));
    // The slots of the five may lie in two extents.
    refuse(&device, Operation::Write, Space::Data, When::From(3));
    let error = pager.tick_write(1000).unwrap_err();
    assert!(is_full(&error) && device.fired_count() > 0, "{error}");
    device.disarm();
    assert_changes_survive(&config, pager, &ids);
}

/// The slots are written, but the log has no room for the record of them. In an earlier version, the put was
/// refused, and the pages stayed held. A later settle reported them to the dirty-page table as stable while
/// they were changed in the pool.
#[test]
fn pages_that_can_not_be_noted_are_held_and_lose_nothing() {
    let directory = MemoryDirectory::new();
    let (config, device) = full_config(&directory);
    let pager = crate::common::open(&config);
    let ids = data_pages(&pager, 20);
    end_with_the_segment(&pager);
    refuse(&device, Operation::SetLen, Space::Log, When::From(1));
    for _ in 0..3 {
        let error = pager.tick_write(1000).unwrap_err();
        assert!(is_full(&error), "{error}");
    }
    assert!(
        is_full(&pager.checkpoint().unwrap_err()),
        "what is held is not settled, and whoever asks hears of it"
    );
    device.disarm();
    pager.checkpoint().unwrap();
    assert_changes_survive(&config, pager, &ids);
}

/// Returns the result of `work`. Fails if it does not come in time.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(60)).expect("it waits for ever")
}

/// No checkpoint of the page map can be made, so the log cannot be cut. In an earlier version, every change
/// then waited for ever.
#[test]
fn who_waits_for_a_log_that_the_map_holds_back_hears_why() {
    for background in [false, true] {
        let directory = MemoryDirectory::new();
        let (mut config, device) = full_config(&directory);
        config.background = background;
        let pager = Pager::open(config.clone(), Arc::new(NoOps)).unwrap();
        let ids = data_pages(&pager, 10);
        pager.shutdown().unwrap();
        drop(pager);
        let pager = Pager::open(config.clone(), Arc::new(NoOps)).unwrap();
        refuse(&device, Operation::Write, Space::Data, When::From(1));
        let (pager, error) = in_time(move || {
            let error = loop {
                match note(&pager, 10_000) {
                    Ok(()) => {}
                    Err(error) => break error,
                }
            };
            (pager, error)
        });
        assert!(is_full(&error), "{error}");
        device.disarm();
        for number in 0..200 {
            set(&pager, ids[number % ids.len()], number as u64).unwrap();
            note(&pager, 10_000).unwrap();
        }
        assert_eq!(get(&pager, ids[9]).unwrap(), 199);
    }
}

/// If a checkpoint of the page map is refused, the next one has its changes.
#[test]
fn a_copy_of_the_map_that_was_refused_is_made_again() {
    let directory = MemoryDirectory::new();
    let (config, device) = full_config(&directory);
    let pager = crate::common::open(&config);
    let ids = data_pages(&pager, 20);
    pager.tick_write(1000).unwrap();
    go_on(&pager);
    ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
    pager.tick_write(1000).unwrap();
    (0..12).for_each(|_| note(&pager, 10_000).unwrap());
    refuse(&device, Operation::Write, Space::Data, When::From(1));
    assert!(is_full(&pager.checkpoint().unwrap_err()));
    device.disarm();
    go_on(&pager);
    drop(pager);
    let pager = crate::common::open(&config);
    ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 7, "{id}"));
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}
