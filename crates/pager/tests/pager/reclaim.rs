//! Reclamation of packed spaces: an almost full file still takes writes, nothing is lost on a full device,
//! and free space goes back to the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{NoOps, Random, add, get, on_large_sectors, set};
use varve_device::{
    AlignedBuf, Directory, Durability, ErrorKind, Fault, Faulty, FileDirectory, FileOptions, MemoryDirectory,
    OpenHow, Operation, Purpose, Rule, Space, When,
};
use varve_pager::{
    Algorithm, Compression, HomeLayout, PackedConfig, PageId, Pager, PagerConfig, PagerError, SpaceId, Trim,
};

const EXTENT_BYTES: u64 = 64 << 10;
/// The length of the longest file on a bounded device.
const FULL_BYTES: u64 = 8 << 20;

fn config(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let mut config = crate::common::config(directory, 40);
    let packed = PackedConfig {
        extent_bytes: EXTENT_BYTES,
        held_pages_max: 16,
        fill_percent: 90,
        ..PackedConfig::DEFAULT
    };
    config.layout = HomeLayout::Packed(packed);
    config
}

/// Returns a database whose data files have only this room. All other files have enough.
fn bounded(full_bytes: u64) -> (PagerConfig, Arc<MemoryDirectory>) {
    let data = MemoryDirectory::with_capacity(full_bytes);
    let mut config = config(&MemoryDirectory::new());
    config.data = data.clone();
    (config, data)
}

fn open(config: &PagerConfig) -> Pager {
    crate::common::open(config)
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    levels.iter().flat_map(|level| &level.counters).filter(|(found, _)| *found == name).map(|(_, n)| *n).sum()
}

fn is_full(error: &PagerError) -> bool {
    matches!(error, PagerError::Device(device) if device.is_no_space())
}

/// Pages, and what is in them.
type Known = Vec<(PageId, u64)>;

fn fill(pager: &Pager, owner: u32, pages: u64) -> Known {
    let known = fill_up(pager, owner, pages);
    assert_eq!(known.len() as u64, pages, "the device is full");
    known
}

/// Adds pages until there are `pages` pages, or the device is full.
fn fill_up(pager: &Pager, owner: u32, pages: u64) -> Known {
    let mut known = Vec::new();
    for number in 0..pages {
        match add(pager, owner, number) {
            Ok(id) => known.push((id, number)),
            Err(error) => {
                assert!(is_full(&error), "{error}");
                break;
            }
        }
        if number % 32 == 0 {
            pager.tick_write(1000).unwrap();
            pager.checkpoint().unwrap();
        }
    }
    pager.tick_write(1000).unwrap();
    known
}

/// Writes pages again and again. Most of the writes go to a fifth of the pages.
fn churn(pager: &Pager, known: &mut Known, writes: u64, random: &mut Random) {
    for step in 0..writes {
        let count = known.len() as u64;
        let among = if random.below(5) == 0 { count } else { count / 5 };
        let (id, number) = &mut known[random.below(among) as usize];
        *number = random.next();
        set(pager, *id, *number).unwrap();
        if step % 24 == 0 {
            pager.tick_write(1000).unwrap();
        }
        if step % 200 == 0 {
            pager.checkpoint().unwrap();
        }
    }
}

fn check(pager: &Pager, known: &Known) {
    for (id, number) in known {
        assert_eq!(get(pager, *id).unwrap(), *number, "{id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

fn file_bytes(directory: &MemoryDirectory) -> u64 {
    let images = directory.images();
    images.iter().find(|(name, _)| name == "data.varve").unwrap().1.len_bytes()
}

/// A file cannot grow any more, and nearly nine tenths of it are pages. These are written again and again,
/// with shutdowns and kills in between.
#[test]
fn a_file_that_is_nearly_full_takes_writes_for_ever() {
    stays_nearly_full(90, 4);
}

/// The same is tested with a lower limit for filling files. On a full device, this limit is no reason to
/// refuse a write.
#[test]
fn a_full_device_has_its_file_filled_beyond_the_default_fill() {
    stays_nearly_full(PackedConfig::DEFAULT.fill_percent, 2);
}

fn stays_nearly_full(fill_percent: u8, rounds: u32) {
    const FULL_BYTES: u64 = 48 << 20;
    let (mut config, directory) = bounded(FULL_BYTES);
    let packed =
        PackedConfig { extent_bytes: 256 << 10, held_pages_max: 64, fill_percent, ..PackedConfig::DEFAULT };
    config.layout = HomeLayout::Packed(packed);
    let mut random = Random(17);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = fill_up(&pager, owner, FULL_BYTES / 4096);
    pager.checkpoint().unwrap();
    let live = counter(&pager, "live_bytes");
    assert!(live * 100 > FULL_BYTES * 88, "{live}");
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    for round in 0..rounds {
        let pager = open(&config);
        check(&pager, &known);
        churn(&pager, &mut known, 1500, &mut random);
        pager.flush_log(pager.log().end()).unwrap();
        let (written, moved) = (counter(&pager, "written_bytes"), counter(&pager, "moved_bytes"));
        println!("round {round}: written {written}, moved {moved}");
        assert!(moved > 0 && counter(&pager, "emptied_extents") > 0, "{:?}", pager.stats());
        assert!(moved < 20 * written, "{moved} of {written}");
        if round % 2 == 1 {
            check(&pager, &known);
            pager.shutdown().unwrap();
        }
    }
    assert!(file_bytes(&directory) <= FULL_BYTES);
}

/// While the file is filled less than its limit, pages are moved only to prevent that the file grows.
#[test]
fn a_file_grows_to_its_fill_and_no_further() {
    let directory = MemoryDirectory::new();
    let mut config = config(&directory);
    let packed = PackedConfig {
        extent_bytes: EXTENT_BYTES,
        held_pages_max: 16,
        fill_percent: 50,
        ..PackedConfig::DEFAULT
    };
    config.layout = HomeLayout::Packed(packed);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = fill(&pager, owner, 500);
    let mut random = Random(5);
    churn(&pager, &mut known, 1000, &mut random);
    let bytes = file_bytes(&directory);
    churn(&pager, &mut known, 3000, &mut random);
    check(&pager, &known);
    // The files hold the live pages, and pages that are written twice for a moment, at a fill of a half. One
    // step of growth is added.
    assert!(file_bytes(&directory) <= bytes + 8 * EXTENT_BYTES, "{bytes}, then {}", file_bytes(&directory));
    assert!(bytes > 3 * 250 * 4096 && bytes < 5 * 500 * 4096, "{bytes}");
}

/// Another limit is used from the next extent on.
#[test]
fn the_fill_changes_on_line() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = fill(&pager, owner, 2500);
    let mut random = Random(29);
    let mut churned = |writes| {
        churn(&pager, &mut known, writes, &mut random);
        (file_bytes(&directory), counter(&pager, "moved_bytes"))
    };
    churned(2000);
    let ((bytes, moved), (same, more)) = (churned(1), churned(1000));
    assert!(bytes == same && moved < more, "{bytes}, then {same}; moved {moved}, then {more}");
    pager.set_packed_fill(50).unwrap();
    let (longer, _) = churned(2000);
    assert!(longer * 4 > bytes * 5, "{bytes}, then {longer}");
    check(&pager, &known);
    for fill_percent in [0, 49, 91] {
        let error = pager.set_packed_fill(fill_percent).unwrap_err().to_string();
        assert!(error.contains("must be 50 to 90"), "{error}");
    }
}

/// New pages are refused while there is still room to change existing pages. A drop makes room for new pages.
#[test]
fn a_full_device_refuses_new_pages_changes_old_ones_and_goes_on_after_a_drop() {
    let (config, _) = bounded(FULL_BYTES);
    let mut pager = open(&config);
    let owners = [0; 2].map(|_| pager.create_segment(SpaceId::DATA).unwrap());
    let mut known = fill(&pager, owners[0], 300);
    let many = fill_up(&pager, owners[1], FULL_BYTES / 4096);
    assert!(is_full(&pager.reserve(SpaceId::DATA, 5000).unwrap_err()));
    let mut random = Random(23);
    churn(&pager, &mut known, 2000, &mut random);
    for _ in 0..2 {
        check(&pager, &known);
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        pager = open(&config);
        churn(&pager, &mut known, 200, &mut random);
        check(&pager, &many);
    }
    pager.drop_segment(SpaceId::DATA, owners[1]).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    pager.tick_write(1000).unwrap();
    pager.checkpoint().unwrap();
    let again = fill(&pager, owners[0], 800);
    check(&pager, &known);
    check(&pager, &again);
}

/// If a device has no room for a write at any moment of reclamation, the caller gets an error, and nothing is
/// lost.
#[test]
fn want_of_room_in_the_middle_of_reclamation_loses_nothing() {
    for seed in 1..8 {
        let (mut config, directory) = bounded(FULL_BYTES / 2);
        let faulty = Faulty::wrap(directory.clone());
        config.data = faulty.clone();
        let pager = open(&config);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let mut known = fill(&pager, owner, 700);
        let mut random = Random(seed);
        churn(&pager, &mut known, 300, &mut random);
        for round in 0..6 {
            let when = When::EveryFrom(1 + random.below(12), 1 + random.below(3));
            let fault = Fault::Fails(ErrorKind::NoSpace);
            faulty.arm(Rule { operation: Some(Operation::Write), space: Some(Space::Data), when, fault });
            for _ in 0..40 {
                let at = random.below(known.len() as u64) as usize;
                match set(&pager, known[at].0, round) {
                    Ok(()) => known[at].1 = round,
                    Err(error) => assert!(is_full(&error), "{error}"),
                }
                for refused in [pager.tick_write(1000).map(drop), pager.checkpoint()] {
                    assert!(refused.as_ref().err().is_none_or(is_full), "{refused:?}");
                }
            }
            faulty.disarm();
            churn(&pager, &mut known, 200, &mut random);
            check(&pager, &known);
        }
        assert!(faulty.fired_count() > 0 && counter(&pager, "moved_pages") > 0);
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        check(&open(&config), &known);
    }
}

fn spoil(directory: &MemoryDirectory, offset: u64) {
    let file = directory.open("data.varve", OpenHow::existing(Space::Data)).unwrap();
    let rubbish = AlignedBuf::copy_of(&[0xAB; 512]);
    file.write_at(offset, &rubbish, Purpose::DataPage, Durability::Now).unwrap();
}

/// If a slot cannot be read, no other slot is lost. The damaged slot stays, and its damage is still reported.
#[test]
fn a_damaged_slot_stays_and_the_others_move() {
    let (config, directory) = bounded(FULL_BYTES / 2);
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = fill(&pager, owner, 700);
    pager.shutdown().unwrap();
    drop(pager);
    // The page is not written any more, because it is the last one, and only the first pages are written.
    let (lost, number) = known.pop().unwrap();
    let images = directory.images();
    let (_, file) = images.iter().find(|(name, _)| name == "data.varve").unwrap();
    let mut bytes = vec![0; file.len_bytes() as usize];
    file.read(0, &mut bytes);
    for at in (4096..bytes.len()).step_by(512) {
        if bytes[at + 4..at + 8] == lost.no().0.to_le_bytes()
            && bytes[at + 100..at + 108] == number.to_le_bytes()
        {
            spoil(&directory, at as u64 + 512);
        }
    }
    let pager = open(&config);
    churn(&pager, &mut known, 4000, &mut Random(3));
    assert_eq!(counter(&pager, "damaged_slots"), 1, "{:?}", pager.stats());
    let error = get(&pager, lost).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
    for (id, number) in &known {
        assert_eq!(get(&pager, *id).unwrap(), *number);
    }
}

/// The extents that a drop frees are punched, in pieces of a megabyte, and written again later. The free end
/// of the file is cut off.
#[test]
fn free_room_goes_back_to_the_device() {
    let directory = MemoryDirectory::new();
    let mut config = config(&directory);
    let packed = PackedConfig { extent_bytes: 256 << 10, held_pages_max: 64, ..PackedConfig::DEFAULT };
    config.layout = HomeLayout::Packed(packed);
    config.trim = Trim::Off;
    let pager = open(&config);
    let owners = [0; 3].map(|_| pager.create_segment(SpaceId::DATA).unwrap());
    let mut known = fill(&pager, owners[0], 100);
    fill(&pager, owners[1], 3000);
    known.extend(fill(&pager, owners[2], 100));
    let bytes = file_bytes(&directory);
    let drop_segment = |owner: u32| {
        pager.drop_segment(SpaceId::DATA, owner).unwrap();
        pager.flush_log(pager.log().end()).unwrap();
        pager.checkpoint().unwrap();
    };
    drop_segment(owners[1]);
    assert_eq!(directory.accounting().punched(Space::Data).operations, 0);
    pager.set_trim(Trim::Auto);
    pager.checkpoint().unwrap();
    let punched = directory.accounting().punched(Space::Data);
    assert!(punched.operations > 0 && punched.bytes >= punched.operations << 20, "{punched:?}");
    assert_eq!(
        (punched.operations, punched.bytes),
        (counter(&pager, "trims"), counter(&pager, "trimmed_bytes"))
    );
    assert!(punched.bytes > 4 << 20, "{punched:?} of {bytes}");
    check(&pager, &known);
    let again = fill(&pager, owners[0], 3000);
    assert!(file_bytes(&directory) <= bytes + (4 << 20), "holes are filled before the file grows");
    check(&pager, &known);
    check(&pager, &again);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&config);
    check(&pager, &known);
    check(&pager, &again);
}

/// If a device cannot punch holes, this is tried only once.
#[test]
fn a_device_that_cannot_punch_keeps_the_room() {
    let directory = MemoryDirectory::new();
    let faulty = Faulty::wrap(directory.clone());
    let mut config = config(&directory);
    config.data = faulty.clone();
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = fill(&pager, owner, 100);
    let fault = Fault::Fails(ErrorKind::Unsupported);
    faulty.arm(Rule { operation: Some(Operation::Punch), space: None, when: When::From(1), fault });
    for _ in 0..3 {
        let gone = pager.create_segment(SpaceId::DATA).unwrap();
        fill(&pager, gone, 1500);
        pager.drop_segment(SpaceId::DATA, gone).unwrap();
        pager.flush_log(pager.log().end()).unwrap();
        pager.checkpoint().unwrap();
        churn(&pager, &mut known, 50, &mut Random(9));
    }
    assert_eq!((faulty.fired_count(), counter(&pager, "trims_failed")), (1, 0));
    check(&pager, &known);
}

/// A slot of three sectors is copied to a device whose sectors are larger.
#[test]
fn compressed_pages_are_moved_on_larger_sectors() {
    let small = MemoryDirectory::with_sector(512);
    let with_lz4 = |directory: &Arc<MemoryDirectory>| {
        let mut config = config(directory);
        config.page_size = 16384;
        config.pool_bytes = 40 * 16384;
        config.compression = Compression::of(Algorithm::Lz4);
        config
    };
    let pager = open(&with_lz4(&small));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = fill(&pager, owner, 300);
    pager.shutdown().unwrap();
    drop(pager);
    let large = on_large_sectors(&small);
    let pager = open(&with_lz4(&large));
    churn(&pager, &mut known, 2500, &mut Random(8));
    assert!(counter(&pager, "moved_pages") > 20, "{:?}", pager.stats());
    check(&pager, &known);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    check(&open(&with_lz4(&large)), &known);
}

/// Threads write and read pages while reclamation moves these pages.
#[test]
fn readers_and_writers_meet_reclamation() {
    let path = tempfile::tempdir().unwrap();
    let directory: Arc<dyn Directory> =
        FileDirectory::open_or_create(path.path(), FileOptions::default()).unwrap();
    let mut config = config(&MemoryDirectory::new());
    (config.data, config.log, config.rollback) = (directory.clone(), directory.clone(), directory.clone());
    (config.temporary, config.control) = (directory.clone(), directory);
    (config.background, config.page_writers, config.checkpoint.interval_ms) = (true, 2, 20);
    // Pages are also moved if much is free, because trim takes its time.
    let packed =
        PackedConfig { extent_bytes: EXTENT_BYTES, held_pages_max: 16, fill_percent: 90, moves_always: true };
    config.layout = HomeLayout::Packed(packed);
    let pager = Pager::open(config, Arc::new(NoOps)).unwrap();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let known: Vec<(PageId, AtomicU64)> =
        (0..400).map(|number| (add(&pager, owner, number).unwrap(), AtomicU64::new(number))).collect();
    std::thread::scope(|scope| {
        let (pager, known) = (&pager, &known);
        // Each writer has pages of its own; they count upwards.
        for writer in 0..3 {
            scope.spawn(move || {
                let mut random = Random(writer + 1);
                // If threads seldom meet a full pool, few pages are written twice.
                let goes_on = |step| step % 100 > 0 || step < 50_000 && counter(pager, "moved_pages") == 0;
                for step in (0..).take_while(|step| *step < 2500 || goes_on(*step)) {
                    let own = random.below(known.len() as u64 / 3) * 3 + writer;
                    let (id, number) = &known[own as usize];
                    set(pager, *id, 1000 + step).unwrap();
                    number.store(1000 + step, Relaxed);
                }
            });
        }
        for reader in 0..2 {
            scope.spawn(move || {
                let mut random = Random(reader + 77);
                for _ in 0..20_000 {
                    let (id, number) = &known[random.below(known.len() as u64) as usize];
                    let before = number.load(Relaxed);
                    let found = get(pager, *id).unwrap();
                    assert!(found >= before, "{id}: {found} after {before}");
                }
            });
        }
    });
    assert!(counter(&pager, "moved_pages") > 0, "{:?}", pager.stats());
    for (id, number) in &known {
        assert_eq!(get(&pager, *id).unwrap(), number.load(Relaxed));
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    pager.shutdown().unwrap();
}
