//! A database with the packed layout opens, changes, shuts down, crashes and opens again. Combinations that
//! are not possible are refused by name.

use std::sync::Arc;

use crate::common::{NoOps, Random, add, get, on_large_sectors, set};
use varve_device::{
    AlignedBuf, Directory, Durability, FileDirectory, FileOptions, MemoryDirectory, OpenHow, Purpose, Space,
};
use varve_pager::{
    Algorithm, Compression, HomeLayout, PackedConfig, PageId, Pager, PagerConfig, ProtectionKind, SpaceId,
};

const PACKED: PackedConfig =
    PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16, ..PackedConfig::DEFAULT };

fn config(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let mut config = crate::common::config(directory, 40);
    config.layout = HomeLayout::Packed(PACKED);
    config
}

fn open(config: &PagerConfig) -> Pager {
    crate::common::open(config)
}

/// Changes pages at random, and records their numbers in `ids`.
fn work(pager: &Pager, ids: &mut Vec<(PageId, u64)>, owner: u32, steps: u64, random: &mut Random) {
    for step in 0..steps {
        if ids.len() < 20 || random.below(4) == 0 {
            ids.push((add(pager, owner, step).unwrap(), step));
        }
        let at = random.below(ids.len() as u64) as usize;
        set(pager, ids[at].0, step * 7).unwrap();
        ids[at].1 = step * 7;
        if random.below(40) == 0 {
            pager.checkpoint().unwrap();
        }
    }
}

fn check(pager: &Pager, ids: &[(PageId, u64)]) {
    for (id, number) in ids {
        assert_eq!(get(pager, *id).unwrap(), *number, "{id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    levels.iter().flat_map(|level| &level.counters).filter(|(found, _)| *found == name).map(|(_, n)| *n).sum()
}

#[test]
fn pages_survive_shutdowns_and_crashes() {
    let directory = MemoryDirectory::new();
    let (mut ids, mut random) = (Vec::new(), Random(7));
    for round in 0..8 {
        let pager = open(&config(&directory));
        check(&pager, &ids);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        work(&pager, &mut ids, owner, 300, &mut random);
        pager.flush_log(pager.log().end()).unwrap();
        assert!(counter(&pager, "settles") > 0 && counter(&pager, "extents") > 8);
        if round % 2 == 1 {
            pager.shutdown().unwrap();
        }
    }
}

/// A compressed page takes as many sectors as it needs, at any place. Pages that were written earlier stay as
/// they are.
#[test]
fn compressed_pages_take_less_room() {
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        let directory = MemoryDirectory::new();
        let (mut ids, mut random) = (Vec::new(), Random(9));
        for round in 0..6 {
            let mut config = config(&directory);
            if round > 0 {
                config.compression = Compression::of(algorithm);
            }
            let pager = open(&config);
            check(&pager, &ids);
            let owner = pager.create_segment(SpaceId::DATA).unwrap();
            work(&pager, &mut ids, owner, 300, &mut random);
            pager.flush_log(pager.log().end()).unwrap();
            assert_eq!(counter(&pager, "pages_compressed") > 0, round > 0);
            match round {
                5 => pager.tick_write(5000).map(drop).unwrap(),
                _ if round % 2 == 1 => pager.shutdown().unwrap(),
                _ => {}
            }
            let live_bytes = counter(&pager, "live_bytes");
            assert!(
                round < 5 || live_bytes < ids.len() as u64 * 2048,
                "{live_bytes} for {} pages",
                ids.len()
            );
        }
    }
}

/// No page of a packed file can be torn. So neither copies of pages nor images in the log exist, and a change
/// of the protection needs no clean shutdown.
#[test]
fn it_needs_no_protection() {
    let directory = MemoryDirectory::new();
    let (mut ids, mut random) = (Vec::new(), Random(13));
    for round in 0..6 {
        let mut config = config(&directory);
        if round % 2 == 1 {
            config.protection = ProtectionKind::FullPageLog;
        }
        let pager = open(&config);
        check(&pager, &ids);
        assert_eq!(pager.warnings(), open_in_place().warnings());
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        work(&pager, &mut ids, owner, 200, &mut random);
        pager.tick_write(5000).unwrap();
        let before = pager.log().end();
        set(&pager, ids[0].0, round).unwrap();
        ids[0].1 = round;
        assert!(pager.log().end().since(before) < 1000, "a page is in the log whole");
        pager.flush_log(pager.log().end()).unwrap();
    }
    assert!(directory.list().unwrap().iter().all(|name| !name.starts_with("doublewrite")));
}

fn open_in_place() -> Pager {
    open(&crate::common::config(&MemoryDirectory::new(), 40))
}

/// The configuration of a later opening need not name the layout with which the database was created.
#[test]
fn the_layout_was_settled_at_creation() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 5).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&crate::common::config(&directory, 40));
    assert_eq!(get(&pager, id).unwrap(), 5);
    assert!(counter(&pager, "extents") > 0);
    let in_place = MemoryDirectory::new();
    drop(open(&crate::common::config(&in_place, 40)));
    assert_eq!(counter(&open(&config(&in_place)), "extents"), 0);
}

/// Dropped pages give their slots back. Files do not grow while the same pages are written again and again.
#[test]
fn slots_are_used_again() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut ids: Vec<(PageId, u64)> =
        (0..200).map(|number| (add(&pager, owner, number).unwrap(), number)).collect();
    let rewrite = |ids: &mut Vec<(PageId, u64)>, round| {
        for (id, number) in ids.iter_mut() {
            *number = round;
            set(&pager, *id, round).unwrap();
        }
        pager.checkpoint().unwrap();
    };
    (0..4).for_each(|round| rewrite(&mut ids, round));
    let extents = counter(&pager, "extents");
    (4..30).for_each(|round| rewrite(&mut ids, round));
    assert_eq!(counter(&pager, "extents"), extents, "{:?}", pager.stats());
    check(&pager, &ids);
    let live = counter(&pager, "live_bytes");
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    pager.checkpoint().unwrap();
    assert!(counter(&pager, "live_bytes") + 150 * 4096 < live, "{live} {}", counter(&pager, "live_bytes"));
}

/// A space that is cut has pages of the allocation, which no log record discards. Before other pages get
/// their slots, a log record says that they are not needed. Otherwise a crash would find two pages in one
/// place.
#[test]
fn slots_of_a_cut_are_given_to_others_behind_a_note() {
    let directory = MemoryDirectory::new();
    let mut config = config(&directory);
    (config.log_segment_bytes, config.log_capacity_bytes) = (1 << 20, 8 << 20);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut kept: Vec<(PageId, u64)> =
        (0..30).map(|number| (add(&pager, owner, number).unwrap(), number)).collect();
    pager.tick_write(5000).unwrap();
    let before = counter(&pager, "live_bytes");
    pager.reserve(SpaceId::DATA, 300_000).unwrap();
    assert!(counter(&pager, "live_bytes") > before, "no page of the allocation was written");
    // A space is cut only after the start of redo has moved on. The start of redo is not moved beyond the
    // last copy of the map.
    for _ in 0..100 {
        for (id, _) in &kept {
            let mut mtr = pager.begin().unwrap();
            let page = mtr.x(*id).unwrap();
            mtr.write(page, 1000, &[7; 2000]);
            mtr.commit();
        }
        pager.tick_write(5000).unwrap();
        pager.checkpoint().unwrap();
        if counter(&pager, "live_bytes") == before {
            break;
        }
    }
    assert_eq!(counter(&pager, "live_bytes"), before, "the space was not cut");
    let copies = counter(&pager, "map_checkpoints");
    for round in 0..60 {
        for (id, number) in &mut kept {
            *number += round;
            set(&pager, *id, *number).unwrap();
        }
        pager.tick_write(5000).unwrap();
    }
    pager.flush_log(pager.log().end()).unwrap();
    assert!(counter(&pager, "map_checkpoints") == copies && copies > 0);
    drop(pager);
    check(&open(&config), &kept);
}

/// A slot begins in the middle of a larger sector. It is read together with the bytes around it.
#[test]
fn a_clean_database_moves_to_larger_sectors() {
    let small = MemoryDirectory::with_sector(512);
    let (mut ids, mut random) = (Vec::new(), Random(3));
    let pager = open(&config(&small));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    work(&pager, &mut ids, owner, 200, &mut random);
    pager.shutdown().unwrap();
    drop(pager);
    let large = on_large_sectors(&small);
    for _ in 0..3 {
        let pager = open(&config(&large));
        check(&pager, &ids);
        work(&pager, &mut ids, owner, 100, &mut random);
        pager.flush_log(pager.log().end()).unwrap();
    }
}

#[test]
fn real_files_and_threads() {
    let path = tempfile::tempdir().unwrap();
    let (mut ids, mut random) = (Vec::new(), Random(11));
    for round in 0..3 {
        let directory: Arc<dyn Directory> =
            FileDirectory::open_or_create(path.path(), FileOptions::default()).unwrap();
        let mut config = config(&MemoryDirectory::new());
        config.data = directory.clone();
        config.log = directory.clone();
        config.rollback = directory.clone();
        config.temporary = directory.clone();
        config.control = directory;
        config.background = true;
        config.page_writers = 2;
        config.checkpoint.interval_ms = 20;
        let pager = Pager::open(config, Arc::new(NoOps)).unwrap();
        check(&pager, &ids);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        work(&pager, &mut ids, owner, 500, &mut random);
        pager.flush_log(pager.log().end()).unwrap();
        if round == 1 {
            pager.shutdown().unwrap();
        }
    }
}

fn refusal(directory: &Arc<MemoryDirectory>) -> String {
    match Pager::open(config(directory), Arc::new(NoOps)) {
        Ok(_) => "opened".into(),
        Err(error) => error.to_string(),
    }
}

fn spoil(directory: &MemoryDirectory, name: &str, offset: u64, bytes: usize) {
    let file = directory.open(name, OpenHow::existing(Space::Data)).unwrap();
    let rubbish = AlignedBuf::copy_of(&vec![0xAB; bytes]);
    file.write_at(offset, &rubbish, Purpose::Mapping, Durability::Now).unwrap();
}

fn shut_down_database() -> (Arc<MemoryDirectory>, Vec<(PageId, u64)>) {
    let directory = MemoryDirectory::new();
    let (mut ids, mut random) = (Vec::new(), Random(5));
    let pager = open(&config(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    work(&pager, &mut ids, owner, 100, &mut random);
    pager.shutdown().unwrap();
    (directory, ids)
}

#[test]
fn what_is_damaged_is_named() {
    let (directory, _) = shut_down_database();
    spoil(&directory, "data.varve", 0, 512);
    assert!(refusal(&directory).contains("header block of"), "{}", refusal(&directory));
    let (directory, _) = shut_down_database();
    spoil(&directory, "rollback.map.varve", 0, 8192);
    assert!(refusal(&directory).contains("rollback.map.varve"), "{}", refusal(&directory));
    let (directory, _) = shut_down_database();
    directory.remove("data.map.varve").unwrap();
    assert!(refusal(&directory).contains("data.map.varve"), "{}", refusal(&directory));
    let (directory, _) = shut_down_database();
    let file = directory.open("data.varve", OpenHow::existing(Space::Data)).unwrap();
    file.set_len(64 << 10).unwrap();
    assert!(refusal(&directory).contains("outside of any extent"), "{}", refusal(&directory));
    // A damaged slot concerns only its page.
    let (directory, ids) = shut_down_database();
    let file = directory.open("data.varve", OpenHow::existing(Space::Data)).unwrap();
    for offset in (64 << 10..file.len_bytes().unwrap()).step_by(4096) {
        spoil(&directory, "data.varve", offset, 512);
    }
    let outcome = Pager::open(config(&directory), Arc::new(NoOps))
        .and_then(|pager| ids.iter().try_for_each(|(id, _)| get(&pager, *id).map(drop)));
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("is damaged") && error.contains("data:"), "{error}");
}

/// Returns the files of the first directory, but the files with these names come from the second one.
fn mixed(
    directory: &Arc<MemoryDirectory>,
    other: &Arc<MemoryDirectory>,
    names: &[&str],
) -> Arc<MemoryDirectory> {
    let of = |directory: &Arc<MemoryDirectory>, is_named: bool| {
        directory.images().into_iter().filter(move |(name, _)| names.contains(&name.as_str()) == is_named)
    };
    MemoryDirectory::from_images(of(directory, false).chain(of(other, true)))
}

/// Returns two states of a database that was shut down.
fn two_states() -> [Arc<MemoryDirectory>; 2] {
    let (directory, _) = shut_down_database();
    let before = MemoryDirectory::from_images(directory.images());
    let pager = open(&config(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    for number in 0..50 {
        add(&pager, owner, number).unwrap();
    }
    pager.shutdown().unwrap();
    [before, directory]
}

/// A page map from before a shutdown is put back. The log since that map does not exist any more.
#[test]
fn an_older_map_that_was_put_back_is_refused() {
    let [before, after] = two_states();
    for space in ["data", "rollback"] {
        let error = refusal(&mixed(&after, &before, &[&format!("{space}.map.varve")]));
        let is_named = error.contains(&format!("the map of the {space} space"));
        assert!(is_named && error.contains("is older"), "{error}");
    }
}

/// The page map is newer than the end of the log.
#[test]
fn a_newer_map_than_the_log_is_refused() {
    let [before, after] = two_states();
    let error = refusal(&mixed(&before, &after, &["data.varve", "data.map.varve"]));
    assert!(error.contains("data.varve goes with a log that reaches to"), "{error}");
}

/// `check` reads every slot, also slots of pages that are not in use.
#[test]
fn a_damaged_slot_is_found_by_the_check() {
    let (directory, ids) = shut_down_database();
    let pager = open(&config(&directory));
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    let images = directory.images();
    let (_, file) = images.iter().find(|(name, _)| name == "data.varve").unwrap();
    // The page's number follows its header.
    let (id, number) = ids[ids.len() - 1];
    let mut bytes = vec![0; file.len_bytes() as usize];
    file.read(0, &mut bytes);
    let slots = (4096..bytes.len()).step_by(512).filter(|at| {
        bytes[at + 4..at + 8] == id.no().0.to_le_bytes() && bytes[at + 100..at + 108] == number.to_le_bytes()
    });
    slots.for_each(|at| spoil(&directory, "data.varve", at as u64 + 512, 512));
    let damages = open(&config(&directory)).check().unwrap().damages;
    let named = format!("page {id} is damaged in its slot");
    assert!(damages.iter().any(|damage| damage.contains(&named)), "{damages:?}");
}

/// Extents keep the length that they got when the database was made. The configuration of the open pager has
/// this length.
#[test]
fn extents_stay_as_long_as_they_are() {
    let mut config = config(&MemoryDirectory::new());
    open(&config).shutdown().unwrap();
    for extent_bytes in [256 << 10, PACKED.extent_bytes] {
        config.layout = HomeLayout::Packed(PackedConfig { extent_bytes, ..PACKED });
        let pager = open(&config);
        assert_eq!(pager.config().layout.packed(), Some(PACKED));
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        add(&pager, owner, 1).unwrap();
        pager.shutdown().unwrap();
    }
}

#[test]
fn extents_that_cannot_be_are_refused() {
    let mut config = config(&MemoryDirectory::new());
    for extent_bytes in [0, 4096, 96 << 10, 128 << 20] {
        config.layout = HomeLayout::Packed(PackedConfig { extent_bytes, ..PACKED });
        let error = Pager::open(config.clone(), Arc::new(NoOps)).map(drop).unwrap_err().to_string();
        assert!(error.contains("extents of"), "{error}");
    }
    for fill_percent in [0, 49, 91, 255] {
        config.layout = HomeLayout::Packed(PackedConfig { fill_percent, ..PACKED });
        let error = Pager::open(config.clone(), Arc::new(NoOps)).map(drop).unwrap_err().to_string();
        assert!(error.contains("must be 50 to 90"), "{error}");
    }
}
