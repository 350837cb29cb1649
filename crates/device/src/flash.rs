//! The blocks of an emulated device of limited size: which blocks each file has, and how many bytes were
//! written to the flash chips. Both are modelled.
//!
//! The model covers a file system and the flash translation layer below it. A file gets blocks when it grows
//! or is written. Blocks are freed and trimmed when the file is shortened or removed, or when a hole is
//! punched into it.
//!
//! Invariants
//! 1. A block belongs to at most one file.
//! 2. A refused request allocates no block.
//!
//! The model does not include what the file system writes for itself.

use std::collections::HashMap;

use crate::ftl::{Ftl, FtlCounts, Translation};

/// The size of a block on a device whose profile has no translation layer, in bytes.
const BLOCK_BYTES: u64 = 4096;
/// A place in a file that has no block.
const HOLE: u32 = u32::MAX;

/// How much was written to the flash of an emulated device. The figures are not measured. They come from a
/// page-mapped model with greedy garbage collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlashReport {
    /// The number of bytes that the host wrote.
    pub host_bytes: u64,
    /// The number of bytes that were written to flash: whole flash pages, including copies by garbage
    /// collection.
    pub flash_bytes: u64,
    /// The part of `flash_bytes` that garbage collection copied.
    pub copied_bytes: u64,
    /// The number of blocks erased.
    pub erased_blocks: u64,
    /// The number of bytes that the host gave back by holes, and by shorter or removed files.
    pub trimmed_bytes: u64,
    /// The number of bytes of the device that have valid data now.
    pub valid_bytes: u64,
    /// The size of the device for the host, in bytes.
    pub capacity_bytes: u64,
}

impl FlashReport {
    /// Returns the difference to an earlier report of the same device.
    pub fn since(&self, earlier: &FlashReport) -> FlashReport {
        FlashReport {
            host_bytes: self.host_bytes - earlier.host_bytes,
            flash_bytes: self.flash_bytes - earlier.flash_bytes,
            copied_bytes: self.copied_bytes - earlier.copied_bytes,
            erased_blocks: self.erased_blocks - earlier.erased_blocks,
            trimmed_bytes: self.trimmed_bytes - earlier.trimmed_bytes,
            ..*self
        }
    }
}

/// The error that the device has no room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The beginning of the first range for which there is no room.
    pub offset: u64,
}

/// The blocks of a device.
pub(crate) struct Flash {
    block_bytes: u64,
    blocks: u32,
    /// The blocks of each file, in the order of the file.
    files: HashMap<u32, Vec<u32>>,
    free: Vec<u32>,
    ftl: Option<Ftl>,
    host_bytes: u64,
    trimmed_bytes: u64,
}

impl Flash {
    /// Returns an empty device. Without a translation layer, only its size is modelled.
    pub(crate) fn new(capacity_bytes: u64, of: Option<&Translation>) -> Flash {
        let block_bytes = of.map_or(BLOCK_BYTES, |of| u64::from(of.page_bytes));
        let blocks = u32::try_from(capacity_bytes / block_bytes).unwrap_or(HOLE - 1).min(HOLE - 1);
        Flash {
            block_bytes,
            blocks,
            files: HashMap::new(),
            free: (0..blocks).rev().collect(),
            ftl: of.map(|of| Ftl::new(blocks, of)),
            host_bytes: 0,
            trimmed_bytes: 0,
        }
    }

    /// Returns the number of bytes of a block, of which files consist.
    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes as u32
    }

    /// Blocks that a range touches.
    fn touched(&self, offset: u64, len_bytes: u64) -> std::ops::Range<usize> {
        let end = (offset + len_bytes).div_ceil(self.block_bytes);
        (offset / self.block_bytes) as usize..end as usize
    }

    /// Makes sure that a file has blocks for all these ranges (offset and length). If there are too few
    /// blocks, takes none.
    pub(crate) fn reserve(
        &mut self,
        file: u32,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<(), Full> {
        let mut blocks = self.files.remove(&file).unwrap_or_default();
        let had_blocks = blocks.len();
        let mut taken = Vec::new();
        let found = ranges.into_iter().try_for_each(|(offset, len_bytes)| {
            self.take(self.touched(offset, len_bytes), &mut blocks, &mut taken).ok_or(Full { offset })
        });
        if found.is_err() {
            for at in taken.into_iter().rev() {
                self.free.extend(blocks.get_mut(at).map(|block| std::mem::replace(block, HOLE)));
            }
            blocks.truncate(had_blocks);
        }
        self.files.insert(file, blocks);
        found
    }

    /// Gives blocks to the holes of a range, as far as blocks are free, and adds the places of these holes to
    /// `taken`.
    fn take(
        &mut self,
        range: std::ops::Range<usize>,
        blocks: &mut Vec<u32>,
        taken: &mut Vec<usize>,
    ) -> Option<()> {
        // A range that is larger than the device is refused at once, before `blocks` becomes longer.
        if range.len() > self.blocks as usize {
            return None;
        }
        blocks.resize(blocks.len().max(range.end), HOLE);
        for at in range {
            let block = blocks.get_mut(at).filter(|block| **block == HOLE);
            let Some(hole) = block else { continue };
            *hole = self.free.pop()?;
            taken.push(at);
        }
        Some(())
    }

    /// Counts the write of a range of a file. The file has the blocks of the range already.
    pub(crate) fn written(&mut self, file: u32, offset: u64, len_bytes: u64) {
        self.host_bytes += len_bytes;
        let range = self.touched(offset, len_bytes);
        let Some(ftl) = &mut self.ftl else { return };
        let blocks = self.files.get(&file).and_then(|blocks| blocks.get(range));
        blocks.into_iter().flatten().filter(|block| **block != HOLE).for_each(|block| ftl.write(*block));
    }

    /// Gives back the blocks that are completely within a punched range.
    pub(crate) fn punched(&mut self, file: u32, offset: u64, len_bytes: u64) {
        let first = offset.div_ceil(self.block_bytes) as usize;
        let end = ((offset + len_bytes) / self.block_bytes) as usize;
        self.give_back(file, first, end);
    }

    /// Gives back the blocks after the new length of a file.
    pub(crate) fn cut(&mut self, file: u32, len_bytes: u64) {
        self.give_back(file, len_bytes.div_ceil(self.block_bytes) as usize, usize::MAX);
    }

    /// Gives back all blocks of a removed file.
    pub(crate) fn removed(&mut self, file: u32) {
        self.cut(file, 0);
        self.files.remove(&file);
    }

    fn give_back(&mut self, file: u32, first: usize, end: usize) {
        let Some(blocks) = self.files.get_mut(&file) else { return };
        let end = end.min(blocks.len());
        let Some(range) = blocks.get_mut(first..end) else { return };
        for block in range.iter_mut().filter(|block| **block != HOLE) {
            if let Some(ftl) = &mut self.ftl {
                ftl.trim(*block);
            }
            self.trimmed_bytes += self.block_bytes;
            self.free.push(std::mem::replace(block, HOLE));
        }
    }

    /// Returns the counts of the translation layer, if the profile has one.
    pub(crate) fn report(&self) -> Option<FlashReport> {
        let FtlCounts { programmed_pages, copied_pages, erased_blocks, valid_pages } =
            self.ftl.as_ref()?.counts();
        Some(FlashReport {
            host_bytes: self.host_bytes,
            flash_bytes: programmed_pages * self.block_bytes,
            copied_bytes: copied_pages * self.block_bytes,
            erased_blocks,
            trimmed_bytes: self.trimmed_bytes,
            valid_bytes: valid_pages * self.block_bytes,
            capacity_bytes: u64::from(self.blocks) * self.block_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::Mapping;

    const BLOCK: u64 = 4096;

    fn device(blocks: u64) -> Flash {
        let of = Translation {
            kind: Mapping::PageMapped,
            page_bytes: BLOCK as u32,
            block_pages: 16,
            spare_percent: 7.0,
        };
        Flash::new(blocks * BLOCK, Some(&of))
    }

    fn write(flash: &mut Flash, file: u32, offset: u64, len_bytes: u64) -> Result<(), Full> {
        flash.reserve(file, [(offset, len_bytes)])?;
        flash.written(file, offset, len_bytes);
        Ok(())
    }

    #[test]
    fn a_part_of_a_flash_page_is_written_whole() {
        let mut flash = device(64);
        write(&mut flash, 1, 512, 512).unwrap();
        write(&mut flash, 1, 4096 - 512, 1024).unwrap();
        let report = flash.report().unwrap();
        assert_eq!((report.host_bytes, report.flash_bytes), (1536, 3 * BLOCK));
        assert_eq!(report.valid_bytes, 2 * BLOCK);
    }

    #[test]
    fn what_is_beyond_the_capacity_is_refused_and_takes_nothing() {
        let mut flash = device(10);
        flash.reserve(1, [(0, 6 * BLOCK)]).unwrap();
        assert_eq!(flash.reserve(2, [(0, 5 * BLOCK)]), Err(Full { offset: 0 }));
        // If one of several ranges is refused, the ranges before it get no blocks either.
        let ranges = [(0, 2 * BLOCK), (BLOCK, 3 * BLOCK), (8 * BLOCK, BLOCK)];
        assert_eq!(flash.reserve(2, ranges), Err(Full { offset: 8 * BLOCK }));
        flash.reserve(2, [(0, 4 * BLOCK)]).unwrap();
        // A file may write again into blocks that it has. A write into a hole needs a free block.
        write(&mut flash, 1, 0, 6 * BLOCK).unwrap();
        flash.punched(1, 100, 2 * BLOCK);
        assert_eq!(flash.report().unwrap().trimmed_bytes, BLOCK, "only blocks that lie in it whole");
        flash.reserve(3, [(0, BLOCK)]).unwrap();
        assert_eq!(write(&mut flash, 1, BLOCK, BLOCK), Err(Full { offset: BLOCK }));
        flash.removed(2);
        write(&mut flash, 1, BLOCK, BLOCK).unwrap();
        flash.cut(1, BLOCK + 1);
        assert_eq!(flash.report().unwrap().valid_bytes, 2 * BLOCK);
        flash.cut(7, 0);
    }

    #[test]
    fn reports_can_be_taken_apart() {
        let mut flash = device(64);
        write(&mut flash, 1, 0, 8 * BLOCK).unwrap();
        let before = flash.report().unwrap();
        write(&mut flash, 1, 0, 2 * BLOCK).unwrap();
        flash.cut(1, 4 * BLOCK);
        let since = flash.report().unwrap().since(&before);
        assert_eq!((since.host_bytes, since.flash_bytes), (2 * BLOCK, 2 * BLOCK));
        assert_eq!((since.trimmed_bytes, since.valid_bytes, since.copied_bytes), (4 * BLOCK, 4 * BLOCK, 0));
        assert!(Flash::new(BLOCK, None).report().is_none(), "a device without flash has none to report");
    }
}
