//! Some files only have names like log files, others are log files of another database. None of them is
//! changed when a log moves or a database is created.

use std::sync::Arc;

use crate::common::{NoOps, add, config, open};
use crate::nvm_support::{IN_FILES, NVM_ALL, NVM_LOG, assert_numbers, fill, leave, some_pages, with};
use varve_device::{
    Directory, ErrorKind, Fault, Faulty, MemoryDirectory, MemoryImage, OpenHow, Operation, Rule, Space, When,
};
use varve_pager::control::{Control, State};
use varve_pager::{Pager, PagerConfig, SpaceId};

const KEPT: [&str; 5] = ["log.txt", "log.old", "logs", "log.20261122", "log.0099"];

/// Returns the same files, and some files of users.
fn with_kept(directory: &MemoryDirectory, kept: &[&str]) -> Arc<MemoryDirectory> {
    let mut text = MemoryImage::default();
    text.write(0, b"what somebody wrote");
    let kept = kept.iter().map(|name| ((*name).to_owned(), text.clone()));
    MemoryDirectory::from_images(directory.images().into_iter().chain(kept))
}

/// Returns the same files with a log of another database, and the name of its file.
fn with_foreign(directory: &MemoryDirectory) -> (Arc<MemoryDirectory>, String) {
    let (other, pager, _) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let mut log = other.images().into_iter().find(|(name, _)| name.starts_with("log.")).unwrap();
    log.0 = "log.0042".into();
    let name = log.0.clone();
    (MemoryDirectory::from_images(directory.images().into_iter().chain([log])), name)
}

fn assert_kept(directory: &MemoryDirectory, kept: &[&str]) {
    assert!(kept.iter().all(|name| directory.exists(name).unwrap()), "{:?}", directory.list());
}

#[test]
fn they_stay_when_the_log_moves_into_a_region() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let directory = with_kept(&directory, &KEPT);
    for _ in 0..2 {
        assert_numbers(&open(&with(&directory, NVM_LOG)), &ids, "moved");
        assert_kept(&directory, &KEPT);
        assert!(!directory.exists("log.0000").unwrap());
    }
}

/// In an earlier version, one file of another database prevented for ever that our files were removed.
#[test]
fn a_foreign_log_stays_when_ours_moves_away() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let (directory, foreign) = with_foreign(&directory);
    assert_numbers(&open(&with(&directory, NVM_LOG)), &ids, "moved");
    assert_kept(&directory, &[&foreign]);
    assert!(!directory.exists("log.0000").unwrap(), "{:?}", directory.list());
}

#[test]
fn a_log_is_not_moved_to_where_one_of_another_database_lies() {
    let (directory, pager, ids) = some_pages(NVM_ALL);
    leave(pager);
    let (mixed, foreign) = with_foreign(&directory);
    let why = Pager::open(with(&mixed, IN_FILES), Arc::new(NoOps)).err().unwrap().to_string();
    assert!(why.contains("belongs to another database"), "{why}");
    assert_kept(&mixed, &[&foreign]);
    assert_numbers(&open(&with(&directory, IN_FILES)), &ids, "without it");
}

/// Only files with exactly the names that this program makes belong to it.
#[test]
fn they_bar_no_start_and_stay() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let kept =
        ["log.20261122", "log.20261122.new", "log.old.new", "log.7", "log.7.new", "log.00001", "log.+0001"];
    let directory = with_kept(&directory, &kept);
    for _ in 0..2 {
        assert_numbers(&open(&with(&directory, IN_FILES)), &ids, "opened");
        assert_kept(&directory, &kept);
    }
}

/// A log that becomes longer skips names that are taken.
#[test]
fn they_stay_where_the_next_segment_would_lie() {
    let (directory, pager, _) = some_pages(IN_FILES);
    let slots = || directory.list().unwrap().iter().filter(|name| name.starts_with("log.")).count();
    let before = slots();
    let taken = format!("log.{before:04}");
    assert!(!directory.exists(&taken).unwrap());
    let file = directory.open(&taken, OpenHow::or_create(Space::Log)).unwrap();
    file.set_len(7).unwrap();
    let mut ids = Vec::new();
    while slots() < before + 2 {
        ids.extend(fill(&pager));
    }
    assert_eq!(file.len_bytes().unwrap(), 7);
    assert_eq!(directory.open(&taken, OpenHow::existing(Space::Log)).unwrap().len_bytes().unwrap(), 7);
}

/// After the last file number, the first ones are used again.
#[test]
fn a_log_at_the_last_slot_goes_on() {
    let (directory, pager, _) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    directory.rename("log.0000", "log.999999").unwrap();
    let pager = open(&with(&directory, IN_FILES));
    let all: Vec<_> =
        (0..100).map_while(|_| (!directory.exists("log.0000").unwrap()).then(|| fill(&pager))).collect();
    assert!(directory.exists("log.0000").unwrap(), "{:?}", directory.list());
    drop(pager);
    let pager = open(&with(&directory, IN_FILES));
    all.iter().for_each(|ids| assert_numbers(&pager, ids, "after a crash"));
}

/// The log has a device of its own. No start checks whether this device is empty.
#[test]
fn they_stay_when_a_database_is_made_and_when_that_starts_over() {
    let (home, kept) = (MemoryDirectory::new(), ["log.txt", "log.old", "logs"]);
    let log = with_kept(&MemoryDirectory::new(), &kept);
    let on = |log: &Arc<MemoryDirectory>| PagerConfig { log: log.clone(), ..config(&home, 64) };
    let pager = open(&on(&log));
    let ids = fill(&pager);
    assert_numbers(&pager, &ids, "made");
    drop(pager);
    assert_kept(&log, &kept);
    let control = Control::open(&*home).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    let all = with_kept(&log, &KEPT);
    let (all, foreign) = with_foreign(&all);
    let why = Pager::open(on(&all), Arc::new(NoOps)).err().unwrap().to_string();
    assert!(why.contains("belongs to another database"), "{why}");
    assert_kept(&all, &[&foreign]);
    let control = Control::open(&*home).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    drop(open(&on(&log)));
    assert_kept(&log, &kept);
}

/// In an earlier version, a segment that had its name and could not be opened was in no list, and the next
/// try made another file.
#[test]
fn a_segment_that_cannot_be_opened_leaves_no_file() {
    let (directory, pager, _) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let faulty = Faulty::wrap(directory.clone());
    let mut config = with(&directory, IN_FILES);
    config.log = faulty.clone();
    let pager = open(&config);
    let slots =
        || directory.list().unwrap().into_iter().filter(|name| name.starts_with("log.")).collect::<Vec<_>>();
    let before = slots();
    let fault = Fault::Fails(ErrorKind::NoSpace);
    // The first opening is that of the file without its number, and the second that of the file that has its
    // name.
    faulty.arm(Rule { operation: Some(Operation::Open), space: Some(Space::Log), when: When::Nth(2), fault });
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let refused = loop {
        match add(&pager, owner, 1) {
            Ok(_) => pager.checkpoint().unwrap(),
            Err(error) => break error,
        }
    };
    assert!(refused.is_no_space(), "{refused}");
    assert_eq!((faulty.fired_count(), slots()), (1, before));
    let ids = fill(&pager);
    drop(pager);
    assert_numbers(&open(&with(&directory, IN_FILES)), &ids, "after a crash");
}
