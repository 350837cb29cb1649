//! The size of the flash cache is changed while the database runs, and a start uses the new size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common::{Random, config, open};
use crate::flash_support::{PAGES, check, counter, fill, work};
use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{
    FLASH_FILE, FlashConfig, FlashDesign, FlashRestart, FlashSettings, PagerConfig, PagerError,
};

/// The bytes of a file with room for about 100 pages in one partition. The next constant has room for more
/// pages in several partitions.
const SMALL: u64 = 103 * 4096;
const LARGE: u64 = 405 * 4096;

struct Rig {
    config: PagerConfig,
    flash: Arc<MemoryDirectory>,
    device: Arc<Faulty>,
    drive: Arc<Faulty>,
}

fn rig(design: FlashDesign, restart: FlashRestart) -> Rig {
    let (home, flash) = (MemoryDirectory::new(), MemoryDirectory::new());
    let device = Faulty::wrap(flash.clone() as Arc<dyn Directory>);
    let drive = Faulty::wrap(home.clone() as Arc<dyn Directory>);
    let mut config = config(&home, 40);
    config.data = drive.clone();
    config.flash = Some(FlashConfig::with(
        device.clone(),
        FlashSettings { design, dirty_percent: 50, restart, ..FlashSettings::of_size(SMALL) },
    ));
    Rig { config, flash, device, drive }
}

/// Returns the configuration of the next start, with this size.
fn sized(rig: &Rig, size_bytes: u64) -> PagerConfig {
    let flash = rig
        .config
        .flash
        .clone()
        .map(|flash| FlashConfig { settings: FlashSettings { size_bytes, ..flash.settings }, ..flash });
    PagerConfig { flash, ..rig.config.clone() }
}

fn file_bytes(rig: &Rig) -> u64 {
    let file = rig.flash.open(FLASH_FILE, varve_device::OpenHow::existing(Space::Flash)).unwrap();
    file.len_bytes().unwrap()
}

#[test]
fn a_cache_grows_and_shrinks_and_is_filled_again() {
    for design in FlashDesign::ALL {
        let rig = rig(design, FlashRestart::LazyVerification);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(5));
        let mut sizes = Vec::new();
        for bytes in [SMALL, LARGE, SMALL, 20 * 4096, LARGE] {
            pager.set_flash_size(bytes).unwrap();
            sizes.push(counter(&pager, "frames"));
            assert!(file_bytes(&rig) <= bytes && file_bytes(&rig) > bytes * 8 / 10, "{bytes}");
            work(&pager, &mut known, 1500, &mut random);
            check(&pager, &known);
            let cached = counter(&pager, "frames") - counter(&pager, "free");
            assert_eq!(cached > 0, design != FlashDesign::Off, "{design:?}");
        }
        assert!(sizes.is_sorted_by(|one, next| one < next || sizes[1] >= *next), "{sizes:?}");
        assert_eq!((sizes[0], sizes[1]), (sizes[2], sizes[4]), "{sizes:?}");
        let error = pager.set_flash_size(8192).unwrap_err().to_string();
        assert!(error.contains("give it room for at least 16"), "{error}");
        pager.shutdown().unwrap();
    }
}

/// A start follows a shutdown or a crash. The cache has its last size, or its size before the change.
#[test]
fn a_start_goes_on_with_what_has_the_same_size() {
    for restart in FlashRestart::ALL {
        for design in [FlashDesign::DualWrite, FlashDesign::LazyCleaning] {
            for (is_crash, next) in [(false, LARGE), (true, LARGE), (false, SMALL), (true, SMALL)] {
                let rig = rig(design, restart);
                let pager = open(&rig.config);
                let (mut known, mut random) = (fill(&pager), Random(9));
                work(&pager, &mut known, 400, &mut random);
                pager.set_flash_size(LARGE).unwrap();
                work(&pager, &mut known, 800, &mut random);
                if is_crash {
                    pager.checkpoint().unwrap();
                    work(&pager, &mut known, 100, &mut random);
                    pager.flush_log(pager.log().end()).unwrap();
                } else {
                    pager.shutdown().unwrap();
                }
                drop(pager);
                let pager = open(&sized(&rig, next));
                let found = counter(&pager, "restored");
                let is_warm = next == LARGE && restart != FlashRestart::None;
                assert!(if is_warm { found > 50 } else { found == 0 || restart == FlashRestart::LogBased });
                check(&pager, &known);
                work(&pager, &mut known, 200, &mut random);
                check(&pager, &known);
                assert_eq!(counter(&pager, "damaged"), 0);
            }
        }
    }
}

#[test]
fn a_size_without_room_changes_nothing() {
    let rig = rig(FlashDesign::LazyCleaning, FlashRestart::LazyVerification);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(11));
    work(&pager, &mut known, 2000, &mut random);
    let state = || ["frames", "clean", "dirty"].map(|name| counter(&pager, name));
    let before = state();
    assert!(before[2] > 0, "{before:?}");
    let full = Fault::Fails(ErrorKind::NoSpace);
    let rule = |operation| Rule {
        operation: Some(operation),
        space: None,
        when: When::From(1),
        fault: full.clone(),
    };
    rig.device.arm(rule(Operation::SetLen));
    assert!(pager.set_flash_size(LARGE).unwrap_err().is_no_space());
    rig.device.disarm();
    assert_eq!(state(), before);
    // Home has no room for the pages that only flash has.
    rig.drive.arm(rule(Operation::Write));
    assert!(pager.set_flash_size(LARGE).unwrap_err().is_no_space());
    rig.drive.disarm();
    assert_eq!((state()[0], file_bytes(&rig) <= SMALL), (before[0], true));
    work(&pager, &mut known, 500, &mut random);
    assert!(counter(&pager, "dirty") > 0, "it keeps pages back as before");
    pager.set_flash_size(LARGE).unwrap();
    work(&pager, &mut known, 500, &mut random);
    check(&pager, &known);
    pager.shutdown().unwrap();
}

/// The device fails when the header with the new size is written. Then the database runs without the cache
/// until the next start.
#[test]
fn a_device_that_fails_loses_the_cache_and_nothing_else() {
    for (nth, restart) in (1..4).flat_map(|nth| FlashRestart::ALL.map(|restart| (nth, restart))) {
        let rig = rig(FlashDesign::DualWrite, restart);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(13));
        work(&pager, &mut known, 1000, &mut random);
        pager.flush_log(pager.log().end()).unwrap();
        let fault = Fault::Fails(ErrorKind::Io(5));
        let operation = Some(Operation::Write);
        rig.device.arm(Rule { operation, space: None, when: When::From(nth), fault });
        let resized = pager.set_flash_size(LARGE);
        rig.device.disarm();
        assert!(resized.is_err() || nth > 1, "{restart:?}");
        // Records that may be wrong and can't be voided stop the pager.
        let is_stopped = matches!(pager.begin().map(drop), Err(PagerError::Stopped { .. }));
        assert!(!is_stopped || restart == FlashRestart::MemoryMapped, "{restart:?}");
        if !is_stopped {
            work(&pager, &mut known, 500, &mut random);
        }
        // If the pager has stopped, nothing has changed since the last flush.
        let flushed = pager.flush_log(pager.log().end());
        assert!(flushed.is_ok() || is_stopped);
        drop(pager);
        let pager = open(&sized(&rig, if nth % 2 == 0 { LARGE } else { SMALL }));
        check(&pager, &known);
        work(&pager, &mut known, 500, &mut random);
        check(&pager, &known);
    }
}

#[test]
fn threads_go_on_meanwhile() {
    for restart in FlashRestart::ALL {
        for design in [FlashDesign::CleanWrite, FlashDesign::LazyCleaning, FlashDesign::Exclusive] {
            let rig = rig(design, restart);
            let pager = open(&PagerConfig { background: true, ..rig.config.clone() });
            let mut known = fill(&pager);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..)
                    .zip(known.chunks_mut(PAGES / 2))
                    .map(|(seed, part)| {
                        let (pager, is_over) = (&pager, &is_over);
                        scope.spawn(move || {
                            let mut random = Random(17 + seed);
                            while !is_over.load(Relaxed) {
                                work(pager, part, 200, &mut random);
                            }
                        })
                    })
                    .collect();
                for bytes in [LARGE, SMALL, 40 * 4096, LARGE, 80 * 4096, SMALL, LARGE, SMALL] {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    pager.set_flash_size(bytes).unwrap();
                }
                is_over.store(true, Relaxed);
                workers.into_iter().for_each(|worker| worker.join().unwrap());
            });
            assert_eq!(counter(&pager, "damaged"), 0);
            pager.shutdown().unwrap();
            drop(pager);
            let pager = open(&rig.config);
            check(&pager, &known);
        }
    }
}
