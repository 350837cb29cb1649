//! Missing files: the error names them, and says what to do.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open};
use varve_device::{Directory, MemoryDirectory, OpenHow, Space};
use varve_pager::control::Control;
use varve_pager::{HomeLayout, PackedConfig, Pager, PagerConfig, SpaceId};

/// Returns the error of opening without the files whose names begin with `prefix`.
fn without(layout: HomeLayout, prefix: &str) -> String {
    let directory = MemoryDirectory::new();
    let config = PagerConfig { layout, ..config(&directory, 64) };
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    add(&pager, owner, 1).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    let names: Vec<String> =
        directory.list().unwrap().into_iter().filter(|n| n.starts_with(prefix)).collect();
    assert!(!names.is_empty(), "no file begins with {prefix}");
    names.iter().for_each(|name| directory.remove(name).unwrap());
    match Pager::open(config, Arc::new(NoOps)) {
        Ok(_) => panic!("opens without {names:?}"),
        Err(error) => error.to_string(),
    }
}

/// In an earlier version, the error was "cannot open rollback.varve: there is no such file or directory".
#[test]
fn a_missing_space_says_which_files_to_bring_along() {
    for layout in [HomeLayout::InPlace, HomeLayout::Packed(PackedConfig::DEFAULT)] {
        let said = without(layout, "rollback");
        assert!(said.contains("belongs to the rollback space"), "{said}");
        assert!(said.contains("begin with rollback. Otherwise"), "{said}");
        let said = without(layout, "data");
        assert!(said.contains("begin with data and doublewrite.varve. Otherwise"), "{said}");
    }
}

/// In an earlier version, the error said that the log was damaged.
#[test]
fn a_log_that_is_not_there_is_not_called_damaged() {
    let said = without(HomeLayout::InPlace, "log.");
    assert!(said.starts_with("no file of the log is in "), "{said}");
    assert!(said.contains("move the files log.0000, log.0001 and so on there"), "{said}");
}

/// An earlier version silently made a new doublewrite file, and pages that the crash had torn could not be
/// repaired any more.
#[test]
fn a_doublewrite_file_that_a_crash_made_necessary_is_not_made_anew() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 7).unwrap();
    pager.tick_write(100).unwrap();
    let lost = || {
        let mut images = directory.images();
        images.retain(|(name, _)| name != "doublewrite.varve");
        MemoryDirectory::from_images(images)
    };
    let crashed = lost();
    let noted = || Control::open(&*crashed).unwrap().unwrap().get();
    let before = noted();
    for _ in 0..2 {
        let Err(error) = Pager::open(config(&crashed, 64), Arc::new(NoOps)) else { panic!("opens") };
        let said = error.to_string();
        assert!(said.contains("/doublewrite.varve is missing, and the database was not shut down"), "{said}");
    }
    assert_eq!(noted(), before, "a refused start changes nothing");
    assert!(!crashed.exists("doublewrite.varve").unwrap());
    // With the file of that moment, the page is repaired. A person who has lost the file can say so by making
    // an empty one.
    assert_eq!(get(&open(&config(&MemoryDirectory::from_images(directory.images()), 64)), id).unwrap(), 7);
    crashed.open("doublewrite.varve", OpenHow::or_create(Space::Data)).unwrap();
    assert_eq!(get(&open(&config(&crashed, 64)), id).unwrap(), 7);
    // After a clean shutdown nothing is torn, and the file is made anew.
    pager.shutdown().unwrap();
    assert_eq!(get(&open(&config(&lost(), 64)), id).unwrap(), 7);
}

/// An earlier version used the file of another database without a warning, and pages that the crash had torn
/// could not be repaired any more.
#[test]
fn a_doublewrite_file_of_another_database_mends_nothing() {
    let of_one = |number: u64| {
        let directory = MemoryDirectory::new();
        let pager = open(&config(&directory, 64));
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let id = add(&pager, owner, number).unwrap();
        pager.tick_write(100).unwrap();
        (directory, pager, id)
    };
    let ((directory, pager, id), (other, ..)) = (of_one(7), of_one(8));
    let foreign = || other.images().into_iter().filter(|(name, _)| name == "doublewrite.varve");
    let mixed = || {
        let own = directory.images().into_iter().filter(|(name, _)| name != "doublewrite.varve");
        MemoryDirectory::from_images(own.chain(foreign()))
    };
    let crashed = mixed();
    let Err(error) = Pager::open(config(&crashed, 64), Arc::new(NoOps)) else { panic!("opens") };
    assert!(error.to_string().contains("/doublewrite.varve belongs to another database"), "{error}");
    // With its own file the database opens.
    assert_eq!(get(&open(&config(&MemoryDirectory::from_images(directory.images()), 64)), id).unwrap(), 7);
    // After a clean shutdown nothing needs the file, and it is made anew.
    pager.shutdown().unwrap();
    let stopped = mixed();
    drop(open(&config(&stopped, 64)));
    assert_eq!(get(&open(&config(&stopped, 64)), id).unwrap(), 7);
}

/// The file with the pages is missing, too, and the error names it.
#[test]
fn a_data_device_that_is_not_there_is_named_before_its_doublewrite_file() {
    let directory = MemoryDirectory::new();
    let _pager = open(&config(&directory, 64));
    let mut images = directory.images();
    images.retain(|(name, _)| !["data.varve", "doublewrite.varve"].contains(&name.as_str()));
    let directory = MemoryDirectory::from_images(images);
    let Err(error) = Pager::open(config(&directory, 64), Arc::new(NoOps)) else { panic!("opens") };
    assert!(error.to_string().contains("data.varve is missing"), "{error}");
}
