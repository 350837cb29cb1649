//! Page writers, flushing threads and threads that change pages run at the same time. Persistent memory has
//! far fewer slots than there are pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{add, config, get, open, set};
use varve_device::MemoryDirectory;
use varve_pager::{NvmConfig, NvmFlush, PageId, Pager, PagerConfig, ProtectionKind, SpaceId, Times, Timing};

/// Returns a configuration with 64 slots and twice as many frames.
fn in_nvm(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 800 << 10, log_bytes: 512 << 10 };
    let mut config = config(directory, 128);
    config.checkpoint.interval_ms = 20;
    PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, background: true, ..config }
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    let nvm = levels.iter().find(|level| level.name == "nvm").unwrap();
    nvm.counters.iter().find(|(found, _)| *found == name).unwrap().1
}

fn fill(pager: &Pager, count: u64) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..count).map(|number| add(pager, owner, number).unwrap()).collect()
}

#[test]
fn many_threads_over_few_slots_end_with_every_last_change() {
    let directory = MemoryDirectory::new();
    let pager = open(&in_nvm(&directory));
    let pages = fill(&pager, 600);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pager, pages) = (&pager, &pages);
            scope.spawn(move || {
                for round in 0..1500_u64 {
                    let id = pages[(thread + 4 * (round * 37 % 150)) as usize];
                    set(pager, id, 1000 + round).unwrap();
                }
            });
        }
    });
    let last = |at: u64| (0..1500).rev().find(|round| round * 37 % 150 == at / 4).unwrap() + 1000;
    pager.flush_log(pager.log().end()).unwrap();
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    assert!(counter(&pager, "home_pages") > 0 && counter(&pager, "read_hits") > 0);
    let crashed = MemoryDirectory::from_images(directory.images());
    for pager in [pager, open(&in_nvm(&crashed))] {
        for (at, id) in (0..).zip(&pages) {
            assert_eq!(get(&pager, *id).unwrap(), last(at), "page {id}");
        }
        pager.shutdown().unwrap();
    }
}

/// Threads write pages to the data files ahead of need, although no more pages are put. Without the threads,
/// most slots would stay dirty.
#[test]
fn threads_keep_slots_free() {
    let directory = MemoryDirectory::new();
    let nvm_flush = NvmFlush { workers: 1, high_water: 10, low_water: 0, when_idle: false };
    let pager = open(&PagerConfig { nvm_flush, ..in_nvm(&directory) });
    fill(&pager, 400);
    let since = Instant::now();
    while pager.stats().dirty_frames > 0 || counter(&pager, "dirty") > counter(&pager, "slots") / 10 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} slots stay dirty", counter(&pager, "dirty"));
        std::thread::sleep(Duration::from_millis(5));
    }
    pager.shutdown().unwrap();
}

/// While the database is idle, pages are also written to the data files below the marks. This does not happen
/// if it is switched off.
#[test]
fn pages_go_home_when_nothing_is_done() {
    let directory = MemoryDirectory::new();
    let off = NvmFlush { when_idle: false, ..NvmFlush::DEFAULT };
    let pager = open(&PagerConfig { nvm_flush: off, ..in_nvm(&directory) });
    fill(&pager, 40);
    while pager.stats().dirty_frames > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(900));
    assert!(counter(&pager, "dirty") > 0, "it is switched off");
    pager.set_nvm_flush(NvmFlush::DEFAULT).unwrap();
    let since = Instant::now();
    while counter(&pager, "dirty") > 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} slots stay dirty", counter(&pager, "dirty"));
        std::thread::sleep(Duration::from_millis(5));
    }
    pager.shutdown().unwrap();
}

/// The next start would redo pages that are only in the pool, so these are written first. Log records of
/// pages that the data files have do not count as work, so they don't prevent this.
#[test]
fn the_pool_is_clean_before_pages_go_home_for_want_of_work() {
    let directory = MemoryDirectory::new();
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 8 << 20, log_bytes: 2 << 20 };
    let pager = open(&PagerConfig { nvm: Some(nvm), pool_bytes: 800 * 4096, ..in_nvm(&directory) });
    fill(&pager, 1000);
    let before = counter(&pager, "home_pages");
    let since = Instant::now();
    loop {
        let home = counter(&pager, "home_pages");
        if pager.stats().dirty_frames == 0 {
            break;
        }
        assert_eq!(home, before, "{} frames are dirty", pager.stats().dirty_frames);
        assert!(since.elapsed() < Duration::from_secs(20), "{} stay dirty", pager.stats().dirty_frames);
        std::thread::sleep(Duration::from_millis(1));
    }
    while counter(&pager, "dirty") > 0 {
        assert!(since.elapsed() < Duration::from_secs(40), "{} slots stay dirty", counter(&pager, "dirty"));
        std::thread::sleep(Duration::from_millis(5));
    }
    pager.shutdown().unwrap();
}

/// Threads use marks that are changed while they run.
#[test]
fn threads_go_by_new_marks() {
    let directory = MemoryDirectory::new();
    let late = NvmFlush { workers: 2, high_water: 99, low_water: 98, when_idle: false };
    let pager = open(&PagerConfig { nvm_flush: late, ..in_nvm(&directory) });
    fill(&pager, 50);
    while pager.stats().dirty_frames > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    let dirty = counter(&pager, "dirty");
    assert!(dirty > 40, "{dirty} slots are dirty, and nothing is to flush them");
    pager.set_nvm_flush(NvmFlush { high_water: 20, low_water: 10, ..late }).unwrap();
    let since = Instant::now();
    while counter(&pager, "dirty") > counter(&pager, "slots") / 10 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} slots stay dirty", counter(&pager, "dirty"));
        std::thread::sleep(Duration::from_millis(5));
    }
    pager.shutdown().unwrap();
}

/// In an earlier version, "time by function" of the variant with pages in NVM did not include puts, and no
/// counter showed whether transactions waited for the drive.
#[test]
fn puts_and_what_they_wait_for_show_in_the_times() {
    let directory = MemoryDirectory::new();
    let times = Arc::new(Times::on());
    let quiet = PagerConfig { background: false, times: times.clone(), ..in_nvm(&directory) };
    let pager = open(&quiet);
    fill(&pager, 20);
    pager.tick_write(1000).unwrap();
    assert!(times.spent(Timing::NvmPut).count > 0);
    assert_eq!(
        (times.spent(Timing::NvmWait).count, counter(&pager, "put_flushes")),
        (0, 0),
        "slots are free"
    );
    fill(&pager, 400);
    let [put, wait] = [Timing::NvmPut, Timing::NvmWait].map(|what| times.spent(what));
    assert!(wait.count > 0 && wait.ns <= put.ns, "{wait:?} of {put:?}");
    assert!(counter(&pager, "put_flushes") > 0);
    assert!(counter(&pager, "inline_flushes") <= counter(&pager, "put_flushes"));
    pager.shutdown().unwrap();
}

#[test]
fn marks_that_cannot_work_are_refused() {
    let directory = MemoryDirectory::new();
    for (workers, high_water, low_water) in [(0, 80, 60), (1, 60, 60), (1, 100, 60)] {
        let nvm_flush = NvmFlush { workers, high_water, low_water, ..NvmFlush::DEFAULT };
        let error = PagerConfig { nvm_flush, ..in_nvm(&directory) }.check().unwrap_err().to_string();
        assert!(error.contains("low mark"), "{error}");
    }
}
