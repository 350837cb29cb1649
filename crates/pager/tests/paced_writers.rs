//! Tests of page writers that work at fixed intervals, and not when frames are needed. There are also tests
//! of the statistics about the time of threads.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "pager/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{add, config, get, open, set};
use varve_device::{Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{Pacing, PageId, Pager, PagerConfig, ProtectionKind, SpaceId, Spent, Times, Timing};

const PAGES: u64 = 300;
const HOUR_MS: u64 = 3_600_000;

/// Returns a configuration with a pool of 64 frames and threads with this pacing.
fn paced(directory: &Arc<MemoryDirectory>, pacing: Option<Pacing>) -> PagerConfig {
    PagerConfig { background: true, pacing, ..config(directory, 64) }
}

/// Makes more pages than the pool holds.
fn fill(pager: &Pager) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..PAGES).map(|number| add(pager, owner, number).unwrap()).collect()
}

/// Threads that need a frame write dirty pages themselves while the writers sleep. This is the single-page
/// path of Kang 2016.
#[test]
fn while_paced_writers_sleep_threads_write_pages_themselves() {
    let directory = MemoryDirectory::new();
    let pager = open(&paced(&directory, Some(Pacing { interval_ms: HOUR_MS, free_frames: 32 })));
    // The writers' first round is over when they sleep.
    std::thread::sleep(Duration::from_millis(100));
    let before = pager.stats();
    let ids = fill(&pager);
    let after = pager.stats();
    assert_eq!(after.evict_writes, before.evict_writes, "the writers did not wake");
    assert!(after.inline_writes - before.inline_writes > 200, "{}", after.inline_writes);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(get(&pager, *id).unwrap(), number as u64);
    }
    let began = Instant::now();
    pager.shutdown().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "nobody waits an hour for them");
}

#[test]
fn paced_writers_wake_in_time() {
    let directory = MemoryDirectory::new();
    let pager = open(&paced(&directory, Some(Pacing { interval_ms: 5, free_frames: 1024 })));
    let began = Instant::now();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    while pager.stats().evict_writes == 0 {
        add(&pager, owner, 1).unwrap();
        assert!(began.elapsed() < Duration::from_secs(20), "they never wrote a page to free a frame");
    }
    pager.shutdown().unwrap();
}

#[test]
fn pacing_without_an_interval_is_refused() {
    for pacing in [Pacing { interval_ms: 0, ..Pacing::INNODB }, Pacing { free_frames: 0, ..Pacing::INNODB }] {
        let settings = paced(&MemoryDirectory::new(), Some(pacing));
        let error = Pager::open(settings, Arc::new(common::NoOps)).err().unwrap().to_string();
        assert!(error.contains("paced page writers"), "{error}");
    }
}

/// The time that each write of pages and of their copies takes.
const SLOW: Duration = Duration::from_millis(2);

fn times_of(protection: ProtectionKind, times: Times) -> impl Fn(Timing) -> Spent {
    let inner = MemoryDirectory::new();
    let device = Faulty::wrap(inner.clone());
    let times = Arc::new(times);
    let settings =
        PagerConfig { data: device.clone(), protection, times: times.clone(), ..config(&inner, 64) };
    let pager = open(&settings);
    let rule = Rule {
        operation: Some(Operation::Write),
        space: Some(Space::Data),
        when: When::Every(1),
        fault: Fault::Slow(SLOW),
    };
    device.arm(rule);
    let ids = fill(&pager);
    ids.iter().for_each(|id| assert!(get(&pager, *id).is_ok()));
    set(&pager, ids[0], 7).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    device.disarm();
    assert!(pager.stats().inline_writes > 100);
    move |what| times.spent(what)
}

#[test]
fn times_are_noted_where_they_are_spent() {
    let doublewrite = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
    let spent = times_of(doublewrite, Times::on());
    for what in [Timing::SingleCopy, Timing::SinglePlace] {
        let Spent { count, ns } = spent(what);
        assert!(count > 100, "{what:?}: {count}");
        assert!(ns >= count * SLOW.as_nanos() as u64, "{what:?}: {ns} ns for {count} slow writes");
    }
    assert!(spent(Timing::PageRead).count > 200, "pages that had left the pool");
    assert!(spent(Timing::LogWait).count > 0);
    let spent = times_of(ProtectionKind::None, Times::on());
    assert_eq!(spent(Timing::SingleCopy), Spent::default(), "without protection there is no copy");
    assert!(spent(Timing::SinglePlace).count > 100);
}

#[test]
fn nothing_is_noted_unless_asked_for() {
    let spent = times_of(ProtectionKind::None, Times::default());
    assert!(Timing::ALL.iter().all(|what| spent(*what) == Spent::default()));
}

#[test]
fn batches_have_times_of_their_own() {
    let directory = MemoryDirectory::new();
    let times = Arc::new(Times::on());
    let pager = open(&PagerConfig { times: times.clone(), ..config(&directory, 1024) });
    fill(&pager);
    while pager.tick_write(100).unwrap() > 0 {}
    for what in [Timing::BatchCopy, Timing::BatchPlace] {
        assert!(times.spent(what).count > 10, "{}: {:?}", what.name(), times.spent(what));
    }
    assert_eq!(times.spent(Timing::SingleCopy), Spent::default());
}
