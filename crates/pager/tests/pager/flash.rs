//! Pages that are read from a flash cache are always the newest versions, even if the device of the cache
//! fails.

use std::sync::Arc;

use crate::common::{Random, add, config, get, open};
use crate::flash_support::{Known, check, counter, designs, fill, work};
use crate::nvm_support::{DOUBLEWRITE, NVM_PAGES, with};
use varve_device::{
    Directory, ErrorKind, Fault, Faulty, MemoryDirectory, OpenHow, Operation, Rule, Space, When,
};
use varve_pager::{
    Access, FLASH_FILE, FlashConfig, FlashDesign, FlashRestart, FlashScans, FlashSettings, HomeLayout,
    PackedConfig, PageId, Pager, PagerConfig, SpaceId,
};

/// The number of pages of the cache. It is larger than the number of frames in the pool, and smaller than the
/// number of pages.
const CACHE_PAGES: u64 = 80;
/// This number of errors in succession ends the cache.
const ERRORS_MAX: u64 = 8;

fn cache(directory: Arc<dyn Directory>, design: FlashDesign) -> Option<FlashConfig> {
    Some(FlashConfig::with(
        directory,
        FlashSettings {
            design,
            restart: FlashRestart::None,
            ..FlashSettings::of_size(4096 + CACHE_PAGES * 4096)
        },
    ))
}

/// A database with a cache on a device of its own, which can be made to fail.
struct Rig {
    config: PagerConfig,
    flash: Arc<MemoryDirectory>,
    device: Arc<Faulty>,
}

fn rig(base: PagerConfig, design: FlashDesign) -> Rig {
    let flash = MemoryDirectory::new();
    let device = Faulty::wrap(flash.clone() as Arc<dyn Directory>);
    Rig { config: PagerConfig { flash: cache(device.clone(), design), ..base }, flash, device }
}

/// Returns the configurations to which a cache is added: in place, packed, and below persistent memory.
fn bases() -> [PagerConfig; 3] {
    let packed = HomeLayout::Packed(PackedConfig {
        extent_bytes: 64 << 10,
        held_pages_max: 16,
        ..PackedConfig::DEFAULT
    });
    [
        config(&MemoryDirectory::new(), 40),
        PagerConfig { layout: packed, ..config(&MemoryDirectory::new(), 40) },
        PagerConfig { pool_bytes: 40 * 4096, ..with(&MemoryDirectory::new(), NVM_PAGES) },
    ]
}

/// Does the same as `work`, with page writers now and then.
fn work_and_write(pager: &Pager, known: &mut Known, steps: u64, random: &mut Random) {
    for _ in 0..steps / 50 {
        work(pager, known, 50, random);
        pager.tick_write(10).unwrap();
    }
}

#[test]
fn pages_are_read_from_flash_and_are_the_newest() {
    let all = bases().into_iter().flat_map(|base| designs().map(move |design| (base.clone(), design)));
    for (base, design) in all {
        let rig = rig(base, design);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(7));
        work_and_write(&pager, &mut known, 3000, &mut random);
        check(&pager, &known);
        assert!(counter(&pager, "read_hits") > 100, "{}", counter(&pager, "read_hits"));
        let gives_up = design == FlashDesign::Exclusive;
        assert!(gives_up || counter(&pager, "invalidated") > 10, "{design:?}");
        assert_eq!(counter(&pager, "admitted_dirty") > 0, design != FlashDesign::CleanWrite);
        // A start finds the cache empty, after a crash and after a shutdown.
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        for is_last in [false, true] {
            let pager = open(&rig.config);
            assert_eq!(counter(&pager, "damaged"), 0);
            work_and_write(&pager, &mut known, 500, &mut random);
            check(&pager, &known);
            if !is_last {
                pager.shutdown().unwrap();
            }
        }
    }
}

/// The pages that are used again are those of dropped segments, and of the end of a file that was cut off.
#[test]
fn pages_that_are_used_again_are_not_those_of_before() {
    for design in designs() {
        let rig = rig(config(&MemoryDirectory::new(), 40), design);
        let pager = open(&rig.config);
        let kept = fill(&pager);
        for round in 0..5 {
            let owner = pager.create_segment(SpaceId::DATA).unwrap();
            let ids: Vec<PageId> =
                (0..150).map(|no| add(&pager, owner, round * 1000 + no).unwrap()).collect();
            for (id, no) in ids.iter().zip(0..) {
                assert_eq!(get(&pager, *id).unwrap(), round * 1000 + no);
            }
            pager.drop_segment(SpaceId::DATA, owner).unwrap();
            if round % 2 == 1 {
                while pager.tick_write(1000).unwrap() > 0 {}
                pager.checkpoint().unwrap();
            }
            check(&pager, &kept);
        }
    }
}

/// A scan that is larger than the cache does not change the contents of the cache.
#[test]
fn a_scan_is_not_admitted() {
    let rig = rig(config(&MemoryDirectory::new(), 40), FlashDesign::CleanWrite);
    let pager = open(&rig.config);
    let known = fill(&pager);
    while pager.tick_write(1000).unwrap() > 0 {}
    let read = |access| known.iter().for_each(|(id, _)| drop(pager.fix_s(*id, access).unwrap()));
    (0..3).for_each(|_| read(Access::Random));
    assert!(counter(&pager, "free") * 20 <= CACHE_PAGES, "it is full");
    let before = counter(&pager, "admitted_clean");
    read(Access::Sequential);
    read(Access::Sequential);
    let admitted = counter(&pager, "admitted_clean") - before;
    assert!(admitted <= 40, "{admitted}: those that were in the pool");
    assert!(counter(&pager, "refused_sequential") > 100);
}

/// The classifier by proximity recognizes a scan from the addresses of pages alone. Pages that are far from
/// each other are no scan, whatever access the caller reports.
#[test]
fn by_proximity_a_scan_is_not_admitted() {
    let mut rig = rig(config(&MemoryDirectory::new(), 40), FlashDesign::CleanWrite);
    rig.config.flash.as_mut().unwrap().settings.scans = FlashScans::Proximity;
    let pager = open(&rig.config);
    let known = fill(&pager);
    while pager.tick_write(1000).unwrap() > 0 {}
    let in_order: Vec<PageId> = known.iter().map(|(id, _)| *id).collect();
    let (low, high) = in_order.split_at(in_order.len() / 2);
    let far_apart: Vec<PageId> = low.iter().zip(high).flat_map(|(one, other)| [*one, *other]).collect();
    let admitted = |ids: &[PageId], access| {
        let before = counter(&pager, "admitted_clean");
        ids.iter().for_each(|id| drop(pager.fix_s(*id, access).unwrap()));
        counter(&pager, "admitted_clean") - before
    };
    for _ in 0..3 {
        admitted(&far_apart, Access::Random);
    }
    assert!(counter(&pager, "free") * 20 <= CACHE_PAGES, "it is full");
    admitted(&in_order, Access::Random);
    let scanned = admitted(&in_order, Access::Random);
    assert!(scanned <= 10, "{scanned}: of a cache that has all but few of them");
    let random = admitted(&far_apart, Access::Sequential);
    assert!(random > 40, "{random}");
}

/// Works while the device has this fault. Returns the number of slots that were counted as damaged, and
/// whether the cache is lost.
fn under(operation: Option<Operation>, when: When, fault: Fault) -> (u64, bool) {
    let rig = rig(config(&MemoryDirectory::new(), 40), FlashDesign::DualWrite);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(3));
    work_and_write(&pager, &mut known, 500, &mut random);
    rig.device.arm(Rule { operation, space: None, when, fault });
    work_and_write(&pager, &mut known, 1500, &mut random);
    assert!(rig.device.fired_count() > 0);
    check(&pager, &known);
    let found = (counter(&pager, "damaged"), counter(&pager, "is_lost") == 1);
    let told = pager.take_notices();
    assert_eq!(told.len(), usize::from(found.1), "{told:?}");
    assert!(
        told.iter().all(|notice| notice.starts_with("the flash cache on ") && notice.contains(" is lost: "))
    );
    pager.shutdown().unwrap();
    drop(pager);
    rig.device.disarm();
    check(&open(&rig.config), &known);
    found
}

#[test]
fn an_error_costs_a_read_and_many_cost_the_cache() {
    let eio = Fault::Fails(ErrorKind::Io(5));
    for operation in [Operation::Read, Operation::Write] {
        for fault in [eio.clone(), Fault::Short, Fault::HalfFull, Fault::Fails(ErrorKind::NoSpace)] {
            if operation == Operation::Read && fault == Fault::HalfFull {
                continue;
            }
            // A frame that can't be read is given up.
            let most = u64::from(operation == Operation::Read);
            let (damaged, is_lost) = under(Some(operation), When::Nth(3), fault.clone());
            assert!(damaged <= most && !is_lost, "{operation:?} {fault:?}: {damaged}");
            let (damaged, is_lost) = under(Some(operation), When::From(3), fault.clone());
            assert!(is_lost && (damaged == 0 || most > 0), "{operation:?} {fault:?}: {damaged}");
        }
    }
    let (damaged, is_lost) = under(None, When::From(3), Fault::Gone);
    assert!(damaged <= ERRORS_MAX && is_lost, "{damaged}");
}

/// These faults report success.
#[test]
fn a_device_that_lies_serves_no_wrong_page() {
    let lies = [
        (Operation::Write, Fault::Lost),
        (Operation::Write, Fault::Misdirected { by_bytes: 4096 }),
        (Operation::Write, Fault::BitFlip { bit: 12_345 }),
        (Operation::Read, Fault::BitFlip { bit: 12_345 }),
    ];
    for (operation, fault) in lies {
        let (damaged, is_lost) = under(Some(operation), When::From(1), fault.clone());
        assert!(damaged > 10 && !is_lost, "{fault:?}: {damaged}");
    }
}

#[test]
fn a_frame_that_is_not_what_was_written_is_not_believed() {
    let rig = rig(config(&MemoryDirectory::new(), 40), FlashDesign::CleanWrite);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(5));
    work_and_write(&pager, &mut known, 2000, &mut random);
    // Every frame holds what its neighbour should hold. The pages are whole, but they are the wrong ones.
    let file = rig.flash.open(FLASH_FILE, OpenHow::existing(Space::Flash)).unwrap();
    let mut bytes = varve_device::AlignedBuf::new((CACHE_PAGES * 4096) as usize);
    file.read_at(4096, &mut bytes, varve_device::Purpose::FlashPage).unwrap();
    bytes.rotate_left(4096);
    let later = varve_device::Durability::Later;
    file.write_at(4096, &bytes, varve_device::Purpose::FlashPage, later).unwrap();
    check(&pager, &known);
    assert!(counter(&pager, "damaged") > 10);
    work_and_write(&pager, &mut known, 1000, &mut random);
    check(&pager, &known);
    assert_eq!(counter(&pager, "is_lost"), 0);
}

#[test]
fn a_design_is_changed_while_the_database_is_open() {
    let rig = rig(config(&MemoryDirectory::new(), 40), FlashDesign::Off);
    let pager = open(&rig.config);
    let (mut known, mut random) = (fill(&pager), Random(11));
    for design in [FlashDesign::Off, FlashDesign::DualWrite, FlashDesign::CleanWrite, FlashDesign::Off] {
        pager.set_flash_design(design).unwrap();
        assert_eq!(pager.flash_design(), Some(design));
        let before = counter(&pager, "read_hits");
        work_and_write(&pager, &mut known, 800, &mut random);
        check(&pager, &known);
        assert_eq!(counter(&pager, "read_hits") > before, design != FlashDesign::Off);
    }
    assert_eq!(counter(&pager, "clean"), 0);
    let without = open(&config(&MemoryDirectory::new(), 40));
    let error = without.set_flash_design(FlashDesign::DualWrite).unwrap_err().to_string();
    assert!(error.contains("configure [flash]"), "{error}");
}

/// The database continues without the cache, with a warning. A file that does not belong to the cache is not
/// changed.
#[test]
fn what_keeps_the_cache_from_being_opened_is_a_warning() {
    let rig = rig(config(&MemoryDirectory::new(), 40), FlashDesign::DualWrite);
    let foreign = rig.flash.open(FLASH_FILE, OpenHow::new_file(Space::Flash)).unwrap();
    let mine = varve_device::AlignedBuf::copy_of(&[b'x'; 8192]);
    foreign.write_at(0, &mine, varve_device::Purpose::FlashPage, varve_device::Durability::Now).unwrap();
    let opened = |words: &str| {
        let pager = open(&rig.config);
        let said = pager.warnings().join("; ");
        assert!(said.contains(words), "{said}");
        assert_eq!(pager.flash_design(), None);
        check(&pager, &fill(&pager));
    };
    opened(
        "there is no flash cache: (memory)/flash.varve is no flash cache, or a damaged one, and is left as it is",
    );
    let mut kept = varve_device::AlignedBuf::new(8192);
    foreign.read_at(0, &mut kept, varve_device::Purpose::FlashPage).unwrap();
    assert_eq!(kept[..], mine[..]);
    drop(foreign);
    rig.flash.remove(FLASH_FILE).unwrap();
    let full = Fault::Fails(ErrorKind::NoSpace);
    rig.device.arm(Rule {
        operation: Some(Operation::SetLen),
        space: None,
        when: When::From(1),
        fault: full,
    });
    opened("; starting without the cache. Lower [flash] size");
    assert!(!rig.flash.exists(FLASH_FILE).unwrap(), "what was begun is gone");
    rig.device.disarm();
    // An emptied file is taken, and so is a file that another database had.
    for size_bytes in [0, 4096 * 10] {
        let file = rig.flash.open(FLASH_FILE, OpenHow::or_create(Space::Flash)).unwrap();
        file.set_len(size_bytes).unwrap();
        let pager = open(&rig.config);
        assert!(pager.warnings().is_empty(), "{:?}", pager.warnings());
    }
}

#[test]
fn a_cache_that_is_too_small_is_refused() {
    let mut config = PagerConfig { protection: DOUBLEWRITE, ..config(&MemoryDirectory::new(), 40) };
    config.flash = cache(MemoryDirectory::new(), FlashDesign::DualWrite);
    config.flash.as_mut().unwrap().settings.size_bytes = 4096 * 10;
    let error = Pager::open(config, Arc::new(crate::common::NoOps)).err().unwrap().to_string();
    assert!(error.contains("holds 8 pages: give it room for at least 16"), "{error}");
}

/// If there are threads, they write the pages that other threads evict.
#[test]
fn threads_write_what_is_queued() {
    for design in designs() {
        let mut base = config(&MemoryDirectory::new(), 40);
        base.background = true;
        let rig = rig(base, design);
        let pager = open(&rig.config);
        let (mut known, mut random) = (fill(&pager), Random(13));
        // A page that finds the queue full is not taken, so the threads decide how much of one round is on
        // flash.
        for _ in 0..20 {
            work_and_write(&pager, &mut known, 2000, &mut random);
            if counter(&pager, "read_hits") > 0 {
                break;
            }
        }
        assert!(counter(&pager, "read_hits") > 0, "{design:?}");
        known.iter().for_each(|(id, number)| assert_eq!(get(&pager, *id).unwrap(), *number, "{id}"));
        pager.shutdown().unwrap();
    }
}
