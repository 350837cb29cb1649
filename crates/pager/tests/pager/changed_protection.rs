//! A database that is opened with another page protection. Pages that a crash tore are repaired by the old
//! protection, and old files of the new protection are not used.

use std::sync::Arc;

use crate::common::{add, config, get, open, set, stored, with_stored};
use varve_device::{Directory, Fate, MemoryDirectory, MemoryImage, RecordLog, Recorder, Timeline};
use varve_pager::control::{Control, InForce};
use varve_pager::{NvmConfig, PageId, Pager, PagerConfig, ProtectionKind, SpaceId};

const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
const OTHER_SIZES: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 4, single_slots: 1 };
const NONE: ProtectionKind = ProtectionKind::None;

fn with(directory: &Arc<MemoryDirectory>, protection: ProtectionKind) -> PagerConfig {
    PagerConfig { protection, ..config(directory, 64) }
}

/// Returns a configuration with pages in persistent memory, in 24 slots.
fn in_nvm(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 112 << 10, log_bytes: 0 };
    PagerConfig { nvm: Some(nvm), ..with(directory, ProtectionKind::Nvm) }
}

fn noted(directory: &dyn Directory) -> InForce {
    Control::open(directory).unwrap().unwrap().get().protection
}

/// Returns a database with one page with the number 1. The page is in the data file, and the log is cut after
/// it.
fn one_page(protection: ProtectionKind) -> (Arc<MemoryDirectory>, Pager, PageId) {
    let directory = MemoryDirectory::new();
    let pager = open(&with(&directory, protection));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    (directory, pager, id)
}

/// Writes the page to the data file with another number, as if the machine had failed in the middle of the
/// write.
fn tear(directory: &Arc<MemoryDirectory>, pager: &Pager, id: PageId, number: u64) -> Arc<MemoryDirectory> {
    set(pager, id, number).unwrap();
    assert!(pager.tick_write(100).unwrap() > 0);
    let mut torn = stored(directory, id);
    torn[2048..].fill(0xAA);
    with_stored(directory, id, &torn)
}

/// A crash under doublewrite is followed by a start with `none`. In an earlier version, repair used the new
/// configuration, and pages stayed torn.
#[test]
fn a_page_torn_under_doublewrite_is_mended_at_a_start_without() {
    for next in [NONE, OTHER_SIZES, DOUBLEWRITE] {
        let (directory, pager, id) = one_page(DOUBLEWRITE);
        let crashed = tear(&directory, &pager, id, 2);
        assert_eq!(get(&open(&with(&crashed, next)), id).unwrap(), 2, "{next:?}");
        assert_eq!(noted(&*crashed) == InForce::Nothing, next == NONE);
        assert_eq!(get(&open(&with(&crashed, DOUBLEWRITE)), id).unwrap(), 2, "{next:?}, then as before");
    }
}

#[test]
fn a_page_torn_without_protection_is_damage_under_doublewrite() {
    let (directory, pager, id) = one_page(NONE);
    let crashed = tear(&directory, &pager, id, 2);
    let opened = Pager::open(with(&crashed, DOUBLEWRITE), Arc::new(crate::common::NoOps));
    let error = opened.err().expect("redo needs the page").to_string();
    assert!(error.contains(&id.to_string()), "{error}");
}

/// Another database has left its doublewrite file in the directory of a database that has none. According to
/// its LSN, this file has the newest copy of a page. In an earlier version, repair put this page of the other
/// database in place.
#[test]
fn copies_of_another_database_are_not_trusted() {
    let (foreign, pager, other) = one_page(DOUBLEWRITE);
    (0..50).for_each(|round| set(&pager, other, 100 + round).unwrap());
    pager.tick_write(100).unwrap();
    let (directory, pager, id) = one_page(NONE);
    assert_eq!(id, other, "the case needs the same page in both");
    drop(pager);
    let mut images: Vec<(String, MemoryImage)> = directory.images();
    images.extend(foreign.images().into_iter().filter(|(name, _)| name == "doublewrite.varve"));
    let directory = MemoryDirectory::from_images(images);
    let pager = open(&with(&directory, DOUBLEWRITE));
    let crashed = tear(&directory, &pager, id, 2);
    assert_eq!(get(&open(&with(&crashed, DOUBLEWRITE)), id).unwrap(), 2);
}

/// Puts the number into both halves of the page, because a page that is written in part is torn only if its
/// parts differ.
fn set_in_two_places(pager: &Pager, id: PageId, number: u64) {
    let mut mtr = pager.begin().unwrap();
    let old = mtr.x(id).unwrap();
    mtr.write(old, 100, &number.to_le_bytes());
    mtr.write(old, 3000, &number.to_le_bytes());
    mtr.commit();
}

/// The protection changes, with a crash at every moment of the change and of the writes that follow. No page
/// is lost whose writes were protected.
#[test]
fn a_crash_while_the_protection_changes_loses_no_page() {
    for (was, now) in [(DOUBLEWRITE, NONE), (NONE, DOUBLEWRITE), (DOUBLEWRITE, OTHER_SIZES)] {
        let (directory, pager, id) = one_page(was);
        // A page that was written without protection is whole here, because the change begins with a crash
        // and not with a torn page.
        let before = if was == NONE { directory } else { tear(&directory, &pager, id, 2) };
        drop(pager);
        let first = if was == NONE { 1 } else { 2 };
        let record = RecordLog::new();
        let mut settings = with(&before, now);
        let recorder: Arc<dyn Directory> = Recorder::wrap(before, record.clone());
        settings.data = recorder.clone();
        settings.log = recorder.clone();
        settings.rollback = recorder.clone();
        settings.temporary = recorder.clone();
        settings.control = recorder;
        let pager = open(&settings);
        if now != NONE {
            set_in_two_places(&pager, id, 3);
            pager.tick_write(100).unwrap();
        }
        crash_at_every_moment(record, id, first, &format!("{was:?} to {now:?}"));
    }
}

fn crash_at_every_moment(record: Arc<RecordLog>, id: PageId, first: u64, what: &str) {
    let mut timeline = Timeline::new(record.recording());
    for cut in 0..=timeline.end() {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for seed in 0..9 {
            let fate = |at: usize| match (seed + at) % 3 {
                0 => Fate::Absent,
                1 => Fate::Torn { unit_bytes: 512, seed: cut * 9 + seed as u64 },
                _ => Fate::Present,
            };
            let image = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
            for protection in [NONE, DOUBLEWRITE] {
                let copy = MemoryDirectory::from_images(image.images());
                let number = get(&open(&with(&copy, protection)), id);
                let number = number.unwrap_or_else(|error| panic!("{what}, cut {cut}, {seed}: {error}"));
                assert!(number >= first, "{what}, cut {cut}, {seed}: {number}");
            }
        }
    }
}

/// An existing database gets a region for its pages. From then on, it needs the region.
#[test]
fn a_database_of_doublewrite_goes_on_with_pages_in_persistent_memory() {
    let (directory, pager, id) = one_page(DOUBLEWRITE);
    let crashed = tear(&directory, &pager, id, 2);
    let pager = open(&in_nvm(&crashed));
    assert_eq!(get(&pager, id).unwrap(), 2);
    set(&pager, id, 3).unwrap();
    assert!(pager.tick_write(100).unwrap() > 0);
    // Home's page may be torn or of any age, because the slot has the newest version.
    let torn = with_stored(&crashed, id, &[0xAA; 4096]);
    let pager = open(&in_nvm(&torn));
    assert_eq!(get(&pager, id).unwrap(), 3);
    pager.shutdown().unwrap();
    drop(pager);
    for protection in [DOUBLEWRITE, NONE] {
        let error =
            Pager::open(with(&torn, protection), Arc::new(crate::common::NoOps)).err().unwrap().to_string();
        assert!(error.contains("persistent memory has the newest pages"), "{error}");
        let other = PagerConfig { protection, ..in_nvm(&torn) };
        assert!(Pager::open(other, Arc::new(crate::common::NoOps)).is_err(), "{protection:?}");
    }
    assert_eq!(get(&open(&in_nvm(&torn)), id).unwrap(), 3);
}

/// The region is attached with a crash at every moment. At no moment is the torn page or the new version
/// lost.
#[test]
fn a_crash_while_a_region_is_attached_loses_no_page() {
    let (directory, pager, id) = one_page(DOUBLEWRITE);
    let before = tear(&directory, &pager, id, 2);
    drop(pager);
    let record = RecordLog::new();
    let recorder: Arc<dyn Directory> = Recorder::wrap(before.clone(), record.clone());
    let mut settings = in_nvm(&before);
    settings.nvm = Some(NvmConfig { directory: recorder.clone(), size_bytes: 112 << 10, log_bytes: 0 });
    settings.data = recorder.clone();
    settings.log = recorder.clone();
    settings.rollback = recorder.clone();
    settings.temporary = recorder.clone();
    settings.control = recorder;
    let pager = open(&settings);
    set_in_two_places(&pager, id, 3);
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    record.mark(3);
    pager.tick_nvm(100).unwrap();
    let mut timeline = Timeline::new(record.recording());
    for cut in 0..=timeline.end() {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for seed in 0..4 {
            let fate = |at: usize| match (seed + at) % 3 {
                _ if seed == 3 => Fate::Absent,
                0 => Fate::Absent,
                1 => Fate::Torn { unit_bytes: 512, seed: cut * 9 + seed as u64 },
                _ => Fate::Present,
            };
            let image = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
            let what = format!("cut {cut} of {}, {seed}", timeline.end());
            let pager = Pager::open(in_nvm(&image), Arc::new(crate::common::NoOps));
            let pager = pager.unwrap_or_else(|error| panic!("{what}: {error}"));
            let least = timeline.marks().last().copied().unwrap_or(2);
            assert!(get(&pager, id).unwrap() >= least, "{what}");
            assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
        }
    }
}
