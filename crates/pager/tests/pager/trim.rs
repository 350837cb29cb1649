//! The space of free extents is returned to the device when redo no longer needs it: as holes in files with
//! fixed offsets, by removing pages from the map in packed files. A thread that allocates the extent again
//! first gets its space back, or is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{KIND, Random, add, get, is_full, set};
use varve_device::{
    BlockFile, Directory, Emulated, ErrorKind, Fault, Faulty, FileDirectory, FileOptions, MemoryDirectory,
    OpenHow, Operation, Profile, Rule, Space, When,
};
use varve_pager::{
    Algorithm, Compression, HomeLayout, NvmConfig, PackedConfig, PageId, Pager, PagerConfig, ProtectionKind,
    SpaceId, Trim,
};

/// Pages, and what is in them.
type Known = Vec<(PageId, u64)>;

fn config(directory: &Arc<MemoryDirectory>, trim: Trim) -> PagerConfig {
    PagerConfig { trim, ..crate::common::config(directory, 64) }
}

fn packed(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let packed = PackedConfig { extent_bytes: 64 << 10, held_pages_max: 16, ..PackedConfig::DEFAULT };
    PagerConfig { layout: HomeLayout::Packed(packed), ..config(directory, Trim::Auto) }
}

fn counter(pager: &Pager, name: &str) -> u64 {
    let levels = pager.stats().levels;
    levels.iter().flat_map(|level| &level.counters).filter(|(found, _)| *found == name).map(|(_, n)| *n).sum()
}

fn settle(pager: &Pager) {
    while pager.tick_write(1000).unwrap() > 0 {}
    pager.checkpoint().unwrap();
}

fn fill(pager: &Pager, pages: u64) -> (u32, Known) {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let mut known = Vec::new();
    for number in 0..pages {
        known.push((add(pager, owner, number).unwrap(), number));
        if number % 32 == 0 {
            settle(pager);
        }
    }
    settle(pager);
    (owner, known)
}

/// Makes a segment that will be dropped, and after it a segment that stays. Without the second segment, the
/// file would be cut.
fn fill_before_others(pager: &Pager, pages: u64, known: &mut Known) -> (u32, Known) {
    let gone = fill(pager, pages);
    known.extend(fill(pager, 10).1);
    gone
}

fn check(pager: &Pager, known: &Known) {
    for (id, number) in known {
        assert_eq!(get(pager, *id).unwrap(), *number, "{id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

/// Frees pages one by one.
fn free(pager: &Pager, pages: &[(PageId, u64)]) {
    for some in pages.chunks(8) {
        let mut mtr = pager.begin().unwrap();
        some.iter().for_each(|(id, _)| mtr.free(*id).unwrap());
        mtr.commit();
    }
}

fn punched(directory: &MemoryDirectory) -> u64 {
    directory.accounting().punched(Space::Data).bytes
}

/// In place, an extent is punched when redo starts after all log records that touched it. It is not punched
/// as long as an older change is not stable.
#[test]
fn extents_in_place_are_punched_when_redo_is_past_them() {
    for one_by_one in [false, true] {
        let directory = MemoryDirectory::new();
        let pager = crate::common::open(&config(&directory, Trim::On));
        let (_, mut known) = fill(&pager, 100);
        let (owner, gone) = fill_before_others(&pager, 1500, &mut known);
        set(&pager, known[0].0, 77).unwrap();
        known[0].1 = 77;
        match one_by_one {
            true => free(&pager, &gone),
            false => pager.drop_segment(SpaceId::DATA, owner).unwrap(),
        }
        for _ in 0..4 {
            pager.checkpoint().unwrap();
        }
        assert_eq!(punched(&directory), 0, "redo begins before they were free");
        settle(&pager);
        pager.checkpoint().unwrap();
        // Nine extents stay as they are, for the next allocations.
        let extents = punched(&directory) / (64 * 4096);
        assert!((13..=24).contains(&extents), "{extents}");
        assert_eq!(counter(&pager, "trimmed_bytes"), punched(&directory));
        check(&pager, &known);
        // A start after a crash misses nothing.
        let crashed = MemoryDirectory::from_images(directory.images());
        check(&crate::common::open(&config(&crashed, Trim::On)), &known);
        // The extents are used again, and are punched again when they are free again.
        let (owner, again) = fill_before_others(&pager, 1500, &mut known);
        check(&pager, &known);
        check(&pager, &again);
        let before = punched(&directory);
        pager.drop_segment(SpaceId::DATA, owner).unwrap();
        settle(&pager);
        pager.checkpoint().unwrap();
        assert!(punched(&directory) > before);
        pager.shutdown().unwrap();
    }
}

#[test]
fn what_is_trimmed_follows_the_setting() {
    let lz4 = Compression::of(Algorithm::Lz4);
    for (trim, compression, goes) in [
        (Trim::Auto, Compression::NONE, false),
        (Trim::Auto, lz4, true),
        (Trim::On, Compression::NONE, true),
        (Trim::Off, lz4, false),
    ] {
        let directory = MemoryDirectory::new();
        let pager = crate::common::open(&PagerConfig { compression, ..config(&directory, trim) });
        let (owner, _) = fill_before_others(&pager, 1500, &mut Known::new());
        let before = punched(&directory);
        pager.drop_segment(SpaceId::DATA, owner).unwrap();
        settle(&pager);
        pager.checkpoint().unwrap();
        assert_eq!(punched(&directory) > before + (1 << 20), goes, "{trim:?}, {compression:?}");
        // When trim is switched on, the extents that were free before go, too.
        pager.set_trim(Trim::On);
        settle(&pager);
        pager.checkpoint().unwrap();
        assert!(punched(&directory) > before + (1 << 20));
    }
}

/// Returns a configuration with a device of this size, on which holes take no room.
fn sized(bytes: u64) -> (PagerConfig, Arc<Emulated>) {
    let profile = Profile::shipped("sata-ssd-2014").unwrap();
    let device = Emulated::sized(MemoryDirectory::new(), profile, 1e-6, bytes);
    let mut config = config(&MemoryDirectory::new(), Trim::On);
    config.data = device.clone();
    (config, device)
}

fn take_all(device: &Emulated) -> Arc<dyn BlockFile> {
    let other = device.open("other", OpenHow::or_create(Space::Data)).unwrap();
    let mut bytes = 0;
    while other.set_len(bytes + 4096).is_ok() {
        bytes += 4096;
    }
    assert!(bytes > 4 << 20, "{bytes}");
    other
}

/// Adds pages until the device is full. No page that was added is refused its place.
fn add_until_full(pager: &Pager, owner: u32, known: &mut Known) -> u64 {
    for count in 0..4000 {
        match add(pager, owner, count) {
            Ok(id) => known.push((id, count)),
            Err(error) => {
                assert!(is_full(&error), "{error}");
                return count;
            }
        }
        if count % 16 == 0 {
            settle(pager);
        }
    }
    panic!("the device is never full");
}

/// The device space that a hole gave back may be used up by another file. Then the allocation of a page in
/// the hole is refused, as on a full device. A page that is allocated can always be written.
#[test]
fn a_hole_that_others_filled_is_refused_at_allocation() {
    let (config, device) = sized(24 << 20);
    let mut pager = crate::common::open(&config);
    let (owner, mut known) = fill(&pager, 100);
    let (gone, _) = fill_before_others(&pager, 2500, &mut known);
    pager.drop_segment(SpaceId::DATA, gone).unwrap();
    settle(&pager);
    pager.checkpoint().unwrap();
    let valid = device.report().flash.unwrap().trimmed_bytes;
    assert!(valid > 5 << 20, "{valid}");
    let other = take_all(&device);
    for _ in 0..2 {
        add_until_full(&pager, owner, &mut known);
        settle(&pager);
        check(&pager, &known);
        pager.flush_log(pager.log().end()).unwrap();
        drop(pager);
        pager = crate::common::open(&config);
        check(&pager, &known);
    }
    // When there is room again, the space continues, first in the holes.
    let pages = device.open("data.varve", OpenHow::existing(Space::Data)).unwrap().len_bytes().unwrap();
    other.set_len(0).unwrap();
    for number in 0..1000 {
        known.push((add(&pager, owner, number).unwrap(), number));
    }
    settle(&pager);
    check(&pager, &known);
    let now = device.open("data.varve", OpenHow::existing(Space::Data)).unwrap().len_bytes().unwrap();
    assert_eq!(now, pages, "holes are filled before the file grows");
}

/// In an earlier version, the setting decided whether free extents may have holes, and not the record of what
/// an earlier process had done.
#[test]
fn holes_are_known_after_a_start_without_trim() {
    for trim in [Trim::Off, Trim::Auto] {
        let (mut config, device) = sized(24 << 20);
        let pager = crate::common::open(&config);
        let (owner, mut known) = fill(&pager, 100);
        let (gone, _) = fill_before_others(&pager, 2500, &mut known);
        pager.drop_segment(SpaceId::DATA, gone).unwrap();
        settle(&pager);
        pager.checkpoint().unwrap();
        pager.shutdown().unwrap();
        drop(pager);
        config.trim = trim;
        let pager = crate::common::open(&config);
        let _other = take_all(&device);
        add_until_full(&pager, owner, &mut known);
        settle(&pager);
        check(&pager, &known);
    }
}

/// In an earlier version, reserved blocks were not durable when their extent was allocated, and a crash gave
/// these blocks to other files.
#[test]
fn room_of_holes_is_durable_before_it_is_handed_out() {
    let (config, device) = sized(64 << 20);
    let pager = crate::common::open(&config);
    let (owner, mut known) = fill(&pager, 100);
    let (gone, _) = fill_before_others(&pager, 2500, &mut known);
    pager.drop_segment(SpaceId::DATA, gone).unwrap();
    settle(&pager);
    pager.checkpoint().unwrap();
    let flushes = || device.accounting().flush_count(Space::Data);
    let bytes = || device.open("data.varve", OpenHow::existing(Space::Data)).unwrap().len_bytes().unwrap();
    let (flushed, long) = (flushes(), bytes());
    pager.reserve(SpaceId::DATA, 20 * 64).unwrap();
    assert_eq!(bytes(), long, "holes are filled before the file grows");
    let more = flushes() - flushed;
    assert!((1..=4).contains(&more), "{more} flushes");
    known.push((add(&pager, owner, 1).unwrap(), 1));
    check(&pager, &known);
}

/// The control file has to record that there are holes before the first hole is punched. If there is no room
/// for this write, nothing is trimmed before the next checkpoint.
#[test]
fn a_control_file_without_room_delays_trim() {
    let directory = MemoryDirectory::new();
    let faulty = Faulty::wrap(directory.clone());
    let mut config = config(&directory, Trim::On);
    config.control = faulty.clone();
    let pager = crate::common::open(&config);
    let (_, mut known) = fill(&pager, 100);
    let (gone, _) = fill_before_others(&pager, 1500, &mut known);
    pager.drop_segment(SpaceId::DATA, gone).unwrap();
    while pager.tick_write(1000).unwrap() > 0 {}
    // A checkpoint writes to this file once, and the next write is the word.
    while faulty.fired_count() == 0 {
        faulty.disarm();
        let (when, fault) = (When::From(2), Fault::Fails(ErrorKind::NoSpace));
        faulty.arm(Rule { operation: Some(Operation::Write), space: None, when, fault });
        pager.checkpoint().unwrap();
    }
    assert_eq!(punched(&directory), 0);
    check(&pager, &known);
    faulty.disarm();
    pager.checkpoint().unwrap();
    assert!(punched(&directory) > 0);
    check(&pager, &known);
}

/// A hole that a device refuses once is tried again. Only disk space is lost.
#[test]
fn a_device_that_refuses_holes_keeps_the_room() {
    for (kind, times) in [(ErrorKind::Unsupported, 1), (ErrorKind::Io(5), u64::MAX)] {
        let directory = MemoryDirectory::new();
        let faulty = Faulty::wrap(directory.clone());
        let mut config = config(&directory, Trim::On);
        config.data = faulty.clone();
        let pager = crate::common::open(&config);
        let (_, mut known) = fill(&pager, 100);
        let fault = Fault::Fails(kind);
        faulty.arm(Rule { operation: Some(Operation::Punch), space: None, when: When::From(1), fault });
        for _ in 0..3 {
            let (gone, _) = fill_before_others(&pager, 1500, &mut known);
            pager.drop_segment(SpaceId::DATA, gone).unwrap();
            settle(&pager);
            pager.checkpoint().unwrap();
        }
        assert!(faulty.fired_count() >= 1 && faulty.fired_count() <= times);
        assert_eq!((counter(&pager, "trims"), punched(&directory)), (0, 0));
        check(&pager, &known);
    }
}

/// An error may come after a part of the hole was made. Only if the device reports that it does not support
/// holes, there is certainly no hole.
#[test]
fn a_hole_that_failed_in_a_packed_file_may_be_one() {
    for (kind, is_hollow) in [(ErrorKind::Unsupported, false), (ErrorKind::Io(5), true)] {
        let directory = MemoryDirectory::new();
        let faulty = Faulty::wrap(directory.clone());
        let mut config = packed(&directory);
        config.data = faulty.clone();
        let pager = crate::common::open(&config);
        let (_, mut known) = fill(&pager, 100);
        let (gone, _) = fill_before_others(&pager, 2000, &mut known);
        let fault = Fault::Fails(kind);
        faulty.arm(Rule { operation: Some(Operation::Punch), space: None, when: When::From(1), fault });
        pager.drop_segment(SpaceId::DATA, gone).unwrap();
        settle(&pager);
        pager.checkpoint().unwrap();
        assert!(faulty.fired_count() > 0);
        assert_eq!((counter(&pager, "hollow_extents") > 0, counter(&pager, "trims")), (is_hollow, 0));
        known.extend(fill(&pager, 1500).1);
        check(&pager, &known);
    }
}

/// In an earlier version, free space that was not given back before a shutdown was never given back.
#[test]
fn what_was_free_at_the_end_goes_back_after_the_start() {
    let directory = MemoryDirectory::new();
    let untrimmed = PagerConfig { trim: Trim::Off, ..packed(&directory) };
    let pager = crate::common::open(&untrimmed);
    let (_, mut known) = fill(&pager, 100);
    let (gone, _) = fill_before_others(&pager, 2000, &mut known);
    pager.drop_segment(SpaceId::DATA, gone).unwrap();
    settle(&pager);
    pager.shutdown().unwrap();
    drop(pager);
    assert_eq!(punched(&directory), 0);
    let pager = crate::common::open(&packed(&directory));
    settle(&pager);
    pager.checkpoint().unwrap();
    let bytes = punched(&directory);
    assert!(bytes > 2 << 20, "{bytes}");
    settle(&pager);
    pager.checkpoint().unwrap();
    assert!(punched(&directory) < bytes + (1 << 20), "once");
    known.extend(fill(&pager, 1500).1);
    check(&pager, &known);
}

/// If the device refuses to make a packed file shorter, the database continues with the long file.
///
/// In an earlier version, the database stopped, or the file was longer than the pager's number of extents.
#[test]
fn a_packed_file_that_stays_long_costs_only_room() {
    for kind in [ErrorKind::NoSpace, ErrorKind::Io(5)] {
        let directory = MemoryDirectory::new();
        let faulty = Faulty::wrap(directory.clone());
        let mut config = packed(&directory);
        config.data = faulty.clone();
        let pager = crate::common::open(&config);
        let (_, mut known) = fill(&pager, 100);
        let (gone, _) = fill(&pager, 2000);
        let bytes =
            || faulty.open("data.varve", OpenHow::existing(Space::Data)).unwrap().len_bytes().unwrap();
        // The rollback space is packed, too, and keeps its length.
        let rollback_extents = counter(&pager, "extents") - bytes() / (64 << 10);
        let extents = || counter(&pager, "extents") - rollback_extents;
        let fault = Fault::Fails(kind.clone());
        faulty.arm(Rule { operation: Some(Operation::SetLen), space: None, when: When::From(1), fault });
        pager.drop_segment(SpaceId::DATA, gone).unwrap();
        let long = bytes();
        // Live pages at the end of the file move to its beginning when they are written again.
        let until = |known: &mut Known, is_done: &dyn Fn() -> bool| {
            for round in 0..40 {
                if is_done() {
                    return;
                }
                for (id, number) in known.iter_mut() {
                    *number += round;
                    set(&pager, *id, *number).unwrap();
                }
                settle(&pager);
            }
            panic!("{:?}", pager.stats());
        };
        until(&mut known, &|| faulty.fired_count() > 0);
        settle(&pager);
        assert_eq!((bytes(), bytes() / (64 << 10)), (long, extents()), "{kind:?}");
        check(&pager, &known);
        faulty.disarm();
        until(&mut known, &|| bytes() < long * 3 / 4);
        assert_eq!(bytes() / (64 << 10), extents());
        known.extend(fill(&pager, 1500).1);
        check(&pager, &known);
    }
}

/// Pages that were freed one by one are discarded. They take no room, and are not moved.
#[test]
fn freed_pages_of_packed_spaces_stop_living() {
    let directory = MemoryDirectory::new();
    let pager = crate::common::open(&packed(&directory));
    let (_, mut known) = fill(&pager, 90);
    let (_, gone) = fill_before_others(&pager, 2900, &mut known);
    let live = counter(&pager, "live_bytes");
    assert!(live > 3000 * 4096, "{live}");
    free(&pager, &gone);
    for _ in 0..4 {
        settle(&pager);
    }
    // What is left are pages beside them in extents that are in use, and the pages of the spaces themselves.
    let live = counter(&pager, "live_bytes");
    assert!(live < 250 * 4096, "{live}");
    assert!(counter(&pager, "trimmed_bytes") > 4 << 20, "{:?}", pager.stats());
    let (written, moved) = (counter(&pager, "written_bytes"), counter(&pager, "moved_bytes"));
    let mut random = Random(3);
    for step in 0..2000 {
        let (id, number) = &mut known[random.below(100) as usize];
        *number = random.next();
        set(&pager, *id, *number).unwrap();
        if step % 24 == 0 {
            settle(&pager);
        }
    }
    let (written, moved) =
        (counter(&pager, "written_bytes") - written, counter(&pager, "moved_bytes") - moved);
    assert!(moved * 4 < written, "{moved} moved, {written} written");
    check(&pager, &known);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    check(&crate::common::open(&packed(&directory)), &known);
}

/// Pages that were free and not discarded yet at a shutdown are found at the next start.
#[test]
fn dead_pages_of_before_a_start_are_forgotten_after_it() {
    let directory = MemoryDirectory::new();
    let pager = crate::common::open(&packed(&directory));
    let (_, mut known) = fill(&pager, 2000);
    let gone = known.split_off(100);
    free(&pager, &gone);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = crate::common::open(&packed(&directory));
    let live = counter(&pager, "live_bytes");
    assert!(live > 1000 * 4096, "{live}");
    for _ in 0..3 {
        settle(&pager);
    }
    assert!(counter(&pager, "live_bytes") < live / 3, "{} of {live}", counter(&pager, "live_bytes"));
    check(&pager, &known);
}

/// A space that becomes shorter leaves no page after its end, because the log record of the cut is durable
/// before the new length.
#[test]
fn pages_behind_a_cut_are_gone_after_any_end() {
    for shuts_down in [false, true] {
        let directory = MemoryDirectory::new();
        let pager = crate::common::open(&packed(&directory));
        let (_, known) = fill(&pager, 100);
        pager.shutdown().unwrap();
        drop(pager);
        // This copy of the map has the pages. Only the note of the cut says that they are gone.
        let pager = crate::common::open(&packed(&directory));
        let (_, gone) = fill(&pager, 3000);
        pager.shutdown().unwrap();
        drop(pager);
        let pager = crate::common::open(&packed(&directory));
        let pages = pager.stats().data_pages;
        free(&pager, &gone);
        while pager.tick_write(1000).unwrap() > 0 {}
        pager.checkpoint().unwrap();
        match shuts_down {
            true => pager.shutdown().unwrap(),
            false => pager.checkpoint().unwrap(),
        }
        drop(pager);
        let pager = crate::common::open(&packed(&directory));
        for _ in 0..3 {
            settle(&pager);
        }
        let live = counter(&pager, "live_bytes");
        assert!(pages > 3000 && live < 800 * 4096, "{live}");
        check(&pager, &known);
    }
}

/// The buffer in persistent memory discards the pages before their places are punched.
#[test]
fn pages_in_persistent_memory_go_with_their_extents() {
    let directory = MemoryDirectory::new();
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 1100 << 10, log_bytes: 512 << 10 };
    let config =
        PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..config(&directory, Trim::On) };
    let pager = crate::common::open(&config);
    let (_, mut known) = fill(&pager, 100);
    let (_, gone) = fill_before_others(&pager, 1500, &mut known);
    for (id, _) in &gone[gone.len() - 40..] {
        set(&pager, *id, 1).unwrap();
    }
    settle(&pager);
    free(&pager, &gone);
    settle(&pager);
    pager.checkpoint().unwrap();
    assert!(punched(&directory) > 1 << 20);
    let held = counter(&pager, "dirty") + counter(&pager, "clean") + counter(&pager, "doomed");
    assert!(held < 140, "{held} of {}", counter(&pager, "slots"));
    while pager.tick_nvm(100).unwrap() > 0 {}
    check(&pager, &known);
    drop(pager);
    check(&crate::common::open(&config), &known);
}

/// The data files never had the pages. In an earlier version, nothing was logged when these pages were
/// discarded. So redo found changes of pages that did not exist, and the next start was refused.
#[test]
fn redo_does_not_come_by_pages_that_only_persistent_memory_had() {
    let directory = MemoryDirectory::new();
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 9 << 20, log_bytes: 512 << 10 };
    let config = PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..packed(&directory) };
    let pager = crate::common::open(&config);
    let (_, mut known) = fill(&pager, 100);
    let (_, gone) = fill_before_others(&pager, 1500, &mut known);
    let map_checkpoints = || counter(&pager, "map_checkpoints");
    let before = map_checkpoints();
    while map_checkpoints() < before + 2 {
        crate::common::note(&pager, 10_000).unwrap();
        pager.checkpoint().unwrap();
    }
    for (id, _) in &gone[gone.len() - 100..] {
        set(&pager, *id, 1).unwrap();
    }
    settle(&pager);
    free(&pager, &gone);
    for _ in 0..4 {
        settle(&pager);
    }
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = crate::common::open(&config);
    check(&pager, &known);
    // Freed pages go when redo is past their freeing.
    let held = || counter(&pager, "dirty") + counter(&pager, "clean") + counter(&pager, "doomed");
    assert!(held() > 1000, "{}", held());
}

/// If there are threads, one of them trims, even if the database is idle.
#[test]
fn a_thread_trims_while_nothing_is_done() {
    // If an owner has a compression of its own, the log's note of that follows the freed extents, too.
    for (is_packed, is_noted) in [(false, false), (false, true), (true, false), (true, true)] {
        let directory = MemoryDirectory::new();
        let mut config = if is_packed { packed(&directory) } else { config(&directory, Trim::On) };
        config.background = true;
        config.checkpoint.interval_ms = 20;
        let pager = crate::common::open(&config);
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        if is_noted {
            let lz4 = Compression::of(Algorithm::Lz4);
            pager.prepare_compression(lz4).unwrap();
            pager.set_compression(SpaceId::DATA, &[(owner, Some(lz4))]);
        }
        // A compressed page takes an eighth of its size in a packed file. With 8,000 pages, there are runs of
        // free extents between the extents that are still used, wherever these are.
        let (count, share) = if is_packed && is_noted { (8000, 1 << 18) } else { (2000, 4 << 20) };
        let mut known: Known =
            (0..count + 100).map(|number| (add(&pager, owner, number).unwrap(), number)).collect();
        let tail = known.split_off(count as usize);
        let gone = known.split_off(100);
        known.extend(tail);
        free(&pager, &gone);
        let began = Instant::now();
        while punched(&directory) < share {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", pager.stats());
            std::thread::sleep(Duration::from_millis(10));
        }
        check(&pager, &known);
        // Then nothing is left to be done, and no checkpoint is taken.
        let checkpoints = || pager.stats().checkpoints;
        let mut last = 0;
        while std::mem::replace(&mut last, checkpoints()) != checkpoints() {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", pager.stats());
            std::thread::sleep(Duration::from_millis(200));
        }
        pager.shutdown().unwrap();
    }
}

/// The pages of a segment of `VARVE_DROP_MIB`, or 4 GiB, are free within two seconds of the drop; their
/// blocks come back later. In a directory `VARVE_DROP_AT`, or the one for temporary files.
#[test]
#[ignore = "writes 4 GiB"]
fn the_pages_of_a_large_segment_are_free_at_once() {
    let env = |name: &str| std::env::var(name).ok();
    let mib: u64 = env("VARVE_DROP_MIB").and_then(|mib| mib.parse().ok()).unwrap_or(4096);
    let at = env("VARVE_DROP_AT").map_or_else(std::env::temp_dir, Into::into).join("varve-drop");
    std::fs::remove_dir_all(&at).ok();
    std::fs::create_dir_all(&at).unwrap();
    let files = FileDirectory::open_or_create(&at, FileOptions::default()).unwrap();
    let mut config = config(&MemoryDirectory::new(), Trim::On);
    config = PagerConfig {
        page_size: 8192,
        pool_bytes: 64 << 20,
        background: true,
        protection: ProtectionKind::None,
        growth_extents: 8,
        data: files.clone(),
        log_segment_bytes: 16 << 20,
        log_capacity_bytes: 256 << 20,
        ..config
    };
    let pager = crate::common::open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    for _ in 0..mib * 2 {
        let mut mtr = pager.begin().unwrap();
        let extent = mtr.allocate_extent(SpaceId::DATA, owner).unwrap();
        for id in extent.pages() {
            mtr.create(id, KIND, owner).unwrap();
        }
        mtr.commit();
    }
    // Without a page after the segment, the file would be cut.
    let behind = pager.create_segment(SpaceId::DATA).unwrap();
    add(&pager, behind, 0).unwrap();
    let began = Instant::now();
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    let free = began.elapsed();
    while counter(&pager, "trimmed_bytes") < (mib - 64) << 20 {
        assert!(began.elapsed() < Duration::from_secs(3600), "{:?}", pager.stats());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{mib} MiB: pages free after {free:?}, blocks after {:?}", began.elapsed());
    assert!(free < Duration::from_secs(2), "{free:?}");
    pager.shutdown().unwrap();
    std::fs::remove_dir_all(&at).unwrap();
}
