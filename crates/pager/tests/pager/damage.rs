//! A page whose contents differ from what was written is never returned, and the error names the page.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set, stored, with_stored};
use varve_device::MemoryDirectory;
use varve_pager::{PageId, Pager, PagerError, SpaceId, page};

fn three_pages() -> (Arc<MemoryDirectory>, [PageId; 3]) {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids = std::array::from_fn(|number| add(&pager, owner, number as u64).unwrap());
    pager.shutdown().unwrap();
    (directory, ids)
}

fn assert_damaged(directory: &Arc<MemoryDirectory>, bad: PageId, good: PageId) {
    let pager = open(&config(directory, 64));
    for _ in 0..2 {
        let error = get(&pager, bad).unwrap_err();
        assert!(matches!(error, PagerError::DamagedPage { id, .. } if id == bad), "{error}");
        assert!(error.to_string().contains(&bad.to_string()), "{error}");
    }
    assert_eq!(get(&pager, good).unwrap(), 1);
    let report = pager.check().unwrap();
    assert!(report.damages.iter().any(|damage| damage.contains(&bad.to_string())), "{report:?}");
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let (directory, ids) = three_pages();
    let bytes = stored(&directory, ids[0]);
    for at in [0, 4, 8, 16, 18, 20, 24, 100, 4095] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_damaged(&with_stored(&directory, ids[0], &damaged), ids[0], ids[1]);
    }
}

#[test]
fn a_page_in_another_place_is_found() {
    let (directory, ids) = three_pages();
    let other = stored(&directory, ids[2]);
    assert_damaged(&with_stored(&directory, ids[0], &other), ids[0], ids[1]);
}

#[test]
fn a_page_beyond_the_log_is_found() {
    let (directory, ids) = three_pages();
    let mut future = stored(&directory, ids[0]);
    page::set_page_lsn(&mut future, varve_pager::Lsn::new(1 << 40));
    page::seal(&mut future);
    assert_damaged(&with_stored(&directory, ids[0], &future), ids[0], ids[1]);
}

#[test]
fn a_page_torn_in_flight_is_mended_from_the_doublewrite_file() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    set(&pager, id, 2).unwrap();
    assert_eq!(pager.tick_write(1).unwrap(), 1);
    let mut torn = stored(&directory, id);
    torn[2048..].fill(0xAA);
    let crashed = with_stored(&directory, id, &torn);
    let pager = open(&config(&crashed, 64));
    assert_eq!(get(&pager, id).unwrap(), 2);
}

#[test]
fn an_old_copy_never_replaces_a_damaged_page() {
    let directory = MemoryDirectory::new();
    let pager = open(&config(&directory, 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    let mut damaged = stored(&directory, id);
    damaged[100] ^= 1;
    let crashed = with_stored(&directory, id, &damaged);
    let error = get(&open(&config(&crashed, 64)), id).unwrap_err();
    assert!(matches!(error, PagerError::DamagedPage { .. }), "{error}");
}

#[test]
fn a_descriptor_of_nonsense_is_refused() {
    let (directory, _) = three_pages();
    let id = PageId::new(SpaceId::DATA, varve_pager::PageNo(2));
    let mut bytes = stored(&directory, id);
    bytes[32 + 16 + 4] ^= 1;
    page::seal(&mut bytes);
    let damaged = with_stored(&directory, id, &bytes);
    let config = config(&damaged, 64);
    let Err(error) = varve_pager::Pager::open(config, std::sync::Arc::new(crate::common::NoOps)) else {
        panic!("opened over a wrong descriptor");
    };
    assert!(error.to_string().contains("data:2"), "{error}");
}

/// In an earlier version, the start named only the first damaged page, and the next start the next one.
#[test]
fn all_damaged_pages_in_the_way_of_redo_are_named() {
    let (directory, ids) = three_pages();
    let pager = open(&config(&directory, 64));
    ids.iter().for_each(|id| set(&pager, *id, 7).unwrap());
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let mut damaged = directory.clone();
    for id in [ids[0], ids[2]] {
        let mut bytes = stored(&directory, id);
        bytes[100] ^= 0x10;
        damaged = with_stored(&damaged, id, &bytes);
    }
    let Err(error) = Pager::open(config(&damaged, 64), Arc::new(NoOps)) else { panic!("it opens") };
    let error = error.to_string();
    assert!(error.contains("redo needs 2 pages that are damaged"), "{error}");
    let is_named = |id: PageId| error.contains(&format!("{id} (its checksum"));
    assert_eq!(ids.map(is_named), [true, false, true], "{error}");
    // The pages are restored. Nothing of the log was lost meanwhile.
    let mut restored = damaged;
    for id in ids {
        restored = with_stored(&restored, id, &stored(&directory, id));
    }
    let pager = open(&config(&restored, 64));
    ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 7));
}
