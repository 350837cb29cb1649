//! Helpers for the pager's tests: a small database in memory, and pages that have a number.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a test may")]

use std::sync::Arc;

use varve_device::{AlignedBuf, Directory, Durability, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::{
    Access, PageId, Pager, PagerConfig, PagerError, ProtectionKind, RedoError, RedoOps, Result, SpaceId, page,
};

/// An engine without operations.
pub struct NoOps;

impl RedoOps for NoOps {
    fn apply(&self, op: u8, _page: &mut [u8], _payload: &[u8]) -> std::result::Result<(), RedoError> {
        Err(RedoError(format!("unknown operation {op}")))
    }
}

/// The kind of the pages in tests.
pub const KIND: u8 = 40;

/// The bytes of a segment of the log.
pub const SEGMENT_BYTES: u64 = 256 << 10;
/// The kind of a note record of the engine.
const NOTE: u8 = 16;

/// Returns a small configuration without threads.
pub fn config(directory: &Arc<MemoryDirectory>, frames: usize) -> PagerConfig {
    let directory: Arc<dyn Directory> = directory.clone();
    let mut config = PagerConfig::new(directory);
    config.page_size = 4096;
    config.pool_bytes = frames * 4096;
    config.log_segment_bytes = SEGMENT_BYTES;
    config.log_capacity_bytes = 1 << 20;
    config.protection = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
    config.background = false;
    config.growth_extents = 1;
    config
}

/// Opens a pager.
pub fn open(config: &PagerConfig) -> Pager {
    Pager::open(config.clone(), Arc::new(NoOps)).unwrap()
}

/// Returns a new page of `owner` with a number in it.
pub fn add(pager: &Pager, owner: u32, number: u64) -> Result<PageId> {
    let mut mtr = pager.begin()?;
    let id = mtr.allocate(SpaceId::DATA, owner, None)?;
    let new = mtr.create(id, KIND, owner)?;
    mtr.write(new, 100, &number.to_le_bytes());
    mtr.commit();
    Ok(id)
}

/// Changes the number of a page.
pub fn set(pager: &Pager, id: PageId, number: u64) -> Result<()> {
    let mut mtr = pager.begin()?;
    let old = mtr.x(id)?;
    mtr.write(old, 100, &number.to_le_bytes());
    mtr.commit();
    Ok(())
}

/// Returns the number of a page.
pub fn get(pager: &Pager, id: PageId) -> Result<u64> {
    let page = pager.fix_s(id, Access::Random)?;
    assert_eq!(page::page_kind(&page), KIND);
    Ok(u64::from_le_bytes(page[100..108].try_into().unwrap()))
}

/// A small generator of repeatable numbers (xorshift).
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

/// Returns the bytes of the data file at the place of a page.
pub fn stored(directory: &MemoryDirectory, id: PageId) -> Vec<u8> {
    let images = directory.images();
    let (_, file) = images.iter().find(|(name, _)| name == "data.varve").unwrap();
    let mut bytes = vec![0; 4096];
    file.read(u64::from(id.no().0) * 4096, &mut bytes);
    bytes
}

/// Returns a copy of a directory in which the place of a page holds other bytes.
pub fn with_stored(directory: &MemoryDirectory, id: PageId, bytes: &[u8]) -> Arc<MemoryDirectory> {
    let mut images = directory.images();
    let (_, file) = images.iter_mut().find(|(name, _)| name == "data.varve").unwrap();
    file.write(u64::from(id.no().0) * 4096, bytes);
    MemoryDirectory::from_images(images)
}

/// Returns a copy of a directory on a device with sectors of 4096 bytes.
pub fn on_large_sectors(small: &MemoryDirectory) -> Arc<MemoryDirectory> {
    let large = MemoryDirectory::with_sector(4096);
    for (name, image) in small.images() {
        let mut bytes = AlignedBuf::new((image.len_bytes() as usize).next_multiple_of(4096));
        image.read(0, &mut bytes[..image.len_bytes() as usize]);
        let file = large.open(&name, OpenHow::new_file(Space::Data)).unwrap();
        if !bytes.is_empty() {
            file.write_at(0, &bytes, Purpose::DataPage, Durability::Now).unwrap();
        }
    }
    large
}

/// Appends a note record with `bytes` bytes, durably.
pub fn note(pager: &Pager, bytes: usize) -> Result<()> {
    let mut mtr = pager.begin()?;
    mtr.note(NOTE, &vec![7; bytes]);
    pager.flush_log(mtr.commit())
}

/// Ends the log exactly where its segment ends.
pub fn end_with_the_segment(pager: &Pager) {
    pager.flush_log(pager.log().end()).unwrap();
    let start = pager.log().redo_point(|| None).unwrap().get();
    let left = (SEGMENT_BYTES - start % SEGMENT_BYTES) as usize;
    let varint = |value: usize| varve_pager::log::record::varint_bytes(value as u64);
    let group = |payload: usize| 1 + varint(payload + 1) + 1 + payload;
    let block = |payload: usize| 40 + varint(group(payload)) + group(payload);
    let fitting = (0..left).rev().find(|payload| block(*payload) == left).unwrap();
    note(pager, fitting).unwrap();
    assert_eq!(pager.log().end().get() % SEGMENT_BYTES, 0, "the last block must end with the segment");
}

/// Returns whether a device had no room.
pub fn is_full(error: &PagerError) -> bool {
    matches!(error, PagerError::Device(device) if device.is_no_space())
}
