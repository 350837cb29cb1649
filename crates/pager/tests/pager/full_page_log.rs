//! Page protection by the log (`full-page-log`). The log has an image of each page from before its first
//! change. If a crash tears a page, redo restores it from this image.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set, stored, with_stored};
use varve_device::MemoryDirectory;
use varve_pager::control::Control;
use varve_pager::{NvmConfig, PageId, Pager, PagerConfig, ProtectionKind, Replacement, SpaceId};

const IMAGES: ProtectionKind = ProtectionKind::FullPageLog;
const NONE: ProtectionKind = ProtectionKind::None;

fn with(directory: &Arc<MemoryDirectory>, protection: ProtectionKind) -> PagerConfig {
    PagerConfig { protection, ..config(directory, 64) }
}

/// Returns a database with one page in the data file. Half of the page is not zero, and its number is 1. No
/// change of it is in the part of the log that redo would read.
fn one_page(protection: ProtectionKind) -> (Arc<MemoryDirectory>, PageId) {
    let directory = MemoryDirectory::new();
    let pager = open(&with(&directory, protection));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, 2000, &[0x55; 2000]);
    mtr.commit();
    pager.shutdown().unwrap();
    (directory, id)
}

/// Returns the files after the machine failed in the middle of a write of the page: one half of the page is
/// older than the other.
fn torn(directory: &Arc<MemoryDirectory>, id: PageId) -> Arc<MemoryDirectory> {
    let mut bytes = stored(directory, id);
    bytes[2048..].fill(0xAA);
    with_stored(directory, id, &bytes)
}

/// Puts a number into the page by a whole-page record.
fn set_whole(pager: &Pager, id: PageId, number: u64) {
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    let mut body = mtr.page(page)[32..].to_vec();
    body[68..76].copy_from_slice(&number.to_le_bytes());
    mtr.image(page, &body);
    mtr.commit();
}

fn flush(pager: &Pager) {
    pager.flush_log(pager.log().end()).unwrap();
}

fn clean(pager: &Pager) {
    while pager.tick_write(100).unwrap() > 0 {}
}

#[test]
fn a_torn_page_is_made_whole_from_its_image() {
    let (directory, id) = one_page(IMAGES);
    let pager = open(&with(&directory, IMAGES));
    set(&pager, id, 2).unwrap();
    flush(&pager);
    drop(pager);
    assert_eq!(get(&open(&with(&torn(&directory, id), IMAGES)), id).unwrap(), 2);
    // Another protection at the next start reads the same log.
    let crashed = torn(&directory, id);
    let pager = open(&with(&crashed, ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 }));
    assert_eq!(get(&pager, id).unwrap(), 2);
}

/// An image is logged at each change from clean to dirty (decision 0208). An image from before the page was
/// last clean may be before the redo position.
#[test]
fn each_change_of_a_clean_page_is_preceded_by_its_image() {
    let (directory, id) = one_page(IMAGES);
    let pager = open(&with(&directory, IMAGES));
    let logged = |what: &dyn Fn()| {
        let before = pager.log().stats().group_bytes;
        what();
        pager.log().stats().group_bytes - before
    };
    for round in 0..3 {
        let first = logged(&|| set(&pager, id, round).unwrap());
        let second = logged(&|| set(&pager, id, round + 10).unwrap());
        assert!((2000..2300).contains(&first), "round {round}: {first} bytes, a hole of zeros left out");
        assert!(second < 50, "round {round}: {second} bytes");
        clean(&pager);
        pager.checkpoint().unwrap();
        set(&pager, id, round + 20).unwrap();
        flush(&pager);
        let reopened = open(&with(&torn(&directory, id), IMAGES));
        assert_eq!(get(&reopened, id).unwrap(), round + 20, "round {round}");
        clean(&pager);
    }
}

/// Redo may start between two dirty periods of a page. In an earlier version, it applied the records of the
/// first period to the stored page, which a write in the second period had torn.
#[test]
fn redo_does_not_read_a_page_that_an_image_makes_anew_later() {
    let (directory, id) = one_page(NONE);
    let pager = open(&with(&directory, NONE));
    set(&pager, id, 2).unwrap();
    set_whole(&pager, id, 3);
    set(&pager, id, 4).unwrap();
    flush(&pager);
    drop(pager);
    assert_eq!(get(&open(&with(&torn(&directory, id), NONE)), id).unwrap(), 4);
}

/// If an image follows another change of the page in the same mini-transaction, redo must not begin with the
/// image. It first applies the changes of the group before the image.
#[test]
fn an_image_within_a_group_does_not_hide_the_one_before() {
    let (directory, id) = one_page(IMAGES);
    let pager = open(&with(&directory, IMAGES));
    set(&pager, id, 2).unwrap();
    let mut mtr = pager.begin().unwrap();
    let page = mtr.x(id).unwrap();
    mtr.write(page, 200, &[9; 8]);
    let body = mtr.page(page)[32..].to_vec();
    mtr.image(page, &body);
    mtr.commit();
    flush(&pager);
    drop(pager);
    let pager = open(&with(&torn(&directory, id), IMAGES));
    assert_eq!(get(&pager, id).unwrap(), 2);
}

/// Returns a crashed database. With few frames, its redo writes the page with the number 2 before it comes to
/// the number 3. Both changes are of one dirty period.
fn crashed_with_more_than_fits() -> (Arc<MemoryDirectory>, PageId) {
    let (directory, id) = one_page(IMAGES);
    let pager = open(&PagerConfig { protection: IMAGES, ..config(&directory, 256) });
    set(&pager, id, 2).unwrap();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    for number in 0..100 {
        add(&pager, owner, number).unwrap();
    }
    // The next change goes into another block of the log than the image.
    flush(&pager);
    // The page is changed twice. A page that is used often is not the next one to leave the pool.
    set(&pager, id, 3).unwrap();
    set(&pager, id, 3).unwrap();
    flush(&pager);
    drop(pager);
    (directory, id)
}

/// Returns a configuration with few frames. Under its replacement policy, the page leaves the pool while redo
/// runs.
fn few_frames(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    PagerConfig { protection: IMAGES, replacement: Replacement::Lru2, ..config(directory, 32) }
}

fn number_stored(directory: &MemoryDirectory, id: PageId) -> u64 {
    u64::from_le_bytes(stored(directory, id)[100..108].try_into().unwrap())
}

/// Redo writes a page, logs that the data file has it, and changes it again. A second torn write follows. In
/// an earlier version, the log record hid the only image of the page from the next redo, so the database did
/// not open any more.
#[test]
fn a_page_that_redo_wrote_in_between_is_made_whole_in_spite_of_the_note() {
    let (directory, id) = crashed_with_more_than_fits();
    let pager = open(&few_frames(&directory));
    assert_eq!(number_stored(&directory, id), 2, "redo has written it in between");
    flush(&pager);
    clean(&pager);
    assert_eq!(number_stored(&directory, id), 3);
    drop(pager);
    assert_eq!(get(&open(&few_frames(&torn(&directory, id))), id).unwrap(), 3);
}

/// The same case with a checkpoint. In an earlier version, redo would then have begun after the image.
#[test]
fn a_page_that_redo_wrote_in_between_holds_the_log_back_to_its_image() {
    let (directory, id) = crashed_with_more_than_fits();
    let pager = open(&few_frames(&directory));
    while pager.stats().dirty_frames > 3 {
        assert!(pager.tick_write(1).unwrap() > 0);
    }
    assert_eq!(number_stored(&directory, id), 2, "what the start itself changed is younger");
    pager.checkpoint().unwrap();
    assert_eq!(get(&open(&few_frames(&torn(&directory, id))), id).unwrap(), 3);
    // When the page is stable, the log before its image can go.
    let redo = |directory: &MemoryDirectory| Control::open(directory).unwrap().unwrap().get().redo;
    let held = redo(&directory);
    clean(&pager);
    pager.checkpoint().unwrap();
    assert!(redo(&directory) > held);
}

/// After a crash the log has changes without images. An earlier version refused the start, and a server that
/// restarts by itself stayed down. Now the database continues with its old protection, and a warning says so.
#[test]
fn it_begins_after_a_clean_shutdown_only() {
    let (directory, id) = one_page(NONE);
    let pager = open(&with(&directory, NONE));
    set(&pager, id, 2).unwrap();
    flush(&pager);
    drop(pager);
    for round in 3..5 {
        let pager = open(&with(&directory, IMAGES));
        let said = pager.warnings().join("; ");
        assert!(
            said.contains("full-page-log begins behind a shutdown that leaves nothing to redo"),
            "{said}"
        );
        assert_eq!(pager.config().protection, NONE);
        set(&pager, id, round).unwrap();
        flush(&pager);
    }
    let pager = open(&with(&directory, IMAGES));
    assert_eq!(get(&pager, id).unwrap(), 4);
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&with(&directory, IMAGES));
    assert!(pager.warnings().is_empty(), "{:?}", pager.warnings());
    set(&pager, id, 3).unwrap();
    flush(&pager);
    drop(pager);
    assert_eq!(get(&open(&with(&torn(&directory, id), IMAGES)), id).unwrap(), 3, "in force since");
}

#[test]
fn segments_must_hold_a_mini_transaction_with_images() {
    let directory = MemoryDirectory::new();
    let small = PagerConfig { log_segment_bytes: 128 << 10, ..with(&directory, IMAGES) };
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 768 << 10, log_bytes: 512 << 10 };
    let in_nvm = PagerConfig { nvm: Some(nvm), ..with(&directory, IMAGES) };
    for config in [small, in_nvm] {
        let why = Pager::open(config, Arc::new(NoOps)).err().unwrap().to_string();
        assert!(why.contains("at least 64 pages for protection full-page-log"), "{why}");
        assert!(directory.images().is_empty(), "nothing was made");
    }
}
