//! The contents of the pages: as the workload expects them, and as they are read from the database.
//!
//! Invariants
//! 1. The digest is an XOR of hashes. Each word that is not zero has one hash, of (page number, index of the
//!    word, value).

use std::collections::BTreeMap;

use varve_pager::{Access, PageId, Pager};

use super::{Load, PAGES_MAX, page_id, text, word_offset, words};
use crate::rng::Rng;

fn hash(page: u64, word: u64, value: u64) -> u64 {
    if value == 0 { 0 } else { Rng::new(page << 32 ^ word << 20 ^ value.rotate_left(31)).draw() }
}

/// The state of the pages that the workload expects.
#[derive(Default)]
pub(super) struct Model {
    words: BTreeMap<(u64, u64), u64>,
    pub(super) digest: u64,
}

impl Model {
    pub(super) fn set(&mut self, page: u64, word: u64, value: u64) {
        let old = self.words.insert((page, word), value).unwrap_or(0);
        self.digest ^= hash(page, word, old) ^ hash(page, word, value);
    }

    pub(super) fn clear(&mut self, page: u64) {
        let words: Vec<u64> =
            self.words.range((page, 0)..(page + 1, 0)).map(|((_, word), _)| *word).collect();
        words.into_iter().for_each(|word| self.set(page, word, 0));
    }
}

/// The workload's data about its pages, which does not depend on the open pager.
#[derive(Default)]
pub(super) struct Known {
    pub(super) model: Model,
    pub(super) pages: Vec<u64>,
    pub(super) owner: u32,
    /// `None` before the first pager is open.
    pub(super) load: Option<Load>,
    pub(super) burst: Option<(u32, Vec<usize>)>,
}

impl Known {
    /// Reads the state of pages that another worker has made. Their segments do not matter.
    pub(super) fn of(pager: &Pager) -> Result<Known, String> {
        let mut known = Known { pages: listed(pager)?, ..Known::default() };
        for (entry, number) in (0..).zip(&known.pages).filter(|(_, number)| **number != 0) {
            known.model.set(0, entry, *number);
            let page = pager.fix_s(page_id(*number), Access::Random).map_err(text)?;
            let values = (0..words(page.len())).map(|word| (word, word_of(&page, word)));
            values
                .filter(|(_, value)| *value != 0)
                .for_each(|(word, value)| known.model.set(*number, word, value));
        }
        Ok(known)
    }
}

/// Returns the entries of the root page.
fn listed(pager: &Pager) -> Result<Vec<u64>, String> {
    let root = pager.fix_s(PageId::ROOT, Access::Random).map_err(text)?;
    Ok((0..PAGES_MAX as u64).map(|entry| word_of(&root, entry)).collect())
}

fn word_of(page: &[u8], word: u64) -> u64 {
    let at = word_offset(word);
    page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Returns the digest of all pages that the root lists.
pub(super) fn digest(pager: &Pager) -> Result<u64, String> {
    let mut digest = 0;
    for (entry, number) in listed(pager)?.into_iter().enumerate().filter(|(_, number)| *number != 0) {
        digest ^= hash(0, entry as u64, number);
        let page = pager.fix_s(page_id(number), Access::Random).map_err(text)?;
        digest ^= (0..words(page.len()))
            .map(|word| hash(number, word, word_of(&page, word)))
            .fold(0, |sum, one| sum ^ one);
    }
    Ok(digest)
}
