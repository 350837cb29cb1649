//! Files that are not where they should be: which ones, and what to do.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;

use common::{NoOps, add, config, open};
use varve_device::{Directory, MemoryDirectory};
use varve_pager::{HomeLayout, PackedConfig, Pager, PagerConfig, SpaceId};

/// The error of opening without the files whose names begin so.
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

/// They said "cannot open rollback.varve: there is no such file or directory".
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

/// It said that the log was damaged.
#[test]
fn a_log_that_is_not_there_is_not_called_damaged() {
    let said = without(HomeLayout::InPlace, "log.");
    assert!(said.starts_with("no file of the log is in "), "{said}");
    assert!(said.contains("move the files log.0000, log.0001 and so on there"), "{said}");
}
