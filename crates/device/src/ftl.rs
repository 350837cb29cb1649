//! A model of the flash translation layer inside a drive. The layer maps pages, and its garbage collection is
//! greedy. The model computes how many bytes are written to the flash chips.
//!
//! Pages from the host are appended to one open block. Pages that garbage collection copies are appended to a
//! second open block. When fewer than two blocks are free, the block with the fewest valid pages is
//! collected: its valid pages are copied, and then the block is erased.
//!
//! Invariants
//! 1. A logical page that was written, and not trimmed since, has one physical page. The physical page names
//!    the logical page.
//! 2. A block's count of valid pages is the number of its pages that belong to a logical page.
//! 3. Between two calls at least one block is free. The drive has four blocks more than the logical pages
//!    fill. So while fewer than two blocks are free, some full block has an invalid page.
//! 4. The model uses no clock and no random numbers: the same calls give the same counts.
//!
//! The model does not include wear levelling, the drive's cache, and the drive's own tables.

use std::collections::BTreeSet;

use serde::Deserialize;

/// How a device maps the host's pages to flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// Each logical page is mapped separately.
    PageMapped,
}

/// The translation layer of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Translation {
    /// The kind of mapping.
    pub kind: Mapping,
    /// The number of bytes of a flash page, the unit of writing.
    pub page_bytes: u32,
    /// The number of pages of a block, the unit of erasing.
    pub block_pages: u32,
    /// Spare flash beyond the capacity, in percent of the capacity.
    pub spare_percent: f64,
}

impl Translation {
    /// Returns what is wrong with the values, or `None` if they are possible.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let is_sound = self.page_bytes.is_power_of_two()
            && self.page_bytes >= 512
            && (2..=1 << 16).contains(&self.block_pages)
            && (0.0..=1000.0).contains(&self.spare_percent);
        (!is_sound).then_some(
            "translation: page_bytes is a power of two of at least 512, block_pages 2 to 65536, spare_percent 0 to 1000",
        )
    }
}

/// The smallest number of blocks beyond those that the logical pages fill: two open blocks and two free ones.
const SPARE_BLOCKS_MIN: u64 = 4;
/// If fewer blocks than this are free, a block is collected.
const FREE_BLOCKS_MIN: usize = 2;
/// A number that means no page or no block.
const NONE: u32 = u32::MAX;

/// The writer of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Host,
    Collection,
}

/// An open block, to which pages are appended.
#[derive(Clone, Copy)]
struct Open {
    block: u32,
    /// The number of pages of the block that are written.
    taken: u32,
}

/// The counters of the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FtlCounts {
    /// The number of pages written to flash, including copies.
    pub programmed_pages: u64,
    /// The number of valid pages moved out of collected blocks.
    pub copied_pages: u64,
    pub erased_blocks: u64,
    /// The number of logical pages that have valid data.
    pub valid_pages: u64,
}

/// The model of a translation layer.
pub(crate) struct Ftl {
    block_pages: u32,
    /// Physical page of each logical page.
    places: Vec<u32>,
    /// Logical page of each physical page that is valid.
    owners: Vec<u32>,
    /// Valid pages of each block.
    valid: Vec<u32>,
    /// Blocks that are neither free nor open, ordered by their number of valid pages.
    written: BTreeSet<(u32, u32)>,
    free: Vec<u32>,
    host: Open,
    collection: Open,
    counts: FtlCounts,
}

impl Ftl {
    /// Returns an empty device with this many logical pages.
    pub(crate) fn new(logical_pages: u32, of: &Translation) -> Ftl {
        let block_pages = of.block_pages;
        let with_spare = f64::from(logical_pages) * (1.0 + of.spare_percent / 100.0);
        let wanted = (with_spare / f64::from(block_pages)).ceil() as u64;
        let least = u64::from(logical_pages.div_ceil(block_pages)) + SPARE_BLOCKS_MIN;
        let blocks = u32::try_from(wanted.max(least)).unwrap_or(NONE).min((NONE - 1) / block_pages);
        let nowhere = Open { block: NONE, taken: block_pages };
        Ftl {
            block_pages,
            places: vec![NONE; logical_pages as usize],
            owners: vec![NONE; blocks as usize * block_pages as usize],
            valid: vec![0; blocks as usize],
            written: BTreeSet::new(),
            free: (0..blocks).rev().collect(),
            host: nowhere,
            collection: nowhere,
            counts: FtlCounts::default(),
        }
    }

    /// The host writes a logical page.
    pub(crate) fn write(&mut self, page: u32) {
        self.invalidate(page);
        self.append(page, By::Host);
    }

    /// The host says that it does not need a logical page any more.
    pub(crate) fn trim(&mut self, page: u32) {
        self.invalidate(page);
    }

    pub(crate) fn counts(&self) -> FtlCounts {
        self.counts
    }

    fn invalidate(&mut self, page: u32) {
        let place = std::mem::replace(&mut self.places[page as usize], NONE);
        if place == NONE {
            return;
        }
        self.owners[place as usize] = NONE;
        self.counts.valid_pages -= 1;
        let block = place / self.block_pages;
        let valid = &mut self.valid[block as usize];
        *valid -= 1;
        // Open blocks are not among the written ones.
        if self.written.remove(&(*valid + 1, block)) {
            self.written.insert((*valid, block));
        }
    }

    fn append(&mut self, page: u32, by: By) {
        if self.point(by).taken == self.block_pages {
            self.open_next(by);
        }
        let block_pages = self.block_pages;
        let point = self.point(by);
        let (block, place) = (point.block, point.block * block_pages + point.taken);
        point.taken += 1;
        self.places[page as usize] = place;
        self.owners[place as usize] = page;
        self.valid[block as usize] += 1;
        self.counts.valid_pages += 1;
        self.counts.programmed_pages += 1;
    }

    fn point(&mut self, by: By) -> &mut Open {
        match by {
            By::Host => &mut self.host,
            By::Collection => &mut self.collection,
        }
    }

    /// Closes the full open block, and opens a free block instead. For the host, blocks are collected first
    /// if too few are free.
    fn open_next(&mut self, by: By) {
        let full = self.point(by).block;
        if full != NONE {
            self.written.insert((self.valid[full as usize], full));
        }
        while by == By::Host && self.free.len() < FREE_BLOCKS_MIN {
            self.collect();
        }
        let block = self.free.pop().expect("a block is free (invariant 3)");
        *self.point(by) = Open { block, taken: 0 };
    }

    /// Empties the block with the fewest valid pages, and erases it.
    fn collect(&mut self) {
        let (_, victim) = self.written.pop_first().expect("blocks were written (invariant 3)");
        let first = victim * self.block_pages;
        for place in first..first + self.block_pages {
            let page = std::mem::replace(&mut self.owners[place as usize], NONE);
            if page != NONE {
                self.counts.valid_pages -= 1;
                self.counts.copied_pages += 1;
                self.append(page, By::Collection);
            }
        }
        self.valid[victim as usize] = 0;
        self.counts.erased_blocks += 1;
        self.free.push(victim);
    }
}

#[cfg(test)]
mod tests;
