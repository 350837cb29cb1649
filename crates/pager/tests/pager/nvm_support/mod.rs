//! Helpers for the tests of regions of persistent memory: databases in every kind of region, filled and
//! checked.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a test may")]

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_pager::control::{Control, Superblock};
use varve_pager::{NvmConfig, PageId, Pager, PagerConfig, ProtectionKind, SpaceId};

use crate::common::{add, config, get, open};

/// Name of the region's file.
pub const REGION: &str = "nvm.varve";
/// The bytes of the log in the region.
pub const LOG_BYTES: u64 = 512 << 10;
/// Doublewrite copies in a file.
pub const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
/// Doublewrite copies in a region.
pub const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };
/// Pages of the database.
pub const PAGES: usize = 30;

/// The parts in a region: its length and the bytes of the log, or `None` for no region, and the protection.
pub type Parts = (Option<(u64, u64)>, ProtectionKind);

/// No region.
pub const IN_FILES: Parts = (None, DOUBLEWRITE);
/// Only pages are in the region.
pub const NVM_PAGES: Parts = (Some((112 << 10, 0)), ProtectionKind::Nvm);
/// Pages and log are in the region.
pub const NVM_ALL: Parts = (Some((624 << 10, LOG_BYTES)), ProtectionKind::Nvm);
/// Only copies are in the region.
pub const NVM_COPIES: Parts = (Some((64 << 10, 0)), COPIES);
/// Copies and log are in the region.
pub const NVM_COPIES_LOG: Parts = (Some((768 << 10, LOG_BYTES)), COPIES);
/// Only the log is in the region.
pub const NVM_LOG: Parts = (Some((768 << 10, LOG_BYTES)), DOUBLEWRITE);
/// Pages and log are in a larger region.
pub const LARGER: Parts = (Some((1 << 20, LOG_BYTES + (64 << 10))), ProtectionKind::Nvm);
/// All kinds of regions.
pub const IN_REGION: [Parts; 5] = [NVM_PAGES, NVM_ALL, NVM_COPIES, NVM_COPIES_LOG, NVM_LOG];

/// Returns a configuration over a directory in memory.
pub fn with(directory: &Arc<MemoryDirectory>, (region, protection): Parts) -> PagerConfig {
    over(directory.clone(), (region, protection))
}

/// Returns a configuration over any directory.
pub fn over(directory: Arc<dyn Directory>, (region, protection): Parts) -> PagerConfig {
    let nvm = region.map(|(size_bytes, log_bytes)| NvmConfig {
        directory: directory.clone(),
        size_bytes,
        log_bytes,
    });
    PagerConfig {
        nvm,
        protection,
        data: directory.clone(),
        log: directory.clone(),
        rollback: directory.clone(),
        temporary: directory.clone(),
        control: directory,
        ..config(&MemoryDirectory::new(), 64)
    }
}

/// Returns the configuration that fits the database as it is.
pub fn as_found(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let mut found = with(directory, NVM_ALL);
    found.as_found().unwrap().expect("there is a database");
    found
}

/// Returns what the control file says.
pub fn noted(directory: &dyn Directory) -> Superblock {
    Control::open(directory).unwrap().unwrap().get()
}

/// Returns whether there is a file of a region.
pub fn has_region(directory: &MemoryDirectory) -> bool {
    directory.exists(REGION).unwrap()
}

/// Returns a database of pages with the numbers 1, 2, ... Some of the pages are in the data files, and some
/// are only in the region or in the pool.
pub fn some_pages(parts: Parts) -> (Arc<MemoryDirectory>, Pager, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let pager = open(&with(&directory, parts));
    let ids = fill(&pager);
    (directory, pager, ids)
}

/// Returns the pages with the numbers 1, 2, ...
pub fn fill(pager: &Pager) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (1..=PAGES).map(|number| add(pager, owner, number as u64).unwrap()).collect();
    pager.tick_write(20).unwrap();
    pager.tick_nvm(5).unwrap();
    pager.checkpoint().unwrap();
    pager.tick_write(5).unwrap();
    ids
}

/// Asserts that every page has its number, and that a check finds no damage.
pub fn assert_numbers(pager: &Pager, ids: &[PageId], what: &str) {
    for (id, number) in ids.iter().zip(1..) {
        assert_eq!(get(pager, *id).unwrap(), number, "{what}: page {id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
}

/// Shuts the database down cleanly, and leaves the region.
pub fn leave(pager: Pager) {
    pager.leave_region_at_shutdown();
    pager.shutdown().unwrap();
}
