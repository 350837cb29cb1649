//! Compares page allocation with a model. A page is allocated once, and can be allocated again after it was
//! freed. The allocation survives restarts.

use std::collections::BTreeMap;

use crate::common::{Random, config, open};
use varve_device::MemoryDirectory;
use varve_pager::{PageId, Pager, SpaceId};

type Model = BTreeMap<PageId, u32>;

fn check(pager: &Pager, space: SpaceId, model: &Model) {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    model.values().for_each(|owner| *counts.entry(*owner).or_insert(0) += 1);
    assert_eq!(pager.owners(space).unwrap(), counts);
    for owner in counts.keys() {
        let pages: Vec<PageId> = model.iter().filter(|(_, of)| *of == owner).map(|(id, _)| *id).collect();
        assert_eq!(pager.pages_of_owner(space, *owner).unwrap(), pages);
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

fn step(pager: &Pager, space: SpaceId, owners: &mut Vec<u32>, model: &mut Model, random: &mut Random) {
    let owner = owners[random.below(owners.len() as u64) as usize];
    let mut mtr = pager.begin().unwrap();
    let keep = random.below(8) > 0;
    let mut taken: Vec<PageId> = Vec::new();
    let mut freed: Vec<PageId> = Vec::new();
    match random.below(16) {
        0..8 => {
            let near = model.iter().rev().find(|(_, of)| **of == owner).map(|(id, _)| *id);
            taken.extend((0..=random.below(3)).map(|_| mtr.allocate(space, owner, near).unwrap()));
        }
        8 => taken.extend(mtr.allocate_extent(space, owner).unwrap().pages()),
        9..14 => {
            for _ in 0..4 {
                let at = random.below(model.len().max(1) as u64) as usize;
                let id = model.keys().nth(at).copied().filter(|id| !freed.contains(id));
                freed.extend(id.inspect(|id| mtr.free(*id).unwrap()));
            }
        }
        14 => {
            drop(mtr);
            pager.drop_segment(space, owner).unwrap();
            model.retain(|_, of| *of != owner);
            owners.retain(|other| *other != owner);
            owners.push(pager.create_segment(space).unwrap());
            return;
        }
        _ => {
            let id = mtr.allocate(space, owner, None).unwrap();
            mtr.free(id).unwrap();
        }
    }
    for (at, id) in taken.iter().enumerate() {
        assert!(!model.contains_key(id), "{id} is given out twice");
        if keep && at < 4 {
            mtr.create(*id, crate::common::KIND, owner).unwrap();
        }
    }
    if keep {
        mtr.commit();
        model.extend(taken.into_iter().map(|id| (id, owner)));
        freed.iter().for_each(|id| {
            model.remove(id);
        });
    }
}

fn run(space: SpaceId, seed: u64) {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 64);
    let mut pager = open(&config);
    let mut owners: Vec<u32> = (0..4).map(|_| pager.create_segment(space).unwrap()).collect();
    let mut model = Model::new();
    let mut random = Random(seed);
    for round in 0..1200 {
        step(&pager, space, &mut owners, &mut model, &mut random);
        match round % 100 {
            50 => check(&pager, space, &model),
            60 => pager.checkpoint().unwrap(),
            70 => assert!(pager.tick_write(40).unwrap() <= 40),
            99 => {
                pager.flush_log(pager.log().end()).unwrap();
                if random.below(2) == 0 {
                    pager.shutdown().unwrap();
                }
                drop(pager);
                pager = open(&config);
                check(&pager, space, &model);
            }
            _ => {}
        }
    }
}

#[test]
fn the_data_space_agrees_with_a_model() {
    run(SpaceId::DATA, 0x5EED_0001);
}

#[test]
fn the_rollback_space_agrees_with_a_model() {
    run(SpaceId::ROLLBACK, 0x5EED_0002);
}

#[test]
fn freeing_what_is_free_is_an_error() {
    let pager = open(&config(&MemoryDirectory::new(), 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = crate::common::add(&pager, owner, 1).unwrap();
    let mut mtr = pager.begin().unwrap();
    mtr.free(id).unwrap();
    assert!(mtr.free(id).unwrap_err().to_string().contains(&id.to_string()));
    mtr.commit();
    let mut mtr = pager.begin().unwrap();
    assert!(mtr.free(id).is_err());
}

#[test]
fn a_space_grows_over_groups_and_shrinks_again() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 256);
    let pager = open(&config);
    let len = || {
        let images = directory.images();
        images.iter().find(|(name, _)| name == "data.varve").map(|(_, file)| file.len_bytes()).unwrap()
    };
    let before = len();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut last = None;
    for _ in 0..300 {
        let mut mtr = pager.begin().unwrap();
        let extent = mtr.allocate_extent(SpaceId::DATA, owner).unwrap();
        mtr.create(extent.first, crate::common::KIND, owner).unwrap();
        mtr.commit();
        last = Some(extent.first);
    }
    let grown = len();
    assert!(grown > 2 * 128 * 64 * 4096, "two groups and more");
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config);
    assert_eq!(pager.owners(SpaceId::DATA).unwrap()[&owner], 300 * 64);
    assert!(pager.fix_s(last.unwrap(), varve_pager::Access::Random).is_ok());
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    for _ in 0..3 {
        while pager.tick_write(100).unwrap() > 0 {}
        pager.checkpoint().unwrap();
    }
    assert!(len() < grown / 10 && len() >= before, "{before} -> {grown} -> {}", len());
    assert!(pager.fix_s(last.unwrap(), varve_pager::Access::Random).is_err());
    let again = pager.create_segment(SpaceId::DATA).unwrap();
    let id = crate::common::add(&pager, again, 7).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config);
    assert_eq!(crate::common::get(&pager, id).unwrap(), 7);
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn a_page_is_not_given_out_before_its_freeing_is_committed() {
    let pager = open(&config(&MemoryDirectory::new(), 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = crate::common::add(&pager, owner, 1).unwrap();
    let allocate_elsewhere = || {
        let run = || {
            let mut mtr = pager.begin().unwrap();
            mtr.allocate(SpaceId::DATA, owner, Some(id)).unwrap()
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    };
    let mut mtr = pager.begin().unwrap();
    mtr.free(id).unwrap();
    assert_ne!(allocate_elsewhere(), id);
    drop(mtr);
    assert_ne!(allocate_elsewhere(), id, "the freeing was given up");
    let mut mtr = pager.begin().unwrap();
    mtr.free(id).unwrap();
    mtr.commit();
    assert_eq!(allocate_elsewhere(), id);
}
