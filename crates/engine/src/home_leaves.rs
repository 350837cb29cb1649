//! The leaves of a table, for a scan of the data file by another process (a smart device).
//!
//! The other process reads leaves from the data file. It may use a leaf only if the leaf in the file has
//! everything that the snapshot sees. `HomeLeaves` has the facts that decide this (decision 0370):
//!
//! 1. The floor and then the bound, an LSN, are taken first. All changes by transactions below the floor, and
//!    the undo of those that were rolled back, have LSNs up to the bound.
//! 2. Then the leaves are listed, and then the pager says which of them have changes that the data file may
//!    lack. Another leaf has in the file all changes up to the bound. If it was changed after the bound, its
//!    page LSN is above the bound.
//! 3. A leaf has the listed rows only if it has the listed fences (the bounds of its keys). So a split or a
//!    merge never loses a row or shows it twice.
//!
//! This module does not know how the other process reads.

use std::ops::Bound;

use varve_pager::{DataFile, Lsn, PageId};

use crate::catalog::Table;
use crate::error::Result;
use crate::paged::PagedStore;
use crate::reader::Reader;
use crate::tree::LeafList;

/// A part of a table's leaves in key order, with the facts that decide whether the data file has their rows.
pub struct HomeLeaves {
    /// The owner of the tree's pages.
    pub owner: u32,
    /// A leaf with a higher page LSN has changes that may be newer than the snapshot.
    pub bound: Lsn,
    /// The version of a row that was written by a transaction with a lower id is visible.
    pub floor: u64,
    list: LeafList,
    /// For each leaf, whether the data file may lack changes up to the bound.
    newer: Vec<bool>,
}

/// A sample of a table's leaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct HomeFacts {
    /// The number of leaves in the sample.
    pub leaves: usize,
    /// Of these, the leaves with changes that the data file may lack.
    pub newer: usize,
    /// Of these, the leaves in the buffer pool.
    pub resident: usize,
}

impl HomeLeaves {
    /// Returns the leaves.
    pub fn pages(&self) -> &[PageId] {
        self.list.pages()
    }

    /// Returns whether the data file may lack changes of this leaf.
    pub fn is_newer(&self, index: usize) -> bool {
        self.newer[index]
    }

    /// Returns a hash of the fences of this leaf (`fences_hash`).
    pub fn fences(&self, index: usize) -> u64 {
        fences_hash(self.list.lower_fence(index), self.list.upper_fence(index))
    }

    /// Returns the keys that this leaf had, for a scan.
    pub fn keys(&self, index: usize) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let upper = self.list.upper_fence(index).map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(self.list.lower_fence(index)), upper)
    }

    /// Returns the key at which the next part of the leaves begins, or `None` at the end.
    pub fn next(&self) -> Option<&[u8]> {
        self.list.next()
    }
}

/// Returns a hash of the fences of a leaf (FNV-1a).
pub fn fences_hash(lower: &[u8], upper: Option<&[u8]>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let of_lower = lower.iter().fold(0xcbf2_9ce4_8422_2325 ^ lower.len() as u64, step);
    match upper {
        None => of_lower,
        Some(upper) => upper.iter().fold(step(of_lower, &1), step),
    }
}

impl Reader {
    /// Lists up to `leaves_max` leaves of a table, from the beginning (`from` is empty) or from `next` of an
    /// earlier list. Returns `None` if another process cannot read the table's leaves. The reason is that
    /// they are not in place and uncompressed in the data file, or that the snapshot is one of the past.
    ///
    /// Under SERIALIZABLE the whole table counts as read.
    pub fn home_leaves(
        &mut self,
        table: &Table,
        from: &[u8],
        leaves_max: usize,
    ) -> Result<Option<HomeLeaves>> {
        let Some(store) = PagedStore::of(table).filter(|_| !self.cx.is_past) else { return Ok(None) };
        if let Some(serial) = &self.cx.serial {
            serial.read_range(store.tree.owner(), Bound::Unbounded, Bound::Unbounded);
        }
        self.cx.check_cancel()?;
        let floor = self.cx.view()?.floor.get();
        let pager = &self.cx.core.pager;
        let bound = pager.log().end();
        let list = store.tree.leaves(pager, from, leaves_max)?;
        let Some(newer) = pager.newer_than_home(list.pages()) else { return Ok(None) };
        Ok(Some(HomeLeaves { owner: store.tree.owner(), bound, floor, list, newer }))
    }

    /// Examines samples of leaves as a scan of the data file by another process would find them. A sample has
    /// up to `leaves_max` leaves after each of the places. The first leaf of a place does not count, because
    /// a sample of its rows may have brought it into the pool. Returns `None` if another process cannot read
    /// the table's leaves.
    pub fn home_facts(
        &mut self,
        table: &Table,
        places: &[Vec<u8>],
        leaves_max: usize,
    ) -> Result<Option<HomeFacts>> {
        let mut facts = HomeFacts::default();
        for place in places {
            let Some(leaves) = self.home_leaves(table, place, leaves_max + 1)? else { return Ok(None) };
            let pages = leaves.pages();
            facts.leaves += pages.len().saturating_sub(1);
            facts.newer += (1..pages.len()).filter(|leaf| leaves.is_newer(*leaf)).count();
            facts.resident += self.cx.core.pager.resident_count(pages.get(1..).unwrap_or_default());
        }
        Ok(Some(facts))
    }

    /// Returns the file of the leaves.
    pub fn data_file(&self) -> Result<DataFile> {
        Ok(self.cx.core.pager.data_file()?)
    }

    /// Returns the bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.cx.core.pager.page_size()
    }

    /// Fails if the snapshot became too old, or if the statement is cancelled. After the other process has
    /// read the leaves, the caller of `home_leaves` calls this function. If it fails, the caller drops the
    /// rows that were read.
    pub fn check_snapshot(&mut self) -> Result<()> {
        self.cx.check_cancel()?;
        self.cx.view().map(|_| ())
    }
}
