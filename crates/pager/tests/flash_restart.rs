//! A cache on flash that is gone on with after a shutdown, or a crash: what is found on it is the newest, or is not believed.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::cell::Cell;
use std::sync::Arc;

use common::{Random, add, config, get, open, set, stored, with_stored};
use varve_device::{
    Directory, ErrorKind, Fault, Faulty, MemoryDirectory, MemoryImage, Operation, Rule, When, plant,
    take_reached,
};
use varve_pager::control::Control;
use varve_pager::{
    FLASH_FILE, FlashConfig, FlashDesign, FlashRestart, HomeLayout, PackedConfig, PageId, Pager, PagerConfig,
    PagerError, ProtectionKind, SpaceId,
};

const DESIGNS: [FlashDesign; 7] = [
    FlashDesign::CleanWrite,
    FlashDesign::DualWrite,
    FlashDesign::LazyCleaning,
    FlashDesign::TemperatureAware,
    FlashDesign::Rotating,
    FlashDesign::Exclusive,
    FlashDesign::Inclusive,
];
const SCHEMES: [FlashRestart; 3] =
    [FlashRestart::LazyVerification, FlashRestart::LogBased, FlashRestart::MemoryMapped];
const CACHE_PAGES: u64 = 120;
const PAGES: usize = 200;

struct Rig {
    config: PagerConfig,
    home: Arc<MemoryDirectory>,
    flash: Arc<MemoryDirectory>,
    device: Arc<Faulty>,
}

fn layouts() -> [HomeLayout; 2] {
    let packed = PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16, ..PackedConfig::DEFAULT };
    [HomeLayout::InPlace, HomeLayout::Packed(packed)]
}

fn places() -> impl Iterator<Item = (HomeLayout, FlashRestart)> {
    layouts().into_iter().flat_map(|layout| SCHEMES.map(|restart| (layout, restart)))
}

fn rig(design: FlashDesign, layout: HomeLayout, restart: FlashRestart) -> Rig {
    on(&MemoryDirectory::new(), &MemoryDirectory::new(), design, (layout, restart))
}

fn on(
    home: &Arc<MemoryDirectory>,
    flash: &Arc<MemoryDirectory>,
    design: FlashDesign,
    (layout, restart): (HomeLayout, FlashRestart),
) -> Rig {
    let device = Faulty::wrap(flash.clone() as Arc<dyn Directory>);
    let flash_config = FlashConfig {
        design,
        dirty_percent: 50,
        restart,
        ..FlashConfig::new(device.clone(), 4096 * (1 + 2 + CACHE_PAGES))
    };
    let config = PagerConfig { layout, flash: Some(flash_config), ..config(home, 40) };
    Rig { config, home: home.clone(), flash: flash.clone(), device }
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    let flash = levels.iter().find(|level| level.name == "flash").expect("there is a cache");
    flash.counters.iter().find(|(found, _)| *found == name).map(|(_, n)| *n).unwrap()
}

type Known = Vec<(PageId, u64)>;

fn fill(pager: &Pager) -> Known {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    (0..PAGES as u64).map(|number| (add(pager, owner, number).unwrap(), number)).collect()
}

fn work(pager: &Pager, known: &mut Known, steps: u64, random: &mut Random) {
    for step in 0..steps {
        let among = if random.below(2) == 0 { PAGES as u64 } else { 60 };
        let (id, number) = &mut known[random.below(among) as usize];
        assert_eq!(get(pager, *id).unwrap(), *number, "{id} at step {step}");
        if random.below(3) == 0 {
            *number = 1000 + random.below(1 << 40);
            set(pager, *id, *number).unwrap();
        }
        if random.below(200) == 0 {
            pager.checkpoint().unwrap();
        }
    }
}

fn check(pager: &Pager, known: &Known) {
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    known.iter().for_each(|(id, number)| assert_eq!(get(pager, *id).unwrap(), *number, "{id}"));
}

/// As a killed process leaves it, with all that was committed.
fn kill(pager: Pager) {
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
}

#[test]
fn what_a_shutdown_left_is_gone_on_with() {
    for (layout, restart) in places() {
        for design in DESIGNS {
            let rig = rig(design, layout, restart);
            let pager = open(&rig.config);
            let (mut known, mut random) = (fill(&pager), Random(3));
            work(&pager, &mut known, 3000, &mut random);
            pager.shutdown().unwrap();
            let (dirty, clean) = (counter(&pager, "dirty"), counter(&pager, "clean"));
            let is_sealed = has_seal(design, layout, restart);
            assert_eq!(
                dirty > 0,
                design.is_lazy() || is_sealed,
                "{design:?} {restart:?}: a shutdown leaves what the cache may keep back"
            );
            assert_eq!(counter(&pager, "pending"), 0);
            drop(pager);
            let pager = open(&rig.config);
            if dirty > 0 {
                let redone = pager.recovery().map(|recovery| recovery.redo.log_bytes > 0);
                assert_eq!(redone, Some(!is_sealed), "{design:?} {restart:?}");
            }
            let restored = counter(&pager, "restored");
            assert!(
                restored >= dirty + clean,
                "{design:?} {restart:?}: {restored} of {dirty} dirty and {clean} clean ones"
            );
            assert_eq!(counter(&pager, "restored_wrong"), 0, "{design:?} {restart:?}");
            check(&pager, &known);
            assert!(counter(&pager, "read_hits") * 2 > restored, "{design:?} {restart:?}");
            work(&pager, &mut known, 1000, &mut random);
            // The drive is gone, and with it what home lacks; redo has it.
            pager.shutdown().unwrap();
            drop(pager);
            rig.flash.remove(FLASH_FILE).unwrap();
            check(&open(&PagerConfig { flash: None, ..rig.config.clone() }), &known);
        }
    }
}

/// Whether a shutdown that leaves pages on flash seals them.
fn has_seal(design: FlashDesign, layout: HomeLayout, restart: FlashRestart) -> bool {
    let may = design.is_lazy() || design == FlashDesign::DualWrite;
    may && layout == HomeLayout::InPlace && restart == FlashRestart::LazyVerification
}

const SEALED: [FlashDesign; 2] = [FlashDesign::DualWrite, FlashDesign::LazyCleaning];

/// Shut down, with pages that only flash has under a seal.
fn sealed(design: FlashDesign, seed: u64) -> (Rig, Known, Random) {
    let rig = rig(design, HomeLayout::InPlace, FlashRestart::LazyVerification);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(seed));
    work(&pager, &mut known, 1000, &mut random);
    pager.shutdown().unwrap();
    assert!(
        counter(&pager, "dirty") > 0 && Control::open(&*rig.home).unwrap().unwrap().get().sealed.is_some()
    );
    (rig, known, random)
}

/// The cache goes once its pages were gone on with; they are in the log, which was not read by then.
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

/// Sealed again and again, with changes in between and without.
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
        // Another design takes over when home has everything.
        pager.set_flash_design(FlashDesign::CleanWrite).unwrap();
        assert_eq!(counter(&pager, "dirty"), 0);
        pager.shutdown().unwrap();
        drop(pager);
        rig.flash.remove(FLASH_FILE).unwrap();
        check(&open(&rig.config), &known);
    }
}

/// A cache that is not as it was sealed, or a start that can't go on with it: redo has everything.
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
                2 => flash.design = FlashDesign::CleanWrite,
                3 => flash.restart = FlashRestart::None,
                // A record; the seal.
                4 => spoilt(4096 + 70),
                5 => spoilt(48),
                // A copy of the same start, from before its shutdown.
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
                // Somebody asked for it.
                None => assert_eq!(told, "", "{design:?} {case}"),
            }
            check(&pager, &known);
            kill(pager);
            check(&open(&config), &known);
        }
    }
}

/// Whether redo is needed or not, the log has to be there from the redo position on; a start that is refused leaves the seal.
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
        match Pager::open(config, Arc::new(common::NoOps)) {
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

/// Frames that are not what was sealed: the database stops when it comes by one, if not at the start, and the next start redoes it.
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

/// What is read first behind a seal is not in its frame: whether or not the reader goes on, the database is opened once more, with redo. What
/// else stops a database is not tried again, also where the cache is lost behind it.
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
        let opened = Pager::open_and(config, Arc::new(common::NoOps), |pager: Pager| {
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

/// An allocation map is in a frame only, and that is lost: the start itself needs it, and is made once more.
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

/// As above, while the start is being made: an error of home is the caller's, and there is no second start on it.
#[test]
fn a_home_that_fails_at_a_sealed_start_is_not_tried_again() {
    let mut refused = 0;
    for nth in 1..=60 {
        let (rig, known, _) = sealed(FlashDesign::LazyCleaning, 31);
        let home = Faulty::wrap(rig.home.clone() as Arc<dyn Directory>);
        let config = PagerConfig { data: home.clone(), rollback: home.clone(), ..rig.config.clone() };
        let (when, fault) = (When::Nth(nth), Fault::Fails(ErrorKind::Io(5)));
        home.arm(Rule { operation: None, space: None, when, fault });
        drop(take_reached());
        let opened = Pager::open(config, Arc::new(common::NoOps));
        // Behind the seal's end, where a second start could go on.
        let has_seal = Control::open(&*rig.home).unwrap().unwrap().get().sealed.is_some();
        refused += u64::from(opened.is_err() && !has_seal);
        let again = take_reached().into_keys().find(|mark| mark.starts_with("open: once more"));
        assert_eq!(again, None, "operation {nth}");
        drop(opened);
        home.restart();
        check(&open(&rig.config), &known);
    }
    assert!(refused > 0);
}

/// A page that was mended at home may be as old as its copy: redo goes by all that the log has, and the start says so.
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

/// The sum keeps out records of another moment than their seal: without it they are believed.
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
        let opened = Pager::open(rig.config.clone(), Arc::new(common::NoOps));
        let has =
            |pager: &Pager, (id, number): &(PageId, u64)| get(pager, *id).is_ok_and(|found| found == *number);
        let is_right = opened.is_ok_and(|pager| known.iter().all(|one| has(&pager, one)));
        plant(None);
        assert_eq!(is_right, fault.is_none(), "{fault:?}");
    }
}

/// As `check`, of a cache whose frames are not those of its seal: the database may stop, and the next start has everything.
fn check_or_stop(config: &PagerConfig, known: &Known) -> Pager {
    let pager = open(config);
    for (id, number) in known {
        match get(&pager, *id) {
            Ok(found) => assert_eq!(found, *number, "{id}"),
            Err(stopped) => {
                assert!(stopped.to_string().contains("flash"), "{stopped}");
                drop(pager);
                let pager = open(config);
                check(&pager, known);
                return pager;
            }
        }
    }
    check(&pager, known);
    pager
}

/// Redo changes more pages than the pool and the queue have room for, before there are threads that write them.
#[test]
fn redo_waits_for_no_thread() {
    for design in DESIGNS.into_iter().filter(|design| design.is_lazy()) {
        let mut rig = rig(design, HomeLayout::InPlace, FlashRestart::LazyVerification);
        rig.config.background = true;
        rig.config.flash.as_mut().expect("there is a cache").queued_max = 20;
        let pager = open(&rig.config);
        let mut known = fill(&pager);
        for (id, number) in &mut known {
            *number += 1000;
            set(&pager, *id, *number).unwrap();
        }
        kill(pager);
        put(&rig.flash, &[]);
        take_reached();
        let pager = open(&rig.config);
        assert_eq!(take_reached().get("flash: a put waits for room"), None, "{design:?}");
        check(&pager, &known);
    }
}

#[test]
fn what_a_crash_left_is_gone_on_with() {
    for (layout, restart) in places() {
        for design in DESIGNS {
            let rig = rig(design, layout, restart);
            let (mut known, mut random, mut restored) = (Vec::new(), Random(5), 0);
            for round in 0..12 {
                let pager = open(&rig.config);
                if round == 0 {
                    known = fill(&pager);
                } else {
                    restored += counter(&pager, "restored");
                }
                if round % 3 == 1 {
                    check(&pager, &known);
                }
                work(&pager, &mut known, 300 + random.below(500), &mut random);
                kill(pager);
            }
            assert!(restored > 11 * 20, "{design:?} {restart:?}: {restored}");
            check(&open(&rig.config), &known);
        }
    }
}

/// The log is read from where the oldest records are, and redone from where home lacks something: what was changed in between is at home,
/// and a record that is older than that is of no use.
#[test]
fn what_was_changed_before_redo_starts_is_at_home() {
    const FAULT: &str = "flash: changes before redo are not looked at";
    for design in [FlashDesign::CleanWrite, FlashDesign::DualWrite] {
        let (mut came_by, mut wrong, mut behind) = (0, 0, 0);
        for seed in 0..20 {
            for fault in [None, Some(FAULT)] {
                let rig = rig(design, HomeLayout::InPlace, FlashRestart::LazyVerification);
                plant(fault);
                let pager = open(&rig.config);
                let (mut known, mut random) = (fill(&pager), Random(seed));
                work(&pager, &mut known, 1500, &mut random);
                pager.checkpoint_all().unwrap();
                let end = pager.log().end();
                kill(pager);
                let stored = Control::open(&*rig.home).unwrap().unwrap().get();
                take_reached();
                let pager = open(&rig.config);
                plant(None);
                if let Some(redo) = stored.stable {
                    let redone_bytes = pager.recovery().unwrap().redo.log_bytes;
                    assert!(redone_bytes < end.since(stored.redo), "{redone_bytes} bytes from {redo} on");
                    behind += 1;
                }
                came_by += take_reached().get("flash: home has what was changed before redo").unwrap_or(&0);
                let is_right = known.iter().all(|(id, number)| get(&pager, *id).unwrap() == *number);
                assert!(is_right || fault.is_some(), "{design:?}, seed {seed}");
                wrong += u64::from(!is_right);
            }
        }
        // Dual-write puts the newer version there, mostly into the same frame: it is another one, by its LSN.
        let is_found = wrong > 0 || design != FlashDesign::CleanWrite;
        assert!(
            came_by > 0 && behind > 0,
            "{design:?}: {came_by} times, redo behind the reading {behind} times"
        );
        assert!(is_found, "{design:?}: {wrong} wrong ones with the fault");
    }
}

/// Others go by all that is read: a map, images of pages.
#[test]
fn all_that_is_read_is_redone_where_others_go_by_it() {
    for (layout, protection) in [
        (HomeLayout::InPlace, ProtectionKind::None),
        (HomeLayout::InPlace, ProtectionKind::FullPageLog),
        (layouts()[1], ProtectionKind::None),
    ] {
        let mut rig = rig(FlashDesign::DualWrite, layout, FlashRestart::LazyVerification);
        rig.config.protection = protection;
        let pager = open(&rig.config);
        let (mut known, mut random, mut differ) = (fill(&pager), Random(19), 0);
        for _ in 0..50 {
            work(&pager, &mut known, 100, &mut random);
            pager.checkpoint_all().unwrap();
            differ += u32::from(Control::open(&*rig.home).unwrap().unwrap().get().stable.is_some());
        }
        let may_differ = layout == HomeLayout::InPlace && protection == ProtectionKind::None;
        assert_eq!(differ > 0, may_differ, "{layout:?} {protection:?}: {differ} times");
    }
}

/// Of an older file nothing is believed that may have changed since; nor of one of which parts are older. (Memory-mapped records are no
/// statements about the log: their drive is trusted not to go back.)
#[test]
fn an_older_cache_serves_no_older_page() {
    let schemes = [FlashRestart::LazyVerification, FlashRestart::LogBased];
    for (design, restart) in DESIGNS.into_iter().flat_map(|design| schemes.map(|restart| (design, restart))) {
        let rig = rig(design, HomeLayout::InPlace, restart);
        let (mut known, mut random) = (Vec::new(), Random(7));
        let mut older: Vec<MemoryImage> = Vec::new();
        for round in 0..16 {
            let pager = if round == 0 { open(&rig.config) } else { check_or_stop(&rig.config, &known) };
            if round == 0 {
                known = fill(&pager);
            }
            for _ in 0..2 {
                work(&pager, &mut known, 150 + random.below(300), &mut random);
                older.push(file(&rig.flash));
            }
            if random.below(2) == 0 {
                kill(pager)
            } else {
                pager.shutdown().unwrap()
            }
            let put_back = &older[random.below(older.len() as u64) as usize];
            put(&rig.flash, &mixed(&file(&rig.flash), put_back, &mut random));
        }
        drop(check_or_stop(&rig.config, &known));
    }
}

fn file(directory: &MemoryDirectory) -> MemoryImage {
    directory.images().into_iter().find(|(name, _)| name == FLASH_FILE).unwrap().1
}

fn bytes_of(image: &MemoryImage) -> Vec<u8> {
    let mut bytes = vec![0; image.len_bytes() as usize];
    image.read(0, &mut bytes);
    bytes
}

/// Blocks of the one or of the other.
fn mixed(one: &MemoryImage, other: &MemoryImage, random: &mut Random) -> Vec<u8> {
    let share = random.below(5);
    let mut bytes = bytes_of(one);
    for at in (0..one.len_bytes().min(other.len_bytes())).step_by(4096) {
        if random.below(4) < share {
            other.read(at, &mut bytes[at as usize..at as usize + 4096]);
        }
    }
    bytes
}

fn put(directory: &MemoryDirectory, bytes: &[u8]) {
    let file =
        directory.open(FLASH_FILE, varve_device::OpenHow::existing(varve_device::Space::Flash)).unwrap();
    let bytes = varve_device::AlignedBuf::copy_of(bytes);
    file.write_at(0, &bytes, varve_device::Purpose::FlashPage, varve_device::Durability::Now).unwrap();
}

/// A backup of the database is put back, and the cache has pages of what happened afterwards; or the cache is that of another copy.
#[test]
fn a_cache_of_another_history_is_not_believed() {
    let designs = [FlashDesign::DualWrite, FlashDesign::LazyCleaning];
    for (design, restart) in designs.into_iter().flat_map(|design| SCHEMES.map(|restart| (design, restart))) {
        let how = (HomeLayout::InPlace, restart);
        let first = rig(design, how.0, restart);
        let pager = open(&first.config);
        let (mut known, mut random) = (fill(&pager), Random(11));
        work(&pager, &mut known, 500, &mut random);
        kill(pager);
        let (backup, known_then) = (first.home.images(), known.clone());
        let pager = open(&first.config);
        work(&pager, &mut known, 500, &mut random);
        kill(pager);
        // The same log positions, with other changes.
        let home = MemoryDirectory::from_images(backup.clone());
        let flash = MemoryDirectory::from_images(first.flash.images());
        let pager = open(&on(&home, &flash, design, how).config);
        assert_eq!(counter(&pager, "restored"), 0, "{design:?} {restart:?}");
        check(&pager, &known_then);
        // A copy of the backup goes its own way, and gets the cache of the first.
        let mut known = known_then;
        let home = MemoryDirectory::from_images(backup);
        let other = on(&home, &MemoryDirectory::new(), design, how);
        for _ in 0..3 {
            let pager = open(&other.config);
            work(&pager, &mut known, 300, &mut random);
            kill(pager);
        }
        let swapped = on(&home, &MemoryDirectory::from_images(first.flash.images()), design, how);
        let pager = open(&swapped.config);
        assert_eq!(counter(&pager, "restored"), 0, "{design:?} {restart:?}");
        check(&pager, &known);
    }
}

fn warned(pager: &Pager) -> Vec<String> {
    pager.warnings().into_iter().filter(|warning| warning.starts_with("the flash cache")).collect()
}

/// Whoever counts on a warm start hears why it is a cold one; and nobody else hears of it.
#[test]
fn a_start_says_why_its_cache_is_cold() {
    for restart in SCHEMES {
        let rig = rig(FlashDesign::CleanWrite, HomeLayout::InPlace, restart);
        let plain = PagerConfig { flash: None, ..rig.config.clone() };
        let (pager, mut random) = (open(&plain), Random(5));
        let mut known = fill(&pager);
        kill(pager);
        let pager = open(&rig.config);
        assert_eq!(warned(&pager), [""; 0], "{restart:?}: there was none before");
        work(&pager, &mut known, 300, &mut random);
        let older = bytes_of(&file(&rig.flash));
        kill(pager);
        let spoilt = |at: usize| {
            let mut bytes = bytes_of(&file(&rig.flash));
            bytes[at] ^= 1;
            put(&rig.flash, &bytes);
        };
        let other = self::rig(FlashDesign::CleanWrite, HomeLayout::InPlace, restart);
        kill(open(&other.config));
        let cases: [(&str, &dyn Fn()); 5] = [
            ("is not that of the last start", &|| put(&rig.flash, &older)),
            ("is missing", &|| rig.flash.remove(FLASH_FILE).unwrap()),
            ("was emptied", &|| put(&rig.flash, &[0; 4096])),
            ("is damaged, or of another version", &|| spoilt(33)),
            ("is of another database", &|| put(&rig.flash, &bytes_of(&file(&other.flash)))),
        ];
        for (why, spoil) in cases {
            let pager = open(&rig.config);
            work(&pager, &mut known, 100, &mut random);
            kill(pager);
            spoil();
            let pager = open(&rig.config);
            let [told] = &warned(&pager)[..] else { panic!("{restart:?} {why}: {:?}", warned(&pager)) };
            assert!(told.contains("begins empty") && told.ends_with(why), "{restart:?}: {told}");
            kill(pager);
            assert_eq!(warned(&open(&rig.config)), [""; 0], "{restart:?}: behind one that {why}");
        }
        let mut larger = rig.config.clone();
        larger.flash.as_mut().unwrap().size_bytes += 40 * 4096;
        let pager = open(&larger);
        let [told] = &warned(&pager)[..] else { panic!("{restart:?}: {:?}", warned(&pager)) };
        assert!(told.ends_with("is not as long as it is configured to be"), "{told}");
        check(&pager, &known);
        kill(pager);
        let mut otherwise = larger.clone();
        let another = SCHEMES.into_iter().find(|scheme| *scheme != restart).unwrap();
        otherwise.flash.as_mut().unwrap().restart = another;
        let pager = open(&otherwise);
        let [told] = &warned(&pager)[..] else { panic!("{restart:?}: {:?}", warned(&pager)) };
        assert!(told.ends_with("was kept under another setting of restart"), "{told}");
        kill(pager);
        for is_new in [true, false] {
            let (flash, theirs) = (bytes_of(&file(&rig.flash)), config(&MemoryDirectory::new(), 40));
            if !is_new {
                kill(open(&theirs));
            }
            let pager = open(&PagerConfig { flash: otherwise.flash.clone(), ..theirs });
            let [told] = &warned(&pager)[..] else { panic!("{restart:?}: {:?}", warned(&pager)) };
            assert!(told.contains("takes the place of another database's"), "{told}");
            kill(pager);
            put(&rig.flash, &flash);
        }
        kill(open(&plain));
        assert_eq!(warned(&open(&larger)), [""; 0], "{restart:?}: the start before did without");
    }
}

/// The database is opened without its cache, changes, and the log is cut behind that; also where a start with the cache ended early at any
/// moment before.
#[test]
fn a_start_without_the_cache_is_its_end() {
    let designs = [FlashDesign::DualWrite, FlashDesign::LazyCleaning];
    for (design, restart) in designs.into_iter().flat_map(|design| SCHEMES.map(|restart| (design, restart))) {
        let (mut nth, mut early) = (1, 0);
        loop {
            let rig = rig(design, HomeLayout::InPlace, restart);
            let pager = open(&rig.config);
            let (mut known, mut random) = (fill(&pager), Random(nth));
            work(&pager, &mut known, 300, &mut random);
            kill(pager);
            let home = Faulty::wrap(rig.home.clone() as Arc<dyn Directory>);
            let faulty = PagerConfig {
                data: home.clone(),
                log: home.clone(),
                rollback: home.clone(),
                temporary: home.clone(),
                control: home.clone(),
                ..rig.config.clone()
            };
            home.arm(Rule {
                operation: Some(Operation::Write),
                space: None,
                when: When::Nth(nth),
                fault: Fault::Gone,
            });
            early += u64::from(Pager::open(faulty, Arc::new(common::NoOps)).is_err());
            let pager = open(&PagerConfig { flash: None, ..rig.config.clone() });
            for (id, number) in &mut known {
                *number = random.below(1 << 40);
                set(&pager, *id, *number).unwrap();
            }
            pager.checkpoint_all().unwrap();
            pager.shutdown().unwrap();
            drop(pager);
            let pager = open(&rig.config);
            assert_eq!(
                counter(&pager, "restored"),
                0,
                "{design:?} {restart:?}: start that ended at write {nth}"
            );
            check(&pager, &known);
            if home.fired_count() == 0 {
                break;
            }
            nth += 1;
        }
        assert!(early > 3, "{design:?} {restart:?}: {early} of {nth}");
    }
}

/// The drive fails while its pages are found again, and used by redo.
#[test]
fn a_drive_that_fails_at_the_start_costs_no_commit() {
    let designs = [FlashDesign::DualWrite, FlashDesign::LazyCleaning, FlashDesign::Exclusive];
    for (design, restart) in designs.into_iter().flat_map(|design| SCHEMES.map(|restart| (design, restart))) {
        for operation in [Operation::Read, Operation::Write] {
            for nth in 1..30 {
                let rig = rig(design, HomeLayout::InPlace, restart);
                let pager = open(&rig.config);
                let (mut known, mut random) = (fill(&pager), Random(nth));
                work(&pager, &mut known, 400, &mut random);
                kill(pager);
                let fault = Fault::Fails(ErrorKind::Io(5));
                let when = if nth % 2 == 0 { When::From(nth) } else { When::Nth(nth) };
                rig.device.arm(Rule { operation: Some(operation), space: None, when, fault });
                let opened = Pager::open(rig.config.clone(), Arc::new(common::NoOps));
                if let Ok(pager) = opened {
                    for (id, number) in &known {
                        // It may stop when only redo has a page; what it gives is right.
                        if let Ok(found) = get(&pager, *id) {
                            assert_eq!(found, *number, "{design:?} {restart:?} {operation:?} {nth}: {id}");
                        }
                    }
                }
                rig.device.disarm();
                check(&open(&rig.config), &known);
            }
        }
    }
}

/// Threads keep the records, and checkpoints wait for them.
#[test]
fn threads_keep_records() {
    let designs = [FlashDesign::DualWrite, FlashDesign::LazyCleaning];
    for (design, restart) in designs.into_iter().flat_map(|design| SCHEMES.map(|restart| (design, restart))) {
        let rig = rig(design, HomeLayout::InPlace, restart);
        let config = PagerConfig { background: true, ..rig.config.clone() };
        let (mut known, mut random, mut restored) = (Vec::new(), Random(13), 0);
        for round in 0..6 {
            let pager = open(&config);
            if round == 0 {
                known = fill(&pager);
            }
            restored += counter(&pager, "restored");
            work(&pager, &mut known, 3000, &mut random);
            // Either way nothing but flash may have some of it.
            if round % 2 == 0 {
                pager.shutdown().unwrap()
            } else {
                pager.flush_log(pager.log().end()).unwrap()
            }
            drop(pager);
        }
        assert!(restored > 5 * 20, "{design:?} {restart:?}: {restored}");
        check(&open(&config), &known);
    }
}
