//! A database whose log, or doublewrite copies, are in persistent memory: it opens with its own region, whole, of now, and with nothing else; what is
//! refused stays as it was.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;

use common::{NoOps, add, config, get, open, set, stored, with_stored};
use varve_device::{Directory, MemoryDirectory, MemoryImage, Region};
use varve_pager::control::{CONTROL_FILE, Control, State};
use varve_pager::{NvmConfig, PageId, Pager, PagerConfig, ProtectionKind, SpaceId};

const REGION: &str = "nvm.varve";
const SIZE_BYTES: u64 = 768 << 10;
const LOG_BYTES: u64 = 512 << 10;
const STAMP_AT: u64 = 4096;

fn with_log(directory: &Arc<MemoryDirectory>, size_bytes: u64, log_bytes: u64) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes, log_bytes };
    PagerConfig { nvm: Some(nvm), ..config(directory, 64) }
}

fn in_nvm(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    with_log(directory, SIZE_BYTES, LOG_BYTES)
}

/// A page with the number 2, which only the log has, and the directory as a crash leaves it.
fn crashed() -> (Arc<MemoryDirectory>, PageId) {
    let directory = MemoryDirectory::new();
    let pager = open(&in_nvm(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    set(&pager, id, 2).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    (MemoryDirectory::from_images(directory.images()), id)
}

fn region(directory: &MemoryDirectory) -> Arc<dyn Region> {
    directory.map(REGION, SIZE_BYTES).unwrap()
}

fn file(directory: &MemoryDirectory, name: &str) -> MemoryImage {
    directory.images().into_iter().find(|(found, _)| found == name).unwrap().1
}

/// The same files with another region, or none.
fn with_region(directory: &MemoryDirectory, other: Option<MemoryImage>) -> Arc<MemoryDirectory> {
    let files = directory.images().into_iter().filter(|(name, _)| name != REGION);
    MemoryDirectory::from_images(files.chain(other.map(|image| (REGION.to_owned(), image))))
}

/// Opening says this, and changes no file.
fn assert_refused(directory: &Arc<MemoryDirectory>, config: &PagerConfig, expected: &str) {
    let names = directory.list().unwrap();
    let bytes = |name: &String| {
        let image = file(directory, name);
        let mut bytes = vec![0; image.len_bytes() as usize];
        image.read(0, &mut bytes);
        bytes
    };
    let before: Vec<Vec<u8>> = names.iter().map(bytes).collect();
    let error = Pager::open(config.clone(), Arc::new(NoOps)).err().expect("must be refused").to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(directory.list().unwrap(), names, "{expected}");
    assert_eq!(names.iter().map(bytes).collect::<Vec<_>>(), before, "{expected}");
}

#[test]
fn commits_in_the_region_survive_a_crash_and_a_shutdown() {
    let (directory, id) = crashed();
    assert!(directory.list().unwrap().iter().all(|name| !name.starts_with("log.")), "the log has no files");
    for round in 2..20 {
        let pager = open(&in_nvm(&directory));
        assert_eq!(get(&pager, id).unwrap(), round);
        set(&pager, id, round + 1).unwrap();
        match round % 3 {
            0 => pager.shutdown().unwrap(),
            1 => pager.flush_log(pager.log().end()).unwrap(),
            _ => {
                pager.flush_log(pager.log().end()).unwrap();
                pager.tick_write(100).unwrap();
                pager.checkpoint().unwrap();
            }
        }
    }
}

/// All segments are used again and again: the log goes round in its area.
#[test]
fn the_log_goes_round_in_its_area() {
    let (directory, id) = crashed();
    let pager = open(&in_nvm(&directory));
    for number in 0..3000 {
        let mut mtr = pager.begin().unwrap();
        let page = mtr.x(id).unwrap();
        mtr.write(page, 100, &u64::to_le_bytes(number));
        mtr.write(page, 200, &vec![number as u8; 2000]);
        mtr.commit();
        if number % 30 == 0 {
            pager.flush_log(pager.log().end()).unwrap();
            pager.tick_write(10).unwrap();
            pager.checkpoint().unwrap();
        }
    }
    pager.flush_log(pager.log().end()).unwrap();
    assert!(pager.log().end().get() > 4 * SIZE_BYTES);
    let crashed = MemoryDirectory::from_images(directory.images());
    assert_eq!(get(&open(&in_nvm(&crashed)), id).unwrap(), 2999);
}

#[test]
fn without_its_region_the_database_is_refused() {
    let (directory, _) = crashed();
    assert_refused(&directory, &config(&directory, 64), "none is configured");
    let gone = with_region(&directory, None);
    assert_refused(&gone, &in_nvm(&gone), "is missing");
}

#[test]
fn a_region_that_is_not_whole_is_refused() {
    let (directory, _) = crashed();
    for (len_bytes, expected) in
        [(4096, "no NVM region"), (SIZE_BYTES - 4096, "bytes long"), (SIZE_BYTES + 4096, "bytes long")]
    {
        let mut image = file(&directory, REGION);
        image.set_len(len_bytes);
        let cut = with_region(&directory, Some(image));
        assert_refused(&cut, &in_nvm(&cut), expected);
    }
    for (at, expected) in [(3, "no NVM region"), (30, "damaged header"), (4000, "damaged header")] {
        let mut image = file(&directory, REGION);
        image.write(at, &[0xEE]);
        let damaged = with_region(&directory, Some(image));
        assert_refused(&damaged, &in_nvm(&damaged), expected);
    }
}

#[test]
fn the_region_of_another_database_is_refused() {
    let (directory, _) = crashed();
    let (other, _) = crashed();
    let mixed = with_region(&directory, Some(file(&other, REGION)));
    assert_refused(&mixed, &in_nvm(&mixed), "another database");
    let new = MemoryDirectory::from_images([(REGION.to_owned(), file(&other, REGION))]);
    assert_refused(&new, &in_nvm(&new), "another database");
}

#[test]
fn a_region_of_an_earlier_moment_is_refused() {
    let (directory, id) = crashed();
    let earlier = file(&directory, REGION);
    let pager = open(&in_nvm(&directory));
    pager.checkpoint().unwrap();
    drop(pager);
    let put_back = with_region(&directory, Some(earlier));
    assert_refused(&put_back, &in_nvm(&put_back), "earlier moment");
    assert_eq!(get(&open(&in_nvm(&directory)), id).unwrap(), 2);
}

/// A crash between the region's stamp and the control file leaves the region ahead.
#[test]
fn a_region_that_is_ahead_by_a_checkpoint_is_taken() {
    let (directory, id) = crashed();
    let region = region(&directory);
    region.store_word(STAMP_AT, region.load_word(STAMP_AT) + 1);
    let pager = open(&in_nvm(&directory));
    assert_eq!(get(&pager, id).unwrap(), 2);
    pager.checkpoint().unwrap();
    let noted = Control::open(&*directory).unwrap().unwrap().get().attached.unwrap().stamp;
    assert_eq!(region.load_word(STAMP_AT), noted);
}

#[test]
fn another_division_is_refused() {
    let (directory, _) = crashed();
    let smaller = with_log(&directory, SIZE_BYTES, LOG_BYTES + 8 * 4096);
    assert_refused(&directory, &smaller, "divided in another way");
    let longer = with_log(&directory, 2 * SIZE_BYTES, LOG_BYTES);
    assert_refused(&directory, &longer, "divided in another way");
}

const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };

/// Doublewrite copies in the region, with or without the log.
fn with_copies(directory: &Arc<MemoryDirectory>, log_bytes: u64) -> PagerConfig {
    PagerConfig { protection: COPIES, ..with_log(directory, SIZE_BYTES, log_bytes) }
}

/// A page that a crash tore while it was written home with the number 2, its log cut behind the number 1.
fn torn(log_bytes: u64) -> (Arc<MemoryDirectory>, PageId) {
    let directory = MemoryDirectory::new();
    let pager = open(&with_copies(&directory, log_bytes));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    set(&pager, id, 2).unwrap();
    assert_eq!(pager.tick_write(1).unwrap(), 1);
    let mut bytes = stored(&directory, id);
    bytes[2048..].fill(0xAA);
    (with_stored(&directory, id, &bytes), id)
}

#[test]
fn a_torn_page_is_mended_from_its_copy_in_the_region() {
    for log_bytes in [0, LOG_BYTES] {
        let (directory, id) = torn(log_bytes);
        assert!(
            directory.list().unwrap().iter().all(|name| !name.starts_with("doublewrite")),
            "no file of copies"
        );
        assert_eq!(get(&open(&with_copies(&directory, log_bytes)), id).unwrap(), 2, "log of {log_bytes}");
    }
}

/// Its copies may be needed, so it doesn't open without them; nor with a protection that knows nothing of them.
#[test]
fn without_the_region_of_its_copies_a_database_is_refused() {
    let (directory, _) = torn(0);
    assert_refused(&directory, &config(&directory, 64), "doublewrite copies are in an NVM region, and none");
    let gone = with_region(&directory, None);
    assert_refused(&gone, &with_copies(&gone, 0), "doublewrite copies are in it");
    assert_refused(&directory, &in_nvm(&directory), "divided in another way");
    let none = PagerConfig { nvm: None, ..with_copies(&directory, 0) };
    assert_refused(&directory, &none, "nvm-dwb needs an NVM region");
    let more = ProtectionKind::NvmDoublewrite { batch_slots: 9, single_slots: 2 };
    let more = PagerConfig { protection: more, ..with_copies(&directory, 0) };
    assert_refused(&directory, &more, "divided in another way");
}

#[test]
fn sizes_that_cannot_work_are_refused() {
    let directory = MemoryDirectory::new();
    for (size_bytes, log_bytes, expected) in [
        (SIZE_BYTES, 0, "nothing in it"),
        (SIZE_BYTES, LOG_BYTES - 1, "at least 524288"),
        (LOG_BYTES, LOG_BYTES, "at least 532480"),
        (SIZE_BYTES + 1, LOG_BYTES, "multiple of 4096"),
        (u64::MAX, u64::MAX, "multiple of 4096"),
    ] {
        assert_refused(&directory, &with_log(&directory, size_bytes, log_bytes), expected);
    }
}

/// A creation that was cut off anywhere starts over, and its region is its own.
#[test]
fn a_creation_that_was_cut_off_starts_over() {
    let (directory, _) = crashed();
    let control = Control::open(&*directory).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    drop(open(&in_nvm(&directory)));
    // The control file named the region, and the crash came before the region's header.
    let control = Control::open(&*directory).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    region(&directory).store_word(0, 0);
    let pager = open(&in_nvm(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 7).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    assert_eq!(get(&open(&in_nvm(&directory)), id).unwrap(), 7);
    assert!(directory.exists(CONTROL_FILE).unwrap());
}
