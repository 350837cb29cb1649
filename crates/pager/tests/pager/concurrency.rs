//! Many threads use a pool that is far too small, while page writers and checkpoints run. No change is lost,
//! and no page is seen half changed. A crash afterwards loses nothing that was flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::{Random, add, config, open};
use varve_device::MemoryDirectory;
use varve_pager::{Access, PageId, Pager, PagerConfig, Replacement, SpaceId};

const THREADS: u64 = 8;
const PAGES: u64 = 300;

fn busy_config(directory: &Arc<MemoryDirectory>, replacement: Replacement) -> PagerConfig {
    let mut config = config(directory, 64);
    config.background = true;
    config.page_writers = 3;
    config.checkpoint.interval_ms = 5;
    config.replacement = replacement;
    config
}

/// Returns both numbers of a page. They are changed together.
fn numbers(page: &[u8]) -> (u64, u64) {
    let at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    (at(100), at(4000))
}

fn increment(pager: &Pager, id: PageId) {
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    let (first, second) = numbers(mtr.page(page));
    assert_eq!(first, second, "page {id}");
    mtr.write(page, 100, &(first + 1).to_le_bytes());
    mtr.write(page, 4000, &(first + 1).to_le_bytes());
    mtr.commit();
}

fn worker(pager: &Pager, ids: &[PageId], no: u64, rounds: u64, changes: &AtomicU64) {
    let mut random = Random(0xC0FFEE + no);
    for _ in 0..rounds {
        let id = ids[random.below(ids.len() as u64) as usize];
        match random.below(10) {
            0..4 => {
                increment(pager, id);
                changes.fetch_add(1, Relaxed);
            }
            4 => {
                let at = random.below(ids.len() as u64 - 8) as usize;
                pager.prefetch(&ids[at..at + 8]);
            }
            5 => {
                if let Some(page) = pager.try_fix_x(id, Access::Random).unwrap() {
                    let (first, second) = numbers(&page);
                    assert_eq!(first, second, "page {id}");
                }
            }
            6 => {
                let page = pager.fix_sx(id, Access::Random).unwrap().upgrade();
                assert_eq!(page.id(), id);
            }
            _ => {
                let page = pager.fix_s(id, Access::Sequential).unwrap();
                let (first, second) = numbers(&page);
                assert_eq!((first, page.id()), (second, id));
            }
        }
    }
}

/// Makes and drops segments beside the others.
fn dropper(pager: &Pager, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        for number in 0..20 {
            add(pager, owner, number).unwrap();
        }
        pager.drop_segment(SpaceId::DATA, owner).unwrap();
    }
}

fn run(replacement: Replacement) {
    let directory = MemoryDirectory::new();
    let config = busy_config(&directory, replacement);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..PAGES)
        .map(|_| {
            let id = add(&pager, owner, 0).unwrap();
            assert_eq!(numbers(&pager.fix_s(id, Access::Random).unwrap()), (0, 0));
            id
        })
        .collect();
    let (changes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let dropper = scope.spawn(|| dropper(&pager, &stop));
        let resizer = scope.spawn(|| {
            for writers in [1, 4, 2].into_iter().cycle().take_while(|_| !stop.load(Relaxed)) {
                pager.set_page_writers(writers).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|no| {
                let (pager, ids, changes) = (&pager, &ids, &changes);
                scope.spawn(move || worker(pager, ids, no, 3000, changes))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Relaxed);
        dropper.join().unwrap();
        resizer.join().unwrap();
    });
    let sum = |pager: &Pager| -> u64 {
        ids.iter().map(|id| numbers(&pager.fix_s(*id, Access::Random).unwrap()).0).sum()
    };
    assert_eq!(sum(&pager), changes.load(Relaxed));
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    let stats = pager.stats();
    assert!(stats.evictions > 1000 && stats.checkpoints > 0, "{stats:?}");
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config);
    assert_eq!(sum(&pager), changes.load(Relaxed));
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn nothing_is_lost_with_the_clock() {
    run(Replacement::Clock);
}

#[test]
fn nothing_is_lost_with_lru2() {
    run(Replacement::Lru2);
}
