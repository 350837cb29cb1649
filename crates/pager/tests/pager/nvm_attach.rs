//! A database with its log or doublewrite copies in persistent memory. Committed changes survive, and the
//! copies repair torn pages. `bad_regions.rs` tests the cases that are refused.

use std::sync::Arc;

use crate::common::{add, config, get, open, set, stored, with_stored};
use varve_device::{Directory, MemoryDirectory, Region};
use varve_pager::control::{CONTROL_FILE, Control, State};
use varve_pager::{NvmConfig, PageId, PagerConfig, ProtectionKind, SpaceId};

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

/// Returns a directory as a crash leaves it, and a page in it. The page has the number 2, which only the log
/// has.
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

/// The log uses all segments of its area again and again.
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

/// A crash after the write of the region's stamp and before the write of the control file leaves the region
/// ahead of the control file.
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

const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };

/// Returns a configuration with doublewrite copies in the region, with or without the log.
fn with_copies(directory: &Arc<MemoryDirectory>, log_bytes: u64) -> PagerConfig {
    PagerConfig { protection: COPIES, ..with_log(directory, SIZE_BYTES, log_bytes) }
}

/// Returns a page that a crash tore while it was written to the data file with the number 2. The log is cut
/// after the change to the number 1.
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

/// A creation that was interrupted anywhere begins again, and its region belongs to it.
#[test]
fn a_creation_that_was_cut_off_starts_over() {
    let (directory, _) = crashed();
    let control = Control::open(&*directory).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    drop(open(&in_nvm(&directory)));
    // The control file named the region, and the crash came before the region's header.
    let control = Control::open(&*directory).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    region(&directory).store_word(0, u64::from_le_bytes(*b"NVM LEFT"));
    let pager = open(&in_nvm(&directory));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 7).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    assert_eq!(get(&open(&in_nvm(&directory)), id).unwrap(), 7);
    assert!(directory.exists(CONTROL_FILE).unwrap());
}
