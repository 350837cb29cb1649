//! Each write-back and each fence of the allocator is needed: if one is left out, some crash image is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_device::MemoryDirectory;

use crate::crash;
use crate::life::{self, Life, Work, Worker};
use crate::oracle::{Chunk, State};
use crate::skipping::{Call, Skip};

const OPERATIONS: usize = 30;
/// The number of lives whose calls are counted.
const SEEDS: u64 = 12;
/// The number of lives that are tried if the life of the table does not show a fault.
const SEEDS_MAX: u64 = 40;

/// The write-backs and fences of each kind of call, in their order. Each of them has the seed of a life whose
/// crash images are wrong if it is left out. `None` means that no random life shows this, but a separate test
/// does.
///
/// An allocation has two events, the write-back and the fence of a new slab's descriptor. If the allocation
/// first has to free empty slabs, their write-backs and a fence come before these.
const SHOWN: [(Call, &[Option<u64>]); 8] = [
    (Call::Allocate, &[Some(0), None, Some(4), Some(4), Some(10), None]),
    (Call::Activate, &[Some(0), Some(0)]),
    (Call::Free, &[Some(0), Some(0)]),
    (Call::FreeAll, &[Some(3), Some(3), Some(5), Some(8), Some(8)]),
    (Call::Publish, &[Some(1), Some(1), Some(1), Some(1), Some(1), Some(1), Some(1), Some(10)]),
    (Call::SetRoot, &[Some(0), Some(0)]),
    (Call::CreateRoot, &[Some(0), Some(0), Some(0), Some(0)]),
    (Call::RemoveRoot, &[Some(0), Some(0)]),
];

fn region_bytes(seed: u64) -> u64 {
    40_960 + [3, 6, 16][seed as usize % 3] * 66_000
}

/// Runs a life in which this write-back or fence is left out.
fn lame_life(seed: u64, skip: Option<Skip>) -> Result<Life, String> {
    life::live(life::empty(region_bytes(seed)), State::default(), seed, OPERATIONS, skip)
}

/// Returns whether images of this life show that the write-back or fence is missing.
fn shows(seed: u64, skip: Skip) -> bool {
    lame_life(seed, Some(skip)).and_then(|life| crash::search(&life, seed, 1, |_, _| Ok(()))).is_err()
}

#[test]
fn each_write_back_and_fence_of_a_call_is_needed() {
    for (call, seeds) in SHOWN {
        for (event, seed) in (0..).zip(seeds) {
            let skip = Skip { call, event };
            // A life depends on the lanes of its threads too, so the seed of the table may fail.
            let is_shown =
                seed.is_none_or(|seed| shows(seed, skip) || (0..SEEDS_MAX).any(|other| shows(other, skip)));
            assert!(is_shown, "{call:?}: no image shows that event {event} is missing");
        }
    }
}

#[test]
fn every_write_back_and_fence_is_in_the_table() {
    let mut most = BTreeMap::new();
    for seed in 0..SEEDS {
        let life = lame_life(seed, None).unwrap_or_else(|error| panic!("{error}"));
        for (call, events) in life.most_events {
            let known: &mut u64 = most.entry(call).or_default();
            *known = events.max(*known);
        }
    }
    most.remove(&Call::Open);
    let table: BTreeMap<Call, u64> = SHOWN.iter().map(|(call, seeds)| (*call, seeds.len() as u64)).collect();
    assert_eq!(most, table);
}

/// Finds the seeds for the table: tries lives until one shows the fault. The search takes minutes.
#[test]
#[ignore = "a long search, for the table SHOWN"]
fn search_for_the_table() {
    for (call, seeds) in SHOWN {
        for event in 0..8.max(seeds.len() as u64) {
            let seed = (0..SEEDS).find(|seed| shows(*seed, Skip { call, event }));
            println!("{call:?} {event}: {seed:?}");
        }
    }
}

/// One thread makes a slab, and has no reason for a fence of its own. Another thread activates a chunk of the
/// slab. If the descriptor of the slab were not durable before, the chunk would be lost.
#[test]
fn the_fence_of_a_new_slab_is_needed() {
    let chunk = Chunk { owner: 0, len_bytes: 64, tag: 1, link: 0 };
    let next = |_: &State, number| match number {
        1 => (Work::Reserve { len_bytes: 64, owner: 0, frees: false }, Worker::Other),
        _ => (Work::Insert(chunk), Worker::This),
    };
    let search = |skip| {
        let life = life::live_by(life::empty(region_bytes(1)), State::default(), 2, skip, next);
        life.and_then(|life| crash::search(&life, 0, 1, |_, _| Ok(())))
    };
    let seen = search(None).unwrap_or_else(|error| panic!("{error}"));
    assert!(seen.images > 10, "{seen:?}");
    assert!(search(Some(Skip { call: Call::Allocate, event: 1 })).is_err(), "no image shows its lack");
}

/// Returns images of a life at whose opening a lane was sealed, so that the opening stores something.
fn images_with_a_sealed_lane(seed: u64) -> Vec<(Arc<MemoryDirectory>, State)> {
    let life = lame_life(seed, None).unwrap_or_else(|error| panic!("{error}"));
    let mut images = Vec::new();
    let looked = crash::search(&life, seed, 1, |image, state| {
        let copy = MemoryDirectory::from_images(image.images());
        let opened = life::live(copy, state.clone(), 0, 0, None)?;
        if opened.most_events.get(&Call::Open).is_some_and(|events| *events > 0) && images.len() < 40 {
            images.push((Arc::clone(image), state));
        }
        Ok(())
    });
    looked.unwrap_or_else(|error| panic!("{error}"));
    images
}

#[test]
fn each_write_back_and_fence_of_recovery_is_needed() {
    let images: Vec<_> = (0..2).flat_map(images_with_a_sealed_lane).collect();
    let copy = |image: &MemoryDirectory| MemoryDirectory::from_images(image.images());
    let events = images.iter().map(|(image, state)| {
        let opened = life::live(copy(image), state.clone(), 0, 0, None).map(|life| life.most_events);
        opened.ok().and_then(|events| events.get(&Call::Open).copied()).unwrap_or_default()
    });
    let most = events.max().unwrap_or_default();
    assert!(most > 3, "{most} events of {} images", images.len());
    for event in 0..most {
        let skip = Some(Skip { call: Call::Open, event });
        let is_shown = images.iter().enumerate().any(|(number, (image, state))| {
            let lived = life::live(copy(image), state.clone(), number as u64, 12, skip);
            lived.and_then(|life| crash::search(&life, number as u64, 1, |_, _| Ok(()))).is_err()
        });
        assert!(is_shown, "no image shows that event {event} of recovery is missing");
    }
}
