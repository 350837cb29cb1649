//! Changed pages that stay in the flash cache are written to the data files in time. No commit depends on the
//! flash drive.

use std::sync::Arc;

use crate::common::{Random, config, get, open, set};
use crate::flash_support::{CACHE_PAGES, Known, PAGES, check, counter, fill, work};
use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_pager::{FLASH_FILE, FlashConfig, FlashDesign, FlashRestart, FlashSettings, PageId, PagerConfig};

const LAZY: [FlashDesign; 3] = [FlashDesign::LazyCleaning, FlashDesign::Rotating, FlashDesign::Exclusive];
/// The limit of dirty slots, in percent of all slots.
const LIMIT: u64 = 50;

struct Rig {
    config: PagerConfig,
    home: Arc<MemoryDirectory>,
    flash: Arc<MemoryDirectory>,
    device: Arc<Faulty>,
    drive: Arc<Faulty>,
}

fn rig(design: FlashDesign) -> Rig {
    let (home, flash) = (MemoryDirectory::new(), MemoryDirectory::new());
    let device = Faulty::wrap(flash.clone() as Arc<dyn Directory>);
    let drive = Faulty::wrap(home.clone() as Arc<dyn Directory>);
    let mut config = config(&home, 40);
    config.data = drive.clone();
    config.flash = Some(FlashConfig::with(
        device.clone(),
        FlashSettings {
            design,
            dirty_percent: LIMIT as u8,
            restart: FlashRestart::None,
            ..FlashSettings::of_size(4096 + CACHE_PAGES * 4096)
        },
    ));
    Rig { config, home, flash, device, drive }
}

#[test]
fn dirty_pages_stay_on_flash_and_are_the_newest() {
    for design in LAZY {
        let rig = rig(design);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(7));
        work(&pager, &mut known, 4000, &mut random);
        assert!(counter(&pager, "dirty") > 0, "{design:?}");
        assert!(counter(&pager, "dirty") <= CACHE_PAGES * LIMIT / 100, "{design:?}");
        assert!(counter(&pager, "read_hits_dirty") > 20, "{design:?}");
        let (pages, batches) = (counter(&pager, "cleaned_pages"), counter(&pager, "clean_batches"));
        assert!(batches > 0 && pages > batches, "{design:?}: neighbours are brought home together");
        check(&pager, &known);
        pager.shutdown().unwrap();
        assert_eq!(counter(&pager, "dirty"), 0, "{design:?}: home has all of it");
        drop(pager);
        let without = PagerConfig { flash: None, ..rig.config.clone() };
        check(&open(&without), &known);
    }
}

/// A crash loses the slot table, or the drive is gone. Redo has the changes that the data files lack.
#[test]
fn what_was_only_on_flash_is_redone() {
    for design in LAZY {
        let rig = rig(design);
        let (mut known, mut random) = (Vec::new(), Random(9));
        for round in 0..4 {
            let pager = open(&rig.config);
            if round == 0 {
                known = fill(&pager);
            }
            check(&pager, &known);
            work(&pager, &mut known, 800, &mut random);
            assert!(counter(&pager, "dirty") > 0);
            pager.flush_log(pager.log().end()).unwrap();
            drop(pager);
            if round % 2 == 1 {
                rig.flash.remove(FLASH_FILE).unwrap();
            }
        }
        check(&open(&rig.config), &known);
    }
}

/// The log doesn't grow because of pages that stay on flash.
#[test]
fn cleaning_lets_the_log_be_cut() {
    for design in LAZY {
        let rig = rig(design);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(11));
        work(&pager, &mut known, 500, &mut random);
        let dirty = counter(&pager, "dirty");
        assert!(dirty > 0);
        while pager.tick_write(1000).unwrap() > 0 {}
        pager.checkpoint().unwrap();
        assert_eq!(counter(&pager, "dirty"), 0, "{design:?}");
        check(&pager, &known);
    }
}

#[test]
fn another_design_begins_when_home_has_everything() {
    for design in LAZY {
        let rig = rig(design);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(13));
        for next in FlashDesign::ALL.into_iter().chain([design]) {
            work(&pager, &mut known, 600, &mut random);
            let before = pager.flash_design().unwrap();
            pager.set_flash_design(next).unwrap();
            assert_eq!(pager.flash_design(), Some(next));
            if !next.is_lazy() {
                assert_eq!(counter(&pager, "dirty"), 0, "{before:?} {next:?}");
            }
            check(&pager, &known);
        }
    }
}

#[test]
fn a_design_stays_if_home_has_no_room() {
    let rig = rig(FlashDesign::LazyCleaning);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(13));
    work(&pager, &mut known, 600, &mut random);
    assert!(counter(&pager, "dirty") > 0);
    let full = Fault::Fails(ErrorKind::NoSpace);
    rig.drive.arm(Rule {
        operation: Some(Operation::Write),
        space: Some(Space::Data),
        when: When::From(1),
        fault: full,
    });
    let refused = pager.set_flash_design(FlashDesign::Off).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    assert_eq!(pager.flash_design(), Some(FlashDesign::LazyCleaning));
    rig.drive.disarm();
    work(&pager, &mut known, 600, &mut random);
    pager.set_flash_design(FlashDesign::Off).unwrap();
    check(&pager, &known);
}

/// A drive takes no more pages. Queued pages are written to the data files. Pages that the data files lack
/// can be read from the drive, or the database stops.
#[test]
fn a_lost_drive_costs_no_commit() {
    let eio = Fault::Fails(ErrorKind::Io(5));
    for design in LAZY {
        for (operation, fault) in [
            (Some(Operation::Write), eio.clone()),
            (Some(Operation::Read), eio.clone()),
            (Some(Operation::Read), Fault::BitFlip { bit: 12_345 }),
            (Some(Operation::Write), Fault::Lost),
            (None, Fault::Gone),
        ] {
            let rig = rig(design);
            let pager = open(&rig.config);
            let (mut known, mut random) = (fill(&pager), Random(17));
            work(&pager, &mut known, 600, &mut random);
            pager.flush_log(pager.log().end()).unwrap();
            rig.device.arm(Rule { operation, space: None, when: When::From(5), fault: fault.clone() });
            let (mut is_stopped, mut unsure) = (false, None);
            let mut refused = 0;
            for step in 0..1500 {
                let (id, number) = &mut known[random.below(PAGES as u64) as usize];
                match get(&pager, *id) {
                    Ok(found) if unsure == Some((*id, found)) => {}
                    Ok(found) => assert_eq!(found, *number, "{design:?} {operation:?} {fault:?}: {id}"),
                    // A stopped pager looks long for a frame before it refuses a read.
                    Err(_) if refused == 5 => break,
                    Err(_) => (is_stopped, refused) = (true, refused + 1),
                }
                if !is_stopped && random.below(3) == 0 {
                    match set(&pager, *id, 9000 + step) {
                        Ok(_) if pager.flush_log(pager.log().end()).is_ok() => *number = 9000 + step,
                        _ => (is_stopped, unsure) = (true, Some((*id, 9000 + step))),
                    }
                }
            }
            assert!(rig.device.fired_count() > 0);
            drop(pager);
            rig.device.disarm();
            let pager = open(&rig.config);
            assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
            let of = |id| get(&pager, id).unwrap();
            // The change that met the failure may be there or not.
            let is_right = |(id, number): &(PageId, u64)| {
                let found = of(*id);
                found == *number || unsure == Some((*id, found))
            };
            assert!(known.iter().all(is_right), "{design:?} {operation:?} {fault:?}");
        }
    }
}

#[test]
fn threads_clean_and_what_is_put_meanwhile_is_the_newest() {
    for design in LAZY {
        let mut rig = rig(design);
        rig.config.background = true;
        let pager = Arc::new(open(&rig.config));
        let known = fill(&pager);
        let part = known.len() / 4;
        let workers: Vec<_> = known
            .chunks(part)
            .zip(1..)
            .map(|(mine, seed)| {
                let (pager, mut mine) = (pager.clone(), mine.to_vec());
                std::thread::spawn(move || {
                    let mut random = Random(seed);
                    for step in 0..3000 {
                        let (id, number) = &mut mine[random.below(part as u64) as usize];
                        assert_eq!(get(&pager, *id).unwrap(), *number, "{id} at step {step}");
                        if random.below(2) == 0 {
                            *number = 1000 + step;
                            set(&pager, *id, *number).unwrap();
                        }
                    }
                    mine
                })
            })
            .collect();
        let known: Known = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        assert!(counter(&pager, "cleaned_pages") > 0 && counter(&pager, "errors") == 0, "{design:?}");
        known.iter().for_each(|(id, number)| assert_eq!(get(&pager, *id).unwrap(), *number, "{id}"));
        pager.shutdown().unwrap();
        drop(pager);
        let _whole = &rig.home;
        check(&open(&PagerConfig { flash: None, ..rig.config.clone() }), &known);
    }
}
