//! Page replacement in the pool. A scan does not evict pages in use, LRU-2 prefers pages that were used
//! twice, and temporary pages need no log.

use crate::common::{add, config, get, open};
use varve_device::MemoryDirectory;
use varve_pager::{Access, PageId, Pager, Replacement, SpaceId};

fn filled(replacement: Replacement) -> (Pager, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let mut config = config(&directory, 128);
    config.replacement = replacement;
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids = (0..1000).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.shutdown().unwrap();
    drop(pager);
    (open(&config), ids)
}

fn reads_of(pager: &Pager, mut run: impl FnMut()) -> u64 {
    let before = pager.stats().misses;
    run();
    pager.stats().misses - before
}

fn a_scan_leaves_hot_pages(replacement: Replacement) {
    let (pager, ids) = filled(replacement);
    let (hot, scanned) = ids.split_at(64);
    for _ in 0..3 {
        hot.iter().for_each(|id| drop(get(&pager, *id).unwrap().to_string()));
    }
    for (at, chunk) in scanned.chunks(8).enumerate() {
        pager.prefetch(chunk);
        for id in chunk {
            drop(pager.fix_s(*id, Access::Sequential).unwrap());
        }
        let again = hot[at % hot.len()];
        drop(pager.fix_s(again, Access::Random).unwrap());
    }
    let missed =
        reads_of(&pager, || hot.iter().for_each(|id| drop(pager.fix_s(*id, Access::Random).unwrap())));
    assert_eq!(missed, 0, "a scan of {} pages pushed out pages in use", scanned.len());
    assert!(pager.stats().prefetched > 900);
}

#[test]
fn a_scan_leaves_hot_pages_with_the_clock() {
    a_scan_leaves_hot_pages(Replacement::Clock);
}

#[test]
fn a_scan_leaves_hot_pages_with_lru2() {
    a_scan_leaves_hot_pages(Replacement::Lru2);
}

#[test]
fn pages_used_often_outlive_pages_used_once() {
    for replacement in [Replacement::Clock, Replacement::Lru2] {
        let (pager, ids) = filled(replacement);
        let (hot, cold) = ids.split_at(32);
        for (at, id) in cold.iter().enumerate() {
            drop(pager.fix_s(*id, Access::Random).unwrap());
            drop(pager.fix_s(hot[at % hot.len()], Access::Random).unwrap());
        }
        let missed = reads_of(&pager, || {
            hot.iter().for_each(|id| drop(pager.fix_s(*id, Access::Random).unwrap()));
        });
        assert!(missed <= 4, "{replacement:?}: {missed} of {} hot pages had left", hot.len());
    }
}

#[test]
fn temporary_pages_overflow_to_their_device_without_log() {
    let directory = MemoryDirectory::new();
    let config = config(&directory, 64);
    let pager = open(&config);
    let log_end = pager.log().end();
    let extents: Vec<_> = (0..4).map(|_| pager.take_temporary().unwrap()).collect();
    let pages: Vec<PageId> = extents.iter().flat_map(|extent| extent.pages()).collect();
    for (number, id) in pages.iter().enumerate() {
        let mut page = pager.create_temporary(*id).unwrap();
        page.temporary_mut()[100..108].copy_from_slice(&(number as u64).to_le_bytes());
    }
    for (number, id) in pages.iter().enumerate() {
        let page = pager.fix_s(*id, Access::Random).unwrap();
        assert_eq!(page[100..108], (number as u64).to_le_bytes());
    }
    assert_eq!(pager.log().end(), log_end);
    pager.give_temporary(extents[1]).unwrap();
    assert_eq!(pager.take_temporary().unwrap(), extents[1]);
    pager.shutdown().unwrap();
    drop(pager);
    assert!(open(&config).fix_s(pages[0], Access::Random).is_err());
}

#[test]
#[should_panic(expected = "mini-transaction")]
fn a_logged_page_cannot_be_changed_as_a_temporary_one() {
    let pager = open(&config(&MemoryDirectory::new(), 64));
    pager.fix_x(PageId::ROOT, Access::Random).unwrap().temporary_mut();
}
