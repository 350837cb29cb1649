//! A database that is opened under another page protection than it had: what a crash left torn is mended by the one that was
//! in force, and what the new one left behind earlier is not trusted.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;

use common::{add, config, get, open, set, stored, with_stored};
use varve_device::{Directory, Fate, MemoryDirectory, MemoryImage, RecordLog, Recorder, Timeline};
use varve_pager::control::{Control, InForce};
use varve_pager::{PageId, Pager, PagerConfig, ProtectionKind, SpaceId};

const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
const OTHER_SIZES: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 4, single_slots: 1 };
const NONE: ProtectionKind = ProtectionKind::None;

fn with(directory: &Arc<MemoryDirectory>, protection: ProtectionKind) -> PagerConfig {
    PagerConfig { protection, ..config(directory, 64) }
}

fn noted(directory: &dyn Directory) -> InForce {
    Control::open(directory).unwrap().unwrap().get().protection
}

/// One page with the number 1, at home, the log cut behind it.
fn one_page(protection: ProtectionKind) -> (Arc<MemoryDirectory>, Pager, PageId) {
    let directory = MemoryDirectory::new();
    let pager = open(&with(&directory, protection));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    (directory, pager, id)
}

/// Writes the page home with another number, as if the machine had failed in the middle of that.
fn tear(directory: &Arc<MemoryDirectory>, pager: &Pager, id: PageId, number: u64) -> Arc<MemoryDirectory> {
    set(pager, id, number).unwrap();
    assert_eq!(pager.tick_write(1).unwrap(), 1);
    let mut torn = stored(directory, id);
    torn[2048..].fill(0xAA);
    with_stored(directory, id, &torn)
}

/// A crash under doublewrite and a start with `none` left pages torn: repair went by the new configuration.
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
    let opened = Pager::open(with(&crashed, DOUBLEWRITE), Arc::new(common::NoOps));
    let error = opened.err().expect("redo needs the page").to_string();
    assert!(error.contains(&id.to_string()), "{error}");
}

/// A doublewrite file that was left by another database, in a directory whose own one had none, held the newest copy of a
/// page by its LSN: repair put the other database's page in place.
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

/// A page that is written in part is torn only if its parts differ.
fn set_in_two_places(pager: &Pager, id: PageId, number: u64) {
    let mut mtr = pager.begin().unwrap();
    let old = mtr.x(id).unwrap();
    mtr.write(old, 100, &number.to_le_bytes());
    mtr.write(old, 3000, &number.to_le_bytes());
    mtr.commit();
}

/// From one protection to another, with a crash at every moment of it and of the writes that follow: no page is lost whose
/// writes were protected.
#[test]
fn a_crash_while_the_protection_changes_loses_no_page() {
    for (was, now) in [(DOUBLEWRITE, NONE), (NONE, DOUBLEWRITE), (DOUBLEWRITE, OTHER_SIZES)] {
        let (directory, pager, id) = one_page(was);
        // What was written without protection is whole here: the change begins with a crash, not with a tear.
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
