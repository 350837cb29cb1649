//! Test: a crash interrupts a doublewrite at each moment, with any subset of the writes in flight done. After
//! repair every page is whole.
//!
//! This module does not know pool or log.

use std::sync::Arc;

use varve_device::{
    Accounting, Directory, Fate, Fault, Faulty, MemoryDirectory, Operation, RecordLog, Recorder,
    RegionExtents, RegionFiles, Rule, Timeline, When,
};

use crate::base::compression::{Algorithm, Compression};
use crate::base::ids::{Access, PageId, PageNo, SpaceId};
use crate::base::image::Image;
use crate::base::page;
use crate::config::PagerConfig;
use crate::home::compression::stored_page::{self, StoredLengths};
use crate::home::files::SpaceFile;
use crate::home::protection::*;

const PAGES: u32 = 24;

fn image(no: u32, lsn: u64) -> Image {
    let id = PageId::new(SpaceId::DATA, PageNo(no));
    let mut bytes = vec![lsn as u8; 4096];
    page::set_page_lsn(&mut bytes, Lsn::new(lsn));
    page::format(&mut bytes, id, 16, 0);
    // Half of the page does not compress, so that even a compressed page has several sectors.
    bytes[100..].fill(lsn as u8);
    let mut state = (lsn << 32) + u64::from(no) + 1;
    bytes[2048..].iter_mut().for_each(|byte| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    });
    Image::of(id, &bytes, Access::Random)
}

/// Returns the stored form of a page in these tests. Pages with even numbers are compressed, unless their LSN
/// is a multiple of five.
fn as_stored(image: &Image) -> Stored<'_> {
    let is_even = image.id().no().0.is_multiple_of(2);
    let algorithm =
        if is_even && !image.lsn().get().is_multiple_of(5) { Algorithm::Lz4 } else { Algorithm::None };
    Stored::of(image, Compression::of(algorithm), StoredLengths::Multiples(512))
}

/// Where the copies are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Copies {
    InFile,
    InRegion,
}

impl Copies {
    const BOTH: [Copies; 2] = [Copies::InFile, Copies::InRegion];

    /// Returns the number of the first write to a data file. A copy in a region does not count as a write of
    /// a file.
    fn first_in_place(self) -> u64 {
        if self == Copies::InFile { 2 } else { 1 }
    }

    fn in_force(self) -> InForce {
        if self == Copies::InFile { InForce::Doublewrite } else { InForce::NvmDoublewrite }
    }

    /// Returns the region of a device as a place for copies.
    fn of(self, device: &dyn Directory) -> Option<Arc<RegionFiles>> {
        let extent_bytes = copies_bytes(4096, 6, 2);
        let how = RegionExtents {
            prefix: REGION_PREFIX.into(),
            extent_bytes,
            count: 1,
            location: "(memory)".into(),
        };
        let map = || device.map("nvm", extent_bytes).unwrap();
        (self == Copies::InRegion).then(|| RegionFiles::new(map(), how, Arc::new(Accounting::new())))
    }
}

fn settings(directory: Arc<dyn Directory>, copies: Copies) -> PagerConfig {
    let mut config = PagerConfig::new(directory);
    config.page_size = 4096;
    let (batch_slots, single_slots) = (6, 2);
    config.protection = match copies {
        Copies::InFile => ProtectionKind::Doublewrite { batch_slots, single_slots },
        Copies::InRegion => ProtectionKind::NvmDoublewrite { batch_slots, single_slots },
    };
    config
}

fn space(directory: &dyn Directory, is_new: bool) -> Arc<SpaceFiles> {
    let file = SpaceFile::open(SpaceId::DATA, directory, 4096, is_new).unwrap();
    if is_new {
        file.resize(PAGES).unwrap();
    }
    Arc::new(SpaceFiles::new(vec![file]))
}

fn area(
    directory: Arc<dyn Directory>,
    copies: Copies,
    is_new: bool,
) -> (Arc<SpaceFiles>, Box<dyn Protection>) {
    area_for(1, directory, copies, is_new)
}

fn area_for(
    page_writers: usize,
    directory: Arc<dyn Directory>,
    copies: Copies,
    is_new: bool,
) -> (Arc<SpaceFiles>, Box<dyn Protection>) {
    let files = space(&*directory, is_new);
    let was = (!is_new).then_some(copies.in_force());
    let region = copies.of(&*directory);
    let region = region.as_deref().map(|region| region as &dyn Directory);
    let config = PagerConfig { page_writers, ..settings(directory, copies) };
    let protection = open(&config.wanted_protection(region), 7, &files, was).unwrap();
    (files, protection)
}

/// Returns the files after repair.
fn repaired(directory: Arc<dyn Directory>, copies: Copies) -> Arc<SpaceFiles> {
    let files = space(&*directory, false);
    let region = copies.of(&*directory);
    let region = region.as_deref().map(|region| region as &dyn Directory);
    let config = settings(directory, copies);
    repair(copies.in_force(), &config.wanted_protection(region), &files, Lsn::new(9), &mut |_| Ok(()))
        .unwrap();
    files
}

fn write(protection: &dyn Protection, pages: impl Iterator<Item = u32>, lsn: u64, cause: Cause) {
    let images: Vec<Image> = pages.map(|no| image(no, lsn)).collect();
    protection.write(&images.iter().map(as_stored).collect::<Vec<_>>(), cause).unwrap();
}

/// Returns the LSN of the page in the data file. The page must be whole.
fn lsn_at_home(files: &SpaceFiles, no: u32, what: &str) -> u64 {
    let id = PageId::new(SpaceId::DATA, PageNo(no));
    let file = files.of(id).unwrap();
    let mut buf = varve_device::AlignedBuf::new(4096);
    file.file().read_at(file.offset(id).unwrap(), &mut buf, file.purpose()).unwrap();
    stored_page::decode_in(&mut buf, id).unwrap_or_else(|damage| panic!("{what}: page {no}: {damage}"));
    page::page_lsn(&buf).get()
}

#[test]
fn every_page_is_whole_after_repair() {
    for copies in Copies::BOTH {
        let inner = MemoryDirectory::new();
        let (_, protection) = area(inner.clone(), copies, true);
        for first in (0..PAGES).step_by(6) {
            write(&*protection, first..first + 6, 10, Cause::Drain);
        }
        let log = RecordLog::new();
        let (_, protection) = area(Recorder::wrap(inner, log.clone()), copies, false);
        for lsn in 11..=20 {
            write(&*protection, (0..PAGES).filter(|no| u64::from(no % 3) == lsn % 3), lsn, Cause::Checkpoint);
            log.mark(lsn);
            write(&*protection, (0..3).map(|no| no * 7 + lsn as u32 % 3), lsn, Cause::EvictInline);
        }
        let mut timeline = Timeline::new(log.recording());
        for cut in 0..=timeline.end() {
            timeline.advance(cut);
            let pending = timeline.pending().len();
            // Two of the four seeds are used for each cut, so all four take turns.
            for seed in [cut as usize % 4, (cut as usize + 2) % 4] {
                let fate = |at: usize| match (seed + at) % 4 {
                    0 => Fate::Absent,
                    1 => Fate::Torn { unit_bytes: 512, seed: cut + at as u64 },
                    2 => Fate::Garbage { seed: cut + at as u64 },
                    _ => Fate::Present,
                };
                let directory = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
                let files = repaired(directory, copies);
                let what = format!("cut {cut}, fates {seed}");
                let newest = timeline.marks().last().copied().unwrap_or(10);
                for no in 0..PAGES {
                    let lsn = lsn_at_home(&files, no, &what);
                    let written = (11..=newest).rev().find(|lsn| lsn % 3 == u64::from(no % 3)).unwrap_or(10);
                    assert!(lsn >= written, "{what}: page {no} went back to {lsn} from {written}");
                }
            }
        }
    }
}

/// In a region, new copies are made in the place of the old ones.
#[test]
fn copies_with_another_split_are_made_anew_at_any_cut() {
    for copies in Copies::BOTH {
        let inner = MemoryDirectory::new();
        let (_, protection) = area(inner.clone(), copies, true);
        (0..PAGES).step_by(6).for_each(|first| write(&*protection, first..first + 6, 10, Cause::Drain));
        let log = RecordLog::new();
        let recorder = Recorder::wrap(inner, log.clone());
        let (files, region) = (space(&*recorder, false), copies.of(&*recorder));
        let mut config = settings(recorder, copies);
        let split = |how: &mut ProtectionKind| {
            if let ProtectionKind::Doublewrite { batch_slots, single_slots }
            | ProtectionKind::NvmDoublewrite { batch_slots, single_slots } = how
            {
                (*batch_slots, *single_slots) = (5, 3);
            }
        };
        split(&mut config.protection);
        let region = region.as_deref().map(|region| region as &dyn Directory);
        drop(open(&config.wanted_protection(region), 7, &files, Some(copies.in_force())).unwrap());
        let mut timeline = Timeline::new(log.recording());
        assert!(timeline.end() > 2);
        for cut in 0..=timeline.end() {
            timeline.advance(cut);
            let pending = timeline.pending().len();
            for seed in 0..8 {
                let fate = |at: usize| match (seed + at) % 4 {
                    0 => Fate::Absent,
                    3 => Fate::Present,
                    _ => Fate::Torn { unit_bytes: 8, seed: cut * 8 + (seed + at) as u64 },
                };
                let directory = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
                let files = repaired(directory, copies);
                let what = format!("{copies:?}, cut {cut}, fates {seed}");
                (0..PAGES).for_each(|no| assert_eq!(lsn_at_home(&files, no, &what), 10));
            }
        }
    }
}

/// Each of several page writers writes its batches through an area of its own.
#[test]
fn batches_beside_each_other_leave_every_page_whole() {
    Copies::BOTH.into_iter().for_each(batches_beside_each_other);
}

fn batches_beside_each_other(copies: Copies) {
    const WRITERS: u32 = 3;
    const EACH: u32 = PAGES / WRITERS;
    let inner = MemoryDirectory::new();
    let (_, protection) = area_for(WRITERS as usize, inner.clone(), copies, true);
    write(&*protection, 0..PAGES, 10, Cause::Drain);
    let log = RecordLog::new();
    let recorder = Recorder::wrap(inner, log.clone());
    let (_, protection) = area_for(WRITERS as usize, recorder, copies, false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let pages = writer * EACH..(writer + 1) * EACH;
            let protection = &*protection;
            let put = move |lsn| write(protection, pages.clone(), lsn, Cause::Checkpoint);
            scope.spawn(move || (11..=13).for_each(put));
        }
    });
    let mut timeline = Timeline::new(log.recording());
    let end = timeline.end();
    for cut in 0..=end {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for seed in 0..2 {
            let fate = |at: usize| match (seed + at + cut as usize) % 3 {
                0 => Fate::Absent,
                1 => Fate::Torn { unit_bytes: 512, seed: cut + at as u64 },
                _ => Fate::Present,
            };
            let directory = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
            let files = repaired(directory, copies);
            let what = format!("{copies:?}, cut {cut} of {end}, fates {seed}");
            let lsns: Vec<u64> = (0..PAGES).map(|no| lsn_at_home(&files, no, &what)).collect();
            let is_right = |lsn: &u64| (10..=13).contains(lsn) && (cut < end || *lsn == 13);
            assert!(lsns.iter().all(is_right), "{what}: {lsns:?}");
        }
    }
}

/// Only some pages of a batch reach the data files. A batch of another thread waits for the slots meanwhile.
/// It must not take them, because they hold the only whole copies.
#[test]
fn a_failed_batch_keeps_its_slots() {
    for copies in Copies::BOTH {
        for round in 0..30 {
            let inner = MemoryDirectory::new();
            let (_, protection) = area(inner.clone(), copies, true);
            write(&*protection, 0..6, 10, Cause::Drain);
            write(&*protection, 6..12, 10, Cause::Drain);
            let device = Faulty::wrap(inner.clone());
            let (_, protection) = area(device.clone(), copies, false);
            let rule = |when, fault| Rule { operation: Some(Operation::Write), space: None, when, fault };
            device.arm(rule(When::Nth(copies.first_in_place()), Fault::Short));
            if copies == Copies::InFile {
                device.arm(rule(When::Nth(1), Fault::Slow(std::time::Duration::from_millis(10))));
            }
            let put = |first: u32| {
                let images: Vec<Image> = (first..first + 6).map(|no| image(no, 11)).collect();
                protection.write(&images.iter().map(as_stored).collect::<Vec<_>>(), Cause::Checkpoint)
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| put(6));
                assert!(put(0).is_err() && other.join().unwrap().is_err(), "round {round}: both must fail");
            });
            assert!(put(0).is_err(), "round {round}: slots are used after a failure");
            let single = image(3, 12);
            assert!(
                protection.write(&[Stored::plain(&single)], Cause::EvictInline).is_err(),
                "round {round}"
            );
            let files = repaired(inner, copies);
            (0..12).for_each(|no| assert!(lsn_at_home(&files, no, &format!("round {round}")) >= 10));
        }
    }
}

/// The same as in the test above, for a single page. The slot of the page is not used for the next page.
#[test]
fn a_failed_single_write_keeps_its_slot() {
    for copies in Copies::BOTH {
        let inner = MemoryDirectory::new();
        let (_, protection) = area(inner.clone(), copies, true);
        write(&*protection, 0..6, 10, Cause::Drain);
        let device = Faulty::wrap(inner.clone());
        let (_, protection) = area(device.clone(), copies, false);
        device.arm(Rule {
            operation: Some(Operation::Write),
            space: None,
            when: When::Nth(copies.first_in_place()),
            fault: Fault::Short,
        });
        let put = |no: u32, lsn| protection.write(&[Stored::plain(&image(no, lsn))], Cause::EvictInline);
        assert!(put(0, 11).is_err());
        for no in 1..6 {
            assert!(put(no, 11).is_err(), "page {no} is written after a failure");
        }
        let files = repaired(inner, copies);
        assert_eq!(lsn_at_home(&files, 0, "after repair"), 11);
    }
}

/// Returns a full device that writes only half of each page in the data file.
fn half_full(copies: Copies) -> Rule {
    let every = copies.first_in_place();
    Rule {
        operation: Some(Operation::Write),
        space: None,
        when: When::EveryFrom(every, every),
        fault: Fault::HalfFull,
    }
}

/// A full device leaves a page half written, and then has space for other pages. These must not take the slot
/// of its only copy.
#[test]
fn a_half_written_page_keeps_its_slot_until_it_is_in_place() {
    for copies in Copies::BOTH {
        for cause in [Cause::Checkpoint, Cause::EvictInline] {
            let inner = MemoryDirectory::new();
            let (_, protection) = area(inner.clone(), copies, true);
            write(&*protection, 0..6, 10, Cause::Drain);
            write(&*protection, 6..12, 10, Cause::Drain);
            let device = Faulty::wrap(inner.clone());
            let (_, protection) = area(device.clone(), copies, false);
            device.arm(half_full(copies));
            let error = protection.write(&[Stored::plain(&image(0, 11))], cause).unwrap_err();
            assert!(error.is_no_space(), "{error}");
            device.disarm();
            assert_eq!(protection.held().len(), 1);
            for round in 0..3 {
                write(&*protection, 1..12, 12 + round, Cause::Checkpoint);
                (1..12).for_each(|no| write(&*protection, no..no + 1, 12 + round, Cause::EvictInline));
            }
            let crashed = MemoryDirectory::from_images(inner.images());
            let files = repaired(crashed, copies);
            assert_eq!(lsn_at_home(&files, 0, "after repair"), 11);
            write(&*protection, 0..1, 20, cause);
            assert!(protection.held().is_empty());
        }
    }
}

/// If every slot holds the only copy of a half-written page, nothing else is written. When the device has
/// space again, all pages are written.
#[test]
fn slots_that_are_all_held_come_back_with_the_room() {
    for copies in Copies::BOTH {
        let inner = MemoryDirectory::new();
        let (_, protection) = area(inner.clone(), copies, true);
        write(&*protection, 0..6, 10, Cause::Drain);
        write(&*protection, 6..12, 10, Cause::Drain);
        let device = Faulty::wrap(inner);
        let (files, protection) = area(device.clone(), copies, false);
        device.arm(half_full(copies));
        let put = |no: u32, cause| protection.write(&[Stored::plain(&image(no, 11))], cause);
        for no in 0..6 {
            assert!(put(no, Cause::Checkpoint).unwrap_err().is_no_space(), "page {no}");
        }
        for no in 6..8 {
            assert!(put(no, Cause::EvictInline).unwrap_err().is_no_space(), "page {no}");
        }
        device.disarm();
        assert_eq!(protection.held().len(), 8);
        assert!(put(9, Cause::Checkpoint).unwrap_err().is_no_space());
        assert!(put(9, Cause::EvictInline).unwrap_err().is_no_space());
        write(&*protection, 0..12, 12, Cause::Checkpoint);
        (0..12).for_each(|no| assert_eq!(lsn_at_home(&files, no, "with room"), 12));
        write(&*protection, 0..12, 13, Cause::EvictInline);
        assert!(protection.held().is_empty());
    }
}
