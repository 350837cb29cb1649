//! If a database opens with some settings once, it opens with them again, after a crash and after a clean
//! shutdown. It can also change to other settings. Protections, places of the log, and sizes are tested. An
//! earlier fault was a log too small for the images of pages that moved into a region: after that no start
//! succeeded.

use std::sync::Arc;

use crate::common::{NoOps, open, set};
use crate::nvm_support::{
    COPIES, DOUBLEWRITE, IN_FILES, PAGES, Parts, as_found, assert_numbers, fill, leave, noted, with,
};
use varve_device::MemoryDirectory;
use varve_pager::{PageId, Pager, ProtectionKind};

const PROTECTIONS: [ProtectionKind; 6] = [
    ProtectionKind::None,
    DOUBLEWRITE,
    ProtectionKind::AtomicWrite,
    ProtectionKind::FullPageLog,
    COPIES,
    ProtectionKind::Nvm,
];
/// Lengths of a region and of the log in it, in KiB. The last ones have segments of 64 pages.
const SIZES: [(u64, u64); 7] =
    [(0, 0), (64, 0), (112, 0), (640, 512), (768, 512), (2176, 2048), (4096, 2048)];

fn tried(directory: &Arc<MemoryDirectory>, parts: Parts) -> Option<Pager> {
    Pager::open(with(directory, parts), Arc::new(NoOps)).ok()
}

fn all() -> impl Iterator<Item = Parts> {
    PROTECTIONS.into_iter().flat_map(|protection| {
        SIZES.into_iter().map(move |(size_kib, log_kib)| {
            let region = (size_kib > 0).then_some((size_kib << 10, log_kib << 10));
            (region, protection)
        })
    })
}

/// Checks that an open database with these parts and pages opens again.
fn opens_again(directory: &Arc<MemoryDirectory>, pager: Pager, parts: Parts, ids: &[PageId], what: &str) {
    set(&pager, ids[0], 1).unwrap();
    pager.tick_write(5).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = tried(directory, parts).unwrap_or_else(|| panic!("{what}: not after a crash"));
    assert_numbers(&pager, ids, what);
    set(&pager, ids[1], 2).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    let pager = tried(directory, parts).unwrap_or_else(|| panic!("{what}: not after a shutdown"));
    set(&pager, ids[2], 3).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    leave(open(&as_found(directory)));
    assert_eq!(noted(&**directory).attached, None, "{what}");
    assert_numbers(&open(&with(directory, IN_FILES)), ids, what);
}

#[test]
fn what_a_new_database_opens_with_it_opens_with_again() {
    let mut opened = 0;
    for parts in all() {
        let directory = MemoryDirectory::new();
        let Some(pager) = tried(&directory, parts) else { continue };
        opened += 1;
        let ids = fill(&pager);
        opens_again(&directory, pager, parts, &ids, &format!("new, {parts:?}"));
    }
    assert!(opened > 20, "{opened} of them opened");
}

#[test]
fn what_an_existing_database_opens_with_it_opens_with_again() {
    let mut opened = 0;
    for from in PROTECTIONS.into_iter().filter(|from| !matches!(from, ProtectionKind::Nvm)) {
        let before = MemoryDirectory::new();
        let from: Parts = (matches!(from, COPIES).then_some((64 << 10, 0)), from);
        let pager = open(&with(&before, from));
        let ids = fill(&pager);
        assert_eq!(ids.len(), PAGES);
        pager.shutdown().unwrap();
        drop(pager);
        for parts in all() {
            let directory = MemoryDirectory::from_images(before.images());
            let Some(pager) = tried(&directory, parts) else { continue };
            opened += 1;
            opens_again(&directory, pager, parts, &ids, &format!("{from:?}, then {parts:?}"));
        }
    }
    assert!(opened > 80, "{opened} of them opened");
}
