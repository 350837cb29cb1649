//! Limits on the cost of slot records, which say which page a slot of the flash cache holds. The redo
//! position does not wait too long for them, and no session waits for a slow drive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{add, config, get, open, set};
use crate::flash_support::{counter, kill};
use varve_device::{Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::control::Control;
use varve_pager::{
    FlashConfig, FlashDesign, FlashRestart, FlashSettings, PageId, Pager, PagerConfig, SpaceId,
};

const PAGES: u64 = 150;
const LONG: Duration = Duration::from_secs(60);

struct Rig {
    config: PagerConfig,
    home: Arc<MemoryDirectory>,
    device: Arc<Faulty>,
}

/// Returns a database with a cache, with threads, and with a checkpoint every 20 milliseconds.
fn rig(design: FlashDesign) -> Rig {
    let (home, device) = (MemoryDirectory::new(), Faulty::wrap(MemoryDirectory::new()));
    let flash = FlashConfig::with(
        device.clone(),
        FlashSettings { design, dirty_percent: 50, ..FlashSettings::of_size(4096 * (1 + 3 + 140)) },
    );
    let mut config = PagerConfig { background: true, flash: Some(flash), ..config(&home, 40) };
    config.checkpoint.interval_ms = 20;
    Rig { config, home, device }
}

fn fill(pager: &Pager) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..PAGES).map(|number| add(pager, owner, number).unwrap()).collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let latest = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < latest, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The load pauses, and the log that it has left is not needed any more. Neither pages nor slot records need
/// it, and the records stay useful.
#[test]
fn the_redo_position_follows_when_nothing_changes() {
    for design in [FlashDesign::DualWrite, FlashDesign::CleanWrite] {
        let rig = rig(design);
        let pager = open(&rig.config);
        let ids = fill(&pager);
        // On a busy machine, the threads that write to flash may not run before the load pauses.
        until("the cache has no pages", || {
            (0..2000).for_each(|at| set(&pager, ids[at * 7 % 150], at as u64).unwrap());
            counter(&pager, "clean") > 40
        });
        let redo = || Control::open(&*rig.home).unwrap().unwrap().get().redo;
        // What cleaning notes in the log comes after the redo position.
        until("the redo position stays", || pager.log().end().since(redo()) < 1024);
        // The redo position waits for records only for a short time, so they may come later.
        let passes = counter(&pager, "hardened_passes");
        until("no records are written", || counter(&pager, "hardened_passes") > passes + 1);
        kill(pager);
        let pager = open(&rig.config);
        assert!(counter(&pager, "restored") > 20, "{design:?}: {}", counter(&pager, "restored"));
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    }
}

/// The whole slot table is in the log, and takes more space than a segment.
#[test]
fn a_table_is_noted_over_several_segments() {
    const FRAMES: u64 = 9000;
    let mut rig = rig(FlashDesign::CleanWrite);
    let flash = rig.config.flash.as_mut().unwrap();
    (flash.settings.restart, flash.settings.size_bytes) =
        (FlashRestart::LogBased, 4096 * (1 + FRAMES / 64 + 1 + FRAMES));
    rig.config.background = false;
    rig.config.log_segment_bytes = 64 << 10;
    let pager = open(&rig.config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..FRAMES).map(|number| add(&pager, owner, number).unwrap()).collect();
    pager.checkpoint_all().unwrap();
    ids.iter().zip(0..).for_each(|(id, number)| assert_eq!(get(&pager, *id).unwrap(), number));
    // The redo position passes the notes of the pages that came to flash.
    for round in 0..3 {
        (0..500).for_each(|at| set(&pager, ids[at % 20], round).unwrap());
        pager.checkpoint_all().unwrap();
    }
    let cached = counter(&pager, "clean");
    assert!(cached > FRAMES * 9 / 10, "{cached}");
    kill(pager);
    let pager = open(&rig.config);
    let restored = counter(&pager, "restored");
    assert!(restored > cached * 9 / 10, "{restored} of {cached}");
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

/// Each start without a checkpoint after it makes the list of lives longer. If necessary, a checkpoint at the
/// next start makes the list shorter.
#[test]
fn any_number_of_starts_may_end_early() {
    for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
        let mut rig = rig(design);
        rig.config.checkpoint.interval_ms = 3_600_000;
        let pager = open(&rig.config);
        let ids = fill(&pager);
        pager.shutdown().unwrap();
        drop(pager);
        for start in 0..200 {
            let pager = open(&rig.config);
            set(&pager, ids[start % 5], start as u64).unwrap();
            kill(pager);
            let lives = Control::open(&*rig.home).unwrap().unwrap().get().lives.len();
            assert!(lives < 40, "{design:?}: {lives} lives at start {start}");
        }
        assert_eq!(get(&open(&rig.config), ids[4]).unwrap(), 199);
    }
}

/// A write of slot records takes seconds. A commit or a checkpoint meanwhile does not wait for it.
#[test]
fn nobody_waits_for_a_slow_write_of_records() {
    const SLOW: Duration = Duration::from_secs(4);
    let rig = rig(FlashDesign::DualWrite);
    let pager = open(&rig.config);
    let ids = fill(&pager);
    until("no records", || counter(&pager, "hardened_passes") > 1);
    let is_slow = |pager: &Pager| {
        // These pages are in the pool alone, so that nothing else waits for the drive.
        (0..5).for_each(|at| set(pager, ids[at], 7).unwrap());
        pager.flush_log(pager.log().end()).unwrap();
    };
    is_slow(&pager);
    let fault = Fault::Slow(SLOW);
    rig.device.arm(Rule {
        operation: Some(Operation::Write),
        space: Some(Space::Flash),
        when: When::From(1),
        fault,
    });
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < SLOW * 2 {
        let at = Instant::now();
        is_slow(&pager);
        pager.checkpoint().unwrap();
        longest = longest.max(at.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(rig.device.fired_count() > 0, "nothing was written");
    assert!(longest < SLOW / 2, "a commit took {longest:?}");
    rig.device.disarm();
}
