//! Access for `crates/fuzzing` to the page slots of a region. A fuzz target passes arbitrary bytes, and gets
//! the versions that a start would find in them.
//!
//! This module does not know what a fuzz target expects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use varve_device::{AlignedBuf, Region};

use super::area::{PageArea, SLOT_HEADER_BYTES, SlotHeader};
use super::buffer::NvmBuffer;
use super::layout::{AREAS_AT, Layout, RegionHeader, SlotArea, SlotUse};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{Access, PageId, PageRange};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::level::{Cause, Level, LevelReport, Need, Run, Step, Want};
use crate::log::WriteAhead;
use crate::nvm::NvmFlush;

const REGION: u64 = 77;

/// Returns the header of a region that has only `slots` page slots, the offsets of slot headers and pages,
/// and the region's length.
pub fn region_header(page_size: u32, slots: u32) -> (Vec<u8>, u64, u64, u64) {
    let (headers, page_bytes) = (AREAS_AT, u64::from(page_size));
    let pages = (headers + u64::from(slots) * SLOT_HEADER_BYTES as u64).next_multiple_of(page_bytes);
    let area = SlotArea { purpose: SlotUse::Buffer, slots, headers, pages };
    let region_bytes = pages + u64::from(slots) * page_bytes;
    let layout = Layout { region_bytes, page_size, log: None, slots: Some(area) };
    let header = RegionHeader { database: 7, region: REGION, layout };
    (header.encode().to_vec(), headers, pages, region_bytes)
}

/// Returns the header of a published slot of this region, with this sealed page.
pub fn slot_header(id: PageId, sequence: u64, page: &[u8]) -> [u8; 64] {
    let image_crc = page.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    SlotHeader { id, lsn: page::page_lsn(page), image_crc, sequence }.published(REGION, page.len() as u32)
}

/// Data files without pages.
struct Nothing;

impl Level for Nothing {
    fn read(&self, runs: &mut [Run<'_, '_>], _why: Access) -> Result<()> {
        let first = runs.first().map(|run| run.first);
        first.map_or(Ok(()), |id| Err(PagerError::NoSuchPage { id, pages: 0 }))
    }
    fn put(&self, _batch: &[Image], _cause: Cause, _need: Need) -> Result<()> {
        Ok(())
    }
    fn offer(&self, _id: PageId, _why: Access, _copy: &mut dyn FnMut() -> Image) {}
    fn changed(&self, _id: PageId) {}
    fn discard(&self, _ids: PageRange, _after: Lsn) -> Result<()> {
        Ok(())
    }
    fn checkpoint(&self, _step: Step) -> Result<()> {
        Ok(())
    }
    fn drain(&self) -> Result<()> {
        Ok(())
    }
    fn report(&self) -> Vec<LevelReport> {
        Vec::new()
    }
}

/// A log that is durable up to this LSN.
struct Durable(AtomicU64);

impl WriteAhead for Durable {
    fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.0.load(Relaxed))
    }
    fn flush(&self, upto: Lsn) -> Result<()> {
        self.0.fetch_max(upto.get(), Relaxed);
        Ok(())
    }
    fn note_written(&self, _images: &[&Image]) {}
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn stop(&self, _cause: &PagerError) {}
}

/// The level over the slots of a region.
pub struct Slots {
    level: NvmBuffer,
    page_size: usize,
}

impl Slots {
    /// Returns what a start finds in the region if it accepts the region as the database's. The log is
    /// durable up to `durable`.
    pub fn open(region: Arc<dyn Region>, durable: Lsn) -> Result<Slots> {
        let refused = |what: &str| PagerError::Incompatible { what: what.into() };
        let header = RegionHeader::read(&*region).map_err(|damage| refused(&format!("{damage:?}")))?;
        if header.layout.region_bytes != region.len_bytes() {
            return Err(refused("another length"));
        }
        let area = PageArea::of(&region, header.region, &header.layout, &Arc::default(), "the region".into());
        let area = area.ok_or_else(|| refused("no slots"))?;
        let log = Arc::new(Durable(AtomicU64::new(durable.get())));
        let (home, page_size) = (Arc::new(Nothing), header.layout.page_size as usize);
        let level = NvmBuffer::open(area, NvmFlush::DEFAULT, home, Arc::default(), log, Arc::default())?;
        Ok(Slots { level, page_size })
    }

    /// Returns the pages that have a version, in the order of pages. For each of them, it returns page, slot,
    /// sequence and LSN.
    pub fn versions(&self) -> Vec<(PageId, u32, u64, Lsn)> {
        let versions = self.level.book.lock().versions();
        versions.into_iter().map(|(one, _)| (one.id, one.slot, one.sequence, one.lsn)).collect()
    }

    /// Returns the number of slots, and of free slots.
    pub fn counts(&self) -> (usize, usize) {
        (self.level.area.slots() as usize, self.level.book.lock().counts()[0])
    }

    /// Reads a page through the level.
    pub fn read(&self, id: PageId) -> Result<Vec<u8>> {
        let mut frame = AlignedBuf::new(self.page_size);
        let mut want = [Want::Page { frame: &mut frame, got: None }];
        self.level.read(&mut [Run { first: id, want: &mut want }], Access::Random)?;
        Ok(frame.to_vec())
    }

    /// Puts a page. The log is durable up to its LSN.
    pub fn put(&self, id: PageId, page: &[u8]) -> Result<()> {
        self.level.put(&[Image::of(id, page, Access::Random)], Cause::Evict, Need::Held)
    }

    /// Returns the findings of a check.
    pub fn check(&self) -> Result<Vec<String>> {
        let mut damages = Vec::new();
        self.level.check(&mut damages)?;
        Ok(damages)
    }
}
