//! Space of packed databases on devices with blocks, holes and a capacity. A full device refuses new pages;
//! existing pages can be read, written and recovered.

use std::sync::Arc;

use crate::common::{Random, add, get, is_full, set};
use varve_device::{
    BlockFile, Directory, Emulated, ErrorKind, Fault, Faulty, MemoryDirectory, OpenHow, Operation, Profile,
    Rule, Space, When,
};
use varve_pager::{HomeLayout, PackedConfig, PageId, Pager, PagerConfig, SpaceId};

const EXTENT_BYTES: u64 = 64 << 10;
const MIB: u64 = 1 << 20;

/// Returns a device of this size whose operations take no time.
fn sized(below: Arc<dyn Directory>, capacity_bytes: u64) -> Arc<Emulated> {
    Emulated::sized(below, Profile::shipped("nvme").unwrap(), 1e-6, capacity_bytes)
}

/// Returns a configuration of a packed database whose data files are in `data`, and all other files in other
/// directories.
fn config(data: Arc<dyn Directory>, fill_percent: u8) -> PagerConfig {
    let mut config = crate::common::config(&MemoryDirectory::new(), 40);
    let packed = PackedConfig {
        extent_bytes: EXTENT_BYTES,
        held_pages_max: 16,
        fill_percent,
        ..PackedConfig::DEFAULT
    };
    config.layout = HomeLayout::Packed(packed);
    config.data = data;
    config
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    levels.iter().flat_map(|level| &level.counters).filter(|(found, _)| *found == name).map(|(_, n)| *n).sum()
}

type Known = Vec<(PageId, u64)>;

/// Makes pages of a new owner, and writes them.
fn fill(pager: &Pager, pages: u64) -> (u32, Known) {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let known = (0..pages)
        .map(|number| {
            let id = add(pager, owner, number).unwrap();
            if number % 16 == 0 {
                pager.tick_write(1000).unwrap();
            }
            (id, number)
        })
        .collect();
    pager.tick_write(1000).unwrap();
    (owner, known)
}

fn drop_segment(pager: &Pager, owner: u32) {
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
}

fn churn(pager: &Pager, known: &mut Known, writes: u64, random: &mut Random) {
    for step in 0..writes {
        let at = random.below(known.len() as u64) as usize;
        known[at].1 = random.next();
        set(pager, known[at].0, known[at].1).unwrap();
        if step % 16 == 0 {
            pager.tick_write(1000).unwrap();
        }
        if step % 160 == 0 {
            pager.checkpoint().unwrap();
        }
    }
    pager.tick_write(1000).unwrap();
}

fn check(pager: &Pager, known: &Known) {
    for (id, number) in known {
        assert_eq!(get(pager, *id).unwrap(), *number, "{id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

/// Makes another file on the device, which takes all space that is left.
fn take_the_rest(device: &Emulated) -> Arc<dyn BlockFile> {
    let other = device.open("other", OpenHow::or_create(Space::Temporary)).unwrap();
    let mut bytes = other.len_bytes().unwrap();
    for step in [MIB, 4096] {
        while other.set_len(bytes + step).is_ok() {
            bytes += step;
        }
    }
    other
}

/// Adds pages until the device is full. The error must come when a page is added.
fn fill_up(pager: &Pager, owner: u32) -> Known {
    let mut known = Vec::new();
    loop {
        match add(pager, owner, known.len() as u64) {
            Ok(id) => known.push((id, known.len() as u64)),
            Err(error) => {
                assert!(is_full(&error), "{error}");
                break;
            }
        }
        if known.len() % 16 == 0 {
            let written = pager.tick_write(1000);
            assert!(written.is_ok(), "after {} pages: {written:?}", known.len());
            pager.checkpoint().unwrap();
        }
    }
    pager.tick_write(1000).unwrap();
    known
}

/// In an earlier version, punched extents counted as room for new pages of a space. If another file had
/// filled the device in the meantime, such pages could be added, but not written.
#[test]
fn pages_over_holes_are_refused_when_they_are_added() {
    let device = sized(MemoryDirectory::new(), 64 * MIB);
    let config = config(device.clone(), 80);
    let pager = crate::common::open(&config);
    let (_, mut known) = fill(&pager, 300);
    let (gone, _) = fill(&pager, 3000);
    let (owner, more) = fill(&pager, 20);
    known.extend(more);
    drop_segment(&pager, gone);
    (0..3).for_each(|_| pager.checkpoint().unwrap());
    assert!(counter(&pager, "hollow_extents") > 40, "{:?}", pager.stats());
    let other = take_the_rest(&device);
    let added = fill_up(&pager, owner);
    assert!(added.len() > 10 && added.len() < 2000, "{}", added.len());
    let mut random = Random(3);
    churn(&pager, &mut known, 2000, &mut random);
    check(&pager, &known);
    check(&pager, &added);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = crate::common::open(&config);
    check(&pager, &known);
    check(&pager, &added);
    churn(&pager, &mut known, 500, &mut random);
    // There is room again.
    other.set_len(0).unwrap();
    let (_, again) = fill(&pager, 2000);
    check(&pager, &known);
    check(&pager, &again);
}

/// The same is tested with a file that cannot become longer at all.
#[test]
fn pages_that_a_space_gets_back_are_granted_before_they_are_written() {
    let device = Faulty::wrap(MemoryDirectory::new());
    let pager = crate::common::open(&config(device.clone(), 80));
    let (owner, mut known) = fill(&pager, 100);
    let (gone, _) = fill(&pager, 3000);
    drop_segment(&pager, gone);
    (0..3).for_each(|_| pager.checkpoint().unwrap());
    let fault = Fault::Fails(ErrorKind::NoSpace);
    // The same rule holds for the room of holes.
    device.arm(Rule {
        operation: Some(Operation::SetLen),
        space: Some(Space::Data),
        when: When::From(1),
        fault,
    });
    let added = fill_up(&pager, owner);
    assert!(device.fired_count() > 0 && added.len() < 2500, "{}", added.len());
    churn(&pager, &mut known, 500, &mut Random(5));
    device.disarm();
    let (_, again) = fill(&pager, 2500);
    check(&pager, &known);
    check(&pager, &added);
    check(&pager, &again);
}

/// The device has no space for the pages that reclamation copies. The caller that needs the space gets an
/// error, and no page has moved. When the device has space again, the caller succeeds.
#[test]
fn want_of_room_for_survivors_is_an_error_and_nothing_is_lost() {
    let directory = MemoryDirectory::with_capacity(8 * MIB);
    let device = Faulty::wrap(directory);
    let config = config(device.clone(), 90);
    let pager = crate::common::open(&config);
    let (owner, mut known) = fill(&pager, 400);
    known.extend(fill_up(&pager, owner));
    let mut random = Random(11);
    churn(&pager, &mut known, 600, &mut random);
    let fault = Fault::Fails(ErrorKind::NoSpace);
    let mut refused = 0;
    for round in 0..40 {
        let when = When::From(1 + round);
        let rule =
            Rule { operation: Some(Operation::Write), space: Some(Space::Data), when, fault: fault.clone() };
        device.arm(rule);
        let before = counter(&pager, "moves_refused");
        for _ in 0..60 {
            let at = random.below(known.len() as u64) as usize;
            let number = random.next();
            match set(&pager, known[at].0, number) {
                Ok(()) => known[at].1 = number,
                Err(error) => assert!(is_full(&error), "{error}"),
            }
            match pager.tick_write(1000) {
                Ok(_) => {}
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    refused += u64::from(counter(&pager, "moves_refused") > before);
                }
            }
        }
        // Nothing is written now, and everything is read.
        for (id, number) in &known {
            match get(&pager, *id) {
                Ok(found) => assert_eq!(found, *number, "{id}"),
                Err(error) => assert!(is_full(&error), "{error}"),
            }
        }
        device.disarm();
        churn(&pager, &mut known, 100, &mut random);
        check(&pager, &known);
    }
    assert!(refused > 0 && counter(&pager, "moves_refused") > 1, "{refused}: {:?}", pager.stats());
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    check(&crate::common::open(&config), &known);
}
