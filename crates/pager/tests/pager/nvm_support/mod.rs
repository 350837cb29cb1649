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
/// Bytes of the log in it.
pub const LOG_BYTES: u64 = 512 << 10;
/// Copies in a file.
pub const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
/// Copies in a region.
pub const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };
/// Pages of the database.
pub const PAGES: usize = 30;

/// What is in a region, by length, part of the log and protection; `None`: no region.
pub type Parts = (Option<(u64, u64)>, ProtectionKind);

/// No region.
pub const IN_FILES: Parts = (None, DOUBLEWRITE);
/// Pages alone.
pub const NVM_PAGES: Parts = (Some((112 << 10, 0)), ProtectionKind::Nvm);
/// Pages and log.
pub const NVM_ALL: Parts = (Some((624 << 10, LOG_BYTES)), ProtectionKind::Nvm);
/// Copies alone.
pub const NVM_COPIES: Parts = (Some((64 << 10, 0)), COPIES);
/// Copies and log.
pub const NVM_COPIES_LOG: Parts = (Some((768 << 10, LOG_BYTES)), COPIES);
/// The log alone.
pub const NVM_LOG: Parts = (Some((768 << 10, LOG_BYTES)), DOUBLEWRITE);
/// Pages and log, and more room.
pub const LARGER: Parts = (Some((1 << 20, LOG_BYTES + (64 << 10))), ProtectionKind::Nvm);
/// Every kind.
pub const IN_REGION: [Parts; 5] = [NVM_PAGES, NVM_ALL, NVM_COPIES, NVM_COPIES_LOG, NVM_LOG];

/// A configuration over a directory in memory.
pub fn with(directory: &Arc<MemoryDirectory>, (region, protection): Parts) -> PagerConfig {
    over(directory.clone(), (region, protection))
}

/// Likewise over any directory.
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

/// As the database is, whatever that is.
pub fn as_found(directory: &Arc<MemoryDirectory>) -> PagerConfig {
    let mut found = with(directory, NVM_ALL);
    found.as_found().unwrap().expect("there is a database");
    found
}

/// What the control file says.
pub fn noted(directory: &dyn Directory) -> Superblock {
    Control::open(directory).unwrap().unwrap().get()
}

/// Whether there is a file of a region.
pub fn has_region(directory: &MemoryDirectory) -> bool {
    directory.exists(REGION).unwrap()
}

/// Pages with the numbers 1, 2, ..., some of them at home, some only in the region or in the pool.
pub fn some_pages(parts: Parts) -> (Arc<MemoryDirectory>, Pager, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let pager = open(&with(&directory, parts));
    let ids = fill(&pager);
    (directory, pager, ids)
}

/// Pages with the numbers 1, 2, ...
pub fn fill(pager: &Pager) -> Vec<PageId> {
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let ids: Vec<PageId> = (1..=PAGES).map(|number| add(pager, owner, number as u64).unwrap()).collect();
    pager.tick_write(20).unwrap();
    pager.tick_nvm(5).unwrap();
    pager.checkpoint().unwrap();
    pager.tick_write(5).unwrap();
    ids
}

/// Every page has its number, and a check finds nothing.
pub fn assert_numbers(pager: &Pager, ids: &[PageId], what: &str) {
    for (id, number) in ids.iter().zip(1..) {
        assert_eq!(get(pager, *id).unwrap(), number, "{what}: page {id}");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
}

/// A clean shutdown that leaves the region.
pub fn leave(pager: Pager) {
    pager.leave_region_at_shutdown();
    pager.shutdown().unwrap();
}
