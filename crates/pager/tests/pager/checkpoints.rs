//! The kinds of checkpoints, and the pages that each kind has written before it is recorded.

use std::time::{Duration, Instant};

use crate::common::{add, config, get, open, set};
use varve_device::MemoryDirectory;
use varve_pager::{
    CheckpointKind, FlashConfig, FlashDesign, FlashRestart, FlashSettings, PageId, Pager, PagerConfig,
    SpaceId,
};

const PAGES: u64 = 100;

fn rig(kind: CheckpointKind, design: FlashDesign) -> PagerConfig {
    let mut config = config(&MemoryDirectory::new(), 40);
    config.checkpoint.kind = kind;
    config.flash = Some(FlashConfig::with(
        MemoryDirectory::new(),
        FlashSettings {
            design,
            dirty_percent: 90,
            restart: FlashRestart::None,
            ..FlashSettings::of_size(4096 + 200 * 4096)
        },
    ));
    config
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    let flash = levels.iter().find(|level| level.name == "flash").expect("there is a cache");
    flash.counters.iter().find(|(found, _)| *found == name).map(|(_, n)| *n).unwrap()
}

/// Returns the number of pages with changes in the pool, and the number of those on flash.
fn dirty(pager: &Pager) -> (u64, u64) {
    (pager.stats().dirty_frames, counter(pager, "dirty"))
}

fn change(pager: &Pager, ids: &[PageId], number: u64) {
    ids.iter().for_each(|id| set(pager, *id, number).unwrap());
}

#[test]
fn a_sharp_one_has_all_at_home_a_fuzzy_one_what_is_older_than_the_last() {
    for kind in CheckpointKind::ALL {
        let pager = open(&rig(kind, FlashDesign::LazyCleaning));
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let ids: Vec<PageId> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
        pager.checkpoint_all().unwrap();
        assert_eq!(dirty(&pager), (0, 0), "SQL's CHECKPOINT is always sharp");
        change(&pager, &ids[..60], 1000);
        let before = dirty(&pager);
        assert!(before.0 > 0 && before.1 > 0, "{before:?}");
        pager.checkpoint().unwrap();
        match kind {
            CheckpointKind::Sharp => assert_eq!(dirty(&pager), (0, 0)),
            CheckpointKind::Fuzzy | CheckpointKind::Indirect => assert_eq!(dirty(&pager), before),
        }
        change(&pager, &ids[60..70], 1001);
        pager.checkpoint().unwrap();
        let after = dirty(&pager);
        match kind {
            CheckpointKind::Sharp => assert_eq!(after, (0, 0)),
            // Many pages are cleaned at a time, so there may be no dirty ones left.
            CheckpointKind::Fuzzy => assert!(after.0 + after.1 <= 12, "{after:?}"),
            CheckpointKind::Indirect => assert!(after.0 + after.1 >= before.0 + before.1, "{after:?}"),
        }
        // Flash keeps the same pages back again.
        change(&pager, &ids, 1002);
        assert!(dirty(&pager).1 > 0);
        pager.flush_log(pager.log().end()).unwrap();
        ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 1002));
        pager.shutdown().unwrap();
    }
}

#[test]
fn threads_take_them_when_they_are_due() {
    for (kind, design) in [
        (CheckpointKind::Sharp, FlashDesign::LazyCleaning),
        (CheckpointKind::Sharp, FlashDesign::DualWrite),
        (CheckpointKind::Fuzzy, FlashDesign::LazyCleaning),
    ] {
        let mut config = rig(kind, design);
        config.background = true;
        config.checkpoint.interval_ms = 20;
        let pager = open(&config);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let ids: Vec<PageId> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
        let until = Instant::now() + Duration::from_secs(60);
        for round in 0..20 {
            change(&pager, &ids, 2000 + round);
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nothing is changed any more, so fuzzy checkpoints reach the same state, only later.
        while dirty(&pager) != (0, 0) {
            assert!(Instant::now() < until, "{kind:?}, {design:?}: {:?}", dirty(&pager));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(pager.stats().checkpoints > 1);
        ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 2019));
        pager.shutdown().unwrap();
    }
}

/// Changes pages with threads in the background, and returns the longest log that a start would have had to
/// redo.
fn longest_redo(target: Option<Duration>) -> u64 {
    let mut config = PagerConfig { background: true, ..config(&MemoryDirectory::new(), 200) };
    config.log_capacity_bytes = 64 << 20;
    config.checkpoint.interval_ms = 60_000;
    config.checkpoint.recovery_target = target;
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (0..PAGES).map(|number| add(&pager, owner, number).unwrap()).collect();
    let mut longest = 0;
    for number in 0..4000 {
        change(&pager, &ids, number);
        longest = longest.max(pager.log().stats().used_bytes);
    }
    let estimate = pager.restart_estimate();
    assert_eq!(estimate.map(|estimate| estimate.target), target);
    pager.shutdown().unwrap();
    longest
}

#[test]
fn a_recovery_target_bounds_the_log_that_a_start_redoes() {
    let (free, bounded) = (longest_redo(None), longest_redo(Some(Duration::from_millis(1))));
    assert!(free > 4 << 20, "{free} bytes without a target");
    // The limit is a mebibyte then. A writer that was admitted may still append.
    assert!(bounded < 2 << 20, "{bounded} bytes");
}
