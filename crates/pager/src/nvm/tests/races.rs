//! Tests of the NVM page buffer with several threads: one thread acts in the middle of another thread's call.
//!
//! This module does not know pool, files, or orders of events that no test forces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use varve_device::{Region, RegionFacts, RegionTally};

use super::rig::{Gate, Rig, counter, damages, put, range, read};
use crate::base::lsn::Lsn;
use crate::level::Level;
use crate::nvm::buffer::NvmBuffer;

/// How long a test waits to see that a call does not return.
const MOMENT: Duration = Duration::from_millis(30);

/// Several threads put pages of their own, and others flush. At the end each page has the version of its last
/// put.
#[test]
fn threads_put_and_flush_together() {
    let rig = Rig::new(16);
    rig.log.durable.store(1 << 40, SeqCst);
    let level = rig.open();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (level, is_done) = (&level, &is_done);
        let putters: Vec<_> = (0..4_u32)
            .map(|thread| {
                scope.spawn(move || {
                    for round in 0..300_u32 {
                        let first = thread * 16 + round % 15;
                        put(level, &[first, first + 1], u64::from(round) + 1).unwrap();
                        assert_eq!(read(level, first).unwrap().0, u64::from(round) + 1);
                    }
                })
            })
            .collect();
        let flushers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    while !is_done.load(SeqCst) {
                        level.flush_some(3).unwrap();
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        putters.into_iter().for_each(|thread| thread.join().unwrap());
        is_done.store(true, SeqCst);
        flushers.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let last =
        |page: u32| (0..300).rev().find(|round| [round % 15, round % 15 + 1].contains(&page)).unwrap() + 1;
    assert_eq!(damages(&level), Vec::<String>::new());
    for level in [level, rig.open()] {
        for no in (0..64).filter(|no| no % 16 < 15) {
            assert_eq!(read(&level, no).unwrap().0, u64::from(last(no % 16)), "page {no}");
        }
    }
}

/// A region whose fences wait at a gate.
struct SlowFences {
    inner: Arc<dyn Region>,
    gate: Arc<Gate>,
}

impl Region for SlowFences {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.inner.read(offset, buf);
    }
    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
    }
    fn write_back(&self, offset: u64, len_bytes: u64) {
        self.inner.write_back(offset, len_bytes);
    }
    fn fence(&self) {
        self.gate.pass();
        self.inner.fence();
    }
    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }
    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }
    fn settle(&self) -> varve_device::Result<()> {
        Ok(())
    }
}

/// Discards in a thread of its own. Fails if the discard ends before `let_go` has run, which happens a moment
/// later.
fn discard_waits(level: &NvmBuffer, first: u32, count: u32, let_go: impl FnOnce()) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let discard = scope.spawn(|| {
            level.discard(range(first, count), Lsn::new(1)).unwrap();
            is_done.store(true, SeqCst);
        });
        std::thread::sleep(MOMENT);
        let was_early = is_done.load(SeqCst);
        let_go();
        discard.join().unwrap();
        assert!(!was_early, "it returned in the middle of what it has to wait for");
    });
}

/// A file must not be cut while a page beyond its new end is being written.
#[test]
fn a_discard_waits_for_the_write_home_in_flight() {
    let rig = Rig::new(4);
    let level = Arc::new(rig.open());
    put(&level, &[1, 2], 10).unwrap();
    rig.home.gate.close();
    let flushing = std::thread::spawn({
        let level = level.clone();
        move || level.flush_some(2).unwrap()
    });
    rig.home.gate.await_somebody();
    discard_waits(&level, 2, 1, || rig.home.gate.open());
    flushing.join().unwrap();
}

/// The slots of pages that are cut off must be free durably before the file gets shorter. In the fault that
/// this test found, a put that needed slots began to free some between two steps of the discard. The discard
/// then found nothing to do, and returned before the fence.
#[test]
fn a_discard_waits_for_others_who_retire_its_pages() {
    let rig = Rig::new(4);
    let gate = Arc::<Gate>::default();
    let region = Arc::new(SlowFences { inner: rig.region.clone(), gate: gate.clone() });
    let rig = Rig { region, ..rig };
    let level = Arc::new(rig.open());
    (0..4).for_each(|no| put(&level, &[no], 10).unwrap());
    let putter = {
        let (level, gate) = (level.clone(), gate.clone());
        move || {
            gate.close();
            // The test does not join this thread, because it waits at its fence until the gate opens.
            std::thread::spawn(move || put(&level, &[9], 10).unwrap());
        }
    };
    let it_stands = Arc::<AtomicBool>::default();
    *rig.log.meanwhile.lock() = Some(Box::new({
        let (gate, it_stands) = (gate.clone(), it_stands.clone());
        move || {
            putter();
            gate.await_somebody();
            it_stands.store(true, SeqCst);
        }
    }));
    discard_waits(&level, 0, 4, || {
        // On a busy machine the discard may not be at this point yet. If the gate were closed after this, it
        // would stay closed.
        while !it_stands.load(SeqCst) {
            std::thread::yield_now();
        }
        gate.open();
    });
    assert_eq!(damages(&level), Vec::<String>::new());
}

/// In an earlier version, a check examined slots that other threads were using, and reported them as damaged.
#[test]
fn a_check_beside_puts_and_flushes_finds_no_damage() {
    let rig = Rig::new(24);
    rig.log.durable.store(1 << 40, SeqCst);
    let level = rig.open();
    let is_done = AtomicBool::new(false);
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let (level, is_done) = (&level, &is_done);
        for thread in 0..3_u32 {
            scope.spawn(move || {
                let mut rounds = 1_u64..;
                while let Some(lsn) = rounds.next().filter(|_| !is_done.load(SeqCst)) {
                    (0..16).for_each(|at| put(level, &[thread * 16 + at], lsn).unwrap());
                }
            });
        }
        scope.spawn(move || {
            while !is_done.load(SeqCst) {
                level.flush_some(3).unwrap();
            }
        });
        while found.is_empty() && counter(level, "puts") < 6000 {
            found = damages(level);
        }
        is_done.store(true, SeqCst);
    });
    assert_eq!(found, Vec::<String>::new());
    assert!(counter(&level, "home_pages") > 0);
}
