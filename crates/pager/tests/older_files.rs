//! An older copy of a space's file beside newer files of the others: refused, and the newer one still opens.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;

use common::{NoOps, add, config, get, open, set};
use varve_device::{MemoryDirectory, MemoryImage};
use varve_pager::control::Control;
use varve_pager::{HomeLayout, Lsn, PackedConfig, PageId, Pager, PagerConfig, SpaceId};

const LAYOUTS: [HomeLayout; 2] = [HomeLayout::InPlace, HomeLayout::Packed(PackedConfig::DEFAULT)];
const NUMBERS: std::ops::Range<u64> = 0..40;

type Files = Vec<(String, MemoryImage)>;

fn small(directory: &Arc<MemoryDirectory>, layout: HomeLayout) -> PagerConfig {
    PagerConfig { layout, ..config(directory, 64) }
}

fn new_database(layout: HomeLayout) -> (Arc<MemoryDirectory>, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let pager = open(&small(&directory, layout));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids = NUMBERS.map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    (directory, ids)
}

/// A life in which every page changes; at its end a clean shutdown, or a crash behind a checkpoint.
fn live(directory: &Arc<MemoryDirectory>, layout: HomeLayout, ids: &[PageId], more: u64, is_clean: bool) {
    let pager = open(&small(directory, layout));
    for (id, number) in ids.iter().zip(NUMBERS) {
        set(&pager, *id, number + more).unwrap();
    }
    if is_clean {
        pager.shutdown().unwrap();
    } else {
        pager.flush_log(pager.log().end()).unwrap();
        while pager.tick_write(1000).unwrap() > 0 {}
        pager.checkpoint().unwrap();
    }
}

/// Files of `new`, but those of the space from `old`.
fn with_old(space: SpaceId, new: &Files, old: &Files) -> Arc<MemoryDirectory> {
    let is_of = |(name, _): &&(String, MemoryImage)| name.starts_with(space.name());
    let files = new.iter().filter(|file| !is_of(file)).chain(old.iter().filter(is_of));
    MemoryDirectory::from_images(files.cloned())
}

/// The rows of a day were gone, and `varve check` found no damage.
#[test]
fn an_older_file_is_refused_and_the_newer_one_still_opens() {
    for (layout, is_clean) in LAYOUTS.iter().flat_map(|layout| [(*layout, true), (*layout, false)]) {
        let (directory, ids) = new_database(layout);
        let old = directory.images();
        live(&directory, layout, &ids, 1000, is_clean);
        let new = directory.images();
        for space in SpaceId::DURABLE {
            let mixed = with_old(space, &new, &old);
            match Pager::open(small(&mixed, layout), Arc::new(NoOps)) {
                Err(refused) => {
                    let said = refused.to_string();
                    assert!(said.contains(space.name()), "{said}");
                    assert!(layout != HomeLayout::InPlace || said.contains("is an older copy"), "{said}");
                }
                // The log says where each page is that was written since, and there is none. (Of rollback none was.)
                Ok(pager) if layout != HomeLayout::InPlace && !is_clean => {
                    let is_sound = pager.check().unwrap().damages.is_empty();
                    assert_eq!(is_sound, space == SpaceId::ROLLBACK);
                }
                Ok(_) => panic!("{layout:?}, clean {is_clean}: opens with an older {}", space.name()),
            }
            // Put back: whatever the refused start left does no harm.
            let mended = with_old(space, &mixed.images(), &new);
            let pager = open(&small(&mended, layout));
            for (id, number) in ids.iter().zip(NUMBERS) {
                assert_eq!(get(&pager, *id).unwrap(), number + 1000);
            }
        }
    }
}

/// A life that ended before its first checkpoint has told nothing; that of the life before it is still in force.
#[test]
fn an_older_file_is_refused_after_a_crash_without_a_checkpoint() {
    let (directory, ids) = new_database(HomeLayout::InPlace);
    let old = directory.images();
    live(&directory, HomeLayout::InPlace, &ids, 1000, true);
    let pager = open(&small(&directory, HomeLayout::InPlace));
    set(&pager, ids[3], 7).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let mixed = with_old(SpaceId::DATA, &directory.images(), &old);
    let refused = Pager::open(small(&mixed, HomeLayout::InPlace), Arc::new(NoOps)).err().unwrap().to_string();
    assert!(refused.contains("data.varve is an older copy"), "{refused}");
    assert_eq!(get(&open(&small(&directory, HomeLayout::InPlace)), ids[3]).unwrap(), 7);
}

/// A backup is of all files of a moment: an older one of all of them is no mistake.
#[test]
fn a_backup_of_all_files_is_taken() {
    for layout in LAYOUTS {
        let (directory, ids) = new_database(layout);
        live(&directory, layout, &ids, 1000, true);
        let old = directory.images();
        live(&directory, layout, &ids, 2000, false);
        live(&directory, layout, &ids, 3000, true);
        let pager = open(&small(&MemoryDirectory::from_images(old), layout));
        assert_eq!(get(&pager, ids[5]).unwrap(), 1005);
    }
}

/// An older program knows nothing of it, and writes zeros there.
#[test]
fn nothing_is_known_of_a_database_that_an_older_program_had_open() {
    let (directory, ids) = new_database(HomeLayout::InPlace);
    let old = directory.images();
    live(&directory, HomeLayout::InPlace, &ids, 1000, true);
    let control = Control::open(&*directory).unwrap().unwrap();
    assert!(control.get().header_lsn > Lsn::ZERO);
    control.update(|block| block.header_lsn = Lsn::ZERO).unwrap();
    drop(control);
    let mixed = with_old(SpaceId::DATA, &directory.images(), &old);
    open(&small(&mixed, HomeLayout::InPlace));
}

/// Starts and ends without anything between them tell it, too; a database that is only opened doesn't grow by that.
#[test]
fn each_start_is_told_by_the_checkpoint_at_its_end() {
    let (directory, _) = new_database(HomeLayout::InPlace);
    let told = || Control::open(&*directory).unwrap().unwrap().get().header_lsn;
    let mut last = told();
    assert_eq!(last, Lsn::ZERO);
    let len_bytes = |directory: &MemoryDirectory| -> u64 {
        directory.images().iter().map(|(_, image)| image.len_bytes()).sum()
    };
    let before = len_bytes(&directory);
    for _ in 0..20 {
        open(&small(&directory, HomeLayout::InPlace)).shutdown().unwrap();
        assert!(told() > last, "{} after {last}", told());
        last = told();
    }
    assert_eq!(len_bytes(&directory), before);
}
