//! Test: a packed space writes pages to devices that are full, have holes, or refuse writes. There is no
//! buffer pool above it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use varve_device::{
    Directory, Emulated, ErrorKind, Fault, Faulty, MemoryDirectory, OpenHow, Operation, Profile, Rule, Space,
    When,
};

use crate::base::compression::Compression;
use crate::base::error::Result;
use crate::base::ids::{Access, PageId, PageNo, PageRange, SpaceId};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::home::compression::by_owner::Compressions;
use crate::home::layout::Layout;
use crate::home::packed::checkpoint::DIRTY_MAX;
use crate::home::packed::config::PackedConfig;
use crate::home::packed::extents::ExtentNo;
use crate::home::packed::format::PLACES;
use crate::home::packed::reclaim::{LAST_EXTENTS, SHARE_EXTENTS_MAX};
use crate::home::packed::unit_run::UnitRun;
use crate::home::packed::{Fill, Identity, PackedParts, PackedSpace};
use crate::level::{Cause, Need, Step, Want};
use crate::log::{FIRST_LSN, LogConfig, StoredLog, Tail};

const PAGE_BYTES: usize = 4096;
const EXTENT_BYTES: u64 = 64 << 10;
/// Pages of an extent that has no header.
const EXTENT_PAGES: u32 = 16;
/// The offset in a page at which tests store a number.
const NUMBER: usize = 200;

/// Returns a packed space with plain pages. All pages are granted, whether there is space for them or not.
fn space(data: &dyn Directory, fill_percent: u8) -> PackedSpace {
    let log =
        LogConfig { directory: MemoryDirectory::new(), segment_bytes: 1 << 20, capacity_bytes: 16 << 20 };
    let log = StoredLog::open(log, 7).unwrap().resume(1, Tail::empty(), FIRST_LSN).unwrap();
    let config = PackedConfig { extent_bytes: EXTENT_BYTES, fill_percent, ..PackedConfig::DEFAULT };
    let parts = PackedParts {
        log: Arc::new(log),
        ledger: Arc::default(),
        compressions: Arc::new(Compressions::new(Compression::NONE)),
        trim: Arc::default(),
        fill: Arc::new(Fill::new(fill_percent)),
        config,
        redo: Lsn::ZERO,
    };
    let who = Identity { space: SpaceId::DATA, database: 7, page_size: PAGE_BYTES };
    let space = PackedSpace::create(data, &who, parts).unwrap();
    space.pages.store(100_000, Relaxed);
    space
}

fn image(no: u32, number: u64) -> Image {
    let id = PageId::new(SpaceId::DATA, PageNo(no));
    let mut bytes = vec![0; PAGE_BYTES];
    page::format(&mut bytes, id, 16, 20);
    bytes[NUMBER..NUMBER + 8].copy_from_slice(&number.to_le_bytes());
    Image::of(id, &bytes, Access::Random)
}

/// Writes pages that contain this number.
fn put(space: &PackedSpace, pages: impl IntoIterator<Item = u32>, number: u64) -> Result<()> {
    let images: Vec<Image> = pages.into_iter().map(|no| image(no, number)).collect();
    space.write(&images.iter().collect::<Vec<_>>(), Cause::Evict, Need::Held)
}

fn get(space: &PackedSpace, no: u32) -> u64 {
    let mut frame = varve_device::AlignedBuf::new(PAGE_BYTES);
    let mut want = Want::Page { frame: &mut frame, got: None };
    space.read(&mut [(PageId::new(SpaceId::DATA, PageNo(no)), &mut want)]).unwrap();
    u64::from_le_bytes(frame[NUMBER..NUMBER + 8].try_into().unwrap())
}

fn place(space: &PackedSpace, no: u32) -> UnitRun {
    space.map.load(PageNo(no)).unwrap()
}

/// Discards pages. The LSN of the discard is the present end of the log.
fn discard(space: &PackedSpace, first: u32, count: u32) {
    let first = PageId::new(SpaceId::DATA, PageNo(first));
    space.discard(PageRange { first, count }, space.log.end()).unwrap();
}

fn free_count(space: &PackedSpace) -> u32 {
    space.book.lock().extents().free_count()
}

/// Returns a space whose file can't grow. The last two extents are free, and in the second one a page is
/// still live. All other extents, and the one that is being filled, are full of live pages. The file is
/// filled beyond its limit.
fn brim() -> PackedSpace {
    let space = space(&*MemoryDirectory::with_capacity(8 * EXTENT_BYTES), 50);
    put(&space, 0..15, 1).unwrap();
    put(&space, 100..100 + EXTENT_PAGES, 1).unwrap();
    (1..5).for_each(|extent| put(&space, extent * 1000..extent * 1000 + EXTENT_PAGES, 1).unwrap());
    space.settle().unwrap();
    discard(&space, 101, EXTENT_PAGES - 1);
    assert_eq!((free_count(&space), space.counters.moved_pages.load(Relaxed)), (LAST_EXTENTS, 0));
    assert!(space.is_filled() && !space.is_full.load(Relaxed));
    space
}

/// Reclamation moves one page, which leaves nearly a whole extent to fill, but no further extent is free. An
/// earlier version wrongly reported this as a lack of space.
#[test]
fn room_behind_what_was_moved_is_room() {
    let space = brim();
    put(&space, [200], 2).unwrap();
    assert_eq!((get(&space, 200), get(&space, 100), get(&space, 3007)), (2, 1, 1));
    assert!(space.is_full.load(Relaxed), "the device was asked first");
}

/// Another thread still reads slots in both extents that are left. An earlier version refused a put in this
/// case.
#[test]
fn readers_of_the_last_extents_are_waited_for() {
    let space = brim();
    let readers = [6, 7].map(|extent| space.enter(ExtentNo(extent)));
    std::thread::scope(|scope| {
        let put = scope.spawn(|| put(&space, [200], 2));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!put.is_finished());
        drop(readers);
        put.join().unwrap().unwrap();
    });
    assert_eq!((get(&space, 200), get(&space, 100)), (2, 1));
}

/// Three free extents are being read at one moment. An earlier version made the file longer by a whole step
/// in this case.
#[test]
fn a_file_does_not_grow_for_readers_that_are_soon_gone() {
    let space = space(&*MemoryDirectory::new(), 80);
    put(&space, 0..15, 1).unwrap();
    put(&space, [100], 1).unwrap();
    let count = space.book.lock().extents().count();
    put(&space, 101..100 + EXTENT_PAGES, 1).unwrap();
    let readers: Vec<_> = (0..count).map(|extent| space.enter(ExtentNo(extent))).collect();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| put(&space, [200], 2));
        std::thread::sleep(Duration::from_millis(30));
        drop(readers);
        put.join().unwrap().unwrap();
    });
    assert_eq!((get(&space, 200), space.book.lock().extents().count()), (2, count));
}

/// In an earlier version, a refused put lost the end of the extent that was being filled, until the extent
/// was emptied. A put longer than an extent filled whole extents with nothing.
#[test]
fn a_refused_put_gives_its_slots_back() {
    let device = Faulty::wrap(MemoryDirectory::new());
    let space = space(&*device, 80);
    put(&space, 0..3, 1).unwrap();
    let (fault, when) = (Fault::Fails(ErrorKind::NoSpace), When::From(1));
    let rule = Rule { operation: Some(Operation::Write), space: Some(Space::Data), when, fault };
    device.arm(rule);
    assert!(put(&space, 3..6, 2).unwrap_err().is_no_space());
    device.disarm();
    put(&space, 3..6, 3).unwrap();
    assert_eq!(place(&space, 3).address(), place(&space, 2).end());
    space.settle().unwrap();
    let (free, live) = (free_count(&space), space.book.lock().extents().live_units());
    device.arm(Rule {
        operation: Some(Operation::Write),
        space: Some(Space::Data),
        when: When::From(1),
        fault: Fault::Fails(ErrorKind::NoSpace),
    });
    for _ in 0..20 {
        assert!(put(&space, 100..140, 4).unwrap_err().is_no_space());
    }
    device.disarm();
    // One extent was begun for the refused pages, and is still being filled.
    assert!(free_count(&space) + 1 >= free, "{free}, then {}", free_count(&space));
    assert_eq!(space.book.lock().extents().live_units(), live);
    put(&space, 100..140, 5).unwrap();
    assert_eq!((get(&space, 2), get(&space, 5), get(&space, 139)), (1, 3, 5));
}

/// If all slots of the extent that is being filled are dead, the extent is free, and is begun again.
#[test]
fn an_extent_that_was_filled_with_nothing_is_begun_again() {
    let space = space(&*MemoryDirectory::with_capacity(4 * EXTENT_BYTES), 80);
    put(&space, 0..15, 1).unwrap();
    put(&space, 100..100 + EXTENT_PAGES, 1).unwrap();
    space.settle().unwrap();
    discard(&space, 100, EXTENT_PAGES);
    assert_eq!(free_count(&space), LAST_EXTENTS);
    put(&space, [200], 2).unwrap();
    assert_eq!((get(&space, 200), free_count(&space)), (2, LAST_EXTENTS));
}

/// After a start it is unknown which free extents have their blocks. In an earlier version, a full device
/// refused the first of them, which had been punched, and the others were not tried.
#[test]
fn extents_that_have_their_blocks_are_found_among_holes() {
    const CAPACITY: u64 = 64 * EXTENT_BYTES;
    let device = Emulated::sized(MemoryDirectory::new(), Profile::shipped("nvme").unwrap(), 1e-6, CAPACITY);
    let space = space(&*device, 90);
    put(&space, 0..15, 1).unwrap();
    (1..6).for_each(|extent| put(&space, extent * 1000..extent * 1000 + EXTENT_PAGES, 1).unwrap());
    space.settle().unwrap();
    space.grow(24).unwrap();
    // Every free extent may be a hole. Here all of them are holes, except four in the middle.
    let (file, count) = (device.open("data.varve", OpenHow::existing(Space::Data)).unwrap(), 30);
    let free: Vec<u32> = {
        let mut book = space.book.lock();
        let extents = book.extents_mut();
        let mut free = Vec::new();
        while let Some(run) = extents.take_run(0, 1, 1, |_| false) {
            free.push(run.start);
            extents.give_back(run, true);
        }
        free
    };
    assert!(free.len() >= 24, "{free:?}");
    let has_blocks = |no: &u32| (count - 6..count - 2).contains(no);
    for no in free.iter().filter(|no| !has_blocks(no)) {
        file.punch(u64::from(*no) * EXTENT_BYTES, EXTENT_BYTES).unwrap();
    }
    let other = device.open("other", OpenHow::or_create(Space::Temporary)).unwrap();
    let mut taken = 0;
    while other.set_len(taken + 4096).is_ok() {
        taken += 4096;
    }
    for round in 2..60 {
        put(&space, [round % 15, 1000 + round % EXTENT_PAGES, 2000 + round % 7], u64::from(round)).unwrap();
    }
    assert_eq!((get(&space, 59 % 15), get(&space, 1000 + 59 % EXTENT_PAGES), get(&space, 5003)), (59, 59, 1));
    // Extents that were refused are tried again when other files have released space.
    other.set_len(0).unwrap();
    let hollow = space.book.lock().extents().hollow_count();
    (10..14).for_each(|extent| put(&space, extent * 1000..extent * 1000 + EXTENT_PAGES, 1).unwrap());
    assert!(space.book.lock().extents().hollow_count() < hollow);
}

/// Writes pages again and again, most of the writes to a few pages. Returns the number of puts that moved
/// pages. `look` gets the free extents before each put, and the bytes that the put moved.
fn churn(space: &PackedSpace, pages: u32, writes: u64, look: impl Fn(u32, u64)) -> u64 {
    let (mut seed, mut shares) = (7_u64, 0);
    for round in 0..writes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let no = (seed >> 33) as u32 % if round % 5 == 0 { pages } else { pages / 5 };
        let (free, moved) = (free_count(space), space.counters.moved_bytes.load(Relaxed));
        put(space, [no], round).unwrap();
        let moved = space.counters.moved_bytes.load(Relaxed) - moved;
        look(free, moved);
        shares += u64::from(moved > 0);
        if round % 16 == 0 {
            space.settle().unwrap();
        }
    }
    shares
}

/// If a device has no space for a longer file, the file is filled beyond its limit. When the device has space
/// again, the file grows after the next checkpoint, and fewer pages are moved.
#[test]
fn a_device_that_was_full_is_asked_again() {
    let device = Faulty::wrap(MemoryDirectory::new());
    let space = space(&*device, 60);
    (0..60).for_each(|eight| put(&space, eight * 8..eight * 8 + 8, 1).unwrap());
    churn(&space, 480, 2000, |_, _| {});
    let extents = || space.book.lock().extents().count();
    let before = extents();
    let fault = Fault::Fails(ErrorKind::NoSpace);
    device.arm(Rule {
        operation: Some(Operation::SetLen),
        space: Some(Space::Data),
        when: When::From(1),
        fault,
    });
    (60..80).for_each(|eight| put(&space, eight * 8..eight * 8 + 8, 1).unwrap());
    let shares = churn(&space, 640, 2000, |free, _| assert!(free > 0));
    assert!(space.is_filled() && space.is_full.load(Relaxed) && shares > 20, "{shares}");
    assert_eq!(extents(), before);
    // A refusal after each checkpoint changes nothing.
    space.checkpoint(Step::End).unwrap();
    assert!(churn(&space, 640, 1000, |free, _| assert!(free > 0)) > 10);
    assert_eq!(extents(), before);
    device.disarm();
    space.checkpoint(Step::End).unwrap();
    churn(&space, 640, 1000, |_, _| {});
    assert!(extents() > before && !space.is_full.load(Relaxed), "{before}, then {}", extents());
}

/// Invariant 1 of `home/packed/reclaim.rs`: whatever is written, another turn is possible.
#[test]
fn a_put_leaves_an_extent_for_the_next_turn() {
    let space = space(&*MemoryDirectory::with_capacity(40 * EXTENT_BYTES), 90);
    (0..60).for_each(|eight| put(&space, eight * 8..eight * 8 + 8, 1).unwrap());
    let shares = churn(&space, 480, 4000, |_, _| assert!(free_count(&space) > 0));
    assert!(shares > 20, "{shares}");
}

/// A put moves no more than its share, as long as there are free extents beside the reserve.
#[test]
fn a_put_meets_one_share() {
    let mut space = space(&*MemoryDirectory::new(), 90);
    (0..125).for_each(|eight| put(&space, eight * 8..eight * 8 + 8, 1).unwrap());
    // Half of each extent is dead, and there is space to move all live pages at once.
    (0..500).for_each(|no| put(&space, [no * 2], 2).unwrap());
    space.settle().unwrap();
    space.grow(64).unwrap();
    space.config.moves_always = true;
    let shares = churn(&space, 1000, 2000, |free, moved| {
        assert!(free > LAST_EXTENTS + 1 && moved <= SHARE_EXTENTS_MAX * EXTENT_BYTES, "{moved} bytes");
    });
    assert!(shares > 20, "{shares}");
}

/// The map is copied when many of its pages have changed, even if the log since the last copy is short.
/// Otherwise the copy would take long.
#[test]
fn a_map_of_which_much_has_changed_is_copied() {
    let space = space(&*MemoryDirectory::new(), 80);
    let pages = (DIRTY_MAX as u32 + 1) * PLACES;
    space.pages.store(pages, Relaxed);
    space.map_file.resize(pages).unwrap();
    let checkpoints = || space.counters.map_checkpoints.load(Relaxed);
    let put_one_in_each = |map_pages: std::ops::Range<u32>| {
        put(&space, map_pages.map(|map_page| map_page * PLACES), 1).unwrap();
        space.settle().unwrap();
        space.checkpoint(Step::Begin).unwrap();
    };
    put_one_in_each(0..DIRTY_MAX as u32 - 1);
    assert_eq!((checkpoints(), space.book.lock().dirty().len()), (0, DIRTY_MAX - 1));
    put_one_in_each(DIRTY_MAX as u32 - 1..DIRTY_MAX as u32);
    assert_eq!((checkpoints(), space.book.lock().dirty().len()), (1, 0));
}
