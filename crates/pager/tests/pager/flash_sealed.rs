//! A shutdown leaves changed pages in the flash cache and seals it. The next start uses the sealed cache and
//! needs no redo. If it cannot use the cache, it redoes all changes.

use std::cell::Cell;
use std::sync::Arc;

use crate::common::{Random, add, get, open, stored, with_stored};
use crate::flash_support::{
    Known, Rig, bytes_of, check, check_or_stop, counter, file, fill, kill, on, put, rig, warned, work,
};
use varve_device::{
    Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When, plant, take_reached,
};
use varve_pager::control::{Control, Superblock};
use varve_pager::{
    FLASH_FILE, FlashDesign, FlashRestart, HomeLayout, PageId, Pager, PagerConfig, PagerError, SpaceId,
};

/// Designs that a shutdown seals.
const SEALED: [FlashDesign; 2] = [FlashDesign::DualWrite, FlashDesign::LazyCleaning];

/// Returns a database that was shut down, with pages under a seal that only flash has.
fn sealed(design: FlashDesign, seed: u64) -> (Rig, Known, Random) {
    let rig = rig(design, HomeLayout::InPlace, FlashRestart::LazyVerification);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(seed));
    work(&pager, &mut known, 1000, &mut random);
    pager.shutdown().unwrap();
    assert!(counter(&pager, "dirty") > 0 && control_of(&rig).sealed.is_some());
    (rig, known, random)
}

/// The cache is lost after a start has used its pages. The changes of these pages are in the log, which that
/// start did not read.
#[test]
fn what_was_sealed_is_redone_when_the_cache_is_lost_later() {
    for (design, steps) in SEALED.into_iter().flat_map(|design| [0, 1, 300].map(|steps| (design, steps))) {
        let (rig, mut known, mut random) = sealed(design, 3 + steps);
        let pager = open(&rig.config);
        assert_eq!(pager.recovery().map(|recovery| recovery.redo.log_bytes), Some(0));
        work(&pager, &mut known, steps, &mut random);
        pager.checkpoint().unwrap();
        kill(pager);
        rig.flash.remove(FLASH_FILE).unwrap();
        check(&open(&rig.config), &known);
    }
}

/// The cache is sealed again and again, with and without changes in between.
#[test]
fn a_seal_follows_another() {
    for design in SEALED {
        let (rig, mut known, mut random) = sealed(design, 5);
        for round in 0..8 {
            let pager = open(&rig.config);
            assert_eq!(
                pager.recovery().map(|recovery| recovery.redo.log_bytes),
                Some(0),
                "{design:?} {round}"
            );
            work(&pager, &mut known, if round % 3 == 0 { 0 } else { 200 }, &mut random);
            check(&pager, &known);
            pager.shutdown().unwrap();
        }
        let pager = open(&rig.config);
        // Another design takes over as soon as home has everything.
        pager.set_flash_design(FlashDesign::CleanWrite).unwrap();
        assert_eq!(counter(&pager, "dirty"), 0);
        pager.shutdown().unwrap();
        drop(pager);
        rig.flash.remove(FLASH_FILE).unwrap();
        check(&open(&rig.config), &known);
    }
}

/// The cache is not as it was sealed, or a start can't use it. Then redo repeats all changes.
#[test]
fn behind_a_seal_that_is_of_no_use_there_is_redo() {
    for design in SEALED {
        for case in 0..7 {
            let (rig, mut known, mut random) = sealed(design, 7 + case);
            let mut config = rig.config.clone();
            let flash = config.flash.as_mut().expect("there is a cache");
            let spoilt = |at: usize| {
                let mut bytes = bytes_of(&file(&rig.flash));
                bytes[at] ^= 1;
                put(&rig.flash, &bytes);
            };
            match case {
                0 => config.flash = None,
                1 => rig.flash.remove(FLASH_FILE).unwrap(),
                2 => flash.settings.design = FlashDesign::CleanWrite,
                3 => flash.settings.restart = FlashRestart::None,
                // Case 4 damages a record, case 5 the seal.
                4 => spoilt(4096 + 70),
                5 => spoilt(48),
                // The file becomes a copy that was taken in the same start, before its shutdown.
                _ => {
                    let pager = open(&rig.config);
                    work(&pager, &mut known, 300, &mut random);
                    let copy = bytes_of(&file(&rig.flash));
                    work(&pager, &mut known, 300, &mut random);
                    pager.shutdown().unwrap();
                    assert!(counter(&pager, "dirty") > 0, "{design:?}");
                    drop(pager);
                    put(&rig.flash, &copy);
                }
            }
            let pager = open(&config);
            let redone = pager.recovery().map(|recovery| recovery.redo.log_bytes > 0);
            assert_eq!(redone, Some(true), "{design:?} {case}");
            let expected = match case {
                1 => Some("begins empty: its file is missing"),
                4 | 6 => Some("is not as the last shutdown left it"),
                5 => Some("is damaged, or of another version"),
                _ => None,
            };
            let told = warned(&pager).join("; ");
            match expected {
                Some(expected) => assert!(told.contains(expected), "{design:?} {case}: {told}"),
                // The cache is missing or changed because the configuration says so, so there is no warning.
                None => assert_eq!(told, "", "{design:?} {case}"),
            }
            check(&pager, &known);
            kill(pager);
            check(&open(&config), &known);
        }
    }
}

/// Whether redo is needed or not, the log must exist from the redo position on. A start that is refused
/// leaves the seal.
#[test]
fn behind_a_seal_a_log_with_a_gap_is_refused() {
    let mut rig = rig(FlashDesign::LazyCleaning, HomeLayout::InPlace, FlashRestart::LazyVerification);
    rig.config.log_segment_bytes = 64 << 10;
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(19));
    work(&pager, &mut known, 9000, &mut random);
    pager.shutdown().unwrap();
    drop(pager);
    let control = |home: &MemoryDirectory| Control::open(home).unwrap().unwrap().get();
    let stored = control(&rig.home);
    let of_segment = |lsn: varve_pager::Lsn| lsn.get() / stored.log_segment_bytes;
    let needed = of_segment(stored.redo)..=of_segment(stored.sealed.unwrap().end);
    let (mut refused, files) = (0, rig.home.images());
    for (gone, _) in files.iter().filter(|(name, _)| name.starts_with("log.")) {
        let home = MemoryDirectory::from_images(files.iter().filter(|(name, _)| name != gone).cloned());
        let flash = MemoryDirectory::from_images(rig.flash.images());
        let how = (HomeLayout::InPlace, FlashRestart::LazyVerification);
        let mut config = on(&home, &flash, FlashDesign::LazyCleaning, how).config;
        config.log_segment_bytes = rig.config.log_segment_bytes;
        match Pager::open(config, Arc::new(crate::common::NoOps)) {
            Ok(pager) => check(&pager, &known),
            Err(cause) => {
                refused += 1;
                assert_eq!(control(&home).sealed, stored.sealed, "{gone}: {cause}");
            }
        }
    }
    assert!(needed.clone().count() > 1, "{needed:?}");
    assert_eq!(refused, needed.count());
}

/// Some slots have other pages than when the cache was sealed. The start refuses the cache, or the database
/// stops when it reads such a slot. The next start redoes these pages.
#[test]
fn a_sealed_frame_that_is_wrong_is_redone_by_the_next_start() {
    for design in SEALED {
        for nth in 0..30 {
            let (rig, known, mut random) = sealed(design, 11 + nth);
            let image = file(&rig.flash);
            let mut bytes = vec![0; image.len_bytes() as usize];
            image.read(0, &mut bytes);
            let frames = bytes.len() as u64 / 4096 - 3;
            for _ in 0..=nth {
                let at = 4096 * (3 + random.below(frames) as usize);
                bytes[at..at + 4096].fill(0xAB);
            }
            put(&rig.flash, &bytes);
            drop(check_or_stop(&rig.config, &known));
            check(&open(&rig.config), &known);
        }
    }
}

/// The first page that is read after a start with a seal is not in its slot. Whether or not the reader
/// ignores the error, the database is opened once more, with redo. If something else stops the database, it
/// is not opened again, even if the cache is lost afterwards.
#[test]
fn only_a_lost_cache_is_a_reason_to_open_once_more() {
    let ways = [(true, false), (false, true), (true, true)];
    let each = ways.into_iter().flat_map(|way| [false, true].map(|goes_on| (way, goes_on)));
    for ((is_lost, home_refuses), goes_on) in each {
        let (rig, known, _) = sealed(FlashDesign::LazyCleaning, 23);
        if is_lost && !home_refuses {
            let mut bytes = bytes_of(&file(&rig.flash));
            bytes[3 * 4096..].fill(0xAB);
            put(&rig.flash, &bytes);
        }
        let home = Faulty::wrap(rig.home.clone() as Arc<dyn Directory>);
        let config = PagerConfig { data: home.clone(), ..rig.config.clone() };
        let begun = Cell::new(0);
        let opened = Pager::open_and(config, Arc::new(crate::common::NoOps), |pager: Pager| {
            begun.set(begun.get() + 1);
            if home_refuses {
                let (operation, fault) = (Some(Operation::Write), Fault::Fails(ErrorKind::Io(5)));
                home.arm(Rule { operation, space: None, when: When::From(1), fault });
                let owner = pager.create_segment(SpaceId::DATA).unwrap();
                add(&pager, owner, 1).unwrap();
                assert!(pager.checkpoint_all().is_err());
            }
            if home_refuses && is_lost {
                rig.device.arm(Rule {
                    operation: None,
                    space: None,
                    when: When::From(1),
                    fault: Fault::Gone,
                });
            }
            let read = known.iter().try_for_each(|(id, _)| get(&pager, *id).map(drop));
            if goes_on {
                Ok(pager)
            } else {
                read.and_then(|()| pager.log().check().map_err(PagerError::from)).map(|()| pager)
            }
        });
        let is_tried_again = is_lost && !home_refuses;
        let case = format!("lost {is_lost}, home refuses {home_refuses}, goes on {goes_on}");
        assert_eq!(begun.get(), 1 + u32::from(is_tried_again), "{case}");
        match opened {
            Ok(pager) if is_tried_again => {
                let told = pager.warnings().join("; ");
                assert!(told.contains("another one redid what only the cache had"), "{told}");
                check(&pager, &known);
            }
            Ok(pager) => assert!(goes_on && pager.log().check().is_err(), "{case}"),
            Err(_) => assert!(!goes_on && !is_tried_again, "{case}"),
        }
        home.restart();
        rig.device.restart();
        check(&open(&rig.config), &known);
    }
}

/// An allocation map is only in a slot, which is lost. The start itself needs the map, so the database is
/// opened once more.
#[test]
fn a_sealed_start_that_needs_a_lost_frame_is_made_once_more() {
    for design in SEALED {
        let rig = rig(design, HomeLayout::InPlace, FlashRestart::LazyVerification);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(37));
        work(&pager, &mut known, 1000, &mut random);
        known.extend(fill(&pager).into_iter().take(5));
        known.iter().for_each(|(id, number)| assert_eq!(get(&pager, *id).unwrap(), *number));
        pager.shutdown().unwrap();
        drop(pager);
        let mut bytes = bytes_of(&file(&rig.flash));
        bytes[3 * 4096..].fill(0xAB);
        put(&rig.flash, &bytes);
        drop(take_reached());
        let pager = open(&rig.config);
        assert!(take_reached().contains_key("open: once more, with redo"), "{design:?}");
        let told = pager.warnings().join("; ");
        assert!(told.contains("another one redid what only the cache had"), "{told}");
        check(&pager, &known);
    }
}

/// The same case as above, but during the start. An error of the data files goes to the caller, and there is
/// no second start.
#[test]
fn a_home_that_fails_at_a_sealed_start_is_not_tried_again() {
    let whens = (1..=60).flat_map(|nth| [When::Nth(nth), When::From(nth)]);
    let (mut refused, mut begun) = (0, 0);
    for when in whens {
        let (rig, known, _) = sealed(FlashDesign::LazyCleaning, 31);
        let before = control_of(&rig);
        let home = Faulty::wrap(rig.home.clone() as Arc<dyn Directory>);
        let config = PagerConfig { data: home.clone(), rollback: home.clone(), ..rig.config.clone() };
        let fault = Fault::Fails(ErrorKind::Io(5));
        home.arm(Rule { operation: None, space: None, when, fault });
        drop(take_reached());
        let opened = Pager::open(config, Arc::new(crate::common::NoOps));
        // Some refused starts ended after the seal's end, where a second start could continue. Others ended
        // after the moment from which this start continues with the cache.
        let after = control_of(&rig);
        refused += u64::from(opened.is_err() && after.sealed.is_none());
        begun += u64::from(opened.is_err() && after.start != before.start);
        let again = take_reached().into_keys().find(|mark| mark.starts_with("open: once more"));
        assert_eq!(again, None, "{when:?}");
        drop(opened);
        home.restart();
        check(&open(&rig.config), &known);
    }
    assert!(refused > 0 && begun > 0, "{refused} {begun}");
}

fn control_of(rig: &Rig) -> Superblock {
    Control::open(&*rig.home).unwrap().unwrap().get()
}

/// A page that was repaired in the data files may be as old as its copy. So redo uses the whole log, and a
/// warning says this.
#[test]
fn behind_a_seal_a_page_at_home_is_mended() {
    let (rig, known, _) = sealed(FlashDesign::LazyCleaning, 29);
    let is_mended = |(id, _): &&(PageId, u64)| {
        let mut torn = stored(&rig.home, *id);
        torn[2048..].fill(0xAA);
        let (home, flash) =
            (with_stored(&rig.home, *id, &torn), MemoryDirectory::from_images(rig.flash.images()));
        let how = (HomeLayout::InPlace, FlashRestart::LazyVerification);
        let pager = open(&on(&home, &flash, FlashDesign::LazyCleaning, how).config);
        let is_told = warned(&pager).join("; ").contains("pages at home had to be mended");
        assert_eq!(is_told, pager.recovery().is_some_and(|recovery| recovery.redo.log_bytes > 0), "{id}");
        if is_told {
            check(&pager, &known);
        }
        is_told
    };
    assert!(known.iter().filter(is_mended).count() > 0);
}

/// The sum detects records of another moment than their seal. Without the sum, they are used.
#[test]
fn records_of_another_moment_are_believed_where_nobody_sums() {
    for fault in [None, Some("flash: any records are taken for sealed")] {
        let (rig, mut known, mut random) = sealed(FlashDesign::LazyCleaning, 17);
        let older = file(&rig.flash);
        let pager = open(&rig.config);
        work(&pager, &mut known, 500, &mut random);
        pager.shutdown().unwrap();
        drop(pager);
        let mut bytes = vec![0; older.len_bytes() as usize];
        file(&rig.flash).read(0, &mut bytes);
        older.read(4096, &mut bytes[4096..3 * 4096]);
        put(&rig.flash, &bytes);
        plant(fault);
        let opened = Pager::open(rig.config.clone(), Arc::new(crate::common::NoOps));
        let has =
            |pager: &Pager, (id, number): &(PageId, u64)| get(pager, *id).is_ok_and(|found| found == *number);
        let is_right = opened.is_ok_and(|pager| known.iter().all(|one| has(&pager, one)));
        plant(None);
        assert_eq!(is_right, fault.is_none(), "{fault:?}");
    }
}
