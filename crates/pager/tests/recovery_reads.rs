//! Redo reads only what it needs: not the pages that are home already, nor those it makes anew.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{add, config, get, open, set};
use varve_device::MemoryDirectory;
use varve_pager::{Pager, SpaceId};

const PAGES: u64 = 300;

fn pages_read(pager: &Pager) -> u64 {
    let stats = pager.stats();
    stats.misses + stats.prefetched
}

#[test]
fn pages_that_are_home_are_not_read() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 1024);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);

    let pager = open(&config);
    ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
    while pager.tick_write(1000).unwrap() > 0 {}
    ids[..10].iter().for_each(|id| set(&pager, *id, 8).unwrap());
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);

    let pager = open(&config);
    let read = pages_read(&pager);
    assert!((10..30).contains(&read), "{read} pages were read for redo of 10");
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(get(&pager, *id).unwrap(), if at < 10 { 8 } else { 7 });
    }
}

#[test]
fn new_pages_are_not_read() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 1024);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);

    let pager = open(&config);
    let read = pages_read(&pager);
    assert!(read < 20, "{read} pages were read, all were new");
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(get(&pager, *id).unwrap(), number as u64);
    }
}
