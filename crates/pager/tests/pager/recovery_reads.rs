//! Redo reads only the pages that it needs: not pages that are already up to date in the data files, and not
//! pages that it formats.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set, with_stored};
use varve_device::{Directory, MemoryDirectory, Purpose, Space};
use varve_pager::{PageId, Pager, PagerConfig, SpaceId};

const PAGES: u64 = 300;
/// The number of pages of 4096 bytes that one descriptor page describes.
const GROUP_PAGES: u32 = 8192;

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

/// Crashes a database after changes of more pages than frames. The changes return to each page when it has
/// left the pool long ago.
fn crash_in_a_small_pool(config: &PagerConfig) -> Vec<PageId> {
    let pager = open(config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&PagerConfig { pool_bytes: 1024 * config.page_size, ..config.clone() });
    for round in 0..4 {
        ids.iter().for_each(|id| set(&pager, *id, 1000 * round + 7).unwrap());
    }
    pager.flush_log(pager.log().end()).unwrap();
    ids
}

#[test]
fn redo_in_a_small_pool_reads_ahead_and_writes_in_batches() {
    for background in [false, true] {
        let directory = MemoryDirectory::new();
        let config = config(&directory, 64);
        let ids = crash_in_a_small_pool(&config);
        let pager = open(&PagerConfig { background, ..config.clone() });
        if !background {
            // With threads these numbers are not checked, because on a device that is as fast as memory, redo
            // meets its threads.
            let stats = pager.stats();
            assert!(stats.evict_writes >= 4 * PAGES / 2, "changed pages leave several times: {stats:?}");
            assert!(stats.inline_writes <= stats.evict_writes / 10, "one by one: {stats:?}");
            assert!(stats.misses <= stats.prefetched / 4, "one by one: {stats:?}");
        }
        ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 3007));
    }
}

/// Redo ends at the first page with which it can't continue. The threads that work ahead of redo end, too.
#[test]
fn redo_that_fails_ends_its_threads() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 64);
    let ids = crash_in_a_small_pool(&config);
    let torn = with_stored(&directory, ids[150], &[0xAB; 4096]);
    for background in [false, true] {
        let config = PagerConfig { background, ..crate::common::config(&torn, 64) };
        let refused = Pager::open(config, Arc::new(NoOps)).err().expect("a page is damaged");
        assert!(refused.to_string().contains(&ids[150].to_string()), "{refused}");
    }
}

/// Descriptor pages are spread over the whole data file. A start reads them ahead, and does not wait for each
/// of them separately.
#[test]
fn allocation_maps_are_read_ahead() {
    let directory = MemoryDirectory::new();
    let config = PagerConfig { growth_extents: 256, ..config(&directory, 64) };
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    add(&pager, owner, 7).unwrap();
    pager.reserve(SpaceId::DATA, 3 * GROUP_PAGES).unwrap();
    pager.shutdown().unwrap();
    drop(pager);

    let pager = open(&config);
    let stats = pager.stats();
    assert!(stats.prefetched > 2 * 2, "there are several maps: {stats:?}");
    assert_eq!(stats.misses, 0, "one by one: {stats:?}");
    pager.check().unwrap();
}

/// Redo gets the log that analysis has read from memory. If the pool is too small for the whole log, redo
/// gets the last part of it from memory.
#[test]
fn the_log_is_read_once() {
    let directory = MemoryDirectory::new();
    // A segment is longer than the part of the log that stays in memory. The proof of the log's end reads the
    // rest of the segments, and must not drive that part out.
    let with = |directory: &Arc<MemoryDirectory>, frames: usize| PagerConfig {
        log_capacity_bytes: 16 << 20,
        log_segment_bytes: 4 << 20,
        ..config(directory, frames)
    };
    let pager = open(&with(&directory, 2048));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<_> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    for round in 0..200 {
        ids.iter().for_each(|id| set(&pager, *id, 1000 * round).unwrap());
    }
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let images = directory.images();
    let read_bytes = |frames: usize| {
        let copy = MemoryDirectory::from_images(images.clone());
        let pager = open(&with(&copy, frames));
        ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 199_000));
        let log_bytes = pager.recovery().unwrap().redo.log_bytes;
        (copy.accounting().read(Space::Log, Purpose::Log).bytes, log_bytes)
    };
    let (once, log_bytes) = read_bytes(1536);
    let (twice, _) = read_bytes(64);
    // Analysis reads the rest of the segment as well, to prove the end.
    assert!(twice >= once + log_bytes / 4 * 3, "{once}, {twice} of {log_bytes}");
}
