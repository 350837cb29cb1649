//! The page map: it says which pages of the file are allocated.
//!
//! The map is in DRAM. In the file, each directory has a bitmap of its own. The bitmap of the dirty directory
//! lacks the changes of the open batch and of the batch before. So the end of a batch writes the words that
//! either of them has changed.
//!
//! Invariants
//! 1. A page that the current directory needs stays allocated until the flip. So no batch overwrites it.
//! 2. Room is reserved in the file for all pages before `end`. So a write of these pages cannot fail because
//!    the region is full.
//! 3. Pages are cut off only between two batches, when no directory needs them: the master record has
//!    flipped durably, so the old directory is not needed either.
//!
//! This module does not know what pages hold.

use super::pages::{FIRST_PAGES, GROUP_PAGES, PAGE_BYTES, PageFile, Side};
use crate::layout::get_u64;
use crate::pointer::Pointer;
use crate::store_error::{StoreError, StoreResult};

const WORD_PAGES: u64 = u64::BITS as u64;
const GROUP_WORDS: usize = (GROUP_PAGES / WORD_PAGES) as usize;

/// The pages of a file.
pub(super) struct PageMap {
    /// A bit for each page. It is set if the dirty or the current directory needs the page.
    used: Vec<u64>,
    /// A bit for each page. It is set if only the current directory needs the page.
    retired: Vec<u64>,
    /// The number of pages of the file, including pages that are not written yet but have reserved room.
    end: u64,
    /// The number of free pages before the end.
    free: u64,
    /// The word from which the last page was taken. The next search begins here, so that all pages wear
    /// evenly.
    cursor: usize,
    /// The words that the open batch has changed. The next field has the words that the batch before has
    /// changed.
    changed: Vec<usize>,
    changed_before: Vec<usize>,
    /// The number of pages that batches have freed since [`PageMap::take_freed`] was called.
    freed: u64,
}

/// Pages at the end of the file are given back if at least this many are free: the pages of the blocks that
/// one publication frees (0113).
const CUT_PAGES_MIN: u64 = 28;

fn bit_of(page: u64) -> u64 {
    1 << (page % WORD_PAGES)
}

fn word_of(page: u64) -> usize {
    (page / WORD_PAGES) as usize
}

/// Returns whether a page is one of the first pages of the file or a page of a bitmap.
fn is_own(page: u64) -> bool {
    page < FIRST_PAGES || page >= GROUP_PAGES && page % GROUP_PAGES < 2
}

fn groups_of(pages: u64) -> u64 {
    pages.div_ceil(GROUP_PAGES).max(1)
}

/// Reads the words of a bitmap from the file.
fn read_bitmap(file: &PageFile, side: Side, pages: u64) -> StoreResult<Vec<u64>> {
    let mut words = Vec::new();
    for group in 0..groups_of(pages) {
        let mut bytes = [0; PAGE_BYTES];
        if side.bitmap_page(group) < pages {
            file.read(side.bitmap_page(group) * PAGE_BYTES as u64, &mut bytes)?;
        }
        words.extend((0..GROUP_WORDS).map(|word| get_u64(&bytes, 8 * word)));
    }
    Ok(words)
}

impl PageMap {
    /// Reads the bitmap of the current directory. Errors: the bitmap is damaged.
    pub(super) fn open(file: &PageFile, current: Side, dirty: Side) -> StoreResult<PageMap> {
        let end = file.page_count()?;
        let (used, other) = (read_bitmap(file, current, end)?, read_bitmap(file, dirty, end)?);
        let differs = |word: &usize| used.get(*word) != other.get(*word);
        let changed_before = (0..used.len()).filter(differs).collect();
        let retired = vec![0; used.len()];
        let (changed, cursor, freed) = (Vec::new(), 0, 0);
        let mut map = PageMap { used, retired, end, free: 0, cursor, changed, changed_before, freed };
        // The pages of the bitmaps are allocated, too. The bitmap lacks their bits if a crash came before the
        // end of the batch that added these pages.
        (0..groups_of(end)).for_each(|group| map.mark_own(group));
        let taken: u64 = map.used.iter().map(|word| u64::from(word.count_ones())).sum();
        let beyond = (end..map.used.len() as u64 * WORD_PAGES).any(|page| map.is_used(page));
        map.free = end
            .checked_sub(taken)
            .filter(|_| !beyond)
            .ok_or(StoreError::Damaged { what: "the bitmap of the pages of a file", at: Pointer::NONE })?;
        Ok(map)
    }

    fn mark_own(&mut self, group: u64) {
        let first = group * GROUP_PAGES;
        let count = if group == 0 { FIRST_PAGES } else { 2 };
        for page in first..self.end.min(first + count) {
            if !self.is_used(page) {
                self.change(page, |word, bit| *word |= bit);
            }
        }
    }

    /// Returns whether a directory needs a page.
    pub(super) fn is_used(&self, page: u64) -> bool {
        self.used.get(word_of(page)).is_some_and(|word| word & bit_of(page) != 0)
    }

    /// Returns the pages that hold nodes: all allocated pages except the first pages of the file and the
    /// bitmaps.
    pub(super) fn nodes(&self) -> impl DoubleEndedIterator<Item = u64> {
        (0..self.end).filter(|page| self.is_used(*page) && !is_own(*page))
    }

    fn change(&mut self, page: u64, change: impl FnOnce(&mut u64, u64)) {
        let number = word_of(page);
        if let Some(word) = self.used.get_mut(number) {
            change(word, bit_of(page));
        }
        self.note(number);
    }

    fn note(&mut self, word: usize) {
        if self.changed.last() != Some(&word) {
            self.changed.push(word);
        }
    }

    /// Takes a page. Errors: the region is full.
    pub(super) fn take(&mut self, file: &mut PageFile) -> StoreResult<u64> {
        if self.free == 0 {
            self.extend(file)?;
        }
        let words = self.end.div_ceil(WORD_PAGES) as usize;
        let cursor = self.cursor.min(words);
        let mut numbers = (cursor..words).chain(0..cursor);
        let page = numbers.find_map(|number| {
            let free = self.free_in(number);
            (free != 0).then(|| number as u64 * WORD_PAGES + u64::from(free.trailing_zeros()))
        });
        let damaged = StoreError::Damaged { what: "the count of free pages", at: Pointer::NONE };
        let page = page.ok_or(damaged)?;
        self.cursor = word_of(page);
        self.free -= 1;
        self.change(page, |word, bit| *word |= bit);
        Ok(page)
    }

    /// Returns the free pages of a word as bits. The last word also has bits of pages that do not exist yet.
    fn free_in(&self, number: usize) -> u64 {
        let free = !self.used.get(number).copied().unwrap_or(u64::MAX);
        match self.end.saturating_sub(number as u64 * WORD_PAGES) {
            pages if pages < WORD_PAGES => free & ((1 << pages) - 1),
            _ => free,
        }
    }

    /// Adds a page after the last one. If a group begins there, the two pages of its bitmaps are added before
    /// it.
    fn extend(&mut self, file: &mut PageFile) -> StoreResult<()> {
        let own = if self.end.is_multiple_of(GROUP_PAGES) { 2 } else { 0 };
        file.reserve(self.end + own + 1)?;
        if own > 0 {
            let words = self.used.len() + GROUP_WORDS;
            self.used.resize(words, 0);
            self.retired.resize(words, 0);
            let group = self.end / GROUP_PAGES;
            self.end += own;
            self.mark_own(group);
        }
        self.end += 1;
        self.free += 1;
        Ok(())
    }

    /// Frees a page that this batch has taken.
    pub(super) fn give(&mut self, page: u64) {
        self.change(page, |word, bit| *word &= !bit);
        self.free += 1;
    }

    /// Retires a page, because the dirty directory does not need it any more.
    pub(super) fn retire(&mut self, page: u64) {
        if let Some(word) = self.retired.get_mut(word_of(page)) {
            *word |= bit_of(page);
        }
        self.note(word_of(page));
    }

    /// Returns the number of pages that the file has at the end of the batch.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Writes the changed words into the bitmap of the dirty directory.
    pub(super) fn stage(&mut self, file: &mut PageFile, dirty: Side) -> StoreResult<()> {
        let mut words = [&self.changed[..], &self.changed_before[..]].concat();
        words.sort_unstable();
        words.dedup();
        let mut bytes = Vec::new();
        let is_run = |left: &usize, right: &usize| left + 1 == *right && !right.is_multiple_of(GROUP_WORDS);
        for run in words.chunk_by(is_run) {
            let Some(first) = run.first() else { continue };
            bytes.clear();
            for word in run {
                let used = self.used.get(*word).copied().unwrap_or_default();
                let retired = self.retired.get(*word).copied().unwrap_or_default();
                bytes.extend_from_slice(&(used & !retired).to_le_bytes());
            }
            let page = dirty.bitmap_page((first / GROUP_WORDS) as u64);
            file.write(page * PAGE_BYTES as u64 + 8 * (first % GROUP_WORDS) as u64, &bytes)?;
        }
        Ok(())
    }

    /// Frees the retired pages, after the flip.
    pub(super) fn end_batch(&mut self) {
        for word in &self.changed {
            if let (Some(used), Some(retired)) = (self.used.get_mut(*word), self.retired.get_mut(*word)) {
                let freed = u64::from((*used & *retired).count_ones());
                (self.free, self.freed) = (self.free + freed, self.freed + freed);
                *used &= !*retired;
                *retired = 0;
            }
        }
        self.changed_before = std::mem::take(&mut self.changed);
    }

    /// Returns the number of pages that batches have freed since the last call.
    pub(super) fn take_freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed)
    }

    /// If the file is sparse, returns the page before which all nodes would fit: more than half of the pages
    /// of nodes are free. No batch is open.
    pub(super) fn dense_end(&self) -> Option<u64> {
        let taken = self.end - self.free;
        let dense_end = taken + taken / 8 + 2 * CUT_PAGES_MIN;
        (self.free > taken && dense_end < self.end).then_some(dense_end)
    }

    /// Takes the pages at the beginning of the file first, from now on.
    pub(super) fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Cuts off the free pages at the end of the file, if there are enough. Returns whether it did. No batch
    /// is open.
    pub(super) fn cut(&mut self, file: &mut PageFile) -> StoreResult<bool> {
        let end = self.nodes().next_back().map_or(FIRST_PAGES, |last| last + 1);
        if self.end < end + CUT_PAGES_MIN {
            return Ok(false);
        }
        file.cut(end)?;
        let own = (end..self.end).filter(|page| is_own(*page)).count() as u64;
        self.free -= self.end - end - own;
        self.end = end;
        let words = groups_of(end) as usize * GROUP_WORDS;
        self.used.truncate(words);
        self.retired.truncate(words);
        self.changed.retain(|word| *word < words);
        self.changed_before.retain(|word| *word < words);
        Ok(true)
    }
}
